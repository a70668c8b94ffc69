//! Queues of packets: buffers that packets take and return, bursts, and frames to send.

use super::altered_kernel::{AlteredKernel, Overrides};
use crate::frames::{ETHERNET, Flow, GROUP, IPV4, IPV6, TCP, UDP, ethernet, plain, tagged};
use crate::panics::panic_of;
use crate::prelude::*;
use mlx5::ethernet::{Counts, EthernetQueue, EthernetQueueBuilder, Frame, Mode};
use mlx5::flow::{Ethernet, FlowRule, Rule};
use mlx5::{CqeCompression, Error, ErrorKind, VlanTag, devices_on};
use mlx5_prm::ethernet::InlineMode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    packets_are_read_where_they_arrived: RAW_PACKETS | EVERY_MODEL,
    bursts_go_around_both_rings_and_come_back: RAW_PACKETS,
    a_packet_that_is_kept_stays_as_it_is_until_it_is_dropped: RAW_PACKETS,
    a_queue_whose_buffers_are_kept_drops_packets_and_goes_on_later: RAW_PACKETS,
    frames_outlive_their_queue: RAW_PACKETS,
    frames_are_sent_with_checksums_and_tags: RAW_PACKETS,
    full_send_queue_takes_no_more_packets: RAW_PACKETS,
    packets_of_a_burst_beyond_the_room_are_dropped_and_counted: RAW_PACKETS,
    frames_cross_to_a_queue_that_is_beside: RAW_PACKETS,
    a_packet_longer_than_a_buffer_is_counted_and_harms_no_other: RAW_PACKETS,
    runs_of_completions_are_taken_in_bursts: RAW_PACKETS | SIMULATOR | STEP,
    a_buffer_for_a_frame_is_one_that_was_sent: RAW_PACKETS,
    a_batch_of_frames_with_tags_is_as_long_as_any: RAW_PACKETS,
    more_frames_at_a_time_than_a_send_queue_holds_are_refused_by_name: RAW_PACKETS,
    a_device_that_needs_headers_inline_gets_them: RAW_PACKETS | SIMULATOR,
    each_inline_mode_gets_the_headers_that_it_names: RAW_PACKETS | SIMULATOR,
    a_short_frame_is_filled_up_with_zeros_whatever_lay_in_its_buffer: RAW_PACKETS | SIMULATOR,
    a_refused_frame_stops_the_queue_until_it_is_started_again: RAW_PACKETS | SIMULATOR,
    a_queue_sleeps_until_a_packet_arrives: RAW_PACKETS,
    a_queue_without_a_channel_does_not_sleep: RAW_PACKETS,
    a_queue_without_a_buffer_wakes_when_they_come_back: RAW_PACKETS | SIMULATOR,
    a_burst_is_as_long_as_it_may_be: RAW_PACKETS,
    a_panic_in_a_burst_loses_no_buffer: RAW_PACKETS,
    panic_of_the_frame_source_leaves_no_frame_in_flight: RAW_PACKETS,
    a_queue_that_is_dropped_sends_nothing_more_while_a_rule_stays: RAW_PACKETS | SIMULATOR,
];

/// Another group: the destination of packets that are sent back.
const BACK: [u8; 6] = [0x01, 0x50, 0x56, 0x19, 0x20, 0xa8];

fn back() -> Rule {
    Rule::new().ethernet(Ethernet::new().dst_mac(BACK))
}

/// The same frame, with the destination of packets that are sent back.
fn returned(frame: &[u8]) -> Vec<u8> {
    [&BACK[..], &frame[6..]].concat()
}

