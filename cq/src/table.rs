//! From the user index in a CQE to the queue that it is about, without a lock.

use crate::sync::{
    AtomicPtr,
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

type Level<Q> = [AtomicPtr<Q>; LEVEL_SIZE];

/// What a user index leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lookup<Q> {
    /// A queue. It stays valid until the poller that looked it up next attends to departures.
    Queue(NonNull<Q>),
    /// A queue that was destroyed, or is being reset: its completions mean nothing any more.
    Departed,
    /// Nothing: no queue ever had this index.
    Unknown,
}

/// The queues of a context by user index: two levels of pointers.
pub struct UserIndexTable<Q> {
    top: Box<[AtomicPtr<Level<Q>>]>,
}

impl<Q> Default for UserIndexTable<Q> {
    fn default() -> Self {
        Self { top: (0..LEVEL_SIZE).map(|_| AtomicPtr::new(null_mut())).collect() }
    }
}

/// Stands for a queue that is gone. It is no address of a queue, for it is not aligned as a pointer.
fn tombstone<Q>() -> *mut Q {
    core::ptr::without_provenance_mut(1)
}

impl<Q> UserIndexTable<Q> {
    /// How many user indexes there are.
    pub const SIZE: u32 = 1 << (2 * LEVEL_BITS);

    /// Finds the queue with user index `index`, of which the low 24 bits count.
    #[inline(always)]
    pub fn get(&self, index: u32) -> Lookup<Q> {
        let Some(level) = self.level(index) else { return Lookup::Unknown };
        let entry = level[index as usize % LEVEL_SIZE].load(Acquire);
        if entry == tombstone() {
            return Lookup::Departed;
        }
        NonNull::new(entry).map_or(Lookup::Unknown, Lookup::Queue)
    }

    #[inline(always)]
    fn level(&self, index: u32) -> Option<&Level<Q>> {
        let level = self.top[(index >> LEVEL_BITS) as usize % LEVEL_SIZE].load(Acquire);
        // SAFETY: a level, once there, stays as long as the table.
        unsafe { level.as_ref() }
    }

    /// Makes `queue` the one with user index `index`.
    ///
    /// # Safety
    /// `queue` stays valid until its index was cleared and every poller that may have looked it up
    /// has attended to departures.
    pub unsafe fn set(&self, index: u32, queue: NonNull<Q>) {
        let top = &self.top[(index >> LEVEL_BITS) as usize % LEVEL_SIZE];
        if top.load(Acquire).is_null() {
            let level: Box<Level<Q>> =
                Box::new(core::array::from_fn(|_| AtomicPtr::new(null_mut())));
            let level = Box::into_raw(level);
            if top.compare_exchange(null_mut(), level, AcqRel, Acquire).is_err() {
                // SAFETY: it was just made, and nobody else saw it.
                drop(unsafe { Box::from_raw(level) });
            }
        }
        if let Some(level) = self.level(index) {
            level[index as usize % LEVEL_SIZE].store(queue.as_ptr(), Release);
        }
    }

    /// The queue with user index `index` is gone; the index must not be used again before all
    /// completions that name it were passed.
    pub fn depart(&self, index: u32) {
        if let Some(level) = self.level(index) {
            level[index as usize % LEVEL_SIZE].store(tombstone(), Release);
        }
    }
}

impl<Q> Drop for UserIndexTable<Q> {
    fn drop(&mut self) {
        for level in &self.top {
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

    #[test]
    fn an_index_leads_to_its_queue_until_it_departs() {
        let table = UserIndexTable::<u64>::default();
        let (mut a, mut b) = (1, 2);
        let (a, b) = (NonNull::from(&mut a), NonNull::from(&mut b));
        assert_eq!(table.get(5), Lookup::Unknown);
        // SAFETY: never dereferenced.
        unsafe {
            table.set(5, a);
            table.set(UserIndexTable::<u64>::SIZE - 1, b);
        }
        assert_eq!(table.get(5), Lookup::Queue(a));
        assert_eq!(table.get(0xffffff), Lookup::Queue(b));
        assert_eq!(table.get(6), Lookup::Unknown);
        assert_eq!(table.get(5 << 12), Lookup::Unknown);
        table.depart(5);
        assert_eq!(table.get(5), Lookup::Departed);
    }
}
