//! Packets that share receives, each with the strides that its CQE names.

use crate::bed::{Bed, Entry};
use crate::compressed::{mini, write_run};
use mlx5_cq::{
    Corruption, CqeStrides, FoundStrides, OldestStrides, Queue, RetiredStrides, Ring, Sent,
    SentRequest, StrideNotice, StridePoll, StridesOutcome,
};
use mlx5_prm::cqe::{Format, MiniFormat};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A queue of requests with strides: the identifiers of the outstanding ones.
struct Sharing {
    requests: RefCell<VecDeque<u64>>,
    /// The number of the oldest request.
    number: Cell<u16>,
    strides: u32,
    taken: Cell<u32>,
}

impl Sharing {
    /// A queue with `requests` outstanding requests, whose identifiers begin with 100.
    fn new(requests: u64, strides: u32) -> Self {
        let requests = RefCell::new((100..100 + requests).collect());
        Self { requests, number: Cell::new(0), strides, taken: Cell::new(0) }
    }

    /// Ends the oldest request, and posts another one.
    fn pass(&self) -> Option<u64> {
        let mut requests = self.requests.borrow_mut();
        let (oldest, last) = (requests.pop_front()?, requests.back().copied());
        requests.push_back(last.unwrap_or(oldest) + 1);
        self.taken.set(0);
        self.number.set(self.number.get().wrapping_add(1));
        Some(oldest)
    }
}

impl Queue for Sharing {
    fn retire_send(&self, _: u16, _: bool) -> Option<Sent> {
        None
    }

    fn retire_next_send(&self, _: u16) -> Option<SentRequest> {
        None
    }

    fn retire_receive(&self, _: u16) -> Option<u64> {
        None
    }

    fn retire_next_receive(&self, _: u16) -> Option<u64> {
        None
    }

    fn has_strides(&self) -> bool {
        true
    }

    fn retire_strides(&self, entry: CqeStrides) -> Option<RetiredStrides> {
        let CqeStrides { request, first, byte_count, outcome } = entry;
        if (request ^ self.number.get()) & MASK != 0 {
            return None;
        }
        let (taken, count) = (self.taken.get(), byte_count >> 16 & 0x7fff);
        let end = match outcome {
            StridesOutcome::Stopped => self.strides,
            StridesOutcome::Failed => taken + count,
            StridesOutcome::Arrived if count == 0 => return None,
            StridesOutcome::Arrived if byte_count & FILLER != 0 => taken + count,
            StridesOutcome::Arrived if u32::from(first) < taken => return None,
            StridesOutcome::Arrived => u32::from(first) + count,
        };
        if end > self.strides {
            return None;
        }
        if end == self.strides {
            return self.pass().map(|wr_id| RetiredStrides { wr_id, ended: true });
        }
        self.taken.set(end);
        let wr_id = self.requests.borrow().front().copied()?;
        Some(RetiredStrides { wr_id, ended: false })
    }

    fn oldest_strides(&self) -> Option<OldestStrides> {
        let wr_id = self.requests.borrow().front().copied()?;
        let (request, taken, strides) = (self.number.get(), self.taken.get(), self.strides);
        Some(OldestStrides { wr_id, request, mask: MASK, taken, strides })
    }

    fn take_strides(&self, until: u32) {
        assert!((self.taken.get()..=self.strides).contains(&until), "{until} of {}", self.strides);
        self.taken.set(until);
        if until == self.strides {
            self.pass();
        }
    }
}

/// The bits of a request's number that are its slot in the ring.
const MASK: u16 = 7;
/// The queue's user index.
const INDEX: u32 = 5;
/// The bit of skipped strides.
const FILLER: u32 = 1 << 31;

/// The byte count of a packet of `bytes` bytes that takes `count` strides.
fn packed_bytes(count: u32, bytes: u32) -> u32 {
    count << 16 | bytes
}

/// An entry of request 100, the first one.
fn entry(first: u32, byte_count: u32) -> Entry {
    entry_of(100, first, byte_count)
}

fn entry_of(request: u64, first: u32, byte_count: u32) -> Entry {
    Entry::new(2, INDEX, first as u16).byte_count(byte_count).request((request - 100) as u16)
}

