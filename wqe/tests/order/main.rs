//! Checks the order in which a device sees the stores of a queue. The pages of the doorbell record
//! and of the doorbell register are write-protected. At the first store to each of these pages,
//! before the store is done, the test examines all memory.
#![cfg(all(target_os = "linux", not(loom), not(miri)))]

mod watch;

use mlx5_doorbell::barrier;
use mlx5_doorbell::{
    CompletionQueueRecord, CompletionQueueRegister, QueuePairRecord, SendRegister, SharedBlueFlame,
};
use mlx5_wqe::{
    Data, Gate, Operation, QueueState, Rc, ReceiveLayout, ReceiveQueue, ReceiveRecords, ReceiveWr,
    SendFlags, SendLayout, SendParts, SendQueue, SendRecords, SendWr, Sge, SharedReceiveQueue,
    SharedReceiveRecords,
};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;
use watch::{PAGE, Page, turn, watch};

const RECORD: usize = 0;
const REGISTER: usize = 1;

/// The contents of memory just before a store.
struct Seen {
    page: usize,
    record: [u8; 8],
    ring: [u8; PAGE],
    uar: [u8; PAGE],
    /// The identifier that a poll would return if the device had completed the request by then.
    completed: Option<u64>,
}

/// The memory of a queue.
struct Memory {
    record: Page,
    uar: Page,
    ring: Page,
    gate: Page,
}

impl Memory {
    fn new() -> Self {
        Self { record: Page::new(), uar: Page::new(), ring: Page::new(), gate: Page::new() }
    }

    fn gate(&self) -> Gate {
        // SAFETY: the word is at the start of a page that is used for nothing else.
        let gate = unsafe { Gate::new(self.gate.at(0).cast()) };
        gate.set_state(QueueState::ReadyToSend);
        gate
    }

    fn record(&self) -> QueuePairRecord {
        // SAFETY: the record is at the start of a page that is used for nothing else.
        unsafe { QueuePairRecord::new(self.record.at(0)) }
    }

    /// Runs `act`. Returns the memory just before the first store to the record's page, and just
    /// before the first store to the register's page.
    fn watch(&self, completed: impl Fn() -> Option<u64>, act: impl FnOnce()) -> Vec<Seen> {
        let turn = turn();
        // Reserves room for all entries, because the signal handler must not allocate.
        let mut seen = Vec::with_capacity(4);
        let pages = [&self.record, &self.uar];
        let mut look = |page| {
            let mut record = [0; 8];
            record.copy_from_slice(&self.record.read()[..8]);
            let completed = completed();
            let (ring, uar) = (self.ring.read(), self.uar.read());
            assert!(seen.len() < seen.capacity());
            seen.push(Seen { page, record, ring, uar, completed });
        };
        watch(&turn, &pages, &mut look, act);
        seen
    }
}

/// A fork shuts the gate in the child, which may lack the mappings of the parent's rings, records
/// and registers.
#[test]
fn a_queue_whose_gate_is_shut_stores_to_nothing_but_its_own_memory() {
    let memory = Memory::new();
    let send_records = SendRecords::new(32);
    let (receive_layout, shared_layout) =
        (ReceiveLayout::new(16, 1, 0).unwrap(), ReceiveLayout::new(16, 1, 16).unwrap());
    let (ring, gate, record) = (memory.ring.at(0), memory.gate(), memory.record());
    let parts = SendParts {
        ring,
        layout: SendLayout::new::<Rc>(32, 2, 0).unwrap(),
        qpn: 0x77,
        max_message: 1 << 30,
        signal_all: false,
        atomics: true,
        gate,
        record,
        // SAFETY: the register is in a page that outlives the queue.
        register: unsafe { SendRegister::blueflame(memory.uar.at(0x800), 512) },
        records: NonNull::from(&send_records),
    };
    // SAFETY: each queue gets its own part of a page that outlives the queues. The queues are used
    // one after the other, so they may share the record.
    let (mut send, mut receive, mut shared) = unsafe {
        (
            SendQueue::<Rc>::new(parts),
            ReceiveQueue::new(
                ring.byte_add(2048),
                receive_layout,
                gate,
                record,
                Arc::new(ReceiveRecords::new(receive_layout.requests)),
            ),
            SharedReceiveQueue::new(
                ring.byte_add(3072),
                shared_layout,
                gate,
                record,
                Arc::new(SharedReceiveRecords::new(shared_layout.requests)),
            ),
        )
    };
    let sge = Sge { addr: 0xabcd, length: 9, lkey: 7 };
    let mut post_all = || {
        let mut refused = vec![];
        let mut batch = send.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().sge(sge);
        refused.push(batch.complete().is_err());
        let mut batch = send.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().sge_list(&[sge, sge]);
        batch.wr(2, SendFlags::SIGNALED).send_imm([1; 4]).inline_data(b"data");
        refused.push(batch.complete().is_err());
        let mut batch = send.wr_start();
        batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"data");
        batch.abort();
        let wr = SendWr {
            wr_id: 1,
            flags: SendFlags::SIGNALED,
            operation: Operation::Send,
            data: Data::Sges(&[sge]),
            ..SendWr::default()
        };
        refused.push(send.post_send(&[wr]).is_err());
        refused.push(receive.post_recv(&[ReceiveWr { wr_id: 1, sges: &[sge] }]).is_err());
        refused.push(shared.post_recv(&[ReceiveWr { wr_id: 1, sges: &[sge] }]).is_err());
        refused
    };
    // First post with an open gate, so that the queues are in use and have room.
    assert_eq!(post_all(), [false; 5]);
    // SAFETY: the word is inside the gate's page. In a child, a fork zeroes this word, too.
    let fork = || unsafe { memory.gate.at(0).cast::<u32>().write_volatile(0) };
    let shut: [&dyn Fn(); 3] =
        [&|| gate.set_state(QueueState::Reset), &|| gate.set_gone(), &|| fork()];
    for shut in shut {
        shut();
        let turn = turn();
        let pages = [&memory.ring, &memory.record, &memory.uar];
        let mut stores = 0;
        watch(&turn, &pages, &mut |_| stores += 1, || assert_eq!(post_all(), [true; 5]));
        assert_eq!(stores, 0);
    }
}

