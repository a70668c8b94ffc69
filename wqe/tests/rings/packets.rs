//! Requests of raw packet queues: the Ethernet segment with inline headers, tags and checksums, and
//! packets that the device cuts into segments.

use crate::bed::{Bed, Spec};
use crate::by_hand::{Wqe, pattern, sges};
use mlx5_wqe::{
    AnyBatch, Data, Operation, PostError, RawPacket, Rc, Segmented, SendFlags, SendLayout, SendOps,
    SendWr, Sge, VlanTag,
};

const SPEC: Spec = Spec {
    requests: 16,
    sges: 3,
    inline: 60,
    signal_all: false,
    atomics: false,
    blueflame: 512,
    max_message: 1 << 30,
};
const SIGNALED: SendFlags = SendFlags::SIGNALED;
const CHECKED: SendFlags = SIGNALED.union(SendFlags::IP_CSUM);
const SGE: Sge = Sge { addr: 0x1122_3344_5566_7788, length: 60, lkey: 0x99aa_bbcc };

/// A SEND with the Ethernet segment given by its bytes.
fn packet(index: u16, control: u8, segment: &[u8]) -> Wqe {
    Wqe::control(0x0a, index, control, [0; 4]).with(segment)
}

/// An Ethernet segment without inline headers.
fn bare(checksums: u8, insert: [u8; 4]) -> [u8; 16] {
    let [a, b, c, d] = insert;
    [0, 0, 0, 0, checksums, 0, 0, 0, 0, 0, 0, 0, a, b, c, d]
}

fn layout(header: u32) -> SendLayout {
    SendLayout::with_tso::<RawPacket>(16, 3, 60, SendOps::TSO, header).unwrap()
}

/// A queue that takes packets to be cut, of up to `header` bytes of headers.
fn cutting(header: u32, max_total: u32) -> Bed<RawPacket> {
    let layout = layout(header);
    let mut bed = Bed::with_layout(SPEC, layout);
    bed.queue.take_segmented(&layout, max_total);
    bed
}

