//! `mlx5 dump --live`: posts requests of every kind, and decodes the queues.

use crate::device::{Port, PortArgs};
use crate::dump::cqe;
use crate::dump::listing::{self, Entry};
use crate::dump::wqe::Addressing;
use crate::failure::Failure;
use crate::json::{self, JsonArgs};
use crate::link::Patience;
use mlx5::{
    Access, AddressHandle, BatchError, CompletionQueue, ConnectOptions, MemoryRegion,
    OwnedCompletion, ProtectionDomain, Psn, QueuePair, QueuePairTransport, ReceiveWr, SendFlags,
    transport,
};
use mlx5_prm::wqe::BLOCK;
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

const HELLO: &[u8] = b"hello, mlx5";
/// Requests that each end can have outstanding.
const DEPTH: u32 = 16;
/// Bytes of each half of the memory: send and receive.
const HALF: usize = 2048;
const TIMEOUT: Duration = Duration::from_secs(10);

/// A ring or completions of one queue.
struct Part {
    title: String,
    entries: Vec<Entry>,
}

pub(crate) fn run(args: &PortArgs, json: JsonArgs, out: &mut impl Write) -> Result<(), Failure> {
    let port = args.open()?;
    let mut parts = Vec::from(connected(&port)?);
    parts.extend(datagrams(&port)?);
    if json.json {
        let part =
            |part: &Part| json!({ "title": part.title, "items": listing::to_json(&part.entries) });
        let document = json!({
            "command": "mlx5 dump",
            "device": port.opened.device.name(),
            "parts": parts.iter().map(part).collect::<Vec<Value>>(),
        });
        let simulated = port.opened.simulator.is_some();
        return Ok(json::write(out, &json::of_device(document, simulated))?);
    }
    for (index, part) in parts.iter().enumerate() {
        let before = if index > 0 { "\n" } else { "" };
        writeln!(out, "{before}=== {}", part.title)?;
        // Completions stand apart, as their title is about all of them.
        if part.entries.iter().any(|entry| entry.at.is_none()) {
            writeln!(out)?;
        }
        listing::write(out, &part.entries)?;
    }
    Ok(())
}

/// A queue pair with a completion queue and memory of its own.
struct End<T: QueuePairTransport> {
    qp: QueuePair<T>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    patience: Patience,
}

impl<T: QueuePairTransport> End<T> {
    fn new(port: &Port, pd: &ProtectionDomain) -> Result<Self, Failure> {
        let cq = port.opened.context.create_cq(2 * DEPTH).build()?;
        let memory = pd
            .memory(2 * HALF)
            .access(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)
            .register()?;
        let mut qp = pd
            .create_qp::<T>(&cq, &cq)
            .max_send_wr(DEPTH)
            .max_recv_wr(DEPTH)
            .max_send_sge(2)
            .max_inline_data(64)
            .build()?;
        qp.init(&port.local, &ConnectOptions::default())?;
        let patience = Patience::new(TIMEOUT, port.opened.simulator.is_some());
        Ok(Self { qp, cq, memory, patience })
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let sges = [self.memory.sge(HALF..)?];
        Ok(self.qp.post_recv(&[ReceiveWr { wr_id: 100, sges: &sges }])?)
    }

    fn completions(&mut self, count: usize) -> Result<Vec<OwnedCompletion>, Failure> {
        let mut came = Vec::new();
        self.patience.refresh();
        while came.len() < count {
            let missing = count - came.len();
            if self.cq.poll(missing, |completion| came.push(completion.to_owned()))? == 0 {
                self.patience.wait("completions")?;
            }
        }
        Ok(came)
    }

    /// Decodes the used blocks of the send ring.
    fn ring(&self, title: String, used: usize, addressing: Addressing) -> Part {
        let ring = self.qp.send_ring();
        Part { title, entries: super::ring(&ring[..used * BLOCK], Some(addressing)) }
    }
}

