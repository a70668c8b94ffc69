//! A pair of connected queue pairs.

use crate::machine::Machine;
use mlx5::transport::Rc;
use mlx5::{
    Access, CompletionQueue, ConnectOptions, Data, MemoryRegion, Operation, Psn, QueuePair,
    ReceiveWr, RemoteAddress, SendFlags, SendWr, Sge,
};
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

/// Bytes of the registered memory.
const MEMORY: usize = 1 << 16;

pub(crate) struct Bed {
    machine: Machine,
    pub(crate) qp: Mutex<QueuePair<Rc>>,
    pub(crate) peer: QueuePair<Rc>,
    pub(crate) cq: Mutex<CompletionQueue>,
    peer_cq: CompletionQueue,
    memory: MemoryRegion,
    pub(crate) bytes: [u8; 64],
    pub(crate) sum: u64,
}

/// What a lock holds, for whoever has the lock to himself.
pub(crate) fn alone<T>(lock: &mut Mutex<T>) -> &mut T {
    lock.get_mut().unwrap_or_else(PoisonError::into_inner)
}

impl Bed {
    pub(crate) fn new(machine: Machine) -> Self {
        let context = machine.device().open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(1024).build().expect("create_cq");
        let peer_cq = context.create_cq(1024).build().expect("create_cq");
        let make = |cq: &CompletionQueue| {
            pd.create_qp::<Rc>(cq, cq)
                .max_send_wr(256)
                .max_recv_wr(256)
                .max_inline_data(28)
                .build()
                .expect("create_qp")
        };
        let (mut qp, mut peer) = (make(&cq), make(&peer_cq));
        let port = context.local_port(1, None).expect("port");
        let options = ConnectOptions::default();
        let psn = Psn::wrapping(0);
        let ends = [qp.endpoint(&port, psn, &options), peer.endpoint(&port, psn, &options)];
        qp.connect(&port, psn, &ends[1], &options).expect("connect");
        peer.connect(&port, psn, &ends[0], &options).expect("connect");
        let memory = pd
            .memory(MEMORY)
            .access(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ)
            .register()
            .expect("register");
        let mut bed = Self {
            machine,
            qp: Mutex::new(qp),
            peer,
            cq: Mutex::new(cq),
            peer_cq,
            memory,
            bytes: [7; 64],
            sum: 0,
        };
        bed.refill();
        bed
    }

    /// The peer has receives for whatever is sent, and room for some more.
    fn refill(&mut self) {
        while self.peer.free_receives() > 128 {
            let sges = [self.sge(0)];
            self.peer.post_recv(&[ReceiveWr { wr_id: 0, sges: &sges }]).expect("post_recv");
        }
    }

    fn offset(i: u64) -> usize {
        i as usize * 64 % (MEMORY - 4096)
    }

    pub(crate) fn remote(&self, i: u64) -> RemoteAddress {
        black_box(self.memory.remote(Self::offset(i)..Self::offset(i) + 64).expect("inside"))
    }

    pub(crate) fn remotes(&self, i: u64) -> [RemoteAddress; 16] {
        black_box(std::array::from_fn(|k| self.remote(i + k as u64)))
    }

    pub(crate) fn sge(&self, i: u64) -> Sge {
        black_box(self.memory.sge(Self::offset(i)..Self::offset(i) + 64).expect("inside"))
    }

    pub(crate) fn sges(&self, i: u64) -> [Sge; 16] {
        black_box(std::array::from_fn(|k| self.sge(i + k as u64)))
    }

    pub(crate) fn list<'a>(
        &self,
        i: u64,
        remotes: &[RemoteAddress; 16],
        pieces: &'a [&'a [u8]],
    ) -> [SendWr<'a>; 16] {
        std::array::from_fn(|k| SendWr {
            wr_id: i + k as u64,
            flags: SendFlags::SIGNALED,
            operation: Operation::RdmaWrite(remotes[k]),
            data: Data::Inline(pieces),
            ..SendWr::default()
        })
    }

    /// Posts requests and lets the device complete them.
    pub(crate) fn post(&mut self, i: u64, count: u64) {
        for k in 0..count {
            let remote = self.remote(i + k);
            let mut batch = alone(&mut self.qp).wr_start();
            batch.wr(i + k, SendFlags::SIGNALED).rdma_write(remote).inline_data(&self.bytes[..8]);
            batch.complete().expect("room");
        }
        self.machine.settle();
    }

    /// Lets the device complete what was posted, and polls it.
    pub(crate) fn complete(&mut self, count: usize) {
        let mut polled = 0;
        while polled < count {
            self.machine.settle();
            polled += alone(&mut self.cq)
                .poll(1024, |completion| completion.status().expect("success"))
                .expect("poll");
        }
        assert_eq!(polled, count);
        self.peer_cq.poll(1024, |completion| completion.status().expect("success")).expect("poll");
        self.refill();
    }

    /// Uses up receives of the peer.
    pub(crate) fn receive(&mut self, count: u64) {
        for i in 0..count {
            let sge = self.sge(i);
            let mut batch = alone(&mut self.qp).wr_start();
            batch.wr(0, SendFlags::SIGNALED).send().sge(sge);
            batch.complete().expect("room");
        }
        self.complete(count as usize);
    }

    /// Makes sure that something was done.
    pub(crate) fn check(&self) {
        black_box(self.sum);
        self.machine.check();
    }
}
