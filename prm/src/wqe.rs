//! Work queue elements (WQEs): their segments, opcodes and flags.
//!
//! PRM, "Work Request (WQE) formats"; Linux `include/linux/mlx5/qp.h`. A WQE starts on a 64-byte
//! basic block of its ring and consists of 16-byte units; the control segment holds their number.

use crate::{U16, U32, U64, assert_layout};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a basic block, in which send queue indices count (`MLX5_SEND_WQE_BB`).
pub const BLOCK: usize = 64;
/// Bytes in a unit, in which `ds` of the control segment counts (`MLX5_SEND_WQE_DS`).
pub const UNIT: usize = 16;
/// The largest number of units in a WQE: the `ds` field has six bits.
pub const MAX_UNITS: usize = 63;
/// The largest number of basic blocks in a WQE.
pub const MAX_BLOCKS: usize = MAX_UNITS.div_ceil(BLOCK / UNIT);
/// The largest number of basic blocks in a send queue: its indices have 16 bits, and a full queue
/// must differ from an empty one.
pub const MAX_RING_BLOCKS: usize = 1 << 15;
/// Bit of an inline header's byte count that marks inline data (`MLX5_INLINE_SEG`).
pub const INLINE: u32 = 1 << 31;
/// The longest scatter/gather entry; bit 31 of a byte count is [`INLINE`].
pub const MAX_SGE_LENGTH: u32 = (1 << 31) - 1;
/// The lkey that ends a scatter list (`MLX5_INVALID_LKEY`).
pub const INVALID_LKEY: u32 = 0x100;
/// Marks the extended (48-byte) form of an address vector (`MLX5_EXTENDED_UD_AV`).
pub const EXTENDED_UD_AV: u32 = 1 << 31;

