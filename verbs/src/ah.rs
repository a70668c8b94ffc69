//! Address handles.

use crate::abi::*;
use crate::context::ContextObject;
use crate::object::{boxed, destroy};
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, status, zero_or_minus_one};
use mlx5::{AddressHandle, AddressVector, AhAttr, Gid, GlobalRoute, Received};
use std::mem::ManuallyDrop;

/// An address handle.
#[repr(C)]
pub(crate) struct AhObject {
    c: ibv_ah,
    pub(crate) vector: AddressVector,
    /// On Ethernet, where the kernel has an object for it. On InfiniBand it is only the address
    /// vector, as in C: its protection domain may be deallocated before it.
    handle: Option<ManuallyDrop<AddressHandle>>,
}

impl AhObject {
    /// # Safety
    /// `ah` is an address handle that was not destroyed.
    pub(crate) unsafe fn of<'a>(ah: *mut ibv_ah) -> &'a Self {
        // SAFETY: the caller promises that `ah` is an address handle that was not destroyed: it is
        // the first field of an object of this type.
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
        src_path_bits: attr.src_path_bits & 0x7f,
        static_rate: attr.static_rate,
        grh: (attr.is_global != 0).then(|| GlobalRoute {
            // SAFETY: both members of the union are bytes.
            dgid: Gid::from_bytes(unsafe { grh.dgid.raw }),
            // C, too, drops bits that the header has no room for.
            flow_label: grh.flow_label & 0xf_ffff,
            sgid_index: grh.sgid_index,
            hop_limit: grh.hop_limit,
            traffic_class: grh.traffic_class,
        }),
    }
}

fn create(pd: *mut ibv_pd, attr: &ibv_ah_attr) -> Verb<*mut ibv_ah> {
    // SAFETY: the caller of `create_ah` promises that `pd` exists and that `attr` is readable.
    let (context, domain) = unsafe { ((*pd).context, &PdObject::of(pd).domain) };
    if attr.port_num == 0 {
        return Err(Refusal::INVALID);
    }
    let handle = domain.create_ah_raw(&path(attr))?;
    let (vector, of_kernel) = (*handle.vector(), handle.kernel_handle());
    let c = ibv_ah { context, pd, handle: of_kernel.unwrap_or(0) };
    let handle = of_kernel.map(|_| ManuallyDrop::new(handle));
    Ok(boxed(AhObject { c, vector, handle }))
}

/// `ibv_create_ah`.
///
/// # Safety
/// `pd` exists, `attr` is readable.
pub unsafe extern "C" fn create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the caller promises that `pd` exists and that `attr` is readable.
    object(create(pd, unsafe { &*attr }))
}

/// `ibv_destroy_ah`.
///
/// # Safety
/// `ah` was not destroyed. It is used no more.
pub unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    let this: *mut AhObject = ah.cast();
    // SAFETY: the caller promises that `ah` was not destroyed and is used no more, so no other code
    // uses the object.
    status(unsafe {
        match &mut (*this).handle {
            Some(handle) => destroy(this, handle, AddressHandle::destroy),
            None => {
                drop(Box::from_raw(this));
                Ok(())
            }
        }
    })
}

/// C's attributes of a path.
pub(crate) fn attributes(path: &AhAttr) -> ibv_ah_attr {
    let grh = path.grh.as_ref();
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: grh.map_or([0; 16], |grh| grh.dgid.to_bytes()) },
            flow_label: grh.map_or(0, |grh| grh.flow_label),
            sgid_index: grh.map_or(0, |grh| grh.sgid_index),
            hop_limit: grh.map_or(0, |grh| grh.hop_limit),
            traffic_class: grh.map_or(0, |grh| grh.traffic_class),
        },
        dlid: path.dlid,
        sl: path.sl,
        src_path_bits: path.src_path_bits,
        static_rate: path.static_rate,
        is_global: grh.is_some().into(),
        port_num: path.port_num,
    }
}

/// The path back to the sender of a datagram.
///
/// # Safety
/// `wc` is readable, and so is `grh` if the completion has one.
unsafe fn to_sender(
    context: &ContextObject,
    port_num: u8,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
) -> Verb<AhAttr> {
    // SAFETY: the caller promises that `wc` is readable, and so is `grh` if the completion has one;
    // a GRH has 40 bytes.
    let (wc, grh) = unsafe {
        let has_grh = (*wc).wc_flags & IBV_WC_GRH != 0;
        (&*wc, has_grh.then(|| &*grh.cast::<[u8; 40]>()))
    };
    // As in C, the GRH must have the version of IPv6 or IPv4.
    if grh.is_some_and(|grh| grh[0] >> 4 != 6 && grh[20] >> 4 != 4) {
        return Err(Refusal(libc::EPROTONOSUPPORT));
    }
    let received = Received { slid: wc.slid, sl: wc.sl, dlid_path_bits: wc.dlid_path_bits, grh };
    Ok(AhAttr::to_sender(&context.context, port_num, &received)?)
}

/// `ibv_init_ah_from_wc`.
///
/// # Safety
/// `context` is open; `wc` is readable, and so is `grh` if the completion has one; `attr` is
/// writable.
pub unsafe extern "C" fn init_ah_from_wc(
    context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the caller promises that `context` is open, that `wc` is readable, and that `grh` is
    // readable if the completion has one.
    let found = unsafe { to_sender(ContextObject::of(context), port_num, wc, grh) };
    // SAFETY: the caller promises that `attr` is writable.
    zero_or_minus_one(found.map(|path| unsafe { attr.write(attributes(&path)) }))
}

/// `ibv_create_ah_from_wc`.
///
/// # Safety
/// `pd` exists; `wc` is readable, and so is `grh` if the completion has one.
pub unsafe extern "C" fn create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    // SAFETY: the caller promises that `pd` exists and that `wc` is readable, and so is `grh` if
    // the completion has one.
    let found = unsafe { to_sender(PdObject::context(pd), port_num, wc, grh) };
    object(found.and_then(|path| create(pd, &attributes(&path))))
}
