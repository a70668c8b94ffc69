//! The owner half of a send queue.

use crate::gate::Gate;
use crate::request::data::{ATOMIC_RESULT, Limits};
use crate::request::error::{BatchError, PostError};
use crate::request::transport::Transport;
use crate::send::journal::Journal;
use crate::send::layout::SendLayout;
use crate::send::records::{RequestInfo, SendRecords, Slots};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use mlx5_doorbell::{QueuePairRecord, SendRegister};
use mlx5_prm::wqe::{BLOCK, MAX_BLOCKS, MAX_SGE_LENGTH, control_flags};

/// Room for the largest WQE, where a request is built that does not fit in one piece.
#[repr(C, align(64))]
pub(crate) struct Scratch(pub(crate) [u8; MAX_BLOCKS * BLOCK]);

/// The owner half of a send queue: writes requests into the ring and rings the doorbell.
pub struct SendQueue<T> {
    pub(crate) ring: NonNull<u8>,
    /// Blocks in the ring, less one.
    pub(crate) mask: u32,
    pub(crate) worst_blocks: u32,
    /// Blocks ever committed, counted freely; the device sees 16 bits of it.
    pub(crate) head: u32,
    /// Requests ever committed, counted freely; 16 bits of it are a record's sequence number.
    pub(crate) sequence: u32,
    /// As long as `head` has not passed this, a largest request can be written there in one piece
    /// and leaves room for another. Then a request goes the slow way, where all is looked at afresh.
    pub(crate) stop: u32,
    /// Number of the queue pair, as it stands in a WQE's first word.
    pub(crate) qpn: u64,
    pub(crate) limits: Limits,
    /// Flags that every request gets, as they stand in a WQE's second word: a completion, on a
    /// queue that signals all.
    pub(crate) always: u32,
    pub(crate) gate: Gate,
    pub(crate) record: QueuePairRecord,
    pub(crate) register: SendRegister,
    pub(crate) records: NonNull<SendRecords>,
    pub(crate) slots: Slots,
    /// The longest WQE that goes to a BlueFlame register at once: zero for queues with none of their
    /// own, and while the batch under construction needs a closer look when it is completed.
    pub(crate) blueflame_now: u32,
    /// The last request, of any batch, that left something here beside its WQE and its record. As
    /// long as the queue has not come past it, that is of a batch that is not posted.
    pub(crate) noted: u32,
    /// Why the batch under construction is refused, if it is.
    pub(crate) error: Option<BatchError>,
    /// Whether the last request that was committed rewrites a memory key: the next one waits for it.
    /// It does, too, if the queue has come to `fence_at`.
    pub(crate) fence: bool,
    /// Behind the last request that configures a key.
    pub(crate) fence_at: u32,
    /// The same of the last request that was built.
    pub(crate) fence_next: bool,
    pub(crate) scratch: Box<Scratch>,
    /// Whether the device checks a signature of every request.
    pub(crate) signed: bool,
    /// Changes of memory keys by requests that are not known to be executed.
    pub(crate) journal: Journal,
    /// WQEs of the batch under construction beside the first of each request.
    pub(crate) more_wqes: u32,
    /// Differs for every queue of the process, and from one reset to the next.
    pub(crate) life: u64,
    /// The name that was given last to a request of this life.
    pub(crate) last_name: u32,
    /// The names of the requests that have one, by sequence.
    pub(crate) names: Box<[u32]>,
    transport: PhantomData<T>,
}

// SAFETY: the ring is reached only through this value.
unsafe impl<T> Send for SendQueue<T> {}

/// What a send queue is made of.
pub struct SendParts {
    /// The ring.
    pub ring: NonNull<u8>,
    /// Its sizes.
    pub layout: SendLayout,
    /// Number of the queue pair.
    pub qpn: u32,
    /// The port's largest message.
    pub max_message: u32,
    /// Whether every request is to be signaled.
    pub signal_all: bool,
    /// Whether the device has atomics.
    pub atomics: bool,
    /// Says whether posting is allowed.
    pub gate: Gate,
    /// Doorbell record.
    pub record: QueuePairRecord,
    /// Doorbell register.
    pub register: SendRegister,
    /// The shared half, made for `layout.blocks`.
    pub records: NonNull<SendRecords>,
}

/// A number that no queue's life had before.
pub(crate) fn next_life() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Relaxed)
}

