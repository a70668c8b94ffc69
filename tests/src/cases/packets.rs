//! Raw packet queue pairs: frames that are sent and received, and their completions.

use crate::frames::{self, ETHERNET, Flow, GROUP, SOURCE, ones_sum, plain, tagged};
use crate::prelude::*;
use mlx5::flow::Rule;
use mlx5::{Errno, ErrorKind, NetworkHeader, RateLimit, TransportHeader, VlanTag};
use mlx5_prm::ethernet::InlineMode;
use mlx5_sim::firmware::Counts;
use std::time::Duration;

pub(crate) const CASES: &[Case] = cases![
    a_frame_reaches_the_queue_pair_that_its_rule_names: RAW_PACKETS | EVERY_MODEL,
    frames_cross_the_wire_between_two_devices: RAW_PACKETS | SIMULATOR,
    receives_that_are_posted_before_the_queue_pair_is_ready_are_used: RAW_PACKETS,
    a_queue_pair_receives_its_own_frames_only_if_it_was_made_so: RAW_PACKETS,
    frames_of_many_batches_arrive_in_order_around_both_rings: RAW_PACKETS,
    checksums_of_received_packets_are_judged: RAW_PACKETS | EVERY_MODEL,
    the_checksum_of_a_completion_covers_the_packet: RAW_PACKETS,
    checksums_are_computed_where_that_is_asked_for: RAW_PACKETS,
    vlan_tags_are_inserted_and_stripped: RAW_PACKETS,
    a_tag_that_is_not_stripped_is_part_of_the_frame: RAW_PACKETS,
    the_frame_check_sequence_is_received_where_that_is_asked_for: RAW_PACKETS,
    a_device_that_needs_the_header_inline_gets_it: RAW_PACKETS | SIMULATOR,
    inline_data_and_several_entries_make_one_frame: RAW_PACKETS,
    several_packets_of_one_request_are_sent_in_order: RAW_PACKETS,
    several_packets_in_one_request_are_sent_in_order: RAW_PACKETS,
    a_request_of_several_packets_has_only_good_ones: RAW_PACKETS,
    unreceived_requests_are_flushed_and_the_queue_pair_starts_again: RAW_PACKETS,
    a_queue_pair_sends_no_faster_than_its_rate: RAW_PACKETS | STEP,
    nothing_is_left_of_a_station_however_it_is_dropped: RAW_PACKETS | SIMULATOR,
];

fn a_frame_reaches_the_queue_pair_that_its_rule_names(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule } = bed.stations()?;
    b.recv(3);
    for frame in [plain(60), Flow::UDP4.frame(&[7; 100]), plain(1514)] {
        a.send(bed, &frame);
        let received = b.next(bed);
        assert_eq!(received.frame, frame);
        assert_eq!(received.completion().opcode(), mlx5::CompletionOpcode::Receive);
        assert!(received.completion().timestamp().is_some());
    }
    drop(rule);
    b.recv(1);
    a.send(bed, &plain(60));
    b.hears_nothing(bed);
    Ok(())
}

fn frames_cross_the_wire_between_two_devices(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.devices(2))?;
    let far = bed.on_device(1);
    let mut a = bed.station()?;
    let mut b = far.station()?;
    let _rule = b.qp.attach(b.port, &to_group())?;
    b.recv(4);
    for frame in [plain(60), plain(1514), Flow::TCP6.frame(b"over the wire")] {
        a.send(&bed, &frame);
        assert_eq!(b.next(&bed).frame, frame);
    }
    // A frame on the wire has at least 60 bytes; the device pads it with zeros.
    a.send(&bed, &plain(20));
    let received = b.next(&bed).frame;
    assert_eq!(received, [plain(20), vec![0; 40]].concat());
    Ok(())
}

fn receives_that_are_posted_before_the_queue_pair_is_ready_are_used(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let _rule = b.qp.attach(b.port, &to_group())?;
    b.qp.reset()?;
    b.qp.modify(&QpAttributes::new().qp_state(QueueState::Init).port_num(b.port))?;
    b.recv(2);
    b.qp.activate(b.port)?;
    for length in [60, 61] {
        a.send(bed, &plain(length));
        assert_eq!(b.next(bed).frame, plain(length));
    }
    Ok(())
}

