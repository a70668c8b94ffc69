//! What others than the poller may know of a completion queue.

use core::mem::offset_of;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use mlx5_doorbell::{CompletionQueueRecord, barrier};
use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, Format, MiniFormat, OP_OWN_INITIAL, OPCODE_SHIFT, OWNER,
};

/// Where the title of a run says how many entries it stands for.
pub(crate) const COUNT: usize = offset_of!(Cqe, byte_count);
/// Where the user index stands in a descriptor.
pub(crate) const USER_INDEX: usize = offset_of!(Cqe, srqn_uidx);
/// Its bits.
pub(crate) const USER_INDEX_MASK: u32 = 0xff_ffff;

/// Where the entries of a completion queue lie.
#[derive(Clone, Copy)]
pub struct Places {
    /// The first byte of the buffer.
    pub buffer: NonNull<u8>,
    /// Base-two logarithm of its entries, at most 24.
    pub log_size: u32,
    /// Bytes of an entry: 64 or 128.
    pub stride: usize,
}

impl Places {
    /// How many entries there are.
    pub const fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// The descriptor of an entry, counted freely.
    #[inline(always)]
    fn descriptor(&self, index: u32) -> NonNull<u8> {
        let slot = (index & (self.size() - 1)) as usize;
        // SAFETY: masked, so inside the buffer; a descriptor is the last part of an entry.
        unsafe { self.buffer.byte_add(slot * self.stride + self.stride - DESCRIPTOR) }
    }

    /// What the owner bit of an entry is once it is written.
    pub(crate) const fn owner(&self, index: u32) -> u8 {
        (index >> self.log_size) as u8 & OWNER
    }

    fn last_byte(&self, index: u32) -> NonNull<u8> {
        // SAFETY: the last byte of a descriptor.
        unsafe { self.descriptor(index).byte_add(DESCRIPTOR - 1) }
    }

    fn op_own(&self, index: u32) -> u8 {
        // SAFETY: inside the buffer.
        unsafe { self.last_byte(index).read_volatile() }
    }

    fn set_op_own(&self, index: u32, op_own: u8) {
        // SAFETY: inside the buffer; as whoever calls this answers for, the device writes to the
        // entry neither now nor before it was told of what the poller passed.
        unsafe { self.last_byte(index).write_volatile(op_own) };
    }

    fn is_written(&self, index: u32) -> bool {
        self.op_own(index) & OWNER == self.owner(index)
    }

    /// Marks all entries from `start` on as not written.
    ///
    /// # Safety
    /// The buffer is so large, aligned to 64, valid, and nobody uses it yet.
    pub unsafe fn clear_from(&self, start: u32) {
        for place in 0..self.size() {
            let index = start.wrapping_add(place);
            // The owner bit says "the lap before the first", so that it alone tells what is new.
            self.set_op_own(index, OP_OWN_INITIAL | self.owner(index) ^ OWNER);
        }
    }

    /// How many places the entry at `index` takes with what belongs to it, and which user index
    /// it names.
    fn extent(&self, index: u32, op_own: u8) -> (u32, u32) {
        let word = |offset| {
            // SAFETY: four bytes of a descriptor, aligned.
            let word = unsafe { self.descriptor(index).byte_add(offset).cast::<u32>() };
            // SAFETY: as above.
            u32::from_be(unsafe { word.read_volatile() })
        };
        let takes = match is_title(op_own) {
            true => word(COUNT).clamp(1, self.size()),
            false => 1,
        };
        (takes, word(USER_INDEX) & USER_INDEX_MASK)
    }
}

/// Whether an entry is the title of a run.
pub(crate) fn is_title(op_own: u8) -> bool {
    Format::of(op_own) == Format::Compressed
        && op_own >> OPCODE_SHIFT <= CqeOpcode::ResponderSendInvalidate as u8
}

/// The half of a completion queue that others than the poller may look at.
pub struct RingState {
    buffer: AtomicPtr<u8>,
    log_size: AtomicU32,
    stride: usize,
    compression: Option<MiniFormat>,
    /// How many entries the poller has passed, counted freely. The device is told 24 bits of it, in
    /// memory where it could write to: it is not asked.
    consumed: AtomicU32,
    record: CompletionQueueRecord,
}

impl RingState {
    /// Takes a buffer of entries, and marks all as not written.
    ///
    /// # Safety
    /// The buffer is so large, aligned to 64, valid as long as the value lives or until it is
    /// replaced, and nobody but the device and the ring writes to it after this.
    pub unsafe fn new(places: Places, record: CompletionQueueRecord) -> Self {
        // SAFETY: handed down.
        unsafe { places.clear_from(0) };
        Self {
            buffer: AtomicPtr::new(places.buffer.as_ptr()),
            log_size: AtomicU32::new(places.log_size),
            stride: places.stride,
            compression: None,
            consumed: AtomicU32::new(0),
            record,
        }
    }

