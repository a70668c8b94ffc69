//! Random work on a queue that drains on signature errors, compared with a model that knows for
//! each request whether it was executed, cancelled or flushed, exactly once.

use crate::prelude::*;
use mlx5::mkey::{BlockSize, Crc, Domain, Mkey, Seed, Signature, SignatureBlock};
use mlx5::{AsyncEvent, CancelMode, Drained, RequestHandle};

pub(crate) const CASES: &[Case] = cases![every_request_meets_one_fate_and_meets_it_once: SIMULATOR | SIGNATURES | CRC32C | PIPELINING];

/// Programs, and rounds of each. `MLX5_SEED` gives another first seed. The case needs a simulator,
/// because only that knows when all work is done.
const PROGRAMS: u64 = 8;
const ROUNDS: usize = 1000;
const KEYS: usize = 3;
const BLOCK: usize = 512 + 4;
const SLOTS: u64 = 128;
const SLOT: usize = 512;
/// Offset at which receives end and transfers arrive.
const BEHIND: usize = SLOTS as usize * SLOT;

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It sends its identifier to the other side.
    Send,
    /// It configures a key.
    Configure,
    /// It writes a block through a key.
    Write,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Pending,
    Executed,
    Cancelled,
    Flushed { cancelled: bool },
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    wr_id: u64,
    kind: Kind,
    signaled: bool,
    handle: RequestHandle,
    fate: Fate,
}

struct Program<'a> {
    bed: &'a Bed,
    numbers: Numbers,
    pair: Pair<Rc>,
    keys: Vec<Mkey>,
    posted: Vec<Posted>,
    next: u64,
    received: u64,
    /// Requests by their fate: executed, cancelled, flushed.
    met: [usize; 3],
}

fn options() -> PairOptions {
    PairOptions::default()
        .mkey_entries(4)
        .pipelining(true)
        .send_wr(8)
        .recv_wr(SLOTS as u32)
        .inline(300)
        .memory(BEHIND + 8192)
        .cq_entries(512)
}

fn protection() -> SignatureBlock {
    let signature = Signature::Crc(Crc::Crc32c(Seed::Ones));
    SignatureBlock::new().memory(Domain { signature, block_size: BlockSize::B512 })
}

/// A block of zeros with its CRC, which is wrong if `bad`.
fn block(bad: bool) -> Vec<u8> {
    let mut crc = u32::MAX;
    for _ in 0..512 * 8 {
        crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    }
    let mut bytes = vec![0; BLOCK];
    bytes[512..].copy_from_slice(&(!crc).to_le_bytes());
    bytes[17] = u8::from(bad);
    bytes
}

impl<'a> Program<'a> {
    fn new(bed: &'a Bed, seed: u64) -> Result<Self, Failed> {
        let pair = bed.pair::<Rc>(&options())?;
        let keys: Result<_, _> =
            (0..KEYS).map(|_| pair.a.pd.create_mkey(4).block_signature().build()).collect();
        // One block is good, the next one bad.
        pair.a.mr.write_at(BEHIND, &[block(false), block(true)].concat())?;
        let numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut program = Self {
            bed,
            numbers,
            pair,
            keys: keys?,
            posted: Vec::new(),
            next: 1,
            received: 0,
            met: [0; 3],
        };
        program.refill();
        program.prepare()?;
        Ok(program)
    }

    /// Configures every key once: a request may use one whose later configuration is cancelled.
    fn prepare(&mut self) -> Outcome {
        let a = &mut self.pair.a;
        let pieces = [a.mr.sge(BEHIND..BEHIND + BLOCK)?];
        for key in &self.keys {
            let mut batch = a.qp.wr_start();
            let update = key.configure().layout_list(&pieces).signature(&protection());
            batch.wr(0, SendFlags::SIGNALED).mkey_configure(update);
            batch.complete()?;
            self.bed.poll_good(&mut a.send_cq, 1);
        }
        Ok(())
    }

    fn refill(&mut self) {
        while self.pair.b.qp.free_receives() > 0 {
            let at = (self.received % SLOTS) as usize * SLOT;
            self.pair.b.recv(self.received, at..at + SLOT);
            self.received += 1;
        }
    }

