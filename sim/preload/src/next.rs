//! The functions that this library replaces: libc's own, found by the dynamic linker.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::mode_t;
use mlx5_uapi::Errno;

use crate::say;

/// A function of the next library that defines it.
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// Not looked up yet.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Address of the function. Ends the program if there is none: nothing can replace it.
    pub(crate) fn address(&self) -> *mut c_void {
        let known = self.address.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: the name is a string of C, and RTLD_NEXT searches the libraries after this one.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            say!("libc has no {}", self.name.to_string_lossy());
            std::process::abort();
        }
        self.address.store(found, Ordering::Relaxed);
        found
    }
}

/// Makes functions that call the next library's of the same name.
macro_rules! next {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        /// # Safety
        /// As for libc's function.
        #[allow(dead_code, reason = "each is there once a function is taken over")]
        pub(crate) unsafe fn $name($($argument: $type),*) -> $answer {
            use ::std::{ffi, mem};
            const NAME: &ffi::CStr = match ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes()
            ) {
                Ok(name) => name,
                Err(_) => panic!("an identifier has no zero in it"),
            };
            static SYMBOL: $crate::next::Symbol = $crate::next::Symbol::new(NAME);
            type Function = unsafe extern "C" fn($($type),*) -> $answer;
            let address = SYMBOL.address();
            // SAFETY: the declaration is libc's, or passes as many words in registers.
            let function = unsafe { mem::transmute::<*mut ffi::c_void, Function>(address) };
            // SAFETY: the caller of the macro promises that the arguments are valid for this
            // function.
            unsafe { function($($argument),*) }
        }
    )*};
}
pub(crate) use next;

// The functions that this library calls itself. `exports` uses them for its replacements, too, so
// that the compiler compares the declarations.
next! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    fn fstat(fd: c_int, to: *mut libc::stat) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int;
    fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int;
    fn close(fd: c_int) -> c_int;
}

/// Sets errno, and returns the value of a failed libc function.
pub(crate) fn failed(errno: Errno) -> c_int {
    errno.set();
    -1
}
