//! Block signatures: the byte stream format (BSF) of a memory key, protection signature variables
//! (PSVs), and the CQE of a signature error.
//!
//! Linux `include/linux/mlx5/qp.h` (`struct mlx5_bsf`), `device.h` (`struct mlx5_sig_err_cqe`);
//! PRM, "Signature Handover". A *domain* is one side of a transfer: wire or memory.

use crate::{U16, U32, U64, assert_layout};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Byte stream format: the signatures of a key's memory domain and wire domain (`struct mlx5_bsf`).
/// It has four sections of 16 bytes: basic, extended, wire inline, memory inline.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Bsf {
    /// Size selector ([`bsf_size`], from bit 6), [`Self::SAME_BLOCK_STRUCTURE`].
    pub bsf_size_sbs: u8,
    /// Mask of the eight signature bytes to check.
    pub check_byte_mask: u8,
    /// With [`Self::SAME_BLOCK_STRUCTURE`], the mask of signature bytes to copy; else the
    /// [`block_selector`] of the wire domain.
    pub wire_copy_mask_or_block_selector: u8,
    /// The [`block_selector`] of the memory domain.
    pub memory_block_selector: u8,
    /// Length of the data in bytes; all ones: the length of the transfer.
    pub raw_data_size: U32,
    /// Wire domain: format selector ([`block_format`], 8 bits), PSV (24 bits).
    pub wire_format_psv: U32,
    /// Memory domain: format selector (8 bits), PSV (24 bits).
    pub memory_format_psv: U32,
    /// Extended section: transaction initialisation, generation and propagation.
    pub transaction_init_gen_pro_size: U32,
    /// Extended section: epilogue size.
    pub epilogue_size: U32,
    /// Extended section: wire transaction format and PSV.
    pub wire_transaction_format_psv: U32,
    /// Extended section: memory transaction format and PSV.
    pub memory_transaction_format_psv: U32,
    /// T10-DIF of the wire domain.
    pub wire: BsfInline,
    /// T10-DIF of the memory domain.
    pub memory: BsfInline,
}
assert_layout!(Bsf, 64, check_byte_mask @ 1, wire_copy_mask_or_block_selector @ 2,
    memory_block_selector @ 3, raw_data_size @ 4, wire_format_psv @ 8, memory_format_psv @ 12,
    transaction_init_gen_pro_size @ 16, wire @ 32, memory @ 48);

impl Bsf {
    /// In `bsf_size_sbs`: both domains have the same block structure, so signature bytes can be
    /// copied.
    pub const SAME_BLOCK_STRUCTURE: u8 = 1 << 4;
    /// Position of the size selector in `bsf_size_sbs`.
    pub const SIZE_SHIFT: u32 = 6;
    /// Position of the format selector in the words that hold a PSV.
    pub const FORMAT_SHIFT: u32 = 24;
    /// Mask of the PSV number in those words.
    pub const PSV_MASK: u32 = 0xff_ffff;
}

/// Values of the size selector (`MLX5_BSF_SIZE_*`).
pub mod bsf_size {
    /// Basic section only.
    pub const BASIC: u8 = 0;
    /// Basic and extended sections.
    pub const EXTENDED: u8 = 1;
    /// Basic, extended and inline sections.
    pub const WITH_INLINE: u8 = 2;
    /// All sections, followed by a crypto BSF.
    pub const SIGNATURE_AND_CRYPTO: u8 = 3;
}

/// Values of the block size selector (`bs_selector`).
pub mod block_selector {
    /// No block structure.
    pub const NONE: u8 = 0;
    /// 512 bytes.
    pub const B512: u8 = 1;
    /// 520 bytes.
    pub const B520: u8 = 2;
    /// 4096 bytes.
    pub const B4096: u8 = 3;
    /// 4160 bytes.
    pub const B4160: u8 = 4;
    /// 4048 bytes.
    pub const B4048: u8 = 6;

    /// Each selector, with the data bytes of its block.
    pub const SIZES: &[(u8, u32)] =
        &[(B512, 512), (B520, 520), (B4096, 4096), (B4160, 4160), (B4048, 4048)];
}

/// Block format selectors of CRC signatures (`MLX5_BFS_*`); with zero, the inline section defines
/// the format.
pub mod block_format {
    /// CRC-32.
    pub const CRC32: u8 = 0x20;
    /// CRC-32C.
    pub const CRC32C: u8 = 0x40;
    /// CRC-64/XP10.
    pub const CRC64_XP10: u8 = 0x50;
    /// A signature follows every block.
    pub const REPEAT: u8 = 0x2;
    /// The seed is all zeros; without this bit, all ones.
    pub const SEED_ZERO: u8 = 0x1;
    /// Mask of the bits that select the CRC.
    pub const KIND_MASK: u8 = 0xf0;
}

/// T10-DIF of a domain (`struct mlx5_bsf_inl`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BsfInline {
    /// [`Self::VALID`], [`Self::REFRESH`].
    pub valid_refresh: U16,
    /// Application tag.
    pub application_tag: U16,
    /// Reference tag.
    pub reference_tag: U32,
    /// [`Self::GUARD_CRC`] or [`Self::GUARD_IP_CHECKSUM`].
    pub signature_type: u8,
    /// [`Self::REPEAT`], [`Self::SEED_ONES`].
    pub repeat_seed: u8,
    /// Reserved.
    pub reserved: [u8; 3],
    /// [`Self::INCREMENT_REFERENCE`], [`Self::ESCAPE_APPLICATION`],
    /// [`Self::ESCAPE_APPLICATION_REFERENCE`].
    pub increment_escape: u8,
    /// Mask of the application tag bits to check.
    pub application_tag_mask: U16,
}
assert_layout!(BsfInline, 16, application_tag @ 2, reference_tag @ 4, signature_type @ 8,
    repeat_seed @ 9, increment_escape @ 13, application_tag_mask @ 14);