/// A queue of either mode that receives the packets to the group.
pub(crate) fn queue_by<M: Mode>(
    bed: &Bed,
    build: impl FnOnce(EthernetQueueBuilder<'_>) -> Result<EthernetQueue<M>, Error>,
) -> Result<(EthernetQueue<M>, FlowRule), Failed> {
    let queue = build(bed.context().create_ethernet_queue(bed.port()))?;
    let rule = queue.attach(&to_group())?;
    Ok((queue, rule))
}

fn queue_with(
    bed: &Bed,
    tune: impl FnOnce(EthernetQueueBuilder<'_>) -> EthernetQueueBuilder<'_>,
) -> Result<(EthernetQueue, FlowRule), Failed> {
    queue_by(bed, |builder| tune(builder).build())
}

/// A queue with few buffers.
fn small(bed: &Bed) -> Result<(EthernetQueue, FlowRule), Failed> {
    queue_with(bed, |builder| builder.receives(8).frames(4).sends(8).burst(8))
}

/// Number of buffers of a queue whose buffers are all free.
fn buffers(queue: &EthernetQueue) -> usize {
    let with_device = queue.qp().caps().max_recv_wr - queue.qp().free_receives();
    queue.free_buffers() + with_device as usize
}

/// The next packets of a queue, copied.
#[track_caller]
fn copies(bed: &Bed, queue: &mut EthernetQueue, count: usize) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    bed.until("packets", || {
        let burst = queue.receive(|packets| packets.for_each(|packet| found.push(packet.to_vec())));
        burst.expect("a queue that can be polled");
        found.len() >= count
    });
    found
}

/// Drops the packets in the queue, and lets it post buffers again.
#[track_caller]
fn discard(queue: &mut EthernetQueue) {
    let burst = queue.receive(|mut packets| while packets.next().is_some() {});
    burst.expect("a queue that can be polled");
}

/// The next packets of a queue, kept.
#[track_caller]
pub(crate) fn kept<M: Mode>(
    bed: &Bed,
    queue: &mut EthernetQueue<M>,
    count: usize,
) -> Vec<Frame> {
    let mut found = Vec::new();
    bed.until("packets", || {
        let burst = queue.receive(|packets| packets.for_each(|packet| found.push(packet.keep())));
        burst.expect("a queue that can be polled");
        found.len() >= count
    });
    found
}

/// Sends the arriving packets back, until there were `count`.
#[track_caller]
pub(super) fn send_back<M: Mode>(bed: &Bed, queue: &mut EthernetQueue<M>, count: usize) {
    let mut seen = 0;
    bed.until("packets", || {
        let burst = queue.receive(|mut packets| {
            while let Some(mut packet) = packets.next() {
                packet[..6].copy_from_slice(&BACK);
                packet.send();
                seen += 1;
            }
        });
        burst.expect("a queue that can be polled and posted to");
        seen >= count
    });
}

/// Waits until all frames are sent.
#[track_caller]
fn sent(bed: &Bed, queue: &mut EthernetQueue) {
    bed.until("frames are sent", || {
        queue.reap().expect("a queue that can be polled");
        queue.sending() == 0
    });
}

/// A filled frame.
#[track_caller]
fn filled(queue: &mut EthernetQueue, bytes: &[u8]) -> Frame {
    let mut frame = queue.frame().expect("a free buffer");
    frame.fill(bytes);
    frame
}

fn packets_are_read_where_they_arrived(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, _rule) = small(bed)?;
    for frame in [plain(60), Flow::UDP4.frame(&[7; 100]), plain(1514)] {
        a.send(bed, &frame);
        let mut seen = 0;
        bed.until("a packet", || {
            let burst = queue.receive(|mut packets| {
                while let Some(packet) = packets.next() {
                    assert_eq!(*packet, frame[..]);
                    let ipv4 = frame[12..14] == [8, 0];
                    assert_eq!(packet.completion().checksum_ok(), Some(ipv4));
                    assert!(packet.completion().timestamp().is_some());
                    seen += 1;
                }
            });
            burst.expect("a queue that can be polled");
            seen != 0
        });
        assert_eq!(seen, 1);
    }
    assert_eq!(queue.counts(), Counts { received: 3, ..Counts::default() });
    // An empty queue is no error.
    assert!(queue.receive(|mut packets| packets.next().is_none())?);
    Ok(())
}

fn bursts_go_around_both_rings_and_come_back(bed: &Bed) -> Outcome {
    for several in [true, false] {
        rounds(bed, several)?;
    }
    Ok(())
}

/// Bursts that are sent back, with several packets a request or one.
fn rounds(bed: &Bed, several: bool) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let (mut queue, _rule) = queue_with(bed, |builder| {
        builder.receives(8).frames(16).sends(8).burst(8).multi_packet(several)
    })?;
    let requests = queue.qp().caps().max_send_sge;
    assert_eq!(requests > 8, several, "where the device can");
    let mut count = 0;
    for burst in [1, 8, 3, 8, 8, 5, 2, 8, 7] {
        a.recv(burst);
        let frames: Vec<_> =
            (0..burst).map(|n| Flow::UDP4.frame(&pattern(count + n as u64, 20 + 7 * n))).collect();
        frames.iter().for_each(|frame| a.send(bed, frame));
        send_back(bed, &mut queue, burst);
        for frame in &frames {
            assert_eq!(a.next(bed).frame, returned(frame));
        }
        count += burst as u64;
    }
    sent(bed, &mut queue);
    assert_eq!(queue.counts(), Counts { received: count, sent: count, ..Counts::default() });
    Ok(())
}

fn a_packet_that_is_kept_stays_as_it_is_until_it_is_dropped(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, _rule) = small(bed)?;
    a.send(bed, &plain(100));
    let mut keep = kept(bed, &mut queue, 1);
    for n in 0..40 {
        a.send(bed, &plain(200 + n));
        assert_eq!(copies(bed, &mut queue, 1), [plain(200 + n)]);
    }
    assert_eq!(*keep[0], plain(100)[..]);
    // The caller may change it, and make it longer or shorter.
    keep[0].fill(b"0123456789abcdef");
    keep[0][0] = b'x';
    assert_eq!(*keep[0], *b"x123456789abcdef");
    keep[0].resize(4);
    assert_eq!((&*keep[0], keep[0].capacity()), (&b"x123"[..], 2048));
    let before = queue.free_buffers();
    std::thread::scope(|scope| scope.spawn(|| drop(keep)).join().expect("no panic"));
    assert_eq!(queue.free_buffers(), before + 1);
    Ok(())
}