    /// Posts batches, and aborts some of them, until the queue is full or there are enough.
    fn post(&mut self) -> Outcome {
        for _ in 0..self.numbers.below(6) + 1 {
            let to = self.pair.b.mr.remote(BEHIND + 4096..)?;
            let a = &mut self.pair.a;
            let mut batch = a.qp.wr_start();
            let mut added = Vec::new();
            for _ in 0..self.numbers.below(5) + 1 {
                let wr_id = self.next;
                self.next += 1;
                // Signaled often enough that no unsignaled run fills the queue.
                let signaled = !self.numbers.one_in(4);
                let fence = self.numbers.one_in(2);
                let mut flags = SendFlags::empty();
                flags.set(SendFlags::SIGNALED, signaled);
                flags.set(SendFlags::FENCE, fence);
                let handle = batch.handle();
                let key = &self.keys[self.numbers.below(KEYS as u64) as usize];
                let kind = match self.numbers.below(4) {
                    0 | 1 => {
                        let length = 8 + self.numbers.below(290) as usize;
                        let mut message = [0; 300];
                        message[..8].copy_from_slice(&wr_id.to_le_bytes());
                        batch.wr(wr_id, flags).send().inline_data(&message[..length]);
                        Kind::Send
                    }
                    2 => {
                        let at = BEHIND + usize::from(self.numbers.one_in(3)) * BLOCK;
                        let pieces = [a.mr.sge(at..at + BLOCK)?];
                        let update = key.configure().layout_list(&pieces).signature(&protection());
                        batch.wr(wr_id, flags).mkey_configure(update);
                        Kind::Configure
                    }
                    _ => {
                        batch.wr(wr_id, flags).rdma_write(to).sge(key.sge(0, 512));
                        Kind::Write
                    }
                };
                added.push(Posted { wr_id, kind, signaled, handle, fate: Fate::Pending });
            }
            if self.numbers.one_in(5) {
                batch.abort();
            } else if batch.complete().is_ok() {
                self.posted.extend(added);
            }
        }
        Ok(())
    }

    /// Marks as executed all requests of the model before the pending ones.
    fn settle_model(&mut self, pending: &[u64]) {
        let open: Vec<usize> =
            (0..self.posted.len()).filter(|i| self.posted[*i].fate == Fate::Pending).collect();
        let done = open.len().checked_sub(pending.len()).expect("no more than what is open");
        for (i, index) in open.iter().enumerate() {
            if i < done {
                self.posted[*index].fate = Fate::Executed;
            } else {
                assert_eq!(self.posted[*index].wr_id, pending[i - done], "in order");
            }
        }
    }

    /// Cancels some of the pending requests, in a random way.
    fn cancel(&mut self, drained: &Drained) -> Outcome {
        let open: Vec<usize> =
            (0..self.posted.len()).filter(|i| self.posted[*i].fate == Fate::Pending).collect();
        let wanted: Vec<usize> = open.into_iter().filter(|_| self.numbers.one_in(3)).collect();
        let ids: Vec<u64> = wanted.iter().map(|i| self.posted[*i].wr_id).collect();
        let qp = &mut self.pair.a.qp;
        let count = match self.numbers.below(4) {
            0 => {
                let mut count = 0;
                for wr_id in &ids {
                    count += qp.cancel(drained, *wr_id)?.count();
                }
                count
            }
            1 => qp.cancel_set(drained, &ids, CancelMode::AllOrNothing)?.count(),
            2 => qp.cancel_where(drained, |one| ids.contains(&one.wr_id))?.count(),
            _ => {
                let mut count = 0;
                for i in &wanted {
                    count += qp.cancel_request(drained, self.posted[*i].handle)?.count();
                }
                count
            }
        };
        assert_eq!(count, wanted.len());
        for i in wanted {
            self.posted[i].fate = Fate::Cancelled;
        }
        Ok(())
    }

    /// Lets all work happen, drains included. Returns whether the queue pair went to the error
    /// state.
    fn run(&mut self) -> Result<bool, Failed> {
        loop {
            self.bed.settle();
            match self.pair.a.context.async_events().next()? {
                None => break,
                Some(AsyncEvent::SqDrained(_)) => {}
                Some(other) => return Err(format!("unexpected {other:?}").into()),
            }
            let drained = self.pair.a.qp.drained()?;
            let pending: Vec<u64> =
                self.pair.a.qp.pending(&drained)?.map(|one| one.wr_id).collect();
            // The first WQE of a request with several WQEs may be executed. Then the request is not
            // pending, and it continues unless the queue pair fails.
            let begun = self.pair.a.qp.pending(&drained)?.next().map(|one| one.info.first());
            // A request that an earlier drain cancelled may still be ahead, as a NOP.
            let live: Vec<u64> = self
                .pair
                .a
                .qp
                .pending(&drained)?
                .filter(|one| !one.info.cancelled())
                .map(|one| one.wr_id)
                .collect();
            self.settle_model(&live);
            self.cancel(&drained)?;
            let whole = begun.is_none_or(|first| first == drained.block());
            if whole && self.numbers.one_in(8) {
                self.pair.a.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
                for posted in &mut self.posted {
                    posted.fate = match posted.fate {
                        Fate::Pending => Fate::Flushed { cancelled: false },
                        // A NOP that the device has not reached is flushed with the rest.
                        Fate::Cancelled if pending.contains(&posted.wr_id) => {
                            Fate::Flushed { cancelled: true }
                        }
                        other => other,
                    };
                }
                self.bed.settle();
                return Ok(true);
            }
            self.pair.a.qp.resume()?;
        }
        self.settle_model(&[]);
        Ok(false)
    }

