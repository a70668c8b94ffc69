//! A completion queue, its channel, and the queues that complete there.

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

/// The queue pairs that complete on one completion queue, and its channel. Clones are handles of
/// the same hub.
///
/// [`Hub::new`] returns it with its [`Pump`], which passes the completions to the futures and
/// streams that wait for them.
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
    /// The queue needs room for every request that may be posted: the capacity of the send queue
    /// and the receive queue of each queue pair.
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

    /// Takes over a queue pair that is not connected yet. No request may be posted on it.
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

    /// Takes over a queue pair: from then on, the returned handle posts its requests. No request
    /// may be posted yet: it could not be awaited.
    pub fn adopt<T: QueuePairTransport + 'static, K: Send + 'static>(
        &self,
        qp: mlx5::QueuePair<T>,
    ) -> Result<AsyncQueuePair<T, K>, NotAdded>
    where
        mlx5::QueuePair<T>: Send,
    {
        self.reserve(qp).map(Seat::adopt)
    }

    /// Takes over a shared receive queue. The hub needs room for every request that it holds.
    /// Create queue pairs that use it with [`AsyncSharedReceiveQueue::create_qp`].
    pub fn adopt_srq<K: Send + 'static>(
        &self,
        srq: SharedReceiveQueue,
    ) -> Result<AsyncSharedReceiveQueue<K>, NotAdded> {
        AsyncSharedReceiveQueue::new(&self.registry, self.capacity, &self.target, srq)
    }

    /// Stops taking sends on all queue pairs, and waits until the posted ones have completed.
    /// Receives continue. Call it before [`Hub::shutdown`], which flushes.
    pub async fn drain(&self) -> Result<(), Ended> {
        let queues = self.registry.routes();
        queues.iter().for_each(|queue| queue.end_sends());
        for queue in queues {
            let mut sending = Sending { queue, place: Place::default() };
            poll_fn(|cx| sending.queue.poll_sent(cx, &mut sending.place)).await?;
        }
        Ok(())
    }

    /// Closes all queue pairs, and takes no more. The pump ends when everything has completed, or
    /// with an error if that takes longer than [`Pump::shutdown_timeout`]. Then receive requests of
    /// shared receive queues for which no message arrived fail.
    pub fn shutdown(&self) {
        self.registry.stop();
    }

    /// Returns the stream of the device's events. The pump reads them; if several streams exist,
    /// each event goes to one of them.
    pub fn device_events(&self) -> DeviceEvents {
        self.registry.events().streams += 1;
        DeviceEvents { registry: Arc::clone(&self.registry), place: Place::default() }
    }

    /// Returns the number of completions that belonged to no request of this hub. Requests that are
    /// posted on a queue pair before it is adopted cause them.
    pub fn strays(&self) -> u64 {
        self.registry.strays()
    }
}

/// Waits until the device has no send of a queue.
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
            // The next stream starts with later events.
            events.pending.clear();
        }
        let left = events.waiting.leave(&mut self.place);
        drop(events);
        discard(left);
    }
}
