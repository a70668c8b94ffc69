//! A raw session: the kernel's calls and hand-written queue memory, no driver.

use std::sync::Arc;

use mlx5_prm::cqe::{Cqe, CqeOpcode, DESCRIPTOR, OP_OWN_INITIAL, OPCODE_SHIFT, OWNER};
use mlx5_prm::doorbell::{BLUEFLAME, CQ_DOORBELL, queue_pair_record};
use mlx5_prm::wqe::{ControlSegment, DataSegment, Opcode, RemoteAddressSegment, control_flags};
use mlx5_uapi::cmd::{ah, context, cq, mr, pd, qp, srq, uar};
use mlx5_uapi::mlx5::{self, AllocUcontextReqV2, LibCaps, QpFlags, UarType, UcontextFlags};
use mlx5_uapi::verbs::{
    AccessFlags, CqFlags, Mtu, QpAttrMask, QpCap, QpCreateFlags, QpDest, QpState, QpType, SrqType,
};
use mlx5_uapi::write_cmd::ModifyQp;
use mlx5_uapi::{Access, DeviceFile, Errno, Mapping, MemoryRequest, sysfs};
use zerocopy::{FromBytes, IntoBytes};

use crate::{SimConfig, Simulator};

/// Entries of the queues in these tests.
pub(crate) const CQES: u32 = 16;
pub(crate) const SEND_BLOCKS: u32 = 16;
const RECEIVE_WQES: u32 = 8;
const LOG_RECEIVE_STRIDE: u32 = 5;
/// Offsets of the send queue and of the doorbell records in a queue's memory.
const SEND_OFFSET: usize = (RECEIVE_WQES as usize) << LOG_RECEIVE_STRIDE;
const RECORD_OFFSET: usize = 12288;
const QUEUE_BYTES: usize = 16384;

/// Memory that the device may reach too.
pub(crate) struct Memory {
    pub(crate) mapping: Mapping,
}

impl Memory {
    pub(crate) fn new(file: &dyn DeviceFile, bytes: usize) -> Result<Self, Errno> {
        Ok(Self { mapping: file.allocate(&MemoryRequest::new(bytes))? })
    }

    pub(crate) fn at(&self, offset: usize) -> u64 {
        assert!(offset <= self.mapping.len());
        self.mapping.as_ptr() as u64 + offset as u64
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.mapping.len());
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: inside the mapping, as asserted above; no code holds references to it.
            unsafe { self.mapping.as_ptr().add(offset + index).write_volatile(*byte) };
        }
    }

    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.mapping.len());
        // SAFETY: inside the mapping, as asserted above; no code holds references to it.
        let byte = |index| unsafe { self.mapping.as_ptr().add(offset + index).read_volatile() };
        (0..length).map(byte).collect()
    }
}

/// Opens a context on a device of a machine.
pub(crate) fn open(sim: &Simulator, device: usize) -> Result<Arc<dyn DeviceFile>, Errno> {
    let kernel = sim.kernel();
    let info = &sysfs::devices(&*kernel)?[device];
    let file = kernel.open(&info.uverbs, info.dev)?;
    context::probe(&*file).map_err(Errno::from)?;
    context::get_context(&*file, &request(1))?;
    Ok(file)
}

/// The request for a context.
pub(crate) fn request(max_cqe_version: u8) -> AllocUcontextReqV2 {
    AllocUcontextReqV2 {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        flags: UcontextFlags::DEVX.bits(),
        max_cqe_version,
        lib_caps: (LibCaps::UAR_4K | LibCaps::DYN_UAR).bits(),
        ..AllocUcontextReqV2::default()
    }
}

/// A context with a protection domain and a UAR.
pub(crate) struct Session {
    pub(crate) sim: Simulator,
    pub(crate) file: Arc<dyn DeviceFile>,
    pub(crate) pd: pd::Pd,
    pub(crate) uar: uar::Uar,
    pub(crate) page: Mapping,
}

impl Session {
    pub(crate) fn new() -> Self {
        Self::with(SimConfig::new())
    }

    pub(crate) fn with(config: SimConfig) -> Self {
        Self::on(&Simulator::new(config.step(true)), 0).expect("a session")
    }

    pub(crate) fn on(sim: &Simulator, device: usize) -> Result<Self, Errno> {
        let file = open(sim, device)?;
        let pd = pd::alloc(&*file)?;
        let uar = uar::alloc(&*file, UarType::BlueFlame)?;
        let page = file.map(uar.mmap_offset, uar.mmap_len as usize, Access::Write)?;
        Ok(Self { sim: sim.clone(), file, pd, uar, page })
    }

