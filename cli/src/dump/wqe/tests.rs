//! Tests with requests that were written by hand, byte by byte, from the figures in the PRM.

use super::*;
use crate::dump::hex;

fn bytes(text: &str) -> Vec<u8> {
    hex::parse(text).expect("hexadecimal")
}

/// An RDMA write with immediate data and one gather entry, on QP 0x1a2, at block 5 of the ring.
const WRITE_IMM: &str = "
    00 00 05 09  00 01 a2 03  00 00 00 08  11 22 33 44  # control: opcode 9, ds 3, completion
    00 00 7f 00  00 00 10 00  de ad be ef  00 00 00 00  # remote address, rkey
    00 00 01 00  00 00 12 34  00 00 7e 00  00 00 20 00  # 256 bytes, lkey, address
    00 00 00 00  00 00 00 00  00 00 00 00  00 00 00 00";

#[test]
fn a_write_is_taken_apart_field_by_field() {
    let item = send(&bytes(WRITE_IMM), None);
    assert_eq!(
        item.title,
        "send request RDMA_WRITE_IMM, QP 0x0001a2, WQE index 5, 3 units = 48 bytes"
    );
    assert_eq!(item.segments(), ["control segment", "remote address segment", "data segment 0"]);
    for (name, at, value, meaning) in [
        ("wqe_index", 1, "5", "block at which it starts"),
        ("opcode", 3, "0x09", "RDMA_WRITE_IMM"),
        ("qpn", 4, "0x0001a2", ""),
        ("ds", 7, "3", "16-byte units, of at most 63"),
        ("fm_ce_se", 0x0b, "0x08", "completion"),
        ("imm", 0x0c, "0x11223344", "immediate data"),
        ("raddr", 0x10, "0x00007f0000001000", ""),
        ("rkey", 0x18, "0xdeadbeef", ""),
        ("byte_count", 0x20, "256", ""),
        ("lkey", 0x24, "0x00001234", ""),
        ("addr", 0x28, "0x00007e0000002000", ""),
    ] {
        assert_eq!(item.value(name), Some((at, value, meaning)), "{name}");
    }
    assert_eq!(item.notes(), "");
}

#[test]
fn the_text_has_offset_name_value_and_meaning_in_columns() {
    let mut text = Vec::new();
    send(&bytes(WRITE_IMM), None).write(&mut text).expect("memory takes all");
    let text = String::from_utf8(text).expect("text");
    let line = "    0x03  opcode          0x09                RDMA_WRITE_IMM\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("\n    0x18  rkey            0xdeadbeef\n"), "{text}");
}

#[test]
fn inline_data_is_shown_and_its_padding_is_not() {
    let item = send(
        &bytes(
            "00 00 00 0a  00 00 07 02  00 00 00 0a  00 00 00 00
             80 00 00 05  68 65 6c 6c  6f ff ff ff  ff ff ff ff",
        ),
        None,
    );
    assert_eq!(item.segments(), ["control segment", "data segment 0: inline"]);
    assert_eq!(item.value("byte_count"), Some((0x10, "0x80000005", "inline, 5")));
    assert_eq!(item.value("data"), Some((0x14, "68 65 6c 6c 6f", "|hello|")));
    assert_eq!(item.value("fm_ce_se"), Some((0x0b, "0x0a", "completion, solicited")));
}

/// A datagram, whose address vector takes three units.
const DATAGRAM: &str = "
    00 00 02 0a  00 00 30 05  00 00 00 08  00 00 00 00
    11 11 11 11  00 00 00 00  80 00 00 31  20 00 c0 de
    00 00 00 00  02 04 06 08  0a 0c 00 40  00 30 00 07
    00 00 00 00  00 00 00 00  00 00 ff ff  0a 00 00 01
    00 00 00 40  00 00 12 00  00 00 00 00  00 00 10 00";

