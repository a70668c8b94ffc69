//! Shared receive queues: a linked list in memory, walked by a device that knows only its bytes.

use crate::bed::{GateBed, Memory};
use crate::by_hand::sges;
use crate::sets::Random;
use mlx5_doorbell::QueuePairRecord;
use mlx5_wqe::{
    Faulted, ListError, PostError, QueueState, ReceiveLayout, ReceiveWr, Sge, SharedReceiveQueue,
    SharedReceiveRecords,
};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

struct Bed {
    queue: SharedReceiveQueue,
    records: Arc<SharedReceiveRecords>,
    layout: ReceiveLayout,
    device: Device,
    gate: GateBed,
}

/// The device's side. It starts at request 0 and takes as many requests as the record counts. Each
/// request names the next.
struct Device {
    ring: Memory,
    record: Memory,
    stride: usize,
    next: u16,
    taken: u16,
}

impl Device {
    fn posted(&self) -> u16 {
        let record = self.record.read(0, 4);
        assert_eq!(record[..2], [0, 0]);
        u16::from_be_bytes([record[2], record[3]])
    }

    /// Takes the next request: its index, and its entries up to the end mark.
    fn take(&mut self) -> Option<(u16, Vec<Sge>)> {
        if self.taken == self.posted() {
            return None;
        }
        let index = self.next;
        let bytes = self.ring.read(usize::from(index) * self.stride, self.stride);
        assert_eq!(bytes[..2], [0, 0]);
        assert_eq!(bytes[4..16], [0; 12]);
        self.next = u16::from_be_bytes([bytes[2], bytes[3]]);
        self.taken = self.taken.wrapping_add(1);
        let sges = bytes[16..]
            .chunks_exact(16)
            .map(|entry| Sge {
                length: u32::from_be_bytes(entry[..4].try_into().unwrap()),
                lkey: u32::from_be_bytes(entry[4..8].try_into().unwrap()),
                addr: u64::from_be_bytes(entry[8..].try_into().unwrap()),
            })
            .take_while(|sge| (sge.length, sge.lkey, sge.addr) != (0, 0x100, 0))
            .collect();
        Some((index, sges))
    }
}

/// The queue of a bed, for a hook that a poll of the same thread calls.
struct Owner(*mut SharedReceiveQueue);

// SAFETY: the thread that uses the bed is the only one that calls the hook.
unsafe impl Send for Owner {}

impl Owner {
    /// # Safety
    /// The bed exists, and nothing else uses its queue.
    unsafe fn repost(&self, faulted: Faulted<'_>) -> bool {
        // SAFETY: the caller promises that the bed exists, and that nothing else uses its queue.
        unsafe { (*self.0).repost(faulted) }
    }
}

impl Bed {
    /// Reposts a request as a poll does that finds a page fault.
    fn repost(&mut self, index: u16) -> bool {
        let owner = Owner(&raw mut self.queue);
        let repost = move |faulted: Faulted<'_>| {
            // SAFETY: the bed is borrowed, and nothing else uses its queue until the hook is
            // removed.
            unsafe { owner.repost(faulted) };
        };
        self.records.set_repost(Some(Box::new(repost)));
        let mut passed = false;
        let posted = self.records.repost(index, &mut || passed = true);
        assert_eq!(posted, passed, "a completion is passed or told");
        self.records.set_repost(None);
        posted
    }

    fn new(requests: u32, sges: u32) -> Self {
        let layout = ReceiveLayout::new(requests, sges, SharedReceiveQueue::HEAD).unwrap();
        let (ring, record) = (Memory::new(layout.bytes()), Memory::new(8));
        let gate = GateBed::new();
        let records = Arc::new(SharedReceiveRecords::new(layout.requests));
        // SAFETY: the bed keeps the ring and the record, and only this queue writes to them.
        let queue = unsafe {
            let record = QueuePairRecord::new(record.at(0));
            let records = Arc::clone(&records);
            SharedReceiveQueue::new(ring.at(0), layout, gate.gate, record, records)
        };
        let device = Device { ring, record, stride: layout.stride as usize, next: 0, taken: 0 };
        Self { queue, records, layout, device, gate }
    }

    fn post(&mut self, wr_id: u64, sges: &[Sge]) -> Result<(), ListError> {
        self.queue.post_recv(&[ReceiveWr { wr_id, sges }])
    }
}

