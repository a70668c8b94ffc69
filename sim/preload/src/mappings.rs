//! Device pages in the program's memory.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use mlx5_uapi::Mapping;

/// Number of mapped pages. Most calls of munmap are about other memory.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Whether any page is mapped.
pub(crate) fn any() -> bool {
    MAPPED.load(Ordering::Acquire) != 0
}

/// A child process has no mapped pages.
pub(crate) fn forget() {
    MAPPED.store(0, Ordering::Release);
}

/// The mapped pages by address. One page may be mapped several times at the same place.
#[derive(Default)]
pub(crate) struct Mappings {
    pages: Mutex<BTreeMap<usize, Vec<Mapping>>>,
}

impl Mappings {
    /// Adds a page, and returns its address.
    pub(crate) fn add(&self, mapping: Mapping) -> *mut c_void {
        let address = mapping.as_ptr();
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.entry(address as usize).or_default().push(mapping);
        MAPPED.fetch_add(1, Ordering::AcqRel);
        address.cast()
    }

    /// Removes a page at this address. It is unmapped when the result is dropped.
    pub(crate) fn take(&self, address: usize) -> Option<Mapping> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let there = pages.get_mut(&address)?;
        let mapping = there.pop();
        if there.is_empty() {
            pages.remove(&address);
        }
        MAPPED.fetch_sub(1, Ordering::AcqRel);
        mapping
    }
}
