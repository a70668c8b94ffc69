//! The functions behind those of this library: libc's own, found by the dynamic linker.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::say;

/// A function of the next library that has it.
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// Not yet looked for.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Where it is. Ends the program if there is none, for then nothing can stand in for it.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a string of C, and RTLD_NEXT looks behind this library.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            say!("libc has no {}", self.name.to_string_lossy());
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}
