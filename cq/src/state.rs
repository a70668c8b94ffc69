//! What others than the poller may know of a completion queue.

use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_doorbell::{CompletionQueueRecord, barrier};
use mlx5_prm::cqe::{Cqe, DESCRIPTOR, OP_OWN_INITIAL, OWNER};

/// Where the user index stands in a descriptor.
pub(crate) const USER_INDEX: usize = offset_of!(Cqe, srqn_uidx);
/// Its bits.
pub(crate) const USER_INDEX_MASK: u32 = 0xff_ffff;

/// The half of a completion queue that others than the poller may look at.
pub struct RingState {
    buffer: NonNull<u8>,
    log_size: u32,
    stride: usize,
    /// Doorbell record; tells which entries the poller has passed.
    record: CompletionQueueRecord,
}

// SAFETY: the buffer is only read, by volatile loads, as the device writes it.
unsafe impl Send for RingState {}
// SAFETY: as above.
unsafe impl Sync for RingState {}

impl RingState {
    /// Takes a buffer of `2^log_size` entries of `stride` bytes, and marks all as not written.
    ///
    /// # Safety
    /// `buffer` points to so many bytes, aligned to 64, that are valid as long as the value lives
    /// and that nobody but the device writes after this. `stride` is 64 or 128, `log_size` at most
    /// 24.
    pub unsafe fn new(
        buffer: NonNull<u8>,
        log_size: u32,
        stride: usize,
        record: CompletionQueueRecord,
    ) -> Self {
        let state = Self { buffer, log_size, stride, record };
        for index in 0..state.size() {
            // The owner bit says "the lap before the first", so that it alone tells what is new.
            // SAFETY: the last byte of a descriptor.
            unsafe {
                state.descriptor(index).byte_add(DESCRIPTOR - 1).write(OP_OWN_INITIAL | OWNER)
            };
        }
        state
    }

    /// Entries in the queue.
    pub const fn size(&self) -> u32 {
        1 << self.log_size
    }

    pub(crate) const fn log_size(&self) -> u32 {
        self.log_size
    }

    pub(crate) const fn stride(&self) -> usize {
        self.stride
    }

    pub(crate) const fn record(&self) -> CompletionQueueRecord {
        self.record
    }

    pub(crate) fn first_descriptor(&self) -> NonNull<u8> {
        self.descriptor(0)
    }

    #[inline(always)]
    fn descriptor(&self, index: u32) -> NonNull<u8> {
        let slot = (index & (self.size() - 1)) as usize;
        // SAFETY: masked, so inside the buffer; a descriptor is the last part of an entry.
        unsafe { self.buffer.byte_add(slot * self.stride + self.stride - DESCRIPTOR) }
    }

    /// Entries that the poller has passed.
    pub fn consumed(&self) -> u32 {
        self.record.consumer()
    }

    fn is_written(&self, index: u32) -> bool {
        // SAFETY: the last byte of a descriptor.
        let op_own = unsafe { self.descriptor(index).byte_add(DESCRIPTOR - 1).read_volatile() };
        u32::from(op_own & OWNER) == index >> self.log_size & 1
    }

    /// Where the entries end that name user index `index`, as of now: once the poller has passed
    /// this point, none of them is left. `None` if there are none.
    ///
    /// The device has written all that it will of that queue.
    pub fn end_of(&self, index: u32) -> Option<u32> {
        let mut position = self.consumed();
        let mut end = None;
        loop {
            let written = self.is_written(position);
            barrier::from_device();
            // SAFETY: four bytes of a descriptor, aligned.
            let user_index = unsafe {
                self.descriptor(position).byte_add(USER_INDEX).cast::<u32>().read_volatile()
            };
            // What the poller has passed the device may have written again.
            let consumed = self.consumed();
            if (position.wrapping_sub(consumed) as i32) < 0 {
                position = consumed;
                continue;
            }
            if !written || position.wrapping_sub(consumed) >= self.size() {
                return end;
            }
            position = position.wrapping_add(1);
            if u32::from_be(user_index) & USER_INDEX_MASK == index {
                end = Some(position);
            }
        }
    }
}
