//! Accesses to memory through keys.

use crate::engine::Device;
use crate::engine::state::fence::Change;
use crate::engine::state::mkey::{Access, KeyError, Translation, User};

/// The most levels of keys whose pieces lie in other keys.
pub(crate) const DEEPEST: u32 = 4;

/// The direction of a copy, and the local bytes.
pub(super) enum Copy<'a> {
    From(&'a mut [u8]),
    To(&'a [u8]),
}

impl Copy<'_> {
    pub(super) fn length(&self) -> usize {
        match self {
            Self::From(to) => to.len(),
            Self::To(from) => from.len(),
        }
    }

    /// The right that a piece of another key must have.
    fn right(&self) -> Access {
        match self {
            Self::From(_) => Access::LOCAL_READ,
            Self::To(_) => Access::LOCAL_WRITE,
        }
    }

    pub(super) fn part(&mut self, start: usize, length: usize) -> Copy<'_> {
        match self {
            Self::From(to) => Copy::From(&mut to[start..start + length]),
            Self::To(from) => Copy::To(&from[start..start + length]),
        }
    }
}

impl Device {
    /// Why there is no key at an index.
    fn no_key(&self, index: u32) -> KeyError {
        if self.mkeys.was(index) { KeyError::Foreign } else { KeyError::Unknown }
    }

    /// Checks an access through a key: the key itself, not those that it is made of.
    pub(crate) fn check_key(
        &self,
        user: User,
        key: u32,
        address: u64,
        length: u64,
        right: Access,
    ) -> Result<u64, KeyError> {
        let mkey = self.mkeys.get(key >> 8).ok_or(self.no_key(key >> 8))?;
        mkey.check(user, key, address, length, right)
    }

    /// Reads through a key.
    pub(crate) fn read_key(
        &mut self,
        user: User,
        key: u32,
        address: u64,
        to: &mut [u8],
        right: Access,
    ) -> Result<(), KeyError> {
        let result = self.copy(user, key, address, Copy::From(to), right, 0);
        self.note(result)
    }

    /// Writes through a key.
    pub(crate) fn write_key(
        &mut self,
        user: User,
        key: u32,
        address: u64,
        from: &[u8],
        right: Access,
    ) -> Result<(), KeyError> {
        let result = self.copy(user, key, address, Copy::To(from), right, 0);
        self.note(result)
    }

    fn copy(
        &mut self,
        user: User,
        key: u32,
        address: u64,
        copy: Copy<'_>,
        right: Access,
        depth: u32,
    ) -> Result<(), KeyError> {
        let index = key >> 8;
        self.used_by(user, Change::Mkey(index));
        let mkey = self.mkeys.get(index).ok_or(self.no_key(index))?;
        let offset = mkey.check(user, key, address, copy.length() as u64, right)?;
        if mkey.signatures.enabled {
            return self.copy_signed(user, index, offset, copy, depth);
        }
        match (&mkey.translation, copy) {
            (Translation::Indirect(_), copy) => self.copy_pieces(user, index, offset, copy, depth),
            (_, Copy::From(to)) => mkey.read(&*self.dma, address, offset, to),
            (_, Copy::To(from)) => mkey.write(&*self.dma, address, offset, from),
        }
    }

    /// Copies from or to the memory of an indirect key, at an offset in its layout.
    pub(super) fn copy_pieces(
        &mut self,
        user: User,
        index: u32,
        offset: u64,
        mut copy: Copy<'_>,
        depth: u32,
    ) -> Result<(), KeyError> {
        let mkey = self.mkeys.get(index).ok_or(KeyError::Outside)?;
        let Translation::Indirect(layout) = &mkey.translation else {
            return Err(KeyError::Outside);
        };
        let ranges = layout.ranges(offset, copy.length() as u64).ok_or(KeyError::Outside)?;
        if depth == DEEPEST {
            return Err(KeyError::Outside);
        }
        let right = copy.right();
        let mut done = 0;
        for range in ranges {
            let length = range.length as usize;
            let part = copy.part(done, length);
            self.copy(user, range.key, range.address, part, right, depth + 1)?;
            done += length;
        }
        Ok(())
    }

    /// Updates the operand of an atomic and returns its old value.
    pub(crate) fn update_key(
        &mut self,
        user: User,
        key: u32,
        address: u64,
        length: u64,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, KeyError> {
        let (mut key, mut address, mut right) = (key, address, Access::REMOTE_ATOMIC);
        for _ in 0..=DEEPEST {
            let mkey = self.mkeys.get(key >> 8).ok_or(self.no_key(key >> 8))?;
            let offset = mkey.check(user, key, address, length, right)?;
            if mkey.signatures.enabled {
                return Err(KeyError::Outside);
            }
            let Translation::Indirect(layout) = &mkey.translation else {
                let result = mkey.update(&*self.dma, (address, length), offset, update);
                return self.note(result);
            };
            // An operand in two pieces could not be updated at once.
            let ranges = layout.ranges(offset, length).ok_or(KeyError::Outside)?;
            let [range] = ranges[..] else { return Err(KeyError::Outside) };
            (key, address, right) =
                (range.key, range.address, Access::LOCAL_READ | Access::LOCAL_WRITE);
            if !address.is_multiple_of(length) {
                return Err(KeyError::Outside);
            }
        }
        Err(KeyError::Outside)
    }

    /// Adds memory faults to the list of violations.
    pub(crate) fn note<T>(&mut self, result: Result<T, KeyError>) -> Result<T, KeyError> {
        if let Err(KeyError::Memory(fault)) = result {
            self.memory_violation(fault);
        }
        result
    }
}
