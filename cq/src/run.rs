//! Compressed runs, expanded some CQEs at a time.
//!
//! A run is a title and arrays of mini CQEs. It takes as many slots of the ring as it has CQEs. The
//! device writes nothing else into these slots: the others hold CQEs of an earlier lap, and mini
//! CQEs overlap the ownership bits. So before the run is passed, the last bytes of all slots but
//! the title's are marked as not written.
//!
//! CQEs are expanded into memory of the poller, where the fast path polls them as it polls a ring.
//! A descriptor of a format that the fast path does not handle follows them, so that it returns for
//! more. The last CQE of a run is expanded alone, and the slow path returns it and passes the run.

use crate::packet::Strides;
use crate::state::{COUNT, RingState, USER_INDEX_MASK};
use alloc::boxed::Box;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_doorbell::barrier;
use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, FORMAT_MASK, MINI_CQES, MiniCqe, MiniFormat, OPCODE_SHIFT,
};

/// The most CQEs that are expanded at a time: a multiple of the arrays, and few enough for the
/// cache.
const CHUNK: usize = 8 * MINI_CQES;

/// An expanded CQE, aligned as in a ring.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Entry([u64; DESCRIPTOR / 8]);

/// The CQEs of a chunk, and the end mark.
type Chunk = [Entry; CHUNK + 1];

/// The state of the run that a ring is in, if any.
pub(crate) struct Run {
    /// Expanded CQEs. Only rings with compression have them.
    chunk: Option<NonNull<Chunk>>,
    format: MiniFormat,
    /// The fields that all CQEs of the run have in common, as an uncompressed CQE.
    title: Cqe,
    /// Free-running index of the title.
    first: u32,
    /// Number of CQEs in the run (zero outside a run).
    count: u32,
    /// Number of CQEs before the chunk, and in it.
    before: u32,
    expanded: u32,
    /// The counter of the next CQE, if the run is of receives.
    counter: u16,
    /// Whether counters are strides: each CQE has the number that it takes.
    strides: bool,
}

// SAFETY: the chunk is owned by this value.
unsafe impl Send for Run {}

impl Run {
    /// Prepares for runs, if the device writes any.
    pub(crate) fn new(format: Option<MiniFormat>) -> Self {
        // SAFETY: any bytes are a valid `Cqe`.
        let title = unsafe { core::mem::zeroed::<Cqe>() };
        let chunk = format
            .map(|_| NonNull::from(Box::leak(Box::new([Entry([0; DESCRIPTOR / 8]); CHUNK + 1]))));
        let format = format.unwrap_or(MiniFormat::Hash);
        let (counter, strides) = (0, false);
        Self { chunk, format, title, first: 0, count: 0, before: 0, expanded: 0, counter, strides }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.count != 0
    }

    /// Returns the number of CQEs that were returned and whose slots are not consumed yet, if the
    /// next CQE of the ring is the one at `next`.
    pub(crate) fn consumed(&self, next: NonNull<u8>) -> u32 {
        match self.chunk {
            Some(chunk) if self.is_active() => {
                let bytes = next.addr().get() - chunk.addr().get();
                self.before + (bytes / DESCRIPTOR) as u32
            }
            _ => 0,
        }
    }

    /// Returns the number of slots that it takes.
    pub(crate) fn slots(&self) -> u32 {
        self.count
    }

    /// Returns opcode, user index and counter of the title.
    pub(crate) fn title(&self) -> (u8, u32, u16) {
        let Cqe { op_own, srqn_uidx, wqe_counter, .. } = &self.title;
        (op_own >> OPCODE_SHIFT, srqn_uidx.get() & USER_INDEX_MASK, wqe_counter.get())
    }

    /// Makes the run name another user index.
    pub(crate) fn rename(&mut self, index: u32) {
        self.title.srqn_uidx.set(index);
    }

    /// Notes that the run was moved by `slots` slots.
    pub(crate) fn move_by(&mut self, slots: u32) {
        self.first = self.first.wrapping_add(slots);
    }