fn a_queue_pair_receives_its_own_frames_only_if_it_was_made_so(bed: &Bed) -> Outcome {
    for asks in [true, false] {
        let context = bed.context();
        let mut own = Station::on(bed, context.clone(), bed.port(), |builder| {
            builder.self_loopback(asks, asks)
        })?;
        let _rule = own.qp.attach(own.port, &to_group())?;
        own.recv(1);
        own.send(bed, &plain(80));
        if asks {
            assert_eq!(own.next(bed).frame, plain(80));
        } else {
            own.hears_nothing(bed);
            // Frames of another context arrive as soon as there is one; the station's own still do
            // not come back.
            let mut other = bed.station()?;
            other.send(bed, &plain(90));
            assert_eq!(own.next(bed).frame, plain(90));
            own.recv(1);
            own.send(bed, &plain(100));
            own.hears_nothing(bed);
        }
    }
    Ok(())
}

fn frames_of_many_batches_arrive_in_order_around_both_rings(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    let mut sent = 0_usize;
    for batch in [1, 7, 32, 3, 40, 31, 2, 64, 5] {
        b.recv(batch);
        let frames: Vec<Vec<u8>> = (0..batch)
            .map(|n| {
                let mut frame = plain(60 + (sent + n) * 13 % 500);
                frame[ETHERNET..ETHERNET + 8].copy_from_slice(&((sent + n) as u64).to_be_bytes());
                frame
            })
            .collect();
        let sges: Vec<Sge> =
            frames.iter().enumerate().map(|(n, frame)| a.at(n * SLOT, frame)).collect();
        a.qp.post(|posts| {
            for (n, sge) in sges.iter().enumerate() {
                let flags = if n + 1 == batch { SendFlags::SIGNALED } else { SendFlags::empty() };
                posts.wr(n as u64, flags).send().sge(*sge);
            }
        })?;
        bed.poll_good(&mut a.send_cq, 1);
        for frame in frames {
            assert_eq!(b.next(bed).frame, frame);
        }
        sent += batch;
    }
    Ok(())
}

fn checksums_of_received_packets_are_judged(bed: &Bed) -> Outcome {
    use NetworkHeader::{Ipv4, Ipv6};
    use TransportHeader::{Tcp, TcpAck, TcpEmptyAck, Udp};
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    let data = b"some data, an odd number of bytes, and more than the shortest frame needs";
    let ack = Flow { flags: frames::ACK, ..Flow::TCP4 };
    let syn = Flow { flags: 2, ..Flow::TCP4 };
    for (flow, network, transport, payload) in [
        (Flow::UDP4, Ipv4, Udp, &data[..]),
        (Flow::TCP4, Ipv4, TcpAck, data),
        (Flow::UDP6, Ipv6, Udp, data),
        (Flow::TCP6, Ipv6, TcpAck, data),
        (ack, Ipv4, TcpEmptyAck, b""),
        (syn, Ipv4, Tcp, b""),
    ] {
        let good = flow.frame(payload);
        let mut bad_transport = good.clone();
        frames::spoil_transport(&mut bad_transport);
        let mut bad_network = good.clone();
        // The time to live, which the checksum of IPv4 covers, and nothing else.
        bad_network[22] ^= 1;
        let four = network == Ipv4;
        let mut frames = vec![(good, true, true), (bad_transport, true, false)];
        if four {
            frames.push((bad_network, false, true));
        }
        for (frame, network_ok, transport_ok) in frames {
            b.recv(1);
            a.send(bed, &frame);
            let received = b.next(bed);
            assert_eq!(&received.frame[..frame.len()], frame);
            let headers = received.completion().packet_headers().expect("of a packet");
            assert_eq!(headers.network(), Some(network), "{headers:?}");
            assert_eq!(headers.transport(), Some(transport), "{headers:?}");
            assert_eq!((headers.network_ok(), headers.transport_ok()), (network_ok, transport_ok));
            let whole = four && network_ok && transport_ok;
            assert_eq!(received.completion().checksum_ok(), Some(whole));
        }
    }
    b.recv(1);
    a.send(bed, &plain(60));
    let received = b.next(bed);
    let headers = received.completion().packet_headers().expect("of a packet");
    assert_eq!((headers.network(), headers.transport()), (None, None));
    assert!(!headers.network_ok() && !headers.transport_ok());
    Ok(())
}

