//! The part of a completion queue that threads other than the poller may read.

use core::fmt;
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
use mlx5_prm::doorbell::completion_queue_record::CONSUMER_MASK;

/// Offset of the number of CQEs of a compressed run, in its title.
pub(crate) const COUNT: usize = offset_of!(Cqe, byte_count);
/// Offset of the user index in a descriptor.
pub(crate) const USER_INDEX: usize = offset_of!(Cqe, srqn_uidx);
/// Offset of the counter in a descriptor.
const COUNTER: usize = offset_of!(Cqe, wqe_counter);
/// Mask of the user index.
pub(crate) const USER_INDEX_MASK: u32 = 0xff_ffff;

/// The buffer of a completion queue.
#[derive(Clone, Copy)]
pub struct RingBuffer {
    /// The first byte.
    pub start: NonNull<u8>,
    /// Base-two logarithm of the number of CQEs, at most 24.
    pub log_size: u32,
    /// Bytes of a CQE: 64 or 128.
    pub stride: usize,
}

impl fmt::Debug for RingBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingBuffer")
            .field("size", &self.size())
            .field("stride", &self.stride)
            .finish_non_exhaustive()
    }
}

impl RingBuffer {
    /// The number of CQEs.
    pub const fn size(&self) -> u32 {
        1 << self.log_size
    }

    /// Returns the descriptor of the CQE with free-running index `index`.
    #[inline]
    fn descriptor(&self, index: u32) -> NonNull<u8> {
        let slot = (index & (self.size() - 1)) as usize;
        // SAFETY: the slot is masked, so it is inside the buffer; a descriptor is the last part of
        // a CQE.
        unsafe { self.start.byte_add(slot * self.stride + self.stride - DESCRIPTOR) }
    }

    /// The ownership bit of a CQE that the device has written on the lap of `index`.
    pub(crate) const fn owner(&self, index: u32) -> u8 {
        (index >> self.log_size) as u8 & OWNER
    }

    fn last_byte(&self, index: u32) -> NonNull<u8> {
        // SAFETY: the byte is the last one of a descriptor, which is inside the buffer.
        unsafe { self.descriptor(index).byte_add(DESCRIPTOR - 1) }
    }

    pub(crate) fn op_own(&self, index: u32) -> u8 {
        // SAFETY: the byte is inside the buffer.
        unsafe { self.last_byte(index).read_volatile() }
    }

    fn set_op_own(&self, index: u32, op_own: u8) {
        // SAFETY: the byte is inside the buffer. Every caller makes sure that the device does not
        // write the CQE: the buffer is not in use yet, or the poller has not yet published
        // that it passed the CQE.
        unsafe { self.last_byte(index).write_volatile(op_own) };
    }

    pub(crate) fn is_written(&self, index: u32) -> bool {
        self.op_own(index) & OWNER == self.owner(index)
    }

    /// Sets the ownership bit of the CQE at `index`, which the device does not write.
    pub(crate) fn set_owner(&self, index: u32, owner: u8) {
        self.set_op_own(index, self.op_own(index) & !OWNER | owner);
    }

    /// Returns the counter of the CQE at `index`.
    pub(crate) fn counter(&self, index: u32) -> u16 {
        // SAFETY: the two bytes are inside a descriptor, and aligned.
        let counter = unsafe { self.descriptor(index).byte_add(COUNTER).cast::<u16>() };
        // SAFETY: the two bytes are inside a descriptor, and aligned.
        u16::from_be(unsafe { counter.read_volatile() })
    }

    /// Makes the CQE at `index`, which the device does not write, name another user index.
    pub(crate) fn set_user_index(&self, index: u32, user_index: u32) {
        // SAFETY: the four bytes are inside a descriptor, and aligned.
        let word = unsafe { self.descriptor(index).byte_add(USER_INDEX).cast::<u32>() };
        // SAFETY: the four bytes are inside a descriptor, and aligned. The caller makes sure that
        // the device does not write the CQE.
        unsafe { word.write_volatile(user_index.to_be()) };
    }

    /// Copies the CQE at `index` to index `other` of `to`, a buffer with the same stride. The
    /// device writes neither.
    pub(crate) fn copy(&self, index: u32, to: &Self, other: u32) {
        let before = self.stride - DESCRIPTOR;
        for word in 0..self.stride / 8 {
            // SAFETY: `word` is less than the words of a CQE, and a CQE is inside its buffer and
            // aligned.
            unsafe {
                let from = self.descriptor(index).byte_sub(before).cast::<u64>().add(word);
                let to = to.descriptor(other).byte_sub(before).cast::<u64>().add(word);
                to.write_volatile(from.read_volatile());
            }
        }
    }