    /// Checks that the fates agree with the completions and with the messages at the other side.
    fn check(&mut self) -> Outcome {
        let mut reported = Vec::new();
        while self.pair.a.send_cq.poll(64, |one| {
            reported.push((one.wr_id(), one.is_success(), one.cancelled()));
        })? != 0
        {}
        let expected: Vec<_> = self
            .posted
            .iter()
            .filter_map(|one| match one.fate {
                Fate::Executed if one.signaled => Some((one.wr_id, true, false)),
                Fate::Cancelled if one.signaled => Some((one.wr_id, true, true)),
                Fate::Flushed { cancelled } => Some((one.wr_id, false, cancelled)),
                _ => None,
            })
            .collect();
        assert_eq!(reported, expected);
        let mut slots = Vec::new();
        self.pair.b.recv_cq().poll(SLOTS as usize, |one| {
            if one.is_success() {
                slots.push(one.wr_id());
            }
        })?;
        let mut arrived = Vec::new();
        for slot in slots {
            let mut message = [0; 8];
            self.pair.b.mr.read_at((slot % SLOTS) as usize * SLOT, &mut message)?;
            arrived.push(u64::from_le_bytes(message));
        }
        let sent: Vec<u64> = self
            .posted
            .iter()
            .filter(|one| one.kind == Kind::Send && one.fate == Fate::Executed)
            .map(|one| one.wr_id)
            .collect();
        assert_eq!(arrived, sent);
        for posted in self.posted.drain(..) {
            match posted.fate {
                Fate::Pending => panic!("{posted:?} met no fate"),
                Fate::Executed => self.met[0] += 1,
                Fate::Cancelled => self.met[1] += 1,
                Fate::Flushed { .. } => self.met[2] += 1,
            }
        }
        // The queue's drains have dealt with the errors. The keys still hold them, so this drops
        // them.
        for key in &self.keys {
            while key.check()?.is_some() {}
        }
        self.refill();
        Ok(())
    }

    fn reconnect(&mut self) -> Outcome {
        let (a, b) = (self.pair.a.endpoint(&options()), self.pair.b.endpoint(&options()));
        for end in [&mut self.pair.a, &mut self.pair.b] {
            end.qp.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
            self.bed.settle();
            while end.recv_cq().poll(64, |_| {})? != 0 {}
            while end.send_cq.poll(64, |_| {})? != 0 {}
            end.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
        }
        Rc::wire(&mut self.pair.a, &b, &options())?;
        Rc::wire(&mut self.pair.b, &a, &options())?;
        self.received = 0;
        self.refill();
        // The driver no longer knows the state of the keys, so new ones replace them.
        for key in &mut self.keys {
            *key = self.pair.a.pd.create_mkey(4).block_signature().build()?;
        }
        self.prepare()
    }
}

fn every_request_meets_one_fate_and_meets_it_once(bed: &Bed) -> Outcome {
    let first =
        std::env::var("MLX5_SEED").map_or(1, |seed| seed.parse().expect("MLX5_SEED is a number"));
    for seed in first..first + PROGRAMS {
        let mut program = Program::new(bed, seed)?;
        for round in 0..ROUNDS {
            // The seed and the round, so that a failed round can be repeated.
            let place = format!("MLX5_SEED={seed}, round {round}");
            let reported = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                program.post()?;
                let failed = program.run()?;
                program.check()?;
                if failed { program.reconnect() } else { Ok(()) }
            }));
            match reported {
                Ok(Ok(())) => {}
                Ok(Err(failed)) => return Err(format!("{place}: {failed:?}").into()),
                Err(panic) => {
                    eprintln!("{place}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
        let [executed, cancelled, flushed] = program.met;
        assert!(executed > ROUNDS && cancelled > ROUNDS / 10 && flushed > ROUNDS / 20);
    }
    Ok(())
}
