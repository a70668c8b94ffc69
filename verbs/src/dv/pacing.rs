//! Entries of the device's table of send rates.

use super::bytes;
use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::close;
use crate::context::ContextObject;
use crate::object::boxed;
use crate::refusal::{Refusal, object};
use mlx5::Context;
use mlx5_uapi::cmd::devx as command;

/// An entry.
#[repr(C)]
struct PpObject {
    c: mlx5dv_pp,
    context: *mut ibv_context,
    handle: u32,
    /// Keeps the context, which may be closed before the entry is freed.
    _kept: Context,
}

/// `mlx5dv_pp_alloc`.
///
/// # Safety
/// `context` is open, `description` readable for its length.
pub unsafe extern "C" fn pp_alloc(
    context: *mut ibv_context,
    description_len: usize,
    description: *const c_void,
    flags: u32,
) -> *mut mlx5dv_pp {
    /// `MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX`.
    const DEDICATED: u32 = 1 << 0;
    if flags & !DEDICATED != 0 {
        return object(Err(Refusal::NOT_SUPPORTED));
    }
    // SAFETY: the caller promises that `context` is open and that `description` is readable for its
    // length.
    let (this, made) = unsafe {
        let this = ContextObject::of(context);
        (this, command::alloc_pp(this.file(), bytes(description, description_len), flags.into()))
    };
    object(made.map_err(Into::into).map(|rate| {
        let c = mlx5dv_pp { index: rate.index };
        boxed(PpObject { c, context, handle: rate.handle, _kept: this.kept() })
    }))
}

/// `mlx5dv_pp_free`.
///
/// # Safety
/// `pp` was not freed. It is used no more.
pub unsafe extern "C" fn pp_free(pp: *mut mlx5dv_pp) {
    // SAFETY: the caller promises that `pp` was not freed and is used no more; `pp_alloc` boxed it.
    let this = unsafe { Box::<PpObject>::from_raw(pp.cast()) };
    // SAFETY: the entry keeps its context. If the kernel refuses, the entry is freed with the
    // context.
    let _ = command::free_pp(unsafe { ContextObject::of(this.context) }.file(), this.handle);
    drop(this);
    close::again();
}