    /// Marks all CQEs from `start` on as not written.
    ///
    /// # Safety
    /// The buffer has the size given, is aligned to 64 and valid, and nothing uses it yet.
    pub unsafe fn clear_from(&self, start: u32) {
        for place in 0..self.size() {
            let index = start.wrapping_add(place);
            // The ownership bit is that of the lap before the first, so that it alone shows which
            // CQEs are new.
            self.set_op_own(index, OP_OWN_INITIAL | self.owner(index) ^ OWNER);
        }
    }

    /// Returns how many slots the CQE at `index` takes, the rest of a run included, and its user
    /// index.
    pub(crate) fn extent(&self, index: u32, op_own: u8) -> (u32, u32) {
        let word = |offset| {
            // SAFETY: the four bytes are inside a descriptor, and aligned.
            let word = unsafe { self.descriptor(index).byte_add(offset).cast::<u32>() };
            // SAFETY: the four bytes are inside a descriptor, and aligned.
            u32::from_be(unsafe { word.read_volatile() })
        };
        let takes = match is_title(op_own) {
            true => word(COUNT).clamp(1, self.size()),
            false => 1,
        };
        (takes, word(USER_INDEX) & USER_INDEX_MASK)
    }
}

/// Whether a CQE is the title of a compressed run.
pub(crate) fn is_title(op_own: u8) -> bool {
    Format::of(op_own) == Format::Compressed
        && op_own >> OPCODE_SHIFT <= CqeOpcode::ResponderSendInvalidate as u8
}

/// Whether a CQE names a queue. The others have another field in place of the user index.
pub(crate) fn names_a_queue(op_own: u8) -> bool {
    let opcode = CqeOpcode::from_bits(op_own >> OPCODE_SHIFT);
    !matches!(opcode, Some(CqeOpcode::SignatureError | CqeOpcode::Resize))
}

/// The half of a completion queue that threads other than the poller may read.
pub struct RingState {
    buffer: AtomicPtr<u8>,
    log_size: AtomicU32,
    stride: usize,
    compression: Option<MiniFormat>,
    /// Consumer index, free-running. The device reads 24 bits of it from the doorbell record. That
    /// memory is read back only while the queue is handed over, because the device could write
    /// there.
    consumed: AtomicU32,
    record: CompletionQueueRecord,
}

impl fmt::Debug for RingState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingState")
            .field("size", &self.size())
            .field("consumed", &self.consumed())
            .finish_non_exhaustive()
    }
}

impl RingState {
    /// Creates the state of a completion queue and marks all CQEs as not written.
    ///
    /// # Safety
    /// The buffer has the size given and is aligned to 64. It is valid for as long as the value
    /// lives or until it is replaced, and from now on only the device and the ring write to it.
    pub unsafe fn new(ring_buffer: RingBuffer, record: CompletionQueueRecord) -> Self {
        // SAFETY: the caller promises a valid buffer, aligned to 64, that nothing else writes yet.
        unsafe { ring_buffer.clear_from(0) };
        Self {
            buffer: AtomicPtr::new(ring_buffer.start.as_ptr()),
            log_size: AtomicU32::new(ring_buffer.log_size),
            stride: ring_buffer.stride,
            compression: None,
            consumed: AtomicU32::new(0),
            record,
        }
    }

    /// Starts at consumer index `consumed`, and writes it to the doorbell record.
    ///
    /// # Safety
    /// As for [`RingState::new`], and nothing uses the buffer yet.
    #[must_use]
    pub unsafe fn starting_at(self, consumed: u32) -> Self {
        // SAFETY: the caller promises a valid buffer, aligned to 64, that nothing uses yet.
        unsafe { self.ring_buffer().clear_from(consumed) };
        self.consumed.store(consumed, Release);
        self.record.set_consumer(consumed);
        self
    }

    /// Sets whether the device compresses CQEs, and the field that receives keep then.
    #[must_use]
    pub fn compressed(mut self, format: Option<MiniFormat>) -> Self {
        self.compression = format;
        self
    }

    /// The field that compressed receives keep. `None` without compression.
    pub const fn compression(&self) -> Option<MiniFormat> {
        self.compression
    }

    /// Returns the buffer.
    pub fn ring_buffer(&self) -> RingBuffer {
        RingBuffer {
            // SAFETY: the pointer was stored from a `NonNull`.
            start: unsafe { NonNull::new_unchecked(self.buffer.load(Relaxed)) },
            log_size: self.log_size.load(Relaxed),
            stride: self.stride,
        }
    }

