//! User-mode memory registration (UMR): the segments of UMR WQEs, which change a memory key from
//! the send queue. They bind a memory window, invalidate a key, or configure the layout of an
//! indirect key.
//!
//! Linux `include/linux/mlx5/qp.h`, `device.h`; PRM, "User-Mode Memory Registration". A UMR WQE has
//! a control segment, a [`UmrControlSegment`] and a [`MkeyContextSegment`]; then inline translation
//! entries ([`Klm`]s, or one [`RepeatBlock`] with its [`RepeatEntry`]s), padded to 64 bytes; then
//! [`crate::signature::Bsf`]s if signatures are configured.

use crate::{U16, U32, U64, assert_layout};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bits of [`UmrControlSegment::flags`] (`MLX5_UMR_INLINE`, `MLX5_WQE_UMR_CTRL_FLAG_*`).
pub mod umr_flags {
    /// The WQE contains the translation entries.
    pub const INLINE: u8 = 1 << 7;
    /// Fails unless the key is free.
    pub const CHECK_FREE: u8 = 1 << 5;
    /// Fails if the key is free.
    pub const CHECK_NOT_FREE: u8 = 1 << 6;
    /// The field after `klm_octowords` is an offset into the translation, not a BSF size.
    pub const TRANSLATION_OFFSET: u8 = 1 << 4;
    /// Fails unless the key belongs to this queue pair.
    pub const CHECK_QPN: u8 = 1 << 3;
}

/// Bits of [`UmrControlSegment::mkey_mask`]: the parts of the key that change (`MLX5_MKEY_MASK_*`).
pub mod mkey_mask {
    /// Length.
    pub const LENGTH: u64 = 1 << 0;
    /// Page size.
    pub const PAGE_SIZE: u64 = 1 << 1;
    /// Start address.
    pub const START_ADDRESS: u64 = 1 << 6;
    /// Protection domain.
    pub const PD: u64 = 1 << 7;
    /// Whether a SEND with invalidate may free the key.
    pub const REMOTE_INVALIDATE: u64 = 1 << 8;
    /// The count of reported signature errors.
    pub const SIGNATURE_ERROR_COUNT: u64 = 1 << 9;
    /// Whether the key uses a BSF.
    pub const BSF_ENABLE: u64 = 1 << 12;
    /// The key's variant (low eight bits).
    pub const MKEY: u64 = 1 << 13;
    /// The queue pair that the key is bound to.
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
    /// Relaxed ordering of writes.
    pub const RELAXED_ORDERING_WRITE: u64 = 1 << 25;
    /// Whether the key is free.
    pub const FREE: u64 = 1 << 29;
    /// Relaxed ordering of reads.
    pub const RELAXED_ORDERING_READ: u64 = 1 << 47;
    /// The access rights except local read.
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
    /// Size of the translation entries in the WQE, in units of 16 bytes.
    pub klm_octowords: U16,
    /// Offset of the first translation entry if [`umr_flags::TRANSLATION_OFFSET`] is set; else the
    /// size of the BSF. Both in units of 16 bytes.
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

/// Memory key context of a UMR WQE (`struct mlx5_mkey_seg`).
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
    /// Queue pair number (24 bits; all ones: any), variant of the key (8 bits).
    pub qpn_mkey: U32,
    /// Reserved.
    pub reserved1: U32,
    /// [`Self::LENGTH_64`], [`Self::BSF_ENABLE`], signature error count,
    /// [`Self::REMOTE_INVALIDATE`], protection domain (24 bits).
    pub flags_pd: U32,
    /// Start address.
    pub start_address: U64,
    /// Length.
    pub length: U64,
    /// Size of the BSF, in units of 16 bytes.
    pub bsf_octword_size: U32,
    /// Reserved.
    pub reserved2: [u8; 16],
    /// Size of the translation, in units of 16 bytes.
    pub translations_octword_size: U32,
    /// Reserved.
    pub reserved3: [u8; 3],
    /// Base-two logarithm of the page size, for keys that translate by pages.
    pub log_page_size: u8,
    /// Reserved.
    pub reserved4: U32,
}
assert_layout!(MkeyContextSegment, 64, access_flags @ 2, qpn_mkey @ 4, flags_pd @ 12,
    start_address @ 16, length @ 24, bsf_octword_size @ 32, translations_octword_size @ 52,
    log_page_size @ 59);

impl MkeyContextSegment {
    /// The key is free: it cannot be used until it is bound or configured
    /// (`MLX5_MKEY_STATUS_FREE`).
    pub const FREE: u8 = 1 << 6;
    /// In `flags_pd`: the key covers the whole address space; its length is ignored
    /// (`MLX5_MKEY_LEN64`).
    pub const LENGTH_64: u32 = 1 << 31;
    /// In `flags_pd`: a SEND with invalidate may free the key (`MLX5_MKEY_REMOTE_INVAL`).
    pub const REMOTE_INVALIDATE: u32 = 1 << 24;
    /// In `flags_pd`: the key uses a BSF (`MLX5_MKEY_BSF_EN`).
    pub const BSF_ENABLE: u32 = 1 << 30;
    /// Position in `flags_pd` of the low bit of the signature error count.
    pub const SIGNATURE_ERROR_COUNT_SHIFT: u32 = 26;
    /// In `qpn_mkey`: any queue pair may use the key.
    pub const ANY_QPN: u32 = 0xff_ffff << 8;
}

/// Translation entry of an indirect key: a range of another key (`struct mlx5_klm`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Klm {
    /// Length.
    pub byte_count: U32,
    /// Key of the range.
    pub mkey: U32,
    /// Start of the range in that key.
    pub address: U64,
}
assert_layout!(Klm, 16, mkey @ 4, address @ 8);

/// Head of an interleaved layout (`struct mlx5_stride_block_ctrl_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RepeatBlock {
    /// Bytes that all entries together contribute per repetition.
    pub byte_count: U32,
    /// [`Self::OP`].
    pub op: U32,
    /// Number of repetitions.
    pub repeat_count: U32,
    /// Reserved.
    pub reserved: U16,
    /// Number of entries that follow.
    pub num_entries: U16,
}
assert_layout!(RepeatBlock, 16, op @ 4, repeat_count @ 8, num_entries @ 14);

impl RepeatBlock {
    /// Marks the head of a repeat block (`MLX5_STRIDE_BLOCK_OP`).
    pub const OP: u32 = 0x400;
}

/// Entry of an interleaved layout (`struct mlx5_stride_block_entry`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RepeatEntry {
    /// Distance in bytes between the ranges of two successive repetitions.
    pub stride: U16,
    /// Bytes per repetition.
    pub byte_count: U16,
    /// Key of the ranges.
    pub mkey: U32,
    /// Start of the first range in that key.
    pub address: U64,
}
assert_layout!(RepeatEntry, 16, byte_count @ 2, mkey @ 4, address @ 8);
