//! Frames from send queues, and their destinations.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::ethernet::{InlineMode, checksum_flags, insert};

use super::*;
use crate::engine::QpState;
use crate::engine::fault::Fault;
use crate::frame::headers::{C_TAG, S_TAG};
use crate::frame::samples::{self, plain, tagged, tcp4, udp4, udp6};

#[test]
fn a_frame_reaches_every_other_port_of_the_wire() {
    let rig = rig(3);
    let mut nics = [0, 1, 2].map(|device| Nic::new(&rig, device));
    nics.iter_mut().for_each(|nic| nic.fill(2));
    let frame = plain(200);
    nics[0].post(&frame);
    rig.run();
    let completion = nics[0].send_cq.expect();
    assert_eq!(completion.opcode, CqeOpcode::Requester);
    assert_eq!(completion.cqe.sop_drop_qpn.get(), nics[0].sq.qpn | (Opcode::Send as u32) << 24);
    nics[1].expect(&frame);
    nics[2].expect(&frame);
}

#[test]
fn headers_in_the_wqe_come_first_and_may_wrap() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    let frame = udp4(&[0x5a; 90]);
    // Blocks 0 to 14 pass, so that a WQE of two blocks wraps to the start of the ring.
    for _ in 0..15 {
        one.sq.post(&Wqe::new(Opcode::Nop));
        rig.run();
        one.send_cq.expect();
    }
    for header in [18, 14, 16, 17, 30, 60, frame.len()] {
        two.fill(1);
        one.post_inline(
            Opcode::Send,
            EthernetSegment::default(),
            &frame[..header],
            &frame[header..],
        );
        rig.run();
        assert_eq!(one.send_cq.expect().opcode, CqeOpcode::Requester, "{header} bytes inline");
        two.expect(&frame);
    }
}

#[test]
fn checksums_are_computed_where_asked_for_and_else_left() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    let mut wrong = tcp4(b"some data that is sent");
    wrong[24..26].copy_from_slice(&[0xde, 0xad]);
    wrong[50..52].copy_from_slice(&[0xbe, 0xef]);
    let right = tcp4(b"some data that is sent");
    let expected = |network: bool, transport: bool| {
        let mut frame = wrong.clone();
        for (fixed, range) in [(network, 24..26), (transport, 50..52)] {
            if fixed {
                frame[range.clone()].copy_from_slice(&right[range]);
            }
        }
        frame
    };
    for (flags, network, transport) in [
        (0, false, false),
        (checksum_flags::L3, true, false),
        (checksum_flags::L4, false, true),
        (checksum_flags::L3 | checksum_flags::L4, true, true),
    ] {
        two.fill(1);
        one.post_with(Opcode::Send, &checksums(flags), &wrong);
        rig.run();
        let good = two.expect(&expected(network, transport)).cqe.hds_ip_ext;
        assert_eq!((good & 2 != 0, good & 4 != 0), (network, transport));
    }
}

#[test]
fn a_tunnels_inner_checksums_are_computed_before_the_outer_ones() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    let right = samples::vxlan(&udp6(b"inside of a tunnel"), 5);
    let mut wrong = right.clone();
    wrong[40] = 0x77;
    let inner = right.len() - b"inside of a tunnel".len() - 2;
    wrong[inner] = 0x11;
    two.fill(1);
    let all = checksum_flags::L3 | checksum_flags::L4 | checksum_flags::L4_INNER;
    one.post_with(Opcode::Send, &checksums(all), &wrong);
    rig.run();
    two.expect(&right);
}

#[test]
fn a_tag_is_put_in_behind_the_addresses() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    let frame = udp4(b"data that is long enough to need no padding");
    for (flag, kind) in [(0, C_TAG), (insert::SERVICE, S_TAG)] {
        two.fill(1);
        let segment = EthernetSegment {
            inline_size_or_insert: (insert::VLAN | flag).into(),
            inline_start_or_tag: 0x6123u16.to_be_bytes(),
            ..EthernetSegment::default()
        };
        one.post_with(Opcode::Send, &segment, &frame);
        rig.run();
        two.expect(&tagged(&frame, kind, 0x6123));
    }
}

