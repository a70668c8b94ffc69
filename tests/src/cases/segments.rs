//! Packets that the device segments (TSO).

use crate::frames::{self, ETHERNET, Flow, tagged};
use crate::prelude::*;
use mlx5::{ErrorKind, Segmented};

pub(crate) const CASES: &[Case] = cases![
    tcp_is_cut_into_segments_that_have_headers_of_their_own: RAW_PACKETS | EVERY_MODEL,
    a_payload_in_several_pieces_is_cut_across_them: RAW_PACKETS,
    headers_are_written_around_the_end_of_the_ring: RAW_PACKETS,
    tagged_packets_are_cut_behind_their_tag: RAW_PACKETS,
    without_ip_csum_the_segments_have_the_checksums_of_the_header: RAW_PACKETS,
    segments_that_cannot_be_are_refused_before_they_are_posted: RAW_PACKETS,
    headers_that_are_not_tcps_are_an_error_of_the_request: RAW_PACKETS,
    a_queue_without_room_for_headers_takes_none: RAW_PACKETS,
];

/// Bytes of headers for which the queues have room.
const HEADER: u32 = 128;

fn stations(bed: &Bed) -> Result<Stations, Failed> {
    bed.stations_with(|a| a.max_tso_header(HEADER).max_send_wr(16), |b| b)
}

/// The expected segments of a packet, computed here: each with its lengths, identification,
/// sequence number, flags and checksums.
fn segments(flow: Flow, payload: &[u8], mss: usize) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(mss).max(1);
    let network = if flow.six { 40 } else { 20 };
    let tcp = ETHERNET + network;
    (0..count)
        .map(|index| {
            let last = index + 1 == count;
            let data = &payload[index * mss..payload.len().min((index + 1) * mss)];
            let flags = if last { flow.flags } else { flow.flags & !(frames::FIN | frames::PSH) };
            let mut frame = Flow { flags, ..flow }.bare(data);
            let sequence = 0x1122_3344_u32.wrapping_add((index * mss) as u32);
            frame[tcp + 4..tcp + 8].copy_from_slice(&sequence.to_be_bytes());
            if !flow.six {
                let id = 0x1234_u16.wrapping_add(index as u16);
                frame[18..20].copy_from_slice(&id.to_be_bytes());
            }
            frames::sum(&mut frame);
            frame
        })
        .collect()
}

/// The headers of the whole packet.
fn header(flow: Flow, payload: &[u8]) -> Vec<u8> {
    let whole = flow.bare(&payload[..payload.len().min(60_000)]);
    whole[..whole.len() - payload.len().min(60_000)].to_vec()
}

/// Sends a packet to segment, and waits for its one completion.
#[track_caller]
fn send(bed: &Bed, a: &mut Station, header: &[u8], mss: u16, payload: &[Sge], flags: SendFlags) {
    let packet = Segmented { header, mss, payload };
    a.qp.post(|batch| batch.wr(7, SendFlags::SIGNALED | flags).send_tso(packet)).expect("posted");
    assert_eq!(wr_ids(&bed.poll_good(&mut a.send_cq, 1)), [7]);
}

fn tcp_is_cut_into_segments_that_have_headers_of_their_own(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = stations(bed)?;
    let ends = Flow { flags: frames::ACK | frames::PSH | frames::FIN, ..Flow::TCP4 };
    for flow in [Flow::TCP4, Flow::TCP6, ends] {
        for (length, mss) in
            [(1, 1460), (1440, 1440), (1441, 1440), (2880, 1440), (10_000, 999), (700, 10), (64_000, 1440)]
        {
            let payload = pattern(length as u64, length);
            let expected = segments(flow, &payload, mss);
            b.recv(expected.len());
            let sge = a.at(0, &payload);
            let header = header(flow, &payload);
            send(bed, &mut a, &header, mss as u16, &[sge], SendFlags::IP_CSUM);
            for (index, segment) in expected.iter().enumerate() {
                let received = b.next(bed);
                let what = format!("segment {index} of {length} bytes by {mss}");
                assert_eq!(&received.frame[..segment.len()], segment, "{what}");
                let headers = received.completion().packet_headers().expect("of a packet");
                assert!(headers.network_ok() && headers.transport_ok(), "{what}: {headers:?}");
            }
            b.hears_nothing(bed);
        }
    }
    Ok(())
}

fn a_payload_in_several_pieces_is_cut_across_them(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = stations(bed)?;
    let payload = pattern(5, 5000);
    let pieces = [(0, 0..1), (10_000, 1..1448), (20_000, 1448..1500), (30_000, 1500..5000)];
    let sges = pieces.map(|(at, range)| a.at(at, &payload[range]));
    let expected = segments(Flow::TCP4, &payload, 1448);
    b.recv(expected.len());
    let header = header(Flow::TCP4, &payload);
    send(bed, &mut a, &header, 1448, &sges, SendFlags::IP_CSUM);
    for segment in expected {
        assert_eq!(b.next(bed).frame, segment);
    }
    Ok(())
}

