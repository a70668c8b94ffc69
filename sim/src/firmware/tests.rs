//! The command interface, tested with mailboxes.

mod counters;
mod kernel;
mod keys;
mod models;
mod umem;
mod vport;

use std::cell::UnsafeCell;

use mlx5_prm::cmd::alloc::{
    AllocPdIn, AllocUarIn, AllocXrcdIn, DeallocPdIn, DeallocXrcdIn, QueryQCounterIn,
};
use mlx5_prm::cmd::caps::{CapGroup, CapMode, QueryHcaCapIn};
use mlx5_prm::cmd::cq::{CreateCqIn, DestroyCqIn, ModifyCqIn, ModifyCqMode, QueryCqIn};
use mlx5_prm::cmd::eq::{CreateEqIn, DestroyEqIn};
use mlx5_prm::cmd::hca::{NopIn, QueryAdapterIn};
use mlx5_prm::cmd::port::{
    AttachToMcgIn, QueryHcaVportContextIn, QueryNicVportContextIn, QueryRoceAddressIn, RoceVersion,
    SetRoceAddressIn,
};
use mlx5_prm::cmd::qp::{
    CreateQpIn, DestroyQpIn, Init2RtrQpIn, OptParamMask, Qp2ErrIn, QpMtu, QpState, QueryQpIn,
    RqType, Rst2InitQpIn, Rtr2RtsQpIn, Rts2RtsQpIn, ServiceType,
};
use mlx5_prm::cmd::srq::{
    ArmRqIn, CreateRmpIn, CreateSrqIn, CreateXrcSrqIn, DestroyRmpIn, DestroySrqIn, QuerySrqIn,
    QueryXrcSrqIn, RmpState,
};
use mlx5_prm::cmd::{CommandInput, CommandOutHead, CommandStatus};
use mlx5_prm::fields::IntoBytes;

use crate::firmware::{Counts, Firmware, syndrome};
use crate::{Fabric, Fault, PortConfig, SimConfig};

/// A page of the host's, which the device may write.
#[repr(align(4096))]
struct Page {
    bytes: UnsafeCell<[u8; 4096]>,
}

struct Rig {
    fabric: Fabric,
    firmware: Firmware,
    page: Box<Page>,
}

impl Rig {
    fn new(config: SimConfig) -> Self {
        let page = Box::new(Page { bytes: UnsafeCell::new([0; 4096]) });
        Self { fabric: Fabric::new(config.step(true)), firmware: Firmware::new(), page }
    }

    fn infiniband() -> Self {
        Self::new(SimConfig::new())
    }

    fn page(&self) -> u64 {
        self.page.bytes.get() as u64
    }

    fn raw(&mut self, input: &[u8], output: &mut [u8]) -> (CommandStatus, u32) {
        let mut engine = self.fabric.lock();
        let status = self.firmware.execute(engine.device_mut(0), input, output);
        let head = CommandOutHead::from_short(output);
        assert_eq!(CommandStatus(head.status()), status);
        (status, head.syndrome())
    }

    /// Executes a command that a page follows.
    fn try_run<I: CommandInput>(&mut self, input: &I) -> Result<I::Output, (CommandStatus, u32)> {
        let mut mailbox = input.as_bytes().to_vec();
        mailbox.extend(self.page().to_be_bytes());
        mailbox.extend([0; 8]);
        let mut output = I::Output::default();
        match self.raw(&mailbox, output.as_mut_bytes()) {
            (CommandStatus::OK, _) => Ok(output),
            refused => Err(refused),
        }
    }

    fn run<I: CommandInput>(&mut self, input: &I) -> I::Output {
        self.try_run(input).unwrap_or_else(|refused| panic!("{refused:x?}"))
    }

    fn pd(&mut self) -> u32 {
        self.run(&AllocPdIn::request()).pd()
    }

    fn cq(&mut self) -> u32 {
        let eqn = self.run(&CreateEqIn::request()).eq_number();
        let uar = self.run(&AllocUarIn::request()).uar();
        let mut input = CreateCqIn::request();
        let record = self.page() + 4088;
        input.cqc_mut().set_log_cq_size(4).set_uar_page(uar).set_dbr_addr(record);
        input.cqc_mut().set_c_eqn_or_apu_element(eqn);
        self.run(&input).cqn()
    }