/// The WQE of a packet to be cut.
fn segmented(index: u16, checksums: u8, header: &[u8], mss: u16, payload: &[Sge]) -> Wqe {
    let mut segment = vec![0, 0, 0, 0, checksums, 0];
    segment.extend(mss.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend((header.len() as u16).to_be_bytes());
    segment.extend(header);
    segment.resize(segment.len().next_multiple_of(16), 0);
    let wqe = Wqe::control(0x0e, index, 8, [0; 4]).with(&segment);
    payload.iter().fold(wqe, |wqe, &sge| wqe.sge(sge))
}

#[test]
fn a_packet_of_one_entry_in_full() {
    let mut bed = Bed::<RawPacket>::new(SPEC);
    let mut batch = bed.queue.wr_start();
    batch.wr(1, CHECKED).send().sge(SGE);
    batch.complete().unwrap();
    #[rustfmt::skip]
    let expected = [
        0, 0, 0, 0x0a, 0xc0, 0xff, 0xee, 3, 0, 0, 0, 0x08, 0, 0, 0, 0,
        0, 0, 0, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 60, 0x99, 0xaa, 0xbb, 0xcc, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
    ];
    assert_eq!(bed.ring.read(0, 48), expected);
    assert_eq!(bed.uar.read(0x800, 48), expected);
    assert_eq!(bed.record.all(), [0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn every_form_of_data_follows_the_segment() {
    let mut bed = Bed::<RawPacket>::new(SPEC);
    let all = sges(bed.layout.max_sge as usize);
    let bytes = pattern(bed.layout.max_inline as usize);
    for flags in [SIGNALED, CHECKED] {
        let segment = bare(if flags == CHECKED { 0xc0 } else { 0 }, [0; 4]);
        for count in 1..=all.len() {
            for list in [false, true] {
                bed.advance();
                let (first, uar) = (bed.queue.producer(), bed.uar.all());
                if list {
                    let data = Data::Sges(&all[..count]);
                    let wr = SendWr { wr_id: 1, flags, data, ..SendWr::default() };
                    bed.queue.post_send(&[wr]).unwrap();
                } else {
                    let mut batch = bed.queue.wr_start();
                    batch.wr(1, flags).send().sge_list(&all[..count]);
                    batch.complete().unwrap();
                }
                let wqe = packet(first, 8, &segment);
                let wqe = all[..count].iter().fold(wqe, |wqe, &sge| wqe.sge(sge));
                bed.assert_rang_alone(first.into(), &wqe, &uar);
                assert_eq!(bed.retire(first.into()).unwrap().info.opcode_bits(), 0x0a);
            }
        }
        for length in [1, 14, 60, bytes.len()] {
            bed.advance();
            let (first, uar) = (bed.queue.producer(), bed.uar.all());
            let mut batch = bed.queue.wr_start();
            batch.wr(1, flags).send().inline_data(&bytes[..length]);
            batch.complete().unwrap();
            let wqe = packet(first, 8, &segment).inline(&bytes[..length]);
            bed.assert_rang_alone(first.into(), &wqe, &uar);
            bed.retire(first.into()).unwrap();
        }
    }
}

#[test]
fn a_tag_to_insert_takes_the_place_of_inline_headers() {
    let mut bed = Bed::<RawPacket>::new(SPEC);
    for (tag, insert) in [
        (VlanTag::Customer(0x6123), [0x80, 0, 0x61, 0x23]),
        (VlanTag::Service(0xffff), [0x80, 1, 0xff, 0xff]),
        (VlanTag::Customer(0), [0x80, 0, 0, 0]),
    ] {
        let (first, uar) = (bed.queue.producer(), bed.uar.all());
        let mut batch = bed.queue.wr_start();
        batch.wr(1, CHECKED).send().insert_vlan(tag).sge(SGE);
        batch.complete().unwrap();
        let wqe = packet(first, 8, &bare(0xc0, insert)).sge(SGE);
        bed.assert_rang_alone(first.into(), &wqe, &uar);
        bed.retire(first.into()).unwrap();
    }
}

#[test]
fn an_inline_header_fills_two_units() {
    let mut bed = Bed::<RawPacket>::new(SPEC);
    let header: [u8; 18] = pattern(18).try_into().unwrap();
    // The first one takes the fast path, the second one the slow path.
    for entries in [&[SGE][..], &[SGE, SGE]] {
        let (first, uar) = (bed.queue.producer(), bed.uar.all());
        let mut batch = bed.queue.wr_start();
        let request = batch.wr(1, SIGNALED).send().inline_header(&header);
        match entries {
            [one] => request.sge(*one),
            list => request.sge_list(list),
        }
        batch.complete().unwrap();
        let mut segment = bare(0, [0, 18, header[0], header[1]]).to_vec();
        segment.extend(&header[2..]);
        let wqe = packet(first, 8, &segment);
        let wqe = entries.iter().fold(wqe, |wqe, &sge| wqe.sge(sge));
        bed.assert_rang_alone(first.into(), &wqe, &uar);
        bed.retire(first.into()).unwrap();
    }
}

#[test]
fn inline_headers_fill_as_many_units_as_they_have() {
    let spec = Spec { inline: 146, ..SPEC };
    let mut bed = Bed::<RawPacket>::new(spec);
    let most = bed.layout.max_sge as usize;
    for (flags, checksums) in [(SIGNALED, 0), (CHECKED, 0xc0)] {
        for length in [14, 15, 18, 19, 22, 34, 35, 54, 146] {
            let header = pattern(length);
            // Units of the segment besides the first one.
            let more = (length - 2).div_ceil(16);
            let room = 2 + most - (1 + more);
            for entries in [&[][..], &[SGE], &vec![SGE; room]] {
                bed.advance();
                let (first, uar) = (bed.queue.producer(), bed.uar.all());
                let mut batch = bed.queue.wr_start();
                batch.wr(1, flags).send().inline_headers(&header, entries);
                batch.complete().unwrap();
                let mut segment = bare(checksums, [0, length as u8, header[0], header[1]]).to_vec();
                segment.extend(&header[2..]);
                segment.resize(16 + 16 * more, 0);
                let wqe = packet(first, 8, &segment);
                let wqe = entries.iter().fold(wqe, |wqe, &sge| wqe.sge(sge));
                bed.assert_rang_alone(first.into(), &wqe, &uar);
                bed.retire(first.into()).unwrap();
            }
            let mut batch = bed.queue.wr_start();
            batch.wr(1, flags).send().inline_headers(&header, &vec![SGE; room + 1]);
            let error = batch.complete().unwrap_err().error();
            assert!(matches!(error, PostError::InlineTooLong { .. }), "{error}");
        }
    }
    let longest = 2 + 16 * most;
    for (length, refused) in [
        (13, PostError::PacketTooShort { index: 0, length: 13 }),
        (longest + 1, PostError::InlineTooLong { length: longest as u32 + 1, max: longest as u32 }),
    ] {
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).send().inline_headers(&vec![0; length], &[SGE]);
        assert_eq!(batch.complete().unwrap_err().error(), refused);
    }
}

#[test]
fn a_device_that_needs_the_header_gets_no_packet_without() {
    let mut bed = Bed::<RawPacket>::new(SPEC);
    bed.queue.require_inline_header();
    for _ in 0..3 {
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).send().sge(SGE);
        assert_eq!(batch.complete().unwrap_err().error(), PostError::InlineHeaderMissing);
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).send().inline_data(&[1; 60]);
        assert_eq!(batch.complete().unwrap_err().error(), PostError::InlineHeaderMissing);
        let wr = SendWr { data: Data::Sges(&[SGE]), ..SendWr::default() };
        assert_eq!(bed.queue.post_send(&[wr]).unwrap_err().error(), PostError::InlineHeaderMissing);
        assert_eq!(bed.queue.producer(), 0, "nothing was posted");

        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).send().inline_header(&[7; 18]).sge(SGE);
        batch.wr(2, SIGNALED).send().inline_headers(&[7; 18], &[SGE]);
        batch.complete().unwrap();
        bed.retire(0).unwrap();
        bed.retire(1).unwrap();
        // The queue still needs the header after a reset.
        bed.queue.reset();
    }
}

