//! The process that makes a call: the addresses in the call are in its memory.
//!
//! Without one the caller is this process.

use std::cell::RefCell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_uapi::{Errno, page_size};
use nix::libc;
use nix::sys::mman::{MsFlags, msync};
use nix::sys::stat::{FileStat, fstat, stat};

use crate::processes::Process;

thread_local! {
    /// Never dropped, so that calls can be made as long as the thread runs: programs make some at
    /// exit. When a [`Current`] ends, the value before it returns, which at the end is `None`.
    static CURRENT: RefCell<ManuallyDrop<Option<Arc<Process>>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
}

/// While it lives, this thread's calls are those of a process.
pub(crate) struct Current {
    before: Option<Arc<Process>>,
}

impl Current {
    pub(crate) fn enter(process: Option<&Arc<Process>>) -> Self {
        let process = ManuallyDrop::new(process.cloned());
        Self { before: ManuallyDrop::into_inner(CURRENT.replace(process)) }
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        drop(ManuallyDrop::into_inner(CURRENT.replace(ManuallyDrop::new(self.before.take()))));
    }
}

fn with<T>(look: impl FnOnce(Option<&Process>) -> T) -> T {
    CURRENT.with_borrow(|process| look(process.as_deref()))
}

/// Copies bytes that the caller names.
///
/// # Safety
/// If the caller is this process, `length` bytes at `address` must be readable.
pub(crate) unsafe fn copy_from(address: u64, length: usize) -> Result<Vec<u8>, Errno> {
    with(|process| match process {
        Some(process) => {
            let mut bytes = vec![0; length];
            process.read(address, &mut bytes)?;
            Ok(bytes)
        }
        None if address == 0 => Err(Errno::EFAULT),
        None => {
            let from = address as usize as *const u8;
            // SAFETY: the caller is this process, and promises that `length` bytes at `address` are
            // readable.
            Ok(unsafe { std::slice::from_raw_parts(from, length) }.to_vec())
        }
    })
}

/// Copies bytes to a place that the caller names.
///
/// # Safety
/// If the caller is this process, the memory at `address` must be writable for `bytes.len()` bytes,
/// and nothing else may use it meanwhile.
pub(crate) unsafe fn copy_to(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    with(|process| match process {
        Some(process) => process.write(address, bytes),
        None if address == 0 => Err(Errno::EFAULT),
        None => {
            let to = address as usize as *mut u8;
            // SAFETY: the caller is this process, and promises that the memory is writable and not
            // in use.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
            Ok(())
        }
    })
}

/// The bus address of an address of the caller's.
pub(crate) fn bus(address: u64) -> u64 {
    with(|process| process.map_or(address, |process| process.bus(address)))
}

/// Whether every page of a range of the caller's memory is mapped.
pub(crate) fn is_mapped(start: u64, length: u64) -> bool {
    with(|process| match process {
        Some(process) => process.is_mapped(start, length),
        None => is_mapped_here(start, length),
    })
}

fn is_mapped_here(start: u64, length: u64) -> bool {
    let page = page_size() as u64;
    let first = start & !(page - 1);
    let Some(end) = start.checked_add(length).and_then(|end| end.checked_next_multiple_of(page))
    else {
        return false;
    };
    let Some(at) = NonNull::new(first as *mut c_void) else { return false };
    // SAFETY: without MS_SYNC or MS_INVALIDATE nothing is written or dropped; the kernel only says
    // whether the range is mapped.
    unsafe { msync(at, (end - first) as usize, MsFlags::MS_ASYNC) }.is_ok()
}

/// The status of the file behind one of the caller's descriptors.
pub(crate) fn file_status(fd: RawFd) -> Result<FileStat, Errno> {
    let pid = with(|process| process.map(Process::pid));
    let found = match pid {
        Some(pid) => stat(format!("/proc/{pid}/fd/{fd}").as_str()),
        // SAFETY: `fstat` only reads the descriptor's status, and fails if it is closed.
        None => fstat(unsafe { BorrowedFd::borrow_raw(fd) }),
    };
    found.map_err(|_| Errno::EBADF)
}

/// The eventfd behind a descriptor of the caller's, with a descriptor of its own.
pub(crate) fn event_fd(fd: RawFd) -> Result<OwnedFd, Errno> {
    let pid = with(|process| process.map(Process::pid));
    let owner = pid.map_or("self".to_owned(), |pid| pid.to_string());
    let leads_to =
        std::fs::read_link(format!("/proc/{owner}/fd/{fd}")).map_err(|_| Errno::EBADF)?;
    if leads_to.as_os_str() != "anon_inode:[eventfd]" {
        return Err(Errno::EINVAL);
    }
    if let Some(pid) = pid {
        return taken_from(pid, fd);
    }
    // SAFETY: the descriptor is only duplicated, which fails if it was closed meanwhile.
    let own = unsafe { BorrowedFd::borrow_raw(fd) };
    own.try_clone_to_owned().map_err(|_| Errno::EBADF)
}

/// A copy of another process's descriptor.
fn taken_from(pid: i32, fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: both system calls take numbers only; each returns an error or a new descriptor, which
    // has no other owner yet.
    unsafe {
        let process = Errno::result(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        let process = OwnedFd::from_raw_fd(process as RawFd);
        let process = process.as_fd().as_raw_fd();
        let copy = Errno::result(libc::syscall(libc::SYS_pidfd_getfd, process, fd, 0))?;
        Ok(OwnedFd::from_raw_fd(copy as RawFd))
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::eventfd::EventFd;

    use super::*;
    use crate::processes::Processes;

    #[test]
    fn only_eventfds_are_eventfds_of_this_process_and_of_others() {
        let eventfd = EventFd::new().expect("an eventfd");
        let file = std::fs::File::open("/dev/null").expect("a file");
        let this = Processes::default().add(std::process::id() as i32).expect("a number");
        for process in [None, Some(&this)] {
            let _current = Current::enter(process);
            let copy = event_fd(eventfd.as_fd().as_raw_fd()).expect("an eventfd");
            nix::unistd::write(&copy, &3_u64.to_ne_bytes()).expect("room");
            assert_eq!(eventfd.read(), Ok(3));
            assert_eq!(event_fd(file.as_raw_fd()).map(drop), Err(Errno::EINVAL));
            assert_eq!(event_fd(-1).map(drop), Err(Errno::EBADF));
            assert_eq!(event_fd(RawFd::MAX).map(drop), Err(Errno::EBADF));
        }
    }
}
