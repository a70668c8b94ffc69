//! Completions made by hand, byte by byte, from the PRM's drawings.

use super::*;

/// Decodes a completion that is of no packet.
fn completion(bytes: &[u8]) -> Item {
    super::completion(bytes, None)
}

/// Decodes a completion of a queue of packets.
fn packet(parts: &[(usize, &[u8])]) -> Item {
    super::completion(&entry(parts), Some(Addressing::Ethernet))
}

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
fn a_packet_that_arrived() {
    let parts: &[(usize, &[u8])] = &[
        (12, &[0x12, 0x34, 0x56, 0x78, 0x44, 0x80]),
        (20, &[0xbe, 0xef]),
        (28, &[0x06, 0x19, 0x60, 0x64]),
        (32, &[0x02, 0, 0, 0x33]),
        (44, &[0, 0, 0x05, 0xea]),
        (56, &[0, 0, 0, 0x2a, 0, 7, 0, 0x20]),
    ];
    let item = packet(parts);
    assert_eq!(item.title, "completion: packet received, flow tag 0x00002a, wqe_counter 7");
    for (name, at, value, meaning) in [
        ("tunneled", 0, "0", ""),
        ("rss_hash_result", 12, "0x12345678", ""),
        ("rss_hash_type", 16, "0x44", "IPv4 addresses, TCP ports"),
        ("ml_path", 17, "0x80", "congestion was experienced"),
        ("check_sum", 20, "0xbeef", "from the IP header to the end"),
        ("hds_ip_ext", 28, "0x06", "IP right, TCP or UDP right"),
        ("l4_l3_hdr_type", 29, "0x19", "IPv4, TCP"),
        ("vlan_pcp", 30, "3", "priority"),
        ("vlan_dei", 30, "0", ""),
        ("vlan_id", 30, "100", ""),
        ("lro_num_seg", 32, "2", "segments that were joined"),
        ("srqn_uidx", 33, "0x000033", "the queue's user index, or its SRQ's number"),
        ("byte_count", 44, "1514", ""),
        ("flow_tag", 57, "0x00002a", ""),
        ("wqe_counter", 60, "7", "index of the receive request"),
        ("opcode", 63, "0x2", "packet received"),
    ] {
        assert_eq!(item.value(name), Some((at, value, meaning)), "{name}");
    }
    assert_eq!(
        (item.value("wqe_id"), item.value("strides"), item.value("qpn")),
        (None, None, None)
    );
    // Of a queue that is not known it is a message.
    assert!(completion(&entry(parts)).title.starts_with("completion: send received, QP 0x00002a"));
}

#[test]
fn headers_of_a_packet_are_right_or_wrong_or_not_there() {
    // Checksum bits, header types; what is right and wrong, and the headers.
    for (checks, types, verdict, headers) in [
        (0x00, 0x00, "", ""),
        (0x07, 0x00, "", ""),
        (0x02, 0x08, "IP right", "IPv4"),
        (0x00, 0x08, "IP wrong", "IPv4"),
        (0x02, 0x24, "IP right, TCP or UDP wrong", "IPv6, UDP"),
        (0x04, 0x18, "IP wrong, TCP or UDP right", "IPv4, TCP"),
        (0x06, 0x38, "IP right, TCP or UDP right", "IPv4, TCP, an empty acknowledgement"),
        (0x06, 0x44, "IP right, TCP or UDP right", "IPv6, TCP, an acknowledgement"),
    ] {
        let item = packet(&[(28, &[checks, types]), (63, &[0x20])]);
        let meaning = |name| item.value(name).map(|field| field.2);
        assert_eq!(meaning("hds_ip_ext"), Some(verdict), "{checks:#x} {types:#x}");
        assert_eq!(meaning("l4_l3_hdr_type"), Some(headers), "{types:#x}");
        assert_eq!(item.value("vlan_id"), None);
    }
    for (kind, hashed) in [
        (0x00, ""),
        (0x04, "IPv4 addresses"),
        (0x88, "IPv6 addresses, UDP ports"),
        (0xc4, "IPv4 addresses, SPI"),
    ] {
        let item = packet(&[(16, &[kind]), (63, &[0x20])]);
        assert_eq!(item.value("rss_hash_type").map(|field| field.2), Some(hashed), "{kind:#x}");
    }
    let inner = packet(&[(0, &[1]), (63, &[0x20])]);
    let meaning = "checksums and types are of the inner headers";
    assert_eq!(inner.value("tunneled"), Some((0, "1", meaning)));
}

#[test]
fn a_packet_in_strides_names_them_and_its_request() {
    let item = packet(&[
        (2, &[0x01, 0x05]),
        (44, &[0x00, 0x03, 0x00, 0x96]),
        (56, &[0, 0, 0, 0, 0x01, 0xfd, 0, 0x21]),
    ]);
    assert_eq!(item.title, "completion: packet received, flow tag 0x000000, wqe_counter 509");
    for (name, at, value, meaning) in [
        ("wqe_id", 2, "261", "index of the receive request"),
        ("strides", 44, "3", "that the packet takes"),
        ("byte_count", 46, "150", ""),
        ("wqe_counter", 60, "509", "first stride"),
    ] {
        assert_eq!(item.value(name), Some((at, value, meaning)), "{name}");
    }
    let filler = packet(&[(44, &[0x80, 0x02, 0, 0]), (56, &[0, 0, 0, 9, 0x01, 0xfe, 0, 0x21])]);
    assert_eq!(filler.title, "completion: strides skipped, wqe_counter 510");
    assert_eq!((filler.value("flow_tag"), filler.value("qpn")), (None, None));
    assert_eq!(filler.value("strides"), Some((44, "2", "that no packet lies in")));
    assert_eq!(filler.value("byte_count"), Some((46, "0", "")));
    assert_eq!(filler.value("opcode"), Some((63, "0x2", "strides skipped")));
}

#[test]
fn of_a_queue_of_packets_failures_and_requests_are_what_they_are() {
    let failed = packet(&[(54, &[0x00, 0x01]), (63, &[0xe0])]);
    assert!(failed.title.starts_with("completion: receive failed"), "{}", failed.title);
    assert_eq!(failed.value("syndrome").map(|field| field.2), Some("local length error"));
    let sent = packet(&[(56, &[0x29, 0, 0, 0x48, 0, 9, 0, 0])]);
    assert_eq!(sent.value("send_opcode"), Some((56, "0x29", "ENHANCED_MPSW")));
    assert_eq!(sent.value("qpn"), Some((57, "0x000048", "")));
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
