//! Sends a message forth and back over a reliable connection.
//!
//! The program creates and connects two queue pairs in one process. Between two processes the
//! endpoints, which are a line of text each, would travel over TCP, in a file or by hand. Then the
//! first queue pair sends, the second one answers, and both poll for completions without sleeping.
//!
//! Run it with `cargo run --example rc_pingpong`.

mod common;

use common::{Done, Setup};
use mlx5::{
    CompletionQueue, ConnectOptions, MemoryRegion, ProtectionDomain, Psn, QueuePair, ReceiveWr,
    SendFlags, transport::Rc,
};
use std::process::ExitCode;
use std::time::Instant;

/// Bytes of a message.
const MESSAGE: usize = 64;
const ROUNDS: u64 = 1000;

/// One side: a queue pair with a completion queue and memory of its own.
struct Side {
    qp: QueuePair<Rc>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl Side {
    fn new(setup: &Setup, pd: &ProtectionDomain) -> Result<Self, mlx5::Error> {
        let cq = setup.context.create_cq(16).build()?;
        let qp = pd.create_qp::<Rc>(&cq, &cq).max_send_wr(4).max_recv_wr(4).build()?;
        // The first half is for sending, the second half for receiving.
        let memory = pd.allocate(2 * MESSAGE)?;
        Ok(Self { qp, cq, memory })
    }

    fn post_receive(&mut self) -> Done {
        let sges = [self.memory.sge(MESSAGE..)?];
        Ok(self.qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &sges }])?)
    }

    fn send(&mut self, text: &str) -> Done {
        self.memory.write_at(0, text.as_bytes())?;
        let mut batch = self.qp.wr_start();
        batch.wr(2, SendFlags::SIGNALED).send().sge(self.memory.sge(..text.len())?);
        Ok(batch.complete()?)
    }

    /// Waits for a message; skips the completions of sends on the way.
    fn receive(&mut self) -> Result<String, Box<dyn std::error::Error>> {
        let mut length = None;
        let mut failed = None;
        while length.is_none() {
            self.cq.poll(4, |completion| match completion.status() {
                Ok(()) if completion.wr_id() == 1 => length = completion.byte_len(),
                Ok(()) => {}
                Err(error) => failed = Some(error),
            })?;
            if let Some(error) = failed {
                return Err(error.into());
            }
            // Yields, because the simulated device is a thread that needs processor time.
            std::thread::yield_now();
        }
        let mut bytes = vec![0; length.unwrap_or(0) as usize];
        self.memory.read_at(MESSAGE, &mut bytes)?;
        Ok(String::from_utf8(bytes)?)
    }
}

fn main() -> ExitCode {
    common::start(
        "Sends a message there and back a thousand times, over a reliable connection.",
        run,
    )
}

fn run() -> Done {
    let setup = common::open()?;
    let pd = setup.context.alloc_pd()?;
    let (mut client, mut server) = (Side::new(&setup, &pd)?, Side::new(&setup, &pd)?);

    let options = ConnectOptions::default();
    let (client_psn, server_psn) = (Psn::wrapping(100), Psn::wrapping(200));
    let client_endpoint = client.qp.endpoint(&setup.port, client_psn, &options);
    let server_endpoint = server.qp.endpoint(&setup.port, server_psn, &options);
    println!("client  {client_endpoint}\nserver  {server_endpoint}");
    client.qp.connect(&setup.port, client_psn, &server_endpoint, &options)?;
    server.qp.connect(&setup.port, server_psn, &client_endpoint, &options)?;

    let start = Instant::now();
    for round in 0..ROUNDS {
        // The receive must be posted before the peer may send.
        client.post_receive()?;
        server.post_receive()?;
        client.send(&format!("ping {round}"))?;
        let ping = server.receive()?;
        server.send(&ping.replace("ping", "pong"))?;
        let pong = client.receive()?;
        assert_eq!(pong, format!("pong {round}"));
    }
    let each = start.elapsed() / ROUNDS as u32;
    println!("{ROUNDS} messages went there and back, {each:?} each");
    Ok(())
}
