//! Requests that rewrite a memory key: binding and invalidating memory windows.

use crate::request::data::{Data, DataKind, Limits};
use crate::request::error::PostError;
use crate::request::segment::Segment;
use core::ptr::NonNull;
use mlx5_prm::umr::{Klm, MkeyContextSegment, UmrControlSegment, mkey_mask, umr_flags};
use mlx5_prm::wqe::UNIT;
use mlx5_prm::{U16, U32, U64};

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
            control: UmrControlSegment {
                flags: umr_flags::INLINE
                    | umr_flags::TRANSLATION_OFFSET
                    | if two { umr_flags::CHECK_FREE } else { 0 },
                klm_octowords: U16::new(UMR_UNITS as u16),
                mkey_mask: U64::new(
                    mkey_mask::FREE
                        | mkey_mask::MKEY
                        | mkey_mask::LENGTH
                        | mkey_mask::START_ADDRESS
                        | mkey_mask::ACCESS
                        | if two { mkey_mask::QPN } else { 0 },
                ),
                ..UmrControlSegment::default()
            },
            mkey: MkeyContextSegment {
                access_flags: access,
                qpn_mkey: U32::new(owner | rkey & 0xff),
                start_address: U64::new(if zero_based { 0 } else { addr }),
                length: U64::new(length),
                ..MkeyContextSegment::default()
            },
        }
    }

    pub(crate) fn translation(&self) -> Translation {
        let BindParts { lkey, addr, length, .. } = self.0;
        Translation((length != 0).then(|| Klm {
            byte_count: U32::new(length as u32),
            mkey: U32::new(lkey),
            address: U64::new(addr),
        }))
    }
}

/// The UMR's control segment and key context: which parts of a key change, and to what.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UmrHead {
    control: UmrControlSegment,
    mkey: MkeyContextSegment,
}

impl UmrHead {
    /// Frees a key and sets its low byte to `variant`. With `of_queue` the key must belong to this
    /// queue pair.
    pub(crate) fn free(variant: u8, of_queue: bool) -> Self {
        Self {
            control: UmrControlSegment {
                flags: umr_flags::INLINE
                    | umr_flags::TRANSLATION_OFFSET
                    | if of_queue { umr_flags::CHECK_QPN } else { 0 },
                mkey_mask: U64::new(
                    mkey_mask::FREE | mkey_mask::MKEY | if of_queue { mkey_mask::QPN } else { 0 },
                ),
                ..UmrControlSegment::default()
            },
            mkey: MkeyContextSegment {
                free: MkeyContextSegment::FREE,
                qpn_mkey: U32::new(MkeyContextSegment::ANY_QPN | u32::from(variant)),
                ..MkeyContextSegment::default()
            },
        }
    }
}

// SAFETY: two segments are written.
unsafe impl Segment for UmrHead {
    const UNITS: usize = size_of::<Self>() / UNIT;

    unsafe fn write(self, at: NonNull<u8>) {
        // SAFETY: by the caller's contract; segments need no alignment.
        unsafe { at.cast().write(self) };
    }
}

/// The translation of a bound window; `None` to unbind it.
#[derive(Clone, Copy)]
pub(crate) struct Translation(Option<Klm>);

// SAFETY: at most `UMR_UNITS` units are written, as `BindWindow` declares.
unsafe impl Data for Translation {
    unsafe fn write(self, at: NonNull<u8>, _: DataKind, _: &Limits) -> Result<usize, PostError> {
        let Some(klm) = self.0 else { return Ok(0) };
        // SAFETY: there is room for `UMR_UNITS` units.
        unsafe {
            at.write_bytes(0, UMR_UNITS * UNIT);
            at.cast().write(klm);
        }
        Ok(UMR_UNITS)
    }
}
