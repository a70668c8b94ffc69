//! Frames in receive queues, and their completions.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::event::EventType;

use super::*;
use crate::engine::{Event, QpState};
use crate::frame::checksum;
use crate::frame::samples::{self, GROUP, plain, tagged, tcp4, tcp6, udp4, udp6};

/// Two devices, of which the second receives.
fn pair(config: ReceiveQueueConfig) -> (Rig, Nic, Nic) {
    let rig = rig(2);
    let (one, two) = (Nic::new(&rig, 0), Nic::with(&rig, 1, config));
    (rig, one, two)
}

#[test]
fn a_completion_says_what_the_headers_are() {
    let (rig, mut one, mut two) = pair(ReceiveQueueConfig::default());
    let syn = samples::summed(samples::ethernet(
        GROUP,
        0x0800,
        &samples::ipv4(6, &samples::tcp(2, b"sixteen bytes...")),
    ));
    let ping = samples::summed(samples::ethernet(GROUP, 0x0800, &samples::ipv4(1, &[8; 40])));
    let (padded, payload) = (udp4(b"x"), udp4(&[1; 50]));
    let mut bad = payload.clone();
    bad[30] ^= 1;
    // Frame; link, network and transport good; types of network and transport.
    let cases: [(&[u8], u8, u8, u8); 9] = [
        (&plain(80), 1, 0, 0),
        (&tcp4(b"0123456789"), 7, 2, 4),
        (&tcp4(b""), 7, 2, 3),
        (&tcp6(b""), 7, 1, 3),
        (&syn, 7, 2, 1),
        (&payload, 7, 2, 2),
        (&udp6(&[1; 50]), 7, 1, 2),
        (&ping, 3, 2, 0),
        (&bad, 1, 2, 2),
    ];
    for (frame, good, network, transport) in cases {
        two.fill(1);
        one.post(frame);
        rig.run();
        let (completion, bytes) = two.take();
        let cqe = completion.cqe;
        assert_eq!(bytes[..frame.len()], *frame);
        assert_eq!(completion.opcode, CqeOpcode::ResponderSend);
        assert_eq!((cqe.hds_ip_ext, cqe.l4_l3_hdr_type), (good, transport << 4 | network << 2));
        assert_eq!(cqe.srqn_uidx.get(), 0x1234, "nothing was aggregated");
        let sum = if network == 0 { 0 } else { checksum::sum(&bytes[14..]) };
        assert_eq!(cqe.check_sum.get(), sum);
    }
    // Neither the sum nor the flags cover the bytes after the datagram: Linux adds them itself.
    two.fill(1);
    let mut dirty = padded.clone();
    dirty.resize(80, 0xfe);
    one.post(&dirty);
    rig.run();
    let cqe = two.expect(&dirty).cqe;
    assert_eq!((cqe.hds_ip_ext, cqe.check_sum.get()), (7, checksum::sum(&padded[14..])));
}

#[test]
fn congestion_is_reported() {
    let (rig, mut one, mut two) = pair(ReceiveQueueConfig::default());
    let mut four = udp4(&[1; 50]);
    let mut six = udp6(&[1; 50]);
    for (class, reported) in [(0, 0), (1, 0), (2, 0), (3, 0x80)] {
        four[15] = class;
        six[15] = class << 4;
        for frame in [&four, &six] {
            two.fill(1);
            one.post(frame);
            rig.run();
            assert_eq!(two.expect(frame).cqe.ml_path, reported);
        }
    }
}

#[test]
fn a_customers_tag_is_taken_out_and_reported() {
    let frame = tcp4(&[9; 100]);
    let inner = tagged(&frame, 0x8100, 0x6123);
    for (strip, sent, received, tag) in [
        (true, &inner, &frame, Some(0x6123)),
        (false, &inner, &inner, None),
        (true, &frame, &frame, None),
        (true, &tagged(&frame, 0x88a8, 5), &tagged(&frame, 0x88a8, 5), None),
        (true, &tagged(&inner, 0x8100, 5), &inner, Some(5)),
    ] {
        let config = ReceiveQueueConfig { strip_vlan: strip, ..ReceiveQueueConfig::default() };
        let (rig, mut one, mut two) = pair(config);
        two.fill(1);
        one.post(sent);
        rig.run();
        let cqe = two.expect(received).cqe;
        assert_eq!(
            (cqe.l4_l3_hdr_type & 1 == 1, cqe.vlan_info.get()),
            (tag.is_some(), tag.unwrap_or(0))
        );
        assert_eq!(cqe.l4_l3_hdr_type >> 1, 0b100_1000 >> 1, "TCP over IPv4 all the same");
        assert_eq!(cqe.hds_ip_ext, 7);
    }
}

#[test]
fn the_frame_check_sequence_follows_where_wanted() {
    let config = ReceiveQueueConfig { scatter_fcs: true, ..ReceiveQueueConfig::default() };
    let (rig, mut one, mut two) = pair(config);
    two.fill(1);
    let frame = plain(64);
    one.post(&frame);
    rig.run();
    let (_, bytes) = two.take();
    assert_eq!(bytes.len(), 68);
    // A frame with its check sequence always has this remainder (IEEE 802.3, 3.2.9).
    let remainder = bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    });
    assert_eq!(remainder, 0xdebb_20e3);
}

