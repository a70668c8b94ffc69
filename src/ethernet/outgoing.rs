//! Packets of a burst that are to be sent, and frames that are being sent.

use super::buffers::{Buffers, GiveBack, Slot};
use mlx5_wqe::Sge;
use std::cell::Cell;
use std::fmt;
use std::mem;
use std::sync::Arc;

/// Packets of a burst that are to be sent. There is room for a whole burst.
pub(super) struct Outgoing {
    /// As scatter/gather entries of requests.
    packets: Box<[Cell<Sge>]>,
    count: Cell<usize>,
    /// Number of them that [`Outgoing::not_noted`] has returned.
    noted: Cell<usize>,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Outgoing {
    /// Makes an empty list of packets in the memory with this key.
    pub(super) fn new(burst: usize, lkey: u32) -> Self {
        let packets = (0..burst).map(|_| Cell::new(Sge { addr: 0, length: 0, lkey })).collect();
        Self { packets, count: Cell::new(0), noted: Cell::new(0) }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    /// Adds a packet. Returns its slot if there is no room.
    #[inline(always)]
    pub(super) fn push(&self, slot: Slot, length: u32) -> Result<(), Slot> {
        let count = self.count.get();
        let Some(place) = self.packets.get(count) else { return Err(slot) };
        place.set(Sge { addr: slot.into_address() as u64, length, ..place.get() });
        self.count.set(count + 1);
        Ok(())
    }

    /// Returns the packets that were added since the last call, so that the caller can note that
    /// they leave the burst.
    #[inline]
    pub(super) fn not_noted(&self) -> &[Cell<Sge>] {
        let count = self.count.get();
        &self.packets[self.noted.replace(count)..count]
    }

    /// Takes them all, in order.
    #[inline]
    pub(super) fn take(&self) -> Taken<'_> {
        self.noted.set(0);
        Taken(&self.packets[..self.count.replace(0)])
    }
}

/// Packets that were taken to be sent. Each entry owns the slot of its buffer.
pub(super) struct Taken<'a>(&'a [Cell<Sge>]);

impl<'a> Taken<'a> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Splits off the first `count` packets, or all if there are fewer.
    #[inline]
    pub(super) fn split(&mut self, count: usize) -> Self {
        let (first, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        Self(first)
    }

    /// The packets as scatter/gather entries of a request.
    #[inline]
    pub(super) fn sges(&self) -> &'a [Cell<Sge>] {
        self.0
    }
}

impl Iterator for Taken<'_> {
    type Item = (Slot, u32);

    #[inline]
    fn next(&mut self) -> Option<(Slot, u32)> {
        let sge = self.0.split_off_first()?.get();
        Some((Slot::at(sge.addr as usize), sge.length))
    }
}

/// The frames that are being sent, in order: a ring.
pub(super) struct InFlight {
    /// Addresses of the buffers. Of frames that are [given back together](GiveBack::run), the first
    /// one.
    addresses: Box<[usize]>,
    /// Number of frames of each entry. Empty in modes where each frame is given back by itself.
    counts: Box<[u32]>,
    /// The owner of a buffer that belongs to another queue.
    homes: Box<[Option<Arc<Buffers>>]>,
    /// Number of entries with a buffer of another queue.
    foreign: usize,
    /// The entries in use, from `first` up to and without `end`; both free-running.
    first: u64,
    end: u64,
    /// Frames that were added, and those of them that were sent; both free-running.
    put: u64,
    sent: u64,
    /// Frames whose requests were posted. Fewer than were added while a batch is built, and after a
    /// panic in the caller's iterator.
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
    /// Makes a ring of `frames` frames, a power of two.
    pub(super) fn new<M: GiveBack>(frames: u32) -> Self {
        let addresses = (0..frames).map(|_| 0).collect();
        let counts = (0..if M::SHARES { frames } else { 0 }).map(|_| 0).collect();
        let homes = (0..frames).map(|_| None).collect();
        Self { addresses, counts, homes, foreign: 0, first: 0, end: 0, put: 0, sent: 0, posted: 0 }
    }

