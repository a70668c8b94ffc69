//! Closing devices. Objects that still exist keep their context: a program may destroy them later,
//! as garbage-collected programs do, and a verb reads the context of its object.

use crate::abi::*;
use crate::context::ContextObject;
use std::mem::{offset_of, take};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A context that was closed with objects left. Verbs that destroy objects read it, but no field
/// that changes here.
struct Left(*mut ContextObject);

// SAFETY: the pointer is used only under the lock of the list.
unsafe impl Send for Left {}

/// Contexts that were closed with objects left.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

/// Whether such contexts exist: every verb that destroys an object checks this.
static ANY: AtomicBool = AtomicBool::new(false);

/// Closes the device and frees the context, unless objects are left. Returns whether it did.
///
/// # Safety
/// The context is from [`open`](crate::open), and the caller of `close_device` promises that only
/// verbs that destroy objects use it. If this succeeds, it is not used any more.
unsafe fn end(this: *mut ContextObject) -> bool {
    // SAFETY: the caller promises that the context is from `open`, that only verbs that destroy
    // objects use it, and that it is not used after success.
    unsafe {
        // Mapped pages keep the device open.
        drop(take(&mut (*this).dv));
        // Channels in use count as objects that are left.
        let objects = Arc::clone(&(*this).objects);
        objects.channels.detach();
        let context = &mut (*this).context;
        let left = context.left();
        let ended = context.end(mlx5::Context::close);
        if left {
            // These are the child's copies of the descriptors of the parent's value, which is never
            // dropped here.
            libc::close((*this).verbs.context.cmd_fd);
            libc::close((*this).verbs.context.async_fd);
            // Objects of the parent may read their context, which therefore stays.
            return true;
        }
        if ended {
            drop(Box::from_raw(this));
        }
        ended
    }
}

/// Closes the devices that were closed with objects left, if none is left now.
#[inline]
pub(crate) fn again() {
    if ANY.load(Relaxed) {
        look_again();
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

/// While it exists, this thread is not cancelled (`pthread_cancel`): closing a descriptor is a
/// cancellation point, and a cancelled thread drops nothing that it holds.
struct Uncancelled(c_int);

impl Uncancelled {
    fn begin() -> Self {
        let mut before = 0;
        // SAFETY: `before` is writable, and the call changes this thread only.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut before = 0;
        // SAFETY: `before` is writable, and the call changes this thread only.
        unsafe { pthread_setcancelstate(self.0, &raw mut before) };
    }
}

#[cold]
fn look_again() {
    let _uncancelled = Uncancelled::begin();
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the contexts were closed, and stay allocated while they are in the list.
    left.retain(|context| !unsafe { end(context.0) });
    ANY.store(!left.is_empty(), Relaxed);
}

/// `ibv_close_device`.
///
/// # Safety
/// `context` is open; nothing of it is used any more, but that objects may be destroyed.
pub unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    again();
    let this = context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast();
    // SAFETY: the caller promises that `context` is open, and that nothing of it is used any more,
    // except to destroy objects.
    if !unsafe { end(this) } {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.push(Left(this));
        ANY.store(true, Relaxed);
        drop(left);
        // The last object may have been destroyed before the context was in the list.
        look_again();
    }
    0
}
