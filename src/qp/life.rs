//! Whether a queue pair is still there, for those that do not have it.

use super::{QueuePair, QueuePairTransport};
use crate::pools::UserIndex;
use std::fmt;
use std::sync::Arc;

/// Says of a queue pair that is elsewhere whether it is destroyed: until then the device may use what was
/// posted. Made by [`QueuePair::life`]. It does not keep the queue pair.
#[derive(Clone)]
pub struct QueuePairLife(Arc<UserIndex>);

impl fmt::Debug for QueuePairLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePairLife").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Returns what says whether the queue pair is still there.
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
    /// Whether the queue pair is destroyed, and the device uses nothing of it any more. A queue pair whose
    /// destruction the kernel refused is not.
    pub fn is_over(&self) -> bool {
        self.0.is_departed()
    }

    /// Whether it is that of this queue pair.
    pub fn is_of<T: QueuePairTransport>(&self, qp: &QueuePair<T>) -> bool {
        Arc::ptr_eq(&self.0, &qp.control.inner.index)
    }
}
