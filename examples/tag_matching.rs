//! Matches messages by tags, as MPI does: a receive names a tag, possibly with wildcards, and takes
//! the first message that fits, from any sender, whether the message or the receive came first.
//!
//! The receiver keeps two lists: waiting receives, and messages that came before their receive. The
//! device holds the first of the waiting receives, and matches messages by itself. A short message
//! contains its data (*eager*); the device fetches the data of a long one (*rendezvous*). The
//! device passes unexpected messages to software, which searches its own list and then reports to
//! the device that it has done so.
//!
//! Run it with `cargo run --example tag_matching`.

mod common;

use common::Done;
use mlx5::{
    CompletionOpcode, CompletionQueue, ConnectOptions, MemoryRegion, OpsWr, ProtectionDomain, Psn,
    QueuePair, ReceiveWr, RemoteAddress, RendezvousData, SendFlags, TagAdd, TagHandle,
    TagMatchingQueue, TmMessage, transport::Rc,
};
use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;

/// Longer messages are fetched by their receiver.
const EAGER: usize = 1024;
/// The longest message.
const LONGEST: usize = 64 << 10;
/// Receives for unexpected messages, and the bytes of one.
const REQUESTS: usize = 16;
const REQUEST: usize = EAGER + 32;
/// Maximum number of waiting receives.
const SLOTS: usize = 8;
/// Mask for any tag of a kind: the low bits are not compared.
const ANY: u64 = 0xffff_0000;

type Failed = Box<dyn Error>;

/// A waiting receive.
struct Waiting {
    id: u64,
    tag: u64,
    mask: u64,
    handle: TagHandle,
}

/// The receiving side of a message-passing library.
struct Receiver {
    queue: TagMatchingQueue,
    qp: QueuePair<Rc>,
    /// Reads the data of unexpected rendezvous messages.
    reader: QueuePair<Rc>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    waiting: Vec<Waiting>,
    unexpected: VecDeque<(TmMessage, Vec<u8>)>,
    /// Number of unexpected messages that were handled.
    handled: u32,
    next: u64,
    done: VecDeque<(u64, usize)>,
}

impl Receiver {
    fn new(pd: &ProtectionDomain, cq: CompletionQueue) -> Result<Self, Failed> {
        let mut queue = pd
            .create_tm_srq(&cq, REQUESTS as u32)
            .max_num_tags(SLOTS as u32)
            .max_ops(32)
            .build()?;
        let memory = pd.allocate(REQUESTS * REQUEST + SLOTS * LONGEST)?;
        for n in 0..REQUESTS {
            let sge = memory.sge(n * REQUEST..(n + 1) * REQUEST)?;
            queue.post_recv(&[ReceiveWr { wr_id: n as u64, sges: &[sge] }])?;
        }
        let qp = pd.create_qp::<Rc>(&cq, &cq).tm_srq(&queue).build()?;
        let reader = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(32).build()?;
        Ok(Self {
            queue,
            qp,
            reader,
            cq,
            memory,
            waiting: Vec::new(),
            unexpected: VecDeque::new(),
            handled: 0,
            next: 0,
            done: VecDeque::new(),
        })
    }

    fn slot(id: u64) -> usize {
        REQUESTS * REQUEST + id as usize % SLOTS * LONGEST
    }

    /// Starts a receive; `wait` returns its number with the message.
    fn receive(&mut self, tag: u64, mask: u64) -> Result<u64, Failed> {
        let id = self.next;
        self.next += 1;
        let fits = |(head, _): &(TmMessage, Vec<u8>)| head.tag().is_some_and(|t| t & mask == tag);
        if let Some(at) = self.unexpected.iter().position(fits) {
            let (head, data) = self.unexpected.remove(at).ok_or("found")?;
            self.take(id, head, &data)?;
            return Ok(id);
        }
        let sges = [self.memory.sge(Self::slot(id)..Self::slot(id) + LONGEST)?];
        let add = TagAdd { recv_wr_id: id, sges: &sges, tag, mask };
        let handle = self.queue.add(add, Some(self.handled))?;
        self.waiting.push(Waiting { id, tag, mask, handle });
        Ok(id)
    }

