//! Why a request was refused.

use crate::gate::{QueueState, Shut};
use crate::request::flags::SendFlags;
use core::fmt;

/// Why a request was refused. Nothing of it reached the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PostError {
    /// There is no room: `free` blocks (requests, on a receive queue), `needed` asked for.
    QueueFull {
        /// What is free.
        free: u32,
        /// What the request takes.
        needed: u32,
    },
    /// With this request, a run of requests without any completion would fill the queue, and
    /// nothing could ever be retired: signal one.
    UnsignaledRun,
    /// More scatter or gather entries than the queue was made for.
    TooManySges {
        /// How many were given.
        given: u32,
        /// How many the queue takes.
        max: u32,
    },
    /// An entry is longer than 2³¹ − 1 bytes.
    SgeTooLong {
        /// Which entry.
        index: u32,
        /// Its length.
        length: u32,
    },
    /// The entries together are longer than the port's largest message.
    MessageTooLong {
        /// Their length, or the largest number if it is beyond that.
        length: u32,
        /// The largest message.
        max: u32,
    },
    /// More inline data than the queue was made for.
    InlineTooLong {
        /// How much was given, or the largest number if it is beyond that.
        length: u32,
        /// How much the queue takes.
        max: u32,
    },
    /// A flag that this operation or this transport does not have.
    Flags {
        /// The flags that are not allowed.
        refused: SendFlags,
    },
    /// An operation that this transport does not have.
    Unsupported,
    /// The operation takes no inline data.
    InlineNotAllowed,
    /// The transport needs the address of the receiver with each request.
    AddressMissing,
    /// More translation entries than the memory key was made for, or than a request can carry.
    TooManyMkeyEntries {
        /// How many were given.
        given: u32,
        /// How many there can be.
        max: u32,
    },
    /// An entry of an interleaved layout takes and passes over more bytes than 16 bits can say.
    StrideTooLong {
        /// Which entry.
        index: u32,
        /// Its bytes, those passed over included.
        length: u32,
    },
    /// The memory key cannot be configured like this.
    Mkey(MkeyRefusal),
    /// The transport needs the number of the receiving shared receive queue with each request.
    SrqnMissing,
    /// The operation has no data, or none of this kind.
    DataNotAllowed,
    /// The operation needs the whole request for its data.
    WqeMissing,
    /// An atomic takes one entry, of eight bytes, for what was there before.
    AtomicResult {
        /// How many entries were given.
        entries: u32,
        /// The length of the first.
        length: u32,
    },
    /// The device has no atomics.
    NoAtomics,
    /// An operation that no ConnectX has, or not on this transport, though the verbs name it.
    NotProvided(Unprovided),
    /// A window of more than 2 GiB, which one entry of its translation cannot hold.
    WindowTooLong {
        /// Its length.
        gib: u32,
    },
    /// The list of tags is full.
    TagListFull {
        /// The tags that it takes.
        max: u32,
    },
    /// The tag is not on the list any more, for all that is known, or is being removed already.
    StaleTag,
    /// The tag is another list's.
    ForeignTag,
    /// The queue pair has no send queue: the device has its send side, for the data of rendezvous.
    NoSendQueue,
    /// The queue pair is in a state that does not allow it.
    State(QueueState),
    /// The device is gone.
    DeviceGone,
    /// The queue belongs to the process that this one was forked from.
    Forked,
}

/// Why a memory key cannot be configured as asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum MkeyRefusal {
    /// It was not made for signatures.
    NotForSignatures,
    /// Signatures were asked for in neither domain.
    NoDomain,
    /// Bytes can be copied only between domains with the same blocks and the same kind of
    /// signature.
    CopyMask,
    /// It is longer than the 4 GiB that a signed key can be.
    TooLong,
    /// What it was last configured as is not known, for a queue was reset meanwhile: say how it is
    /// signed.
    Unknown,
    /// The kernel or the device cannot change a key's variant byte, and it is not zero.
    Variant,
}

impl MkeyRefusal {
    const fn text(self) -> &'static str {
        match self {
            Self::NotForSignatures => {
                "the memory key was not made for signatures: make it with `block_signature`"
            }
            Self::NoDomain => "a signature needs a domain: memory, wire or both",
            Self::CopyMask => {
                "signature bytes are copied only between domains with equal blocks and signatures"
            }
            Self::TooLong => "a signed memory key can be at most 4 GiB long",
            Self::Unknown => {
                "how the memory key is signed is not known since a queue was reset: set or reset it"
            }
            Self::Variant => "the kernel cannot change the variant byte of a memory key",
        }
    }
}

