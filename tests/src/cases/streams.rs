//! Streams of completions of every kind, in every form that a device can give them, as random as a
//! seed makes them: what comes out is what the device meant, once and in order.

use crate::prelude::*;
use mlx5::{
    ConnectOptions, CqeCompression, CqeSize, Data, Operation, ProtectionDomain, Psn,
    WorkCompletion,
};
use mlx5_prm::cqe::{Cqe, CqeOpcode, ErrorCqe, FORMAT_SHIFT, Format, OPCODE_SHIFT, SOLICITED};
use mlx5_prm::fields::{FromBytes, IntoBytes};
use mlx5_prm::wqe::Opcode;
use std::collections::VecDeque;

pub(crate) const CASES: &[Case] = cases![
    every_stream_comes_out_once_in_order_and_as_it_was_meant: SIMULATOR,
];

/// Streams, each of another seed.
const STREAMS: u64 = 96;
/// Steps of a stream.
const STEPS: usize = 400;
/// Requests outstanding at a queue pair, at most.
const DEPTH: usize = 40;

/// Numbers that look random (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// A request that was posted.
struct Posted {
    wr_id: u64,
    /// Its first block, or which receive it is.
    counter: u16,
    opcode: Opcode,
}

/// A queue pair, and what is outstanding there.
struct Flow {
    qp: QueuePair<Rc>,
    sends: VecDeque<Posted>,
    receives: VecDeque<Posted>,
    next_block: u16,
    next_receive: u16,
    /// What entries have in common for a while, so that there is something to compress.
    common: Cqe,
}

impl Flow {
    fn new(bed: &Bed, pd: &ProtectionDomain, cq: &CompletionQueue) -> Result<Self, Failed> {
        let mut qp = pd
            .create_qp::<Rc>(cq, cq)
            .max_send_wr(DEPTH as u32 + 200)
            .max_recv_wr(DEPTH as u32 + 200)
            .max_inline_data(64)
            .build()?;
        let port = pd.context().local_port(bed.port(), None)?;
        let options = ConnectOptions::default();
        let psn = Psn::wrapping(7);
        let itself = qp.endpoint(&port, psn, &options);
        qp.connect(&port, psn, &itself, &options)?;
        let common = bed.simulator().fabric().lock().device(0).completion(
            qp.qp_num(),
            CqeOpcode::Requester,
            0,
            0,
        );
        let (sends, receives) = (VecDeque::new(), VecDeque::new());
        Ok(Self { qp, sends, receives, next_block: 0, next_receive: 0, common })
    }

    fn post(&mut self, random: &mut Random, mr: &MemoryRegion, wr_id: u64) -> Outcome {
        if self.sends.len() < DEPTH {
            let remote = mr.remote(..)?;
            let sges = [mr.sge(0..64)?];
            let long: &[&[u8]] = &[&[7; 40]];
            let (operation, opcode, data, blocks) = match random.below(4) {
                0 => (Operation::Send, Opcode::Send, Data::Sges(&sges), 1),
                1 => (Operation::RdmaRead(remote), Opcode::RdmaRead, Data::Sges(&sges), 1),
                2 => (Operation::RdmaWrite(remote), Opcode::RdmaWrite, Data::Sges(&sges), 1),
                _ => (Operation::RdmaWrite(remote), Opcode::RdmaWrite, Data::Inline(long), 2),
            };
            let flags = SendFlags::SIGNALED;
            let wr = SendWr { wr_id, flags, operation, data, ..SendWr::default() };
            self.qp.post_send(&[wr])?;
            self.sends.push_back(Posted { wr_id, counter: self.next_block, opcode });
            self.next_block = self.next_block.wrapping_add(blocks);
        }
        if self.receives.len() < DEPTH {
            let wr_id = wr_id | 1 << 63;
            self.qp.post_recv(&[ReceiveWr { wr_id, sges: &[mr.sge(0..64)?] }])?;
            let opcode = Opcode::Nop;
            self.receives.push_back(Posted { wr_id, counter: self.next_receive, opcode });
            self.next_receive = self.next_receive.wrapping_add(1);
        }
        Ok(())
    }
}

/// What a completion is to say.
struct Meant {
    wr_id: u64,
    qp_num: u32,
    cqe: Cqe,
    sent: Option<Opcode>,
    message: Vec<u8>,
}

impl Meant {
    fn opcode(&self) -> CqeOpcode {
        CqeOpcode::from_bits(self.cqe.op_own >> OPCODE_SHIFT).expect("an opcode")
    }

