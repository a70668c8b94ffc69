//! The owner half of a send queue.
//!
//! The owner is the thread that has the [`SendQueue`]; the poller, the one that polls its
//! completion queue. They share [`SendRecords`].
//!
//! A post is three calls. [`SendQueue::start`] gives the batch the queue's position.
//! [`Batch::add`](crate::Batch) writes each WQE and its record. [`SendQueue::complete`] publishes
//! the records and rings the doorbell. `start_slow`, `add_slow` and `complete_slow` are their slow
//! paths, out of line.

use crate::gate::Gate;
use crate::request::batch_error::BatchError;
use crate::request::data::{Limits, TsoLimits};
use crate::request::error::PostError;
use crate::request::flags::SendFlags;
use crate::request::transport::Transport;
use crate::send::journal::Journal;
use crate::send::layout::{SendLayout, units_of};
use crate::send::records::SendRecords;
use crate::send::ring::Ring;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use mlx5_doorbell::{QueuePairRecord, SendRegister};
use mlx5_prm::wqe::MAX_SGE_LENGTH;

/// The position of the next request of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Position {
    /// Blocks before it, free-running. The device sees the low 16 bits: its producer index.
    pub(crate) block: u32,
    /// WQEs before it, free-running. The low 16 bits are the sequence number of a record.
    pub(crate) sequence: u32,
}

impl Position {
    /// Returns the blocks and WQEs from `start` to this position.
    #[inline]
    pub(crate) const fn since(self, start: Self) -> (u32, u32) {
        (self.block.wrapping_sub(start.block), self.sequence.wrapping_sub(start.sequence))
    }

    /// Returns the position after a WQE of `blocks` blocks.
    #[inline]
    pub(crate) const fn after(self, blocks: u32) -> Self {
        Self { block: self.block.wrapping_add(blocks), sequence: self.sequence.wrapping_add(1) }
    }
}

/// The owner half of a send queue: writes requests into the ring and rings the doorbell.
// Fields of the fast path come first: a program with thousands of queues finds them in few cache
// lines.
#[repr(C, align(64))]
pub struct SendQueue<T> {
    /// The blocks, and the records of the requests in them.
    pub(crate) ring: Ring,
    pub(crate) gate: Gate,
    pub(crate) doorbell: Doorbell,
    /// The shared half.
    pub(crate) records: NonNull<SendRecords>,
    /// The position after the last posted request.
    pub(crate) posted: Position,
    /// The blocks before this one are known to be free, from the queue's position on.
    pub(crate) free_end: u32,
    /// The rest of the batch under construction takes the slow path. While this is false, `batch`
    /// has its initial value.
    pub(crate) is_slow: bool,
    /// Whether the last posted request rewrites a memory key: the next one needs a small fence.
    pub(crate) fence: bool,
    pub(crate) common: Common,
    pub(crate) limits: Limits,
    pub(crate) batch: BatchState,
    /// Changes of memory keys by requests that have not yet completed.
    pub(crate) journal: Journal,
    pub(crate) handle_numbers: HandleNumbers,
    pub(crate) transport: PhantomData<T>,
}

/// Doorbell record and register.
pub(crate) struct Doorbell {
    pub(crate) record: QueuePairRecord,
    pub(crate) register: SendRegister,
}

/// The parts that all requests of a queue share.
pub(crate) struct Common {
    /// Number of the queue pair, as in `qpn_ds` of a control segment: above eight bits for the
    /// units.
    pub(crate) qpn: u32,
    /// Flags of every request: the completion flag, if the queue signals all requests.
    pub(crate) flags: SendFlags,
    /// The device checks a signature of every request.
    pub(crate) is_signed: bool,
    /// The device needs the start of each packet in the request.
    pub(crate) needs_inline_header: bool,
}

/// The state of a batch on the slow path.
#[derive(Default)]
pub(crate) struct BatchState {
    /// The first refusal. It refuses the batch.
    pub(crate) error: Option<BatchError>,
    /// As [`SendQueue::fence`], for the last request built.
    pub(crate) fence: bool,
    /// WQEs besides the first of each request.
    pub(crate) more_wqes: u32,
    /// The handle number of the request that is added next; none is zero.
    pub(crate) handle_number: Option<core::num::NonZeroU32>,
}

impl BatchState {
    /// Out of line, so that a list of usual requests does not look.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_refused(&self) -> bool {
        self.error.is_some()
    }
}

/// The numbers from which handles are made.
pub(crate) struct HandleNumbers {
    /// Unique among all queues of the process, and changed by a reset.
    pub(crate) generation: u64,
    /// The last handle number of this generation.
    pub(crate) last: u32,
}

// SAFETY: no pointer here is tied to a thread, the ring and the scratch buffer are reached only
// through this value, and the shared records are `Sync`.
unsafe impl<T> Send for SendQueue<T> {}

/// The parts of a send queue.
pub struct SendParts {
    /// The ring.
    pub ring: NonNull<u8>,
    /// The ring's sizes.
    pub layout: SendLayout,
    /// Number of the queue pair.
    pub qpn: u32,
    /// The port's largest message.
    pub max_message: u32,
    /// Whether every request is signaled.
    pub signal_all: bool,
    /// Whether the device supports atomics.
    pub atomics: bool,
    /// The gate for posting.
    pub gate: Gate,
    /// Doorbell record.
    pub record: QueuePairRecord,
    /// Doorbell register.
    pub register: SendRegister,
    /// The shared half, created for `layout.blocks` blocks.
    pub records: NonNull<SendRecords>,
}