#[test]
fn a_packet_to_be_cut_has_its_headers_inline_whatever_their_length() {
    let mut bed = cutting(128, 1 << 18);
    let payload = sges(3);
    for length in [14, 17, 18, 19, 34, 35, 54, 66, 127, 128] {
        let header = pattern(length);
        for (count, list) in [(1, false), (3, false), (2, true), (0, false)] {
            let first = bed.queue.producer();
            let packet = Segmented { header: &header, mss: 1460, payload: &payload[..count] };
            if list {
                let wr = SendWr {
                    wr_id: 7,
                    flags: CHECKED,
                    operation: Operation::Tso,
                    data: Data::Segmented(&packet),
                    ..SendWr::default()
                };
                bed.queue.post_send(&[wr]).unwrap();
            } else {
                let mut batch = bed.queue.wr_start();
                batch.wr(7, CHECKED).send_tso(packet);
                batch.complete().unwrap();
            }
            // The ring wraps several times during this loop.
            let wqe = segmented(first, 0xc0, &header, 1460, &payload[..count]);
            wqe.assert_eq(&bed.at_block(first.into(), wqe.bytes.len()));
            let completed = bed.retire(first.into()).unwrap();
            assert_eq!((completed.wr_id, completed.info.opcode_bits()), (7, 0x0e));
            assert_eq!(usize::from(completed.info.blocks()), wqe.blocks());
        }
    }
    assert!(u32::from(bed.queue.producer()) > bed.layout.blocks);
}

#[test]
fn checksums_of_segments_are_computed_if_asked_for() {
    let mut bed = cutting(64, 1 << 18);
    let packet = Segmented { header: &[1; 54], mss: 1, payload: &[SGE] };
    bed.queue.post_send(&[]).unwrap();
    let mut batch = bed.queue.wr_start();
    batch.wr(7, SIGNALED).send_tso(packet);
    batch.complete().unwrap();
    let wqe = segmented(0, 0, &[1; 54], 1, &[SGE]);
    wqe.assert_eq(&bed.at_block(0, wqe.bytes.len()));
}