    fn qp_input(&mut self, service: ServiceType, pd: u32, cqn: u32) -> CreateQpIn {
        let uar = self.run(&AllocUarIn::request()).uar();
        let mut input = CreateQpIn::request();
        let record = self.page() + 4080;
        input
            .qpc_mut()
            .set_st(service.0)
            .set_pd(pd)
            .set_log_sq_size(3)
            .set_log_rq_size(3)
            .set_log_rq_stride(1)
            .set_cqn_snd(cqn)
            .set_cqn_rcv(cqn)
            .set_uar_page(uar)
            .set_dbr_addr(record);
        input
    }

    fn qp(&mut self, service: ServiceType) -> u32 {
        let (pd, cqn) = (self.pd(), self.cq());
        let input = self.qp_input(service, pd, cqn);
        self.run(&input).qpn()
    }

    fn counts(&self) -> Counts {
        self.firmware.counts(self.fabric.lock().device(0))
    }
}

fn refused<T>(result: Result<T, (CommandStatus, u32)>) -> (CommandStatus, u32) {
    result.map(drop).expect_err("a refusal")
}

#[test]
fn what_is_not_a_command_is_refused() {
    let mut rig = Rig::infiniband();
    let mut output = [0xee; 16];
    let unknown = [0x0f, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let answer = rig.raw(&unknown, &mut output);
    assert_eq!(answer, (CommandStatus::BAD_OP_ERR, syndrome::UNKNOWN_OPCODE));
    assert_eq!(output[8..], [0; 8]);
    let input = AllocPdIn::request();
    let answer = rig.raw(&input.as_bytes()[..8], &mut output);
    assert_eq!(answer, (CommandStatus::BAD_INP_LEN_ERR, syndrome::SHORT_INPUT));
    let answer = rig.raw(input.as_bytes(), &mut output[..8]);
    assert_eq!(answer, (CommandStatus::BAD_OUTP_LEN_ERR, syndrome::SHORT_OUTPUT));
    assert_eq!(rig.counts(), Counts::default());
    rig.run(&NopIn::request());
}

/// Programs query with the layout of their time, which may be shorter than the device's.
#[test]
fn an_answer_is_cut_off_where_the_caller_has_no_more_room() {
    let mut rig = Rig::infiniband();
    let mut input = QueryHcaCapIn::request();
    input.set_op_mod(CapGroup::GENERAL.op_mod(CapMode::CURRENT));
    let whole = rig.run(&input);
    let whole = whole.as_bytes();
    for room in [8, 16, 2064, whole.len() - 1, whole.len(), whole.len() + 8] {
        let mut output = vec![0xee; room];
        assert_eq!(rig.raw(input.as_bytes(), &mut output), (CommandStatus::OK, 0), "{room}");
        let common = room.min(whole.len());
        assert_eq!(output[..common], whole[..common], "{room}");
        assert!(output[common..].iter().all(|byte| *byte == 0), "{room}");
    }
    // Without room for the status there is no answer, and a command that makes an object needs room
    // for all of it.
    let short = (CommandStatus::BAD_OUTP_LEN_ERR, syndrome::SHORT_OUTPUT);
    assert_eq!(rig.raw(AllocPdIn::request().as_bytes(), &mut [0; 12]), short);
    assert_eq!(rig.counts(), Counts::default());
    // An unknown modifier is an error with a short output, too.
    input.set_op_mod(0x7f << 1);
    assert_eq!(rig.raw(input.as_bytes(), &mut [0; 16]).0, CommandStatus::BAD_OP_ERR);
}

#[test]
fn the_device_says_what_it_is_and_can() {
    let mut rig = Rig::new(SimConfig::new().ports([PortConfig::ROCE]));
    let out = rig.run(&QueryAdapterIn::request());
    assert_eq!(out.query_adapter_struct().ieee_vendor_id(), 0x2c9);
    let psid = out.query_adapter_struct().vsd_contd_psid();
    assert!(psid.starts_with(b"MT_0000000838"));
    let mut caps = |group: CapGroup| {
        let mut input = QueryHcaCapIn::request();
        input.set_op_mod(group.op_mod(CapMode::MAX));
        rig.try_run(&input)
    };
    let general = caps(CapGroup::GENERAL).expect("caps");
    let general = general.hca_cap();
    assert!(general.roce());
    // mlx5_ib asks a UMR for every right that a key can have.
    assert_eq!(general.relaxed_ordering_write(), general.relaxed_ordering_write_umr());
    assert_eq!(general.relaxed_ordering_read(), general.relaxed_ordering_read_umr());
    assert!(!general.umr_modify_atomic_disabled());
    assert_eq!(caps(CapGroup::ROCE).expect("caps").roce_caps().roce_version(), 0b101);
    assert_eq!(caps(CapGroup::ATOMIC).expect("caps").atomic_caps().atomic_operations(), 0b1111);
    assert!(!caps(CapGroup::ODP).expect("caps").odp_caps().sig());
    // mlx5_ib asks for both kinds of table for a sniffer's rule, and leads both to a TIR that has
    // others.
    let steering = caps(CapGroup::FLOW_TABLE).expect("caps");
    let steering = steering.flow_table_caps();
    assert!(steering.allow_sniffer_and_nic_rx_shared_tir());
    for kind in [steering.nic_receive_sniffer(), steering.nic_transmit_sniffer()] {
        assert!(kind.ft_support() && kind.flow_modify_en() && kind.log_max_destination() > 0);
    }
    assert_eq!(refused(caps(CapGroup(0x7f))).0, CommandStatus::BAD_OP_ERR);
}

#[test]
fn an_object_that_is_used_stays() {
    let mut rig = Rig::infiniband();
    let (pd, cqn) = (rig.pd(), rig.cq());
    let input = rig.qp_input(ServiceType::RC, pd, cqn);
    let qpn = rig.run(&input).qpn();
    let busy = (CommandStatus::RES_BUSY, syndrome::IN_USE);
    let mut dealloc = DeallocPdIn::request();
    dealloc.set_pd(pd);
    assert_eq!(refused(rig.try_run(&dealloc)), busy);
    let mut destroy_cq = DestroyCqIn::request();
    destroy_cq.set_cqn(cqn);
    assert_eq!(refused(rig.try_run(&destroy_cq)), busy);
    let mut destroy_eq = DestroyEqIn::request();
    destroy_eq.set_eq_number(1);
    assert_eq!(refused(rig.try_run(&destroy_eq)), busy);
    let mut destroy = DestroyQpIn::request();
    destroy.set_qpn(qpn);
    rig.run(&destroy);
    let gone = (CommandStatus::BAD_RES_ERR, syndrome::NO_SUCH_OBJECT);
    assert_eq!(refused(rig.try_run(&destroy)), gone);
    rig.run(&destroy_cq);
    rig.run(&destroy_eq);
    rig.run(&dealloc);
    assert_eq!(rig.counts(), Counts { uars: 2, ..Counts::default() });
}

#[test]
fn transitions_start_from_their_state_only() {
    let mut rig = Rig::infiniband();
    let qpn = rig.qp(ServiceType::RC);
    let wrong = (CommandStatus::BAD_RES_STATE_ERR, syndrome::TRANSITION);
    let mut init = Rst2InitQpIn::request();
    init.set_qpn(qpn);
    init.qpc_mut().primary_address_path_mut().set_vhca_port_num(1);
    let mut rtr = Init2RtrQpIn::request();
    rtr.set_qpn(qpn);
    rtr.qpc_mut().set_mtu(3).set_log_msg_max(30).set_remote_qpn(qpn).set_next_rcv_psn(9);
    rtr.qpc_mut().primary_address_path_mut().set_rlid(1);
    let mut rts = Rtr2RtsQpIn::request();
    rts.set_qpn(qpn);
    rts.qpc_mut().set_next_send_psn(9).set_retry_count(5).set_rnr_retry(6);
    let mut again = Rts2RtsQpIn::request();
    again.set_qpn(qpn).set_opt_param_mask((OptParamMask::RWE | OptParamMask::RNR_TIMEOUT).bits());
    again.qpc_mut().set_rwe(true).set_rre(true).set_min_rnr_nak(12);

    assert_eq!(refused(rig.try_run(&rtr)), wrong);
    rig.run(&init);
    assert_eq!(refused(rig.try_run(&init)), wrong);
    assert_eq!(refused(rig.try_run(&rts)), wrong);
    rig.run(&rtr);
    rig.run(&rts);
    rig.run(&again);

    let mut query = QueryQpIn::request();
    query.set_qpn(qpn);
    let out = rig.run(&query);
    let qpc = out.qpc();
    assert_eq!(QpState(qpc.state()), QpState::RTS);
    assert_eq!((qpc.next_send_psn(), qpc.next_rcv_psn()), (9, 9));
    assert_eq!((qpc.retry_count(), qpc.rnr_retry(), qpc.min_rnr_nak()), (5, 6, 12));
    // Only what the mask names has changed.
    assert_eq!((qpc.rwe(), qpc.rre()), (true, false));

    let mut error = Qp2ErrIn::request();
    error.set_qpn(qpn);
    rig.run(&error);
    assert_eq!(QpState(rig.run(&query).qpc().state()), QpState::ERR);
    assert_eq!(refused(rig.try_run(&again)), wrong);
}

#[test]
fn a_path_that_the_port_does_not_have_is_refused() {
    let mut rig = Rig::new(SimConfig::new().ports([PortConfig::ROCE]));
    let qpn = rig.qp(ServiceType::UC);
    let param = |syndrome| (CommandStatus::BAD_PARAM_ERR, syndrome);
    let mut init = Rst2InitQpIn::request();
    init.set_qpn(qpn);
    init.qpc_mut().primary_address_path_mut().set_vhca_port_num(2);
    assert_eq!(refused(rig.try_run(&init)), param(syndrome::PORT_NUMBER));
    init.qpc_mut().primary_address_path_mut().set_vhca_port_num(1).set_pkey_index(999);
    assert_eq!(refused(rig.try_run(&init)), param(syndrome::PKEY_INDEX));
    init.qpc_mut().primary_address_path_mut().set_pkey_index(0);
    rig.run(&init);
    let mut rtr = Init2RtrQpIn::request();
    rtr.set_qpn(qpn);
    rtr.qpc_mut().set_mtu(4);
    assert_eq!(refused(rig.try_run(&rtr)), param(syndrome::PATH_MTU));
    rtr.qpc_mut().set_mtu(3).primary_address_path_mut().set_src_addr_index(200);
    assert_eq!(refused(rig.try_run(&rtr)), param(syndrome::GID_INDEX));
    rtr.qpc_mut().set_log_rra_max(7).primary_address_path_mut().set_src_addr_index(3);
    assert_eq!(refused(rig.try_run(&rtr)), param(syndrome::READ_DEPTH));
}

#[test]
fn queue_memory_must_be_described_in_full() {
    let mut rig = Rig::infiniband();
    let (pd, cqn) = (rig.pd(), rig.cq());
    let mut input = rig.qp_input(ServiceType::RC, pd, cqn);
    // 8 WQEs of 32 bytes and 64 blocks need two pages; one and a zero follow.
    input.qpc_mut().set_log_sq_size(6);
    let mut mailbox = input.as_bytes().to_vec();
    mailbox.extend(rig.page().to_be_bytes());
    let mut output = [0; 16];
    let answer = rig.raw(&mailbox, &mut output);
    assert_eq!(answer, (CommandStatus::BAD_INP_LEN_ERR, syndrome::TOO_FEW_PAGES));
    mailbox.extend((rig.page() + 8).to_be_bytes());
    let answer = rig.raw(&mailbox, &mut output);
    assert_eq!(answer, (CommandStatus::BAD_PARAM_ERR, syndrome::UNALIGNED_PAGE));
    input.qpc_mut().set_log_sq_size(3).set_dbr_addr(12);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_PARAM_ERR, syndrome::UNALIGNED_RECORD));
    input.qpc_mut().set_st(ServiceType::DCI.0);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_PARAM_ERR, syndrome::TRANSPORT));
    assert_eq!(rig.counts().qps, 0);
}

