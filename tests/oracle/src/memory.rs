//! The memory that a provider shares with its device, from the device's side.

use mlx5_prm::cqe::{CqeOpcode, DESCRIPTOR, OPCODE_SHIFT, OWNER};
use mlx5_prm::wqe::{BLOCK, INVALID_LKEY, UNIT};

use crate::event::Rung;

/// The part of a UAR page that has the BlueFlame registers and doorbells.
const REGISTERS: std::ops::Range<usize> = 0x800..0xc00;
/// Bytes of a BlueFlame register, both halves.
const REGISTER: usize = 512;
/// Bytes of the shortest doorbell.
const DOORBELL: usize = 8;
/// The value of register bytes that were not written.
const POISON: u8 = 0xa5;

/// A part of memory that a queue of the driver owns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    start: usize,
    length: usize,
}

impl Memory {
    /// # Safety
    /// `length` bytes from `start` are readable and writable while the value is used, and no
    /// reference to them exists.
    pub(crate) unsafe fn new(start: usize, length: usize) -> Self {
        Self { start, length }
    }

    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(offset + length <= self.length, "beyond the memory");
        std::ptr::with_exposed_provenance_mut(self.start + offset)
    }

    pub(crate) fn read(&self, offset: usize, length: usize) -> Vec<u8> {
        let from = self.at(offset, length);
        // SAFETY: `at` checked that the bytes are inside the memory, which `new`'s caller promised
        // to be readable.
        (0..length).map(|index| unsafe { from.add(index).read_volatile() }).collect()
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: `at` checked that the bytes are inside the memory, which `new`'s caller
            // promised to be writable.
            unsafe { to.add(index).write_volatile(*byte) };
        }
    }

    /// Bytes of the memory.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

/// A UAR page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Registers(pub(crate) Memory);

impl Registers {
    /// Fills the registers with a value that makes later writes visible.
    pub(crate) fn poison(&self) {
        self.0.write(REGISTERS.start, &[POISON; REGISTERS.end - REGISTERS.start]);
    }

    /// Clears the registers, so that the device takes nothing for a doorbell.
    pub(crate) fn clear(&self) {
        self.0.write(REGISTERS.start, &[0; REGISTERS.end - REGISTERS.start]);
    }

    /// The bytes written since [`Registers::poison`].
    pub(crate) fn rung(&self) -> Option<Rung> {
        let bytes = self.0.read(REGISTERS.start, REGISTERS.len());
        let written = |words: &[u8]| words.iter().any(|byte| *byte != POISON);
        let first = bytes.chunks_exact(DOORBELL).position(written)? * DOORBELL;
        let last = bytes.chunks_exact(DOORBELL).rposition(written)? * DOORBELL + DOORBELL;
        let offset = (REGISTERS.start + first) % REGISTER;
        Some(Rung { offset, bytes: bytes[first..last].to_vec() })
    }
}

/// A send ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendRing(pub(crate) Memory);

impl SendRing {
    fn block(&self, index: u16) -> usize {
        usize::from(index) * BLOCK % self.0.length()
    }

    /// The request at a block, and the block after it.
    pub(crate) fn request(&self, index: u16) -> (Vec<u8>, u16) {
        let units = usize::from(self.0.read(self.block(index) + 7, 1)[0] & 0x3f);
        assert!(units != 0, "a request of no units at block {index:#x}");
        let per_block = BLOCK / UNIT;
        let bytes = (0..units).flat_map(|unit| {
            let block = self.block(index.wrapping_add((unit / per_block) as u16));
            self.0.read(block + unit % per_block * UNIT, UNIT)
        });
        (bytes.collect(), index.wrapping_add(units.div_ceil(per_block) as u16))
    }
}

/// A scatter list with its end mark, if it is shorter than its room.
pub(crate) fn scatter_list(memory: &Memory, at: usize, room: usize) -> Vec<u8> {
    let mut list = Vec::new();
    for offset in (0..room).step_by(UNIT) {
        let entry = memory.read(at + offset, UNIT);
        let end = [[0; 4], INVALID_LKEY.to_be_bytes()].concat();
        let is_end = entry.starts_with(&end);
        list.extend(entry);
        if is_end {
            break;
        }
    }
    list
}

/// A completion ring, into which the oracle writes entries in the device's place.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompletionRing {
    pub(crate) memory: Memory,
    pub(crate) entry: usize,
    pub(crate) written: u32,
}

impl CompletionRing {
    /// Writes an entry about request `counter` of queue `user_index`.
    pub(crate) fn write(&mut self, opcode: CqeOpcode, user_index: u32, counter: u16) {
        let mut bytes = [0; DESCRIPTOR];
        bytes[32..36].copy_from_slice(&user_index.to_be_bytes());
        bytes[60..62].copy_from_slice(&counter.to_be_bytes());
        bytes[63] = (opcode as u8) << OPCODE_SHIFT;
        self.put(&mut bytes);
    }

    /// Writes an entry, and sets its ownership bit. If the entry is longer than the queue's, writes
    /// only its end, which has the descriptor.
    pub(crate) fn put(&mut self, entry: &mut [u8]) {
        let entries = (self.memory.length() / self.entry) as u32;
        let index = self.written;
        self.written += 1;
        let last = entry.len() - 1;
        entry[last] = entry[last] & !OWNER | u8::from(index & entries != 0);
        let length = entry.len().min(self.entry);
        let at = (index % entries) as usize * self.entry + self.entry - length;
        self.memory.write(at, &entry[entry.len() - length..]);
    }
}
