//! Compressed runs, computed from the description of the format, and inline data.

use crate::bed::{Bed, Device, Entry, Outstanding};
use mlx5_cq::{CompletionOpcode, Corruption, Next, Queue, RingBuffer, Sent, SentRequest};
use mlx5_prm::cqe::{Format, MiniFormat};

const FORMATS: [MiniFormat; 3] =
    [MiniFormat::Hash, MiniFormat::Checksum, MiniFormat::ChecksumStride];

/// Writes a run as a device does: arrays of eight mini CQEs in slots 1, 8, 16 and so on, nothing in
/// the other slots, and the title last.
pub(crate) fn write_run(device: &mut Device, title: Entry, minis: &[[u8; 8]]) {
    let first = device.written;
    for (number, minis) in minis.chunks(8).enumerate() {
        let mut array = [0; 64];
        array[..minis.len() * 8].copy_from_slice(minis.as_flattened());
        let place = if number == 0 { 1 } else { number as u32 * 8 };
        device.store(first + place, Entry(array));
    }
    let mut title = title.byte_count(minis.len() as u32);
    title.0[63] |= 3 << 2;
    device.write(title);
    device.written = first + minis.len() as u32;
}

pub(crate) fn mini(unique: [u8; 4], bytes: u32) -> [u8; 8] {
    let mut mini = [0; 8];
    mini[..4].copy_from_slice(&unique);
    mini[4..].copy_from_slice(&bytes.to_be_bytes());
    mini
}

#[test]
fn run_of_receives_is_reported_one_by_one_with_each_ones_fields() {
    for (format, stride) in FORMATS.into_iter().zip([64, 128, 64]) {
        for count in [2, 7, 8, 9, 16, 17, 23] {
            let mut bed = Bed::compressed(5, stride, format);
            let queue = Outstanding::default();
            bed.register(5, &queue);
            let mut counter = 0xfff8_u16;
            // Some plain entries first, so that runs start at every slot and wrap.
            for lap in 0..40u32 {
                queue.receive(counter, counter.into());
                bed.device.write(Entry::new(2, 5, counter).timestamp(7));
                assert_eq!(bed.next().map(|wc| wc.timestamp()), Some(Some(7)));
                bed.ring.publish();
                counter = counter.wrapping_add(1);
                let minis: Vec<[u8; 8]> =
                    (0..count).map(|k| mini([0xab, k as u8, 0x12, 0x34], lap * 1000 + k)).collect();
                for k in 0..count as u16 {
                    let counter = counter.wrapping_add(k);
                    queue.receive(counter, counter.into());
                }
                let title = Entry::new(2, 5, counter).flags_rqpn(0, 3, 0x4567).timestamp(9);
                write_run(&mut bed.device, title, &minis);
                let start = bed.ring.consumer();
                for k in 0..count {
                    assert_eq!(bed.ring.consumer(), start, "passed as a whole");
                    assert_eq!(bed.ring.state().end_of(5), Some(start + count));
                    let wc = bed.next().expect("one more");
                    assert_eq!(wc.wr_id(), u64::from(counter));
                    assert_eq!(wc.byte_len(), Some(lap * 1000 + k));
                    assert_eq!((wc.src_qp(), wc.service_level()), (Some(0x4567), Some(3)));
                    assert_eq!(wc.timestamp(), None, "it is the title's");
                    assert!(wc.is_compressed() && wc.inline_data().is_none());
                    let hash = u32::from_be_bytes([0xab, k as u8, 0x12, 0x34]);
                    let own = match format {
                        MiniFormat::Hash => (Some(hash), None),
                        _ => (None, Some((hash >> 16) as u16)),
                    };
                    assert_eq!((wc.rss_hash(), wc.checksum()), own);
                    let owned = wc.to_owned();
                    assert_eq!(owned.as_completion().byte_len(), wc.byte_len());
                    counter = counter.wrapping_add(1);
                }
                assert_eq!(bed.ring.consumer(), start + count);
                assert!(bed.next().is_none());
                bed.ring.publish();
                assert_eq!(bed.ring.state().end_of(5), None);
            }
            assert_eq!(bed.ring.corruption(), None);
        }
    }
}

