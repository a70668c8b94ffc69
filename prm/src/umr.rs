//! User-mode memory registration: the segments of UMR WQEs, which rewrite a memory key from the send
//! queue (binding a window, invalidating a key, giving an indirect key its layout).
//!
//! Linux `include/linux/mlx5/qp.h`, `device.h`; PRM, "User-Mode Memory Registration". A UMR WQE is:
//! control, [`UmrControlSegment`], [`MkeyContextSegment`], then inline translation entries
//! ([`Klm`]s, or one [`RepeatBlock`] with its [`RepeatEntry`]s) padded to 64 bytes, then
//! [`crate::signature::Bsf`] where signatures are configured.

use crate::{U16, U32, U64, assert_layout};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of [`UmrControlSegment::flags`] (`MLX5_UMR_INLINE`, `MLX5_WQE_UMR_CTRL_FLAG_*`).
pub mod umr_flags {
    /// Translation entries follow in the WQE.
    pub const INLINE: u8 = 1 << 7;
    /// Fail unless the key is free.
    pub const CHECK_FREE: u8 = 1 << 5;
    /// Fail if the key is free.
    pub const CHECK_NOT_FREE: u8 = 1 << 6;
    /// The field after the octoword count is an offset into the translation, not a BSF count.
    pub const TRANSLATION_OFFSET: u8 = 1 << 4;
    /// Fail unless the key belongs to this queue pair.
    pub const CHECK_QPN: u8 = 1 << 3;
}

/// Bits of [`UmrControlSegment::mkey_mask`]: which parts of the key change (`MLX5_MKEY_MASK_*`).
pub mod mkey_mask {
    /// Length.
    pub const LENGTH: u64 = 1 << 0;
    /// Page size.
    pub const PAGE_SIZE: u64 = 1 << 1;
    /// Start address.
    pub const START_ADDRESS: u64 = 1 << 6;
    /// Protection domain.
    pub const PD: u64 = 1 << 7;
    /// Whether a SEND with invalidate may free it.
    pub const REMOTE_INVALIDATE: u64 = 1 << 8;
    /// The counter of signature errors that were seen.
    pub const SIGNATURE_ERROR_COUNT: u64 = 1 << 9;
    /// Whether a BSF is in force.
    pub const BSF_ENABLE: u64 = 1 << 12;
    /// The key's variant byte.
    pub const MKEY: u64 = 1 << 13;
    /// The queue pair that it is bound to.
    pub const QPN: u64 = 1 << 14;
    /// Local read right.
    pub const LOCAL_READ: u64 = 1 << 17;
    /// Local write right.
    pub const LOCAL_WRITE: u64 = 1 << 18;
    /// Remote read right.
    pub const REMOTE_READ: u64 = 1 << 19;
    /// Remote write right.
    pub const REMOTE_WRITE: u64 = 1 << 20;
    /// Atomic right.
    pub const ATOMIC: u64 = 1 << 21;
    /// Whether writes may be in any order.
    pub const RELAXED_ORDERING_WRITE: u64 = 1 << 25;
    /// Whether the key is free.
    pub const FREE: u64 = 1 << 29;
    /// Whether reads may be in any order.
    pub const RELAXED_ORDERING_READ: u64 = 1 << 47;
    /// The four access rights together.
    pub const ACCESS: u64 = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE | ATOMIC;
}

/// Bits of [`MkeyContextSegment::access_flags`] (`MLX5_PERM_*`).
pub mod mkey_access {
    /// Local read.
    pub const LOCAL_READ: u8 = 1 << 2;
    /// Local write.
    pub const LOCAL_WRITE: u8 = 1 << 3;
    /// Remote read.
    pub const REMOTE_READ: u8 = 1 << 4;
    /// Remote write.
    pub const REMOTE_WRITE: u8 = 1 << 5;
    /// Atomic.
    pub const ATOMIC: u8 = 1 << 6;
}

/// UMR control segment (`struct mlx5_wqe_umr_ctrl_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UmrControlSegment {
    /// [`umr_flags`].
    pub flags: u8,
    /// Reserved.
    pub reserved0: [u8; 3],
    /// Translation entries, in units of 16 bytes.
    pub klm_octowords: U16,
    /// Offset of the first translation entry, or BSF units of 16 bytes (see
    /// [`umr_flags::TRANSLATION_OFFSET`]).
    pub offset_or_bsf_octowords: U16,
    /// [`mkey_mask`].
    pub mkey_mask: U64,
    /// Upper bits of the offset of the first translation entry.
    pub translation_offset_high: U32,
    /// Reserved.
    pub reserved1: [u8; 28],
}
assert_layout!(UmrControlSegment, 48, klm_octowords @ 4, offset_or_bsf_octowords @ 6,
    mkey_mask @ 8, translation_offset_high @ 16);

