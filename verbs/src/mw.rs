//! Memory windows.

use crate::abi::*;
use crate::object::{boxed, destroy};
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::window::{BindKeys, TypeOne, TypeTwo};
use mlx5::{BindParts, Binding, DestroyError, Error, MemoryWindow, WindowType};
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A window of either type.
enum Window {
    One(MemoryWindow<TypeOne>),
    Two(MemoryWindow<TypeTwo>),
}

impl Window {
    fn dealloc(self) -> Result<(), DestroyError<Self>> {
        match self {
            Self::One(window) => window.dealloc().map_err(|error| error.map(Self::One)),
            Self::Two(window) => window.dealloc().map_err(|error| error.map(Self::Two)),
        }
    }
}

/// A memory window.
#[repr(C)]
pub(crate) struct MwObject {
    c: ibv_mw,
    window: ManuallyDrop<Window>,
    /// The keys of `ibv_bind_mw`.
    pub(crate) keys: BindKeys,
    place: Arc<Place>,
}

/// The address of a window while it exists. Requests that bind it may outlive it.
struct Place(Mutex<*mut ibv_mw>);

// SAFETY: the pointer is used only with the lock held, and is NULL once the window is deallocated.
unsafe impl Send for Place {}
// SAFETY: the pointer is used only with the lock held, and is NULL once the window is deallocated.
unsafe impl Sync for Place {}

impl Place {
    fn lock(&self) -> MutexGuard<'_, *mut ibv_mw> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the key that programs read, when a bind was cancelled.
    fn set_key(&self, rkey: u32) {
        let window = self.lock();
        // SAFETY: it is NULL, or the window exists while the lock is held.
        if let Some(window) = unsafe { window.as_mut() } {
            window.rkey = rkey;
        }
    }
}

impl MwObject {
    /// # Safety
    /// `mw` was not deallocated.
    pub(crate) unsafe fn of<'a>(mw: *mut ibv_mw) -> &'a Self {
        // SAFETY: the caller promises that `mw` was not deallocated: it is the first field of an
        // object of this type.
        unsafe { &*mw.cast() }
    }
}

fn alloc(pd: *mut ibv_pd, kind: c_uint) -> Verb<*mut ibv_mw> {
    // SAFETY: the caller of `alloc_mw` promises that `pd` exists.
    let (context, domain) = unsafe { ((*pd).context, &PdObject::of(pd).domain) };
    let make = || -> Result<_, Error> {
        Ok(match kind {
            IBV_MW_TYPE_1 => {
                let window = domain.alloc_mw::<TypeOne>()?;
                Some((window.rkey(), window.kernel_handle(), Window::One(window)))
            }
            IBV_MW_TYPE_2 => {
                let window = domain.alloc_mw::<TypeTwo>()?;
                Some((window.rkey(), window.kernel_handle(), Window::Two(window)))
            }
            _ => None,
        })
    };
    let (rkey, handle, window) = make()?.ok_or(Refusal::INVALID)?;
    let c = ibv_mw { context, pd, rkey, handle, r#type: kind };
    let place = Arc::new(Place(Mutex::new(ptr::null_mut())));
    let keys = BindKeys::new(rkey, {
        let place = Arc::clone(&place);
        move |rkey| place.set_key(rkey)
    });
    let (window, place_of) = (ManuallyDrop::new(window), Arc::clone(&place));
    let made = boxed(MwObject { c, window, keys, place });
    *place_of.lock() = made;
    Ok(made)
}

/// The operation of `ibv_alloc_mw`.
///
/// # Safety
/// `pd` exists.
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw {
    object(alloc(pd, kind))
}

/// The operation of `ibv_dealloc_mw`.
///
/// # Safety
/// `mw` was not deallocated. If the call succeeds, it is used no more.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    let this: *mut MwObject = mw.cast();
    // SAFETY: the caller promises that `mw` was not deallocated, and no longer uses it if the call
    // succeeds.
    status(unsafe {
        let place = Arc::clone(&(*this).place);
        let mut place = place.lock();
        let done = destroy(this, &raw mut (*this).window, Window::dealloc);
        if done.is_ok() {
            *place = ptr::null_mut();
        }
        done
    })
}

/// The access rights of a window in the form of a memory key.
fn rights(access: c_uint) -> u8 {
    use mlx5_prm::umr::mkey_access;
    [
        (IBV_ACCESS_LOCAL_WRITE, mkey_access::LOCAL_WRITE),
        (IBV_ACCESS_REMOTE_READ, mkey_access::REMOTE_READ),
        (IBV_ACCESS_REMOTE_WRITE, mkey_access::REMOTE_WRITE),
        (IBV_ACCESS_REMOTE_ATOMIC, mkey_access::ATOMIC),
    ]
    .into_iter()
    .filter(|(right, _)| access & *right as c_uint != 0)
    .fold(0, |all, (_, bit)| all | bit)
}

/// Converts a request that binds a window.
///
/// # Safety
/// Window and region exist; the region may be NULL.
pub(crate) unsafe fn binding(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> Binding {
    // SAFETY: the caller promises that the window exists, and that the region exists or is NULL.
    // The device checks domain, range and rights of the region.
    unsafe {
        Binding::new(BindParts {
            window_type: match (*mw).r#type {
                IBV_MW_TYPE_1 => WindowType::One,
                _ => WindowType::Two,
            },
            window: (*mw).rkey,
            rkey,
            lkey: if info.mr.is_null() { 0 } else { (*info.mr).lkey },
            addr: info.addr,
            length: info.length,
            access: rights(info.mw_access_flags),
            zero_based: info.mw_access_flags & IBV_ACCESS_ZERO_BASED as c_uint != 0,
        })
    }
}
