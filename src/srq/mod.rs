//! Shared receive queues.

mod builder;
mod control;
mod inner;
mod raw;
mod xrc;

use crate::cq::CompletionTarget;
use crate::error::{DestroyError, Error};
use mlx5_wqe::{Faulted, ListError, PostError, ReceiveWr, Repost, Sge, SharedReceiveQueue as Ring};
use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

pub use builder::SharedReceiveQueueBuilder;
pub(crate) use builder::{Kind, Sizes, make};
pub use control::SrqControl;
pub(crate) use inner::{SrqInner, Taken};
pub use raw::RawSharedReceiveQueue;
pub use xrc::{XrcDomain, XrcOpen};

/// The attributes of a shared receive queue, as the kernel returns them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqInfo {
    /// The maximum number of outstanding requests.
    pub max_wr: u32,
    /// The maximum number of SGEs of a request.
    pub max_sge: u32,
    /// The limit, or zero if none is set.
    pub limit: u32,
}

/// A shared receive queue (`struct ibv_srq`): several queue pairs receive from it.
///
/// ```no_run
/// # use mlx5::{CompletionQueue, MemoryRegion, ProtectionDomain, transport::Rc};
/// # fn f(pd: &ProtectionDomain, cq: &CompletionQueue, memory: &MemoryRegion)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let mut srq = pd.create_srq(256).build()?;
/// for wr_id in 0..256 {
///     let at = wr_id as usize * 64;
///     srq.recv(wr_id, memory.sge(at..at + 64)?)?;
/// }
/// // One event when fewer than 32 are left.
/// srq.set_limit(32)?;
/// // Whichever of them gets a message takes the next request.
/// let first = pd.create_qp::<Rc>(cq, cq).srq(&srq).build()?;
/// let second = pd.create_qp::<Rc>(cq, cq).srq(&srq).build()?;
/// # let _ = (first, second);
/// # Ok(())
/// # }
/// ```
pub struct SharedReceiveQueue {
    pub(crate) ring: Ring,
    pub(crate) inner: Arc<SrqInner>,
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("srqn", &format_args!("{:#x}", self.inner.srqn))
            .field("state", &format_args!("{}", self.inner.state_name()))
            .field("capacity", &self.capacity())
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

impl SharedReceiveQueue {
    /// Returns a reference for a queue pair that takes from the queue.
    pub(crate) fn take(&self) -> Taken {
        Taken::new(&self.inner)
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap, unless it was
    /// destroyed. See [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.inner.handle()
    }

    /// Posts a list of receive requests (`ibv_post_srq_recv`). Requests before the first bad one
    /// are posted.
    #[inline]
    pub fn post_recv(&mut self, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
        self.ring.post_recv(list)
    }

    /// Posts the receive requests that an iterator yields. See
    /// [`crate::QueuePair::post_recv_iter`].
    #[inline]
    pub fn post_recv_iter<'a, W: Borrow<ReceiveWr<'a>>>(
        &mut self,
        requests: impl IntoIterator<Item = W>,
    ) -> Result<usize, ListError> {
        self.ring.post_recv_iter(requests)
    }

    /// Posts one receive request with one buffer. See [`crate::QueuePair::recv`].
    #[inline]
    pub fn recv(&mut self, wr_id: u64, sge: Sge) -> Result<(), PostError> {
        self.ring.recv(wr_id, sge)
    }

    /// Sets the function that reposts receives after a page fault of on-demand memory
    /// ([`is_page_fault`](crate::CompletionError::is_page_fault)), or clears it. A poll that finds
    /// such a completion calls `repost` with the request, for [`SharedReceiveQueue::repost`], and
    /// does not report the completion if the request was reposted. By default there is no such
    /// function, and polls report the completion: only the thread that owns a queue posts to it.
    ///
    /// Once the call returns, the previous function is not called any more. The call waits for a
    /// poll that is running it: `repost` itself must not make this call, and the caller must not
    /// hold a lock that `repost` takes. Values that `repost` owns live as long as the queue: an
    /// [`Arc`] of the queue itself would keep it alive forever, a `Weak` does not.
    ///
    /// ```
    /// # use mlx5::SharedReceiveQueue;
    /// # use std::sync::{Arc, Mutex};
    /// fn post_faulted_again(queue: SharedReceiveQueue) -> Arc<Mutex<SharedReceiveQueue>> {
    ///     let shared = Arc::new(Mutex::new(queue));
    ///     let weak = Arc::downgrade(&shared);
    ///     let repost = move |faulted: mlx5::Faulted<'_>| {
    ///         if let Some(queue) = weak.upgrade() {
    ///             queue.lock().unwrap().repost(faulted);
    ///         }
    ///     };
    ///     // No thread polls yet: later, this would wait for a poll that waits for the lock.
    ///     shared.lock().unwrap().on_page_fault(Some(Box::new(repost)));
    ///     shared
    /// }
    /// ```
    pub fn on_page_fault(&self, repost: Option<Repost>) {
        self.inner.on_page_fault(repost);
    }

