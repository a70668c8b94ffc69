//! The owner half of a completion queue.

mod closer;

use crate::attention::Attention;
use crate::completion::WorkCompletion;
use crate::corruption::Corruption;
use crate::queue::Queue;
use crate::run::Run;
use crate::state::{Places, RingState, USER_INDEX};
use crate::table::{RingId, Side, UserIndexTable};
use crate::what::What;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::NonNull;
use mlx5_doorbell::{CompletionQueueRecord, barrier};
use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, FORMAT_MASK, MiniFormat, OPCODE_SHIFT, OWNER, SOLICITED,
};
use mlx5_prm::signature::SignatureErrorCqe;

/// Where the last eight bytes of a descriptor start: send opcode and queue pair number, counter,
/// signature, and opcode with owner.
const TAIL: usize = offset_of!(Cqe, sop_drop_qpn);
/// The last byte of a descriptor without what may stand there of an ordinary one: an entry of
/// another format than the plain one is not ordinary.
const KIND: u8 = !(SOLICITED | OWNER);
/// What is left of the entry of a request without error.
const REQUEST: u8 = (CqeOpcode::Requester as u8) << OPCODE_SHIFT;
/// The last bytes of the entries of receives, if they are of the plain format.
const RECEIVES: Range<u8> = (CqeOpcode::ResponderWriteImm as u8) << OPCODE_SHIFT
    ..(CqeOpcode::ResponderSendInvalidate as u8 + 1) << OPCODE_SHIFT;

/// What [`Ring::next_ordinary`] finds.
pub enum Next<'poll> {
    /// A completion, and took it.
    Ordinary(WorkCompletion<'poll>),
    /// An entry that it leaves to [`Ring::next_other`].
    Other,
    /// No entry.
    None,
}

/// The owner half of a completion queue.
pub struct Ring<Q> {
    /// The next descriptor.
    next: NonNull<u8>,
    /// The first.
    first: NonNull<u8>,
    /// Behind the last.
    end: NonNull<u8>,
    stride: usize,
    /// Entries ever consumed, counted freely.
    consumer: u32,
    /// What the owner bit of the next entry is once the device has written it, as wide as the word
    /// in which it is looked at.
    owner: u64,
    /// The word of an entry with the user index that was looked up last, and its queue: of sends,
    /// and of receives. A queue whose sends complete here may have its receives elsewhere, where
    /// another polls.
    sent: (u64, NonNull<Q>),
    received: (u64, NonNull<Q>),
    /// What one of the slower ways has found: entry, identifier and kind.
    found: (NonNull<u8>, u64, What),
    corruption: Option<Corruption>,
    attention: Attention,
    record: CompletionQueueRecord,
    state: Arc<RingState>,
    queues: Arc<UserIndexTable<Q>>,
    id: RingId,
    departed: Option<DepartedReceive>,
    signature_error: Option<SignatureErrorHook>,
    run: Run,
    /// Entries that say that the queue was resized and are still to come.
    resizes: u32,
}

/// Is told of each signature that did not match.
pub type SignatureErrorHook = Box<dyn FnMut(&SignatureErrorCqe) + Send>;

/// Is told of each receive of a departed queue that is passed over: its user index, and which
/// request it was.
pub type DepartedReceive = Box<dyn FnMut(u32, u16) + Send>;

// SAFETY: the buffer is reached only through this value and `RingState`, which reads; the cached
// queue is shared.
unsafe impl<Q: Sync> Send for Ring<Q> {}

/// What a completion queue is made of.
pub struct RingParts<Q> {
    /// The queues that completions may be about.
    pub queues: Arc<UserIndexTable<Q>>,
    /// The buffer, and what others may know.
    pub state: Arc<RingState>,
    /// Says when there is anything out of the ordinary.
    pub attention: Attention,
    /// What the queues that complete here call the ring.
    pub id: RingId,
}

impl<Q: Queue> Ring<Q> {
    /// What no entry holds: the word has 32 bits.
    const NOT_CACHED: u64 = 1 << 32;
    const NOTHING_CACHED: (u64, NonNull<Q>) = (Self::NOT_CACHED, NonNull::dangling());

