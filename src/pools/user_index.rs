//! User indexes: the numbers by which CQEs name queues.

use mlx5_cq::{
    CqeStrides, OldestStrides, Queue, RetiredStrides, RingId, Sent, SentRequest, StridesOutcome,
    Tagged, TaggedOutcome, UserIndexTable, UserTag,
};
use mlx5_uapi::process::Origin;
use mlx5_wqe::tag_matching::{TagCompletion, TagRecords};
use mlx5_wqe::{
    Completed, LeftStrides, ReceiveRecords, Retired, SendRecords, SharedReceiveRecords,
    SpareRecords, StridingRecords,
};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The records that completions of a queue pair need.
pub(crate) struct QueuePairRecords {
    pub(crate) send: SendRecords,
    pub(crate) receive: ReceiveSide,
    /// The tag list of the queue, if it has one.
    pub(crate) tags: Option<Arc<TagRecords>>,
    pub(crate) user_tag: UserTag,
    /// Whether completions of requests without a record are reported, because a program has the
    /// memory of the queues and posts itself. Only the owner of the queue sets it: code that hands
    /// out memory named by records relies on them.
    pub(crate) lent: AtomicBool,
}

/// The source of a queue pair's receive WQEs.
pub(crate) enum ReceiveSide {
    /// Its own receive queue.
    Own(Arc<ReceiveRecords>),
    /// A shared receive queue.
    Shared(Arc<SharedReceiveRecords>),
    /// Its own receive queue, whose requests hold several packets.
    Striding(StridingRecords),
}

#[inline]
fn sent(Completed { wr_id, info }: Completed) -> SentRequest {
    SentRequest { wr_id, opcode: info.opcode_and_mark() }
}

impl Queue for QueuePairRecords {
    fn retire_send(&self, counter: u16, failed: bool) -> Option<Sent> {
        self.send.retire_any(counter, failed).map(|retired| match retired {
            Retired::Request(completed) => Sent::Request(sent(completed)),
            Retired::Duplicate => Sent::Duplicate,
        })
    }

    #[inline]
    fn retire_next_send(&self, counter: u16) -> Option<SentRequest> {
        self.send.retire_next(counter).map(sent)
    }

    #[inline]
    fn retire_send_ahead(&self, counter: u16) -> Option<SentRequest> {
        self.send.retire_ahead(counter).map(sent)
    }

    fn retire_receive(&self, counter: u16) -> Option<u64> {
        match &self.receive {
            ReceiveSide::Own(records) => records.retire(counter),
            ReceiveSide::Shared(records) => records.retire(counter),
            ReceiveSide::Striding(_) => None,
        }
    }

    #[inline(always)]
    fn retire_next_receive(&self, counter: u16) -> Option<u64> {
        match &self.receive {
            ReceiveSide::Own(records) => records.retire_next(counter),
            ReceiveSide::Shared(records) => records.retire(counter),
            ReceiveSide::Striding(_) => None,
        }
    }

    #[inline]
    fn has_strides(&self) -> bool {
        matches!(self.receive, ReceiveSide::Striding(_))
    }

    #[inline(always)]
    fn retire_strides(&self, entry: CqeStrides) -> Option<RetiredStrides> {
        let ReceiveSide::Striding(records) = &self.receive else { return None };
        let CqeStrides { request, first, byte_count, outcome } = entry;
        let (wr_id, ended) = match outcome {
            StridesOutcome::Arrived => records.arrive(request, first, byte_count)?,
            StridesOutcome::Failed => records.fail(request, byte_count)?,
            StridesOutcome::Stopped => records.stop(request)?,
        };
        Some(RetiredStrides { wr_id, ended })
    }

    #[inline]
    fn oldest_strides(&self) -> Option<OldestStrides> {
        let ReceiveSide::Striding(records) = &self.receive else { return None };
        let LeftStrides { wr_id, request, mask, taken, strides } = records.left()?;
        Some(OldestStrides { wr_id, request, mask, taken, strides })
    }

    #[inline]
    fn take_strides(&self, until: u32) {
        if let ReceiveSide::Striding(records) = &self.receive {
            records.take(until);
        }
    }

    #[inline]
    fn user_tag(&self) -> &UserTag {
        &self.user_tag
    }

