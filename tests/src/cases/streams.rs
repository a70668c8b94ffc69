//! Streams of completions of every kind, in every form that a device can write, random by a seed.
//! The polls must return what the device wrote, once and in order.

mod flow;
mod meant;
mod random;

use crate::prelude::*;
use flow::Flow;
use meant::Meant;
use mlx5::{CqeCompression, CqeSize, ProtectionDomain, WorkCompletion};
use mlx5_prm::cqe::{Cqe, CqeOpcode, ErrorCqe, FORMAT_SHIFT, Format, OPCODE_SHIFT, SOLICITED};
use mlx5_prm::fields::{FromBytes, IntoBytes};
use random::Random;
use std::collections::VecDeque;

pub(crate) const CASES: &[Case] = cases![
    every_stream_comes_out_once_in_order_and_as_it_was_meant: SIMULATOR,
];

/// Streams, each with another seed.
const STREAMS: u64 = 96;
/// Steps of a stream.
const STEPS: usize = 400;
/// Bits of the consumer index that the device sees.
const COUNTER_BITS: u32 = 24;

/// A completion queue, with the completions that it must return.
struct Lane {
    cq: CompletionQueue,
    meant: VecDeque<Meant>,
    size: CqeSize,
    compression: Option<CqeCompression>,
    /// Number of entries that were consumed before the stream, as the queue and the device have it.
    start: u32,
    compressed: usize,
    resized: usize,
}

impl Lane {
    fn new(bed: &Bed, context: &Context, random: &mut Random) -> Result<Self, Failed> {
        let size = [CqeSize::Bytes64, CqeSize::Bytes128][random.below(2)];
        let compression = [
            None,
            Some(CqeCompression::Hash),
            Some(CqeCompression::Checksum),
            Some(CqeCompression::ChecksumStride),
        ][random.below(4)];
        // Most counters wrap during the stream: the 24 bits that the device sees, or all 32.
        let before = random.below(300) as u32;
        let start = match random.below(4) {
            0 => 0,
            1 => 0_u32.wrapping_sub(before),
            _ => ((1 + random.below(255) as u32) << COUNTER_BITS) - before,
        };
        let entries = (1 << (3 + random.below(4))) - 1;
        let mut builder = context.create_cq(entries).cqe_size(size).consumed(start);
        if let Some(format) = compression {
            builder = builder.compression(format);
        }
        let cq = builder.build()?;
        bed.count_on(&cq, start);
        let meant = VecDeque::new();
        Ok(Self { cq, meant, size, compression, start, compressed: 0, resized: 0 })
    }

    /// Polls in one of the possible ways, and returns the number of completions.
    fn poll(&mut self, random: &mut Random, max: usize) -> Result<usize, Failed> {
        let Self { cq, meant, compression, compressed, .. } = self;
        let mut check = |wc: &WorkCompletion<'_>| {
            let next = meant.pop_front().expect("no more than there were");
            next.check(wc, *compression);
            *compressed += usize::from(wc.is_compressed());
        };
        Ok(match random.below(3) {
            0 => cq.poll(max, |wc| check(&wc))?,
            1 => {
                let mut completions = cq.completions()?;
                for _ in 0..max {
                    let Some(wc) = completions.next() else { break };
                    check(&wc);
                }
                completions.finish()?
            }
            _ => {
                let mut out = vec![OwnedCompletion::default(); max];
                let count = cq.poll_into(&mut out)?;
                out[..count].iter().for_each(|owned| check(&owned.as_completion()));
                count
            }
        })
    }

    /// Whether enough entries came for the counter to wrap.
    fn wrapped(&self, produced: u32) -> bool {
        produced >> COUNTER_BITS != self.start >> COUNTER_BITS
    }
}

/// Events in all streams.
#[derive(Default, Debug)]
struct Met {
    compressed: usize,
    resized: usize,
    /// Queues whose counter wrapped: the 24 bits, and all 32.
    wrapped: usize,
    wrapped_all: usize,
    destroyed: usize,
    reset: usize,
    /// Completions that were dropped with their queue pair.
    gone: usize,
}

/// One stream.
struct Stream<'a> {
    bed: &'a Bed,
    pd: &'a ProtectionDomain,
    random: Random,
    lanes: Vec<Lane>,
    flows: Vec<Flow>,
    met: &'a mut Met,
}