#[test]
fn a_completion_queue_is_not_resized_below_what_waits() {
    let mut rig = Rig::infiniband();
    let cqn = rig.cq();
    let mut input = ModifyCqIn::request();
    input.set_op_mod(ModifyCqMode::RESIZE.0).set_cqn(cqn).set_resize_field_select(7);
    input.cqc_mut().set_log_cq_size(5);
    rig.run(&input);
    let mut query = QueryCqIn::request();
    query.set_cqn(cqn);
    let out = rig.run(&query);
    assert_eq!(out.cqc().log_cq_size(), 5);
    // The entry that announced the resize waits.
    assert_eq!((out.cqc().producer_counter(), out.cqc().consumer_counter()), (1, 0));
    input.cqc_mut().set_log_cq_size(0);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_SIZE_OUTS_CQES_ERR, syndrome::RING_TOO_SMALL));
    input.cqc_mut().set_log_cq_size(5).set_cqe_sz(1);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_PARAM_ERR, syndrome::ENTRY_SIZE));
}

#[test]
fn shared_receive_queues_have_three_forms_and_one_space_of_numbers() {
    let mut rig = Rig::infiniband();
    let (pd, cqn, record) = (rig.pd(), rig.cq(), rig.page() + 4072);
    let mut srq = CreateSrqIn::request();
    srq.srqc_mut().set_log_srq_size(4).set_log_rq_stride(1).set_pd(pd).set_dbr_addr(record);
    let srqn = rig.run(&srq).srqn();
    let mut rmp = CreateRmpIn::request();
    rmp.rmpc_mut().set_state(RmpState::RDY.0);
    let queue = rmp.rmpc_mut().wq_mut();
    queue.set_log_wq_sz(4).set_log_wq_stride(5).set_pd(pd).set_dbr_addr(record);
    let rmpn = rig.run(&rmp).rmpn();
    let xrcd = rig.run(&AllocXrcdIn::request()).xrcd();
    let mut xrc = CreateXrcSrqIn::request();
    xrc.xrc_srqc_mut()
        .set_log_xrc_srq_size(4)
        .set_log_rq_stride(1)
        .set_xrcd(xrcd)
        .set_cqn(cqn)
        .set_pd(pd)
        .set_db_record_addr_h((record >> 32) as u32)
        .set_db_record_addr_l(record as u32 >> 2);
    let xrc_srqn = rig.run(&xrc).xrc_srqn();
    assert!(srqn != rmpn && rmpn != xrc_srqn && srqn != xrc_srqn);

    // An empty queue is below any limit: the event is due at once, and the limit gone.
    let mut arm = ArmRqIn::request();
    arm.set_srq_number(srqn).set_lwm(3);
    rig.run(&arm);
    let mut query = QuerySrqIn::request();
    query.set_srqn(srqn);
    let out = rig.run(&query);
    assert_eq!((out.srqc().log_srq_size(), out.srqc().lwm()), (4, 0));
    // Each form answers to its own commands.
    let mut other = QueryXrcSrqIn::request();
    other.set_xrc_srqn(rmpn);
    assert_eq!(refused(rig.try_run(&other)).0, CommandStatus::BAD_RES_ERR);
    let mut destroy = DestroySrqIn::request();
    destroy.set_srqn(rmpn);
    assert_eq!(refused(rig.try_run(&destroy)).0, CommandStatus::BAD_RES_ERR);
    let mut dealloc = DeallocXrcdIn::request();
    dealloc.set_xrcd(xrcd);
    assert_eq!(refused(rig.try_run(&dealloc)).0, CommandStatus::RES_BUSY);

    // A queue pair that takes from an SRQ keeps it in use.
    let mut qp = rig.qp_input(ServiceType::UD, pd, cqn);
    qp.qpc_mut().set_rq_type(RqType::SRQ.0).set_srqn_rmpn_xrqn(rmpn);
    rig.run(&qp);
    let mut destroy = DestroyRmpIn::request();
    destroy.set_rmpn(rmpn);
    assert_eq!(refused(rig.try_run(&destroy)).0, CommandStatus::RES_BUSY);
}

