//! The verbs of libmlx5, which are specific to mlx5.

pub mod clock;
pub mod device;
pub mod devx;
pub mod event;
pub mod init;
pub mod matcher;
pub mod memory;
pub mod pacing;
pub mod queue;
pub mod uar;
pub mod umem;

use crate::abi::c_void;

/// A command or an answer of the program. NULL is treated as no bytes, which the kernel refuses.
///
/// # Safety
/// `start` is NULL, or readable for `len` bytes as long as the slice is used.
unsafe fn bytes<'a>(start: *const c_void, len: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: the caller promises that `start` is readable for `len` bytes; it is not NULL here.
    unsafe { std::slice::from_raw_parts(start.cast(), len) }
}

/// Room for an answer of the kernel.
///
/// # Safety
/// `start` is NULL, or writable for `len` bytes as long as the slice is used.
unsafe fn room<'a>(start: *mut c_void, len: usize) -> &'a mut [u8] {
    if start.is_null() {
        return &mut [];
    }
    // SAFETY: the caller promises that `start` is writable for `len` bytes; it is not NULL here.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
}
