//! Closing devices. Objects that are left keep their context: they may be destroyed later, as programs do
//! that leave the order to a garbage collector, and a verb looks into the context of its object.

use crate::abi::*;
use crate::context::ContextObject;
use std::mem::{offset_of, take};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// A context that was closed with objects left. Verbs that destroy objects look into it, but not at what
/// changes here.
struct Left(*mut ContextObject);

// SAFETY: the pointer is used under the lock of the list alone.
unsafe impl Send for Left {}

/// Contexts that were closed with objects left.
static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

/// Whether there are such contexts: all verbs that destroy objects ask.
static ANY: AtomicBool = AtomicBool::new(false);

/// Closes the device and frees the context, unless objects are left. Whether it did.
///
/// # Safety
/// The context is from [`open`](crate::open), and by the contract of `close_device` no verb uses it but
/// those that destroy objects. If this succeeds, it is not used any more.
unsafe fn end(this: *mut ContextObject) -> bool {
    // SAFETY: by the contract.
    unsafe {
        // Pages that are mapped keep the device open.
        drop(take(&mut (*this).dv));
        // Those in use are objects that are left.
        let objects = Arc::clone(&(*this).objects);
        objects.channels.detach();
        let context = &mut (*this).context;
        let left = context.left();
        let ended = context.end(mlx5::Context::close);
        if left {
            // The child's own copies of descriptors that the parent's value has: it is never dropped here.
            libc::close((*this).verbs.context.cmd_fd);
            libc::close((*this).verbs.context.async_fd);
            // Objects of the parent may look into its context, which therefore stays.
            return true;
        }
        if ended {
            drop(Box::from_raw(this));
        }
        ended
    }
}

/// Closes the devices that were closed with objects left, of which none is left now.
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

/// While it lives, this thread is not cancelled (`pthread_cancel`): closing a descriptor is a place for that, and
/// nothing that the thread holds would be dropped.
struct Uncancelled(c_int);

impl Uncancelled {
    fn begin() -> Self {
        let mut before = 0;
        // SAFETY: the place is there for the call, which changes this thread alone.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        let mut before = 0;
        // SAFETY: as above.
        unsafe { pthread_setcancelstate(self.0, &raw mut before) };
    }
}

#[cold]
fn look_again() {
    let _uncancelled = Uncancelled::begin();
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the contexts were closed, and are in the list as long as they are there.
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
    // SAFETY: by the contract.
    if !unsafe { end(this) } {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.push(Left(this));
        ANY.store(true, Relaxed);
        drop(left);
        // The last object may have been destroyed before it was in the list.
        look_again();
    }
    0
}