/// An entry of a packet that failed, or of an error after which the queue receives nothing more.
fn failed(request: u64, syndrome: u8, count: u32) -> Entry {
    let entry = Entry::new(14, INDEX, 0x1234).error(syndrome, 0).byte_count(packed_bytes(count, 0));
    entry.request((request - 100) as u16)
}

/// A packet that a poll returned: its request, its first stride, its byte count, whether its CQE
/// was compressed, and the hash of a compressed one.
type Packet = (u64, u16, u32, bool, Option<u32>);

/// A poll of at most `most` packets.
fn poll_strides(ring: &mut Ring<Sharing>, most: u32) -> StridePoll<'_, Sharing> {
    // SAFETY: each test ends the poll, or starts the next one, before it does anything else with
    // the ring.
    unsafe { ring.poll_strides(most) }
}

/// Polls at most `most` packets. Returns them, and the number that the fast path found.
///
/// Checks that the end of each request is reported once: after its last packet is dropped, or with
/// its strides.
#[track_caller]
fn poll_of(bed: &mut Bed<Sharing>, strides: u32, most: u32) -> (Vec<Packet>, usize) {
    let (mut packets, mut fast, mut last) = (Vec::new(), 0, None);
    let mut poll = poll_strides(&mut bed.ring, most);
    loop {
        let behind = poll.behind();
        let ((completion, first, bytes), by_fast_path) = match poll.next_behind(|_| true) {
            Some((completion, bytes)) => {
                let (wr_id, first) = behind;
                assert_eq!(completion.wr_id(), wr_id);
                ((completion, first, bytes), true)
            }
            None => match poll.find(|notice| {
                let ended = last.take().map(StrideNotice::Ended);
                assert_eq!(Some(notice), ended, "the request of the last packet has ended");
            }) {
                Some((completion, FoundStrides { first, bytes, ended })) => {
                    // The model's requests end before the packet is dropped.
                    let end = u32::from(first) + (bytes >> 16 & 0x7fff);
                    assert!(bytes & FILLER != 0 || ended == (end == strides));
                    ((completion, first, bytes), false)
                }
                None => break,
            },
        };
        assert!(completion.is_success() && completion.inline_data().is_none());
        assert_eq!(completion.timestamp().is_none(), completion.is_compressed());
        let (id, compressed) = (completion.wr_id(), completion.is_compressed());
        let hash = compressed.then(|| completion.rss_hash()).flatten();
        packets.push((id, first, bytes, compressed, hash));
        fast += usize::from(by_fast_path);
        assert_eq!(last, None, "a request whose end was not reported");
        last = (by_fast_path && u32::from(first) + (bytes >> 16 & 0x7fff) == strides).then_some(id);
    }
    assert_eq!(bed.ring.end_strides(), (packets.len() as u32, last));
    (packets, fast)
}

/// Polls packets of requests with eight strides.
#[track_caller]
fn poll(bed: &mut Bed<Sharing>, most: u32) -> (Vec<Packet>, usize) {
    poll_of(bed, 8, most)
}

#[test]
fn packets_are_reported_with_their_strides_lap_after_lap() {
    // Rings that a request fills in part, once, and several times.
    for (log_size, stride, strides) in [(2, 64, 8), (3, 128, 8), (5, 64, 4), (4, 128, 64)] {
        for most in [1, 3, u32::MAX] {
            let mut bed = Bed::new(log_size, stride);
            let queue = Sharing::new(3, strides);
            bed.register(INDEX, &queue);
            let (mut request, mut first, mut sum) = (100, 0, 0);
            for burst in 0..200_u32 {
                let mut expected = Vec::new();
                for n in 0..(burst % 7).min(1 << log_size) {
                    let count = (1 + (burst + n) % 3).min(strides - first);
                    let bytes = packed_bytes(count, 100 * burst + n);
                    let mut entry = entry_of(request, first, bytes);
                    if n % 2 == 1 {
                        entry = entry.solicited();
                    }
                    bed.device.write(entry);
                    expected.push((request, first as u16, bytes, false, None));
                    first += count;
                    if first == strides {
                        (request, first) = (request + 1, 0);
                    }
                }
                let mut found = Vec::new();
                loop {
                    let (some, fast) = poll_of(&mut bed, strides, most);
                    if some.is_empty() {
                        break;
                    }
                    assert!(some.len() <= most as usize);
                    sum += fast;
                    found.extend(some);
                    assert_eq!(
                        bed.ring.consumer(),
                        bed.published(),
                        "what was consumed is published"
                    );
                }
                assert_eq!(found, expected);
                assert_eq!(bed.published(), bed.device.written);
                assert_eq!(queue.taken.get(), first, "the queue knows what was taken");
            }
            assert!(sum > 0, "the fast path finds some");
            assert_eq!(bed.ring.corruption(), None);
        }
    }
}

