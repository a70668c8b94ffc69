//! Sends and receives Ethernet packets in bursts, over a raw packet queue pair.
//!
//! [`EthernetQueue`] combines parts that a program could also use directly: a [queue
//! pair](crate::QueuePair) of transport [`RawPacket`], two completion queues, a memory region and
//! [flow rules](crate::flow). It owns the buffers that packets arrive in and hands each one to the
//! program: no packet is copied, and none costs an allocation.

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

/// Name of the verb in errors of creating a queue.
const VERB: &str = "create_ethernet_queue";

/// Time between two looks for returned buffers while the queue lacks some. Returning a buffer wakes
/// no thread.
const STARVED_NAP: Duration = Duration::from_millis(1);

/// A queue that receives and sends Ethernet packets on a port.
///
/// It receives the packets that its [rules](EthernetQueue::attach) match. All other packets go to
/// the network interface. It needs CAP_NET_RAW.
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
/// A received packet lies in one of the queue's buffers. When the program drops the packet, the
/// queue posts the buffer again. When it [keeps](Packet::keep) the packet, the buffer returns with
/// the frame. While all buffers are kept, the device drops packets that arrive, and counts them
/// (`out_of_buffer` of [`Device::hw_counter`](crate::Device::hw_counter)). Nothing blocks: once a
/// frame was dropped, the next call of `receive` posts its buffer.
///
/// # Errors
/// A packet that is longer than a buffer is dropped and [counted](Counts::bad). If packets share
/// receives, the device drops a packet that is longer than a receive, and counts it itself. A frame
/// that the device refuses stops the send queue; [`EthernetQueue::restart`] starts it again.
///
/// # Modes
/// Each packet has a receive of its own, or several packets share one
/// ([`EthernetQueueBuilder::striding`]). The type parameter selects the mode. Everything else is
/// the same.
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
    /// A remaining flow rule keeps the queue pair alive. In RESET the queue pair sends nothing
    /// more, so that frames of other queues can be given back.
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
    /// The completion queue cannot be polled.
    Poll(PollError),
    /// Nothing can be posted. If the program moved the queue pair to the error state,
    /// [`EthernetQueue::restart`] starts it again. If the device moved it there, posting succeeds:
    /// the device flushes the requests, and frames count as [failed](Counts::failed), receives as
    /// [bad](Counts::bad).
    Post(PostError),
    /// A receive of a [striding](Striding) queue failed with an error after which the device
    /// receives nothing more. The queue posts no receives, and only sends. The program has to
    /// create another one.
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

/// Counters of an [`EthernetQueue`] since its creation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Counts {
    /// Packets that were received.
    pub received: u64,
    /// Receives that failed, most often because the packet is longer than a buffer, and packets
    /// whose completion has impossible values.
    pub bad: u64,
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that the device refused or flushed, and frames before them in the batch whose
    /// completion it did not report.
    pub failed: u64,
    /// Frames that the driver dropped: too short, of a queue with another protection domain, or
    /// without room in the send queue.
    pub not_sent: u64,
    /// Number of times that fewer receives were posted than usual, because buffers were kept.
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

/// A counter that one thread updates.
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

/// Number of receives that are worth a doorbell.
const POSTED_AT_ONCE: u32 = 32;

/// A burst. Dropping it ends the burst, also if the program's closure panics.
struct Burst<'q, M: Mode>(&'q mut EthernetQueue<M>);

impl<M: Mode> Drop for Burst<'_, M> {
    #[inline]
    fn drop(&mut self) {
        M::end(self.0);
    }
}

