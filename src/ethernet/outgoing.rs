//! Packets of a burst that are to be sent, and frames that are being sent.

use super::buffers::{Buffers, GiveBack, Slot};
use std::cell::Cell;
use std::fmt;
use std::mem;
use std::sync::Arc;

/// Packets of a burst that are to be sent. There is room for a burst.
pub(super) struct Outgoing {
    packets: Box<[Cell<(u32, u32)>]>,
    count: Cell<usize>,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Outgoing {
    pub(super) fn new(burst: usize) -> Self {
        Self { packets: (0..burst).map(|_| Cell::new((0, 0))).collect(), count: Cell::new(0) }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    #[inline(always)]
    pub(super) fn push(&self, slot: Slot, length: u32) {
        let count = self.count.get();
        self.packets[count].set((slot.into_number(), length));
        self.count.set(count + 1);
    }

    /// Takes them all, in order.
    #[inline(always)]
    pub(super) fn take(&self) -> impl ExactSizeIterator<Item = (Slot, u32)> {
        let packets = self.packets[..self.count.replace(0)].iter();
        packets.map(|packet| {
            let (number, length) = packet.get();
            (Slot::from_number(number), length)
        })
    }
}

/// The frames that are being sent, in order: a ring.
pub(super) struct InFlight {
    /// Their buffers.
    numbers: Box<[u32]>,
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
        let numbers = (0..frames).map(|_| 0).collect();
        let homes = (0..frames).map(|_| None).collect();
        Self { numbers, homes, foreign: 0, put: 0, sent: 0, posted: 0 }
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
        self.numbers.len() - self.len()
    }

    /// The place of a frame in the ring.
    #[inline(always)]
    fn place(&self, frame: u64) -> usize {
        frame as usize & (self.numbers.len() - 1)
    }

    /// Adds a frame. There is room.
    #[inline(always)]
    pub(super) fn push(&mut self, slot: Slot, home: Option<Arc<Buffers>>) {
        let at = self.place(self.put);
        self.numbers[at] = slot.into_number();
        if home.is_some() {
            self.homes[at] = home;
            self.foreign += 1;
        }
        self.put += 1;
    }

    /// Gives a buffer back: to the queue, or home.
    #[inline(always)]
    fn give_back(&mut self, frame: u64, free: &impl GiveBack) {
        let at = self.place(frame);
        let slot = Slot::from_number(self.numbers[at]);
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
        while self.sent < until {
            self.give_back(self.sent, free);
            self.sent += 1;
        }
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
                home.give_back(Slot::from_number(self.numbers[at]));
            }
            self.sent += 1;
        }
    }
}
