//! Awaits requests, with the package `mlx5-async` on tokio.
//!
//! One task sends messages and awaits each. Another task takes received messages from a stream, and
//! posts each buffer again. A third task, the pump, sleeps until a request completes, and then
//! wakes the task that awaits it.
//!
//! Run it with `cargo run --example async_events`.

#![forbid(unsafe_code)]

mod common;

use common::{Done, Setup};
use mlx5::{ConnectOptions, MemoryRegion, Psn, SendFlags, transport::Rc};
use mlx5_async::{AsyncQueuePair, Hub};
use std::error::Error;
use std::process::ExitCode;

const MESSAGES: u64 = 5;
const BUFFERS: usize = 2;
const SIZE: usize = 64;

/// A queue pair whose requests keep the number of a buffer.
type Queue = AsyncQueuePair<Rc, usize>;

/// Connects a sending queue pair to a receiving one, which has a receive posted for each buffer.
fn connect(setup: &Setup, hub: &Hub) -> Result<(Queue, Queue, MemoryRegion), Box<dyn Error>> {
    let pd = setup.context.alloc_pd()?;
    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let mut sending = hub.create_qp::<Rc>(&pd).max_inline_data(SIZE as u32).build()?;
    let mut receiving = hub.create_qp::<Rc>(&pd).build()?;
    let from = sending.endpoint(&setup.port, psn, &options);
    let to = receiving.endpoint(&setup.port, psn, &options);
    receiving.init(&setup.port, &options)?;
    let (mut seat, inbox) = (hub.reserve(receiving)?, pd.allocate(BUFFERS * SIZE)?);
    for buffer in 0..BUFFERS {
        seat.post_recv(buffer, sge(&inbox, buffer)?)?;
    }
    seat.with(|receiving| receiving.connect(&setup.port, psn, &from, &options))??;
    sending.connect(&setup.port, psn, &to, &options)?;
    Ok((hub.adopt(sending)?, seat.adopt(), inbox))
}

/// SGE of a buffer.
fn sge(inbox: &MemoryRegion, buffer: usize) -> Result<mlx5::Sge, mlx5::Error> {
    inbox.sge(buffer * SIZE..(buffer + 1) * SIZE)
}

/// Sends all messages, one after the other.
async fn send(qp: &Queue) -> Done {
    for number in 1..=MESSAGES {
        let text = format!("message {number} of {MESSAGES}");
        let build = |wr: mlx5::Wr<'_, '_, Rc>| wr.send().inline_data(text.as_bytes());
        let request = qp.submit(0, SendFlags::empty(), build).await?;
        println!("sending message {number}");
        request.await?;
    }
    Ok(())
}

/// Receives all messages.
async fn receive(qp: &Queue, inbox: &MemoryRegion) -> Done {
    let mut receives = qp.receives();
    for _ in 0..MESSAGES {
        let message = receives.next().await.ok_or("the queue pair was closed")??;
        let mut bytes = vec![0; message.completion.byte_len().unwrap_or(0) as usize];
        inbox.read_at(message.keep * SIZE, &mut bytes)?;
        println!("  received {:?}", String::from_utf8_lossy(&bytes));
        qp.post_recv(message.keep, sge(inbox, message.keep)?).await?;
    }
    Ok(())
}

fn main() -> ExitCode {
    common::start(
        "Awaits requests with mlx5-async on tokio: one task sends, another one receives.",
        run,
    )
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> Done {
    let setup = common::open()?;
    let (hub, pump) = Hub::new(&setup.context, 512)?;
    let pump = tokio::spawn(pump.drive());
    let (sending, receiving, inbox) = connect(&setup, &hub)?;
    let (sent, received) = tokio::join!(send(&sending), receive(&receiving, &inbox));
    sent.and(received)?;
    hub.shutdown();
    Ok(pump.await??)
}
