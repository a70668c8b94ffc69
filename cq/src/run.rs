//! Runs of compressed entries, told one by one.
//!
//! A run is a title and arrays of mini entries, in as many places of the ring as it has entries. The
//! device writes nothing else of these places, so that what stands in the others is of an earlier
//! lap, and the arrays end where an entry has its owner bit: before the run is passed, the last
//! bytes of all places but the title's are made those of entries that are not written.

use crate::state::RingState;
use alloc::boxed::Box;
use core::ptr::NonNull;
use mlx5_doorbell::barrier;
use mlx5_prm::cqe::{Cqe, CqeOpcode, DESCRIPTOR, MINI_CQES, MiniCqe, MiniFormat, OPCODE_SHIFT};

/// Room for a descriptor, aligned as in a ring.
#[repr(align(64))]
struct Entry(#[expect(dead_code, reason = "reached by address")] [u8; DESCRIPTOR]);

/// The run that a ring is in, if it is in one.
pub(crate) struct Run {
    /// The entry that is told of: the title, with what is the entry's own.
    entry: NonNull<Entry>,
    format: MiniFormat,
    /// The place of the title, counted freely.
    first: u32,
    /// How many entries there are, zero outside a run, and how many were told of.
    count: u32,
    told: u32,
    counter: u16,
    is_request: bool,
}

// SAFETY: the entry is this value's own.
unsafe impl Send for Run {}

impl Run {
    pub(crate) fn new(format: MiniFormat) -> Self {
        let entry = NonNull::from(Box::leak(Box::new(Entry([0; DESCRIPTOR]))));
        Self { entry, format, first: 0, count: 0, told: 0, counter: 0, is_request: false }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.count != 0
    }

    /// What receives keep of their own.
    pub(crate) fn format(&self) -> MiniFormat {
        self.format
    }

    /// Starts a run at the place `first` of the ring, where its title is written. `Err` if it is
    /// none that a device writes; its count.
    pub(crate) fn start(&mut self, state: &RingState, first: u32) -> Result<(), u32> {
        // SAFETY: a descriptor of the ring, and one of our own.
        let title = unsafe {
            let title = state.descriptor(first).cast::<[u64; DESCRIPTOR / 8]>().read_volatile();
            self.entry.cast().write(title);
            self.entry.cast::<Cqe>().read()
        };
        let count = title.byte_count.get();
        // A run of one would have its array behind itself.
        if count < 2 || count > state.size() {
            return Err(count);
        }
        let opcode = title.op_own >> OPCODE_SHIFT;
        (self.first, self.count, self.told) = (first, count, 0);
        self.counter = title.wqe_counter.get();
        self.is_request = opcode == CqeOpcode::Requester as u8;
        Ok(())
    }

    /// The next entry of a run, which there is: it stays as it is until the next call.
    pub(crate) fn descriptor(&mut self, state: &RingState) -> NonNull<u8> {
        let number = self.told as usize / MINI_CQES;
        let array = match number {
            0 => 1,
            number => (number * MINI_CQES) as u32,
        };
        let array = state.descriptor(self.first.wrapping_add(array)).cast::<u64>();
        // SAFETY: eight of 64 bytes of a place of the ring that belongs to the run, aligned.
        let mini = unsafe { array.add(self.told as usize % MINI_CQES).read_volatile() };
        // SAFETY: as many bytes, of which every value is one.
        let mini: MiniCqe = unsafe { core::mem::transmute(mini) };
        let unique = mini.unique.get();
        // SAFETY: our own, which nobody looks at while this value is borrowed.
        let entry = unsafe { self.entry.cast::<Cqe>().as_mut() };
        entry.byte_count = mini.byte_count;
        if self.is_request {
            let number = entry.sop_drop_qpn.get() & 0xff_ffff;
            let opcode = unique >> MiniCqe::OPCODE_SHIFT & 0xff;
            entry.sop_drop_qpn.set(opcode << 24 | number);
            entry.wqe_counter.set((unique >> MiniCqe::COUNTER_SHIFT) as u16);
        } else {
            entry.wqe_counter.set(self.counter.wrapping_add(self.told as u16));
            match self.format {
                MiniFormat::Hash => entry.rss_hash_result.set(unique),
                MiniFormat::Checksum | MiniFormat::ChecksumStride => {
                    entry.check_sum.set((unique >> MiniCqe::COUNTER_SHIFT) as u16);
                }
            }
        }
        self.entry.cast()
    }

    /// The entry was told of. If it was the last, the run is over: how many places to pass.
    pub(crate) fn pass(&mut self, state: &RingState) -> Option<u32> {
        self.told += 1;
        if self.told < self.count {
            return None;
        }
        let count = core::mem::take(&mut self.count);
        // What the arrays hold was read before it is written over.
        barrier::from_device();
        for place in 1..count {
            state.clear(self.first.wrapping_add(place));
        }
        Some(count)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // SAFETY: it came from a box.
        drop(unsafe { Box::from_raw(self.entry.as_ptr()) });
    }
}