    /// Drops the run, whose slots are free.
    pub(crate) fn abandon(&mut self) {
        (self.count, self.before, self.expanded) = (0, 0, 0);
    }

    /// The field that receives keep.
    pub(crate) fn format(&self) -> MiniFormat {
        self.format
    }

    /// Starts a run at index `first` of the ring, where the device has written its title, whose
    /// last byte is `op_own`. `Err` has the count if no correct device writes it.
    pub(crate) fn start(&mut self, state: &RingState, first: u32, op_own: u8) -> Result<(), u32> {
        let mut title = {
            let title = state.descriptor(first).cast::<[u64; DESCRIPTOR / 8]>();
            // SAFETY: a descriptor of the ring, aligned to 64.
            let words = unsafe { title.read_volatile() };
            // SAFETY: the sizes are equal, and any bytes are a valid `Cqe`.
            unsafe { core::mem::transmute::<[u64; DESCRIPTOR / 8], Cqe>(words) }
        };
        let count = title.byte_count.get();
        // A run of one CQE would have its array in the slot after its own.
        if count < 2 || count > state.size() {
            return Err(count);
        }
        // The byte that was read before: if the device changed it meanwhile, the entries could have
        // any opcode.
        title.op_own = op_own & !FORMAT_MASK;
        self.title = title;
        (self.counter, self.strides) = (title.wqe_counter.get(), false);
        (self.first, self.count, self.before, self.expanded) = (first, count, 0, 0);
        Ok(())
    }

    /// Sets whether the queue of the run has strides, after the start.
    pub(crate) fn set_strides(&mut self, strides: bool) {
        self.strides = strides;
    }

    /// Whether the chunk is the last CQE of the run.
    pub(crate) fn is_last(&self) -> bool {
        self.before + 1 == self.count
    }

    /// Expands the next CQEs of the run after those of the chunk were returned, and returns the
    /// first of them. `None` without compression. `Err` has the count of a run that has no more.
    pub(crate) fn expand(&mut self, state: &RingState) -> Result<Option<NonNull<u8>>, u32> {
        let Some(mut chunk) = self.chunk else { return Ok(None) };
        // SAFETY: this value owns the chunk, and no completion borrows it, because a completion
        // does not outlive the next poll.
        let entries = unsafe { chunk.as_mut() };
        self.before += self.expanded;
        // The last CQE, with which the run is passed, is expanded alone. So there is always a next
        // one.
        let rest = match self.count.checked_sub(self.before) {
            None | Some(0) => return Err(self.count),
            Some(rest) => rest as usize,
        };
        let number = if rest == 1 { 1 } else { CHUNK.min(rest - 1) };
        self.expanded = number as u32;
        let arrays = Arrays { state, first: self.first, returned: self.before as usize };
        let (title, places) = (self.title, &mut entries[..number]);
        if title.op_own >> OPCODE_SHIFT == CqeOpcode::Requester as u8 {
            let mut last = title;
            last.sop_drop_qpn.set(title.sop_drop_qpn.get() & 0xff_ffff);
            last.wqe_counter.set(0);
            let last = u64::from_le(words(last)[LAST]);
            arrays.expand(places, title, |mini, entry| {
                let opcode = mini >> OPCODE & 0xff;
                let counter = mini & 0xffff;
                entry.0[LAST] = (last | opcode | counter << COUNTER).to_le();
            });
        } else {
            let (mut counter, strides, format) = (self.counter, self.strides, self.format);
            let hash = matches!(format, MiniFormat::Hash);
            arrays.expand(places, title, |mini, entry| {
                let unique @ [high, low, stride @ ..] = (mini as u32).to_le_bytes();
                let cqe = entry.cqe();
                if strides && format == MiniFormat::ChecksumStride {
                    counter = u16::from_be_bytes(stride);
                }
                cqe.wqe_counter.set(counter);
                // The strides of a CQE follow those of the one before.
                let taken = if strides { Strides::of(cqe.byte_count.get()).count } else { 1 };
                counter = counter.wrapping_add(taken);
                if hash {
                    cqe.rss_hash_result = unique.into();
                } else {
                    cqe.check_sum = [high, low].into();
                }
            });
            self.counter = counter;
        }
        // With the format of a title, which the fast path does not handle.
        let mut end = self.title;
        end.op_own |= FORMAT_MASK;
        entries[number].0 = words(end);
        Ok(Some(chunk.cast()))
    }