#[test]
fn a_datagrams_address_is_recognized_by_its_mark() {
    let item = send(&bytes(DATAGRAM), None);
    assert_eq!(item.segments(), ["control segment", "address vector", "data segment 0"]);
    assert!(item.notes().contains("--transport decides"));
    for (name, at, value) in [
        ("qkey", 0x10, "0x11111111"),
        ("dqp", 0x18, "0x000031"),
        ("stat_rate", 0x1c, "2"),
        ("rlid", 0x1e, "0xc0de"),
        ("rmac", 0x24, "02:04:06:08:0a:0c"),
        ("hop_limit", 0x2b, "64"),
        ("sgid_index", 0x2c, "3"),
        ("flow_label", 0x2c, "0x00007"),
        ("rgid", 0x30, "::ffff:10.0.0.1"),
        ("addr", 0x48, "0x0000000000001000"),
    ] {
        let found = item.value(name).map(|(at, value, _)| (at, value));
        assert_eq!(found, Some((at, value)), "{name}");
    }
    let forced = send(&bytes(DATAGRAM), Some(Addressing::Connected));
    assert_eq!(forced.segments().len(), 5);
    assert!(send(&bytes(DATAGRAM), Some(Addressing::Datagram)).notes().is_empty());
}

#[test]
fn an_atomic_has_its_operands() {
    let item = send(
        &bytes(
            "00 00 00 11  00 00 07 04  00 00 00 88  00 00 00 00
             00 00 00 00  00 00 10 00  00 00 00 01  00 00 00 00
             00 00 00 00  00 00 00 2a  00 00 00 00  00 00 00 07
             00 00 00 08  00 00 00 02  00 00 00 00  00 00 20 00",
        ),
        None,
    );
    assert_eq!(item.value("swap"), Some((0x20, "0x000000000000002a", "")));
    assert_eq!(item.value("compare"), Some((0x28, "0x0000000000000007", "")));
    assert_eq!(item.value("fm_ce_se"), Some((0x0b, "0x88", "fence, completion")));
}

#[test]
fn a_cancelled_request_is_a_nop_that_keeps_its_segments() {
    let cancelled = WRITE_IMM.replace("05 09", "05 00");
    let item = send(&bytes(&cancelled), None);
    assert!(item.title.starts_with("send request NOP"), "{}", item.title);
    assert_eq!(item.segments(), ["control segment"]);
    assert!(item.notes().contains("a cancelled request keeps what it had"));
}

#[test]
fn what_is_cut_off_or_impossible_is_said() {
    let whole = bytes(WRITE_IMM);
    assert!(send(&whole[..32], None).notes().contains("cut off: 16 bytes more belong to it"));
    assert!(send(&whole[..7], None).title.contains("cut off"));
    assert!(send(&[0; 64], None).notes().contains("ds is 0"));
    let unknown = send(&bytes("00 00 00 3e 00 00 07 01 00 00 00 00 00 00 00 00"), None);
    assert!(unknown.title.contains("unknown opcode 0x3e"), "{}", unknown.title);
    let endless = send(&bytes("0000000a 00000702 00000008 00000000 ffffffff"), None);
    assert_eq!(endless.segments().len(), 2);
}

#[test]
fn the_length_in_the_ring_is_in_whole_blocks() {
    assert_eq!(send_length(&bytes(WRITE_IMM)), 64);
    assert_eq!(send_length(&bytes(DATAGRAM)), 128);
    assert_eq!(send_length(&[0; 64]), 64);
    assert!(looks_like_send(&bytes(WRITE_IMM)));
    assert!(!looks_like_send(&[0; 64]));
}

/// A packet whose first 18 bytes lie in the request itself. The request asks the device to compute
/// both checksums.
const PACKET_WITH_HEADER: &str = "
    00 00 07 0a  00 00 48 04  00 00 00 08  00 00 00 00  # control: opcode 0a, ds 4
    00 00 00 00  c0 00 00 00  00 00 00 00  00 12 ff ff  # cs_flags, mss; 18 bytes, the first two
    ff ff ff ff  02 00 00 00  00 01 08 00  45 00 00 14  # the other sixteen
    00 00 01 00  00 00 12 34  00 00 7e 00  00 00 20 00  # 256 bytes";

