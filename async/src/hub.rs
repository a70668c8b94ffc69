//! Where the queues of a completion queue are.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use mlx5::{
    AsyncEvent, CompletionTarget, ProtectionDomain, QueuePairBuilder, QueuePairTransport,
    SharedReceiveQueue,
};

use crate::error::Ended;
use crate::pump::{Pump, PumpError};
use crate::queue_pair::AsyncQueuePair;
use crate::registry::{NotAdded, Registry, Route};
use crate::seat::Seat;
use crate::shared::{Handles, Shared, sides};
use crate::shared_receives::AsyncSharedReceiveQueue;
use crate::wakes::{Place, discard};

/// The queue pairs that complete on one completion queue, and its channel. Clones are handles of the
/// same hub.
///
/// [`Hub::new`] returns it with its [`Pump`], which takes the completions to those that wait for
/// them.
#[derive(Clone)]
pub struct Hub {
    registry: Arc<Registry>,
    target: CompletionTarget,
    capacity: u32,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Hub {
    /// Creates a completion queue with room for `completions`, its channel, and the pump.
    ///
    /// The queue needs room for every request that may be posted: for each queue pair, what its
    /// send queue and its receive queue hold.
    pub fn new(context: &mlx5::Context, completions: u32) -> Result<(Self, Pump), PumpError> {
        let channel = context.create_comp_channel().map_err(PumpError::Driver)?;
        let cq = context.create_cq(completions).channel(&channel).build();
        let cq = cq.map_err(PumpError::Driver)?;
        let (target, capacity) = (cq.target(), cq.capacity());
        let pump = Pump::new(context, channel, cq)?;
        Ok((Self { registry: Arc::clone(pump.registry()), target, capacity }, pump))
    }

    /// Starts building a queue pair that completes here.
    pub fn create_qp<'a, T: QueuePairTransport>(
        &self,
        pd: &'a ProtectionDomain,
    ) -> QueuePairBuilder<'a, T> {
        pd.create_qp_on(self.target.clone(), self.target.clone())
    }

    /// Takes a queue pair over that is not connected yet. Nothing may be posted yet.
    pub fn reserve<T: QueuePairTransport + 'static, K: Send + 'static>(
        &self,
        qp: mlx5::QueuePair<T>,
    ) -> Result<Seat<T, K>, NotAdded>
    where
        mlx5::QueuePair<T>: Send,
    {
        if qp.completes_on(&self.target) != (true, true) {
            return Err(NotAdded::OtherCompletionQueue);
        }
        let (completions, srqn) = (sides(&qp).iter().sum(), qp.srqn());
        let shared = self.registry.add(completions, self.capacity, srqn, |number, receives| {
            Shared::new(&self.registry, number, qp, receives)
        })?;
        Ok(Seat::new(Handles(shared)))
    }

    /// Takes a queue pair over: from now on, requests are posted by the handle that is returned.
    /// Nothing may be posted yet; what is posted is not awaited.
    pub fn adopt<T: QueuePairTransport + 'static, K: Send + 'static>(
        &self,
        qp: mlx5::QueuePair<T>,
    ) -> Result<AsyncQueuePair<T, K>, NotAdded>
    where
        mlx5::QueuePair<T>: Send,
    {
        self.reserve(qp).map(Seat::adopt)
    }

    /// Takes a shared receive queue over. The hub needs room for every request that it holds. Queue pairs
    /// that take from it are created with [`AsyncSharedReceiveQueue::create_qp`].
    pub fn adopt_srq<K: Send + 'static>(
        &self,
        srq: SharedReceiveQueue,
    ) -> Result<AsyncSharedReceiveQueue<K>, NotAdded> {
        AsyncSharedReceiveQueue::new(&self.registry, self.capacity, &self.target, srq)
    }

    /// Takes no more sends on any queue pair, and waits until all that were posted have completed.
    /// Receives go on. Before [`Hub::shutdown`], which flushes.
    pub async fn drain(&self) -> Result<(), Ended> {
        let queues = self.registry.routes();
        queues.iter().for_each(|queue| queue.end_sends());
        for queue in queues {
            let mut sending = Sending { queue, place: Place::default() };
            poll_fn(|cx| sending.queue.poll_sent(cx, &mut sending.place)).await?;
        }
        Ok(())
    }

    /// Closes all queue pairs, and takes no more. The pump ends when everything has completed, or by an
    /// error if that takes longer than [`Pump::shutdown_timeout`]. Receive requests of shared receive
    /// queues for which no message has come fail then.
    pub fn shutdown(&self) {
        self.registry.stop();
    }

    /// Returns the stream of the device's events. The pump reads them; if several streams exist, each
    /// event goes to one of them.
    pub fn device_events(&self) -> DeviceEvents {
        self.registry.events().streams += 1;
        DeviceEvents { registry: Arc::clone(&self.registry), place: Place::default() }
    }

    /// Returns the number of completions that belonged to no request of this hub: who posts on a
    /// queue pair before it is adopted causes them.
    pub fn strays(&self) -> u64 {
        self.registry.strays()
    }
}

/// Waits until no send of a queue is with the device.
struct Sending {
    queue: Arc<dyn Route>,
    place: Place,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.queue.leave_sent(&mut self.place);
    }
}

/// The stream of a device's events. See [`Hub::device_events`].
///
/// It ends with the pump.
#[must_use = "a stream does nothing unless it is polled"]
pub struct DeviceEvents {
    registry: Arc<Registry>,
    place: Place,
}

impl DeviceEvents {
    /// Waits for the next event; `None` when the pump has ended.
    pub async fn next(&mut self) -> Option<AsyncEvent> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<Option<AsyncEvent>> {
        let mut events = self.registry.events();
        if let Some(event) = events.pending.pop_front() {
            return Poll::Ready(Some(event));
        }
        if events.over {
            return Poll::Ready(None);
        }
        let former = events.waiting.wait(&mut self.place, cx);
        drop(events);
        discard(former);
        Poll::Pending
    }
}

impl fmt::Debug for DeviceEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceEvents").finish_non_exhaustive()
    }
}

impl Stream for DeviceEvents {
    type Item = AsyncEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AsyncEvent>> {
        self.get_mut().poll(cx)
    }
}

impl Drop for DeviceEvents {
    fn drop(&mut self) {
        let mut events = self.registry.events();
        events.streams -= 1;
        if events.streams == 0 {
            // The next stream starts with what happens then.
            events.pending.clear();
        }
        let left = events.waiting.leave(&mut self.place);
        drop(events);
        discard(left);
    }
}
