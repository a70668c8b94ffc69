//! State that the handles of a queue pair share, and its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use mlx5::{
    CompletionError, ErrorKind, QueuePairLife, QueuePairTransport, QueueState, SendFlags, Sge,
    WorkCompletion, Wr,
};

use crate::error::{Ended, Refused, RefusedBecause};
use crate::posting::try_post;
use crate::registry::{Name, Registry, Route};
use crate::slots::{Cause, Slots, To, Want};
use crate::wakes::{Place, Wakes, discard};

/// A queue pair with its slots.
pub(crate) struct Shared<T: QueuePairTransport, K> {
    // Dropped before the slots: after that the device uses none of the values that they keep.
    qp: Mutex<Option<mlx5::QueuePair<T>>>,
    /// Set for a queue pair that the program took and did not return, while it exists.
    away: Mutex<Option<QueuePairLife>>,
    pub(crate) send: Arc<Slots<K>>,
    pub(crate) receive: Arc<Slots<K>>,
    pub(crate) number: u32,
    qp_num: u32,
    closed: AtomicBool,
    registry: Arc<Registry>,
    /// The shared receive queue, which exists as long as a queue pair uses it.
    receives: Option<Arc<dyn Route>>,
}

impl<T: QueuePairTransport, K> Shared<T, K> {
    pub(crate) fn new(
        registry: &Arc<Registry>,
        number: u32,
        qp: mlx5::QueuePair<T>,
        receives: Option<Arc<dyn Route>>,
    ) -> Self {
        let cause = Cause::default();
        let slots = |capacity| Arc::new(Slots::with_cause(capacity, Some(Arc::clone(&cause))));
        let [send, receive] = sides(&qp).map(slots);
        if receives.is_some() {
            receive.need_drain();
        }
        let (qp_num, qp) = (qp.qp_num(), Mutex::new(Some(qp)));
        let (closed, registry) = (AtomicBool::new(false), Arc::clone(registry));
        let away = Mutex::default();
        Self { qp, away, send, receive, number, qp_num, closed, registry, receives }
    }

    pub(crate) fn qp(&self) -> MutexGuard<'_, Option<mlx5::QueuePair<T>>> {
        // A batch that a panic drops posts nothing.
        self.qp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the life of the queue pair that was not returned, if there is one.
    pub(crate) fn away(&self) -> Option<QueuePairLife> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_away(&self, own: Option<&QueuePairLife>) {
        *self.away.lock().unwrap_or_else(PoisonError::into_inner) = own.cloned();
    }

    /// Returns the reason why the queue pair is not here.
    pub(crate) fn absent(&self) -> Ended {
        match self.away() {
            Some(own) if !own.is_over() => Ended::Elsewhere,
            _ => Ended::Destroyed,
        }
    }

    /// Returns the reason why no request can be posted while the queue pair is not here.
    fn refuse(&self) -> RefusedBecause {
        match self.away() {
            Some(_) => RefusedBecause::Ended(self.absent()),
            None => RefusedBecause::Taken,
        }
    }

    /// Whether no more completions will arrive.
    fn is_over(&self) -> bool {
        self.send.is_over() && self.receive.is_over()
    }

    /// Takes no more requests, and flushes the posted ones.
    ///
    /// The flush completes no request of a shared receive queue. The completions of messages that
    /// have arrived are in the completion queue, and polling skips them once the queue pair is
    /// destroyed, so it must exist until the pump has polled them. A device may also complete
    /// messages that were arriving after the flush, until it reports
    /// [`AsyncEvent::QpLastWqeReached`](mlx5::AsyncEvent::QpLastWqeReached). This does not wait for
    /// that event, because no task may read the events: if the queue pair is destroyed before such
    /// a message is polled, its request fails as
    /// [`FailedBecause::Discarded`](crate::FailedBecause::Discarded).
    pub(crate) fn flush(&self) {
        let mut wakes = Wakes::default();
        self.send.end(Ended::Closed, &mut wakes);
        self.receive.end(Ended::Closed, &mut wakes);
        self.closed.store(true, Ordering::Release);
        let mut qp = self.qp();
        // If the program has it, it is flushed when it returns.
        let is_here = qp.is_some();
        let flushed = match qp.as_mut() {
            // A queue pair that was not returned may have been destroyed since.
            None => self.away().is_none_or(|own| !own.is_over()),
            Some(qp) => match qp.state() {
                QueueState::Error => true,
                // The reset dropped the posted requests.
                QueueState::Reset => self.send.posted() + self.receive.posted() == 0,
                // If the device is gone, the pump detects it, and fails every request.
                _ => qp
                    .to_error()
                    .map_or_else(|error| error.kind() == ErrorKind::DeviceGone, |()| true),
            },
        };
        if !flushed {
            // Nothing would complete. If it cannot be destroyed either, the driver keeps its
            // memory.
            *qp = None;
            self.lose(Ended::Destroyed, &mut wakes);
        }
        drop(qp);
        wakes.wake();
        if is_here && self.receive.is_undrained() {
            self.registry.drain(self.number);
        }
    }