    /// Passes the run after its last CQE was returned, and returns the number of its slots.
    pub(crate) fn pass(&mut self, state: &RingState) -> u32 {
        let count = self.count;
        self.abandon();
        // Orders the reads of the mini CQEs before the writes that mark their slots.
        barrier::from_device();
        state.clear(self.first.wrapping_add(1), count - 1);
        // Orders the marks before the doorbell record shows the device that the slots are free.
        barrier::to_device();
        count
    }
}

/// The arrays of mini CQEs of a run that are not consumed yet.
struct Arrays<'a> {
    state: &'a RingState,
    first: u32,
    returned: usize,
}

impl Arrays<'_> {
    /// Makes each of `entries` a copy of `title` with the byte count of a mini CQE, and calls `set`
    /// for the other fields.
    #[inline(always)]
    fn expand(self, mut entries: &mut [Entry], title: Cqe, mut set: impl FnMut(u64, &mut Entry)) {
        let mut returned = self.returned;
        // `black_box` keeps it in memory, so that it is copied with vector loads.
        let title = Entry(words(title));
        let title = core::hint::black_box(&title);
        let bytes = u64::from_le(title.0[COUNT / 8]) & u64::from(u32::MAX);
        while !entries.is_empty() {
            let place = returned % MINI_CQES;
            let (now, later) = entries.split_at_mut(entries.len().min(MINI_CQES - place));
            // The arrays are in slots 1, 8, 16 and so on.
            let array = match returned - place {
                0 => 1,
                behind => behind as u32,
            };
            let array = self.state.descriptor(self.first.wrapping_add(array)).cast::<u64>();
            returned += now.len();
            for (mini, entry) in (place..).zip(now) {
                // SAFETY: eight aligned bytes of a slot of the ring that belongs to the run.
                let mini = u64::from_le(unsafe { array.add(mini).read_volatile() });
                *entry = *title;
                // The byte count is the second half of both words.
                entry.0[COUNT / 8] = (bytes | mini & !u64::from(u32::MAX)).to_le();
                set(mini, entry);
            }
            entries = later;
        }
    }
}

impl Entry {
    fn cqe(&mut self) -> &mut Cqe {
        // SAFETY: the sizes are equal, and any bytes are valid for both.
        unsafe { NonNull::from(self).cast::<Cqe>().as_mut() }
    }
}

/// The last word of a descriptor.
const LAST: usize = DESCRIPTOR / 8 - 1;
/// Position of the opcode of a request in the first word of a mini CQE, if the word is read in
/// little-endian order, and of the counter in the last word of a descriptor.
const OPCODE: u32 = 8 * 2;
const COUNTER: u32 = 8 * (offset_of!(Cqe, wqe_counter) % 8) as u32;
const _: () = assert!(MiniCqe::COUNTER_SHIFT == 16 && MiniCqe::OPCODE_SHIFT == 8);
const _: () = assert!(offset_of!(Cqe, sop_drop_qpn) == 56 && offset_of!(Cqe, wqe_counter) == 60);
const _: () = assert!(COUNT % 8 == 4 && offset_of!(MiniCqe, byte_count) == 4);

/// Returns a descriptor as words.
#[inline]
fn words(cqe: Cqe) -> [u64; DESCRIPTOR / 8] {
    // SAFETY: the sizes are equal, and any bytes are valid words.
    unsafe { core::mem::transmute(cqe) }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Some(chunk) = self.chunk {
            // SAFETY: `new` made the chunk from a box, and only this value has it.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}
