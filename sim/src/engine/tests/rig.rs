//! Queues in plain memory, written by hand.

pub(super) mod ethernet;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::mpsc::{Receiver, channel};

use mlx5_prm::cqe::{Cqe, CqeOpcode, ErrorCqe, OP_OWN_INITIAL, OPCODE_SHIFT, OWNER, Syndrome};
use mlx5_prm::wqe::{ControlSegment, DataSegment};
use zerocopy::{FromBytes, IntoBytes};

pub(super) use super::request::{Wqe, data, pattern};
use crate::config::SimConfig;
use crate::dma::{Buffer, Dma, ProcessMemory};
use crate::engine::{
    Access, AddressPath, CompletionConfig, CqConfig, Event, MkeyConfig, Moderation, QpConfig,
    QpSnapshot, QpState, RingConfig, SrqConfig, TagMatchingConfig, Translation, Transport,
    XrcConfig,
};
use crate::fabric::{Fabric, Guard};

/// Zeroed, page-aligned memory, accessed only by address and never by reference.
pub(super) struct Memory {
    base: *mut u8,
    layout: Layout,
}

impl Memory {
    pub(super) fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(1), 4096).expect("layout");
        // SAFETY: the layout is not empty.
        let base = unsafe { alloc_zeroed(layout) };
        assert!(!base.is_null());
        Self { base, layout }
    }

    pub(super) fn at(&self, offset: usize) -> u64 {
        assert!(offset <= self.layout.size());
        self.base as u64 + offset as u64
    }

    pub(super) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.layout.size());
        poke(self.at(offset), bytes);
    }

    pub(super) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.layout.size());
        peek(self.at(offset), length)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and the rig drops its fabric before its
        // pages.
        unsafe { dealloc(self.base, self.layout) }
    }
}

fn memory() -> ProcessMemory {
    // SAFETY: the rig passes only addresses of memory that it has allocated and not freed yet.
    unsafe { ProcessMemory::new() }
}

pub(super) fn poke(address: u64, bytes: &[u8]) {
    memory().write(address, bytes).expect("mapped");
}

pub(super) fn peek(address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    memory().read(address, &mut bytes).expect("mapped");
    bytes
}

pub(super) const RIGHTS: Access = Access::all();

/// A completion, parsed by hand.
#[derive(Debug)]
pub(super) struct Completion {
    pub(super) opcode: CqeOpcode,
    pub(super) cqe: Cqe,
    pub(super) error: ErrorCqe,
}

impl Completion {
    pub(super) fn wqe(&self) -> u16 {
        self.cqe.wqe_counter.get()
    }

    pub(super) fn syndrome(&self) -> Syndrome {
        Syndrome::from_bits(self.error.syndrome).expect("a syndrome")
    }

    pub(super) fn bytes(&self) -> u32 {
        self.cqe.byte_count.get()
    }
}

pub(super) struct Cq {
    pub(super) device: usize,
    pub(super) cqn: u32,
    pub(super) memory: Memory,
    record: Memory,
    log_size: u8,
    entry: usize,
    consumed: u32,
}

impl Cq {
    /// Takes the next completion, if there is one.
    pub(super) fn poll(&mut self) -> Option<Completion> {
        let index = self.consumed & ((1 << self.log_size) - 1);
        let offset = index as usize * self.entry + self.entry - 64;
        let bytes = self.memory.read(offset, 64);
        let cqe = Cqe::read_from_bytes(&bytes).expect("64 bytes");
        let opcode = CqeOpcode::from_bits(cqe.op_own >> OPCODE_SHIFT).expect("an opcode");
        let owner = self.consumed >> self.log_size & 1;
        if opcode == CqeOpcode::Invalid || u32::from(cqe.op_own & OWNER) != owner {
            return None;
        }
        self.consumed += 1;
        self.record.write(0, &(self.consumed & 0xff_ffff).to_be_bytes());
        let error = ErrorCqe::read_from_bytes(&bytes).expect("64 bytes");
        Some(Completion { opcode, cqe, error })
    }

    /// The bytes of an entry's descriptor.
    pub(super) fn descriptor(&self, index: usize) -> Vec<u8> {
        self.memory.read(index * self.entry + self.entry - 64, 64)
    }

