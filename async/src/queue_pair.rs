//! Queue pairs whose requests are awaited.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlx5::{ErrorKind, QueuePairTransport, QueueState, SendFlags, Sge, WorkCompletion, Wr};

use crate::error::{Ended, Refused, RefusedBecause};
use crate::posting::{post_in_turn, try_post};
use crate::registry::{Name, NotAdded, Registry, Route};
use crate::request::{Completions, Request};
use crate::slots::{Slots, To, Want};
use crate::wakes::Wakes;

/// A queue pair with its slots.
struct Shared<T: QueuePairTransport, K> {
    // Destroyed before the slots: after that the device uses nothing of what they keep.
    qp: Mutex<Option<mlx5::QueuePair<T>>>,
    send: Arc<Slots<K>>,
    receive: Arc<Slots<K>>,
    number: u32,
    closed: AtomicBool,
    registry: Arc<Registry>,
}

impl<T: QueuePairTransport, K> Shared<T, K> {
    fn qp(&self) -> MutexGuard<'_, Option<mlx5::QueuePair<T>>> {
        // A batch that is dropped by a panic posts nothing.
        self.qp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        self.send.is_idle() && self.receive.is_idle()
    }

    fn end(&self, end: Ended, wakes: &mut Wakes) {
        self.send.end(end, wakes);
        self.receive.end(end, wakes);
    }

    /// Takes no more requests, and flushes those that are posted. Returns whether none is.
    fn flush(&self) -> bool {
        let mut wakes = Wakes::default();
        self.end(Ended::Closed, &mut wakes);
        let first = !self.closed.swap(true, Ordering::AcqRel);
        let mut qp = self.qp();
        if first && let Some(open) = qp.as_mut().filter(|qp| qp.state() != QueueState::Reset) {
            match open.to_error() {
                Ok(()) => {}
                // The pump hears of it, and says so to everyone.
                Err(error) if error.kind() == ErrorKind::DeviceGone => {}
                Err(_) => {
                    // Nothing would complete. If it cannot be destroyed either, the driver keeps
                    // its memory.
                    *qp = None;
                    self.end(Ended::Destroyed, &mut wakes);
                }
            }
        }
        drop(qp);
        wakes.wake();
        self.is_idle()
    }

    /// Removes the queue pair from the hub, if it is closed and has nothing posted.
    fn leave_if_over(&self) {
        if self.closed.load(Ordering::Acquire) && self.is_idle() {
            self.registry.remove(self.number, self.completions());
        }
    }

    fn completions(&self) -> u32 {
        self.send.capacity() + self.receive.capacity()
    }

    /// Posts the parts of a request.
    fn post(
        &self,
        slot: u32,
        flags: SendFlags,
        parts: u32,
        mut build: impl FnMut(u32, Wr<'_, '_, T>),
    ) -> Result<(), RefusedBecause> {
        let mut qp = self.qp();
        let Some(qp) = &mut *qp else { return Err(RefusedBecause::NotAdopted) };
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

    fn recv(
        &self,
        qp: Option<&mut mlx5::QueuePair<T>>,
        slot: u32,
        sge: Sge,
    ) -> Result<(), RefusedBecause> {
        let name = Name { queue: self.number, receive: true, last: true, slot };
        let posted = match qp {
            Some(qp) => qp.recv(name.wr_id(), sge),
            None => match &mut *self.qp() {
                Some(qp) => qp.recv(name.wr_id(), sge),
                None => return Err(RefusedBecause::NotAdopted),
            },
        };
        posted.map_err(RefusedBecause::Receive)
    }
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
        let side = if name.receive { &self.receive } else { &self.send };
        let failed = !completion.is_success();
        let dropped =
            side.complete(name.slot, name.last, completion.to_owned(), failed, wakes).ok()?;
        drop(dropped);
        Some(self.closed.load(Ordering::Acquire) && self.is_idle())
    }

    fn close(&self) -> bool {
        let over = self.flush();
        self.leave_if_over();
        over
    }

    fn lose(&self, end: Ended, wakes: &mut Wakes) {
        self.end(end, wakes);
    }

    fn completions(&self) -> u32 {
        Shared::completions(self)
    }
}

/// The handles of a queue pair: with the last one it is closed.
struct Handles<T: QueuePairTransport, K>(Arc<Shared<T, K>>);

impl<T: QueuePairTransport, K> Drop for Handles<T, K> {
    fn drop(&mut self) {
        self.0.flush();
        self.0.leave_if_over();
    }
}

/// The place of a queue pair in a hub, before it is connected: receives can be posted that the peer's
/// first messages need.
///
/// Dropping it gives the place up. What was posted keeps what it has until it completes.
#[must_use = "a seat waits for its queue pair: see `Seat::adopt`"]
pub struct Seat<T: QueuePairTransport, K> {
    handles: Handles<T, K>,
    qp_num: u32,
}

