//! One end: queue pairs that share completion queues and memory.

use crate::device::Port;
use crate::failure::Failure;
use crate::link::{Op, Transport, posted_as};
use mlx5::{
    Access, AddressHandle, AnyQueuePair, CompletionChannel, CompletionError, CompletionErrorKind,
    CompletionQueue, ConnectOptions, Data, DeviceAttr, Endpoint, MemoryRegion, Operation,
    ProtectionDomain, Psn, QueuePair, QueuePairTransport, ReceiveWr, RemoteAddress, SendFlags,
    SendWr, Sge, Syndrome, UdAddress, WorkCompletion, mtu_bytes,
};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Bytes before the data of a datagram: the global routing header.
const HEADER: usize = 40;
/// The maximum number of completions per poll.
const BURST: usize = 32;
/// Bits of a `wr_id` that count the requests of a queue pair; those above are the queue pair's
/// index.
const COUNT_BITS: u32 = 40;
/// The size of an atomic's operand.
pub(crate) const ATOMIC: usize = 8;

/// The sizes of an end; the same for both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) transport: Transport,
    /// The number of queue pairs.
    pub(crate) queues: u32,
    /// The largest message.
    pub(crate) message: usize,
    /// The maximum number of outstanding requests of a queue pair.
    pub(crate) depth: u32,
    /// The number of posted receives of a queue pair.
    pub(crate) receives: u32,
    /// The largest message sent inline.
    pub(crate) inline: u32,
}

/// The data that the peer needs to connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Invitation {
    pub(crate) endpoint: Endpoint,
    /// Memory to write to and to read from.
    pub(crate) memory: RemoteAddress,
}

/// One end: its queue pairs are numbered from 0.
pub(crate) struct Side {
    // Queues are dropped before the memory that they use.
    lines: Vec<Line>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    pub(crate) shape: Shape,
    /// The buffer of inline data.
    inline: Vec<u8>,
}

/// A queue pair of an end.
struct Line {
    qp: AnyQueuePair,
    psn: Psn,
    endpoint: Endpoint,
    peer: Option<(Invitation, Option<AddressHandle>)>,
    /// The number of requests that completed.
    sent: u64,
}

/// Messages that one poll found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Received {
    /// Their number.
    pub(crate) count: u32,
    /// The queue pair of the last one.
    pub(crate) queue: usize,
    /// The length of the last one.
    pub(crate) length: usize,
}

/// Parts of the memory: for sending, for receiving, and for the peer's writes and reads.
struct Areas {
    send: Range<usize>,
    receive: Range<usize>,
    shared: Range<usize>,
}

impl Shape {
    /// Bytes before the data of a received message.
    pub(crate) fn header(&self) -> usize {
        if self.transport == Transport::Ud { HEADER } else { 0 }
    }

    fn areas(&self) -> Areas {
        // Each part is page-aligned.
        const PAGE: usize = 4096;
        let message = self.message.max(ATOMIC);
        let send = 0..message;
        let receive = message.next_multiple_of(PAGE);
        let receive = receive..receive + HEADER + message;
        let shared = receive.end.next_multiple_of(PAGE);
        Areas { send, receive, shared: shared..shared + message }
    }
}

