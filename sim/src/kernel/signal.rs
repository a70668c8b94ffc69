//! The descriptor of an event file: readable while there are events.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use mlx5_uapi::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{pipe2, read, write};

/// A descriptor that is readable while it is set.
///
/// It is the reading end of a pipe, which then has one byte. A program of another process has only
/// a copy of that end. So the end of the process that serves the machine makes it readable, too: a
/// program that sleeps wakes up, and its next call reports that the device is gone. An eventfd
/// would never wake it.
#[derive(Debug)]
pub(crate) struct Signal {
    reader: OwnedFd,
    writer: OwnedFd,
    is_set: AtomicBool,
}

impl Signal {
    pub(crate) fn new() -> Result<Self, Errno> {
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        Ok(Self { reader, writer, is_set: AtomicBool::new(false) })
    }

    /// Makes it readable, or not. The caller has the lock of its events.
    pub(crate) fn set(&self, readable: bool) {
        if self.is_set.swap(readable, Ordering::AcqRel) == readable {
            return;
        }
        // A pipe has room for the byte to write. The byte to read is missing only if another
        // process took it, which should only wait for it.
        if readable {
            let _ = write(&self.writer, &[0]);
        } else {
            let _ = read(&self.reader, &mut [0]);
        }
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
