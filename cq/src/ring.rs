//! The owner half of a completion queue.

mod purge;
mod slow;
mod strides;

use crate::attention::Attention;
use crate::completion::WorkCompletion;
use crate::corruption::Corruption;
use crate::kind::{CompletionOpcode, Kind};
use crate::queue::Queue;
use crate::run::Run;
use crate::state::{COUNT, RingBuffer, RingState, USER_INDEX};
use crate::table::{RingId, Side, UserIndexTable};
use crate::user_tag::NO_TAG;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::mem::offset_of;
use core::num::NonZeroUsize;
use core::ops::Range;
use core::ptr::NonNull;
use mlx5_doorbell::{CompletionQueueRecord, barrier};
use mlx5_prm::cqe::{Cqe, CqeOpcode, DESCRIPTOR, FORMAT_MASK, OPCODE_SHIFT, OWNER, SOLICITED};
use mlx5_prm::signature::SignatureErrorCqe;
use strides::PollState;

/// Offset of the last four bytes of a descriptor: counter, signature, and opcode with ownership
/// bit.
const TAIL: usize = offset_of!(Cqe, wqe_counter);
/// The last byte of the new CQE of a successful send request, without the bit of a solicited event:
/// ownership bit and format are zero, so that one comparison finds the most frequent CQE.
const REQUEST: u8 = (CqeOpcode::Requester as u8) << OPCODE_SHIFT;
/// The last bytes of the CQEs of receives, if their format is plain.
const RECEIVES: Range<u8> = (CqeOpcode::ResponderWriteImm as u8) << OPCODE_SHIFT
    ..(CqeOpcode::ResponderSendInvalidate as u8 + 1) << OPCODE_SHIFT;

pub use strides::{FoundStrides, StrideNotice, StridePoll};

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
    /// The next descriptor: of the ring, or of the expanded CQEs of a compressed run.
    next: NonNull<u8>,
    /// The first descriptor.
    first: NonNull<u8>,
    /// The end of the last descriptor. Never reached in a compressed run.
    end: NonNull<u8>,
    stride: usize,
    /// The slots that are consumed with a CQE: one, or none in a compressed run, which is consumed
    /// as a whole.
    step: u32,
    /// Consumer index, free-running; published or not.
    consumer: u32,
    /// The ownership bit of the next CQE once the device has written it, in the width of the word
    /// that it is compared with.
    owner: u32,
    /// The user index word of the last CQE and its queue, separately for sends and receives: a
    /// queue whose sends complete here may have its receives on another ring, with another poller.
    sent: (u64, NonNull<Q>),
    received: (u64, NonNull<Q>),
    /// A completion found by the slow path: CQE, identifier and kind.
    found: (NonNull<u8>, u64, Kind),
    /// The strides that were retired with it, if its queue has strides.
    found_strides: FoundStrides,
    /// The marks of the CQEs of the fast path.
    marks: Kind,
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
    /// The state of a [`StridePoll`].
    poll_state: PollState,
    /// Empty polls left until [`Ring::found_nothing`] returns true.
    countdown: u32,
}

/// Called for each signature error CQE.
pub type SignatureErrorHook = Box<dyn FnMut(&SignatureErrorCqe) + Send>;

/// Called for each skipped receive of a destroyed queue, with its user index and the counter of the
/// CQE.
pub type SkippedReceive = Box<dyn FnMut(u32, u16) + Send>;

impl<Q> Ring<Q> {
    /// Returns the consumer index, free-running.
    #[inline]
    pub fn consumer(&self) -> u32 {
        self.consumer
    }

    /// Publishes the consumer index to other threads and to the device.
    #[inline]
    pub fn publish(&mut self) {
        // Orders all reads of passed CQEs before the device may overwrite them.
        barrier::from_device();
        self.state.set_consumed(self.consumer);
        self.record.set_consumer(self.consumer);
    }

    /// Whether all CQEs that were passed are published.
    #[inline]
    pub fn is_published(&self) -> bool {
        self.consumer == self.state.consumed()
    }

