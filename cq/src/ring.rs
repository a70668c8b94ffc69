//! The owner half of a completion queue.

use crate::attention::Attention;
use crate::completion::{What, WorkCompletion};
use crate::run::{COUNT as BYTE_COUNT, Run};
use crate::state::{Places, RingState, USER_INDEX, USER_INDEX_MASK, is_title};
use crate::table::{Lookup, RingId, Side, UserIndexTable};
use crate::tag_matching::{self, Tagged, TaggedOutcome};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr::NonNull;
use mlx5_doorbell::{CompletionQueueRecord, barrier};
use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, FORMAT_MASK, Format, INLINE_32, INLINE_64, MiniFormat,
    OPCODE_SHIFT, OWNER, SOLICITED,
};
use mlx5_prm::signature::SignatureErrorCqe;

/// Where the last eight bytes of a descriptor start: send opcode and queue pair number, counter,
/// signature, and opcode with owner.
const TAIL: usize = offset_of!(Cqe, sop_drop_qpn);
/// The last byte of a descriptor without what may stand there of an ordinary one: an entry of
/// another format than the plain one is not ordinary.
const KIND: u8 = !(SOLICITED | OWNER);
/// What is left of the entry of a request without error,
const REQUEST: u8 = (CqeOpcode::Requester as u8) << OPCODE_SHIFT;
/// The opcode of the last kind of receive,
const LAST_RECEIVE: u8 = (CqeOpcode::ResponderSendInvalidate as u8) << OPCODE_SHIFT;
/// and the last bytes of the entries of receives, if they are of the plain format.
const RECEIVES: Range<u8> = (CqeOpcode::ResponderWriteImm as u8) << OPCODE_SHIFT
    ..(CqeOpcode::ResponderSendInvalidate as u8 + 1) << OPCODE_SHIFT;

/// What a queue answers when a completion names one of its requests.
pub trait Queue {
    /// The send request that starts at block `counter` completed, and with it all before it;
    /// `failed` if with an error.
    fn retire_send(&self, counter: u16, failed: bool) -> Option<Sent>;
    /// The same, but `None` unless it is the next one.
    fn retire_next_send(&self, counter: u16) -> Option<SentRequest>;
    /// The receive request `counter` completed; its identifier.
    fn retire_receive(&self, counter: u16) -> Option<u64>;
    /// Something that the others know nothing of came about, of a queue with a list of tags.
    fn retire_tagged(&self, entry: Tagged) -> Option<TaggedOutcome> {
        let _ = entry;
        None
    }
}

/// What the completion of a send was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// This request.
    Request(SentRequest),
    /// A further part of a request of which was told already.
    Again,
}

/// A send request that completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentRequest {
    /// The user's identifier.
    pub wr_id: u64,
    /// Number of the operation that was posted, with [`SentRequest::CANCELLED`] set if the request
    /// was cancelled before the device came to it.
    pub opcode: u8,
}

impl SentRequest {
    /// Marks the opcode of a cancelled request.
    pub const CANCELLED: u8 = 0x40;
}

/// What a completion queue found that no honest device writes. It stays so: nothing after it can be
/// trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Corruption {
    /// An opcode that is not known, or not possible here.
    Opcode(u8),
    /// A user index that no queue ever had which completes so here: sends, or receives.
    UserIndex(u32),
    /// A request that is not outstanding.
    Counter {
        /// User index of the queue.
        user_index: u32,
        /// What should have been the place of a request.
        counter: u16,
    },
    /// A format that the queue's entries cannot have.
    Format(Format),
    /// A message that does not fit into its entry; its length.
    Inline(u32),
    /// Compressed entries of a number that cannot be.
    Run(u32),
    /// The entry that says that the queue was resized is not there.
    Resize,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcode(opcode) => write!(f, "entry with opcode {opcode:#x}"),
            Self::UserIndex(index) => {
                write!(f, "entry for user index {index:#x}, which no queue has")
            }
            Self::Counter { user_index, counter } => write!(
                f,
                "entry for request {counter:#x} of the queue with user index {user_index:#x}, which is not outstanding"
            ),
            Self::Format(format) => {
                write!(f, "entry of a format that was not asked for: {}", format.text())
            }
            Self::Inline(bytes) => write!(f, "entry with a message of {bytes} bytes in it"),
            Self::Run(count) => write!(f, "run of {count} compressed entries"),
            Self::Resize => f.write_str("resized, but the entry that says so is missing"),
        }
    }
}

impl core::error::Error for Corruption {}

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

