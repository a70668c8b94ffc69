//! A read has nowhere to put what it reads but memory.

use mlx5::transport::Rc;
use mlx5::{QueuePair, RemoteAddress, SendFlags};

fn post(qp: &mut QueuePair<Rc>, from: RemoteAddress) {
    let mut batch = qp.wr_start();
    batch.wr(1, SendFlags::empty()).rdma_read(from).inline_data(b"?");
}

fn main() {}
