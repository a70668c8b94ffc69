//! Faults that a device can be told to have.

use mlx5_prm::cqe::Syndrome;

/// A fault to inject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Loses the next packets that the device sends.
    DropPackets(u32),
    /// Flips a bit in the data of each of the next packets that the device sends.
    CorruptPackets(u32),
    /// The next signature that is checked under this key, or under any, does not match.
    FailSignature {
        /// The memory key, as a whole; any if `None`.
        mkey: Option<u32>,
    },
    /// The next request of this queue pair, or of any, fails.
    FailRequest {
        /// The queue pair; any if `None`.
        qpn: Option<u32>,
        /// Why it fails.
        syndrome: Syndrome,
        /// The vendor's code in the completion.
        vendor: u8,
    },
    /// Reports each of the next asynchronous events twice.
    DuplicateEvents(u32),
    /// Holds back the next asynchronous events until there are this many, then reports them
    /// latest first.
    ReorderEvents(u32),
    /// Overwrites bytes of the next completion entry of this queue, or of any.
    CorruptCqe {
        /// The completion queue; any if `None`.
        cqn: Option<u32>,
        /// Offset in the 64-byte descriptor, and what to write there.
        patch: Vec<(u8, u8)>,
    },
    /// Puts this completion queue in the state that an overrun leaves it in.
    OverrunCq(u32),
    /// The device executes nothing until [`Fault::Resume`].
    Stall,
    /// Ends [`Fault::Stall`].
    Resume,
    /// The device reports a fatal error, and executes nothing any more.
    Fatal,
    /// The device is pulled out: as [`Fault::Fatal`], and nothing answers any more.
    Remove,
}