fn the_checksum_of_a_completion_covers_the_packet(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    for frame in [
        Flow::UDP4.frame(&pattern(1, 200)),
        Flow::TCP6.frame(&pattern(2, 333)),
        Flow::TCP4.frame(&pattern(3, 1001)),
    ] {
        b.recv(1);
        a.send(bed, &frame);
        let sum = ones_sum(&[&frame[ETHERNET..]]);
        assert_eq!(b.next(bed).completion().checksum(), Some(sum));
    }
    Ok(())
}

fn checksums_are_computed_where_that_is_asked_for(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    for flow in [Flow::UDP4, Flow::TCP4, Flow::UDP6, Flow::TCP6] {
        for length in [0, 1, 18, 501, 1400] {
            let payload = pattern(length as u64, length);
            let right = flow.frame(&payload);
            // The content of the checksum fields does not matter: drivers put the sum of the pseudo
            // header there.
            let mut garbage = right.clone();
            frames::spoil_transport(&mut garbage);
            for frame in [flow.bare(&payload), garbage] {
                b.recv(2);
                a.send_with(bed, &frame, SendFlags::IP_CSUM);
                assert_eq!(&b.next(bed).frame[..right.len()], right, "{length} bytes");
                a.send(bed, &frame);
                assert_eq!(&b.next(bed).frame[..frame.len()], frame, "unchanged");
            }
        }
    }
    // The checksum of UDP is never zero, because zero stands for no checksum.
    let mut payload = vec![0; 40];
    let plain_sum = ones_sum(&[&Flow::UDP4.frame(&payload)[40..42]]);
    payload[..2].copy_from_slice(&plain_sum.to_be_bytes());
    b.recv(1);
    a.send_with(bed, &Flow::UDP4.bare(&payload), SendFlags::IP_CSUM);
    assert_eq!(b.next(bed).frame[40..42], [0xff, 0xff]);
    // A frame without a network header is sent unchanged.
    b.recv(1);
    a.send_with(bed, &plain(99), SendFlags::IP_CSUM);
    assert_eq!(b.next(bed).frame, plain(99));
    Ok(())
}

fn vlan_tags_are_inserted_and_stripped(bed: &Bed) -> Outcome {
    let stations = bed.stations_with(|a| a, |b| b.vlan_stripping(true))?;
    let Stations { mut a, mut b, rule: _rule } = stations;
    let frame = Flow::UDP4.frame(&[9; 50]);
    for (flags, sent) in [
        (SendFlags::empty(), frame.clone()),
        (SendFlags::IP_CSUM, Flow::UDP4.bare(&[9; 50])),
    ] {
        for tag in [0, 1, 0x2123, 0xffff] {
            b.recv(1);
            let sge = a.at(0, &sent);
            a.qp.post(|batch| {
                let request = batch.wr(1, SendFlags::SIGNALED | flags).send();
                request.insert_vlan(VlanTag::Customer(tag)).sge(sge);
            })?;
            bed.poll_good(&mut a.send_cq, 1);
            let received = b.next(bed);
            assert_eq!(received.frame, frame, "without the tag");
            assert_eq!(received.completion().vlan(), Some(tag));
            let headers = received.completion().packet_headers().expect("of a packet");
            assert!(headers.transport_ok(), "{headers:?}");
        }
    }
    b.recv(1);
    a.send(bed, &frame);
    let received = b.next(bed);
    assert_eq!((received.frame.len(), received.completion().vlan()), (frame.len(), None));
    Ok(())
}

fn a_tag_that_is_not_stripped_is_part_of_the_frame(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    let frame = Flow::TCP4.frame(&[4; 70]);
    b.recv(3);
    let sge = a.at(0, &frame);
    for tag in [VlanTag::Customer(0x3064), VlanTag::Service(0x0fff)] {
        a.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().insert_vlan(tag).sge(sge))?;
        bed.poll_good(&mut a.send_cq, 1);
        let (kind, control) = match tag {
            VlanTag::Customer(control) => (0x8100, control),
            VlanTag::Service(control) => (0x88a8_u16, control),
        };
        let mut expected = tagged(&frame, control);
        expected[12..14].copy_from_slice(&u16::to_be_bytes(kind));
        let received = b.next(bed);
        assert_eq!(received.frame, expected);
        assert_eq!(received.completion().vlan(), None);
        let headers = received.completion().packet_headers().expect("of a packet");
        assert!(headers.network_ok() && headers.transport_ok(), "behind the tag: {headers:?}");
    }
    // A tag that software put into the frame.
    a.send(bed, &tagged(&frame, 5));
    assert_eq!(b.next(bed).frame, tagged(&frame, 5));
    Ok(())
}