#[test]
fn a_packet_has_an_ethernet_segment_with_its_headers() {
    let item = send(&bytes(PACKET_WITH_HEADER), Some(Addressing::Ethernet));
    assert_eq!(item.segments(), ["control segment", "Ethernet segment", "data segment 0"]);
    for (name, at, value, meaning) in [
        ("cs_flags", 0x14, "0xc0", "checksums: IP, TCP or UDP"),
        ("mss", 0x16, "0", ""),
        ("inline_hdr_sz", 0x1c, "18", "bytes of the packet's headers"),
        ("byte_count", 0x30, "256", ""),
        ("addr", 0x38, "0x00007e0000002000", ""),
    ] {
        assert_eq!(item.value(name), Some((at, value, meaning)), "{name}");
    }
    let (at, header, _) = item.value("inline_hdr").expect("headers");
    assert_eq!((at, header), (0x1e, "ff ff ff ff ff ff 02 00 00 00 00 01 08 00 45 00"));
    let rest = item.fields().skip_while(|field| field.name != "inline_hdr").nth(1);
    assert_eq!(rest.map(|field| field.value), Some("00 14"));
    assert_eq!(item.notes(), "");
}

/// Takes apart a request for a packet into which the device inserts a VLAN tag, but no checksums.
/// `kind` selects a customer tag or a service tag.
fn tagged(kind: &str) -> Item {
    let request = format!(
        "00 00 07 0a  00 00 48 03  00 00 00 08  00 00 00 00
         00 00 00 00  00 00 00 00  00 00 00 00  {kind} b0 64  # priority 5, DEI, 100
         00 00 00 3c  00 00 12 34  00 00 7e 00  00 00 20 00"
    );
    send(&bytes(&request), Some(Addressing::Ethernet))
}

#[test]
fn a_vlan_tag_is_inserted_in_place_of_headers() {
    for (kind, value, meaning) in [
        ("80 00", "0x8000", "a VLAN tag, 0x8100"),
        ("80 01", "0x8001", "a service VLAN tag, 0x88a8"),
    ] {
        let item = tagged(kind);
        assert_eq!(item.segments(), ["control segment", "Ethernet segment", "data segment 0"]);
        assert_eq!(item.value("insert"), Some((0x1c, value, meaning)));
        assert_eq!(item.value("vlan_pcp"), Some((0x1e, "5", "priority")));
        assert_eq!(item.value("vlan_dei"), Some((0x1e, "1", "")));
        assert_eq!(item.value("vlan_id"), Some((0x1e, "100", "")));
        assert_eq!(item.value("cs_flags"), Some((0x14, "0x00", "no checksums")));
        assert_eq!(item.value("inline_hdr_sz"), None);
        assert_eq!(item.value("byte_count"), Some((0x20, "60", "")));
    }
}

#[test]
fn a_tunnelled_packet_names_its_inner_headers() {
    let request = "
        00 00 07 0a  00 00 48 03  00 00 00 08  00 00 00 00
        11 07 29 1f  f0 31 00 00  00 00 0b ad  00 00 00 00
        00 00 00 80  00 00 12 34  00 00 7e 00  00 00 20 00";
    let item = send(&bytes(request), Some(Addressing::Ethernet));
    let sums = "checksums: IP, TCP or UDP, inner IP, inner TCP or UDP";
    for (name, at, value, meaning) in [
        ("swp_outer_l4_offset", 0x10, "17", "it is at byte 34"),
        ("swp_outer_l3_offset", 0x11, "7", "it is at byte 14"),
        ("swp_inner_l4_offset", 0x12, "41", "it is at byte 82"),
        ("swp_inner_l3_offset", 0x13, "31", "it is at byte 62"),
        ("cs_flags", 0x14, "0xf0", sums),
        ("swp_flags", 0x15, "0x31", "outer IPv6, outer UDP, inner IPv6"),
        ("flow_table_metadata", 0x18, "0x00000bad", "what flow rules match"),
        ("inline_hdr_sz", 0x1c, "0", "bytes of the packet's headers"),
    ] {
        assert_eq!(item.value(name), Some((at, value, meaning)), "{name}");
    }
}

