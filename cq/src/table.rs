//! The table from user index to queue, read without a lock.

use crate::sync::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};
use alloc::boxed::Box;
use core::fmt;
use core::ptr::{NonNull, null_mut};

/// The bits of a user index that each of the two levels resolves.
#[cfg(not(loom))]
const LEVEL_BITS: u32 = 12;
#[cfg(loom)]
const LEVEL_BITS: u32 = 1;
const LEVEL_SIZE: usize = 1 << LEVEL_BITS;

type Level<Q> = [Entry<Q>; LEVEL_SIZE];

struct Entry<Q> {
    /// The rings on which the queue completes, 32 bits each: sends in the low half, receives in the
    /// high half.
    rings: AtomicU64,
    queue: AtomicPtr<Q>,
}

/// Identifies a ring. A lookup finds only queues that complete on the poller's ring, because this
/// poller does not keep queues of other rings from being freed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RingId(pub u32);

impl RingId {
    /// A ring that does not exist: no queue completes there.
    pub const NONE: Self = Self(u32::MAX);
}

/// The side of a queue that completes on a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Send requests.
    Send,
    /// Receive requests.
    Receive,
}

impl Side {
    /// Whether this side of a queue that completes on `rings` completes on `ring`.
    #[inline]
    const fn completes(self, rings: u64, ring: RingId) -> bool {
        match self {
            Self::Send => rings as u32 == ring.0,
            Self::Receive => (rings >> 32) as u32 == ring.0,
        }
    }
}

/// The result of a lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup<Q> {
    /// A queue. It is valid until the poller that looked it up next frees destroyed queues.
    Queue(NonNull<Q>),
    /// A queue that was destroyed or is being reset. Its completions are skipped.
    Destroyed,
    /// No queue with this index ever had this side complete on the ring.
    Unknown,
}

/// The queues of a context by user index: two levels of pointers.
pub struct UserIndexTable<Q> {
    top: Box<[AtomicPtr<Level<Q>>; LEVEL_SIZE]>,
}

impl<Q> fmt::Debug for UserIndexTable<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserIndexTable").finish_non_exhaustive()
    }
}

impl<Q> Default for UserIndexTable<Q> {
    fn default() -> Self {
        Self { top: Box::new(core::array::from_fn(|_| AtomicPtr::new(null_mut()))) }
    }
}

/// Marks the entry of a destroyed queue. Not a valid address of a queue, because it is not aligned.
fn tombstone<Q>() -> *mut Q {
    const { assert!(align_of::<Q>() > 1) };
    core::ptr::without_provenance_mut(1)
}

impl<Q> UserIndexTable<Q> {
    /// The number of user indexes.
    pub const SIZE: u32 = 1 << (2 * LEVEL_BITS);

