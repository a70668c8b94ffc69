//! A future is no more `Send` than what it has the queue pair from.

use mlx5::transport::Rc;
use mlx5::{BatchError, QueuePair, SendFlags};
use std::sync::Mutex;

fn spawn(_: impl Future<Output = Result<(), BatchError>> + Send) {}

async fn post(qp: &Mutex<QueuePair<Rc>>) -> Result<(), BatchError> {
    let mut qp = qp.lock().unwrap();
    let mut batch = qp.wr_start();
    std::future::ready(()).await;
    batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"hello");
    batch.complete()
}

fn spawned(qp: &Mutex<QueuePair<Rc>>) {
    spawn(post(qp));
}

fn main() {}
