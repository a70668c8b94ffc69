//! A pair of connected queue pairs, and the memory that requests use.

use crate::machine::Machine;
use crate::round::ROUND;
use mlx5::transport::Rc;
use mlx5::{
    Access, AnyQueuePair, CompletionQueue, ConnectOptions, Context, CqeCompression, Data,
    LocalPort, MemoryRegion, Operation, ProtectionDomain, Psn, QueuePair, ReceiveWr, RemoteAddress,
    SendFlags, SendWr, Sge, SharedCompletionQueue, SharedQueuePair, SharedReceiveQueue,
    WorkCompletion,
};
use std::hint::black_box;

/// Bytes of the registered memory.
const MEMORY: usize = 1 << 16;
/// Requests in a batch or list.
pub(crate) const BATCH: usize = 16;
/// Requests that a queue holds.
pub(crate) const DEPTH: u32 = 256;

/// An open device, and registered memory.
pub(crate) struct Base {
    pub(crate) machine: Machine,
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) port: LocalPort,
    memory: MemoryRegion,
}

impl Base {
    pub(crate) fn new(machine: &Machine) -> Self {
        let context = machine.device().open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let port = context.local_port(1, None).expect("port");
        let memory = pd
            .memory(MEMORY)
            .access(
                Access::LOCAL_WRITE
                    | Access::REMOTE_WRITE
                    | Access::REMOTE_READ
                    | Access::REMOTE_ATOMIC,
            )
            .register()
            .expect("register");
        Self { machine: machine.clone(), context, pd, port, memory }
    }

    pub(crate) fn cq(&self, entries: u32) -> CompletionQueue {
        self.context.create_cq(entries).build().expect("create_cq")
    }

    /// A queue pair that is connected to itself.
    pub(crate) fn loopback(&self, cq: &CompletionQueue, depth: u32) -> QueuePair<Rc> {
        self.looped(cq, depth, 0)
    }

    /// The same, with a receive queue.
    pub(crate) fn looped(&self, cq: &CompletionQueue, depth: u32, receives: u32) -> QueuePair<Rc> {
        let (options, psn) = (ConnectOptions::default(), Psn::wrapping(0));
        let qp = self.pd.create_qp::<Rc>(cq, cq).max_send_wr(depth).max_inline_data(28);
        let qp = if receives == 0 { qp } else { qp.max_recv_wr(receives) };
        let mut qp = qp.build().expect("create_qp");
        let here = qp.endpoint(&self.port, psn, &options);
        qp.connect(&self.port, psn, &here, &options).expect("connect");
        qp
    }

    fn offset(i: u64) -> usize {
        i as usize * 64 % (MEMORY - 4096)
    }

    pub(crate) fn remote(&self, i: u64) -> RemoteAddress {
        black_box(self.memory.remote(Self::offset(i)..Self::offset(i) + 64).expect("inside"))
    }

    pub(crate) fn sge(&self, i: u64) -> Sge {
        black_box(self.memory.sge(Self::offset(i)..Self::offset(i) + 64).expect("inside"))
    }
}

/// A queue that accepts requests.
pub(crate) trait Poster {
    /// Posts an RDMA write, or, without `remote`, a send.
    fn request(&mut self, wr_id: u64, remote: Option<RemoteAddress>, sge: Sge);
}

impl Poster for QueuePair<Rc> {
    fn request(&mut self, wr_id: u64, remote: Option<RemoteAddress>, sge: Sge) {
        let mut batch = self.wr_start();
        let wr = batch.wr(wr_id, SendFlags::SIGNALED);
        match remote {
            Some(remote) => wr.rdma_write(remote).sge(sge),
            None => wr.send().sge(sge),
        }
        batch.complete().expect("room");
    }
}

impl Poster for SharedQueuePair<Rc> {
    fn request(&mut self, wr_id: u64, remote: Option<RemoteAddress>, sge: Sge) {
        let post = self.post(|batch| {
            let wr = batch.wr(wr_id, SendFlags::SIGNALED);
            match remote {
                Some(remote) => wr.rdma_write(remote).sge(sge),
                None => wr.send().sge(sge),
            }
        });
        post.expect("room");
    }
}

