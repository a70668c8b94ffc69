//! Fuzzes polling: writes arbitrary bytes where a device writes completions.
//!
//! Whatever the bytes are, a poll returns: with completions of outstanding requests, each reported
//! once; with none; or with an error that stays. Queue memory lies between pages without access.

use crate::fenced::Fenced;
use crate::numbers::Numbers;
use crate::session::device;
use mlx5::transport::Rc;
use mlx5::{
    Access, CompletionQueue, ConnectOptions, Context, CqeCompression, CqeSize, Error, ErrorKind,
    InlineData, MemoryRegion, OwnedCompletion, PollError, ProtectionDomain, Psn, QpAttributes,
    QueueAllocator, QueuePair, QueueState, ReceiveWr, SendFlags, WorkCompletion,
};
use mlx5_prm::cqe::{Cqe, CqeOpcode, FORMAT_SHIFT, Format, OPCODE_SHIFT, OWNER};
use mlx5_prm::fields::IntoBytes;
use mlx5_sim::{Fault, SimConfig, Simulator};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Number of operations on a queue.
const TURNS: usize = 24;
/// Outstanding requests of each kind on a queue pair.
const DEPTH: u64 = 24;
/// Slots of a receive queue for that number.
const RING: u16 = (DEPTH as u16).next_power_of_two();
/// Bytes of a descriptor, the last part of an entry.
const DESCRIPTOR: usize = size_of::<Cqe>();

pub(crate) fn run(numbers: &mut Numbers) {
    let simulator = Simulator::new(SimConfig::new().step(true));
    if let Err(error) = fuzz(numbers, &simulator) {
        panic!("all calls are good, and yet: {error}");
    }
}

/// A queue pair, and the identifiers of its outstanding requests.
struct Flow {
    qp: QueuePair<Rc>,
    sends: BTreeSet<u64>,
    receives: BTreeSet<u64>,
}

impl Flow {
    fn new(pd: &ProtectionDomain, cq: &CompletionQueue) -> Result<Self, Error> {
        let qp = pd
            .create_qp::<Rc>(cq, cq)
            .max_send_wr(DEPTH as u32)
            .max_recv_wr(DEPTH as u32)
            .scatter_to_cqe(true)
            .build()?;
        let (sends, receives) = (BTreeSet::new(), BTreeSet::new());
        let mut flow = Self { qp, sends, receives };
        flow.connect(&pd.context())?;
        Ok(flow)
    }

    fn connect(&mut self, context: &Context) -> Result<(), Error> {
        let (port, options) = (context.local_port(1, None)?, ConnectOptions::default());
        let itself = self.qp.endpoint(&port, Psn::default(), &options);
        self.qp.connect(&port, Psn::default(), &itself, &options)
    }

    /// Posts up to three requests of each kind, if there is room. Identifiers grow and are never
    /// reused.
    fn post(&mut self, mr: &MemoryRegion, next: &mut u64) -> Result<(), Error> {
        let remote = mr.remote(..)?;
        for _ in 0..3 {
            *next += 1;
            let mut batch = self.qp.wr_start();
            batch.wr(*next, SendFlags::SIGNALED).rdma_read(remote).sge(mr.sge(0..16)?);
            if batch.complete().is_ok() {
                self.sends.insert(*next);
            }
            *next += 1;
            let receive = ReceiveWr { wr_id: *next, sges: &[mr.sge(0..64)?] };
            if self.qp.post_recv(&[receive]).is_ok() {
                self.receives.insert(*next);
            }
        }
        Ok(())
    }

    /// Records a completion of this request; returns whether the request belongs to this queue
    /// pair.
    fn complete(&mut self, wr_id: u64) -> bool {
        if self.receives.remove(&wr_id) {
            return true;
        }
        let is_send = self.sends.contains(&wr_id);
        if is_send {
            // The completion also stands for the sends before it.
            self.sends.retain(|outstanding| *outstanding > wr_id);
        }
        is_send
    }
}

