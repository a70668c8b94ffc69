//! Packets that the device cuts into segments.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::ethernet::checksum_flags;

use super::*;
use crate::frame::headers::Headers;
use crate::frame::samples::{ethernet, ipv4, plain, tcp, tcp4, udp4};

const BOTH: u8 = checksum_flags::L3 | checksum_flags::L4;

fn segment(mss: u16, flags: u8) -> EthernetSegment {
    EthernetSegment { mss: mss.into(), ..checksums(flags) }
}

#[test]
fn a_large_packet_arrives_in_segments_with_right_checksums() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    two.fill(8);
    let payload: Vec<u8> = (0..7000u32).map(|n| ((n * n) >> 5) as u8).collect();
    // The driver may leave any value in the length and checksum fields.
    let packet = ethernet([0xff; 6], 0x0800, &ipv4(6, &tcp(0x18, &payload)));
    one.post_inline(Opcode::Tso, segment(1448, BOTH), &packet[..54], &payload);
    rig.run();
    assert_eq!(one.send_cq.expect().wqe(), 0);
    one.send_cq.expect_none();
    let mut joined: Vec<u8> = Vec::new();
    for index in 0..5 {
        let (completion, bytes) = two.take();
        assert_eq!(completion.cqe.hds_ip_ext, 7, "segment {index}");
        let transport = Headers::of(&bytes).expect("a frame").outer.transport.expect("TCP");
        assert_eq!(bytes.len() - transport.end, if index < 4 { 1448 } else { 7000 - 4 * 1448 });
        joined.extend(&bytes[transport.end..]);
    }
    two.cq.expect_none();
    assert_eq!(joined, payload);
}

#[test]
fn impossible_segments_fail_the_request_and_nothing_leaves() {
    let good = tcp4(&[1; 100]);
    let udp = udp4(&[1; 100]);
    let cases: [(&str, &[u8], u16); 7] = [
        ("no segment size", &good[..54], 0),
        ("headers that end early", &good[..53], 100),
        ("headers that end late", &good[..55], 100),
        ("no headers", &[], 100),
        ("half an Ethernet header", &good[..7], 100),
        ("neither TCP nor UDP", &plain(54), 100),
        ("headers of UDP that end in the payload", &udp[..50], 100),
    ];
    for (what, header, mss) in cases {
        let rig = rig(2);
        let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
        two.fill(1);
        one.post_inline(Opcode::Tso, segment(mss, BOTH), header, &[1; 100]);
        rig.run();
        assert_eq!(one.send_cq.expect_error(), (0, Syndrome::LocalQpOperation), "{what}");
        assert_eq!(rig.lock().device(0).frame_counts().sent, 0, "{what}");
    }
    // A segment size in a request that is no TSO.
    let rig = rig(1);
    let mut nic = Nic::new(&rig, 0);
    nic.post_with(Opcode::Send, &segment(100, BOTH), &good);
    rig.run();
    assert_eq!(nic.send_cq.expect_error(), (0, Syndrome::LocalQpOperation));
}

#[test]
fn a_packet_longer_than_the_device_cuts_fails() {
    let rig = rig(1);
    let mut nic = Nic::new(&rig, 0);
    let header = &tcp4(&[])[..54];
    nic.post_inline(Opcode::Tso, segment(1448, BOTH), header, &vec![0; (1 << 18) + 1]);
    rig.run();
    assert_eq!(nic.send_cq.expect_error(), (0, Syndrome::LocalLength));
}

#[test]
fn segments_longer_than_the_port_allows_are_not_sent() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    two.fill(2);
    let header = &tcp4(&[])[..54];
    one.post_inline(Opcode::Tso, segment(1500, BOTH), header, &[3; 2000]);
    rig.run();
    assert_eq!(one.send_cq.expect().opcode, CqeOpcode::Requester);
    assert_eq!(rig.lock().device(0).frame_counts().not_sent, 1);
    let (_, bytes) = two.take();
    assert_eq!(bytes.len(), 54 + 500);
    two.cq.expect_none();
}
