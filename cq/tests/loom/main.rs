//! The protocol among poster, poller and destroyer, and that of a tag list, in every interleaving
//! of their steps. Run it with `RUSTFLAGS="--cfg loom" cargo test --release -p mlx5-cq --test
//! loom`.
//!
//! A device is between poster and poller. Its ordering gives Rust no happens-before, so the tests
//! have none here: a test's poller asks for completions at any time. If it asks too early, there
//! must be none; with a correct device it would not have asked.
#![cfg(loom)]

mod shared;
mod tags;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use mlx5_cq::{
    Attention, Deferred, Lookup, Queue, Ring, RingBuffer, RingId, RingParts, RingState, Sent,
    SentRequest, Side, UserIndexTable,
};
use mlx5_doorbell::{CompletionQueueRecord, QueuePairRecord, SendRegister};
use mlx5_prm::wqe::Opcode;
use mlx5_wqe::{
    Gate, PostError, QueueState, Rc, ReceiveLayout, ReceiveQueue, ReceiveRecords, ReceiveWr,
    RemoteAddress, SendFlags, SendLayout, SendParts, SendQueue, SendRecords, SharedReceiveQueue,
    SharedReceiveRecords,
};
use std::ptr::NonNull;

/// The identifier of the ring in the table of queues.
const RING: RingId = RingId(7);

/// Explores all interleavings with at most this many preemptions.
fn model(switches: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(run);
}

/// A device's memory. Other threads access it only through atomics of the crates, which are not
/// loom's.
#[repr(C, align(64))]
struct Words([u64; 64]);

struct Memory(NonNull<u8>);

// SAFETY: all access is volatile or through atomics, as to a device's memory.
unsafe impl Send for Memory {}
// SAFETY: all access is volatile or through atomics, as to a device's memory.
unsafe impl Sync for Memory {}