/// The frame check sequence: CRC-32, in the order of the wire.
fn crc32(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
        }
    }
    (!crc).to_le_bytes()
}

fn the_frame_check_sequence_is_received_where_that_is_asked_for(bed: &Bed) -> Outcome {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926_u32.to_le_bytes(), "the published check value");
    let stations = bed.stations_with(|a| a, |b| b.scatter_fcs(true))?;
    let Stations { mut a, mut b, rule: _rule } = stations;
    for frame in [plain(60), Flow::UDP4.frame(&[1; 77]), plain(1514)] {
        b.recv(1);
        a.send(bed, &frame);
        assert_eq!(b.next(bed).frame, [&frame[..], &crc32(&frame)].concat());
    }
    Ok(())
}

fn a_device_that_needs_the_header_inline_gets_it(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.inline_mode(InlineMode::L2))?;
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    let frame = Flow::UDP4.frame(&[3; 90]);
    let sge = a.at(0, &frame);
    let refused = a.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().sge(sge));
    assert_eq!(refused.expect_err("no header inline").error(), PostError::InlineHeaderMissing);
    let (header, rest) = frame.split_first_chunk::<18>().expect("a header");
    let sge = a.at(0, rest);
    b.recv(2);
    for flags in [SendFlags::empty(), SendFlags::IP_CSUM] {
        a.qp.post(|batch| {
            batch.wr(2, SendFlags::SIGNALED | flags).send().inline_header(header).sge(sge);
        })?;
        bed.poll_good(&mut a.send_cq, 1);
        assert_eq!(b.next(&bed).frame, frame);
    }
    Ok(())
}

fn inline_data_and_several_entries_make_one_frame(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    b.recv(2);
    let frame = plain(64);
    a.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().inline_data(&frame))?;
    bed.poll_good(&mut a.send_cq, 1);
    assert_eq!(b.next(bed).frame, frame);
    let frame = plain(700);
    let entries = [(0, 0..1), (1000, 1..14), (2000, 14..400), (5000, 400..700)];
    let sges = entries.map(|(at, range)| a.at(at, &frame[range]));
    a.qp.post(|batch| batch.wr(2, SendFlags::SIGNALED).send().sge_list(&sges))?;
    bed.poll_good(&mut a.send_cq, 1);
    assert_eq!(b.next(bed).frame, frame);
    Ok(())
}

fn several_packets_of_one_request_are_sent_in_order(bed: &Bed) -> Outcome {
    let stations = bed.stations_with(|a| a.max_send_sge(20), |b| b)?;
    let Stations { mut a, mut b, rule: _rule } = stations;
    for (round, count) in [1, 2, 3, 20, 6, 7, 20, 20, 5, 20, 19].into_iter().enumerate() {
        b.recv(count);
        let flow = |n| Flow::UDP4.bare(&pattern(n as u64, 18 + round + 11 * n));
        let sges: Vec<Sge> = (0..count).map(|n| a.at(n * SLOT, &flow(n))).collect();
        a.qp.post(|batch| {
            let flags = SendFlags::SIGNALED | SendFlags::IP_CSUM;
            batch.wr(round as u64, flags).send_packets(&sges);
        })?;
        let completion = bed.poll_good(&mut a.send_cq, 1)[0];
        assert_eq!(completion.as_completion().opcode(), CompletionOpcode::Send);
        assert_eq!(completion.as_completion().wr_id(), round as u64);
        for n in 0..count {
            let right = Flow::UDP4.frame(&pattern(n as u64, 18 + round + 11 * n));
            assert_eq!(b.next(bed).frame, right, "packet {n} of {count}");
        }
    }
    Ok(())
}