impl<T: Transport> SendQueue<T> {
    /// Puts a send queue together.
    ///
    /// # Safety
    /// `ring` points to `layout.bytes()` bytes, aligned to 64, that are valid as long as the value
    /// lives and that nobody but the device reads or writes otherwise; `records` was made for this
    /// many blocks, belongs to this queue alone, and lives as long as the value.
    pub unsafe fn new(parts: SendParts) -> Self {
        let SendParts {
            ring,
            layout,
            qpn,
            max_message,
            signal_all,
            atomics,
            gate,
            record,
            register,
            records,
        } = parts;
        let blueflame_now = register.own_blueflame_blocks();
        Self {
            ring,
            mask: layout.blocks - 1,
            worst_blocks: layout.worst_blocks,
            head: 0,
            sequence: 0,
            stop: first_stop(layout.blocks, layout.worst_blocks),
            // 24 bits, lest it reach the opcode beside it.
            qpn: u64::from(qpn & 0xff_ffff) << 8,
            limits: Limits {
                max_sge: layout.max_sge,
                max_inline: layout.max_inline.min(max_message) as usize,
                max_message,
                max_single_sge: if layout.max_sge == 0 {
                    0
                } else {
                    max_message.min(MAX_SGE_LENGTH)
                },
                atomic_result: if atomics { ATOMIC_RESULT } else { u64::MAX },
            },
            always: if signal_all {
                u32::from(control_flags::COMPLETION) << RequestInfo::CONTROL_SHIFT
            } else {
                0
            },
            gate,
            record,
            register,
            records,
            // SAFETY: it lives as long as the value.
            slots: unsafe { records.as_ref() }.slots(),
            blueflame_now,
            noted: u32::MAX,
            error: None,
            fence: false,
            fence_at: u32::MAX,
            fence_next: false,
            scratch: Box::new(Scratch([0; MAX_BLOCKS * BLOCK])),
            signed: false,
            journal: Journal::default(),
            more_wqes: 0,
            life: next_life(),
            last_name: 0,
            names: (0..layout.blocks).map(|_| 0).collect(),
            transport: PhantomData,
        }
    }

    /// Gives every request a signature, for a queue pair of which the device checks it
    /// (`MLX5_QP_FLAG_SIGNATURE`). Every request goes the slow way then.
    pub fn sign_requests(&mut self) {
        self.signed = true;
        self.stop = self.head.wrapping_sub(1);
    }

    #[inline(always)]
    pub(crate) fn records(&self) -> &SendRecords {
        // SAFETY: it lives as long as this value, by the contract of `new`.
        unsafe { self.records.as_ref() }
    }

    /// The blocks that are free.
    pub fn free_blocks(&self) -> u32 {
        self.free_at(self.head, self.sequence)
    }

    #[inline]
    pub(crate) fn free_at(&self, head: u32, sequence: u32) -> u32 {
        let used = self.records().used_blocks(head as u16, sequence as u16);
        (self.mask + 1).saturating_sub(u32::from(used))
    }

    /// Where `head` stands in the ring.
    #[inline(always)]
    pub(crate) fn at(&self, head: u32) -> NonNull<u8> {
        // SAFETY: masked, so inside the ring.
        unsafe { self.ring.byte_add((head & self.mask) as usize * BLOCK) }
    }

    /// Why the gate is shut.
    #[cold]
    pub(crate) fn refusal(&self) -> PostError {
        self.gate.why().into()
    }

    /// Starts over with empty counters: the queue pair was reset, and no completion from before can
    /// be met any more.
    pub fn reset(&mut self) {
        self.abort();
        self.head = 0;
        self.sequence = 0;
        self.stop = first_stop(self.mask + 1, self.worst_blocks);
        self.journal.lose();
        self.life = next_life();
        self.fence = false;
        self.fence_at = u32::MAX;
        self.fence_next = false;
        self.noted = u32::MAX;
        self.records().reset();
        self.record.set_send(0);
    }

    /// The 16-bit block counter that the device was last told.
    pub const fn producer(&self) -> u16 {
        self.head as u16
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        (self.qpn >> 8) as u32
    }

    /// The most bytes of inline data in a request.
    pub const fn max_inline(&self) -> u32 {
        self.limits.max_inline as u32
    }

    /// The most scatter/gather entries in a request.
    pub const fn max_sge(&self) -> u32 {
        self.limits.max_sge
    }

    /// The longest WQE, in blocks, that is copied to the doorbell register.
    pub const fn blueflame_blocks(&self) -> u32 {
        self.register.blueflame_blocks()
    }
}

/// The last block at which a largest request can be built in an empty ring, another one having room
/// behind it; none if there is none.
fn first_stop(blocks: u32, worst_blocks: u32) -> u32 {
    blocks.checked_sub(2 * worst_blocks).unwrap_or(u32::MAX)
}