    /// Counts a poll that found nothing. Returns whether the owner must look around: after as many
    /// such polls as [`Ring::look_after`] set, and at the first one after polling has passed the
    /// end of the ring. Since the last poll that found nothing, the ring was not full unless
    /// polling has passed its end.
    #[inline]
    pub fn found_nothing(&mut self) -> bool {
        self.countdown = self.countdown.wrapping_sub(1);
        self.countdown == 0
    }

    /// A bit that changes whenever polling passes the end of the ring.
    #[inline]
    pub fn lap(&self) -> u32 {
        self.owner
    }

    /// Sets the number of polls that find nothing until [`Ring::found_nothing`] returns true.
    /// Returns the number that was left.
    #[inline]
    pub fn look_after(&mut self, polls: u32) -> u32 {
        core::mem::replace(&mut self.countdown, polls)
    }

    /// Passes `count` CQEs of the fast path.
    #[inline]
    fn pass_slots(&mut self, count: u32) {
        self.consumer = self.consumer.wrapping_add(count.wrapping_mul(self.step));
    }

    /// Returns the number of CQEs that are written and not consumed. `None` in a forked child,
    /// which may lack the memory.
    pub fn waiting(&self) -> Option<u32> {
        if self.attention.is_forked() {
            return None;
        }
        // The slots of the current run count without asking the device again.
        let slots = self.run.slots();
        let behind = self.state.waiting(self.consumer.wrapping_add(slots));
        Some(slots - self.run.consumed(self.next) + behind)
    }
}

impl<Q> fmt::Debug for Ring<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("size", &self.state.size())
            .field("consumer", &self.consumer())
            .field("waiting", &self.waiting())
            .field("corruption", &self.corruption)
            .field("attention", &self.attention)
            .finish_non_exhaustive()
    }
}

