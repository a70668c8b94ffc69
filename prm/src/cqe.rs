//! Completion queue entries (CQEs).
//!
//! PRM, "Completion Queue Entry (CQE) format"; Linux `include/linux/mlx5/device.h`
//! (`struct mlx5_cqe64`, `struct mlx5_err_cqe`). The *descriptor* of a CQE is the 64 bytes
//! described here: the whole of a 64-byte CQE, the second half of a 128-byte CQE.

use crate::{U16, U32, U64, assert_layout};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a descriptor.
pub const DESCRIPTOR: usize = 64;
/// The last byte of a CQE before the device first writes it: invalid opcode.
pub const OP_OWN_INITIAL: u8 = 0xf0;
/// The ownership bit in the last byte.
pub const OWNER: u8 = 1;
/// The solicited-event bit in the last byte.
pub const SOLICITED: u8 = 1 << 1;
/// Mask of the format in the last byte: 0 plain, 1 and 2 inline scatter, 3 compressed.
pub const FORMAT_MASK: u8 = 3 << 2;
/// Position of the format in the last byte.
pub const FORMAT_SHIFT: u32 = 2;
/// Position of the opcode in the last byte.
pub const OPCODE_SHIFT: u32 = 4;
/// The longest message in a CQE of format [`Format::Inline32`]; it lies at the start of the
/// descriptor.
pub const INLINE_32: usize = 32;
/// The longest message in a CQE of format [`Format::Inline64`]; it lies before the descriptor.
pub const INLINE_64: usize = 64;

