//! What stands between a request's control segment and its data.

use crate::request::sge::RemoteAddress;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::wqe::{
    AddressVector, AtomicSegment, EXTENDED_UD_AV, MaskedAtomicSegment, RemoteAddressSegment, UNIT,
    XrcSegment,
};
use mlx5_prm::{U32, U64};

/// A part of a request, of a size that is known.
///
/// # Safety
/// [`Segment::write`] writes no more than [`Segment::UNITS`] units.
pub unsafe trait Segment: Copy {
    /// Its 16-byte units.
    const UNITS: usize;

    /// Writes it.
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
        // Address; key and what is reserved, stored at once.
        let words = [self.addr.to_be_bytes(), u64::from(self.rkey.to_be()).to_le_bytes()];
        const _: () = assert!(offset_of!(RemoteAddressSegment, rkey) == 8);
        // SAFETY: by the contract.
        unsafe { at.cast().write(words) };
    }
}

/// What an atomic is to do where.
#[derive(Clone, Copy)]
pub struct Atomic {
    pub(crate) remote: RemoteAddress,
    pub(crate) swap_or_add: u64,
    /// What to compare with; for masked additions, where the fields end.
    pub(crate) compare: u64,
}

// SAFETY: two segments are written.
unsafe impl Segment for Atomic {
    const UNITS: usize = RemoteAddress::UNITS + size_of::<AtomicSegment>() / UNIT;

    #[inline(always)]
    unsafe fn write(self, at: NonNull<u8>) {
        let words = [self.swap_or_add.to_be_bytes(), self.compare.to_be_bytes()];
        const _: () = assert!(offset_of!(AtomicSegment, compare) == 8);
        // SAFETY: by the contract.
        unsafe {
            self.remote.write(at);
            at.byte_add(RemoteAddress::UNITS * UNIT).cast().write(words);
        }
    }
}

/// Operands of an atomic compare and swap of some bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct MaskedOperands {
    /// What to compare with.
    pub compare: u64,
    /// Which bits of it.
    pub compare_mask: u64,
    /// What to swap in.
    pub swap: u64,
    /// Which bits of it.
    pub swap_mask: u64,
}

/// What a masked compare and swap is to do where.
#[derive(Clone, Copy)]
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
        // SAFETY: by the contract; a segment needs no alignment.
        unsafe {
            self.remote.write(at);
            at.byte_add(RemoteAddress::UNITS * UNIT).cast().write(segment);
        }
    }
}

/// The shared receive queue that takes a message of an extended connection.
#[derive(Clone, Copy)]
pub struct RemoteSrq(pub(crate) u32);

// SAFETY: one segment is written.
unsafe impl Segment for RemoteSrq {
    const UNITS: usize = size_of::<XrcSegment>() / UNIT;

    #[inline(always)]
    unsafe fn write(self, at: NonNull<u8>) {
        let words = [u64::from((self.0 & QPN_MASK).to_be()).to_le_bytes(), [0; 8]];
        const _: () = assert!(offset_of!(XrcSegment, srqn) == 0);
        // SAFETY: by the contract.
        unsafe { at.cast().write(words) };
    }
}

/// Bits of the number of a queue pair or a shared receive queue.
const QPN_MASK: u32 = 0xff_ffff;

/// Whom a datagram is for.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The way there.
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
        // SAFETY: by the contract; a segment needs no alignment.
        unsafe { at.cast().write(segment) };
    }
}