#[test]
fn what_cannot_be_cut_is_refused_by_name_and_leaves_no_trace() {
    let mut bed = cutting(64, 10_000);
    let long = Sge { length: 9_947, ..SGE };
    let many = [SGE; 40];
    let refused = |header: &'static [u8], mss, payload: &'static [Sge]| (header, mss, payload);
    let long: &'static [Sge] = Box::leak(Box::new([long]));
    let many: &'static [Sge] = Box::leak(Box::new(many));
    for ((header, mss, payload), error) in [
        (refused(&[0; 13], 100, &[SGE]), PostError::TsoHeader { length: 13, max: 64 }),
        (refused(&[0; 65], 100, &[SGE]), PostError::TsoHeader { length: 65, max: 64 }),
        (refused(&[], 100, &[SGE]), PostError::TsoHeader { length: 0, max: 64 }),
        (refused(&[0; 54], 0, &[SGE]), PostError::TsoSegmentSize),
        (
            refused(&[0; 54], 100, long),
            PostError::MessageTooLong { length: 9_947, max: 10_000 - 54 },
        ),
        (refused(&[0; 54], 100, many), PostError::TooManySges { given: 40, max: 6 }),
    ] {
        let packet = Segmented { header, mss, payload };
        let mut batch = bed.queue.wr_start();
        batch.wr(7, SIGNALED).send_tso(packet);
        assert_eq!(batch.complete().unwrap_err().error(), error);
        assert_eq!(bed.queue.producer(), 0);
    }
    let mut without = Bed::<RawPacket>::new(SPEC);
    let packet = Segmented { header: &[0; 54], mss: 100, payload: &[SGE] };
    let mut batch = without.queue.wr_start();
    batch.wr(7, SIGNALED).send_tso(packet);
    let error = batch.complete().unwrap_err().error();
    assert_eq!(error, PostError::TsoHeader { length: 54, max: 0 });
    assert_eq!(error.to_string(), "the queue was created without TSO: set `max_tso_header`");
}

/// The number of entries that fit depends on the headers. With the longest headers there is room
/// for as many as the queue was sized for, and never for more than the largest request has.
#[test]
fn headers_and_entries_together_never_exceed_the_largest_request() {
    for header in [14, 64, 128, 255, 512] {
        let layout = layout(header);
        for length in 14..=header as usize {
            let mut bed = Bed::<RawPacket>::with_layout(SPEC, layout);
            bed.queue.take_segmented(&layout, 1 << 20);
            let bytes = pattern(length);
            let most = (0..=layout.max_sge as usize)
                .rev()
                .find(|&count| {
                    let payload = sges(count);
                    let mut batch = bed.queue.wr_start();
                    let packet = Segmented { header: &bytes, mss: 9, payload: &payload };
                    batch.wr(7, SIGNALED).send_tso(packet);
                    batch.complete().is_ok()
                })
                .unwrap();
            assert!(most >= 3, "{length} of {header} bytes: {most} entries");
            let blocks = bed.retire(0).unwrap().info.blocks();
            assert!(u32::from(blocks) <= layout.max_request_blocks);
        }
    }
}

#[test]
fn operations_and_flags_of_connections_are_refused_on_packets() {
    let refused = |wr: SendWr<'_>| {
        let mut bed = Bed::<RawPacket>::new(SPEC);
        bed.queue.post_send(&[wr]).unwrap_err().error()
    };
    let wr = SendWr { data: Data::Sges(&[SGE]), ..SendWr::default() };
    for flags in [SendFlags::FENCE, SendFlags::SOLICITED] {
        assert_eq!(refused(SendWr { flags, ..wr }), PostError::Flags { refused: flags });
    }
    for operation in [Operation::SendImm([0; 4]), Operation::RdmaWrite(crate::by_hand::REMOTE)] {
        assert_eq!(refused(SendWr { operation, ..wr }), PostError::Unsupported);
    }
    let operation = Operation::Tso;
    assert_eq!(refused(SendWr { operation, ..wr }), PostError::DataNotAllowed);
    let packet = Segmented { header: &[0; 54], mss: 100, payload: &[SGE] };
    let data = Data::Segmented(&packet);
    assert_eq!(refused(SendWr { data, ..wr }), PostError::DataNotAllowed, "a plain send");

    let mut connected = Bed::<Rc>::new(SPEC);
    let wr = SendWr { operation, data, ..SendWr::default() };
    let error = connected.queue.post_send(&[wr]).unwrap_err().error();
    assert_eq!(error, PostError::Unsupported);
}

