//! Shared receive queues whose requests are awaited.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use mlx5::{
    CompletionOpcode, CompletionTarget, ProtectionDomain, QueuePairBuilder, QueuePairTransport,
    Sge, SharedReceiveQueue, WorkCompletion,
};

use crate::error::{Ended, Refused, RefusedBecause};
use crate::posting::{post_in_turn, try_post};
use crate::registry::{Name, NotAdded, Registry, Route};
use crate::request::{Completions, Request};
use crate::slots::{Slots, To, Want};
use crate::wakes::{Place, Wakes, discard};

/// A shared receive queue with its slots.
struct Shared<K> {
    srq: Mutex<SharedReceiveQueue>,
    slots: Arc<Slots<K>>,
    number: u32,
    registry: Arc<Registry>,
}

impl<K> Shared<K> {
    fn srq(&self) -> MutexGuard<'_, SharedReceiveQueue> {
        self.srq.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recv(&self, slot: u32, sge: Sge) -> Result<(), RefusedBecause> {
        let name = Name { queue: self.number, receive: true, last: true, slot };
        self.srq().recv(name.wr_id(), sge).map_err(RefusedBecause::Receive)
    }
}

impl<K: Send> Route for Shared<K> {
    fn complete(
        &self,
        name: Name,
        completion: &WorkCompletion<'_>,
        wakes: &mut Wakes,
    ) -> Option<bool> {
        // Any queue pair may use it, but completions of sends belong to none of its requests.
        let is_receive = matches!(
            completion.opcode(),
            CompletionOpcode::Receive
                | CompletionOpcode::ReceiveRdmaWithImm
                | CompletionOpcode::TmReceive
                | CompletionOpcode::TmNoTag
        );
        if !name.receive || !is_receive {
            return None;
        }
        let (failed, completion) = (!completion.is_success(), completion.to_owned());
        discard(self.slots.complete(name.slot, name.last, completion, failed, wakes).ok()?);
        Some(false)
    }

    fn close(&self) {
        let mut wakes = Wakes::default();
        self.slots.end(Ended::Closed, &mut wakes);
    }

    fn note_drained(&self, _: &mut Wakes) {}

    fn take_discarded(&self, wakes: &mut Wakes) {
        let discarded = self.srq().take_discarded();
        for name in discarded.into_iter().map(Name::of) {
            if name.queue == self.number && name.receive {
                discard(self.slots.discard(name.slot, wakes));
            }
        }
    }

    fn end_sends(&self) {}

    fn poll_sent(&self, _: &Context<'_>, _: &mut Place) -> Poll<Result<(), Ended>> {
        Poll::Ready(Ok(()))
    }

    fn leave_sent(&self, _: &mut Place) {}

    fn lose(&self, end: Ended, wakes: &mut Wakes) {
        self.slots.lose(end, wakes);
    }

    fn completions(&self) -> u32 {
        self.slots.capacity()
    }
}

impl<K> Drop for Shared<K> {
    fn drop(&mut self) {
        self.registry.remove(self.number, self.slots.capacity());
        let mut wakes = Wakes::default();
        self.slots.end(Ended::Closed, &mut wakes);
        match self.srq.get_mut().unwrap_or_else(PoisonError::into_inner).withdraw() {
            Ok(()) => discard(self.slots.give_up(&mut wakes)),
            // Queue pairs that were taken out of the hub may still use it.
            Err(_) => self.slots.lose(Ended::Closed, &mut wakes),
        }
    }
}

/// A shared receive queue whose requests are awaited. Clones are handles of the same queue.
///
/// The completion says which queue pair received a message:
/// [`WorkCompletion::qp_num`](mlx5::WorkCompletion::qp_num). For `K` see
/// [`AsyncQueuePair`](crate::AsyncQueuePair).
///
/// Dropping the last handle and the last queue pair of the hub that uses the queue destroys it.
/// Requests for which no message arrived then fail with
/// [`FailedBecause::Unused`](crate::FailedBecause::Unused) and return their kept values. If a queue
/// pair is destroyed or reset before the pump has polled a message for it, the message's request
/// fails with [`FailedBecause::Discarded`](crate::FailedBecause::Discarded).
pub struct AsyncSharedReceiveQueue<K> {
    shared: Arc<Shared<K>>,
    target: CompletionTarget,
}

