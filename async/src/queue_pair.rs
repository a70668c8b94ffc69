//! Queue pairs whose requests are awaited.

use std::fmt;
use std::sync::Arc;

use mlx5::{CompletionError, QueuePairTransport, SendFlags, Sge, Wr};

use crate::error::{Ended, Refused};
use crate::posting::{post_in_turn, try_post};
use crate::request::{Completions, Request, idle};
use crate::shared::{Handles, Shared};
use crate::slots::{To, Want};
use crate::wakes::Wakes;

/// A queue pair whose requests are awaited. Clones are handles of the same queue pair; dropping the
/// last one closes it.
///
/// `K` is the value that each request keeps until the device is done with it, and returns then: the
/// memory region of a buffer, its number in a pool, or `()`. The request's slot stores it: nothing
/// is allocated. Memory is safe without it, because a region deregisters itself before its memory
/// is freed; a request whose region was deregistered fails.
///
/// `submit…` returns a future for each request; `post…` delivers the completion to the queue's
/// stream. While the queue is full, calls without `try_` wait, and are woken in order of arrival.
///
/// The queue pair is locked while a call's `build` runs, which therefore must not post to it
/// otherwise, nor shut down the hub.
///
/// A queue pair on which a request fails is in the error state: each of its other requests is
/// flushed, and so fails as well. [`AsyncQueuePair::first_error`] returns the cause.
/// [`AsyncQueuePair::close`] returns the queue pair, to be reset and connected again.
pub struct AsyncQueuePair<T: QueuePairTransport, K> {
    handles: Arc<Handles<T, K>>,
}

/// Removes a closed queue pair if the slot just given back was its last; this also covers a panic
/// of the caller's closure.
struct Leaving<'a, T: QueuePairTransport, K>(&'a Shared<T, K>);

impl<T: QueuePairTransport, K> Drop for Leaving<'_, T, K> {
    fn drop(&mut self) {
        self.0.leave_if_over();
    }
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
    pub(crate) fn new(handles: Handles<T, K>) -> Self {
        Self { handles: Arc::new(handles) }
    }

    fn shared(&self) -> &Shared<T, K> {
        &self.handles.0
    }

    /// Posts a request that `build` adds, and returns its future. Waits while the queue is full.
    /// The request is signaled, whatever `flags` says.
    ///
    /// If the call is dropped while it waits, nothing is posted. `build` may be called again if the
    /// queue was full.
    pub async fn submit(
        &self,
        keep: K,
        flags: SendFlags,
        mut build: impl FnMut(Wr<'_, '_, T>),
    ) -> Result<Request<K>, Refused<K>> {
        self.submit_batch(keep, flags, 1, |_, wr| build(wr)).await
    }

    /// Posts a batch of `count` requests with one future, which completes when all of them are
    /// done. The last one is signaled; if one fails, the future returns the first error.
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
        let Leaving(shared) = &Leaving(self.shared());
        let attempt = |slot| shared.post(slot, flags, want.parts, &mut build);
        post_in_turn(&shared.send, keep, want, attempt).await
    }

    /// As [`AsyncQueuePair::submit`], but instead of waiting fails with
    /// [`RefusedBecause::Full`](crate::RefusedBecause::Full).
    pub fn try_submit(
        &self,
        keep: K,
        flags: SendFlags,
        build: impl FnOnce(Wr<'_, '_, T>),
    ) -> Result<Request<K>, Refused<K>> {
        let slot = self.now(keep, To::Future, flags, build)?;
        Ok(Request::new(&self.shared().send, slot))
    }

    /// As [`AsyncQueuePair::post`], but instead of waiting fails with
    /// [`RefusedBecause::Full`](crate::RefusedBecause::Full).
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
        let Leaving(shared) = &Leaving(self.shared());
        let mut build = Some(build);
        try_post(&shared.send, keep, Want::one(to), |slot| {
            shared.post(slot, flags, 1, |_, wr| {
                if let Some(build) = build.take() {
                    build(wr);
                }
            })
        })
    }

    /// Posts a receive request, and returns its future. Waits while the queue is full.
    /// [`Sge::default`] stands for no buffer.
    pub async fn submit_recv(&self, keep: K, sge: Sge) -> Result<Request<K>, Refused<K>> {
        let slot = self.receive_in_turn(keep, sge, To::Future).await?;
        Ok(Request::new(&self.shared().receive, slot))
    }

    /// Posts a receive request whose completion goes to [`AsyncQueuePair::receives`]. Waits while
    /// the queue is full.
    pub async fn post_recv(&self, keep: K, sge: Sge) -> Result<(), Refused<K>> {
        self.receive_in_turn(keep, sge, To::Stream).await.map(drop)
    }

    /// As [`AsyncQueuePair::post_recv`], but instead of waiting fails with
    /// [`RefusedBecause::Full`](crate::RefusedBecause::Full).
    pub fn try_post_recv(&self, keep: K, sge: Sge) -> Result<(), Refused<K>> {
        self.handles.0.try_post_recv(keep, sge)
    }

    async fn receive_in_turn(&self, keep: K, sge: Sge, to: To) -> Result<u32, Refused<K>> {
        let Leaving(shared) = &Leaving(self.shared());
        if let Err(because) = shared.can_receive() {
            return Err(Refused { keep, because, first: shared.first_error() });
        }
        post_in_turn(&shared.receive, keep, Want::one(to), |slot| shared.recv(slot, sge)).await
    }

    /// Returns the error of the request that failed first, ignoring flushed ones: the cause of the
    /// queue pair's error state. It stays available if the request's future was dropped, and is
    /// part of the queue pair's later errors. Errors of receives from a shared queue do not count:
    /// they are results of that queue.
    pub fn first_error(&self) -> Option<CompletionError> {
        self.shared().first_error()
    }

    /// Returns the number of the queue pair in the device.
    pub fn qp_num(&self) -> u32 {
        self.shared().qp_num()
    }

    /// Returns the stream of the requests that [`AsyncQueuePair::post`] posted.
    pub fn sends(&self) -> Completions<K> {
        Completions::new(&self.shared().send, None)
    }

    /// Returns the stream of the requests that [`AsyncQueuePair::post_recv`] posted.
    pub fn receives(&self) -> Completions<K> {
        Completions::new(&self.shared().receive, None)
    }

    /// Takes no more sends, and waits until all posted ones have completed. Receives continue.
    pub async fn drain(&self) -> Result<(), Ended> {
        let mut wakes = Wakes::default();
        self.shared().send.end(Ended::Closed, &mut wakes);
        wakes.wake();
        idle(&self.shared().send).await
    }

    /// Closes the queue pair for all of its handles: takes no more requests, flushes the posted
    /// ones, and waits until they have completed. Returns the queue pair, which is in the error
    /// state, unless another handle has closed it.
    ///
    /// With a shared receive queue, it also waits until the pump has polled the messages that
    /// arrived.
    ///
    /// If it is dropped while it waits, for example after a time limit, the queue pair and the
    /// values that its requests keep stay in the hub until they have completed or the pump has
    /// ended.
    ///
    /// Posted sends that have not begun are flushed as well; to let them finish, call
    /// [`AsyncQueuePair::drain`] before.
    pub async fn close(self) -> Result<mlx5::QueuePair<T>, Ended> {
        let shared = self.shared();
        shared.flush();
        idle(&shared.send).await?;
        idle(&shared.receive).await?;
        let qp = shared.qp().take();
        shared.leave_if_over();
        qp.ok_or(Ended::Closed)
    }
}
