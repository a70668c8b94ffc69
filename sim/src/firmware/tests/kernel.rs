//! The commands and answers that a real kernel's driver relies on, beyond those for queues.

use mlx5_prm::cmd::alloc::AllocUarIn;
use mlx5_prm::cmd::caps::{CapGroup, CapMode, QueryHcaCapIn};
use mlx5_prm::cmd::ethernet::{CreateRqIn, CreateSqIn, ModifyNicVportContextIn};
use mlx5_prm::cmd::hca::{DisableHcaIn, EnableHcaIn};
use mlx5_prm::cmd::mkey::{CreateMkeyIn, MkeyAccessMode};
use mlx5_prm::cmd::port::{
    AccessRegIn, AccessRegMode, QueryHcaVportPkeyIn, QueryNicVportContextIn, RegisterId,
};
use mlx5_prm::cmd::qp::{Init2RtrQpIn, Rst2InitQpIn, ServiceType};
use mlx5_prm::cmd::srq::WorkQueueType;
use mlx5_prm::cmd::{CommandInput, CommandStatus};
use mlx5_prm::fields::get_bits;

use super::{Rig, refused};
use crate::dma::Buffer;
use crate::engine::{Registers, Strides, Translation};
use crate::firmware::syndrome;
use crate::{Capabilities, PortConfig, SimConfig};

fn ethernet() -> Rig {
    Rig::new(SimConfig::new().ports([PortConfig::ROCE]))
}

/// The kernel gives these two commands room for three words of an answer, where all others have
/// four at least (`mlx5_ifc_enable_hca_out_bits`).
#[test]
fn enabling_and_disabling_are_answered_in_twelve_bytes() {
    let mut rig = Rig::infiniband();
    for input in [EnableHcaIn::request().as_bytes(), DisableHcaIn::request().as_bytes()] {
        let mut answer = [0xee; 12];
        assert_eq!(rig.raw(input, &mut answer), (CommandStatus::OK, 0));
        assert_eq!(answer, [0; 12]);
        let answer = rig.raw(input, &mut [0xee; 8]);
        assert_eq!(answer, (CommandStatus::BAD_OUTP_LEN_ERR, syndrome::SHORT_OUTPUT));
    }
}

/// Reads a register of the first port; `bytes` of it.
fn register(rig: &mut Rig, id: RegisterId, bytes: usize) -> Vec<u8> {
    let mut input = AccessRegIn::request();
    input.set_op_mod(AccessRegMode::READ.0).set_register_id(id.0);
    let mut mailbox = input.as_bytes().to_vec();
    let mut wanted = vec![0; bytes];
    wanted[1] = 1;
    mailbox.extend(wanted);
    let mut answer = vec![0xee; 16 + bytes];
    assert_eq!(rig.raw(&mailbox, &mut answer), (CommandStatus::OK, 0));
    answer.split_off(16)
}

/// mlx5_ib asks for the lanes of a port, and knows 1, 2, 4, 8 and 15 of them; any other number,
/// zero above all, makes its query of the port fail (`translate_max_vl_num`).
#[test]
fn a_port_has_four_virtual_lanes() {
    for rig in &mut [Rig::infiniband(), ethernet()] {
        let pvlc = register(rig, RegisterId::PVLC, 16);
        // `mlx5_ifc_pvlc_reg_bits`: capability, administrator's choice, current state.
        for bit in [0x3c, 0x5c, 0x7c] {
            assert_eq!(get_bits(&pvlc, bit, 4), 4);
        }
    }
}

/// mlx5_ib reads the table of partition keys of an Ethernet port, too, when it makes QP1.
#[test]
fn an_ethernet_port_has_partition_keys() {
    for rig in &mut [Rig::infiniband(), ethernet()] {
        let mut input = QueryHcaVportPkeyIn::request();
        input.set_port_num(1);
        let mut answer = [0xee; 16 + 4];
        assert_eq!(rig.raw(input.as_bytes(), &mut answer), (CommandStatus::OK, 0));
        assert_eq!(answer[16..], [0, 0, 0xff, 0xff]);
        input.set_pkey_index(0x7fff);
        let refused = rig.raw(input.as_bytes(), &mut answer);
        assert_eq!(refused, (CommandStatus::BAD_PARAM_ERR, syndrome::PKEY_INDEX));
    }
}

