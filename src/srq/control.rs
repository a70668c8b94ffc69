//! What can be asked of a shared receive queue while another thread posts to it.

use super::{SrqInfo, SrqInner};
use crate::error::Error;
use mlx5_wqe::Repost;
use std::fmt;
use std::sync::{Arc, Weak};

/// Limit and queries of a shared receive queue, for threads that do not post to it: no call needs the
/// [`SharedReceiveQueue`](crate::SharedReceiveQueue), which posts with a mutable reference. Made by
/// [`SharedReceiveQueue::control`](crate::SharedReceiveQueue::control). It does not keep the queue: after that
/// is gone, calls fail.
///
/// ```no_run
/// # fn f(srq: mlx5::SharedReceiveQueue) -> Result<(), mlx5::Error> {
/// let control = srq.control();
/// let poster = std::thread::spawn(move || {
///     let mut srq = srq;
///     // … posts receives.
///     # let _ = &mut srq;
/// });
/// // The limit was reached: ask for the next event.
/// control.set_limit(32)?;
/// # poster.join().unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SrqControl {
    pub(super) inner: Weak<SrqInner>,
}

impl fmt::Debug for SrqControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let srqn = self.inner.upgrade().map(|inner| format!("{:#x}", inner.srqn));
        f.debug_struct("SrqControl")
            .field("srqn", &format_args!("{}", srqn.as_deref().unwrap_or("gone")))
            .finish_non_exhaustive()
    }
}

impl SrqControl {
    /// The queue during a call: one that destroys it meanwhile finds it busy.
    fn queue(&self, verb: &'static str) -> Result<Arc<SrqInner>, Error> {
        self.inner.upgrade().ok_or_else(|| Error::invalid(verb, "the queue was destroyed".into()))
    }

    /// Requests one [`crate::AsyncEvent`] when fewer than `limit` requests are left
    /// (`ibv_modify_srq`).
    pub fn set_limit(&self, limit: u32) -> Result<(), Error> {
        self.queue("modify_srq")?.set_limit(limit)
    }

    /// Queries the kernel (`ibv_query_srq`).
    pub fn query(&self) -> Result<SrqInfo, Error> {
        self.queue("query_srq")?.query()
    }

    /// See [`SharedReceiveQueue::on_page_fault`](crate::SharedReceiveQueue::on_page_fault).
    pub fn on_page_fault(&self, repost: Option<Repost>) -> Result<(), Error> {
        self.queue("on_page_fault")?.on_page_fault(repost);
        Ok(())
    }
}