    /// Advances past entries that the test parsed itself.
    pub(super) fn pass(&mut self, count: u32) {
        self.consumed += count;
        self.record.write(0, &(self.consumed & 0xff_ffff).to_be_bytes());
    }

    /// Makes the driver begin at this entry, as one that counts in `bits` bits.
    pub(super) fn count_on(&mut self, rig: &Rig, consumed: u32, bits: u32) {
        assert!(rig.lock().device_mut(self.device).set_cq_progress(self.cqn, consumed));
        self.consumed = consumed;
        self.record.write(0, &(consumed & ((1 << bits) - 1)).to_be_bytes());
    }

    /// Looks without taking.
    pub(super) fn peek_produced(&self, rig: &Rig) -> u32 {
        rig.lock().device(self.device).cq_progress(self.cqn).expect("a CQ").0
    }

    pub(super) fn arm_record(&self, word: u32) {
        self.record.write(4, &word.to_be_bytes());
    }

    /// Waits for the next completion of devices that run in a thread.
    pub(super) fn wait(&mut self) -> Completion {
        loop {
            match self.poll() {
                Some(completion) => return completion,
                None => std::thread::yield_now(),
            }
        }
    }

    #[track_caller]
    pub(super) fn expect(&mut self) -> Completion {
        self.poll().expect("a completion")
    }

    #[track_caller]
    pub(super) fn expect_error(&mut self) -> (u16, Syndrome) {
        let completion = self.expect();
        let errors = [CqeOpcode::RequesterError, CqeOpcode::ResponderError];
        assert!(errors.contains(&completion.opcode), "{completion:?}");
        (completion.wqe(), completion.syndrome())
    }

    #[track_caller]
    pub(super) fn expect_none(&mut self) {
        if let Some(completion) = self.poll() {
            panic!("unexpected {completion:?}");
        }
    }
}

pub(super) struct Srq {
    pub(super) srqn: u32,
    pub(super) memory: Memory,
    record: Memory,
    posted: u16,
}

pub(super) const SRQ_LOG_SIZE: u8 = 3;
const SRQ_LOG_STRIDE: u8 = 6;

impl Srq {
    /// Writes WQE `index`, followed in the list by `next`.
    pub(super) fn write(&self, index: u16, next: u16, segments: &[DataSegment]) {
        let at = usize::from(index) << SRQ_LOG_STRIDE;
        self.memory.write(at + 2, &next.to_be_bytes());
        let mut list = segments.to_vec();
        list.resize(3, DataSegment::END);
        self.memory.write(at + 16, list.as_bytes());
    }

    pub(super) fn post(&mut self, count: u16) {
        self.posted = self.posted.wrapping_add(count);
        self.record.write(0, &u32::from(self.posted).to_be_bytes());
    }
}

pub(super) struct Qp {
    pub(super) device: usize,
    pub(super) qpn: u32,
    pub(super) memory: Memory,
    record: Memory,
    sq_offset: usize,
    sq_blocks: usize,
    pub(super) posted: u16,
    pub(super) receives: u16,
    uar: u64,
}

const RQ_LOG_SIZE: u8 = 3;
const RQ_LOG_STRIDE: u8 = 6;

impl Qp {
    /// Writes a WQE into the ring; no doorbell record, no doorbell.
    pub(super) fn write(&mut self, wqe: &Wqe) -> u64 {
        let units = 1 + wqe.body.len() / 16;
        let control = ControlSegment {
            opmod_index_opcode: (u32::from(wqe.modifier) << 24
                | u32::from(self.posted) << 8
                | u32::from(wqe.opcode))
            .into(),
            qpn_ds: (self.qpn << 8 | units as u32).into(),
            fm_ce_se: wqe.flags,
            immediate: wqe.immediate.into(),
            ..ControlSegment::default()
        };
        let bytes = [control.as_bytes(), &wqe.body].concat();
        for (n, unit) in bytes.chunks(16).enumerate() {
            self.write_unit(usize::from(self.posted) * 4 + n, unit);
        }
        self.posted = self.posted.wrapping_add(units.div_ceil(4) as u16);
        u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"))
    }

