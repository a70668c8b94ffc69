//! Opening, copying and closing descriptors.

use std::ffi::{CString, c_int, c_uint};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use mlx5_uapi::Errno;
use mlx5_uapi::rdma_cm;

use super::events;
use super::paths::Description;
use crate::descriptors::{Channel, Device, Entry, may_be_ours, unmark, unmark_range};
use crate::door::Door;
use crate::inside::Inside;
use crate::next::{self, failed};
use crate::{inherited, notes, say};

/// The setting of UCX for the replacement of mmap(2), and the value with which that calls libc's
/// own function. The kernel could refuse the mapping calls then, but the end of a mapping would be
/// seen too late.
const HOOKS: &str = "UCX_MEM_MMAP_HOOK_MODE";
const PAST_THE_LIBRARY: &str = "reloc";

/// Opens the device if libc has opened its node.
///
/// # Safety
/// The descriptor is the caller's.
pub(crate) unsafe fn opened(fd: c_int) -> c_int {
    let Some(door) = Door::if_open().filter(|_| fd >= 0) else { return fd };
    let _inside = Inside::enter();
    let mut file = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the descriptor is open, and there is room for the answer.
    let file = unsafe {
        if next::fstat(fd, file.as_mut_ptr()) != 0 {
            return fd;
        }
        file.assume_init()
    };
    let Some(node) = file.identity().and_then(|file| door.tree.node_of(file)) else { return fd };
    if node.name == rdma_cm::NODE {
        // SAFETY: the caller promises that the descriptor is its own; the program does not have it
        // yet.
        return unsafe { opened_channel(door, fd, node.numbers) };
    }
    if std::env::var_os(HOOKS).is_some_and(|mode| mode == PAST_THE_LIBRARY) {
        say!(
            "{}: cannot be opened: with {HOOKS}={PAST_THE_LIBRARY} UCX maps memory past the \
             simulator; set {HOOKS}=bistro or none",
            node.name
        );
        // SAFETY: the program does not have the descriptor yet.
        unsafe { next::close(fd) };
        return failed(Errno::EPERM);
    }
    match door.machine.open(&node.name, node.numbers) {
        Ok(opened) => {
            keep_unmapped(fd, &door.tree.place_of(node));
            let device = Device::new(node.name.clone(), opened);
            door.descriptors.add(fd, Entry::Device(Arc::new(device)));
            fd
        }
        Err(errno) => {
            say!("{}: cannot be opened: {errno}", node.name);
            // SAFETY: the program does not have the descriptor yet.
            unsafe { next::close(fd) };
            failed(errno)
        }
    }
}

/// Replaces a descriptor of the connection manager's node by a channel.
///
/// # Safety
/// The descriptor is the caller's, and the program does not have it yet.
unsafe fn opened_channel(door: &Door, fd: c_int, node: (u32, u32)) -> c_int {
    let channel = door.machine.open_cm().and_then(|channel| {
        // SAFETY: the caller promises that the descriptor is its own, and that the program does not
        // have it yet.
        unsafe { events::take_place(fd, channel.0.as_fd()) }?;
        Ok(channel)
    });
    match channel {
        Ok(channel) => {
            door.descriptors.add(fd, Entry::Channel(Arc::new(Channel::new(node, channel))));
            fd
        }
        Err(errno) => {
            say!("{}: cannot be opened: {errno}", rdma_cm::NODE);
            // SAFETY: the program does not have the descriptor yet.
            unsafe { next::close(fd) };
            failed(errno)
        }
    }
}

/// Replaces a descriptor by the node's file, opened again for writing only. A mapping that the
/// kernel is asked for past this library then fails; one of the empty file would succeed and have
/// no memory.
fn keep_unmapped(fd: c_int, place: &Path) {
    let Ok(place) = CString::new(place.as_os_str().as_bytes()) else { return };
    // SAFETY: the path is a string of C; the descriptor is the caller's, and no other code has the
    // new one. A call that fails leaves the descriptor as it is.
    unsafe {
        let flags = next::fcntl(fd, libc::F_GETFD, ptr::null_mut());
        let other = next::open(place.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC, 0);
        if other < 0 {
            return;
        }
        let cloexec = if flags & libc::FD_CLOEXEC == 0 { 0 } else { libc::O_CLOEXEC };
        next::dup3(other, fd, cloexec);
        next::close(other);
    }
}

/// Closes a descriptor of the machine.
pub(crate) fn close(fd: c_int) -> Option<c_int> {
    if inherited::waits() && may_be_ours(fd) && fd >= 0 {
        // An inherited descriptor that was never used: forget it, and let libc close it.
        unmark(fd);
        return None;
    }
    let (door, _) = Door::find(fd)?;
    let _inside = Inside::enter();
    // Remove the entry first: after the close the kernel may use the number again.
    let entry = door.descriptors.take(fd);
    if let Some(Entry::Device(device)) = &entry
        && Arc::strong_count(device) == 1
    {
        notes::closing(&door.tree, device);
    }
    // SAFETY: the program closes it.
    let answer = unsafe { next::close(fd) };
    drop(entry);
    Some(answer)
}

/// Records that a descriptor was copied, to `new` unless that is negative.
pub(crate) fn copied(fd: c_int, new: c_int) -> c_int {
    if new < 0 || new == fd {
        return new;
    }
    // The copy may have replaced a descriptor of the machine.
    let before = Door::find(new).and_then(|(door, _)| {
        let _inside = Inside::enter();
        door.descriptors.take(new)
    });
    if let Some((door, entry)) = Door::find(fd) {
        let _inside = Inside::enter();
        door.descriptors.add(new, entry);
    }
    if before.is_some() {
        let _inside = Inside::enter();
        drop(before);
    }
    new
}

/// Records the effect of an fcntl.
pub(crate) fn controlled(fd: c_int, command: c_int, answer: c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => copied(fd, answer),
        // The flags with which the program opened it.
        libc::F_GETFL if answer >= 0 && matches!(Door::find(fd), Some((_, Entry::Device(_)))) => {
            answer & !libc::O_ACCMODE | libc::O_RDWR
        }
        _ => answer,
    }
}

/// Records that a range was closed.
pub(crate) fn closed_range(first: c_uint, last: c_uint, flags: c_int, answer: c_int) -> c_int {
    let closed = answer == 0 && flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0;
    if closed && inherited::waits() {
        // Inherited descriptors in the range that were never used are forgotten, as in `close`.
        unmark_range(first, last);
    }
    if let Some(door) = Door::if_open().filter(|_| closed) {
        let _inside = Inside::enter();
        let gone = |fd: &RawFd| u32::try_from(*fd).is_ok_and(|fd| (first..=last).contains(&fd));
        for fd in door.descriptors.numbers().into_iter().filter(gone) {
            drop(door.descriptors.take(fd));
        }
    }
    answer
}
