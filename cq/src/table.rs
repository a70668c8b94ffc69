//! From the user index in a CQE to the queue that it is about, without a lock.

use crate::sync::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};
use alloc::boxed::Box;
use core::ptr::{NonNull, null_mut};

/// Bits of a user index that each of the two levels resolves.
#[cfg(not(loom))]
const LEVEL_BITS: u32 = 12;
#[cfg(loom)]
const LEVEL_BITS: u32 = 1;
const LEVEL_SIZE: usize = 1 << LEVEL_BITS;

type Level<Q> = [Entry<Q>; LEVEL_SIZE];

struct Entry<Q> {
    /// The rings that the queue completes on, in 32 bits each: sends in the low ones, receives.
    rings: AtomicU64,
    queue: AtomicPtr<Q>,
}

/// The number that a ring goes by. Completions on a ring are about queues that complete there: to
/// any other, a poller has no claim that would keep it from being freed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RingId(pub u32);

impl RingId {
    /// No ring: no queue completes there.
    pub const NOBODY: Self = Self(u32::MAX);
}

/// What of a queue completes on a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Requests that it sends.
    Send,
    /// Requests that it receives into.
    Receive,
}

impl Side {
    /// Whether this side of a queue that completes on `rings` completes on `ring`.
    #[inline(always)]
    const fn completes(self, rings: u64, ring: RingId) -> bool {
        match self {
            Self::Send => rings as u32 == ring.0,
            Self::Receive => (rings >> 32) as u32 == ring.0,
        }
    }
}

/// What a user index leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup<Q> {
    /// A queue. It stays valid until the poller that looked it up next attends to departures.
    Queue(NonNull<Q>),
    /// A queue that was destroyed, or is being reset: its completions mean nothing any more.
    Departed,
    /// Nothing: no queue of which this side completes on the ring ever had this index.
    Unknown,
}

/// The queues of a context by user index: two levels of pointers.
pub struct UserIndexTable<Q> {
    top: Box<[AtomicPtr<Level<Q>>; LEVEL_SIZE]>,
}

impl<Q> Default for UserIndexTable<Q> {
    fn default() -> Self {
        Self { top: Box::new(core::array::from_fn(|_| AtomicPtr::new(null_mut()))) }
    }
}

/// Stands for a queue that is gone. It is no address of a queue, for it is not aligned as a pointer.
fn tombstone<Q>() -> *mut Q {
    const { assert!(align_of::<Q>() > 1) };
    core::ptr::without_provenance_mut(1)
}

impl<Q> UserIndexTable<Q> {
    /// How many user indexes there are.
    pub const SIZE: u32 = 1 << (2 * LEVEL_BITS);

    /// Finds the queue with user index `index`, of which the low 24 bits count, if `side` of it
    /// completes on `ring`.
    #[inline(always)]
    pub fn get(&self, index: u32, ring: RingId, side: Side) -> Lookup<Q> {
        let Some(level) = self.level(index) else { return Lookup::Unknown };
        let Entry { rings, queue } = &level[index as usize % LEVEL_SIZE];
        // The rings are looked at between two looks at the queue: if that is the same in both, they
        // are its own. Else the index went from one queue to another, maybe on other rings.
        let mut found = queue.load(Acquire);
        let rings = loop {
            let rings = rings.load(Acquire);
            let again = queue.load(Acquire);
            if again == found {
                break rings;
            }
            found = again;
        };
        if !side.completes(rings, ring) {
            return Lookup::Unknown;
        }
        if found == tombstone() {
            return Lookup::Departed;
        }
        NonNull::new(found).map_or(Lookup::Unknown, Lookup::Queue)
    }

    /// [`UserIndexTable::get`] for a queue that is there; `None` where it takes a closer look.
    #[inline(always)]
    pub fn get_quickly(&self, index: u32, ring: RingId, side: Side) -> Option<NonNull<Q>> {
        let Entry { rings, queue } = &self.level(index)?[index as usize % LEVEL_SIZE];
        // The order is that of `get`.
        let found = queue.load(Acquire);
        let rings = rings.load(Acquire);
        let settled = queue.load(Acquire) == found;
        let completes_here = side.completes(rings, ring);
        let there = found.addr() > tombstone::<Q>().addr();
        if settled && completes_here && there { NonNull::new(found) } else { None }
    }

    #[inline(always)]
    fn level(&self, index: u32) -> Option<&Level<Q>> {
        let level = self.top[(index >> LEVEL_BITS) as usize % LEVEL_SIZE].load(Acquire);
        // SAFETY: a level, once there, stays as long as the table.
        unsafe { level.as_ref() }
    }

