//! Awaiting completions: the channel's descriptor in tokio's `AsyncFd`.
//!
//! The same as the `events` example, in a task instead of a thread: arm, poll once more, and only
//! then wait for the descriptor.
//!
//! Run it with `cargo run --example async_events`.

mod common;

use common::Done;
use mlx5::{
    CompletionChannel, CompletionQueue, ConnectOptions, MemoryRegion, Psn, QueuePair, ReceiveWr,
    SendFlags, transport::Rc,
};
use tokio::io::unix::AsyncFd;

const MESSAGES: u64 = 5;
const MESSAGE: usize = 64;

/// What a task needs to receive.
struct Receiver {
    channel: AsyncFd<CompletionChannel>,
    cq: CompletionQueue,
    inbox: MemoryRegion,
    // Dropped with the task: the connection ends with it.
    _qp: QueuePair<Rc>,
}

impl Receiver {
    /// Takes messages until all have come; gives how often it was woken.
    async fn run(mut self) -> Result<u64, Box<dyn std::error::Error>> {
        let (mut received, mut wakes) = (0, 0);
        while received < MESSAGES {
            let count = self.drain()?;
            received += count;
            if count > 0 {
                continue;
            }
            self.cq.arm(false)?;
            if !self.cq.is_ready() {
                self.event().await?;
                wakes += 1;
            }
        }
        Ok(wakes)
    }

    /// Waits until the channel has an event.
    async fn event(&self) -> Result<(), Box<dyn std::error::Error>> {
        loop {
            let mut ready = self.channel.readable().await?;
            if self.channel.get_ref().get_event()?.is_some() {
                return Ok(());
            }
            ready.clear_ready();
        }
    }

    /// Takes what has come; gives how many messages that were.
    fn drain(&mut self) -> Result<u64, Box<dyn std::error::Error>> {
        let mut count = 0;
        let mut completions = self.cq.completions()?;
        while let Some(completion) = completions.next() {
            completion.status()?;
            let mut bytes = vec![0; completion.byte_len().unwrap_or(0) as usize];
            self.inbox.read_at(completion.wr_id() as usize * MESSAGE, &mut bytes)?;
            println!("  received {:?}", String::from_utf8_lossy(&bytes));
            count += 1;
        }
        completions.finish()?;
        Ok(count)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Done {
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

    // SAFETY: the channel has one descriptor, which is open as long as the channel is there.
    let channel = unsafe { AsyncFd::register(channel) }?;
    let receiver = Receiver { channel, cq, inbox, _qp: receiving }.run();
    let sender = async {
        for number in 1..=MESSAGES {
            println!("sending message {number}");
            let text = format!("message {number} of {MESSAGES}");
            let mut batch = sending.wr_start();
            batch.wr(number, SendFlags::SIGNALED).send().inline_data(text.as_bytes());
            batch.complete()?;
            tokio::task::yield_now().await;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    let (wakes, sent) = tokio::join!(receiver, sender);
    sent?;
    println!("the receiver was woken {} times", wakes?);
    let mut done = 0;
    while done < MESSAGES {
        send_cq.poll(16, |_| done += 1)?;
        tokio::task::yield_now().await;
    }
    println!("{done} sends are done");
    Ok(())
}
