//! A batch does not outlive its queue pair.

use mlx5::transport::Rc;
use mlx5::{BatchError, QueuePair};

fn post(mut qp: QueuePair<Rc>) -> Result<(), BatchError> {
    let batch = qp.wr_start();
    drop(qp);
    batch.complete()
}

fn main() {}