    /// Makes `queue`, whose sends and receives complete on `rings`, the one with user index `index`.
    ///
    /// # Safety
    /// `queue` stays valid until its index was cleared and the pollers of both rings, as far as they
    /// may have looked it up, have attended to departures.
    pub unsafe fn set(&self, index: u32, queue: NonNull<Q>, rings: [RingId; 2]) {
        let top = &self.top[(index >> LEVEL_BITS) as usize % LEVEL_SIZE];
        if top.load(Acquire).is_null() {
            let level: Box<Level<Q>> = Box::new(core::array::from_fn(|_| Entry {
                rings: AtomicU64::new(0),
                queue: AtomicPtr::new(null_mut()),
            }));
            let level = Box::into_raw(level);
            if top.compare_exchange(null_mut(), level, AcqRel, Acquire).is_err() {
                // SAFETY: it was just made, and nobody else saw it.
                drop(unsafe { Box::from_raw(level) });
            }
        }
        if let Some(level) = self.level(index) {
            let entry = &level[index as usize % LEVEL_SIZE];
            let [one, other] = rings.map(|ring| u64::from(ring.0));
            entry.rings.store(one | other << 32, Release);
            entry.queue.store(queue.as_ptr(), Release);
        }
    }

    /// The queue with user index `index` is gone; the index must not be used again before all
    /// completions that name it were passed.
    pub fn depart(&self, index: u32) {
        if let Some(level) = self.level(index) {
            level[index as usize % LEVEL_SIZE].queue.store(tombstone(), Release);
        }
    }
}

impl<Q> Drop for UserIndexTable<Q> {
    fn drop(&mut self) {
        for level in &*self.top {
            let level = level.load(Acquire);
            if !level.is_null() {
                // SAFETY: made by `set`, and the table is the only one to free it.
                drop(unsafe { Box::from_raw(level) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const A: RingId = RingId(1);
    const B: RingId = RingId(2);

    #[test]
    fn an_index_leads_to_its_queue_until_it_departs() {
        let table = UserIndexTable::<u64>::default();
        let (mut a, mut b) = (1, 2);
        let (a, b) = (NonNull::from(&mut a), NonNull::from(&mut b));
        assert_eq!(table.get(5, A, Side::Send), Lookup::Unknown);
        // SAFETY: never dereferenced.
        unsafe {
            table.set(5, a, [A, A]);
            table.set(UserIndexTable::<u64>::SIZE - 1, b, [A, B]);
        }
        assert_eq!(table.get(5, A, Side::Send), Lookup::Queue(a));
        assert_eq!(table.get(0xffffff, B, Side::Receive), Lookup::Queue(b));
        assert_eq!(table.get(6, A, Side::Send), Lookup::Unknown);
        assert_eq!(table.get(5 << 12, A, Side::Send), Lookup::Unknown);
        table.depart(5);
        assert_eq!(table.get(5, A, Side::Send), Lookup::Departed);
    }

    #[test]
    fn a_side_of_a_queue_is_found_on_the_ring_that_it_completes_on_and_on_no_other() {
        let table = UserIndexTable::<u64>::default();
        let mut queue = 1;
        let queue = NonNull::from(&mut queue);
        let get = |ring, side| {
            let quickly = table.get_quickly(5, ring, side);
            let found = table.get(5, ring, side);
            let there = if let Lookup::Queue(queue) = found { Some(queue) } else { None };
            assert_eq!(quickly, there);
            found
        };
        // SAFETY: never dereferenced.
        unsafe { table.set(5, queue, [A, B]) };
        assert_eq!(get(A, Side::Send), Lookup::Queue(queue));
        assert_eq!(get(B, Side::Receive), Lookup::Queue(queue));
        // Two pollers of one side would be one too many.
        assert_eq!(get(A, Side::Receive), Lookup::Unknown);
        assert_eq!(get(B, Side::Send), Lookup::Unknown);
        assert_eq!(get(RingId(3), Side::Send), Lookup::Unknown);
        table.depart(5);
        assert_eq!(get(A, Side::Send), Lookup::Departed);
        assert_eq!(get(B, Side::Receive), Lookup::Departed);
        assert_eq!(get(B, Side::Send), Lookup::Unknown);
        // SAFETY: never dereferenced.
        unsafe { table.set(5, queue, [B, B]) };
        assert_eq!(get(A, Side::Send), Lookup::Unknown);
        assert_eq!(get(B, Side::Send), Lookup::Queue(queue));
    }
}
