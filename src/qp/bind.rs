//! The interface through which memory windows post their bind requests.

use super::{QueuePair, QueuePairTransport, SendHalf};
use crate::memory::ProtectionDomain;
use crate::memory::window::{Poster, posting};
use mlx5_wqe::Batch;

impl<T: QueuePairTransport> Poster<T> for QueuePair<T> {}

impl<T: QueuePairTransport> posting::Poster<T> for QueuePair<T> {
    fn pd(&self) -> &ProtectionDomain {
        self.send.inner.pd()
    }

    fn start(&mut self) -> Batch<'_, T> {
        self.wr_start()
    }
}

impl<T: QueuePairTransport> Poster<T> for SendHalf<T> {}

impl<T: QueuePairTransport> posting::Poster<T> for SendHalf<T> {
    fn pd(&self) -> &ProtectionDomain {
        self.inner.pd()
    }

    fn start(&mut self) -> Batch<'_, T> {
        self.wr_start()
    }
}