const fn full(index: u32) -> ListError {
    ListError::new(index, PostError::QueueFull { free: 0, needed: 1 })
}

#[test]
fn a_request_is_a_link_and_a_scatter_list() {
    let mut bed = Bed::new(4, 2);
    // Room for the link, and three entries.
    assert_eq!((bed.layout.stride, bed.layout.max_sge), (64, 3));
    let sge = Sge { addr: 0x0102_0304_0506_0708, length: 0x1000, lkey: 0x0a0b_0c0d };
    bed.post(1, &[sge]).unwrap();
    #[rustfmt::skip]
    let expected = [
        0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0x10, 0, 0x0a, 0x0b, 0x0c, 0x0d, 1, 2, 3, 4, 5, 6, 7, 8,
        0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(bed.device.ring.read(0, 48), expected);
    assert_eq!(bed.device.record.all(), [0, 0, 0, 1, 0, 0, 0, 0]);
}

#[test]
fn one_request_of_the_ring_stays_free_to_be_the_next() {
    let mut bed = Bed::new(8, 1);
    assert_eq!(bed.queue.capacity(), 7);
    assert_eq!(bed.queue.layout(), bed.layout);
    let list: Vec<_> = (0..9).map(|wr_id| ReceiveWr { wr_id, sges: &[] }).collect();
    assert_eq!(bed.queue.post_recv(&list), Err(full(7)));
    assert_eq!(bed.device.posted(), 7);
    assert_eq!(bed.post(9, &[]), Err(full(0)));
    let taken: Vec<_> = std::iter::from_fn(|| bed.device.take()).map(|(index, _)| index).collect();
    assert_eq!(taken, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(bed.records.retire(3), Some(3));
    assert_eq!(bed.post(10, &[]), Ok(()));
    assert_eq!(bed.post(11, &[]), Err(full(0)));
    // It was posted in the request that was free before; the next will be in the one freed.
    assert_eq!(bed.device.take().map(|(index, _)| index), Some(7));
    assert_eq!(bed.records.retire(0), Some(0));
    assert_eq!(bed.post(12, &[]), Ok(()));
    assert_eq!(bed.device.take().map(|(index, _)| index), Some(3));
    assert_eq!(bed.records.retire(3), Some(12));
}

#[test]
fn a_request_that_the_device_does_not_hold_cannot_complete() {
    let mut bed = Bed::new(4, 1);
    let any = |bed: &Bed| (0..=u16::MAX).find_map(|index| bed.records.retire(index));
    assert_eq!(any(&bed), None);
    bed.post(5, &[]).unwrap();
    assert_eq!((1..=u16::MAX).find_map(|index| bed.records.retire(index)), None);
    assert_eq!(bed.records.retire(0), Some(5));
    assert_eq!(any(&bed), None);
}

/// A request that met a page fault is posted again unchanged, after the others, even if only its
/// own place is free.
#[test]
fn a_request_that_faulted_is_posted_again_behind_all_others() {
    let mut bed = Bed::new(4, 3);
    let data = sges(3);
    for (wr_id, entries) in [(1, 2), (2, 3), (3, 1)] {
        bed.post(wr_id, &data[..entries]).unwrap();
    }
    assert_eq!(bed.device.take(), Some((0, data[..2].to_vec())));
    assert!(bed.repost(0));
    assert_eq!(bed.post(4, &[]), Err(full(0)), "there is no room for another one");
    assert_eq!(bed.records.in_flight(), 3);
    assert_eq!(bed.device.take(), Some((1, data.clone())));
    assert_eq!(bed.device.take(), Some((2, data[..1].to_vec())));
    assert_eq!(bed.device.take(), Some((3, data[..2].to_vec())));
    assert_eq!(bed.device.take(), None);
    assert_eq!([3, 1, 2].map(|index| bed.records.retire(index)), [1, 2, 3].map(Some));
    // A request that the device does not hold is not posted.
    assert!([0, 1, 4, u16::MAX].iter().all(|index| !bed.repost(*index)));
    assert_eq!(bed.device.take(), None);
    bed.post(5, &data[..1]).unwrap();
    assert_eq!(bed.device.take(), Some((0, data[..1].to_vec())), "of the usual form");
    bed.gate.gate.set_gone();
    assert!(!bed.repost(0));
    assert_eq!(bed.records.retire(0), Some(5));
}

/// A poller calls the hook that is set, and nothing once the hook is removed.
#[test]
fn a_poller_has_requests_posted_again_by_whom_it_is_told() {
    let records = Arc::new(SharedReceiveRecords::new(4));
    let repost = |index| records.repost(index, &mut || panic!("nothing was posted"));
    assert!(!repost(1));
    let (asked, told) = std::sync::mpsc::channel();
    let ask = move |faulted: Faulted<'_>| asked.send(faulted.request()).unwrap();
    records.set_repost(Some(Box::new(ask)));
    // A hook that posts nothing leaves the completion to be reported.
    assert!(!repost(1) && !repost(3));
    records.set_repost(None);
    assert!(!repost(2));
    assert_eq!(told.iter().collect::<Vec<_>>(), [1, 3]);
}

/// Without the pass, the completion would be taken for that of the reposted request.
#[test]
fn a_panic_behind_a_request_that_was_posted_again_passes_its_completion() {
    for posts in [false, true] {
        let mut bed = Bed::new(4, 1);
        bed.post(5, &[]).unwrap();
        let owner = Owner(&raw mut bed.queue);
        let repost = move |faulted: Faulted<'_>| {
            // SAFETY: the bed exists, and nothing else uses its queue while the hook is set.
            assert!(!posts || unsafe { owner.repost(faulted) });
            std::panic::resume_unwind(Box::new("planned"));
        };
        bed.records.set_repost(Some(Box::new(repost)));
        let mut passed = 0;
        let run = AssertUnwindSafe(|| bed.records.repost(0, &mut || passed += 1));
        assert!(catch_unwind(run).is_err());
        assert_eq!(passed, u32::from(posts));
        bed.records.set_repost(None);
        // A request that was not reposted completes; a reposted one has another place.
        assert_eq!(bed.records.retire(0), (!posts).then_some(5));
        assert_eq!(bed.records.in_flight(), u32::from(posts));
    }
}

/// After removing the hook, the caller may free what the hook uses: no poll runs it any more.
#[test]
fn what_posts_again_is_not_called_any_more_once_it_is_taken_away() {
    let records = Arc::new(SharedReceiveRecords::new(4));
    let (entered, enter) = mpsc::channel();
    let (go, gone) = mpsc::channel();
    let over = Arc::new(AtomicBool::new(false));
    let sets = Arc::clone(&over);
    let slow = move |_: Faulted<'_>| {
        entered.send(()).unwrap();
        gone.recv().unwrap();
        // The other thread removes the hook now.
        (0..1000).for_each(|_| thread::yield_now());
        sets.store(true, Relaxed);
    };
    records.set_repost(Some(Box::new(slow)));
    thread::scope(|scope| {
        let poller = scope.spawn(|| records.repost(1, &mut || panic!("nothing was posted")));
        enter.recv().unwrap();
        go.send(()).unwrap();
        records.set_repost(None);
        assert!(over.load(Relaxed), "a poll is still at it");
        poller.join().unwrap();
    });
}

