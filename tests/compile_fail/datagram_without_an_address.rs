//! A datagram has no data before it has a receiver.

use mlx5::transport::Ud;
use mlx5::{QueuePair, SendFlags};

fn post(qp: &mut QueuePair<Ud>) {
    let mut batch = qp.wr_start();
    batch.wr(1, SendFlags::empty()).send().inline_data(b"to whom?");
}

fn main() {}
