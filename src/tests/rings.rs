//! Memory of rings is zero when a queue gets it, whatever the queue before wrote there.

use super::*;
use crate::mkey::Mkey;
use crate::pools::{MemorySource, QueueBuffer};
use crate::transport::Rc;
use mlx5_uapi::page_size;
use mlx5_wqe::{Data, Operation, ReceiveWr, SendFlags, SendWr};

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn one_of(&mut self, of: &[u32]) -> u32 {
        of[self.below(of.len())]
    }
}

struct Bed {
    simulator: Simulator,
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    memory: BufferRegion<Vec<u64>>,
    key: Mkey,
}

impl Bed {
    fn new() -> Self {
        let simulator = Simulator::new(infiniband());
        let context = open(&simulator);
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(4096).build().unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = pd.register(vec![0_u64; 64], access).unwrap();
        let key = pd.create_mkey(8).build().unwrap();
        Self { simulator, context, pd, cq, memory, key }
    }

    /// Connects a queue pair to itself.
    fn connect(&self, qp: &mut QueuePair<Rc>) {
        let (port, psn) = (self.context.local_port(1, None).unwrap(), Psn::default());
        let options = ConnectOptions::default();
        let itself = qp.endpoint(&port, psn, &options);
        qp.connect(&port, psn, &itself, &options).unwrap();
    }

    /// Runs the device, and polls.
    fn settle(&mut self) {
        while self.simulator.step() {}
        while self.cq.poll(64, |_| {}).unwrap() != 0 {}
    }

    /// Checks that the first pages of the rings' memory, which the next queue gets, are zero. Then
    /// writes some of them.
    fn look(&self, pages: usize, random: &mut Random) {
        let buffers = &self.context.inner.buffers;
        let (len, source) = (pages * page_size(), MemorySource::default());
        let mut buffer = QueueBuffer::new(buffers, len, &source).unwrap();
        // SAFETY: the memory is that of `buffer`, which nothing else uses.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.as_non_null().as_ptr(), len) };
        let used = bytes.iter().position(|byte| *byte != 0);
        assert_eq!(used, None, "of {len} bytes");
        let [a, b] = [(); 2].map(|()| random.below(len + 1));
        let written = a.min(b)..a.max(b);
        bytes[written.clone()].fill(0xa5);
        // Or reports nothing.
        if random.below(4) != 0 {
            buffer.only_wrote([written, 0..0]);
        }
    }

    /// Creates a queue pair of a random size, checks that its rings are zero, and uses it at
    /// random.
    fn queue_pair(&mut self, random: &mut Random) -> QueuePair<Rc> {
        let mut qp = self
            .pd
            .create_qp::<Rc>(&self.cq, &self.cq)
            .max_send_wr(random.one_of(&[1, 16, 63, 64, 65, 128, 500]))
            .max_send_sge(random.one_of(&[1, 4, 9]))
            .max_inline_data(random.one_of(&[0, 28, 200]))
            .max_recv_wr(random.one_of(&[0, 1, 16, 255, 256, 300, 700]))
            .max_recv_sge(random.one_of(&[1, 4]))
            .build()
            .unwrap();
        assert!(qp.send_ring().iter().all(|byte| *byte == 0));
        if random.below(8) == 0 {
            return qp;
        }
        self.connect(&mut qp);
        for _ in 0..random.below(12) {
            self.act(&mut qp, random);
        }
        qp
    }

    fn act(&mut self, qp: &mut QueuePair<Rc>, random: &mut Random) {
        let sge = self.memory.sge(..8).unwrap();
        let remote = self.memory.remote(..8).unwrap();
        let count = [1, 3, 20, 70][random.below(4)];
        let inline = vec![7; qp.caps().max_inline_data as usize];
        let sges = vec![sge; qp.caps().max_send_sge as usize];
        match random.below(11) {
            // Posted, aborted, leaked, or refused together with the earlier requests.
            what @ 0..6 => {
                let large = random.below(3) == 0;
                let mut batch = qp.wr_start();
                for place in 0..count {
                    let wr = batch.wr(place, SendFlags::SIGNALED).rdma_write(remote);
                    match place % 3 {
                        0 if large => wr.inline_data(&inline),
                        1 if large => wr.sge_list(&sges),
                        _ => wr.sge(sge),
                    }
                }
                match what {
                    0 => batch.abort(),
                    1 => std::mem::forget(batch),
                    2 => {
                        batch.wr(9, SendFlags::SIGNALED).send().inline_data(&[1; 1000]);
                        batch.complete().unwrap_err();
                    }
                    // The queue may have been full.
                    _ => {
                        let _ = batch.complete();
                    }
                }
            }
            6 => {
                let mut batch = qp.wr_start();
                for _ in 0..count.min(20) {
                    let what = self.key.configure().layout_list(&sges[..1]);
                    batch.wr(1, SendFlags::SIGNALED).mkey_configure(what);
                }
                let _ = batch.complete();
            }
            7 | 8 => {
                let sges = vec![sge; random.below(6)];
                let list = vec![ReceiveWr { wr_id: 1, sges: &sges }; count as usize];
                let _ = qp.post_recv(&list);
            }
            9 => {
                self.settle();
                qp.reset().unwrap();
                qp.purge(&mut self.cq).unwrap();
                self.connect(qp);
            }
            _ => self.settle(),
        }
    }
}

