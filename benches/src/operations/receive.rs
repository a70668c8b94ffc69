//! Posts receive requests.

use mlx5::transport::Rc;
use mlx5::{ListError, PostError, QueuePair, ReceiveWr, Sge, SharedReceiveQueue};

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

#[inline(never)]
pub fn recv(qp: &mut QueuePair<Rc>, sge: Sge, wr_id: u64) -> Result<(), PostError> {
    qp.recv(wr_id, sge)
}

#[inline(never)]
pub fn srq_recv(srq: &mut SharedReceiveQueue, sge: Sge, wr_id: u64) -> Result<(), PostError> {
    srq.recv(wr_id, sge)
}
