//! Files of sysfs, which programs and librdmacm read through this library.

use crate::abi::*;
use crate::refusal::{Refusal, Verb, number};
use core::ffi::CStr;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::{env, io};

/// Maximum length of a path from the environment, as in C.
const LONGEST: usize = 256;

/// The folder of sysfs: `/sys`, or the environment's for a program that runs with its user's
/// rights.
fn path() -> &'static CStr {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| {
        // SAFETY: both calls only return a number.
        let own = unsafe { libc::getuid() == libc::geteuid() };
        let named = env::var_os("SYSFS_PATH").filter(|_| own);
        let path = named.as_deref().map_or(&b"/sys"[..], OsStr::as_bytes);
        let path = &path[..path.len().min(LONGEST)];
        let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
        CString::new(&path[..end]).unwrap_or_default()
    })
}

/// `ibv_get_sysfs_path`.
pub extern "C" fn get_sysfs_path() -> *const c_char {
    path().as_ptr()
}

/// Reads a file into a text that ends with a zero, without a line break at its end. Returns the
/// length of the text.
///
/// # Safety
/// `text` is writable for `size` bytes.
unsafe fn read(path: &Path, text: *mut u8, size: usize) -> Verb<c_int> {
    let errno = |error: io::Error| Refusal(error.raw_os_error().unwrap_or(libc::EIO));
    let file = File::open(path).map_err(errno)?;
    // SAFETY: the caller promises that `text` is writable for `size` bytes.
    let length = unsafe { libc::read(file.as_raw_fd(), text.cast(), size) };
    let Ok(length) = usize::try_from(length) else { return Err(errno(io::Error::last_os_error())) };
    if length == 0 {
        return Ok(0);
    }
    // SAFETY: `length - 1` is within the bytes that were read; `length` is not 0 here.
    let broken = unsafe { *text.add(length - 1) } == b'\n';
    let end = if broken { length - 1 } else { length };
    if end == size {
        return Err(Refusal(libc::ENOSPC));
    }
    // SAFETY: `end` is below `size`, checked above.
    unsafe { *text.add(end) = 0 };
    Ok(end as c_int)
}

/// `ibv_read_sysfs_file`: the length of the text, without the line break at its end; 0 for an empty
/// file, of which nothing is written; −1 if the file cannot be read or its text does not fit.
///
/// # Safety
/// `folder` and `file` are texts, `text` is writable for `size` bytes.
pub unsafe extern "C" fn read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    text: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller promises that `folder` and `file` are texts.
    let (folder, file) = unsafe { (CStr::from_ptr(folder), CStr::from_ptr(file)) };
    let path = [folder.to_bytes(), file.to_bytes()].join(&b'/');
    // SAFETY: the caller promises that `text` is writable for `size` bytes.
    number(unsafe { read(Path::new(OsStr::from_bytes(&path)), text.cast(), size) })
}
