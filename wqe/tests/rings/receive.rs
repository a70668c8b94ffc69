//! Receive queues: scatter lists, their end mark, room, and the end of the ring.

use crate::bed::{GateBed, Memory};
use crate::by_hand::sges;
use mlx5_doorbell::QueuePairRecord;
use mlx5_wqe::{
    ListError, PostError, QueueState, ReceiveLayout, ReceiveQueue, ReceiveRecords, ReceiveWr, Sge,
};
use std::sync::Arc;

struct Bed {
    queue: ReceiveQueue,
    records: Arc<ReceiveRecords>,
    layout: ReceiveLayout,
    ring: Memory,
    record: Memory,
    gate: GateBed,
}

impl Bed {
    fn new(requests: u32, sges: u32) -> Self {
        Self::with(requests, sges, |records| records)
    }

    fn with(requests: u32, sges: u32, tune: impl FnOnce(ReceiveRecords) -> ReceiveRecords) -> Self {
        let layout = ReceiveLayout::new(requests, sges, 0).unwrap();
        let (ring, record) = (Memory::new(layout.bytes().max(1)), Memory::new(8));
        let gate = GateBed::new();
        let records = Arc::new(tune(ReceiveRecords::new(layout.requests)));
        // SAFETY: the bed keeps ring and record, and nothing else writes to them.
        let queue = unsafe {
            let record = QueuePairRecord::new(record.at(0));
            ReceiveQueue::new(ring.at(0), layout, gate.gate, record, Arc::clone(&records))
        };
        Self { queue, records, layout, ring, record, gate }
    }

    fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), ListError> {
        self.queue.post_recv(&[ReceiveWr { wr_id, sges }])
    }

    fn request(&self, index: usize) -> Vec<u8> {
        self.ring.read(index * self.layout.stride as usize, self.layout.stride as usize)
    }
}

