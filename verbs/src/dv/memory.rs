//! Memory on the device, by type.

use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::dm;
use crate::refusal::{Refusal, object};
use mlx5_uapi::mlx5::DmType;

/// `mlx5dv_alloc_dm`: allocates memory for data; memory for steering has another type.
///
/// # Safety
/// `context` is open, the attributes are readable.
pub unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
    dv: *mut mlx5dv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: the caller promises that the attributes are readable.
    let mlx5dv_alloc_dm_attr { r#type, comp_mask } = unsafe { *dv };
    if comp_mask != 0 {
        return object(Err(Refusal::INVALID));
    }
    if r#type != DmType::Memic.raw().into() {
        return object(Err(Refusal::NOT_SUPPORTED));
    }
    // SAFETY: the caller promises that `context` is open and that the attributes are readable.
    unsafe { dm::alloc_dm(context, attr) }
}
