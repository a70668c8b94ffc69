//! Requests made by hand, byte by byte, from the PRM's drawings.

use super::*;
use crate::dump::hex;

fn bytes(text: &str) -> Vec<u8> {
    hex::parse(text).expect("hexadecimal")
}

/// RDMA write with immediate data of one gather entry: QP 0x1a2, block 5.
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

/// A datagram: its address vector has three units.
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
