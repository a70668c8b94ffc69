//! The programs that are traced: this test itself, run again with the name of a case.

use mlx5::flow::{Ethernet, Rule};
use mlx5::{
    Access, CompletionQueue, ConnectOptions, Context, CqeCompression, MemoryRegion,
    ProtectionDomain, Psn, QueuePair, ReceiveWr, Segmented, SendFlags, VlanTag,
    transport::{RawPacket, Rc},
};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The environment variable that selects the program's case.
pub(crate) const CASE: &str = "MLX5_TRACED_CASE";

type Done = Result<(), Box<dyn std::error::Error>>;

pub(crate) fn run(case: &str) -> ExitCode {
    let done = match case {
        "operations" => operations(),
        "fails" => fails(),
        "threads" => threads(),
        "burst" => burst(),
        "reset" => reset(),
        "shared" => shared(),
        "resize" => resize(),
        "packets" => packets(),
        "short-lived" => short_lived(),
        "aborts" => aborts(),
        "spawns" => spawns(),
        "forks" => forks(),
        "forks-idle" => forks_into(|| true),
        "execs" => execs(),
        "runs" => runs(),
        "nothing" => Ok(()),
        "status" => return ExitCode::from(7),
        other => Err(format!("there is no case {other}").into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{case}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Two connected queue pairs, each with completions of its own.
struct Pair {
    near: QueuePair<Rc>,
    far: QueuePair<Rc>,
    sent: CompletionQueue,
    received: CompletionQueue,
    memory: MemoryRegion,
    context: Context,
    _pd: ProtectionDomain,
}

fn open() -> Result<Context, Box<dyn std::error::Error>> {
    Ok(mlx5::devices()?.first().ok_or("no device")?.open()?)
}

impl Pair {
    fn new(requests: u32) -> Result<Self, Box<dyn std::error::Error>> {
        let context = open()?;
        let pd = context.alloc_pd()?;
        let sent = context.create_cq(requests).build()?;
        let received = context.create_cq(requests).build()?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let memory = pd.memory(4096).access(access).register()?;
        let make = |cq| {
            let builder = pd.create_qp::<Rc>(cq, cq).max_send_wr(requests).max_recv_wr(requests);
            builder.max_send_sge(2).max_inline_data(32).build()
        };
        let (near, far) = (make(&sent)?, make(&received)?);
        let mut pair = Self { near, far, sent, received, memory, context, _pd: pd };
        pair.connect()?;
        Ok(pair)
    }

    fn connect(&mut self) -> Done {
        let (port, options) = (self.context.local_port(1, None)?, ConnectOptions::default());
        let psn = Psn::default();
        let here = self.near.endpoint(&port, psn, &options);
        let there = self.far.endpoint(&port, psn, &options);
        self.near.connect(&port, psn, &there, &options)?;
        self.far.connect(&port, psn, &here, &options)?;
        Ok(())
    }

    fn receive(&mut self, length: usize) -> Done {
        let sges = [self.memory.sge(2048..2048 + length)?];
        Ok(self.far.post_recv(&[ReceiveWr { wr_id: 1, sges: &sges }])?)
    }

    fn inline(&mut self, bytes: &[u8]) -> Done {
        let mut batch = self.near.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().inline_data(bytes);
        Ok(batch.complete()?)
    }
}

/// Polls until `count` completions have arrived.
fn poll(cq: &mut CompletionQueue, mut count: usize) -> Done {
    while count > 0 {
        count -= cq.poll(count, |_| ())?;
    }
    Ok(())
}

/// One request of each kind, of known sizes.
fn operations() -> Done {
    let mut pair = Pair::new(16)?;
    pair.receive(64)?;
    pair.receive(100)?;
    let (first, second) = (pair.memory.sge(0..64)?, pair.memory.sge(64..192)?);
    let (word, target) = (pair.memory.sge(0..8)?, pair.memory.remote(1024..)?);
    let mut batch = pair.near.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"hello, mlx5");
    batch.wr(2, SendFlags::empty()).rdma_write(target).sge_list(&[first, second]);
    batch.wr(3, SendFlags::SIGNALED).rdma_write_imm(target, *b"done").sge(first);
    batch.wr(4, SendFlags::SIGNALED | SendFlags::FENCE).rdma_read(target).sge(second);
    batch.wr(5, SendFlags::SIGNALED).atomic_fetch_add(target, 5).sge(word);
    batch.complete()?;
    poll(&mut pair.sent, 4)?;
    poll(&mut pair.received, 2)
}

/// A write to memory that the peer has not, and one behind it.
fn fails() -> Done {
    let mut pair = Pair::new(16)?;
    let sge = pair.memory.sge(0..64)?;
    let mut target = pair.memory.remote(0..64)?;
    target.rkey ^= 0x5500;
    let mut batch = pair.near.wr_start();
    batch.wr(1, SendFlags::SIGNALED).rdma_write(target).sge(sge);
    batch.wr(2, SendFlags::SIGNALED).rdma_write(target).sge(sge);
    batch.complete()?;
    poll(&mut pair.sent, 2)
}

/// Four threads, of which number n sends 50 messages of n bytes.
fn threads() -> Done {
    let threads: Vec<_> = (1..=4_u8)
        .map(|number| {
            std::thread::spawn(move || {
                let sends = || -> Done {
                    let mut pair = Pair::new(16)?;
                    for _ in 0..50 {
                        pair.receive(64)?;
                        pair.inline(&vec![number; number.into()])?;
                        poll(&mut pair.sent, 1)?;
                        poll(&mut pair.received, 1)?;
                    }
                    Ok(())
                };
                sends().map_err(|error| error.to_string())
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it does not panic")?;
    }
    Ok(())
}

/// More than a ring holds, as fast as it goes.
fn burst() -> Done {
    let mut pair = Pair::new(16)?;
    for _ in 0..3000 {
        pair.receive(64)?;
        pair.inline(b"burst")?;
        poll(&mut pair.sent, 1)?;
        poll(&mut pair.received, 1)?;
    }
    Ok(())
}

/// Three messages, and two more behind a reset.
fn reset() -> Done {
    let mut pair = Pair::new(16)?;
    for count in [3, 2] {
        for _ in 0..count {
            pair.receive(64)?;
            pair.inline(b"again")?;
            poll(&mut pair.sent, 1)?;
            poll(&mut pair.received, 1)?;
        }
        pair.near.reset()?;
        pair.far.reset()?;
        pair.connect()?;
    }
    Ok(())
}

/// A shared receive queue of which three receives are posted before a message comes, and one after.
fn shared() -> Done {
    let context = open()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(16).build()?;
    let memory = pd.memory(4096).access(Access::LOCAL_WRITE).register()?;
    let mut srq = pd.create_srq(8).build()?;
    let mut near = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(32).build()?;
    let mut far = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
    let (port, psn, options) = (context.local_port(1, None)?, Psn::default(), Default::default());
    let (here, there) = (near.endpoint(&port, psn, &options), far.endpoint(&port, psn, &options));
    near.connect(&port, psn, &there, &options)?;
    far.connect(&port, psn, &here, &options)?;
    for length in [10, 20, 30] {
        srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[memory.sge(0..length)?] }])?;
    }
    // The tracer looks when a queue is destroyed: now, and when the message has come.
    drop(context.create_cq(16).build()?);
    let mut batch = near.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"shared");
    batch.complete()?;
    poll(&mut cq, 2)?;
    drop(context.create_cq(16).build()?);
    srq.post_recv(&[ReceiveWr { wr_id: 2, sges: &[memory.sge(0..40)?] }])?;
    Ok(())
}

/// Completions before a completion queue is resized, and behind it.
fn resize() -> Done {
    let mut pair = Pair::new(16)?;
    for entries in [64, 16, 128] {
        for _ in 0..10 {
            pair.receive(64)?;
            pair.inline(b"resize")?;
            poll(&mut pair.sent, 1)?;
            poll(&mut pair.received, 1)?;
        }
        pair.sent.resize(entries)?;
    }
    Ok(())
}

/// A broadcast packet of `bytes` bytes, of UDP (17) or TCP (6), with zeros for checksums.
fn packet(protocol: u8, bytes: usize) -> Vec<u8> {
    let half = |number: usize| (number as u16).to_be_bytes();
    let mut packet = vec![0xff; 6];
    packet.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    packet
        .extend([[0x45, 0], half(bytes - 14), [0, 1], [0x40, 0], [64, protocol], [0, 0]].concat());
    packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    packet.extend([half(1111), half(2222)].concat());
    match protocol {
        17 => packet.extend([half(bytes - 34), [0, 0]].concat()),
        _ => packet.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]),
    }
    packet.resize(bytes, 0x5a);
    packet
}

