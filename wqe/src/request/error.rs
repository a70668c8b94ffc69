//! Why a request was refused.

use crate::gate::{QueueState, Refusal};
use crate::request::flags::SendFlags;
use core::fmt;

/// Why a request was refused. Nothing of it reached the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PostError {
    /// There is no room: `free` blocks (on a receive queue: requests) are free, `needed` are
    /// required.
    QueueFull {
        /// The free blocks or entries.
        free: u32,
        /// The blocks or entries that the request needs.
        needed: u32,
    },
    /// With this request, the queue would be full of unsignaled requests, none of which could ever
    /// be retired. Signal at least one.
    UnsignaledRun,
    /// More SGEs than the queue was created for.
    TooManySges {
        /// The number given.
        given: u32,
        /// The maximum.
        max: u32,
    },
    /// An SGE is longer than 2³¹ − 1 bytes.
    SgeTooLong {
        /// Index of the SGE.
        index: u32,
        /// Its length.
        length: u32,
    },
    /// The SGEs together exceed the port's maximum message size.
    MessageTooLong {
        /// Their total length; `u32::MAX` if it exceeds that.
        length: u32,
        /// The maximum message size.
        max: u32,
    },
    /// More inline data than the queue was created for.
    InlineTooLong {
        /// The length given; `u32::MAX` if it exceeds that.
        length: u32,
        /// The maximum.
        max: u32,
    },
    /// A flag that this operation or transport does not support.
    Flags {
        /// The unsupported flags.
        refused: SendFlags,
    },
    /// An operation that this transport does not support.
    Unsupported,
    /// The operation takes no inline data.
    InlineNotAllowed,
    /// The transport requires the receiver's address with each request.
    AddressMissing,
    /// More translation entries than the memory key was created for, or than a request can carry.
    TooManyMkeyEntries {
        /// The number given.
        given: u32,
        /// The maximum.
        max: u32,
    },
    /// An entry of an interleaved layout spans more bytes per repetition than 16 bits can express.
    StrideTooLong {
        /// Index of the entry.
        index: u32,
        /// The bytes that it spans, including those that it skips.
        length: u32,
    },
    /// The memory key cannot be configured as requested.
    Mkey(MkeyRefusal),
    /// The transport requires the number of the peer's shared receive queue with each request.
    SrqnMissing,
    /// The operation takes no data, or none of this kind.
    DataNotAllowed,
    /// A raw operation needs a WQE instead of data.
    RawWqeRequired,
    /// An atomic needs one SGE of eight bytes for the previous value.
    AtomicResult {
        /// The number of SGEs given.
        entries: u32,
        /// The length of the first.
        length: u32,
    },
    /// The device does not support atomics.
    NoAtomics,
    /// An operation of the verbs that no ConnectX supports, or not on this transport.
    UnsupportedByDevice(UnsupportedOperation),
    /// The headers of a packet to be cut are shorter than an Ethernet header, or longer than the
    /// queue was created for.
    TsoHeader {
        /// Their length.
        length: u32,
        /// The maximum; zero if the queue was created without TSO.
        max: u32,
    },
    /// A packet is to be cut into segments of no bytes.
    TsoSegmentSize,
    /// A packet of a request that sends several is shorter than an Ethernet header.
    PacketTooShort {
        /// Index of the packet.
        index: u32,
        /// Its length.
        length: u32,
    },
    /// The device needs the first 18 bytes of each packet in the request.
    InlineHeaderMissing,
    /// A window of more than 2 GiB, the maximum of a translation entry.
    WindowTooLong {
        /// Its length in GiB.
        gib: u32,
    },
    /// The list of tags is full.
    TagListFull {
        /// The maximum number of tags.
        max: u32,
    },
    /// The tag was matched or removed, or is being removed already.
    StaleTag,
    /// The tag belongs to another list.
    ForeignTag,
    /// The queue pair has no send queue: the device uses it for rendezvous data.
    NoSendQueue,
    /// The state of the queue pair does not allow it.
    State(QueueState),
    /// The device is gone.
    DeviceGone,
    /// The queue belongs to the process from which this one was forked.
    Forked,
}

/// Why a memory key cannot be configured as requested.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum MkeyRefusal {
    /// The key was not created for signatures.
    NotForSignatures,
    /// Signatures are requested in neither domain.
    NoDomain,
    /// Bytes can be copied only between domains with the same block size and kind of signature.
    CopyMask,
    /// A signed key exceeds 4 GiB, its maximum.
    TooLong,
    /// The key's signature is unknown because a queue was reset. State how the key is signed.
    Unknown,
    /// The variant is not zero, but the kernel or the device cannot change it.
    Variant,
}

impl MkeyRefusal {
    const fn text(self) -> &'static str {
        match self {
            Self::NotForSignatures => "the memory key was created without `block_signature`",
            Self::NoDomain => "a signature needs a domain: memory, wire or both",
            Self::CopyMask => {
                "signature bytes are copied only between domains with the same block size and \
                 signature"
            }
            Self::TooLong => "a signed memory key is at most 4 GiB long",
            Self::Unknown => {
                "the key's signature is unknown because a queue was reset: set or reset the \
                 signature"
            }
            Self::Variant => "the kernel cannot change the variant byte of a memory key",
        }
    }
}