#[test]
fn a_run_of_requests_names_each_by_its_block_and_opcode() {
    let mut bed = Bed::compressed(4, 64, MiniFormat::Hash);
    let queue = Outstanding::default();
    bed.register(9, &queue);
    let blocks = [3u16, 4, 9, 10, 300, 301, 302, 303, 310];
    for (wr_id, block) in (0..).zip(blocks) {
        queue.send(block, wr_id, 0x10);
    }
    let minis = blocks.map(|block| {
        let [high, low] = block.to_be_bytes();
        mini([high, low, 0x10, 0], u32::from(block) * 2)
    });
    write_run(&mut bed.device, Entry::new(0, 9, 3).qp_num(0x0a00_0077), &minis);
    for (wr_id, block) in (0..).zip(blocks) {
        let wc = bed.next().expect("one more");
        assert_eq!((wc.wr_id(), wc.byte_len()), (wr_id, Some(u32::from(block) * 2)));
        assert_eq!(wc.qp_num(), 0x77);
    }
    assert!(bed.next().is_none());
}

/// A queue whose program posts itself: the driver has no records of its requests.
struct Raw(#[expect(dead_code, reason = "for its size")] u64);

impl Queue for Raw {
    fn retire_send(&self, _: u16, _: bool) -> Option<Sent> {
        None
    }

    fn retire_next_send(&self, _: u16) -> Option<SentRequest> {
        None
    }

    fn retire_receive(&self, _: u16) -> Option<u64> {
        None
    }

    fn is_lent(&self, _: bool) -> bool {
        true
    }
}

#[test]
fn run_of_raw_requests_reports_the_opcode_of_each() {
    let mut bed = Bed::compressed(4, 64, MiniFormat::Hash);
    let queue = Raw(0);
    bed.register(9, &queue);
    // RDMA write, send, RDMA read, fetch and add.
    let opcodes = [0x08, 0x0a, 0x10, 0x12];
    let minis = opcodes.map(|opcode| mini([0x12, 0x34, opcode, 0], 8));
    write_run(&mut bed.device, Entry::new(0, 9, 3).qp_num(0xff00_0077), &minis);
    use CompletionOpcode::*;
    for opcode in [RdmaWrite, Send, RdmaRead, FetchAdd] {
        let wc = bed.next().expect("one more");
        assert_eq!((wc.opcode(), wc.qp_num()), (opcode, 0x77));
    }
    assert!(bed.next().is_none());
}

#[test]
fn remains_of_a_run_are_not_taken_for_entries_on_the_next_lap() {
    for first in 0..2u8 {
        let mut bed = Bed::compressed(2, 64, MiniFormat::Hash);
        let queue = Outstanding::default();
        bed.register(1, &queue);
        // The last bytes of the array are the byte count of the eighth mini CQE, which this run
        // does not have. The byte in its place looks written on the next lap, whatever the lap.
        for lap in 0..6u16 {
            for k in 0..4 {
                queue.receive(lap * 4 + k, 0);
            }
            let minis: Vec<[u8; 8]> = (0..4).map(|k| mini([0; 4], k)).collect();
            write_run(&mut bed.device, Entry::new(2, 1, lap * 4), &minis);
            // A hole: an entry that the device did not write on this lap.
            let mut stale = Entry::new(2, 1, 0x7777);
            stale.0[63] |= first;
            for hole in 2..4 {
                bed.device.store(u32::from(lap) * 4 + hole, stale);
            }
            for _ in 0..4 {
                assert!(bed.next().is_some());
            }
            for _ in 0..3 {
                assert!(bed.next().is_none(), "lap {lap}");
            }
            bed.ring.publish();
            assert_eq!(bed.ring.corruption(), None);
        }
    }
}

#[test]
fn receives_of_a_departed_queue_in_a_run_are_passed_and_reported() {
    let mut bed = Bed::compressed(3, 64, MiniFormat::Checksum);
    let queue = Outstanding::default();
    bed.register(1, &queue);
    for counter in 0..4 {
        queue.receive(counter, 0);
    }
    let passed = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let reports = std::sync::Arc::clone(&passed);
    bed.ring.on_skipped_receive(Box::new(move |index, counter| {
        let mut passed = reports.lock().expect("whole");
        passed.push((index, counter));
        assert!(passed.len() < 4, "more than the run has: {passed:?}");
    }));
    write_run(&mut bed.device, Entry::new(2, 1, 0), &[mini([0; 4], 1); 4]);
    assert!(bed.next().is_some());
    // The queue is destroyed in the middle of the run.
    let end = bed.ring.state().end_of(1);
    assert_eq!(end, Some(4));
    bed.table.depart(1);
    bed.ring.clear_cached_queues();
    assert!(bed.next().is_none());
    assert_eq!(*passed.lock().expect("whole"), [(1, 1), (1, 2), (1, 3)]);
    assert_eq!(bed.ring.consumer(), 4);
}

#[test]
fn a_run_that_cannot_be_is_corruption() {
    for count in [0u32, 1, 9, 0x8000_0000, u32::MAX] {
        let mut bed = Bed::compressed(3, 64, MiniFormat::Hash);
        let queue = Outstanding::default();
        bed.register(1, &queue);
        let mut title = Entry::new(2, 1, 0).byte_count(count);
        title.0[63] |= 3 << 2;
        bed.device.write(title);
        assert!(bed.next().is_none());
        assert_eq!(bed.ring.corruption(), Some(Corruption::Run(count)));
    }
    let mut bed = Bed::<Outstanding>::new(3, 64);
    let mut title = Entry::new(2, 1, 0).byte_count(2);
    title.0[63] |= 3 << 2;
    bed.device.write(title);
    assert!(bed.next().is_none());
    assert_eq!(bed.ring.corruption(), Some(Corruption::Format(Format::Compressed)));
}

#[test]
fn a_short_message_is_read_from_the_entry_and_takes_the_place_of_what_it_lies_over() {
    for (stride, format, room) in [(64, 1, 32), (128, 1, 32), (128, 2, 64)] {
        for length in [0, 1, room - 1, room] {
            let mut bed = Bed::new(2, stride);
            let queue = Outstanding::default();
            bed.register(1, &queue);
            queue.receive(3, 77);
            let message: Vec<u8> = (0..room as u8).map(|n| n * 3 + 1).collect();
            let mut entry = Entry::new(2, 1, 3).byte_count(length as u32).flags_rqpn(1, 5, 0x99);
            entry.0[63] |= format << 2;
            if format == 1 {
                entry.0[..32].copy_from_slice(&message);
            } else {
                bed.device.store_before(0, &message);
            }
            bed.device.write(entry);
            let wc = bed.next().expect("a completion");
            assert_eq!((wc.wr_id(), wc.byte_len()), (77, Some(length as u32)));
            let own = wc.to_owned();
            for wc in [wc, own.as_completion()] {
                let data = wc.inline_data().expect("a message");
                assert_eq!(data.bytes().collect::<Vec<_>>(), message[..length]);
                assert_eq!(format!("{data:?}"), format!("{:?}", &message[..length]));
                let mut to = vec![0; length];
                assert_eq!((data.len(), data.is_empty()), (length, length == 0));
                if length != 0 {
                    assert_eq!(data.copy_to(&mut to[..length - 1]), None);
                }
                assert_eq!(data.copy_to(&mut to), Some(length));
                assert_eq!(to, message[..length]);
                assert_eq!(
                    length.checked_sub(1).and_then(|last| data.get(last)),
                    to.last().copied()
                );
                assert_eq!(data.get(length), None);
                let fields = (wc.src_qp(), wc.service_level(), wc.has_grh());
                match format {
                    1 => assert_eq!(fields, (None, None, None), "the message is in their place"),
                    _ => assert_eq!(fields, (Some(0x99), Some(5), Some(true))),
                }
            }
        }
    }
}

/// A ring moves with plain CQEs, a run and a half-polled run in it.
#[test]
fn waiting_completions_move_to_another_buffer() {
    for (old, new, stride) in [(4, 5, 64), (5, 4, 128), (4, 4, 64)] {
        for polled in 0..7u32 {
            let mut bed = Bed::compressed(old, stride, MiniFormat::Hash);
            let queue = Outstanding::default();
            bed.register(1, &queue);
            for counter in 0..200 {
                queue.receive(counter, counter.into());
            }
            // The test does not begin at the start of the ring.
            for counter in 0..11 {
                bed.device.write(Entry::new(2, 1, counter));
                assert!(bed.next().is_some());
            }
            bed.ring.publish();
            write_run(&mut bed.device, Entry::new(2, 1, 11), &[mini([0; 4], 1); 5]);
            bed.device.write(Entry::new(2, 1, 16));
            for wr_id in 11..11 + u64::from(polled) {
                assert_eq!(bed.next_id(), Some(wr_id));
            }
            bed.ring.publish();
            let end = bed.ring.state().end_of(1);
            bed.resize(new);
            assert_eq!(bed.ring.state().end_of(1), end, "the ring_buffer are the same");
            bed.device.write(Entry::new(2, 1, 17));
            for wr_id in 11 + u64::from(polled)..=17 {
                assert_eq!(bed.next_id(), Some(wr_id), "{polled} polled");
            }
            assert!(bed.next().is_none());
            bed.ring.publish();
            for counter in 18..150 {
                bed.device.write(Entry::new(2, 1, counter));
                assert_eq!(bed.next_id(), Some(counter.into()));
                bed.ring.publish();
            }
            assert_eq!(bed.ring.corruption(), None);
        }
    }
}

/// The search for the end of a queue's completions starts at the last published consumer index. So
/// a move publishes first, because the CQEs passed since are not in the new buffer.
#[test]
fn passed_completions_are_reported_before_the_rest_moves() {
    for passed in 1..6 {
        let mut bed = Bed::new(3, 64);
        let queue = Outstanding::default();
        bed.register(1, &queue);
        for counter in 0..6 {
            queue.receive(counter, counter.into());
            bed.device.write(Entry::new(2, 1, counter));
        }
        for wr_id in 0..passed {
            assert_eq!(bed.next_id(), Some(wr_id));
        }
        assert_eq!((bed.published(), bed.ring.state().end_of(1)), (0, Some(6)));
        bed.resize(4);
        assert_eq!(u64::from(bed.published()), passed);
        assert_eq!(u64::from(bed.ring.state().consumed()), passed);
        assert_eq!(bed.ring.state().end_of(1), Some(6), "{passed} passed");
        for wr_id in passed..6 {
            assert_eq!(bed.next_id(), Some(wr_id));
        }
        assert!(bed.next().is_none());
    }
}

#[test]
fn a_queue_that_was_not_resized_has_no_entry_that_says_so() {
    let mut bed = Bed::new(2, 64);
    let queue = Outstanding::default();
    bed.register(1, &queue);
    bed.device.write(Entry::new(5, 1, 0));
    assert!(bed.next().is_none());
    assert_eq!(bed.ring.corruption(), Some(Corruption::Opcode(5)));

    let mut bed = Bed::new(2, 64);
    bed.register(1, &queue);
    let to = crate::bed::Memory::new(4);
    let ring_buffer = RingBuffer { start: to.at(0), log_size: 2, stride: 64 };
    // SAFETY: the memory has this size and stride and outlives the use of the ring, and the buffer
    // is cleared.
    let moved = unsafe {
        ring_buffer.clear_from(0);
        bed.ring.move_to(ring_buffer)
    };
    assert_eq!(moved, Err(Corruption::Resize));
    assert_eq!(bed.ring.corruption(), Some(Corruption::Resize));
}

/// Runs of all lengths around the size of a chunk, of requests and of receives, polled one by one
/// and in fast-path polls that publish. In the middle of some, the queue is resized, or the CQEs of
/// another queue are removed before and after the run.
#[test]
fn runs_of_every_length_report_each_cqe_once_despite_interruptions() {
    for stride in [64, 128] {
        let mut bed = Bed::compressed(9, stride, MiniFormat::Hash);
        let [queue, other]: [Outstanding; 2] = Default::default();
        bed.register(5, &queue);
        bed.register(6, &other);
        let mut counter = 0xff00_u16;
        let mut log_size = 9;
        for turn in 0..220u32 {
            let count = [2, 3, 8, 9, 63, 64, 65, 66, 127, 128, 129, 130, 200][turn as usize % 13];
            let (requests, event) = (turn % 2 == 0, turn % 5);
            // CQEs of another queue, before and after the run.
            other.receive(7, 70);
            bed.device.write(Entry::new(2, 6, 7));
            let mut minis = Vec::new();
            for k in 0..count {
                let at = counter.wrapping_add(k);
                let [high, low] = at.to_be_bytes();
                if requests {
                    queue.send(at, u64::from(at) + 1, 0x10);
                    minis.push(mini([high, low, 0x10, 0], u32::from(k)));
                } else {
                    queue.receive(at, u64::from(at) + 1);
                    minis.push(mini([1, 2, high, low], u32::from(k)));
                }
            }
            let title = Entry::new(if requests { 0 } else { 2 }, 5, counter).qp_num(0x77);
            write_run(&mut bed.device, title, &minis);
            let start = bed.ring.consumer() + 1;
            let middle = turn as u16 * 7 % count;
            let mut polled = 0;
            let mut purged = false;
            if event == 1 && middle == 0 {
                // SAFETY: there is no other thread that could call `end_of`.
                assert_eq!(unsafe { bed.ring.purge(6, |_| ()) }, 1);
                purged = true;
            }
            if !purged {
                assert_eq!(bed.next_id(), Some(70));
            }
            while polled < count {
                if polled == middle {
                    match event {
                        1 if !purged => {
                            other.receive(8, 80);
                            bed.device.write(Entry::new(2, 6, 8));
                            // SAFETY: there is no other thread that could call `end_of`.
                            assert_eq!(unsafe { bed.ring.purge(6, |_| ()) }, 1);
                            other.receives.borrow_mut().clear();
                        }
                        2 => {
                            log_size = 17 - log_size;
                            bed.resize(log_size);
                        }
                        _ => {}
                    }
                }
                let waiting = bed.ring.waiting();
                let (wr_id, own, qpn, compressed) = if turn % 3 == 0 {
                    let mut poll = bed.ring.poll();
                    match poll.next() {
                        Next::Completion(wc) => {
                            (wc.wr_id(), wc.byte_len(), wc.qp_num(), wc.is_compressed())
                        }
                        Next::Slow => {
                            drop(poll);
                            let wc = bed.ring.next_slow().expect("one more");
                            (wc.wr_id(), wc.byte_len(), wc.qp_num(), wc.is_compressed())
                        }
                        Next::Empty => panic!("turn {turn}: {polled} of {count}"),
                    }
                } else {
                    let wc = bed.next().expect("one more");
                    (wc.wr_id(), wc.byte_len(), wc.qp_num(), wc.is_compressed())
                };
                let at = counter.wrapping_add(polled);
                assert_eq!((wr_id, own), (u64::from(at) + 1, Some(polled.into())), "turn {turn}");
                assert!(compressed && qpn == 0x77);
                polled += 1;
                assert_eq!(bed.ring.waiting(), waiting.map(|waiting| waiting - 1), "turn {turn}");
                if polled < count && event != 1 {
                    assert_eq!(bed.ring.consumer(), start, "passed as a whole");
                }
            }
            while bed.next().is_some() {}
            assert_eq!(bed.ring.consumer(), bed.device.written, "turn {turn}");
            bed.ring.publish();
            counter = counter.wrapping_add(count);
        }
        assert_eq!(bed.ring.corruption(), None);
    }
}
