//! Objects by number.

/// Objects by number; a number is reused only after all others were used.
#[derive(Debug)]
pub(crate) struct Table<T> {
    first: u32,
    limit: u32,
    next: u32,
    used: u32,
    slots: Vec<Option<Box<T>>>,
}

impl<T> Table<T> {
    /// A table of numbers from `first`, of `limit` objects at most.
    pub(crate) fn new(first: u32, limit: u32) -> Self {
        Self { first, limit, next: 0, used: 0, slots: Vec::new() }
    }

    /// The number that the next object will have; `None` if the table is full.
    pub(crate) fn vacancy(&mut self) -> Option<u32> {
        if self.used >= self.limit {
            return None;
        }
        loop {
            let index = self.next as usize;
            match self.slots.get(index) {
                Some(Some(_)) => self.next = (self.next + 1) % self.limit,
                _ => return Some(self.first + self.next),
            }
        }
    }

    /// Adds an object and returns its number.
    pub(crate) fn insert(&mut self, object: T) -> Option<u32> {
        let number = self.vacancy()?;
        let index = (number - self.first) as usize;
        if index == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[index] = Some(Box::new(object));
        self.next = (self.next + 1) % self.limit;
        self.used += 1;
        Some(number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.slots.get(number.checked_sub(self.first)? as usize)?.as_deref()
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.slots.get_mut(number.checked_sub(self.first)? as usize)?.as_deref_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Box<T>> {
        let object = self.slots.get_mut(number.checked_sub(self.first)? as usize)?.take()?;
        self.used -= 1;
        Some(object)
    }

    /// Whether a number had an object that is gone.
    pub(crate) fn was(&self, number: u32) -> bool {
        let index = number.checked_sub(self.first).map(|index| index as usize);
        index.and_then(|index| self.slots.get(index)).is_some_and(Option::is_none)
    }

    pub(crate) fn len(&self) -> usize {
        self.used as usize
    }

    /// Every object with its number, in order of numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let first = self.first;
        self.slots.iter().enumerate().filter_map(move |(index, slot)| {
            slot.as_deref().map(|object| (first + index as u32, object))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_reused_only_after_all_others() {
        let mut table = Table::new(10, 3);
        assert_eq!(table.insert('a'), Some(10));
        table.remove(10);
        assert_eq!(table.insert('b'), Some(11));
        assert_eq!(table.insert('c'), Some(12));
        assert_eq!(table.insert('d'), Some(10));
        assert_eq!(table.insert('e'), None);
        table.remove(11);
        assert_eq!(table.insert('f'), Some(11));
        assert_eq!(table.iter().map(|(n, _)| n).collect::<Vec<_>>(), [10, 11, 12]);
    }
}
