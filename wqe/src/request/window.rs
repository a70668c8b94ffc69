//! Requests that rewrite a memory key: binding and invalidating memory windows.

use crate::request::data::{Data, DataKind, Limits, write_sge};
use crate::request::error::PostError;
use crate::request::segment::Segment;
use crate::request::sge::Sge;
use core::mem::{offset_of, size_of};
use core::ptr::NonNull;
use mlx5_prm::umr::{MkeyContextSegment, UmrControlSegment, mkey_mask, umr_flags};
use mlx5_prm::wqe::UNIT;

/// Units of the translation after the UMR's head, padded to a block.
pub(crate) const UMR_UNITS: usize = 4;

/// The maximum length of a window: it has one translation entry.
const MAX_WINDOW: u64 = 1 << 31;

/// The type of a memory window (`enum ibv_mw_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowType {
    /// Type 1: bound by a call, for every queue pair of the domain.
    One,
    /// Type 2: bound by a request, for one queue pair, which can invalidate it.
    Two,
}

/// The parameters of a binding.
#[derive(Clone, Copy, Debug)]
pub struct BindParts {
    /// Type of the window.
    pub window_type: WindowType,
    /// The current key of the window.
    pub window: u32,
    /// The new key: the same but for the low byte.
    pub rkey: u32,
    /// The region's local key.
    pub lkey: u32,
    /// First address in the region.
    pub addr: u64,
    /// Length; zero unbinds the window.
    pub length: u64,
    /// The access rights granted ([`mlx5_prm::umr::mkey_access`]).
    pub access: u8,
    /// Whether addresses start at zero.
    pub zero_based: bool,
}

/// A binding whose parameters are known to be valid.
#[derive(Clone, Copy, Debug)]
pub struct Binding(BindParts);

impl Binding {
    /// Creates a binding.
    ///
    /// # Safety
    /// `window` is the key of a window, of this type, and of the region's domain. The region
    /// contains the bytes and allows the rights that are granted.
    pub const unsafe fn new(parts: BindParts) -> Self {
        Self(parts)
    }

    /// The key of the window after the binding.
    pub const fn rkey(&self) -> u32 {
        self.0.rkey
    }

    pub(crate) fn window(&self) -> u32 {
        self.0.window
    }

    pub(crate) fn check(&self) -> Result<(), PostError> {
        if self.0.length > MAX_WINDOW {
            let gib = u32::try_from(self.0.length >> 30).unwrap_or(u32::MAX);
            return Err(PostError::WindowTooLong { gib });
        }
        Ok(())
    }

    pub(crate) fn head(&self, qpn: u32) -> UmrHead {
        let BindParts { window_type, rkey, addr, length, access, zero_based, .. } = self.0;
        let two = window_type == WindowType::Two;
        if length == 0 {
            return UmrHead::free(rkey as u8, two);
        }
        let owner = if two { qpn << 8 } else { MkeyContextSegment::ANY_QPN };
        UmrHead {
            flags: umr_flags::INLINE
                | umr_flags::TRANSLATION_OFFSET
                | if two { umr_flags::CHECK_FREE } else { 0 },
            entries: UMR_UNITS as u16,
            mask: mkey_mask::FREE
                | mkey_mask::MKEY
                | mkey_mask::LENGTH
                | mkey_mask::START_ADDRESS
                | mkey_mask::ACCESS
                | if two { mkey_mask::QPN } else { 0 },
            access,
            qpn_mkey: owner | rkey & 0xff,
            start: if zero_based { 0 } else { addr },
            length,
            ..UmrHead::default()
        }
    }

    pub(crate) fn translation(&self) -> Translation {
        let BindParts { lkey, addr, length, .. } = self.0;
        Translation((length != 0).then_some(Sge { addr, length: length as u32, lkey }))
    }
}

/// The UMR's control segment and key context: which parts of a key change, and to what.
#[derive(Clone, Copy, Default, Debug)]
pub struct UmrHead {
    pub(crate) flags: u8,
    /// Units of the translation entries.
    pub(crate) entries: u16,
    /// Units of the signature.
    pub(crate) bsf: u16,
    /// The parts that change.
    pub(crate) mask: u64,
    pub(crate) free: u8,
    pub(crate) access: u8,
    pub(crate) qpn_mkey: u32,
    pub(crate) flags_pd: u32,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

impl UmrHead {
    /// Frees a key and sets its low byte to `variant`. With `of_queue` the key must belong to this
    /// queue pair.
    pub(crate) fn free(variant: u8, of_queue: bool) -> Self {
        Self {
            flags: umr_flags::INLINE
                | umr_flags::TRANSLATION_OFFSET
                | if of_queue { umr_flags::CHECK_QPN } else { 0 },
            mask: mkey_mask::FREE | mkey_mask::MKEY | if of_queue { mkey_mask::QPN } else { 0 },
            free: MkeyContextSegment::FREE,
            qpn_mkey: MkeyContextSegment::ANY_QPN | u32::from(variant),
            ..Self::default()
        }
    }
}

const _: () = {
    assert!(size_of::<UmrControlSegment>() == 6 * size_of::<u64>());
    assert!(offset_of!(UmrControlSegment, klm_octowords) == 4);
    assert!(offset_of!(UmrControlSegment, mkey_mask) == 8);
    assert!(offset_of!(MkeyContextSegment, access_flags) == 2);
    assert!(offset_of!(MkeyContextSegment, qpn_mkey) == 4);
    assert!(offset_of!(MkeyContextSegment, flags_pd) == 12);
    assert!(offset_of!(MkeyContextSegment, start_address) == 16);
    assert!(offset_of!(MkeyContextSegment, length) == 24);
};

// SAFETY: two segments are written.
unsafe impl Segment for UmrHead {
    const UNITS: usize = (size_of::<UmrControlSegment>() + size_of::<MkeyContextSegment>()) / UNIT;

    #[inline]
    unsafe fn write(self, at: NonNull<u8>) {
        let sizes = u64::from(self.entries) << 16 | u64::from(self.bsf);
        let control = u64::from(self.flags) << 56 | sizes;
        let rights = u64::from(self.free) << 56 | u64::from(self.access) << 40;
        let key = rights | u64::from(self.qpn_mkey);
        let context = [key, self.flags_pd.into(), self.start, self.length, 0, 0, 0, 0];
        // SAFETY: by the caller's contract; a segment starts at a multiple of a unit.
        unsafe {
            at.cast().write([control, self.mask, 0, 0, 0, 0].map(u64::to_be));
            let at = at.byte_add(size_of::<UmrControlSegment>());
            at.cast().write(context.map(u64::to_be));
        }
    }
}

/// The translation of a bound window; `None` to unbind it.
#[derive(Clone, Copy)]
pub(crate) struct Translation(Option<Sge>);

// SAFETY: at most `UMR_UNITS` units are written, as `BindWindow` declares.
unsafe impl Data for Translation {
    unsafe fn write(self, at: NonNull<u8>, _: DataKind, _: &Limits) -> Result<usize, PostError> {
        let Some(sge) = self.0 else { return Ok(0) };
        // SAFETY: there is room for `UMR_UNITS` units.
        unsafe {
            at.write_bytes(0, UMR_UNITS * UNIT);
            write_sge(at, sge);
        }
        Ok(UMR_UNITS)
    }
}