#[test]
fn a_ring_is_zero_whatever_the_queue_before_it_wrote() {
    let seed = std::env::var("MLX5_SEED");
    let seed = seed.map_or(0x21965, |seed| seed.parse().expect("MLX5_SEED is a number"));
    println!("MLX5_SEED={seed}");
    let (mut bed, mut random) = (Bed::new(), Random(seed));
    let mut held = Vec::new();
    for _ in 0..600 {
        held.push(bed.queue_pair(&mut random));
        while held.len() > 3 || random.below(3) == 0 && !held.is_empty() {
            let qp = held.swap_remove(random.below(held.len()));
            qp.destroy().unwrap();
        }
        bed.settle();
        // All of them, or some in between.
        let pages = 1 + random.below(if held.is_empty() { 60 } else { 12 });
        bed.look(pages, &mut random);
    }
    held.clear();
    assert_eq!(bed.simulator.violations(), []);
}

/// The rings of a program that posts itself.
#[test]
fn ring_memory_that_a_program_wrote_is_zeroed() {
    let (bed, mut random) = (Bed::new(), Random(1));
    let builder = bed.pd.create_qp::<Rc>(&bed.cq, &bed.cq);
    let qp = builder.max_send_wr(200).max_recv_wr(300).build().unwrap();
    let raw = qp.raw_parts().unwrap();
    for ring in [raw.send, raw.receive] {
        let last = ring.entries as usize * ring.stride as usize - 1;
        // SAFETY: a byte of the ring, which no other queue and no device uses now.
        unsafe { ring.start.byte_add(last).write(1) };
    }
    qp.destroy().unwrap();
    bed.look(12, &mut random);
}

/// Batches that end where the fast path ends, followed by single requests.
#[test]
fn a_ring_is_zero_wherever_the_batches_before_it_ended() {
    let (mut bed, mut random) = (Bed::new(), Random(2));
    for first in 1..70 {
        let mut qp = bed
            .pd
            .create_qp::<Rc>(&bed.cq, &bed.cq)
            .max_send_wr(256)
            .max_inline_data(8)
            .build()
            .unwrap();
        bed.connect(&mut qp);
        for count in [first].into_iter().chain([1; 80]) {
            let mut batch = qp.wr_start();
            for _ in 0..count {
                batch.wr(1, SendFlags::SIGNALED).send().inline_data(&[1; 8]);
            }
            batch.complete().unwrap();
        }
        qp.destroy().unwrap();
        bed.settle();
        // Any free run of pages.
        (1..=8).for_each(|pages| bed.look(pages, &mut random));
    }
}

/// The first request that was refused may have been written.
#[test]
fn a_receive_ring_is_zero_also_where_a_request_before_was_refused() {
    let (mut bed, mut random) = (Bed::new(), Random(3));
    let sge = bed.memory.sge(..8).unwrap();
    let long = Sge { length: u32::MAX, ..sge };
    let stride = 64;
    let requests = (2 * page_size() / stride) as u32;
    let builder = bed.pd.create_qp::<Rc>(&bed.cq, &bed.cq);
    let mut qp = builder.max_recv_wr(requests).max_recv_sge(4).build().unwrap();
    assert_eq!(qp.raw_parts().unwrap().receive.stride as usize, stride);
    drop(qp);
    let builder = bed.pd.create_qp::<Rc>(&bed.cq, &bed.cq);
    qp = builder.max_recv_wr(requests).max_recv_sge(4).build().unwrap();
    bed.connect(&mut qp);
    for wr_id in 0..u64::from(requests / 2) {
        qp.recv(wr_id, sge).unwrap();
    }
    qp.post_recv(&[ReceiveWr { wr_id: 0, sges: &[sge, long] }]).unwrap_err();
    qp.destroy().unwrap();
    bed.settle();
    (1..=8).for_each(|pages| bed.look(pages, &mut random));
}

/// Nothing is built before a queue pair leaves RESET, so that its rings need not be zeroed.
#[test]
fn before_a_queue_pair_leaves_reset_no_request_is_written() {
    let (mut bed, mut random) = (Bed::new(), Random(4));
    let sge = bed.memory.sge(..8).unwrap();
    for way in 0..7 {
        let mut qp = bed
            .pd
            .create_qp::<Rc>(&bed.cq, &bed.cq)
            .max_send_wr(100)
            .max_inline_data(200)
            .max_recv_wr(8)
            .mkey_configure(4, true)
            .build()
            .unwrap();
        let mut batch = qp.wr_start();
        match way {
            0 => batch.wr(1, SendFlags::SIGNALED).send().inline_data(&[1; 8]),
            1 => batch.wr(1, SendFlags::SIGNALED).send().sge(sge),
            2 => {
                let pieces = [sge];
                let key = bed.key.configure().layout_list(&pieces);
                batch.wr(1, SendFlags::SIGNALED).mkey_configure(key);
            }
            3 => batch.wr(1, SendFlags::SIGNALED).nop(),
            // Aborted, leaked.
            4 | 5 => batch
                .wr(1, SendFlags::SIGNALED)
                .rdma_write(bed.memory.remote(..8).unwrap())
                .sge(sge),
            _ => {}
        }
        match way {
            4 => batch.abort(),
            5 => std::mem::forget(batch),
            6 => drop(batch),
            _ => drop(batch.complete().unwrap_err()),
        }
        if way == 6 {
            let pieces: [&[u8]; 1] = [&[1; 8]];
            let data = Data::Inline(&pieces);
            let wr = SendWr { operation: Operation::Send, data, ..SendWr::default() };
            qp.post_send(&[wr]).unwrap_err();
            qp.post_recv(&[ReceiveWr { wr_id: 1, sges: &[sge] }]).unwrap_err();
            qp.recv(1, sge).unwrap_err();
        }
        assert!(qp.send_ring().iter().all(|byte| *byte == 0), "way {way}");
        qp.destroy().unwrap();
        bed.settle();
        (1..=4).for_each(|pages| bed.look(pages, &mut random));
    }
}