impl Side {
    /// Creates an end and posts its receives.
    pub(crate) fn new(
        port: &Port,
        shape: Shape,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, Failure> {
        let context = &port.opened.context;
        let pd = context.alloc_pd()?;
        let cq = |entries: u32| {
            let builder = context.create_cq(entries.saturating_mul(shape.queues));
            match channel {
                Some(channel) => builder.channel(channel).build(),
                None => builder.build(),
            }
        };
        let send_cq = cq(shape.depth)?;
        let recv_cq = cq(shape.receives)?;
        let memory = pd
            .memory(shape.areas().shared.end)
            .access(access(context.query_device()))
            .register()?;
        let made = Queues { pd: &pd, send_cq: &send_cq, recv_cq: &recv_cq, shape };
        let mut lines = Vec::new();
        for _ in 0..shape.queues {
            let psn = Psn::wrapping(RandomState::new().hash_one(0_u8) as u32);
            let (qp, endpoint) = match shape.transport {
                Transport::Rc => made.build::<mlx5::transport::Rc>(port, psn)?,
                Transport::Uc => made.build::<mlx5::transport::Uc>(port, psn)?,
                Transport::Ud => made.build::<mlx5::transport::Ud>(port, psn)?,
            };
            lines.push(Line { qp, psn, endpoint, peer: None, sent: 0 });
        }
        let inline = vec![0; shape.inline as usize];
        let mut side = Self { lines, send_cq, recv_cq, memory, pd, shape, inline };
        for queue in 0..side.queues() {
            side.post_receives(queue, shape.receives)?;
        }
        Ok(side)
    }

    /// The number of queue pairs.
    pub(crate) fn queues(&self) -> usize {
        self.lines.len()
    }

    /// Returns the data that the peer needs to connect each queue pair.
    pub(crate) fn invitations(&self) -> Result<Vec<Invitation>, Failure> {
        let memory = self.memory.remote(self.shape.areas().shared)?;
        Ok(self.lines.iter().map(|line| Invitation { endpoint: line.endpoint, memory }).collect())
    }

    /// Connects to the other end; after that, requests may be posted.
    pub(crate) fn join(&mut self, port: &Port, peers: &[Invitation]) -> Result<(), Failure> {
        if peers.len() != self.lines.len() {
            let cause = format!("{} queue pairs for {}", peers.len(), self.lines.len());
            return Err(Failure::new(cause));
        }
        for (line, peer) in self.lines.iter_mut().zip(peers) {
            line.join(port, &self.pd, self.shape.transport, *peer)?;
        }
        Ok(())
    }

    /// Posts `count` requests of `size` bytes with one doorbell. They are numbered from `first` on,
    /// the first request of a run being 0; `signaled` selects those with a completion.
    pub(crate) fn post(
        &mut self,
        queue: usize,
        op: Op,
        size: usize,
        first: u64,
        count: usize,
        signaled: impl Fn(u64) -> bool,
    ) -> Result<(), Failure> {
        let from = self.shape.areas().send;
        self.post_from(queue, op, from.start..from.start + size, first, count, signaled)
    }

    /// Sends back the last received message, of `size` bytes.
    pub(crate) fn echo(&mut self, queue: usize, size: usize, number: u64) -> Result<(), Failure> {
        let start = self.shape.areas().receive.start + self.shape.header();
        self.post_from(queue, Op::Send, start..start + size, number, 1, |_| true)
    }

    fn post_from(
        &mut self,
        queue: usize,
        op: Op,
        from: Range<usize>,
        first: u64,
        count: usize,
        signaled: impl Fn(u64) -> bool,
    ) -> Result<(), Failure> {
        let line = &mut self.lines[queue];
        let Some((peer, handle)) = &line.peer else {
            return Err(Failure::new("the queue pair is not connected"));
        };
        let operation = match op {
            Op::Send => Operation::Send,
            Op::Write => Operation::RdmaWrite(peer.memory),
            Op::Read => Operation::RdmaRead(peer.memory),
            Op::FetchAdd => Operation::FetchAdd { remote: peer.memory, add: 1 },
            // It swaps only a 1: for the device the result makes no difference.
            Op::CompareSwap => Operation::CompareSwap { remote: peer.memory, compare: 1, swap: 2 },
        };
        let inlined = self.inline.get_mut(..from.len()).filter(|_| !op.returns());
        let (sge, pieces): (Sge, Option<[&[u8]; 1]>) = match inlined {
            Some(bytes) => {
                self.memory.read_at(from.start, bytes)?;
                (Sge::default(), Some([bytes]))
            }
            None => (self.memory.sge(from)?, None),
        };
        let sges = [sge];
        let data = pieces.as_ref().map_or(Data::Sges(&sges), |pieces| Data::Inline(pieces));
        let address = handle.as_ref().map(|handle| UdAddress {
            vector: handle.vector(),
            qp_num: peer.endpoint.qp_num.get(),
            qkey: peer.endpoint.qkey.unwrap_or(0),
        });
        let request = |number| SendWr {
            wr_id: wr_id(queue, number),
            flags: if signaled(number) { SendFlags::SIGNALED } else { SendFlags::empty() },
            operation,
            data,
            address,
            ..SendWr::default()
        };
        if count == 1 {
            return Ok(line.qp.post_send(&[request(first)])?);
        }
        let list: Vec<_> = (first..first + count as u64).map(request).collect();
        Ok(line.qp.post_send(&list)?)
    }

    /// Posts `count` receives. All use the same memory, because only one message at a time is read.
    pub(crate) fn post_receives(&mut self, queue: usize, count: u32) -> Result<(), Failure> {
        let sges = [self.memory.sge(self.shape.areas().receive)?];
        let request = ReceiveWr { wr_id: wr_id(queue, 0), sges: &sges };
        let list = [request; BURST];
        let mut left = count as usize;
        while left > 0 {
            let some = left.min(BURST);
            self.lines[queue].qp.post_recv(&list[..some])?;
            left -= some;
        }
        Ok(())
    }

    /// Polls send completions; returns whether there were any.
    pub(crate) fn poll_sent(&mut self) -> Result<bool, Failure> {
        let Self { send_cq, lines, .. } = self;
        let mut failed = None;
        let count = send_cq.poll(BURST, |completion| match completion.status() {
            Ok(()) => {
                let (queue, number) = place(completion.wr_id());
                if let Some(line) = lines.get_mut(queue) {
                    line.sent = number + 1;
                }
            }
            Err(error) if failed.is_none() => failed = Some(completion_failure(&completion, error)),
            Err(_) => {}
        })?;
        failed.map_or(Ok(count > 0), Err)
    }

    /// The number of requests of a queue pair that completed in this run.
    pub(crate) fn sent(&self, queue: usize) -> u64 {
        self.lines[queue].sent
    }

    /// A run begins: requests are numbered from 0 again. None may be outstanding.
    pub(crate) fn restart(&mut self) {
        self.lines.iter_mut().for_each(|line| line.sent = 0);
    }

    /// Polls receive completions; `each` gets the queue pair of each message.
    pub(crate) fn poll_received(
        &mut self,
        mut each: impl FnMut(usize),
    ) -> Result<Option<Received>, Failure> {
        let header = self.shape.header();
        let mut last = Received::default();
        let mut failed = None;
        self.recv_cq.poll(BURST, |completion| match completion.status() {
            Ok(()) => {
                let (queue, _) = place(completion.wr_id());
                let length = completion.byte_len().map_or(0, |bytes| bytes as usize);
                last = Received {
                    count: last.count + 1,
                    queue,
                    length: length.saturating_sub(header),
                };
                each(queue);
            }
            Err(error) if failed.is_none() => failed = Some(completion_failure(&completion, error)),
            Err(_) => {}
        })?;
        match failed {
            Some(failure) => Err(failure),
            None => Ok((last.count > 0).then_some(last)),
        }
    }

    /// Arms the completion queue of sends.
    pub(crate) fn arm_sent(&self) -> Result<(), Failure> {
        Ok(self.send_cq.arm(false)?)
    }

    /// Arms the completion queue of receives.
    pub(crate) fn arm_received(&self) -> Result<(), Failure> {
        Ok(self.recv_cq.arm(false)?)
    }

    /// Copies `bytes` into the send buffer.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.memory.write_at(self.shape.areas().send.start, bytes)?)
    }

