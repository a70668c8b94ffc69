//! One end of a connection: a queue pair, its completion queues and its memory.

use crate::device::Port;
use crate::failure::Failure;
use crate::link::{Op, Transport};
use mlx5::{
    Access, AddressHandle, AnyQueuePair, CompletionChannel, CompletionError, CompletionErrorKind,
    CompletionQueue, ConnectOptions, Data, Endpoint, MemoryRegion, Operation, ProtectionDomain,
    Psn, QueuePair, QueuePairTransport, ReceiveWr, RemoteAddress, SendFlags, SendWr, Sge, Syndrome,
    UdAddress, WorkCompletion, mtu_bytes,
};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Bytes before the data of a datagram: the global routing header.
const HEADER: usize = 40;
/// The maximum number of completions per poll.
const BURST: usize = 32;

/// The sizes of an end; the same for both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    pub(crate) transport: Transport,
    /// The largest message.
    pub(crate) message: usize,
    /// The maximum number of outstanding requests.
    pub(crate) depth: u32,
    /// The number of posted receives.
    pub(crate) receives: u32,
    /// The largest message sent inline.
    pub(crate) inline: u32,
}

/// What the peer needs to connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Invitation {
    pub(crate) endpoint: Endpoint,
    /// Memory to write to and to read from.
    pub(crate) memory: RemoteAddress,
}

/// One end of a connection.
pub(crate) struct Side {
    // Queues are dropped before the memory that they use.
    qp: AnyQueuePair,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    memory: MemoryRegion,
    pd: ProtectionDomain,
    pub(crate) shape: Shape,
    psn: Psn,
    /// The buffer of inline data.
    inline: Vec<u8>,
    endpoint: Endpoint,
    peer: Option<(Invitation, Option<AddressHandle>)>,
    /// One more than the `wr_id` of the last completed request.
    sent: u64,
}

