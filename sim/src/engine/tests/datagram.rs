//! Unreliable datagrams and multicast.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::wqe::{AddressVector, EXTENDED_UD_AV, Opcode};
use zerocopy::IntoBytes;

use super::rig::{Cq, Qp, Region, Rig, Wqe, data};
use crate::config::{PortConfig, SimConfig};
use crate::engine::{AddressPath, QpState, Transport};

pub(super) const QKEY: u32 = 0x1111;

pub(super) fn datagram_qp(rig: &Rig, device: usize) -> (Qp, Cq) {
    let cq = rig.cq(device, 5, 64);
    let qp = rig.qp(device, Transport::Ud, &cq, None, 4);
    rig.lock().device_mut(device).qp_attributes_mut(qp.qpn).expect("a QP").qkey = QKEY;
    rig.activate(&qp);
    (qp, cq)
}

pub(super) fn vector(path: &AddressPath, qpn: u32) -> AddressVector {
    let grh = if path.grh { AddressVector::GRH } else { 0 };
    let index = u32::from(path.sgid_index) << AddressVector::GID_INDEX_SHIFT;
    AddressVector {
        qkey: QKEY.into(),
        dqp_dct: (qpn | EXTENDED_UD_AV).into(),
        rlid: path.dlid.into(),
        rmac: path.dmac,
        tclass: 0x21,
        hop_limit: path.hop_limit,
        grh_gid_fl: (grh | index | 0x12345).into(),
        rgid: path.dgid,
        ..AddressVector::default()
    }
}

/// The vector cut to sixteen bytes.
fn compact(path: &AddressPath, qpn: u32) -> [u8; 16] {
    let whole = AddressVector { dqp_dct: qpn.into(), ..vector(path, qpn) };
    *whole.as_bytes().first_chunk().expect("sixteen bytes")
}

pub(super) fn receive(qp: &mut Qp, region: &Region) {
    qp.post_receive(&[data(region.at(0), 40, region.key), data(region.at(64), 1024, region.key)]);
}

#[test]
fn a_datagram_without_header_leaves_its_place_alone() {
    let rig = Rig::new(SimConfig::new().devices(2));
    let (mut a, _cq_a) = datagram_qp(&rig, 0);
    let (mut b, mut cq_b) = datagram_qp(&rig, 1);
    let to = rig.region(1, 2048);
    to.memory.write(0, &[0xee; 40]);
    receive(&mut b, &to);
    let path = rig.path_to(1, 0);
    a.post(&Wqe::new(Opcode::SendImm).immediate(9).segment(&vector(&path, b.qpn)).inline(b"hello"));
    rig.run();
    let received = cq_b.expect();
    assert_eq!(received.opcode, CqeOpcode::ResponderSendImm);
    assert_eq!((received.bytes(), received.cqe.imm_inval_pkey.get()), (45, 9));
    assert_eq!(received.cqe.flags_rqpn.get(), a.qpn);
    assert_eq!(received.cqe.slid.get(), rig.path_to(0, 0).dlid);
    assert_eq!(to.memory.read(0, 40), [0xee; 40]);
    assert_eq!(to.memory.read(64, 5), b"hello");
}

/// After a vector of sixteen bytes comes the data: inline, in one entry, or none.
#[test]
fn a_compact_vector_is_followed_by_the_data() {
    let rig = Rig::new(SimConfig::new().devices(2));
    let (mut a, mut cq_a) = datagram_qp(&rig, 0);
    let (mut b, mut cq_b) = datagram_qp(&rig, 1);
    let (from, to) = (rig.region(0, 64), rig.region(1, 2048));
    from.memory.write(0, b"gathered");
    let vector = compact(&rig.path_to(1, 0), b.qpn);
    let requests = [
        (Wqe::new(Opcode::Send).segment(&vector).inline(b"hello"), &b"hello"[..]),
        (Wqe::new(Opcode::Send).segment(&vector).data(from.at(0), 8, from.key), b"gathered"),
        (Wqe::new(Opcode::SendImm).immediate(3).segment(&vector), b""),
    ];
    for (request, sent) in requests {
        receive(&mut b, &to);
        a.post(&request);
        rig.run();
        assert_eq!(cq_a.expect().opcode, CqeOpcode::Requester);
        let received = cq_b.expect();
        assert_eq!(received.bytes() as usize, 40 + sent.len());
        assert_eq!(received.cqe.flags_rqpn.get(), a.qpn, "no global header");
        assert_eq!(to.memory.read(64, sent.len()), sent);
    }
}

/// RoCE needs the address, for which a compact vector has no room.
#[test]
fn a_compact_vector_leads_nowhere_on_ethernet() {
    let rig = Rig::new(SimConfig::new().devices(2).ports([PortConfig::ROCE]));
    let (mut a, mut cq_a) = datagram_qp(&rig, 0);
    let (b, _cq_b) = datagram_qp(&rig, 1);
    a.post(&Wqe::new(Opcode::Send).segment(&compact(&rig.path_to(1, 0), b.qpn)).inline(b"x"));
    rig.run();
    assert_eq!(cq_a.expect_error().1, Syndrome::LocalQpOperation);
}

#[test]
fn a_global_header_arrives_in_front_of_the_data() {
    let rig = Rig::new(SimConfig::new().devices(2));
    let (mut a, _cq_a) = datagram_qp(&rig, 0);
    let (mut b, mut cq_b) = datagram_qp(&rig, 1);
    let to = rig.region(1, 2048);
    receive(&mut b, &to);
    let path = AddressPath { grh: true, ..rig.path_to(1, 0) };
    a.post(&Wqe::new(Opcode::Send).segment(&vector(&path, b.qpn)).inline(b"hello"));
    rig.run();
    assert_eq!(cq_b.expect().cqe.flags_rqpn.get() >> 28, 1);
    let header = to.memory.read(0, 40);
    assert_eq!(header[..4], [0x62, 0x11, 0x23, 0x45]);
    assert_eq!(header[4..8], [0, 32, 0x1b, 64]);
    assert_eq!(header[8..24], rig.path_to(0, 0).dgid);
    assert_eq!(header[24..], path.dgid);
}