/// Returns a number that no queue and no earlier generation of a queue had.
pub(crate) fn next_generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

impl fmt::Debug for SendParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendParts")
            .field("qpn", &format_args!("{:#x}", self.qpn))
            .field("layout", &self.layout)
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

impl<T: Transport> fmt::Debug for SendQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendQueue")
            .field("transport", &format_args!("{}", T::NAME))
            .field("qp_num", &format_args!("{:#x}", self.qp_num()))
            .field("gate", &self.gate)
            .field("blocks", &self.ring.blocks())
            .field("free_blocks", &self.free_blocks())
            .field("in_flight", &self.records().in_flight())
            .finish_non_exhaustive()
    }
}

impl<T: Transport> SendQueue<T> {
    /// Creates a send queue.
    ///
    /// # Safety
    /// `ring` points to `layout.bytes()` bytes, aligned to 64. They are valid for as long as the
    /// value lives, and nothing but the device and this value reads or writes them. `records` was
    /// created for this many blocks, was not used, belongs to this queue alone, and lives as long
    /// as the value. `layout` was computed for transport `T`.
    pub unsafe fn new(parts: SendParts) -> Self {
        let SendParts { layout, max_message, gate, record, register, records, .. } = parts;
        // SAFETY: the records live as long as the value, by the contract.
        let shared = unsafe { records.as_ref() };
        Self {
            // SAFETY: the ring has as many blocks as there are records, by the contract.
            ring: unsafe { Ring::new(parts.ring, shared) },
            gate,
            doorbell: Doorbell { record, register },
            records,
            posted: Position::default(),
            free_end: shared.written_blocks(),
            is_slow: false,
            fence: false,
            common: Common {
                qpn: parts.qpn << 8,
                flags: if parts.signal_all { SendFlags::SIGNALED } else { SendFlags::empty() },
                is_signed: false,
                needs_inline_header: false,
            },
            limits: Limits {
                max_blocks: layout.max_request_blocks,
                max_inline: layout.max_inline.min(max_message),
                max_single_sge: match layout.max_sge {
                    0 => 0,
                    _ => max_message.min(MAX_SGE_LENGTH),
                },
                max_sge: layout.max_sge,
                max_message,
                has_atomics: parts.atomics,
                tso: TsoLimits::NONE,
            },
            batch: BatchState::default(),
            journal: Journal::default(),
            handle_numbers: HandleNumbers { generation: next_generation(), last: 0 },
            transport: PhantomData,
        }
    }

    /// Signs every request, for a queue pair whose requests the device checks
    /// (`MLX5_QP_FLAG_SIGNATURE`).
    pub fn sign_requests(&mut self) {
        self.common.is_signed = true;
        self.reset_batch();
    }

    /// Refuses packets without inline header, which the device demands.
    pub fn require_inline_header(&mut self) {
        self.common.needs_inline_header = true;
        self.reset_batch();
    }

    /// Lets the queue take packets that the device cuts, of up to `max_total` bytes. Their headers
    /// are limited by the layout that the queue was created with, which is given again.
    pub fn take_segmented(&mut self, layout: &SendLayout, max_total: u32) {
        self.limits.tso = TsoLimits {
            max_header: layout.max_tso_header,
            max_total,
            // Of the queue, not of the layout that is given: requests reserve no more.
            max_units: units_of(self.limits.max_blocks as usize) as u32,
        };
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        self.common.qpn >> 8
    }

    /// The maximum number of bytes of inline data in a request.
    pub const fn max_inline(&self) -> u32 {
        self.limits.max_inline
    }

    /// The maximum number of SGEs in a request.
    pub const fn max_sge(&self) -> u32 {
        self.limits.max_sge
    }

    /// The low 16 bits of the producer index, as last written to the doorbell record.
    pub const fn producer(&self) -> u16 {
        self.posted.block as u16
    }

    /// The largest WQE, in blocks, that is copied to the BlueFlame register.
    pub const fn blueflame_blocks(&self) -> u32 {
        self.doorbell.register.blueflame_blocks()
    }
}

impl<T> SendQueue<T> {
    #[inline(always)]
    pub(crate) fn records(&self) -> &SendRecords {
        // SAFETY: the records live as long as this value, by the contract of `new`.
        unsafe { self.records.as_ref() }
    }

    /// Why posting is refused.
    #[cold]
    pub(crate) fn refusal(&self) -> PostError {
        self.gate.refusal().into()
    }

    /// Resets all counters. The queue pair was reset, and no earlier completion can be polled any
    /// more.
    pub fn reset(&mut self) {
        self.end_changes();
        self.posted = Position::default();
        self.fence = false;
        self.reset_batch();
        self.free_end = self.records().written_blocks();
        self.handle_numbers.generation = next_generation();
        self.records().reset();
        self.doorbell.record.set_send(0);
    }
}

impl<T> Drop for SendQueue<T> {
    fn drop(&mut self) {
        if !self.journal.is_empty() {
            self.end_changes();
        }
    }
}
