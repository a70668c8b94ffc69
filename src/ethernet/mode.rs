//! The two ways to place packets in buffers: each packet in one of its own ([`Single`]), or several
//! in the memory of one receive ([`Striding`](super::Striding)).

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

/// The way an [`EthernetQueue`] places packets in buffers: [`Single`] or
/// [`Striding`](super::Striding).
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

/// The operations that differ between the modes. The trait is not exported, so no other crate can
/// implement it.
pub trait Inbound: GiveBack + Sized + Send {
    /// The parts that receive.
    type Receiver: Send;
    /// Iterates over the completions of packets.
    type Cursor<'q>;

    /// Starts a burst of at most `burst` packets. The queue was found
    /// [ready](CompletionQueue::ready).
    fn cursor<'q>(cq: &'q mut CompletionQueue, store: &Store<Self>, burst: u32)
    -> Self::Cursor<'q>;
    /// Takes the next packet of a burst, with its length. The previous packet must no longer be
    /// used.
    ///
    /// # Safety
    /// The caller does not use the completion after the next use of the cursor. The same holds for
    /// the slot of a packet that was neither [dropped](Inbound::drop_packet) nor
    /// [kept](Inbound::keep_packet).
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
    /// Ends a burst, also if its cursor was leaked: its packets are gone, except those that are to
    /// be sent.
    fn end(queue: &mut EthernetQueue<Self>);
    /// Takes back the buffer of a packet of the burst.
    fn drop_packet(&self, slot: Slot);
    /// Notes that the buffer of a packet is held for longer than the burst, until it is given back.
    /// Packets that are to be sent do not need this.
    fn keep_packet(&self, slot: &Slot);
    /// Takes a buffer for a frame, if one is free, and returns its size with it.
    fn take(&self, buffers: &Buffers) -> Option<(Slot, u32)>;
    /// Number of bytes that the slot of a packet of this length is the right to.
    fn room(&self, buffers: &Buffers, length: u32) -> u32;
    /// Number of free buffers for frames.
    fn free(&self) -> usize;
    /// Posts receives again, if enough are missing to be worth a doorbell.
    fn refill(queue: &mut EthernetQueue<Self>) -> Result<(), EthernetError>;
    /// Whether packets may be dropped because there was no buffer to post.
    fn is_starved(queue: &EthernetQueue<Self>) -> bool;
    /// Attaches a rule to the receiving side.
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

/// The number of receives that are kept posted.
#[derive(Clone, Copy, Debug)]
pub struct Receives {
    /// Upper limit. It exceeds the number asked for by as many as may be missing.
    pub(super) most: usize,
    /// Number of missing receives from which on posting is worth a doorbell.
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

/// Iterates over the completions of packets, and counts how many more the burst may have.
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
            // SAFETY: the caller promises not to use the completion after the next use of the
            // cursor, which borrows the queue.
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
        // SAFETY: `each` consumes the completion before the next use of the cursor.
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
        // Counts frames that were sent. An error does not matter: the queue is reset.
        let _ = queue.reap();
        queue.qp.reset()?;
        let EthernetQueue { qp, recv_cq, send_cq, in_flight, store, .. } = queue;
        // Completions name buffers. So do requests without a completion, once they are forgotten.
        let reclaim = |wr_id: u64| store.mode.free.push(Slot::at(wr_id as usize));
        let (unfinished, polled) = qp.forget_unfinished([recv_cq, send_cq], |cq, completion| {
            // Only receives complete on the first queue, whatever opcode the device reports.
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

/// Makes an error of [`EthernetQueue::restart`].
pub(super) fn invalid(error: impl fmt::Display) -> Error {
    Error::invalid("restart", error.to_string())
}