/// Reads all fields of a completion.
fn read(wc: &WorkCompletion<'_>) {
    let _ = format!("{wc:?} {:?} {:?}", wc.status(), wc.opcode());
    let _ = (wc.byte_len(), wc.imm_data(), wc.invalidated_rkey(), wc.pkey_index(), wc.qp_num());
    let _ = (wc.src_qp(), wc.slid(), wc.service_level(), wc.dlid_path_bits(), wc.has_grh());
    let _ = (wc.vlan(), wc.checksum_ok(), wc.checksum(), wc.rss_hash(), wc.flow_tag());
    let _ = (wc.timestamp(), wc.solicited(), wc.is_compressed(), wc.cancelled());
    if let Some(data) = wc.inline_data() {
        let mut copy = [0; InlineData::MAX];
        let length = data.copy_to(&mut copy).expect("never longer");
        assert!(data.bytes().eq(copy[..length].iter().copied()));
        assert_eq!(data.get(length), None);
    }
}

/// The completion queue, and the memory of its entries.
struct Ring {
    memory: Arc<Fenced>,
    cq: CompletionQueue,
    stride: usize,
    compressed: bool,
    /// Index of the next entry to write, free-running.
    place: u32,
}

impl Ring {
    fn new(numbers: &mut Numbers, context: &Context) -> Result<Self, Error> {
        let size = numbers.pick(&[CqeSize::Bytes64, CqeSize::Bytes128]);
        let format = numbers.pick(&[
            None,
            Some(CqeCompression::Hash),
            Some(CqeCompression::Checksum),
            Some(CqeCompression::ChecksumStride),
        ]);
        let memory = Arc::new(Fenced::default());
        let allocator: Arc<dyn QueueAllocator> = Arc::clone(&memory) as _;
        let before = numbers.below(32) as u32;
        let place = numbers.pick(&[0, (1 << 24) - before, 0_u32.wrapping_sub(before)]);
        // Some of these sizes fill their pages, so that the entries border on the fences.
        let entries = numbers.pick(&[1, 3, 7, 31, 63]);
        let channel = context.create_comp_channel()?;
        let builder = context.create_cq(entries).cqe_size(size).channel(&channel);
        let mut builder = builder.allocator(&allocator).consumed(place);
        if let Some(format) = format {
            builder = builder.compression(format);
        }
        let stride = if size == CqeSize::Bytes128 { 128 } else { 64 };
        Ok(Self { cq: builder.build()?, memory, stride, compressed: format.is_some(), place })
    }

    /// Writes bytes to the end of an entry, as a device would or not.
    fn write(&self, place: u32, entry: &[u8]) {
        let size = self.cq.capacity() + 1;
        let (start, len) = self.memory.latest().expect("there is a queue");
        let end = ((place & (size - 1)) as usize + 1) * self.stride;
        assert!(end <= len);
        for (offset, byte) in (end - entry.len()..).zip(entry) {
            // SAFETY: `end <= len`, asserted above, so the byte is in the queue's memory, which is
            // mapped while `self.cq` lives. Both sides access it as volatile bytes.
            unsafe { start.byte_add(offset).write_volatile(*byte) };
        }
    }

    /// Writes the next entry, with the owner bit that marks it as new.
    fn push(&mut self, mut entry: [u8; DESCRIPTOR]) {
        let owner = (self.place >> (self.cq.capacity() + 1).ilog2()) as u8 & OWNER;
        entry[DESCRIPTOR - 1] = entry[DESCRIPTOR - 1] & !OWNER | owner;
        self.write(self.place, &entry);
        self.place = self.place.wrapping_add(1);
    }

    /// Polls in one of the possible ways.
    fn poll(&mut self, numbers: &mut Numbers, flows: &mut [Flow]) -> Result<usize, PollError> {
        let mut check = |wc: &WorkCompletion<'_>| {
            read(wc);
            let outstanding = flows.iter_mut().any(|flow| flow.complete(wc.wr_id()));
            assert!(outstanding, "a completion of a request that is not outstanding: {wc:?}");
        };
        let max = numbers.below(20);
        match numbers.below(3) {
            0 => self.cq.poll(max, |wc| check(&wc)),
            1 => {
                let mut completions = self.cq.completions()?;
                for _ in 0..max {
                    let Some(wc) = completions.next() else { break };
                    check(&wc);
                }
                completions.finish()
            }
            _ => {
                let mut out = vec![OwnedCompletion::default(); max];
                let count = self.cq.poll_into(&mut out)?;
                out[..count].iter().for_each(|wc| check(&wc.as_completion()));
                Ok(count)
            }
        }
    }
}