/// Operations of the verbs that are refused on every transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum UnsupportedOperation {
    /// Segmentation offload (`IBV_WR_TSO`).
    Tso,
    /// Flush (`IBV_WR_FLUSH`).
    Flush,
    /// Atomic write (`IBV_WR_ATOMIC_WRITE`).
    AtomicWrite,
}

impl UnsupportedOperation {
    const fn text(self) -> &'static str {
        match self {
            Self::Tso => "TSO requires a raw packet queue",
            Self::Flush => "ConnectX has no flush operation",
            Self::AtomicWrite => "ConnectX has no atomic write operation",
        }
    }
}

/// Why a flag may be refused.
const REASONS: [(SendFlags, &str); 3] = [
    (SendFlags::FENCE, "only reliable transports have reads and atomics to fence"),
    (
        SendFlags::SOLICITED,
        "only a request that consumes a receive request at the peer can cause an event there",
    ),
    (SendFlags::IP_CSUM, "checksums are filled in only on a raw packet queue"),
];

impl From<Refusal> for PostError {
    fn from(shut: Refusal) -> Self {
        match shut {
            Refusal::Forked => Self::Forked,
            Refusal::DeviceGone => Self::DeviceGone,
            Refusal::Absent => Self::NoSendQueue,
            Refusal::State(state) => Self::State(state),
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::QueueFull { free, needed } => write!(
                f,
                "queue full: {needed} needed, {free} free; poll for completions, or make the queue larger"
            ),
            Self::UnsignaledRun => f.write_str(
                "the queue would be full of unsignaled requests: signal at least one of them",
            ),
            Self::TooManySges { given, max } => {
                write!(f, "{given} SGEs, but the queue supports {max}")
            }
            Self::SgeTooLong { index, length } => {
                write!(f, "SGE {index} has {length} bytes; the maximum is 2147483647")
            }
            Self::MessageTooLong { length, max } => {
                write!(f, "message of {length} bytes; the port supports at most {max}")
            }
            Self::InlineTooLong { length, max } => {
                write!(f, "{length} bytes of inline data, but the queue supports {max}")
            }
            Self::Flags { refused } => {
                write!(f, "{refused:?} is not supported with this operation on this transport")?;
                REASONS
                    .iter()
                    .filter(|(flag, _)| refused.contains(*flag))
                    .try_for_each(|(_, reason)| write!(f, ": {reason}"))
            }
            Self::Unsupported => f.write_str("the transport does not support this operation"),
            Self::InlineNotAllowed => f.write_str("this operation takes no inline data"),
            Self::TagListFull { max } => write!(
                f,
                "the list is full with {max} tags: poll for messages that match, or remove some"
            ),
            Self::StaleTag => {
                f.write_str("the tag was matched or removed, or is being removed already")
            }
            Self::NoSendQueue => f.write_str(
                "the queue pair has no send queue, because the device uses it for rendezvous data: \
                 create it with `keep_send_queue`",
            ),
            Self::ForeignTag => f.write_str("the tag belongs to another list"),
            Self::AddressMissing => f.write_str("the request needs the receiver's address"),
            Self::TooManyMkeyEntries { given, max } => {
                write!(f, "{given} entries; this memory key and a request hold at most {max}")
            }
            Self::StrideTooLong { index, length } => {
                write!(f, "entry {index} spans {length} bytes per repetition; the maximum is 65535")
            }
            Self::Mkey(refusal) => f.write_str(refusal.text()),
            Self::SrqnMissing => {
                f.write_str("the request needs the number of the receiving shared receive queue")
            }
            Self::DataNotAllowed => f.write_str("this operation takes no data of this kind"),
            Self::RawWqeRequired => f.write_str("a raw request needs a WQE instead of data"),
            Self::AtomicResult { entries, length } => write!(
                f,
                "an atomic needs one SGE of 8 bytes for its result, not {entries}, the first of \
                 {length} bytes"
            ),
            Self::NoAtomics => f.write_str("the device does not support atomics"),
            Self::UnsupportedByDevice(operation) => write!(f, "{}", operation.text()),
            Self::TsoHeader { max: 0, .. } => {
                f.write_str("the queue was created without TSO: set `max_tso_header`")
            }
            Self::TsoHeader { length, max } => {
                write!(f, "headers of {length} bytes; 14 to {max} are supported (`max_tso_header`)")
            }
            Self::TsoSegmentSize => f.write_str("the maximum segment size is zero"),
            Self::PacketTooShort { index, length } => {
                write!(f, "packet {index} has {length} bytes; an Ethernet header has 14")
            }
            Self::InlineHeaderMissing => f.write_str(
                "the device needs the first 18 bytes of each packet in the request: use \
                 `inline_header`",
            ),
            Self::WindowTooLong { gib } => {
                write!(f, "the window has {gib} GiB or more; the maximum is 2 GiB")
            }
            Self::State(state) => {
                write!(f, "the queue pair is in state {}, which does not allow it", state.name())
            }
            Self::DeviceGone => f.write_str("the device is gone"),
            Self::Forked => f.write_str("the queue belongs to the parent of this process"),
        }
    }
}

impl core::error::Error for PostError {}