    /// Assigns an unexpected message to a receive.
    fn take(&mut self, id: u64, head: TmMessage, data: &[u8]) -> Result<(), Failed> {
        match head {
            TmMessage::Rendezvous { tag, app_ctx, data } => {
                let to = self.memory.sge(Self::slot(id)..Self::slot(id) + data.len as usize)?;
                let from = RemoteAddress { addr: data.va, rkey: data.rkey };
                let finished = TmMessage::Finished { tag, app_ctx, data }.to_bytes();
                // The notice that the data was fetched takes the same queue pair as the read, after
                // it.
                let mut batch = self.reader.wr_start();
                batch.wr(id, SendFlags::SIGNALED).rdma_read(from).sge(to);
                batch.wr(id, SendFlags::empty()).send().inline_data(&finished);
                batch.complete()?;
                println!("  software fetches {} bytes for receive {id}", data.len);
            }
            _ => {
                self.memory.write_at(Self::slot(id), data)?;
                self.done.push_back((id, data.len()));
            }
        }
        Ok(())
    }

    /// Handles a message that the device did not expect.
    fn unexpected(&mut self, request: u64, length: usize) -> Result<(), Failed> {
        let mut bytes = vec![0; length];
        let at = request as usize * REQUEST;
        self.memory.read_at(at, &mut bytes)?;
        let sge = self.memory.sge(at..at + REQUEST)?;
        self.queue.post_recv(&[ReceiveWr { wr_id: request, sges: &[sge] }])?;
        let (head, data) = TmMessage::parse(&bytes).ok_or("a header")?;
        let tag = head.tag().ok_or("a tag")?;
        self.handled += 1;
        match self.waiting.iter().position(|one| tag & one.mask == one.tag) {
            Some(at) => {
                // The receive was added while the message was under way. The device does not match
                // the receive before software reports this message as handled.
                let Waiting { id, handle, .. } = self.waiting.remove(at);
                self.queue.post_srq_ops(&mut [OpsWr::del(0, handle)])?;
                self.take(id, head, data)?;
            }
            None => self.unexpected.push_back((head, data.to_vec())),
        }
        Ok(self.queue.sync(self.handled)?)
    }

    /// Polls until a message is complete; returns its receive and its data.
    fn wait(&mut self) -> Result<(u64, Vec<u8>), Failed> {
        loop {
            if let Some((id, length)) = self.done.pop_front() {
                let mut data = vec![0; length];
                self.memory.read_at(Self::slot(id), &mut data)?;
                return Ok((id, data));
            }
            let mut seen = Vec::new();
            self.cq.poll(16, |wc| seen.push(wc.to_owned()))?;
            for completion in seen {
                let wc = completion.as_completion();
                wc.status()?;
                let length = wc.byte_len().unwrap_or_default() as usize;
                if wc.tm_match() {
                    let tag = wc.tm_info().map_or(0, |info| info.tag);
                    let how = if wc.tm_data_valid() { "with its data" } else { "data to come" };
                    println!(
                        "  the device matches tag {tag:#x} with receive {}, {how}",
                        wc.wr_id()
                    );
                    self.waiting.retain(|one| one.id != wc.wr_id());
                }
                if wc.tm_data_valid() || wc.opcode() == CompletionOpcode::RdmaRead {
                    self.done.push_back((wc.wr_id(), length));
                } else if wc.opcode() == CompletionOpcode::TmReceive && !wc.tm_match() {
                    self.unexpected(wc.wr_id(), length)?;
                }
            }
        }
    }
}

/// The sending side.
struct Sender {
    qp: QueuePair<Rc>,
    /// The queue pair through which the receiver fetches the data of unexpected messages.
    server: QueuePair<Rc>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    /// Number of long messages that are not fetched yet.
    pending: usize,
}

impl Sender {
    fn new(pd: &ProtectionDomain, cq: CompletionQueue) -> Result<Self, Failed> {
        let memory = pd
            .memory(2 * LONGEST)
            .access(mlx5::Access::LOCAL_WRITE | mlx5::Access::REMOTE_READ)
            .register()?;
        let mut qps = [(); 2].map(|()| pd.create_qp::<Rc>(&cq, &cq).build()).into_iter();
        let mut next = || qps.next().ok_or("two queue pairs")?.map_err(Failed::from);
        let (qp, server) = (next()?, next()?);
        Ok(Self { qp, server, cq, memory, pending: 0 })
    }

