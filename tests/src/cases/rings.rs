//! Rings wrap, again and again, and every message arrives unchanged.

use crate::prelude::*;
use mlx5::{Data, SharedReceiveQueue};

pub(crate) const CASES: &[Case] = cases![
    rc_requests_of_every_size_wrap_the_ring_ten_times,
    ud_requests_of_every_size_wrap_the_ring_ten_times,
    requests_of_mixed_sizes_wrap_at_every_place: EVERY_MODEL,
    receives_of_every_size_wrap_the_ring_ten_times,
    a_shared_receive_queue_wraps_ten_times_out_of_order,
    a_completion_queue_wraps_ten_times_at_every_depth,
    block_counters_wrap_beyond_sixteen_bits,
];

/// Laps of each ring.
const LAPS: u32 = 10;
/// Bytes of a unit of a request.
const UNIT: u32 = 16;
/// The largest number of units that a request's header can hold.
const MOST_UNITS: u32 = 63;

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The largest number of units of a request; its last block need not be full.
fn most_units(bed: &Bed) -> u32 {
    u32::from(bed.context().query_device().queues.max_sq_desc_sz).min(MOST_UNITS * UNIT) / UNIT
}

/// RDMA writes of exactly `units` units, inline or as a list of the largest number of short
/// entries, lap after lap on one ring. The data is checked after each.
fn rc_requests_of_every_size_wrap_the_ring_ten_times(bed: &Bed) -> Outcome {
    /// Control segment and remote address.
    const HEAD: u32 = 2;
    let most = most_units(bed);
    for blocks in 1..=most.div_ceil(4) {
        let last = (4 * blocks).min(most);
        let inline = (last - HEAD) * UNIT - 4;
        let options = PairOptions::default().send_wr(4).inline(inline).send_sge(1);
        let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
        let caps = a.qp.caps();
        assert_eq!((caps.max_wr_blocks, caps.max_inline_data), (blocks, inline));
        fill(&a.mr, 0, 99, 4096)?;
        let source = pattern(99, 4096);
        let laps = LAPS * caps.send_blocks;
        let mut seed = 0;
        for units in (4 * blocks - 3).max(HEAD + 1)..=last {
            let sges = (units - HEAD) as usize;
            let longest = sges * UNIT as usize - 4;
            // The longest and the shortest data that take this number of units.
            let shorter = 15.min(longest - 1);
            let length_of =
                |seed: u64| longest - if seed.is_multiple_of(3) { shorter } else { 0 };
            let mut posted = 0;
            while posted < laps / 4 {
                let count = (caps.send_blocks / blocks) as usize;
                for slot in 0..count {
                    seed += 1;
                    let remote = b.mr.remote(slot * 1024..)?;
                    let form = Form::ALL[slot % 2];
                    let length = length_of(seed);
                    let bytes = pattern(seed, length);
                    let pieces = [&bytes[..]];
                    let write = Post::new(Op::Write, seed, Data::Inline(&pieces)).remote(remote);
                    a.post(form, write)?;
                    posted += blocks;
                }
                let done = bed.poll_good(&mut a.send_cq, count);
                let first = seed - count as u64 + 1;
                assert!(wr_ids(&done).into_iter().eq(first..=seed));
                for slot in 0..count {
                    let seed = first + slot as u64;
                    verify(&b.mr, slot * 1024, seed, length_of(seed));
                }
                assert_eq!(a.qp.free_send_blocks(), caps.send_blocks);
            }
        }
        // The same blocks of the ring, with lists of entries.
        if caps.max_send_sge > 1 {
            let most = caps.max_send_sge as usize;
            for round in 0..(LAPS * caps.send_blocks / blocks) as usize {
                let list: Vec<_> = (0..most)
                    .map(|i| a.mr.sge((round + 37 * i) % 4000..(round + 37 * i) % 4000 + 3))
                    .collect::<Result<_, _>>()?;
                let remote = b.mr.remote(0..)?;
                a.post(Form::ALL[round % 2], Post::new(Op::Write, 1, Data::Sges(&list)).remote(remote))?;
                bed.poll_good(&mut a.send_cq, 1);
                let expected: Vec<u8> = (0..most)
                    .flat_map(|i| source[(round + 37 * i) % 4000..][..3].to_vec())
                    .collect();
                crate::pattern::expect_bytes(&b.mr, 0, &expected);
            }
        }
    }
    Ok(())
}