    fn is_lent(&self, receives: bool) -> bool {
        self.lent.load(Relaxed)
            || receives
                && matches!(&self.receive, ReceiveSide::Shared(records) if records.is_lent())
    }

    fn repost(&self, counter: u16, pass: &mut dyn FnMut()) -> bool {
        matches!(&self.receive, ReceiveSide::Shared(records) if records.repost(counter, pass))
    }

    fn retire_tagged(&self, entry: Tagged) -> Option<TaggedOutcome> {
        let tags = self.tags.as_ref()?;
        Some(match entry {
            Tagged::Event { event, place, counter, success, phase } => {
                match tags.complete(event, place, counter, success, phase)? {
                    TagCompletion::Unasked => TaggedOutcome::Unasked,
                    TagCompletion::Completion { wr_id, needs_sync } => {
                        TaggedOutcome::Completion { wr_id, needs_sync }
                    }
                }
            }
            Tagged::Receive(counter) => {
                let wr_id = tags.retire_receive(counter)?;
                TaggedOutcome::Completion { wr_id, needs_sync: false }
            }
            Tagged::OperationError(counter) => {
                let (wr_id, operation) = tags.fail(counter)?;
                TaggedOutcome::OperationError { wr_id, operation }
            }
        })
    }
}

/// The user indexes of a context and their queues.
pub(crate) struct UserIndexes {
    pub(crate) table: Arc<UserIndexTable<QueuePairRecords>>,
    free: Mutex<Free>,
    /// The process that opened the context.
    process: Origin,
}

impl Default for UserIndexes {
    fn default() -> Self {
        Self { table: Arc::default(), free: Mutex::default(), process: Origin::here() }
    }
}

#[derive(Default)]
struct Free {
    /// Indexes that were freed.
    returned: Vec<u32>,
    /// The lowest index that was never used.
    next: u32,
    /// Memory of records whose queues are gone. Allocating it for each queue took two fifths of the
    /// instructions of creating a queue pair.
    send: Spares<SpareRecords>,
    receive: Spares<Arc<ReceiveRecords>>,
    /// Places for the records of any queue, at most [`SPARES`].
    places: Vec<Place>,
}

/// Memory for the records of a queue. Allocating memory with their alignment is expensive.
type Place = Arc<MaybeUninit<QueuePairRecords>>;

/// Puts records into a place, or into new memory.
fn put(records: QueuePairRecords, place: Option<Place>) -> Arc<QueuePairRecords> {
    let Some(mut place) = place else { return Arc::new(records) };
    match Arc::get_mut(&mut place) {
        Some(memory) => memory.write(records),
        None => return Arc::new(records),
    };
    // SAFETY: the records were written above.
    unsafe { place.assume_init() }
}

/// Takes records out of their place, if there is no other reference to them.
fn take_out(mut records: Arc<QueuePairRecords>) -> Option<(QueuePairRecords, Place)> {
    let found: *const QueuePairRecords = Arc::get_mut(&mut records)?;
    // SAFETY: `get_mut` returned them, so this is the only pointer to the records. They are read
    // once: the place that is left, which has the same layout, drops nothing.
    unsafe { Some((found.read(), Arc::from_raw(Arc::into_raw(records).cast()))) }
}

/// Maximum number of spare records of either kind, and their maximum size.
const SPARES: usize = 4;
const LARGEST_SPARE: u32 = 4096;

/// Memory that is used again.
trait Spare {
    /// The least size that is kept.
    const SMALLEST: u32;

    /// The size of the ring that it is for.
    fn size(&self) -> u32;
}

impl Spare for SpareRecords {
    /// Shared receive queues and work queues have one block. They reuse no memory, so theirs would
    /// displace the memory that queue pairs reuse.
    const SMALLEST: u32 = 2;

    fn size(&self) -> u32 {
        self.blocks()
    }
}

impl Spare for Arc<ReceiveRecords> {
    const SMALLEST: u32 = 1;

    fn size(&self) -> u32 {
        self.requests()
    }
}

/// The last few that were given back.
struct Spares<T>(Vec<T>);

impl<T> Default for Spares<T> {
    fn default() -> Self {
        Self(Vec::with_capacity(SPARES))
    }
}