    /// Posts receives for the notice that a long message was fetched; it may arrive on either queue
    /// pair.
    fn expect_word(&mut self) -> Result<(), Failed> {
        let sge = [self.memory.sge(LONGEST..LONGEST + 32)?];
        let request = [ReceiveWr { wr_id: 0, sges: &sge }];
        self.qp.post_recv(&request)?;
        Ok(self.server.post_recv(&request)?)
    }

    fn send(&mut self, tag: u64, data: &[u8]) -> Result<(), Failed> {
        let mut message = if data.len() <= EAGER {
            TmMessage::Eager { tag, app_ctx: 0 }.to_bytes()
        } else {
            self.memory.write_at(0, data)?;
            let at = self.memory.remote(0..)?;
            let data = RendezvousData { va: at.addr, rkey: at.rkey, len: data.len() as u32 };
            self.pending += 1;
            self.expect_word()?;
            TmMessage::Rendezvous { tag, app_ctx: 0, data }.to_bytes()
        };
        if data.len() <= EAGER {
            message.extend_from_slice(data);
        }
        let at = LONGEST + 64;
        self.memory.write_at(at, &message)?;
        let sge = self.memory.sge(at..at + message.len())?;
        let mut batch = self.qp.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().sge(sge);
        batch.complete()?;
        // One message at a time, so that its memory is free afterwards.
        self.wait(|wc| wc == CompletionOpcode::Send)
    }

    fn wait(&mut self, mut until: impl FnMut(CompletionOpcode) -> bool) -> Result<(), Failed> {
        let mut found = false;
        while !found {
            let mut fetched = 0;
            self.cq.poll(16, |wc| {
                assert!(wc.is_success(), "{wc:?}");
                fetched += usize::from(wc.opcode() == CompletionOpcode::Receive);
                found |= until(wc.opcode());
            })?;
            self.pending -= fetched;
        }
        Ok(())
    }

    /// Waits until every long message is fetched; the sender may then reuse its memory.
    fn flush(&mut self) -> Result<(), Failed> {
        while self.pending > 0 {
            self.wait(|opcode| opcode == CompletionOpcode::Receive)?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    common::start(
        "Receives that name a tag, as those of MPI: the device matches messages with them.",
        run,
    )
}

fn run() -> Done {
    let setup = common::open()?;
    let context = &setup.context;
    if context.query_device().tag_matching.max_num_tags < SLOTS as u32 {
        println!("this device does not match tags");
        return Ok(());
    }
    let pd = context.alloc_pd()?;
    let mut receiver = Receiver::new(&pd, context.create_cq(256).build()?)?;
    let mut sender = Sender::new(&pd, context.create_cq(256).build()?)?;
    let port = context.local_port(1, None)?;
    let options = ConnectOptions::default();
    for (one, other) in
        [(&mut receiver.qp, &mut sender.qp), (&mut receiver.reader, &mut sender.server)]
    {
        let psn = Psn::wrapping(one.qp_num());
        let (here, there) =
            (one.endpoint(&port, psn, &options), other.endpoint(&port, psn, &options));
        one.connect(&port, psn, &there, &options)?;
        other.connect(&port, psn, &here, &options)?;
    }

    println!("expected: the receives are there first");
    let long = vec![7; 50_000];
    let any = receiver.receive(0x1_0000, ANY)?;
    let exact = receiver.receive(0x2_0005, u64::MAX)?;
    sender.send(0x1_0042, b"hello")?;
    assert_eq!(receiver.wait()?, (any, b"hello".to_vec()));
    sender.send(0x2_0005, &long)?;
    assert_eq!(receiver.wait()?, (exact, long.clone()));
    sender.flush()?;

    println!("unexpected: the messages are there first");
    sender.send(0x3_0001, b"early")?;
    sender.send(0x3_0002, &long)?;
    // A last message: once it is here, the two before it are, too.
    let last = receiver.receive(0x4_0000, ANY)?;
    sender.send(0x4_0001, b"last")?;
    assert_eq!(receiver.wait()?, (last, b"last".to_vec()));
    // They are received in the order of their arrival.
    let (first, second) = (receiver.receive(0x3_0000, ANY)?, receiver.receive(0x3_0000, ANY)?);
    assert_eq!(receiver.wait()?, (first, b"early".to_vec()));
    assert_eq!(receiver.wait()?, (second, long));
    sender.flush()?;
    println!("done: {} messages were unexpected", receiver.handled);
    Ok(())
}