fn ud_requests_of_every_size_wrap_the_ring_ten_times(bed: &Bed) -> Outcome {
    /// Control segment and address vector.
    const HEAD: u32 = 4;
    let most = most_units(bed);
    for blocks in 2..=most.div_ceil(4) {
        let inline = ((4 * blocks).min(most) - HEAD) * UNIT - 4;
        let options = PairOptions::default().send_wr(3).recv_wr(16).inline(inline).send_sge(1);
        let Pair { mut a, mut b } = bed.pair::<Ud>(&options)?;
        let caps = a.qp.caps();
        let count = caps.max_send_wr.min(16) as u64;
        for lap in 0..u64::from(LAPS) * u64::from(caps.send_blocks / blocks) / count + 1 {
            for i in 0..count {
                b.recv(i, i as usize * 2048..i as usize * 2048 + 2048);
            }
            for i in 0..count {
                let bytes = pattern(lap * 100 + i, inline as usize - (lap % 5) as usize);
                let pieces = [&bytes[..]];
                a.post(Form::ALL[(i % 2) as usize], Post::new(Op::Send, i, Data::Inline(&pieces)))?;
            }
            bed.poll_good(&mut a.send_cq, count as usize);
            let received = bed.poll_good(b.recv_cq(), count as usize);
            assert!(wr_ids(&received).into_iter().eq(0..count));
            for i in 0..count {
                let length = inline as usize - (lap % 5) as usize;
                verify(&b.mr, i as usize * 2048 + 40, lap * 100 + i, length);
            }
        }
    }
    Ok(())
}

/// Writes of all sizes, in runs of all lengths, some of them signaled, so that all kinds of
/// requests cross the end of the ring.
fn requests_of_mixed_sizes_wrap_at_every_place(bed: &Bed) -> Outcome {
    const INLINE: u64 = 300;
    let options = PairOptions::default().send_wr(7).inline(INLINE as u32).send_sge(6);
    let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
    let caps = a.qp.caps();
    let mut numbers = Numbers(0x5eed);
    let mut wr_id = 0;
    let mut waiting = std::collections::VecDeque::new();
    let mut ends = vec![0; caps.send_blocks as usize];
    for round in 0..600_u64 {
        let slot = (round % 64) as usize * 1024;
        let length = numbers.below(INLINE + 1) as usize;
        let bytes = pattern(round, length);
        a.mr.write_at(0, &bytes)?;
        let cut = numbers.below(length as u64 + 1) as usize;
        let sges = [a.mr.sge(0..cut)?, Sge::default(), a.mr.sge(cut..length)?];
        let pieces = [&bytes[..cut], &bytes[cut..]];
        let data = if numbers.below(2) == 0 { Data::Sges(&sges) } else { Data::Inline(&pieces) };
        let signaled = numbers.below(3) == 0 || matches!(data, Data::Sges(_));
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        let form = Form::ALL[numbers.below(2) as usize];
        let before = a.qp.free_send_blocks();
        wr_id += 1;
        let write = Post::new(Op::Write, wr_id, data).remote(b.mr.remote(slot..)?).flags(flags);
        match a.post(form, write) {
            Ok(()) => {
                let blocks = before - a.qp.free_send_blocks();
                ends[((before - blocks) % caps.send_blocks) as usize] += 1;
                waiting.push_back((wr_id, signaled, slot, round, length));
            }
            Err(PostError::QueueFull { free, needed }) => {
                assert_eq!(free, before);
                assert!(needed > free);
            }
            Err(PostError::UnsignaledRun) => {
                assert!(!signaled && waiting.iter().all(|request| !request.1));
                // A run without room for unsignaled requests still has room for a signaled one of
                // the largest size.
                let write =
                    Post::new(Op::Write, wr_id, data).remote(b.mr.remote(slot..)?);
                a.post(form, write)?;
                waiting.push_back((wr_id, true, slot, round, length));
            }
            Err(other) => return Err(other.into()),
        }
        // The device reads the entries' memory when it executes the request, so the memory is only
        // used again after that.
        while let Some(last) = waiting.iter().rposition(|request| request.1) {
            let done = bed.poll_good(&mut a.send_cq, 1)[0].as_completion().wr_id();
            let first = waiting.iter().position(|request| request.1).unwrap_or(last);
            assert_eq!(done, waiting[first].0);
            for (_, _, slot, seed, length) in waiting.drain(..=first) {
                verify(&b.mr, slot, seed, length);
            }
        }
    }
    Ok(())
}

