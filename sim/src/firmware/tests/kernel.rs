//! What a real kernel's driver asks of the firmware, and relies on, beyond what queues need.

use mlx5_prm::cmd::ethernet::ModifyNicVportContextIn;
use mlx5_prm::cmd::hca::{DisableHcaIn, EnableHcaIn};
use mlx5_prm::cmd::port::{
    AccessRegIn, AccessRegMode, QueryHcaVportPkeyIn, QueryNicVportContextIn, RegisterId,
};
use mlx5_prm::cmd::qp::{Init2RtrQpIn, Rst2InitQpIn, ServiceType};
use mlx5_prm::cmd::{CommandInput, CommandStatus};
use mlx5_prm::fields::get_bits;

use super::Rig;
use crate::firmware::syndrome;
use crate::{PortConfig, SimConfig};

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

/// mlx5_ib asks for the lanes of a port, and knows 1, 2, 4, 8 and 15 of them; any other number, zero
/// above all, makes its query of the port fail (`translate_max_vl_num`).
#[test]
fn a_port_has_four_virtual_lanes() {
    for rig in &mut [Rig::infiniband(), ethernet()] {
        let pvlc = register(rig, RegisterId::PVLC, 16);
        // `mlx5_ifc_pvlc_reg_bits`: what the port can, what was chosen, what is in operation.
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
    // What is not selected does not change.
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

/// Linux takes the path MTU of connections from that of the interface (`iboe_get_mtu`), and tells the
/// device of that by the longest frame.
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
