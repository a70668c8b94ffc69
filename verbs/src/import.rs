//! Taking part in contexts and objects that exist already.

use crate::abi::*;
use crate::context::ContextObject;
use crate::device::DeviceObject;
use crate::dm;
use crate::mr::MrObject;
use crate::object::boxed;
use crate::open;
use crate::pd::{PdObject, in_process};
use crate::refusal::{Refusal, Verb, object};
use mlx5_uapi::LinuxKernel;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr;

fn device(cmd_fd: c_int) -> Verb<*mut ibv_context> {
    if cmd_fd < 0 {
        return Err(Refusal(libc::EBADF));
    }
    // SAFETY: by the contract of `import_device`.
    let fd = unsafe { BorrowedFd::borrow_raw(cmd_fd) }.try_clone_to_owned();
    let fd = fd.map_err(|error| Refusal(error.raw_os_error().unwrap_or(libc::EBADF)))?;
    let number = LinuxKernel::node_number(&fd)?;
    let file = LinuxKernel::adopt(fd);
    let device = DeviceObject::with_number(number)?.ok_or(Refusal(libc::ENOENT))?;
    open::import(device, file)
}

/// `ibv_import_device`.
///
/// # Safety
/// `cmd_fd` is open.
pub unsafe extern "C" fn import_device(cmd_fd: c_int) -> *mut ibv_context {
    object(device(cmd_fd))
}

fn pd(context: *mut ibv_context, handle: u32) -> Verb<*mut ibv_pd> {
    // SAFETY: by the contract of `import_pd`.
    let domain = unsafe { ContextObject::of(context) }.context.import_pd(handle)?;
    let c = ibv_pd { context, handle };
    let domain = ManuallyDrop::new(in_process(context, domain));
    Ok(boxed(PdObject { c, domain, parent: None }))
}

/// `ibv_import_pd`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    object(pd(context, pd_handle))
}

/// `ibv_unimport_pd`.
///
/// # Safety
/// `pd` is from [`import_pd`]; nothing of it is used any more.
pub unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: by the contract.
    let mut this = unsafe { Box::<PdObject>::from_raw(pd.cast()) };
    // SAFETY: the object is not used any more.
    drop(unsafe { ManuallyDrop::take(&mut this.domain) }.into_inner());
}

/// `ibv_import_mr`.
///
/// # Safety
/// `pd` exists.
pub unsafe extern "C" fn import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
    // SAFETY: by the contract.
    let found = unsafe { PdObject::of(pd) }.domain.import_mr(mr_handle).map_err(Into::into);
    object(found.map(|region| {
        let length = region.len();
        MrObject::make(pd, ptr::null_mut(), length, region, None)
    }))
}

/// `ibv_unimport_mr`.
///
/// # Safety
/// `mr` is from [`import_mr`], and used no more.
pub unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: by the contract.
    let mut this = unsafe { Box::<MrObject>::from_raw(mr.cast()) };
    // SAFETY: the object is not used any more.
    unsafe { ManuallyDrop::drop(&mut this.region) };
}

/// `ibv_import_dm`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    // SAFETY: by the contract.
    let found = unsafe { ContextObject::of(context) }.context.import_dm(dm_handle);
    object(found.map(|memory| dm::make(context, memory)).map_err(Into::into))
}

/// `ibv_unimport_dm`.
///
/// # Safety
/// `dm` is from [`import_dm`], and used no more.
pub unsafe extern "C" fn unimport_dm(dm: *mut ibv_dm) {
    // SAFETY: by the contract.
    unsafe { dm::forget(dm) };
}