#[test]
fn the_fast_path_takes_what_lies_behind_the_last_packet() {
    let mut bed = Bed::new(6, 64);
    let queue = Sharing::new(2, 64);
    bed.register(INDEX, &queue);
    // The first packet: the ring has to look up the queue.
    bed.device.write(entry(0, packed_bytes(1, 60)));
    assert_eq!(poll_of(&mut bed, 64, 9).1, 0);
    for first in 1..63 {
        bed.device.write(entry(first, packed_bytes(1, 60)));
    }
    assert_eq!(poll_of(&mut bed, 64, 99).1, 62);
    // The last stride, and then those of the next request.
    bed.device.write(entry(63, packed_bytes(1, 60)));
    assert_eq!(poll_of(&mut bed, 64, 99).1, 1);
    bed.device.write(entry_of(101, 0, packed_bytes(63, 60)));
    bed.device.write(entry_of(101, 63, packed_bytes(1, 60)));
    bed.device.write(entry_of(102, 0, packed_bytes(2, 60)));
    assert_eq!(poll_of(&mut bed, 64, 99).1, 2);
}

#[test]
fn skipped_strides_are_reported_and_the_next_packet_follows_them() {
    let mut bed = Bed::new(4, 64);
    let queue = Sharing::new(2, 8);
    bed.register(INDEX, &queue);
    bed.device.write(entry(0, packed_bytes(1, 60)));
    bed.device.write(entry(1, FILLER | packed_bytes(2, 0)));
    // The packet after the two skipped strides.
    bed.device.write(entry(5, packed_bytes(1, 61)));
    // The first stride of a filler has no meaning.
    bed.device.write(entry(0, FILLER | packed_bytes(1, 0)));
    bed.device.write(entry(0x7777, FILLER | packed_bytes(1, 0)));
    bed.device.write(entry_of(101, 0, packed_bytes(1, 62)));
    let places = poll(&mut bed, 9).0.into_iter().map(|(id, first, ..)| (id, first));
    let expected = [(100, 0), (100, 1), (100, 5), (100, 0), (100, 0x7777), (101, 0)];
    assert_eq!(Vec::from_iter(places), expected);
}

#[test]
fn a_poll_returns_as_many_packets_as_it_may() {
    let mut bed = Bed::new(3, 64);
    let queue = Sharing::new(2, 9);
    bed.register(INDEX, &queue);
    for first in 0..8 {
        bed.device.write(entry(first, packed_bytes(1, 60)));
    }
    assert_eq!(poll_of(&mut bed, 9, 0).0.len(), 0);
    assert_eq!(poll_of(&mut bed, 9, 1).0.len(), 1);
    let mut two = poll_strides(&mut bed.ring, 2);
    assert!(two.next_behind(|_| true).is_some() && two.next_behind(|_| true).is_some());
    assert!(two.next_behind(|_| true).is_none() && two.find(|_| {}).is_none());
    two.allow_another();
    assert!(two.next_behind(|_| true).is_some());
    assert!(two.next_behind(|_| true).is_none() && two.find(|_| {}).is_none());
    assert_eq!(bed.ring.end_strides(), (3, None));
    assert_eq!(bed.ring.end_strides(), (0, None));
    // The remaining packets are there, up to the end of the ring.
    assert_eq!(poll_of(&mut bed, 9, 9).0.len(), 4);
    assert_eq!(bed.published(), 8);
}

/// Only a ring that has wrapped can have been full.
#[test]
fn owner_looks_around_after_the_fast_path_came_to_the_end_of_the_ring() {
    let mut bed = Bed::new(3, 64);
    let queue = Sharing::new(2, 9);
    bed.register(INDEX, &queue);
    bed.ring.look_after(1000);
    for (number, looks) in [(7, false), (1, true)] {
        for _ in 0..number {
            bed.device.write(entry(queue.taken.get(), packed_bytes(1, 60)));
            assert_eq!(poll_of(&mut bed, 9, 9).0.len(), 1);
        }
        assert_eq!(bed.ring.found_nothing(), looks);
    }
}

