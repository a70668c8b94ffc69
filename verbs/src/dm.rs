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
        // SAFETY: by the callers' contracts, it is the first field of an object of this type.
        unsafe { &*dm.cast() }
    }

    pub(crate) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// The numbers of a copy. What is outside of the memory is EFAULT, as in C.
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
    // SAFETY: by the contract of `alloc_dm`.
    let this = unsafe { ContextObject::of(context) };
    Ok(make(context, this.context.alloc_dm(attr.length, attr.log_align_req)?))
}

/// The object of memory.
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

/// Drops the object of memory that is another part's.
///
/// # Safety
/// `dm` is from [`make`], and used no more.
pub(crate) unsafe fn forget(dm: *mut ibv_dm) {
    // SAFETY: by the contract.
    let mut this = unsafe { Box::<DmObject>::from_raw(dm.cast()) };
    // SAFETY: the object is not used any more.
    unsafe { ManuallyDrop::drop(&mut this.memory) };
}

/// The operation behind `ibv_alloc_dm`.
///
/// # Safety
/// `context` is open, `attr` is readable.
pub unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: by the contract.
    object(alloc(context, unsafe { &*attr }))
}

/// The operation behind `ibv_free_dm`.
///
/// # Safety
/// `dm` was not freed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    let this: *mut DmObject = dm.cast();
    // SAFETY: by the contract.
    status(unsafe { destroy(this, &raw mut (*this).memory, DeviceMemory::free) })
}

/// The operation behind `ibv_reg_dm_mr`.
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
    // SAFETY: by the contract.
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

/// What `ibv_memcpy_to_dm` calls.
unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: C's contract: the memory exists.
    let this = unsafe { DmObject::of(dm) };
    status(this.check(dm_offset, length).and_then(|offset| {
        if length == 0 {
            return Ok(());
        }
        // SAFETY: C's contract: `host_addr` is readable for `length` bytes, of which there are some.
        let bytes = unsafe { std::slice::from_raw_parts(host_addr.cast(), length) };
        Ok(this.memory.write_at(offset, bytes)?)
    }))
}

/// What `ibv_memcpy_from_dm` calls.
unsafe extern "C" fn memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: C's contract: the memory exists.
    let this = unsafe { DmObject::of(dm) };
    status(this.check(dm_offset, length).and_then(|offset| {
        if length == 0 {
            return Ok(());
        }
        // SAFETY: C's contract: `host_addr` is writable for `length` bytes, of which there are some.
        let bytes = unsafe { std::slice::from_raw_parts_mut(host_addr.cast(), length) };
        Ok(this.memory.read_at(offset, bytes)?)
    }))
}