/// Numbers that look random, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// A scatter list as the device reads it: the entries, and then, if there is room, an end mark: an
/// entry of length zero with the key 0x100.
fn by_hand(sges: &[Sge], max: usize) -> Vec<u8> {
    let mut bytes = vec![];
    let sges: Vec<_> = sges.iter().filter(|sge| sge.length != 0).collect();
    for sge in &sges {
        bytes.extend(sge.length.to_be_bytes());
        bytes.extend(sge.lkey.to_be_bytes());
        bytes.extend(sge.addr.to_be_bytes());
    }
    if sges.len() < max {
        bytes.extend([0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    bytes
}

const fn full(index: u32) -> ListError {
    ListError::new(index, PostError::QueueFull { free: 0, needed: 1 })
}

#[test]
fn a_request_is_its_scatter_list() {
    for max in [1, 2, 4, 8] {
        let mut bed = Bed::new(4, max as u32);
        let data = sges(max);
        let empty = Sge { length: 0, ..data[0] };
        let mut lists: Vec<Vec<Sge>> = (0..=max).map(|count| data[..count].to_vec()).collect();
        lists.push(vec![empty]);
        lists.push(vec![empty; max]);
        lists.push(
            data.iter().map(|&sge| if sge.lkey & 0x100 == 0 { sge } else { empty }).collect(),
        );
        for (posted, list) in lists.iter().enumerate() {
            // The device must not find former bytes after the list.
            let index = posted % bed.layout.requests as usize;
            bed.ring
                .write(index * bed.layout.stride as usize, &vec![0xff; bed.layout.stride as usize]);
            bed.post(posted as u64, list).unwrap();
            let expected = by_hand(list, max);
            assert_eq!(bed.request(index)[..expected.len()], expected, "{list:?}");
            assert_eq!(bed.record.all(), [0, 0, 0, posted as u8 + 1, 0, 0, 0, 0]);
            assert_eq!(bed.records.retire(posted as u16), Some(posted as u64));
        }
    }
}

#[test]
fn an_entry_of_any_length_up_to_two_gibibytes_less_one_is_taken() {
    let mut bed = Bed::new(4, 2);
    let sge = |length| Sge { addr: 0x77, length, lkey: 3 };
    // A buffer may be longer than any message.
    for length in [1, 1 << 30, (1 << 30) + 1, (1 << 31) - 1] {
        bed.post(0, &[sge(length)]).unwrap();
        let index = (bed.layout.requests - bed.queue.free() - 1) as usize;
        assert_eq!(bed.request(index)[..4], length.to_be_bytes());
    }
    let mut bed = Bed::new(4, 2);
    for length in [1 << 31, u32::MAX] {
        let error = PostError::SgeTooLong { index: 0, length };
        assert_eq!(bed.post(0, &[sge(length)]), Err(ListError::new(0, error)));
        let error = PostError::SgeTooLong { index: 1, length };
        assert_eq!(bed.post(0, &[sge(5), sge(length)]), Err(ListError::new(0, error)));
    }
    bed.post(0, &[sge((1 << 31) - 1); 2]).unwrap();
}

#[test]
fn scatter_lists_may_be_longer_than_any_message() {
    let mut bed = Bed::new(4, 4);
    let data = [Sge { addr: 0x77, length: (1 << 31) - 1, lkey: 3 }; 4];
    bed.post(0, &data).unwrap();
    assert_eq!(bed.request(0), by_hand(&data, 4));
}

#[test]
fn a_list_is_posted_up_to_its_first_bad_request() {
    let mut bed = Bed::new(8, 2);
    let data = sges(3);
    let wr = |wr_id, sges| ReceiveWr { wr_id, sges };
    let list = [wr(10, &data[..1]), wr(11, &data[..2]), wr(12, &data[..3]), wr(13, &data[..1])];
    let error = PostError::TooManySges { given: 3, max: 2 };
    assert_eq!(bed.queue.post_recv(&list), Err(ListError::new(2, error)));
    assert_eq!(bed.record.all(), [0, 0, 0, 2, 0, 0, 0, 0]);
    assert_eq!(bed.queue.free(), 6);
    assert_eq!(bed.records.retire(0), Some(10));
    assert_eq!(bed.records.retire(1), Some(11));
    assert_eq!(bed.records.retire(2), None);
}

#[test]
fn a_list_without_a_good_request_changes_nothing() {
    let mut bed = Bed::new(8, 2);
    let data = sges(3);
    bed.post(1, &data[..1]).unwrap();
    let (first, record) = (bed.request(0), bed.record.all());
    assert_eq!(bed.post(2, &data).unwrap_err().index(), 0);
    bed.queue.post_recv(&[]).unwrap();
    assert_eq!((bed.request(0), bed.record.all()), (first, record));
}

/// A device that places data out of order completes requests in any order.
#[test]
fn requests_complete_in_any_order_each_once() {
    let orders: [[u16; 4]; 6] =
        [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1], [0, 2, 1, 3], [3, 0, 1, 2]];
    for order in orders {
        let mut bed = Bed::new(4, 1);
        for wr_id in 0..4 {
            bed.post(wr_id, &[]).unwrap();
        }
        for (done, &counter) in order.iter().enumerate() {
            assert_eq!(bed.records.retire(counter), Some(counter.into()), "{order:?}");
            for again in &order[..=done] {
                assert_eq!(bed.records.retire(*again), None, "{order:?}: {again} again");
                assert_eq!(bed.records.retire_next(*again), None, "{order:?}: {again} again");
            }
        }
        assert_eq!((0..=u16::MAX).find_map(|counter| bed.records.retire(counter)), None);
    }
}

/// A device fills the requests of packets in order.
#[test]
fn requests_of_packets_complete_in_order() {
    let mut bed = Bed::with(4, 1, |mut records| {
        records.set_in_order();
        records
    });
    for wr_id in 0..0x1_0004_u64 {
        bed.post(wr_id, &[]).unwrap();
        let Some(oldest) = wr_id.checked_sub(3) else { continue };
        let counter = oldest as u16;
        for other in 1..4 {
            assert_eq!(bed.records.retire(counter.wrapping_add(other)), None, "{oldest}");
        }
        let retired = bed.records.retire_next(counter).or_else(|| bed.records.retire(counter));
        assert_eq!(retired, Some(oldest));
    }
}

/// Reused records have no trace of their former queue.
#[test]
fn renewed_records_are_those_of_a_new_queue() {
    let mut bed = Bed::new(4, 1);
    for wr_id in 0..4 {
        bed.post(wr_id, &[]).unwrap();
    }
    for counter in [1, 3] {
        bed.records.retire(counter).unwrap();
    }
    let Bed { queue, records, .. } = bed;
    drop(queue);
    let mut records = Arc::into_inner(records).unwrap();
    records.set_in_order();
    records.renew();
    assert_eq!((records.requests(), records.in_flight(), records.written()), (4, 0, 1));

    let mut bed = Bed::with(4, 1, |_| records);
    for wr_id in 10..14 {
        bed.post(wr_id, &[]).unwrap();
    }
    assert_eq!(bed.post(9, &[]), Err(full(0)));
    for counter in [2, 0, 3, 1] {
        assert_eq!(bed.records.retire(counter), Some(u64::from(counter) + 10));
    }
    assert_eq!(bed.queue.free(), 4);
}

/// The ring has no free slots in the middle: the slot of a request that completed before an older
/// one is free only after the older one has completed.
#[test]
fn room_comes_back_with_the_oldest_request() {
    let mut bed = Bed::new(4, 1);
    for wr_id in 0..4 {
        bed.post(wr_id, &[]).unwrap();
    }
    for counter in [1, 2] {
        bed.records.retire(counter).unwrap();
        assert_eq!((bed.queue.free(), bed.post(9, &[])), (0, Err(full(0))));
    }
    bed.records.retire(0).unwrap();
    assert_eq!(bed.queue.free(), 3, "the oldest, and those that had completed behind it");
    for wr_id in 4..7 {
        bed.post(wr_id, &[]).unwrap();
    }
    assert_eq!(bed.post(9, &[]), Err(full(0)), "the fourth is not back");
    for counter in [6, 5, 4] {
        assert_eq!(bed.records.retire(counter), Some(counter.into()));
        assert_eq!(bed.queue.free(), 0);
    }
    assert_eq!(bed.records.retire_next(3), None, "not the quick way while others wait");
    assert_eq!(bed.records.retire(3), Some(3));
    assert_eq!(bed.queue.free(), 4);
    bed.post(7, &[]).unwrap();
    assert_eq!(bed.records.retire_next(7), Some(7), "the quick way, now that none waits");
}

/// The fast path takes only the oldest request, and compares all 16 bits.
#[test]
fn the_next_request_may_be_asked_for_alone() {
    let mut bed = Bed::new(4, 1);
    let mut slowly = 0;
    for next in 0..3 * 65536_u64 {
        bed.post(next, &[]).unwrap();
        bed.post(!next, &[]).unwrap();
        let counter = (2 * next) as u16;
        for other in [1, 2, 4, 0x8000, 0xffff] {
            assert_eq!(bed.records.retire_next(counter.wrapping_add(other)), None);
        }
        let quickly = bed.records.retire_next(counter).or_else(|| {
            slowly += 1;
            bed.records.retire(counter)
        });
        assert_eq!(quickly, Some(next));
        assert_eq!(bed.records.retire(counter + 1), Some(!next));
        assert_eq!(bed.records.retire_next(counter), None);
    }
    assert!(slowly <= 6, "the usual way is the quick one, but for {slowly} requests");
}

/// A counter selects a slot, as in the C provider: only those of its 16 bits count that index the
/// ring.
#[test]
fn a_counter_leads_to_its_slot() {
    let mut bed = Bed::new(4, 1);
    for wr_id in 0..3 {
        bed.post(wr_id, &[]).unwrap();
    }
    assert_eq!(bed.records.retire(3), None, "free");
    assert_eq!(bed.records.retire(0x8003), None, "free");
    assert_eq!(bed.records.retire(0x8002), Some(2));
    assert_eq!(bed.records.retire(2), None);
    assert_eq!(bed.records.retire(0xfff0), Some(0));
    assert_eq!(bed.records.retire(1), Some(1));
    assert_eq!(bed.queue.free(), 4);
}

/// In random order, at several depths and past the wrap of the counter, a request completes exactly
/// if its slot is outstanding. The slots before the oldest outstanding one are free.
#[test]
fn a_model_of_the_slots_agrees_in_every_order() {
    for (requests, seed) in [(4, 1), (8, 2), (64, 3), (128, 4), (1024, 5)] {
        let mut random = Random(seed);
        let mut bed = Bed::new(requests, 1);
        let size = requests as u16;
        // The identifier of each slot's request, if one is outstanding.
        let mut slots = vec![None; requests as usize];
        let (mut head, mut oldest, mut next) = (0u32, 0u32, 0u64);
        let mut lives = 0;
        for _ in 0..200_000 {
            let what = random.below(4);
            if what == 0 {
                // Sometimes a reset, once the counter has wrapped.
                if head > 70_000 && random.below(1000) == 0 {
                    lives += 1;
                    bed.queue.reset();
                    slots.fill(None);
                    (head, oldest) = (0, 0);
                    assert_eq!(bed.records.retire(random.below(65536) as u16), None);
                }
                let count = random.below(u64::from(requests)) as u32 + 1;
                for _ in 0..count {
                    let room = requests - (head - oldest);
                    assert_eq!(bed.queue.free(), room, "seed {seed}");
                    let posted = bed.post(next, &[]);
                    assert_eq!(posted.is_ok(), room > 0, "seed {seed}");
                    if posted.is_ok() {
                        slots[(head % requests) as usize] = Some(next);
                        head += 1;
                    }
                    next += 1;
                }
                continue;
            }
            // Mostly the oldest, sometimes any counter.
            let counter = if what == 1 { random.below(65536) as u16 } else { oldest as u16 };
            let slot = usize::from(counter % size);
            let expected = slots[slot].take();
            let found = match what {
                2 => bed.records.retire_next(counter).or_else(|| bed.records.retire(counter)),
                _ => bed.records.retire(counter),
            };
            assert_eq!(found, expected, "seed {seed}, counter {counter}");
            while oldest != head && slots[(oldest % requests) as usize].is_none() {
                oldest += 1;
            }
        }
        assert!(lives > 0, "seed {seed}: the counter came round {} times", head >> 16);
    }
}

#[test]
fn a_full_queue_takes_a_request_for_each_that_completes() {
    let mut bed = Bed::new(8, 2);
    let data = sges(2);
    let mut next = 0u64;
    // Past the wrap of the 16-bit counter.
    while next < 70_000 {
        let count = (next % 8) as usize + 1;
        let list: Vec<_> = (0..count)
            .map(|i| ReceiveWr { wr_id: next + i as u64, sges: &data[..i % 3] })
            .collect();
        bed.queue.post_recv(&list).unwrap();
        assert_eq!(bed.queue.free(), 8 - count as u32);
        for wr in &list {
            let expected = by_hand(wr.sges, 2);
            assert_eq!(bed.request(wr.wr_id as usize % 8)[..expected.len()], expected);
        }
        // The rest of the room, and one request too many.
        let rest = vec![ReceiveWr { wr_id: 1 << 40, sges: &data[..1] }; 9 - count];
        assert_eq!(bed.queue.post_recv(&rest), Err(full(8 - count as u32)));
        let posted = (next + 8) as u16;
        assert_eq!(bed.record.read(0, 4), u32::from(posted).to_be_bytes());
        for (i, wr) in list.iter().enumerate() {
            assert_eq!(bed.records.retire((next + i as u64) as u16), Some(wr.wr_id));
        }
        for i in count..8 {
            assert_eq!(bed.records.retire((next + i as u64) as u16), Some(1 << 40));
        }
        next += 8;
    }
}

#[test]
fn a_queue_of_no_requests_is_full() {
    let mut bed = Bed::new(0, 0);
    assert_eq!(bed.post(1, &[]), Err(full(0)));
    assert_eq!(bed.records.retire(0), None);
    assert_eq!(bed.queue.free(), 0);
}

#[test]
fn a_reset_queue_starts_over() {
    let mut bed = Bed::new(4, 1);
    for wr_id in 0..3 {
        bed.post(wr_id, &[]).unwrap();
    }
    bed.records.retire(0).unwrap();
    bed.queue.reset();
    assert_eq!(bed.record.all(), [0; 8]);
    assert_eq!(bed.queue.free(), 4);
    assert_eq!((0..=u16::MAX).find_map(|counter| bed.records.retire(counter)), None);
    bed.post(9, &[]).unwrap();
    assert_eq!(bed.records.retire(0), Some(9));
}

/// A reset also forgets the requests that completed before an older one.
#[test]
fn a_queue_that_is_reset_out_of_order_starts_over() {
    let mut bed = Bed::new(4, 1);
    for wr_id in 0..4 {
        bed.post(wr_id, &[]).unwrap();
    }
    for counter in [1, 3] {
        bed.records.retire(counter).unwrap();
    }
    bed.queue.reset();
    assert_eq!(bed.queue.free(), 4);
    assert_eq!((0..=u16::MAX).find_map(|counter| bed.records.retire(counter)), None);
    for wr_id in 10..14 {
        bed.post(wr_id, &[]).unwrap();
    }
    // The fast path works again, also after a request that completed on the slow path.
    assert_eq!(bed.records.retire(0), Some(10));
    for counter in 1..4 {
        assert_eq!(bed.records.retire_next(counter), Some(u64::from(counter) + 10));
    }
    assert_eq!(bed.queue.free(), 4);
}

#[test]
fn receives_are_posted_in_every_state_but_reset() {
    let mut bed = Bed::new(8, 1);
    for state in QueueState::ALL {
        bed.gate.gate.set_state(state);
        let expected = match state {
            QueueState::Reset => Err(ListError::new(0, PostError::State(state))),
            _ => Ok(()),
        };
        assert_eq!(bed.post(0, &[]), expected);
    }
    bed.gate.gate.set_gone();
    assert_eq!(bed.post(0, &[]).unwrap_err().error(), PostError::DeviceGone);
    bed.gate.word.write(0, &[0; 4]);
    assert_eq!(bed.post(0, &[]).unwrap_err().error(), PostError::Forked);
}

#[test]
fn an_iterator_is_posted_up_to_the_first_bad_one() {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    let mut bed = Bed::new(8, 2);
    let three = sges(3);
    let mut head = 0_u16;
    for round in 0..40_u64 {
        let (good, panics) = (round % 7, round % 2 == 1);
        let mut taken = 0;
        let posted = catch_unwind(AssertUnwindSafe(|| {
            bed.queue.post_recv_iter((0..).map(|n| {
                taken += 1;
                if n == good && panics {
                    resume_unwind(Box::new("of the iterator"));
                }
                ReceiveWr { wr_id: round << 8 | n, sges: &three[..if n == good { 3 } else { 1 }] }
            }))
        }));
        match posted {
            Err(_) => assert!(panics),
            Ok(posted) => {
                let error = PostError::TooManySges { given: 3, max: 2 };
                assert_eq!(posted, Err(ListError::new(good as u32, error)));
            }
        }
        assert_eq!(taken, good + 1);
        let record = bed.record.read(0, 4);
        assert_eq!(u32::from_be_bytes(record.try_into().unwrap()), u32::from(head) + good as u32);
        for n in 0..good {
            assert_eq!(bed.request(usize::from(head) % 8), by_hand(&three[..1], 2));
            assert_eq!(bed.records.retire(head), Some(round << 8 | n));
            head += 1;
        }
        assert_eq!(bed.queue.free(), 8);
    }
    bed.queue.recv(9, three[2]).unwrap();
    assert_eq!(bed.request(usize::from(head) % 8), by_hand(&three[2..], 2));
    assert_eq!(bed.records.retire(head), Some(9));
    let filled = bed.queue.post_recv_iter((0..).map(|wr_id| ReceiveWr { wr_id, sges: &[] }));
    assert_eq!(filled, Err(full(8)));
    assert_eq!(bed.queue.recv(1, three[0]), Err(full(8).error()));
}

#[test]
fn receives_of_one_buffer_each_are_those_of_a_list() {
    let long = mlx5_prm::wqe::MAX_SGE_LENGTH + 1;
    let of = |n: u64, length| Sge { addr: 0x1000 * n, length, lkey: n as u32 };
    for most in [1, 3] {
        let (mut one, mut other) = (Bed::new(8, most), Bed::new(8, most));
        let requests =
            [(7, of(1, 64)), (8, of(2, 0)), (9, of(3, 1)), (10, of(4, long)), (11, of(5, 9))];
        let refused = one.queue.recv_each(requests).unwrap_err();
        let list = requests.map(|(wr_id, sge)| (wr_id, [sge]));
        let list = list.each_ref().map(|(wr_id, sges)| ReceiveWr { wr_id: *wr_id, sges });
        assert_eq!(refused, other.queue.post_recv(&list).unwrap_err());
        assert_eq!((refused.index(), one.queue.free()), (3, 5));
        assert_eq!(one.ring.all(), other.ring.all());
        assert_eq!(one.record.all(), other.record.all());
        // Posts up to the last place and no further.
        let more = (20..).map(|n| (n, of(n, 100)));
        let full = one.queue.recv_each(more).unwrap_err();
        assert_eq!(full.error(), PostError::QueueFull { free: 0, needed: 1 });
        assert_eq!((full.index(), one.queue.free()), (5, 0));
        let ids: Vec<u64> = one.records.wr_ids_in_flight().collect();
        assert_eq!(ids, [7, 8, 9, 20, 21, 22, 23, 24]);
        assert_eq!(one.queue.recv_each([]), Ok(0));
    }
}

/// The records never count fewer places than were written, over several laps of the ring and of the
/// 16-bit counter, in every way of posting.
#[test]
fn the_records_tell_how_far_the_ring_was_written() {
    let mut bed = Bed::new(8, 2);
    let (data, long) = (sges(1), Sge { addr: 1, length: u32::MAX, lkey: 1 });
    assert_eq!((bed.records.written(), bed.layout.requests), (1, 8));
    // The first entry of a refused request is written.
    bed.post(0, &[data[0], long]).unwrap_err();
    for posted in 0..(1_u32 << 16) + 3 {
        let written = bed.records.written();
        assert!(
            (written.saturating_sub(1)..=written).contains(&posted.min(8)),
            "{posted}: {written}"
        );
        match posted % 3 {
            0 => bed.queue.recv(posted.into(), data[0]).unwrap(),
            1 => bed.post(posted.into(), &data).unwrap(),
            _ => assert_eq!(bed.queue.recv_each([(posted.into(), data[0])]), Ok(1)),
        }
        bed.records.retire(posted as u16).unwrap();
    }
    bed.queue.reset();
    assert_eq!(bed.records.written(), 8, "before it was reset");

    // Up to a whole lap and a place of the next one.
    for posted in 0..=9_u16 {
        let mut bed = Bed::new(8, 2);
        for counter in 0..posted {
            bed.post(counter.into(), &data).unwrap();
            bed.records.retire(counter).unwrap();
        }
        bed.queue.reset();
        let written = bed.records.written();
        assert!(written >= u32::from(posted.min(8)), "{posted} before the reset: {written}");
    }
}
