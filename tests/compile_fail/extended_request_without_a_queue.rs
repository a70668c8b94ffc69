//! A request of an extended connection has no data before it names the queue at the other side.

use mlx5::transport::XrcSend;
use mlx5::{QueuePair, SendFlags};

fn post(qp: &mut QueuePair<XrcSend>) {
    let mut batch = qp.wr_start();
    batch.wr(1, SendFlags::empty()).send().inline_data(b"to which?");
}

fn main() {}
