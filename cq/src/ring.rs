//! The owner half of a completion queue.

mod purge;
mod slow;

use crate::attention::Attention;
use crate::completion::WorkCompletion;
use crate::corruption::Corruption;
use crate::kind::{CompletionOpcode, Kind};
use crate::queue::Queue;
use crate::run::Run;
use crate::state::{RingBuffer, RingState, USER_INDEX};
use crate::table::{RingId, Side, UserIndexTable};
use crate::user_tag::NO_TAG;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::NonNull;
use mlx5_doorbell::{CompletionQueueRecord, barrier};
use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, FORMAT_MASK, MiniFormat, OPCODE_SHIFT, OWNER, SOLICITED,
};
use mlx5_prm::signature::SignatureErrorCqe;

/// Offset of the last eight bytes of a descriptor: send opcode and queue pair number, counter,
/// signature, and opcode with ownership bit.
const TAIL: usize = offset_of!(Cqe, sop_drop_qpn);
/// The bits of a descriptor's last byte whose values are fixed for a CQE of the fast path. They
/// include the format, so only plain CQEs take the fast path.
const KIND: u8 = !(SOLICITED | OWNER);
/// The value of the bits `KIND` in the CQE of a successful send request.
const REQUEST: u8 = (CqeOpcode::Requester as u8) << OPCODE_SHIFT;
/// The last bytes of the CQEs of receives, if their format is plain.
const RECEIVES: Range<u8> = (CqeOpcode::ResponderWriteImm as u8) << OPCODE_SHIFT
    ..(CqeOpcode::ResponderSendInvalidate as u8 + 1) << OPCODE_SHIFT;

/// The result of [`Ring::next_fast`].
#[derive(Debug)]
pub enum Next<'poll> {
    /// A completion, which was consumed.
    Completion(WorkCompletion<'poll>),
    /// A CQE that [`Ring::next_slow`] must handle.
    Slow,
    /// No new CQE.
    Empty,
}

/// The owner half of a completion queue.
pub struct Ring<Q> {
    /// The next descriptor.
    next: NonNull<u8>,
    /// The first descriptor.
    first: NonNull<u8>,
    /// The end of the last descriptor.
    end: NonNull<u8>,
    stride: usize,
    /// Consumer index, free-running.
    consumer: u32,
    /// The ownership bit of the next CQE once the device has written it, in the width of the word
    /// that it is compared with.
    owner: u64,
    /// The user index word of the last CQE and its queue, separately for sends and receives: a
    /// queue whose sends complete here may have its receives on another ring, with another poller.
    sent: (u64, NonNull<Q>),
    received: (u64, NonNull<Q>),
    /// A completion found by the slow path: CQE, identifier and kind.
    found: (NonNull<u8>, u64, Kind),
    corruption: Option<Corruption>,
    attention: Attention,
    record: CompletionQueueRecord,
    state: Arc<RingState>,
    queues: Arc<UserIndexTable<Q>>,
    id: RingId,
    departed: Option<SkippedReceive>,
    signature_error: Option<SignatureErrorHook>,
    run: Run,
    /// Resize CQEs that are still expected.
    resizes: u32,
}

/// Called for each signature error CQE.
pub type SignatureErrorHook = Box<dyn FnMut(&SignatureErrorCqe) + Send>;

/// Called for each skipped receive of a destroyed queue, with its user index and the counter of the
/// CQE.
pub type SkippedReceive = Box<dyn FnMut(u32, u16) + Send>;

impl<Q> Ring<Q> {
    /// Returns the number of CQEs that are written and were not consumed. `None` in a forked child,
    /// which may lack the memory.
    pub fn waiting(&self) -> Option<u32> {
        if self.attention.is_forked() {
            return None;
        }
        Some(self.state.waiting(self.consumer) - self.run.consumed())
    }
}

impl<Q> fmt::Debug for Ring<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("size", &self.state.size())
            .field("consumer", &self.consumer)
            .field("waiting", &self.waiting())
            .field("corruption", &self.corruption)
            .field("attention", &self.attention)
            .finish_non_exhaustive()
    }
}

// SAFETY: the buffer is reached only through this value and `RingState`, which only reads; the
// cached queues are used by shared reference.
unsafe impl<Q: Sync> Send for Ring<Q> {}