    /// Takes a queue pair back; or records that it is elsewhere, or destroyed.
    pub(crate) fn give_back(&self, qp: Option<mlx5::QueuePair<T>>, own: &QueuePairLife) {
        let is_here = qp.is_some();
        *self.qp() = qp;
        if !is_here && own.is_over() {
            let mut wakes = Wakes::default();
            self.closed.store(true, Ordering::Release);
            self.set_away(None);
            self.lose(Ended::Destroyed, &mut wakes);
            self.leave_if_over();
            return;
        }
        self.set_away(Some(own).filter(|_| !is_here));
        if self.closed.load(Ordering::Acquire) {
            // The queue pair was closed meanwhile.
            self.flush();
            self.leave_if_over();
        }
    }

    /// Removes the queue pair from the hub, if it is closed and no more completions will arrive.
    pub(crate) fn leave_if_over(&self) {
        if self.closed.load(Ordering::Acquire) && self.is_over() {
            self.registry.remove(self.number, self.completions());
        }
    }

    /// Posts the parts of a request.
    pub(crate) fn post(
        &self,
        slot: u32,
        flags: SendFlags,
        parts: u32,
        mut build: impl FnMut(u32, Wr<'_, '_, T>),
    ) -> Result<(), RefusedBecause> {
        let mut qp = self.qp();
        let Some(qp) = &mut *qp else { return Err(self.refuse()) };
        let posted = qp.post(|batch| {
            for part in 0..parts {
                let last = part + 1 == parts;
                let name = Name { queue: self.number, receive: false, last, slot };
                let flags = if last { flags | SendFlags::SIGNALED } else { flags };
                build(part, batch.wr(name.wr_id(), flags));
            }
        });
        posted.map_err(RefusedBecause::Send)
    }

    pub(crate) fn recv(&self, slot: u32, sge: Sge) -> Result<(), RefusedBecause> {
        let name = Name { queue: self.number, receive: true, last: true, slot };
        match &mut *self.qp() {
            Some(qp) => qp.recv(name.wr_id(), sge).map_err(RefusedBecause::Receive),
            None => Err(self.refuse()),
        }
    }

    /// Posts a receive request for the stream, if there is room at once.
    pub(crate) fn try_post_recv(&self, keep: K, sge: Sge) -> Result<(), Refused<K>> {
        if let Err(because) = self.can_receive() {
            return Err(Refused { keep, because, first: self.first_error() });
        }
        let want = Want::one(To::Stream);
        let posted = try_post(&self.receive, keep, want, |slot| self.recv(slot, sge));
        if posted.is_err() {
            self.leave_if_over();
        }
        posted.map(drop)
    }

    pub(crate) fn first_error(&self) -> Option<CompletionError> {
        self.send.first_error()
    }

    pub(crate) fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// Fails if the queue pair has no receive queue of its own.
    pub(crate) fn can_receive(&self) -> Result<(), RefusedBecause> {
        match self.receives {
            Some(_) => Err(RefusedBecause::SharedReceives),
            None => Ok(()),
        }
    }

    fn lose(&self, end: Ended, wakes: &mut Wakes) {
        self.send.lose(end, wakes);
        self.receive.lose(end, wakes);
    }

    fn completions(&self) -> u32 {
        self.send.capacity() + self.receive.capacity()
    }
}

/// Number of requests that the two queues of a queue pair hold.
pub(crate) fn sides<T: QueuePairTransport>(qp: &mlx5::QueuePair<T>) -> [u32; 2] {
    let caps = qp.caps();
    let receives = if qp.has_srq() { 0 } else { caps.max_recv_wr };
    [caps.max_send_wr, receives].map(|of| of.min(Name::SLOTS))
}

impl<T: QueuePairTransport, K: Send> Route for Shared<T, K>
where
    mlx5::QueuePair<T>: Send,
{
    fn complete(
        &self,
        name: Name,
        completion: &WorkCompletion<'_>,
        wakes: &mut Wakes,
    ) -> Option<bool> {
        // Completions of separate queues have other numbers, and those of packets their flow tags.
        if !T::SEPARATE && completion.qp_num() != self.qp_num {
            return None;
        }
        let side = if name.receive { &self.receive } else { &self.send };
        let failed = !completion.is_success();
        let dropped =
            side.complete(name.slot, name.last, completion.to_owned(), failed, wakes).ok()?;
        discard(dropped);
        Some(self.closed.load(Ordering::Acquire) && self.is_over())
    }

    fn close(&self) {
        self.flush();
        self.leave_if_over();
    }

    fn note_drained(&self, wakes: &mut Wakes) {
        self.receive.note_drained(wakes);
        self.leave_if_over();
    }

    fn take_discarded(&self, _: &mut Wakes) {}

    fn end_sends(&self) {
        let mut wakes = Wakes::default();
        self.send.end(Ended::Closed, &mut wakes);
    }

    fn poll_sent(&self, cx: &Context<'_>, place: &mut Place) -> Poll<Result<(), Ended>> {
        self.send.poll_idle(cx, place)
    }

    fn leave_sent(&self, place: &mut Place) {
        self.send.leave_idle(place);
    }

    fn lose(&self, end: Ended, wakes: &mut Wakes) {
        Shared::lose(self, end, wakes);
    }

    fn completions(&self) -> u32 {
        Shared::completions(self)
    }
}

/// The handles of a queue pair: dropping the last one closes it.
pub(crate) struct Handles<T: QueuePairTransport, K>(pub(crate) Arc<Shared<T, K>>);

impl<T: QueuePairTransport, K> Drop for Handles<T, K> {
    fn drop(&mut self) {
        self.0.flush();
        self.0.leave_if_over();
        if self.0.is_over() {
            // The pump may keep a reference for a while.
            drop(self.0.qp().take());
        }
    }
}
