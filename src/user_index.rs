//! User indexes: the names by which completions call queues.

use mlx5_cq::{Queue, RingId, Sent, SentRequest, Tagged, TaggedOutcome, UserIndexTable};
use mlx5_wqe::tag_matching::{TagCompletion, TagRecords};
use mlx5_wqe::{Completed, ReceiveRecords, Retired, SendRecords, SharedReceiveRecords};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What completions of a queue pair need to know of it.
pub(crate) struct QueuePairRecords {
    pub(crate) send: SendRecords,
    pub(crate) receive: ReceiveSide,
    /// The list of tags that it has to do with.
    pub(crate) tags: Option<Arc<TagRecords>>,
}

/// Where a queue pair's receive requests come from.
pub(crate) enum ReceiveSide {
    /// A queue of its own.
    Own(Arc<ReceiveRecords>),
    /// A shared one.
    Shared(Arc<SharedReceiveRecords>),
}

#[inline(always)]
fn sent(Completed { wr_id, info }: Completed) -> SentRequest {
    SentRequest { wr_id, opcode: info.opcode_and_mark() }
}

impl Queue for QueuePairRecords {
    fn retire_send(&self, counter: u16, failed: bool) -> Option<Sent> {
        self.send.retire_any(counter, failed).map(|retired| match retired {
            Retired::Request(completed) => Sent::Request(sent(completed)),
            Retired::Again => Sent::Again,
        })
    }

    #[inline(always)]
    fn retire_next_send(&self, counter: u16) -> Option<SentRequest> {
        self.send.retire_next(counter).map(sent)
    }

    fn retire_receive(&self, counter: u16) -> Option<u64> {
        match &self.receive {
            ReceiveSide::Own(records) => records.retire(counter),
            ReceiveSide::Shared(records) => records.retire(counter),
        }
    }

    #[inline(always)]
    fn retire_next_receive(&self, counter: u16) -> Option<u64> {
        match &self.receive {
            ReceiveSide::Own(records) => records.retire_next(counter),
            ReceiveSide::Shared(records) => records.retire(counter),
        }
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

/// The user indexes of a context, and the queues they lead to.
#[derive(Default)]
pub(crate) struct UserIndexes {
    pub(crate) table: Arc<UserIndexTable<QueuePairRecords>>,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Indexes that were given back.
    returned: Vec<u32>,
    /// The lowest that was never given out.
    next: u32,
}

impl UserIndexes {
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives `queue`, which completes on `rings`, an index of its own; `None` if all are in use.
    /// Nobody polls those meanwhile.
    pub(crate) fn register(
        self: &Arc<Self>,
        queue: Arc<QueuePairRecords>,
        rings: [RingId; 2],
    ) -> Option<UserIndex> {
        let index = {
            let mut free = self.free();
            match free.returned.pop() {
                Some(index) => index,
                None if free.next < UserIndexTable::<QueuePairRecords>::SIZE => {
                    free.next += 1;
                    free.next - 1
                }
                None => return None,
            }
        };
        let pointer = NonNull::from(&*queue);
        // SAFETY: `UserIndex` keeps the queue, and itself is kept, after its queue pair is gone,
        // until every poller that may have looked it up has attended to its departure.
        unsafe { self.table.set(index, pointer, rings) };
        Some(UserIndex { index, indexes: Arc::clone(self), queue })
    }
}

/// A user index in use, and its queue. Dropping it gives the index back.
pub(crate) struct UserIndex {
    index: u32,
    indexes: Arc<UserIndexes>,
    queue: Arc<QueuePairRecords>,
}

impl UserIndex {
    pub(crate) fn get(&self) -> u32 {
        self.index
    }

    /// The records of the queue's send side; they live as long as this.
    pub(crate) fn send_records(&self) -> NonNull<SendRecords> {
        NonNull::from(&self.queue.send)
    }

    /// The queue, as pollers know it.
    pub(crate) fn as_non_null(&self) -> NonNull<QueuePairRecords> {
        NonNull::from(&*self.queue)
    }

    /// A receive of the queue, which is gone, completed.
    pub(crate) fn discard_receive(&self, counter: u16) {
        if let Some(tags) = &self.queue.tags {
            tags.retire_receive(counter);
        } else if let ReceiveSide::Shared(records) = &self.queue.receive {
            records.retire(counter);
        }
    }

    /// No completion is to be led to the queue any more.
    pub(crate) fn depart(&self) {
        self.indexes.table.depart(self.index);
    }
}

impl Drop for UserIndex {
    fn drop(&mut self) {
        self.indexes.table.depart(self.index);
        self.indexes.free().returned.push(self.index);
    }
}
