//! Memory keys that requests configure, of libmlx5.

use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::object::{boxed, destroy};
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::mkey::{MAX_MKEY_ENTRIES, Mkey, SignatureErrorKind};
use mlx5_uapi::mlx5::UcontextRespMask;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A memory key.
#[repr(C)]
pub(crate) struct MkeyObject {
    c: mlx5dv_mkey,
    key: ManuallyDrop<Mkey>,
    /// An error that C cannot express was found, and the key was not configured since.
    unreported: AtomicBool,
}

impl MkeyObject {
    /// # Safety
    /// `mkey` was not destroyed.
    unsafe fn of<'a>(mkey: *mut mlx5dv_mkey) -> &'a Self {
        // SAFETY: the caller promises that `mkey` was not destroyed: it is the first field of an
        // object of this type.
        unsafe { &*mkey.cast() }
    }

    /// Returns the key, and the lowest byte that the program wants for it: it sets this in the
    /// structure.
    ///
    /// # Safety
    /// `mkey` was not destroyed.
    pub(crate) unsafe fn key<'a>(mkey: *mut mlx5dv_mkey) -> (&'a Mkey, u8) {
        // SAFETY: the caller promises that `mkey` was not destroyed.
        unsafe { (&Self::of(mkey).key, (*mkey).lkey as u8) }
    }

    /// The key is configured again: unreported errors of its earlier transfers no longer matter.
    ///
    /// # Safety
    /// `mkey` was not destroyed.
    pub(crate) unsafe fn clear_unreported(mkey: *mut mlx5dv_mkey) {
        // SAFETY: the caller promises that `mkey` was not destroyed.
        let unreported = unsafe { &Self::of(mkey).unreported };
        if unreported.load(Relaxed) {
            unreported.store(false, Relaxed);
        }
    }
}

fn create(init: &mut mlx5dv_mkey_init_attr) -> Verb<*mut mlx5dv_mkey> {
    const KNOWN: u32 = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT
        | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE
        | MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG
        | MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE;
    // SAFETY: the caller of `create_mkey` promises that `init` is readable, its number of entries
    // is writable, and its domain exists.
    let (context, pd) = unsafe { (PdObject::context(init.pd), PdObject::of(init.pd)) };
    let mask = UcontextRespMask::from_bits_retain(context.context.driver_limits().comp_mask);
    let updates = mask.contains(UcontextRespMask::MKEY_UPDATE_TAG);
    let has = |flag: u32| init.create_flags & flag != 0;
    if init.create_flags == 0
        || init.create_flags & !KNOWN != 0
        || has(MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG) && !updates
    {
        return Err(Refusal::NOT_SUPPORTED);
    }
    let entries = u32::from(init.max_entries).next_multiple_of(4);
    // A request configures at most this many entries; a caller that asks for more gets a key with
    // room for them.
    let configured = entries.clamp(4, MAX_MKEY_ENTRIES as u32);
    let mut builder = pd.domain.create_mkey(configured).room(entries);
    if has(MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE) {
        builder = builder.block_signature();
    }
    if has(MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE) {
        builder = builder.remote_invalidate();
    }
    if updates {
        builder = builder.update_tag();
    }
    let key = builder.build()?;
    init.max_entries = entries as u16;
    let c = mlx5dv_mkey { lkey: key.lkey(), rkey: key.rkey() };
    let unreported = AtomicBool::new(false);
    Ok(boxed(MkeyObject { c, key: ManuallyDrop::new(key), unreported }))
}

/// `mlx5dv_create_mkey`.
///
/// # Safety
/// `init` is readable, its number of entries is writable, and its domain exists.
pub unsafe extern "C" fn create_mkey(init: *mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey {
    // SAFETY: the caller promises that `init` is readable, its number of entries is writable, and
    // its domain exists.
    object(create(unsafe { &mut *init }))
}

/// `mlx5dv_destroy_mkey`.
///
/// # Safety
/// `mkey` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int {
    let this: *mut MkeyObject = mkey.cast();
    // SAFETY: the caller promises that `mkey` was not destroyed, and no longer uses it if the call
    // succeeds.
    status(unsafe { destroy(this, &raw mut (*this).key, Mkey::destroy) })
}

fn check(MkeyObject { key, unreported, .. }: &MkeyObject) -> Verb<mlx5dv_mkey_err> {
    if unreported.load(Relaxed) {
        return Err(Refusal::INVALID);
    }
    let blank = mlx5dv_sig_err { actual_value: 0, expected_value: 0, offset: 0 };
    let Some(error) = key.check()? else {
        let err = mlx5dv_mkey_err_err { sig: blank };
        return Ok(mlx5dv_mkey_err { err_type: MLX5DV_MKEY_NO_ERR, err });
    };
    let err_type = match error.kind {
        SignatureErrorKind::Guard => MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD,
        SignatureErrorKind::ReferenceTag => MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG,
        SignatureErrorKind::ApplicationTag => MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG,
        // C cannot express an unchecked transfer, or an unknown part. As in C, the call then fails
        // until the key is configured: the data must not look good.
        _ => {
            unreported.store(true, Relaxed);
            return Err(Refusal::INVALID);
        }
    };
    let sig = mlx5dv_sig_err {
        actual_value: error.actual,
        expected_value: error.expected,
        offset: error.offset,
    };
    Ok(mlx5dv_mkey_err { err_type, err: mlx5dv_mkey_err_err { sig } })
}

/// `_mlx5dv_mkey_check`: returns an error that no earlier call returned. Without one, only its type
/// is written.
///
/// # Safety
/// `mkey` was not destroyed, `info` is writable for `size` bytes.
pub unsafe extern "C" fn mkey_check(
    mkey: *mut mlx5dv_mkey,
    info: *mut mlx5dv_mkey_err,
    size: usize,
) -> c_int {
    // SAFETY: the caller promises that `mkey` was not destroyed.
    let found = check(unsafe { MkeyObject::of(mkey) });
    status(found.map(|found| {
        let written = match found.err_type {
            MLX5DV_MKEY_NO_ERR => size_of_val(&found.err_type),
            _ => size_of_val(&found),
        };
        // SAFETY: the caller promises that `info` is writable for `size` bytes.
        unsafe {
            let from = std::ptr::from_ref(&found).cast::<u8>();
            info.cast::<u8>().copy_from_nonoverlapping(from, written.min(size));
        }
    }))
}