    #[track_caller]
    fn check(&self, wc: &WorkCompletion<'_>, compression: Option<CqeCompression>) {
        let cqe = &self.cqe;
        assert_eq!(wc.wr_id(), self.wr_id, "in order: {wc:?}");
        assert_eq!(wc.qp_num(), self.qp_num);
        let failed = matches!(self.opcode(), CqeOpcode::RequesterError | CqeOpcode::ResponderError);
        let expected = match (self.sent, self.opcode()) {
            (Some(Opcode::Send), _) => CompletionOpcode::Send,
            (Some(Opcode::RdmaRead), _) => CompletionOpcode::RdmaRead,
            (Some(_), _) => CompletionOpcode::RdmaWrite,
            (None, CqeOpcode::ResponderWriteImm) => CompletionOpcode::ReceiveRdmaWithImm,
            (None, _) => CompletionOpcode::Receive,
        };
        assert_eq!(wc.opcode(), expected);
        if failed {
            let error = ErrorCqe::read_from_bytes(cqe.as_bytes()).expect("64 bytes");
            let found = wc.status().expect_err("failed");
            let syndrome = Syndrome::from_bits(error.syndrome).expect("a syndrome");
            assert_eq!(found.kind, CompletionErrorKind::Known(syndrome));
            assert_eq!(found.vendor, error.vendor_err_synd);
            assert_eq!((wc.byte_len(), wc.imm_data(), wc.src_qp()), (None, None, None));
            assert_eq!((wc.timestamp(), wc.is_compressed()), (None, false));
            assert!(wc.inline_data().is_none());
            return;
        }
        assert_eq!(wc.status(), Ok(()));
        let format = Format::of(cqe.op_own);
        let received = self.sent.is_none();
        let has_length = received || self.sent == Some(Opcode::RdmaRead);
        assert_eq!(wc.byte_len(), has_length.then(|| cqe.byte_count.get()));
        let time = (!wc.is_compressed()).then(|| cqe.timestamp.get());
        assert_eq!(wc.timestamp(), time);
        assert_eq!(wc.solicited(), cqe.op_own & SOLICITED != 0);
        let word = cqe.imm_inval_pkey.get();
        let opcode = self.opcode();
        let has_immediate =
            matches!(opcode, CqeOpcode::ResponderWriteImm | CqeOpcode::ResponderSendImm);
        assert_eq!(wc.imm_data(), has_immediate.then(|| word.to_be_bytes()));
        let invalidates = opcode == CqeOpcode::ResponderSendInvalidate;
        assert_eq!(wc.invalidated_rkey(), invalidates.then_some(word));
        let has_pkey = opcode == CqeOpcode::ResponderSend;
        assert_eq!(wc.pkey_index(), has_pkey.then_some(word as u16));
        // A message in the first half of the entry leaves no room for what is said of the packet.
        let packet = received && format != Format::Inline32;
        let flags = cqe.flags_rqpn.get();
        assert_eq!(wc.src_qp(), packet.then_some(flags & 0xff_ffff));
        assert_eq!(wc.service_level(), packet.then_some((flags >> 24 & 0xf) as u8));
        assert_eq!(wc.has_grh(), packet.then_some(flags >> 28 & 3 != 0));
        assert_eq!(wc.slid(), packet.then_some(cqe.slid.get()));
        assert_eq!(wc.dlid_path_bits(), packet.then_some(cqe.ml_path & 0x7f));
        let own_hash = !wc.is_compressed() || compression == Some(CqeCompression::Hash);
        let own_sum = !wc.is_compressed() || compression != Some(CqeCompression::Hash);
        assert_eq!(wc.rss_hash(), (packet && own_hash).then(|| cqe.rss_hash_result.get()));
        assert_eq!(wc.checksum(), (packet && own_sum).then(|| cqe.check_sum.get()));
        let vlan = packet && cqe.l4_l3_hdr_type & 1 != 0;
        assert_eq!(wc.vlan(), vlan.then(|| cqe.vlan_info.get()));
        let message = wc.inline_data().map(|data| data.bytes().collect::<Vec<u8>>());
        assert_eq!(message, (format != Format::Plain).then(|| self.message.clone()));
    }
}

/// One stream, and what it did.
struct Stream<'a> {
    bed: &'a Bed,
    random: Random,
    cq: CompletionQueue,
    flows: Vec<Flow>,
    meant: VecDeque<Meant>,
    size: CqeSize,
    compression: Option<CqeCompression>,
    compressed: usize,
    resized: usize,
}