    /// Posts a request again after a page fault, after all other requests. Returns whether it did:
    /// for [`SharedReceiveQueue::on_page_fault`].
    pub fn repost(&mut self, request: Faulted<'_>) -> bool {
        self.ring.repost(request)
    }

    /// Returns the maximum number of outstanding requests.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Returns the number of requests that were posted and whose completion was not polled. It
    /// looks at every entry of the queue: not for the fast path.
    pub fn in_flight(&self) -> u32 {
        self.inner.records.in_flight()
    }

    /// Returns the identifiers of requests that completed, but whose completion no poll has
    /// returned or will return, since the last call: the queue pair that took them was destroyed,
    /// dropped or [purged](crate::QueuePair::purge) before. The program may reuse their memory.
    ///
    /// For a queue pair that was destroyed, this returns them once its completion queue was polled
    /// or dropped; at once if that was dropped before. At most as many as the queue
    /// [holds](Self::capacity) are kept.
    ///
    /// ```
    /// # use mlx5::{CompletionQueue, PollError, QueuePair, SharedReceiveQueue, transport::Rc};
    /// fn drop_connection(
    ///     qp: QueuePair<Rc>,
    ///     cq: &mut CompletionQueue,
    ///     srq: &SharedReceiveQueue,
    ///     free: &mut Vec<u64>,
    /// ) -> Result<(), PollError> {
    ///     drop(qp);
    ///     cq.poll(64, |completion| println!("of another connection: {completion:?}"))?;
    ///     free.extend(srq.take_discarded());
    ///     Ok(())
    /// }
    /// ```
    pub fn take_discarded(&self) -> Vec<u64> {
        self.inner.records.take_discarded()
    }

    /// Returns the maximum number of SGEs of a request.
    pub fn max_sge(&self) -> u32 {
        self.ring.layout().max_sge
    }

    /// Returns the number of the queue in the device.
    pub fn srqn(&self) -> u32 {
        self.inner.srqn
    }

    /// Whether its requests complete on this queue; `None` if they complete on the queue of the
    /// queue pair that takes the request.
    pub fn completes_on(&self, target: &CompletionTarget) -> Option<bool> {
        self.inner.completes.as_ref().map(|(here, _)| Arc::ptr_eq(here, &target.inner))
    }

    /// Returns the identifier that events use.
    pub fn id(&self) -> crate::link::SrqId {
        crate::link::SrqId(self.inner.id)
    }

    /// Requests one [`crate::AsyncEvent`] when fewer than `limit` requests are left
    /// (`ibv_modify_srq`).
    pub fn set_limit(&mut self, limit: u32) -> Result<(), Error> {
        self.inner.set_limit(limit)
    }

    /// Queries the kernel (`ibv_query_srq`).
    pub fn query(&self) -> Result<SrqInfo, Error> {
        self.inner.query()
    }

    /// Returns a handle for operations while another thread posts to the queue.
    pub fn control(&self) -> SrqControl {
        SrqControl::new(&self.inner, false)
    }

    /// Destroys the queue (`ibv_destroy_srq`). While queue pairs take from it, or when the kernel
    /// refuses, it fails and returns the queue. Waits for calls of its [`SrqControl`].
    pub fn destroy(mut self) -> Result<(), DestroyError<Self>> {
        match self.withdraw() {
            Ok(()) => Ok(()),
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }

    /// Destroys the kernel's object (`ibv_destroy_srq`), and keeps the memory: from then on posting
    /// is refused, and no event comes any more. The rest is freed with the value. For callers whose
    /// threads may still use the queue when it is destroyed.
    ///
    /// Fails while queue pairs take from it or when the kernel refuses; then nothing has changed.
    pub fn withdraw(&mut self) -> Result<(), Error> {
        self.inner.withdraw(0, "queue pairs, or builders of some, still take from it", || Ok(()))
    }
}