fn a_queue_whose_buffers_are_kept_drops_packets_and_goes_on_later(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, _rule) = small(bed)?;
    let dropped = || match bed.is_simulated() {
        true => bed.simulator().fabric().lock().device(0).frame_counts().out_of_buffer,
        false => 0,
    };
    let all = buffers(&queue);
    assert!((12..20).contains(&all), "{all}");
    let mut keep = Vec::new();
    for n in 0..20 {
        a.send(bed, &plain(60 + n));
        bed.settle();
        queue.receive(|packets| packets.for_each(|packet| keep.push(packet.keep())))?;
    }
    // The caller has all buffers.
    for (n, frame) in keep.iter().enumerate() {
        assert_eq!(**frame, plain(60 + n)[..]);
    }
    assert_eq!(keep.len(), all);
    assert!(queue.frame().is_none() && queue.counts().starved != 0, "{queue:?}");
    if bed.is_simulated() {
        assert_eq!(dropped() as usize, 20 - all);
    }
    keep.truncate(9);
    discard(&mut queue);
    for n in 0..3 {
        a.send(bed, &plain(300 + n));
    }
    assert_eq!(copies(bed, &mut queue, 3), [plain(300), plain(301), plain(302)]);
    drop(keep);
    discard(&mut queue);
    for _ in 0..3 {
        for n in 0..8 {
            a.send(bed, &plain(400 + n));
        }
        assert_eq!(copies(bed, &mut queue, 8).len(), 8);
    }
    Ok(())
}

fn frames_outlive_their_queue(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, rule) = small(bed)?;
    a.send(bed, &plain(321));
    let keep = kept(bed, &mut queue, 1);
    drop(queue);
    // The rule keeps the queue pair alive, so it still receives.
    for _ in 0..10 {
        a.send(bed, &plain(99));
    }
    bed.settle();
    drop(rule);
    assert_eq!(*keep[0], plain(321)[..]);
    Ok(())
}

fn frames_are_sent_with_checksums_and_tags(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let (mut queue, _rule) = small(bed)?;
    let right = returned(&Flow::UDP4.frame(&[3; 77]));
    let bare = returned(&Flow::UDP4.bare(&[3; 77]));
    let mut tag = filled(&mut queue, &bare);
    tag.set_vlan(Some(VlanTag::Customer(0x2123)));
    let frames = [filled(&mut queue, &bare), tag, filled(&mut queue, &returned(&plain(20)))];
    let short = filled(&mut queue, &bare[..ETHERNET - 1]);
    a.recv(3);
    assert_eq!(queue.send(frames.into_iter().chain([short]))?, 4);
    sent(bed, &mut queue);
    assert_eq!(a.next(bed).frame, right);
    assert_eq!(a.next(bed).frame, tagged(&right, 0x2123));
    assert_eq!(a.next(bed).frame[..20], returned(&plain(20)));
    assert_eq!(queue.counts(), Counts { sent: 3, not_sent: 1, ..Counts::default() });
    let (mut plainly, _rule) = queue_with(bed, |builder| builder.checksums(false))?;
    let frame = filled(&mut plainly, &bare);
    a.recv(1);
    plainly.send([frame])?;
    assert_eq!(a.next(bed).frame, bare, "no checksums");
    Ok(())
}

fn full_send_queue_takes_no_more_packets(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let made = queue_with(bed, |builder| builder.receives(8).frames(24).sends(8));
    let (mut queue, _rule) = made?;
    let before = queue.free_buffers();
    a.recv(20);
    let mut frames = Vec::new();
    for n in 0..20 {
        frames.push(filled(&mut queue, &returned(&plain(60 + n))));
    }
    let mut frames = frames.into_iter();
    let mut calls = Vec::new();
    bed.until("all frames are sent", || {
        calls.push(queue.send(frames.by_ref()).expect("a queue that can be posted to"));
        assert!(queue.sending() <= 8);
        frames.len() == 0
    });
    assert_eq!((calls[0], calls.iter().sum::<usize>()), (8, 20));
    for n in 0..20 {
        assert_eq!(a.next(bed).frame, returned(&plain(60 + n)));
    }
    sent(bed, &mut queue);
    assert_eq!((queue.free_buffers(), queue.counts().sent), (before, 20));
    assert_eq!(queue.send([])?, 0);
    Ok(())
}