fn receives_of_every_size_wrap_the_ring_ten_times(bed: &Bed) -> Outcome {
    let context = bed.context();
    let most = u32::from(context.query_device().queues.max_rq_desc_sz) / UNIT;
    drop(context);
    let sizes = std::iter::successors(Some(1), |entries| Some(entries * 2));
    for entries in sizes.take_while(|entries| *entries <= most) {
        // A ring full of receives, with lists of the maximal length, or one entry shorter.
        let options = PairOptions::default().recv_wr(8).recv_sge(entries);
        let Pair { mut a, mut b } = bed.pair::<Rc>(&options)?;
        let caps = b.qp.caps();
        assert_eq!(caps.max_recv_sge, entries);
        let depth = u64::from(caps.max_recv_wr);
        let mut next = 0;
        for lap in 0..u64::from(LAPS) {
            for i in 0..depth {
                let base = i as usize * 1024;
                let used = entries as usize - usize::from(lap % 2 == 1 && entries > 1);
                let list: Vec<_> = (0..used)
                    .map(|n| b.mr.sge(base + 16 * n..base + 16 * n + 7))
                    .collect::<Result<_, _>>()?;
                b.qp.post_recv(&[ReceiveWr { wr_id: next + i, sges: &list }])?;
            }
            let full = b.qp.post_recv(&[ReceiveWr { wr_id: 0, sges: &[] }]);
            let error = PostError::QueueFull { free: 0, needed: 1 };
            assert_eq!(full.map_err(|refused| refused.error()), Err(error));
            let length = (entries as usize - usize::from(lap % 2 == 1 && entries > 1)) * 7;
            for i in 0..depth {
                fill(&a.mr, i as usize * 1024, next + i, length)?;
                let sges = [a.mr.sge(i as usize * 1024..i as usize * 1024 + length)?];
                a.post(Form::List, Post::new(Op::Send, i, Data::Sges(&sges)))?;
            }
            bed.poll_good(&mut a.send_cq, depth as usize);
            let received = bed.poll_good(b.recv_cq(), depth as usize);
            assert!(wr_ids(&received).into_iter().eq(next..next + depth));
            for i in 0..depth {
                let message = pattern(next + i, length);
                for (n, piece) in message.chunks(7).enumerate() {
                    crate::pattern::expect_bytes(&b.mr, i as usize * 1024 + 16 * n, piece);
                }
            }
            next += depth;
        }
    }
    Ok(())
}

/// Two connections take from one shared receive queue and complete on queues of their own. The case
/// polls these in any order, so requests are freed in another order than that of posting.
fn a_shared_receive_queue_wraps_ten_times_out_of_order(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    for (max_wr, max_sge) in [(1, 1), (7, 1), (16, 3), (31, 15)] {
        let mut b = Shared::new(bed, max_wr, max_sge)?;
        let mut senders = [bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?];
        let mut qps = [b.queue_pair(0)?, b.queue_pair(1)?];
        for (sender, qp) in senders.iter_mut().zip(&mut qps) {
            b.connect(sender, qp, &options)?;
        }
        let capacity = u64::from(b.srq.capacity());
        let mut numbers = Numbers(7);
        let mut free: Vec<u64> = (0..capacity).collect();
        let mut posted = 0_u64;
        // The outstanding messages of each connection: seeds and lengths, in order.
        let mut waiting = [(); 2].map(|()| std::collections::VecDeque::new());
        let mut seed = 0;
        while posted < u64::from(LAPS) * capacity {
            for _ in 0..1 + numbers.below(capacity) {
                let Some(slot) = free.pop() else { break };
                let base = slot as usize * 256;
                let sges = [b.mr.sge(base..base + 3)?, b.mr.sge(base + 3..base + 200)?];
                let one = [b.mr.sge(base..base + 200)?];
                let sges = if max_sge == 1 { &one[..] } else { &sges[..] };
                b.srq.post_recv(&[ReceiveWr { wr_id: slot, sges }])?;
                posted += 1;
            }
            if free.is_empty() {
                let full = b.srq.post_recv(&[ReceiveWr { wr_id: 0, sges: &[] }]);
                let error = PostError::QueueFull { free: 0, needed: 1 };
                assert_eq!(full.map_err(|refused| refused.error()), Err(error));
            }
            let under_way = waiting.iter().map(|waiting| waiting.len() as u64).sum::<u64>();
            for _ in 0..numbers.below(capacity - free.len() as u64 - under_way + 1) {
                seed += 1;
                let from = numbers.below(2) as usize;
                let sender = &mut senders[from];
                let bytes = pattern(seed, 1 + numbers.below(50) as usize);
                let pieces = [&bytes[..]];
                let send = Post::new(Op::SendImm, 1, Data::Inline(&pieces));
                sender.post(Form::Typed, send.immediate((seed as u32).to_be_bytes()))?;
                bed.poll_good(&mut sender.send_cq, 1);
                waiting[from].push_back((seed, bytes.len()));
            }
            let which = numbers.below(2) as usize;
            for _ in 0..numbers.below(waiting[which].len() as u64 + 1) {
                let received = bed.poll_good(&mut b.cqs[which], 1)[0];
                let received = received.as_completion();
                let (seed, length) = waiting[which].pop_front().ok_or("one under way")?;
                assert_eq!(received.imm_data(), Some((seed as u32).to_be_bytes()));
                assert_eq!(received.qp_num(), qps[which].qp_num());
                verify(&b.mr, received.wr_id() as usize * 256, seed, length);
                free.push(received.wr_id());
            }
        }
        for (cq, waiting) in b.cqs.iter_mut().zip(&waiting) {
            bed.poll_good(cq, waiting.len());
            bed.nothing(cq);
        }
    }
    Ok(())
}