/// The slow path takes the strides of a packet that is not accepted.
#[test]
fn unaccepted_completions_are_found() {
    let mut bed = Bed::new(3, 64);
    let queue = Sharing::new(2, 8);
    bed.register(INDEX, &queue);
    for first in 0..4 {
        bed.device.write(entry(first, packed_bytes(1, 60 + first)));
    }
    let mut poll = poll_strides(&mut bed.ring, 9);
    assert!(poll.find(|_| {}).is_some());
    assert!(poll.next_behind(|bytes| bytes != packed_bytes(1, 61)).is_none());
    let found = poll.find(|_| {}).map(|(_, strides)| strides);
    assert_eq!(found, Some(FoundStrides { first: 1, bytes: packed_bytes(1, 61), ended: false }));
    let mut seen = Vec::new();
    poll.each_behind(|bytes| bytes != packed_bytes(1, 63), |_, bytes| seen.push(bytes));
    assert_eq!((seen, poll.behind()), (vec![packed_bytes(1, 62)], (100, 3)));
    assert_eq!(bed.ring.end_strides(), (3, None));
    assert_eq!(queue.taken.get(), 3);
}

/// The packets returned before a panic are consumed, including the one that the panicking closure
/// had.
#[test]
fn panic_in_a_poll_keeps_its_position() {
    let mut bed = Bed::new(3, 64);
    let queue = Sharing::new(2, 8);
    bed.register(INDEX, &queue);
    bed.device.write(entry(0, packed_bytes(1, 60)));
    assert_eq!(poll(&mut bed, 9).0.len(), 1);
    for first in 1..8 {
        bed.device.write(entry(first, packed_bytes(1, 60)));
    }
    for (taken, last) in [(3, None), (4, Some(100))] {
        let mut seen = 0;
        let each = AssertUnwindSafe(|| {
            poll_strides(&mut bed.ring, 9).each_behind(
                |_| true,
                |_, _| {
                    seen += 1;
                    if seen == taken {
                        resume_unwind(Box::new("a panic"));
                    }
                },
            );
        });
        assert!(catch_unwind(each).is_err());
        assert_eq!(bed.ring.end_strides(), (taken, last));
    }
    assert_eq!(
        (bed.published(), queue.oldest_strides().map(|oldest| oldest.wr_id)),
        (8, Some(101))
    );
}

#[test]
fn strides_that_cannot_be_make_the_ring_corrupt() {
    // Strides that were taken before; more than there are; none.
    for (first, count) in [(0, 1), (2, 1), (0, 8), (3, 6), (8, 1), (0xffff, 1), (3, 0), (3, 0x7fff)]
    {
        let mut bed = Bed::new(3, 64);
        let queue = Sharing::new(2, 8);
        bed.register(INDEX, &queue);
        bed.device.write(entry(0, packed_bytes(2, 60)));
        bed.device.write(entry(2, packed_bytes(1, 60)));
        bed.device.write(entry(first, packed_bytes(count, 60)));
        bed.device.write(entry(3, packed_bytes(1, 60)));
        assert_eq!(poll(&mut bed, 9).0.len(), 2, "{count} from {first} on");
        let corruption = Corruption::Counter { user_index: INDEX, counter: first as u16 };
        assert_eq!(bed.ring.corruption(), Some(corruption));
        assert_eq!(poll(&mut bed, 9).0.len(), 0);
    }
}

#[test]
fn a_packet_with_inline_data_is_corrupt() {
    for known in [false, true] {
        let mut bed = Bed::new(3, 64);
        let queue = Sharing::new(2, 8);
        bed.register(INDEX, &queue);
        if known {
            bed.device.write(entry(0, packed_bytes(1, 60)));
            assert_eq!(poll(&mut bed, 9).0.len(), 1);
        }
        let mut inline = entry(known.into(), 0);
        inline.0[63] |= 1 << 2;
        bed.device.write(inline);
        assert_eq!(poll(&mut bed, 9).0.len(), 0);
        assert_eq!(bed.ring.corruption(), Some(Corruption::Format(Format::Inline32)));
    }
}

