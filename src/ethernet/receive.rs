//! Received packets, in the buffers that the device wrote them to.

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
/// A packet must be gone before the next one is taken: `while let Some(packet) = packets.next()`.
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
    #[expect(clippy::should_implement_trait, reason = "an iterator's items cannot borrow from it")]
    #[inline]
    pub fn next(&mut self) -> Option<Packet<'_, M>> {
        // SAFETY: the returned packet borrows `self` mutably, so completion and slot are not used
        // after the next use of the cursor.
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

/// A received packet, in the buffer that the device wrote it to. The program may change its bytes
/// there.
///
/// When the packet is dropped, the queue posts its buffer again, without a copy or an allocation.
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
    /// The device's report about the packet: checksums, headers, VLAN tag, hash, flow tag, time.
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

    /// Keeps the packet for as long as the program needs it. A queue all of whose buffers are kept
    /// receives nothing until one is dropped: the device drops and counts packets that arrive
    /// meanwhile.
    #[inline]
    pub fn keep(self) -> Frame {
        let (store, slot, length) = self.take();
        store.mode.keep_packet(&slot);
        let capacity = store.mode.room(&store.buffers, length as u32);
        Frame::new(Arc::clone(&store.buffers), slot, length as u32, capacity)
    }

    /// Sends the packet, with its present bytes, when the burst is over; all packets of a burst are
    /// sent with one doorbell. Packets that do not fit into the send queue are dropped and counted.
    #[inline]
    pub fn send(self) {
        if self.length < HEADER {
            // The device refuses shorter frames.
            return self.store.counters.not_sent.add(1);
        }
        let (store, slot, length) = self.take();
        if let Err(slot) = store.outgoing.push(slot, length as u32) {
            store.mode.drop_packet(slot);
            store.counters.not_sent.add(1);
        }
    }

    /// Sends the packet like [`Packet::send`], cut or extended to `length` bytes.
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
        // SAFETY: the packet owns the slot, which is of these buffers, and `length` is at most what
        // the slot is the right to. The device no longer writes to these bytes: their receive has
        // completed, or their strides were reported, which happens once. The receive was the oldest
        // one, whatever the completion says (`ReceiveRecords::in_order`), so no other packet has
        // this slot. The receive is posted again only after the burst, when all packets that were
        // kept are gone.
        unsafe { self.store.buffers.slice(&self.slot, self.length) }
    }
}

impl<M: Mode> DerefMut for Packet<'_, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the packet owns the slot, and `length` is at most what it is the right to. The
        // device no longer writes to these bytes, as shown in `deref`. `self` is borrowed
        // exclusively.
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
