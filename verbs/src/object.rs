//! Objects that C has pointers to: creating, zeroing and destroying them.

use crate::abi::mlx5dv::mlx5dv_qp_ex;
use crate::abi::*;
use crate::close;
use crate::environment;
use crate::refusal::{Refusal, Verb};
use mlx5::DestroyError;
use std::mem::ManuallyDrop;

/// A pointer of C to a new object, which starts with C's structure.
pub(crate) fn boxed<T, C>(object: T) -> *mut C {
    Box::into_raw(Box::new(object)).cast()
}

/// Converts the result of a destruction: if the device is gone and the program wants no error for
/// that, the object counts as destroyed.
pub(crate) fn ended(done: Verb) -> Verb {
    if is_gone(done) && environment::ends_with_device() { Ok(()) } else { done }
}

/// Whether an object was not destroyed because its device is gone.
fn is_gone(done: Verb) -> bool {
    done == Err(Refusal(libc::EIO))
}

/// The same for an object's inner value. If its device is gone, the value is dropped.
pub(crate) fn destroyed<T>(
    done: Result<(), DestroyError<T>>,
) -> Result<(), (Refusal, DestroyError<T>)> {
    let Err(error) = done else { return Ok(()) };
    ended(Err(error.error().into())).map_err(|refusal| (refusal, error))
}

/// Destroys an object's inner value, and frees the object. If that is refused, the object keeps the
/// value.
///
/// # Safety
/// `object` is from [`boxed`], and `held` is its field, which has a value. If the call succeeds,
/// neither is used any more.
pub(crate) unsafe fn destroy<O, T>(
    object: *mut O,
    held: *mut ManuallyDrop<T>,
    destroy: impl FnOnce(T) -> Result<(), DestroyError<T>>,
) -> Verb {
    // SAFETY: the caller promises that `object` is from `boxed`, and that `held` is its field and
    // has a value; neither is used after success. A value that is returned is put back.
    unsafe {
        match destroyed(destroy(ManuallyDrop::take(&mut *held))) {
            Ok(()) => {
                drop(Box::from_raw(object));
                close::again();
                Ok(())
            }
            Err((refusal, error)) => {
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
        // SAFETY: the implementor of the trait promises that zeros are a valid value.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! blank {
    ($($name:ident)*) => {
        $(
            // SAFETY: its fields are numbers, pointers, pthread's types and optional functions:
            // zeros are valid.
            unsafe impl Blank for $name {}
        )*
    };
}

blank! {
    ibv_cq_ex ibv_qp_ex ibv_srq ibv_wq ibv_wc ibv_qp_attr ibv_qp_init_attr ibv_device_attr
    mlx5dv_qp_ex ibv_device_attr_ex ibv_port_attr ibv_dm ibv_send_wr verbs_context
}
