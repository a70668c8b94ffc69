//! Packets of a burst that are to be sent, and frames that are being sent.

use super::buffers::{Buffers, GiveBack, Slot};
use mlx5_wqe::Sge;
use std::cell::Cell;
use std::fmt;
use std::mem;
use std::sync::Arc;

/// Packets of a burst that are to be sent. There is room for a burst.
pub(super) struct Outgoing {
    /// As requests name them.
    packets: Box<[Cell<Sge>]>,
    count: Cell<usize>,
    lkey: u32,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Outgoing {
    /// A list of packets in the memory with this key.
    pub(super) fn new(burst: usize, lkey: u32) -> Self {
        let packets = (0..burst).map(|_| Cell::default()).collect();
        Self { packets, count: Cell::new(0), lkey }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    /// Adds a packet. Returns it if there is no room.
    #[inline(always)]
    pub(super) fn push(&self, slot: Slot, length: u32) -> Result<(), Slot> {
        let count = self.count.get();
        let Some(place) = self.packets.get(count) else { return Err(slot) };
        place.set(Sge { addr: slot.into_address() as u64, length, lkey: self.lkey });
        self.count.set(count + 1);
        Ok(())
    }

    /// Takes them all, in order.
    #[inline(always)]
    pub(super) fn take(&self) -> Taken<'_> {
        Taken(&self.packets[..self.count.replace(0)])
    }
}

/// Packets that were taken to be sent. Who has them has their buffers.
pub(super) struct Taken<'a>(&'a [Cell<Sge>]);

impl<'a> Taken<'a> {
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes so many of them away, or all, the first ones.
    #[inline(always)]
    pub(super) fn split(&mut self, count: usize) -> Self {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        Self(first)
    }

    /// As a request names them.
    #[inline(always)]
    pub(super) fn sges(&self) -> &'a [Cell<Sge>] {
        self.0
    }
}

impl Iterator for Taken<'_> {
    type Item = (Slot, u32);

    #[inline(always)]
    fn next(&mut self) -> Option<(Slot, u32)> {
        let sge = self.0.split_off_first()?.get();
        Some((Slot::at(sge.addr as usize), sge.length))
    }
}

/// The frames that are being sent, in order: a ring.
pub(super) struct InFlight {
    /// Where their buffers are.
    addresses: Box<[usize]>,
    /// Where a buffer belongs that is another queue's.
    homes: Box<[Option<Arc<Buffers>>]>,
    /// How many of those there are.
    foreign: usize,
    /// Frames that were put in, and those of them that were sent; both free-running.
    put: u64,
    sent: u64,
    /// Frames up to which requests were posted: fewer than were put in while a batch is built, and after
    /// a panic of whoever gave the frames.
    posted: u64,
}

impl fmt::Debug for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { put, sent, foreign, .. } = self;
        let mut shown = f.debug_struct("InFlight");
        shown.field("put", put).field("sent", sent).field("foreign", foreign);
        shown.finish_non_exhaustive()
    }
}

impl InFlight {
    /// A ring of so many frames, a power of two.
    pub(super) fn new(frames: u32) -> Self {
        let addresses = (0..frames).map(|_| 0).collect();
        let homes = (0..frames).map(|_| None).collect();
        Self { addresses, homes, foreign: 0, put: 0, sent: 0, posted: 0 }
    }

    /// Frames that were put in, ever.
    #[inline(always)]
    pub(super) const fn put(&self) -> u64 {
        self.put
    }

    /// The requests of all frames were posted.
    #[inline(always)]
    pub(super) const fn note_posted(&mut self) {
        self.posted = self.put;
    }

    /// Takes back frames whose requests were not posted, and returns how many.
    #[inline(always)]
    pub(super) fn undo_unposted(&mut self, free: &impl GiveBack) -> u64 {
        if self.posted == self.put { 0 } else { self.undo(self.posted, free) }
    }

    /// How many there are.
    #[inline(always)]
    pub(super) const fn len(&self) -> usize {
        (self.put - self.sent) as usize
    }

    /// How many more there is room for.
    #[inline(always)]
    pub(super) fn room(&self) -> usize {
        self.addresses.len() - self.len()
    }

    /// The place of a frame in the ring.
    #[inline(always)]
    fn place(&self, frame: u64) -> usize {
        frame as usize & (self.addresses.len() - 1)
    }

    /// Adds a frame. There is room.
    #[inline(always)]
    pub(super) fn push(&mut self, slot: Slot, home: Option<Arc<Buffers>>) {
        let at = self.place(self.put);
        self.addresses[at] = slot.into_address();
        if home.is_some() {
            self.homes[at] = home;
            self.foreign += 1;
        }
        self.put += 1;
    }

    /// Adds packets of the queue's own. There is room.
    #[inline(always)]
    pub(super) fn extend(&mut self, packets: &Taken<'_>) {
        let (mut put, mask) = (self.put, self.addresses.len() - 1);
        for sge in packets.sges() {
            if let Some(place) = self.addresses.get_mut(put as usize & mask) {
                *place = sge.get().addr as usize;
            }
            put += 1;
        }
        self.put = put;
    }

    /// Gives a buffer back: to the queue, or home.
    #[inline(always)]
    fn give_back(&mut self, frame: u64, free: &impl GiveBack) {
        let at = self.place(frame);
        let slot = Slot::at(self.addresses[at]);
        if self.foreign != 0
            && let Some(home) = self.homes[at].take()
        {
            self.foreign -= 1;
            return home.give_back(slot);
        }
        free.give_back(slot);
    }

    /// Gives back the oldest frames, as long as fewer than `until` were, and returns how many.
    #[inline(always)]
    pub(super) fn retire(&mut self, until: u64, free: &impl GiveBack) -> u64 {
        let until = until.min(self.put);
        let count = until.saturating_sub(self.sent);
        if self.foreign == 0 {
            let mask = self.addresses.len() - 1;
            for frame in self.sent..until {
                if let Some(&address) = self.addresses.get(frame as usize & mask) {
                    free.give_back(Slot::at(address));
                }
            }
        } else {
            (self.sent..until).for_each(|frame| self.give_back(frame, free));
        }
        self.sent += count;
        count
    }

    /// Takes back frames that were put in after the first `put`, and were not posted.
    #[cold]
    fn undo(&mut self, put: u64, free: &impl GiveBack) -> u64 {
        let count = self.put - put;
        while self.put > put {
            self.put -= 1;
            self.give_back(self.put, free);
        }
        count
    }
}

impl InFlight {
    /// Gives none of the frames back: the device may still read them.
    pub(super) fn keep(&mut self) {
        for home in &mut self.homes {
            // Its memory stays, and its buffer is used no more.
            mem::forget(home.take());
        }
        self.sent = self.put;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Frames of other queues go home; the queue's own memory goes with it.
        while self.sent < self.put {
            let at = self.place(self.sent);
            if let Some(home) = self.homes[at].take() {
                home.give_back(Slot::at(self.addresses[at]));
            }
            self.sent += 1;
        }
    }
}