fn packets_of_a_burst_beyond_the_room_are_dropped_and_counted(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let made = queue_with(bed, |builder| builder.receives(16).frames(0).sends(4));
    let (mut queue, _rule) = made?;
    a.recv(10);
    for n in 0..10 {
        a.send(bed, &plain(60 + n));
    }
    bed.settle();
    send_back(bed, &mut queue, 10);
    sent(bed, &mut queue);
    let Counts { received, sent, not_sent, .. } = queue.counts();
    assert_eq!((received, sent, not_sent), (10, 4, 6));
    for n in 0..4 {
        assert_eq!(a.next(bed).frame, returned(&plain(60 + n)));
    }
    a.hears_nothing(bed);
    // A frame that is too short for the device is not sent either.
    a.send(bed, &plain(60));
    bed.until("a packet", || {
        let burst = queue.receive(|mut packets| {
            packets.next().map(|packet| packet.send_resized(ETHERNET - 1)).is_some()
        });
        burst.expect("a queue that can be polled")
    });
    assert_eq!((queue.counts().not_sent, queue.sending()), (7, 0));
    Ok(())
}

fn frames_cross_to_a_queue_that_is_beside(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let context = bed.context();
    let builder = || context.create_ethernet_queue(bed.port()).receives(8).frames(0).sends(8);
    let mut near = builder().build()?;
    let mut far = builder().beside(&near).build()?;
    let mut stranger = builder().build()?;
    let _rule = near.attach(&to_group())?;
    a.recv(8);
    let before = near.free_buffers();
    for n in 0..4 {
        a.send(bed, &plain(60 + n));
    }
    let mut frames = kept(bed, &mut near, 4);
    frames.iter_mut().for_each(|frame| frame[..6].copy_from_slice(&BACK));
    let odd = frames.split_off(3);
    assert_eq!(far.send(frames)?, 3);
    sent(bed, &mut far);
    for n in 0..3 {
        assert_eq!(a.next(bed).frame, returned(&plain(60 + n)));
    }
    // A queue in another protection domain cannot send it, which is no error of the queue.
    assert_eq!(stranger.send(odd)?, 1);
    assert_eq!((stranger.counts().not_sent, stranger.sending()), (1, 0));
    a.hears_nothing(bed);
    // All buffers have returned, and can receive.
    discard(&mut near);
    assert_eq!(near.free_buffers(), before);
    for n in 0..8 {
        a.send(bed, &plain(80 + n));
    }
    assert_eq!(copies(bed, &mut near, 8).len(), 8);
    let other = bed.context();
    let refused = other.create_ethernet_queue(bed.port()).beside(&near).build();
    assert_eq!(refused.expect_err("of another context").kind(), mlx5::ErrorKind::InvalidArgument);
    Ok(())
}

fn a_packet_longer_than_a_buffer_is_counted_and_harms_no_other(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let made = queue_with(bed, |builder| builder.receives(8).frames(0).buffer_size(100));
    let (mut queue, _rule) = made?;
    for round in 0..10 {
        for length in [128, 129, 60] {
            a.send(bed, &plain(length));
        }
        assert_eq!(copies(bed, &mut queue, 2), [plain(128), plain(60)], "round {round}");
    }
    assert_eq!(queue.counts(), Counts { received: 20, bad: 10, ..Counts::default() });
    Ok(())
}

/// Sends packets in one batch, so that the device can compress their completions, and waits for
/// all.
pub(super) fn send_at_once(bed: &Bed, a: &mut Station, packets: &[Vec<u8>]) -> Outcome {
    let sges: Vec<_> = packets.iter().zip(0..).map(|(packet, n)| a.at(n * 512, packet)).collect();
    a.qp.post(|batch| {
        for (wr_id, sge) in (1..).zip(&sges) {
            let last = wr_id as usize == sges.len();
            let flags = if last { SendFlags::SIGNALED } else { SendFlags::empty() };
            batch.wr(wr_id, flags).send().sge(*sge);
        }
    })?;
    bed.poll_good(&mut a.send_cq, 1);
    bed.settle();
    Ok(())
}

/// Makes a queue with compression poll runs in bursts that end inside them. The queue has room for
/// `room` packets of up to 64 bytes, and posts again when `together` of them are gone.
pub(super) fn runs_in_bursts<M: Mode>(
    bed: &Bed,
    queue: &mut EthernetQueue<M>,
    room: usize,
    together: usize,
) -> Outcome {
    let mut a = bed.station()?;
    let (mut sent, mut seen, mut compressed) = (0, 0, 0);
    let frame = |number: usize| plain(60 + number % 5);
    for burst in 0..60 {
        // Sends as many as there is room for in any case. Sometimes the queue first has to receive
        // all that were sent.
        if burst % 12 < 9 || sent == seen {
            let until = seen / together * together + room;
            let frames: Vec<_> = (sent..until).map(frame).collect();
            if !frames.is_empty() {
                send_at_once(bed, &mut a, &frames)?;
            }
            sent = until;
        }
        let before = seen;
        queue.receive(|packets| {
            packets.for_each(|packet| {
                assert_eq!(*packet, frame(seen)[..], "packet {seen}");
                compressed += usize::from(packet.completion().is_compressed());
                seen += 1;
            });
        })?;
        assert!(seen > before && seen <= sent, "{seen} packets of {sent}, in burst {burst}");
    }
    assert!(compressed > seen / 2, "{compressed} of {seen} packets");
    let Counts { received, bad, starved, .. } = queue.counts();
    assert_eq!((received, bad, starved), (seen as u64, 0, 0));
    Ok(())
}