/// A queue with its device. Pollers know only the records.
struct Owned {
    bed: Bed,
    next: u64,
}

impl Owned {
    /// Posts if there is room, and has the device take a request. Returns the request's index and
    /// identifier.
    fn step(&mut self, until: u64) -> Option<(u16, u64)> {
        if self.next < until {
            let sge = Sge { addr: self.next, length: 1, lkey: 2 };
            self.next += u64::from(self.bed.post(self.next, &[sge]).is_ok());
        }
        self.bed.device.take().map(|(index, sges)| (index, sges[0].addr))
    }
}

/// Pollers of several completion queues meet page faults while the owner posts and finally drops
/// the queue. Each request completes at most once, with its identifier, even if it is posted again
/// many times.
#[test]
fn threads_that_meet_page_faults_lose_no_request_and_post_none_twice() {
    const REQUESTS: u64 = 400;
    const POLLERS: usize = 3;
    for seed in 1..=3_u64 {
        let bed = Bed::new(16, 1);
        let records = Arc::clone(&bed.records);
        let owned = Arc::new(Mutex::new(Owned { bed, next: 0 }));
        let weak = Arc::downgrade(&owned);
        let repost = move |faulted: Faulted<'_>| {
            let Some(owned) = weak.upgrade() else { return };
            owned.lock().unwrap().bed.queue.repost(faulted);
        };
        records.set_repost(Some(Box::new(repost)));
        let once: Vec<_> = (0..REQUESTS).map(|_| AtomicUsize::new(0)).collect();
        let done = AtomicUsize::new(0);
        let mut posted = 0;
        thread::scope(|scope| {
            let (records, once, done) = (&records, &once, &done);
            let pollers: Vec<_> = (0..POLLERS)
                .map(|poller| {
                    let (found, completions) = mpsc::channel::<(u16, u64)>();
                    scope.spawn(move || {
                        let mut random = Random(seed * 16 + poller as u64);
                        for (index, wr_id) in completions {
                            if random.next().is_multiple_of(2) && records.repost(index, &mut || {})
                            {
                                continue;
                            }
                            assert_eq!(records.retire(index), Some(wr_id), "seed {seed}");
                            once[wr_id as usize].fetch_add(1, Relaxed);
                            done.fetch_add(1, Relaxed);
                        }
                    });
                    found
                })
                .collect();
            let mut random = Random(seed);
            // The queue is dropped while faults remain that nothing posts again.
            let last = REQUESTS as usize - 8;
            while done.load(Relaxed) < last {
                match owned.lock().unwrap().step(REQUESTS) {
                    Some(found) => {
                        let poller = random.next() as usize % POLLERS;
                        pollers[poller].send(found).unwrap();
                    }
                    None => thread::yield_now(),
                }
            }
            posted = owned.lock().unwrap().next;
            drop(owned);
        });
        let done = done.into_inner() as u64;
        assert!(once.iter().all(|count| count.load(Relaxed) <= 1), "seed {seed}");
        assert_eq!(u64::from(records.in_flight()) + done, posted, "seed {seed}");
    }
}

