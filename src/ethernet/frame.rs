//! Frames: buffers that the program owns.

use super::buffers::{Buffers, Slot};
use mlx5_wqe::VlanTag;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A frame in a buffer of an [`EthernetQueue`](super::EthernetQueue): a received packet that the
/// program keeps ([`Packet::keep`](super::Packet::keep)), or one to be sent
/// ([`EthernetQueue::frame`](super::EthernetQueue::frame)). It can move to any thread.
///
/// When the frame is dropped or was sent, its buffer returns to the queue. The memory stays
/// registered until the last frame is gone, also if the queue is dropped earlier.
///
/// In a forked child the bytes are zeros, and nothing can be sent. With [huge
/// pages](super::EthernetQueueBuilder::huge_pages) the child has no such memory: an access to the
/// bytes, also by [`Frame::fill`], ends the child by SIGSEGV (`SEGV_MAPERR`). Reading the length or
/// the capacity, and dropping the frame, are harmless.
pub struct Frame {
    buffers: Arc<Buffers>,
    slot: ManuallyDrop<Slot>,
    length: u32,
    /// Number of bytes that the slot is the right to.
    capacity: u32,
    tag: Option<VlanTag>,
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame")
            .field("length", &self.length)
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}

impl Frame {
    /// Makes a frame of a slot, which is the right to `capacity` bytes of these buffers.
    pub(super) fn new(buffers: Arc<Buffers>, slot: Slot, length: u32, capacity: u32) -> Self {
        debug_assert!(length <= capacity);
        Self { buffers, slot: ManuallyDrop::new(slot), length, capacity, tag: None }
    }

    /// Takes the frame apart. The caller gives the buffer back.
    pub(super) fn into_parts(self) -> (Arc<Buffers>, Slot) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the value is not dropped, and neither field is used again.
        unsafe { (std::ptr::read(&this.buffers), ManuallyDrop::take(&mut this.slot)) }
    }

    pub(super) fn buffers(&self) -> &Arc<Buffers> {
        &self.buffers
    }

    pub(super) const fn tag(&self) -> Option<VlanTag> {
        self.tag
    }

    /// Maximum length of the frame.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// Makes the frame longer or shorter. Added bytes are zero, or what an earlier packet left in
    /// the buffer.
    ///
    /// # Panics
    /// If `length` is more than [`Frame::capacity`].
    #[track_caller]
    pub fn resize(&mut self, length: usize) {
        assert!(length <= self.capacity(), "{length} bytes in a buffer of {}", self.capacity());
        self.length = length as u32;
    }

    /// Replaces the bytes of the frame.
    ///
    /// # Panics
    /// If there are more than [`Frame::capacity`].
    #[track_caller]
    pub fn fill(&mut self, bytes: &[u8]) {
        self.resize(bytes.len());
        self.copy_from_slice(bytes);
    }

    /// Sets the VLAN tag that the device inserts when the frame is sent, or removes it.
    pub fn set_vlan(&mut self, tag: Option<VlanTag>) {
        self.tag = tag;
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the frame owns the slot, which is of these buffers; `length` is at most
        // `capacity`.
        unsafe { self.buffers.slice(&self.slot, self.length as usize) }
    }
}

impl DerefMut for Frame {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the frame owns the slot, which is of these buffers; `length` is at most
        // `capacity`.
        unsafe { self.buffers.slice_mut(&mut self.slot, self.length as usize) }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let slot = unsafe { ManuallyDrop::take(&mut self.slot) };
        self.buffers.give_back(slot);
    }
}