enum Register {
    Own,
    Shared,
    Doorbell,
}

/// Posts one batch that starts at block `start`. For each number in `counts`, the batch has a
/// request with this number of scatter/gather entries. Checks the memory that the device sees at
/// each store.
fn check_send(kind: Register, start: u16, counts: &[usize]) {
    let memory = Memory::new();
    let layout = SendLayout::new::<Rc>(16, 13, 0).unwrap();
    assert_eq!(layout.bytes(), PAGE);
    let records = Arc::new(SendRecords::new(layout.blocks));
    let register = memory.uar.at(0x800);
    let shared = SharedBlueFlame::new(register);
    // SAFETY: the page of the register outlives the queue, and so does `shared`.
    let register = unsafe {
        match kind {
            Register::Own => SendRegister::blueflame(register, 512),
            Register::Shared => SendRegister::shared_blueflame(NonNull::from(&shared), 512),
            Register::Doorbell => SendRegister::doorbell(register),
        }
    };
    let parts = SendParts {
        ring: memory.ring.at(0),
        layout,
        qpn: 0x77,
        max_message: 1 << 30,
        signal_all: false,
        atomics: true,
        gate: memory.gate(),
        record: memory.record(),
        register,
        records: NonNull::from(&*records),
    };
    // SAFETY: the memory is used by this queue alone, and outlives it.
    let mut queue = unsafe { SendQueue::<Rc>::new(parts) };
    for block in 0..start {
        let mut batch = queue.wr_start();
        batch.wr(0, SendFlags::SIGNALED).send().sge_list(&[]);
        batch.complete().unwrap();
        records.retire(block).unwrap();
    }
    let (uar, before) = (memory.uar.read(), memory.record.read());
    let data = [Sge { addr: 0xabcd, length: 9, lkey: 7 }; 14];
    let last =
        counts.iter().rev().skip(1).fold(start, |at, count| at + (1 + count).div_ceil(4) as u16);
    let seen = memory.watch(
        || records.retire(last).map(|completed| completed.wr_id),
        || {
            let mut batch = queue.wr_start();
            for (i, &count) in counts.iter().enumerate() {
                batch.wr(500 + i as u64, SendFlags::SIGNALED).send().sge_list(&data[..count]);
            }
            batch.complete().unwrap();
        },
    );
    let [record, register] = &seen[..] else { panic!("{} stores were seen", seen.len()) };

    // The record is stored first. By then all WQEs are in the ring, the poller can find the
    // requests, and no doorbell was rung.
    assert_eq!(record.page, RECORD);
    assert!(record.ring == memory.ring.read());
    assert_eq!(record.ring[usize::from(last) % 64 * 64 + 3], 0x0a);
    assert_eq!(record.completed, Some(499 + counts.len() as u64));
    assert_eq!(record.record, before[..8]);
    assert!(record.uar == uar);
    // The register is stored next. By then the record has the new counter.
    assert_eq!(register.page, REGISTER);
    let blocks: usize = counts.iter().map(|count| (1 + count).div_ceil(4)).sum();
    assert_eq!(register.record[4..], (u32::from(start) + blocks as u32).to_be_bytes());
    assert!(register.uar == uar);
    assert!(memory.uar.read() != uar);
}

