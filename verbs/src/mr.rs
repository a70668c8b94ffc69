//! Memory regions.

use crate::abi::*;
use crate::fork::Kept;
use crate::object::{boxed, destroy};
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, set_errno, status};
use crate::request::entries;
use mlx5::{Access, MemoryRegion};
use mlx5_uapi::cmd::mr as command;
use mlx5_uapi::mlx5::UcontextRespMask;
use mlx5_uapi::verbs::{self, Advice};
use std::mem::ManuallyDrop;
use std::ptr;

/// A memory region.
#[repr(C)]
pub(crate) struct MrObject {
    pub(crate) c: ibv_mr,
    /// None for a null region.
    pub(crate) region: ManuallyDrop<Option<MemoryRegion>>,
    of: Of,
    /// Its memory, if that is kept from children; released with the object.
    kept: Option<Kept>,
}

/// The memory of a region, as far as windows are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Memory,
    /// Memory whose addresses count from zero.
    ZeroBased,
    /// A dma-buf, an imported region, or none: such a region cannot be changed.
    Other,
}

impl Of {
    fn access(access: Access) -> Self {
        if access.contains(Access::ZERO_BASED) { Self::ZeroBased } else { Self::Memory }
    }
}

impl MrObject {
    /// Whether a window may be bound to it.
    ///
    /// # Safety
    /// `mr` was not deregistered.
    pub(crate) unsafe fn check_bind(mr: *mut ibv_mr) -> Verb {
        // SAFETY: the caller promises that `mr` was not deregistered: it is the first field of an
        // object of this type.
        match unsafe { &*mr.cast::<Self>() }.of {
            Of::Memory => Ok(()),
            Of::ZeroBased => Err(Refusal::INVALID),
            Of::Other => Err(Refusal::NOT_SUPPORTED),
        }
    }

    pub(crate) fn make(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        region: MemoryRegion,
        kept: Option<Kept>,
        of: Of,
    ) -> *mut ibv_mr {
        // SAFETY: the callers of the verbs promise that `pd` exists.
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
        boxed(Self { c, region: ManuallyDrop::new(Some(region)), of, kept })
    }
}

unsafe fn reg(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Verb<*mut ibv_mr> {
    // Pages that are not pinned follow the process.
    let pinned = access & IBV_ACCESS_ON_DEMAND == 0;
    let kept = if pinned { Some(Kept::new(addr.addr(), length)?) } else { None };
    // SAFETY: the caller of the verb promises that the domain exists, and that the device may
    // access the memory as `access` says until the region is deregistered, as `reg_mr_raw`
    // requires.
    let region = unsafe {
        let domain = &PdObject::of(pd).domain;
        domain.reg_mr_raw(addr.cast(), length, iova, Access::from_bits_retain(access))?
    };
    let of = Of::access(Access::from_bits_retain(access));
    Ok(MrObject::make(pd, addr, length, region, kept, of))
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
    // SAFETY: the caller promises that `pd` exists, and that the device may access the memory as
    // `access` says.
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
    // SAFETY: the caller promises that `pd` exists, and that the device may access the memory as
    // `access` says.
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
    // SAFETY: the caller promises that `pd` exists, and that the device may access the memory as
    // `access` says. `reg_mr_raw` leaves out flags that the kernel does not know.
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
    // SAFETY: the caller promises that `pd` exists, and that the device may access the buffer as
    // `access` says. Programs pass an invalid descriptor to find out whether the kernel has
    // dma-bufs: one without them refuses the call before it reads the descriptor.
    let made =
        unsafe { PdObject::of(pd).domain.reg_dmabuf_mr_raw(fd, offset, length, iova, access) };
    // As in C, its address is the offset.
    let addr = ptr::without_provenance_mut(offset as usize);
    object(
        made.map(|region| MrObject::make(pd, addr, length, region, None, Of::Other))
            .map_err(Into::into),
    )
}

fn null(pd: *mut ibv_pd) -> Verb<*mut ibv_mr> {
    // SAFETY: the caller of `alloc_null_mr` promises that `pd` exists.
    let (context, of) = unsafe { ((*pd).context, PdObject::context(pd)) };
    let limits = of.context.driver_limits();
    let mask = UcontextRespMask::from_bits_retain(limits.comp_mask);
    if !mask.contains(UcontextRespMask::DUMP_FILL_MKEY) {
        return Err(Refusal::NOT_SUPPORTED);
    }
    let c = ibv_mr {
        context,
        pd,
        addr: ptr::null_mut(),
        length: usize::MAX,
        handle: 0,
        lkey: limits.dump_fill_mkey,
        rkey: 0,
    };
    Ok(boxed(MrObject { c, region: ManuallyDrop::new(None), of: Of::Other, kept: None }))
}

/// The operation of `ibv_alloc_null_mr`: writes to the region are dropped, and reads return zeros.
///
/// # Safety
/// `pd` exists.
pub unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    object(null(pd))
}