/// The fast path compares more than the number of the packet's strides.
#[test]
fn strides_of_another_request_make_the_ring_corrupt() {
    for behind in [false, true] {
        for other in [101, 103, 107] {
            let mut bed = Bed::new(3, 64);
            let queue = Sharing::new(2, 8);
            bed.register(INDEX, &queue);
            if behind {
                bed.device.write(entry(0, packed_bytes(1, 60)));
                assert_eq!(poll(&mut bed, 9).0.len(), 1);
            }
            let first = u32::from(behind);
            // Its number, or its slot in the ring.
            bed.device.write(entry_of(100 + 8 * 77, first, packed_bytes(1, 60)));
            assert_eq!(
                poll(&mut bed, 9),
                (vec![(100, first as u16, packed_bytes(1, 60), false, None)], behind.into())
            );
            bed.device.write(entry_of(other, first + 1, packed_bytes(1, 60)));
            assert_eq!(poll(&mut bed, 9).0.len(), 0);
            let corruption = Corruption::Counter { user_index: INDEX, counter: first as u16 + 1 };
            assert_eq!(bed.ring.corruption(), Some(corruption));
        }
    }
}

/// A reported failure: its request, and whether the request has ended.
type Failed = (u64, bool);

/// The failures that a poll reports, and the requests and first strides of its packets.
fn poll_failed(bed: &mut Bed<Sharing>) -> (Vec<Failed>, Vec<(u64, u16)>) {
    let (mut failed, mut places) = (Vec::new(), Vec::new());
    let mut poll = poll_strides(&mut bed.ring, 9);
    while let Some((completion, strides)) = poll.find(|notice| match notice {
        StrideNotice::Failed { wr_id, ended } => failed.push((wr_id, ended)),
        StrideNotice::Ended(wr_id) => panic!("{wr_id}: all packets were found off the fast path"),
    }) {
        places.push((completion.wr_id(), strides.first));
    }
    assert_eq!(bed.ring.end_strides(), (places.len() as u32, None));
    (failed, places)
}

/// Length, remote aborted, and an error without a name: the device continues in the request.
#[test]
fn a_packet_that_failed_is_reported_and_the_next_one_lies_after_its_strides() {
    for syndrome in [1, 0x22, 0x77] {
        let mut bed = Bed::new(3, 64);
        let queue = Sharing::new(3, 8);
        bed.register(INDEX, &queue);
        bed.device.write(entry(0, packed_bytes(3, 60)));
        bed.device.write(failed(100, syndrome, 2));
        bed.device.write(failed(100, syndrome, 0));
        bed.device.write(entry(5, packed_bytes(1, 61)));
        bed.device.write(failed(100, syndrome, 2));
        bed.device.write(entry_of(101, 0, packed_bytes(1, 62)));
        let expected =
            (vec![(100, false), (100, false), (100, true)], vec![(100, 0), (100, 5), (101, 0)]);
        assert_eq!(poll_failed(&mut bed), expected);
        assert_eq!(bed.published(), 6);
        // More strides than are left, and strides of another request.
        for wrong in [failed(101, syndrome, 8), failed(102, syndrome, 1)] {
            bed.device.write(wrong);
            assert_eq!(poll_failed(&mut bed), (vec![], vec![]));
            assert!(matches!(bed.ring.corruption(), Some(Corruption::Counter { .. })));
        }
    }
}

/// Local operation, local protection, flushed: as Linux' mlx5e and DPDK handle them.
#[test]
fn a_receive_of_a_queue_that_stopped_ends_whatever_was_taken_of_it() {
    for syndrome in [2, 4, 5] {
        let mut bed = Bed::new(3, 64);
        let queue = Sharing::new(3, 8);
        bed.register(INDEX, &queue);
        bed.device.write(entry(0, packed_bytes(3, 60)));
        bed.device.write(failed(100, syndrome, 0));
        bed.device.write(failed(101, syndrome, 0));
        bed.device.write(entry_of(102, 0, packed_bytes(1, 61)));
        let expected = (vec![(100, true), (101, true)], vec![(100, 0), (102, 0)]);
        assert_eq!(poll_failed(&mut bed), expected);
        assert_eq!(bed.published(), 4);
        // A poll that finds only failures.
        bed.device.write(failed(102, syndrome, 0));
        assert_eq!(poll_failed(&mut bed), (vec![(102, true)], vec![]));
        assert_eq!(bed.published(), 5);
        // The CQE must name its request, too.
        bed.device.write(failed(104, syndrome, 0));
        assert_eq!(poll_failed(&mut bed), (vec![], vec![]));
        assert!(matches!(bed.ring.corruption(), Some(Corruption::Counter { .. })));
    }
}