impl<T: Spare> Spares<T> {
    /// Takes one for a ring of this size.
    fn take(&mut self, size: u32) -> Option<T> {
        let found = self.0.iter().position(|spare| spare.size() == size)?;
        Some(self.0.remove(found))
    }

    /// Keeps one, and returns one to be freed: the one that was returned first, or this one, if it
    /// is too large or too small.
    fn keep(&mut self, spare: T) -> Option<T> {
        if !(T::SMALLEST..=LARGEST_SPARE).contains(&spare.size()) {
            return Some(spare);
        }
        let oldest = (self.0.len() == SPARES).then(|| self.0.remove(0));
        self.0.push(spare);
        oldest
    }
}

impl UserIndexes {
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the records of a ring of `blocks` blocks.
    pub(crate) fn send_records(&self, blocks: u32) -> SendRecords {
        let spare = self.free().send.take(blocks);
        spare.map_or_else(|| SendRecords::new(blocks), SendRecords::reusing)
    }

    /// Makes the records of a ring of `requests` receive requests, which complete in any order.
    pub(crate) fn receive_records(&self, requests: u32) -> Arc<ReceiveRecords> {
        let spare = self.free().receive.take(requests);
        spare.unwrap_or_else(|| Arc::new(ReceiveRecords::new(requests)))
    }

    /// The same, of requests that complete in their order.
    pub(crate) fn receive_records_in_order(&self, requests: u32) -> Arc<ReceiveRecords> {
        let mut records = self.receive_records(requests);
        // There is no other reference yet.
        Arc::get_mut(&mut records).map(ReceiveRecords::set_in_order);
        records
    }

    /// Assigns a user index to `queue`, which completes on `rings`. Returns `None` if all are in
    /// use. Both rings may be polled during the call: the index names no queue there yet, and
    /// deferred destruction kept it from being free while a CQE of its former queue was left.
    pub(crate) fn register(
        self: &Arc<Self>,
        queue: QueuePairRecords,
        rings: [RingId; 2],
    ) -> Option<UserIndex> {
        let (index, place) = {
            let mut free = self.free();
            let index = match free.returned.pop() {
                Some(index) => index,
                None if free.next < UserIndexTable::<QueuePairRecords>::SIZE => {
                    free.next += 1;
                    free.next - 1
                }
                None => return None,
            };
            (index, free.places.pop())
        };
        let queue = put(queue, place);
        let pointer = NonNull::from(&*queue);
        // SAFETY: `UserIndex` keeps the queue's records alive. Deferred destruction keeps the
        // `UserIndex` itself after its queue pair is gone, until every poller that may have looked
        // it up has processed the removal.
        unsafe { self.table.set(index, pointer, rings) };
        let queue = ManuallyDrop::new(queue);
        let departed = AtomicBool::new(false);
        Some(UserIndex { index, departed, indexes: Arc::clone(self), queue })
    }
}

/// A user index in use, and its queue's records. Dropping it frees the index.
pub(crate) struct UserIndex {
    index: u32,
    departed: AtomicBool,
    indexes: Arc<UserIndexes>,
    queue: ManuallyDrop<Arc<QueuePairRecords>>,
}

impl UserIndex {
    pub(crate) fn get(&self) -> u32 {
        self.index
    }

    /// Returns the records of the send queue, which live as long as `self`.
    pub(crate) fn send_records(&self) -> NonNull<SendRecords> {
        NonNull::from(&self.queue.send)
    }

    /// Returns the queue's records.
    pub(crate) fn records(&self) -> &QueuePairRecords {
        &self.queue
    }

    /// Returns the queue's records, as the table has them.
    pub(crate) fn as_non_null(&self) -> NonNull<QueuePairRecords> {
        NonNull::from(&**self.queue)
    }

    /// The tag that completions of the queue carry.
    pub(crate) fn user_tag(&self) -> &UserTag {
        &self.queue.user_tag
    }

    /// Retires a receive WQE of a destroyed queue that completed.
    pub(crate) fn discard_receive(&self, counter: u16) {
        if let Some(tags) = &self.queue.tags {
            tags.retire_receive(counter);
        } else if let ReceiveSide::Shared(records) = &self.queue.receive {
            records.discard(counter);
        }
    }