// SAFETY: only this value and `RingState` access the buffer, and `RingState` only reads it; the
// cached queues are used through shared references, which `Q: Sync` allows.
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

    /// Creates the owner half of a completion queue, which nothing else may poll.
    pub fn new(RingParts { queues, state, attention, id }: RingParts<Q>) -> Self {
        let (ring_buffer, consumer) = (state.ring_buffer(), state.consumed());
        let first = state.descriptor(0);
        Self {
            next: state.descriptor(consumer),
            first,
            end: end_of(&ring_buffer, first),
            run: Run::new(state.compression()),
            resizes: 0,
            poll_state: PollState::not(first),
            countdown: u32::MAX,
            stride: state.stride(),
            step: 1,
            consumer,
            owner: ring_buffer.owner(consumer).into(),
            sent: Self::NOTHING_CACHED,
            received: Self::NOTHING_CACHED,
            found: (first, 0, Kind::sent(0)),
            found_strides: FoundStrides { first: 0, bytes: 0, ended: false },
            marks: Kind::PLAIN,
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

    /// Sets the function that is called for signature errors. The user learns about them from the
    /// key.
    pub fn on_signature_error(&mut self, hook: SignatureErrorHook) {
        self.signature_error = Some(hook);
    }

    /// Sets the function that is called for skipped receives. Their requests may belong to a shared
    /// receive queue that still exists.
    pub fn on_skipped_receive(&mut self, departed: SkippedReceive) {
        self.departed = Some(departed);
    }

    /// Whether there is anything to handle before the next poll.
    #[inline]
    pub fn needs_attention(&self) -> bool {
        self.attention.needed()
    }

    /// Returns the word that [`Ring::needs_attention`] checks.
    pub const fn attention(&self) -> Attention {
        self.attention
    }

    /// Clears the cached queues. Must be called before destroyed queues are freed.
    pub fn clear_cached_queues(&mut self) {
        (self.sent, self.received) = (Self::NOTHING_CACHED, Self::NOTHING_CACHED);
        self.poll_state.forget_queue();
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

    /// Returns the corruption that was found, if any.
    pub const fn corruption(&self) -> Option<Corruption> {
        self.corruption
    }

    /// Returns the next completion, if there is one. The device does not overwrite the CQE before
    /// [`Ring::publish`].
    ///
    /// `None` means that there is none, or that [`Ring::corruption`] is set.
    #[expect(clippy::should_implement_trait, reason = "an iterator's items cannot borrow from it")]
    #[inline(always)]
    pub fn next(&mut self) -> Option<WorkCompletion<'_>> {
        match self.next_fast() {
            Next::Completion(completion) => Some(completion.detach()),
            Next::Slow => self.next_slow(),
            Next::Empty => None,
        }
    }

    /// The fast path of [`Ring::next`]. Consumes a CQE only if it is plain, without error, and of
    /// a request that its queue finds on the fast path.
    #[inline(always)]
    pub fn next_fast(&mut self) -> Next<'_> {
        let mut next = self.next;
        let found = self.look(&mut next);
        if let Next::Completion(_) = found {
            self.next = next;
            self.pass_slots(1);
        }
        found
    }

    /// Starts a poll of the fast path.
    #[inline]
    pub fn poll(&mut self) -> Poll<'_, Q> {
        Poll { next: self.next, count: 0, ring: self }
    }

    /// Checks the CQE at `next`, which is the next one, and passes it if the fast path handles it.
    /// The caller bounds the lifetime by the borrow of the ring.
    #[inline(always)]
    fn look<'poll>(&mut self, next: &mut NonNull<u8>) -> Next<'poll> {
        let descriptor = *next;
        // One load reads the ownership bit together with the opcode and the counter. The ownership
        // bit becomes zero if the CQE is new.
        let tail = read_tail(descriptor) ^ self.owner;
        let op_own = tail as u8;
        // Extracted only after the ownership bit has shown that there is a CQE.
        let counter = || (tail >> 16) as u16;
        let (wr_id, kind, tag) = if op_own & !SOLICITED == REQUEST {
            let index = index_after_owner(descriptor);
            if u64::from(index) != self.sent.0 && !self.look_up(index, Side::Send) {
                return Next::Slow;
            }
            // SAFETY: the queue stays valid until this poller handles destroyed queues, and the
            // cache is cleared before that.
            let queue = unsafe { self.sent.1.as_ref() };
            let Some(sent) = queue.retire_next_send(counter()) else { return Next::Slow };
            (sent.wr_id, Kind::sent(sent.opcode), queue.user_tag())
        } else {
            if op_own & OWNER != 0 {
                return Next::Empty;
            }
            if op_own & FORMAT_MASK != 0 || !RECEIVES.contains(&op_own) {
                return Next::Slow;
            }
            let index = index_after_owner(descriptor);
            if u64::from(index) != self.received.0 && !self.look_up(index, Side::Receive) {
                return Next::Slow;
            }
            // SAFETY: the queue stays valid until this poller handles destroyed queues, and the
            // cache is cleared before that.
            let queue = unsafe { self.received.1.as_ref() };
            let Some(wr_id) = queue.retire_next_receive(counter()) else { return Next::Slow };
            (wr_id, Kind::received(op_own >> OPCODE_SHIFT), queue.user_tag())
        };
        let tag = NonNull::from(tag);
        *next = self.after(descriptor);
        // SAFETY: the tag is part of the queue, which stays valid until this poller handles
        // destroyed queues; the caller bounds the lifetime by the borrow of the ring.
        let tag = unsafe { tag.as_ref() };
        Next::Completion(WorkCompletion::new(descriptor, wr_id, kind, self.marks, Some(tag)))
    }

    /// Looks up the queue that the word `index` of a CQE names. Fails if it does not exist, was
    /// destroyed, or this side of it does not complete here.
    #[inline(always)]
    fn look_up(&mut self, index: u32, side: Side) -> bool {
        let Some(queue) = self.queues.get_fast(u32::from_be(index), &self.id, side) else {
            return false;
        };
        *self.cached(side) = (index.into(), queue);
        true
    }

    #[inline]
    fn cached(&mut self, side: Side) -> &mut (u64, NonNull<Q>) {
        match side {
            Side::Send => &mut self.sent,
            Side::Receive => &mut self.received,
        }
    }

    /// The slow path: [`Ring::next`] after [`Ring::next_fast`] returned [`Next::Slow`].
    #[inline]
    pub fn next_slow(&mut self) -> Option<WorkCompletion<'_>> {
        if self.find_completion() { Some(self.found()) } else { None }
    }

    /// As [`Ring::next`], but keeps the completion for [`Ring::found`], and returns whether there
    /// is one.
    #[inline]
    pub fn advance(&mut self) -> bool {
        match self.next_fast() {
            Next::Completion(completion) => {
                self.found = completion.parts();
                true
            }
            Next::Slow => self.find_completion(),
            Next::Empty => false,
        }
    }

    /// The fast path of [`Ring::advance`]. `None` if [`Ring::advance`] must handle the CQE.
    #[inline(always)]
    pub fn advance_fast(&mut self) -> Option<bool> {
        match self.next_fast() {
            Next::Completion(completion) => {
                self.found = completion.parts();
                Some(true)
            }
            Next::Slow => None,
            Next::Empty => Some(false),
        }
    }

    /// Returns the completion that [`Ring::advance`] or [`Ring::next_slow`] found last. It is
    /// meaningful until the next search, and until [`Ring::publish`].
    #[inline(always)]
    pub fn found(&self) -> WorkCompletion<'_> {
        let (descriptor, wr_id, kind) = self.found;
        let (index, queue) = match kind.side() {
            Side::Send => self.sent,
            Side::Receive => self.received,
        };
        // SAFETY: a cached queue is valid: the cache is cleared before destroyed queues are freed.
        let tag = (index != Self::NOT_CACHED).then(|| unsafe { queue.as_ref() }.user_tag());
        let tag = Some(tag.unwrap_or(&NO_TAG));
        WorkCompletion::new(descriptor, wr_id, kind, Kind::PLAIN, tag)
    }

    /// Returns what the completion of [`Ring::found`] was, at any time later.
    #[inline]
    pub fn found_opcode(&self) -> CompletionOpcode {
        self.found.2.facts().opcode
    }

    /// Passes the CQE at `descriptor`, which is the next one.
    #[inline]
    fn pass(&mut self, descriptor: NonNull<u8>) {
        self.next = self.after(descriptor);
        self.pass_slots(1);
    }

    /// Returns the descriptor that follows the one at `descriptor`, which is passed.
    #[inline(always)]
    fn after(&mut self, descriptor: NonNull<u8>) -> NonNull<u8> {
        let next = descriptor.as_ptr().wrapping_byte_add(self.stride);
        if next == self.end.as_ptr() {
            self.owner ^= u32::from(OWNER);
            self.countdown = 1;
            return self.first;
        }
        // SAFETY: the address is inside the buffer, or inside the expanded CQEs of a run.
        unsafe { NonNull::new_unchecked(next) }
    }

    /// Whether the next CQE is written.
    #[inline]
    fn is_written(&self) -> bool {
        // SAFETY: the byte is the last one of the descriptor at `next`.
        let op_own = unsafe { self.next.byte_add(DESCRIPTOR - 1).read_volatile() };
        (op_own ^ self.owner as u8) & OWNER == 0
    }

    /// Computes the position of the next CQE from the consumer index. In a compressed run, the next
    /// CQE is among those that are expanded.
    fn find_position(&mut self) {
        if self.run.is_active() {
            return;
        }
        let (ring_buffer, consumer) = (self.state.ring_buffer(), self.consumer());
        self.first = self.state.descriptor(0);
        self.end = end_of(&ring_buffer, self.first);
        self.next = self.state.descriptor(consumer);
        let owner = ring_buffer.owner(consumer).into();
        if owner != self.owner {
            self.countdown = 1;
        }
        self.owner = owner;
        (self.stride, self.step, self.marks) = (self.state.stride(), 1, Kind::PLAIN);
    }

    /// Continues with the expanded CQEs of a compressed run.
    fn enter_run(&mut self, first: NonNull<u8>) {
        (self.next, self.stride, self.step) = (first, DESCRIPTOR, 0);
        // No descriptor ends at this address. A title ends each chunk, and is never passed.
        self.end = first.map_addr(|_| NonZeroUsize::MAX);
        self.marks = Kind::compressed(self.run.format());
    }

    /// Moves to another buffer, after the command that resizes the queue on the device, and copies
    /// the CQEs not yet consumed. The old buffer is not used afterwards, unless this returns
    /// [`Corruption::Resize`].
    ///
    /// # Safety
    /// `to` is a buffer as for [`RingState::new`], and was cleared from [`Ring::consumer`] on
    /// before it was passed to the device. No thread calls [`RingState::end_of`] meanwhile.
    pub unsafe fn move_to(&mut self, to: RingBuffer) -> Result<(), Corruption> {
        // SAFETY: the caller promises a cleared buffer that the device has, and that no thread
        // calls `end_of` meanwhile.
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
        // SAFETY: the caller promises a cleared buffer that the device has, and that no thread
        // calls `end_of` meanwhile. The poller has passed all CQEs before the consumer index.
        if unsafe { self.state.move_to(to, self.consumer(), self.resizes) }.is_none() {
            return false;
        }
        self.resizes += 1;
        self.find_position();
        // The last completion may have been in the old buffer.
        self.found = (self.next, 0, Kind::sent(0));
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

    /// Whether the device has written the next CQE.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.is_written()
    }

    /// Returns the doorbell record.
    pub const fn record(&self) -> CompletionQueueRecord {
        self.record
    }
}