/// A queue does not overwrite what a program has itself written into the ring.
#[test]
fn nothing_is_posted_again_into_memory_that_a_program_has() {
    let mut bed = Bed::new(4, 2);
    let data = sges(2);
    bed.post(1, &data).unwrap();
    let before = bed.device.ring.read(0, bed.layout.bytes());
    bed.records.lend();
    assert!(!bed.repost(0));
    assert_eq!(bed.device.ring.read(0, bed.layout.bytes()), before);
    assert_eq!(bed.records.retire(0), Some(1), "the completion is told");
}

/// A queue does not repost a request of another queue.
#[test]
fn a_request_of_another_queue_is_not_posted_again() {
    let (mut bed, mut other) = (Bed::new(4, 2), Bed::new(4, 2));
    let data = sges(2);
    bed.post(1, &data).unwrap();
    other.post(2, &data[..1]).unwrap();
    let owner = Owner(&raw mut other.queue);
    let repost = move |faulted: Faulted<'_>| {
        // SAFETY: the other bed exists, and nothing else uses its queue while the hook is set.
        unsafe { owner.repost(faulted) };
    };
    bed.records.set_repost(Some(Box::new(repost)));
    assert!(!bed.records.repost(0, &mut || panic!("nothing was posted")));
    assert_eq!((bed.records.in_flight(), other.records.in_flight()), (1, 1));
    assert_eq!(other.device.take(), Some((0, data[..1].to_vec())));
    assert_eq!(other.device.take(), None);
}

#[test]
fn a_bad_request_is_refused_and_its_place_used_again() {
    let mut bed = Bed::new(4, 1);
    let data = sges(9);
    let wr = |wr_id, sges| ReceiveWr { wr_id, sges };
    let error = PostError::TooManySges { given: 9, max: 1 };
    let list = [wr(1, &data[..1]), wr(2, &data), wr(3, &data[..1])];
    assert_eq!(bed.queue.post_recv(&list), Err(ListError::new(1, error)));
    assert_eq!(bed.device.posted(), 1);
    let long = Sge { length: 1 << 31, ..data[0] };
    let error = PostError::SgeTooLong { index: 0, length: 1 << 31 };
    assert_eq!(bed.post(4, &[long]), Err(ListError::new(0, error)));
    assert_eq!(bed.device.posted(), 1);
    bed.post(5, &data[1..2]).unwrap();
    assert_eq!(bed.device.take(), Some((0, data[..1].to_vec())));
    assert_eq!(bed.device.take(), Some((1, data[1..2].to_vec())));
    assert_eq!(bed.device.take(), None);
    assert_eq!(bed.records.retire(1), Some(5));
    assert_eq!(bed.records.retire(0), Some(1));
}

