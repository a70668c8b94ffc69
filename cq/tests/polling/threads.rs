//! Posters, a device and a poller, each on its own thread, connected only by rings, doorbell
//! records and queue halves.

use crate::bed::{Bed, Device, Entry, Memory, RING};
use mlx5_cq::{CompletionOpcode, Deferred, Queue, Sent, SentRequest};
use mlx5_doorbell::{QueuePairRecord, SendRegister};
use mlx5_wqe::{
    Gate, PostError, QueueState, Rc, ReceiveLayout, ReceiveQueue, ReceiveRecords, ReceiveWr,
    Retired, SendFlags, SendLayout, SendParts, SendQueue, SendRecords,
};
use std::array::from_fn;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, yield_now};
use std::time::{Duration, Instant};

const REQUESTS: u64 = 40_000;
const QUEUES: usize = 2;

/// The records of a queue pair that a poller uses.
struct Records {
    send: SendRecords,
    receive: Arc<ReceiveRecords>,
}

impl Records {
    fn sent(completed: mlx5_wqe::Completed) -> SentRequest {
        SentRequest { wr_id: completed.wr_id, opcode: completed.info.opcode_and_mark() }
    }
}

impl Queue for Records {
    fn retire_send(&self, counter: u16, failed: bool) -> Option<Sent> {
        self.send.retire_any(counter, failed).map(|retired| match retired {
            Retired::Request(completed) => Sent::Request(Self::sent(completed)),
            Retired::Duplicate => Sent::Duplicate,
        })
    }

    fn retire_next_send(&self, counter: u16) -> Option<SentRequest> {
        self.send.retire_next(counter).map(Self::sent)
    }

    fn retire_receive(&self, counter: u16) -> Option<u64> {
        self.receive.retire(counter)
    }

    fn retire_next_receive(&self, counter: u16) -> Option<u64> {
        self.receive.retire_next(counter)
    }
}

/// The memory of a queue pair, from the device's side.
struct QueuePair {
    send_ring: Memory,
    receive_ring: Memory,
    words: Memory,
    send: SendLayout,
    receive: ReceiveLayout,
    records: Arc<Records>,
}

/// Offsets in a queue pair's words.
const RECORD: usize = 0;
const GATE: usize = 64;
const UAR: usize = 128;

impl QueuePair {
    fn new() -> Self {
        let send = SendLayout::new::<Rc>(8, 10, 100).unwrap();
        let receive = ReceiveLayout::new(16, 1, 0).unwrap();
        let records = Records {
            send: SendRecords::new(send.blocks),
            receive: Arc::new(ReceiveRecords::new(receive.requests)),
        };
        Self {
            send_ring: Memory::new(send.blocks as usize),
            receive_ring: Memory::new(receive.bytes().div_ceil(64)),
            words: Memory::new(3),
            send,
            receive,
            records: Arc::new(records),
        }
    }

    /// # Safety
    /// It is called once, and the queues are dropped before this value.
    unsafe fn queues(&self) -> (SendQueue<Rc>, ReceiveQueue) {
        // SAFETY: the pointers are to parts of this value's memory, each with one use. The caller
        // promises to call this once, and to drop the queues first.
        unsafe {
            let gate = Gate::new(self.words.at(GATE).cast());
            gate.set_state(QueueState::ReadyToSend);
            let record = QueuePairRecord::new(self.words.at(RECORD));
            let send = SendQueue::new(SendParts {
                ring: self.send_ring.at(0),
                layout: self.send,
                qpn: 0x77,
                max_message: 1 << 30,
                signal_all: false,
                atomics: true,
                gate,
                record,
                register: SendRegister::doorbell(self.words.at(UAR)),
                records: NonNull::from(&self.records.send),
            });
            let ring = self.receive_ring.at(0);
            let records = Arc::clone(&self.records.receive);
            (send, ReceiveQueue::new(ring, self.receive, gate, record, records))
        }
    }