impl<T: QueuePairTransport, K> fmt::Debug for Seat<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("qp_num", &self.qp_num).finish_non_exhaustive()
    }
}

impl<T: QueuePairTransport + 'static, K: Send + 'static> Seat<T, K>
where
    mlx5::QueuePair<T>: Send,
{
    /// A place for a queue pair whose completions go to a queue with room for `room` of them.
    pub(crate) fn new(
        registry: &Arc<Registry>,
        room: u32,
        qp: &mlx5::QueuePair<T>,
    ) -> Result<Self, NotAdded> {
        let caps = qp.caps();
        let receives = if qp.has_srq() { 0 } else { caps.max_recv_wr };
        let sides = [caps.max_send_wr, receives].map(|of| of.min(Name::SLOTS));
        let shared = registry.add(sides[0] + sides[1], room, |number| Shared {
            qp: Mutex::new(None),
            send: Arc::new(Slots::new(sides[0])),
            receive: Arc::new(Slots::new(sides[1])),
            number,
            closed: AtomicBool::new(false),
            registry: Arc::clone(registry),
        })?;
        Ok(Self { handles: Handles(shared), qp_num: qp.qp_num() })
    }

    /// Posts a receive request, whose completion goes to [`AsyncQueuePair::receives`].
    pub fn post_recv(
        &self,
        qp: &mut mlx5::QueuePair<T>,
        keep: K,
        sge: Sge,
    ) -> Result<(), Refused<K>> {
        let shared = &*self.handles.0;
        if qp.qp_num() != self.qp_num {
            return Err(Refused { keep, because: RefusedBecause::NotAdopted });
        }
        try_post(&shared.receive, keep, Want::one(To::Stream), |slot| {
            shared.recv(Some(qp), slot, sge)
        })
        .map(drop)
    }

    /// Takes the queue pair over: from now on, requests are posted by the handle that is returned. If
    /// it is another one than the seat was reserved for, it is destroyed.
    pub fn adopt(self, qp: mlx5::QueuePair<T>) -> Result<AsyncQueuePair<T, K>, NotAdded> {
        if qp.qp_num() != self.qp_num {
            return Err(NotAdded::OtherQueuePair);
        }
        *self.handles.0.qp() = Some(qp);
        Ok(AsyncQueuePair { handles: Arc::new(self.handles) })
    }
}

/// A queue pair whose requests are awaited. Clones are handles of the same queue pair; when the last
/// one is dropped, it is closed.
///
/// `K` is what each request keeps until the device is done with it, and gives back then: the memory
/// region of a buffer, its number in a pool, or `()`. It is kept in the request's slot: nothing is
/// allocated. Memory stays safe without it, because a region deregisters itself before its memory is
/// freed; a request whose region is gone fails.
///
/// `submit…` returns a future of its own for each request; `post…` delivers the completion to the
/// queue's stream. Calls without `try_` wait, first come first served, while the queue is full.
///
/// A queue pair on which a request fails is in the error state: each of its other requests is
/// flushed, and so fails as well. [`AsyncQueuePair::close`] returns it, to be reset and connected
/// anew.
pub struct AsyncQueuePair<T: QueuePairTransport, K> {
    handles: Arc<Handles<T, K>>,
}

impl<T: QueuePairTransport, K> Clone for AsyncQueuePair<T, K> {
    fn clone(&self) -> Self {
        Self { handles: Arc::clone(&self.handles) }
    }
}

impl<T: QueuePairTransport, K> fmt::Debug for AsyncQueuePair<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncQueuePair")
            .field("number", &self.handles.0.number)
            .finish_non_exhaustive()
    }
}

impl<T: QueuePairTransport, K> AsyncQueuePair<T, K> {
    fn shared(&self) -> &Shared<T, K> {
        &self.handles.0
    }

    /// Posts a request that `build` adds, and returns its future. Waits while the queue is full. The
    /// request is signaled, whatever `flags` says.
    ///
    /// Dropped while it waits, nothing is posted. `build` may be called again after the queue was
    /// found full.
    pub async fn submit(
        &self,
        keep: K,
        flags: SendFlags,
        mut build: impl FnMut(Wr<'_, '_, T>),
    ) -> Result<Request<K>, Refused<K>> {
        self.submit_batch(keep, flags, 1, |_, wr| build(wr)).await
    }

    /// Posts a batch of `count` requests, which have one future: it is done when all of them are. The
    /// last one is signaled; if one fails, the first error is told.
    ///
    /// `build` gets the number of each request. All are posted, or none.
    pub async fn submit_batch(
        &self,
        keep: K,
        flags: SendFlags,
        count: u32,
        build: impl FnMut(u32, Wr<'_, '_, T>),
    ) -> Result<Request<K>, Refused<K>> {
        let slot = self.in_turn(keep, Want { parts: count, to: To::Future }, flags, build).await?;
        Ok(Request::new(&self.shared().send, slot))
    }

