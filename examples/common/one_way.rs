//! A connection with messages in one direction; a channel announces their completions.

use super::{Done, Setup};
use mlx5::{
    CompletionChannel, CompletionQueue, ConnectOptions, MemoryRegion, Psn, QueuePair, ReceiveWr,
    SendFlags, WorkCompletion, transport::Rc,
};
use std::error::Error;

/// Number of messages.
pub(crate) const MESSAGES: u64 = 5;
const MESSAGE: usize = 64;

/// The receiving side, with a receive posted for each message. A channel announces its completions.
pub(crate) struct Receiver {
    pub(crate) cq: CompletionQueue,
    inbox: MemoryRegion,
    // Held only to be dropped with the rest: the connection ends then.
    _qp: QueuePair<Rc>,
}

/// The sending side.
pub(crate) struct Sender {
    pub(crate) cq: CompletionQueue,
    qp: QueuePair<Rc>,
}

/// Connects both sides.
pub(crate) fn connect(
    setup: &Setup,
) -> Result<(CompletionChannel, Receiver, Sender), Box<dyn Error>> {
    let context = &setup.context;
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let cq = context.create_cq(16).channel(&channel).build()?;
    let mut receiving = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let inbox = pd.allocate(MESSAGES as usize * MESSAGE)?;
    let send_cq = context.create_cq(16).build()?;
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
    Ok((channel, receiver, Sender { cq: send_cq, qp: sending }))
}

impl Receiver {
    /// Polls all completions; returns the number of messages.
    pub(crate) fn drain(&mut self) -> Result<u64, Box<dyn Error + Send + Sync>> {
        let mut count = 0;
        let mut completions = self.cq.completions()?;
        while let Some(completion) = completions.next() {
            print(&self.inbox, &completion)?;
            count += 1;
        }
        completions.finish()?;
        Ok(count)
    }
}

/// Prints the message of a completion.
fn print(
    inbox: &MemoryRegion,
    completion: &WorkCompletion<'_>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    completion.status()?;
    let mut bytes = vec![0; completion.byte_len().unwrap_or(0) as usize];
    inbox.read_at(completion.wr_id() as usize * MESSAGE, &mut bytes)?;
    println!("  received {:?}", String::from_utf8_lossy(&bytes));
    Ok(())
}

impl Sender {
    /// Sends a message.
    pub(crate) fn send(&mut self, number: u64) -> Done {
        println!("sending message {number}");
        let text = format!("message {number} of {MESSAGES}");
        let mut batch = self.qp.wr_start();
        batch.wr(number, SendFlags::SIGNALED).send().inline_data(text.as_bytes());
        Ok(batch.complete()?)
    }

    /// Polls completions of sends; returns the number of successful ones, and fails with the first
    /// error.
    pub(crate) fn done(&mut self) -> Result<u64, Box<dyn Error>> {
        let (mut done, mut failed) = (0, None);
        self.cq.poll(16, |completion| match completion.status() {
            Ok(()) => done += 1,
            Err(error) => failed = Some(error),
        })?;
        failed.map_or(Ok(done), |error| Err(error.into()))
    }
}