/// More than a completion queue sized only for the receives has slots: 31.
fn runs_of_completions_are_taken_in_bursts(bed: &Bed) -> Outcome {
    for format in [CqeCompression::Hash, CqeCompression::Checksum] {
        let (mut queue, _rule) =
            queue_with(bed, |builder| builder.receives(26).burst(8).compression(format))?;
        let posted = queue.qp().caps().max_recv_wr - queue.qp().free_receives();
        assert_eq!(posted, 31);
        runs_in_bursts(bed, &mut queue, 31, 1)?;
    }
    Ok(())
}

fn a_buffer_for_a_frame_is_one_that_was_sent(bed: &Bed) -> Outcome {
    let (mut queue, _rule) = small(bed)?;
    let frames: Vec<Frame> = std::iter::from_fn(|| queue.frame()).collect();
    let count = frames.len();
    assert_eq!(count, 4);
    let fill = |mut frame: Frame| {
        frame.fill(&returned(&plain(60)));
        frame
    };
    assert_eq!(queue.send(frames.into_iter().map(fill))?, count);
    bed.until("they were sent", || queue.frame().is_some());
    assert_eq!((queue.sending(), queue.counts().sent), (0, count as u64));
    Ok(())
}

fn a_batch_of_frames_with_tags_is_as_long_as_any(bed: &Bed) -> Outcome {
    for sends in [1, 8, 16, 1024, 16384] {
        let (mut queue, _rule) = queue_with(bed, |builder| {
            builder.receives(8).frames(sends).sends(sends).buffer_size(64)
        })?;
        // Two rounds, so that the requests wrap in their ring. In the second round every third
        // frame has no tag.
        for round in [1, 3] {
            let frames = (0..sends).map(|number| {
                let mut frame = filled(&mut queue, &returned(&plain(60)));
                let tag = round == 1 || number % round != 0;
                frame.set_vlan(tag.then_some(VlanTag::Customer(1)));
                frame
            });
            let frames: Vec<Frame> = frames.collect();
            assert_eq!(queue.send(frames)?, sends as usize);
            sent(bed, &mut queue);
        }
        let sends = u64::from(sends);
        assert_eq!(queue.counts(), Counts { sent: 2 * sends, ..Counts::default() });
    }
    Ok(())
}

fn more_frames_at_a_time_than_a_send_queue_holds_are_refused_by_name(bed: &Bed) -> Outcome {
    let context = bed.context();
    let builder = || context.create_ethernet_queue(bed.port()).receives(8).frames(0).buffer_size(64);
    for (builder, most) in [
        (builder().sends(16385), "16384 at most"),
        (builder().sends(32769).multi_packet(false), "32768 at most"),
    ] {
        let error = builder.build().expect_err("too many");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains(most), "{error}");
    }
    builder().sends(16384).build()?;
    builder().sends(32768).multi_packet(false).build()?;
    Ok(())
}

fn a_device_that_needs_headers_inline_gets_them(bed: &Bed) -> Outcome {
    let bed = &bed.configured(|config| config.inline_mode(InlineMode::L2))?;
    let mut a = Station::on(bed, bed.context(), bed.port(), |builder| builder)?;
    let _rule = a.qp.attach(a.port, &back())?;
    let (mut queue, _rule) = small(bed)?;
    let right = returned(&Flow::UDP4.frame(&[3; 77]));
    let mut tag = filled(&mut queue, &returned(&Flow::UDP4.bare(&[3; 77])));
    tag.set_vlan(Some(VlanTag::Service(0x0fff)));
    let short = returned(&plain(15));
    let frames = [filled(&mut queue, &right), tag, filled(&mut queue, &short)];
    a.recv(3);
    queue.send(frames)?;
    sent(bed, &mut queue);
    assert_eq!(queue.counts(), Counts { sent: 3, ..Counts::default() });
    assert_eq!(a.next(bed).frame, right);
    let mut service = tagged(&right, 0x0fff);
    service[12..14].copy_from_slice(&[0x88, 0xa8]);
    assert_eq!(a.next(bed).frame, service);
    assert_eq!(a.next(bed).frame, [&short[..], &[0; 45]].concat());
    Ok(())
}