/// A packet that the device cuts into segments of 1,460 bytes. Each segment has 54 bytes of headers
/// in addition: Ethernet, IPv4, TCP.
const SEGMENTED: &str = "
    00 00 09 0e  00 00 48 07  00 00 00 08  00 00 00 00  # control: opcode 0e, ds 7
    00 00 00 00  c0 00 05 b4  00 00 00 00  00 36 ff ff  # mss 1460; 54 bytes, the first two
    ff ff ff ff  02 00 00 00  00 01 08 00  45 00 00 00
    00 00 40 00  40 06 00 00  0a 00 00 01  0a 00 00 02
    04 00 00 50  00 00 00 01  00 00 00 02  50 18 ff ff
    00 00 00 00  ee ee ee ee  ee ee ee ee  ee ee ee ee  # the last four, and padding
    00 01 00 00  00 00 12 34  00 00 7e 00  00 00 20 00  # 65536 bytes";

#[test]
fn a_packet_that_is_cut_has_headers_and_the_size_of_a_segment() {
    // Only requests for packets have this opcode, so the user need not give `--transport`.
    for addressing in [None, Some(Addressing::Ethernet)] {
        let item = send(&bytes(SEGMENTED), addressing);
        assert!(item.title.starts_with("send request TSO"), "{}", item.title);
        assert_eq!(item.segments(), ["control segment", "Ethernet segment", "data segment 0"]);
        assert_eq!(item.value("mss"), Some((0x16, "1460", "bytes of a segment, headers apart")));
        let header = Some((0x1c, "54", "bytes of the packet's headers"));
        assert_eq!(item.value("inline_hdr_sz"), header);
        let lines = item.fields().filter(|field| field.meaning.starts_with('|'));
        let lines = Vec::from_iter(lines.map(|field| field.value));
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[3], "ff ff 00 00 00 00");
        assert_eq!(item.value("byte_count"), Some((0x60, "65536", "")));
        assert_eq!(item.notes(), "");
    }
    // If the stated length of the headers is greater than the request, no data follows.
    let item = send(&bytes(&SEGMENTED.replace("00 36 ff", "02 36 ff")), None);
    assert_eq!(item.segments(), ["control segment", "Ethernet segment"]);
    assert_eq!(item.notes(), "the headers are longer than the request");
    let cut = send(&bytes(SEGMENTED)[..20], None);
    assert!(cut.notes().starts_with("cut off"), "{}", cut.notes());
    assert_eq!(cut.segments(), ["control segment", "Ethernet segment"]);
    assert_eq!(cut.value("bytes").map(|(at, bytes, _)| (at, bytes)), Some((0x10, "00 00 00 00")));
    let nothing = send(&bytes("0000090e 00004800 00000008 00000000 00000000"), None);
    assert!(nothing.notes().contains("ds is 0"), "{}", nothing.notes());
}

/// Three packets in one request. The bytes of the second packet lie in the request itself.
const SEVERAL: &str = "
    00 00 0a 29  00 00 48 06  00 00 00 08  00 00 00 00  # control: opcode 29, ds 6
    00 00 00 00  40 00 00 00  00 00 00 00  00 00 00 00
    00 00 00 3c  00 00 12 34  00 00 7e 00  00 00 20 00  # 60 bytes
    80 00 00 0e  ff ff ff ff  ff ff 02 00  00 00 00 01  # fourteen bytes inline
    88 b5 ee ee  ee ee ee ee  ee ee ee ee  ee ee ee ee
    00 00 05 ea  00 00 12 34  00 00 7e 00  00 00 30 00  # 1514 bytes";