    /// Rings a doorbell on the session's page.
    pub(crate) fn ring(&self, offset: usize, bytes: [u8; 8]) {
        // SAFETY: inside the page, aligned; the engine takes it as a whole.
        unsafe {
            self.page.as_ptr().add(offset).cast::<u64>().write_volatile(u64::from_ne_bytes(bytes));
        }
    }

    pub(crate) fn cq(&self) -> TestCq {
        self.try_cq(&TestCqOptions::default()).expect("a CQ")
    }

    pub(crate) fn try_cq(&self, options: &TestCqOptions<'_>) -> Result<TestCq, Errno> {
        let memory = Memory::new(&*self.file, QUEUE_BYTES)?;
        for entry in 0..CQES as usize {
            memory.write(entry * DESCRIPTOR + DESCRIPTOR - 1, &[OP_OWN_INITIAL]);
        }
        let what = cq::CreateCq {
            cqe: CQES - 1,
            user_handle: options.user_handle,
            comp_channel: options.channel,
            comp_vector: options.vector,
            flags: CqFlags::empty(),
            async_events: None,
            driver: mlx5::CreateCq {
                buf_addr: memory.at(0),
                db_addr: memory.at(RECORD_OFFSET),
                cqe_size: 64,
                flags: mlx5::CreateCqFlags::UAR_PAGE_INDEX.bits(),
                uar_page_index: self.uar.page_id as u16,
                ..mlx5::CreateCq::default()
            },
            uar_index: None,
        };
        // SAFETY: the memory lives as long as the queue, which is destroyed before it.
        let cq = unsafe { cq::create(&*self.file, &what) }?;
        Ok(TestCq { cq, memory, next: 0 })
    }

    /// Arms a completion queue for any completion.
    pub(crate) fn arm(&self, cq: &TestCq, sequence: u32) {
        let word = sequence << 28 | cq.next & 0xff_ffff;
        cq.memory.write(RECORD_OFFSET + 4, &word.to_be_bytes());
        let doorbell = u64::from(word) << 32 | u64::from(cq.cq.cqn);
        self.ring(CQ_DOORBELL, doorbell.to_be_bytes());
    }

    pub(crate) fn qp(&self, kind: QpType, cq: &TestCq) -> TestQp {
        self.try_qp(kind, cq, None).expect("a QP")
    }

    pub(crate) fn try_qp(
        &self,
        kind: QpType,
        cq: &TestCq,
        srq: Option<u32>,
    ) -> Result<TestQp, Errno> {
        let memory = Memory::new(&*self.file, QUEUE_BYTES)?;
        let send_offset = if srq.is_some() { 0 } else { SEND_OFFSET };
        let what = qp::CreateQp {
            qp_type: kind,
            pd: Some(self.pd.handle),
            xrcd: None,
            send_cq: Some(cq.cq.handle),
            recv_cq: Some(cq.cq.handle),
            srq,
            user_handle: 0x9d,
            cap: QpCap {
                max_send_wr: SEND_BLOCKS,
                max_recv_wr: if srq.is_some() { 0 } else { RECEIVE_WQES },
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 0,
            },
            flags: QpCreateFlags::empty(),
            source_qpn: None,
            async_events: None,
            driver: mlx5::CreateQp {
                buf_addr: memory.at(0),
                db_addr: memory.at(RECORD_OFFSET),
                sq_wqe_count: SEND_BLOCKS,
                rq_wqe_count: RECEIVE_WQES,
                rq_wqe_shift: LOG_RECEIVE_STRIDE,
                flags: QpFlags::UAR_PAGE_INDEX.bits(),
                uidx: 0x77,
                bfreg_index: self.uar.page_id,
                // Rings that are apart, where the call has it so.
                sq_buf_addr: if kind == QpType::RawPacket { memory.at(send_offset) } else { 0 },
                ..mlx5::CreateQp::default()
            },
        };
        // SAFETY: the memory lives as long as the queue pair, which is destroyed before it.
        let qp = unsafe { qp::create(&*self.file, &what) }?;
        Ok(TestQp { qp, kind, memory, send_offset, sent: 0, received: 0 })
    }

    pub(crate) fn try_srq(&self, max_wr: u32) -> Result<(srq::Srq, Memory), Errno> {
        let memory = Memory::new(&*self.file, QUEUE_BYTES)?;
        let what = srq::CreateSrq {
            srq_type: SrqType::Basic,
            pd: self.pd.handle,
            xrcd: None,
            cq: None,
            user_handle: 0x5e,
            max_wr,
            max_sge: 1,
            limit: 0,
            max_num_tags: 0,
            async_events: None,
            driver: mlx5::CreateSrq {
                buf_addr: memory.at(0),
                db_addr: memory.at(RECORD_OFFSET),
                uidx: 0x88,
                ..mlx5::CreateSrq::default()
            },
        };
        // SAFETY: the caller gets the memory, and keeps it while the device uses the queue.
        Ok((unsafe { srq::create(&*self.file, &what) }?, memory))
    }