#[test]
fn a_shut_gate_refuses() {
    let mut bed = Bed::new(4, 1);
    bed.gate.gate.set_state(QueueState::Reset);
    assert_eq!(bed.post(0, &[]).unwrap_err().error(), PostError::State(QueueState::Reset));
    bed.gate.gate.set_gone();
    assert_eq!(bed.post(0, &[]).unwrap_err().error(), PostError::DeviceGone);
    assert_eq!(bed.device.posted(), 0);
}

#[test]
fn many_laps_in_order_cross_the_end_of_the_counter() {
    let mut bed = Bed::new(8, 3);
    let data = sges(3);
    for wr_id in 0..70_000u64 {
        let list = &data[..wr_id as usize % 4];
        bed.post(wr_id, list).unwrap();
        let (index, taken) = bed.device.take().unwrap();
        assert_eq!(taken, list);
        assert_eq!(bed.records.retire(index), Some(wr_id));
    }
}

/// A step of a random program.
#[derive(Clone, Debug)]
enum Step {
    Post(u8),
    Take(u8),
    /// The n-th of the requests that the device has taken completes, out of order.
    Complete(u8),
    /// The n-th such request met a page fault, and is posted again.
    Fault(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..12u8).prop_map(Step::Post),
        (1..12u8).prop_map(Step::Take),
        any::<u8>().prop_map(Step::Complete),
        any::<u8>().prop_map(Step::Complete),
        any::<u8>().prop_map(Step::Complete),
        any::<u8>().prop_map(Step::Fault),
    ]
}

proptest! {
    #![proptest_config(crate::cancel_model::config(64))]
    #[test]
    fn requests_may_complete_in_any_order(
        log in 1..7u32,
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut bed = Bed::new(1 << log, 3);
        let capacity = bed.queue.capacity() as usize;
        let data = sges(3);
        let (mut next, mut waiting, mut held) = (0u64, VecDeque::new(), Vec::new());
        for step in steps {
            match step {
                Step::Post(count) => for _ in 0..count {
                    let outstanding = waiting.len() + held.len();
                    let list = &data[..next as usize % 4];
                    if outstanding == capacity {
                        prop_assert_eq!(bed.post(next, list), Err(full(0)));
                        break;
                    }
                    prop_assert_eq!(bed.post(next, list), Ok(()));
                    waiting.push_back(next);
                    next += 1;
                },
                Step::Take(count) => for _ in 0..count {
                    let Some(wr_id) = waiting.pop_front() else {
                        prop_assert_eq!(bed.device.take(), None);
                        break;
                    };
                    let (index, list) = bed.device.take().unwrap();
                    prop_assert_eq!(&list[..], &data[..wr_id as usize % 4]);
                    prop_assert!(held.iter().all(|&(other, _)| other != index));
                    held.push((index, wr_id));
                },
                Step::Complete(which) => if !held.is_empty() {
                    let (index, wr_id) = held.swap_remove(usize::from(which) % held.len());
                    prop_assert_eq!(bed.records.retire(index), Some(wr_id));
                    prop_assert_eq!(bed.records.retire(index), None);
                },
                Step::Fault(which) => if !held.is_empty() {
                    let (index, wr_id) = held.swap_remove(usize::from(which) % held.len());
                    prop_assert!(bed.repost(index));
                    waiting.push_back(wr_id);
                },
            }
        }
    }
}

