//! Datagrams to and from QP0 and QP1.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::wqe::Opcode;

use super::datagram::{QKEY, datagram_qp, receive, vector};
use super::rig::{Cq, Qp, Rig, Wqe};
use crate::config::{PortConfig, SimConfig};
use crate::engine::{AddressPath, Error, Management, QpState};

/// The Q_Key of QP1. Its highest bit means that only privileged senders may use it.
const GSI_QKEY: u32 = 0x8001_0000;
/// The key of the default partition.
const PKEY: u32 = 0xffff;

/// A management queue pair of a port.
fn management_qp(rig: &Rig, device: usize, which: Management) -> (Qp, Cq) {
    let (qp, cq) = datagram_qp(rig, device);
    let mut engine = rig.lock();
    let this = engine.device_mut(device);
    this.set_management(qp.qpn, which).expect("a QP");
    this.qp_attributes_mut(qp.qpn).expect("a QP").qkey = GSI_QKEY;
    drop(engine);
    (qp, cq)
}

fn send(from: &mut Qp, path: &AddressPath, number: u32) {
    let mut vector = vector(path, number);
    vector.qkey.set(GSI_QKEY);
    from.post(&Wqe::new(Opcode::Send).segment(&vector).inline(b"a datagram"));
}

/// The number that a driver gets for its QP1 matters only to the driver: the kernel's connection
/// managers send to number 1, and reply to the number in the completion.
#[test]
fn a_datagram_to_number_one_reaches_qp1_and_comes_from_number_one() {
    for (port, sgid_index) in [(PortConfig::INFINIBAND, 0), (PortConfig::ROCE, 3)] {
        let rig = Rig::new(SimConfig::new().devices(2).ports([port]));
        let (mut a, _cq_a) = management_qp(&rig, 0, Management::General);
        let (mut b, mut cq_b) = management_qp(&rig, 1, Management::General);
        // Neither another datagram queue pair nor QP0 gets the datagram.
        let (mut other, mut cq_other) = datagram_qp(&rig, 1);
        let (mut subnet, mut cq_subnet) = management_qp(&rig, 1, Management::Subnet);
        let to = rig.region(1, 2048);
        for qp in [&mut b, &mut other, &mut subnet] {
            receive(qp, &to);
        }
        send(&mut a, &rig.path_to(1, sgid_index), 1);
        rig.run();
        let received = cq_b.expect();
        assert_eq!((received.opcode, received.bytes()), (CqeOpcode::ResponderSend, 50));
        assert_eq!(received.cqe.flags_rqpn.get() & 0xff_ffff, 1, "who sent it");
        assert_eq!(received.cqe.imm_inval_pkey.get(), PKEY, "the key, not its index");
        assert_eq!(to.memory.read(64, 10), b"a datagram");
        cq_other.expect_none();
        cq_subnet.expect_none();
    }
}

#[test]
fn qp0_and_qp1_are_two() {
    let rig = Rig::new(SimConfig::new().devices(2));
    let (mut a, _cq_a) = management_qp(&rig, 0, Management::Subnet);
    let (mut general, mut cq_general) = management_qp(&rig, 1, Management::General);
    let (mut subnet, mut cq_subnet) = management_qp(&rig, 1, Management::Subnet);
    let to = rig.region(1, 2048);
    receive(&mut general, &to);
    receive(&mut subnet, &to);
    send(&mut a, &rig.path_to(1, 0), 0);
    rig.run();
    assert_eq!(cq_subnet.expect().cqe.flags_rqpn.get() & 0xff_ffff, 0);
    cq_general.expect_none();
}

/// A datagram to a number without a queue pair is lost, as on every wire.
#[test]
fn a_port_without_a_qp1_that_receives_loses_what_is_sent_to_it() {
    let rig = Rig::new(SimConfig::new().devices(2));
    let (mut a, mut cq_a) = management_qp(&rig, 0, Management::General);
    let (mut b, mut cq_b) = management_qp(&rig, 1, Management::General);
    let to = rig.region(1, 2048);
    receive(&mut b, &to);
    rig.set_state(&b, QpState::Error);
    rig.run();
    assert_eq!(cq_b.expect().opcode, CqeOpcode::ResponderError);
    let path = rig.path_to(1, 0);
    send(&mut a, &path, 1);
    rig.run();
    cq_b.expect_none();
    rig.lock().device_mut(1).destroy_qp(b.qpn).expect("a QP");
    send(&mut a, &path, 1);
    rig.run();
    for _ in 0..2 {
        assert_eq!(cq_a.expect().opcode, CqeOpcode::Requester);
    }
    let mut engine = rig.lock();
    let gone = engine.device_mut(1).set_management(b.qpn, Management::General);
    assert_eq!(gone, Err(Error::NotFound));
}

/// A queue pair that reuses the number of a former QP1 is not QP1.
#[test]
fn a_number_that_is_free_again_is_nobodys_qp1() {
    let rig = Rig::new(SimConfig::new().devices(1));
    let (qp, _cq) = management_qp(&rig, 0, Management::General);
    let mut engine = rig.lock();
    let this = engine.device_mut(0);
    assert_eq!(this.datagram_target(1, 1), Some(qp.qpn));
    this.destroy_qp(qp.qpn).expect("a QP");
    assert_eq!(this.datagram_target(1, 1), None);
    assert_eq!(this.wire_number(qp.qpn), qp.qpn);
}

/// The completion of any other datagram has the index of the partition key, and the sender's own
/// number.
#[test]
fn other_datagrams_tell_the_index_of_the_partition() {
    let rig = Rig::new(SimConfig::new().devices(2));
    let (mut a, _cq_a) = datagram_qp(&rig, 0);
    let (mut b, mut cq_b) = datagram_qp(&rig, 1);
    let to = rig.region(1, 2048);
    receive(&mut b, &to);
    let mut vector = vector(&rig.path_to(1, 0), b.qpn);
    vector.qkey.set(QKEY);
    a.post(&Wqe::new(Opcode::Send).segment(&vector).inline(b"hello"));
    rig.run();
    let cqe = cq_b.expect().cqe;
    assert_eq!((cqe.imm_inval_pkey.get(), cqe.flags_rqpn.get()), (0, a.qpn));
}
