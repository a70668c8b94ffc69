//! CQEs that no correct device writes. They never cause a completion, a panic or an access outside
//! the queue.

use crate::bed::{Bed, Entry, Outstanding};
use crate::compressed::{mini, write_run};
use mlx5_cq::{Corruption, InlineData, WorkCompletion};
use mlx5_prm::cqe::{Format, MiniFormat};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Checks that the poller stops at `bad` and reports `expected`. The queue has 0, 1 or 2 correct
/// completions, then `bad`, then another correct completion.
fn check(bad: Entry, expected: Corruption) {
    for stride in [64, 128] {
        for before in 0..3u16 {
            let mut bed = Bed::new(3, stride);
            let queue = Outstanding::default();
            bed.register(5, &queue);
            for counter in 0..before {
                queue.send(counter, counter.into(), 0x0a);
                bed.device.write(Entry::new(0, 5, counter));
            }
            bed.device.write(bad);
            queue.send(before, 77, 0x0a);
            bed.device.write(Entry::new(0, 5, before));
            for wr_id in 0..before {
                assert_eq!(bed.ring.corruption(), None, "what comes before is delivered");
                assert_eq!(bed.next_id(), Some(wr_id.into()));
            }
            for _ in 0..3 {
                assert!(bed.next().is_none());
                assert_eq!(bed.ring.corruption(), Some(expected));
                assert_eq!(bed.ring.consumer(), before.into());
                assert!(bed.ring.needs_attention());
            }
            bed.ring.publish();
            assert_eq!(bed.published(), before.into());
        }
    }
}

#[test]
fn an_opcode_that_is_not_known_is_corruption() {
    // Opcodes 5 and 6 belong to resized and to tag-matching queues; opcode 15 marks an entry that
    // was not written.
    for opcode in (5..=11).chain([15]) {
        check(Entry::new(opcode, 5, 0), Corruption::Opcode(opcode));
    }
}

#[test]
fn a_user_index_that_no_queue_ever_had_is_corruption() {
    // A CQE about a signature (opcode 12) has no user index.
    for opcode in (0..16).filter(|opcode| *opcode != 12) {
        for index in [0, 4, 6, 0x1005, 0xff_ffff] {
            check(Entry::new(opcode, index, 0), Corruption::UserIndex(index));
        }
    }
}

#[test]
fn a_request_that_is_not_outstanding_is_corruption() {
    for opcode in [0, 1, 2, 3, 4, 13, 14] {
        for counter in [3, 0x8000, 0xffff] {
            let corruption = Corruption::Counter { user_index: 5, counter };
            check(Entry::new(opcode, 5, counter), corruption);
        }
    }
}

/// The format of an entry is fixed when the ring takes the entry: a format that the device writes
/// afterwards adds no inline data. In a queue of 64-byte entries, 64 bytes of inline data would lie
/// before the entry.
#[test]
fn an_entry_that_changes_once_it_was_taken_leads_nowhere_else() {
    for stride in [64, 128] {
        for format in [1, 2, 3] {
            let mut bed = Bed::new(3, stride);
            let queue = Outstanding::default();
            bed.register(5, &queue);
            queue.receive(0, 7);
            bed.device.write(Entry::new(2, 5, 0).byte_count(64));
            let Bed { ring, device, .. } = &mut bed;
            let completion = ring.next().expect("an ordinary receive");
            let mut changed = Entry::new(2, 5, 0).byte_count(64);
            changed.0[63] |= format << 2;
            device.store(0, changed);
            assert!(completion.inline_data().is_none());
            assert!(completion.to_owned().as_completion().inline_data().is_none());
        }
    }
}

/// A completion of a request that is not posted yet must not become valid when the request is
/// posted.
#[test]
fn an_entry_that_came_too_early_never_completes_anything() {
    for (opcode, unsignaled) in [(0, 0), (0, 1), (13, 0), (2, 0), (14, 0)] {
        let mut bed = Bed::new(3, 64);
        let queue = Outstanding::default();
        bed.register(5, &queue);
        queue.send(0, 1, 0x0a);
        bed.device.write(Entry::new(0, 5, 0));
        assert_eq!(bed.next_id(), Some(1));
        let counter = 1 + unsignaled;
        bed.device.write(Entry::new(opcode, 5, counter));
        assert!(bed.next().is_none());
        let corruption = Some(Corruption::Counter { user_index: 5, counter });
        assert_eq!(bed.ring.corruption(), corruption);
        for counter in 1..5 {
            queue.send(counter, 2, 0x0a);
            queue.receive(counter, 3);
        }
        for _ in 0..3 {
            assert!(bed.next().is_none());
            assert_eq!(bed.ring.corruption(), corruption);
        }
        // An entry for an unknown user index does not become valid either when the index is
        // assigned later.
        let mut bed = Bed::new(3, 64);
        bed.device.write(Entry::new(opcode, 5, counter));
        assert!(bed.next().is_none());
        bed.register(5, &queue);
        assert!(bed.next().is_none());
        assert_eq!(bed.ring.corruption(), Some(Corruption::UserIndex(5)));
    }
}

