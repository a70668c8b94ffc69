//! Reports failures of verbs to their callers: errno, and NULL, the number itself, or −1.

use crate::abi::c_int;
use crate::log;
use mlx5::{Errno, Error, ErrorKind};
use std::ptr;

/// The errno of a refused call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal(pub(crate) c_int);

impl Refusal {
    pub(crate) const INVALID: Self = Self(libc::EINVAL);
    pub(crate) const NO_MEMORY: Self = Self(libc::ENOMEM);
    pub(crate) const NOT_SUPPORTED: Self = Self(libc::EOPNOTSUPP);
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self(errno as c_int)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Refusal {
    /// The kernel's number, or the one that C's provider uses for the same reason.
    fn from(error: &Error) -> Self {
        log::refused(error);
        if let Some(errno) = error.errno() {
            return errno.into();
        }
        Self(match error.kind() {
            ErrorKind::DeviceGone => libc::EIO,
            ErrorKind::OutOfMemory | ErrorKind::ResourceLimit => libc::ENOMEM,
            ErrorKind::Busy => libc::EBUSY,
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::AlreadyExists => libc::EEXIST,
            ErrorKind::PermissionDenied => libc::EPERM,
            ErrorKind::NotSupported | ErrorKind::NoDevx | ErrorKind::KernelTooOld => {
                libc::EOPNOTSUPP
            }
            _ => libc::EINVAL,
        })
    }
}

pub(crate) type Verb<T = ()> = Result<T, Refusal>;

/// Sets `errno` of this thread.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = number };
}

/// For a verb that returns an object: NULL and errno if it is refused.
pub(crate) fn object<T>(made: Verb<*mut T>) -> *mut T {
    made.unwrap_or_else(|refusal| {
        set_errno(refusal.0);
        ptr::null_mut()
    })
}

/// For a verb that returns zero, or the errno. Programs read either, so errno is set, too.
pub(crate) fn status(done: Verb) -> c_int {
    match done {
        Ok(()) => 0,
        Err(refusal) => {
            set_errno(refusal.0);
            refusal.0
        }
    }
}

/// For a verb that returns a number, or −1 and errno.
pub(crate) fn number(found: Verb<c_int>) -> c_int {
    found.unwrap_or_else(|refusal| {
        set_errno(refusal.0);
        -1
    })
}

/// For a verb that returns zero, or −1 and errno.
pub(crate) fn zero_or_minus_one(done: Verb) -> c_int {
    number(done.map(|()| 0))
}
