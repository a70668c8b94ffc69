//! Receiving: packets of a burst, which lie where the device put them.

use super::Counters;
use super::buffers::{Buffers, FreeList, Slot};
use super::frame::Frame;
use super::outgoing::Outgoing;
use crate::cq::Completions;
use mlx5_cq::WorkCompletion;
use mlx5_prm::ethernet::HEADER;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// What packets of a queue use of it.
pub(super) struct Store {
    pub(super) buffers: Arc<Buffers>,
    pub(super) free: FreeList,
    pub(super) outgoing: Outgoing,
    pub(super) counters: Counters,
}

impl Store {
    /// Drops the packets that are to be sent.
    pub(super) fn drop_outgoing(&self) {
        for (slot, _) in self.outgoing.take() {
            self.counters.not_sent.add(1);
            self.free.push(slot);
        }
    }
}

/// The packets of a burst. See [`EthernetQueue::receive`](super::EthernetQueue::receive).
///
/// It returns each packet while the one before is gone: `while let Some(packet) = packets.next()`.
pub struct Packets<'q> {
    completions: Completions<'q>,
    store: &'q Store,
    left: usize,
}

impl fmt::Debug for Packets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets").field("at_most", &self.left).finish_non_exhaustive()
    }
}

impl<'q> Packets<'q> {
    pub(super) fn new(completions: Completions<'q>, store: &'q Store, left: usize) -> Self {
        Self { completions, store, left }
    }

    /// Returns the next packet, if one has arrived.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline(always)]
    pub fn next(&mut self) -> Option<Packet<'_>> {
        loop {
            if self.left == 0 {
                return None;
            }
            self.left -= 1;
            // SAFETY: the completion is dropped here, or returned with a borrow of `self`.
            let completion = unsafe { self.completions.next_detached() }?;
            let slot = Slot::from_number(completion.wr_id() as u32);
            let length = completion.byte_len().unwrap_or(0);
            if !completion.is_success() || length > self.store.buffers.size() {
                // Longer than a buffer, or flushed.
                self.store.counters.bad.add(1);
                self.store.free.push(slot);
                continue;
            }
            self.store.counters.received.add(1);
            let slot = ManuallyDrop::new(slot);
            return Some(Packet { store: self.store, completion, slot, length });
        }
    }

    /// Passes every packet to `each`.
    #[inline]
    pub fn for_each(mut self, mut each: impl FnMut(Packet<'_>)) {
        while let Some(packet) = self.next() {
            each(packet);
        }
    }
}

/// A received packet, in the buffer that the device wrote it to. Its bytes may be changed there.
///
/// When it is dropped, its buffer receives again: it need not be copied, and costs no allocation.
pub struct Packet<'p> {
    store: &'p Store,
    completion: WorkCompletion<'p>,
    slot: ManuallyDrop<Slot>,
    length: u32,
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("length", &self.length)
            .field("completion", &self.completion)
            .finish_non_exhaustive()
    }
}

impl<'p> Packet<'p> {
    /// What the device tells of the packet: checksums, headers, VLAN tag, hash, flow tag, time.
    #[inline(always)]
    pub fn completion(&self) -> &WorkCompletion<'p> {
        &self.completion
    }

    /// Takes the slot, so that the packet is not dropped.
    #[inline(always)]
    fn take(self) -> (&'p Store, Slot, u32) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the value is not dropped, and the field is not used again.
        (this.store, unsafe { ManuallyDrop::take(&mut this.slot) }, this.length)
    }

    /// Keeps the packet, for as long as the program likes. A queue all of whose buffers are kept
    /// receives nothing, until one is dropped: the device drops and counts what arrives meanwhile.
    #[inline]
    pub fn keep(self) -> Frame {
        let (store, slot, length) = self.take();
        Frame::new(Arc::clone(&store.buffers), slot, length)
    }

    /// Sends the packet, as it lies there now, when the burst is over: all of a burst with one doorbell.
    /// What the send queue has no room for then is dropped and counted.
    #[inline]
    pub fn send(self) {
        if self.length < HEADER as u32 {
            // The device sends none that is shorter.
            return self.store.counters.not_sent.add(1);
        }
        let (store, slot, length) = self.take();
        store.outgoing.push(slot, length);
    }

    /// The same, with the packet cut or extended to so many bytes.
    ///
    /// # Panics
    /// If they do not fit into the buffer.
    #[track_caller]
    pub fn send_resized(mut self, length: usize) {
        let size = self.store.buffers.size();
        assert!(length <= size as usize, "{length} bytes in a buffer of {size}");
        self.length = length as u32;
        self.send();
    }
}

impl Deref for Packet<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the packet has the slot, which is of these buffers: its receive has completed, and it
        // is posted again after the packet is gone. `length` is at most their size.
        unsafe { self.store.buffers.slice(&self.slot, self.length) }
    }
}

impl DerefMut for Packet<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { self.store.buffers.slice_mut(&mut self.slot, self.length) }
    }
}

impl Drop for Packet<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let slot = unsafe { ManuallyDrop::take(&mut self.slot) };
        self.store.free.push(slot);
    }
}
