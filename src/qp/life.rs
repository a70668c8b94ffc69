//! A handle to check whether a queue pair still exists.

use super::{QueuePair, QueuePairTransport};
use crate::pools::UserIndex;
use std::fmt;
use std::sync::Arc;

/// Reports whether a queue pair that is owned elsewhere is destroyed: until then the device may use
/// the posted requests. [`QueuePair::life`] creates it. It does not keep the queue pair alive.
#[derive(Clone)]
pub struct QueuePairLife(Arc<UserIndex>);

impl fmt::Debug for QueuePairLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePairLife").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Returns a handle that reports whether the queue pair still exists.
    ///
    /// ```no_run
    /// # fn f(qp: mlx5::QueuePair<mlx5::transport::Rc>) {
    /// let life = qp.life();
    /// assert!(life.is_of(&qp) && !life.is_over());
    /// drop(qp);
    /// assert!(life.is_over());
    /// # }
    /// ```
    pub fn life(&self) -> QueuePairLife {
        QueuePairLife(Arc::clone(&self.control.inner.index))
    }
}

impl QueuePairLife {
    /// Whether the queue pair is destroyed, and the device no longer uses any of it. False for a
    /// queue pair whose destruction the kernel refused.
    pub fn is_over(&self) -> bool {
        self.0.is_departed()
    }

    /// Whether the handle is of this queue pair.
    pub fn is_of<T: QueuePairTransport>(&self, qp: &QueuePair<T>) -> bool {
        Arc::ptr_eq(&self.0, &qp.control.inner.index)
    }
}