/// The parts of a completion queue.
pub struct RingParts<Q> {
    /// The queues of the context.
    pub queues: Arc<UserIndexTable<Q>>,
    /// The buffer and the consumer index.
    pub state: Arc<RingState>,
    /// The word that a poll checks first.
    pub attention: Attention,
    /// Identifies the ring in the table of queues.
    pub id: RingId,
}

impl<Q> fmt::Debug for RingParts<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingParts")
            .field("id", &self.id)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<Q: Queue> Ring<Q> {
    /// An index that no CQE has: the user index word has 32 bits.
    const NOT_CACHED: u64 = 1 << 32;
    const NOTHING_CACHED: (u64, NonNull<Q>) = (Self::NOT_CACHED, NonNull::dangling());

    /// Creates the owner half of a completion queue. Nothing else polls it.
    pub fn new(RingParts { queues, state, attention, id }: RingParts<Q>) -> Self {
        let (ring_buffer, consumer) = (state.ring_buffer(), state.consumed());
        let first = state.descriptor(0);
        Self {
            next: state.descriptor(consumer),
            first,
            end: end_of(&ring_buffer, first),
            run: Run::new(state.compression().unwrap_or(MiniFormat::Hash)),
            resizes: 0,
            stride: state.stride(),
            consumer,
            owner: ring_buffer.owner(consumer).into(),
            sent: Self::NOTHING_CACHED,
            received: Self::NOTHING_CACHED,
            found: (first, 0, Kind::sent(0)),
            corruption: None,
            attention,
            record: state.record(),
            state,
            queues,
            id,
            departed: None,
            signature_error: None,
        }
    }

    /// Sets the function that is called for signature errors. The user learns of them from the key.
    pub fn on_signature_error(&mut self, hook: SignatureErrorHook) {
        self.signature_error = Some(hook);
    }

    /// Sets the function that is called for skipped receives. Their requests may belong to a shared
    /// receive queue that still exists.
    pub fn on_skipped_receive(&mut self, departed: SkippedReceive) {
        self.departed = Some(departed);
    }

    /// Whether there is anything to handle before the next poll.
    #[inline(always)]
    pub fn needs_attention(&self) -> bool {
        self.attention.needed()
    }

    /// Returns the word behind [`Ring::needs_attention`].
    pub const fn attention(&self) -> Attention {
        self.attention
    }

    /// Clears the cached queues. Must be called before destroyed queues are freed.
    pub fn clear_cached_queues(&mut self) {
        (self.sent, self.received) = (Self::NOTHING_CACHED, Self::NOTHING_CACHED);
    }

    /// Returns the cached queues, which the poller may use again without another lookup.
    pub fn last_queues(&self) -> [Option<NonNull<Q>>; 2] {
        [self.sent, self.received]
            .map(|(index, queue)| (index != Self::NOT_CACHED).then_some(queue))
    }

    /// Returns the part that other threads may read.
    pub const fn state(&self) -> &Arc<RingState> {
        &self.state
    }

    /// Returns the consumer index.
    pub const fn consumer(&self) -> u32 {
        self.consumer
    }

    /// Returns the corruption that was found, if any.
    pub const fn corruption(&self) -> Option<Corruption> {
        self.corruption
    }

    /// Returns the next completion, if there is one. The device does not overwrite the CQE before
    /// [`Ring::publish`].
    ///
    /// `None` means that there is none, or that [`Ring::corruption`] is set.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline(always)]
    pub fn next(&mut self) -> Option<WorkCompletion<'_>> {
        match self.next_fast() {
            Next::Completion(completion) => Some(completion.detach()),
            Next::Slow => self.next_slow(),
            Next::Empty => None,
        }
    }

    /// The fast path of [`Ring::next`]. Consumes a CQE only if it is plain, without error, and of
    /// the next request of its queue.
    #[inline(always)]
    pub fn next_fast(&mut self) -> Next<'_> {
        let descriptor = self.next;
        // SAFETY: the last eight bytes of a descriptor, aligned to eight. One load reads the
        // ownership bit together with the opcode and the counter.
        let tail = unsafe { descriptor.byte_add(TAIL).cast::<u64>().read_volatile() };
        // The ownership bit becomes zero if the CQE is new.
        let tail = u64::from_be(tail) ^ self.owner;
        if tail as u8 & OWNER != 0 {
            return Next::Empty;
        }
        // Orders the read of the ownership bit before reads of the rest of the CQE and of the data
        // that it announces.
        barrier::from_device();
        // SAFETY: the four bytes are inside a descriptor, and aligned to four.
        let index = unsafe { descriptor.byte_add(USER_INDEX).cast::<u32>().read_volatile() };
        let counter = (tail >> 16) as u16;
        let (wr_id, kind, tag) = if tail as u8 & KIND == REQUEST {
            if u64::from(index) != self.sent.0 && !self.look_up(index, Side::Send) {
                return Next::Slow;
            }
            // SAFETY: the queue stays valid until this poller handles destroyed queues, and the
            // cache is cleared before that.
            let queue = unsafe { self.sent.1.as_ref() };
            let Some(sent) = queue.retire_next_send(counter) else { return Next::Slow };
            (sent.wr_id, Kind::sent(sent.opcode), queue.user_tag())
        } else {
            let op_own = tail as u8;
            if op_own & FORMAT_MASK != 0 || !RECEIVES.contains(&op_own) {
                return Next::Slow;
            }
            if u64::from(index) != self.received.0 && !self.look_up(index, Side::Receive) {
                return Next::Slow;
            }
            // SAFETY: as above.
            let queue = unsafe { self.received.1.as_ref() };
            let Some(wr_id) = queue.retire_next_receive(counter) else { return Next::Slow };
            (wr_id, Kind::received(op_own >> OPCODE_SHIFT), queue.user_tag())
        };
        self.pass(descriptor);
        Next::Completion(WorkCompletion::new(descriptor, wr_id, kind, Some(tag)))
    }

    /// Looks up the queue that the word `index` of a CQE names. Fails if it does not exist, was
    /// destroyed, or this side of it does not complete here.
    #[inline(always)]
    fn look_up(&mut self, index: u32, side: Side) -> bool {
        let Some(queue) = self.queues.get_fast(u32::from_be(index), self.id, side) else {
            return false;
        };
        *self.cached(side) = (index.into(), queue);
        true
    }

    #[inline(always)]
    fn cached(&mut self, side: Side) -> &mut (u64, NonNull<Q>) {
        match side {
            Side::Send => &mut self.sent,
            Side::Receive => &mut self.received,
        }
    }

    /// The slow path: [`Ring::next`] after [`Ring::next_fast`] returned [`Next::Slow`].
    #[inline(always)]
    pub fn next_slow(&mut self) -> Option<WorkCompletion<'_>> {
        if self.find_completion() { Some(self.found()) } else { None }
    }

    /// As [`Ring::next`], but keeps the completion for [`Ring::found`], and returns whether there
    /// is one.
    #[inline]
    pub fn advance(&mut self) -> bool {
        match self.next_fast() {
            Next::Completion(completion) => {
                self.found = (completion.descriptor(), completion.wr_id(), completion.kind());
                true
            }
            Next::Slow => self.find_completion(),
            Next::Empty => false,
        }
    }

    /// The fast path of [`Ring::advance`]. `None`: [`Ring::advance`] must handle it.
    #[inline(always)]
    pub fn advance_fast(&mut self) -> Option<bool> {
        match self.next_fast() {
            Next::Completion(completion) => {
                self.found = (completion.descriptor(), completion.wr_id(), completion.kind());
                Some(true)
            }
            Next::Slow => None,
            Next::Empty => Some(false),
        }
    }

    /// Returns the completion that [`Ring::advance`] or [`Ring::next_slow`] found last. It is
    /// meaningful until the next one is looked for, and until [`Ring::publish`].
    #[inline(always)]
    pub fn found(&self) -> WorkCompletion<'_> {
        let (descriptor, wr_id, kind) = self.found;
        let (index, queue) = match kind.side() {
            Side::Send => self.sent,
            Side::Receive => self.received,
        };
        // SAFETY: a cached queue is valid: the cache is cleared before destroyed queues are freed.
        let tag = (index != Self::NOT_CACHED).then(|| unsafe { queue.as_ref() }.user_tag());
        WorkCompletion::new(descriptor, wr_id, kind, Some(tag.unwrap_or(&NO_TAG)))
    }

    /// Returns what the completion of [`Ring::found`] was, at any time later.
    #[inline(always)]
    pub fn found_opcode(&self) -> CompletionOpcode {
        self.found.2.facts().opcode
    }

    /// Passes the CQE at `descriptor`, which is the next one.
    #[inline(always)]
    fn pass(&mut self, descriptor: NonNull<u8>) {
        self.consumer = self.consumer.wrapping_add(1);
        let next = descriptor.as_ptr().wrapping_byte_add(self.stride);
        if next == self.end.as_ptr() {
            self.next = self.first;
            self.owner ^= u64::from(OWNER);
        } else {
            // SAFETY: the address is inside the buffer.
            self.next = unsafe { NonNull::new_unchecked(next) };
        }
    }

    /// Whether the next CQE is written.
    #[inline(always)]
    fn is_written(&self) -> bool {
        // SAFETY: it is the last byte of a descriptor.
        let op_own = unsafe { self.next.byte_add(DESCRIPTOR - 1).read_volatile() };
        (op_own ^ self.owner as u8) & OWNER == 0
    }

    /// Computes the position of the next CQE from the consumer index.
    fn find_position(&mut self) {
        let ring_buffer = self.state.ring_buffer();
        self.first = self.state.descriptor(0);
        self.end = end_of(&ring_buffer, self.first);
        self.next = self.state.descriptor(self.consumer);
        self.owner = ring_buffer.owner(self.consumer).into();
    }

    /// Moves to another buffer, after the command that resizes the queue on the device, and copies
    /// the CQEs not yet consumed. The old buffer is not used afterwards, unless this returns
    /// [`Corruption::Resize`].
    ///
    /// # Safety
    /// `to` is a buffer as for [`RingState::new`], and was cleared from [`Ring::consumer`] on
    /// before it was passed to the device. No thread calls [`RingState::end_of`] meanwhile.
    pub unsafe fn move_to(&mut self, to: RingBuffer) -> Result<(), Corruption> {
        // SAFETY: by the caller's contract.
        if unsafe { self.moved_to(to) } {
            return Ok(());
        }
        self.latch(Corruption::Resize);
        Err(Corruption::Resize)
    }

    /// As [`Ring::move_to`], if it is unknown whether the device has moved. If it has, so does the
    /// ring; if not, nothing changes.
    ///
    /// # Safety
    /// As for [`Ring::move_to`].
    pub unsafe fn moved_to(&mut self, to: RingBuffer) -> bool {
        // Passed CQEs are not copied, so nothing may look for them any more.
        self.publish();
        // SAFETY: by the caller's contract; all CQEs before the consumer index were passed.
        if unsafe { self.state.move_to(to, self.consumer, self.resizes) }.is_none() {
            return false;
        }
        self.resizes += 1;
        self.find_position();
        // It may have been in the old buffer.
        self.found = (self.first, 0, Kind::sent(0));
        true
    }

    /// Makes the ring corrupt. With no queue cached and a ring identifier that no queue has,
    /// [`Ring::next`] always takes the slow path from now on, which returns nothing.
    #[cold]
    fn latch(&mut self, corruption: Corruption) -> bool {
        self.corruption.get_or_insert(corruption);
        self.attention.set_corrupt();
        self.clear_cached_queues();
        self.id = RingId::NONE;
        false
    }

    /// Publishes the consumer index to other threads and to the device.
    #[inline(always)]
    pub fn publish(&self) {
        // Orders all reads of passed CQEs before the device may overwrite them.
        barrier::from_device();
        self.state.set_consumed(self.consumer);
        self.record.set_consumer(self.consumer);
    }

    /// Whether the next CQE is written.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.is_written()
    }

    /// Returns the doorbell record.
    pub const fn record(&self) -> CompletionQueueRecord {
        self.record
    }
}

/// Returns the end of the buffer as an address to compare with.
fn end_of(ring_buffer: &RingBuffer, first: NonNull<u8>) -> NonNull<u8> {
    first.map_addr(|at| at.saturating_add(ring_buffer.stride << ring_buffer.log_size))
}

#[cfg(all(test, not(loom)))]
mod tests;
