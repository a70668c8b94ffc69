//! Work queue elements: the segments that make one up, their opcodes and flags.
//!
//! PRM, "Work Request (WQE) formats"; Linux `include/linux/mlx5/qp.h`. A WQE starts on a 64-byte
//! block of its ring and consists of 16-byte units; the control segment says how many.

use crate::{U16, U32, U64, assert_layout};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a basic block: send queue counters count these (`MLX5_SEND_WQE_BB`).
pub const BLOCK: usize = 64;
/// Bytes of a unit: `ds` in a control segment counts these (`MLX5_SEND_WQE_DS`).
pub const UNIT: usize = 16;
/// Most units that a WQE can have: the `ds` field has six bits.
pub const MAX_UNITS: usize = 63;
/// Most blocks that a WQE can have.
pub const MAX_BLOCKS: usize = MAX_UNITS.div_ceil(BLOCK / UNIT);
/// Most blocks in a send queue: its counters have 16 bits, and full must differ from empty.
pub const MAX_RING_BLOCKS: usize = 1 << 15;
/// Bit of an inline header's byte count that marks inline data (`MLX5_INLINE_SEG`).
pub const INLINE: u32 = 1 << 31;
/// The longest scatter or gather entry; bit 31 of a byte count is [`INLINE`].
pub const MAX_SGE_LENGTH: u32 = (1 << 31) - 1;
/// The memory key that ends a scatter list (`MLX5_INVALID_LKEY`).
pub const INVALID_LKEY: u32 = 0x100;
/// Marks an address vector as the extended (48-byte) form (`MLX5_EXTENDED_UD_AV`).
pub const EXTENDED_UD_AV: u32 = 1 << 31;

/// One send opcode a line: name, value, text.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// What a send WQE asks for (`MLX5_OPCODE_*`).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode { $($(#[$doc])* $name = $value,)* }

        impl Opcode {
            /// Every opcode.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The opcode with this number.
            pub const fn from_bits(bits: u8) -> Option<Self> {
                match bits { $($value => Some(Self::$name),)* _ => None }
            }

            /// Its name as the PRM has it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

opcodes! {
    /// No operation; also what a cancelled request becomes.
    Nop = 0x00, "NOP";
    /// Send, and invalidate a key at the other side.
    SendInvalidate = 0x01, "SEND_INVAL";
    /// RDMA write.
    RdmaWrite = 0x08, "RDMA_WRITE";
    /// RDMA write with immediate data.
    RdmaWriteImm = 0x09, "RDMA_WRITE_IMM";
    /// Send.
    Send = 0x0a, "SEND";
    /// Send with immediate data.
    SendImm = 0x0b, "SEND_IMM";
    /// Large send (segmentation offload).
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
    /// Flow table access.
    FlowTableAccess = 0x2c, "FLOW_TBL_ACCESS";
    /// Memory-to-memory operation.
    Mmo = 0x2f, "MMO";
}

/// Bits of the control segment's `fm_ce_se` byte.
pub mod control_flags {
    /// Causes an event at the other side's armed completion queue (`MLX5_WQE_CTRL_SOLICITED`).
    pub const SOLICITED: u8 = 1 << 1;
    /// Field `ce` (completion event), value 2: always write a completion (`MLX5_WQE_CTRL_CQ_UPDATE`).
    pub const COMPLETION: u8 = 2 << 2;
    /// The whole `ce` field.
    pub const COMPLETION_MASK: u8 = 3 << 2;
    /// Field `fm` (fence mode), value 1: wait for local UMR-type work (`MLX5_FENCE_MODE_INITIATOR_SMALL`).
    pub const SMALL_FENCE: u8 = 1 << 5;
    /// Field `fm`, value 4: wait for all earlier reads and atomics (`MLX5_FENCE_MODE_FENCE`).
    pub const FENCE: u8 = 4 << 5;
    /// The whole `fm` field.
    pub const FENCE_MASK: u8 = 7 << 5;
}

/// Control segment, first of every send WQE (`struct mlx5_wqe_ctrl_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ControlSegment {
    /// Opcode modifier (8 bits), block index of the WQE (16 bits), opcode (8 bits).
    pub opmod_index_opcode: U32,
    /// Queue pair number (24 bits), two reserved bits, number of 16-byte units (6 bits).
    pub qpn_ds: U32,
    /// Exclusive-or check of the WQE, where in use.
    pub signature: u8,
    /// DCI stream channel.
    pub dci_stream: U16,
    /// Fence, completion and solicited bits ([`control_flags`]).
    pub fm_ce_se: u8,
    /// Immediate data, key to invalidate, or UMR mkey; immediate data is the user's own bytes.
    pub immediate: U32,
}
assert_layout!(ControlSegment, 16, qpn_ds @ 4, signature @ 8, fm_ce_se @ 11, immediate @ 12);