/// Declares the send opcodes, one per line: name, value, text.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// The operation of a send WQE (`MLX5_OPCODE_*`).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode { $($(#[$doc])* $name = $value,)* }

        impl Opcode {
            /// Every opcode.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the opcode with this number.
            pub const fn from_bits(bits: u8) -> Option<Self> {
                match bits { $($value => Some(Self::$name),)* _ => None }
            }

            /// Returns the name that the PRM uses.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

opcodes! {
    /// No operation; a cancelled WQE becomes one, too.
    Nop = 0x00, "NOP";
    /// Send, and invalidate an rkey of the receiver.
    SendInvalidate = 0x01, "SEND_INVAL";
    /// RDMA write.
    RdmaWrite = 0x08, "RDMA_WRITE";
    /// RDMA write with immediate data.
    RdmaWriteImm = 0x09, "RDMA_WRITE_IMM";
    /// Send.
    Send = 0x0a, "SEND";
    /// Send with immediate data.
    SendImm = 0x0b, "SEND_IMM";
    /// Large send (TCP segmentation offload).
    Tso = 0x0e, "TSO";
    /// RDMA read.
    RdmaRead = 0x10, "RDMA_READ";
    /// Atomic compare and swap.
    AtomicCs = 0x11, "ATOMIC_CS";
    /// Atomic fetch and add.
    AtomicFa = 0x12, "ATOMIC_FA";
    /// Masked atomic compare and swap.
    AtomicMaskedCs = 0x14, "ATOMIC_MASKED_CS";
    /// Masked atomic fetch and add.
    AtomicMaskedFa = 0x15, "ATOMIC_MASKED_FA";
    /// Fast memory registration.
    Fmr = 0x19, "FMR";
    /// Local invalidate.
    LocalInvalidate = 0x1b, "LOCAL_INVAL";
    /// Configuration command.
    ConfigCmd = 0x1f, "CONFIG_CMD";
    /// Set a protection signature variable.
    SetPsv = 0x20, "SET_PSV";
    /// User-mode memory registration.
    Umr = 0x25, "UMR";
    /// Tag matching.
    TagMatching = 0x28, "TAG_MATCHING";
    /// Several packets in one WQE (`MLX5_OPCODE_ENHANCED_MPSW`).
    EnhancedMpw = 0x29, "ENHANCED_MPSW";
    /// Flow table access.
    FlowTableAccess = 0x2c, "FLOW_TBL_ACCESS";
    /// Memory-to-memory operation.
    Mmo = 0x2f, "MMO";
}

/// Bits of the control segment's `fm_ce_se` byte.
pub mod control_flags {
    /// Causes an event at the receiver's armed completion queue (`MLX5_WQE_CTRL_SOLICITED`).
    pub const SOLICITED: u8 = 1 << 1;
    /// Field `ce` (completion event), value 2: always write a CQE (`MLX5_WQE_CTRL_CQ_UPDATE`).
    pub const COMPLETION: u8 = 2 << 2;
    /// All bits of the `ce` field.
    pub const COMPLETION_MASK: u8 = 3 << 2;
    /// Field `fm` (fence mode), value 1: wait for earlier UMRs (`MLX5_FENCE_MODE_INITIATOR_SMALL`).
    pub const SMALL_FENCE: u8 = 1 << 5;
    /// Field `fm`, value 2: wait for all earlier reads and atomics (the kernel's
    /// `MLX5_FENCE_MODE_FENCE`).
    pub const LARGE_FENCE: u8 = 2 << 5;
    /// Field `fm`, value 4: wait for all earlier reads, atomics and UMRs (`MLX5_WQE_CTRL_FENCE`,
    /// the kernel's `MLX5_FENCE_MODE_SMALL_AND_FENCE`).
    pub const FENCE: u8 = 4 << 5;
    /// All bits of the `fm` field.
    pub const FENCE_MASK: u8 = 7 << 5;
}

/// Control segment, the first of every send WQE (`struct mlx5_wqe_ctrl_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ControlSegment {
    /// Opcode modifier (8 bits), index of the WQE's first basic block (16 bits), opcode (8 bits).
    pub opmod_index_opcode: U32,
    /// Queue pair number (24 bits), two reserved bits, number of 16-byte units (6 bits).
    pub qpn_ds: U32,
    /// XOR checksum of the WQE, if enabled.
    pub signature: u8,
    /// DCI stream channel.
    pub dci_stream: U16,
    /// Fence, completion and solicited bits ([`control_flags`]).
    pub fm_ce_se: u8,
    /// Immediate data in network byte order, rkey to invalidate, or mkey of a UMR.
    pub immediate: U32,
}
assert_layout!(ControlSegment, 16, qpn_ds @ 4, signature @ 8, fm_ce_se @ 11, immediate @ 12);

impl ControlSegment {
    /// Returns the opcode, or `None` if the number is unknown.
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::from_bits(self.opmod_index_opcode.get() as u8)
    }
    /// Returns the opcode modifier.
    pub fn opcode_modifier(&self) -> u8 {
        (self.opmod_index_opcode.get() >> 24) as u8
    }
    /// Returns the index of the WQE's first basic block.
    pub fn index(&self) -> u16 {
        (self.opmod_index_opcode.get() >> 8) as u16
    }
    /// Returns the queue pair number.
    pub fn qpn(&self) -> u32 {
        self.qpn_ds.get() >> 8
    }
    /// Returns the length of the WQE in 16-byte units, this segment included.
    pub fn units(&self) -> usize {
        (self.qpn_ds.get() & 0x3f) as usize
    }
}

/// Remote address segment of RDMA and atomic operations (`struct mlx5_wqe_raddr_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RemoteAddressSegment {
    /// Remote virtual address.
    pub address: U64,
    /// Remote key.
    pub rkey: U32,
    /// Reserved.
    pub reserved: U32,
}
assert_layout!(RemoteAddressSegment, 16, rkey @ 8);

/// Atomic segment (`struct mlx5_wqe_atomic_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AtomicSegment {
    /// Value to swap in or to add.
    pub swap_or_add: U64,
    /// Value to compare with.
    pub compare: U64,
}
assert_layout!(AtomicSegment, 16, compare @ 8);

