//! Where the queues of a completion queue are.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use mlx5::{AsyncEvent, CompletionTarget, ProtectionDomain, QueuePairBuilder, QueuePairTransport};

use crate::pump::{Pump, PumpError};
use crate::queue_pair::{AsyncQueuePair, Seat};
use crate::registry::{NotAdded, Registry};

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

    /// Reserves the place of a queue pair that is not connected yet.
    pub fn reserve<T: QueuePairTransport + 'static, K: Send + 'static>(
        &self,
        qp: &mlx5::QueuePair<T>,
    ) -> Result<Seat<T, K>, NotAdded>
    where
        mlx5::QueuePair<T>: Send,
    {
        match qp.completes_on(&self.target) {
            (true, true) => Seat::new(&self.registry, self.capacity, qp),
            _ => Err(NotAdded::OtherCompletionQueue),
        }
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
        self.reserve(&qp)?.adopt(qp)
    }

    /// Closes all queue pairs, and takes no more. The pump ends when everything has completed.
    pub fn shutdown(&self) {
        self.registry.stop();
    }

    /// Returns the stream of the device's events. The pump reads them; if several streams exist, each
    /// event goes to one of them.
    pub fn device_events(&self) -> DeviceEvents {
        self.registry.events().streams += 1;
        DeviceEvents { registry: Arc::clone(&self.registry) }
    }

    /// Returns the number of completions that belonged to no request of this hub: who posts on an
    /// adopted queue pair before it is adopted causes them.
    pub fn strays(&self) -> u64 {
        self.registry.strays()
    }
}

/// The stream of a device's events. See [`Hub::device_events`].
///
/// It ends with the pump. One task at a time may wait for it.
#[must_use = "a stream does nothing unless it is polled"]
pub struct DeviceEvents {
    registry: Arc<Registry>,
}

impl DeviceEvents {
    /// Waits for the next event; `None` when the pump has ended.
    pub async fn next(&mut self) -> Option<AsyncEvent> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<AsyncEvent>> {
        let mut events = self.registry.events();
        if let Some(event) = events.pending.pop_front() {
            return Poll::Ready(Some(event));
        }
        if events.over {
            return Poll::Ready(None);
        }
        let former = events.waker.replace(cx.waker().clone());
        drop(events);
        drop(former);
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
        self.poll(cx)
    }
}

impl Drop for DeviceEvents {
    fn drop(&mut self) {
        self.registry.events().streams -= 1;
    }
}
