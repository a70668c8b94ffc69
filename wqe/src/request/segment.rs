//! The segments between control segment and data.

use crate::request::remote::RemoteAddress;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::U64;
use mlx5_prm::wqe::{
    AddressVector, AtomicSegment, EXTENDED_UD_AV, MaskedAtomicSegment, RemoteAddressSegment, UNIT,
    XrcSegment,
};
use zerocopy::transmute;

/// A part of a request, of constant size.
///
/// # Safety
/// [`Segment::write`] writes no more than [`Segment::UNITS`] units.
pub unsafe trait Segment: Copy {
    /// Its size in 16-byte units.
    const UNITS: usize;

    /// Writes the segment.
    ///
    /// # Safety
    /// `at` has room for it.
    unsafe fn write(self, at: NonNull<u8>);
}

// SAFETY: nothing is written.
unsafe impl Segment for () {
    const UNITS: usize = 0;

    #[inline]
    unsafe fn write(self, _: NonNull<u8>) {}
}

// SAFETY: one segment is written.
unsafe impl Segment for RemoteAddress {
    const UNITS: usize = size_of::<RemoteAddressSegment>() / UNIT;

    #[inline]
    unsafe fn write(self, at: NonNull<u8>) {
        // The address; the key and the reserved word, in one store.
        let words = [self.addr.to_be_bytes(), u64::from(self.rkey.to_be()).to_le_bytes()];
        const _: () = assert!(offset_of!(RemoteAddressSegment, rkey) == 8);
        // SAFETY: by the caller's contract.
        unsafe { at.cast().write(words) };
    }
}

/// The operands of an atomic.
#[derive(Clone, Copy, Debug)]
pub struct Atomic {
    pub(crate) remote: RemoteAddress,
    pub(crate) swap_or_add: u64,
    /// The value to compare with; for masked additions, the boundaries of the fields.
    pub(crate) compare: u64,
}

// SAFETY: two segments are written.
unsafe impl Segment for Atomic {
    const UNITS: usize = RemoteAddress::UNITS + size_of::<AtomicSegment>() / UNIT;

    #[inline]
    unsafe fn write(self, at: NonNull<u8>) {
        let words = [self.swap_or_add.to_be_bytes(), self.compare.to_be_bytes()];
        const _: () = assert!(offset_of!(AtomicSegment, compare) == 8);
        // SAFETY: by the caller's contract.
        unsafe {
            self.remote.write(at);
            at.byte_add(RemoteAddress::UNITS * UNIT).cast().write(words);
        }
    }
}

/// Operands of an atomic compare and swap of selected bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct MaskedOperands {
    /// The value to compare with.
    pub compare: u64,
    /// The bits to compare.
    pub compare_mask: u64,
    /// The value to swap in.
    pub swap: u64,
    /// The bits to swap.
    pub swap_mask: u64,
}

/// The operands of a masked compare and swap.
#[derive(Clone, Copy, Debug)]
pub struct MaskedAtomic {
    pub(crate) remote: RemoteAddress,
    pub(crate) operands: MaskedOperands,
}

// SAFETY: two segments are written.
unsafe impl Segment for MaskedAtomic {
    const UNITS: usize = RemoteAddress::UNITS + size_of::<MaskedAtomicSegment>() / UNIT;

    unsafe fn write(self, at: NonNull<u8>) {
        let segment = MaskedAtomicSegment {
            swap: U64::new(self.operands.swap),
            compare: U64::new(self.operands.compare),
            swap_mask: U64::new(self.operands.swap_mask),
            compare_mask: U64::new(self.operands.compare_mask),
        };
        // SAFETY: by the caller's contract; a segment needs no alignment.
        unsafe {
            self.remote.write(at);
            at.byte_add(RemoteAddress::UNITS * UNIT).cast().write(segment);
        }
    }
}

/// The shared receive queue that receives a message of an extended connection.
#[derive(Clone, Copy, Debug)]
pub struct RemoteSrq(pub(crate) u32);

// SAFETY: one segment is written.
unsafe impl Segment for RemoteSrq {
    const UNITS: usize = size_of::<XrcSegment>() / UNIT;

    #[inline]
    unsafe fn write(self, at: NonNull<u8>) {
        let words = [u64::from((self.0 & QPN_MASK).to_be()).to_le_bytes(), [0; 8]];
        const _: () = assert!(offset_of!(XrcSegment, srqn) == 0);
        // SAFETY: by the caller's contract.
        unsafe { at.cast().write(words) };
    }
}

/// The bits of a queue pair number or shared receive queue number.
const QPN_MASK: u32 = 0xff_ffff;

/// Two words, the first of which is in place of what was there.
///
/// An address vector is read and written in double words: one that was copied a moment ago, sixteen
/// bytes at a time, is forwarded to reads that lie in one of its stores, and reads of fields that
/// lie across would wait for them.
#[inline]
fn first_of(words: u64, first: u32) -> u64 {
    const SECOND: u64 = u64::from_ne_bytes([0, 0, 0, 0, 255, 255, 255, 255]);
    let [a, b, c, d] = first.to_be_bytes();
    words & SECOND | u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

/// The receiver of a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The address vector.
    pub vector: &'a AddressVector,
    /// Number of the receiving queue pair.
    pub qp_num: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

// SAFETY: one segment is written.
unsafe impl Segment for Datagram<'_> {
    const UNITS: usize = size_of::<AddressVector>() / UNIT;

    #[inline]
    unsafe fn write(self, at: NonNull<u8>) {
        const {
            assert!(offset_of!(AddressVector, qkey) == 0);
            assert!(offset_of!(AddressVector, dqp_dct) == size_of::<u64>());
        }
        let [key, number, rest @ ..]: [u64; 6] = transmute!(*self.vector);
        let key = first_of(key, self.qkey);
        let number = first_of(number, self.qp_num & QPN_MASK | EXTENDED_UD_AV);
        let [a, b, c, d] = rest;
        // SAFETY: by the caller's contract; a segment needs no alignment.
        unsafe { at.cast().write_unaligned([key, number, a, b, c, d]) };
    }
}