/// A context whose queue pairs take from one shared receive queue.
struct Shared {
    cqs: [CompletionQueue; 2],
    srq: SharedReceiveQueue,
    mr: MemoryRegion,
    pd: mlx5::ProtectionDomain,
    context: Context,
    port: mlx5::LocalPort,
}

impl Shared {
    fn new(bed: &Bed, max_wr: u32, max_sge: u32) -> Result<Self, Failed> {
        let context = bed.context();
        let pd = context.alloc_pd()?;
        let srq = pd.create_srq(max_wr).max_sge(max_sge).build()?;
        assert!(srq.capacity() >= max_wr && srq.max_sge() >= max_sge);
        let cq = || context.create_cq(256).cqe_size(bed.cqe_size()).build();
        let cqs = [cq()?, cq()?];
        let mr = pd.allocate(64 << 10)?;
        let port = context.local_port(bed.port(), None)?;
        Ok(Self { cqs, srq, mr, pd, context, port })
    }

    /// A queue pair that completes on the queue with this number.
    fn queue_pair(&self, cq: usize) -> Result<QueuePair<Rc>, Failed> {
        let cq = &self.cqs[cq];
        let qp = self.pd.create_qp::<Rc>(cq, cq).srq(&self.srq).build()?;
        assert!(qp.has_srq());
        Ok(qp)
    }

    fn connect(
        &self,
        sender: &mut End<Rc>,
        qp: &mut QueuePair<Rc>,
        options: &PairOptions,
    ) -> Outcome {
        let psn = mlx5::Psn::wrapping(qp.qp_num() * 77);
        let connect = mlx5::ConnectOptions::default();
        let here = qp.endpoint(&self.port, psn, &connect);
        let there = sender.endpoint(options);
        qp.connect(&self.port, psn, &there, &connect)?;
        crate::pair::Wired::wire(sender, &here, options)?;
        assert_eq!(self.context.name(), sender.context.name());
        Ok(())
    }
}

fn a_completion_queue_wraps_ten_times_at_every_depth(bed: &Bed) -> Outcome {
    for entries in [1, 2, 3, 7, 8, 100, 255] {
        let options = PairOptions::default().cq_entries(entries).send_wr(256);
        let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
        let capacity = a.send_cq.capacity() as usize;
        assert!(capacity >= entries as usize);
        let mut next = 0_u64;
        for lap in 0..LAPS as usize + 1 {
            // The ring is not full in every lap, so that laps start at every slot.
            let count = capacity - if capacity > 1 { lap % 2 } else { 0 };
            for i in 0..count {
                let write = Post::new(Op::Write, next + i as u64, Data::Inline(&[b"12345678"]));
                a.post(Form::Typed, write.remote(b.mr.remote(0..)?))?;
            }
            let done = bed.poll_good(&mut a.send_cq, count);
            assert!(wr_ids(&done).into_iter().eq(next..next + count as u64));
            next += count as u64;
        }
        bed.nothing(&mut a.send_cq);
    }
    Ok(())
}

/// More blocks and more requests than sixteen bits can count.
fn block_counters_wrap_beyond_sixteen_bits(bed: &Bed) -> Outcome {
    const BURST: u64 = 128;
    let options = PairOptions::default().send_wr(2 * BURST as u32).recv_wr(1).inline(200);
    let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
    let bytes = [7; 140];
    let (long, short) = ([&bytes[..]], [&bytes[..8]]);
    for burst in 0..(70_000 / BURST) {
        let posts: Vec<_> = (0..BURST)
            .map(|i| {
                let flags =
                    if i + 1 == BURST { SendFlags::SIGNALED } else { SendFlags::empty() };
                let pieces: &[&[u8]] = if i % 16 == 0 { &long } else { &short };
                let remote = RemoteAddress { addr: b.mr.addr() + 8 * i, rkey: b.mr.rkey() };
                Post::new(Op::Write, burst * BURST + i, Data::Inline(pieces))
                    .flags(flags)
                    .remote(remote)
            })
            .collect();
        a.post_all(Form::Typed, &posts)?;
        let done = bed.poll_good(&mut a.send_cq, 1)[0];
        assert_eq!(done.as_completion().wr_id(), burst * BURST + BURST - 1);
    }
    assert_eq!(a.qp.free_send_blocks(), a.qp.caps().send_blocks);
    Ok(())
}
