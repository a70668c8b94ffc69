//! Packets in bursts: a raw packet queue pair with its completion queues and its buffers.
//!
//! [`EthernetQueue`] stands on what a program could use by itself: a
//! [queue pair](crate::QueuePair) of transport [`RawPacket`], two completion queues, a memory region and
//! [flow rules](crate::flow). It has the buffers that packets arrive in and gives each one to who uses it:
//! no packet is copied, and none costs an allocation.

mod buffers;
mod builder;
mod frame;
mod outgoing;
mod receive;
mod send;
#[cfg(test)]
mod tests;

pub use builder::EthernetQueueBuilder;
pub use frame::Frame;
pub use receive::{Packet, Packets};

use crate::cq::{CompletionQueue, PollError};
use crate::error::Error;
use crate::flow::{FlowRule, Rule};
use crate::qp::QueuePair;
use buffers::Slot;
use mlx5_wqe::PostError;
use mlx5_wqe::transport::RawPacket;
use outgoing::InFlight;
use receive::Store;
use send::SendOptions;
use std::cell::Cell;
use std::fmt;
use std::time::Duration;

/// A queue of Ethernet packets that a program receives and sends, on a port.
///
/// It receives what its [rules](EthernetQueue::attach) name. All other packets stay the network
/// interface's. It needs CAP_NET_RAW.
///
/// ```no_run
/// use mlx5::flow::{Ethernet, Rule};
/// # fn f(context: &mlx5::Context, mac: [u8; 6]) -> Result<(), Box<dyn std::error::Error>> {
/// let mut queue = context.create_ethernet_queue(1).build()?;
/// let rule = queue.attach(&Rule::new().ethernet(Ethernet::new().dst_mac(mac)))?;
/// loop {
///     // Every packet goes back to where it came from.
///     queue.receive(|packets| {
///         packets.for_each(|mut packet| {
///             if let Some((to, rest)) = packet.split_at_mut_checked(6)
///                 && let Some(from) = rest.first_chunk_mut::<6>()
///             {
///                 to.swap_with_slice(from);
///                 packet.send();
///             }
///         });
///     })?;
/// }
/// # }
/// ```
///
/// # Buffers
/// A received packet lies in one of the queue's buffers. When the program drops it, the buffer receives
/// again; when it [keeps](Packet::keep) it, the buffer comes back with the frame. As long as all buffers
/// are kept, the device drops what arrives, and counts it (`out_of_buffer` among the port's hardware
/// counters); nothing waits. The next call of `receive` after a frame was dropped goes on.
///
/// # Errors
/// A packet that is longer than a buffer is dropped and [counted](Counts::bad). A frame that the device
/// refuses stops the send queue; [`EthernetQueue::restart`] starts it again.
pub struct EthernetQueue {
    // Dropped first.
    qp: QueuePair<RawPacket>,
    recv_cq: CompletionQueue,
    send_cq: CompletionQueue,
    in_flight: InFlight,
    store: Store,
    options: SendOptions,
    /// Receives that are posted at most: more than asked for, by as many as may be missing.
    receives: usize,
    /// How many must be missing to be posted.
    worth_a_doorbell: usize,
    burst: usize,
    port: u8,
}

impl Drop for EthernetQueue {
    /// A flow rule that is still there keeps the queue pair alive: in RESET it sends nothing more, so that
    /// the frames of other queues can go home.
    fn drop(&mut self) {
        if self.in_flight.len() > 0 && self.qp.reset().is_err() {
            self.in_flight.keep();
        }
    }
}

impl fmt::Debug for EthernetQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetQueue")
            .field("qp", &self.qp)
            .field("port", &self.port)
            .field("counts", &self.counts())
            .field("sending", &self.in_flight.len())
            .field("free", &self.store.free.len())
            .finish_non_exhaustive()
    }
}

/// Why an [`EthernetQueue`] cannot receive or send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EthernetError {
    /// Its completions cannot be polled.
    Poll(PollError),
    /// Nothing can be posted. If the queue pair is in the error state,
    /// [`EthernetQueue::restart`] starts it again.
    Post(PostError),
}

impl fmt::Display for EthernetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EthernetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Poll(error) => Some(error),
            Self::Post(error) => Some(error),
        }
    }
}

/// What became of packets and frames of an [`EthernetQueue`], since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Counts {
    /// Packets that were received.
    pub received: u64,
    /// Receives that had an error: most often a packet that is longer than a buffer.
    pub bad: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that the device refused or flushed, with those before them in the batch that it told nothing
    /// of.
    pub failed: u64,
    /// Frames that were dropped here: too short, a stranger's, or without room in the send queue.
    pub not_sent: u64,
    /// How often fewer receives were posted than usual, because buffers were kept.
    pub starved: u64,
}

/// A counter of one owner.
#[derive(Default)]
struct Count(Cell<u64>);

impl Count {
    #[inline(always)]
    fn add(&self, more: u64) {
        self.0.set(self.0.get() + more);
    }
}

/// The counters of [`Counts`].
#[derive(Default)]
struct Counters {
    received: Count,
    bad: Count,
    sent: Count,
    failed: Count,
    not_sent: Count,
    starved: Count,
}

/// Receives that are worth a doorbell.
const POSTED_AT_ONCE: u32 = 32;

