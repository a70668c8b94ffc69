//! Address handles.

use crate::abi::*;
use crate::object::{boxed, destroy};
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::{AddressHandle, AhAttr, Gid, GlobalRoute};
use std::mem::ManuallyDrop;

/// An address handle.
#[repr(C)]
pub(crate) struct AhObject {
    c: ibv_ah,
    pub(crate) handle: ManuallyDrop<AddressHandle>,
}

impl AhObject {
    /// # Safety
    /// `ah` is an address handle that was not destroyed.
    pub(crate) unsafe fn of<'a>(ah: *mut ibv_ah) -> &'a Self {
        // SAFETY: by the contract, it is the first field of an object of this type.
        unsafe { &*ah.cast() }
    }
}

/// The path that C's attributes describe.
pub(crate) fn path(attr: &ibv_ah_attr) -> AhAttr {
    let grh = &attr.grh;
    AhAttr {
        port_num: attr.port_num,
        dlid: attr.dlid,
        sl: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        grh: (attr.is_global != 0).then(|| GlobalRoute {
            // SAFETY: both members of the union are bytes.
            dgid: Gid::from_bytes(unsafe { grh.dgid.raw }),
            flow_label: grh.flow_label,
            sgid_index: grh.sgid_index,
            hop_limit: grh.hop_limit,
            traffic_class: grh.traffic_class,
        }),
    }
}

fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Verb<*mut ibv_ah> {
    // SAFETY: by the contract of `create_ah`.
    let (context, domain) = unsafe { ((*pd).context, &PdObject::of(pd).domain) };
    if attr.port_num == 0 {
        return Err(Refusal::INVALID);
    }
    let handle = domain.create_ah(&path(attr))?;
    let c = ibv_ah { context, pd, handle: handle.kernel_handle().unwrap_or(0) };
    Ok(boxed(AhObject { c, handle: ManuallyDrop::new(handle) }))
}

/// `ibv_create_ah`.
///
/// # Safety
/// `pd` exists, `attr` is readable.
pub unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: by the contract.
    object(create(pd, unsafe { &*attr }))
}

/// `ibv_destroy_ah`.
///
/// # Safety
/// `ah` was not destroyed. It is used no more.
pub unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    let this: *mut AhObject = ah.cast();
    // SAFETY: by the contract.
    status(unsafe { destroy(this, &raw mut (*this).handle, AddressHandle::destroy) })
}