impl Stream<'_> {
    /// A queue pair that completes on random lanes.
    fn flow(&mut self) -> Result<Flow, Failed> {
        let lanes = [0; 2].map(|_| self.random.below(self.lanes.len()));
        Flow::new(self.bed, self.pd, lanes, lanes.map(|lane| &self.lanes[lane].cq))
    }

    /// Makes the device complete a request of some queue pair, in some way.
    fn complete(&mut self) {
        let Self { bed, random, lanes, flows, .. } = self;
        let at = random.below(flows.len());
        let flow = &mut flows[at];
        if random.one_in(6) {
            // From now on the entries have other fields in common.
            let cqe = &mut flow.common;
            cqe.flags_rqpn.set(random.next() as u32);
            cqe.imm_inval_pkey.set(random.next() as u32);
            cqe.slid.set(random.next() as u16);
            cqe.vlan_info.set(random.next() as u16);
            cqe.l4_l3_hdr_type = random.next() as u8;
            cqe.hds_ip_ext = random.next() as u8 | if random.one_in(2) { 6 } else { 0 };
            cqe.ml_path = random.next() as u8;
            let opcode = random.below(5) as u8;
            let solicited = if random.one_in(4) { SOLICITED } else { 0 };
            cqe.op_own = opcode << OPCODE_SHIFT | solicited;
            cqe.rss_hash_result.set(random.next() as u32);
            cqe.check_sum.set(random.next() as u16);
        }
        let mut cqe = flow.common;
        let is_send = cqe.op_own >> OPCODE_SHIFT == 0;
        let lane = &mut lanes[flow.lanes[usize::from(!is_send)]];
        let room = bed.simulator().fabric().lock().device(0).cq_room(lane.cq.cqn());
        // One slot is reserved for the entry of a resize.
        if room.is_none_or(|room| room < 2) {
            return;
        }
        // A send's completion may stand for earlier sends.
        let posted = if is_send {
            let skip = if random.one_in(3) { random.below(3) } else { 0 };
            flow.sends.drain(..skip.min(flow.sends.len().saturating_sub(1)));
            flow.sends.pop_front()
        } else {
            flow.receives.pop_front()
        };
        let Some(posted) = posted else { return };
        cqe.wqe_counter.set(posted.counter);
        cqe.byte_count.set(random.next() as u32);
        cqe.timestamp.set(random.next());
        match lane.compression {
            Some(CqeCompression::Hash) => cqe.rss_hash_result.set(random.next() as u32),
            _ => cqe.check_sum.set(random.next() as u16),
        }
        let sent = is_send.then_some(posted.opcode);
        cqe.sop_drop_qpn
            .set(sent.map_or(0, |opcode| opcode as u32) << 24 | flow.qp.qp_num());
        let mut message = Vec::new();
        if random.one_in(12) {
            let mut error = ErrorCqe::read_from_bytes(cqe.as_bytes()).expect("64 bytes");
            error.syndrome = Syndrome::ALL[random.below(Syndrome::ALL.len())] as u8;
            error.vendor_err_synd = random.next() as u8;
            let opcode =
                if is_send { CqeOpcode::RequesterError } else { CqeOpcode::ResponderError };
            error.op_own = (opcode as u8) << OPCODE_SHIFT;
            cqe = Cqe::read_from_bytes(error.as_bytes()).expect("64 bytes");
        } else if random.one_in(6) {
            let (format, room) = match lane.size {
                CqeSize::Bytes64 => (Format::Inline32, 32),
                CqeSize::Bytes128 => (Format::Inline64, 64),
            };
            let length = 1 + random.below(room);
            message = (0..length).map(|_| random.next() as u8).collect();
            cqe.byte_count.set(length as u32);
            cqe.op_own |= (format as u8) << FORMAT_SHIFT;
        }
        let entry = cqe.as_bytes().try_into().expect("64 bytes");
        let mut fabric = bed.simulator().fabric().lock();
        let taken = fabric.device_mut(0).inject_completion(lane.cq.cqn(), entry, &message);
        assert!(taken, "the device takes it");
        let qp_num = flow.qp.qp_num();
        lane.meant.push_back(Meant { wr_id: posted.wr_id, qp_num, cqe, sent, message });
    }

    fn flush(&self, lane: usize) {
        let cqn = self.lanes[lane].cq.cqn();
        self.bed.simulator().fabric().lock().device_mut(0).flush_completions(cqn);
    }

    fn poll(&mut self, lane: usize, max: usize) -> Result<usize, Failed> {
        self.lanes[lane].poll(&mut self.random, max)
    }

    /// Polls until all queues are empty.
    fn drain(&mut self) -> Outcome {
        for lane in 0..self.lanes.len() {
            self.flush(lane);
            while self.poll(lane, 7)? > 0 {}
            assert_eq!(self.lanes[lane].meant.len(), 0, "every completion came");
        }
        Ok(())
    }

    fn resize(&mut self, lane: usize) -> Outcome {
        let entries = 1 << (3 + self.random.below(5));
        self.flush(lane);
        let lane = &mut self.lanes[lane];
        let before = lane.cq.capacity();
        let room = self.bed.simulator().fabric().lock().device(0).cq_room(lane.cq.cqn());
        // A compressed run keeps its slots until all of it was polled, and the entry of the resize
        // needs one in either ring.
        let room = room.unwrap_or(0);
        let fits = room > 0 && ((before + 1 - room) as usize) < entries;
        match lane.cq.resize(entries as u32 - 1) {
            Ok(()) => assert!(fits || lane.cq.capacity() == before),
            Err(error) => assert!(!fits, "{error}"),
        }
        lane.resized += usize::from(lane.cq.capacity() != before);
        Ok(())
    }

    /// Destroys a queue pair, and replaces it. The poller must pass over its outstanding
    /// completions.
    fn replace(&mut self) -> Outcome {
        let at = self.random.below(self.flows.len());
        let gone = self.flows.swap_remove(at);
        let qp_num = gone.qp.qp_num();
        gone.qp.destroy()?;
        for lane in &mut self.lanes {
            let before = lane.meant.len();
            lane.meant.retain(|meant| meant.qp_num != qp_num);
            self.met.gone += before - lane.meant.len();
        }
        let flow = self.flow()?;
        self.flows.push(flow);
        self.met.destroyed += 1;
        Ok(())
    }

    /// Resets a queue pair, and connects it again once its old completions were polled.
    fn reset(&mut self) -> Outcome {
        let at = self.random.below(self.flows.len());
        self.flows[at].reset()?;
        let qp_num = self.flows[at].qp.qp_num();
        if self.lanes.iter().flat_map(|lane| &lane.meant).any(|meant| meant.qp_num == qp_num) {
            assert!(self.flows[at].connect(self.bed, self.pd).is_err(), "they could be mistaken");
        }
        self.drain()?;
        self.flows[at].connect(self.bed, self.pd)?;
        self.met.reset += 1;
        Ok(())
    }

    fn step(&mut self, step: u64, mr: &MemoryRegion) -> Outcome {
        for flow in &mut self.flows {
            flow.post(&mut self.random, mr, step)?;
        }
        let lane = self.random.below(self.lanes.len());
        match self.random.below(8) {
            0 | 1 => {
                let max = 1 + self.random.below(9);
                self.poll(lane, max)?;
            }
            2 => match self.random.below(12) {
                0 | 1 => self.resize(lane)?,
                2 => self.replace()?,
                3 => self.reset()?,
                _ => self.flush(lane),
            },
            _ => {
                for _ in 0..1 + self.random.below(5) {
                    self.complete();
                }
            }
        }
        Ok(())
    }

    /// Checks that the device has the last consumer index, and counts the events.
    fn end(mut self) -> Outcome {
        self.drain()?;
        let fabric = self.bed.simulator().fabric().lock();
        for lane in &self.lanes {
            let device = fabric.device(0);
            assert_eq!(device.cq_room(lane.cq.cqn()), Some(lane.cq.capacity() + 1));
            let produced = device.cq_progress(lane.cq.cqn()).expect("there").0;
            assert!(lane.compression.is_some() || lane.compressed == 0);
            self.met.compressed += lane.compressed;
            self.met.resized += lane.resized;
            self.met.wrapped += usize::from(lane.wrapped(produced));
            self.met.wrapped_all += usize::from(produced < lane.start);
        }
        Ok(())
    }
}