#[test]
fn roce_datagrams_bring_the_header_of_their_version() {
    let rig = Rig::new(SimConfig::new().devices(2).ports([PortConfig::ROCE]));
    let (mut a, _cq_a) = datagram_qp(&rig, 0);
    let (mut b, mut cq_b) = datagram_qp(&rig, 1);
    for (index, look) in [(0, 0), (1, 1), (3, 2)] {
        let to = rig.region(1, 2048);
        receive(&mut b, &to);
        let path = rig.path_to(1, index);
        a.post(&Wqe::new(Opcode::Send).segment(&vector(&path, b.qpn)).inline(b"hello"));
        rig.run();
        assert_eq!(cq_b.expect().cqe.flags_rqpn.get() >> 24, 0x10 | look);
        let header = to.memory.read(0, 40);
        match look {
            0 => assert_eq!(header[6], 0x1b),
            1 => assert_eq!(header[6], 17),
            _ => {
                assert_eq!(header[..20], [0; 20]);
                assert_eq!(header[20..24], [0x45, 0x21, 0, 60]);
                assert_eq!(header[32..36], [10, 0, 0, 1]);
                assert_eq!(header[36..40], [10, 0, 0, 3]);
            }
        }
        assert_eq!(to.memory.read(64, 5), b"hello");
    }
}

#[test]
fn datagrams_with_another_key_or_for_nobody_vanish() {
    let rig = Rig::one_device();
    let (mut a, mut cq_a) = datagram_qp(&rig, 0);
    let (mut b, mut cq_b) = datagram_qp(&rig, 0);
    let to = rig.region(0, 2048);
    let path = rig.path_to(0, 0);
    let mut wrong_key = vector(&path, b.qpn);
    wrong_key.qkey = 0x2222.into();
    // Without a receive the first valid datagram is lost, too.
    for av in [wrong_key, vector(&path, 0x77_7777), vector(&path, b.qpn)] {
        a.post(&Wqe::new(Opcode::Send).segment(&av).inline(b"x"));
    }
    rig.run();
    for _ in 0..3 {
        assert_eq!(cq_a.expect().opcode, CqeOpcode::Requester);
    }
    receive(&mut b, &to);
    rig.run();
    cq_b.expect_none();
    // A privileged key means the sender's own key.
    let mut privileged = vector(&path, b.qpn);
    privileged.qkey = 0x8000_0000.into();
    a.post(&Wqe::new(Opcode::Send).segment(&privileged).inline(b"x"));
    rig.run();
    cq_b.expect();
}

#[test]
fn a_datagram_is_no_longer_than_the_mtu() {
    let port = PortConfig { mtu: 256, ..PortConfig::INFINIBAND };
    let rig = Rig::new(SimConfig::new().ports([port]));
    let (mut a, mut cq_a) = datagram_qp(&rig, 0);
    let (mut b, mut cq_b) = datagram_qp(&rig, 0);
    let to = rig.region(0, 2048);
    receive(&mut b, &to);
    let av = vector(&rig.path_to(0, 0), b.qpn);
    a.post(&Wqe::new(Opcode::Send).segment(&av).data(to.at(0), 256, to.key));
    a.post(&Wqe::new(Opcode::Send).segment(&av).data(to.at(0), 257, to.key));
    rig.run();
    assert_eq!(cq_b.expect().bytes(), 296);
    assert_eq!(cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(cq_a.expect_error().1, Syndrome::LocalLength);
    assert_eq!(rig.query(&a).state, QpState::SqError);
}

#[test]
fn a_multicast_reaches_every_member_on_the_fabric() {
    let group = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd];
    for port in [PortConfig::INFINIBAND, PortConfig::ROCE] {
        let rig = Rig::new(SimConfig::new().devices(2).ports([port]));
        let (mut a, _cq_a) = datagram_qp(&rig, 0);
        let mut members: Vec<_> = [0, 1, 1].map(|device| datagram_qp(&rig, device)).into();
        let (mut outsider, mut outsider_cq) = datagram_qp(&rig, 1);
        let regions = [rig.region(0, 2048), rig.region(1, 2048), rig.region(1, 2048)];
        for ((qp, _), region) in members.iter_mut().zip(&regions) {
            rig.lock().device_mut(qp.device).attach_multicast(qp.qpn, group).expect("room");
            receive(qp, region);
        }
        receive(&mut outsider, &regions[2]);
        let dmac = rig.lock().resolve_mac(&group).expect("a group's address");
        let path = AddressPath { grh: true, dlid: 0xc001, dgid: group, dmac, ..rig.path_to(0, 0) };
        a.post(&Wqe::new(Opcode::Send).segment(&vector(&path, 0xff_ffff)).inline(b"all"));
        rig.run();
        for ((qp, cq), region) in members.iter_mut().zip(&regions) {
            assert_eq!(cq.expect().bytes(), 43);
            cq.expect_none();
            assert_eq!(region.memory.read(64, 3), b"all");
            let mut engine = rig.lock();
            assert!(engine.device_mut(qp.device).destroy_qp(qp.qpn).is_err(), "still attached");
            engine.device_mut(qp.device).detach_multicast(qp.qpn, &group).expect("attached");
        }
        outsider_cq.expect_none();
    }
}
