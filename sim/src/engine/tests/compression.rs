//! Completions that are compressed, held back, or carry a message.

use mlx5_prm::cqe::{CqeOpcode, Format, MiniFormat, OP_OWN_INITIAL};
use mlx5_prm::wqe::Opcode;
use zerocopy::{FromZeros, IntoBytes};

use super::rig::{Cq, Rig, Wqe, data};
use crate::engine::{CompletionConfig, Event, Moderation, QpConfig, QpState, Transport};

fn op_own(cq: &Cq, index: usize) -> u8 {
    cq.descriptor(index)[63]
}

/// Byte count of an entry; in a title it is the length of the run.
fn count(cq: &Cq, index: usize) -> u32 {
    u32::from_be_bytes(cq.descriptor(index)[44..48].try_into().expect("four bytes"))
}

#[test]
fn requests_in_a_row_become_a_title_and_arrays_with_holes_between() {
    for entry in [64, 128] {
        let rig = Rig::one_device();
        let mut cq = rig.cq_with(0, 4, entry, |c| c.compression = Some(MiniFormat::Hash));
        let mut qp = rig.qp(0, Transport::Rc, &cq, None, 4);
        rig.connect(&qp, &qp);
        for lap in 0..3u8 {
            for _ in 0..12 {
                qp.post(&Wqe::new(Opcode::Nop));
            }
            rig.run();
            let first = usize::from(lap) * 12;
            let at = |n: usize| (first + n) % 16;
            let owner = |n: usize| ((first + n) / 16 % 2) as u8;
            assert_eq!(op_own(&cq, at(0)), 3 << 2 | owner(0), "title, {entry} bytes");
            assert_eq!(count(&cq, at(0)), 12);
            let array = |n: usize| cq.descriptor(at(n));
            for (k, mini) in array(1).chunks(8).chain(array(8).chunks(8)).take(12).enumerate() {
                let index = (first + k) as u16;
                assert_eq!(mini[..2], index.to_be_bytes(), "block index");
                assert_eq!(mini[2], Opcode::Nop as u8);
                assert_eq!(mini[4..], [0; 4], "byte count");
            }
            if lap == 0 {
                for hole in (2..8).chain(9..12) {
                    assert_eq!(op_own(&cq, hole), OP_OWN_INITIAL, "nothing is written to a hole");
                }
            }
            cq.pass(12);
        }
    }
}

#[test]
fn an_entry_that_does_not_fit_ends_a_run_and_comes_after_it() {
    let rig = Rig::one_device();
    let mut cq = rig.cq_with(0, 4, 64, |c| c.compression = Some(MiniFormat::Checksum));
    let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
    rig.connect(&qp, &qp);
    for _ in 0..3 {
        qp.post(&Wqe::new(Opcode::Nop));
    }
    qp.post(&Wqe::new(Opcode::TagMatching));
    qp.post(&Wqe::new(Opcode::Nop));
    rig.run();
    assert_eq!((op_own(&cq, 0), count(&cq, 0)), (3 << 2, 3));
    let opcodes = [3, 4].map(|at| op_own(&cq, at) >> 4);
    assert_eq!(opcodes, [CqeOpcode::RequesterError as u8; 2]);
    cq.pass(3);
    assert_eq!(cq.expect().wqe(), 3);
    assert_eq!(cq.expect().wqe(), 4);
    cq.expect_none();
}

#[test]
fn a_run_of_one_is_written_as_it_is_and_nothing_is_kept_for_ever() {
    let rig = Rig::one_device();
    let mut cq = rig.cq_with(0, 3, 64, |c| c.compression = Some(MiniFormat::Hash));
    let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
    rig.connect(&qp, &qp);
    qp.post(&Wqe::new(Opcode::Nop));
    rig.run();
    assert_eq!(op_own(&cq, 0) & 0xf, 0, "plain");
    assert_eq!(cq.expect().wqe(), 0);

    // A reset of the queue pair first writes the entries that the queue holds back.
    for _ in 0..2 {
        qp.post(&Wqe::new(Opcode::Nop));
    }
    rig.fabric.step();
    rig.fabric.step();
    assert_eq!(op_own(&cq, 1), OP_OWN_INITIAL, "kept back");
    rig.set_state(&qp, QpState::Reset);
    assert_eq!((op_own(&cq, 1), count(&cq, 1)), (3 << 2, 2));
}

#[test]
fn receives_keep_of_their_own_what_the_format_says() {
    use mlx5_prm::cqe::{Cqe, OPCODE_SHIFT};
    for format in [MiniFormat::Hash, MiniFormat::Checksum, MiniFormat::ChecksumStride] {
        let rig = Rig::one_device();
        let cq = rig.cq_with(0, 3, 128, |c| c.compression = Some(format));
        for k in 0..3u16 {
            let mut cqe = Cqe::new_zeroed();
            cqe.op_own = (CqeOpcode::ResponderSend as u8) << OPCODE_SHIFT;
            cqe.wqe_counter.set(0xffff_u16.wrapping_add(k));
            cqe.byte_count.set(100 + u32::from(k));
            match format {
                MiniFormat::Hash => cqe.rss_hash_result.set(0xaabb_cc00 + u32::from(k)),
                _ => cqe.check_sum.set(0x1230 + k),
            }
            let entry = cqe.as_bytes().try_into().expect("64 bytes");
            assert!(rig.lock().device_mut(0).inject_completion(cq.cqn, entry, &[]));
        }
        rig.run();
        assert_eq!((op_own(&cq, 0), count(&cq, 0)), (2 << 4 | 3 << 2, 3), "{format:?}");
        for (k, mini) in (0..3u8).zip(cq.descriptor(1).chunks(8)) {
            let unique = match format {
                MiniFormat::Hash => [0xaa, 0xbb, 0xcc, k],
                _ => [0x12, 0x30 + k, 0, 0],
            };
            assert_eq!(mini, [unique, [0, 0, 0, 100 + k]].concat());
        }
    }
}

