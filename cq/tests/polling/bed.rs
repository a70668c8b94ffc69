//! A completion queue in plain memory, a device that writes the entries that a test asks for, and
//! queues with fixed answers.

use mlx5_cq::{
    Attention, Queue, Ring, RingBuffer, RingId, RingParts, RingState, Sent, SentRequest,
    UserIndexTable, WorkCompletion,
};
use mlx5_doorbell::CompletionQueueRecord;
use mlx5_prm::cqe::MiniFormat;
use std::cell::{Cell, RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;

/// 64 bytes on their own line.
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "reached by address")] UnsafeCell<[u8; 64]>);

/// Memory that a device and a queue share.
pub(crate) struct Memory(Box<[Line]>);

// SAFETY: all access is through raw pointers, volatile or atomic.
unsafe impl Send for Memory {}
// SAFETY: all access is through raw pointers, volatile or atomic.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(lines: usize) -> Self {
        Self((0..lines).map(|_| Line(UnsafeCell::new([0; 64]))).collect())
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.0.len() * 64);
        // SAFETY: `offset` is inside the boxed lines, which are contiguous cells.
        unsafe { NonNull::from(&*self.0).cast::<u8>().byte_add(offset) }
    }

    pub(crate) fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        assert!(offset + N <= self.0.len() * 64);
        // SAFETY: the `N` bytes are inside the memory, as asserted above.
        unsafe { self.at(offset).cast::<[u8; N]>().read_volatile() }
    }
}

/// The descriptor of a completion queue entry, as the PRM defines it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry(pub(crate) [u8; 64]);

impl Entry {
    pub(crate) fn put(mut self, offset: usize, bytes: &[u8]) -> Self {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// An entry of opcode `opcode` about request `counter` of the queue with user index `index`.
    /// All other bytes have a value that must not matter.
    pub(crate) fn new(opcode: u8, index: u32, counter: u16) -> Self {
        // The upper byte of the user index is reserved.
        Self([0xd7; 64])
            .put(32, &(index & 0xff_ffff | 0xd700_0000).to_be_bytes())
            .put(60, &counter.to_be_bytes())
            .put(63, &[opcode << 4])
    }

    /// The receive request, where several packets share one.
    pub(crate) fn request(self, number: u16) -> Self {
        self.put(2, &number.to_be_bytes())
    }

    pub(crate) fn byte_count(self, bytes: u32) -> Self {
        self.put(44, &bytes.to_be_bytes())
    }

    /// Immediate data, invalidated key or partition key index.
    pub(crate) fn imm(self, bytes: [u8; 4]) -> Self {
        self.put(36, &bytes)
    }

    pub(crate) fn qp_num(self, qpn: u32) -> Self {
        self.put(56, &qpn.to_be_bytes())
    }

    /// Two bits GRH, four bits service level, 24 bits remote queue pair number.
    pub(crate) fn flags_rqpn(self, grh: u32, level: u32, qpn: u32) -> Self {
        self.put(24, &(grh << 28 | level << 24 | qpn).to_be_bytes())
    }

    pub(crate) fn slid(self, slid: u16) -> Self {
        self.put(22, &slid.to_be_bytes())
    }

    pub(crate) fn path_bits(self, bits: u8) -> Self {
        self.put(17, &[bits])
    }

    pub(crate) fn timestamp(self, time: u64) -> Self {
        self.put(48, &time.to_be_bytes())
    }

    pub(crate) fn error(self, syndrome: u8, vendor: u8) -> Self {
        self.put(54, &[vendor, syndrome])
    }

    pub(crate) fn solicited(self) -> Self {
        let op_own = self.0[63] | 2;
        self.put(63, &[op_own])
    }
}

/// A queue that knows which requests are outstanding.
#[derive(Default)]
pub(crate) struct Outstanding {
    pub(crate) sends: RefCell<VecDeque<(u16, SentRequest)>>,
    pub(crate) receives: RefCell<VecDeque<(u16, u64)>>,
    /// Number of calls.
    pub(crate) asked: Cell<usize>,
    /// Parts of requests that were already reported.
    pub(crate) again: RefCell<Vec<u16>>,
}

impl Outstanding {
    pub(crate) fn send(&self, counter: u16, wr_id: u64, opcode: u8) {
        self.sends.borrow_mut().push_back((counter, SentRequest { wr_id, opcode }));
    }

    pub(crate) fn receive(&self, counter: u16, wr_id: u64) {
        self.receives.borrow_mut().push_back((counter, wr_id));
    }
}

impl Queue for Outstanding {
    fn retire_send(&self, counter: u16, _: bool) -> Option<Sent> {
        if self.again.borrow().contains(&counter) {
            return Some(Sent::Duplicate);
        }
        self.take_send(counter).map(Sent::Request)
    }

    fn retire_next_send(&self, counter: u16) -> Option<SentRequest> {
        let next = self.sends.borrow().front().map(|&(at, _)| at);
        if next == Some(counter) { self.take_send(counter) } else { None }
    }

    fn retire_next_receive(&self, counter: u16) -> Option<u64> {
        let next = self.receives.borrow().front().map(|&(at, _)| at);
        if next == Some(counter) { self.retire_receive(counter) } else { None }
    }