/// Masked compare and swap of 8 bytes (`struct mlx5_wqe_masked_atomic_seg`), with opcode modifier
/// [`MASKED_ATOMIC_8`].
///
/// The bits of `compare_mask` are compared; if they are equal, the bits of `swap_mask` are swapped.
/// A masked fetch and add of 8 bytes uses an [`AtomicSegment`] instead: the value to add, and the
/// *field boundary* in place of `compare`. Each set bit of the field boundary is the top bit of a
/// field that is added separately, without a carry into the next.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MaskedAtomicSegment {
    /// Value to swap in.
    pub swap: U64,
    /// Value to compare with.
    pub compare: U64,
    /// Bits to swap.
    pub swap_mask: U64,
    /// Bits to compare.
    pub compare_mask: U64,
}
assert_layout!(MaskedAtomicSegment, 32, compare @ 8, swap_mask @ 16, compare_mask @ 24);

/// Opcode modifier of masked atomics: extended (bit 3), with operands of 2^(2 + low bits) = 8
/// bytes.
pub const MASKED_ATOMIC_8: u8 = 1 << 3 | 1;

/// XRC segment: the remote shared receive queue (`struct mlx5_wqe_xrc_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XrcSegment {
    /// Number of the shared receive queue.
    pub srqn: U32,
    /// Reserved.
    pub reserved: [u8; 12],
}
assert_layout!(XrcSegment, 16);

/// Scatter or gather entry (`struct mlx5_wqe_data_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DataSegment {
    /// Length; zero means 2 GiB.
    pub byte_count: U32,
    /// Local key.
    pub lkey: U32,
    /// Virtual address.
    pub address: U64,
}
assert_layout!(DataSegment, 16, lkey @ 4, address @ 8);

impl DataSegment {
    /// The entry that ends a scatter list shorter than its WQE.
    pub const END: Self = Self {
        byte_count: U32::ZERO,
        lkey: U32::from_bytes(INVALID_LKEY.to_be_bytes()),
        address: U64::ZERO,
    };
}

/// Head of inline data (`struct mlx5_wqe_inline_seg`). The data follows immediately; head and data
/// together are padded to 16 bytes.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InlineHeader {
    /// Length of the data, with [`INLINE`] set.
    pub byte_count: U32,
}
assert_layout!(InlineHeader, 4);

/// Address vector of a datagram (`struct mlx5_av`, `struct mlx5_wqe_datagram_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AddressVector {
    /// Q_Key (followed by a reserved word), or the high half of the DC key.
    pub qkey: U32,
    /// Low half of a DC key.
    pub dc_key_low: U32,
    /// Destination queue pair number, with [`EXTENDED_UD_AV`] set.
    pub dqp_dct: U32,
    /// Static rate (4 bits), service level (4 bits; on Ethernet the priority, shifted left by one).
    pub stat_rate_sl: u8,
    /// Source path bits (7 bits), force-loopback in bit 7.
    pub fl_mlid: u8,
    /// Destination LID; on RoCE v2 the UDP source port.
    pub rlid: U16,
    /// Reserved.
    pub reserved: U32,
    /// Destination MAC address, on Ethernet.
    pub rmac: [u8; 6],
    /// Traffic class.
    pub tclass: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// GRH present (bit 30, InfiniBand only), source GID index (bits 20..28), flow label (20 bits).
    pub grh_gid_fl: U32,
    /// Destination GID.
    pub rgid: [u8; 16],
}
assert_layout!(AddressVector, 48, dqp_dct @ 8, stat_rate_sl @ 12, fl_mlid @ 13, rlid @ 14,
    rmac @ 20, tclass @ 26, hop_limit @ 27, grh_gid_fl @ 28, rgid @ 32);

impl AddressVector {
    /// In `grh_gid_fl`: a GRH is present (InfiniBand).
    pub const GRH: u32 = 1 << 30;
    /// Position of the source GID index in `grh_gid_fl`.
    pub const GID_INDEX_SHIFT: u32 = 20;
    /// Mask of the flow label in `grh_gid_fl`.
    pub const FLOW_LABEL_MASK: u32 = 0xf_ffff;
}