impl BsfInline {
    /// The section is valid (`MLX5_BSF_INL_VALID`).
    pub const VALID: u16 = 1 << 15;
    /// The tags come from this section, not from the PSV (`MLX5_BSF_REFRESH_DIF`).
    pub const REFRESH: u16 = 1 << 14;
    /// Guard type: T10 CRC-16 (`MLX5_T10DIF_CRC`).
    pub const GUARD_CRC: u8 = 1;
    /// Guard type: IP checksum (`MLX5_T10DIF_IPCS`).
    pub const GUARD_IP_CHECKSUM: u8 = 2;
    /// A DIF tuple follows every block (`MLX5_BSF_REPEAT_BLOCK`).
    pub const REPEAT: u8 = 1 << 7;
    /// The seed of the guard is all ones (`MLX5_BSF_SEED`).
    pub const SEED_ONES: u8 = 1 << 3;
    /// The reference tag increments by one per block (`MLX5_BSF_INC_REFTAG`).
    pub const INCREMENT_REFERENCE: u8 = 1 << 6;
    /// A block with application tag 0xffff is not checked (`MLX5_BSF_APPTAG_ESCAPE`).
    pub const ESCAPE_APPLICATION: u8 = 1;
    /// A block with application tag 0xffff and reference tag 0xffffffff is not checked
    /// (`MLX5_BSF_APPREF_ESCAPE`).
    pub const ESCAPE_APPLICATION_REFERENCE: u8 = 2;
}

/// Bits of the byte masks. A T10-DIF tuple has 2 bytes of guard, 2 of application tag, 4 of
/// reference tag.
pub mod byte_mask {
    /// Guard.
    pub const GUARD: u8 = 0xc0;
    /// Application tag.
    pub const APPLICATION_TAG: u8 = 0x30;
    /// Reference tag.
    pub const REFERENCE_TAG: u8 = 0x0f;
    /// CRC-32 and CRC-32C.
    pub const CRC32: u8 = 0xf0;
    /// CRC-64.
    pub const CRC64: u8 = 0xff;
}

/// SET_PSV segment (`struct mlx5_seg_set_psv`, with the fields that the mlx5 direct verbs use; PRM,
/// "Set PSV").
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SetPsvSegment {
    /// The PSV.
    pub psv_index: U32,
    /// New syndrome; zero clears an error.
    pub syndrome: U16,
    /// Reserved.
    pub reserved: U16,
    /// Initial signature. T10-DIF: guard (16 bits), application tag (16), reference tag (32). A
    /// 32-bit CRC is in the upper half; a 64-bit CRC fills the field.
    pub transient_signature: U64,
}
assert_layout!(SetPsvSegment, 16, syndrome @ 4, transient_signature @ 8);

/// CQE of a signature error (`struct mlx5_sig_err_cqe`); the last 64 bytes if CQEs have 128.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SignatureErrorCqe {
    /// Reserved.
    pub reserved0: [u8; 16],
    /// The signature that accompanied the block. T10-DIF: guard (16 bits), application tag (16).
    pub expected_transaction_signature: U32,
    /// The signature computed from the data.
    pub actual_transaction_signature: U32,
    /// The reference tag that accompanied the block, or the low half of a CRC-64.
    pub expected_reference_tag: U32,
    /// The reference tag that the device computed, or the low half of a CRC-64.
    pub actual_reference_tag: U32,
    /// The parts that differ: [`Self::REFERENCE_TAG`], [`Self::APPLICATION_TAG`], [`Self::GUARD`].
    pub syndrome: U16,
    /// Block signature (0) or transaction signature (1).
    pub signature_type: u8,
    /// Wire domain (0) or memory domain (1).
    pub domain: u8,
    /// The key.
    pub mkey: U32,
    /// Offset of the block in its domain, with the signatures counted.
    pub offset: U64,
    /// Reserved.
    pub reserved1: [u8; 8],
    /// Queue pair number, in the low 24 bits.
    pub qpn: U32,
    /// Reserved.
    pub reserved2: [u8; 2],
    /// XOR checksum of the CQE, if enabled.
    pub signature: u8,
    /// Opcode, format and ownership bit, as in every CQE.
    pub op_own: u8,
}
assert_layout!(SignatureErrorCqe, 64, expected_transaction_signature @ 16,
    actual_transaction_signature @ 20, expected_reference_tag @ 24, actual_reference_tag @ 28,
    syndrome @ 32, signature_type @ 34, domain @ 35, mkey @ 36, offset @ 40, qpn @ 56, op_own @ 63);

impl SignatureErrorCqe {
    /// Syndrome bit: the reference tag differs.
    pub const REFERENCE_TAG: u16 = 1 << 11;
    /// Syndrome bit: the application tag differs.
    pub const APPLICATION_TAG: u16 = 1 << 12;
    /// Syndrome bit: the guard or the CRC differs.
    pub const GUARD: u16 = 1 << 13;
}
