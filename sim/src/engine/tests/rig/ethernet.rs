//! Ethernet send and receive queues, and the steering that leads to them.

use mlx5_prm::cmd::flow::{FlowTableType, MatchParameters};
use mlx5_prm::cmd::steering::self_lb_block;

use super::{Cq, Memory, Qp, RQ_LOG_SIZE, RQ_LOG_STRIDE, Rig};
use crate::dma::Buffer;
use crate::engine::{
    CompletionConfig, FlowEntry, FlowGroup, FlowTableConfig, FlowTarget, HashConfig, HashFields,
    QpConfig, QpState, ReceiveQueueConfig, Registers, RingConfig, SendQueueConfig, TirConfig,
    TirTarget, TisConfig, Transport,
};

pub(in crate::engine::tests) const NIC_RX: u8 = FlowTableType::NIC_RX.0 as u8;

/// No hash.
pub(in crate::engine::tests) const UNHASHED: HashConfig = HashConfig {
    toeplitz: false,
    symmetric: false,
    key: [0; 40],
    outer: HashFields { ipv6: false, udp: false, selected: 0 },
    inner: HashFields { ipv6: false, udp: false, selected: 0 },
};

/// Match parameters of a flow table, as a mask or a value.
pub(in crate::engine::tests) fn parameters(
    fill: impl FnOnce(&mut MatchParameters),
) -> MatchParameters {
    let mut parameters = MatchParameters::default();
    fill(&mut parameters);
    parameters
}

impl Rig {
    fn ring(&self, device: usize, cq: &Cq, memory: &Memory, record: &Memory) -> QpConfig {
        QpConfig {
            transport: Transport::Ethernet,
            pd: self.pds[device],
            send_cq: cq.cqn,
            recv_cq: cq.cqn,
            srq: None,
            xrcd: None,
            user_index: 0x1234,
            buffer: Buffer::contiguous(memory.at(0)),
            sq: None,
            rq: None,
            record: record.at(0),
            uar: self.uars[device],
            rendezvous: false,
            signed: false,
            block_multicast_loopback: false,
            completion: CompletionConfig::default(),
        }
    }

    /// A send queue in state READY.
    pub(in crate::engine::tests) fn sq(&self, device: usize, cq: &Cq, domain: u32) -> Qp {
        self.sq_with(device, cq, domain, Registers::Nothing)
    }

    /// The same, with permission to change memory keys.
    pub(in crate::engine::tests) fn sq_with(
        &self,
        device: usize,
        cq: &Cq,
        domain: u32,
        registers: Registers,
    ) -> Qp {
        let log_blocks = 4;
        let sq_blocks = 1 << log_blocks;
        let (memory, record) = (Memory::new(sq_blocks * 64), Memory::new(8));
        let sq = RingConfig { offset: 0, log_size: log_blocks, log_stride: 6 };
        let ring = QpConfig { sq: Some(sq), ..self.ring(device, cq, &memory, &record) };
        let mut engine = self.lock();
        let this = engine.device_mut(device);
        let tis = this.create_tis(TisConfig { domain, priority: 0, port: 0 }).expect("a TIS");
        let config = SendQueueConfig { tis, rate: 0, registers };
        let qpn = this.create_sq(ring, config).expect("an SQ");
        this.set_queue_state(qpn, QpState::Rts).expect("an SQ");
        drop(engine);
        let uar = self.uar_address(device);
        Qp { device, qpn, memory, record, sq_offset: 0, sq_blocks, posted: 0, receives: 0, uar }
    }

    /// A receive queue in state READY.
    pub(in crate::engine::tests) fn rq(
        &self,
        device: usize,
        cq: &Cq,
        config: ReceiveQueueConfig,
    ) -> Qp {
        let (memory, record) = (Memory::new(1 << (RQ_LOG_SIZE + RQ_LOG_STRIDE)), Memory::new(8));
        let rq = RingConfig { offset: 0, log_size: RQ_LOG_SIZE, log_stride: RQ_LOG_STRIDE };
        let ring = QpConfig { rq: Some(rq), uar: 0, ..self.ring(device, cq, &memory, &record) };
        let mut engine = self.lock();
        let this = engine.device_mut(device);
        let qpn = this.create_rq(ring, config).expect("an RQ");
        this.set_queue_state(qpn, QpState::Rtr).expect("an RQ");
        drop(engine);
        let uar = self.uar_address(device);
        Qp { device, qpn, memory, record, sq_offset: 0, sq_blocks: 0, posted: 0, receives: 0, uar }
    }

    /// A transport interface that sends everything to one queue, its own domain's frames included.
    pub(in crate::engine::tests) fn direct(&self, rq: &Qp) -> TirConfig {
        TirConfig {
            target: TirTarget::Queue(rq.qpn),
            hash: UNHASHED,
            own_frames: self_lb_block::UNICAST | self_lb_block::MULTICAST,
            domain: 1,
            tunneled: false,
        }
    }

    pub(in crate::engine::tests) fn tir(&self, device: usize, config: TirConfig) -> u32 {
        self.lock().device_mut(device).create_tir(config).expect("a TIR")
    }

    /// A table of four entries.
    pub(in crate::engine::tests) fn table(&self, device: usize, level: u8) -> u32 {
        let config = FlowTableConfig { kind: NIC_RX, level, log_size: 2, miss: None };
        self.lock().device_mut(device).create_flow_table(config).expect("a table")
    }

    pub(in crate::engine::tests) fn root(&self, device: usize, table: u32) {
        self.lock().device_mut(device).set_flow_root(NIC_RX, Some(table)).expect("a root");
    }

    /// A group of one entry, and the entry.
    pub(in crate::engine::tests) fn rule(
        &self,
        device: usize,
        table: u32,
        index: u32,
        (mask, value): (&MatchParameters, &MatchParameters),
        change: impl FnOnce(&mut FlowEntry),
    ) {
        let mut engine = self.lock();
        let this = engine.device_mut(device);
        let group = FlowGroup::new(index, index, 0x7f, mask);
        let group = this.create_flow_group(NIC_RX, table, group).expect("a group");
        let mut entry = FlowEntry {
            group,
            value: Box::new(*value),
            tag: 0,
            drop: false,
            targets: Vec::new(),
            counters: Vec::new(),
        };
        change(&mut entry);
        this.set_flow_entry(NIC_RX, table, index, entry).expect("an entry");
    }

    /// Sends every frame to a transport interface.
    pub(in crate::engine::tests) fn everything_to(&self, device: usize, tir: u32) {
        let table = self.table(device, 0);
        let any = MatchParameters::default();
        self.rule(device, table, 0, (&any, &any), |entry| {
            entry.targets = vec![FlowTarget::Tir(tir)]
        });
        self.root(device, table);
    }
}
