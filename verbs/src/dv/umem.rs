//! Memory registered for firmware objects.

use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::close;
use crate::context::ContextObject;
use crate::fork::Kept;
use crate::object::boxed;
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::{AccessFlags, Context};
use mlx5_uapi::cmd::devx::{self as command, PageSizes, UmemReg};
use std::os::fd::BorrowedFd;

/// Registered memory.
#[repr(C)]
struct UmemObject {
    c: mlx5dv_devx_umem,
    context: *mut ibv_context,
    handle: u32,
    /// Keeps its memory from forked children, where needed.
    _from_children: Option<Kept>,
    /// Keeps the context, which may be closed before the memory is deregistered.
    _kept: Context,
}

unsafe fn register(context: *mut ibv_context, what: &UmemReg<'_>) -> Verb<*mut mlx5dv_devx_umem> {
    let kept = match what.dmabuf {
        None => Some(Kept::new(what.addr as usize, what.len as usize)?),
        Some(_) => None,
    };
    // SAFETY: the callers of `umem_reg` and `umem_reg_ex` promise that `context` is open.
    let this = unsafe { ContextObject::of(context) };
    // SAFETY: the callers of `umem_reg` and `umem_reg_ex` promise that the device may access the
    // memory until it is deregistered.
    let umem = unsafe { command::umem_reg(this.file(), what) }?;
    let c = mlx5dv_devx_umem { umem_id: umem.id };
    let handle = umem.handle;
    Ok(boxed(UmemObject { c, context, handle, _from_children: kept, _kept: this.kept() }))
}

/// `mlx5dv_devx_umem_reg`.
///
/// # Safety
/// `context` is open. Until the memory is deregistered, the device accesses it as `access` says.
pub unsafe extern "C" fn umem_reg(
    context: *mut ibv_context,
    addr: *mut c_void,
    size: usize,
    access: u32,
) -> *mut mlx5dv_devx_umem {
    /// All page sizes from the adapter's own upwards.
    const ALL: u64 = !0xfff;
    let what = UmemReg {
        addr: addr.expose_provenance() as u64,
        len: size as u64,
        access: AccessFlags::from_bits_retain(access),
        page_sizes: PageSizes::Preferred(ALL),
        dmabuf: None,
    };
    // SAFETY: the caller promises that `context` is open, and that the device may access the memory
    // as `access` says.
    object(unsafe { register(context, &what) })
}

unsafe fn register_ex(
    context: *mut ibv_context,
    input: *const mlx5dv_devx_umem_in,
) -> Verb<*mut mlx5dv_devx_umem> {
    // SAFETY: the caller of `umem_reg_ex` promises that `input` is readable as far as its mask
    // says. The `dmabuf_fd` of newer headers is read only if the mask has it.
    unsafe {
        let mask = (*input).comp_mask;
        if mask & !u64::from(MLX5DV_UMEM_MASK_DMABUF) != 0 {
            return Err(Refusal::NOT_SUPPORTED);
        }
        let dmabuf = if mask & u64::from(MLX5DV_UMEM_MASK_DMABUF) != 0 {
            let fd = (*input).dmabuf_fd;
            if fd < 0 {
                return Err(Refusal(libc::EBADF));
            }
            Some(BorrowedFd::borrow_raw(fd))
        } else {
            None
        };
        let what = UmemReg {
            addr: (*input).addr.expose_provenance() as u64,
            len: (*input).size as u64,
            access: AccessFlags::from_bits_retain((*input).access),
            page_sizes: PageSizes::Only((*input).pgsz_bitmap),
            dmabuf,
        };
        register(context, &what)
    }
}

/// `mlx5dv_devx_umem_reg_ex`.
///
/// # Safety
/// As for [`umem_reg`]; `input` is readable as far as its mask says.
pub unsafe extern "C" fn umem_reg_ex(
    context: *mut ibv_context,
    input: *mut mlx5dv_devx_umem_in,
) -> *mut mlx5dv_devx_umem {
    // SAFETY: the caller promises that `context` is open and that `input` is readable as far as its
    // mask says.
    object(unsafe { register_ex(context, input) })
}

/// `mlx5dv_devx_umem_dereg`. If it is refused, the memory stays registered.
///
/// # Safety
/// `umem` was not deregistered. If the call succeeds, it is used no more.
pub unsafe extern "C" fn umem_dereg(umem: *mut mlx5dv_devx_umem) -> c_int {
    let this: *mut UmemObject = umem.cast();
    // SAFETY: the caller promises that `umem` was not deregistered, and no longer uses it if the
    // call succeeds; `register` boxed it.
    unsafe {
        let file = ContextObject::of((*this).context).file();
        let done = command::umem_dereg(file, (*this).handle);
        if done.is_ok() {
            drop(Box::from_raw(this));
            close::again();
        }
        status(done.map_err(Into::into))
    }
}