/// Packets in every kind of request, which another device receives in strides of 64 bytes, 16 of a
/// receive.
fn packets() -> Done {
    let devices = mlx5::devices()?;
    let [near, far] = &devices[..] else { return Err("it takes two devices".into()) };
    let (near, far) = (near.open()?, far.open()?);
    let receiver = far.create_ethernet_queue(1).receives(32).frames(0).sends(1);
    let receiver = receiver.compression(CqeCompression::ChecksumStride).vlan_stripping(true);
    let mut receiver = receiver.striding(64, 16).build()?;
    let everybody = Rule::new().ethernet(Ethernet::new().dst_mac([0xff; 6]));
    let _rule = receiver.attach(&everybody.tag(0x2a))?;

    let pd = near.alloc_pd()?;
    let mut cq = near.create_cq(16).build()?;
    let memory = pd.memory(4096).access(Access::LOCAL_WRITE).register()?;
    let builder = pd.create_qp::<RawPacket>(&cq, &cq).max_send_wr(16).max_send_sge(5);
    let mut qp = builder.max_inline_data(160).max_tso_header(54).build()?;
    qp.activate(1)?;

    let all = SendFlags::SIGNALED | SendFlags::IP_CSUM;
    let mut next = 0;
    let mut put = |bytes: &[u8]| -> Result<mlx5::Sge, mlx5::Error> {
        let start = next;
        next += bytes.len();
        memory.write_at(start, bytes)?;
        memory.sge(start..next)
    };
    let plain = put(&packet(17, 60))?;
    let header = packet(17, 130);
    let rest = put(&header[18..])?;
    let payload = put(&[0x5a; 250])?;
    let mut several = Vec::new();
    for bytes in [60, 200, 60, 100, 300] {
        several.push(put(&packet(17, bytes))?);
    }
    let whole = packet(6, 54 + 250);
    let segmented = Segmented { header: &whole[..54], mss: 100, payload: &[payload] };
    let mut batch = qp.wr_start();
    batch.wr(1, all).send().sge(plain);
    batch.wr(2, all).send().insert_vlan(VlanTag::Customer(3 << 13 | 100)).sge(plain);
    let first: &[u8; 18] = header.first_chunk().ok_or("a header")?;
    batch.wr(3, all).send().inline_header(first).sge(rest);
    batch.wr(4, all).send_tso(segmented);
    batch.wr(5, all).send_packets(&several);
    batch.wr(6, all).send_packets_inline(&[&packet(17, 60), &packet(17, 70)]);
    batch.complete()?;
    poll(&mut cq, 6)?;
    let mut count = 0;
    while count < 13 {
        receiver.receive(|packets| packets.for_each(|_| count += 1))?;
    }
    Ok(())
}