fn headers_are_written_around_the_end_of_the_ring(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = stations(bed)?;
    let blocks = a.qp.caps().send_blocks as usize;
    for round in 0..2 * blocks {
        let flow = if round % 3 == 0 { Flow::TCP6 } else { Flow::TCP4 };
        let payload = pattern(round as u64, 100 + round);
        let expected = segments(flow, &payload, 90);
        b.recv(expected.len());
        let sge = a.at(0, &payload);
        let header = header(flow, &payload);
        send(bed, &mut a, &header, 90, &[sge], SendFlags::IP_CSUM);
        for segment in expected {
            assert_eq!(&b.next(bed).frame[..segment.len()], segment, "round {round}");
        }
    }
    Ok(())
}

fn tagged_packets_are_cut_behind_their_tag(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = stations(bed)?;
    let payload = pattern(8, 3000);
    let expected = segments(Flow::TCP4, &payload, 1000);
    b.recv(expected.len());
    let sge = a.at(0, &payload);
    let header = tagged(&header(Flow::TCP4, &payload), 0x4007);
    send(bed, &mut a, &header, 1000, &[sge], SendFlags::IP_CSUM);
    for segment in expected {
        assert_eq!(b.next(bed).frame, tagged(&segment, 0x4007));
    }
    Ok(())
}

fn without_ip_csum_the_segments_have_the_checksums_of_the_header(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = stations(bed)?;
    let payload = pattern(9, 2000);
    b.recv(2);
    let sge = a.at(0, &payload);
    let mut header = header(Flow::TCP4, &payload);
    header[50..52].copy_from_slice(&[0xab, 0xcd]);
    send(bed, &mut a, &header, 1000, &[sge], SendFlags::empty());
    for part in payload.chunks(1000) {
        let received = b.next(bed);
        assert_eq!(received.frame[50..52], [0xab, 0xcd]);
        assert_eq!(&received.frame[frames::TCP4..], part);
        assert_eq!(received.completion().checksum_ok(), Some(false));
    }
    Ok(())
}

fn segments_that_cannot_be_are_refused_before_they_are_posted(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = stations(bed)?;
    let most = a.context.query_device().ethernet.max_tso;
    let sge = a.at(0, &[1; 100]);
    let whole = header(Flow::TCP4, &[0; 100]);
    let long = Sge { length: most, ..sge };
    for (header, mss, payload, refusal) in [
        (&whole[..], 0, &[sge][..], PostError::TsoSegmentSize),
        (&whole[..13], 100, &[sge], PostError::TsoHeader { length: 13, max: HEADER }),
        (&[0; 129], 100, &[sge], PostError::TsoHeader { length: 129, max: HEADER }),
    ] {
        let packet = Segmented { header, mss, payload };
        let refused = a.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send_tso(packet));
        assert_eq!(refused.expect_err("refused").error(), refusal);
    }
    let packet = Segmented { header: &whole, mss: 1000, payload: &[long] };
    let refused = a.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send_tso(packet));
    let refused = refused.expect_err("longer than the device cuts").error();
    assert!(matches!(refused, PostError::MessageTooLong { .. }), "{refused:?}");
    // Nothing of the request was posted.
    b.recv(1);
    send(bed, &mut a, &whole, 1000, &[sge], SendFlags::IP_CSUM);
    assert_eq!(b.next(bed).frame.len(), whole.len() + 100);
    b.hears_nothing(bed);
    Ok(())
}

fn headers_that_are_not_tcps_are_an_error_of_the_request(bed: &Bed) -> Outcome {
    let whole = header(Flow::TCP4, &[0; 100]);
    let mut no_network = whole.clone();
    no_network[12] = 0x99;
    let mut short = whole.clone();
    short.truncate(40);
    for header in [no_network, short] {
        let Stations { mut a, mut b, rule: _rule } = stations(bed)?;
        b.recv(4);
        let sge = a.at(0, &[1; 100]);
        let packet = Segmented { header: &header, mss: 50, payload: &[sge] };
        a.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED | SendFlags::IP_CSUM).send_tso(packet))?;
        assert_eq!(syndrome(&bed.poll_one(&mut a.send_cq)), Some(Syndrome::LocalQpOperation));
        b.hears_nothing(bed);
        // The queue pair has failed. A reset makes it usable again.
        a.qp.reset()?;
        a.qp.activate(a.port)?;
        a.send(bed, &frames::plain(60));
        assert_eq!(b.next(bed).frame, frames::plain(60));
    }
    Ok(())
}

fn a_queue_without_room_for_headers_takes_none(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let sge = a.at(0, &[1; 100]);
    let whole = header(Flow::TCP4, &[0; 100]);
    let packet = Segmented { header: &whole, mss: 50, payload: &[sge] };
    let refused = a.qp.post(|batch| batch.wr(1, SendFlags::SIGNALED).send_tso(packet));
    let refused = refused.expect_err("refused").error();
    assert_eq!(refused, PostError::TsoHeader { length: whole.len() as u32, max: 0 });
    let builder = a.pd.create_qp::<mlx5::transport::RawPacket>(&a.send_cq, &a.recv_cq);
    let error = builder.max_tso_header(2000).build().expect_err("no request has such headers");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    Ok(())
}
