//! Posting receive requests.

use mlx5::transport::Rc;
use mlx5::{ListError, QueuePair, ReceiveWr, SharedReceiveQueue};

#[inline(never)]
pub fn post_recv(qp: &mut QueuePair<Rc>, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
    qp.post_recv(list)
}

#[inline(never)]
pub fn post_srq_recv(
    srq: &mut SharedReceiveQueue,
    list: &[ReceiveWr<'_>],
) -> Result<(), ListError> {
    srq.post_recv(list)
}