/// Frames with a request for each.
fn one_by_one(builder: EthernetQueueBuilder<'_>) -> EthernetQueueBuilder<'_> {
    let builder = builder.receives(4).frames(4).sends(8).checksums(false);
    builder.multi_packet(false).buffer_size(256)
}

/// No other program receives bytes of an earlier packet in the buffer.
fn a_short_frame_is_filled_up_with_zeros_whatever_lay_in_its_buffer(bed: &Bed) -> Outcome {
    fn sends_nothing_else<M: Mode>(
        bed: &Bed,
        mode: InlineMode,
        build: impl FnOnce(EthernetQueueBuilder<'_>) -> Result<EthernetQueue<M>, Error>,
    ) -> Outcome {
        let bed = &bed.configured(|config| config.inline_mode(mode))?;
        let mut a = Station::on(bed, bed.context(), bed.port(), |builder| builder)?;
        let _rule = a.qp.attach(a.port, &back())?;
        let (mut queue, _rule) = queue_by(bed, build)?;
        let secret = returned(&[0xee; 200]);
        let context = bed.context();
        let mut sender = one_by_one(context.create_ethernet_queue(bed.port())).build()?;
        let mut arrives = || -> Outcome {
            let frame = filled(&mut sender, &[&GROUP[..], &secret[6..]].concat());
            sender.send([frame])?;
            Ok(())
        };
        for (length, tag) in (ETHERNET..62).zip([None, Some(VlanTag::Customer(7))].iter().cycle()) {
            a.recv(3);
            // A frame that is shortened, a packet that is kept and then shortened, and one that is
            // shortened in place.
            let mut own = queue.frame().expect("a free buffer");
            own.fill(&secret);
            arrives()?;
            let mut frames = vec![own, kept(bed, &mut queue, 1).remove(0)];
            frames[1][..6].copy_from_slice(&BACK);
            frames.iter_mut().for_each(|frame| {
                frame.resize(length);
                frame.set_vlan(*tag);
            });
            queue.send(frames)?;
            arrives()?;
            let mut seen = false;
            bed.until("a packet", || {
                let burst = queue.receive(|mut packets| {
                    while let Some(mut packet) = packets.next() {
                        packet[..6].copy_from_slice(&BACK);
                        packet.send_resized(length);
                        seen = true;
                    }
                });
                burst.expect("a queue that can be polled");
                seen
            });
            let cut = secret[..length].to_vec();
            let whole = if tag.is_some() { tagged(&cut, 7) } else { cut.clone() };
            for sent in [&whole, &whole, &cut] {
                let mut expected = sent.clone();
                let received = a.next(bed).frame;
                assert!(received.len() >= sent.len());
                expected.resize(received.len(), 0);
                assert_eq!(received, expected, "{mode:?}, {length} bytes, {tag:?}");
            }
            bed.until("frames are sent", || {
                queue.reap().expect("a queue that can be polled");
                queue.sending() == 0
            });
        }
        Ok(())
    }
    for mode in [InlineMode::None, InlineMode::L2, InlineMode::Ip] {
        sends_nothing_else(bed, mode, |builder| one_by_one(builder).build())?;
        sends_nothing_else(bed, mode, |builder| one_by_one(builder).striding(64, 512).build())?;
    }
    Ok(())
}

/// A TCP header of `bytes` bytes.
fn tcp(bytes: usize) -> Vec<u8> {
    let mut header = vec![1; bytes];
    header[12] = ((bytes / 4) << 4) as u8;
    header
}

/// An IPv4 frame with a header of `bytes` bytes.
fn ipv4(bytes: usize, offset: u16, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (bytes + payload.len()) as u16;
    let mut header = vec![1; bytes];
    header[0] = 0x40 | (bytes / 4) as u8;
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header[6..8].copy_from_slice(&offset.to_be_bytes());
    header[9] = protocol;
    ethernet(IPV4, &[&header[..], payload].concat())
}

/// An IPv6 frame whose payload is of protocol `next`.
fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let header = [0x60, 0, 0, 0, high, low, next, 64];
    ethernet(IPV6, &[&header[..], &[0x20; 32], payload].concat())
}

fn each_inline_mode_gets_the_headers_that_it_names(bed: &Bed) -> Outcome {
    const HOP_BY_HOP: u8 = 0;
    const FRAGMENT: u8 = 44;
    let options = [&[TCP, 1][..], &[0; 14], &tcp(20), &[5; 100]].concat();
    let first = [&[UDP, 0, 0, 1][..], &[0; 4], &[0, 9, 0, 7, 0, 108, 0, 0], &[5; 100]].concat();
    let later = [&[UDP, 0, 1, 0][..], &[0; 4], &[5; 100]].concat();
    let longest = ipv4(60, 0, TCP, &tcp(60));
    let frames = [
        plain(60),
        plain(200),
        Flow::UDP4.frame(&[1; 100]),
        Flow::TCP4.frame(&[1; 100]),
        Flow::UDP6.frame(&[1; 100]),
        Flow::TCP6.frame(&[1; 100]),
        tagged(&Flow::UDP6.frame(&[1; 100]), 5),
        tagged(&tagged(&Flow::TCP4.frame(&[1; 100]), 5), 6),
        // With options, later fragments, and without anything after the headers.
        ipv4(60, 0, TCP, &[&tcp(60)[..], &[5; 100]].concat()),
        ipv4(24, 7, UDP, &[5; 100]),
        ipv6(HOP_BY_HOP, &options),
        ipv6(FRAGMENT, &first),
        ipv6(FRAGMENT, &later),
        longest.clone(),
        tagged(&tagged(&longest, 5), 6),
        // Truncated headers.
        ipv4(60, 0, TCP, &[1; 10]),
        ipv6(UDP, &[1; 7]),
    ];
    for (mode, most) in
        [(InlineMode::L2, 16384), (InlineMode::Ip, 8192), (InlineMode::TcpUdp, 8192)]
    {
        let bed = &bed.configured(|config| config.inline_mode(mode))?;
        let mut a = Station::on(bed, bed.context(), bed.port(), |builder| builder)?;
        let _rule = a.qp.attach(a.port, &back())?;
        let (mut queue, _rule) = queue_with(bed, |builder| {
            builder.receives(8).frames(64).sends(64).burst(8).checksums(false)
        })?;
        for tag in [None, Some(VlanTag::Customer(7))] {
            a.recv(frames.len());
            let of = |bytes: &Vec<u8>| {
                let mut frame = filled(&mut queue, &returned(bytes));
                frame.set_vlan(tag);
                frame
            };
            let batch: Vec<Frame> = frames.iter().map(of).collect();
            queue.send(batch)?;
            sent(bed, &mut queue);
            assert_eq!(queue.counts().failed, 0, "{mode:?}, {tag:?}");
            for frame in &frames {
                let expected = returned(frame);
                let expected = if tag.is_some() { tagged(&expected, 7) } else { expected };
                assert_eq!(a.next(bed).frame, expected, "{mode:?}");
            }
        }
        // A batch has its maximal length.
        a.recv(64);
        let batch: Vec<Frame> = (0..64).map(|_| filled(&mut queue, &returned(&longest))).collect();
        assert_eq!(queue.send(batch)?, 64);
        sent(bed, &mut queue);
        assert_eq!(queue.counts().sent, 2 * frames.len() as u64 + 64);
        let context = bed.context();
        let builder = |sends| context.create_ethernet_queue(bed.port()).frames(0).sends(sends);
        builder(most).build()?;
        let error = builder(most + 1).build().expect_err("too many");
        assert!(error.to_string().contains(&format!("{most} at most")), "{error}");
    }
    Ok(())
}

fn a_refused_frame_stops_the_queue_until_it_is_started_again(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let (mut queue, _rule) = small(bed)?;
    let before = queue.free_buffers();
    a.recv(8);
    let fault = Fault::FailRequest {
        qpn: Some(queue.qp().qp_num()),
        syndrome: Syndrome::LocalQpOperation,
        vendor: 0,
    };
    bed.simulator().inject(0, fault);
    let frames = [60, 61, 62].map(|length| filled(&mut queue, &returned(&plain(length))));
    queue.send(frames)?;
    sent(bed, &mut queue);
    assert_eq!((queue.counts().sent, queue.counts().failed), (0, 3));
    queue.restart()?;
    assert_eq!(queue.free_buffers(), before);
    a.send(bed, &plain(64));
    send_back(bed, &mut queue, 1);
    assert_eq!(a.next(bed).frame, returned(&plain(64)));
    // All receives are posted again, and each buffer once.
    let more: Vec<_> = (0..30).map(|n| plain(70 + n)).collect();
    for frame in &more {
        a.send(bed, frame);
        assert_eq!(copies(bed, &mut queue, 1), std::slice::from_ref(frame));
    }
    // While packets wait and frames are being sent.
    a.send(bed, &plain(65));
    let frame = filled(&mut queue, &returned(&plain(66)));
    queue.send([frame])?;
    bed.settle();
    queue.restart()?;
    assert_eq!((queue.free_buffers(), queue.sending()), (before, 0));
    a.send(bed, &plain(67));
    assert_eq!(copies(bed, &mut queue, 1), [plain(67)]);
    Ok(())
}

fn a_queue_sleeps_until_a_packet_arrives(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let context = bed.context();
    let channel = context.create_comp_channel()?;
    let builder = context.create_ethernet_queue(bed.port()).receives(8).channel(&channel);
    let mut queue = builder.build()?;
    let _rule = queue.attach(&to_group())?;
    assert!(!queue.wait(Some(Duration::from_millis(1)))?, "nothing has come");
    for _ in 0..20 {
        assert!(queue.arm()?, "nothing waits");
        a.send(bed, &plain(60));
        assert!(queue.wait(Some(Duration::from_secs(20)))?);
        assert!(!queue.arm()?, "a packet waits");
        assert_eq!(copies(bed, &mut queue, 1), [plain(60)]);
    }
    Ok(())
}

fn a_queue_without_a_channel_does_not_sleep(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, _rule) = small(bed)?;
    let error = queue.wait(None).expect_err("nothing has come, and no event can");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("has no channel"), "{error}");
    a.send(bed, &plain(60));
    bed.settle();
    assert!(queue.wait(None)?, "a packet waits");
    Ok(())
}