    /// Copies the bytes that an atomic returned last.
    #[cfg(test)]
    pub(crate) fn returned(&self, bytes: &mut [u8]) -> Result<(), Failure> {
        Ok(self.memory.read_at(self.shape.areas().send.start, bytes)?)
    }

    /// Copies the last received message.
    pub(crate) fn received(&self, bytes: &mut [u8]) -> Result<(), Failure> {
        let start = self.shape.areas().receive.start + self.shape.header();
        Ok(self.memory.read_at(start, bytes)?)
    }
}

impl Line {
    fn join(
        &mut self,
        port: &Port,
        pd: &ProtectionDomain,
        transport: Transport,
        peer: Invitation,
    ) -> Result<(), Failure> {
        let options = ConnectOptions::default();
        let (local, remote) = (&port.local, &peer.endpoint);
        match &mut self.qp {
            AnyQueuePair::Rc(qp) => qp.connect(local, self.psn, remote, &options)?,
            AnyQueuePair::Uc(qp) => qp.connect(local, self.psn, remote, &options)?,
            AnyQueuePair::Ud(qp) => qp.activate(local, self.psn, &options)?,
            AnyQueuePair::XrcSend(_) | AnyQueuePair::RawPacket(_) => {
                let what = "this command supports connections and datagrams only";
                return Err(Failure::usage(what));
            }
        }
        let handle = match transport {
            Transport::Ud => Some(pd.create_ah_to(local, remote, &options)?),
            Transport::Rc | Transport::Uc => None,
        };
        self.peer = Some((peer, handle));
        Ok(())
    }
}

