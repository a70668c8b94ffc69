//! Functions for unsupported verbs: each refuses the call, whatever its parameters are.
//!
//! Each returns the failure result of the verbs that it stands for, never success. A C caller
//! passes parameters that the function does not have; Linux' C calling convention permits that.

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

/// For a verb that returns a count or a truth value: zero, that is, none or no.
pub extern "C" fn zero() -> u64 {
    not_supported();
    0
}

/// For a verb that returns nothing.
pub extern "C" fn nothing() {}