#[test]
fn each_entry_of_a_request_of_several_packets_is_one() {
    for addressing in [None, Some(Addressing::Ethernet)] {
        let item = send(&bytes(SEVERAL), addressing);
        assert!(item.title.starts_with("send request ENHANCED_MPSW"), "{}", item.title);
        assert_eq!(
            item.segments(),
            ["control segment", "Ethernet segment", "packet 0", "packet 1: inline", "packet 2"]
        );
        assert_eq!(item.value("cs_flags"), Some((0x14, "0x40", "checksums: IP")));
        let counts: Vec<_> = item.fields().filter(|field| field.name == "byte_count").collect();
        let counts: Vec<_> = counts.iter().map(|field| (field.value, field.meaning)).collect();
        assert_eq!(counts, [("60", ""), ("0x8000000e", "inline, 14"), ("1514", "")]);
        let inline = "ff ff ff ff ff ff 02 00 00 00 00 01 88 b5";
        assert_eq!(item.value("data").map(|(at, data, _)| (at, data)), Some((0x34, inline)));
        assert_eq!(item.notes(), "");
    }
}

#[test]
fn packets_of_equal_length_have_it_once() {
    // The opcode is that of segmentation (TSO); a modifier makes it a request of several packets.
    let alike = SEVERAL.replace("00 00 0a 29", "01 00 0a 0e").replace("40 00 00 00", "40 00 00 3c");
    let item = send(&bytes(&alike), None);
    assert_eq!(item.value("mss"), Some((0x16, "60", "bytes of each packet")));
    assert_eq!(item.segments()[2..], ["packet 0", "packet 1: inline", "packet 2"]);
}

#[test]
fn a_receive_of_strides_begins_behind_a_segment_without_use() {
    let request = "
        00 00 00 07  00 00 00 00  00 00 00 00  00 00 00 00
        00 00 80 00  00 00 12 34  00 00 7e 00  00 00 20 00";
    let item = receive_of_strides(&bytes(request));
    assert_eq!(item.segments(), ["next segment, not used", "data segment 0"]);
    assert_eq!(item.value("byte_count"), Some((0x10, "32768", "")));
    assert_eq!(receive_of_strides(&[1; 5]).segments(), ["next segment, not used"]);
}

#[test]
fn a_receive_request_ends_with_its_mark() {
    let list = "
        00 00 10 00  00 00 12 34  00 00 7e 00  00 00 20 00
        00 00 00 00  00 00 01 00  00 00 00 00  00 00 00 00";
    let stale = format!("{list}\n ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff");
    let item = receive(&bytes(&stale));
    assert_eq!(item.segments(), ["data segment 0", "data segment 1"]);
    assert_eq!(item.value("byte_count"), Some((0, "4096", "")));

    let shared = format!("00 00 00 07 5a 00 00 00 00 00 00 00 00 00 00 00\n{list}");
    let item = shared_receive(&bytes(&shared));
    assert_eq!(item.segments(), ["next segment", "data segment 0", "data segment 1"]);
    assert_eq!(item.value("next_wqe_index"), Some((2, "7", "the request after this one")));
    assert_eq!(item.value("signature"), Some((4, "0x5a", "")));
    assert_eq!(item.value("addr"), Some((0x18, "0x00007e0000002000", "")));
}

#[test]
fn a_packet_is_recognized_by_its_segment_and_a_gather_entry_is_not_taken_for_one() {
    let item = send(&bytes(PACKET_WITH_HEADER), None);
    assert_eq!(item.segments()[1], "Ethernet segment");
    assert!(item.notes().contains("--transport decides"));
    assert!(send(&bytes(PACKET_WITH_HEADER), Some(Addressing::Ethernet)).notes().is_empty());
    for entry in [
        "00 00 01 00  00 00 12 34  00 00 7e 00  00 00 20 00", // 256 bytes
        "00 00 00 00  00 00 01 00  00 00 00 00  00 00 00 00", // the end of a list
        "00 00 00 00  00 00 12 34  00 00 7e 00  00 00 20 00", // 2 GiB
        "80 00 00 04  11 22 33 44  00 00 00 00  00 00 00 00", // inline
    ] {
        let item = send(&bytes(&format!("0000000a 00000702 00000008 00000000 {entry}")), None);
        assert!(item.segments()[1].starts_with("data segment 0"), "{entry}");
    }
    // If the headers would not fit in the request, the bytes are not an Ethernet segment.
    let long = "0000000a 00000702 00000008 00000000 00000000 00000000 00000000 0040ffff";
    assert_eq!(send(&bytes(long), None).segments()[1], "data segment 0");
}