/// Returns the last four bytes of a descriptor.
#[inline]
fn read_tail(descriptor: NonNull<u8>) -> u32 {
    // SAFETY: the four bytes are inside a descriptor, and aligned to four.
    u32::from_be(unsafe { descriptor.byte_add(TAIL).cast::<u32>().read_volatile() })
}

/// Returns the byte count of a CQE whose ownership bit was read.
#[inline]
fn byte_count(descriptor: NonNull<u8>) -> u32 {
    // SAFETY: the four bytes are inside a descriptor, and aligned to four.
    u32::from_be(unsafe { descriptor.byte_add(COUNT).cast::<u32>().read_volatile() })
}

/// Returns the user index word of a CQE whose ownership bit was read.
#[inline(always)]
fn index_after_owner(descriptor: NonNull<u8>) -> u32 {
    // Orders the read of the ownership bit before reads of the rest of the CQE and of the data
    // that it announces.
    barrier::from_device();
    // SAFETY: the four bytes are inside a descriptor, and aligned to four.
    unsafe { descriptor.byte_add(USER_INDEX).cast::<u32>().read_volatile() }
}

/// A poll on the fast path. It keeps the position in a local field, so that it stays in a register
/// from one CQE to the next. Dropping the poll publishes the CQEs that it consumed. It must be
/// dropped: after a leaked poll, the ring returns the same CQEs again.
#[must_use = "a poll is made to look at CQEs, and is dropped"]
pub struct Poll<'a, Q> {
    ring: &'a mut Ring<Q>,
    next: NonNull<u8>,
    /// CQEs that were consumed.
    count: u32,
}

impl<Q> fmt::Debug for Poll<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poll").field("count", &self.count).finish_non_exhaustive()
    }
}

impl<Q: Queue> Poll<'_, Q> {
    /// As [`Ring::next_fast`].
    #[expect(clippy::should_implement_trait, reason = "an iterator's items cannot borrow from it")]
    #[inline(always)]
    pub fn next(&mut self) -> Next<'_> {
        let found = self.ring.look(&mut self.next);
        if let Next::Completion(_) = found {
            self.count += 1;
        }
        found
    }
}

impl<Q> Drop for Poll<'_, Q> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ring.next = self.next;
        if self.count != 0 {
            // All CQEs of a poll are of one kind, because a compressed run begins and ends off the
            // fast path.
            self.ring.pass_slots(self.count);
            self.ring.publish();
        }
    }
}

/// Returns the end of the buffer as an address to compare with.
fn end_of(ring_buffer: &RingBuffer, first: NonNull<u8>) -> NonNull<u8> {
    first.map_addr(|at| at.saturating_add(ring_buffer.stride << ring_buffer.log_size))
}

#[cfg(all(test, not(loom)))]
mod tests;