/// A network driver takes its largest frame from here: 1500 bytes of payload, and 22 around them
/// (two addresses, VLAN tag, type, checksum). Zero leaves it with no frame that it could send.
#[test]
fn a_nic_vport_takes_frames_of_1522_bytes_until_it_is_told_otherwise() {
    let mut rig = ethernet();
    let query = QueryNicVportContextIn::request();
    assert_eq!(rig.run(&query).nic_vport_context().mtu(), 1522);
    let mut modify = ModifyNicVportContextIn::request();
    modify.set_select_mtu(true);
    modify.nic_vport_context_mut().set_mtu(9022);
    rig.run(&modify);
    assert_eq!(rig.run(&query).nic_vport_context().mtu(), 9022);
    // Fields that are not selected do not change.
    modify.set_select_mtu(false).nic_vport_context_mut().set_mtu(68);
    rig.run(&modify);
    assert_eq!(rig.run(&query).nic_vport_context().mtu(), 9022);
}

/// mlx5_ib makes QP1 of each port, and sends to and from number 1 whatever CREATE_QP has answered.
#[test]
fn the_queue_pair_for_general_services_has_number_one_on_the_wire() {
    for rig in &mut [Rig::infiniband(), ethernet()] {
        let (other, qp1) = (rig.qp(ServiceType::UD), rig.qp(ServiceType::QP1));
        for qpn in [other, qp1] {
            let mut init = Rst2InitQpIn::request();
            init.set_qpn(qpn).qpc_mut().primary_address_path_mut().set_vhca_port_num(1);
            rig.run(&init);
            let mut rtr = Init2RtrQpIn::request();
            rtr.set_qpn(qpn);
            rig.run(&rtr);
        }
        let engine = rig.fabric.lock();
        let device = engine.device(0);
        assert_eq!(device.datagram_target(1, 1), Some(qp1));
        assert_eq!((device.wire_number(qp1), device.wire_number(other)), (1, other));
        assert_eq!(device.datagram_target(1, 0), None);
    }
}

/// Linux takes the path MTU of connections from that of the interface (`iboe_get_mtu`), and sets
/// the device's by the longest frame.
#[test]
fn longer_frames_allow_a_larger_path_mtu() {
    let mut rig = ethernet();
    for (frame, mtu) in [(9022, 4096), (2166, 2048), (2165, 1024), (1522, 1024), (90, 256)] {
        let mut input = AccessRegIn::request();
        input.set_op_mod(AccessRegMode::WRITE.0).set_register_id(RegisterId::PMTU.0);
        let mut mailbox = input.as_bytes().to_vec();
        let mut pmtu = [0; 16];
        pmtu[1] = 1;
        pmtu[8..10].copy_from_slice(&u16::to_be_bytes(frame));
        mailbox.extend(pmtu);
        assert_eq!(rig.raw(&mailbox, &mut [0; 32]), (CommandStatus::OK, 0));
        let engine = rig.fabric.lock();
        let port = engine.device(0).port(1).expect("a port");
        assert_eq!((port.frame, port.mtu), (u32::from(frame), mtu));
    }
}

/// mlx5e makes receive queues with strides where it finds `striding_rq`, `umr_ptr_rlky` and
/// `reg_umr_sq` (`mlx5e_check_fragmented_striding_rq_cap`), and strides of 2048 bytes where it
/// finds `ext_stride_num_range`. In the usual configuration two are missing.
#[test]
fn a_network_driver_finds_what_strides_need_where_the_configuration_says_so() {
    for (striding, port) in
        [(false, PortConfig::ROCE), (true, PortConfig::ROCE), (true, PortConfig::INFINIBAND)]
    {
        let mut rig = Rig::new(SimConfig::new().ports([port]).striding(striding));
        let mut caps = |group: CapGroup| {
            let mut input = QueryHcaCapIn::request();
            input.set_op_mod(group.op_mod(CapMode::MAX));
            rig.try_run(&input)
        };
        let ethernet = port == PortConfig::ROCE;
        let general = caps(CapGroup::GENERAL).expect("caps");
        let general = general.hca_cap();
        assert_eq!((general.striding_rq(), general.ext_stride_num_range()), (ethernet, ethernet));
        assert_eq!(general.umr_ptr_rlky(), striding && ethernet);
        if ethernet {
            let offloads = caps(CapGroup::ETHERNET_OFFLOADS).expect("caps");
            assert_eq!(offloads.ethernet_caps().reg_umr_sq(), striding);
        }
    }
}

