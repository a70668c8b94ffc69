//! Packets in bursts: a raw packet queue pair with its completion queues and its buffers.
//!
//! [`EthernetQueue`] stands on what a program could use by itself: a
//! [queue pair](crate::QueuePair) of transport [`RawPacket`], two completion queues, a memory region and
//! [flow rules](crate::flow). It has the buffers that packets arrive in and gives each one to who uses it:
//! no packet is copied, and none costs an allocation.

mod buffers;
mod builder;
mod frame;
mod headers;
mod mode;
mod outgoing;
#[cfg(test)]
mod random;
mod receive;
mod send;
mod store;
mod striding;
#[cfg(test)]
mod tests;

pub use builder::EthernetQueueBuilder;
pub use frame::Frame;
pub use mode::{Mode, Single};
pub use receive::{Packet, Packets};
pub use striding::Striding;

use crate::cq::{CompletionQueue, PollError};
use crate::error::Error;
use crate::flow::{FlowRule, Rule};
use crate::qp::QueuePair;
use buffers::Slot;
use mlx5_wqe::PostError;
use mlx5_wqe::transport::RawPacket;
use outgoing::InFlight;
use send::SendOptions;
use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};
use store::Store;

/// The verb that errors of creating a queue name.
const VERB: &str = "create_ethernet_queue";

/// How long a queue sleeps that lacks buffers: who gives one back wakes nobody.
const STARVED_NAP: Duration = Duration::from_millis(1);

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
/// are kept, the device drops what arrives, and counts it (`out_of_buffer` of
/// [`Device::hw_counter`](crate::Device::hw_counter)); nothing waits. The next call of `receive` after a
/// frame was dropped goes on.
///
/// # Errors
/// A packet that is longer than a buffer is dropped and [counted](Counts::bad); the device drops one that is
/// longer than a receive of several packets, and counts it itself. A frame that the device refuses stops the send
/// queue; [`EthernetQueue::restart`] starts it again.
///
/// # Modes
/// Each packet has a receive of its own, or several share one ([`EthernetQueueBuilder::striding`]): the
/// type says which. Everything else is the same.
pub struct EthernetQueue<M: Mode = Single> {
    // Dropped first.
    qp: QueuePair<RawPacket>,
    receiver: M::Receiver,
    recv_cq: CompletionQueue,
    send_cq: CompletionQueue,
    in_flight: InFlight,
    store: Store<M>,
    options: SendOptions,
    burst: u32,
    port: u8,
}

impl<M: Mode> Drop for EthernetQueue<M> {
    /// A flow rule that is still there keeps the queue pair alive: in RESET it sends nothing more, so that
    /// the frames of other queues can go home.
    fn drop(&mut self) {
        if self.in_flight.len() > 0 && self.qp.reset().is_err() {
            self.in_flight.keep();
        }
    }
}

impl<M: Mode> fmt::Debug for EthernetQueue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EthernetQueue")
            .field("qp", &self.qp)
            .field("port", &self.port)
            .field("counts", &self.counts())
            .field("sending", &self.in_flight.len())
            .field("free", &self.store.mode.free())
            .finish_non_exhaustive()
    }
}

/// Why an [`EthernetQueue`] cannot receive or send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum EthernetError {
    /// Its completions cannot be polled.
    Poll(PollError),
    /// Nothing can be posted. If the program moved the queue pair to the error state,
    /// [`EthernetQueue::restart`] starts it again. One that the device moved there is not refused: it
    /// flushes what is posted, frames count as [failed](Counts::failed) and receives as
    /// [bad](Counts::bad).
    Post(PostError),
    /// A receive of a [striding](Striding) queue failed with an error after which the device receives nothing more.
    /// The queue posts no receives, and only sends. The program has to make another one.
    Stopped,
}

impl fmt::Display for EthernetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
            Self::Stopped => f.write_str(
                "a receive failed, and the device receives nothing more on this queue: make another queue",
            ),
        }
    }
}

impl std::error::Error for EthernetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Poll(error) => Some(error),
            Self::Post(error) => Some(error),
            Self::Stopped => None,
        }
    }
}

/// What became of packets and frames of an [`EthernetQueue`], since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Counts {
    /// Packets that were received.
    pub received: u64,
    /// Receives that had an error, most often a packet that is longer than a buffer, and packets of which
    /// the device tells what cannot be.
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

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { received, bad, sent, failed, not_sent, starved } = self;
        write!(
            f,
            "{received} received, {bad} bad; {sent} sent, {failed} failed, {not_sent} not sent; starved {starved} times"
        )
    }
}

/// A counter of one owner.
#[derive(Default)]
struct Count(Cell<u64>);

impl Count {
    #[inline]
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

/// A burst, which ends also if whoever looks at its packets panics.
struct Burst<'q, M: Mode>(&'q mut EthernetQueue<M>);

impl<M: Mode> Drop for Burst<'_, M> {
    #[inline]
    fn drop(&mut self) {
        M::end(self.0);
    }
}