impl ControlSegment {
    /// The opcode, if the byte names one.
    pub fn opcode(&self) -> Option<Opcode> {
        Opcode::from_bits(self.opmod_index_opcode.get() as u8)
    }
    /// The opcode modifier.
    pub fn opcode_modifier(&self) -> u8 {
        (self.opmod_index_opcode.get() >> 24) as u8
    }
    /// The block index.
    pub fn index(&self) -> u16 {
        (self.opmod_index_opcode.get() >> 8) as u16
    }
    /// The queue pair number.
    pub fn qpn(&self) -> u32 {
        self.qpn_ds.get() >> 8
    }
    /// The length of the WQE in 16-byte units, this segment included.
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
    /// Value to swap in, or to add.
    pub swap_or_add: U64,
    /// Value to compare with.
    pub compare: U64,
}
assert_layout!(AtomicSegment, 16, compare @ 8);

/// Masked compare and swap of 8 bytes (`struct mlx5_wqe_masked_atomic_seg`), with opcode modifier
/// [`MASKED_ATOMIC_8`]: the bits of `compare_mask` are compared; if they are equal, those of
/// `swap_mask` are swapped in. A masked fetch and add of 8 bytes has an [`AtomicSegment`]: what to
/// add, and in place of `compare` the *field boundary*, whose set bits are the highest of each of
/// the fields that are added by themselves.
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MaskedAtomicSegment {
    /// Value to swap in.
    pub swap: U64,
    /// Value to compare with.
    pub compare: U64,
    /// Which bits are swapped.
    pub swap_mask: U64,
    /// Which bits are compared.
    pub compare_mask: U64,
}
assert_layout!(MaskedAtomicSegment, 32, compare @ 8, swap_mask @ 16, compare_mask @ 24);

/// Opcode modifier of masked atomics: extended (bit 3), operands of 2^(2 + low bits) = 8 bytes.
pub const MASKED_ATOMIC_8: u8 = 1 << 3 | 1;

/// XRC segment: the shared receive queue at the other side (`struct mlx5_wqe_xrc_seg`).
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
    /// What ends a scatter list that is shorter than its WQE.
    pub const END: Self = Self {
        byte_count: U32::ZERO,
        lkey: U32::from_bytes(INVALID_LKEY.to_be_bytes()),
        address: U64::ZERO,
    };
}

/// Head of inline data, which follows at once and is padded to 16 bytes with it
/// (`struct mlx5_wqe_inline_seg`).
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
    /// Q_Key (with a reserved word after it) or the DC key.
    pub qkey: U32,
    /// Low half of a DC key.
    pub dc_key_low: U32,
    /// Destination queue pair number, with [`EXTENDED_UD_AV`] set.
    pub dqp_dct: U32,
    /// Static rate (4 bits), service level (4 bits; on Ethernet the priority, shifted by one).
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
    /// Bit of `grh_gid_fl` that says a GRH is present (InfiniBand).
    pub const GRH: u32 = 1 << 30;
    /// Where the source GID index starts in `grh_gid_fl`.
    pub const GID_INDEX_SHIFT: u32 = 20;
    /// The flow label's bits in `grh_gid_fl`.
    pub const FLOW_LABEL_MASK: u32 = 0xf_ffff;
}