fn several_packets_in_one_request_are_sent_in_order(bed: &Bed) -> Outcome {
    let stations = bed.stations_with(|a| a.max_inline_data(900), |b| b)?;
    let Stations { mut a, mut b, rule: _rule } = stations;
    // The queue wraps, with requests of other sizes at the end of the ring.
    for (round, count) in [1, 2, 9, 3, 8, 9, 9, 5, 9, 4].into_iter().cycle().take(60).enumerate() {
        b.recv(count);
        let payload = |n: usize| pattern(n as u64, 18 + (round + 5 * n) % 30);
        let mut frames: Vec<Vec<u8>> =
            (0..count).map(|n| Flow::UDP4.bare(&payload(n))).collect();
        a.qp.post(|batch| {
            let flags = SendFlags::SIGNALED | SendFlags::IP_CSUM;
            let list: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            batch.wr(round as u64, flags).send_packets_inline(&list);
        })?;
        // The memory belongs to the program again.
        frames.iter_mut().for_each(|frame| frame.fill(0xee));
        let completion = bed.poll_good(&mut a.send_cq, 1)[0];
        assert_eq!(completion.as_completion().opcode(), CompletionOpcode::Send);
        assert_eq!(completion.as_completion().wr_id(), round as u64);
        for n in 0..count {
            assert_eq!(b.next(bed).frame, Flow::UDP4.frame(&payload(n)), "packet {n} of {count}");
        }
    }
    let max = a.qp.caps().max_inline_data;
    let refused = a.qp.post(|batch| {
        batch.wr(1, SendFlags::SIGNALED).send_packets_inline(&[&plain(max as usize + 1)]);
    });
    let length = (max + 1 + 4).next_multiple_of(16) - 4;
    assert_eq!(refused.expect_err("too much").error(), PostError::InlineTooLong { length, max });
    bed.nothing(&mut a.send_cq);
    Ok(())
}

fn a_request_of_several_packets_has_only_good_ones(bed: &Bed) -> Outcome {
    let stations = bed.stations_with(|a| a.max_send_sge(4), |b| b)?;
    let Stations { mut a, mut b, rule: _rule } = stations;
    let most = a.qp.caps().max_send_sge as usize;
    let good = a.at(0, &plain(60));
    let short = Sge { length: ETHERNET as u32 - 1, ..good };
    for (packets, error) in [
        (vec![], PostError::PacketTooShort { index: 0, length: 0 }),
        (vec![good, good, short], PostError::PacketTooShort { index: 2, length: 13 }),
        (vec![Sge::default(), good], PostError::PacketTooShort { index: 0, length: 0 }),
        (
            vec![good; most + 1],
            PostError::TooManySges { given: most as u32 + 1, max: most as u32 },
        ),
    ] {
        let refused = a.qp.post(|batch| {
            batch.wr(1, SendFlags::SIGNALED).send().sge(good);
            batch.wr(2, SendFlags::SIGNALED).send_packets(&packets);
        });
        let refused = refused.expect_err("a bad request");
        assert_eq!((refused.index(), refused.error()), (1, error));
    }
    bed.nothing(&mut a.send_cq);
    // One that is just long enough.
    b.recv(2);
    let least = Sge { length: ETHERNET as u32, ..good };
    a.qp.post(|batch| batch.wr(3, SendFlags::SIGNALED).send_packets(&[least, good]))?;
    bed.poll_good(&mut a.send_cq, 1);
    assert_eq!(b.next(bed).frame[..ETHERNET], plain(60)[..ETHERNET]);
    assert_eq!(b.next(bed).frame, plain(60));
    Ok(())
}

fn unreceived_requests_are_flushed_and_the_queue_pair_starts_again(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    b.recv(5);
    a.send(bed, &plain(60));
    b.next(bed);
    b.qp.to_error()?;
    let rest = bed.poll(&mut b.recv_cq, 4);
    assert_eq!(flushed(&rest), [1, 2, 3, 4]);
    let sge = b.at(0, &plain(60));
    b.qp.post(|batch| batch.wr(9, SendFlags::SIGNALED).send().sge(sge))?;
    assert_eq!(flushed(&bed.poll(&mut b.send_cq, 1)), [9]);
    b.qp.reset()?;
    b.qp.activate(b.port)?;
    b.recv(1);
    a.send(bed, &plain(61));
    assert_eq!(b.next(bed).frame, plain(61));
    Ok(())
}

