//! The operations that are counted, each as a user would write it, in a function of its own.

use mlx5::transport::Rc;
use mlx5::{
    BatchError, CompletionOpcode, CompletionQueue, ListError, QueuePair, ReceiveWr, RemoteAddress,
    SendFlags, SendWr, Sge, WorkCompletion,
};
use std::sync::Mutex;

type Qp = QueuePair<Rc>;

#[inline(never)]
pub(crate) fn post_inline8(
    qp: &mut Qp,
    remote: RemoteAddress,
    bytes: &[u8],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(bytes);
    batch.complete()
}

#[inline(never)]
pub(crate) fn post_sge(
    qp: &mut Qp,
    remote: RemoteAddress,
    sge: Sge,
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).sge(sge);
    batch.complete()
}

#[inline(never)]
pub(crate) fn post_send_sge(qp: &mut Qp, sge: Sge, wr_id: u64) -> Result<(), BatchError> {
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).send().sge(sge);
    batch.complete()
}

#[inline(never)]
pub(crate) fn batch_inline8(
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
pub(crate) fn batch_sge(
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
pub(crate) fn list(qp: &mut Qp, list: &[SendWr<'_>]) -> Result<(), ListError> {
    qp.post_send(list)
}

#[inline(never)]
pub(crate) fn post_recv(qp: &mut Qp, list: &[ReceiveWr<'_>]) -> Result<(), ListError> {
    qp.post_recv(list)
}

/// Reads what most users read of a completion: status, identifier, operation, length.
#[inline(always)]
fn read(completion: WorkCompletion<'_>, sum: &mut u64) {
    if completion.status().is_ok() {
        let sent = completion.opcode() == CompletionOpcode::RdmaWrite;
        let length = completion.byte_len().unwrap_or(0);
        *sum += completion.wr_id() + u64::from(length) + u64::from(sent);
    }
}

#[inline(never)]
pub(crate) fn poll_one(cq: &mut CompletionQueue, sum: &mut u64) -> Option<usize> {
    cq.poll(1, |completion| read(completion, sum)).ok()
}

#[inline(never)]
pub(crate) fn poll_many(cq: &mut CompletionQueue, max: usize, sum: &mut u64) -> Option<usize> {
    cq.poll(max, |completion| read(completion, sum)).ok()
}

#[inline(never)]
pub(crate) fn poll_empty(cq: &mut CompletionQueue, sum: &mut u64) -> Option<usize> {
    let mut count = 0;
    let polled = cq.poll(1, |completion| {
        count += 1;
        read(completion, sum);
    });
    polled.ok()
}

/// The same through a lock, as several threads share a queue pair.
#[inline(never)]
pub(crate) fn post_inline8_shared(
    qp: &Mutex<Qp>,
    remote: RemoteAddress,
    bytes: &[u8],
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut qp = qp.lock().expect("not poisoned");
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).inline_data(bytes);
    batch.complete()
}

#[inline(never)]
pub(crate) fn post_sge_shared(
    qp: &Mutex<Qp>,
    remote: RemoteAddress,
    sge: Sge,
    wr_id: u64,
) -> Result<(), BatchError> {
    let mut qp = qp.lock().expect("not poisoned");
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(remote).sge(sge);
    batch.complete()
}

#[inline(never)]
pub(crate) fn post_send_sge_shared(qp: &Mutex<Qp>, sge: Sge, wr_id: u64) -> Result<(), BatchError> {
    let mut qp = qp.lock().expect("not poisoned");
    let mut batch = qp.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).send().sge(sge);
    batch.complete()
}

#[inline(never)]
pub(crate) fn poll_one_shared(cq: &Mutex<CompletionQueue>, sum: &mut u64) -> Option<usize> {
    let mut cq = cq.lock().expect("not poisoned");
    cq.poll(1, |completion| read(completion, sum)).ok()
}
