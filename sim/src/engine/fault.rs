//! Faults that a test injects into a device, and driver errors that the device detects.

use mlx5_prm::cqe::Syndrome;

use crate::engine::state::event::Event;
use crate::engine::state::holder::Holder;

pub use crate::fault::Fault;

/// Injected faults that have not struck yet.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) drop_packets: u32,
    pub(crate) corrupt_packets: u32,
    /// Keys (index), or any, under which the next signature fails.
    pub(crate) fail_signatures: Vec<Option<u32>>,
    pub(crate) fail_requests: Vec<ForcedFailure>,
    pub(crate) fault_receives: u32,
    pub(crate) reorder_receives: u32,
    pub(crate) duplicate_events: u32,
    pub(crate) reorder_events: u32,
    pub(crate) held_events: Vec<Event>,
    pub(crate) corrupt_cqes: Vec<HostileEntry>,
    /// Completion queues that did not exist yet when their overrun was requested.
    pub(crate) overrun_cqs: Vec<u32>,
}

/// A [`Fault::FailRequest`] that has not struck yet.
#[derive(Debug)]
pub(crate) struct ForcedFailure {
    pub(crate) qpn: Option<u32>,
    pub(crate) syndrome: Syndrome,
    pub(crate) vendor: u8,
}

/// A [`Fault::CorruptCqe`] that has not struck yet.
#[derive(Debug)]
pub(crate) struct HostileEntry {
    pub(crate) cqn: Option<u32>,
    pub(crate) patch: Vec<(u8, u8)>,
}

/// Something that a driver must never do, seen by the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A doorbell named a queue pair that does not exist.
    UnknownQp(u32),
    /// A doorbell named a completion queue that does not exist.
    UnknownCq(u32),
    /// A doorbell announced a block that the doorbell record does not cover yet.
    DoorbellBeyondRecord {
        /// The queue pair.
        qpn: u32,
        /// One past the last block that the doorbell announced.
        announced: u16,
        /// The counter in the doorbell record.
        record: u16,
    },
    /// A doorbell record claims more blocks than the ring has.
    RecordBeyondRing {
        /// The queue pair or shared receive queue.
        number: u32,
        /// The counter in the record.
        record: u16,
        /// The device's own counter.
        executed: u16,
    },
    /// A WQE has an index other than that of its place in the ring.
    WqeIndex {
        /// The queue pair.
        qpn: u32,
        /// The index that it should have.
        expected: u16,
        /// The index in its control segment.
        found: u16,
    },
    /// A WQE has the number of another queue pair.
    WqeQpn {
        /// The queue pair.
        qpn: u32,
        /// The number in the control segment.
        found: u32,
    },
    /// The bytes written to a BlueFlame register differ from the ring.
    BlueFlame {
        /// The queue pair.
        qpn: u32,
        /// The block index that was written.
        index: u16,
        /// The first byte that differs, in the WQE.
        byte: u16,
    },
    /// A doorbell rang on a UAR page that does not belong to its queue.
    WrongUar {
        /// The queue pair or completion queue.
        number: u32,
        /// The page that it rang on.
        uar: u32,
    },
    /// A request used a memory key that an earlier one changed, with no fence between them.
    MkeyWithoutFence {
        /// The queue pair.
        qpn: u32,
        /// The block index of the request.
        index: u16,
        /// The key's index.
        mkey: u32,
    },
    /// A request used a PSV that an earlier one set, with no fence between them.
    PsvWithoutFence {
        /// The queue pair.
        qpn: u32,
        /// The block index of the request.
        index: u16,
        /// The PSV.
        psv: u32,
    },
    /// Queue memory, or memory under a key, could not be reached.
    Memory {
        /// The bus address.
        address: u64,
        /// Bytes.
        length: u64,
    },
    /// Memory was freed while the device could still reach it.
    FreedWhileHeld {
        /// The bus address.
        address: u64,
        /// Bytes.
        length: u64,
        /// The object through which the device could reach it.
        holder: Holder,
    },
    /// An operation on a tag list named an entry that does not exist or is not free.
    TagList {
        /// The queue that has the list.
        srqn: u32,
        /// The entry.
        index: u16,
    },
    /// The list of a receive queue points outside its ring.
    ReceiveList {
        /// The receive queue.
        rqn: u32,
        /// The index to which it points.
        index: u16,
    },
    /// The list of a shared receive queue points outside its buffer.
    SrqList {
        /// The shared receive queue.
        srqn: u32,
        /// The index to which it points.
        index: u16,
    },
}