/// Head of a shared receive queue's WQE (`struct mlx5_wqe_srq_next_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SrqNextSegment {
    /// Reserved.
    pub reserved0: U16,
    /// Index of the WQE that follows this one in the list.
    pub next_wqe_index: U16,
    /// Signature, where in use.
    pub signature: u8,
    /// Reserved.
    pub reserved1: [u8; 11],
}
assert_layout!(SrqNextSegment, 16, next_wqe_index @ 2, signature @ 4);

/// The tag matching segment of a TAG_MATCHING request on a tag-matching queue's command queue pair
/// (`struct mlx5_wqe_tm_seg`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TagMatchingSegment {
    /// What to do to the list ([`TagOperation`]), in the upper four bits.
    pub opcode: u8,
    /// [`TagMatchingSegment::COMPLETION`] and [`TagMatchingSegment::SOFTWARE_COUNT`].
    pub flags: u8,
    /// APPEND: the entry that the next APPEND takes. REMOVE: the entry to remove.
    pub index: U16,
    /// Reserved.
    pub reserved0: [u8; 2],
    /// How many unexpected messages software has handled, with
    /// [`TagMatchingSegment::SOFTWARE_COUNT`].
    pub software_count: U16,
    /// Reserved.
    pub reserved1: [u8; 8],
    /// Tag of the entry to append.
    pub append_tag: U64,
    /// The bits of a message's tag that are compared with it.
    pub append_mask: U64,
}
assert_layout!(TagMatchingSegment, 32, flags @ 1, index @ 2, software_count @ 6, append_tag @ 16,
    append_mask @ 24);

impl TagMatchingSegment {
    /// Asks for a completion (`MLX5_SRQ_FLAG_TM_CQE_REQ`).
    pub const COMPLETION: u8 = 1 << 7;
    /// The segment brings a software count (`MLX5_SRQ_FLAG_TM_SW_CNT`).
    pub const SOFTWARE_COUNT: u8 = 1 << 6;
    /// Where the operation starts in the first byte.
    pub const OPCODE_SHIFT: u32 = 4;
}

/// What a TAG_MATCHING request does to the list (`MLX5_TM_OPCODE_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TagOperation {
    /// Nothing, but for what the flags say.
    Nop = 0,
    /// Appends an entry.
    Append = 1,
    /// Removes an entry.
    Remove = 2,
}

impl TagOperation {
    /// The operation with this number.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Nop),
            1 => Some(Self::Append),
            2 => Some(Self::Remove),
            _ => None,
        }
    }
}

/// Head of a message to a tag-matching queue (`struct ibv_tmh`).
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
    /// What the message is ([`TagMessage`]).
    pub opcode: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// The sender's own word, which the device hands on.
    pub app_ctx: U32,
    /// The tag.
    pub tag: U64,
}
assert_layout!(TagMatchingHeader, 16, app_ctx @ 4, tag @ 8);

/// What a message to a tag-matching queue is (`enum ibv_tmh_op`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TagMessage {
    /// A message without a tag.
    NoTag = 0,
    /// A request to fetch the data: a [`RendezvousHeader`] follows.
    Rendezvous = 1,
    /// The data of a rendezvous was fetched.
    Finished = 2,
    /// The data follows.
    Eager = 3,
}

impl TagMessage {
    /// The kind of message with this number.
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

/// Where the data of a rendezvous is (`struct ibv_rvh`).
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
    /// Its address at the sender.
    pub va: U64,
    /// The sender's key for it.
    pub rkey: U32,
    /// Its length.
    pub len: U32,
}
assert_layout!(RendezvousHeader, 16, rkey @ 8, len @ 12);