#[test]
fn a_batch_of_any_transport_adds_packets() {
    let mut bed = Bed::<RawPacket>::new(SPEC);
    let mut batch = AnyBatch::from(bed.queue.wr_start());
    let data = Data::Sges(&[SGE]);
    batch.push(&SendWr { wr_id: 1, flags: CHECKED, data, ..SendWr::default() });
    batch.complete().unwrap();
    packet(0, 8, &bare(0xc0, [0; 4])).sge(SGE).assert_eq(&bed.ring.read(0, 48));
}

#[test]
fn one_packet_of_an_entry_takes_a_block_and_two_entries_as_well_without_header() {
    let layout = SendLayout::new::<RawPacket>(32, 1, 0).unwrap();
    assert_eq!((layout.blocks, layout.max_request_blocks, layout.max_sge), (32, 1, 1));
    // Sized so that the device may need an inline header.
    let layout = SendLayout::new::<RawPacket>(32, 2, 0).unwrap();
    assert_eq!((layout.blocks, layout.max_request_blocks, layout.max_sge), (64, 2, 5));
}

#[test]
fn several_packets_have_an_entry_each_behind_one_segment() {
    let mut bed = Bed::<RawPacket>::new(Spec { sges: 30, ..SPEC });
    let most = bed.layout.max_sge as usize;
    assert!(most >= 30);
    let all: Vec<Sge> =
        sges(most).iter().zip(14..).map(|(sge, length)| Sge { length, ..*sge }).collect();
    for flags in [SIGNALED, CHECKED] {
        let segment = bare(if flags == CHECKED { 0xc0 } else { 0 }, [0; 4]);
        for count in 1..=most {
            bed.advance();
            let (first, uar) = (bed.queue.producer(), bed.uar.all());
            let mut batch = bed.queue.wr_start();
            batch.wr(7, flags).send_packets(&all[..count]);
            batch.complete().unwrap();
            let wqe = Wqe::control(0x29, first, 8, [0; 4]).with(&segment);
            let wqe = all[..count].iter().fold(wqe, |wqe, &sge| wqe.sge(sge));
            bed.assert_rang_alone(first.into(), &wqe, &uar);
            // The record, and so the completion, has the opcode of a send.
            let retired = bed.retire(first.into()).unwrap();
            assert_eq!((retired.wr_id, retired.info.opcode_bits()), (7, 0x0a));
        }
    }
}

#[test]
fn a_packet_among_several_that_is_too_short_is_refused_by_name() {
    let mut bed = Bed::<RawPacket>::new(Spec { sges: 30, ..SPEC });
    let short = |index, length| PostError::PacketTooShort { index, length };
    let of = |length| Sge { length, ..SGE };
    for (packets, error) in
        [(&[][..], short(0, 0)), (&[of(13)], short(0, 13)), (&[of(14), of(60), of(0)], short(2, 0))]
    {
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).send().sge(SGE);
        batch.wr(2, SIGNALED).send_packets(packets);
        let refused = batch.complete().unwrap_err();
        assert_eq!((refused.index(), refused.error()), (1, error));
        assert_eq!(bed.queue.producer(), 0);
    }
}

/// A request with the bytes of its packets.
fn packed(index: u16, checksums: u8, packets: &[&[u8]]) -> Wqe {
    let wqe = Wqe::control(0x29, index, 8, [0; 4]).with(&bare(checksums, [0; 4]));
    packets.iter().fold(wqe, |wqe, packet| {
        let mut piece = (0x8000_0000 | packet.len() as u32).to_be_bytes().to_vec();
        piece.extend(*packet);
        piece.resize(piece.len().next_multiple_of(16), 0);
        wqe.with(&piece)
    })
}

