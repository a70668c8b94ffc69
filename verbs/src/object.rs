//! Objects that C has pointers to: made, blank, destroyed.

use crate::abi::mlx5dv::mlx5dv_qp_ex;
use crate::abi::*;
use crate::close;
use crate::refusal::Verb;
use mlx5::DestroyError;
use std::mem::ManuallyDrop;

/// A pointer of C to a new object, which starts with C's structure.
pub(crate) fn boxed<T, C>(object: T) -> *mut C {
    Box::into_raw(Box::new(object)).cast()
}

/// Destroys what an object holds, and frees the object. If that is refused, the object keeps it.
///
/// # Safety
/// `object` is from [`boxed`], and `held` is its field, which has a value. If the call succeeds,
/// neither is used any more.
pub(crate) unsafe fn destroy<O, T>(
    object: *mut O,
    held: *mut ManuallyDrop<T>,
    destroy: impl FnOnce(T) -> Result<(), DestroyError<T>>,
) -> Verb {
    // SAFETY: by the contract. A value that comes back is put where it was.
    unsafe {
        match destroy(ManuallyDrop::take(&mut *held)) {
            Ok(()) => {
                drop(Box::from_raw(object));
                close::again();
                Ok(())
            }
            Err(error) => {
                let refusal = error.error().into();
                held.write(ManuallyDrop::new(error.into_inner()));
                Err(refusal)
            }
        }
    }
}

/// A C structure of numbers, pointers and functions that may be absent.
///
/// # Safety
/// Zeros are a valid value.
pub(crate) unsafe trait Blank: Sized {
    fn blank() -> Self {
        // SAFETY: the trait's contract.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! blank {
    ($($name:ident)*) => {
        $(
            // SAFETY: numbers, pointers, pthread's types and functions that may be absent.
            unsafe impl Blank for $name {}
        )*
    };
}

blank! {
    ibv_cq_ex ibv_qp_ex ibv_srq ibv_wq ibv_wc ibv_qp_attr ibv_qp_init_attr ibv_device_attr
    mlx5dv_qp_ex ibv_device_attr_ex ibv_port_attr ibv_dm ibv_send_wr verbs_context
}