fn a_queue_without_a_buffer_wakes_when_they_come_back(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (kernel, calls) = AlteredKernel::before(bed.simulator().kernel(), Overrides::default());
    let context = devices_on(kernel)?[0].open()?;
    let channel = context.create_comp_channel()?;
    let builder = context.create_ethernet_queue(bed.port()).receives(8).frames(0).sends(8);
    let mut queue = builder.channel(&channel).build()?;
    let _rule = queue.attach(&to_group())?;
    let all = buffers(&queue);
    for n in 0..all {
        a.send(bed, &plain(60 + n));
    }
    let frames = kept(bed, &mut queue, all);
    discard(&mut queue);
    assert!(!queue.arm()?, "no packet can arrive");
    assert!(!queue.wait(Some(Duration::from_millis(2)))?, "no packet can arrive");
    let before = calls.reads.load(Relaxed);
    let awake = std::thread::scope(|scope| {
        let waits = scope.spawn(|| queue.wait(Some(Duration::from_secs(20))));
        // The wait reads events only after it has slept, so this loop waits for the first read.
        while calls.reads.load(Relaxed) == before && !waits.is_finished() {
            std::thread::yield_now();
        }
        drop(frames);
        // Packets that come before the buffers are posted are dropped.
        while !waits.is_finished() {
            a.send(bed, &plain(60));
        }
        waits.join().expect("no panic")
    })?;
    assert!(awake, "a packet waits");
    Ok(())
}