/// Strides of one queue's request are not taken for another queue's.
#[test]
fn queues_take_strides_in_turn_each_its_own() {
    let mut bed = Bed::new(4, 64);
    let queues = [Sharing::new(2, 8), Sharing::new(2, 16)];
    queues[1].requests.borrow_mut().iter_mut().for_each(|id| *id += 100);
    bed.register(INDEX, &queues[0]);
    bed.register(INDEX + 1, &queues[1]);
    let other =
        |first: u16| Entry::new(2, INDEX + 1, first).byte_count(packed_bytes(1, 60)).request(0);
    bed.device.write(entry(0, packed_bytes(1, 60)));
    bed.device.write(entry(1, packed_bytes(1, 60)));
    bed.device.write(other(0));
    bed.device.write(other(1));
    bed.device.write(entry(2, packed_bytes(1, 60)));
    bed.device.write(other(2));
    let (found, fast) = poll(&mut bed, 9);
    let places = found.into_iter().map(|(id, first, ..)| (id, first));
    let expected = [(100, 0), (100, 1), (200, 0), (200, 1), (100, 2), (200, 2)];
    assert_eq!((Vec::from_iter(places), fast), (expected.to_vec(), 2));
    assert_eq!(queues.map(|queue| queue.taken.get()), [3, 3]);
}

/// The last CQE of a run is as compressed as the others, although the ring leaves the run with it.
#[test]
fn every_packet_of_a_run_is_marked_as_compressed_and_none_beside_it() {
    for count in [2, 3, 8, 9, 64, 65, 66, 130] {
        for most in [1, 2, u32::MAX] {
            let mut bed = Bed::compressed(8, 64, MiniFormat::Hash);
            let queue = Sharing::new(3, 512);
            bed.register(INDEX, &queue);
            for lap in 0..5_u32 {
                let start = queue.taken.get();
                let plain = |first: u32| (100, first as u16, packed_bytes(1, first), false, None);
                let packed =
                    |first| (100, first as u16, packed_bytes(1, first), true, Some(first * 3));
                bed.device.write(entry(start, packed_bytes(1, start)));
                let first = start + 1;
                let minis = (first..first + count)
                    .map(|first| mini((first * 3).to_be_bytes(), packed_bytes(1, first)));
                write_run(&mut bed.device, entry(first, 0), &Vec::from_iter(minis));
                let behind = first + count;
                bed.device.write(entry(behind, packed_bytes(1, behind)));
                bed.device.write(entry(behind + 1, packed_bytes(1, behind + 1)));
                let mut expected = vec![plain(start)];
                expected.extend((first..behind).map(packed));
                expected.extend([plain(behind), plain(behind + 1)]);
                let mut found = Vec::new();
                loop {
                    let some = poll_of(&mut bed, 512, most).0;
                    if some.is_empty() {
                        break;
                    }
                    found.extend(some);
                }
                assert_eq!(found, expected, "lap {lap}: {count}, {most} at a time");
                assert_eq!(bed.published(), bed.device.written & 0xff_ffff);
                // The next lap begins with a new request.
                queue.taken.set(0);
            }
        }
    }
}

#[test]
fn a_poll_goes_on_behind_one_that_was_not_ended() {
    let mut bed = Bed::new(3, 64);
    let queue = Sharing::new(2, 8);
    bed.register(INDEX, &queue);
    for first in 0..6 {
        bed.device.write(entry(first, packed_bytes(1, 60)));
    }
    assert_eq!(poll(&mut bed, 1).0.len(), 1);
    assert!(poll_strides(&mut bed.ring, 9).next_behind(|_| true).is_some());
    assert!(poll_strides(&mut bed.ring, 9).find(|_| {}).is_some());
    let firsts = poll(&mut bed, 9).0.into_iter().map(|(_, first, ..)| first);
    assert_eq!(Vec::from_iter(firsts), [3, 4, 5]);
    assert_eq!((bed.published(), bed.ring.corruption()), (6, None));
}