    pub(crate) fn region(&self, bytes: usize) -> Region {
        let access =
            AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        self.try_region(bytes, access).expect("a region")
    }

    pub(crate) fn try_region(&self, bytes: usize, access: AccessFlags) -> Result<Region, Errno> {
        let memory = Memory::new(&*self.file, bytes)?;
        let what = mr::Registration {
            pd: self.pd.handle,
            start: memory.at(0),
            length: bytes as u64,
            hca_va: memory.at(0),
            access,
        };
        // SAFETY: the memory outlives the region, or is kept by the test that provokes otherwise.
        let mr = unsafe { mr::reg(&*self.file, &what) }?;
        Ok(Region { mr, memory })
    }

    /// The path to a queue pair of the same port.
    pub(crate) fn path(&self) -> QpDest {
        let port = mlx5_uapi::cmd::query::port(&*self.file, 1).expect("a port").legacy_resp;
        let gids = mlx5_uapi::cmd::query::gid_table(&*self.file, 256).expect("GIDs");
        match port.link_layer {
            1 => QpDest { dlid: port.lid, port_num: 1, ..QpDest::default() },
            _ => QpDest {
                dgid: gids[3].gid,
                sgid_index: gids[3].gid_index as u8,
                hop_limit: 64,
                is_global: 1,
                port_num: 1,
                ..QpDest::default()
            },
        }
    }

    /// Connects two queue pairs of this session with each other.
    pub(crate) fn connect(&self, one: &TestQp, other: &TestQp) {
        let both = [(one, other), (other, one)];
        let itself = one.qp.qp_num == other.qp.qp_num;
        for (this, that) in both.into_iter().take(if itself { 1 } else { 2 }) {
            self.modify(&init(this)).expect("INIT");
            self.modify(&rtr(this, that.qp.qp_num, self.path())).expect("RTR");
            self.modify(&rts(this)).expect("RTS");
        }
    }

    pub(crate) fn modify(&self, request: &ModifyQp) -> Result<(), Errno> {
        qp::modify(&*self.file, request)
    }

    pub(crate) fn destroy_ah(&self, handle: u32) {
        ah::destroy(&*self.file, handle).expect("an AH");
    }

    /// Posts what was written, and lets the device work.
    pub(crate) fn post(&self, qp: &mut TestQp, wqe: &[u8]) {
        let first = qp.write(wqe);
        self.ring(BLUEFLAME, first);
        self.sim.run_until_idle();
    }
}

/// The options of a completion queue.
#[derive(Default)]
pub(crate) struct TestCqOptions<'a> {
    pub(crate) user_handle: u64,
    pub(crate) vector: u32,
    pub(crate) channel: Option<std::os::fd::BorrowedFd<'a>>,
}

pub(crate) struct Region {
    pub(crate) mr: mr::Mr,
    pub(crate) memory: Memory,
}

pub(crate) struct TestCq {
    pub(crate) cq: cq::Cq,
    pub(crate) memory: Memory,
    pub(crate) next: u32,
}

impl TestCq {
    /// Takes the next completion, if there is one.
    pub(crate) fn poll(&mut self) -> Option<(CqeOpcode, Cqe)> {
        let offset = (self.next % CQES) as usize * DESCRIPTOR;
        let cqe = Cqe::read_from_bytes(&self.memory.read(offset, DESCRIPTOR)).expect("64 bytes");
        let opcode = CqeOpcode::from_bits(cqe.op_own >> OPCODE_SHIFT)?;
        let lap = (self.next / CQES) as u8 & OWNER;
        if opcode == CqeOpcode::Invalid || cqe.op_own & OWNER != lap {
            return None;
        }
        self.next += 1;
        self.memory.write(RECORD_OFFSET, &(self.next & 0xff_ffff).to_be_bytes());
        Some((opcode, cqe))
    }

    pub(crate) fn expect(&mut self) -> (CqeOpcode, Cqe) {
        self.poll().expect("a completion")
    }
}

pub(crate) struct TestQp {
    pub(crate) qp: qp::Qp,
    kind: QpType,
    pub(crate) memory: Memory,
    send_offset: usize,
    sent: u16,
    received: u16,
}