/// Queues that end right after their one message: a tracer sees it only if it looks before they
/// end.
fn short_lived() -> Done {
    for _ in 0..20 {
        let mut pair = Pair::new(16)?;
        pair.receive(64)?;
        pair.inline(b"short")?;
        poll(&mut pair.sent, 1)?;
        poll(&mut pair.received, 1)?;
    }
    Ok(())
}

/// Ends by a signal of its own, with requests whose completions were not polled.
fn aborts() -> Done {
    let mut pair = Pair::new(16)?;
    pair.receive(64)?;
    pair.inline(b"last words")?;
    poll(&mut pair.sent, 1)?;
    std::process::abort();
}

fn again(case: &str) -> Result<Command, Box<dyn std::error::Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(CASE, case);
    Ok(command)
}

/// One message here, and those of another program in a process of its own.
fn spawns() -> Done {
    let mut pair = Pair::new(16)?;
    pair.receive(64)?;
    pair.inline(b"parent")?;
    poll(&mut pair.sent, 1)?;
    let status = again("operations")?.status()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

/// A forked child that opens the device itself.
fn forks() -> Done {
    forks_into(|| operations().is_ok())
}

/// One message here, and a forked child that runs `child`; the child's exit status reports its
/// result.
fn forks_into(child: impl FnOnce() -> bool) -> Done {
    let mut pair = Pair::new(16)?;
    pair.receive(64)?;
    pair.inline(b"parent")?;
    poll(&mut pair.sent, 1)?;
    // SAFETY: the process has one thread of its own; those of the simulator hold nothing that the
    // library does not make again in a child.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Child => {
            let good = child();
            // SAFETY: ends the child, without the parent's exit handlers.
            unsafe { nix::libc::_exit(i32::from(!good)) }
        }
        nix::unistd::ForkResult::Parent { child } => {
            nix::sys::wait::waitpid(child, None)?;
            Ok(())
        }
    }
}

/// One message, and then another program in the same process.
fn execs() -> Done {
    let mut pair = Pair::new(16)?;
    pair.receive(64)?;
    pair.inline(b"before")?;
    poll(&mut pair.sent, 1)?;
    Err(again("operations")?.exec().into())
}

/// A message every few milliseconds, until stdin ends.
fn runs() -> Done {
    let mut pair = Pair::new(16)?;
    let ends = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    println!("ready");
    std::io::stdout().flush()?;
    while !ends.is_finished() {
        pair.receive(64)?;
        pair.inline(b"running")?;
        poll(&mut pair.sent, 1)?;
        poll(&mut pair.received, 1)?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