/// `ibv_dereg_mr`.
///
/// # Safety
/// `mr` was not deregistered. If the call succeeds, it is used no more.
pub unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    let this: *mut MrObject = mr.cast();
    // SAFETY: the caller promises that `mr` was not deregistered, and no longer uses it if the call
    // succeeds.
    status(unsafe {
        destroy(this, &raw mut (*this).region, |region| match region {
            Some(region) => region.deregister().map_err(|error| error.map(Some)),
            None => Ok(()),
        })
    })
}

/// `ibv_rereg_mr`: zero, or the step that failed.
///
/// # Safety
/// As for [`reg_mr`], of the new memory; `mr` was not deregistered. If the command failed, the
/// region can only be deregistered.
pub unsafe extern "C" fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let this: *mut MrObject = mr.cast();
    let has = |flag: c_uint| flags as c_uint & flag != 0;
    let moves = has(IBV_REREG_MR_CHANGE_TRANSLATION);
    // SAFETY: the caller promises that `mr` was not deregistered.
    let of = unsafe { (*this).of };
    // C's library refuses these, too. The kernel validates the rest.
    if of == Of::Other
        || flags as c_uint & !IBV_REREG_MR_FLAGS_SUPPORTED != 0
        || moves && (length == 0 || addr.is_null())
        || access != 0 && !has(IBV_REREG_MR_CHANGE_ACCESS)
        || has(IBV_REREG_MR_CHANGE_PD) && pd.is_null()
    {
        set_errno(libc::EINVAL);
        return IBV_REREG_MR_ERR_INPUT;
    }
    let kept = match moves.then(|| Kept::new(addr.addr(), length)).transpose() {
        Ok(kept) => kept,
        Err(refusal) => {
            set_errno(refusal.0);
            return IBV_REREG_MR_ERR_DONT_FORK_NEW;
        }
    };
    // SAFETY: the caller promises that `mr` was not deregistered, that its domain exists, and that
    // the device may access the new memory. The region is put back in every case.
    let refused = unsafe {
        let Some(region) = ManuallyDrop::take(&mut (*this).region) else {
            (*this).region = ManuallyDrop::new(None);
            set_errno(libc::EINVAL);
            return IBV_REREG_MR_ERR_INPUT;
        };
        let mut change = region.reregister().unchecked();
        if has(IBV_REREG_MR_CHANGE_PD) {
            change = change.pd(&PdObject::of(pd).domain);
        }
        if has(IBV_REREG_MR_CHANGE_ACCESS) {
            change = change.access(Access::from_bits_retain(access as c_uint));
        }
        if moves {
            change = change.foreign(addr.cast(), length);
        }
        let (region, refused) = match change.apply() {
            Ok(region) => (region, None),
            Err(error) => {
                let (region, error) = error.into_parts();
                (region, Some(Refusal::from(error)))
            }
        };
        let c = &mut (*this).c;
        (c.lkey, c.rkey) = (region.lkey(), region.rkey());
        (*this).region = ManuallyDrop::new(Some(region));
        refused
    };
    if let Some(refusal) = refused {
        set_errno(refusal.0);
        return IBV_REREG_MR_ERR_CMD;
    }
    // SAFETY: the caller promises that `mr` was not deregistered.
    let MrObject { c, kept: before, .. } = unsafe { &mut *this };
    if moves {
        *before = kept;
        (c.addr, c.length) = (addr, length);
    }
    if has(IBV_REREG_MR_CHANGE_PD) {
        c.pd = pd;
    }
    0
}

/// The operation of `ibv_advise_mr`.
///
/// # Safety
/// `pd` exists, `list` has `count` entries.
pub unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: c_uint,
    flags: u32,
    list: *mut ibv_sge,
    count: u32,
) -> c_int {
    let advise = || {
        let advice = Advice::from_raw(advice).ok_or(Refusal::NOT_SUPPORTED)?;
        // `IBV_ADVISE_MR_FLAG_FLUSH`.
        const FLUSH: u32 = 1 << 0;
        if flags & !FLUSH != 0 {
            return Err(Refusal::NOT_SUPPORTED);
        }
        let count = if list.is_null() { 0 } else { count as usize };
        // SAFETY: the caller promises that `pd` exists and that `list` has `count` entries.
        let (context, handle, list) =
            unsafe { (PdObject::context(pd), (*pd).handle, entries(list, count)) };
        let ranges: Vec<_> = list
            .iter()
            .map(|sge| verbs::Sge { addr: sge.addr, length: sge.length, lkey: sge.lkey })
            .collect();
        let flush = flags & FLUSH != 0;
        Ok(command::advise(context.file(), handle, advice, flush, &ranges)?)
    };
    status(advise())
}