    /// Looks up the queue whose user index is the low 24 bits of `index`, if `side` of it completes
    /// on `ring`.
    #[inline(always)]
    pub fn get(&self, index: u32, ring: RingId, side: Side) -> Lookup<Q> {
        let Some(level) = self.level(index) else { return Lookup::Unknown };
        let Entry { rings, queue } = &level[index as usize % LEVEL_SIZE];
        // The rings are read between two reads of the queue. If both find the same queue, the rings
        // are its own. Otherwise the index went to another queue, possibly on other rings.
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
            return Lookup::Destroyed;
        }
        NonNull::new(found).map_or(Lookup::Unknown, Lookup::Queue)
    }

    /// The fast path of [`UserIndexTable::get`]. `None` unless it finds a queue at once. It
    /// compares each word as soon as it reads it, `ring` too, so that few are in registers at a
    /// time.
    #[inline(always)]
    pub fn get_fast(&self, index: u32, ring: &RingId, side: Side) -> Option<NonNull<Q>> {
        let Entry { rings, queue } = &self.level(index)?[index as usize % LEVEL_SIZE];
        // The loads are in the same order as in `get`.
        let found = queue.load(Acquire);
        if found.addr() <= tombstone::<Q>().addr() {
            return None;
        }
        if !side.completes(rings.load(Acquire), *ring) || queue.load(Acquire) != found {
            return None;
        }
        NonNull::new(found)
    }

    #[inline]
    fn level(&self, index: u32) -> Option<&Level<Q>> {
        let level = self.top[(index >> LEVEL_BITS) as usize % LEVEL_SIZE].load(Acquire);
        // SAFETY: levels are freed only with the table.
        unsafe { level.as_ref() }
    }

    /// Sets the queue with user index `index`, whose sends and receives complete on `rings`.
    ///
    /// # Safety
    /// `queue` stays valid until its index was cleared and the pollers of both rings, if they may
    /// have looked it up, have handled destroyed queues.
    pub unsafe fn set(&self, index: u32, queue: NonNull<Q>, rings: [RingId; 2]) {
        let top = &self.top[(index >> LEVEL_BITS) as usize % LEVEL_SIZE];
        if top.load(Acquire).is_null() {
            let level: Box<Level<Q>> = Box::new(core::array::from_fn(|_| Entry {
                rings: AtomicU64::new(0),
                queue: AtomicPtr::new(null_mut()),
            }));
            let level = Box::into_raw(level);
            if top.compare_exchange(null_mut(), level, AcqRel, Acquire).is_err() {
                // SAFETY: the level was just created here, and no other thread has seen it.
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

    /// Marks the queue with user index `index` as destroyed. The index must not be used again
    /// before the poller has passed all completions that name it.
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
                // SAFETY: `set` created it from a box, and only the table frees it.
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
        // SAFETY: the test only compares the pointers, and never dereferences them.
        unsafe {
            table.set(5, a, [A, A]);
            table.set(UserIndexTable::<u64>::SIZE - 1, b, [A, B]);
        }
        assert_eq!(table.get(5, A, Side::Send), Lookup::Queue(a));
        assert_eq!(table.get(0xffffff, B, Side::Receive), Lookup::Queue(b));
        assert_eq!(table.get(6, A, Side::Send), Lookup::Unknown);
        assert_eq!(table.get(5 << 12, A, Side::Send), Lookup::Unknown);
        table.depart(5);
        assert_eq!(table.get(5, A, Side::Send), Lookup::Destroyed);
    }

    #[test]
    fn a_side_of_a_queue_is_found_on_the_ring_that_it_completes_on_and_on_no_other() {
        let table = UserIndexTable::<u64>::default();
        let mut queue = 1;
        let queue = NonNull::from(&mut queue);
        let get = |ring, side| {
            let quickly = table.get_fast(5, &ring, side);
            let found = table.get(5, ring, side);
            let there = if let Lookup::Queue(queue) = found { Some(queue) } else { None };
            assert_eq!(quickly, there);
            found
        };
        // SAFETY: the test only compares the pointers, and never dereferences them.
        unsafe { table.set(5, queue, [A, B]) };
        assert_eq!(get(A, Side::Send), Lookup::Queue(queue));
        assert_eq!(get(B, Side::Receive), Lookup::Queue(queue));
        // Only one poller may retire the requests of one side.
        assert_eq!(get(A, Side::Receive), Lookup::Unknown);
        assert_eq!(get(B, Side::Send), Lookup::Unknown);
        assert_eq!(get(RingId(3), Side::Send), Lookup::Unknown);
        table.depart(5);
        assert_eq!(get(A, Side::Send), Lookup::Destroyed);
        assert_eq!(get(B, Side::Receive), Lookup::Destroyed);
        assert_eq!(get(B, Side::Send), Lookup::Unknown);
        // SAFETY: the test only compares the pointers, and never dereferences them.
        unsafe { table.set(5, queue, [B, B]) };
        assert_eq!(get(A, Side::Send), Lookup::Unknown);
        assert_eq!(get(B, Side::Send), Lookup::Queue(queue));
    }
}