#[test]
fn packets_in_the_request_lie_behind_their_lengths_wherever_the_ring_ends() {
    let mut bed = Bed::<RawPacket>::new(Spec { inline: 300, ..SPEC });
    let bytes = pattern(300);
    let lists: [&[&[u8]]; 6] = [
        &[&bytes[..14]],
        &[&bytes[1..61], &bytes[2..62]],
        &[&bytes[..28], &bytes[..29], &bytes[..27]],
        &[&bytes[..60], &bytes[3..17], &bytes[..124]],
        &[&bytes[..300]],
        &[&bytes[..20], &bytes[..20], &bytes[..20], &bytes[..20], &bytes[..20], &bytes[..20]],
    ];
    // Requests of one to six blocks start at every block of the ring, over the bytes of earlier
    // requests.
    for round in 0..200 {
        let packets = lists[round % lists.len()];
        let flags = if round % 3 == 0 { CHECKED } else { SIGNALED };
        if round % 5 == 0 {
            bed.advance();
        }
        let (first, uar) = (bed.queue.producer(), bed.uar.all());
        let mut batch = bed.queue.wr_start();
        batch.wr(7, flags).send_packets_inline(packets);
        batch.complete().unwrap();
        let wqe = packed(first, if flags == CHECKED { 0xc0 } else { 0 }, packets);
        bed.assert_rang_alone(first.into(), &wqe, &uar);
        let retired = bed.retire(first.into()).unwrap();
        assert_eq!((retired.wr_id, retired.info.opcode_bits()), (7, 0x0a));
    }
}

#[test]
fn packets_that_do_not_fit_into_the_request_are_refused_by_name() {
    let mut bed = Bed::<RawPacket>::new(Spec { inline: 124, ..SPEC });
    let max = bed.layout.max_inline;
    assert_eq!(max % 16, 12, "all that the largest request has room for");
    let bytes = pattern(2000);
    let most = max as usize;
    let short = |index, length| PostError::PacketTooShort { index, length };
    let long = |length| PostError::InlineTooLong { length, max };
    // The room that is left beside a packet of two units.
    let rest = most - 32;
    for (packets, error) in [
        (&[][..], short(0, 0)),
        (&[&bytes[..13]], short(0, 13)),
        (&[&bytes[..60], &[]], short(1, 0)),
        (&[&bytes[..most + 1]], long(max + 16)),
        (&[&bytes[..28], &bytes[..rest + 1]], long(max + 16)),
        (&[&bytes[..2000]], long(2012)),
    ] {
        let mut batch = bed.queue.wr_start();
        batch.wr(1, SIGNALED).send().sge(SGE);
        batch.wr(2, SIGNALED).send_packets_inline(packets);
        let refused = batch.complete().unwrap_err();
        assert_eq!((refused.index(), refused.error()), (1, error));
        assert_eq!(bed.queue.producer(), 0);
    }
    for packets in [&[&bytes[..most]][..], &[&bytes[..28], &bytes[..rest]]] {
        let first = bed.queue.producer();
        let mut batch = bed.queue.wr_start();
        batch.wr(3, SIGNALED).send_packets_inline(packets);
        batch.complete().unwrap();
        let blocks = bed.layout.max_request_blocks as u16;
        assert_eq!(bed.queue.producer() - first, blocks, "the largest request");
    }
}

/// The size field of a WQE has six bits: a WQE of 64 units would appear to have none.
#[test]
fn the_largest_packet_to_be_cut_has_63_units() {
    assert!(SendLayout::with_tso::<RawPacket>(16, 58, 60, SendOps::TSO, 54).is_none());
    let layout = SendLayout::with_tso::<RawPacket>(16, 57, 60, SendOps::TSO, 54).unwrap();
    let mut bed = Bed::<RawPacket>::with_layout(SPEC, layout);
    bed.queue.take_segmented(&layout, 1 << 20);
    let (header, entries) = (pattern(54), sges(58));
    let mut post = |payload: &[Sge]| {
        let mut batch = bed.queue.wr_start();
        batch.wr(7, SIGNALED).send_tso(Segmented { header: &header, mss: 9, payload });
        batch.complete().map_err(|refused| refused.error())
    };
    // The control segment has one unit, the Ethernet segment five.
    post(&entries[..57]).unwrap();
    assert_eq!(post(&entries), Err(PostError::TooManySges { given: 58, max: 57 }));
    assert_eq!(bed.ring.read(7, 1), [63], "of the first one");
}