/// Checks a queue whose requests complete in any order: it takes as many as it has room for, in
/// every form, and each arrives.
fn check_any_order(requests: u32, seed: u64) {
    let mut random = Random(seed);
    let mut below = |limit: usize| (random.next() % limit as u64) as usize;
    let mut bed = Bed::new(requests, 3);
    let (capacity, data) = (bed.queue.capacity() as usize, sges(3));
    let long = [data[0], data[1], Sge { length: 1 << 31, ..data[2] }];
    let (mut next, mut held) = (0u64, Vec::new());
    for _ in 0..20 {
        for _ in 0..below(2 * requests as usize + 2) {
            if held.len() < capacity && below(8) == 0 {
                let error = PostError::SgeTooLong { index: 2, length: 1 << 31 };
                assert_eq!(bed.post(next, &long), Err(ListError::new(0, error)));
            }
            let list = &data[..[0, 1, 1, 1, 1, 2, 3][below(7)]];
            if held.len() == capacity {
                assert_eq!(bed.post(next, list), Err(full(0)), "seed {seed}");
                break;
            }
            assert_eq!(bed.post(next, list), Ok(()), "{} of {capacity}, seed {seed}", held.len());
            let (index, taken) = bed.device.take().expect("one was posted");
            assert_eq!(taken, list, "seed {seed}");
            held.push((index, next));
            next += 1;
        }
        for _ in 0..below(held.len() + 1) {
            let (index, wr_id) = held.swap_remove(below(held.len()));
            assert_eq!(bed.records.retire(index), Some(wr_id), "seed {seed}");
            assert_eq!(bed.records.retire(index), None, "seed {seed}");
        }
        assert_eq!(bed.records.in_flight() as usize, held.len(), "seed {seed}");
        let indexes: BTreeSet<_> = held.iter().map(|(index, _)| *index).collect();
        assert_eq!(indexes.len(), held.len(), "seed {seed}");
    }
}

#[test]
fn requests_of_a_queue_of_any_size_come_back_in_any_order() {
    for (log, seed) in (1..=15).zip(1..) {
        check_any_order(1 << log, seed);
    }
}

/// Requests that completed in any order are posted in ring order again, in few runs.
#[test]
fn requests_that_came_back_in_any_order_are_posted_in_runs() {
    for (log, seed) in (6..=15).zip(1..) {
        let (requests, mut random) = (1_usize << log, Random(seed));
        let mut bed = Bed::new(requests as u32, 1);
        for _ in 0..3 {
            let posted = requests - 1;
            let data = sges(1);
            (0..posted).for_each(|wr_id| bed.post(wr_id as u64, &data).unwrap());
            let taken = std::iter::from_fn(|| bed.device.take().map(|(index, _)| index));
            let mut taken: Vec<_> = taken.collect();
            let breaks = taken.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
            // One break at the end of the ring, and one where a word of places is taken in two
            // parts.
            assert!(breaks <= 3, "{breaks} breaks among {requests}, seed {seed}");
            for left in (1..=posted).rev() {
                let index = taken.swap_remove((random.next() % left as u64) as usize);
                assert!(bed.records.retire(index).is_some());
            }
        }
    }
}

/// A program that posts to the ring itself finds the free requests that the next posts fill.
#[test]
fn the_free_run_is_what_the_next_posts_fill() {
    let mut bed = Bed::new(128, 1);
    let data = sges(1);
    assert_eq!(bed.queue.free_run(), (0, 127));
    (0..100).for_each(|wr_id| bed.post(wr_id, &data).unwrap());
    assert_eq!(bed.queue.free_run(), (100, 127));
    (0..50).for_each(|index| assert!(bed.records.retire(index).is_some()));
    assert_eq!(bed.queue.free_run(), (100, 49));
    (0..70).for_each(|wr_id| bed.post(wr_id, &data).unwrap());
    assert_eq!(bed.queue.free_run(), (42, 49));
    let taken: Vec<_> = std::iter::from_fn(|| bed.device.take()).map(|(index, _)| index).collect();
    let expected: Vec<_> = (0..128).chain(0..42).collect();
    assert_eq!(taken, expected);
}