/// The driver may reset or free a queue once the ring holds no completion of this queue. A doorbell
/// record that the device overwrites must therefore not hide any completion.
#[test]
fn doorbell_record_written_by_the_device_changes_nothing() {
    let mut bed = Bed::new(3, 64);
    let queue = Outstanding::default();
    bed.register(5, &queue);
    for counter in 0..20u16 {
        queue.send(counter, counter.into(), 0x0a);
        bed.device.write(Entry::new(0, 5, counter));
        bed.scribble([counter as u8; 8]);
        assert_eq!(bed.ring.state().consumed(), counter.into());
        assert_eq!(bed.ring.state().end_of(5), Some(u32::from(counter) + 1));
        assert_eq!(bed.next_id(), Some(counter.into()));
        bed.ring.publish();
        assert_eq!(bed.published(), u32::from(counter) + 1, "the index is published again");
    }
    bed.scribble([0; 8]);
    assert_eq!(bed.ring.state().end_of(5), None);
}

#[test]
fn corruption_can_be_read() {
    let texts = [
        Corruption::Opcode(12),
        Corruption::UserIndex(0x99),
        Corruption::Counter { user_index: 5, counter: 0x1234 },
        Corruption::Format(Format::Compressed),
        Corruption::Inline(65),
        Corruption::Run(1),
        Corruption::Resize,
    ]
    .map(|corruption| corruption.to_string());
    assert_eq!(
        texts,
        [
            "CQE with opcode 0xc",
            "CQE for user index 0x99, which no queue has",
            "CQE for request 0x1234 of the queue with user index 0x5, which is not outstanding",
            "CQE of a format that was not requested: compressed",
            "CQE with 65 bytes of inline data",
            "compressed run of 1 CQEs",
            "the resize CQE is missing",
        ]
    );
}

/// Calls every accessor.
pub(crate) fn read_all(completion: &WorkCompletion<'_>) {
    let owned = completion.to_owned();
    for completion in [completion, &owned.as_completion()] {
        let _ = format!("{completion:?} {:?}", completion.status().map_err(|e| e.to_string()));
        let _ = (completion.opcode(), completion.byte_len(), completion.imm_data());
        let _ = (completion.invalidated_rkey(), completion.qp_num(), completion.src_qp());
        let _ = (completion.slid(), completion.service_level(), completion.dlid_path_bits());
        let _ = (completion.has_grh(), completion.pkey_index(), completion.solicited());
        let _ = (completion.timestamp(), completion.cancelled(), completion.is_success());
        let _ = (completion.vlan(), completion.checksum_ok(), completion.checksum());
        let _ = (completion.rss_hash(), completion.flow_tag(), completion.is_compressed());
        if let Some(data) = completion.inline_data() {
            let mut to = [0; InlineData::MAX];
            assert_eq!(data.copy_to(&mut to), Some(data.len()));
            assert!(data.bytes().eq(to[..data.len()].iter().copied()));
        }
    }
}

/// The expected result for an entry, decoded from its bytes here.
#[derive(PartialEq, Debug)]
enum Verdict {
    Completion(u64),
    Passed,
    Corrupt(Corruption),
}

fn verdict(bytes: &[u8; 64], stride: usize) -> Verdict {
    let length = u32::from_be_bytes([bytes[44], bytes[45], bytes[46], bytes[47]]);
    // The format has a meaning only in entries without an error.
    match (bytes[63] >> 4, bytes[63] >> 2 & 3) {
        (0..=4, 3) => return Verdict::Corrupt(Corruption::Format(Format::Compressed)),
        (0..=4, 2) if stride == 64 => {
            return Verdict::Corrupt(Corruption::Format(Format::Inline64));
        }
        (0..=4, format @ 1..=2) if length > 32 * u32::from(format) => {
            return Verdict::Corrupt(Corruption::Inline(length));
        }
        _ => {}
    }
    let user_index = u32::from_be_bytes([0, bytes[33], bytes[34], bytes[35]]);
    let counter = u16::from_be_bytes([bytes[60], bytes[61]]);
    let stray = Verdict::Corrupt(Corruption::Counter { user_index, counter });
    match (user_index, bytes[63] >> 4) {
        (_, 12) | (2, _) => Verdict::Passed,
        (0 | 1, 0 | 13) if counter < 8 => {
            Verdict::Completion(u64::from(user_index * 100 + u32::from(counter)))
        }
        (0 | 1, 1..=4 | 14) if counter < 8 => {
            Verdict::Completion(u64::from(user_index * 100 + u32::from(counter) + 50))
        }
        (0 | 1, 0..=4 | 13 | 14) => stray,
        (0 | 1, opcode) => Verdict::Corrupt(Corruption::Opcode(opcode)),
        _ => Verdict::Corrupt(Corruption::UserIndex(user_index)),
    }
}