#[test]
fn only_datagram_queue_pairs_join_groups() {
    let mut rig = Rig::infiniband();
    let (rc, ud) = (rig.qp(ServiceType::RC), rig.qp(ServiceType::UD));
    let mut input = AttachToMcgIn::request();
    *input.multicast_gid_mut() = [0xff; 16];
    input.set_qpn(rc);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_PARAM_ERR, syndrome::NOT_A_DATAGRAM_QP));
    input.set_qpn(ud);
    rig.run(&input);
    let mut destroy = DestroyQpIn::request();
    destroy.set_qpn(ud);
    assert_eq!(refused(rig.try_run(&destroy)).0, CommandStatus::RES_BUSY);
}

#[test]
fn an_infiniband_port_has_a_vport_context_and_an_ethernet_port_roce_addresses() {
    let mut rig = Rig::infiniband();
    let out = rig.run(&QueryHcaVportContextIn::request());
    assert_eq!((out.hca_vport_context().lid(), out.hca_vport_context().port_state()), (1, 4));
    let mut rig = Rig::new(SimConfig::new().ports([PortConfig::ROCE]));
    let answer = refused(rig.try_run(&QueryHcaVportContextIn::request()));
    assert_eq!(answer.0, CommandStatus::BAD_OP_ERR);
    assert!(rig.run(&QueryNicVportContextIn::request()).nic_vport_context().roce_en());

    let mut set = SetRoceAddressIn::request();
    set.set_roce_address_index(7).set_vhca_port_num(1);
    let address = set.roce_address_mut();
    address.set_roce_version(RoceVersion::V2.0).set_roce_l3_type(1).set_source_mac_31_0(0x1234);
    *address.source_l3_address_mut() = [0x20; 16];
    rig.run(&set);
    let mut query = QueryRoceAddressIn::request();
    query.set_roce_address_index(7);
    assert_eq!(rig.run(&query).roce_address(), set.roce_address());
    *set.roce_address_mut().source_l3_address_mut() = [0; 16];
    rig.run(&set);
    assert_eq!(rig.run(&query).roce_address().source_mac_31_0(), 0);
    query.set_roce_address_index(256);
    assert_eq!(refused(rig.try_run(&query)).1, syndrome::GID_INDEX);
}