/// An entry that is looked at closely.
struct Look {
    descriptor: NonNull<u8>,
    /// The word with the user index, as it stands there.
    index: u32,
    tail: u64,
    compressed: What,
}

/// What an entry was found to be.
pub(crate) enum Found {
    /// A completion: identifier and kind.
    Completion(u64, What),
    /// More of one that was told already.
    Again,
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
            let Some(wr_id) = queue.retire_receive(counter) else { return Next::Other };
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

    /// Finds the next completion, whatever it is.
    #[inline(never)]
    fn find(&mut self) -> bool {
        if self.corruption.is_some() {
            return false;
        }
        while self.is_written() {
            barrier::from_device();
            let Look { descriptor, index, tail, compressed } = match self.look() {
                Ok(Some(look)) => look,
                Ok(None) => continue,
                Err(corruption) => return self.latch(corruption),
            };
            if CqeOpcode::from_bits(tail as u8 >> OPCODE_SHIFT) == Some(CqeOpcode::SignatureError) {
                // Where others have the user index, it has something else.
                self.tell_signature_error(descriptor);
                self.pass(descriptor);
                continue;
            }
            let user_index = u32::from_be(index) & USER_INDEX_MASK;
            let side = self.side(tail as u8 >> OPCODE_SHIFT, user_index);
            if u64::from(index) != self.cached(side).0 {
                match self.queues.get(user_index, self.id, side) {
                    Lookup::Queue(queue) => *self.cached(side) = (index.into(), queue),
                    Lookup::Departed => {
                        self.pass_departed(user_index, tail);
                        self.pass_any(descriptor);
                        continue;
                    }
                    Lookup::Unknown => return self.latch(Corruption::UserIndex(user_index)),
                }
            }
            // SAFETY: it was just looked up, or has not departed since.
            let queue = unsafe { self.cached(side).1.as_ref() };
            let (opcode, counter) = (tail as u8 >> OPCODE_SHIFT, (tail >> 16) as u16);
            let found = match Self::retire(queue, opcode, counter) {
                unknown @ (Ok(None) | Err(Corruption::Opcode(_))) => {
                    match tag_matching::retire(queue, descriptor, opcode, counter) {
                        None => unknown,
                        found => Ok(found),
                    }
                }
                found => found,
            };
            return match found {
                Ok(Some(Found::Completion(wr_id, what))) => {
                    self.pass_any(descriptor);
                    self.found = (descriptor, wr_id, what.with(compressed));
                    true
                }
                Ok(Some(Found::Again)) => {
                    self.pass_any(descriptor);
                    continue;
                }
                Ok(None) => self.latch(Corruption::Counter { user_index, counter }),
                Err(corruption) => self.latch(corruption),
            };
        }
        // What was passed over is told here, for who polls has nothing to tell.
        self.publish();
        false
    }

    /// Which side of a queue an entry is about. Where the opcode does not tell, it is the one that
    /// completes here.
    fn side(&self, opcode: u8, user_index: u32) -> Side {
        use CqeOpcode::*;
        match CqeOpcode::from_bits(opcode) {
            Some(Requester | RequesterError) => Side::Send,
            Some(
                ResponderWriteImm
                | ResponderSend
                | ResponderSendImm
                | ResponderSendInvalidate
                | ResponderError,
            ) => Side::Receive,
            _ => match self.queues.get(user_index, self.id, Side::Send) {
                Lookup::Unknown => Side::Receive,
                _ => Side::Send,
            },
        }
    }

    #[cold]
    fn tell_signature_error(&mut self, descriptor: NonNull<u8>) {
        if let Some(hook) = &mut self.signature_error {
            // SAFETY: the entry, aligned to 64; the device does not write it before it is told that
            // it was consumed. Any bytes are a valid value.
            let entry = unsafe { descriptor.cast::<SignatureErrorCqe>().read_volatile() };
            hook(&entry);
        }
    }

    /// Looks at the next entry, which is written: what it is about. `None` if it is about no
    /// request, and was passed.
    fn look(&mut self) -> Result<Option<Look>, Corruption> {
        if !self.run.is_active() {
            let op_own = read_tail(self.next) as u8;
            if op_own >> OPCODE_SHIFT == CqeOpcode::Resize as u8 && self.resizes > 0 {
                self.resizes -= 1;
                self.pass(self.next);
                return Ok(None);
            }
            if !is_title(op_own) {
                self.check_format(op_own)?;
                return Ok(Some(self.look_at(self.next, What::PLAIN)));
            }
            if self.state.compression().is_none() {
                return Err(Corruption::Format(Format::of(op_own)));
            }
            self.run.start(&self.state, self.consumer).map_err(Corruption::Run)?;
        }
        let entry = self.run.descriptor(&self.state);
        Ok(Some(self.look_at(entry, What::compressed(self.run.format()))))
    }