    /// Frames that were put in, ever.
    #[inline]
    pub(super) const fn put(&self) -> u64 {
        self.put
    }

    /// The requests of all frames were posted.
    #[inline]
    pub(super) const fn note_posted(&mut self) {
        self.posted = self.put;
    }

    /// Takes back frames whose requests were not posted, and returns how many.
    #[inline]
    pub(super) fn undo_unposted(&mut self, free: &impl GiveBack) -> u64 {
        if self.posted == self.put { 0 } else { self.undo(self.posted, free) }
    }

    /// Number of frames that are being sent.
    #[inline]
    pub(super) const fn len(&self) -> usize {
        (self.put - self.sent) as usize
    }

    /// Number of further frames that there is room for.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.addresses.len() - self.len()
    }

    /// A place in the ring.
    #[inline]
    fn place(&self, number: u64) -> usize {
        number as usize & (self.addresses.len() - 1)
    }

    /// Adds a frame. The caller has checked that there is room.
    #[inline(always)]
    pub(super) fn push(&mut self, slot: Slot, home: Option<Arc<Buffers>>) {
        let at = self.place(self.end);
        if home.is_some() {
            self.homes[at] = home;
            self.foreign += 1;
        }
        self.push_run(slot, 1);
    }

    /// Adds frames that are given back together. The caller has checked that there is room.
    #[inline(always)]
    fn push_run(&mut self, slot: Slot, count: u32) {
        let at = self.place(self.end);
        self.addresses[at] = slot.into_address();
        if let Some(place) = self.counts.get_mut(at) {
            *place = count;
        }
        self.end += 1;
        self.put += u64::from(count);
    }

    /// Adds packets of a burst. The caller has checked that there is room.
    #[inline(always)]
    pub(super) fn extend<M: GiveBack>(&mut self, packets: &Taken<'_>, mode: &M) {
        let mut rest = packets.sges();
        if M::SHARES {
            while let Some(first) = rest.first() {
                let count = mode.run(rest);
                self.push_run(Slot::at(first.get().addr as usize), count as u32);
                rest = &rest[count..];
            }
            return;
        }
        let (mut end, mask) = (self.end, self.addresses.len() - 1);
        for sge in rest {
            if let Some(place) = self.addresses.get_mut(end as usize & mask) {
                *place = sge.get().addr as usize;
            }
            end += 1;
        }
        self.put += rest.len() as u64;
        self.end = end;
    }

    /// Gives back the buffers of `count` frames at an index: to this queue, or to the one that owns
    /// them.
    #[inline(always)]
    fn give_back(&mut self, at: usize, count: u32, free: &impl GiveBack) {
        let slot = Slot::at(self.addresses[at]);
        if self.foreign != 0
            && let Some(home) = self.homes[at].take()
        {
            self.foreign -= 1;
            return home.give_back(slot);
        }
        free.give_back_run(slot, count);
    }

    /// Gives back the oldest frames, until `until` frames in all were given back, and returns how
    /// many.
    #[inline(always)]
    pub(super) fn retire<M: GiveBack>(&mut self, until: u64, free: &M) -> u64 {
        let until = until.min(self.put);
        let gone = until.saturating_sub(self.sent);
        if M::SHARES {
            let mut left = gone;
            while left != 0 {
                let at = self.place(self.first);
                let frames = self.counts[at];
                let now = u64::from(frames).min(left);
                self.give_back(at, now as u32, free);
                // If the device has completed only some of them, the others stay.
                self.counts[at] = frames - now as u32;
                self.first += u64::from(self.counts[at] == 0);
                left -= now;
            }
        } else if self.foreign == 0 {
            let mask = self.addresses.len() - 1;
            for number in self.first..self.first + gone {
                if let Some(&address) = self.addresses.get(number as usize & mask) {
                    free.give_back(Slot::at(address));
                }
            }
            self.first += gone;
        } else {
            for number in self.first..self.first + gone {
                self.give_back(self.place(number), 1, free);
            }
            self.first += gone;
        }
        self.sent += gone;
        gone
    }

    /// Takes back frames that were added after the first `put`, and were not posted.
    #[cold]
    fn undo(&mut self, put: u64, free: &impl GiveBack) -> u64 {
        let undone = self.put - put;
        while self.put > put {
            self.end -= 1;
            let at = self.place(self.end);
            let count = self.counts.get(at).map_or(1, |&count| count);
            self.give_back(at, count, free);
            self.put -= u64::from(count);
        }
        undone
    }
}

