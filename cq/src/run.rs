//! Compressed runs, expanded one CQE at a time.
//!
//! A run is a title and arrays of mini CQEs. It takes as many slots of the ring as it has CQEs. The
//! device writes nothing else into these slots: the others hold CQEs of an earlier lap, and mini
//! CQEs overlap the ownership bits. So before the run is passed, the last bytes of all slots but
//! the title's are marked as not written.

use crate::state::{RingState, USER_INDEX_MASK};
use alloc::boxed::Box;
use core::ptr::NonNull;
use mlx5_doorbell::barrier;
use mlx5_prm::cqe::{Cqe, CqeOpcode, DESCRIPTOR, MINI_CQES, MiniCqe, MiniFormat, OPCODE_SHIFT};

/// A buffer for a descriptor, aligned as in a ring.
#[repr(align(64))]
struct Entry(#[expect(dead_code, reason = "reached by address")] [u8; DESCRIPTOR]);

/// The state of the run that a ring is in, if any.
pub(crate) struct Run {
    /// The CQE under construction: the title, with the fields of the current mini CQE.
    entry: NonNull<Entry>,
    format: MiniFormat,
    /// Free-running index of the title.
    first: u32,
    /// Number of CQEs in the run (zero outside a run), and how many were returned.
    count: u32,
    told: u32,
    counter: u16,
    is_request: bool,
}

// SAFETY: the buffer is owned by this value.
unsafe impl Send for Run {}

impl Run {
    pub(crate) fn new(format: MiniFormat) -> Self {
        let entry = NonNull::from(Box::leak(Box::new(Entry([0; DESCRIPTOR]))));
        Self { entry, format, first: 0, count: 0, told: 0, counter: 0, is_request: false }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.count != 0
    }

    /// Returns the number of CQEs that were returned and whose slots are not consumed yet.
    pub(crate) fn consumed(&self) -> u32 {
        self.told
    }

    /// Returns the number of slots that it takes.
    pub(crate) fn slots(&self) -> u32 {
        self.count
    }

    fn cqe(&mut self) -> &mut Cqe {
        // SAFETY: the buffer is owned by this value, and nothing reads it while it is borrowed.
        unsafe { self.entry.cast::<Cqe>().as_mut() }
    }

    /// Returns opcode, user index and counter of the title.
    pub(crate) fn title(&self) -> (u8, u32, u16) {
        // SAFETY: the buffer is owned by this value, and nothing writes it meanwhile.
        let title = unsafe { self.entry.cast::<Cqe>().as_ref() };
        (title.op_own >> OPCODE_SHIFT, title.srqn_uidx.get() & USER_INDEX_MASK, self.counter)
    }

    /// Makes the run name another user index.
    pub(crate) fn rename(&mut self, index: u32) {
        self.cqe().srqn_uidx.set(index);
    }

    /// Notes that the run was moved by so many slots.
    pub(crate) fn move_by(&mut self, slots: u32) {
        self.first = self.first.wrapping_add(slots);
    }

    /// Forgets the run, whose slots are free.
    pub(crate) fn abandon(&mut self) {
        (self.count, self.told) = (0, 0);
    }

    /// Which field receives keep of their own.
    pub(crate) fn format(&self) -> MiniFormat {
        self.format
    }

    /// Starts a run at index `first` of the ring, where its title is written. `Err` has the count
    /// if no correct device writes it.
    pub(crate) fn start(&mut self, state: &RingState, first: u32) -> Result<(), u32> {
        // SAFETY: one is a descriptor of the ring, the other the buffer of this value.
        let title = unsafe {
            let title = state.descriptor(first).cast::<[u64; DESCRIPTOR / 8]>().read_volatile();
            self.entry.cast().write(title);
            self.entry.cast::<Cqe>().read()
        };
        let count = title.byte_count.get();
        // A run of one would have its array in a slot behind itself.
        if count < 2 || count > state.size() {
            return Err(count);
        }
        let opcode = title.op_own >> OPCODE_SHIFT;
        (self.first, self.count, self.told) = (first, count, 0);
        self.counter = title.wqe_counter.get();
        self.is_request = opcode == CqeOpcode::Requester as u8;
        Ok(())
    }

    /// Returns the next CQE of the run, which must have one. It is unchanged until the next call.
    pub(crate) fn descriptor(&mut self, state: &RingState) -> NonNull<u8> {
        let number = self.told as usize / MINI_CQES;
        let array = match number {
            0 => 1,
            number => (number * MINI_CQES) as u32,
        };
        let array = state.descriptor(self.first.wrapping_add(array)).cast::<u64>();
        // SAFETY: eight aligned bytes of a slot of the ring that belongs to the run.
        let mini = unsafe { array.add(self.told as usize % MINI_CQES).read_volatile() };
        // SAFETY: the sizes are equal, and every value is a valid `MiniCqe`.
        let mini: MiniCqe = unsafe { core::mem::transmute(mini) };
        let unique = mini.unique.get();
        // SAFETY: the buffer is owned by this value, and nothing reads it while it is borrowed.
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

    /// Passes the CQE that was returned. If it was the last, the run is over, and the number of its
    /// slots is returned.
    pub(crate) fn pass(&mut self, state: &RingState) -> Option<u32> {
        self.told += 1;
        if self.told < self.count {
            return None;
        }
        self.told = 0;
        let count = core::mem::take(&mut self.count);
        // Orders the reads of the mini CQEs before the writes that mark their slots.
        barrier::from_device();
        for place in 1..count {
            state.clear(self.first.wrapping_add(place));
        }
        // The device may write the slots as soon as it is told that they are free.
        barrier::to_device();
        Some(count)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // SAFETY: it came from a box.
        drop(unsafe { Box::from_raw(self.entry.as_ptr()) });
    }
}
