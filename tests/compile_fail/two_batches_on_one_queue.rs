//! A queue has one batch at a time.

use mlx5::transport::Rc;
use mlx5::{BatchError, QueuePair};

fn post(qp: &mut QueuePair<Rc>) -> Result<(), BatchError> {
    let one = qp.wr_start();
    let other = qp.wr_start();
    one.complete()?;
    other.complete()
}

fn main() {}