    fn look_at(&self, descriptor: NonNull<u8>, compressed: What) -> Look {
        // SAFETY: four bytes of a descriptor, aligned to as many.
        let index = unsafe { descriptor.byte_add(USER_INDEX).cast::<u32>().read_volatile() };
        Look { descriptor, index, tail: read_tail(descriptor), compressed }
    }

    /// Whether the next entry may have the format that it has.
    fn check_format(&self, op_own: u8) -> Result<(), Corruption> {
        let room = match Format::of(op_own) {
            // The format of an entry that tells of an error means nothing.
            _ if op_own >> OPCODE_SHIFT > LAST_RECEIVE >> OPCODE_SHIFT => return Ok(()),
            Format::Plain => return Ok(()),
            Format::Inline32 => INLINE_32,
            // It lies before the descriptor, where there must be something.
            Format::Inline64 if self.stride > DESCRIPTOR => INLINE_64,
            Format::Inline64 | Format::Compressed => {
                return Err(Corruption::Format(Format::of(op_own)));
            }
        };
        // SAFETY: four bytes of a descriptor, aligned to as many.
        let bytes = unsafe { self.next.byte_add(BYTE_COUNT).cast::<u32>().read_volatile() };
        match u32::from_be(bytes) {
            bytes if bytes as usize <= room => Ok(()),
            bytes => Err(Corruption::Inline(bytes)),
        }
    }

    /// Goes on to what follows the entry that was looked at, in a run or not.
    fn pass_any(&mut self, descriptor: NonNull<u8>) {
        if !self.run.is_active() {
            return self.pass(descriptor);
        }
        if let Some(count) = self.run.pass(&self.state) {
            self.consumer = self.consumer.wrapping_add(count);
            self.find_place();
        }
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
        // What was passed is not copied, and nobody is to look for it.
        self.publish();
        // SAFETY: handed down; all before the consumer was passed.
        if unsafe { self.state.move_to(to, self.consumer, self.resizes) }.is_none() {
            self.latch(Corruption::Resize);
            return Err(Corruption::Resize);
        }
        self.resizes += 1;
        self.find_place();
        Ok(())
    }

    /// Tells of an entry of a departed queue, if it is that of a receive.
    #[cold]
    fn pass_departed(&mut self, user_index: u32, tail: u64) {
        use CqeOpcode::*;
        if let Some(departed) = &mut self.departed
            && let Some(
                ResponderWriteImm
                | ResponderSend
                | ResponderSendImm
                | ResponderSendInvalidate
                | ResponderError,
            ) = CqeOpcode::from_bits(tail as u8 >> OPCODE_SHIFT)
        {
            departed(user_index, (tail >> 16) as u16);
        }
    }

    /// Asks `queue` which request an entry is about.
    fn retire(queue: &Q, opcode: u8, counter: u16) -> Result<Option<Found>, Corruption> {
        let sent = |failed, what: fn(u8) -> What| {
            queue.retire_send(counter, failed).map(|sent| match sent {
                Sent::Request(sent) => Found::Completion(sent.wr_id, what(sent.opcode)),
                Sent::Again => Found::Again,
            })
        };
        let received =
            |what| queue.retire_receive(counter).map(|wr_id| Found::Completion(wr_id, what));
        Ok(match CqeOpcode::from_bits(opcode) {
            Some(CqeOpcode::Requester) => sent(false, What::sent),
            Some(CqeOpcode::RequesterError) => sent(true, What::sent_error),
            Some(
                CqeOpcode::ResponderWriteImm
                | CqeOpcode::ResponderSend
                | CqeOpcode::ResponderSendImm
                | CqeOpcode::ResponderSendInvalidate,
            ) => received(What::received(opcode)),
            Some(CqeOpcode::ResponderError) => received(What::received_error()),
            _ => return Err(Corruption::Opcode(opcode)),
        })
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

/// The last eight bytes of a descriptor.
fn read_tail(descriptor: NonNull<u8>) -> u64 {
    // SAFETY: aligned to eight.
    u64::from_be(unsafe { descriptor.byte_add(TAIL).cast::<u64>().read_volatile() })
}

#[cfg(all(test, not(loom)))]
mod tests;