    fn retire_receive(&self, counter: u16) -> Option<u64> {
        self.asked.set(self.asked.get() + 1);
        let mut receives = self.receives.borrow_mut();
        let at = receives.iter().position(|&(at, _)| at == counter)?;
        receives.remove(at).map(|(_, wr_id)| wr_id)
    }
}

impl Outstanding {
    fn take_send(&self, counter: u16) -> Option<SentRequest> {
        self.asked.set(self.asked.get() + 1);
        let mut sends = self.sends.borrow_mut();
        let at = sends.iter().position(|&(at, _)| at == counter)?;
        sends.drain(..=at).next_back().map(|(_, sent)| sent)
    }
}

/// The device's side of a completion queue.
pub(crate) struct Device {
    pub(crate) buffer: Memory,
    pub(crate) log_size: u32,
    pub(crate) stride: usize,
    /// Number of entries written so far.
    pub(crate) written: u32,
}

impl Device {
    fn place(&self, index: u32) -> usize {
        let slot = index as usize % (1 << self.log_size);
        slot * self.stride + self.stride - 64
    }

    /// Stores an entry unchanged, its last byte last.
    pub(crate) fn store(&self, index: u32, entry: Entry) {
        let at = self.buffer.at(self.place(index));
        for (offset, byte) in entry.0.into_iter().enumerate() {
            // SAFETY: the byte is inside the buffer, to which only this device writes now.
            unsafe { at.byte_add(offset).write_volatile(byte) };
        }
    }

    /// Writes the next entry, with the ownership bit of its lap.
    pub(crate) fn write(&mut self, mut entry: Entry) {
        entry.0[63] = entry.0[63] & !1 | (self.written >> self.log_size & 1) as u8;
        self.store(self.written, entry);
        self.written += 1;
    }

    /// Stores bytes before the descriptor of an entry of 128 bytes.
    pub(crate) fn store_before(&self, index: u32, bytes: &[u8]) {
        let at = self.buffer.at(self.place(index) - 64);
        for (offset, byte) in bytes.iter().enumerate() {
            // SAFETY: the byte is inside the buffer, to which only this device writes now.
            unsafe { at.byte_add(offset).write_volatile(*byte) };
        }
    }

    pub(crate) fn last_byte(&self, index: u32) -> u8 {
        self.buffer.read::<1>(self.place(index) + 63)[0]
    }
}

pub(crate) struct Bed<Q = Outstanding> {
    pub(crate) ring: Ring<Q>,
    pub(crate) table: Arc<UserIndexTable<Q>>,
    pub(crate) device: Device,
    /// The doorbell record, and after it the attention word.
    pub(crate) words: Memory,
    /// Buffers that the device no longer uses.
    old: Vec<Memory>,
}

/// The identifier of the ring in the table of queues.
pub(crate) const RING: RingId = RingId(7);
/// Offset of the attention word.
const ATTENTION: usize = 64;

impl<Q: Queue> Bed<Q> {
    pub(crate) fn new(log_size: u32, stride: usize) -> Self {
        Self::with(log_size, stride, None)
    }

    /// A queue whose entries may be compressed.
    pub(crate) fn compressed(log_size: u32, stride: usize, format: MiniFormat) -> Self {
        Self::with(log_size, stride, Some(format))
    }

    fn with(log_size: u32, stride: usize, compression: Option<MiniFormat>) -> Self {
        let (buffer, words) = (Memory::new((stride / 64) << log_size), Memory::new(2));
        let table = Arc::new(UserIndexTable::default());
        // SAFETY: the bed keeps the memory longer than the ring, and each part of it has one use.
        let ring = unsafe {
            Ring::new(RingParts {
                queues: Arc::clone(&table),
                state: Arc::new(
                    RingState::new(
                        RingBuffer { start: buffer.at(0), log_size, stride },
                        CompletionQueueRecord::new(words.at(0)),
                    )
                    .compressed(compression),
                ),
                attention: Attention::new(words.at(ATTENTION).cast()),
                id: RING,
            })
        };
        let device = Device { buffer, log_size, stride, written: 0 };
        Self { ring, table, device, words, old: Vec::new() }
    }

    /// Moves the device to another buffer, and then the ring.
    pub(crate) fn resize(&mut self, log_size: u32) {
        let stride = self.device.stride;
        let buffer = Memory::new((stride / 64) << log_size);
        let ring_buffer = RingBuffer { start: buffer.at(0), log_size, stride };
        // SAFETY: `buffer` has this size and stride, and nothing uses it yet.
        unsafe { ring_buffer.clear_from(self.ring.consumer()) };
        self.device.write(Entry::new(5, 0, 0));
        self.old.push(std::mem::replace(&mut self.device.buffer, buffer));
        self.device.log_size = log_size;
        // SAFETY: the buffer was cleared above, and the bed keeps its memory.
        unsafe { self.ring.move_to(ring_buffer) }.expect("the entry that says so");
    }

    /// Registers `queue` with user index `index`.
    pub(crate) fn register(&self, index: u32, queue: &Q) {
        // SAFETY: every test keeps its queues longer than it polls its bed's ring.
        unsafe { self.table.set(index, NonNull::from(queue), [RING; 2]) };
    }

    pub(crate) fn next(&mut self) -> Option<WorkCompletion<'_>> {
        self.ring.next()
    }

    /// The identifier of the next completion.
    pub(crate) fn next_id(&mut self) -> Option<u64> {
        self.next().map(|completion| completion.wr_id())
    }

    /// The consumer index in the doorbell record.
    pub(crate) fn published(&self) -> u32 {
        u32::from_be_bytes(self.words.read(0))
    }

    /// Writes to the doorbell record, which no correct device does.
    pub(crate) fn scribble(&self, bytes: [u8; 8]) {
        // SAFETY: the record is the first eight bytes of the words.
        unsafe { self.words.at(0).cast::<[u8; 8]>().write_volatile(bytes) };
    }

    /// Zeroes the words that a fork zeroes.
    pub(crate) fn fork(&self) {
        // SAFETY: the attention word is at this offset, and aligned.
        unsafe { self.words.at(ATTENTION).cast::<u32>().write_volatile(0) };
    }
}
