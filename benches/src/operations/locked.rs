//! Batches, lists and polls of queues that several threads can share.
//!
//! They have a module of their own, so that the other operations compile the same without them.

use super::poll::read;
use mlx5::transport::{Rc, Ud};
use mlx5::{
    AddressVector, BatchError, ListError, ReceiveWr, RemoteAddress, SendFlags, SendWr, Sge,
    SharedCompletionQueue, SharedQueuePair,
};

#[inline(never)]
pub fn batch_inline8(
    qp: &SharedQueuePair<Rc>,
    remotes: &[RemoteAddress; 16],
    bytes: &[u8],
    wr_id: u64,
) -> Result<(), BatchError> {
    qp.post(|batch| {
        for (wr_id, &remote) in (wr_id..).zip(remotes) {
            batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(bytes);
        }
    })
}

#[inline(never)]
pub fn batch_sge(
    qp: &SharedQueuePair<Rc>,
    remotes: &[RemoteAddress; 16],
    sges: &[Sge; 16],
    wr_id: u64,
) -> Result<(), BatchError> {
    qp.post(|batch| {
        for i in 0..16 {
            batch.wr(wr_id + i as u64, SendFlags::SIGNALED).rdma_write(remotes[i]).sge(sges[i]);
        }
    })
}

#[inline(never)]
pub fn list(qp: &SharedQueuePair<Rc>, list: &[SendWr<'_>]) -> Result<(), ListError> {
    qp.post_send(list)
}

#[inline(never)]
pub fn datagram(
    qp: &SharedQueuePair<Ud>,
    to: &AddressVector,
    qp_num: u32,
    qkey: u32,
    sge: Sge,
    wr_id: u64,
) -> Result<(), BatchError> {
    qp.post(|batch| {
        batch.wr(wr_id, SendFlags::SIGNALED).send().ud_addr(to, qp_num, qkey).sge(sge);
    })
}

#[inline(never)]
pub fn poll_many(cq: &SharedCompletionQueue, max: usize, sum: &mut u64) -> Option<usize> {
    cq.poll(max, |completion| read(completion, sum)).ok()
}

#[inline(never)]
pub fn poll_empty(cq: &SharedCompletionQueue, sum: &mut u64) -> Option<usize> {
    cq.poll(1, |completion| *sum += completion.wr_id()).ok()
}

#[inline(never)]
pub fn post_recv(qp: &SharedQueuePair<Rc>, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
    qp.post_recv(list)
}
