//! Sleeping until something completes.
//!
//! A completion queue that has a channel can be armed: the next completion then makes the channel's
//! descriptor readable. The receiver here is a thread that blocks on the channel and uses no
//! processor time while nothing comes; an event loop would wait for the same descriptor, which
//! `AsFd` gives, among others: see the example `async_events`.
//!
//! A completion that came before the queue was armed makes no event. `CompletionQueue::wait` arms,
//! looks once more, and only then sleeps.
//!
//! Run it with `cargo run --example events`.

mod common;

use common::Done;
use mlx5::{
    CompletionQueue, ConnectOptions, MemoryRegion, Psn, QueuePair, ReceiveWr, SendFlags,
    transport::Rc,
};
use std::error::Error;
use std::thread;
use std::time::Duration;

const MESSAGES: u64 = 5;
const MESSAGE: usize = 64;

/// What a thread needs to receive.
struct Receiver {
    cq: CompletionQueue,
    inbox: MemoryRegion,
    // Dropped with the thread: the connection ends with it.
    _qp: QueuePair<Rc>,
}

impl Receiver {
    /// Takes messages until all have come; gives how often it had to wait.
    fn run(mut self) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let (mut received, mut waits) = (0, 0);
        while received < MESSAGES {
            if !self.cq.wait(false, Some(Duration::from_secs(10)))? {
                return Err("nothing came for ten seconds".into());
            }
            waits += 1;
            self.drain(&mut received)?;
        }
        Ok(waits)
    }

    /// Takes what has come; gives how many messages that were.
    fn drain(&mut self, received: &mut u64) -> Result<usize, Box<dyn Error + Send + Sync>> {
        let inbox = &self.inbox;
        let mut failed = None;
        let count = self.cq.poll(16, |completion| {
            let mut bytes = vec![0; completion.byte_len().unwrap_or(0) as usize];
            let place = completion.wr_id() as usize * MESSAGE;
            let read = inbox.read_at(place, &mut bytes);
            if completion.status().is_err() || read.is_err() {
                failed = Some("a receive failed");
            }
            println!("  received {:?}", String::from_utf8_lossy(&bytes));
        })?;
        *received += count as u64;
        failed.map_or(Ok(count), |failed| Err(failed.into()))
    }
}

fn main() -> Done {
    let setup = common::open()?;
    let context = &setup.context;
    let pd = context.alloc_pd()?;

    // The receiving side, whose completions are announced on a channel.
    let channel = context.create_comp_channel()?;
    let cq = context.create_cq(16).channel(&channel).build()?;
    let mut receiving = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let inbox = pd.allocate(MESSAGES as usize * MESSAGE)?;

    // The sending side.
    let mut send_cq = context.create_cq(16).build()?;
    let mut sending = pd.create_qp::<Rc>(&send_cq, &send_cq).max_inline_data(64).build()?;

    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let to = receiving.endpoint(&setup.port, psn, &options);
    let from = sending.endpoint(&setup.port, psn, &options);
    receiving.connect(&setup.port, psn, &from, &options)?;
    sending.connect(&setup.port, psn, &to, &options)?;
    for wr_id in 0..MESSAGES {
        let start = wr_id as usize * MESSAGE;
        let sges = [inbox.sge(start..start + MESSAGE)?];
        receiving.post_recv(&[ReceiveWr { wr_id, sges: &sges }])?;
    }

    let receiver = Receiver { cq, inbox, _qp: receiving };
    let receiver = thread::spawn(move || receiver.run());
    for number in 1..=MESSAGES {
        // Long enough for the receiver to fall asleep.
        thread::sleep(Duration::from_millis(20));
        println!("sending message {number}");
        let text = format!("message {number} of {MESSAGES}");
        let mut batch = sending.wr_start();
        batch.wr(number, SendFlags::SIGNALED).send().inline_data(text.as_bytes());
        batch.complete()?;
    }
    let waits = receiver.join().map_err(|_| "the receiver panicked")?;
    println!("the receiver waited {} times", waits.map_err(|error| error.to_string())?);
    let (mut sent, mut failed) = (0, 0);
    while sent + failed < MESSAGES {
        send_cq.poll(16, |completion| match completion.status() {
            Ok(()) => sent += 1,
            Err(_) => failed += 1,
        })?;
        thread::yield_now();
    }
    println!("{sent} of {MESSAGES} sends succeeded");
    Ok(())
}