/// The `wr_id` of a queue pair's request.
fn wr_id(queue: usize, number: u64) -> u64 {
    ((queue as u64) << COUNT_BITS) | number
}

/// The queue pair of a `wr_id`, and the number of its request.
fn place(wr_id: u64) -> (usize, u64) {
    ((wr_id >> COUNT_BITS) as usize, wr_id & ((1 << COUNT_BITS) - 1))
}

/// The peer's access rights to the memory: atomics only if the device has them.
fn access(device: DeviceAttr) -> Access {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    if device.has_atomics() { access | Access::REMOTE_ATOMIC } else { access }
}

/// The largest datagram of a port.
pub(crate) fn datagram_limit(port: &Port) -> usize {
    mtu_bytes(port.local.active_mtu) as usize
}

/// The parts that a queue pair is built from.
struct Queues<'a> {
    pd: &'a ProtectionDomain,
    send_cq: &'a CompletionQueue,
    recv_cq: &'a CompletionQueue,
    shape: Shape,
}

impl Queues<'_> {
    fn build<T>(&self, port: &Port, psn: Psn) -> Result<(AnyQueuePair, Endpoint), Failure>
    where
        T: QueuePairTransport,
        AnyQueuePair: From<QueuePair<T>>,
    {
        let options = ConnectOptions::default();
        let mut qp = self
            .pd
            .create_qp::<T>(self.send_cq, self.recv_cq)
            .max_send_wr(self.shape.depth)
            .max_recv_wr(self.shape.receives)
            .max_inline_data(self.shape.inline)
            .build()?;
        qp.init(&port.local, &options)?;
        let endpoint = qp.endpoint(&port.local, psn, &options);
        Ok((qp.into(), endpoint))
    }
}

/// The failure for a failed request, with its usual cause.
fn completion_failure(completion: &WorkCompletion<'_>, error: CompletionError) -> Failure {
    let (queue, number) = place(completion.wr_id());
    let what = format!("{} request {number} of queue pair {queue}", posted_as(completion.opcode()));
    let failure = Failure::new(format!("{what} failed: {error}"));
    let CompletionErrorKind::Known(syndrome) = error.kind else { return failure };
    match syndrome {
        Syndrome::RetryExceeded => failure.hint("the other side does not answer: is it reachable?"),
        Syndrome::RnrRetryExceeded => failure.hint("the other side posted too few receives"),
        Syndrome::RemoteAccess => failure.hint("the other side's memory does not allow the access"),
        _ => failure,
    }
}