/// Returns a queue on the pages of `memory`, with the requests 1 to 3 posted. The queue rings a
/// plain doorbell and signals all requests.
fn with_three_requests(memory: &Memory, records: &SendRecords) -> SendQueue<Rc> {
    let parts = SendParts {
        ring: memory.ring.at(0),
        layout: SendLayout::new::<Rc>(64, 1, 0).unwrap(),
        qpn: 0x77,
        max_message: 1 << 30,
        signal_all: true,
        atomics: true,
        gate: memory.gate(),
        record: memory.record(),
        // SAFETY: the register is in a page that is used for nothing else.
        register: unsafe { SendRegister::doorbell(memory.uar.at(0)) },
        records: NonNull::from(records),
    };
    // SAFETY: the memory is used by this queue alone, and outlives it.
    let mut queue = unsafe { SendQueue::<Rc>::new(parts) };
    (1..4).for_each(|wr_id| post_bare(&mut queue, wr_id));
    queue
}

fn post_bare(queue: &mut SendQueue<Rc>, wr_id: u64) {
    let mut batch = queue.wr_start();
    batch.wr(wr_id, SendFlags::SIGNALED).send().sge_list(&[]);
    batch.complete().unwrap();
}

/// A cancel replaces requests by NOPs. The C provider does not order a NOP before the store that
/// resumes the queue. This driver stores the NOP before any later store that the device sees.
#[test]
fn c_weakness_15_a_nop_is_in_the_ring_before_the_device_is_told_anything() {
    let memory = Memory::new();
    let records = Box::new(SendRecords::new(64));
    let mut queue = with_three_requests(&memory, &records);
    let seen = memory.watch(
        || None,
        || {
            let drained = queue.drain_point(1).unwrap();
            // SAFETY: no device reads the ring.
            assert_eq!(unsafe { queue.cancel(drained, 2) }.count(), 1);
            post_bare(&mut queue, 4);
        },
    );
    assert_eq!([0, 64, 128].map(|block| seen[0].ring[block + 3]), [0x0a, 0x00, 0x0a]);
}

thread_local! {
    /// The ring in which this thread cancels.
    static CANCELS_IN: Cell<Option<NonNull<u8>>> = const { Cell::new(None) };
    /// The opcodes of the ring's first three blocks at each barrier.
    static AT_BARRIERS: RefCell<Vec<[u8; 3]>> = const { RefCell::new(Vec::new()) };
}

fn note_opcodes() {
    if let Some(ring) = CANCELS_IN.get() {
        // SAFETY: the ring belongs to the test on this thread and outlives the cancel. The bytes
        // are in the first three blocks of the ring.
        let opcode = |block: usize| unsafe { ring.byte_add(block * 64 + 3).read_volatile() };
        AT_BARRIERS.with_borrow_mut(|all| all.push([0, 1, 2].map(opcode)));
    }
}

/// The kernel may resume the queue, too, without a store to the driver's memory that would order
/// the NOPs. The cancel therefore ends with a barrier of its own, after the last NOP.
#[test]
fn c_weakness_15_a_barrier_stands_behind_all_nops_of_a_cancel() {
    let memory = Memory::new();
    let records = Box::new(SendRecords::new(64));
    let mut queue = with_three_requests(&memory, &records);
    let drained = queue.drain_point(0).unwrap();
    CANCELS_IN.set(Some(memory.ring.at(0)));
    barrier::watch::set(Some(note_opcodes));
    // SAFETY: no device reads the ring.
    let cancelled = unsafe { queue.cancel_where(drained, |request| request.wr_id != 2) };
    barrier::watch::set(None);
    CANCELS_IN.set(None);
    assert_eq!(cancelled.count(), 2);
    assert_eq!(AT_BARRIERS.take().last(), Some(&[0x00, 0x0a, 0x00]));
}

#[test]
fn a_request_is_stored_then_counted_then_copied_to_the_register() {
    for counts in [&[0][..], &[3], &[7], &[13]] {
        check_send(Register::Own, 0, counts);
        check_send(Register::Own, 5, counts);
    }
}

