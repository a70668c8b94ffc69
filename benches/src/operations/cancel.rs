//! Cancels requests of a drained send queue: queries the device's position, and scans the ring.

use mlx5::transport::Rc;
use mlx5::{CancelError, CancelMode, QueuePair};

#[inline(never)]
pub fn one(qp: &mut QueuePair<Rc>, wr_id: u64) -> Result<usize, CancelError> {
    let drained = qp.drained()?;
    Ok(qp.cancel(&drained, wr_id)?.count())
}

#[inline(never)]
pub fn set(qp: &mut QueuePair<Rc>, wr_ids: &[u64]) -> Result<usize, CancelError> {
    let drained = qp.drained()?;
    Ok(qp.cancel_set(&drained, wr_ids, CancelMode::BestEffort)?.count())
}