fn bytes(cqe: &Cqe) -> [u8; DESCRIPTOR] {
    let mut bytes = [0; DESCRIPTOR];
    bytes.copy_from_slice(cqe.as_bytes());
    bytes
}

/// An entry that mostly could be one of `flow`'s.
fn entry(numbers: &mut Numbers, simulator: &Simulator, flow: &Flow) -> [u8; DESCRIPTOR] {
    const KINDS: [CqeOpcode; 9] = [
        CqeOpcode::Requester,
        CqeOpcode::Requester,
        CqeOpcode::ResponderSend,
        CqeOpcode::ResponderWriteImm,
        CqeOpcode::ResponderSendInvalidate,
        CqeOpcode::RequesterError,
        CqeOpcode::ResponderError,
        CqeOpcode::SignatureError,
        CqeOpcode::Resize,
    ];
    let kind = numbers.pick(&KINDS);
    let counter = numbers.below(2 * DEPTH as usize) as u16;
    let device = simulator.fabric().lock();
    let mut cqe = device.device(0).completion(flow.qp.qp_num(), kind, 0, counter);
    drop(device);
    cqe.byte_count.set(numbers.below(70) as u32);
    if numbers.one_in(2) {
        cqe.op_own |= (numbers.below(4) as u8) << FORMAT_SHIFT;
    }
    let mut bytes = bytes(&cqe);
    if numbers.one_in(3) {
        numbers.spoil(&mut bytes);
    }
    bytes
}