impl InFlight {
    /// Gives none of the frames back: the device may still read them.
    pub(super) fn keep(&mut self) {
        for home in &mut self.homes {
            // The owner's memory stays allocated, and the buffer is never used again.
            mem::forget(home.take());
        }
        (self.first, self.sent) = (self.end, self.put);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Frames of other queues return to them. This queue's memory is freed with the queue.
        while self.first < self.end {
            let at = self.place(self.first);
            if let Some(home) = self.homes[at].take() {
                home.give_back(Slot::at(self.addresses[at]));
            }
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Notes what is given back: of which thousand, and how many.
    #[derive(Default)]
    struct Thousands(RefCell<Vec<(usize, u32)>>);

    impl GiveBack for Thousands {
        const SHARES: bool = true;

        fn give_back(&self, slot: Slot) {
            self.give_back_run(slot, 1);
        }

        fn give_back_run(&self, slot: Slot, count: u32) {
            self.0.borrow_mut().push((slot.address() / 1000, count));
        }

        fn run(&self, packets: &[Cell<Sge>]) -> usize {
            let thousand = |sge: &Cell<Sge>| sge.get().addr / 1000;
            packets.partition_point(|sge| thousand(sge) == thousand(&packets[0]))
        }
    }

    fn packets(addresses: &[u64]) -> Vec<Cell<Sge>> {
        addresses.iter().map(|&addr| Cell::new(Sge { addr, ..Sge::default() })).collect()
    }

    #[test]
    fn device_that_completes_part_of_a_run_leaves_the_rest_in_flight() {
        let (mode, mut in_flight) = (Thousands::default(), InFlight::new::<Thousands>(8));
        let burst = packets(&[1000, 1064, 1128, 1500, 1999, 2000, 2064, 2900]);
        // Three times, so that the ring wraps.
        for round in 0..3 {
            let before = round * 8;
            in_flight.extend(&Taken(&burst), &mode);
            assert_eq!((in_flight.len(), in_flight.room()), (8, 0));
            for (until, gone) in [(2, 2), (2, 0), (6, 4), (20, 2)] {
                assert_eq!(in_flight.retire(before + until, &mode), gone);
            }
            assert_eq!(mode.0.take(), [(1, 2), (1, 3), (2, 1), (2, 2)]);
            assert_eq!(in_flight.len(), 0);
        }
    }

    #[test]
    fn runs_whose_requests_are_refused_are_given_back_whole() {
        let (mode, mut in_flight) = (Thousands::default(), InFlight::new::<Thousands>(8));
        in_flight.extend(&Taken(&packets(&[1000, 1064])), &mode);
        in_flight.note_posted();
        in_flight.extend(&Taken(&packets(&[1128, 1500, 2000])), &mode);
        in_flight.push(Slot::at(3000), None);
        assert_eq!(in_flight.undo_unposted(&mode), 4);
        assert_eq!(mode.0.take(), [(3, 1), (2, 1), (1, 2)]);
        assert_eq!((in_flight.len(), in_flight.undo_unposted(&mode)), (2, 0));
    }
}
