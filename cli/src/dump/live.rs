//! `mlx5 dump --live`: posts requests of every kind, and decodes the queues.

use crate::device::{Port, PortArgs};
use crate::dump::cqe;
use crate::dump::wqe::Addressing;
use crate::failure::Failure;
use crate::link::Patience;
use mlx5::{
    Access, AddressHandle, BatchError, CompletionQueue, ConnectOptions, MemoryRegion,
    OwnedCompletion, ProtectionDomain, Psn, QueuePair, QueuePairTransport, ReceiveWr, SendFlags,
    transport,
};
use mlx5_prm::wqe::BLOCK;
use std::io::Write;
use std::time::Duration;

const HELLO: &[u8] = b"hello, mlx5";
/// Requests that each end can have outstanding.
const DEPTH: u32 = 16;
/// Bytes of each half of the memory: send and receive.
const HALF: usize = 2048;
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &PortArgs, out: &mut impl Write) -> Result<(), Failure> {
    let port = args.open()?;
    connected(&port, out)?;
    writeln!(out)?;
    datagrams(&port, out)
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
    fn show_ring(
        &self,
        out: &mut impl Write,
        used: usize,
        addressing: Addressing,
    ) -> Result<(), Failure> {
        let ring = self.qp.send_ring();
        super::ring(out, &ring[..used * BLOCK], Some(addressing))?;
        Ok(())
    }
}

fn show_completions(out: &mut impl Write, came: &[OwnedCompletion]) -> Result<(), Failure> {
    for completion in came {
        writeln!(out)?;
        cqe::completion(&completion.descriptor(), None).write(out)?;
    }
    Ok(())
}

fn connected(port: &Port, out: &mut impl Write) -> Result<(), Failure> {
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

    writeln!(out, "=== send ring of RC queue pair {:#08x}", here.qp.qp_num())?;
    here.show_ring(out, used, Addressing::Connected)?;
    writeln!(out, "\n=== its completions")?;
    show_completions(out, &sent)?;
    writeln!(out, "\n=== completions of its peer {:#08x}", there.qp.qp_num())?;
    show_completions(out, &received)
}

fn datagrams(port: &Port, out: &mut impl Write) -> Result<(), Failure> {
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

    writeln!(out, "=== send ring of UD queue pair {:#08x}", here.qp.qp_num())?;
    here.show_ring(out, used, Addressing::Datagram)?;
    writeln!(out, "\n=== its completion")?;
    show_completions(out, &sent)?;
    writeln!(out, "\n=== completion of the receiver {:#08x}", there.qp.qp_num())?;
    show_completions(out, &received)
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
