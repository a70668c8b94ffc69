//! The owner half of a send queue.

use crate::gate::Gate;
use crate::request::batch_error::BatchError;
use crate::request::data::{ATOMIC_RESULT, Limits};
use crate::request::error::PostError;
use crate::request::ethernet::TsoLimits;
use crate::request::transport::{Transport, Which};
use crate::send::journal::Journal;
use crate::send::layout::SendLayout;
use crate::send::records::{FIRST_BLOCKS, RequestInfo, Scratch, SendRecords, Slots};
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use mlx5_doorbell::{QueuePairRecord, SendRegister};
use mlx5_prm::wqe::{BLOCK, MAX_SGE_LENGTH, UNIT, control_flags};

/// The owner half of a send queue: writes requests into the ring and rings the doorbell.
// Of the same layout for every transport, as `SendQueue::of_transport` requires. What posting a
// request uses is in the first two cache lines; see `HOT`.
#[repr(C, align(64))]
pub struct SendQueue<T> {
    pub(crate) ring: NonNull<u8>,
    pub(crate) slots: Slots,
    pub(crate) gate: Gate,
    pub(crate) record: QueuePairRecord,
    pub(crate) register: SendRegister,
    pub(crate) records: NonNull<SendRecords>,
    /// The first refusal in the batch under construction.
    pub(crate) error: Option<BatchError>,
    /// Number of the queue pair, shifted as in the first word of a WQE.
    pub(crate) qpn: u64,
    /// Producer index in blocks, free-running; the device sees 16 bits of it.
    pub(crate) head: u32,
    /// Requests committed so far, free-running. Its low 16 bits are the sequence number of a
    /// record.
    pub(crate) sequence: u32,
    /// The fast path is taken while `head` has not passed this block: a request of the largest size
    /// can be built there in one piece, with room for another one behind it. After that, requests
    /// take the slow path, which computes the room again.
    pub(crate) fast_limit: u32,
    /// Blocks in the ring, minus one.
    pub(crate) mask: u32,
    /// Flags of every request, shifted as in the second word of a WQE: the completion flag, on a
    /// queue that signals all requests.
    pub(crate) default_flags: u32,
    /// Largest WQE, in blocks, that the fast path copies to a BlueFlame register. Zero if the queue
    /// has no register of its own, and while the batch under construction must be completed by the
    /// slow path.
    pub(crate) fast_blueflame_blocks: u32,
    pub(crate) limits: Limits,
    /// Changes of memory keys by requests that have not yet completed.
    pub(crate) journal: Journal,
    /// Memory for one WQE, which belongs to this value alone.
    pub(crate) scratch: NonNull<Scratch>,
    /// Unique among all queues of the process, and changed by a reset.
    pub(crate) generation: u64,
    pub(crate) max_request_blocks: u32,
    /// A list for a key is built without a look at the room if it ends at this block or before: so far
    /// the blocks from `head` on are free, in one piece, and leave room for a request of the largest size.
    /// It was found at the end of a batch under construction, and holds from `head` on if that batch is
    /// leaked, unless the batch had come around the end of the ring. What crosses that end takes the slow
    /// path, which sets `noted`, and so the next batch forgets the limit before it uses it.
    pub(crate) list_limit: u32,
    /// Sequence number of the last request, of any batch, that changed state here besides its WQE
    /// and record. While `sequence` has not passed it, its batch is not posted.
    pub(crate) noted: u32,
    /// The block behind the last request that configures a key.
    pub(crate) fence_at: u32,
    /// Further WQEs, after the first of each request, in the batch under construction.
    pub(crate) more_wqes: u32,
    /// The last handle number that was given in this generation.
    pub(crate) last_name: u32,
    /// Whether the last committed request rewrites a memory key, so that the next one needs a small
    /// fence. The next one needs it also if `head` equals `fence_at`.
    pub(crate) fence: bool,
    /// As `fence`, for the last request that was built.
    pub(crate) fence_next: bool,
    /// Whether the device checks a signature of every request.
    pub(crate) signed: bool,
    /// Whether every request takes the slow path.
    pub(crate) always_slow: bool,
    /// The transport that the queue was created for.
    pub(crate) which: Which,
    /// Whether the device needs the start of each packet in the request.
    pub(crate) needs_inline_header: bool,
    /// What the queue takes of packets to be cut into segments.
    pub(crate) tso: TsoLimits,
    transport: PhantomData<T>,
}