    pub(super) fn write_unit(&self, unit: usize, bytes: &[u8]) {
        let at = unit % (self.sq_blocks * 4) * 16;
        self.memory.write(self.sq_offset + at, bytes);
    }

    pub(super) fn read_unit(&self, unit: usize) -> Vec<u8> {
        let at = unit % (self.sq_blocks * 4) * 16;
        self.memory.read(self.sq_offset + at, 16)
    }

    pub(super) fn write_record(&self, counter: u16) {
        self.record.write(4, &u32::from(counter).to_be_bytes());
    }

    pub(super) fn ring(&self, doorbell: u64) {
        poke(self.uar + 0x800, &doorbell.to_be_bytes());
    }

    pub(super) fn ring_at(&self, offset: u64, bytes: &[u8]) {
        poke(self.uar + offset, bytes);
    }

    /// Posts a WQE as a driver does and returns its first block.
    pub(super) fn post(&mut self, wqe: &Wqe) -> u16 {
        let index = self.posted;
        let doorbell = self.write(wqe);
        self.write_record(self.posted);
        self.ring(doorbell);
        index
    }

    pub(super) fn post_receive(&mut self, segments: &[DataSegment]) -> u16 {
        let index = self.receives;
        let slot = usize::from(index) % (1 << RQ_LOG_SIZE);
        let mut list = segments.to_vec();
        list.resize(4, DataSegment::END);
        self.memory.write(slot << RQ_LOG_STRIDE, list.as_bytes());
        self.receives = index.wrapping_add(1);
        self.record.write(0, &u32::from(self.receives).to_be_bytes());
        index
    }

    /// Posts WQE `index` of a queue with strides, followed in its list by `next`.
    pub(super) fn post_listed(&mut self, index: u16, next: u16, segments: &[DataSegment]) {
        let at = usize::from(index) << RQ_LOG_STRIDE;
        self.memory.write(at + 2, &next.to_be_bytes());
        let mut list = segments.to_vec();
        list.resize(3, DataSegment::END);
        self.memory.write(at + 16, list.as_bytes());
        self.receives = self.receives.wrapping_add(1);
        self.record.write(0, &u32::from(self.receives).to_be_bytes());
    }
}

/// Some memory under a key.
pub(super) struct Region {
    pub(super) memory: Memory,
    pub(super) key: u32,
}

impl Region {
    pub(super) fn at(&self, offset: usize) -> u64 {
        self.memory.at(offset)
    }
}

pub(super) struct Rig {
    // Dropped before the memory that its devices access.
    pub(super) fabric: Fabric,
    pub(super) pds: Vec<u32>,
    pages: Vec<Memory>,
    uars: Vec<u32>,
    events: Vec<Receiver<Event>>,
}

impl Rig {
    /// Devices that run step by step.
    pub(super) fn new(config: SimConfig) -> Self {
        Self::with_fabric(Fabric::new(config.step(true)))
    }

    pub(super) fn with_fabric(fabric: Fabric) -> Self {
        let mut rig =
            Self { fabric, pds: Vec::new(), pages: Vec::new(), uars: Vec::new(), events: vec![] };
        let count = rig.lock().devices().len();
        for id in 0..count {
            let page = Memory::new(4096);
            let (sender, receiver) = channel();
            let mut engine = rig.fabric.lock();
            let device = engine.device_mut(id);
            device.set_event_sink(Some(Box::new(move |event| {
                // The receiver is gone once the rig is dropped; the event is lost then.
                let _ = sender.send(event);
            })));
            let pd = device.alloc_pd().expect("a domain");
            let uar = device.alloc_uar(Some(page.at(0))).expect("a page");
            drop(engine);
            rig.pds.push(pd);
            rig.uars.push(uar);
            rig.pages.push(page);
            rig.events.push(receiver);
        }
        rig
    }

    pub(super) fn one_device() -> Self {
        Self::new(SimConfig::new())
    }