impl TestQp {
    pub(crate) fn receive(&mut self, region: &Region, length: u32) {
        let slot = usize::from(self.received) % RECEIVE_WQES as usize;
        let offset = slot << LOG_RECEIVE_STRIDE;
        let entry = data(region, 0, length);
        self.memory.write(offset, entry.as_bytes());
        self.memory.write(offset + 16, DataSegment::END.as_bytes());
        self.received += 1;
        let counter = u32::from(self.received).to_be_bytes();
        self.memory.write(RECORD_OFFSET + queue_pair_record::RECEIVE, &counter);
    }

    /// Begins again, after a reset.
    pub(crate) fn start_over(&mut self) {
        (self.sent, self.received) = (0, 0);
        self.memory.write(RECORD_OFFSET, &[0; 8]);
    }

    /// Writes a WQE of one block behind its control segment, and the record; the doorbell.
    pub(crate) fn write(&mut self, wqe: &[u8]) -> [u8; 8] {
        let block = u32::from(self.sent) % SEND_BLOCKS;
        self.memory.write(self.send_offset + block as usize * 64, wqe);
        self.sent = self.sent.wrapping_add(1);
        let counter = u32::from(self.sent).to_be_bytes();
        self.memory.write(RECORD_OFFSET + queue_pair_record::SEND, &counter);
        wqe[..8].try_into().expect("a control segment")
    }

    /// A signaled WQE of these segments.
    pub(crate) fn wqe(&self, opcode: Opcode, segments: &[&[u8]]) -> Vec<u8> {
        let body = segments.concat();
        let units = 1 + body.len() as u32 / 16;
        let control = ControlSegment {
            opmod_index_opcode: (u32::from(self.sent) << 8 | opcode as u32).into(),
            qpn_ds: (self.qp.qp_num << 8 | units).into(),
            fm_ce_se: control_flags::COMPLETION,
            ..ControlSegment::default()
        };
        [control.as_bytes(), &body].concat()
    }
}

/// A gather or scatter entry.
pub(crate) fn data(region: &Region, offset: usize, length: u32) -> DataSegment {
    DataSegment {
        byte_count: length.into(),
        lkey: region.mr.lkey.into(),
        address: region.memory.at(offset).into(),
    }
}

/// A remote address.
pub(crate) fn remote(region: &Region) -> RemoteAddressSegment {
    RemoteAddressSegment {
        address: region.memory.at(0).into(),
        rkey: region.mr.rkey.into(),
        ..RemoteAddressSegment::default()
    }
}

fn base(qp: &TestQp, state: QpState, mask: QpAttrMask) -> ModifyQp {
    ModifyQp {
        qp_handle: qp.qp.handle,
        attr_mask: (mask | QpAttrMask::STATE).bits(),
        qp_state: state.raw(),
        ..ModifyQp::default()
    }
}

/// A transition that says only where to.
pub(crate) fn to(qp: &TestQp, state: QpState) -> ModifyQp {
    base(qp, state, QpAttrMask::empty())
}

pub(crate) fn init(qp: &TestQp) -> ModifyQp {
    use QpAttrMask as Mask;
    let rights = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let mask = match qp.kind {
        QpType::Ud => Mask::PKEY_INDEX | Mask::PORT | Mask::QKEY,
        QpType::RawPacket => Mask::PORT,
        _ => Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS,
    };
    ModifyQp {
        port_num: 1,
        qkey: 0x1111_1111,
        qp_access_flags: rights.bits(),
        ..base(qp, QpState::Init, mask)
    }
}

pub(crate) fn rtr(qp: &TestQp, remote: u32, dest: QpDest) -> ModifyQp {
    use QpAttrMask as Mask;
    let connected = Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
    let mask = match qp.kind {
        QpType::Ud | QpType::RawPacket => Mask::empty(),
        QpType::Uc => connected,
        _ => connected | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER,
    };
    ModifyQp {
        dest,
        dest_qp_num: remote,
        path_mtu: Mtu::Mtu1024.raw(),
        rq_psn: 0x77,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 1,
        ..base(qp, QpState::Rtr, mask)
    }
}

pub(crate) fn rts(qp: &TestQp) -> ModifyQp {
    use QpAttrMask as Mask;
    let reliable = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY | Mask::MAX_QP_RD_ATOMIC;
    let mask = match qp.kind {
        QpType::Rc => reliable | Mask::SQ_PSN,
        QpType::RawPacket => Mask::empty(),
        _ => Mask::SQ_PSN,
    };
    ModifyQp {
        sq_psn: 0x77,
        timeout: 8,
        retry_cnt: 3,
        rnr_retry: 3,
        max_rd_atomic: 4,
        ..base(qp, QpState::Rts, mask)
    }
}