#[test]
fn frames_without_a_buffer_are_dropped_and_counted_by_set() {
    let config = ReceiveQueueConfig { counter_set: 9, ..ReceiveQueueConfig::default() };
    let (rig, mut one, mut two) = pair(config);
    two.fill(2);
    for size in [60, 61, 62, 63] {
        one.post(&plain(size));
    }
    rig.run();
    two.expect(&plain(60));
    two.expect(&plain(61));
    two.cq.expect_none();
    let engine = rig.lock();
    assert_eq!(engine.device(1).out_of_buffer(9), 2);
    assert_eq!(engine.device(1).out_of_buffer(0), 0);
    drop(engine);
    // Once there is a buffer, frames arrive.
    two.fill(1);
    one.post(&plain(64));
    rig.run();
    two.expect(&plain(64));
}

#[test]
fn a_frame_goes_over_several_entries_and_one_too_long_fails_its_buffer_alone() {
    let (rig, mut one, mut two) = pair(ReceiveQueueConfig::default());
    let (at, key) = (two.received.at(0), two.received.key);
    two.rq.post_receive(&[data(at, 20, key), data(at + 20, 30, key), data(at + 50, 14, key)]);
    two.rq.post_receive(&[data(at, 64, key)]);
    // Kernels set the highest bit of the count.
    two.rq.post_receive(&[data(at, 1 << 31 | 65, key)]);
    one.post(&plain(64));
    one.post(&plain(65));
    one.post(&plain(65));
    rig.run();
    let completion = two.cq.expect();
    assert_eq!((completion.opcode, completion.bytes()), (CqeOpcode::ResponderSend, 64));
    assert_eq!(two.cq.expect_error(), (1, Syndrome::LocalLength));
    let completion = two.cq.expect();
    assert_eq!((completion.wqe(), completion.bytes()), (2, 65));
    assert_eq!(two.received.memory.read(0, 65), plain(65));
    assert_eq!(rig.lock().device(1).frame_counts().too_long, 1);
}

#[test]
fn a_buffer_under_a_bad_key_takes_the_queue_down() {
    let (rig, mut one, mut two) = pair(ReceiveQueueConfig::default());
    two.rq.post_receive(&[data(two.received.at(0), 100, two.received.key ^ 1)]);
    two.fill(1);
    one.post(&plain(64));
    one.post(&plain(64));
    rig.run();
    assert_eq!(two.cq.expect_error(), (0, Syndrome::LocalProtection));
    assert_eq!(two.cq.expect_error(), (1, Syndrome::WorkRequestFlushed));
    assert_eq!(rig.lock().device(1).frame_counts().not_ready, 1);
    let state = |number| rig.lock().device(1).query_qp(number).expect("a queue").state;
    assert_eq!(state(two.rq.qpn), QpState::Error);
    rig.lock().device_mut(1).set_queue_state(two.rq.qpn, QpState::Reset).expect("an RQ");
    rig.lock().device_mut(1).set_queue_state(two.rq.qpn, QpState::Rtr).expect("an RQ");
    two.rq.receives = 0;
    two.fill(1);
    one.post(&plain(64));
    rig.run();
    two.expect(&plain(64));
}

#[test]
fn a_queue_whose_completions_overrun_fails_with_an_event_of_its_kind() {
    let rig = rig(2);
    let (mut one, two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    let mut cq = rig.cq(1, 0, 64);
    let mut rq = rig.rq(1, &cq, ReceiveQueueConfig::default());
    let tir = rig.tir(1, rig.direct(&rq));
    rig.everything_to(1, tir);
    for _ in 0..2 {
        rq.post_receive(&[data(two.received.at(0), 100, two.received.key)]);
    }
    one.post(&plain(64));
    one.post(&plain(64));
    rig.run();
    cq.expect();
    let kind = EventType::WQ_CATAS_ERROR;
    let failed = Event::WorkQueue { number: rq.qpn, receive: true, kind };
    assert!(rig.events(1).contains(&failed));
}

#[test]
fn counters_wrap_with_the_ring() {
    let (rig, mut one, mut two) = pair(ReceiveQueueConfig::default());
    for n in 0..300 {
        two.fill(1);
        let frame = plain(60 + n % 50);
        one.post(&frame);
        rig.run();
        one.send_cq.expect();
        assert_eq!(usize::from(two.expect(&frame).wqe()), n);
    }
}

#[test]
fn timestamps_are_of_the_device_and_do_not_go_back() {
    let (rig, mut one, mut two) = pair(ReceiveQueueConfig::default());
    let mut last = None;
    for _ in 0..5 {
        two.fill(1);
        one.post(&plain(60));
        rig.run();
        let time = two.expect(&plain(60)).cqe.timestamp.get();
        assert!(Some(time) > last);
        last = Some(time);
    }
}
