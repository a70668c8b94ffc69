//! The verbs of libmlx5: what mlx5 has and libibverbs knows nothing of.

pub mod clock;
pub mod device;
pub mod devx;
pub mod event;
mod memory;
pub mod pacing;
pub mod uar;
pub mod umem;

use crate::abi::c_void;
use mlx5_uapi::Mapping;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What the verbs of libmlx5 keep of a context. Pages that are mapped keep the device open, so this
/// goes before the context does.
#[derive(Default)]
pub(crate) struct State {
    /// The page that `mlx5dv_get_clock_info` reads, if the kernel has one.
    clock: OnceLock<Option<mlx5::Clock>>,
    /// The page with the device's clock.
    core_clock: OnceLock<Option<Mapping>>,
    /// The page without BlueFlame that all users of the context share.
    shared_uar: Mutex<Option<Box<uar::UarObject>>>,
    /// Who provides the memory of queues, if the program does.
    allocators: Mutex<Option<memory::Allocators>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command or an answer of the program. NULL is taken for no bytes, which the kernel refuses.
///
/// # Safety
/// `start` is NULL, or readable for `len` bytes as long as the slice is used.
unsafe fn bytes<'a>(start: *const c_void, len: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: by the contract.
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
    // SAFETY: by the contract.
    unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
}
