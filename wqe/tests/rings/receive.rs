//! Receive queues: scatter lists, their end mark, room, and the ring's end.

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
        let layout = ReceiveLayout::new(requests, sges, 0).unwrap();
        let (ring, record) = (Memory::new(layout.bytes().max(1)), Memory::new(8));
        let gate = GateBed::new();
        let records = Arc::new(ReceiveRecords::new(layout.requests));
        // SAFETY: the bed keeps ring and record, and nobody else writes to them.
        let queue = unsafe {
            let record = QueuePairRecord::new(record.at(0));
            ReceiveQueue::new(ring.at(0), layout, 1 << 30, gate.gate, record, Arc::clone(&records))
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

/// A scatter list as the device reads it: entries, then, if there is room, one of no length with
/// the key 0x100, at which it stops.
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
    ListError { index, error: PostError::QueueFull { free: 0, needed: 1 } }
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
            // What stood there before is not to be met behind the list.
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
        assert_eq!(bed.post(0, &[sge(length)]), Err(ListError { index: 0, error }));
        let error = PostError::SgeTooLong { index: 1, length };
        assert_eq!(bed.post(0, &[sge(5), sge(length)]), Err(ListError { index: 0, error }));
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
    assert_eq!(bed.queue.post_recv(&list), Err(ListError { index: 2, error }));
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
    assert_eq!(bed.post(2, &data).unwrap_err().index, 0);
    bed.queue.post_recv(&[]).unwrap();
    assert_eq!((bed.request(0), bed.record.all()), (first, record));
}

#[test]
fn requests_complete_in_the_order_in_which_they_were_posted() {
    let mut bed = Bed::new(4, 1);
    for wr_id in 0..4 {
        bed.post(wr_id, &[]).unwrap();
    }
    for counter in 0..4u16 {
        let others = (0..=u16::MAX).filter(|&other| other != counter);
        assert_eq!(others.filter_map(|other| bed.records.retire(other)).next(), None);
        assert_eq!(bed.records.retire(counter), Some(counter.into()));
    }
    assert_eq!((0..=u16::MAX).find_map(|counter| bed.records.retire(counter)), None);
}

#[test]
fn a_full_queue_takes_a_request_for_each_that_completes() {
    let mut bed = Bed::new(8, 2);
    let data = sges(2);
    let mut next = 0u64;
    // More than the 16 bits of the counter.
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
        // The rest, and one too many.
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

#[test]
fn receives_are_posted_in_every_state_but_reset() {
    let mut bed = Bed::new(8, 1);
    for state in QueueState::ALL {
        bed.gate.gate.set_state(state);
        let expected = match state {
            QueueState::Reset => Err(ListError { index: 0, error: PostError::State(state) }),
            _ => Ok(()),
        };
        assert_eq!(bed.post(0, &[]), expected);
    }
    bed.gate.gate.set_gone();
    assert_eq!(bed.post(0, &[]).unwrap_err().error, PostError::DeviceGone);
    bed.gate.word.write(0, &[0; 4]);
    assert_eq!(bed.post(0, &[]).unwrap_err().error, PostError::Forked);
}
