//! `mlx5 dump`: bytes in, text out.

mod common;

use common::{mlx5, mlx5_with_input};

/// An inline RDMA write, as xxd shows it.
const WRITE: &str = "\
00000000: 0000 0508 0001 a203 0000 0008 0000 0000  ................
00000010: 0000 7f00 0000 1000 dead beef 0000 0000  ................
00000020: 8000 0005 6865 6c6c 6f00 0000 0000 0000  ....hello.......
00000030: 0000 0000 0000 0000 0000 0000 0000 0000  ................
";

/// A failed request, as the kernel logs it.
const FAILED: &str = "\
[ 1234.567890] mlx5_0:dump_cqe:278:(pid 4711): dump error cqe
[ 1234.567891] 00000000: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[ 1234.567892] 00000010: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[ 1234.567893] 00000020: 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
[ 1234.567894] 00000030: 00 00 00 00 00 00 88 13 08 00 01 a2 00 05 00 d2
";

#[test]
fn a_request_is_decoded_from_what_xxd_shows() {
    let text = mlx5_with_input("dump", WRITE).done();
    assert!(
        text.starts_with("0x0000: send request RDMA_WRITE, QP 0x0001a2, WQE index 5"),
        "{text}"
    );
    assert!(text.contains("0x18  rkey            0xdeadbeef"), "{text}");
    assert!(text.contains("68 65 6c 6c 6f") && text.contains("|hello|"), "{text}");
}

#[test]
fn a_completion_is_decoded_from_the_kernels_log() {
    let text = mlx5_with_input("dump -", FAILED).done();
    assert_eq!(mlx5_with_input("dump --file -", FAILED).done(), text);
    assert!(text.starts_with("line 2: completion: request failed, QP 0x0001a2"), "{text}");
    assert!(text.contains("remote access error"), "{text}");
    assert!(text.contains("0x36  vendor_err_synd 0x88"), "{text}");
    assert!(text.contains("cause           the peer answered that the key does not"), "{text}");
    // The kind that the user names is taken for all dumps, without a look at the lines.
    let text = mlx5_with_input("dump --kind cqe", FAILED).done();
    assert!(text.starts_with("0x0000: completion: request failed, QP 0x0001a2"), "{text}");
    assert!(text.contains("remote access error"), "{text}");
}

#[test]
fn requests_one_after_the_other_are_told_apart() {
    let two = format!("{WRITE}{}", WRITE.replace("0508", "0609"));
    let text = mlx5_with_input("dump", &two).done();
    assert!(text.contains("0x0000: send request RDMA_WRITE,"), "{text}");
    assert!(text.contains("0x0040: send request RDMA_WRITE_IMM,"), "{text}");
}

#[test]
fn bytes_may_stand_on_the_command_line() {
    let line = "dump 0000050a 0001a202 00000008 00000000 00000040 00001234 00007e00 00002000";
    let text = mlx5(line).done();
    assert!(text.contains("send request SEND") && text.contains("0x00007e0000002000"), "{text}");
    let text = mlx5("dump --kind recv 00001000 00001234 00007e00 00002000").done();
    assert!(text.contains("receive request, 16 bytes") && text.contains("4096"), "{text}");
}

#[test]
fn what_looks_like_nothing_is_asked_for() {
    let text = mlx5("dump ffffffff ffffffff").failed();
    assert!(text.contains("hint: say what they are: --kind"), "{text}");
    let text = mlx5("dump 00 xy").refused();
    assert!(text.contains("\"xy\" is not hexadecimal"), "{text}");
    let text = mlx5("dump --file /nonexistent").failed();
    assert!(text.contains("/nonexistent"), "{text}");
}

#[test]
fn live_queues_are_decoded_as_the_device_sees_them() {
    for link in ["ib", "roce"] {
        let text = mlx5(&format!("dump --live --sim-link {link}")).done();
        for opcode in ["SEND,", "RDMA_WRITE,", "RDMA_WRITE_IMM,", "RDMA_READ,", "SEND_IMM,"] {
            assert!(text.contains(&format!("send request {opcode}")), "{opcode}: {text}");
        }
        assert_eq!(text.matches("completion: request completed").count(), 5, "{text}");
        for received in ["send", "RDMA write with immediate", "send with immediate"] {
            assert!(text.contains(&format!("completion: {received} received,")), "{text}");
        }
        assert_eq!(text.matches("|hello, mlx5|").count(), 2, "{text}");
        assert!(text.contains("address vector") && text.contains("0x11111111"), "{text}");
        assert!(!text.contains("cut off") && !text.contains("unknown"), "{text}");
    }
}

#[test]
fn what_is_no_text_or_has_no_end_is_refused() {
    let reported = mlx5("dump --file /bin/sh").refused();
    assert!(
        reported.contains("error: the input is not text\n  hint: ") && reported.contains("`xxd "),
        "{reported}"
    );
    let reported = mlx5("dump --file /dev/zero").failed();
    assert!(reported.contains("mlx5: the input is longer than 64 MiB\n  hint: "), "{reported}");
    let reported = mlx5("dump --file /").failed();
    assert!(reported.contains("mlx5: /: Is a directory"), "{reported}");
}
