//! Memory on the device.

use crate::abi::*;
use crate::context::ContextObject;
use crate::mr::{MrObject, Of};
use crate::object::{boxed, destroy};
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::{Access, DeviceMemory};
use std::mem::ManuallyDrop;
use std::ptr;

/// Memory on the device.
#[repr(C)]
pub(crate) struct DmObject {
    c: ibv_dm,
    memory: ManuallyDrop<DeviceMemory>,
}

impl DmObject {
    /// # Safety
    /// `dm` was not freed.
    pub(crate) unsafe fn of<'a>(dm: *mut ibv_dm) -> &'a Self {
        // SAFETY: the caller promises that `dm` was not freed: it is the first field of an object
        // of this type.
        unsafe { &*dm.cast() }
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Checks the range of a copy. A range outside of the memory is EFAULT, as in C.
    fn check(&self, offset: u64, length: usize) -> Verb<usize> {
        let offset = usize::try_from(offset).map_err(|_| Refusal(libc::EFAULT))?;
        let end = offset.checked_add(length).ok_or(Refusal(libc::EFAULT))?;
        if end > self.memory.len() { Err(Refusal(libc::EFAULT)) } else { Ok(offset) }
    }
}

fn alloc(context: *mut ibv_context, attr: &ibv_alloc_dm_attr) -> Verb<*mut ibv_dm> {
    if attr.comp_mask != 0 {
        return Err(Refusal::NOT_SUPPORTED);
    }
    // SAFETY: the caller of `alloc_dm` promises that `context` is open and that `attr` is readable.
    let this = unsafe { ContextObject::of(context) };
    Ok(make(context, this.context.alloc_dm(attr.length, attr.log_align_req)?))
}

/// Makes the object of a memory.
pub(crate) fn make(context: *mut ibv_context, memory: DeviceMemory) -> *mut ibv_dm {
    let c = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: IBV_DM_MASK_HANDLE,
        handle: memory.kernel_handle(),
    };
    boxed(DmObject { c, memory: ManuallyDrop::new(memory) })
}

/// Frees the object of imported memory, and leaves the memory to its owner.
///
/// # Safety
/// `dm` is from [`make`], and used no more.
pub(crate) unsafe fn forget(dm: *mut ibv_dm) {
    // SAFETY: the caller promises that `dm` is from `make`, and used no more.
    let mut this = unsafe { Box::<DmObject>::from_raw(dm.cast()) };
    // SAFETY: the caller promises that the object is used no more.
    unsafe { ManuallyDrop::drop(&mut this.memory) };
}

/// The operation of `ibv_alloc_dm`.
///
/// # Safety
/// `context` is open, `attr` is readable.
pub unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: the caller promises that `context` is open and that `attr` is readable.
    object(alloc(context, unsafe { &*attr }))
}

/// The operation of `ibv_free_dm`.
///
/// # Safety
/// `dm` was not freed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    let this: *mut DmObject = dm.cast();
    // SAFETY: the caller promises that `dm` was not freed, and no longer uses it if the call
    // succeeds.
    status(unsafe { destroy(this, &raw mut (*this).memory, DeviceMemory::free) })
}

/// The operation of `ibv_reg_dm_mr`.
///
/// # Safety
/// `pd` and `dm` exist.
pub unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the caller promises that `pd` and `dm` exist.
    let (domain, this) = unsafe { (&PdObject::of(pd).domain, DmObject::of(dm)) };
    let register = || {
        let start = usize::try_from(dm_offset).map_err(|_| Refusal::INVALID)?;
        let end = start.checked_add(length).ok_or(Refusal::INVALID)?;
        let access = Access::from_bits_retain(access);
        Ok(domain.reg_dm_mr(&this.memory, start..end, access)?)
    };
    object(
        register()
            .map(|region| MrObject::make(pd, ptr::null_mut(), length, region, None, Of::ZeroBased)),
    )
}

/// The implementation of `ibv_memcpy_to_dm`.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the caller of `ibv_memcpy_to_dm` passes memory that was not freed.
    let this = unsafe { DmObject::of(dm) };
    status(this.check(dm_offset, length).and_then(|offset| {
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the caller of `ibv_memcpy_to_dm` passes `length` readable bytes at `host_addr`;
        // `length` is not 0 here.
        let bytes = unsafe { std::slice::from_raw_parts(host_addr.cast(), length) };
        Ok(this.memory.write_at(offset, bytes)?)
    }))
}

/// The implementation of `ibv_memcpy_from_dm`.
unsafe extern "C" fn memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the caller of `ibv_memcpy_from_dm` passes memory that was not freed.
    let this = unsafe { DmObject::of(dm) };
    status(this.check(dm_offset, length).and_then(|offset| {
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the caller of `ibv_memcpy_from_dm` passes `length` writable bytes at `host_addr`;
        // `length` is not 0 here.
        let bytes = unsafe { std::slice::from_raw_parts_mut(host_addr.cast(), length) };
        Ok(this.memory.read_at(offset, bytes)?)
    }))
}
