//! The segments between control segment and data.

use crate::request::remote::RemoteAddress;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::wqe::{
    AddressVector, AtomicSegment, EXTENDED_UD_AV, MaskedAtomicSegment, RemoteAddressSegment, UNIT,
    XrcSegment,
};
use mlx5_prm::{U32, U64};

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

    #[inline(always)]
    unsafe fn write(self, _: NonNull<u8>) {}
}

// SAFETY: one segment is written.
unsafe impl Segment for RemoteAddress {
    const UNITS: usize = size_of::<RemoteAddressSegment>() / UNIT;

    #[inline(always)]
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

    #[inline(always)]
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

    #[inline(always)]
    unsafe fn write(self, at: NonNull<u8>) {
        let words = [u64::from((self.0 & QPN_MASK).to_be()).to_le_bytes(), [0; 8]];
        const _: () = assert!(offset_of!(XrcSegment, srqn) == 0);
        // SAFETY: by the caller's contract.
        unsafe { at.cast().write(words) };
    }
}

/// The bits of a queue pair number or shared receive queue number.
const QPN_MASK: u32 = 0xff_ffff;

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

    #[inline(always)]
    unsafe fn write(self, at: NonNull<u8>) {
        let segment = AddressVector {
            qkey: U32::new(self.qkey),
            dqp_dct: U32::new(self.qp_num & QPN_MASK | EXTENDED_UD_AV),
            ..*self.vector
        };
        // SAFETY: by the caller's contract; a segment needs no alignment.
        unsafe { at.cast().write(segment) };
    }
}