/// The completion flag, shifted as in the second word of a WQE.
const COMPLETION: u32 = (control_flags::COMPLETION as u32) << RequestInfo::CONTROL_SHIFT;

/// Bytes of a queue that posting a request uses: two cache lines. A service with thousands of queues
/// has none of them in its cache.
const HOT: usize = 128;
const _: () = {
    use core::mem::offset_of;
    assert!(align_of::<SendQueue<()>>() * 2 == HOT);
    let limits = offset_of!(SendQueue<()>, limits);
    assert!(limits + offset_of!(Limits, max_single_sge) + 4 <= HOT);
    assert!(offset_of!(SendQueue<()>, ring) == 0);
};

// SAFETY: the ring and the scratch buffer are reached only through this value.
unsafe impl<T> Send for SendQueue<T> {}

/// What a send queue consists of.
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
            .field("blocks", &(self.mask + 1))
            .field("free_blocks", &self.free_blocks())
            .field("in_flight", &self.records().in_flight())
            .finish_non_exhaustive()
    }
}

impl<T: Transport> SendQueue<T> {
    /// The same queue, whose type says another transport.
    ///
    /// # Safety
    /// No request is added by the returned value, unless the queue was created for transport `U`:
    /// the room for a request follows from the transport.
    #[inline(always)]
    pub(crate) unsafe fn of_transport<U: Transport>(&mut self) -> &mut SendQueue<U> {
        // SAFETY: the types are `repr(C)`, and differ in what a `PhantomData` says alone, so they are
        // laid out alike. The returned reference borrows this one.
        unsafe { &mut *core::ptr::from_mut(self).cast() }
    }