impl Memory {
    fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(Words([0; 64])))).cast())
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < size_of::<Words>());
        // SAFETY: `offset` is inside the memory, as asserted above.
        unsafe { self.0.byte_add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` leaked the memory from a box, and nothing uses it after the drop.
        drop(unsafe { Box::from_raw(self.0.cast::<Words>().as_ptr()) });
    }
}

/// Offsets in a queue's memory, after a ring of at most four blocks.
const UAR: usize = 256;
const RECORD: usize = 320;
const GATE: usize = 384;

fn gate(memory: &Memory) -> Gate {
    // SAFETY: the four bytes at `GATE` have no other use, and the test keeps the memory.
    let gate = unsafe { Gate::new(memory.at(GATE).cast()) };
    gate.set_state(QueueState::ReadyToSend);
    gate
}

fn record(memory: &Memory) -> QueuePairRecord {
    // SAFETY: the eight bytes at `RECORD` have no other use, and the test keeps the memory.
    unsafe { QueuePairRecord::new(memory.at(RECORD)) }
}

/// A send queue of `blocks` blocks, one for the largest request.
fn send_queue(memory: &Memory, blocks: u32, records: &SendRecords) -> SendQueue<Rc> {
    let layout = SendLayout::new::<Rc>(blocks, 1, 0).unwrap();
    assert_eq!((layout.blocks, layout.max_request_blocks), (blocks, 1));
    let parts = SendParts {
        ring: memory.at(0),
        layout,
        qpn: 1,
        max_message: 1 << 30,
        signal_all: false,
        atomics: true,
        gate: gate(memory),
        record: record(memory),
        // SAFETY: the eight bytes at `UAR` have no other use, and the test keeps the memory.
        register: unsafe { SendRegister::doorbell(memory.at(UAR)) },
        records: NonNull::from(records),
    };
    // SAFETY: every test keeps memory and records longer than the queue.
    unsafe { SendQueue::new(parts) }
}

/// Posts request `number` of a test. Successive requests differ in every field.
fn post(queue: &mut SendQueue<Rc>, number: u64, flags: SendFlags) -> Result<(), PostError> {
    let to = RemoteAddress { addr: number, rkey: 0 };
    let mut batch = queue.wr_start();
    match number % 3 {
        0 => batch.wr(100 + number, flags).send().inline_data(b"x"),
        1 => batch.wr(100 + number, flags).rdma_write(to).inline_data(b"x"),
        _ => batch.wr(100 + number, flags).rdma_read(to).sge_list(&[]),
    }
    batch.complete().map_err(|error| error.error())
}

const fn opcode(number: u64) -> Opcode {
    match number % 3 {
        0 => Opcode::Send,
        1 => Opcode::RdmaWrite,
        _ => Opcode::RdmaRead,
    }
}

/// Asks until there is an answer.
fn wait<R>(mut ask: impl FnMut() -> Option<R>) -> R {
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        thread::yield_now();
    }
}

/// The poller gets the posted values of each request, and nothing that was in its record before or
/// that is written there later: the owner reuses a record only after the poller has read it.
#[test]
fn a_completion_is_about_the_request_that_was_posted() {
    for next in [false, true] {
        model(3, move || {
            const REQUESTS: u64 = 3;
            let memory = Memory::new();
            let records = Arc::new(SendRecords::new(2));
            let mut queue = send_queue(&memory, 2, &records);
            let poller = {
                let records = Arc::clone(&records);
                thread::spawn(move || {
                    for number in 0..REQUESTS {
                        let block = number as u16;
                        let completed = wait(|| {
                            if next { records.retire_next(block) } else { records.retire(block) }
                        });
                        assert_eq!(completed.wr_id, 100 + number);
                        assert_eq!(completed.info.first(), block);
                        assert_eq!(completed.info.opcode(), Some(opcode(number)));
                    }
                })
            };
            for number in 0..REQUESTS {
                wait(|| match post(&mut queue, number, SendFlags::SIGNALED) {
                    Ok(()) => Some(()),
                    Err(PostError::QueueFull { free: 0, needed: 1 }) => None,
                    Err(error) => panic!("{error}"),
                });
            }
            poller.join().unwrap();
            assert_eq!(queue.free_blocks(), 2);
        });
    }
}

/// The same, with unsignaled requests that complete with a later one, which the poller finds by its
/// block.
#[test]
fn a_completion_behind_unsignaled_requests_is_about_its_own() {
    model(2, || {
        let memory = Memory::new();
        let records = Arc::new(SendRecords::new(2));
        let mut queue = send_queue(&memory, 2, &records);
        let poller = {
            let records = Arc::clone(&records);
            thread::spawn(move || {
                for number in [1, 3u64] {
                    let completed = wait(|| records.retire(number as u16));
                    assert_eq!(completed.wr_id, 100 + number);
                    assert_eq!(completed.info.opcode(), Some(opcode(number)));
                    assert!(completed.info.signaled());
                }
            })
        };
        for number in 0..4 {
            let signaled = number % 2 == 1;
            let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
            wait(|| match post(&mut queue, number, flags) {
                Ok(()) => Some(()),
                Err(PostError::QueueFull { .. }) => None,
                Err(error) => panic!("{error}"),
            });
        }
        poller.join().unwrap();
        assert_eq!(queue.free_blocks(), 2);
    });
}

/// The poller sees no request of a batch before the batch is complete.
#[test]
fn a_batch_under_construction_is_not_met() {
    model(3, || {
        let memory = Memory::new();
        let records = Arc::new(SendRecords::new(4));
        let mut queue = send_queue(&memory, 4, &records);
        let completing = Arc::new(AtomicBool::new(false));
        let poller = {
            let (records, completing) = (Arc::clone(&records), Arc::clone(&completing));
            thread::spawn(move || {
                if let Some(completed) = records.retire(1) {
                    assert!(completing.load(Ordering::Relaxed));
                    assert_eq!((completed.wr_id, completed.info.opcode()), (7, Some(Opcode::Send)));
                }
            })
        };
        let mut batch = queue.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send_imm([0; 4]).sge_list(&[]);
        batch.wr(2, SendFlags::SIGNALED).send_imm([0; 4]).sge_list(&[]);
        batch.abort();
        let mut batch = queue.wr_start();
        batch.wr(6, SendFlags::SIGNALED).send().sge_list(&[]);
        batch.wr(7, SendFlags::SIGNALED).send().sge_list(&[]);
        completing.store(true, Ordering::Relaxed);
        batch.complete().unwrap();
        poller.join().unwrap();
    });
}

#[test]
fn a_receive_is_about_the_request_that_was_posted() {
    model(3, || {
        let memory = Memory::new();
        let layout = ReceiveLayout { requests: 2, max_sge: 1, stride: 16 };
        // The crate's own reference count is not loom's, so the other half lives as long as this.
        let records = std::sync::Arc::new(ReceiveRecords::new(2));
        // SAFETY: memory and records are kept longer than the queue.
        let mut queue = unsafe {
            let (gate, record) = (gate(&memory), record(&memory));
            let records = std::sync::Arc::clone(&records);
            ReceiveQueue::new(memory.at(0), layout, gate, record, records)
        };
        let poller = thread::spawn(move || {
            for number in 0..3 {
                assert_eq!(wait(|| records.retire(number)), 100 + u64::from(number));
            }
        });
        for number in 0..3 {
            let wr = ReceiveWr { wr_id: 100 + number, sges: &[] };
            wait(|| queue.post_recv(&[wr]).ok());
        }
        poller.join().unwrap();
    });
}

/// The slot of a receive that completes before an older one is not written before the older one
/// completes.
#[test]
fn a_receive_that_completes_early_keeps_its_place() {
    model(3, || {
        let memory = Memory::new();
        let layout = ReceiveLayout { requests: 2, max_sge: 1, stride: 16 };
        let records = std::sync::Arc::new(ReceiveRecords::new(2));
        // SAFETY: memory and records are kept longer than the queue.
        let mut queue = unsafe {
            let (gate, record) = (gate(&memory), record(&memory));
            let records = std::sync::Arc::clone(&records);
            ReceiveQueue::new(memory.at(0), layout, gate, record, records)
        };
        let poller = thread::spawn(move || {
            for number in [1, 0, 2] {
                assert_eq!(wait(|| records.retire(number)), 100 + u64::from(number));
            }
            assert_eq!(records.retire(3), None);
        });
        for number in 0..3 {
            let wr = ReceiveWr { wr_id: 100 + number, sges: &[] };
            wait(|| queue.post_recv(&[wr]).ok());
        }
        poller.join().unwrap();
    });
}

/// Different threads may poll queue pairs that share a receive queue. If the device names a request
/// twice, one thread gets it; each posted request is returned once.
#[test]
fn a_shared_receive_is_had_by_one_poller() {
    model(2, || {
        let memory = Memory::new();
        let layout = ReceiveLayout { requests: 2, max_sge: 1, stride: 32 };
        let records = std::sync::Arc::new(SharedReceiveRecords::new(2));
        // SAFETY: memory and records are kept longer than the queue.
        let mut queue = unsafe {
            let (gate, record) = (gate(&memory), record(&memory));
            let records = std::sync::Arc::clone(&records);
            SharedReceiveQueue::new(memory.at(0), layout, gate, record, records)
        };
        let had: Vec<_> = (0..2).map(|_| Arc::new(AtomicUsize::new(0))).collect();
        let pollers: Vec<_> = (0..2)
            .map(|_| {
                let (records, had) = (std::sync::Arc::clone(&records), had.clone());
                thread::spawn(move || {
                    for index in 0..2 {
                        // The request number `n` is in slot `n` of the ring.
                        if let Some(wr_id) = records.retire(index) {
                            assert_eq!(wr_id, 100 + u64::from(index));
                            had[usize::from(index)].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        let mut posted = 0;
        for number in 0..2 {
            // One request of the ring stays free, so that the second waits for the first.
            if queue.post_recv(&[ReceiveWr { wr_id: 100 + number, sges: &[] }]).is_ok() {
                posted += 1;
            } else {
                break;
            }
        }
        pollers.into_iter().for_each(|poller| poller.join().unwrap());
        for (number, had) in had.iter().enumerate() {
            let left = usize::from(records.retire(number as u16).is_some());
            let expected = usize::from(number < posted);
            assert_eq!(had.load(Ordering::Relaxed) + left, expected);
        }
    });
}

/// A poller that has returned a completion has freed its request: a thread that learns of the
/// completion has room, even while another poller frees a request of the same word.
#[test]
fn completion_of_a_shared_receive_leaves_room_for_another() {
    model(2, || {
        let memory = Memory::new();
        let layout = ReceiveLayout { requests: 4, max_sge: 1, stride: 32 };
        let records = std::sync::Arc::new(SharedReceiveRecords::new(4));
        // SAFETY: memory and records are kept longer than the queue.
        let mut queue = unsafe {
            let (gate, record) = (gate(&memory), record(&memory));
            let records = std::sync::Arc::clone(&records);
            SharedReceiveQueue::new(memory.at(0), layout, gate, record, records)
        };
        for number in 0..3 {
            queue.post_recv(&[ReceiveWr { wr_id: number, sges: &[] }]).unwrap();
        }
        let reported = Arc::new(AtomicUsize::new(0));
        let pollers: Vec<_> = (0..2)
            .map(|index| {
                let (records, reported) = (std::sync::Arc::clone(&records), Arc::clone(&reported));
                thread::spawn(move || {
                    assert_eq!(records.retire(index), Some(index.into()));
                    reported.fetch_add(1, Ordering::Release);
                })
            })
            .collect();
        let room = reported.load(Ordering::Acquire);
        for number in 0..room {
            let posted = queue.post_recv(&[ReceiveWr { wr_id: number as u64, sges: &[] }]);
            assert!(posted.is_ok(), "{number} of {room}");
        }
        pollers.into_iter().for_each(|poller| poller.join().unwrap());
        for _ in room..2 {
            assert!(queue.post_recv(&[ReceiveWr { wr_id: 9, sges: &[] }]).is_ok());
        }
        assert!(queue.post_recv(&[ReceiveWr { wr_id: 9, sges: &[] }]).is_err());
    });
}

/// The records of a queue pair, reduced to whether they are freed.
struct Tracked {
    /// Written when the records are freed, and read when the poller asks. Loom reports an error if
    /// neither happens before the other.
    freed: UnsafeCell<bool>,
    /// The only request counter that may be retired.
    counter: u16,
}

// SAFETY: the only shared field is loom's cell, which loom checks.
unsafe impl Sync for Tracked {}
// SAFETY: the only shared field is loom's cell, which loom checks.
unsafe impl Send for Tracked {}

impl Tracked {
    fn new(counter: u16) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { freed: UnsafeCell::new(false), counter })
    }
}

impl Queue for Tracked {
    fn retire_send(&self, counter: u16, _: bool) -> Option<Sent> {
        self.retire_next_send(counter).map(Sent::Request)
    }

    fn retire_next_send(&self, counter: u16) -> Option<SentRequest> {
        // SAFETY: loom checks that nothing writes.
        assert!(!self.freed.with(|freed| unsafe { *freed }), "a freed queue was asked");
        assert_eq!(counter, self.counter, "an entry of another queue");
        Some(SentRequest { wr_id: counter.into(), opcode: Opcode::Send as u8 })
    }

    fn retire_receive(&self, _: u16) -> Option<u64> {
        None
    }
}

/// Keeps a queue: dropping the last reference frees the queue. (Its memory stays, so that a test
/// can check it.)
struct Keeper {
    queue: std::sync::Arc<Tracked>,
    freed: Arc<AtomicBool>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // SAFETY: loom checks that nothing else has access.
        self.queue.freed.with_mut(|freed| unsafe { *freed = true });
        self.freed.store(true, Ordering::Release);
    }
}

/// A completion queue of four entries.
struct Completions {
    memory: Memory,
    deferred: Deferred<Arc<Keeper>>,
    /// Stands for [`Attention`], whose word is not loom's.
    attention: AtomicBool,
    state: std::sync::Arc<RingState>,
}

impl Completions {
    fn new() -> Arc<Self> {
        let memory = Memory::new();
        // SAFETY: the memory has room for four entries and a record, and `Completions` keeps it
        // while it keeps the state.
        let state = unsafe {
            RingState::new(
                RingBuffer { start: memory.at(0), log_size: 2, stride: 64 },
                CompletionQueueRecord::new(memory.at(RECORD)),
            )
        };
        let state = std::sync::Arc::new(state);
        let (deferred, attention) = (Deferred::default(), AtomicBool::new(false));
        Arc::new(Self { memory, deferred, attention, state })
    }

    fn ring(&self, table: &std::sync::Arc<UserIndexTable<Tracked>>) -> Ring<Tracked> {
        // SAFETY: the word at `GATE` has no other use, and the test keeps the memory longer than
        // the ring.
        let attention = unsafe { Attention::new(self.memory.at(GATE).cast()) };
        let (queues, state) = (std::sync::Arc::clone(table), std::sync::Arc::clone(&self.state));
        Ring::new(RingParts { queues, state, attention, id: RING })
    }

    /// The device writes entry `at` of the first lap: request `counter` of the queue with user
    /// index `index` completed.
    fn write(&self, at: usize, index: u8, counter: u16) {
        let mut entry = [0; 64];
        entry[35] = index;
        entry[60..62].copy_from_slice(&counter.to_be_bytes());
        // SAFETY: `at` is one of the four entries.
        unsafe { self.memory.at(at * 64).cast::<[u8; 64]>().write_volatile(entry) };
    }

    /// Does the work of a driver before it polls.
    fn attend(&self, ring: &mut Ring<Tracked>) {
        if self.attention.swap(false, Ordering::AcqRel) {
            ring.clear_cached_queues();
            if self.deferred.release(ring.consumer()) {
                self.set_attention();
            }
        }
    }

    /// Does the work of a driver after the kernel has destroyed the queue pair.
    fn depart(&self, index: u8, keeper: Arc<Keeper>) {
        let end = self.state.end_of(index.into()).unwrap_or_else(|| self.state.consumed());
        self.deferred.push(end, keeper);
        self.set_attention();
    }

    /// As [`Attention`] does it, by one read-modify-write.
    fn set_attention(&self) {
        self.attention.swap(true, Ordering::AcqRel);
    }
}

fn register(table: &UserIndexTable<Tracked>, index: u32, queue: &std::sync::Arc<Tracked>) {
    // SAFETY: every test keeps its queues until its end.
    unsafe { table.set(index, NonNull::from(&**queue), [RING; 2]) };
}

/// A queue is destroyed while its completions are polled. Once it is freed, its index goes to a new
/// one. No poll uses a freed queue, and no CQE of the old one completes a request of the new one.
#[test]
fn a_destroyed_queue_is_freed_when_the_poller_cannot_reach_it() {
    model(3, || {
        let table = std::sync::Arc::new(UserIndexTable::default());
        let cq = Completions::new();
        let (old, new) = (Tracked::new(7), Tracked::new(8));
        let freed = Arc::new(AtomicBool::new(false));
        register(&table, 0, &old);
        cq.write(0, 0, 7);
        cq.write(1, 0, 7);
        let keeper =
            Arc::new(Keeper { queue: std::sync::Arc::clone(&old), freed: Arc::clone(&freed) });
        let made = Arc::new(AtomicBool::new(false));
        let poller = {
            let (cq, made) = (Arc::clone(&cq), Arc::clone(&made));
            let mut ring = cq.ring(&table);
            thread::spawn(move || {
                let (mut last, mut new_one) = (None, false);
                while last != Some(8) {
                    cq.attend(&mut ring);
                    // The device writes an entry for a queue only after the driver has made it;
                    // kernel and device order the two.
                    if !new_one && made.load(Ordering::Acquire) {
                        cq.write(2, 0, 8);
                        new_one = true;
                    }
                    match ring.next() {
                        Some(completion) => last = Some(completion.wr_id()),
                        None if new_one => panic!("{:?}", ring.corruption()),
                        None => thread::yield_now(),
                    }
                    assert_eq!(ring.corruption(), None);
                    ring.publish();
                }
            })
        };
        table.depart(0);
        cq.depart(0, keeper);
        wait(|| freed.load(Ordering::Acquire).then_some(()));
        register(&table, 0, &new);
        made.store(true, Ordering::Release);
        poller.join().unwrap();
    });
}

/// A queue pair whose sends and receives complete on different completion queues, polled by
/// different threads, is freed after both pollers have released it.
#[test]
fn a_queue_on_two_completion_queues_waits_for_both_pollers() {
    model(2, || {
        let table = std::sync::Arc::new(UserIndexTable::default());
        let queue = Tracked::new(7);
        let freed = Arc::new(AtomicBool::new(false));
        register(&table, 0, &queue);
        let keeper =
            Arc::new(Keeper { queue: std::sync::Arc::clone(&queue), freed: Arc::clone(&freed) });
        let cqs = [Completions::new(), Completions::new()];
        let pollers = cqs.clone().map(|cq| {
            cq.write(0, 0, 7);
            let mut ring = cq.ring(&table);
            thread::spawn(move || {
                // Polls before and after it handles destroyed queues.
                ring.next();
                ring.publish();
                cq.attend(&mut ring);
                ring.next();
                assert_eq!(ring.corruption(), None);
                ring
            })
        });
        table.depart(0);
        for cq in &cqs {
            cq.depart(0, Arc::clone(&keeper));
        }
        drop(keeper);
        for (poller, cq) in pollers.into_iter().zip(&cqs) {
            let mut ring = poller.join().unwrap();
            cq.attend(&mut ring);
        }
        assert!(freed.load(Ordering::Acquire));
    });
}

/// A value that is written before it is pushed, and read when it is freed.
struct Noted {
    note: UnsafeCell<u32>,
    _token: Arc<()>,
}

// SAFETY: the only shared field is loom's cell, which loom checks.
unsafe impl Send for Noted {}

impl Noted {
    fn new(note: u32, token: &Arc<()>) -> Self {
        let noted = Self { note: UnsafeCell::new(0), _token: Arc::clone(token) };
        // SAFETY: loom checks that nothing else has access.
        noted.note.with_mut(|at| unsafe { *at = note });
        noted
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        // SAFETY: loom checks that nothing writes.
        assert!(self.note.with(|at| unsafe { *at }) > 0);
    }
}

/// Values pushed by several threads: none is lost, none is freed before its time, none leaks, and
/// each is freed with the content that it was pushed with.
#[test]
fn every_departure_is_released_once_in_time() {
    model(3, || {
        let deferred = Arc::new(Deferred::default());
        let token = Arc::new(());
        let pushers: Vec<_> = [1, 2]
            .map(|end| {
                let (deferred, token) = (Arc::clone(&deferred), Arc::clone(&token));
                thread::spawn(move || deferred.push(end, Noted::new(end, &token)))
            })
            .into();
        let left = deferred.release(1);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        // The value that was pushed for a later time is still there, and is found again.
        assert!(deferred.release(1) || !left);
        assert_eq!(Arc::strong_count(&token), 2);
        assert!(!deferred.release(2));
        assert_eq!(Arc::strong_count(&token), 1);
        deferred.push(9, Noted::new(9, &token));
    });
}

/// Two threads register queues in a level of the table that the first of them allocates.
#[test]
fn queues_that_are_registered_at_once_are_both_found() {
    model(3, || {
        // The test uses only the addresses of these.
        static QUEUES: [u32; 2] = [0; 2];
        let found = |index: usize| Lookup::Queue(NonNull::from(&QUEUES[index]));
        // SAFETY: the queues are static.
        let register = |table: &UserIndexTable<u32>, index: usize| unsafe {
            table.set(index as u32, NonNull::from(&QUEUES[index]), [RING; 2]);
        };
        let table = Arc::new(UserIndexTable::default());
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || register(&table, 1))
        };
        register(&table, 0);
        assert_eq!(table.get(0, RING, Side::Send), found(0));
        assert!([Lookup::Unknown, found(1)].contains(&table.get(1, RING, Side::Send)));
        other.join().unwrap();
        assert_eq!(table.get(1, RING, Side::Send), found(1));
        table.depart(0);
        assert_eq!(table.get(0, RING, Side::Send), Lookup::Destroyed);
        assert_eq!(table.get(1, RING, Side::Send), found(1));
    });
}

/// An index goes from a queue that completes here to one that completes elsewhere, which this
/// poller does not keep from being freed. Even if a device names the index here, the poller never
/// gets that queue.
#[test]
fn a_queue_that_completes_elsewhere_is_never_found() {
    model(3, || {
        static QUEUES: [u32; 2] = [0; 2];
        let [here, elsewhere] = [0, 1].map(|index| NonNull::from(&QUEUES[index]));
        let table = Arc::new(UserIndexTable::<u32>::default());
        // SAFETY: the queues are static.
        unsafe { table.set(0, here, [RING; 2]) };
        table.depart(0);
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                // SAFETY: the queues are static.
                unsafe { table.set(0, NonNull::from(&QUEUES[1]), [RingId(8); 2]) };
                table.depart(0);
                // SAFETY: the queues are static.
                unsafe { table.set(0, NonNull::from(&QUEUES[0]), [RING; 2]) };
            })
        };
        assert_ne!(table.get(0, RING, Side::Send), Lookup::Queue(elsewhere));
        other.join().unwrap();
        assert_eq!(table.get(0, RING, Side::Send), Lookup::Queue(here));
    });
}