fn fuzz(numbers: &mut Numbers, simulator: &Simulator) -> Result<(), Error> {
    let context: Context = device(simulator.kernel())?.open()?;
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = pd.memory(4096).access(access).register()?;
    let mut ring = Ring::new(numbers, &context)?;
    let mut flows = Vec::new();
    for _ in 0..1 + numbers.below(3) {
        flows.push(Flow::new(&pd, &ring.cq)?);
    }
    // The device stalls, so posted requests stay outstanding: only this code writes completions.
    simulator.inject(0, Fault::Stall);
    let mut next = 0;
    for flow in &mut flows {
        flow.post(&mr, &mut next)?;
    }
    if numbers.one_in(4) {
        due(numbers, simulator, &mut ring, &mut flows);
        return Ok(());
    }
    for _ in 0..TURNS {
        let at = numbers.below(flows.len());
        match numbers.below(16) {
            0 => {
                flows.swap_remove(at).qp.destroy()?;
                flows.push(Flow::new(&pd, &ring.cq)?);
            }
            1 => {
                let flow = &mut flows[at];
                flow.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
                // The driver refuses to connect as long as completions of the previous connection
                // wait.
                if flow.connect(&context).is_ok() {
                    flow.sends.clear();
                    flow.receives.clear();
                }
            }
            2 => {
                let resized = ring.cq.resize(numbers.pick(&[1, 3, 7, 31, 63, 127]));
                if resized.is_err_and(|error| error.kind() == ErrorKind::Kernel) {
                    // The driver did not find the entry that reports the resize.
                    let error = ring.cq.poll(1, |_| {}).expect_err("it is not as the device is");
                    assert!(matches!(error, PollError::Corrupt(_)), "{error}");
                    return Ok(());
                }
            }
            3 => ring.cq.arm(numbers.one_in(2))?,
            4 => flows[at].post(&mr, &mut next)?,
            5 => {
                let mut raw = [0; DESCRIPTOR];
                raw.iter_mut().for_each(|byte| *byte = numbers.next() as u8);
                let length = 1 + numbers.below(DESCRIPTOR);
                ring.write(numbers.next() as u32, &raw[..length]);
            }
            6..11 => {
                for _ in 0..1 + numbers.below(6) {
                    let entry = entry(numbers, simulator, &flows[at]);
                    ring.push(entry);
                }
            }
            _ => {
                if let Err(error) = ring.poll(numbers, &mut flows) {
                    stays(numbers, simulator, &mut ring, &flows[at], error);
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// The queue's error stays, and no further completion is reported, whatever the entries contain.
fn stays(
    numbers: &mut Numbers,
    simulator: &Simulator,
    ring: &mut Ring,
    flow: &Flow,
    error: PollError,
) {
    assert!(matches!(error, PollError::Corrupt(_)), "{error}");
    for owner in [0, OWNER, 0] {
        assert_eq!(ring.cq.poll(16, |wc| panic!("behind it: {wc:?}")), Err(error));
        assert_eq!(ring.cq.completions().err(), Some(error));
        for place in 0..=ring.cq.capacity() {
            let kind = numbers.pick(&[CqeOpcode::Requester, CqeOpcode::ResponderSend]);
            let counter = numbers.below(DEPTH as usize) as u16;
            let device = simulator.fabric().lock();
            let mut good = device.device(0).completion(flow.qp.qp_num(), kind, 0, counter);
            drop(device);
            good.op_own |= owner;
            ring.write(place, &bytes(&good));
        }
    }
    assert!(ring.cq.is_ready(), "the reason for the end is still to be reported");
}

/// After good entries comes one that no correct device writes: the poll reports the good ones, and
/// then the error.
fn due(numbers: &mut Numbers, simulator: &Simulator, ring: &mut Ring, flows: &mut [Flow]) {
    let flow = numbers.below(flows.len());
    let (qp_num, size) = (flows[flow].qp.qp_num(), ring.cq.capacity() + 1);
    let good = numbers.below((size as usize).min(4)) as u16;
    let make = |kind, counter| {
        let device = simulator.fabric().lock();
        device.device(0).completion(qp_num, kind, 0, counter)
    };
    for counter in 0..good {
        ring.push(bytes(&make(CqeOpcode::ResponderSend, counter)));
    }
    let mut bad = make(CqeOpcode::Requester, 0);
    match numbers.below(6) {
        0 => bad.op_own = numbers.pick(&[6, 7, 8, 9, 10, 11]) << OPCODE_SHIFT,
        1 => bad.srqn_uidx.set(0xff_fffe),
        // A counter that belongs to no outstanding request.
        2 => bad.wqe_counter.set(DEPTH as u16 * 8 + numbers.below(0x7000) as u16),
        3 => {
            // A slot, in any lap, that was not posted to or whose request was already reported.
            bad = make(numbers.pick(&[CqeOpcode::ResponderSend, CqeOpcode::ResponderError]), 0);
            let (lap, counter) = (numbers.below(0x800) as u16 * RING, numbers.below(4) as u16);
            let slot =
                if counter < good { counter } else { 3 + numbers.below(RING as usize - 3) as u16 };
            bad.wqe_counter.set(lap + slot);
        }
        4 => {
            bad.op_own |= (Format::Inline32 as u8) << FORMAT_SHIFT;
            let more = numbers.pick(&[1, 2, 3, 32, 33, 1 << 30, u32::MAX - 32]);
            bad.byte_count.set(32 + more);
        }
        _ => {
            let count = if ring.compressed { numbers.pick(&[0, 1, size + 1, u32::MAX]) } else { 2 };
            bad.op_own |= (Format::Compressed as u8) << FORMAT_SHIFT;
            bad.byte_count.set(count);
        }
    }
    ring.push(bytes(&bad));
    let mut polled = 0;
    let error = (0..100).find_map(|_| match ring.poll(numbers, flows) {
        Ok(count) => {
            polled += count;
            None
        }
        Err(error) => Some(error),
    });
    let error = error.expect("what no correct device writes is an error");
    assert_eq!(polled, usize::from(good), "what came before is reported");
    stays(numbers, simulator, ring, &flows[flow], error);
}