/// Operations that the verbs name, and that are refused whatever the transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Unprovided {
    /// Segmentation offload (`IBV_WR_TSO`).
    Tso,
    /// Flush (`IBV_WR_FLUSH`).
    Flush,
    /// Atomic write (`IBV_WR_ATOMIC_WRITE`).
    AtomicWrite,
}

impl Unprovided {
    const fn text(self) -> &'static str {
        match self {
            Self::Tso => "segmentation offload is for queues of raw packets",
            Self::Flush => "ConnectX has no flush operation",
            Self::AtomicWrite => "ConnectX has no atomic write operation",
        }
    }
}

/// Why a flag may be refused.
const REASONS: [(SendFlags, &str); 3] = [
    (SendFlags::FENCE, "only reliable transports have reads and atomics to wait for"),
    (
        SendFlags::SOLICITED,
        "only what takes a receive request at the other side can cause an event there",
    ),
    (SendFlags::IP_CSUM, "only a queue of raw packets has checksums to fill in"),
];

impl From<Shut> for PostError {
    fn from(shut: Shut) -> Self {
        match shut {
            Shut::Forked => Self::Forked,
            Shut::DeviceGone => Self::DeviceGone,
            Shut::Absent => Self::NoSendQueue,
            Shut::State(state) => Self::State(state),
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
                "a run of unsignaled requests would fill the queue for ever: signal at least one in it",
            ),
            Self::TooManySges { given, max } => {
                write!(f, "{given} scatter/gather entries, but the queue was made for {max}")
            }
            Self::SgeTooLong { index, length } => {
                write!(f, "entry {index} is {length} bytes long; an entry holds at most 2147483647")
            }
            Self::MessageTooLong { length, max } => {
                write!(f, "message of {length} bytes; the port takes at most {max}")
            }
            Self::InlineTooLong { length, max } => {
                write!(f, "{length} bytes of inline data, but the queue was made for {max}")
            }
            Self::Flags { refused } => {
                write!(f, "{refused:?} is not allowed with this operation on this transport")?;
                REASONS
                    .iter()
                    .filter(|(flag, _)| refused.contains(*flag))
                    .try_for_each(|(_, reason)| write!(f, ": {reason}"))
            }
            Self::Unsupported => f.write_str("the transport does not have this operation"),
            Self::InlineNotAllowed => f.write_str("this operation takes no inline data"),
            Self::TagListFull { max } => write!(
                f,
                "all {max} tags are on the list; poll for messages that match, or remove some"
            ),
            Self::StaleTag => {
                f.write_str("the tag was matched or removed, or is being removed already")
            }
            Self::NoSendQueue => f.write_str(
                "the device has the send side of the queue pair, to fetch the data of rendezvous",
            ),
            Self::ForeignTag => f.write_str("the tag is on the list of another queue"),
            Self::AddressMissing => f.write_str("the request needs the receiver's address"),
            Self::TooManyMkeyEntries { given, max } => {
                write!(f, "{given} entries, but this memory key and a request hold at most {max}")
            }
            Self::StrideTooLong { index, length } => write!(
                f,
                "entry {index} takes and passes over {length} bytes in a round; at most 65535 can be said"
            ),
            Self::Mkey(refusal) => f.write_str(refusal.text()),
            Self::SrqnMissing => {
                f.write_str("the request needs the number of the receiving shared receive queue")
            }
            Self::DataNotAllowed => f.write_str("this operation has no data, or none of this kind"),
            Self::WqeMissing => f.write_str("a raw request has the WQE for its data"),
            Self::AtomicResult { entries, length } => write!(
                f,
                "an atomic takes one entry of 8 bytes for its result, not {entries}, the first of {length} bytes"
            ),
            Self::NoAtomics => f.write_str("the device has no atomics"),
            Self::NotProvided(operation) => write!(f, "{}", operation.text()),
            Self::WindowTooLong { gib } => {
                write!(f, "a window of {gib} GiB and more; it can have 2 GiB")
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

/// Errors are returned in two registers.
const _: () = assert!(size_of::<Result<(), BatchError>>() == 16);

/// Why a batch was refused, whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchError {
    /// Which request of the batch, from zero, was at fault.
    pub index: u32,
    /// What was wrong with it.
    pub error: PostError,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch refused, nothing posted: request {}: {}", self.index, self.error)
    }
}

impl core::error::Error for BatchError {}

/// Why the rest of a list was refused; what comes before `index` was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListError {
    /// The first request that was not posted (`bad_wr`).
    pub index: u32,
    /// What was wrong with it.
    pub error: PostError,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {} and those after it not posted: {}", self.index, self.error)
    }
}

impl core::error::Error for ListError {}

impl From<BatchError> for ListError {
    fn from(BatchError { index, error }: BatchError) -> Self {
        Self { index, error }
    }
}