#[test]
fn an_iterator_is_posted_up_to_the_first_bad_one() {
    let mut bed = Bed::new(7, 2);
    let four = sges(4);
    for round in 0..20_u64 {
        let good = round % 6;
        let mut taken = 0;
        let posted = bed.queue.post_recv_iter((0..).map(|n| {
            taken += 1;
            ReceiveWr { wr_id: round << 8 | n, sges: &four[..if n == good { 4 } else { 1 }] }
        }));
        let error = PostError::TooManySges { given: 4, max: bed.layout.max_sge };
        assert_eq!(posted, Err(ListError::new(good as u32, error)));
        assert_eq!(taken, good + 1);
        for n in 0..good {
            let (index, list) = bed.device.take().unwrap();
            assert_eq!(list, four[..1]);
            assert_eq!(bed.records.retire(index), Some(round << 8 | n));
        }
        assert_eq!(bed.device.take(), None);
    }
    assert_eq!(bed.queue.post_recv_iter([] as [ReceiveWr<'_>; 0]), Ok(0));
    bed.queue.recv(9, four[0]).unwrap();
    let (index, list) = bed.device.take().unwrap();
    assert_eq!((list, bed.records.retire(index)), (vec![four[0]], Some(9)));
}

/// Requests that the iterator yielded before it panicked are posted, so none is lost.
#[test]
fn an_iterator_that_panics_costs_no_room() {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    let mut bed = Bed::new(7, 1);
    let list = sges(1);
    for round in 0..30_u64 {
        let good = round % 5;
        let panic = catch_unwind(AssertUnwindSafe(|| {
            bed.queue.post_recv_iter((0..).map(|n| {
                if n == good {
                    resume_unwind(Box::new("of the iterator"));
                }
                ReceiveWr { wr_id: round << 8 | n, sges: &list }
            }))
        }));
        assert!(panic.is_err());
        for n in 0..good {
            let (index, _) = bed.device.take().unwrap();
            assert_eq!(bed.records.retire(index), Some(round << 8 | n));
        }
        assert_eq!(bed.device.take(), None);
    }
    let capacity = bed.queue.capacity();
    let full = bed.queue.post_recv_iter((0..).map(|wr_id| ReceiveWr { wr_id, sges: &list }));
    let error = PostError::QueueFull { free: 0, needed: 1 };
    assert_eq!(full, Err(ListError::new(capacity, error)));
    assert_eq!(bed.queue.recv(1, list[0]), Err(error));
}

/// A call that posts nothing does not write the record: a program that posts to the ring itself may
/// own it.
#[test]
fn a_list_without_a_good_request_stores_to_no_record() {
    let mut bed = Bed::new(4, 1);
    let (data, four) = (sges(1), sges(4));
    bed.post(1, &data).unwrap();
    // SAFETY: the bed keeps the record, and nothing else uses it meanwhile.
    unsafe { bed.device.record.at(0).cast::<u32>().write_volatile(0xabcd) };
    let record = bed.device.record.all();
    assert_eq!(bed.post(2, &four).unwrap_err().index(), 0);
    bed.queue.post_recv(&[]).unwrap();
    assert_eq!(bed.queue.post_recv_iter([] as [ReceiveWr<'_>; 0]), Ok(0));
    bed.gate.gate.set_state(QueueState::Reset);
    assert!(bed.post(2, &data).is_err());
    assert_eq!(bed.device.record.all(), record);
    bed.gate.gate.set_state(QueueState::ReadyToSend);
    (0..bed.layout.requests - 2).for_each(|_| bed.post(2, &data).unwrap());
    // SAFETY: the bed keeps the record, and nothing else uses it meanwhile.
    unsafe { bed.device.record.at(0).cast::<u32>().write_volatile(0xabcd) };
    let full = PostError::QueueFull { free: 0, needed: 1 };
    assert_eq!(bed.queue.recv(3, data[0]), Err(full));
    assert_eq!(bed.post(3, &data).map_err(|refused| refused.error()), Err(full));
    assert_eq!(bed.device.record.all(), record);
}

/// A program that posts to the ring itself follows the links from the first free request to the
/// last.
#[test]
fn the_links_of_the_free_run_are_in_memory() {
    let mut random = Random(0x5eed);
    for round in 0..300 {
        let mut bed = Bed::new(8 << (round % 5), 1);
        let data = sges(1);
        let mut held = Vec::new();
        for _ in 0..1 + random.next() % 60 {
            if !held.is_empty() && random.next().is_multiple_of(3) {
                let index = held.swap_remove(random.next() as usize % held.len());
                assert!(bed.records.retire(index).is_some());
            } else if bed.post(0, &data).is_ok() {
                held.push(bed.device.take().unwrap().0);
            }
        }
        let (first, last) = bed.queue.free_run();
        let (mut at, mut seen) = (first as u16, vec![first as u16]);
        while u32::from(at) != last {
            let link = bed.device.ring.read(usize::from(at) * bed.device.stride + 2, 2);
            at = u16::from_be_bytes([link[0], link[1]]);
            assert!(!held.contains(&at), "round {round}: {at} is held");
            assert!(!seen.contains(&at), "round {round}: {at} comes twice");
            seen.push(at);
        }
    }
}