/// Random bytes that often name an existing queue and an existing request.
fn any_entry() -> impl Strategy<Value = [u8; 64]> {
    let index = prop_oneof![6 => (0..4u32).boxed(), 1 => any::<u32>().boxed()];
    let counter = prop_oneof![6 => (0..9u16).boxed(), 1 => any::<u16>().boxed()];
    let halves = (any::<[u8; 32]>(), any::<[u8; 32]>(), any::<bool>());
    (halves, index, counter).prop_map(|((first, second, wild), index, counter)| {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&first);
        bytes[32..].copy_from_slice(&second);
        if !wild {
            bytes[33..36].copy_from_slice(&index.to_be_bytes()[1..]);
            bytes[60..62].copy_from_slice(&counter.to_be_bytes());
        }
        // Mostly a short length, so that the message fits into the entry.
        if bytes[0] & 3 != 0 {
            let length = u32::from(bytes[1] % 80);
            bytes[44..48].copy_from_slice(&length.to_be_bytes());
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        rng_seed: RngSeed::Fixed(0x6d6c_7835),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_are_a_completion_or_corruption_and_nothing_else(
        entries in prop::collection::vec(any_entry(), 1..12),
        large in any::<bool>(),
    ) {
        let stride = if large { 128 } else { 64 };
        let mut bed = Bed::new(2, stride);
        let queues: [Outstanding; 3] = Default::default();
        for (index, queue) in (0..).zip(&queues) {
            bed.register(index, queue);
        }
        bed.table.depart(2);
        for bytes in entries {
            // All requests of the first two queues are outstanding again.
            for (i, queue) in (0..).zip(&queues[..2]) {
                queue.sends.borrow_mut().clear();
                queue.receives.borrow_mut().clear();
                for counter in 0..8u16 {
                    queue.send(counter, i * 100 + u64::from(counter), bytes[1] & 0x7f);
                    queue.receive(counter, i * 100 + u64::from(counter) + 50);
                }
            }
            let consumer = bed.ring.consumer();
            bed.device.write(Entry(bytes));
            let expected = verdict(&bytes, stride);
            let found = bed.next().map(|completion| {
                read_all(&completion);
                completion.wr_id()
            });
            let found = match (found, bed.ring.corruption()) {
                (Some(wr_id), None) => Verdict::Completion(wr_id),
                (None, None) => Verdict::Passed,
                (None, Some(corruption)) => Verdict::Corrupt(corruption),
                both => panic!("{both:?}"),
            };
            let corrupt = matches!(found, Verdict::Corrupt(_));
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(bed.ring.consumer(), consumer + u32::from(!corrupt));
            prop_assert_eq!(queues[2].asked.get(), 0);
            bed.ring.publish();
            if corrupt {
                prop_assert!(bed.next().is_none());
                break;
            }
        }
    }
}

/// The device overwrites the title of the current run after some CQEs of the run were polled. The
/// number of waiting CQEs must not change.
#[test]
fn a_title_that_is_taken_back_does_not_change_how_many_of_its_run_wait() {
    for taken in 1..4 {
        let mut bed = Bed::compressed(3, 64, MiniFormat::Hash);
        let queue = Outstanding::default();
        bed.register(1, &queue);
        (0..4).for_each(|counter| queue.receive(counter, 0));
        write_run(&mut bed.device, Entry::new(2, 1, 0), &[mini([0; 4], 1); 4]);
        for _ in 0..taken {
            assert!(bed.next().is_some());
        }
        assert_eq!(bed.ring.waiting(), Some(4 - taken));
        bed.device.store(0, Entry([0xff; 64]));
        assert_eq!(bed.ring.waiting(), Some(4 - taken));
        assert!(format!("{:?}", bed.ring).contains("waiting"));
    }
}