#[test]
fn a_short_frame_is_padded_on_the_wire_alone() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    one.fill(1);
    two.fill(1);
    let frame = plain(14);
    one.post(&frame);
    rig.run();
    one.expect(&frame);
    let mut padded = frame;
    padded.resize(60, 0);
    two.expect(&padded);
}

#[test]
fn a_sender_hears_itself_as_the_function_allows() {
    let rig = rig(1);
    let mut nic = Nic::new(&rig, 0);
    nic.fill(8);
    let own = rig.lock().device(0).port(1).expect("a port").mac;
    let further = [0x02, 0, 0, 0, 0, 9];
    let foreign = [0x02, 0, 0, 0, 0, 8];
    rig.lock().device_mut(0).vport_mut().addresses = vec![further];
    let to = |mac: [u8; 6]| samples::ethernet(mac, 0x88b5, &[7; 60]);
    let heard = |nic: &mut Nic, mac| {
        nic.post(&to(mac));
        rig.run();
        nic.send_cq.expect();
        nic.cq.poll().is_some()
    };
    assert!(heard(&mut nic, own));
    assert!(heard(&mut nic, further));
    assert!(heard(&mut nic, samples::GROUP));
    assert!(!heard(&mut nic, foreign));
    rig.lock().device_mut(0).vport_mut().no_unicast_loopback = true;
    assert!(!heard(&mut nic, own));
    assert!(heard(&mut nic, [0xff; 6]));
    rig.lock().device_mut(0).vport_mut().no_multicast_loopback = true;
    assert!(!heard(&mut nic, [0xff; 6]));
}

#[test]
fn lost_and_corrupted_frames_complete_all_the_same() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    two.fill(3);
    rig.lock().device_mut(0).inject(Fault::DropPackets(1));
    rig.lock().device_mut(0).inject(Fault::CorruptPackets(1));
    let frame = tcp4(&[0x11; 100]);
    for _ in 0..3 {
        one.post(&frame);
        rig.run();
        assert_eq!(one.send_cq.expect().opcode, CqeOpcode::Requester);
    }
    let (completion, bytes) = two.take();
    assert_eq!(bytes.iter().zip(&frame).filter(|(a, b)| a != b).count(), 1);
    assert_eq!(completion.cqe.hds_ip_ext & 4, 0, "the checksum tells");
    two.expect(&frame);
    two.cq.expect_none();
}

#[test]
fn a_port_that_is_down_or_too_narrow_loses_frames_and_counts_them() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    two.fill(4);
    let counts = |device: usize| rig.lock().device(device).frame_counts();
    one.post(&plain(1518));
    one.post(&plain(1519));
    rig.run();
    two.expect(&plain(1518));
    assert_eq!((counts(0).sent, counts(0).not_sent), (1, 1));
    rig.lock().device_mut(0).port_mut(1).expect("a port").frame = 9000;
    one.post(&plain(1600));
    rig.run();
    assert_eq!(counts(1).oversize, 1);
    rig.lock().device_mut(1).set_port_active(1, false);
    one.post(&plain(100));
    rig.run();
    rig.lock().device_mut(0).set_port_active(1, false);
    one.post(&plain(100));
    rig.run();
    assert_eq!((counts(0).sent, counts(0).not_sent), (3, 2));
    assert_eq!(counts(1).received, 1);
    two.cq.expect_none();
    for _ in 0..5 {
        assert_eq!(one.send_cq.expect().opcode, CqeOpcode::Requester);
    }
}