impl<M: Mode> EthernetQueue<M> {
    /// Passes the packets that have arrived to `each`, at most a
    /// [burst](EthernetQueueBuilder::burst) of them, and returns what it returned. Packets that it leaves
    /// are those of the next call.
    ///
    /// Afterwards it sends the packets that are to be [sent](Packet::send), and posts buffers again.
    /// If `each` panics, that is left to the next call.
    #[inline]
    pub fn receive<R>(
        &mut self,
        each: impl FnOnce(Packets<'_, M>) -> R,
    ) -> Result<R, EthernetError> {
        if !self.store.outgoing.is_empty() {
            // Of a burst that panicked.
            self.send_outgoing()?;
        }
        self.recv_cq.ready().map_err(EthernetError::Poll)?;
        let burst = Burst(self);
        let Self { recv_cq, store, burst: most, .. } = &mut *burst.0;
        let returned = each(Packets::new(M::cursor(recv_cq, store, *most), store));
        drop(burst);
        if !self.store.outgoing.is_empty() {
            // An error of sending does not keep the queue from receiving.
            let sent = self.send_outgoing();
            M::refill(self)?;
            return sent.map(|()| returned);
        }
        M::refill(self)?;
        Ok(returned)
    }

    /// Returns an empty frame to be filled and sent, if a buffer is free. Where none is, it looks whether
    /// frames were sent meanwhile, as [`EthernetQueue::reap`] does: a program that sends what it gets here
    /// needs to call nothing else.
    pub fn frame(&mut self) -> Option<Frame> {
        if self.store.mode.free() == 0 {
            self.find_free();
        }
        let store = &self.store;
        let (slot, capacity) = store.mode.take(&store.buffers)?;
        Some(Frame::new(std::sync::Arc::clone(&store.buffers), slot, 0, capacity))
    }

    /// Looks for buffers that frames left behind, and for those of frames that were sent.
    #[cold]
    #[inline(never)]
    fn find_free(&mut self) {
        self.store.take_returned();
        if self.store.mode.free() == 0 {
            // The next call that sends tells what is wrong.
            let _ = self.reap();
        }
    }

    /// An error of sending as far as it is one of receiving: buffers of frames that are being sent do not come
    /// back, and what receives has too few.
    fn unless_starved(&self, reaped: Result<(), EthernetError>) -> Result<(), EthernetError> {
        if M::is_starved(self) { reaped } else { Ok(()) }
    }

    /// Gives the queue the packets of a rule (`ibv_create_flow`), until the rule is dropped.
    pub fn attach(&self, rule: &Rule) -> Result<FlowRule, Error> {
        M::attach(self, rule)
    }

    /// Sleeps until packets have arrived, at most for `timeout`, and returns whether there are some. Also
    /// returns true if the queue cannot receive any more: the next call of [`EthernetQueue::receive`] tells why.
    ///
    /// Without a [channel](EthernetQueueBuilder::channel) it fails unless packets have arrived already.
    ///
    /// While the program has the buffers that packets need, the queue looks once a millisecond whether some
    /// came back.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            // Buffers that came back meanwhile receive what is waited for. What is wrong with sending, the
            // next call that sends tells.
            let _ = self.reap();
            if M::refill(self).is_err() {
                // Nothing may ever arrive. Receiving refills too, and returns the error.
                return Ok(true);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if !M::is_starved(self) {
                return self.recv_cq.wait(false, left);
            }
            let nap = left.map_or(STARVED_NAP, |left| left.min(STARVED_NAP));
            if self.recv_cq.wait(false, Some(nap))? {
                return Ok(true);
            }
            if left == Some(Duration::ZERO) {
                return Ok(false);
            }
        }
    }

    /// Asks for an event on the channel when the next packet arrives, for a program that waits on the
    /// channel's descriptor among others. Returns false if no event may come: packets have arrived already,
    /// or the program has the buffers that packets need, or the queue cannot receive any more.
    pub fn arm(&mut self) -> Result<bool, Error> {
        let refilled = M::refill(self);
        self.recv_cq.arm(false)?;
        Ok(refilled.is_ok() && !self.recv_cq.is_ready() && !M::is_starved(self))
    }

    /// What became of packets and frames.
    pub fn counts(&self) -> Counts {
        let Counters { received, bad, sent, failed, not_sent, starved } = &self.store.counters;
        let [received, bad, sent, failed, not_sent, starved] =
            [received, bad, sent, failed, not_sent, starved].map(|count| count.0.get());
        Counts { received, bad, sent, failed, not_sent, starved }
    }

    /// Buffers that neither the device nor the program has. Of a [striding](Striding) queue, those for
    /// [frames](EthernetQueue::frame).
    pub fn free_buffers(&self) -> usize {
        self.store.take_returned();
        self.store.mode.free()
    }

    /// Frames that are being sent.
    pub fn sending(&self) -> usize {
        self.in_flight.len()
    }

    /// The queue pair, to look at. That of a [striding](Striding) queue only sends.
    pub fn qp(&self) -> &QueuePair<RawPacket> {
        &self.qp
    }

    /// The port.
    pub fn port(&self) -> u8 {
        self.port
    }

    /// Starts the queue again after an error: what was not sent yet is dropped, and packets that have
    /// arrived and were not received are lost. Rules stay.
    ///
    /// A [striding](Striding) queue starts sending again, and loses no packets. Its receives are left as they
    /// are: if it fails with [`EthernetError::Stopped`], make another one.
    pub fn restart(&mut self) -> Result<(), Error> {
        M::restart(self)
    }
}

impl EthernetQueue {
    fn post_receives(&mut self, missing: usize) -> Result<(), EthernetError> {
        let mut reaped = Ok(());
        if self.store.mode.free.len() < missing {
            self.store.take_returned();
            reaped = self.reap().map(drop);
            if self.store.mode.free.len() < missing {
                self.store.counters.starved.add(1);
            }
        }
        let Self { qp, store, .. } = self;
        let size = store.buffers.size();
        // The one that is under way, if it is refused.
        let mut last = None;
        let slots = std::iter::from_fn(|| store.mode.free.pop()).take(missing);
        let posted = qp.recv_each(slots.map(|slot| {
            let sge = store.buffers.sge(slot.address(), size);
            last = Some(slot.into_address());
            (sge.addr, sge)
        }));
        if let Err(refused) = posted {
            if let Some(address) = last {
                store.mode.free.push(Slot::at(address));
            }
            return Err(EthernetError::Post(refused.error()));
        }
        self.unless_starved(reaped)
    }
}