impl Poster for AnyQueuePair {
    fn request(&mut self, wr_id: u64, remote: Option<RemoteAddress>, sge: Sge) {
        let post = self.post(|batch| {
            let operation = remote.map_or(Operation::Send, Operation::RdmaWrite);
            let (flags, data) = (SendFlags::SIGNALED, Data::Sges(&[sge]));
            batch.push(&SendWr { wr_id, flags, operation, data, ..SendWr::default() });
        });
        post.expect("room");
    }
}

/// A queue that returns completions.
pub(crate) trait Poller {
    /// Polls all completions, which must be successful, and returns their number.
    fn drain(&mut self) -> usize;
}

fn success(completion: WorkCompletion<'_>) {
    completion.status().expect("success");
}

impl Poller for CompletionQueue {
    fn drain(&mut self) -> usize {
        self.poll(usize::MAX, success).expect("poll")
    }
}

impl Poller for SharedCompletionQueue {
    fn drain(&mut self) -> usize {
        self.poll(usize::MAX, success).expect("poll")
    }
}

/// A connection; its queues have one owner or are shared.
pub(crate) struct Bed<Q = QueuePair<Rc>, C = CompletionQueue> {
    pub(crate) base: Base,
    pub(crate) qp: Q,
    pub(crate) peer: QueuePair<Rc>,
    /// The shared receive queue of the peer, if it uses one.
    pub(crate) srq: Option<SharedReceiveQueue>,
    pub(crate) cq: C,
    peer_cq: CompletionQueue,
    /// Number of receives that are posted at the peer.
    pub(crate) receives: usize,
    pub(crate) sum: u64,
}

/// The same with shared queues.
pub(crate) type SharedBed = Bed<SharedQueuePair<Rc>, SharedCompletionQueue>;

/// Options of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) depth: u32,
    pub(crate) entries: u32,
    pub(crate) shared_receive: bool,
    /// Whether the completions of posted requests may be compressed.
    pub(crate) compressed: bool,
    /// Whether a posted request may have three SGEs.
    pub(crate) lists: bool,
    /// Entries of the memory keys that requests configure.
    pub(crate) mkey_entries: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            depth: DEPTH,
            entries: 1024,
            shared_receive: false,
            compressed: false,
            lists: false,
            mkey_entries: 0,
        }
    }
}

impl Bed {
    /// Polls one completion.
    pub(crate) fn complete_one(&mut self) {
        assert_eq!(self.cq.poll(1, success).expect("poll"), 1);
    }

    pub(crate) fn new(machine: &Machine, options: Options) -> Self {
        let base = Base::new(machine);
        let peer_cq = base.cq(options.entries);
        let cq = if options.compressed {
            let cq = base.context.create_cq(options.entries).compression(CqeCompression::Hash);
            cq.build().expect("create_cq")
        } else {
            base.cq(options.entries)
        };
        let srq =
            options.shared_receive.then(|| base.pd.create_srq(DEPTH).build().expect("create_srq"));
        let make = |cq, depth, srq: Option<&SharedReceiveQueue>| {
            let qp = base.pd.create_qp::<Rc>(cq, cq).max_send_wr(depth).max_inline_data(28);
            let qp = if options.lists { qp.max_send_sge(3) } else { qp };
            let qp = match options.mkey_entries {
                0 => qp,
                entries => qp.mkey_configure(entries, false),
            };
            let qp = match srq {
                Some(srq) => qp.srq(srq),
                None => qp.max_recv_wr(DEPTH),
            };
            qp.build().expect("create_qp")
        };
        let mut qp = make(&cq, options.depth, None);
        let mut peer = make(&peer_cq, DEPTH, srq.as_ref());
        let (connect, psn) = (ConnectOptions::default(), Psn::wrapping(0));
        let port = &base.port;
        let ends = [qp.endpoint(port, psn, &connect), peer.endpoint(port, psn, &connect)];
        qp.connect(port, psn, &ends[1], &connect).expect("connect");
        peer.connect(port, psn, &ends[0], &connect).expect("connect");
        let mut bed = Self { base, qp, peer, srq, cq, peer_cq, receives: 0, sum: 0 };
        bed.refill();
        bed
    }

    pub(crate) fn into_any(self) -> Bed<AnyQueuePair> {
        let Self { base, qp, peer, srq, cq, peer_cq, receives, sum } = self;
        Bed { base, qp: qp.into(), peer, srq, cq, peer_cq, receives, sum }
    }

    pub(crate) fn into_shared(self) -> SharedBed {
        let Self { base, qp, peer, srq, cq, peer_cq, receives, sum } = self;
        let (qp, cq) = (qp.into_shared(), cq.into_shared());
        Bed { base, qp, peer, srq, cq, peer_cq, receives, sum }
    }
}

