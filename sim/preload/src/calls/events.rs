//! Event files.
//!
//! The program gets an epoll descriptor that watches the simulator's. It has flags of its own, is
//! readable when an event waits, and can be closed at any time.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::iovec;
use mlx5_uapi::{DeviceFile, Errno, EventFile};

use crate::descriptors::Entry;
use crate::door::Door;
use crate::inside::Inside;
use crate::next::{self, failed};

/// Takes over an event file of the simulated kernel, and returns the program's descriptor for it.
///
/// # Safety
/// As for [`DeviceFile::event_file`].
pub(crate) unsafe fn adopt(
    door: &Door,
    device: &dyn DeviceFile,
    number: RawFd,
) -> Result<RawFd, Errno> {
    // SAFETY: the caller promises that `number` is an event file that a call has just made.
    let file = unsafe { device.event_file(number) }?;
    let fd = std::os::fd::IntoRawFd::into_raw_fd(watch(file.as_fd())?);
    door.descriptors.add(fd, Entry::Events(file.into()));
    Ok(fd)
}

/// A descriptor for the program that watches one of the simulator's.
fn watch(watched: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: a call without pointers.
    let watch = Errno::result(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the descriptor was just made, and has no other owner.
    let watch = unsafe { OwnedFd::from_raw_fd(watch) };
    let mut wanted = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: both descriptors are open, and the structure is filled.
    let added = unsafe {
        let (watch, watched) = (watch.as_raw_fd(), watched.as_raw_fd());
        libc::epoll_ctl(watch, libc::EPOLL_CTL_ADD, watched, &raw mut wanted)
    };
    Errno::result(added)?;
    Ok(watch)
}

/// Replaces a descriptor that the program has just opened by one that watches one of the
/// simulator's; its flags stay.
///
/// # Safety
/// The descriptor is the caller's, and the program does not have it yet.
pub(crate) unsafe fn take_place(fd: RawFd, watched: BorrowedFd<'_>) -> Result<(), Errno> {
    let watch = watch(watched)?;
    // SAFETY: the descriptors are open; those of the program are the caller's.
    unsafe {
        let none = std::ptr::null_mut();
        let closing = next::fcntl(fd, libc::F_GETFD, none) & libc::FD_CLOEXEC != 0;
        let status = Errno::result(next::fcntl(fd, libc::F_GETFL, none))?;
        let flags = if closing { libc::O_CLOEXEC } else { 0 };
        Errno::result(next::dup3(watch.as_raw_fd(), fd, flags))?;
        let status = (status & libc::O_NONBLOCK) as usize as *mut c_void;
        Errno::result(next::fcntl(fd, libc::F_SETFL, status))?;
    }
    Ok(())
}

// A thread that is cancelled here unwinds, which drops all that it holds.
unsafe extern "C-unwind" {
    fn poll(of: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
    fn pthread_testcancel();
}

/// Reads as the kernel does: waits for an event, unless the descriptor is nonblocking. A thread
/// that was cancelled before takes no event.
fn read_or_wait(file: &dyn EventFile, fd: RawFd, to: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: a call without arguments.
    Inside::cancellable(|| unsafe { pthread_testcancel() });
    let waits = waits(fd)?;
    loop {
        match file.read(to) {
            Err(Errno::EAGAIN) if waits => wait(file.as_fd())?,
            answer => return answer,
        }
    }
}

/// Whether calls on a descriptor of the program wait. The caller asks before the call: another
/// thread may close the descriptor during it, and the call goes on.
pub(crate) fn waits(fd: RawFd) -> Result<bool, Errno> {
    // SAFETY: the descriptor is the program's; the call has no further arguments.
    let flags = Errno::result(unsafe { next::fcntl(fd, libc::F_GETFL, std::ptr::null_mut()) })?;
    Ok(flags & libc::O_NONBLOCK == 0)
}

/// Waits until a descriptor of the simulator is readable.
pub(crate) fn wait(watched: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut wait = libc::pollfd { fd: watched.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, filled.
    Errno::result(Inside::cancellable(|| unsafe { poll(&raw mut wait, 1, -1) }))?;
    Ok(())
}

/// Reads from an event file. A device cannot be read.
///
/// # Safety
/// `room` bytes at `to` must be writable.
pub(crate) unsafe fn read(fd: c_int, to: *mut c_void, room: usize) -> Option<isize> {
    let (_, entry) = Door::find(fd)?;
    let answer = match entry {
        Entry::Device(_) | Entry::Channel(_) => Err(Errno::EINVAL),
        Entry::Events(_) if to.is_null() => Err(Errno::EFAULT),
        Entry::Events(file) => {
            let _inside = Inside::enter();
            // SAFETY: the caller promises that `room` bytes at `to` can be written, and nothing
            // else uses the buffer during the call.
            read_or_wait(&*file, fd, unsafe {
                std::slice::from_raw_parts_mut(to.cast::<u8>(), room)
            })
        }
    };
    Some(match answer {
        Ok(length) => length as isize,
        Err(errno) => failed(errno) as isize,
    })
}

/// Reads from an event file into the first buffer of a list: an event is never split.
///
/// # Safety
/// `count` buffers at `to` must be readable, and their memory writable.
pub(crate) unsafe fn readv(fd: c_int, to: *const iovec, count: c_int) -> Option<isize> {
    Door::find(fd)?;
    if count < 1 || to.is_null() {
        return Some(failed(Errno::EINVAL) as isize);
    }
    // SAFETY: there is at least one buffer.
    let first = unsafe { *to };
    // SAFETY: the caller promises that the memory of each buffer can be written.
    unsafe { read(fd, first.iov_base, first.iov_len) }
}