/// mlx5e asks for a list of WQEs of 32 bytes each, of 128 strides of 2048 bytes for the usual
/// frames and of 4096 strides of 64 bytes for long ones.
#[test]
fn a_network_drivers_receive_queue_is_a_list_with_strides() {
    let mut rig = ethernet();
    let (pd, cqn) = (rig.pd(), rig.cq());
    let record = rig.page() + 4072;
    let mut input = CreateRqIn::request();
    input.ctx_mut().set_cqn(cqn).set_user_index(0xff_ffff);
    input
        .ctx_mut()
        .wq_mut()
        .set_wq_type(WorkQueueType::LINKED_LIST_STRIDING_RQ.0)
        .set_pd(pd)
        .set_dbr_addr(record)
        .set_log_wq_sz(3)
        .set_log_wq_stride(5);
    // Logarithms of bytes and number, less 6 and 9; the latter in four bits.
    for (bytes, number, expected) in
        [(5, 14, Some((11, 7))), (0, 3, Some((6, 12))), (0, 9, None), (0, 8, None)]
    {
        input.ctx_mut().wq_mut().set_log_wqe_stride_size(bytes).set_log_wqe_num_of_strides(number);
        let made = rig.try_run(&input);
        let Some((log_bytes, log_count)) = expected else {
            let refusal = (CommandStatus::BAD_PARAM_ERR, syndrome::RECEIVE_QUEUE);
            assert_eq!(refused(made), refusal, "{bytes} {number}");
            continue;
        };
        let rqn = made.expect("a queue").rqn();
        let strides = Strides { log_bytes, log_count, shifted: false, linked: true };
        let mut engine = rig.fabric.lock();
        assert_eq!(engine.device_mut(0).rq_mut(rqn).expect("a queue").strides, Some(strides));
    }
    // A list whose WQEs have no strides is what a queue of its own does not have.
    input
        .ctx_mut()
        .wq_mut()
        .set_wq_type(WorkQueueType::LINKED_LIST.0)
        .set_log_wqe_stride_size(5)
        .set_log_wqe_num_of_strides(14);
    let refusal = (CommandStatus::BAD_PARAM_ERR, syndrome::RECEIVE_QUEUE);
    assert_eq!(refused(rig.try_run(&input)), refusal);
}

/// DPDK takes 16 KiB where the device does not say how short a WQE may be, and mlx5_ib 512 strides.
#[test]
fn a_wqe_of_fewer_strides_or_bytes_than_the_model_has_is_refused() {
    for (few_strides, log_striding_bytes, bytes, number, expected) in [
        (true, 9, 0, 10, true),
        (true, 10, 0, 10, false),
        (true, 0, 0, 10, false),
        (true, 0, 5, 10, true),
        (false, 9, 5, 10, false),
        (false, 9, 0, 15, false),
        (false, 9, 0, 0, true),
    ] {
        let config = SimConfig::new().ports([PortConfig::ROCE]);
        let has = Capabilities { few_strides, log_striding_bytes, ..config.capabilities };
        let mut rig = Rig::new(config.capabilities(has));
        let mut query = QueryHcaCapIn::request();
        query.set_op_mod(CapGroup::GENERAL.op_mod(CapMode::CURRENT));
        let general = rig.run(&query);
        assert_eq!(general.hca_cap().ext_stride_num_range(), few_strides);
        assert_eq!(general.hca_cap().hca_cap_2(), log_striding_bytes != 0);
        query.set_op_mod(CapGroup::GENERAL_2.op_mod(CapMode::CURRENT));
        let least = rig.run(&query).hca_cap_2().log_min_stride_wqe_sz();
        assert_eq!(least, log_striding_bytes.into());
        let (pd, cqn) = (rig.pd(), rig.cq());
        let record = rig.page() + 4072;
        let mut input = CreateRqIn::request();
        input.ctx_mut().set_cqn(cqn).set_user_index(0xff_ffff);
        let wq = input.ctx_mut().wq_mut();
        wq.set_wq_type(WorkQueueType::CYCLIC_STRIDING_RQ.0).set_pd(pd).set_dbr_addr(record);
        wq.set_log_wq_sz(3).set_log_wq_stride(5);
        wq.set_log_wqe_stride_size(bytes).set_log_wqe_num_of_strides(number);
        let made = rig.try_run(&input);
        assert_eq!(made.is_ok(), expected, "{few_strides} {log_striding_bytes} {bytes} {number}");
    }
}