impl<C: Poller> Bed<QueuePair<Rc>, C> {
    /// Posts `count` signaled requests, each after some unsignaled ones, and lets the device
    /// complete them. `behind` returns the number of unsignaled requests, and a bit for each of
    /// them and for the signaled one: whether it has a list of SGEs, which takes another block.
    pub(crate) fn sparse(&mut self, i: u64, count: u64, mut behind: impl FnMut(u64) -> (u64, u64)) {
        for k in i..i + count {
            let (remote, sge) = (self.base.remote(k), self.base.sge(k));
            let (others, long) = behind(k);
            let mut batch = self.qp.wr_start();
            for other in 0..=others {
                let flags = if other == others { SendFlags::SIGNALED } else { SendFlags::empty() };
                let wr = batch.wr(k, flags).rdma_write(remote);
                if long >> other & 1 == 1 { wr.sge_list(&[sge; 3]) } else { wr.sge(sge) }
            }
            batch.complete().expect("room");
        }
        self.base.machine.settle();
    }
}

impl<Q: Poster, C: Poller> Bed<Q, C> {
    /// Posts receives at the peer for everything that is sent, and some more.
    fn refill(&mut self) {
        const ENOUGH: usize = 128;
        while self.receives < ENOUGH {
            let sges = [self.base.sge(0)];
            let list = [ReceiveWr { wr_id: 0, sges: &sges }];
            match &mut self.srq {
                Some(srq) => srq.post_recv(&list),
                None => self.peer.post_recv(&list),
            }
            .expect("room");
            self.receives += 1;
        }
    }

    /// Posts requests.
    pub(crate) fn write(&mut self, i: u64, count: u64) {
        for k in i..i + count {
            self.qp.request(k, Some(self.base.remote(k)), self.base.sge(k));
        }
    }

    /// Posts requests and lets the device complete them.
    pub(crate) fn written(&mut self, i: u64, count: u64) {
        self.write(i, count);
        self.base.machine.settle();
    }

    /// Lets the device complete the posted requests.
    pub(crate) fn settle(&self) {
        self.base.machine.settle();
    }

    /// Lets the device complete the posted requests, and polls their completions.
    pub(crate) fn complete(&mut self, count: u64) {
        let mut polled = 0;
        while polled < count {
            self.base.machine.settle();
            polled += self.cq.drain() as u64;
        }
        assert_eq!(polled, count);
        self.receives -= self.peer_cq.drain();
        self.refill();
    }

    /// Consumes receives of the peer that were just posted.
    pub(crate) fn receive(&mut self, count: u64) {
        self.receives += count as usize;
        for k in 0..count {
            self.qp.request(0, None, self.base.sge(k));
        }
        self.complete(count);
    }
}

/// Inputs of a round's operations.
pub(crate) struct Given {
    pub(crate) remotes: [RemoteAddress; ROUND as usize],
    pub(crate) sges: [Sge; ROUND as usize],
    bytes: [u8; 8],
}

impl Given {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            remotes: std::array::from_fn(|i| base.remote(i as u64)),
            sges: std::array::from_fn(|i| base.sge(i as u64)),
            bytes: [7; 8],
        }
    }

    pub(crate) fn remotes(&self, call: usize) -> &[RemoteAddress; BATCH] {
        &self.remotes.as_chunks().0[call]
    }

    pub(crate) fn sges(&self, call: usize) -> &[Sge; BATCH] {
        &self.sges.as_chunks().0[call]
    }

    /// Eight bytes of each piece, for atomic operations.
    pub(crate) fn eights(&self) -> [Sge; ROUND as usize] {
        self.sges.map(|sge| Sge { length: 8, ..sge })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..black_box(8)]
    }

    /// Inline writes of `pieces`, for call number `call`.
    pub(crate) fn list<'a>(
        &self,
        call: usize,
        first: u64,
        pieces: &'a [&'a [u8]],
    ) -> [SendWr<'a>; BATCH] {
        std::array::from_fn(|k| SendWr {
            wr_id: first + (call * BATCH + k) as u64,
            flags: SendFlags::SIGNALED,
            operation: Operation::RdmaWrite(self.remotes(call)[k]),
            data: Data::Inline(pieces),
            ..SendWr::default()
        })
    }
}