    /// Creates a send queue.
    ///
    /// # Safety
    /// `ring` points to `layout.bytes()` bytes, aligned to 64. They are valid for as long as the
    /// value lives, and nothing but the device and this value reads or writes them. `records` was
    /// created for this many blocks, was not used, belongs to this queue alone, and lives as long as the
    /// value.
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
        let fast_blueflame_blocks = register.own_blueflame_blocks();
        Self {
            ring,
            mask: layout.blocks - 1,
            max_request_blocks: layout.max_request_blocks,
            head: 0,
            sequence: 0,
            fast_limit: first_fast_limit(
                layout.blocks.min(FIRST_BLOCKS),
                layout.max_request_blocks,
            ),
            // 24 bits, so that it does not reach into the opcode.
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
            default_flags: if signal_all { COMPLETION } else { 0 },
            gate,
            record,
            register,
            records,
            // SAFETY: the records live as long as the value, by the contract.
            slots: unsafe { records.as_ref() }.slots(),
            fast_blueflame_blocks,
            list_limit: 0,
            noted: u32::MAX,
            error: None,
            fence: false,
            fence_at: u32::MAX,
            fence_next: false,
            // SAFETY: as above.
            scratch: unsafe { records.as_ref() }.scratch(),
            signed: false,
            always_slow: false,
            journal: Journal::default(),
            more_wqes: 0,
            generation: next_generation(),
            last_name: 0,
            which: T::WHICH,
            needs_inline_header: false,
            tso: TsoLimits::NONE,
            transport: PhantomData,
        }
    }

    /// Signs every request, for a queue pair whose requests the device checks
    /// (`MLX5_QP_FLAG_SIGNATURE`). Every request then takes the slow path.
    pub fn sign_requests(&mut self) {
        self.signed = true;
        self.always_take_slow_path();
    }

    fn always_take_slow_path(&mut self) {
        self.always_slow = true;
        self.fast_limit = self.head.wrapping_sub(1);
    }

    /// Lets the queue take packets that the device cuts, of up to `max_total` bytes. Their headers
    /// are limited by the layout that the queue was created with, which is given again.
    pub fn take_segmented(&mut self, layout: &SendLayout, max_total: u32) {
        self.tso = TsoLimits {
            max_header: layout.max_tso_header,
            max_total,
            max_units: (layout.max_request_bytes() / UNIT) as u32,
        };
    }

    /// Refuses packets without inline header, which the device demands. Every request then takes
    /// the slow path.
    pub fn require_inline_header(&mut self) {
        self.needs_inline_header = true;
        self.always_take_slow_path();
    }

    /// The flags of every request, of which the compiler knows that they are the completion flag or
    /// nothing: where a request says that it is signaled, they need not be loaded.
    #[inline(always)]
    pub(crate) fn default_control(&self) -> u32 {
        let flags = self.default_flags;
        // SAFETY: nothing but `new` sets it, to the flag or to zero.
        unsafe { core::hint::assert_unchecked(flags & !COMPLETION == 0) };
        flags
    }

    /// Returns the number of free blocks.
    pub fn free_blocks(&self) -> u32 {
        self.free_at(self.head, self.sequence)
    }

    #[inline]
    pub(crate) fn free_at(&self, head: u32, sequence: u32) -> u32 {
        let used = self.records().used_blocks(head as u16, sequence as u16);
        (self.mask + 1).saturating_sub(u32::from(used))
    }

    /// Returns the address of block `head`.
    #[inline(always)]
    pub(crate) fn at(&self, head: u32) -> NonNull<u8> {
        // SAFETY: the block is masked, so it is inside the ring.
        unsafe { self.ring.byte_add((head & self.mask) as usize * BLOCK) }
    }

    /// Why posting is refused.
    #[cold]
    pub(crate) fn refusal(&self) -> PostError {
        self.gate.refusal().into()
    }

    /// Resets all counters. The queue pair was reset, and no earlier completion can be polled any
    /// more.
    pub fn reset(&mut self) {
        self.abort();
        self.end_changes();
        self.head = 0;
        self.sequence = 0;
        self.list_limit = 0;
        self.fast_limit = match self.always_slow {
            true => u32::MAX,
            // Not opened by that, if it was not.
            false => first_fast_limit(self.records().written_blocks(), self.max_request_blocks),
        };
        self.generation = next_generation();
        self.fence = false;
        self.fence_at = u32::MAX;
        self.fence_next = false;
        self.noted = u32::MAX;
        self.records().reset();
        self.record.set_send(0);
    }

    /// The low 16 bits of the producer index, as last written to the doorbell record.
    pub const fn producer(&self) -> u16 {
        self.head as u16
    }

    /// Number of the queue pair.
    pub fn qp_num(&self) -> u32 {
        (self.qpn >> 8) as u32
    }

    /// The maximum number of bytes of inline data in a request.
    pub const fn max_inline(&self) -> u32 {
        self.limits.max_inline as u32
    }

    /// The maximum number of SGEs in a request.
    pub const fn max_sge(&self) -> u32 {
        self.limits.max_sge
    }

    /// The largest WQE, in blocks, that is copied to the BlueFlame register.
    pub const fn blueflame_blocks(&self) -> u32 {
        self.register.blueflame_blocks()
    }
}

impl<T> SendQueue<T> {
    #[inline(always)]
    pub(crate) fn records(&self) -> &SendRecords {
        // SAFETY: the records live as long as this value, by the contract of `new`.
        unsafe { self.records.as_ref() }
    }
}

impl<T> Drop for SendQueue<T> {
    fn drop(&mut self) {
        if !self.journal.is_empty() {
            self.end_changes();
        }
    }
}

/// The last block of an empty ring at which the fast path may build within its first `blocks` blocks: a
/// request of the largest size fits, and another one behind it. `u32::MAX` (before block 0) if there is no
/// such block.
fn first_fast_limit(blocks: u32, max_request_blocks: u32) -> u32 {
    blocks.checked_sub(2 * max_request_blocks).unwrap_or(u32::MAX)
}
