//! Memory regions.

use crate::abi::*;
use crate::object::{boxed, destroy};
use crate::pd::PdObject;
use crate::refusal::{Verb, object, set_errno, status};
use mlx5::{Access, MemoryRegion};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr;

/// A memory region.
#[repr(C)]
pub(crate) struct MrObject {
    pub(crate) c: ibv_mr,
    pub(crate) region: ManuallyDrop<MemoryRegion>,
}

impl MrObject {
    fn make(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        region: MemoryRegion,
    ) -> *mut ibv_mr {
        // SAFETY: by the verbs' contract.
        let context = unsafe { (*pd).context };
        let c = ibv_mr {
            context,
            pd,
            addr,
            length,
            handle: region.kernel_handle(),
            lkey: region.lkey(),
            rkey: region.rkey(),
        };
        boxed(Self { c, region: ManuallyDrop::new(region) })
    }
}

unsafe fn reg(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Verb<*mut ibv_mr> {
    // SAFETY: by the verb's contract the domain exists. C's contract of registered memory is that
    // of `reg_mr_raw`.
    let region = unsafe {
        let domain = &PdObject::of(pd).domain;
        domain.reg_mr_raw(addr.cast(), length, iova, Access::from_bits_retain(access))?
    };
    Ok(MrObject::make(pd, addr, length, region))
}

/// `ibv_reg_mr`.
///
/// # Safety
/// `pd` exists. Until the region is deregistered, the device accesses the memory as `access` says.
pub unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by the contract.
    object(unsafe { reg(pd, addr, length, addr.expose_provenance() as u64, access as c_uint) })
}

/// `ibv_reg_mr_iova`.
///
/// # Safety
/// As for [`reg_mr`].
pub unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: by the contract.
    object(unsafe { reg(pd, addr, length, iova, access as c_uint) })
}

/// `ibv_reg_mr_iova2`: access flags that the kernel may not know are left out.
///
/// # Safety
/// As for [`reg_mr`].
pub unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: by the contract. `reg_mr_raw` leaves out what the kernel does not know.
    object(unsafe { reg(pd, addr, length, iova, access) })
}

/// `ibv_reg_dmabuf_mr`.
///
/// # Safety
/// As for [`reg_mr`], of the buffer.
pub unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let access = Access::from_bits_retain(access as c_uint);
    if fd < 0 {
        set_errno(libc::EBADF);
        return ptr::null_mut();
    }
    // SAFETY: by the contract.
    let made = unsafe {
        let fd = BorrowedFd::borrow_raw(fd);
        PdObject::of(pd).domain.reg_dmabuf_mr(fd, offset, length, iova, access)
    };
    object(
        made.map(|region| MrObject::make(pd, ptr::null_mut(), length, region)).map_err(Into::into),
    )
}

/// `ibv_dereg_mr`.
///
/// # Safety
/// `mr` was not deregistered. If the call succeeds, it is used no more.
pub unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    let this: *mut MrObject = mr.cast();
    // SAFETY: by the contract.
    status(unsafe { destroy(this, &raw mut (*this).region, MemoryRegion::deregister) })
}
