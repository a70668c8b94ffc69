//! What stands between a request's control segment and its data.

use crate::sge::RemoteAddress;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::U32;
use mlx5_prm::wqe::{AddressVector, EXTENDED_UD_AV, RemoteAddressSegment, UNIT};

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

/// Bits of a queue pair number.
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
