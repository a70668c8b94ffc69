//! Completions made by hand, byte by byte, from the PRM's drawings.

use super::*;

/// An entry of which some bytes are not zero.
fn entry(parts: &[(usize, &[u8])]) -> [u8; DESCRIPTOR] {
    let mut bytes = [0; DESCRIPTOR];
    for (at, part) in parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    bytes
}

#[test]
fn a_request_that_completed() {
    let item = completion(&entry(&[
        (32, &[0, 0, 0, 9]),
        (44, &[0, 0, 0, 64]),
        (48, &[0, 0, 0, 0, 0, 0, 0x12, 0x34]),
        (56, &[0x10, 0, 1, 0xa2, 0x80, 0x05, 0xfe, 0x01]),
    ]));
    assert_eq!(item.title, "completion: request completed, QP 0x0001a2, wqe_counter 32773");
    for (name, at, value, meaning) in [
        ("srqn_uidx", 32, "0x000009", "the queue's user index, or its SRQ's number"),
        ("byte_count", 44, "64", ""),
        ("timestamp", 48, "4660", "cycles of the device's clock"),
        ("send_opcode", 56, "0x10", "RDMA_READ"),
        ("qpn", 57, "0x0001a2", ""),
        ("wqe_counter", 60, "32773", "block of the send request"),
        ("signature", 62, "0xfe", ""),
        ("opcode", 63, "0x0", "request completed"),
        ("format", 63, "0", "plain"),
        ("owner", 63, "1", "changes with every lap of the ring"),
    ] {
        assert_eq!(item.value(name), Some((at, value, meaning)), "{name}");
    }
}

#[test]
fn a_send_with_immediate_data_that_arrived() {
    let item = completion(&entry(&[
        (22, &[0, 0x17]),
        (24, &[0x13, 0, 0, 0x31]),
        (36, &[0x11, 0x22, 0x33, 0x44]),
        (44, &[0, 0, 0x10, 0]),
        (56, &[0, 0, 0, 0x32, 0, 7, 0, 0x32]),
    ]));
    assert!(item.title.starts_with("completion: send with immediate received"), "{}", item.title);
    let value = |name| item.value(name).map(|(at, value, _)| (at, value));
    assert_eq!(value("slid"), Some((22, "0x0017")));
    assert_eq!(value("grh"), Some((24, "1")));
    assert_eq!(value("sl"), Some((24, "3")));
    assert_eq!(value("rqpn"), Some((24, "0x000031")));
    assert_eq!(value("byte_count"), Some((44, "4096")));
    let immediate = Some((36, "0x11223344", "immediate data"));
    assert_eq!(item.value("imm_inval_pkey"), immediate);
    assert_eq!(item.value("se"), Some((63, "1", "event asked for")));
    assert_eq!(item.value("wqe_counter"), Some((60, "7", "index of the receive request")));
}

#[test]
fn a_request_that_failed_says_why() {
    let item = completion(&entry(&[(54, &[0x81, 0x15]), (56, &[0x0a, 0, 0, 0x31, 0, 0, 0, 0xd0])]));
    assert!(item.title.starts_with("completion: request failed"), "{}", item.title);
    let why = Some((55, "0x15", "transport retry counter exceeded"));
    assert_eq!(item.value("syndrome"), why);
    assert_eq!(item.value("vendor_err_synd").map(|field| field.1), Some("0x81"));
    assert_eq!(item.value("send_opcode"), Some((56, "0x0a", "SEND")));

    let received = completion(&entry(&[(54, &[0x00, 0x05]), (63, &[0xe0])]));
    assert!(received.title.starts_with("completion: receive failed"));
    assert_eq!(received.value("send_opcode"), None);
    assert_eq!(received.value("syndrome").map(|field| field.2), Some("work request flushed"));
}

#[test]
fn of_a_long_entry_the_descriptor_is_the_second_half() {
    let mut long = vec![0xaa; DESCRIPTOR];
    long.extend(entry(&[(57, &[0, 0, 0x31]), (63, &[0x28])]));
    let item = completion(&long);
    assert_eq!(item.segments(), ["first half, for data", "descriptor"]);
    assert_eq!(item.value("qpn"), Some((64 + 57, "0x000031", "")));
    assert_eq!(item.value("format").map(|field| field.1), Some("2"));
}

#[test]
fn what_was_not_written_is_not_made_up() {
    let item = completion(&entry(&[(63, &[0xf1])]));
    assert_eq!(item.title, "completion, not written yet");
    assert_eq!(item.value("qpn"), None);
    assert_eq!(completion(&[0; 10]).title, "completion, cut off");
    assert!(completion(&entry(&[(63, &[0x70])])).title.contains("unknown opcode 0x7"));
}
