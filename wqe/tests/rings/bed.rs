//! A send queue on plain memory, with access to everything that it writes.

use crate::by_hand::{QPN, Wqe};
use mlx5_doorbell::{QueuePairRecord, SendRegister};
use mlx5_wqe::{
    Completed, Gate, ListTransport, QueueState, SendFlags, SendLayout, SendParts, SendQueue,
    SendRecords,
};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE: usize = 4096;
const CANARY: u8 = 0xa5;

/// Memory on whole pages, with a guard page before and after it.
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
    layout: Layout,
}

// SAFETY: the value owns its allocation, which is read and written only through raw pointers.
unsafe impl Send for Memory {}
// SAFETY: a shared value makes no reference to the memory between the guard pages.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length + 2 * PAGE, PAGE).unwrap();
        // SAFETY: the size is not zero.
        let all = NonNull::new(unsafe { alloc_zeroed(layout) });
        let all = all.unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: the memory and its two guard pages are inside the allocation.
        unsafe {
            all.write_bytes(CANARY, PAGE);
            all.byte_add(PAGE + length).write_bytes(CANARY, PAGE);
            Self { start: all.byte_add(PAGE), length, layout }
        }
    }

    /// The address of byte `offset`.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.length);
        // SAFETY: `offset` is inside the memory, checked above.
        unsafe { self.start.byte_add(offset) }
    }

    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        assert!(offset + length <= self.length);
        let mut bytes = vec![0; length];
        // SAFETY: the bytes are inside the memory, checked above, and nothing writes to them
        // meanwhile.
        unsafe { self.start.byte_add(offset).copy_to(NonNull::from(&mut *bytes).cast(), length) };
        bytes
    }

    pub(crate) fn all(&self) -> Vec<u8> {
        self.read(0, self.length)
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: the bytes are inside the memory, checked above, and nothing uses them meanwhile.
        unsafe {
            self.start.byte_add(offset).copy_from(NonNull::from(bytes).cast(), bytes.len());
        }
    }

    fn canaries_live(&self) -> bool {
        // SAFETY: the pages before and after the memory are inside the allocation.
        let (before, after) = unsafe {
            (
                std::slice::from_raw_parts(self.start.byte_sub(PAGE).as_ptr(), PAGE),
                std::slice::from_raw_parts(self.start.byte_add(self.length).as_ptr(), PAGE),
            )
        };
        before.iter().chain(after).all(|&byte| byte == CANARY)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let intact = self.canaries_live();
        // SAFETY: the allocation begins a page before the start, and was made with this layout.
        unsafe { dealloc(self.start.byte_sub(PAGE).as_ptr(), self.layout) };
        if !std::thread::panicking() {
            assert!(intact, "something was written before or behind the memory");
        }
    }
}

/// A gate in memory of its own, open for everything.
pub(crate) struct GateBed {
    pub(crate) word: Memory,
    pub(crate) gate: Gate,
}

impl GateBed {
    pub(crate) fn new() -> Self {
        let word = Memory::new(4);
        // SAFETY: `word` has four aligned bytes, and is kept next to the gate.
        let gate = unsafe { Gate::new(word.at(0).cast()) };
        gate.set_state(QueueState::ReadyToSend);
        Self { word, gate }
    }
}

/// The parameters of a test's queue.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) requests: u32,
    pub(crate) sges: u32,
    pub(crate) inline: u32,
    pub(crate) signal_all: bool,
    pub(crate) atomics: bool,
    /// Bytes of the BlueFlame register; zero for a plain doorbell.
    pub(crate) blueflame: usize,
    pub(crate) max_message: u32,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            requests: 16,
            sges: 3,
            inline: 0,
            signal_all: false,
            atomics: true,
            blueflame: 512,
            max_message: 1 << 30,
        }
    }
}

/// Offset of the register in the UAR page.
pub(crate) const REGISTER: usize = 0x800;

pub(crate) struct Bed<T> {
    pub(crate) queue: SendQueue<T>,
    pub(crate) records: Arc<SendRecords>,
    pub(crate) layout: SendLayout,
    pub(crate) ring: Memory,
    pub(crate) uar: Memory,
    pub(crate) record: Memory,
    pub(crate) gate: GateBed,
    blueflame: usize,
    /// Number of writes to the register.
    pub(crate) rings: usize,
}

impl<T: ListTransport> Bed<T> {
    pub(crate) fn new(spec: Spec) -> Self {
        let layout = SendLayout::new::<T>(spec.requests, spec.sges, spec.inline).unwrap();
        Self::with_layout(spec, layout)
    }

