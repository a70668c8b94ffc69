//! How packets get into the buffers of a queue: each into one of its own ([`Single`]), or several into the
//! memory of one receive ([`Striding`](super::Striding)).

use super::buffers::{Buffers, FreeList, GiveBack, Slot};
use super::store::Store;
use super::{EthernetError, EthernetQueue};
use crate::cq::CompletionQueue;
use crate::error::Error;
use crate::flow::{FlowRule, Rule};
use mlx5_cq::WorkCompletion;
use mlx5_wqe::Sge;
use std::cell::Cell;
use std::fmt;

/// How packets get into the buffers of an [`EthernetQueue`]: [`Single`] or [`Striding`](super::Striding).
///
/// A function that works with both takes a queue of any mode:
///
/// ```
/// use mlx5::ethernet::{EthernetError, EthernetQueue, Mode};
///
/// fn count<M: Mode>(queue: &mut EthernetQueue<M>) -> Result<usize, EthernetError> {
///     queue.receive(|mut packets| {
///         let mut bytes = 0;
///         while let Some(packet) = packets.next() {
///             bytes += packet.len();
///         }
///         bytes
///     })
/// }
/// ```
pub trait Mode: Inbound {}

impl<M: Inbound> Mode for M {}

/// What the modes do differently. Nobody outside names it, so nobody adds one.
pub trait Inbound: GiveBack + Sized + Send {
    /// What receives.
    type Receiver: Send;
    /// Completions of packets, one by one.
    type Cursor<'q>;

    /// Starts a burst of at most so many packets, of a queue that was [attended to](CompletionQueue::ready).
    fn cursor<'q>(cq: &'q mut CompletionQueue, store: &Store<Self>, burst: u32)
    -> Self::Cursor<'q>;
    /// Takes the next packet of a burst, of so many bytes. The one before is gone.
    ///
    /// # Safety
    /// The completion is not used after the next use of the cursor, and the slot of one that was neither
    /// [dropped](Inbound::drop_packet) nor [kept](Inbound::keep_packet) is not used then, either.
    unsafe fn next<'other>(
        store: &Store<Self>,
        cursor: &mut Self::Cursor<'_>,
    ) -> Option<(WorkCompletion<'other>, Slot, usize)>;
    /// Passes all packets of a burst to `each`, with their lengths.
    fn for_each(
        store: &Store<Self>,
        cursor: Self::Cursor<'_>,
        each: impl FnMut(WorkCompletion<'_>, Slot, usize),
    );
    /// Takes note of the end of a burst, also if its cursor was leaked: its packets are gone, but for those that
    /// are to be sent.
    fn end(queue: &mut EthernetQueue<Self>);
    /// Takes back the buffer of a packet of the burst.
    fn drop_packet(&self, slot: Slot);
    /// Lets somebody have the buffer of a packet for longer than the burst, who gives it back. Packets that are
    /// to be sent need that not.
    fn keep_packet(&self, slot: &Slot);
    /// A buffer for a frame, if one is free, and the bytes of it.
    fn take(&self, buffers: &Buffers) -> Option<(Slot, u32)>;
    /// The bytes that the slot of a packet of this length is the right to.
    fn room(&self, buffers: &Buffers, length: u32) -> u32;
    /// Buffers for frames that are free.
    fn free(&self) -> usize;
    /// Posts receives again, where as many are missing as are worth a doorbell.
    fn refill(queue: &mut EthernetQueue<Self>) -> Result<(), EthernetError>;
    /// Whether a packet may be dropped, or every one, because there was no buffer to post.
    fn is_starved(queue: &EthernetQueue<Self>) -> bool;
    /// Attaches a rule to what receives.
    fn attach(queue: &EthernetQueue<Self>, rule: &Rule) -> Result<FlowRule, Error>;
    /// See [`EthernetQueue::restart`].
    fn restart(queue: &mut EthernetQueue<Self>) -> Result<(), Error>;
}

/// Each packet gets a buffer of its own.
pub struct Single {
    pub(super) free: FreeList,
}

impl fmt::Debug for Single {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Single").field("free", &self.free.len()).finish()
    }
}

/// How many receives are posted.
#[derive(Clone, Copy, Debug)]
pub struct Receives {
    /// At most: more than asked for, by as many as may be missing.
    pub(super) most: usize,
    /// How many must be missing to be posted.
    pub(super) worth_a_doorbell: usize,
}

impl GiveBack for Single {
    const SHARES: bool = false;

    #[inline]
    fn give_back(&self, slot: Slot) {
        self.free.push(slot);
    }