#[test]
fn a_full_ring_counts_what_is_kept_back() {
    let rig = Rig::one_device();
    let cq = rig.cq_with(0, 2, 64, |c| c.compression = Some(MiniFormat::Hash));
    let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
    rig.connect(&qp, &qp);
    for _ in 0..5 {
        qp.post(&Wqe::new(Opcode::Nop));
    }
    rig.run();
    assert_eq!((op_own(&cq, 0), count(&cq, 0)), (3 << 2, 4));
    assert_eq!(rig.events(0)[0], Event::CqError { cqn: cq.cqn, syndrome: 1 });
}

#[test]
fn entries_of_64_bytes_have_no_room_for_as_much_data() {
    for (entry, limit, fits) in [(64, 32, true), (64, 64, false), (128, 64, true)] {
        let rig = Rig::one_device();
        let cq = rig.cq(0, 4, entry);
        let qp = rig.qp(0, Transport::Rc, &cq, None, 3);
        let mut engine = rig.lock();
        let device = engine.device_mut(0);
        let config = device.qps.get(qp.qpn).expect("a QP").config.clone();
        for (inline_answers, inline_receives) in [(limit, 0), (0, limit)] {
            let completion =
                CompletionConfig { inline_answers, inline_receives, ..config.completion };
            let made = device.create_qp(QpConfig { completion, ..config.clone() });
            assert_eq!(made.is_ok(), fits, "{limit} bytes in {entry}: {made:?}");
        }
    }
}

#[test]
fn short_messages_and_answers_go_into_the_entry() {
    for (entry, limit) in [(64, 32), (128, 64)] {
        let rig = Rig::one_device();
        let cq = rig.cq(0, 4, entry);
        let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
        let inline = CompletionConfig {
            inline_answers: limit,
            inline_receives: limit,
            ..CompletionConfig::default()
        };
        rig.lock().device_mut(0).qps.get_mut(qp.qpn).expect("a QP").config.completion = inline;
        rig.connect(&qp, &qp);
        let (from, to) = (rig.region(0, 128), rig.region(0, 128));
        let message: Vec<u8> = (1..=128).collect();
        from.memory.write(0, &message);
        for bytes in [limit as u32, limit as u32 + 1] {
            qp.post_receive(&[data(to.at(0), 128, to.key)]);
            qp.post(&Wqe::new(Opcode::Send).data(from.at(0), bytes, from.key));
        }
        let length = limit as u32;
        qp.post(&Wqe::new(Opcode::RdmaRead).remote(from.at(0), from.key).data(
            to.at(0),
            length,
            to.key,
        ));
        while op_own(&cq, 0) == OP_OWN_INITIAL {
            assert!(rig.fabric.step());
        }
        assert_eq!(to.memory.read(0, 128), [0; 128], "not in memory");
        rig.run();
        // Receive, send, receive, send, read.
        let formats = [0, 1, 2, 3, 4].map(|at| Format::of(op_own(&cq, at)));
        let short = if limit == 32 { Format::Inline32 } else { Format::Inline64 };
        assert_eq!(formats, [short, Format::Plain, Format::Plain, Format::Plain, short]);
        for at in [0, 4] {
            let start = at * usize::from(entry);
            assert_eq!(cq.memory.read(start, limit), message[..limit]);
        }
        assert_eq!(to.memory.read(0, limit + 1), message[..limit + 1]);
    }
}

#[test]
fn moderation_waits_for_completions_or_for_its_time() {
    let rig = Rig::one_device();
    let moderation = Moderation { count: 3, period_us: 50 };
    let mut cq = rig.cq_with(0, 4, 64, |c| c.moderation = moderation);
    let mut qp = rig.qp(0, Transport::Rc, &cq, None, 3);
    rig.connect(&qp, &qp);
    let event = Event::Completion { cqn: cq.cqn, eqn: 7 };
    let arm = |cq: &Cq, sequence: u32, consumed: u32| {
        let word = sequence << 28 | consumed;
        cq.arm_record(word);
        let doorbell = u64::from(word) << 32 | u64::from(cq.cqn);
        super::rig::poke(rig.uar_address(0) + 0x20, &doorbell.to_be_bytes());
    };
    arm(&cq, 0, 0);
    rig.run();
    for _ in 0..3 {
        assert_eq!(rig.events(0), []);
        qp.post(&Wqe::new(Opcode::Nop));
        while cq.poll().is_none() {
            assert!(rig.fabric.step());
        }
    }
    assert_eq!(rig.events(0), [event], "the third one");

    arm(&cq, 1, 3);
    qp.post(&Wqe::new(Opcode::Nop));
    while cq.poll().is_none() {
        assert!(rig.fabric.step());
    }
    let before = rig.lock().device(0).clocks().0;
    assert_eq!(rig.events(0), []);
    rig.run();
    assert_eq!(rig.events(0), [event], "its time is over");
    assert!(rig.lock().device(0).clocks().0 - before >= 49_000);
}