impl Stream<'_> {
    /// Has the device complete a request of some queue pair, in some way.
    fn complete(&mut self) {
        let random = &mut self.random;
        let room = self.bed.simulator().fabric().lock().device(0).cq_room(self.cq.cqn());
        // One place is for the entry that tells of a resize.
        if room.is_none_or(|room| room < 2) {
            return;
        }
        let at = random.below(self.flows.len());
        let flow = &mut self.flows[at];
        if random.one_in(6) {
            // From now on something else in common.
            let cqe = &mut flow.common;
            cqe.flags_rqpn.set(random.next() as u32);
            cqe.imm_inval_pkey.set(random.next() as u32);
            cqe.slid.set(random.next() as u16);
            cqe.vlan_info.set(random.next() as u16);
            cqe.l4_l3_hdr_type = random.next() as u8;
            cqe.hds_ip_ext = random.next() as u8;
            cqe.ml_path = random.next() as u8;
            let opcode = random.below(5) as u8;
            let solicited = if random.one_in(4) { SOLICITED } else { 0 };
            cqe.op_own = opcode << OPCODE_SHIFT | solicited;
            cqe.rss_hash_result.set(random.next() as u32);
            cqe.check_sum.set(random.next() as u16);
        }
        let mut cqe = flow.common;
        let is_send = cqe.op_own >> OPCODE_SHIFT == 0;
        // Completions of sends may pass over those of earlier ones.
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
        match self.compression {
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
            let (format, room) = match self.size {
                CqeSize::Bytes64 => (Format::Inline32, 32),
                CqeSize::Bytes128 => (Format::Inline64, 64),
            };
            let length = 1 + random.below(room);
            message = (0..length).map(|_| random.next() as u8).collect();
            cqe.byte_count.set(length as u32);
            cqe.op_own |= (format as u8) << FORMAT_SHIFT;
        }
        let entry = cqe.as_bytes().try_into().expect("64 bytes");
        let mut fabric = self.bed.simulator().fabric().lock();
        let taken = fabric.device_mut(0).inject_completion(self.cq.cqn(), entry, &message);
        assert!(taken, "the device takes it");
        let qp_num = flow.qp.qp_num();
        self.meant.push_back(Meant { wr_id: posted.wr_id, qp_num, cqe, sent, message });
    }

    fn flush(&self) {
        self.bed.simulator().fabric().lock().device_mut(0).flush_completions(self.cq.cqn());
    }

    /// Polls in one of the ways that there are; how many came.
    fn poll(&mut self, max: usize) -> Result<usize, Failed> {
        let Self { cq, meant, compression, compressed, random, .. } = self;
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

    fn resize(&mut self) -> Outcome {
        let entries = 1 << (3 + self.random.below(5));
        let before = self.cq.capacity();
        self.flush();
        let room = self.bed.simulator().fabric().lock().device(0).cq_room(self.cq.cqn());
        // What was polled of a run takes its places until all of it was; and the entry that tells of
        // the resize needs one, in either ring.
        let room = room.unwrap_or(0);
        let fits = room > 0 && ((before + 1 - room) as usize) < entries;
        match self.cq.resize(entries as u32 - 1) {
            Ok(()) => assert!(fits || self.cq.capacity() == before),
            Err(error) => assert!(!fits, "{error}"),
        }
        self.resized += usize::from(self.cq.capacity() != before);
        Ok(())
    }
}

fn run(bed: &Bed, seed: u64) -> Result<(usize, usize), Failed> {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mr = pd.memory(4096).access(crate::pair::ALL_ACCESS).register()?;
    let size = [CqeSize::Bytes64, CqeSize::Bytes128][random.below(2)];
    let compression = [
        None,
        Some(CqeCompression::Hash),
        Some(CqeCompression::Checksum),
        Some(CqeCompression::ChecksumStride),
    ][random.below(4)];
    let mut builder = context.create_cq((1 << (3 + random.below(4))) - 1).cqe_size(size);
    if let Some(format) = compression {
        builder = builder.compression(format);
    }
    let cq = builder.build()?;
    let flows = (0..1 + random.below(3))
        .map(|_| Flow::new(bed, &pd, &cq))
        .collect::<Result<Vec<_>, _>>()?;
    // What is posted stays where it is: the completions are those that the stream makes.
    bed.simulator().inject(0, Fault::Stall);
    let meant = VecDeque::new();
    let (compressed, resized) = (0, 0);
    let mut stream =
        Stream { bed, random, cq, flows, meant, size, compression, compressed, resized };
    for step in 0..STEPS as u64 {
        for flow in &mut stream.flows {
            flow.post(&mut stream.random, &mr, step)?;
        }
        match stream.random.below(8) {
            0 | 1 => {
                let max = 1 + stream.random.below(9);
                stream.poll(max)?;
            }
            2 if stream.random.one_in(4) => stream.resize()?,
            2 => stream.flush(),
            _ => {
                for _ in 0..1 + stream.random.below(5) {
                    stream.complete();
                }
            }
        }
    }
    stream.flush();
    while stream.poll(7)? > 0 {}
    assert_eq!(stream.meant.len(), 0, "every completion came");
    assert!(compression.is_some() || stream.compressed == 0);
    let done = (stream.compressed, stream.resized);
    drop(stream);
    drop((mr, pd, context));
    bed.simulator().inject(0, Fault::Resume);
    Ok(done)
}

fn every_stream_comes_out_once_in_order_and_as_it_was_meant(bed: &Bed) -> Outcome {
    let (mut compressed, mut resized) = (0, 0);
    for seed in 1..=STREAMS {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(bed, seed)));
        let Ok(done) = done else { panic!("with seed {seed}") };
        let done = done?;
        compressed += done.0;
        resized += done.1;
    }
    assert!(compressed > 1000 && resized > 50, "{compressed} compressed, {resized} resized");
    Ok(())
}