/// Declares an enumeration of codes, one per line: name, value, text.
macro_rules! codes {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum $type { $($(#[$doc])* $name = $value,)* }

        impl $type {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the code with this number.
            #[inline]
            pub const fn from_bits(bits: u8) -> Option<Self> {
                match bits { $($value => Some(Self::$name),)* _ => None }
            }

            /// Returns a description of the code.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    /// Opcode of a CQE (`MLX5_CQE_*`).
    CqeOpcode {
        /// A request completed.
        Requester = 0, "request completed";
        /// An RDMA write with immediate arrived.
        ResponderWriteImm = 1, "RDMA write with immediate received";
        /// A send arrived.
        ResponderSend = 2, "send received";
        /// A send with immediate arrived.
        ResponderSendImm = 3, "send with immediate received";
        /// A send with invalidate arrived.
        ResponderSendInvalidate = 4, "send with invalidate received";
        /// The queue was resized; the next CQE is in the new ring.
        Resize = 5, "completion queue resized";
        /// An operation without a packet completed (tag matching).
        NoPacket = 6, "tag list operation";
        /// A signature did not match.
        SignatureError = 12, "signature error";
        /// A request failed.
        RequesterError = 13, "request failed";
        /// A receive failed.
        ResponderError = 14, "receive failed";
        /// The device has not written this CQE yet.
        Invalid = 15, "not written";
    }
}

codes! {
    /// The reason why a request failed (`MLX5_CQE_SYNDROME_*`).
    Syndrome {
        /// Local length error.
        LocalLength = 0x01, "local length error";
        /// Local queue pair operation error.
        LocalQpOperation = 0x02, "local QP operation error";
        /// Local protection error.
        LocalProtection = 0x04, "local protection error";
        /// Flushed in error.
        WorkRequestFlushed = 0x05, "work request flushed";
        /// Memory window bind error.
        MemoryWindowBind = 0x06, "memory window bind error";
        /// Bad response.
        BadResponse = 0x10, "bad response";
        /// Local access error.
        LocalAccess = 0x11, "local access error";
        /// Remote invalid request.
        RemoteInvalidRequest = 0x12, "remote invalid request";
        /// Remote access error.
        RemoteAccess = 0x13, "remote access error";
        /// Remote operation error.
        RemoteOperation = 0x14, "remote operation error";
        /// Transport retry counter exceeded.
        RetryExceeded = 0x15, "transport retry counter exceeded";
        /// Receiver-not-ready retry counter exceeded.
        RnrRetryExceeded = 0x16, "RNR retry counter exceeded";
        /// Aborted by the remote side.
        RemoteAborted = 0x22, "aborted by the remote side";
    }
}

codes! {
    /// Format of a CQE (`MLX5_NO_INLINE_DATA`, `MLX5_INLINE_DATA32_SEG`, `MLX5_INLINE_DATA64_SEG`,
    /// `MLX5_COMPRESSED`).
    Format {
        /// The message is in the posted buffers.
        Plain = 0, "plain";
        /// The first half of the descriptor holds the message.
        Inline32 = 1, "32 bytes inline";
        /// The 64 bytes before the descriptor hold the message.
        Inline64 = 2, "64 bytes inline";
        /// The CQE is the title of a compressed run.
        Compressed = 3, "compressed";
    }
}

impl Format {
    /// Returns the format in the last byte of a CQE.
    #[inline]
    pub const fn of(op_own: u8) -> Self {
        match op_own >> FORMAT_SHIFT & 3 {
            0 => Self::Plain,
            1 => Self::Inline32,
            2 => Self::Inline64,
            _ => Self::Compressed,
        }
    }
}

/// The number of mini CQEs in an array, which has 64 bytes.
pub const MINI_CQES: usize = 8;

/// Mini CQE: the part of a completion that a compressed run does not share
/// (`struct mlx5_mini_cqe8`).
///
/// A run starts with its title CQE. The byte count of the title is the number of completions in the
/// run, the title's own included; the run takes as many CQEs of the ring. The arrays of mini CQEs
/// lie where the descriptors of the 2nd, 9th, 17th, … CQE of the run would be. The device writes no
/// other CQE of the run.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MiniCqe {
    /// Receive: the hash ([`MiniFormat::Hash`]), or checksum (16 bits) and stride index (16 bits).
    /// Request: block index of the WQE (16 bits), opcode (8 bits).
    pub unique: U32,
    /// Bytes transferred.
    pub byte_count: U32,
}
assert_layout!(MiniCqe, 8, unique @ 0, byte_count @ 4);

impl MiniCqe {
    /// Position in `unique` of the block index of a request, or of the checksum of a receive.
    pub const COUNTER_SHIFT: u32 = 16;
    /// Position in `unique` of the opcode of a request.
    pub const OPCODE_SHIFT: u32 = 8;
}

codes! {
    /// The contents of [`MiniCqe::unique`] for receives (`mini_cqe_res_format`;
    /// `MLX5_CQE_FORMAT_*`, Linux `include/linux/mlx5/device.h`).
    MiniFormat {
        /// The receive hash.
        Hash = 0, "receive hash";
        /// The checksum.
        Checksum = 1, "checksum";
        /// Checksum and stride index.
        ChecksumStride = 3, "checksum and stride index";
    }
}

/// Descriptor of a successful completion (`struct mlx5_cqe64`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cqe {
    /// Bits for tunnelled packets ([`tunnel_flags`](crate::ethernet::tunnel_flags)); with tag
    /// matching, the start of the tag-matching header.
    pub head: [u8; 2],
    /// WQE identifier, for striding receive queues.
    pub wqe_id: U16,
    /// Large receive offload (LRO) words.
    pub lro: [u8; 8],
    /// Receive hash.
    pub rss_hash_result: U32,
    /// Type of the receive hash ([`hash_type`](crate::ethernet::hash_type)).
    pub rss_hash_type: u8,
    /// Path bits of the destination LID; on Ethernet,
    /// [`path_flags`](crate::ethernet::path_flags).
    pub ml_path: u8,
    /// Reserved.
    pub reserved0: [u8; 2],
    /// Ones' complement sum of the packet from its IP header to its end, not inverted.
    pub check_sum: U16,
    /// Source LID.
    pub slid: U16,
    /// Service level (bits 24..28), GRH (bits 28..30), remote queue pair number (24 bits).
    pub flags_rqpn: U32,
    /// Header split and checksum bits ([`hds_ip_ext`]).
    pub hds_ip_ext: u8,
    /// L4 and L3 header types ([`header_type`](crate::ethernet::header_type)), VLAN-stripped bit
    /// ([`l4_l3_hdr_type`]).
    pub l4_l3_hdr_type: u8,
    /// Tag control information of the VLAN tag that was stripped.
    pub vlan_info: U16,
    /// Shared receive queue number, or user index (24 bits).
    pub srqn_uidx: U32,
    /// Immediate data, invalidated rkey, or P_Key index.
    pub imm_inval_pkey: U32,
    /// Application identifier.
    pub app: u8,
    /// Application operation.
    pub app_op: u8,
    /// Application information.
    pub app_info: U16,
    /// Bytes transferred; of a striding receive queue, see [`striding`](crate::ethernet::striding).
    pub byte_count: U32,
    /// Device time of the completion.
    pub timestamp: U64,
    /// Send opcode (8 bits) and local queue pair number (24 bits); for receives, the flow tag.
    pub sop_drop_qpn: U32,
    /// Index of the send WQE's first basic block, or index of the receive WQE.
    pub wqe_counter: U16,
    /// XOR checksum of the CQE, if enabled.
    pub signature: u8,
    /// Opcode, format, solicited bit and ownership bit.
    pub op_own: u8,
}
assert_layout!(Cqe, 64, wqe_id @ 2, rss_hash_result @ 12, ml_path @ 17, check_sum @ 20, slid @ 22, flags_rqpn @ 24, hds_ip_ext @ 28,
    l4_l3_hdr_type @ 29, vlan_info @ 30, srqn_uidx @ 32, imm_inval_pkey @ 36, app @ 40,
    byte_count @ 44, timestamp @ 48, sop_drop_qpn @ 56, wqe_counter @ 60, signature @ 62,
    op_own @ 63);

/// Bits of [`Cqe::hds_ip_ext`] (`CQE_L2_OK` and others, Linux `include/linux/mlx5/device.h`).
pub mod hds_ip_ext {
    /// The link layer header is valid.
    pub const L2_OK: u8 = 1 << 0;
    /// The IP header checksum is correct.
    pub const L3_OK: u8 = 1 << 1;
    /// The checksum of the L4 header and payload is correct.
    pub const L4_OK: u8 = 1 << 2;
}

/// Bits of [`Cqe::l4_l3_hdr_type`].
pub mod l4_l3_hdr_type {
    /// The device stripped a VLAN tag.
    pub const VLAN_STRIPPED: u8 = 1 << 0;
    /// Position of the two-bit L3 header type.
    pub const L3_SHIFT: u32 = 2;
    /// L3 header type IPv4 (`CQE_L3_HDR_TYPE_IPV4`).
    pub const L3_IPV4: u8 = 2;
}

/// Descriptor of a completion with error (`struct mlx5_err_cqe`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ErrorCqe {
    /// Reserved.
    pub reserved0: [u8; 2],
    /// WQE identifier, for striding receive queues. Linux' mlx5e reads it as in [`Cqe`].
    pub wqe_id: U16,
    /// Reserved.
    pub reserved1: [u8; 28],
    /// Shared receive queue number, or user index (24 bits).
    pub srqn_uidx: U32,
    /// Reserved.
    pub reserved2: [u8; 8],
    /// Strides that the packet took, for striding receive queues: see
    /// [`striding`](crate::ethernet::striding). mlx5e and DPDK read them as in [`Cqe`].
    pub byte_count: U32,
    /// Reserved.
    pub reserved3: [u8; 4],
    /// The device's own code for the step that failed (MLNX_OFED's libmlx5, and UCX's output). No
    /// public document explains its values.
    pub hw_err_synd: u8,
    /// The kind of `hw_err_synd`. UCX prints the upper half alone.
    pub hw_synd_type: u8,
    /// Vendor error syndrome.
    pub vendor_err_synd: u8,
    /// Reason ([`Syndrome`]).
    pub syndrome: u8,
    /// Send opcode (8 bits) and local queue pair number (24 bits).
    pub s_wqe_opcode_qpn: U32,
    /// Index of the send WQE's first basic block, or index of the receive WQE.
    pub wqe_counter: U16,
    /// XOR checksum of the CQE, if enabled.
    pub signature: u8,
    /// Opcode, format and ownership bit.
    pub op_own: u8,
}

impl ErrorCqe {
    /// The vendor error syndrome of a receive that met a page fault of on-demand memory
    /// (`MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT`), with [`Syndrome::RemoteAborted`].
    pub const PAGE_FAULT: u8 = 0x93;
}

assert_layout!(ErrorCqe, 64, wqe_id @ 2, srqn_uidx @ 32, byte_count @ 44, hw_err_synd @ 52,
    hw_synd_type @ 53, vendor_err_synd @ 54, syndrome @ 55, s_wqe_opcode_qpn @ 56, wqe_counter @ 60, signature @ 62, op_own @ 63);

/// The value of [`Cqe::app`] in CQEs of tag matching (`MLX5_CQE_APP_TAG_MATCHING`).
pub const APP_TAG_MATCHING: u8 = 1;

codes! {
    /// The event that a CQE of tag matching reports: [`Cqe::app_op`] (`MLX5_CQE_APP_OP_TM_*`).
    TagEvent {
        /// A message matched; its data is still to come, and another CQE will report it.
        Consumed = 0x1, "message matched";
        /// The data of a matched message has arrived.
        Expected = 0x2, "data of a matched message received";
        /// A message matched no tag.
        Unexpected = 0x3, "unexpected message received";
        /// A message without a tag arrived.
        NoTag = 0x4, "message without a tag received";
        /// A tag was appended to the list.
        Append = 0x5, "tag added";
        /// A tag was removed from the list, or was no longer on it.
        Remove = 0x6, "tag removed";
        /// The device took the count of handled unexpected messages.
        Noop = 0x7, "tag list synchronised";
        /// A rendezvous request matched that software must serve; its headers are still to come.
        ConsumedSwRendezvous = 0x9, "rendezvous matched, left to software";
        /// A message matched, and its data has arrived.
        ConsumedMessage = 0xa, "message matched and received";
        /// A rendezvous request matched that software must serve; its headers have arrived.
        ConsumedMessageSwRendezvous = 0xb, "rendezvous matched and received, left to software";
        /// A message matched, but its data will not come.
        MessageCompletionCanceled = 0xc, "matched message cancelled";
    }
}

/// The first 16 bytes of the CQE of a tag list operation (`struct mlx5_tm_cqe`).
#[derive(Clone, Copy, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TagListCqe {
    /// [`TagListCqe::SUCCESS`], or zero.
    pub success: U32,
    /// The number of unexpected messages that the device has counted.
    pub hw_phase_cnt: U16,
    /// Reserved.
    pub reserved: [u8; 10],
}
assert_layout!(TagListCqe, 16, hw_phase_cnt @ 4);

impl TagListCqe {
    /// The tag to remove was on the list (`MLX5_TMC_SUCCESS`).
    pub const SUCCESS: u32 = 1 << 31;
}
