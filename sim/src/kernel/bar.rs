//! The pages of a device that drivers map: private to this process, or shared with others.

use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use mlx5_uapi::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

use crate::kernel::lock;
use crate::kernel::memory::Anonymous;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages of a shared range. Only those that are used take memory.
const PAGES: usize = 1 << 16;

/// Source of a machine's device pages.
#[derive(Clone, Debug, Default)]
pub(crate) enum Bar {
    /// From anywhere in this process.
    #[default]
    Private,
    /// From a range that other processes can map.
    Shared(Arc<SharedPages>),
}

impl Bar {
    /// Zeroed pages in a row.
    pub(crate) fn map(&self, length: usize) -> Result<BarPages, Errno> {
        match self {
            Self::Private => {
                Ok(BarPages::Private(Anonymous::map(length, PAGE.trailing_zeros(), false)?))
            }
            Self::Shared(range) => {
                let count = length.div_ceil(PAGE);
                let first = range.take(count).ok_or(Errno::ENOMEM)?;
                Ok(BarPages::Shared { range: Arc::clone(range), first, count })
            }
        }
    }
}

/// Pages of a device. Dropping them returns them to the range.
#[derive(Debug)]
pub(crate) enum BarPages {
    Private(Anonymous),
    Shared { range: Arc<SharedPages>, first: usize, count: usize },
}

impl BarPages {
    /// Its first byte.
    pub(crate) fn as_non_null(&self) -> NonNull<u8> {
        match self {
            Self::Private(memory) => memory.as_non_null(),
            // SAFETY: the pages lie in the range.
            Self::Shared { range, first, .. } => unsafe { range.start.add(first * PAGE) },
        }
    }

    /// Its first address.
    pub(crate) fn address(&self) -> u64 {
        self.as_non_null().as_ptr() as u64
    }
}

impl Drop for BarPages {
    fn drop(&mut self) {
        if let Self::Shared { range, first, count } = self {
            range.give_back(*first, *count);
        }
    }
}

/// Pages in an unnamed file, which any process that has its descriptor can map.
pub struct SharedPages {
    file: OwnedFd,
    start: NonNull<u8>,
    /// Which pages are taken.
    taken: Mutex<Vec<bool>>,
}

// SAFETY: the address range belongs to this value alone.
unsafe impl Send for SharedPages {}
// SAFETY: sharing it gives out the address only.
unsafe impl Sync for SharedPages {}

impl fmt::Debug for SharedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPages").field("start", &self.start).finish_non_exhaustive()
    }
}

impl AsFd for SharedPages {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl SharedPages {
    pub(crate) fn new() -> Result<Arc<Self>, Errno> {
        let file = memfd_create(c"mlx5-sim", MFdFlags::MFD_CLOEXEC)?;
        let length = NonZeroUsize::new(PAGES * PAGE).ok_or(Errno::EINVAL)?;
        ftruncate(&file, length.get() as i64)?;
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice, touches no memory in use.
        let start = unsafe { mmap(None, length, rights, MapFlags::MAP_SHARED, &file, 0) }?;
        Ok(Arc::new(Self { file, start: start.cast(), taken: Mutex::new(vec![false; PAGES]) }))
    }

    /// Offset in the file of a byte of this process.
    #[must_use]
    pub fn offset_of(&self, byte: *const u8) -> Option<u64> {
        let offset = (byte as usize).checked_sub(self.start.as_ptr() as usize)?;
        (offset < PAGES * PAGE).then_some(offset as u64)
    }

    fn take(&self, count: usize) -> Option<usize> {
        let mut taken = lock(&self.taken);
        let mut free = 0;
        for index in 0..PAGES {
            free = if taken[index] { 0 } else { free + 1 };
            if free == count {
                let first = index + 1 - count;
                taken[first..=index].fill(true);
                // SAFETY: `first + count` is at most `PAGES`, and no other user has these pages:
                // they were free.
                unsafe { self.start.add(first * PAGE).write_bytes(0, count * PAGE) };
                return Some(first);
            }
        }
        None
    }

    fn give_back(&self, first: usize, count: usize) {
        lock(&self.taken)[first..first + count].fill(false);
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping; each user of its pages holds the range and has given
        // them back.
        let _ = unsafe { munmap(self.start.cast(), PAGES * PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_pages_are_zero_and_nobody_elses() {
        let range = SharedPages::new().expect("memory");
        let bar = Bar::Shared(Arc::clone(&range));
        let one = bar.map(PAGE).expect("a page");
        let other = bar.map(2 * PAGE).expect("two pages");
        assert_ne!(one.address(), other.address());
        let at = one.as_non_null().as_ptr();
        assert_eq!(range.offset_of(at), Some(0));
        // SAFETY: inside the page, which this test has.
        unsafe { at.write_volatile(1) };
        drop(one);
        let again = bar.map(PAGE).expect("the same page");
        assert_eq!(again.as_non_null().as_ptr(), at);
        // SAFETY: inside the page, which `again` holds.
        assert_eq!(unsafe { at.read_volatile() }, 0);
        assert_eq!(bar.map(PAGES * PAGE).map(drop), Err(Errno::ENOMEM));
        assert_eq!(range.offset_of(std::ptr::null()), None);
    }
}
