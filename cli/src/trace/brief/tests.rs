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
    assert_eq!(
        packet.rest(),
        "completion  checksums IP, TCP or UDP  header 18 B  lkey 0x00001234 addr 0x00007e0000002000"
    );
}

#[test]
fn requests_of_packets_say_how_they_are_sent() {
    let cut = "
        0000000e 00004807 00000008 00000000
        00000000 c00005b4 00000000 0036ffff
        ffffffff 02000000 00010800 45000000
        00004000 40060000 0a000001 0a000002
        04000050 00000001 00000002 5018ffff
        00000000 00000000 00000000 00000000
        00010000 00001234 00007e00 00002000";
    let cut = brief(Kind::Send, Addressing::Ethernet, cut);
    assert_eq!((cut.opcode.as_str(), cut.bytes), ("TSO", Some(54 + 65536)));
    assert!(cut.rest().contains("mss 1460  header 54 B  lkey"), "{}", cut.rest());

    let tagged = "
        0000000a 00004803 00000008 00000000
        00000000 00000000 00000000 8000b064
        0000003c 00001234 00007e00 00002000";
    let tagged = brief(Kind::Send, Addressing::Ethernet, tagged);
    assert_eq!(tagged.bytes, Some(60));
    assert!(tagged.rest().starts_with("completion  vlan 100  lkey"), "{}", tagged.rest());

    let several = "
        00000a29 00004806 00000008 00000000
        00000000 40000000 00000000 00000000
        0000003c 00001234 00007e00 00002000
        8000000e ffffffff ffff0200 00000001
        88b50000 00000000 00000000 00000000
        000005ea 00001234 00007e00 00003000";
    let several = brief(Kind::Send, Addressing::Ethernet, several);
    assert_eq!((several.opcode.as_str(), several.bytes), ("ENHANCED_MPSW", Some(60 + 14 + 1514)));
    assert_eq!(
        several.rest(),
        "completion  checksums IP  packets 3  lkey 0x00001234 addr 0x00007e0000002000  inline  \
         and 1 more"
    );
    let mut object = Map::new();
    several.add_to(&mut object);
    assert_eq!((&object["packets"], &object["segments"][2]["bytes"]), (&json!(3), &json!(1514)));

    let receive = "
        00000000 00000000 00000000 00000000
        00008000 00001234 00007e00 00002000";
    let receive = brief(Kind::Strides, Addressing::Connected, receive);
    assert_eq!((receive.opcode.as_str(), receive.bytes), ("RECV", Some(32768)));
    assert_eq!(receive.rest(), "lkey 0x00001234 addr 0x00007e0000002000");
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
        (done.opcode.as_str(), done.bytes, done.of),
        ("request completed", None, Some(("qp", 0x48)))
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
fn the_completion_of_a_packet_says_what_the_device_found() {
    let packet = |bytes: &[(usize, &[u8])]| {
        Brief::of(Kind::Completion, &decode(Kind::Completion, &cqe(bytes), Addressing::Ethernet))
    };
    let mut came = packet(&[
        (2, &[0, 5]),
        (12, &[0x12, 0x34, 0x56, 0x78, 0x44]),
        (28, &[0x02, 0x19, 0x60, 0x64]),
        (44, &[0, 3, 0, 150]),
        (57, &[0, 0, 0x2a]),
        (60, &[0, 9]),
        (63, &[0x20]),
    ]);
    assert_eq!((came.opcode.as_str(), came.bytes, came.of), ("packet received", Some(150), None));
    // The tracer knows the queue.
    came.of = Some(("wq", 0x60));
    assert_eq!(
        came.rest(),
        "wq 0x000060 5  hash 0x12345678  checksums IP right, TCP or UDP wrong  headers IPv4, TCP  \
         vlan 100  strides 3  flow tag 0x00002a  stride 9"
    );
    let mut object = Map::new();
    came.add_to(&mut object);
    let object = Value::Object(object);
    assert_eq!((&object["wq"], &object["request_index"]), (&json!(0x60), &json!(5)));
    assert_eq!((&object["stride"], &object["strides"]), (&json!(9), &json!(3)));
    let bare = packet(&[(44, &[0, 0, 0, 60]), (60, &[0, 9]), (63, &[0x20])]);
    assert_eq!((bare.bytes, bare.rest().as_str()), (Some(60), ""));
    assert_eq!(bare.detail("index"), Some("9"));
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
