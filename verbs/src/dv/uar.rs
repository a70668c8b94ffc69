//! Doorbell pages for queues that the program creates by commands, and those of emulated devices.

use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::close;
use crate::context::ContextObject;
use crate::dv_state::{DvState, lock};
use crate::object::boxed;
use crate::refusal::{Refusal, Verb, object};
use mlx5::Context;
use mlx5_uapi::cmd::{devx, uar as command};
use mlx5_uapi::mlx5::UarType;
use mlx5_uapi::{Access, Mapping};
use std::ptr;

/// Offset of the first BlueFlame register in a page.
const FIRST_REGISTER: usize = 0x800;

/// `enum mlx5dv_devx_uar_alloc_type`: a page of BlueFlame registers.
const BLUEFLAME: u32 = 0;
/// The context's page without BlueFlame.
const SHARED: u32 = 1;
/// A separate page without BlueFlame.
const DEDICATED: u32 = 1 << 31;

/// A doorbell page.
#[repr(C)]
pub(super) struct UarObject {
    c: mlx5dv_devx_uar,
    context: *mut ibv_context,
    page: Mapping,
    handle: u32,
    /// Keeps the context, which may be closed before the page is freed.
    kept: Context,
}

// SAFETY: the pointers are to memory that any thread of the C program may use.
unsafe impl Send for UarObject {}

impl UarObject {
    fn new(context: *mut ibv_context, kind: UarType) -> Verb<Self> {
        // SAFETY: the caller of `alloc_uar` promises that `context` is open.
        let this = unsafe { ContextObject::of(context) };
        let file = this.file();
        let uar = command::alloc(file, kind)?;
        let length = uar.mmap_len as usize;
        let page = match file.map(uar.mmap_offset, length, Access::Write) {
            Ok(page) if page.len() > FIRST_REGISTER => page,
            other => {
                // If that fails too, the page is freed with the context.
                let _ = command::destroy(file, uar.handle);
                return Err(other.err().map_or(Refusal::NO_MEMORY, Into::into));
            }
        };
        let c = mlx5dv_devx_uar {
            reg_addr: page.as_ptr().wrapping_add(FIRST_REGISTER).cast(),
            base_addr: page.as_ptr().cast(),
            page_id: uar.page_id,
            mmap_off: uar.mmap_offset as i64,
            comp_mask: 0,
        };
        Ok(Self { c, context, page, handle: uar.handle, kept: this.kept() })
    }

    fn free(self) {
        let Self { context, page, handle, kept, .. } = self;
        drop(page);
        // SAFETY: the page keeps its context. If the kernel refuses because a queue uses the page,
        // it is freed with the context.
        let _ = command::destroy(unsafe { ContextObject::of(context) }.file(), handle);
        drop(kept);
        close::again();
    }
}

fn shared(context: *mut ibv_context, state: &DvState) -> Verb<*mut mlx5dv_devx_uar> {
    let mut shared = lock(&state.shared_uar);
    if shared.is_none() {
        *shared = Some(Box::new(UarObject::new(context, UarType::NonCached)?));
    }
    let page = shared.as_deref_mut().and_then(|page| page.downcast_mut::<UarObject>());
    Ok(page.map_or(ptr::null_mut(), |page| ptr::from_mut(page).cast()))
}

/// `mlx5dv_devx_alloc_uar`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn alloc_uar(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_devx_uar {
    object(match flags {
        BLUEFLAME => UarObject::new(context, UarType::BlueFlame).map(boxed),
        DEDICATED => UarObject::new(context, UarType::NonCached).map(boxed),
        // SAFETY: the caller promises that `context` is open.
        flags if flags & !(SHARED | DEDICATED) == 0 => unsafe {
            shared(context, &ContextObject::of(context).dv)
        },
        _ => Err(Refusal::NOT_SUPPORTED),
    })
}

/// `mlx5dv_devx_free_uar`. The context's shared page stays.
///
/// # Safety
/// `uar` was not freed. It is used no more.
pub unsafe extern "C" fn free_uar(uar: *mut mlx5dv_devx_uar) {
    let this: *mut UarObject = uar.cast();
    // SAFETY: the caller promises that `uar` was not freed and is used no more; `alloc_uar` boxed
    // every page but the shared one.
    unsafe {
        let state = &ContextObject::of((*this).context).dv;
        let shared = lock(&state.shared_uar);
        let page = shared.as_deref().and_then(|page| page.downcast_ref::<UarObject>());
        let is_shared = page.is_some_and(|page| ptr::eq(page, this));
        drop(shared);
        if !is_shared {
            Box::from_raw(this).free();
        }
    }
}

/// A doorbell page of a virtio device that the firmware emulates.
#[repr(C)]
struct VarObject {
    c: mlx5dv_var,
    context: *mut ibv_context,
    handle: u32,
    /// Keeps the context, which may be closed before the page is freed.
    _kept: Context,
}

/// `mlx5dv_alloc_var`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn alloc_var(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_var {
    if flags != 0 {
        return object(Err(Refusal::NOT_SUPPORTED));
    }
    // SAFETY: the caller promises that `context` is open.
    let this = unsafe { ContextObject::of(context) };
    let made = devx::alloc_var(this.file());
    object(made.map_err(Into::into).map(|var| {
        let c = mlx5dv_var {
            page_id: var.page_id,
            length: var.mmap_len,
            mmap_off: var.mmap_offset as i64,
            comp_mask: 0,
        };
        boxed(VarObject { c, context, handle: var.handle, _kept: this.kept() })
    }))
}

/// `mlx5dv_free_var`.
///
/// # Safety
/// `var` was not freed. It is used no more.
pub unsafe extern "C" fn free_var(var: *mut mlx5dv_var) {
    // SAFETY: the caller promises that `var` was not freed and is used no more; `alloc_var` boxed
    // it.
    let this = unsafe { Box::<VarObject>::from_raw(var.cast()) };
    // SAFETY: the page keeps its context. If the kernel refuses, the page is freed with the
    // context.
    let _ = devx::free_var(unsafe { ContextObject::of(this.context) }.file(), this.handle);
    drop(this);
    close::again();
}