fn run(bed: &Bed, seed: u64, met: &mut Met) -> Outcome {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let context = bed.context();
    let pd = &context.alloc_pd()?;
    let mr = pd.memory(4096).access(crate::pair::ALL_ACCESS).register()?;
    let lanes = (0..1 + random.below(2))
        .map(|_| Lane::new(bed, &context, &mut random))
        .collect::<Result<Vec<_>, _>>()?;
    // Stalls the device, so that it executes no posted request and the stream makes all
    // completions.
    bed.simulator().inject(0, Fault::Stall);
    let flows = 1 + random.below(3);
    let mut stream = Stream { bed, pd, random, lanes, flows: Vec::new(), met };
    for _ in 0..flows {
        let flow = stream.flow()?;
        stream.flows.push(flow);
    }
    for step in 0..STEPS as u64 {
        stream.step(step, &mr)?;
    }
    stream.end()?;
    bed.simulator().inject(0, Fault::Resume);
    Ok(())
}

fn every_stream_comes_out_once_in_order_and_as_it_was_meant(bed: &Bed) -> Outcome {
    let mut met = Met::default();
    for seed in 1..=STREAMS {
        let done =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(bed, seed, &mut met)));
        let Ok(done) = done else { panic!("with seed {seed}") };
        done?;
    }
    assert!(met.compressed > 1000 && met.resized > 50, "{met:?}");
    assert!(met.wrapped > 50 && met.wrapped_all > 10, "{met:?}");
    assert!(met.destroyed > 50 && met.reset > 50 && met.gone > 100, "{met:?}");
    Ok(())
}
