//! Sharing contexts and objects that exist already.

use crate::abi::*;
use crate::close;
use crate::context::ContextObject;
use crate::device::DeviceObject;
use crate::dm;
use crate::mr::{MrObject, Of};
use crate::object::boxed;
use crate::open;
use crate::pd::{PdObject, in_process};
use crate::refusal::{Refusal, Verb, object};
use mlx5_uapi::LinuxKernel;
use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

fn device(cmd_fd: c_int) -> Verb<*mut ibv_context> {
    if cmd_fd < 0 {
        return Err(Refusal::INVALID);
    }
    // SAFETY: the caller of `import_device` promises that `cmd_fd` is open, and used no more by
    // others.
    let number = LinuxKernel::node_number(unsafe { BorrowedFd::borrow_raw(cmd_fd) });
    let number = number.map_err(|_| Refusal::INVALID)?;
    let device = DeviceObject::with_number(number)?.ok_or(Refusal(libc::ENODEV))?;
    // SAFETY: the caller of `import_device` promises that `cmd_fd` is open and used no more by
    // others; from here on the context owns it, even if the import fails.
    open::import(device, LinuxKernel::adopt(unsafe { OwnedFd::from_raw_fd(cmd_fd) }))
}

/// `ibv_import_device`: takes the descriptor over, unless it is not that of a device.
///
/// # Safety
/// `cmd_fd` is open, and used no more by others.
pub unsafe extern "C" fn import_device(cmd_fd: c_int) -> *mut ibv_context {
    object(device(cmd_fd))
}

fn pd(context: *mut ibv_context, handle: u32) -> Verb<*mut ibv_pd> {
    // SAFETY: the caller of `import_pd` promises that `context` is open.
    let context_object = unsafe { ContextObject::of(context) };
    // SAFETY: the caller of `import_pd` promises that no code relies on exclusive use of the
    // domain's memory.
    let domain = unsafe { context_object.context.import_pd(handle) }?;
    let c = ibv_pd { context, handle };
    let domain = ManuallyDrop::new(in_process(context, domain));
    Ok(boxed(PdObject { c, domain, parent: None }))
}

/// `ibv_import_pd`.
///
/// # Safety
/// `context` is open. No code relies on exclusive use of the domain's memory.
pub unsafe extern "C" fn import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    object(pd(context, pd_handle))
}

/// `ibv_unimport_pd`.
///
/// # Safety
/// `pd` is from [`import_pd`]; nothing of it is used any more.
pub unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: the caller promises that `pd` is from `import_pd` and is used no more.
    let mut this = unsafe { Box::<PdObject>::from_raw(pd.cast()) };
    // SAFETY: the object is not used any more, so its domain is taken once.
    drop(unsafe { ManuallyDrop::take(&mut this.domain) }.into_inner());
    drop(this);
    close::again();
}

/// `ibv_import_mr`.
///
/// # Safety
/// `pd` exists. No code relies on exclusive use of the region's memory.
pub unsafe extern "C" fn import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
    // SAFETY: the caller promises that `pd` exists.
    let domain = unsafe { &PdObject::of(pd).domain };
    // SAFETY: the caller promises that no code relies on exclusive use of the region's memory; the
    // program decides which process deregisters the region.
    let found = unsafe { domain.import_mr(mr_handle) }.map_err(Into::into);
    object(found.map(|region| {
        let length = region.len();
        MrObject::make(pd, ptr::null_mut(), length, region, None, Of::Other)
    }))
}

/// `ibv_unimport_mr`.
///
/// # Safety
/// `mr` is from [`import_mr`], and used no more.
pub unsafe extern "C" fn unimport_mr(mr: *mut ibv_mr) {
    // SAFETY: the caller promises that `mr` is from `import_mr`, and used no more.
    let mut this = unsafe { Box::<MrObject>::from_raw(mr.cast()) };
    // SAFETY: the object is not used any more, so its region is dropped once.
    unsafe { ManuallyDrop::drop(&mut this.region) };
    drop(this);
    close::again();
}

/// `ibv_import_dm`.
///
/// # Safety
/// `context` is open.
pub unsafe extern "C" fn import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    // SAFETY: the caller promises that `context` is open.
    let found = unsafe { ContextObject::of(context) }.context.import_dm(dm_handle);
    object(found.map(|memory| dm::make(context, memory)).map_err(Into::into))
}

/// `ibv_unimport_dm`.
///
/// # Safety
/// `dm` is from [`import_dm`], and used no more.
pub unsafe extern "C" fn unimport_dm(dm: *mut ibv_dm) {
    // SAFETY: the caller promises that `dm` is from `import_dm`, and used no more.
    unsafe { dm::forget(dm) };
    close::again();
}