impl EthernetQueue {
    /// Passes the packets that have arrived to `each`, at most a
    /// [burst](EthernetQueueBuilder::burst) of them, and returns what it returned. Packets that it leaves
    /// are those of the next call.
    ///
    /// Afterwards it sends the packets that are to be [sent](Packet::send), and posts buffers again.
    /// If `each` panics, that is left to the next call.
    #[inline]
    pub fn receive<R>(&mut self, each: impl FnOnce(Packets<'_>) -> R) -> Result<R, EthernetError> {
        if !self.store.outgoing.is_empty() {
            // Of a burst that panicked.
            self.send_outgoing()?;
        }
        let completions = self.recv_cq.completions().map_err(EthernetError::Poll)?;
        let returned = each(Packets::new(completions, &self.store, self.burst));
        if !self.store.outgoing.is_empty() {
            self.send_outgoing()?;
        }
        self.refill()?;
        Ok(returned)
    }

    /// Posts receives again, where as many are missing as are worth a doorbell.
    #[inline]
    fn refill(&mut self) -> Result<(), EthernetError> {
        let posted = (self.qp.caps().max_recv_wr - self.qp.free_receives()) as usize;
        let missing = self.receives - posted.min(self.receives);
        if missing < self.worth_a_doorbell {
            return Ok(());
        }
        self.post_receives(missing)
    }

    fn post_receives(&mut self, missing: usize) -> Result<(), EthernetError> {
        if self.store.free.len() < missing {
            self.store.buffers.take_returned(&self.store.free);
            self.reap()?;
            if self.store.free.len() < missing {
                self.store.counters.starved.add(1);
            }
        }
        let Self { qp, store, .. } = self;
        let size = store.buffers.size();
        // The one that is under way, if it is refused.
        let mut last = None;
        let slots = std::iter::from_fn(|| store.free.pop()).take(missing);
        let posted = qp.recv_each(slots.map(|slot| {
            let number = slot.into_number();
            last = Some(number);
            (number.into(), store.buffers.sge(number, size))
        }));
        if let Err(refused) = posted {
            if let Some(number) = last {
                store.free.push(Slot::from_number(number));
            }
            return Err(EthernetError::Post(refused.error()));
        }
        Ok(())
    }

    /// Returns an empty frame to be filled and sent, if a buffer is free.
    pub fn frame(&mut self) -> Option<Frame> {
        let store = &self.store;
        if store.free.len() == 0 {
            store.buffers.take_returned(&store.free);
        }
        let slot = store.free.pop()?;
        Some(Frame::new(std::sync::Arc::clone(&store.buffers), slot, 0))
    }

    /// Gives the queue the packets of a rule (`ibv_create_flow`), until the rule is dropped.
    pub fn attach(&self, rule: &Rule) -> Result<FlowRule, Error> {
        self.qp.attach(self.port, rule)
    }

    /// Sleeps until packets have arrived, at most for `timeout`, and returns whether there are some. Needs a
    /// [channel](EthernetQueueBuilder::channel); a queue without one does not sleep.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        // Buffers that came back meanwhile receive what is waited for. What is wrong with the queue, the
        // next call tells.
        let _ = self.reap();
        let _ = self.refill();
        self.recv_cq.wait(false, timeout)
    }

    /// Asks for an event on the channel when the next packet arrives, for a program that waits on the
    /// channel's descriptor among others. Returns false if packets have arrived already: then no event may
    /// come.
    pub fn arm(&mut self) -> Result<bool, Error> {
        let _ = self.refill();
        self.recv_cq.arm(false)?;
        Ok(!self.recv_cq.is_ready())
    }

    /// What became of packets and frames.
    pub fn counts(&self) -> Counts {
        let Counters { received, bad, sent, failed, not_sent, starved } = &self.store.counters;
        let [received, bad, sent, failed, not_sent, starved] =
            [received, bad, sent, failed, not_sent, starved].map(|count| count.0.get());
        Counts { received, bad, sent, failed, not_sent, starved }
    }

    /// Buffers that neither the device nor the program has.
    pub fn free_buffers(&self) -> usize {
        self.store.buffers.take_returned(&self.store.free);
        self.store.free.len()
    }

    /// Frames that are being sent.
    pub fn sending(&self) -> usize {
        self.in_flight.len()
    }

    /// The queue pair, to look at.
    pub fn qp(&self) -> &QueuePair<RawPacket> {
        &self.qp
    }

    /// The port.
    pub fn port(&self) -> u8 {
        self.port
    }

    /// Starts the queue again after an error: what was not sent yet is dropped, and packets that have
    /// arrived and were not received are lost. Rules stay.
    pub fn restart(&mut self) -> Result<(), Error> {
        const VERB: &str = "restart";
        // What was sent is told of as such; an error here is one of the queue that ends.
        let _ = self.reap();
        self.qp.reset()?;
        let Self { qp, recv_cq, send_cq, in_flight, store, .. } = self;
        let failed = |error: PollError| Error::invalid(VERB, error.to_string());
        // Completions that wait name buffers; so do the requests without one.
        let reclaim = |wr_id: u64| store.free.push(Slot::from_number(wr_id as u32));
        let received = recv_cq.poll(usize::MAX, |completion| reclaim(completion.wr_id()));
        let sent = send_cq.poll(usize::MAX, |_| {});
        let not_done = qp.quiesce(&mut [recv_cq, send_cq], |_| {});
        let not_done = not_done.map_err(|error| Error::invalid(VERB, error.to_string()))?;
        store.drop_outgoing();
        for request in not_done.iter().filter(|request| request.receive) {
            reclaim(request.wr_id);
        }
        store.counters.failed.add(in_flight.retire(in_flight.put(), &store.free));
        // Their buffers are free now: another restart after an error must not find them again.
        let forgotten = qp.forget();
        received.and(sent).map_err(failed)?;
        forgotten?;
        self.qp.activate(self.port)?;
        self.post_receives(self.receives).map_err(|error| Error::invalid(VERB, error.to_string()))
    }
}
