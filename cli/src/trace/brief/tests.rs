//! Requests and completions made by hand, byte by byte.

use super::*;

fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
    digits.chunks(2).map(|pair| byte(pair).expect("a byte")).collect()
}

fn brief(kind: Kind, addressing: Addressing, text: &str) -> Brief {
    Brief::of(kind, &decode(kind, &bytes(text), addressing))
}

/// RDMA write with immediate data of two gather entries.
const WRITE: &str = "
    00000509 0001a204 00000008 11223344
    00007f00 00001000 deadbeef 00000000
    00000100 00001234 00007e00 00002000
    00000040 00001235 00007e00 00003000";

/// Send of eleven inline bytes, fenced and without a completion.
const INLINE: &str = "
    0000060a 0001a202 00000080 00000000
    8000000b 68656c6c 6f2c206d 6c783500";

const FETCH_ADD: &str = "
    00000712 0001a204 00000008 00000000
    00007f00 00001000 deadbeef 00000000
    00000000 00000005 00000000 00000000
    00000008 00001234 00007e00 00002000";

#[test]
fn a_request_says_what_it_does_with_which_memory() {
    let write = brief(Kind::Send, Addressing::Connected, WRITE);
    assert_eq!((write.opcode.as_str(), write.bytes), ("RDMA_WRITE_IMM", Some(256 + 64)));
    assert_eq!(
        write.rest(),
        "completion  imm 0x11223344  raddr 0x00007f0000001000  rkey 0xdeadbeef  \
         lkey 0x00001234 addr 0x00007e0000002000  lkey 0x00001235 addr 0x00007e0000003000"
    );
    assert_eq!(write.counted(), "RDMA_WRITE_IMM");
    let inline = brief(Kind::Send, Addressing::Connected, INLINE);
    assert_eq!((inline.opcode.as_str(), inline.bytes), ("SEND", Some(11)));
    assert_eq!(inline.rest(), "fence  inline");
    let add = brief(Kind::Send, Addressing::Connected, FETCH_ADD);
    assert_eq!((add.opcode.as_str(), add.bytes), ("ATOMIC_FA", Some(8)));
    assert!(add.rest().contains("add 0x0000000000000005"), "{}", add.rest());
}

#[test]
fn a_receive_ends_where_its_list_ends() {
    let list = "00000100 00001234 00007e00 00002000  00000000 00001235 00007e00 00003000
                00000000 00000100 00000000 00000000  00000040 00001236 00007e00 00004000";
    let receive = brief(Kind::Receive, Addressing::Connected, list);
    assert_eq!((receive.opcode.as_str(), receive.bytes), ("RECV", Some(256 + (1 << 31))));
    assert_eq!(receive.parts.len(), 2);
    let shared = format!("00000003 00000000 00000000 00000000 {}", &list[..36]);
    let shared = brief(Kind::Shared, Addressing::Connected, &shared);
    assert_eq!((shared.opcode.as_str(), shared.bytes, shared.parts.len()), ("RECV", Some(256), 1));
}

#[test]
fn headers_of_a_packet_count_in_its_bytes() {
    let packet = "
        0000000a 00004804 00000008 00000000
        00000000 c0000000 00000000 0012ffff
        ffffffff 02000000 00010800 45000014
        00000100 00001234 00007e00 00002000";
    let packet = brief(Kind::Send, Addressing::Ethernet, packet);
    assert_eq!((packet.opcode.as_str(), packet.bytes), ("SEND", Some(18 + 256)));
    assert_eq!(packet.parts.len(), 1);
}

fn cqe(bytes: &[(usize, &[u8])]) -> Vec<u8> {
    let mut cqe = vec![0; 64];
    for (at, part) in bytes {
        cqe[*at..*at + part.len()].copy_from_slice(part);
    }
    cqe
}

fn completed(bytes: &[(usize, &[u8])]) -> Brief {
    Brief::of(Kind::Completion, &decode(Kind::Completion, &cqe(bytes), Addressing::Connected))
}

#[test]
fn a_completion_says_of_what_and_how_it_went() {
    // Opcode of the request and number of the queue pair; block; owner.
    let done = completed(&[(56, &[0x08, 0, 0, 0x48]), (60, &[0, 12]), (63, &[0])]);
    assert_eq!(
        (done.opcode.as_str(), done.bytes, done.qp),
        ("request completed", None, Some(0x48))
    );
    assert_eq!(done.rest(), "RDMA_WRITE  qp 0x000048 12");
    assert_eq!((done.counted().as_str(), done.failed), ("request completed, RDMA_WRITE", false));
    let received = completed(&[
        (36, &[0x11, 0x22, 0x33, 0x44]),
        (44, &[0, 0, 1, 0]),
        (56, &[0, 0, 0, 0x49]),
        (63, &[0x30]),
    ]);
    assert_eq!(
        (received.bytes, received.counted().as_str()),
        (Some(256), "send with immediate received")
    );
    assert!(received.rest().ends_with("imm 0x11223344"), "{}", received.rest());
    let failed = completed(&[(54, &[0x88, 0x13]), (56, &[0x08, 0, 0, 0x48]), (63, &[0xd0])]);
    assert!(failed.failed);
    assert_eq!(
        failed.rest(),
        "remote access error (syndrome 0x13, vendor 0x88)  RDMA_WRITE  qp 0x000048 0"
    );
    assert_eq!(failed.counted(), "request failed: remote access error");
}

#[test]
fn json_has_numbers_where_they_are_numbers() {
    let object = |brief: Brief| {
        let mut object = Map::new();
        object.insert("index".to_owned(), json!(5));
        brief.add_to(&mut object);
        Value::Object(object)
    };
    let write = object(brief(Kind::Send, Addressing::Connected, WRITE));
    assert_eq!((&write["index"], &write["bytes"]), (&json!(5), &json!(320)));
    assert_eq!(write["segments"][1]["bytes"], 64);
    assert_eq!(write["segments"][1]["lkey"], "0x00001235");
    assert_eq!(write["rkey"], "0xdeadbeef");
    let done = object(completed(&[(56, &[0x08, 0, 0, 0x48]), (60, &[0, 12]), (63, &[0])]));
    assert_eq!((&done["qp"], &done["request_index"]), (&json!(0x48), &json!(12)));
    assert_eq!(done["index"], 5);
    assert_eq!(done["request"], "RDMA_WRITE");
}