#[test]
fn a_failed_device_only_lets_go() {
    let mut rig = Rig::infiniband();
    let pd = rig.pd();
    rig.fabric.lock().device_mut(0).inject(Fault::Fatal);
    let answer = refused(rig.try_run(&AllocPdIn::request()));
    assert_eq!(answer, (CommandStatus::INT_ERR, syndrome::DEVICE_FAILED));
    let answer = refused(rig.try_run(&QueryQCounterIn::request()));
    assert_eq!(answer.0, CommandStatus::INT_ERR);
    let mut dealloc = DeallocPdIn::request();
    dealloc.set_pd(pd);
    rig.run(&dealloc);
    assert_eq!(rig.counts(), Counts::default());
}

#[test]
fn a_limit_of_the_device_ends_creation_without_a_trace() {
    let mut limits = SimConfig::new().limits;
    (limits.pds, limits.uars) = (2, 1);
    let mut rig = Rig::new(SimConfig::new().limits(limits));
    rig.pd();
    rig.pd();
    let full = (CommandStatus::LIM_ERR, syndrome::TOO_MANY_OBJECTS);
    assert_eq!(refused(rig.try_run(&AllocPdIn::request())), full);
    rig.run(&AllocUarIn::request());
    assert_eq!(refused(rig.try_run(&AllocUarIn::request())), full);
    assert_eq!(rig.counts(), Counts { pds: 2, uars: 1, ..Counts::default() });
}

#[test]
fn a_registration_queue_pair_is_in_no_domain_and_has_any_mtu() {
    let mut rig = Rig::new(SimConfig::new().ports([PortConfig::ROCE]));
    let cqn = rig.cq();
    let mut input = rig.qp_input(ServiceType::REG_UMR, 0, cqn);
    input.qpc_mut().set_rq_type(RqType::ZERO_LENGTH_RQ.0).set_cqn_rcv(0);
    let qpn = rig.run(&input).qpn();
    let mut init = Rst2InitQpIn::request();
    init.set_qpn(qpn);
    rig.run(&init);
    let mut rtr = Init2RtrQpIn::request();
    rtr.set_qpn(qpn);
    rtr.qpc_mut().set_mtu(QpMtu::BYTES_4096.0).set_log_msg_max(12);
    rig.run(&rtr);
    // A connected queue pair must fit the port's MTU.
    let qpn = rig.qp(ServiceType::RC);
    init.set_qpn(qpn);
    rig.run(&init);
    rtr.set_qpn(qpn);
    let too_long = (CommandStatus::BAD_PARAM_ERR, syndrome::PATH_MTU);
    assert_eq!(refused(rig.try_run(&rtr)), too_long);
}