/// Memory key context as a UMR WQE carries it (`struct mlx5_mkey_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MkeyContextSegment {
    /// [`Self::FREE`] or zero.
    pub free: u8,
    /// Reserved.
    pub reserved0: u8,
    /// [`mkey_access`].
    pub access_flags: u8,
    /// Reserved for the device's own flags.
    pub sf: u8,
    /// Queue pair (24 bits; all ones means any), variant byte of the key.
    pub qpn_mkey: U32,
    /// Reserved.
    pub reserved1: U32,
    /// [`Self::BSF_ENABLE`], error counter, protection domain (24 bits).
    pub flags_pd: U32,
    /// Start address.
    pub start_address: U64,
    /// Length.
    pub length: U64,
    /// BSF size, in units of 16 bytes.
    pub bsf_octword_size: U32,
    /// Reserved.
    pub reserved2: [u8; 16],
    /// Translation size, in units of 16 bytes.
    pub translations_octword_size: U32,
    /// Reserved.
    pub reserved3: [u8; 3],
    /// Page size as a power of two, for keys of pages.
    pub log_page_size: u8,
    /// Reserved.
    pub reserved4: U32,
}
assert_layout!(MkeyContextSegment, 64, access_flags @ 2, qpn_mkey @ 4, flags_pd @ 12,
    start_address @ 16, length @ 24, bsf_octword_size @ 32, translations_octword_size @ 52,
    log_page_size @ 59);

impl MkeyContextSegment {
    /// The key is free: it cannot be used until it is bound or configured (`MLX5_MKEY_STATUS_FREE`).
    pub const FREE: u8 = 1 << 6;
    /// In `flags_pd`: the key covers every address, whatever its length (`MLX5_MKEY_LEN64`).
    pub const LENGTH_64: u32 = 1 << 31;
    /// In `flags_pd`: a SEND with invalidate may free the key (`MLX5_MKEY_REMOTE_INVAL`).
    pub const REMOTE_INVALIDATE: u32 = 1 << 24;
    /// In `flags_pd`: a BSF is in force (`MLX5_MKEY_BSF_EN`).
    pub const BSF_ENABLE: u32 = 1 << 30;
    /// Where the low bit of the signature error counter stands in `flags_pd`.
    pub const SIGNATURE_ERROR_COUNT_SHIFT: u32 = 26;
    /// In `qpn_mkey`: any queue pair may use the key.
    pub const ANY_QPN: u32 = 0xff_ffff << 8;
}

/// Translation entry of an indirect key: a piece of another key (`struct mlx5_klm`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Klm {
    /// Length.
    pub byte_count: U32,
    /// The other key.
    pub mkey: U32,
    /// Where the piece starts in it.
    pub address: U64,
}
assert_layout!(Klm, 16, mkey @ 4, address @ 8);

/// Head of an interleaved layout (`struct mlx5_stride_block_ctrl_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RepeatBlock {
    /// Bytes that all entries together contribute in one round.
    pub byte_count: U32,
    /// [`Self::OP`].
    pub op: U32,
    /// Rounds.
    pub repeat_count: U32,
    /// Reserved.
    pub reserved: U16,
    /// Entries that follow.
    pub num_entries: U16,
}
assert_layout!(RepeatBlock, 16, op @ 4, repeat_count @ 8, num_entries @ 14);

impl RepeatBlock {
    /// Marks the entry as the head of a repeat block (`MLX5_STRIDE_BLOCK_OP`).
    pub const OP: u32 = 0x400;
}

/// Entry of an interleaved layout (`struct mlx5_stride_block_entry`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RepeatEntry {
    /// Bytes from one round's piece to the next's.
    pub stride: U16,
    /// Bytes taken in each round.
    pub byte_count: U16,
    /// The key that it is taken from.
    pub mkey: U32,
    /// Where the first piece starts.
    pub address: U64,
}
assert_layout!(RepeatEntry, 16, byte_count @ 2, mkey @ 4, address @ 8);
