//! Posts send requests.

use mlx5::transport::{Rc, Ud};
use mlx5::{
    AddressVector, AnyBatch, AnyQueuePair, BatchError, Data, ListError, Operation, QueuePair,
    RemoteAddress, SendFlags, SendHalf, SendWr, Sge, SharedQueuePair,
};

type Qp = QueuePair<Rc>;

#[inline(never)]
pub fn inline8(
    qp: &mut Qp,
    remote: RemoteAddress,
    bytes: &[u8],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(bytes);
    batch.complete()
}

/// Prefetches the queue pair for a post that comes soon.
#[inline(never)]
pub fn prefetch(qp: &Qp) {
    qp.prefetch();
}

#[inline(never)]
pub fn array8(
    qp: &mut Qp,
    remote: RemoteAddress,
    bytes: &[u8; 8],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(bytes);
    batch.complete()
}

#[inline(never)]
pub fn sge(qp: &mut Qp, remote: RemoteAddress, sge: Sge, wr_id: u64) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).sge(sge);
    batch.complete()
}

#[inline(never)]
pub fn send(qp: &mut Qp, sge: Sge, wr_id: u64) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).send().sge(sge);
    batch.complete()
}

#[inline(never)]
pub fn fetch_add(
    qp: &mut Qp,
    remote: RemoteAddress,
    sge: Sge,
    add: u64,
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).atomic_fetch_add(remote, add).sge(sge);
    batch.complete()
}

#[inline(never)]
pub fn compare_swap(
    qp: &mut Qp,
    remote: RemoteAddress,
    sge: Sge,
    [compare, swap]: [u64; 2],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).atomic_cmp_swp(remote, compare, swap).sge(sge);
    batch.complete()
}

#[inline(never)]
pub fn datagram(
    qp: &mut QueuePair<Ud>,
    to: &AddressVector,
    qp_num: u32,
    qkey: u32,
    sge: Sge,
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).send().ud_addr(to, qp_num, qkey).sge(sge);
    batch.complete()
}

#[inline(never)]
pub fn batch_inline8(
    qp: &mut Qp,
    remotes: &[RemoteAddress; 16],
    bytes: &[u8],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    for (wr_id, &remote) in (wr_id..).zip(remotes) {
        batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(bytes);
    }
    batch.complete()
}

#[inline(never)]
pub fn batch_array8(
    qp: &mut Qp,
    remotes: &[RemoteAddress; 16],
    bytes: &[u8; 8],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    for (wr_id, &remote) in (wr_id..).zip(remotes) {
        batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(bytes);
    }
    batch.complete()
}

#[inline(never)]
pub fn batch_sge(
    qp: &mut Qp,
    remotes: &[RemoteAddress; 16],
    sges: &[Sge; 16],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    for i in 0..16 {
        batch.wr(wr_id + i as u64, SendFlags::SIGNALED).rdma_write(remotes[i]).sge(sges[i]);
    }
    batch.complete()
}

#[inline(never)]
pub fn list(qp: &mut Qp, list: &[SendWr<'_>]) -> Result<(), ListError> {
    qp.post_send(list)
}

/// Adds a signaled request in the run-time form.
#[inline(always)]
fn push(batch: &mut AnyBatch<'_>, wr_id: u64, operation: Operation, data: Data<'_>) {
    let flags = SendFlags::SIGNALED;
    batch.push(&SendWr { wr_id, flags, operation, data, ..SendWr::default() });
}

#[inline(never)]
pub fn inline8_any(
    qp: &mut AnyQueuePair,
    remote: RemoteAddress,
    bytes: &[u8],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    push(&mut batch, wr_id, Operation::RdmaWrite(remote), Data::Inline(&[bytes]));
    batch.complete()
}

#[inline(never)]
pub fn sge_any(
    qp: &mut AnyQueuePair,
    remote: RemoteAddress,
    sge: Sge,
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    push(&mut batch, wr_id, Operation::RdmaWrite(remote), Data::Sges(&[sge]));
    batch.complete()
}

#[inline(never)]
pub fn send_any(qp: &mut AnyQueuePair, sge: Sge, wr_id: u64) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    push(&mut batch, wr_id, Operation::Send, Data::Sges(&[sge]));
    batch.complete()
}

#[inline(never)]
pub fn iterator(qp: &mut Qp, list: &[SendWr<'_>]) -> Result<usize, ListError> {
    qp.post_send_iter(list)
}

#[inline(never)]
pub fn inline8_shared(
    qp: &SharedQueuePair<Rc>,
    remote: RemoteAddress,
    bytes: &[u8],
    wr_id: u64,
) -> Result<(), BatchError> {
    qp.post(|batch| {
        batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(bytes);
    })
}

#[inline(never)]
pub fn inline8_half(
    half: &mut SendHalf<Rc>,
    remote: RemoteAddress,
    bytes: &[u8],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = half.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(bytes);
    batch.complete()
}

#[inline(never)]
pub fn sge_shared(
    qp: &SharedQueuePair<Rc>,
    remote: RemoteAddress,
    sge: Sge,
    wr_id: u64,
) -> Result<(), BatchError> {
    qp.post(|batch| batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).sge(sge))
}

#[inline(never)]
pub fn send_shared(qp: &SharedQueuePair<Rc>, sge: Sge, wr_id: u64) -> Result<(), BatchError> {
    qp.post(|batch| batch.wr(wr_id, SendFlags::SIGNALED).send().sge(sge))
}
