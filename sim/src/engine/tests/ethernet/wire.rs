//! Frames on the wire: their receivers and their counters.

use std::sync::{Arc, Mutex};

use mlx5_prm::ethernet::checksum_flags;

use super::*;
use crate::engine::{FramesTo, Traffic};
use crate::frame::checksum;
use crate::frame::headers::Headers;
use crate::frame::samples::{ethernet, ipv4, plain, tcp};

type Heard = Arc<Mutex<Vec<Vec<u8>>>>;

/// Collects the frames on the wire.
fn listen(rig: &Rig) -> Heard {
    let heard = Heard::default();
    let kept = Arc::clone(&heard);
    let tap = move |_, frame: &[u8]| kept.lock().expect("no panic").push(frame.to_vec());
    rig.lock().set_tap(Some(Box::new(tap)));
    heard
}

#[test]
fn a_tap_hears_what_the_wire_carries_segments_tags_and_sums_included() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    two.fill(8);
    let heard = listen(&rig);
    let payload = [7; 3000];
    let packet = ethernet([0x02, 0, 0, 0, 0, 9], 0x0800, &ipv4(6, &tcp(0x18, &payload)));
    let segment =
        EthernetSegment { mss: 1448.into(), ..checksums(checksum_flags::L3 | checksum_flags::L4) };
    one.post_inline(Opcode::Tso, segment, &packet[..54], &payload);
    rig.run();
    one.post(&plain(20));
    rig.run();
    let heard = heard.lock().expect("no panic");
    let lengths: Vec<usize> = heard.iter().map(Vec::len).collect();
    assert_eq!(lengths, [54 + 1448, 54 + 1448, 54 + 104, 60], "the last one is padded");
    for frame in &heard[..3] {
        let verdict = checksum::verdict(frame, &Headers::of(frame).expect("a frame").outer);
        assert!(verdict.network && verdict.transport);
    }
}

#[test]
fn what_does_not_reach_the_wire_is_not_heard() {
    let rig = rig(2);
    let mut one = Nic::new(&rig, 0);
    one.fill(2);
    let heard = listen(&rig);
    let own = rig.lock().device(0).port(1).expect("a port").mac;
    let mut frame = plain(80);
    frame[..6].copy_from_slice(&own);
    one.post(&frame);
    rig.run();
    one.expect(&frame);
    one.post(&plain(2000));
    rig.run();
    assert!(heard.lock().expect("no panic").is_empty());
    let counts = rig.lock().device(0).frame_counts();
    assert_eq!((counts.sent, counts.received, counts.not_sent), (1, 1, 1));
    assert_eq!((counts.to_wire, counts.from_wire), (FramesTo::default(), FramesTo::default()));
}

#[test]
fn frames_are_counted_by_whom_they_are_for() {
    let rig = rig(2);
    let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
    one.fill(4);
    two.fill(4);
    let to = |address: [u8; 6], bytes: usize| {
        let mut frame = plain(bytes);
        frame[..6].copy_from_slice(&address);
        frame
    };
    let (station, group, all) = ([2, 0, 0, 0, 0, 9], [1, 0, 0x5e, 0, 0, 1], [0xff; 6]);
    for frame in [to(station, 100), to(group, 40), to(all, 200), to(all, 300)] {
        one.post(&frame);
        rig.run();
    }
    let traffic = |frames, bytes| Traffic { frames, bytes };
    let (one, two) = {
        let engine = rig.lock();
        (engine.device(0).frame_counts(), engine.device(1).frame_counts())
    };
    let sent = FramesTo { one: traffic(1, 100), group: traffic(1, 40), all: traffic(2, 500) };
    assert_eq!(one.sent_to, sent);
    // The wire carries no short frames.
    let carried = FramesTo { group: traffic(1, 60), ..sent };
    assert_eq!((one.to_wire, two.from_wire, two.received_to), (carried, carried, carried));
    assert_eq!(carried.sum(), traffic(4, 660));
    // The sender also receives frames for several stations, and those do not come from the wire.
    assert_eq!(one.received_to, FramesTo { one: traffic(0, 0), ..sent });
    assert_eq!(one.from_wire, FramesTo::default());
}