#[test]
fn a_request_across_the_end_of_the_ring_is_stored_then_counted_then_copied() {
    for start in [61, 62, 63] {
        check_send(Register::Own, start, &[13]);
        check_send(Register::Shared, start, &[13]);
        check_send(Register::Doorbell, start, &[13]);
    }
}

#[test]
fn a_batch_is_stored_then_counted_then_rung() {
    for start in [0, 58, 60, 62, 63] {
        check_send(Register::Own, start, &[3, 13, 0, 9]);
        check_send(Register::Shared, start, &[3, 13, 0, 9]);
        check_send(Register::Doorbell, start, &[3, 13, 0, 9]);
    }
}

#[test]
fn a_shared_or_plain_register_is_written_last_too() {
    for counts in [&[0][..], &[3], &[7], &[13]] {
        check_send(Register::Shared, 3, counts);
        check_send(Register::Doorbell, 3, counts);
    }
}

#[test]
fn receive_requests_are_stored_and_remembered_before_they_are_counted() {
    let memory = Memory::new();
    let layout = ReceiveLayout::new(16, 4, 0).unwrap();
    let records = Arc::new(ReceiveRecords::new(layout.requests));
    // SAFETY: the memory is used by this queue alone, and outlives it.
    let mut queue = unsafe {
        let (gate, record, records) = (memory.gate(), memory.record(), Arc::clone(&records));
        ReceiveQueue::new(memory.ring.at(0), layout, gate, record, records)
    };
    let sges = [Sge { addr: 0xabcd, length: 9, lkey: 7 }; 2];
    let list: Vec<_> =
        (0..3).map(|i| ReceiveWr { wr_id: 40 + i, sges: &sges[..i as usize] }).collect();
    let both = || {
        let _ = records.retire(0).zip(records.retire(1));
        records.retire(2)
    };
    let seen = memory.watch(both, || queue.post_recv(&list).unwrap());
    let [record] = &seen[..] else { panic!("{} stores were seen", seen.len()) };
    assert_eq!((record.page, record.record), (RECORD, [0; 8]));
    assert!(record.ring == memory.ring.read());
    assert_eq!(record.ring[2 * 64..2 * 64 + 4], [0, 0, 0, 9]);
    assert_eq!(record.completed, Some(42));
    assert_eq!(memory.record.read()[..8], [0, 0, 0, 3, 0, 0, 0, 0]);
}

#[test]
fn shared_receive_requests_are_linked_and_remembered_before_they_are_counted() {
    let memory = Memory::new();
    let layout = ReceiveLayout::new(16, 3, SharedReceiveQueue::HEAD).unwrap();
    let records = Arc::new(SharedReceiveRecords::new(layout.requests));
    // SAFETY: the memory is used by this queue alone, and outlives it.
    let mut queue = unsafe {
        let (gate, record, records) = (memory.gate(), memory.record(), Arc::clone(&records));
        SharedReceiveQueue::new(memory.ring.at(0), layout, gate, record, records)
    };
    let sges = [Sge { addr: 0xabcd, length: 9, lkey: 7 }];
    let list: Vec<_> = (0..3).map(|i| ReceiveWr { wr_id: 40 + i, sges: &sges }).collect();
    let seen = memory.watch(|| records.retire(2), || queue.post_recv(&list).unwrap());
    let [record] = &seen[..] else { panic!("{} stores were seen", seen.len()) };
    assert_eq!((record.page, record.record), (RECORD, [0; 8]));
    assert!(record.ring == memory.ring.read());
    assert_eq!(record.ring[2 * 64..2 * 64 + 4], [0, 0, 0, 3]);
    assert_eq!(record.ring[2 * 64 + 16..2 * 64 + 20], [0, 0, 0, 9]);
    assert_eq!(record.completed, Some(42));
}

/// The device reads the arm word of the record when the doorbell is rung, so the word must be
/// stored first.
#[test]
fn a_completion_queue_is_armed_in_the_record_before_the_register() {
    let memory = Memory::new();
    // SAFETY: record and register are in pages that are used for nothing else.
    let (record, register) = unsafe {
        (
            CompletionQueueRecord::new(memory.record.at(0)),
            CompletionQueueRegister::new(memory.uar.at(0x20)),
        )
    };
    let seen = memory.watch(|| None, || register.arm(record, 0x55, 3, 1, false));
    let [first, second] = &seen[..] else { panic!("{} stores were seen", seen.len()) };
    assert_eq!((first.page, first.record), (RECORD, [0; 8]));
    assert_eq!((second.page, second.record), (REGISTER, [0, 0, 0, 0, 0x10, 0, 0, 3]));
}