    /// Puts a completion queue together. Nothing else polls it.
    pub fn new(RingParts { queues, state, attention, id }: RingParts<Q>) -> Self {
        let (places, consumer) = (state.places(), state.consumed());
        let first = state.descriptor(0);
        Self {
            next: state.descriptor(consumer),
            first,
            end: end_of(&places, first),
            run: Run::new(state.compression().unwrap_or(MiniFormat::Hash)),
            resizes: 0,
            stride: state.stride(),
            consumer,
            owner: places.owner(consumer).into(),
            sent: Self::NOTHING_CACHED,
            received: Self::NOTHING_CACHED,
            found: (first, 0, What::sent(0)),
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

    /// Has `hook` told of signatures that do not match; the user hears of them from the key.
    pub fn on_signature_error(&mut self, hook: SignatureErrorHook) {
        self.signature_error = Some(hook);
    }

    /// Has `departed` told of receives that are passed over, for their requests may be those of a
    /// queue that is still there: a shared one.
    pub fn on_departed_receive(&mut self, departed: DepartedReceive) {
        self.departed = Some(departed);
    }

    /// Whether there is anything out of the ordinary, to be attended to before the next poll.
    #[inline(always)]
    pub fn needs_attention(&self) -> bool {
        self.attention.needed()
    }

    /// The word behind [`Ring::needs_attention`].
    pub const fn attention(&self) -> Attention {
        self.attention
    }

    /// Forgets the queues that were looked up last. Called before departures are released.
    pub fn forget_queues(&mut self) {
        (self.sent, self.received) = (Self::NOTHING_CACHED, Self::NOTHING_CACHED);
    }

    /// The queues that were looked up last, if they were not forgotten: the poller may use them
    /// again without asking.
    pub fn last_queues(&self) -> [Option<NonNull<Q>>; 2] {
        [self.sent, self.received]
            .map(|(index, queue)| (index != Self::NOT_CACHED).then_some(queue))
    }

    /// What others may know.
    pub const fn state(&self) -> &Arc<RingState> {
        &self.state
    }

    /// Entries ever consumed.
    pub const fn consumer(&self) -> u32 {
        self.consumer
    }

    /// What was found that no honest device writes.
    pub const fn corruption(&self) -> Option<Corruption> {
        self.corruption
    }

    /// Takes the next completion, if there is one. The device is not told before
    /// [`Ring::publish`], so that the entry stays as it is until then.
    ///
    /// `None` means that there is none, or that [`Ring::corruption`] was found.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline(always)]
    pub fn next(&mut self) -> Option<WorkCompletion<'_>> {
        match self.next_ordinary() {
            Next::Ordinary(completion) => Some(completion.detach()),
            Next::Other => self.next_other(),
            Next::None => None,
        }
    }

    /// [`Ring::next`], but only looks at an entry unless it is that of a request without error, the
    /// next one of its queue.
    #[inline(always)]
    pub fn next_ordinary(&mut self) -> Next<'_> {
        let descriptor = self.next;
        // SAFETY: the last eight bytes of a descriptor, aligned to eight. One load takes the owner
        // bit and all that goes with it.
        let tail = unsafe { descriptor.byte_add(TAIL).cast::<u64>().read_volatile() };
        // Zero, if it is written, in the place of the owner bit.
        let tail = u64::from_be(tail) ^ self.owner;
        if tail as u8 & OWNER != 0 {
            return Next::None;
        }
        // The owner bit was read before the rest of the entry, and before the data it announces.
        barrier::from_device();
        // SAFETY: four bytes of a descriptor, aligned to four.
        let index = unsafe { descriptor.byte_add(USER_INDEX).cast::<u32>().read_volatile() };
        let counter = (tail >> 16) as u16;
        let (wr_id, what) = if tail as u8 & KIND == REQUEST {
            if u64::from(index) != self.sent.0 && !self.look_up(index, Side::Send) {
                return Next::Other;
            }
            // SAFETY: it stays valid until this poller attends to departures, and then it is
            // forgotten before.
            let queue = unsafe { self.sent.1.as_ref() };
            let Some(sent) = queue.retire_next_send(counter) else { return Next::Other };
            (sent.wr_id, What::sent(sent.opcode))
        } else {
            let op_own = tail as u8;
            if op_own & FORMAT_MASK != 0 || !RECEIVES.contains(&op_own) {
                return Next::Other;
            }
            if u64::from(index) != self.received.0 && !self.look_up(index, Side::Receive) {
                return Next::Other;
            }
            // SAFETY: as above.
            let queue = unsafe { self.received.1.as_ref() };
            let Some(wr_id) = queue.retire_next_receive(counter) else { return Next::Other };
            (wr_id, What::received(op_own >> OPCODE_SHIFT))
        };
        self.pass(descriptor);
        Next::Ordinary(WorkCompletion::new(descriptor, wr_id, what))
    }

