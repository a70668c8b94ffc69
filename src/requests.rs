//! Values of requests, found by the identifier in a completion.

use std::fmt;

/// Stores a value for each outstanding request and returns it with the request's completion.
///
/// [`Requests::insert`] returns the `wr_id` to post the request with; [`Requests::take`] returns
/// the value for the `wr_id` of its completion. Each identifier can be taken once: a repeated or
/// unknown identifier finds nothing. All memory is allocated when the table is created, and both
/// calls take the same time for any number of requests.
///
/// Values of requests that complete with an error are returned like others. A request without a
/// completion of its own (unsignaled, or refused when it was posted) keeps its value until it is
/// taken: take it when a later request of the queue has completed, or when posting has failed.
///
/// ```no_run
/// # use mlx5::{CompletionQueue, MemoryRegion, QueuePair, Requests, SendFlags, transport::Rc};
/// # use std::error::Error;
/// enum Work { Lookup { key: u64 }, Store }
///
/// # fn f(qp: &mut QueuePair<Rc>, cq: &mut CompletionQueue, memory: &MemoryRegion)
/// #     -> Result<(), Box<dyn Error>> {
/// let mut requests = Requests::new(64);
/// let Ok(wr_id) = requests.insert(Work::Lookup { key: 7 }) else { return Ok(()) };
/// let sge = memory.sge(0..64)?;
/// if let Err(refused) = qp.post(|batch| batch.wr(wr_id, SendFlags::SIGNALED).send().sge(sge)) {
///     requests.take(wr_id);
///     return Err(refused.into());
/// }
/// cq.poll(16, |completion| match requests.take(completion.wr_id()) {
///     Some(Work::Lookup { key }) => println!("{key}: {:?}", completion.status()),
///     Some(Work::Store) => println!("stored: {:?}", completion.status()),
///     None => println!("not a request of these: {completion:?}"),
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Requests<T> {
    slots: Box<[Slot<T>]>,
    /// The first free slot; [`END`] if there is none.
    free: u32,
    len: u32,
}

struct Slot<T> {
    /// Number of uses of the slot: the upper half of an identifier.
    generation: u32,
    entry: Entry<T>,
}

enum Entry<T> {
    /// The next free slot.
    Free(u32),
    Used(T),
}

/// Ends the list of free slots.
const END: u32 = u32::MAX;

/// Returns the identifier of a slot in a generation.
const fn identifier(generation: u32, index: u32) -> u64 {
    (generation as u64) << 32 | index as u64
}

impl<T> Requests<T> {
    /// Creates a table of up to `capacity` outstanding requests.
    ///
    /// # Panics
    /// If the capacity is `u32::MAX`.
    pub fn new(capacity: u32) -> Self {
        assert!(capacity < END, "more requests than any queue has");
        let slots = (1..=capacity).map(|next| {
            let next = if next == capacity { END } else { next };
            Slot { generation: 0, entry: Entry::Free(next) }
        });
        Self { slots: slots.collect(), free: if capacity == 0 { END } else { 0 }, len: 0 }
    }

    /// Stores `value` and returns the identifier of its request. Returns the value if the table is
    /// full.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<u64, T> {
        let index = self.free;
        let Some(slot) = self.slots.get_mut(index as usize) else { return Err(value) };
        if let Entry::Free(next) = slot.entry {
            self.free = next;
        }
        slot.entry = Entry::Used(value);
        self.len += 1;
        Ok(identifier(slot.generation, index))
    }

    /// Removes and returns the value of request `wr_id`.
    #[inline]
    pub fn take(&mut self, wr_id: u64) -> Option<T> {
        let index = wr_id as u32;
        let slot = self.slots.get_mut(index as usize)?;
        if u64::from(slot.generation) != wr_id >> 32 || matches!(slot.entry, Entry::Free(_)) {
            return None;
        }
        let entry = std::mem::replace(&mut slot.entry, Entry::Free(self.free));
        slot.generation = slot.generation.wrapping_add(1);
        self.free = index;
        self.len -= 1;
        match entry {
            Entry::Used(value) => Some(value),
            Entry::Free(_) => None,
        }
    }

    /// Returns the value of request `wr_id`.
    #[inline]
    pub fn get(&self, wr_id: u64) -> Option<&T> {
        match self.slots.get(wr_id as u32 as usize)? {
            Slot { generation, entry: Entry::Used(value) }
                if u64::from(*generation) == wr_id >> 32 =>
            {
                Some(value)
            }
            _ => None,
        }
    }

    /// Returns the value of request `wr_id`, mutably.
    #[inline]
    pub fn get_mut(&mut self, wr_id: u64) -> Option<&mut T> {
        match self.slots.get_mut(wr_id as u32 as usize)? {
            Slot { generation, entry: Entry::Used(value) }
                if u64::from(*generation) == wr_id >> 32 =>
            {
                Some(value)
            }
            _ => None,
        }
    }

    /// Returns the identifiers and values of all requests, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| match &slot.entry {
            Entry::Used(value) => Some((identifier(slot.generation, index), value)),
            Entry::Free(_) => None,
        })
    }

    /// Removes the values of all requests, in any order: for a queue that was destroyed, whose
    /// requests no longer complete. Values that the iterator has not returned stay in the table.
    pub fn drain(&mut self) -> impl Iterator<Item = T> {
        (0..self.slots.len()).filter_map(|index| {
            let generation = self.slots[index].generation;
            self.take(identifier(generation, index as u32))
        })
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the maximum number of requests.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }
}