/// Head of a shared receive queue's WQE (`struct mlx5_wqe_srq_next_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SrqNextSegment {
    /// Reserved.
    pub reserved0: U16,
    /// Index of the next WQE of the list.
    pub next_wqe_index: U16,
    /// Checksum, if enabled.
    pub signature: u8,
    /// Reserved.
    pub reserved1: [u8; 11],
}
assert_layout!(SrqNextSegment, 16, next_wqe_index @ 2, signature @ 4);

/// Segment of a TAG_MATCHING request, posted to the command QP of a tag-matching SRQ
/// (`struct mlx5_wqe_tm_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TagMatchingSegment {
    /// The operation on the tag list ([`TagOperation`]), in the upper four bits.
    pub opcode: u8,
    /// [`TagMatchingSegment::COMPLETION`] and [`TagMatchingSegment::SOFTWARE_COUNT`].
    pub flags: u8,
    /// APPEND: index of the tag to append. REMOVE: index of the tag to remove.
    pub index: U16,
    /// Reserved.
    pub reserved0: [u8; 2],
    /// The number of unexpected messages that software has handled, if
    /// [`TagMatchingSegment::SOFTWARE_COUNT`] is set.
    pub software_count: U16,
    /// Reserved.
    pub reserved1: [u8; 8],
    /// Tag to append.
    pub append_tag: U64,
    /// Mask of the bits of a message's tag that are compared with `append_tag`.
    pub append_mask: U64,
}
assert_layout!(TagMatchingSegment, 32, flags @ 1, index @ 2, software_count @ 6, append_tag @ 16,
    append_mask @ 24);

impl TagMatchingSegment {
    /// Requests a completion (`MLX5_SRQ_FLAG_TM_CQE_REQ`).
    pub const COMPLETION: u8 = 1 << 7;
    /// The `software_count` field is valid (`MLX5_SRQ_FLAG_TM_SW_CNT`).
    pub const SOFTWARE_COUNT: u8 = 1 << 6;
    /// Position of the operation in the first byte.
    pub const OPCODE_SHIFT: u32 = 4;
}

/// The operation of a TAG_MATCHING request (`MLX5_TM_OPCODE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TagOperation {
    /// Does not change the list; the flags still apply.
    Nop = 0,
    /// Appends a tag.
    Append = 1,
    /// Removes a tag.
    Remove = 2,
}

impl TagOperation {
    /// Returns the operation with this number.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Nop),
            1 => Some(Self::Append),
            2 => Some(Self::Remove),
            _ => None,
        }
    }
}

/// Header of a message to a tag-matching SRQ (`struct ibv_tmh`).
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Debug,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct TagMatchingHeader {
    /// Kind of message ([`TagMessage`]).
    pub opcode: u8,
    /// Reserved; zero.
    pub reserved: [u8; 3],
    /// Application context, chosen by the sender and passed on by the device.
    pub app_ctx: U32,
    /// The tag.
    pub tag: U64,
}
assert_layout!(TagMatchingHeader, 16, app_ctx @ 4, tag @ 8);

/// The kind of a message to a tag-matching SRQ (`enum ibv_tmh_op`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TagMessage {
    /// A message without a tag.
    NoTag = 0,
    /// Rendezvous request: a [`RendezvousHeader`] follows, and the receiver reads the data.
    Rendezvous = 1,
    /// The receiver has read the data of a rendezvous.
    Finished = 2,
    /// The data follows.
    Eager = 3,
}

impl TagMessage {
    /// Returns the kind of message with this number.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::NoTag),
            1 => Some(Self::Rendezvous),
            2 => Some(Self::Finished),
            3 => Some(Self::Eager),
            _ => None,
        }
    }
}

/// Location of the data of a rendezvous (`struct ibv_rvh`).
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Debug,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(C)]
pub struct RendezvousHeader {
    /// Address at the sender.
    pub va: U64,
    /// rkey at the sender.
    pub rkey: U32,
    /// Length in bytes.
    pub len: U32,
}
assert_layout!(RendezvousHeader, 16, rkey @ 8, len @ 12);