fn a_burst_is_as_long_as_it_may_be(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let (mut queue, _rule) = queue_with(bed, |builder| builder.receives(16).burst(4))?;
    for n in 0..10 {
        a.send(bed, &plain(60 + n));
    }
    bed.settle();
    let count = |queue: &mut EthernetQueue, most: usize| {
        let burst = queue.receive(|mut packets| {
            let mut count = 0;
            while count < most && packets.next().is_some() {
                count += 1;
            }
            count
        });
        burst.expect("a queue that can be polled")
    };
    // The caller may leave packets for the next call.
    assert_eq!([100, 1, 3, 100, 100].map(|most| count(&mut queue, most)), [4, 1, 3, 2, 0]);
    Ok(())
}

fn a_panic_in_a_burst_loses_no_buffer(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let (mut queue, _rule) = small(bed)?;
    for n in 0..5 {
        a.send(bed, &plain(60 + n));
    }
    bed.settle();
    a.recv(8);
    panic_of(|| {
        let burst = queue.receive(|mut packets| {
            let mut first = packets.next().expect("a packet");
            first[..6].copy_from_slice(&BACK);
            first.send();
            let _second = packets.next();
            panic!("on purpose");
        });
        burst.expect("never comes here")
    });
    assert_eq!(copies(bed, &mut queue, 3), [plain(62), plain(63), plain(64)]);
    assert_eq!(a.next(bed).frame, returned(&plain(60)));
    sent(bed, &mut queue);
    for n in 0..30 {
        a.send(bed, &plain(70 + n));
        assert_eq!(copies(bed, &mut queue, 1), [plain(70 + n)]);
    }
    queue.restart()?;
    assert_eq!(queue.free_buffers(), 4);
    Ok(())
}

fn panic_of_the_frame_source_leaves_no_frame_in_flight(bed: &Bed) -> Outcome {
    for several in [true, false] {
        let context = bed.context();
        let builder = context.create_ethernet_queue(bed.port()).multi_packet(several);
        let mut queue = builder.receives(8).frames(4).sends(8).burst(8).build()?;
        let before = queue.free_buffers();
        let mut frames: Vec<Frame> = (0..3).map(|_| filled(&mut queue, &plain(60))).collect();
        let mut next = || Some(frames.pop().expect("as it is meant to"));
        panic_of(|| queue.send(std::iter::from_fn(&mut next)));
        queue.reap()?;
        assert_eq!((queue.sending(), queue.counts().sent, queue.counts().not_sent), (0, 0, 3));
        let all: Vec<Frame> = (0..before).map_while(|_| queue.frame()).collect();
        assert_eq!(all.len(), before);
    }
    Ok(())
}

fn a_queue_that_is_dropped_sends_nothing_more_while_a_rule_stays(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let _rule = a.qp.attach(a.port, &back())?;
    let context = bed.context();
    let builder = || context.create_ethernet_queue(bed.port()).receives(8).frames(4).sends(8);
    let mut near = builder().build()?;
    let mut far = builder().beside(&near).build()?;
    let _rule = far.attach(&to_group())?;
    a.recv(8);
    bed.simulator().inject(0, Fault::Stall);
    let frame = filled(&mut near, &returned(&plain(60)));
    assert_eq!(far.send([frame])?, 1);
    drop(far);
    bed.simulator().inject(0, Fault::Resume);
    a.hears_nothing(bed);
    // Its buffer has returned.
    let all: Vec<Frame> = std::iter::from_fn(|| near.frame()).collect();
    assert_eq!(all.len(), 4);
    Ok(())
}
