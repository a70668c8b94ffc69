//! The fields of each kind of CQE.

use crate::bed::{Bed, Entry, Outstanding};
use mlx5_cq::{CompletionError, CompletionOpcode, ErrorKind, SentRequest, WorkCompletion};
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::wqe::Opcode;

const REQUESTER: u8 = 0;
const WRITE_IMM: u8 = 1;
pub(crate) const SEND: u8 = 2;
const SEND_IMM: u8 = 3;
const SEND_INVALIDATE: u8 = 4;
const REQUESTER_ERROR: u8 = 13;
const RESPONDER_ERROR: u8 = 14;

pub(crate) const INDEX: u32 = 0x12_3456;

/// Polls `entry` in both sizes, as the first of its queue and as a later one (which take different
/// paths), and passes the completion and a copy of it to `look`.
fn check(entry: Entry, outstanding: impl Fn(&Outstanding), look: impl Fn(&WorkCompletion<'_>)) {
    for stride in [64, 128] {
        let mut bed = Bed::new(2, stride);
        let queue = Outstanding::default();
        bed.register(INDEX, &queue);
        for _ in 0..10 {
            outstanding(&queue);
            bed.device.write(entry);
            let before = bed.ring.consumer();
            let completion = bed.next().expect("a completion");
            look(&completion);
            let owned = completion.to_owned();
            look(&owned.as_completion());
            assert_eq!(format!("{completion:?}"), format!("{owned:?}"));
            assert_eq!(owned.descriptor()[..63], entry.0[..63]);
            assert_eq!(bed.ring.consumer(), before + 1);
            assert!(bed.next().is_none());
            bed.ring.publish();
        }
        assert_eq!(bed.ring.corruption(), None);
    }
}

/// [`check`] for a completed send request of opcode `opcode`.
fn check_sent(entry: Entry, opcode: u8, look: impl Fn(&WorkCompletion<'_>)) {
    check(
        entry,
        |queue| queue.send(0xfffe, 0x1234_5678_9abc_def0, opcode),
        |completion| {
            assert_eq!(completion.wr_id(), 0x1234_5678_9abc_def0);
            look(completion);
        },
    );
}

pub(crate) fn check_received(entry: Entry, look: impl Fn(&WorkCompletion<'_>)) {
    check(
        entry,
        |queue| queue.receive(0xfffe, 0xfeed_0000_0000_0001),
        |completion| {
            assert_eq!(completion.wr_id(), 0xfeed_0000_0000_0001);
            look(completion);
        },
    );
}

/// Asserts that the fields that only a received message has are `None`.
fn assert_no_message(completion: &WorkCompletion<'_>) {
    assert_eq!(completion.imm_data(), None);
    assert_eq!(completion.invalidated_rkey(), None);
    assert_eq!(completion.src_qp(), None);
    assert_eq!(completion.slid(), None);
    assert_eq!(completion.service_level(), None);
    assert_eq!(completion.dlid_path_bits(), None);
    assert_eq!(completion.has_grh(), None);
    assert_eq!(completion.pkey_index(), None);
    assert_eq!(completion.packet_headers(), None);
    assert_eq!(completion.hashed_headers(), None);
    assert_eq!((completion.tunneled(), completion.congestion_experienced()), (None, None));
}

#[test]
fn a_sent_request_is_known_by_what_was_posted() {
    use CompletionOpcode::*;
    for (opcode, expected, returns) in [
        (0x0a, Send, false),
        (0x0b, Send, false),
        (0x01, Send, false),
        (0x08, RdmaWrite, false),
        (0x09, RdmaWrite, false),
        (0x10, RdmaRead, true),
        (0x11, CompareSwap, true),
        (0x12, FetchAdd, true),
        (0x0e, Tso, false),
        (0x25, Other(Opcode::Umr), false),
        (0x00, Other(Opcode::Nop), false),
        // Raw requests may have any opcode.
        (0x0f, Unnamed(0x0f), false),
        (0x23, Unnamed(0x23), false),
        (0x31, Unnamed(0x31), false),
        (0x34, Unnamed(0x34), false),
        (0x3f, Unnamed(0x3f), false),
    ] {
        let entry = Entry::new(REQUESTER, INDEX, 0xfffe)
            .byte_count(0x0102_0304)
            .qp_num(0x0a_bc_de_f0)
            .timestamp(0x0011_2233_4455_6677);
        check_sent(entry, opcode, |completion| {
            assert_eq!(completion.status(), Ok(()));
            assert!(completion.is_success());
            assert_eq!(completion.opcode(), expected);
            assert!(!completion.cancelled());
            // For a request that returns nothing, the field must not be read.
            assert_eq!(completion.byte_len(), returns.then_some(0x0102_0304));
            assert_eq!(completion.qp_num(), 0xbc_de_f0);
            assert_eq!(completion.timestamp(), Some(0x0011_2233_4455_6677));
            assert!(!completion.solicited());
            assert_no_message(completion);
        });
    }
}

/// A request that was rewritten into a NOP: it did not fail, and transferred nothing.
#[test]
fn a_cancelled_request_is_known_by_what_was_posted_and_says_that_it_was_cancelled() {
    use CompletionOpcode::*;
    for (opcode, expected) in [
        (0x0a, Send),
        (0x0b, Send),
        (0x08, RdmaWrite),
        (0x09, RdmaWrite),
        (0x10, RdmaRead),
        (0x11, CompareSwap),
        (0x2d, Unnamed(0x2d)),
        (0x32, Unnamed(0x32)),
    ] {
        let entry = Entry::new(REQUESTER, INDEX, 0xfffe).byte_count(99).qp_num(7);
        check_sent(entry, opcode | SentRequest::CANCELLED, |completion| {
            assert_eq!(completion.status(), Ok(()));
            assert!(completion.cancelled());
            assert_eq!(completion.opcode(), expected);
            assert_eq!(completion.byte_len(), None);
            assert_eq!(completion.qp_num(), 7);
            assert_no_message(completion);
        });
    }
}

/// A request that was cancelled and then flushed, because the queue pair went to the error state.
#[test]
fn a_cancelled_request_may_be_flushed() {
    let entry = Entry::new(REQUESTER_ERROR, INDEX, 0xfffe).error(5, 0xf9);
    check_sent(entry, 0x0a | SentRequest::CANCELLED, |completion| {
        assert!(completion.status().unwrap_err().is_flushed());
        assert!(completion.cancelled());
        assert_eq!(completion.opcode(), CompletionOpcode::Send);
    });
}

/// A send request that was executed reports that it sent immediate data; a receive never does.
#[test]
fn a_request_that_sent_immediate_data_says_so() {
    for (opcode, immediate) in [(0x0a, false), (0x0b, true), (0x08, false), (0x09, true)] {
        let done = Entry::new(REQUESTER, INDEX, 0xfffe);
        check_sent(done, opcode, |completion| {
            assert_eq!(completion.sent_immediate(), immediate, "{opcode:#x}");
        });
        let done = Entry::new(REQUESTER, INDEX, 0xfffe);
        check_sent(done, opcode | SentRequest::CANCELLED, |completion| {
            assert!(!completion.sent_immediate(), "cancelled: {opcode:#x}");
        });
        let failed = Entry::new(REQUESTER_ERROR, INDEX, 0xfffe).error(5, 0xf9);
        check_sent(failed, opcode, |completion| assert!(!completion.sent_immediate()));
    }
    for opcode in [WRITE_IMM, SEND, SEND_IMM] {
        let entry = Entry::new(opcode, INDEX, 0xfffe);
        check_received(entry, |completion| assert!(!completion.sent_immediate()));
    }
}

#[test]
fn a_received_message_has_a_sender_and_a_length() {
    use CompletionOpcode::*;
    for (opcode, expected) in [
        (WRITE_IMM, ReceiveRdmaWithImm),
        (SEND, Receive),
        (SEND_IMM, Receive),
        (SEND_INVALIDATE, Receive),
    ] {
        for (grh, has_grh) in [(0, false), (1, true), (2, true), (3, true)] {
            let entry = Entry::new(opcode, INDEX, 0xfffe)
                .byte_count(0x8000_0001)
                .imm([0x0a, 0x0b, 0x0c, 0x0d])
                .qp_num(0xff_12_34_56)
                .flags_rqpn(grh, 0x9, 0x65_43_21)
                .slid(0xbeef)
                .path_bits(0xd5)
                .timestamp(u64::MAX - 1);
            check_received(entry, |completion| {
                assert_eq!(completion.status(), Ok(()));
                assert_eq!(completion.opcode(), expected);
                assert!(!completion.cancelled());
                assert_eq!(completion.byte_len(), Some(0x8000_0001));
                assert_eq!(completion.qp_num(), 0x12_34_56);
                assert_eq!(completion.src_qp(), Some(0x65_43_21));
                assert_eq!(completion.service_level(), Some(9));
                assert_eq!(completion.has_grh(), Some(has_grh));
                assert_eq!(completion.slid(), Some(0xbeef));
                assert_eq!(completion.dlid_path_bits(), Some(0x55));
                assert_eq!(completion.timestamp(), Some(u64::MAX - 1));
                // One field, whose meaning depends on the opcode.
                let imm = [WRITE_IMM, SEND_IMM].contains(&opcode);
                assert_eq!(completion.imm_data(), imm.then_some([0x0a, 0x0b, 0x0c, 0x0d]));
                let rkey = (opcode == SEND_INVALIDATE).then_some(0x0a0b_0c0d);
                assert_eq!(completion.invalidated_rkey(), rkey);
                assert_eq!(completion.pkey_index(), (opcode == SEND).then_some(0x0c0d));
            });
        }
    }
}

#[test]
fn a_message_may_be_empty() {
    let entry = Entry::new(SEND, INDEX, 0xfffe).byte_count(0);
    check_received(entry, |completion| assert_eq!(completion.byte_len(), Some(0)));
}

#[test]
fn an_event_may_have_been_asked_for() {
    for opcode in [WRITE_IMM, SEND, SEND_IMM, SEND_INVALIDATE] {
        check_received(Entry::new(opcode, INDEX, 0xfffe), |c| assert!(!c.solicited()));
        check_received(Entry::new(opcode, INDEX, 0xfffe).solicited(), |c| assert!(c.solicited()));
    }
}

/// Number and meaning, from the PRM's table of syndromes.
const SYNDROMES: [(u8, Syndrome); 13] = [
    (0x01, Syndrome::LocalLength),
    (0x02, Syndrome::LocalQpOperation),
    (0x04, Syndrome::LocalProtection),
    (0x05, Syndrome::WorkRequestFlushed),
    (0x06, Syndrome::MemoryWindowBind),
    (0x10, Syndrome::BadResponse),
    (0x11, Syndrome::LocalAccess),
    (0x12, Syndrome::RemoteInvalidRequest),
    (0x13, Syndrome::RemoteAccess),
    (0x14, Syndrome::RemoteOperation),
    (0x15, Syndrome::RetryExceeded),
    (0x16, Syndrome::RnrRetryExceeded),
    (0x22, Syndrome::RemoteAborted),
];

#[test]
fn a_failed_request_says_why() {
    for code in 0..=u8::MAX {
        let known = SYNDROMES.iter().find(|&&(number, _)| number == code);
        let kind = known.map_or(ErrorKind::Unknown(code), |&(_, known)| ErrorKind::Known(known));
        let error = CompletionError { kind, vendor: 0x93 };
        let look = |completion: &WorkCompletion<'_>| {
            assert_eq!(completion.status(), Err(error));
            assert!(!completion.is_success());
            assert_eq!(completion.status().unwrap_err().is_flushed(), code == 5);
            assert_eq!(completion.status().unwrap_err().is_page_fault(), code == 0x22);
            assert_eq!(completion.byte_len(), None);
            assert_eq!(completion.timestamp(), None);
            assert_eq!(completion.qp_num(), 0x12_34_56);
            assert!(!completion.cancelled());
            assert_no_message(completion);
        };
        for (opcode, expected) in [
            (0x0a, CompletionOpcode::Send),
            (0x08, CompletionOpcode::RdmaWrite),
            (0x10, CompletionOpcode::RdmaRead),
        ] {
            let entry = Entry::new(REQUESTER_ERROR, INDEX, 0xfffe).error(code, 0x93);
            check_sent(entry.qp_num(0x0a_12_34_56), opcode, |completion| {
                look(completion);
                assert_eq!(completion.opcode(), expected);
            });
        }
        let entry = Entry::new(RESPONDER_ERROR, INDEX, 0xfffe).error(code, 0x93);
        check_received(entry.qp_num(0x12_34_56), |completion| {
            look(completion);
            assert_eq!(completion.opcode(), CompletionOpcode::Receive);
        });
    }
}

#[test]
fn an_abort_for_another_reason_is_no_page_fault() {
    for vendor in 0..=u8::MAX {
        let entry = Entry::new(RESPONDER_ERROR, INDEX, 0xfffe).error(0x22, vendor);
        check_received(entry, |completion| {
            assert_eq!(completion.status().unwrap_err().is_page_fault(), vendor == 0x93);
        });
    }
}

#[test]
fn a_failure_can_be_read() {
    let error = |code| CompletionError { kind: code, vendor: 0x68 };
    assert_eq!(
        error(ErrorKind::Known(Syndrome::WorkRequestFlushed)).to_string(),
        "work request flushed (vendor code 0x68)"
    );
    assert_eq!(
        error(ErrorKind::Unknown(0x77)).to_string(),
        "unknown error 0x77 (vendor code 0x68)"
    );
}

/// In an entry of 128 bytes the descriptor is the second half; the ring ignores the first.
#[test]
fn the_first_half_of_a_large_entry_is_not_looked_at() {
    let mut bed = Bed::new(1, 128);
    let queue = Outstanding::default();
    bed.register(INDEX, &queue);
    for counter in 0..6 {
        // These bytes would be a valid entry, if the ring read them.
        let at = bed.device.buffer.at(usize::from(counter % 2u16) * 128);
        let lure = Entry::new(REQUESTER, INDEX, 99).0;
        // SAFETY: the first half of a CQE of the buffer, to which nothing else writes now.
        unsafe { at.cast::<[u8; 64]>().write_volatile(lure) };
        assert!(bed.next().is_none());
        queue.send(counter, 5, 0x0a);
        bed.device.write(Entry::new(REQUESTER, INDEX, counter));
        assert_eq!(bed.next_id(), Some(5));
        assert!(bed.next().is_none());
    }
    assert_eq!(bed.ring.corruption(), None);
}

/// Requests without completions of their own are retired with the next one that has a completion.
#[test]
fn a_completion_may_be_about_a_request_behind_others() {
    let mut bed = Bed::new(2, 64);
    let queue = Outstanding::default();
    bed.register(INDEX, &queue);
    for turn in 0..9u16 {
        for i in 0..3 {
            queue.send(turn * 3 + i, u64::from(turn * 3 + i), 0x0a);
        }
        bed.device.write(Entry::new(REQUESTER, INDEX, turn * 3 + 2));
        assert_eq!(bed.next_id(), Some(u64::from(turn * 3 + 2)));
    }
    assert!(queue.sends.borrow().is_empty());
}

#[test]
fn queues_share_a_completion_queue() {
    let mut bed = Bed::new(3, 64);
    let queues: [Outstanding; 4] = Default::default();
    // Indexes that differ in one of the two levels of the table, or in both.
    let indexes = [0, 1, 0x1000, 0xff_ffff];
    for (&index, queue) in indexes.iter().zip(&queues) {
        bed.register(index, queue);
    }
    for turn in 0..100u16 {
        for (i, (&index, queue)) in indexes.iter().zip(&queues).enumerate() {
            let wr_id = u64::from(turn) * 100 + i as u64;
            // The same counter on all of them, once as a send and once as a receive.
            if turn & 1 == 0 {
                queue.send(turn, wr_id, 0x0a);
                bed.device.write(Entry::new(REQUESTER, index, turn));
            } else {
                queue.receive(turn, wr_id);
                bed.device.write(Entry::new(SEND, index, turn));
            }
        }
        for i in 0..4 {
            let completion = bed.next().unwrap();
            assert_eq!(completion.wr_id(), u64::from(turn) * 100 + i);
            assert_eq!(completion.byte_len().is_some(), turn & 1 == 1);
        }
        assert!(bed.next().is_none());
        bed.ring.publish();
    }
}
