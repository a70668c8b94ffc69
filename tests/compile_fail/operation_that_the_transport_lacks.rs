//! A datagram queue pair has no RDMA, an unreliable connection no atomics.

use mlx5::transport::{Uc, Ud};
use mlx5::{QueuePair, RemoteAddress, SendFlags, Sge};

fn datagram(qp: &mut QueuePair<Ud>, to: RemoteAddress) {
    let mut batch = qp.wr_start();
    let _ = batch.wr(1, SendFlags::empty()).rdma_write(to);
}

fn unreliable(qp: &mut QueuePair<Uc>, to: RemoteAddress, sge: Sge) {
    let mut batch = qp.wr_start();
    batch.wr(1, SendFlags::empty()).atomic_fetch_add(to, 1).sge(sge);
}

fn main() {}