fn completions(title: impl Into<String>, came: &[OwnedCompletion]) -> Part {
    let entry = |completion: &OwnedCompletion| {
        let descriptor = completion.descriptor();
        let item = Some(cqe::completion(&descriptor, None));
        Entry { at: None, line: None, length: descriptor.len(), item }
    };
    Part { title: title.into(), entries: came.iter().map(entry).collect() }
}

fn connected(port: &Port) -> Result<[Part; 3], Failure> {
    let options = ConnectOptions::default();
    let pd = port.opened.context.alloc_pd()?;
    let mut here = End::<transport::Rc>::new(port, &pd)?;
    let mut there = End::<transport::Rc>::new(port, &pd)?;
    let (psn, other) = (Psn::wrapping(0x100), Psn::wrapping(0x200));
    let local = here.qp.endpoint(&port.local, psn, &options);
    let remote = there.qp.endpoint(&port.local, other, &options);
    here.qp.connect(&port.local, psn, &remote, &options)?;
    there.qp.connect(&port.local, other, &local, &options)?;
    there.receive()?;
    there.receive()?;

    let (first, second) = (here.memory.sge(..64)?, here.memory.sge(64..192)?);
    let target = there.memory.remote(..)?;
    let before = here.qp.free_send_blocks();
    let mut batch = here.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().inline_data(HELLO);
    batch.wr(2, SendFlags::SIGNALED).rdma_write(target).sge_list(&[first, second]);
    batch
        .wr(3, SendFlags::SIGNALED | SendFlags::SOLICITED)
        .rdma_write_imm(target, *b"done")
        .sge(first);
    batch.wr(4, SendFlags::SIGNALED | SendFlags::FENCE).rdma_read(target).sge(second);
    batch.complete()?;
    let used = (before - here.qp.free_send_blocks()) as usize;
    let sent = here.completions(4)?;
    let received = there.completions(2)?;

    let [own, peer] = [here.qp.qp_num(), there.qp.qp_num()];
    Ok([
        here.ring(format!("send ring of RC queue pair {own:#08x}"), used, Addressing::Connected),
        completions("its completions", &sent),
        completions(format!("completions of its peer {peer:#08x}"), &received),
    ])
}

fn datagrams(port: &Port) -> Result<[Part; 3], Failure> {
    let options = ConnectOptions::default();
    let pd = port.opened.context.alloc_pd()?;
    let mut here = End::<transport::Ud>::new(port, &pd)?;
    let mut there = End::<transport::Ud>::new(port, &pd)?;
    let remote = there.qp.endpoint(&port.local, Psn::default(), &options);
    here.qp.activate(&port.local, Psn::default(), &options)?;
    there.qp.activate(&port.local, Psn::default(), &options)?;
    there.receive()?;
    let handle = pd.create_ah_to(&port.local, &remote, &options)?;
    let before = here.qp.free_send_blocks();
    send_datagram(&mut here, &handle, &there, remote.qkey.unwrap_or(0))?;
    let used = (before - here.qp.free_send_blocks()) as usize;
    let sent = here.completions(1)?;
    let received = there.completions(1)?;

    let [own, peer] = [here.qp.qp_num(), there.qp.qp_num()];
    Ok([
        here.ring(format!("send ring of UD queue pair {own:#08x}"), used, Addressing::Datagram),
        completions("its completion", &sent),
        completions(format!("completion of the receiver {peer:#08x}"), &received),
    ])
}

fn send_datagram(
    here: &mut End<transport::Ud>,
    handle: &AddressHandle,
    there: &End<transport::Ud>,
    qkey: u32,
) -> Result<(), BatchError> {
    let mut batch = here.qp.wr_start();
    batch
        .wr(1, SendFlags::SIGNALED)
        .send_imm(*b"ping")
        .ud_addr(handle.vector(), there.qp.qp_num(), qkey)
        .inline_data(HELLO);
    batch.complete()
}