    /// Whether the queue is destroyed.
    pub(crate) fn is_departed(&self) -> bool {
        self.departed.load(Acquire)
    }

    /// Makes completions ignore the queue, which is destroyed, from now on.
    pub(crate) fn depart(&self) {
        self.departed.store(true, Release);
        self.indexes.table.depart(self.index);
    }
}

impl Drop for UserIndex {
    fn drop(&mut self) {
        if self.indexes.process.left() {
            // A thread that does not exist in this child may have held the lock.
            return;
        }
        self.indexes.table.depart(self.index);
        // SAFETY: the field is not used again.
        let queue = unsafe { ManuallyDrop::take(&mut self.queue) };
        // If there are other references to the records, those free them.
        let (mut send, mut receive, mut place) = (None, None, None);
        if let Some((queue, left)) = take_out(queue) {
            place = Some(left);
            send = Some(queue.send.into_spare());
            if let ReceiveSide::Own(mut records) = queue.receive
                && let Some(unshared) = Arc::get_mut(&mut records)
            {
                unshared.renew();
                receive = Some(records);
            }
        }
        let mut free = self.indexes.free();
        free.returned.push(self.index);
        let send = send.and_then(|spare| free.send.keep(spare));
        let receive = receive.and_then(|spare| free.receive.keep(spare));
        if free.places.len() < SPARES {
            free.places.extend(place.take());
        }
        // Memory is freed without holding the lock.
        drop(free);
        drop((send, receive, place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::libc;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::ForkResult;

    fn records(indexes: &UserIndexes, blocks: u32, requests: u32) -> QueuePairRecords {
        QueuePairRecords {
            send: indexes.send_records(blocks),
            receive: ReceiveSide::Own(indexes.receive_records(requests)),
            tags: None,
            user_tag: UserTag::new(0),
            lent: AtomicBool::new(false),
        }
    }

    fn queue(indexes: &Arc<UserIndexes>, blocks: u32, requests: u32) -> UserIndex {
        let records = records(indexes, blocks, requests);
        indexes.register(records, [RingId::NONE; 2]).unwrap()
    }

    fn spares(indexes: &UserIndexes) -> (Vec<u32>, Vec<u32>) {
        let free = indexes.free();
        let send = free.send.0.iter().map(Spare::size).collect();
        (send, free.receive.0.iter().map(Spare::size).collect())
    }

    fn receives(index: &UserIndex) -> Arc<ReceiveRecords> {
        let ReceiveSide::Own(records) = &index.records().receive else { unreachable!() };
        Arc::clone(records)
    }

    /// A thread that holds the lock does not exist in the child, where waiting for the lock would
    /// block forever.
    #[test]
    fn a_child_gives_nothing_back() {
        let indexes = Arc::new(UserIndexes::default());
        let index = queue(&indexes, 64, 32);
        let held = indexes.free();
        // SAFETY: the child uses nothing that a thread of the parent may hold, except the lock that
        // this thread holds, and exits without running the parent's handlers.
        match unsafe { nix::unistd::fork() }.unwrap() {
            ForkResult::Child => {
                // SAFETY: `alarm` and `_exit` are async-signal-safe; the alarm ends a child that
                // hangs.
                unsafe {
                    libc::alarm(60);
                    drop(index);
                    libc::_exit(0)
                }
            }
            ForkResult::Parent { child } => {
                drop(held);
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
        drop(index);
        assert_eq!(spares(&indexes), (vec![64], vec![32]));
    }

    #[test]
    fn an_index_beyond_the_last_is_refused_until_one_is_given_back() {
        const LAST: u32 = UserIndexTable::<QueuePairRecords>::SIZE - 1;
        let indexes = Arc::new(UserIndexes::default());
        indexes.free().next = LAST;
        let last = queue(&indexes, 2, 1);
        assert_eq!(last.get(), LAST);
        let another = || indexes.register(records(&indexes, 2, 1), [RingId::NONE; 2]);
        assert!(another().is_none());
        drop(last);
        let again = another().expect("the index that was given back");
        assert_eq!(again.get(), LAST);
    }

    /// Others would take the places of those that queue pairs can use.
    #[test]
    fn records_that_no_queue_pair_has_are_not_kept() {
        let indexes = Arc::new(UserIndexes::default());
        drop(queue(&indexes, 64, 32));
        for _ in 0..SPARES {
            drop(queue(&indexes, 1, 0));
        }
        assert_eq!(spares(&indexes), (vec![64], vec![32]));
    }

    #[test]
    fn the_one_given_back_first_goes_first() {
        let indexes = Arc::new(UserIndexes::default());
        let queues = [2, 4, 8, 16].map(|size| queue(&indexes, size, size));
        drop(queues);
        drop(queue(&indexes, 2, 2));
        drop(queue(&indexes, 32, 32));
        assert_eq!(spares(&indexes).0, [8, 16, 2, 32]);
    }

    #[test]
    fn a_queue_takes_the_memory_of_one_of_its_size_that_is_gone() {
        let indexes = Arc::new(UserIndexes::default());
        let former = queue(&indexes, 64, 32);
        let place = Arc::as_ptr(&receives(&former));
        drop(former);
        assert_eq!(spares(&indexes), (vec![64], vec![32]));

        let other = queue(&indexes, 128, 16);
        assert_eq!(spares(&indexes), (vec![64], vec![32]), "of another size");
        let next = queue(&indexes, 64, 32);
        assert_eq!(spares(&indexes), (vec![], vec![]));
        assert_eq!(Arc::as_ptr(&receives(&next)), place);
        drop((other, next));
        assert_eq!(spares(&indexes), (vec![128, 64], vec![16, 32]));
    }

    /// The place does not depend on the size of a ring, so it fits any queue.
    #[test]
    fn a_queue_of_any_size_takes_the_place_of_one_that_is_gone() {
        let indexes = Arc::new(UserIndexes::default());
        let former = queue(&indexes, 64, 32);
        let place = former.as_non_null();
        drop(former);
        assert_eq!(indexes.free().places.len(), 1);
        let next = queue(&indexes, 128, 16);
        assert_eq!((next.as_non_null(), indexes.free().places.len()), (place, 0));
        assert_eq!(next.records().send.written_blocks(), 64, "records of its own ring");
        let others = [(); SPARES].map(|()| queue(&indexes, 2, 1));
        drop((next, others));
        assert_eq!(indexes.free().places.len(), SPARES);
    }

    #[test]
    fn the_order_of_requests_is_that_of_the_queue_whatever_the_memory_had_before() {
        let indexes = Arc::new(UserIndexes::default());
        for in_order in [false, true, true, false, false] {
            let receives = match in_order {
                true => indexes.receive_records_in_order(4),
                false => indexes.receive_records(4),
            };
            assert_eq!(receives.is_in_order(), in_order);
            let known =
                QueuePairRecords { receive: ReceiveSide::Own(receives), ..records(&indexes, 2, 1) };
            drop(indexes.register(known, [RingId::NONE; 2]));
            assert!(spares(&indexes).1.contains(&4), "the next one takes it");
        }
    }

    #[test]
    fn memory_that_somebody_has_yet_is_not_used_again() {
        let indexes = Arc::new(UserIndexes::default());
        let former = queue(&indexes, 64, 32);
        let kept = receives(&former);
        drop(former);
        assert_eq!(spares(&indexes), (vec![64], vec![]));
        drop(kept);
        assert_eq!(spares(&indexes), (vec![64], vec![]));
    }

    #[test]
    fn a_few_are_kept_and_none_that_is_large() {
        let indexes = Arc::new(UserIndexes::default());
        let queues = [1, 2, 4, 8, 16].map(|size| queue(&indexes, size, size));
        drop(queues);
        assert_eq!(spares(&indexes), (vec![2, 4, 8, 16], vec![2, 4, 8, 16]));
        drop(queue(&indexes, 2 * LARGEST_SPARE, 2 * LARGEST_SPARE));
        assert_eq!(spares(&indexes), (vec![2, 4, 8, 16], vec![2, 4, 8, 16]));
        drop(queue(&indexes, LARGEST_SPARE, LARGEST_SPARE));
        assert_eq!(spares(&indexes).0, [4, 8, 16, LARGEST_SPARE]);
    }
}