impl<K> Clone for AsyncSharedReceiveQueue<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), target: self.target.clone() }
    }
}

impl<K> fmt::Debug for AsyncSharedReceiveQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSharedReceiveQueue")
            .field("number", &self.shared.number)
            .finish_non_exhaustive()
    }
}

impl<K: Send + 'static> AsyncSharedReceiveQueue<K> {
    pub(crate) fn new(
        registry: &Arc<Registry>,
        room: u32,
        target: &CompletionTarget,
        srq: SharedReceiveQueue,
    ) -> Result<Self, NotAdded> {
        if srq.completes_on(target) == Some(false) {
            return Err(NotAdded::OtherSharedReceiveQueue);
        }
        let capacity = srq.capacity().min(Name::SLOTS);
        let shared = registry.add_receives(capacity, room, srq.srqn(), |number| Shared {
            srq: Mutex::new(srq),
            slots: Arc::new(Slots::new(capacity)),
            number,
            registry: Arc::clone(registry),
        })?;
        Ok(Self { shared, target: target.clone() })
    }
}

impl<K> AsyncSharedReceiveQueue<K> {
    /// Passes `build` a builder of a queue pair that takes its receive requests from this queue,
    /// and completes on the hub's completion queue. Pass the result to
    /// [`Hub::adopt`](crate::Hub::adopt).
    ///
    /// The queue is locked while `build` runs: connect the queue pair, and post to this queue,
    /// after that.
    pub fn create_qp<T: QueuePairTransport, R>(
        &self,
        pd: &ProtectionDomain,
        build: impl FnOnce(QueuePairBuilder<'_, T>) -> R,
    ) -> R {
        let builder = pd.create_qp_on(self.target.clone(), self.target.clone());
        build(builder.srq(&self.shared.srq()))
    }

    /// Posts a receive request, and returns its future. Waits while the queue is full.
    /// [`Sge::default`] stands for no buffer.
    pub async fn submit_recv(&self, keep: K, sge: Sge) -> Result<Request<K>, Refused<K>> {
        let slot = self.in_turn(keep, sge, To::Future).await?;
        Ok(Request::new(&self.shared.slots, slot))
    }

    /// Posts a receive request whose completion goes to [`AsyncSharedReceiveQueue::receives`].
    /// Waits while the queue is full.
    pub async fn post_recv(&self, keep: K, sge: Sge) -> Result<(), Refused<K>> {
        self.in_turn(keep, sge, To::Stream).await.map(drop)
    }

    async fn in_turn(&self, keep: K, sge: Sge, to: To) -> Result<u32, Refused<K>> {
        let attempt = |slot| self.shared.recv(slot, sge);
        post_in_turn(&self.shared.slots, keep, Want::one(to), attempt).await
    }

    /// As [`AsyncSharedReceiveQueue::post_recv`], but instead of waiting fails with
    /// [`RefusedBecause::Full`].
    pub fn try_post_recv(&self, keep: K, sge: Sge) -> Result<(), Refused<K>> {
        let attempt = |slot| self.shared.recv(slot, sge);
        try_post(&self.shared.slots, keep, Want::one(To::Stream), attempt).map(drop)
    }

    /// Returns the stream of the requests that [`AsyncSharedReceiveQueue::post_recv`] posted: the
    /// messages to queue pairs without a stream of their own.
    pub fn receives(&self) -> Completions<K> {
        Completions::new(&self.shared.slots, None)
    }

    /// Returns a stream of the messages to one queue pair, by its number
    /// ([`QueuePair::qp_num`](mlx5::QueuePair::qp_num)). Create it before the first message can
    /// arrive. After it is dropped, [`AsyncSharedReceiveQueue::receives`] gets the results that it
    /// has not taken, and later ones.
    pub fn receives_of(&self, qp_num: u32) -> Completions<K> {
        Completions::new(&self.shared.slots, Some(qp_num))
    }

    /// Returns the number of requests that are posted and have not completed.
    pub fn in_flight(&self) -> u32 {
        self.shared.slots.posted()
    }

    /// Requests one event when fewer than `limit` requests are left; see
    /// [`Hub::device_events`](crate::Hub::device_events).
    pub fn set_limit(&self, limit: u32) -> Result<(), mlx5::Error> {
        self.shared.srq().set_limit(limit)
    }
}