impl<M: Mode> EthernetQueue<M> {
    /// Passes the packets that have arrived to `each`, at most a
    /// [burst](EthernetQueueBuilder::burst) of them, and returns the closure's result. The next
    /// call gets the packets that `each` leaves.
    ///
    /// Afterwards it sends the packets that are to be [sent](Packet::send), and posts buffers
    /// again. If `each` panics, the next call does that.
    #[inline]
    pub fn receive<R>(
        &mut self,
        each: impl FnOnce(Packets<'_, M>) -> R,
    ) -> Result<R, EthernetError> {
        if !self.store.outgoing.is_empty() {
            // Packets of a burst that panicked.
            self.send_outgoing()?;
        }
        self.recv_cq.ready().map_err(EthernetError::Poll)?;
        let burst = Burst(self);
        let Self { recv_cq, store, burst: most, .. } = &mut *burst.0;
        let returned = each(Packets::new(M::cursor(recv_cq, store, *most), store));
        drop(burst);
        if !self.store.outgoing.is_empty() {
            // The queue continues to receive after an error of sending.
            let sent = self.send_outgoing();
            M::refill(self)?;
            return sent.map(|()| returned);
        }
        M::refill(self)?;
        Ok(returned)
    }

    /// Returns an empty frame to fill and send, if a buffer is free. Without a free buffer it first
    /// looks for frames that were sent, as [`EthernetQueue::reap`] does: a program that sends all
    /// frames that it gets here needs no other call.
    pub fn frame(&mut self) -> Option<Frame> {
        if self.store.mode.free() == 0 {
            self.find_free();
        }
        let store = &self.store;
        let (slot, capacity) = store.mode.take(&store.buffers)?;
        Some(Frame::new(std::sync::Arc::clone(&store.buffers), slot, 0, capacity))
    }

    /// Takes back the buffers of dropped frames and, if there are none, of sent ones.
    #[cold]
    #[inline(never)]
    fn find_free(&mut self) {
        self.store.take_returned();
        if self.store.mode.free() == 0 {
            // The next call that sends returns the error.
            let _ = self.reap();
        }
    }

    /// Passes on an error of sending only if it affects receiving: the buffers of unfinished frames
    /// do not return, and the receive side lacks buffers.
    fn unless_starved(&self, reaped: Result<(), EthernetError>) -> Result<(), EthernetError> {
        if M::is_starved(self) { reaped } else { Ok(()) }
    }

    /// Steers the packets that a rule matches to the queue (`ibv_create_flow`), until the rule is
    /// dropped.
    pub fn attach(&self, rule: &Rule) -> Result<FlowRule, Error> {
        M::attach(self, rule)
    }

    /// Waits until packets have arrived, for at most `timeout`, and returns whether there are some.
    /// It also returns true if the queue cannot receive any more: the next call of
    /// [`EthernetQueue::receive`] returns the error.
    ///
    /// Without a [channel](EthernetQueueBuilder::channel) it fails unless packets have already
    /// arrived.
    ///
    /// While the program holds the buffers that packets need, the queue checks once a millisecond
    /// whether some were given back.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            // Posts buffers that were given back meanwhile: the packets may need them. The next
            // call that sends returns an error of sending.
            let _ = self.reap();
            if M::refill(self).is_err() {
                // Packets may never arrive. `receive` refills too, and returns the error.
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

    /// Requests an event on the channel for the next packet, for a program that waits on the
    /// channel's descriptor among others. Returns false if no event may come: packets have already
    /// arrived, the program holds the buffers that packets need, or the queue cannot receive any
    /// more.
    pub fn arm(&mut self) -> Result<bool, Error> {
        let refilled = M::refill(self);
        self.recv_cq.arm(false)?;
        Ok(refilled.is_ok() && !self.recv_cq.is_ready() && !M::is_starved(self))
    }

    /// Returns the counters of packets and frames.
    pub fn counts(&self) -> Counts {
        let Counters { received, bad, sent, failed, not_sent, starved } = &self.store.counters;
        let [received, bad, sent, failed, not_sent, starved] =
            [received, bad, sent, failed, not_sent, starved].map(|count| count.0.get());
        Counts { received, bad, sent, failed, not_sent, starved }
    }

    /// Number of buffers that neither the device nor the program holds. For a [striding](Striding)
    /// queue, of those for [frames](EthernetQueue::frame).
    pub fn free_buffers(&self) -> usize {
        self.store.take_returned();
        self.store.mode.free()
    }

    /// Number of frames that are being sent.
    pub fn sending(&self) -> usize {
        self.in_flight.len()
    }

    /// The queue pair, for queries. That of a [striding](Striding) queue only sends.
    pub fn qp(&self) -> &QueuePair<RawPacket> {
        &self.qp
    }

    /// The port.
    pub fn port(&self) -> u8 {
        self.port
    }

    /// Starts the queue again after an error. Frames that were not sent yet are dropped, and
    /// packets that have arrived and were not received are lost. Rules stay.
    ///
    /// A [striding](Striding) queue starts to send again, and loses no packets. Its receives are
    /// left unchanged: if `receive` fails with [`EthernetError::Stopped`], create another queue.
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
        // The buffer that `recv_each` took last: it is not posted if the request is refused.
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
