//! Operations on a shared receive queue that are possible while another thread posts to it.

use super::SrqInfo;
use super::inner::{SrqInner, Taken, gone};
use crate::error::Error;
use mlx5_wqe::Repost;
use std::fmt;
use std::sync::{Arc, Weak};

/// Limit and queries of a shared receive queue, and queue pairs that take from it, for threads that
/// do not post to it: no call needs the [`SharedReceiveQueue`](crate::SharedReceiveQueue), which
/// posts with a mutable reference.
/// [`SharedReceiveQueue::control`](crate::SharedReceiveQueue::control) creates it. It does not keep
/// the queue alive: once that is gone, calls fail. A queue that is dropped during a call is
/// destroyed when the call ends.
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
    inner: Weak<SrqInner>,
    srqn: u32,
    /// Whether the queue has tags.
    tags: bool,
}

impl fmt::Debug for SrqControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SrqControl")
            .field("srqn", &format_args!("{:#x}", self.srqn))
            .field("gone", &(self.inner.strong_count() == 0))
            .finish_non_exhaustive()
    }
}

impl SrqControl {
    pub(crate) fn new(inner: &Arc<SrqInner>, tags: bool) -> Self {
        Self { inner: Arc::downgrade(inner), srqn: inner.srqn, tags }
    }

    fn queue(&self, verb: &'static str) -> Result<Arc<SrqInner>, Error> {
        self.inner.upgrade().ok_or_else(|| gone(verb))
    }

    /// Returns a reference for a queue pair that takes from the queue.
    pub(crate) fn take(&self) -> Result<Taken, Error> {
        const VERB: &str = "create_qp";
        let inner = self.queue(VERB)?;
        if self.tags {
            return Err(Error::invalid(VERB, "a queue with tags is for `tm_srq`".into()));
        }
        // Under the lock that destroying the queue takes, too.
        inner.with_handle(VERB, |_| Ok(Taken::new(&inner)))
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

    /// See [`SharedReceiveQueue::on_page_fault`](crate::SharedReceiveQueue::on_page_fault). A queue
    /// with tags, or one that was destroyed, accepts only `None`.
    pub fn on_page_fault(&self, repost: Option<Repost>) -> Result<(), Error> {
        const VERB: &str = "on_page_fault";
        let inner = self.queue(VERB)?;
        if repost.is_some() {
            if self.tags {
                let what = "requests of a queue with tags are not posted again";
                return Err(Error::not_supported(VERB, what));
            }
            // The lock is not held during `on_page_fault`, which waits for a poll.
            inner.with_handle(VERB, |_| Ok(()))?;
        }
        inner.on_page_fault(repost);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::devices_on;
    use crate::transport::Rc;
    use mlx5_sim::{SimConfig, Simulator};
    use nix::libc;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::ForkResult;

    /// A thread in a call holds the lock, and does not exist in the child.
    #[test]
    fn a_child_is_refused_and_waits_for_no_call_of_its_parent() {
        let simulator = Simulator::new(SimConfig::new());
        let context = devices_on(simulator.kernel()).unwrap().remove(0).open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).build().unwrap());
        let mut srq = pd.create_srq(7).build().unwrap();
        let (inner, control) = (srq.inner.clone(), srq.control());
        let held = inner.handle.lock().unwrap();
        // SAFETY: the child uses nothing that a thread of the parent may hold, except the lock that
        // this thread holds, and exits without running the parent's handlers.
        match unsafe { nix::unistd::fork() }.unwrap() {
            ForkResult::Child => {
                // SAFETY: `alarm` is async-signal-safe. It ends a child that hangs.
                unsafe { libc::alarm(60) };
                let refused = control.query().is_err()
                    && control.set_limit(1).is_err()
                    && pd.create_qp::<Rc>(&cq, &cq).srq_of(&control).is_err()
                    && srq.withdraw().is_err();
                // SAFETY: `_exit` is async-signal-safe, and runs no handler of the parent.
                unsafe { libc::_exit(i32::from(!refused)) }
            }
            ForkResult::Parent { child } => {
                drop(held);
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
        srq.withdraw().unwrap();
    }
}