    pub(super) fn lock(&self) -> Guard<'_> {
        self.fabric.lock()
    }

    pub(super) fn run(&self) -> usize {
        self.fabric.run_until_idle()
    }

    /// The next event, without a time limit.
    pub(super) fn next_event(&self, device: usize) -> Event {
        self.events[device].recv().expect("the device lives")
    }

    pub(super) fn events(&self, device: usize) -> Vec<Event> {
        self.events[device].try_iter().collect()
    }

    pub(super) fn uar_address(&self, device: usize) -> u64 {
        self.pages[device].at(0)
    }

    pub(super) fn cq(&self, device: usize, log_size: u8, entry: u8) -> Cq {
        self.cq_with(device, log_size, entry, |_| {})
    }

    /// The same, with changes to the configuration.
    pub(super) fn cq_with(
        &self,
        device: usize,
        log_size: u8,
        entry: u8,
        change: impl FnOnce(&mut CqConfig),
    ) -> Cq {
        let memory = Memory::new(usize::from(entry) << log_size);
        for n in 0..1 << log_size {
            memory.write((n + 1) * usize::from(entry) - 1, &[OP_OWN_INITIAL]);
        }
        let record = Memory::new(8);
        let mut config = CqConfig {
            buffer: Buffer::contiguous(memory.at(0)),
            log_size,
            entry_bytes: entry,
            record: record.at(0),
            uar: self.uars[device],
            eqn: 7,
            ignore_overrun: false,
            compression: None,
            moderation: Moderation::default(),
        };
        change(&mut config);
        let cqn = self.lock().device_mut(device).create_cq(config).expect("a CQ");
        Cq { device, cqn, memory, record, log_size, entry: usize::from(entry), consumed: 0 }
    }

    pub(super) fn srq(&self, device: usize) -> Srq {
        self.srq_with(device, None, None)
    }

    pub(super) fn xrc_srq(&self, device: usize, xrc: XrcConfig) -> Srq {
        self.srq_with(device, Some(xrc), None)
    }

    /// A queue with a tag list.
    pub(super) fn tm_srq(&self, device: usize, cq: &Cq) -> Srq {
        let tags = TagMatchingConfig { cqn: cq.cqn, log_list_size: 2, rendezvous: false };
        self.srq_with(device, None, Some(tags))
    }

    fn srq_with(
        &self,
        device: usize,
        xrc: Option<XrcConfig>,
        tag_matching: Option<TagMatchingConfig>,
    ) -> Srq {
        let memory = Memory::new(1 << (SRQ_LOG_SIZE + SRQ_LOG_STRIDE));
        let record = Memory::new(8);
        let config = SrqConfig {
            pd: self.pds[device],
            buffer: Buffer::contiguous(memory.at(0)),
            log_size: SRQ_LOG_SIZE,
            log_stride: SRQ_LOG_STRIDE,
            record: record.at(0),
            user_index: 0x5757,
            tag_matching,
            xrc,
        };
        let srqn = self.lock().device_mut(device).create_srq(config).expect("an SRQ");
        Srq { srqn, memory, record, posted: 0 }
    }

    pub(super) fn qp(
        &self,
        device: usize,
        transport: Transport,
        cq: &Cq,
        srq: Option<u32>,
        log_sq: u8,
    ) -> Qp {
        let rq_bytes = 1usize << (RQ_LOG_SIZE + RQ_LOG_STRIDE);
        let sq_blocks = 1usize << log_sq;
        let memory = Memory::new(rq_bytes + sq_blocks * 64);
        let record = Memory::new(8);
        let rq = RingConfig { offset: 0, log_size: RQ_LOG_SIZE, log_stride: RQ_LOG_STRIDE };
        let sq = RingConfig { offset: rq_bytes as u64, log_size: log_sq, log_stride: 6 };
        let config = QpConfig {
            transport,
            pd: self.pds[device],
            send_cq: cq.cqn,
            recv_cq: cq.cqn,
            srq,
            xrcd: None,
            user_index: 0x1234,
            buffer: Buffer::contiguous(memory.at(0)),
            sq: Some(sq),
            rq: srq.is_none().then_some(rq),
            record: record.at(0),
            uar: self.uars[device],
            rendezvous: false,
            signed: false,
            block_multicast_loopback: false,
            completion: CompletionConfig::default(),
        };
        let qpn = self.lock().device_mut(device).create_qp(config).expect("a QP");
        Qp {
            device,
            qpn,
            memory,
            record,
            sq_offset: rq_bytes,
            sq_blocks,
            posted: 0,
            receives: 0,
            uar: self.uar_address(device),
        }
    }

    /// The receiving side of an extended connection, which has no queues of its own.
    pub(super) fn xrc_receiver(&self, device: usize, xrcd: u32) -> Qp {
        let config = QpConfig {
            transport: Transport::XrcReceive,
            pd: 0,
            send_cq: 0,
            recv_cq: 0,
            srq: None,
            xrcd: Some(xrcd),
            user_index: 0xff_ffff,
            buffer: Buffer::contiguous(0),
            sq: None,
            rq: None,
            record: 0,
            uar: 0,
            rendezvous: false,
            signed: false,
            block_multicast_loopback: false,
            completion: CompletionConfig::default(),
        };
        let qpn = self.lock().device_mut(device).create_qp(config).expect("a QP");
        Qp {
            device,
            qpn,
            memory: Memory::new(0),
            record: Memory::new(8),
            sq_offset: 0,
            sq_blocks: 0,
            posted: 0,
            receives: 0,
            uar: self.uar_address(device),
        }
    }

    /// The path to a device's first port.
    pub(super) fn path_to(&self, device: usize, sgid_index: u8) -> AddressPath {
        let engine = self.lock();
        let port = engine.device(device).port(1).expect("a port");
        AddressPath {
            grh: port.lid == 0,
            dlid: port.lid,
            dgid: port.gid(usize::from(sgid_index)).expect("a GID").gid,
            dmac: port.mac,
            sgid_index,
            hop_limit: 64,
            ..AddressPath::default()
        }
    }

    pub(super) fn connect(&self, one: &Qp, other: &Qp) {
        for (here, there) in [(one, other), (other, one)] {
            let path = self.path_to(there.device, 0);
            let mut engine = self.lock();
            let device = engine.device_mut(here.device);
            let attributes = device.qp_attributes_mut(here.qpn).expect("a QP");
            attributes.mtu = 256;
            attributes.remote_qpn = there.qpn;
            attributes.path = path;
            attributes.ack_timeout = 14;
            attributes.retry_count = 3;
            attributes.rnr_retry = 2;
            attributes.min_rnr_timer = 12;
            attributes.remote_read = true;
            attributes.remote_write = true;
            attributes.remote_atomic = true;
        }
        for qp in [one, other] {
            self.activate(qp);
        }
    }

    /// Moves a queue pair to RTS.
    pub(super) fn activate(&self, qp: &Qp) {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.set_state(qp, state);
        }
    }

    pub(super) fn set_state(&self, qp: &Qp, state: QpState) {
        self.lock().device_mut(qp.device).set_qp_state(qp.qpn, state).expect("a QP");
    }

    pub(super) fn query(&self, qp: &Qp) -> QpSnapshot {
        self.lock().device(qp.device).query_qp(qp.qpn).expect("a QP")
    }

    pub(super) fn region_with(
        &self,
        device: usize,
        bytes: usize,
        access: Access,
        pd: u32,
    ) -> Region {
        let memory = Memory::new(bytes);
        let config = MkeyConfig {
            tag: 0x5a,
            pd,
            access,
            start: memory.at(0),
            length: bytes as u64,
            translation: Translation::Physical,
            ..MkeyConfig::default()
        };
        let key = self.lock().device_mut(device).create_mkey(config).expect("a key");
        Region { memory, key }
    }

    pub(super) fn region(&self, device: usize, bytes: usize) -> Region {
        self.region_with(device, bytes, RIGHTS, self.pds[device])
    }

    /// Two connected queue pairs of a transport on one device, each with its CQ.
    pub(super) fn pair(&self, transport: Transport) -> Pair {
        self.pair_of(transport, 0, 0)
    }

    pub(super) fn pair_of(&self, transport: Transport, one: usize, other: usize) -> Pair {
        let (cq_a, cq_b) = (self.cq(one, 5, 64), self.cq(other, 5, 64));
        let a = self.qp(one, transport, &cq_a, None, 3);
        let b = self.qp(other, transport, &cq_b, None, 3);
        self.connect(&a, &b);
        Pair { a, b, cq_a, cq_b }
    }
}

pub(super) struct Pair {
    pub(super) a: Qp,
    pub(super) b: Qp,
    pub(super) cq_a: Cq,
    pub(super) cq_b: Cq,
}