    /// Starts as a queue that has passed `consumed` entries does, and has no other. The record is
    /// told.
    ///
    /// # Safety
    /// As for [`RingState::new`], whose buffer nobody uses yet.
    #[must_use]
    pub unsafe fn starting_at(self, consumed: u32) -> Self {
        // SAFETY: handed down.
        unsafe { self.places().clear_from(consumed) };
        self.consumed.store(consumed, Release);
        self.record.set_consumer(consumed);
        self
    }

    /// Expects compressed entries, and says what receives then keep of their own.
    #[must_use]
    pub fn compressed(mut self, format: Option<MiniFormat>) -> Self {
        self.compression = format;
        self
    }

    /// What compressed receives keep of their own, if entries may be compressed.
    pub const fn compression(&self) -> Option<MiniFormat> {
        self.compression
    }

    /// Where the entries lie.
    pub fn places(&self) -> Places {
        Places {
            // SAFETY: it came from a pointer that is not null.
            buffer: unsafe { NonNull::new_unchecked(self.buffer.load(Relaxed)) },
            log_size: self.log_size.load(Relaxed),
            stride: self.stride,
        }
    }

    /// Entries in the queue.
    pub fn size(&self) -> u32 {
        1 << self.log_size.load(Relaxed)
    }

    pub(crate) const fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) const fn record(&self) -> CompletionQueueRecord {
        self.record
    }

    pub(crate) fn descriptor(&self, index: u32) -> NonNull<u8> {
        self.places().descriptor(index)
    }

    /// Makes an entry that the poller is about to pass look like one that is not written on the next
    /// lap.
    pub(crate) fn clear(&self, index: u32) {
        let places = self.places();
        places.set_op_own(index, OP_OWN_INITIAL | places.owner(index));
    }

    /// Entries that the poller has passed.
    pub fn consumed(&self) -> u32 {
        self.consumed.load(Acquire)
    }

    #[inline(always)]
    pub(crate) fn set_consumed(&self, entries: u32) {
        self.consumed.store(entries, Release);
    }

    /// Where the entries end that name user index `index`, as of now: once the poller has passed
    /// this point, none of them is left. `None` if there are none.
    ///
    /// The device has written all that it will of that queue. The buffer is not replaced meanwhile.
    pub fn end_of(&self, index: u32) -> Option<u32> {
        let places = self.places();
        let mut position = self.consumed();
        let mut end = None;
        loop {
            let op_own = places.op_own(position);
            barrier::from_device();
            let (takes, user_index) = places.extent(position, op_own);
            // What the poller has passed the device may have written again.
            let consumed = self.consumed();
            if (position.wrapping_sub(consumed) as i32) < 0 {
                position = consumed;
                continue;
            }
            let written = op_own & OWNER == places.owner(position);
            if !written || position.wrapping_sub(consumed) >= places.size() {
                return end;
            }
            position = position.wrapping_add(takes);
            if user_index == index {
                end = Some(position);
            }
        }
    }

    /// Copies what waits from `start` on to other places, up to and with the entry that says that
    /// the queue was resized, behind `resizes` that said so before, and has all that follows looked
    /// for there. `None` if there is no such entry: nothing was replaced.
    ///
    /// # Safety
    /// `to` is a buffer as [`RingState::new`] wants it, cleared from `start` on, that the device was
    /// told of. The caller is the poller, who has passed all before `start`; nobody else looks
    /// meanwhile.
    pub(crate) unsafe fn move_to(&self, to: Places, start: u32, mut resizes: u32) -> Option<()> {
        let from = self.places();
        let mut index = start;
        loop {
            let waiting = index.wrapping_sub(start);
            if waiting >= from.size() || waiting >= to.size() || !from.is_written(index) {
                return None;
            }
            barrier::from_device();
            let op_own = from.op_own(index);
            let (takes, _) = from.extent(index, op_own);
            if waiting + takes > from.size().min(to.size()) {
                return None;
            }
            for place in 0..takes {
                let index = index.wrapping_add(place);
                for word in 0..self.stride / 8 {
                    let before = self.stride - DESCRIPTOR;
                    // SAFETY: an aligned word of the same entry in either buffer.
                    unsafe {
                        let [from, to] = [from, to].map(|places| {
                            places.descriptor(index).byte_sub(before).cast::<u64>().add(word)
                        });
                        to.write_volatile(from.read_volatile());
                    }
                }
            }
            to.set_op_own(index, op_own & !OWNER | to.owner(index));
            index = index.wrapping_add(takes);
            if op_own >> OPCODE_SHIFT == CqeOpcode::Resize as u8 {
                if resizes == 0 {
                    break;
                }
                resizes -= 1;
            }
        }
        self.buffer.store(to.buffer.as_ptr(), Relaxed);
        self.log_size.store(to.log_size, Relaxed);
        Some(())
    }
}