/// Parts of the memory: what is sent, what is received, and what the peer writes and reads.
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
        let message = self.message.max(1);
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
            let builder = context.create_cq(entries);
            match channel {
                Some(channel) => builder.channel(channel).build(),
                None => builder.build(),
            }
        };
        let send_cq = cq(shape.depth)?;
        let recv_cq = cq(shape.receives)?;
        let memory = pd
            .memory(shape.areas().shared.end)
            .access(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)
            .register()?;
        let psn = Psn::wrapping(RandomState::new().hash_one(0_u8) as u32);
        let made = Queues { pd: &pd, send_cq: &send_cq, recv_cq: &recv_cq, shape };
        let (qp, endpoint) = match shape.transport {
            Transport::Rc => made.build::<mlx5::transport::Rc>(port, psn)?,
            Transport::Uc => made.build::<mlx5::transport::Uc>(port, psn)?,
            Transport::Ud => made.build::<mlx5::transport::Ud>(port, psn)?,
        };
        let inline = vec![0; shape.inline as usize];
        let peer = None;
        let mut side =
            Self { qp, send_cq, recv_cq, memory, pd, shape, psn, inline, endpoint, peer, sent: 0 };
        side.post_receives(shape.receives)?;
        Ok(side)
    }

    /// Returns what the peer needs to connect.
    pub(crate) fn invitation(&self) -> Result<Invitation, Failure> {
        let shared = self.shape.areas().shared;
        Ok(Invitation { endpoint: self.endpoint, memory: self.memory.remote(shared)? })
    }

    /// Connects to the other end; after that, requests may be posted.
    pub(crate) fn join(&mut self, port: &Port, peer: Invitation) -> Result<(), Failure> {
        let options = ConnectOptions::default();
        let (local, remote) = (&port.local, &peer.endpoint);
        match &mut self.qp {
            AnyQueuePair::Rc(qp) => qp.connect(local, self.psn, remote, &options)?,
            AnyQueuePair::Uc(qp) => qp.connect(local, self.psn, remote, &options)?,
            AnyQueuePair::Ud(qp) => qp.activate(local, self.psn, &options)?,
            AnyQueuePair::XrcSend(_) => {
                return Err(Failure::usage("this command does not support extended connections"));
            }
        }
        let handle = match self.shape.transport {
            Transport::Ud => Some(self.pd.create_ah_to(local, remote, &options)?),
            Transport::Rc | Transport::Uc => None,
        };
        self.peer = Some((peer, handle));
        Ok(())
    }

    /// Posts `count` requests of `size` bytes with one doorbell. Their `wr_id`s count up from `first`;
    /// `signaled` selects those with a completion.
    pub(crate) fn post(
        &mut self,
        op: Op,
        size: usize,
        first: u64,
        count: usize,
        signaled: impl Fn(u64) -> bool,
    ) -> Result<(), Failure> {
        let from = self.shape.areas().send;
        self.post_from(op, from.start..from.start + size, first, count, signaled)
    }

    /// Sends back the last received message, of `size` bytes.
    pub(crate) fn echo(&mut self, size: usize, id: u64) -> Result<(), Failure> {
        let start = self.shape.areas().receive.start + self.shape.header();
        self.post_from(Op::Send, start..start + size, id, 1, |_| true)
    }

    fn post_from(
        &mut self,
        op: Op,
        from: Range<usize>,
        first: u64,
        count: usize,
        signaled: impl Fn(u64) -> bool,
    ) -> Result<(), Failure> {
        let Some((peer, handle)) = &self.peer else {
            return Err(Failure::new("the queue pair is not connected"));
        };
        let operation = match op {
            Op::Send => Operation::Send,
            Op::Write => Operation::RdmaWrite(peer.memory),
            Op::Read => Operation::RdmaRead(peer.memory),
        };
        let inlined = self.inline.get_mut(..from.len()).filter(|_| op != Op::Read);
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
        let request = |wr_id| SendWr {
            wr_id,
            flags: if signaled(wr_id) { SendFlags::SIGNALED } else { SendFlags::empty() },
            operation,
            data,
            address,
            ..SendWr::default()
        };
        if count == 1 {
            return Ok(self.qp.post_send(&[request(first)])?);
        }
        let list: Vec<_> = (first..first + count as u64).map(request).collect();
        Ok(self.qp.post_send(&list)?)
    }

    /// Posts `count` receives. All use the same memory, because only one message at a time is read.
    pub(crate) fn post_receives(&mut self, count: u32) -> Result<(), Failure> {
        let sges = [self.memory.sge(self.shape.areas().receive)?];
        let request = ReceiveWr { wr_id: 0, sges: &sges };
        let list = [request; BURST];
        let mut left = count as usize;
        while left > 0 {
            let some = left.min(BURST);
            self.qp.post_recv(&list[..some])?;
            left -= some;
        }
        Ok(())
    }

    /// Polls send completions; returns the last `wr_id`, if any.
    pub(crate) fn poll_sent(&mut self) -> Result<Option<u64>, Failure> {
        let mut last = None;
        let mut failed = None;
        self.send_cq.poll(BURST, |completion| match completion.status() {
            Ok(()) => last = Some(completion.wr_id()),
            Err(error) if failed.is_none() => failed = Some(completion_failure(&completion, error)),
            Err(_) => {}
        })?;
        self.sent = last.map_or(self.sent, |last| last + 1);
        failed.map_or(Ok(last), Err)
    }

    /// One more than the `wr_id` of the last completed request.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Polls receive completions; returns their number and the last one's length.
    pub(crate) fn poll_received(&mut self) -> Result<Option<(u32, usize)>, Failure> {
        let mut last = None;
        let mut failed = None;
        let count = self.recv_cq.poll(BURST, |completion| match completion.status() {
            Ok(()) => last = completion.byte_len(),
            Err(error) if failed.is_none() => failed = Some(completion_failure(&completion, error)),
            Err(_) => {}
        })?;
        let length = |bytes: u32| (bytes as usize).saturating_sub(self.shape.header());
        match failed {
            Some(failure) => Err(failure),
            None => Ok(last.map(|bytes| (count as u32, length(bytes)))),
        }
    }

    /// Arms both completion queues.
    pub(crate) fn arm(&self) -> Result<(), Failure> {
        self.send_cq.arm(false)?;
        Ok(self.recv_cq.arm(false)?)
    }

    /// Copies `bytes` into the send buffer.
    pub(crate) fn fill(&self, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.memory.write_at(self.shape.areas().send.start, bytes)?)
    }

    /// Copies the last received message.
    pub(crate) fn received(&self, bytes: &mut [u8]) -> Result<(), Failure> {
        let start = self.shape.areas().receive.start + self.shape.header();
        Ok(self.memory.read_at(start, bytes)?)
    }
}

/// The largest datagram of a port.
pub(crate) fn datagram_limit(port: &Port) -> usize {
    mtu_bytes(port.local.active_mtu) as usize
}

/// What the queue pair is built from.
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
    let what = format!("{:?} request {}", completion.opcode(), completion.wr_id());
    let failure = Failure::new(format!("{what} failed: {error}"));
    let CompletionErrorKind::Known(syndrome) = error.kind else { return failure };
    match syndrome {
        Syndrome::RetryExceeded => failure.hint("the other side does not answer: is it reachable?"),
        Syndrome::RnrRetryExceeded => failure.hint("the other side posted too few receives"),
        Syndrome::RemoteAccess => failure.hint("the other side's memory does not allow the access"),
        _ => failure,
    }
}