    #[inline]
    fn give_back_run(&self, slot: Slot, _: u32) {
        self.free.push(slot);
    }

    #[inline]
    fn run(&self, _: &[Cell<Sge>]) -> usize {
        1
    }
}

/// Completions of packets, one by one, and how many more a burst may have.
#[derive(Debug)]
pub struct Burst<'q> {
    cq: &'q mut CompletionQueue,
    left: u32,
}

impl Inbound for Single {
    type Receiver = Receives;
    type Cursor<'q> = Burst<'q>;

    #[inline]
    fn cursor<'q>(cq: &'q mut CompletionQueue, _: &Store<Self>, burst: u32) -> Burst<'q> {
        Burst { cq, left: burst }
    }

    #[inline(always)]
    unsafe fn next<'other>(
        store: &Store<Self>,
        cursor: &mut Burst<'_>,
    ) -> Option<(WorkCompletion<'other>, Slot, usize)> {
        loop {
            cursor.left = cursor.left.checked_sub(1)?;
            // SAFETY: by the caller's contract.
            let completion = unsafe { cursor.cq.next_of_burst() }?;
            let slot = Slot::at(completion.wr_id() as usize);
            let length = completion.byte_count();
            if completion.is_success() && length <= store.buffers.size() {
                store.counters.received.add(1);
                return Some((completion, slot, length as usize));
            }
            // Longer than a buffer, or flushed.
            store.counters.bad.add(1);
            store.mode.free.push(slot);
        }
    }

    #[inline(always)]
    fn for_each(
        store: &Store<Self>,
        mut cursor: Burst<'_>,
        mut each: impl FnMut(WorkCompletion<'_>, Slot, usize),
    ) {
        // SAFETY: the completion is gone when the cursor is used next.
        while let Some((completion, slot, length)) = unsafe { Self::next(store, &mut cursor) } {
            each(completion, slot, length);
        }
    }

    #[inline]
    fn end(queue: &mut EthernetQueue<Self>) {
        queue.recv_cq.end_burst();
    }

    #[inline]
    fn drop_packet(&self, slot: Slot) {
        self.free.push(slot);
    }

    #[inline]
    fn keep_packet(&self, _: &Slot) {}

    #[inline]
    fn take(&self, buffers: &Buffers) -> Option<(Slot, u32)> {
        Some((self.free.pop()?, buffers.size()))
    }

    #[inline]
    fn room(&self, buffers: &Buffers, _length: u32) -> u32 {
        buffers.size()
    }

    fn free(&self) -> usize {
        self.free.len()
    }

    #[inline(always)]
    fn refill(queue: &mut EthernetQueue<Self>) -> Result<(), EthernetError> {
        let posted = (queue.qp.caps().max_recv_wr - queue.qp.free_receives()) as usize;
        let Receives { most, worth_a_doorbell } = queue.receiver;
        let missing = most - posted.min(most);
        if missing < worth_a_doorbell {
            return Ok(());
        }
        queue.post_receives(missing)
    }

    fn is_starved(queue: &EthernetQueue<Self>) -> bool {
        queue.qp.free_receives() == queue.qp.caps().max_recv_wr
    }

    fn attach(queue: &EthernetQueue<Self>, rule: &Rule) -> Result<FlowRule, Error> {
        queue.qp.attach(queue.port, rule)
    }

    fn restart(queue: &mut EthernetQueue<Self>) -> Result<(), Error> {
        // What was sent is told of as such; an error here is one of the queue that ends.
        let _ = queue.reap();
        queue.qp.reset()?;
        let EthernetQueue { qp, recv_cq, send_cq, in_flight, store, .. } = queue;
        // Completions name buffers; so do the requests without one, once they are forgotten.
        let reclaim = |wr_id: u64| store.mode.free.push(Slot::at(wr_id as usize));
        let (unfinished, polled) = qp.forget_unfinished([recv_cq, send_cq], |cq, completion| {
            // Only receives complete on the first one, whatever message the device reports.
            if cq == 0 {
                reclaim(completion.wr_id());
            }
        })?;
        let receives = unfinished.iter().filter(|request| request.receive);
        receives.for_each(|request| reclaim(request.wr_id));
        store.drop_outgoing();
        store.counters.failed.add(in_flight.retire(in_flight.put(), &store.mode));
        polled.map_err(invalid)?;
        queue.qp.activate(queue.port)?;
        queue.post_receives(queue.receiver.most).map_err(invalid)
    }
}

/// An error of [`EthernetQueue::restart`].
pub(super) fn invalid(error: impl fmt::Display) -> Error {
    Error::invalid("restart", error.to_string())
}