    /// Posts a request whose completion goes to [`AsyncQueuePair::sends`]. Waits while the queue is
    /// full.
    pub async fn post(
        &self,
        keep: K,
        flags: SendFlags,
        mut build: impl FnMut(Wr<'_, '_, T>),
    ) -> Result<(), Refused<K>> {
        let want = Want::one(To::Stream);
        self.in_turn(keep, want, flags, |_, wr| build(wr)).await.map(drop)
    }

    async fn in_turn(
        &self,
        keep: K,
        want: Want,
        flags: SendFlags,
        mut build: impl FnMut(u32, Wr<'_, '_, T>),
    ) -> Result<u32, Refused<K>> {
        let shared = self.shared();
        let attempt = |slot| shared.post(slot, flags, want.parts, &mut build);
        let posted = post_in_turn(&shared.send, keep, want, attempt).await;
        if posted.is_err() {
            shared.leave_if_over();
        }
        posted
    }

    /// As [`AsyncQueuePair::submit`], but fails with [`RefusedBecause::Full`] where that one waits.
    pub fn try_submit(
        &self,
        keep: K,
        flags: SendFlags,
        build: impl FnOnce(Wr<'_, '_, T>),
    ) -> Result<Request<K>, Refused<K>> {
        let slot = self.now(keep, To::Future, flags, build)?;
        Ok(Request::new(&self.shared().send, slot))
    }

    /// As [`AsyncQueuePair::post`], but fails with [`RefusedBecause::Full`] where that one waits.
    pub fn try_post(
        &self,
        keep: K,
        flags: SendFlags,
        build: impl FnOnce(Wr<'_, '_, T>),
    ) -> Result<(), Refused<K>> {
        self.now(keep, To::Stream, flags, build).map(drop)
    }

    fn now(
        &self,
        keep: K,
        to: To,
        flags: SendFlags,
        build: impl FnOnce(Wr<'_, '_, T>),
    ) -> Result<u32, Refused<K>> {
        let shared = self.shared();
        let mut build = Some(build);
        let posted = try_post(&shared.send, keep, Want::one(to), |slot| {
            shared.post(slot, flags, 1, |_, wr| {
                if let Some(build) = build.take() {
                    build(wr);
                }
            })
        });
        if posted.is_err() {
            shared.leave_if_over();
        }
        posted
    }

    /// Posts a receive request, and returns its future. Waits while the queue is full.
    /// [`Sge::default`] stands for no buffer.
    pub async fn submit_recv(&self, keep: K, sge: Sge) -> Result<Request<K>, Refused<K>> {
        let slot = self.receive_in_turn(keep, sge, To::Future).await?;
        Ok(Request::new(&self.shared().receive, slot))
    }

    /// Posts a receive request whose completion goes to [`AsyncQueuePair::receives`]. Waits while the
    /// queue is full.
    pub async fn post_recv(&self, keep: K, sge: Sge) -> Result<(), Refused<K>> {
        self.receive_in_turn(keep, sge, To::Stream).await.map(drop)
    }

    async fn receive_in_turn(&self, keep: K, sge: Sge, to: To) -> Result<u32, Refused<K>> {
        let shared = self.shared();
        let attempt = |slot| shared.recv(None, slot, sge);
        let posted = post_in_turn(&shared.receive, keep, Want::one(to), attempt).await;
        if posted.is_err() {
            shared.leave_if_over();
        }
        posted
    }

    /// Returns the stream of what [`AsyncQueuePair::post`] has posted.
    pub fn sends(&self) -> Completions<K> {
        Completions::new(&self.shared().send)
    }

    /// Returns the stream of what [`AsyncQueuePair::post_recv`] has posted.
    pub fn receives(&self) -> Completions<K> {
        Completions::new(&self.shared().receive)
    }

    /// Takes no more sends, and waits until all that were posted have completed. Receives go on.
    pub async fn drain(&self) -> Result<(), Ended> {
        let mut wakes = Wakes::default();
        self.shared().send.end(Ended::Closed, &mut wakes);
        wakes.wake();
        poll_fn(|cx| self.shared().send.poll_idle(cx)).await
    }

    /// Closes the queue pair, for all of its handles: takes no more requests, flushes those that are
    /// posted, and waits until they have completed. Returns the queue pair, which is in the error
    /// state, unless another handle has closed it.
    ///
    /// Sends that were posted and have not begun are flushed as well:
    /// [`AsyncQueuePair::drain`] before lets them be done.
    pub async fn close(self) -> Result<mlx5::QueuePair<T>, Ended> {
        let shared = self.shared();
        shared.flush();
        poll_fn(|cx| shared.send.poll_idle(cx)).await?;
        poll_fn(|cx| shared.receive.poll_idle(cx)).await?;
        let qp = shared.qp().take();
        shared.leave_if_over();
        qp.ok_or(Ended::Closed)
    }
}