/// Send queues change keys (`reg_umr`) where the device says so, and put bus addresses behind them
/// where they are the kernel's.
#[test]
fn a_send_queue_may_change_keys_as_far_as_its_owner_may() {
    for (striding, wanted, uid, expected) in [
        (false, false, 0, Some(Registers::Nothing)),
        (false, true, 0, None),
        (true, false, 0, Some(Registers::Nothing)),
        (true, true, 0, Some(Registers::Pages)),
        (true, true, 1, Some(Registers::Keys)),
    ] {
        let mut rig = Rig::new(SimConfig::new().ports([PortConfig::ROCE]).striding(striding));
        let (pd, cqn) = (rig.pd(), rig.cq());
        let uar = rig.run(&AllocUarIn::request()).uar();
        let record = rig.page() + 4072;
        let mut input = CreateSqIn::request();
        input.set_uid(uid).ctx_mut().set_cqn(cqn).set_user_index(0xff_ffff).set_reg_umr(wanted);
        input
            .ctx_mut()
            .wq_mut()
            .set_wq_type(WorkQueueType::CYCLIC.0)
            .set_pd(pd)
            .set_uar_page(uar)
            .set_dbr_addr(record)
            .set_log_wq_sz(3)
            .set_log_wq_stride(6);
        match expected {
            None => {
                let refusal = (CommandStatus::BAD_PARAM_ERR, syndrome::INVALID_VALUE);
                assert_eq!(refused(rig.try_run(&input)), refusal);
            }
            Some(expected) => {
                let sqn = rig.run(&input).sqn();
                let engine = rig.fabric.lock();
                assert_eq!(engine.device(0).ethernet.sqs[&sqn].registers, expected);
            }
        }
    }
}

/// The key of receives with strides is created free, with a page behind every entry for what would
/// otherwise be written to nowhere (`wqe_overflow`).
#[test]
fn a_free_key_has_the_pages_that_its_command_says() {
    let mut rig = Rig::infiniband();
    let (pd, page) = (rig.pd(), rig.page());
    let mut input = CreateMkeyIn::request();
    input
        .mkc_mut()
        .set_access_mode(MkeyAccessMode::MTT)
        .set_free(true)
        .set_umr_en(true)
        .set_pd(pd)
        .set_len(4 << 12)
        .set_log_page_size(12)
        .set_translations_octword_size(2);
    for listed in [0, 1] {
        input.set_translations_octword_actual_size(listed);
        let index = rig.run(&input).mkey_index();
        let pages = vec![u64::from(listed) * page, 0, 0, 0];
        let engine = rig.fabric.lock();
        let key = engine.device(0).mkey(index).expect("a key");
        assert!(key.free);
        assert_eq!(key.translation, Translation::Buffer(Buffer::paged(pages, 12, 0)));
    }
    input.set_translations_octword_actual_size(2);
    let refusal = (CommandStatus::BAD_INP_LEN_ERR, syndrome::TOO_FEW_PAGES);
    assert_eq!(refused(rig.try_run(&input)), refusal);
}