    /// Finds the queue that the word `index` of an entry names, if it is there and not departed, and
    /// this side of it completes here.
    #[inline(always)]
    fn look_up(&mut self, index: u32, side: Side) -> bool {
        let Some(queue) = self.queues.get_quickly(u32::from_be(index), self.id, side) else {
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

    /// [`Ring::next`] after [`Ring::next_ordinary`] found [`Next::Other`].
    #[inline(always)]
    pub fn next_other(&mut self) -> Option<WorkCompletion<'_>> {
        let found = self.find();
        let (descriptor, wr_id, what) = self.found;
        found.then(|| WorkCompletion::new(descriptor, wr_id, what))
    }

    /// Goes on to the entry behind `descriptor`, which is the next one.
    #[inline(always)]
    fn pass(&mut self, descriptor: NonNull<u8>) {
        self.consumer = self.consumer.wrapping_add(1);
        let next = descriptor.as_ptr().wrapping_byte_add(self.stride);
        if next == self.end.as_ptr() {
            self.next = self.first;
            self.owner ^= u64::from(OWNER);
        } else {
            // SAFETY: inside the buffer.
            self.next = unsafe { NonNull::new_unchecked(next) };
        }
    }

    /// Whether the next entry is written.
    #[inline(always)]
    fn is_written(&self) -> bool {
        // SAFETY: the last byte of a descriptor.
        let op_own = unsafe { self.next.byte_add(DESCRIPTOR - 1).read_volatile() };
        (op_own ^ self.owner as u8) & OWNER == 0
    }

    /// Finds the place of the next entry.
    fn find_place(&mut self) {
        let places = self.state.places();
        self.first = self.state.descriptor(0);
        self.end = end_of(&places, self.first);
        self.next = self.state.descriptor(self.consumer);
        self.owner = places.owner(self.consumer).into();
    }

    /// Moves to another buffer, after the device was told to: what waits is copied there. The old
    /// buffer is not used afterwards, unless there was [`Corruption::Resize`].
    ///
    /// # Safety
    /// `to` is a buffer as [`RingState::new`] wants it, cleared from [`Ring::consumer`] on before
    /// the device was told of it; nobody calls [`RingState::end_of`] meanwhile.
    pub unsafe fn move_to(&mut self, to: Places) -> Result<(), Corruption> {
        // SAFETY: handed down.
        if unsafe { self.moved_to(to) } {
            return Ok(());
        }
        self.latch(Corruption::Resize);
        Err(Corruption::Resize)
    }

    /// The same where it is not known whether the device has moved: if it has, so does the ring, and
    /// else nothing changes.
    ///
    /// # Safety
    /// As for [`Ring::move_to`].
    pub unsafe fn moved_to(&mut self, to: Places) -> bool {
        // What was passed is not copied, and nobody is to look for it.
        self.publish();
        // SAFETY: handed down; all before the consumer was passed.
        if unsafe { self.state.move_to(to, self.consumer, self.resizes) }.is_none() {
            return false;
        }
        self.resizes += 1;
        self.find_place();
        true
    }

    /// Remembers what was found. With no queue cached, and none that completes here, [`Ring::next`]
    /// comes to [`Ring::find`] ever after, which finds nothing more.
    #[cold]
    fn latch(&mut self, corruption: Corruption) -> bool {
        self.corruption.get_or_insert(corruption);
        self.attention.set_corrupt();
        self.forget_queues();
        self.id = RingId::NOBODY;
        false
    }

    /// Tells the device, and others, what was consumed.
    #[inline(always)]
    pub fn publish(&self) {
        // Every read of the entries is done before the device may write them again.
        barrier::from_device();
        self.state.set_consumed(self.consumer);
        self.record.set_consumer(self.consumer);
    }

    /// Whether the next entry is written.
    #[inline]
    pub fn has_next(&self) -> bool {
        self.is_written()
    }

    /// The doorbell record.
    pub const fn record(&self) -> CompletionQueueRecord {
        self.record
    }
}

/// An address to compare with, of the descriptor that would follow the last.
fn end_of(places: &Places, first: NonNull<u8>) -> NonNull<u8> {
    first.map_addr(|at| at.saturating_add(places.stride << places.log_size))
}

#[cfg(all(test, not(loom)))]
mod tests;
