//! What there is not: functions that stand for a verb and refuse it, whatever its parameters are.
//!
//! Each has the result that the verbs that go to it have when they fail. None says success. A caller of C's
//! passes parameters to them; with the C calling convention of Linux, who does not look at them is not disturbed.

use crate::refusal::set_errno;
use core::ffi::{c_int, c_void};
use core::ptr;

/// Sets `errno` of this thread to "not supported", and returns that.
fn not_supported() -> c_int {
    set_errno(libc::EOPNOTSUPP);
    libc::EOPNOTSUPP
}

/// For a verb that returns a pointer: NULL, and errno.
pub extern "C" fn null() -> *mut c_void {
    not_supported();
    ptr::null_mut()
}

/// For a verb that returns an error number; errno says the same.
pub extern "C" fn error() -> c_int {
    not_supported()
}

/// For a verb that returns an error number with its sign changed, of any width.
pub extern "C" fn negative_error() -> isize {
    -(not_supported() as isize)
}

/// For a verb that returns −1, of any width, and errno.
pub extern "C" fn minus_one() -> isize {
    not_supported();
    -1
}

/// For a verb that returns how many there are, or whether there is something: none, no.
pub extern "C" fn zero() -> u64 {
    not_supported();
    0
}

/// For a verb that returns nothing.
pub extern "C" fn nothing() {}