    /// A counter of the doorbell record. The load synchronises with the poster's store.
    fn counter(&self, offset: usize) -> u16 {
        // SAFETY: the four aligned bytes are inside the words, and all access to them is atomic.
        let word = unsafe { self.words.at(RECORD + offset).cast::<AtomicU32>().as_ref() };
        u32::from_be(word.load(Ordering::Acquire)) as u16
    }

    /// Eight bytes of the send ring at unit `unit` of the WQE at block `block`.
    fn word(&self, block: u16, unit: usize, half: usize) -> [u8; 8] {
        let offset = usize::from(block) * 64 + unit * 16 + half * 8;
        // SAFETY: the eight aligned bytes are inside the ring, and the poster does not write them
        // while they are posted.
        let word =
            unsafe { self.send_ring.at(offset % self.send.bytes()).cast::<AtomicU64>().as_ref() };
        word.load(Ordering::Relaxed).to_ne_bytes()
    }
}

/// Time without a completion after which a poller gives up, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes all threads stop when one of them panics.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// The properties of request `number`: its length in bytes of inline data, and whether it is
/// signaled.
fn request(number: u64) -> (usize, bool) {
    let length = 8 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize;
    (length, number % 4 == 3 || number + 1 == REQUESTS)
}

/// Posts all requests, alone and in batches, and as many receives as there is room for.
fn post(mut send: SendQueue<Rc>, mut receive: ReceiveQueue, stop: &AtomicBool) {
    let blocks = send.free_blocks();
    let (mut next, mut received) = (0u64, 0u64);
    let mut bytes = [0; 128];
    while next < REQUESTS || received < REQUESTS {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        while received < REQUESTS
            && receive.post_recv(&[ReceiveWr { wr_id: received, sges: &[] }]).is_ok()
        {
            received += 1;
        }
        let last = REQUESTS.min(next + 1 + next % 3);
        let mut batch = send.wr_start();
        for number in next..last {
            let (length, signaled) = request(number);
            bytes[..8].copy_from_slice(&number.to_ne_bytes());
            let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
            batch
                .wr(number, flags)
                .send_imm((number as u32).to_be_bytes())
                .inline_data(&bytes[..length]);
        }
        match batch.complete().map_err(|error| error.error()) {
            Ok(()) => next = last,
            Err(PostError::QueueFull { .. }) => yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    while send.free_blocks() != blocks || receive.free() != receive.layout().requests {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        yield_now();
    }
}

/// Writes an entry once there is room for it.
fn write(device: &mut Device, entry: Entry, published: &impl Fn() -> u32, stop: &AtomicBool) {
    while device.written.wrapping_sub(published()) & 0xff_ffff >= 1 << device.log_size {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        yield_now();
    }
    device.write(entry);
}

/// Takes the device's side out of a bed: the buffer, and the consumer index in the doorbell record.
fn device_of<Q: Queue>(bed: &mut Bed<Q>) -> (Device, impl Fn() -> u32 + Send + use<Q>) {
    struct PublishedIndex(NonNull<AtomicU32>);
    // SAFETY: the value is an address, and all access through it is atomic.
    unsafe impl Send for PublishedIndex {}
    impl PublishedIndex {
        fn get(&self) -> u32 {
            // SAFETY: the consumer index is in memory that every test keeps longer than this value.
            u32::from_be(unsafe { self.0.as_ref() }.load(Ordering::Acquire))
        }
    }
    let published = PublishedIndex(bed.words.at(0).cast());
    let nothing = Device { buffer: Memory::new(1), log_size: 0, stride: 64, written: 0 };
    (std::mem::replace(&mut bed.device, nothing), move || published.get())
}

/// Executes the requests that the doorbell records count. Each send consumes a receive of its own
/// queue pair.
fn execute(
    mut cq: Device,
    published: impl Fn() -> u32,
    queues: &[QueuePair; QUEUES],
    stop: &AtomicBool,
) -> Device {
    let mut at = [(0u64, 0u16, 0u16); QUEUES];
    while at.iter().any(|&(done, ..)| done < REQUESTS) {
        if stop.load(Ordering::Relaxed) {
            return cq;
        }
        let mut idle = true;
        for (index, (queue, (done, block, receive))) in (0..).zip(queues.iter().zip(&mut at)) {
            if queue.counter(4) == *block || queue.counter(0) == *receive {
                continue;
            }
            idle = false;
            let (length, signaled) = request(*done);
            let units = 1 + (4 + length).div_ceil(16);
            let [place, control] = [queue.word(*block, 0, 0), queue.word(*block, 0, 1)];
            assert_eq!(place[..4], [0, (*block >> 8) as u8, *block as u8, 0x0b]);
            assert_eq!(place[4..], [0, 0, 0x77, units as u8]);
            assert_eq!(control[3], if signaled { 8 } else { 0 });
            assert_eq!(control[4..], (*done as u32).to_be_bytes());
            let [start, rest] = [queue.word(*block, 1, 0), queue.word(*block, 1, 1)];
            assert_eq!(start[..4], (length as u32 | 0x8000_0000).to_be_bytes());
            assert_eq!([&start[4..], &rest[..4]].concat(), done.to_ne_bytes());
            let imm = control[4..].try_into().unwrap();
            let arrived = Entry::new(3, index, *receive).imm(imm).byte_count(length as u32);
            write(&mut cq, arrived, &published, stop);
            if signaled {
                write(&mut cq, Entry::new(0, index, *block), &published, stop);
            }
            *block = block.wrapping_add(units.div_ceil(4) as u16);
            *receive = receive.wrapping_add(1);
            *done += 1;
        }
        if idle {
            yield_now();
        }
    }
    cq
}

/// Polls until there was every signaled request and every message, in order, once.
fn poll(bed: &mut Bed<Records>, stop: &AtomicBool) {
    let mut sent = [0u64; QUEUES];
    let mut received = [0u64; QUEUES];
    let mut last = Instant::now();
    while sent.iter().chain(&received).any(|&count| count < REQUESTS) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let mut polled = 0;
        while let Some(completion) = bed.next() {
            completion.status().unwrap();
            polled += 1;
            // The bytes of the user index, which name the queue.
            let index = usize::from(completion.to_owned().descriptor()[35]);
            let wr_id = completion.wr_id();
            if completion.opcode() == CompletionOpcode::Send {
                let expected = (sent[index]..).find(|&number| request(number).1);
                assert_eq!(Some(wr_id), expected);
                sent[index] = wr_id + 1;
            } else {
                assert_eq!(wr_id, received[index]);
                assert_eq!(completion.imm_data(), Some((wr_id as u32).to_be_bytes()));
                assert_eq!(completion.byte_len(), Some(request(wr_id).0 as u32));
                received[index] += 1;
            }
        }
        assert_eq!(bed.ring.corruption(), None);
        if polled > 0 {
            bed.ring.publish();
            last = Instant::now();
        } else {
            assert!(last.elapsed() < PATIENCE, "{sent:?} sent, {received:?} received, and no more");
            yield_now();
        }
    }
    assert!(bed.next().is_none());
}

#[test]
fn posters_device_and_poller_need_nothing_but_the_rings() {
    for stride in [64, 128] {
        let queues: [QueuePair; QUEUES] = from_fn(|_| QueuePair::new());
        let mut bed = Bed::<Records>::new(5, stride);
        for (index, queue) in (0..).zip(&queues) {
            bed.register(index, &*queue.records);
        }
        let (device, published) = device_of(&mut bed);
        let stop = &AtomicBool::new(false);
        let queues = &queues;
        // The buffer outlives the threads.
        let _device = thread::scope(|scope| {
            for queue in queues {
                // SAFETY: this runs once for each queue pair, in a thread that ends before the
                // queue pair is dropped.
                let (send, receive) = unsafe { queue.queues() };
                scope.spawn(move || {
                    let _alarm = Alarm(stop);
                    post(send, receive, stop);
                });
            }
            let device = scope.spawn(move || {
                let _alarm = Alarm(stop);
                execute(device, published, queues, stop)
            });
            let _alarm = Alarm(stop);
            poll(&mut bed, stop);
            device.join().unwrap()
        });
    }
}

/// A queue that accepts only requests of its own generation.
struct Life {
    generation: u16,
}

impl Queue for Life {
    fn retire_send(&self, counter: u16, _: bool) -> Option<Sent> {
        self.retire_next_send(counter).map(Sent::Request)
    }

    fn retire_next_send(&self, counter: u16) -> Option<SentRequest> {
        let sent = SentRequest { wr_id: counter.into(), opcode: 0x0a };
        (counter == self.generation).then_some(sent)
    }

    fn retire_receive(&self, counter: u16) -> Option<u64> {
        Some(counter.into())
    }
}

/// One user index goes from queue to queue, each of which is destroyed before its completions are
/// polled, while another queue continues. No completion of one generation is taken for one of the
/// next.
#[test]
fn queues_come_and_go_while_their_completions_are_polled() {
    const LIVES: u16 = 2_000;
    let mut bed = Bed::<Life>::new(4, 64);
    let stays = Life { generation: 0 };
    bed.register(1, &stays);
    let deferred = Deferred::default();
    let (mut device, published) = device_of(&mut bed);
    let (table, state) = (Arc::clone(&bed.table), Arc::clone(bed.ring.state()));
    let (attention, stop) = (bed.ring.attention(), &AtomicBool::new(false));
    let deferred = &deferred;
    let _device = thread::scope(|scope| {
        let lives = scope.spawn(move || {
            let _alarm = Alarm(stop);
            for generation in 0..LIVES {
                let queue = Arc::new(Life { generation });
                // SAFETY: the queue is in the deferred list until the poller has released it.
                unsafe { table.set(0, NonNull::from(&*queue), [RING; 2]) };
                for _ in 0..generation % 4 {
                    write(&mut device, Entry::new(0, 0, generation), &published, stop);
                }
                write(&mut device, Entry::new(2, 1, generation), &published, stop);
                write(&mut device, Entry::new(0, 0, generation), &published, stop);
                table.depart(0);
                let left = Arc::downgrade(&queue);
                deferred.push(state.end_of(0).unwrap_or_else(|| state.consumed()), queue);
                attention.set_deferred();
                while left.strong_count() > 0 && !stop.load(Ordering::Relaxed) {
                    yield_now();
                }
            }
            device
        });
        let _alarm = Alarm(stop);
        let (mut last, mut stayed) = (0, 0u16);
        let mut progress = Instant::now();
        while !lives.is_finished() || bed.ring.has_next() {
            if bed.ring.needs_attention() && bed.ring.attention().take_deferred() {
                bed.ring.clear_cached_queues();
                if deferred.release(bed.ring.consumer()) {
                    bed.ring.attention().set_deferred();
                }
            }
            let Some(completion) = bed.ring.next() else {
                assert_eq!(bed.ring.corruption(), None);
                assert!(progress.elapsed() < PATIENCE, "{stayed} lives, and no more");
                bed.ring.publish();
                yield_now();
                continue;
            };
            progress = Instant::now();
            if completion.opcode() == CompletionOpcode::Receive {
                assert_eq!(completion.wr_id(), stayed.into());
                stayed += 1;
            } else {
                assert!(completion.wr_id() >= last);
                last = completion.wr_id();
            }
            bed.ring.publish();
        }
        assert_eq!(stayed, LIVES);
        lives.join().unwrap()
    });
}