impl<T: fmt::Debug> fmt::Debug for Requests<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::rc::Rc;

    #[test]
    fn a_value_is_handed_back_once() {
        let mut requests = Requests::new(2);
        assert_eq!((requests.len(), requests.capacity(), requests.is_empty()), (0, 2, true));
        let a = requests.insert("a").unwrap();
        assert!(!requests.is_empty());
        let b = requests.insert("b").unwrap();
        assert_ne!(a, b);
        assert_eq!(requests.insert("c"), Err("c"));
        assert_eq!((requests.get(a), requests.len()), (Some(&"a"), 2));
        *requests.get_mut(b).unwrap() = "B";
        assert_eq!(format!("{requests:?}"), format!("{{{a}: \"a\", {b}: \"B\"}}"));
        assert_eq!(requests.take(a), Some("a"));
        assert_eq!(requests.take(a), None);
        // The slot is reused, under another identifier.
        let c = requests.insert("c").unwrap();
        assert_ne!(c, a);
        assert_eq!(requests.get(a), None);
        assert_eq!(requests.get_mut(a), None);
        assert_eq!(requests.take(a), None);
        assert_eq!((requests.take(b), requests.take(c)), (Some("B"), Some("c")));
        assert!(requests.is_empty());
    }

    #[test]
    fn an_identifier_that_was_never_given_finds_nothing() {
        let mut requests = Requests::new(3);
        let given = requests.insert(5).unwrap();
        for wr_id in [given + 1, given + 3, given | 1 << 32, 1 << 31, u64::MAX] {
            assert_eq!(requests.get(wr_id), None, "{wr_id:#x}");
            assert_eq!(requests.get_mut(wr_id), None, "{wr_id:#x}");
            assert_eq!(requests.take(wr_id), None, "{wr_id:#x}");
        }
        assert_eq!(requests.take(given), Some(5));
        assert_eq!(Requests::new(0).insert(1), Err(1));
    }

    #[test]
    fn a_generation_may_wrap() {
        let mut requests = Requests::new(1);
        requests.slots[0].generation = u32::MAX;
        let last = requests.insert(1).unwrap();
        assert_eq!(requests.take(last), Some(1));
        let first = requests.insert(2).unwrap();
        assert_eq!((requests.take(last), requests.take(first)), (None, Some(2)));
    }

    #[test]
    fn identifier_does_not_come_back_before_four_billion_uses_of_its_slot() {
        let mut requests = Requests::new(1);
        let first = requests.insert(0).unwrap();
        assert_eq!(requests.take(first), Some(0));
        // As many uses as programs reach within seconds.
        for number in 1..=1 << 17 {
            let id = requests.insert(number).unwrap();
            assert_ne!(id, first, "after {number} uses");
            assert_eq!(requests.get(first), None);
            assert_eq!((requests.take(first), requests.take(id)), (None, Some(number)));
        }
        // All bits of a generation are significant.
        for bit in 0..u32::BITS {
            requests.slots[0].generation = (1 << bit) - 1;
            let before = requests.insert(1).unwrap();
            assert_eq!(requests.take(before), Some(1));
            let id = requests.insert(2).unwrap();
            assert!(id != first && id != before, "generation {:#x}", 1_u64 << bit);
            assert_eq!((requests.take(first), requests.take(before)), (None, None));
            assert_eq!(requests.take(id), Some(2));
        }
    }

    #[test]
    fn draining_takes_everything_and_dropping_drops_it() {
        let value = Rc::new(());
        let mut requests = Requests::new(8);
        let ids: Vec<_> = (0..8).map(|_| requests.insert(Rc::clone(&value)).unwrap()).collect();
        assert!(requests.take(ids[3]).is_some());
        assert_eq!(requests.drain().take(2).count(), 2);
        assert_eq!((requests.len(), Rc::strong_count(&value)), (5, 6));
        assert_eq!(requests.drain().count(), 5);
        assert!(requests.is_empty());
        let kept: Vec<_> = (0..8).map(|_| requests.insert(Rc::clone(&value)).unwrap()).collect();
        assert!(kept.iter().all(|id| !ids.contains(id)));
        assert_eq!(requests.insert(Rc::clone(&value)).map_err(drop), Err(()));
        drop(requests);
        assert_eq!(Rc::strong_count(&value), 1);
    }

    /// Random calls give the results of a map.
    #[test]
    fn a_map_agrees() {
        for seed in 1..200_u64 {
            let mut state = seed;
            let mut random = move |below: u64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) % below
            };
            let capacity = random(9) as u32;
            let (mut requests, mut map) = (Requests::new(capacity), HashMap::new());
            let mut given = Vec::new();
            for step in 0..200 {
                if random(2) == 0 {
                    match requests.insert(step) {
                        Ok(id) => {
                            assert_eq!(map.insert(id, step), None, "seed {seed}");
                            given.push(id);
                        }
                        Err(back) => {
                            assert_eq!((back, map.len()), (step, capacity as usize), "seed {seed}");
                        }
                    }
                } else if !given.is_empty() {
                    let id = given[random(given.len() as u64) as usize];
                    assert_eq!(requests.get(id), map.get(&id), "seed {seed}");
                    assert_eq!(requests.take(id), map.remove(&id), "seed {seed}");
                }
                assert_eq!(requests.len(), map.len(), "seed {seed}");
            }
            let all: HashMap<_, _> = requests.iter().map(|(id, &value)| (id, value)).collect();
            assert_eq!(all, map, "seed {seed}");
        }
    }
}
