//! Datagrams: one queue pair sends to many others, and answers every sender.
//!
//! A datagram queue pair has no peer. Each request names its destination: an address handle, a
//! queue pair number and a Q_Key. The receiver learns the sender of a message from the completion
//! and from the header in the first 40 bytes of its buffer, and creates the address handle for the
//! answer from these.
//!
//! Run it with `cargo run --example ud`.

mod common;

use common::{Done, Setup};
use mlx5::{
    AddressHandle, CompletionQueue, ConnectOptions, Endpoint, MemoryRegion, OwnedCompletion,
    ProtectionDomain, Psn, QueuePair, ReceiveWr, Received, SendFlags, transport::Ud,
};
use std::error::Error;
use std::process::ExitCode;

/// Bytes of the network's header, which the device writes in front of each message.
const HEADER: usize = 40;
const MESSAGE: usize = 256;

struct Side {
    qp: QueuePair<Ud>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    inbox: MemoryRegion,
    endpoint: Endpoint,
}

impl Side {
    fn new(setup: &Setup, pd: &ProtectionDomain) -> Result<Self, Box<dyn Error>> {
        let options = ConnectOptions::default();
        let send_cq = setup.context.create_cq(16).build()?;
        let recv_cq = setup.context.create_cq(16).build()?;
        let mut qp = pd.create_qp::<Ud>(&send_cq, &recv_cq).max_inline_data(64).build()?;
        qp.activate(&setup.port, Psn::default(), &options)?;
        let endpoint = qp.endpoint(&setup.port, Psn::default(), &options);
        let inbox = pd.allocate(HEADER + MESSAGE)?;
        let sges = [inbox.whole()?];
        qp.post_recv(&[ReceiveWr { wr_id: 0, sges: &sges }])?;
        Ok(Self { qp, send_cq, recv_cq, inbox, endpoint })
    }

    /// Sends a short text inline: the text itself need not be in registered memory.
    fn send(&mut self, text: &str, way: &AddressHandle, qp_num: u32, qkey: u32) -> Done {
        let mut batch = self.qp.wr_start();
        batch
            .wr(0, SendFlags::SIGNALED)
            .send()
            .ud_addr(way.vector(), qp_num, qkey)
            .inline_data(text.as_bytes());
        batch.complete()?;
        wait(&mut self.send_cq).map(drop)
    }

    /// Waits for a text; also returns the completion, which identifies the sender.
    fn receive(&mut self) -> Result<(String, OwnedCompletion), Box<dyn Error>> {
        let completion = wait(&mut self.recv_cq)?;
        let length = completion.as_completion().byte_len().unwrap_or(0) as usize - HEADER;
        let mut bytes = vec![0; length];
        self.inbox.read_at(HEADER, &mut bytes)?;
        Ok((String::from_utf8(bytes)?, completion))
    }
}

fn wait(cq: &mut CompletionQueue) -> Result<OwnedCompletion, Box<dyn Error>> {
    let mut came = None;
    while came.is_none() {
        cq.poll(1, |completion| came = Some(completion.to_owned()))?;
        std::thread::yield_now();
    }
    let completion = came.ok_or("no completion")?;
    completion.as_completion().status()?;
    Ok(completion)
}

fn main() -> ExitCode {
    common::start("Datagrams: a server answers each client.", run)
}

fn run() -> Done {
    let setup = common::open()?;
    let pd = setup.context.alloc_pd()?;
    let mut server = Side::new(&setup, &pd)?;
    let qkey = server.endpoint.qkey.unwrap_or(0);
    println!("server  {}", server.endpoint);

    for name in ["Ada", "Grace"] {
        let mut client = Side::new(&setup, &pd)?;
        let options = ConnectOptions::default();
        let way = pd.create_ah_to(&setup.port, &server.endpoint, &options)?;
        client.send(&format!("I am {name}"), &way, server.endpoint.qp_num.get(), qkey)?;

        let (text, completion) = server.receive()?;
        let completion = completion.as_completion();
        let sender = completion.src_qp().ok_or("a receive names its sender")?;
        println!("server: {text:?} came from queue pair {sender:#x}");
        let mut header = [0; HEADER];
        server.inbox.read_at(0, &mut header)?;
        let received = Received {
            slid: completion.slid().unwrap_or(0),
            sl: completion.service_level().unwrap_or(0),
            dlid_path_bits: completion.dlid_path_bits().unwrap_or(0),
            grh: completion.has_grh().unwrap_or(false).then_some(&header),
        };
        let back = pd.create_ah_from_received(setup.port.port_num, &received)?;
        let sges = [server.inbox.whole()?];
        server.qp.post_recv(&[ReceiveWr { wr_id: 0, sges: &sges }])?;
        server.send(&text.replace("I am", "Hello"), &back, sender, qkey)?;

        println!("{name}: {:?}", client.receive()?.0);
    }
    Ok(())
}