#[test]
fn what_the_wqe_must_contain_is_demanded() {
    let frame = tcp4(b"payload");
    let tag = tagged(&frame, C_TAG, 5);
    let (link, network, transport) = (14usize, 34, 54);
    for (mode, frame, least) in [
        (InlineMode::None, &frame, 0),
        (InlineMode::L2, &frame, link),
        (InlineMode::L2, &tag, link + 4),
        (InlineMode::Ip, &frame, network),
        (InlineMode::TcpUdp, &frame, transport),
    ] {
        for (header, good) in [(least, true), (least.saturating_sub(1), least == 0)] {
            let config = SimConfig::new().ports([PortConfig::ROCE]).inline_mode(mode);
            let rig = Rig::new(config);
            let mut nic = Nic::new(&rig, 0);
            let (head, rest) = frame.split_at(header);
            nic.post_inline(Opcode::Send, EthernetSegment::default(), head, rest);
            rig.run();
            let completion = nic.send_cq.expect();
            assert_eq!(completion.opcode == CqeOpcode::Requester, good, "{mode:?} {header}");
            if !good {
                assert_eq!(completion.syndrome(), Syndrome::LocalLength);
                let error = completion.error;
                let codes = [error.vendor_err_synd, error.hw_err_synd, error.hw_synd_type];
                assert_eq!(codes, [0x68, 0x60, 0x10]);
            }
        }
    }
}

#[test]
fn a_failed_queue_flushes_and_runs_again_after_a_reset() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    two.fill(1);
    one.post(&[0; 13]);
    one.post(&plain(80));
    rig.run();
    assert_eq!(one.send_cq.expect_error(), (0, Syndrome::LocalQpOperation));
    assert_eq!(one.send_cq.expect_error(), (1, Syndrome::WorkRequestFlushed));
    rig.lock().device_mut(0).set_queue_state(one.sq.qpn, QpState::Reset).expect("an SQ");
    one.sq.posted = 0;
    one.sq.write_record(0);
    rig.lock().device_mut(0).set_queue_state(one.sq.qpn, QpState::Rts).expect("an SQ");
    one.post(&plain(80));
    rig.run();
    two.expect(&plain(80));
}

#[test]
fn several_packets_of_one_request_are_several_frames() {
    let rig = rig(2);
    let (one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    let mut cq = rig.cq(0, 3, 64);
    let mut sq = rig.sq(0, &cq, 7);
    two.fill(3);
    let frames = [plain(60), udp4(&[3; 70]), plain(120)];
    one.sent.memory.write(0, &frames[0]);
    one.sent.memory.write(512, &frames[2]);
    let wqe = Wqe::new(Opcode::EnhancedMpw)
        .segment(&EthernetSegment::default())
        .data(one.sent.at(0), 60, one.sent.key)
        .inline(&frames[1])
        .data(one.sent.at(512), 120, one.sent.key);
    sq.post(&wqe);
    rig.run();
    assert_eq!(cq.expect().wqe(), 0);
    cq.expect_none();
    for frame in &frames {
        two.expect(frame);
    }
}

#[test]
fn a_device_that_needs_headers_in_requests_takes_none_with_several_packets() {
    let config = SimConfig::new().ports([PortConfig::ROCE]).inline_mode(InlineMode::L2);
    let rig = Rig::new(config);
    let nic = Nic::new(&rig, 0);
    let mut cq = rig.cq(0, 3, 64);
    let mut sq = rig.sq(0, &cq, 7);
    nic.sent.memory.write(0, &plain(60));
    let wqe = Wqe::new(Opcode::EnhancedMpw).segment(&EthernetSegment::default());
    sq.post(&wqe.data(nic.sent.at(0), 60, nic.sent.key));
    rig.run();
    assert_eq!(cq.expect_error(), (0, Syndrome::LocalQpOperation));
}

#[test]
fn infiniband_ports_carry_no_frames() {
    let config = SimConfig::new().devices(1);
    assert_eq!(config.ports[0].link_layer, LinkLayer::InfiniBand);
    let rig = Rig::new(config);
    let mut nic = Nic::new(&rig, 0);
    nic.fill(1);
    nic.post(&plain(100));
    rig.run();
    assert_eq!(nic.send_cq.expect().opcode, CqeOpcode::Requester);
    nic.cq.expect_none();
}