    /// The number of CQEs.
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
        self.ring_buffer().descriptor(index)
    }

    /// Marks `count` CQEs from `start` on, which the poller will pass, as not written on the next
    /// lap.
    pub(crate) fn clear(&self, start: u32, count: u32) {
        let ring_buffer = self.ring_buffer();
        let (mut index, mut left) = (start, count);
        while left != 0 {
            // The CQEs up to the end of the buffer are on one lap.
            let to_end = ring_buffer.size() - (index & (ring_buffer.size() - 1));
            let number = left.min(to_end);
            let op_own = OP_OWN_INITIAL | ring_buffer.owner(index);
            let mut byte = ring_buffer.last_byte(index).as_ptr();
            for _ in 0..number {
                // SAFETY: the byte is the last one of a descriptor of the buffer. The poller has
                // not yet published that it passed the CQE, so the device does not write it.
                unsafe { byte.write_volatile(op_own) };
                byte = byte.wrapping_byte_add(ring_buffer.stride);
            }
            index = index.wrapping_add(number);
            left -= number;
        }
    }

    /// Returns the consumer index.
    pub fn consumed(&self) -> u32 {
        self.consumed.load(Acquire)
    }

    /// Returns the consumer index of a queue that was handed over. A program that polls the queue
    /// itself stores only 24 bits in the doorbell record. The other bits follow from the index that
    /// the last call returned, so that the index never goes back.
    ///
    /// The device reads the record, too, so its 24 bits are right whatever they are: a program may
    /// poll any number of laps between two calls. Callers exclude each other and the poller.
    pub fn consumed_elsewhere(&self) -> u32 {
        let before = self.consumed();
        let ahead = self.record.consumer().wrapping_sub(before) & CONSUMER_MASK;
        let consumed = before.wrapping_add(ahead);
        if ahead != 0 {
            self.set_consumed(consumed);
        }
        consumed
    }

    #[inline]
    pub(crate) fn set_consumed(&self, entries: u32) {
        self.consumed.store(entries, Release);
    }

    /// Returns the number of CQEs that are written from index `start` on. No thread may replace the
    /// buffer meanwhile.
    pub(crate) fn waiting(&self, start: u32) -> u32 {
        let buffer = self.ring_buffer();
        let mut count: u32 = 0;
        while count < buffer.size() && buffer.is_written(start.wrapping_add(count)) {
            barrier::from_device();
            let index = start.wrapping_add(count);
            let (takes, _) = buffer.extent(index, buffer.op_own(index));
            count = (count + takes).min(buffer.size());
        }
        count
    }

    /// Returns the index after the last CQE, as of now, that names user index `index`. Once the
    /// poller has passed it, no CQE names that index. `None` if there is no such CQE.
    ///
    /// Requires that the device writes no more CQEs of that queue, and that the buffer is not
    /// replaced meanwhile.
    pub fn end_of(&self, index: u32) -> Option<u32> {
        self.end_behind(|| self.consumed(), index)
    }

    /// As [`RingState::end_of`], of a queue that was handed over.
    pub fn end_of_elsewhere(&self, index: u32) -> Option<u32> {
        self.end_behind(|| self.consumed_elsewhere(), index)
    }

    /// Returns the index after the last CQE that names user index `index`, starting from the
    /// consumer index that `consumed` returns.
    fn end_behind(&self, consumed: impl Fn() -> u32, index: u32) -> Option<u32> {
        let ring_buffer = self.ring_buffer();
        let mut position = consumed();
        let mut end = None;
        loop {
            let op_own = ring_buffer.op_own(position);
            barrier::from_device();
            let (takes, user_index) = ring_buffer.extent(position, op_own);
            // The device may already have overwritten a CQE that the poller has passed.
            let consumed = consumed();
            if (position.wrapping_sub(consumed) as i32) < 0 {
                position = consumed;
                continue;
            }
            let written = op_own & OWNER == ring_buffer.owner(position);
            if !written || position.wrapping_sub(consumed) >= ring_buffer.size() {
                return end;
            }
            position = position.wrapping_add(takes);
            if user_index == index && names_a_queue(op_own) {
                end = Some(position);
            }
        }
    }

    /// Copies the CQEs that are not consumed, from `start` on, to another buffer, up to the resize
    /// CQE, and uses that buffer from then on. `resizes` is the number of earlier resize CQEs among
    /// them. `None` if there is no such CQE; then nothing was replaced.
    ///
    /// # Safety
    /// `to` is a buffer as for [`RingState::new`], cleared from `start` on, that was passed to the
    /// device. The caller is the poller and has passed all CQEs before `start`. No other thread
    /// reads the CQEs meanwhile.
    pub(crate) unsafe fn move_to(
        &self,
        to: RingBuffer,
        start: u32,
        mut resizes: u32,
    ) -> Option<()> {
        let from = self.ring_buffer();
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
                from.copy(index, &to, index);
            }
            to.set_owner(index, to.owner(index));
            index = index.wrapping_add(takes);
            if op_own >> OPCODE_SHIFT == CqeOpcode::Resize as u8 {
                if resizes == 0 {
                    break;
                }
                resizes -= 1;
            }
        }
        self.buffer.store(to.start.as_ptr(), Relaxed);
        self.log_size.store(to.log_size, Relaxed);
        Some(())
    }
}