fn a_queue_pair_sends_no_faster_than_its_rate(bed: &Bed) -> Outcome {
    /// Frames of a measurement, and the time of one at the rate `SLOW`, in kilobits a second.
    const FRAMES: u32 = 5;
    const BYTES: usize = 1000;
    const SLOW: u32 = 8_000;
    const EACH: Duration = Duration::from_millis(1);
    let mut a = bed.station()?;
    let caps = a.context.query_device().ethernet;
    let (least, most) = caps.rate_limits;
    assert!((1..=SLOW).contains(&least) && most > 10 * SLOW && caps.bursts, "{caps:?}");
    let now = || bed.simulator().now();
    let time = |a: &mut Station| {
        let began = now();
        for _ in 0..FRAMES {
            a.send(bed, &plain(BYTES));
        }
        now() - began
    };
    let reported = |a: &Station| {
        let fabric = bed.simulator().fabric().lock();
        let limit = fabric.device(0).rate_limit(a.qp.qp_num());
        limit.map(|limit| (limit.rate, limit.burst, limit.typical_packet))
    };
    let limit = |rate| RateLimit { rate, ..RateLimit::default() };
    assert!(time(&mut a) < EACH);
    assert_eq!(reported(&a), None);
    // The first frame does not wait.
    a.qp.set_rate_limit(limit(SLOW))?;
    let slow = time(&mut a);
    assert!(slow >= EACH * (FRAMES - 1) && slow < EACH * (FRAMES + 1), "{slow:?}");
    assert_eq!(reported(&a), Some((SLOW, 0, 0)));
    a.qp.set_rate_limit(limit(10 * SLOW))?;
    let fast = time(&mut a);
    assert!(fast >= EACH * (FRAMES - 1) / 10 && fast < EACH, "{fast:?}");
    a.qp.set_rate_limit(RateLimit { max_burst: 4 * BYTES as u32, typical_packet: 64, ..limit(SLOW) })?;
    assert!(time(&mut a) < EACH, "a burst at line rate");
    assert_eq!(reported(&a), Some((SLOW, 4 * BYTES as u32, 64)));
    // A limit beyond the device's changes nothing, whether the driver or the kernel refuses it.
    let refused = a.qp.set_rate_limit(limit(most + 1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    let ready = || QpAttributes::new().qp_state(QueueState::ReadyToSend);
    let refused = a.qp.modify(&ready().rate_limit(most + 1)).unwrap_err();
    assert_eq!(refused.errno(), Some(Errno::EINVAL), "{refused}");
    assert_eq!(reported(&a), Some((SLOW, 4 * BYTES as u32, 64)));
    // Queues with the same limit share one entry of the device, which stays until the last of them
    // gives it up.
    let mut b = bed.station()?;
    for station in [&mut a, &mut b] {
        station.qp.set_rate_limit(limit(3 * SLOW))?;
    }
    drop(b);
    assert_eq!(reported(&a), Some((3 * SLOW, 0, 0)));
    a.qp.set_rate_limit(limit(0))?;
    assert_eq!(reported(&a), None);
    assert!(time(&mut a) < EACH);
    // A queue pair that starts again has no limit.
    a.qp.set_rate_limit(limit(SLOW))?;
    a.qp.reset()?;
    a.qp.activate(a.port)?;
    assert_eq!(reported(&a), None);
    assert!(time(&mut a) < EACH);
    Ok(())
}

fn nothing_is_left_of_a_station_however_it_is_dropped(bed: &Bed) -> Outcome {
    let count = || bed.simulator().object_counts(0);
    assert_eq!(count(), Counts::default());
    for order in 0..3 {
        let Stations { a, mut b, rule } = bed.stations()?;
        b.recv(3);
        match order {
            0 => drop((rule, b, a)),
            1 => drop((a, b, rule)),
            _ => {
                let counters = b.context.create_flow_counters()?;
                let counted = b.qp.attach(b.port, &Rule::new().count(&counters))?;
                drop((counters, b, rule, counted, a));
            }
        }
        assert_eq!(count(), Counts::default(), "order {order}");
    }
    assert_eq!((GROUP[0] & 1, SOURCE[0] & 1), (1, 0), "the group is one, the source is none");
    Ok(())
}
