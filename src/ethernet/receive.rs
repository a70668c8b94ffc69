//! Receiving: packets of a burst, which lie where the device put them.

use super::buffers::Slot;
use super::frame::Frame;
use super::mode::{Mode, Single};
use super::store::Store;
use mlx5_cq::WorkCompletion;
use mlx5_prm::ethernet::HEADER;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The packets of a burst. See [`EthernetQueue::receive`](super::EthernetQueue::receive).
///
/// It returns each packet while the one before is gone: `while let Some(packet) = packets.next()`.
pub struct Packets<'q, M: Mode = Single> {
    cursor: M::Cursor<'q>,
    store: &'q Store<M>,
}

impl<M: Mode> fmt::Debug for Packets<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packets").finish_non_exhaustive()
    }
}

impl<'q, M: Mode> Packets<'q, M> {
    pub(super) fn new(cursor: M::Cursor<'q>, store: &'q Store<M>) -> Self {
        Self { cursor, store }
    }

    /// Returns the next packet, if one has arrived.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    #[inline]
    pub fn next(&mut self) -> Option<Packet<'_, M>> {
        // SAFETY: completion and slot are returned with a borrow of `self`.
        let (completion, slot, length) = unsafe { M::next(self.store, &mut self.cursor) }?;
        Some(Packet { store: self.store, completion, slot: ManuallyDrop::new(slot), length })
    }

    /// Passes every packet to `each`.
    #[inline]
    pub fn for_each(self, mut each: impl FnMut(Packet<'_, M>)) {
        let Self { cursor, store } = self;
        M::for_each(store, cursor, move |completion, slot, length| {
            each(Packet { store, completion, slot: ManuallyDrop::new(slot), length });
        });
    }
}

/// A received packet, in the buffer that the device wrote it to. Its bytes may be changed there.
///
/// When it is dropped, its buffer receives again: it need not be copied, and costs no allocation.
pub struct Packet<'p, M: Mode = Single> {
    store: &'p Store<M>,
    completion: WorkCompletion<'p>,
    slot: ManuallyDrop<Slot>,
    length: usize,
}

impl<M: Mode> fmt::Debug for Packet<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("length", &self.length)
            .field("completion", &self.completion)
            .finish_non_exhaustive()
    }
}

impl<'p, M: Mode> Packet<'p, M> {
    /// What the device tells of the packet: checksums, headers, VLAN tag, hash, flow tag, time.
    #[inline]
    pub fn completion(&self) -> &WorkCompletion<'p> {
        &self.completion
    }

    /// Takes the slot, so that the packet is not dropped.
    #[inline]
    fn take(self) -> (&'p Store<M>, Slot, usize) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: the value is not dropped, and the field is not used again.
        (this.store, unsafe { ManuallyDrop::take(&mut this.slot) }, this.length)
    }

    /// Keeps the packet, for as long as the program likes. A queue all of whose buffers are kept
    /// receives nothing, until one is dropped: the device drops and counts what arrives meanwhile.
    #[inline]
    pub fn keep(self) -> Frame {
        let (store, slot, length) = self.take();
        store.mode.keep_packet(&slot);
        let capacity = store.mode.room(&store.buffers, length as u32);
        Frame::new(Arc::clone(&store.buffers), slot, length as u32, capacity)
    }

    /// Sends the packet, as it lies there now, when the burst is over: all of a burst with one doorbell.
    /// What the send queue has no room for then is dropped and counted.
    #[inline]
    pub fn send(self) {
        if self.length < HEADER {
            // The device sends none that is shorter.
            return self.store.counters.not_sent.add(1);
        }
        let (store, slot, length) = self.take();
        if let Err(slot) = store.outgoing.push(slot, length as u32) {
            store.mode.drop_packet(slot);
            store.counters.not_sent.add(1);
        }
    }

    /// The same, with the packet cut or extended to so many bytes.
    ///
    /// # Panics
    /// If they do not fit into the buffer.
    #[track_caller]
    pub fn send_resized(mut self, length: usize) {
        let size = self.store.mode.room(&self.store.buffers, self.length as u32);
        assert!(length <= size as usize, "{length} bytes in a buffer of {size}");
        self.length = length;
        self.send();
    }
}

impl<M: Mode> Deref for Packet<'_, M> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: the packet has the slot, which is of these buffers. The device is done with these bytes:
        // their receive has completed, or their strides were told, which happens once. It was the oldest
        // receive, whatever the completion says (`ReceiveRecords::in_order`), so that no other one has this
        // slot. The receive is posted again after the burst and all packets that were kept are gone. `length`
        // is at most what the slot is the right to.
        unsafe { self.store.buffers.slice(&self.slot, self.length) }
    }
}

impl<M: Mode> DerefMut for Packet<'_, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { self.store.buffers.slice_mut(&mut self.slot, self.length) }
    }
}

impl<M: Mode> Drop for Packet<'_, M> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the field is not used again.
        let slot = unsafe { ManuallyDrop::take(&mut self.slot) };
        self.store.mode.drop_packet(slot);
    }
}