    pub(crate) fn with_layout(spec: Spec, layout: SendLayout) -> Self {
        let (ring, uar, record) = (Memory::new(layout.bytes()), Memory::new(PAGE), Memory::new(8));
        let records = Arc::new(SendRecords::new(layout.blocks));
        let gate = GateBed::new();
        let register = uar.at(REGISTER);
        // SAFETY: the register is inside the page that this bed keeps.
        let register = unsafe {
            match spec.blueflame {
                0 => SendRegister::doorbell(register),
                size => SendRegister::blueflame(register, size),
            }
        };
        let parts = SendParts {
            ring: ring.at(0),
            layout,
            qpn: QPN,
            max_message: spec.max_message,
            signal_all: spec.signal_all,
            atomics: spec.atomics,
            gate: gate.gate,
            // SAFETY: `record` has eight aligned bytes, and this bed keeps it.
            record: unsafe { QueuePairRecord::new(record.at(0)) },
            register,
            records: NonNull::from(&*records),
        };
        // SAFETY: the bed keeps all the memory, and nothing else writes to the ring.
        let queue = unsafe { SendQueue::new(parts) };
        let blueflame = spec.blueflame;
        Self { queue, records, layout, ring, uar, record, gate, blueflame, rings: 0 }
    }

    /// The index in the ring of block `block`, counted freely.
    fn slot(&self, block: u32) -> usize {
        (block % self.layout.blocks) as usize
    }

    /// `length` bytes from block `block` on, across the end of the ring if need be.
    pub(crate) fn at_block(&self, block: u32, length: usize) -> Vec<u8> {
        let start = self.slot(block) * 64;
        let first = length.min(self.layout.bytes() - start);
        let mut bytes = self.ring.read(start, first);
        bytes.extend(self.ring.read(0, length - first));
        bytes
    }

    /// The send counter in the doorbell record, all four bytes.
    pub(crate) fn producer(&self) -> u32 {
        u32::from_be_bytes(self.record.read(4, 4).try_into().unwrap())
    }

    /// Retires the request that starts at `block`, as for a completion.
    pub(crate) fn retire(&self, block: u32) -> Option<Completed> {
        self.records.retire(block as u16)
    }

    /// Posts and retires requests of one block each, until the next one starts at `block` of the
    /// ring. Posts none if it already does.
    pub(crate) fn advance_to(&mut self, block: u32) {
        while self.slot(self.queue.producer().into()) != self.slot(block) {
            self.advance();
        }
    }

    /// Posts and retires one request of one block.
    pub(crate) fn advance(&mut self) {
        let first = self.queue.producer();
        crate::by_hand::post_least(&mut self.queue, 0, SendFlags::SIGNALED).unwrap();
        assert_eq!(self.queue.producer(), first.wrapping_add(1));
        self.rings += 1;
        self.records.retire(first).unwrap();
    }

    /// Asserts that `wqe` is in the ring from block `first` on, that the register got the WQE or
    /// its first eight bytes, depending on the queue's `blueflame`, and that the record counts up
    /// to the end of the WQE.
    pub(crate) fn assert_rang_alone(&mut self, first: u32, wqe: &Wqe, uar_before: &[u8]) {
        wqe.assert_eq(&self.at_block(first, wqe.bytes.len()));
        let blocks = wqe.blocks();
        // A control segment alone is not copied, because every doorbell has it. Nor is a request of
        // several packets, because no driver that ran on silicon copies one.
        let several = wqe.bytes[3] == 0x29;
        let whole = blocks * 64 <= self.blueflame / 2 && wqe.bytes.len() > 16 && !several;
        self.assert_rang(first, if whole { blocks * 64 } else { 8 }, uar_before);
        assert_eq!(self.producer(), u32::from((first as u16).wrapping_add(blocks as u16)));
    }

    /// Asserts that the register was written once: with `length` bytes of the ring from block
    /// `last` on, in the half whose turn it was, and with nothing else.
    pub(crate) fn assert_rang(&mut self, last: u32, length: usize, uar_before: &[u8]) {
        let mut uar = uar_before.to_vec();
        let half = REGISTER + self.rings % 2 * (self.blueflame / 2);
        uar[half..half + length].copy_from_slice(&self.at_block(last, length));
        assert!(self.uar.all() == uar, "register of half {half:#x}, {length} bytes");
        self.rings += 1;
    }
}
