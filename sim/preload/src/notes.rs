//! Notes for tracers: each call that makes, changes or ends a queue.
//!
//! A tracer of a program on a real device sees its ioctls. Here they never reach the kernel, but a
//! note does: a line that is written to a file of the device tree, before or after the call. So a
//! tracer sees the same at the same time, and one that starts later finds the notes in the file.

use std::fs::OpenOptions;
use std::io::Write;

use mlx5_uapi::queues::{CallerMemory, ClosedDevice, Noted, QueueCall};

use crate::descriptors::Device;
use crate::tree::Tree;

/// Notes the objects that a call will end, before it is made.
pub(crate) fn before(tree: &Tree, device: &Device, words: &[u64]) {
    if let Some(call) = QueueCall::read(words, &Own).filter(QueueCall::ends_something) {
        note(tree, &Noted { device: device.serial, before: true, call });
    }
}

/// The last descriptor of a device is about to be closed, and with it the queues that are left.
pub(crate) fn closing(tree: &Tree, device: &Device) {
    let call = QueueCall::Closed(ClosedDevice {});
    note(tree, &Noted { device: device.serial, before: true, call });
}

/// Notes the effects of a call.
pub(crate) fn after(tree: &Tree, device: &Device, words: &[u64]) {
    if let Some(call) = QueueCall::read(words, &Own) {
        note(tree, &Noted { device: device.serial, before: false, call });
    }
}

/// The file is opened each time: a program may close descriptors that it did not open, and give
/// their numbers to files of its own.
fn note(tree: &Tree, noted: &Noted) {
    // Without the file the program cannot be traced; that is no error of the program.
    if let Ok(mut file) = OpenOptions::new().append(true).open(tree.notes()) {
        let _ = file.write_all(format!("{noted}\n").as_bytes());
    }
}

/// The memory of this process, in which the simulated kernel has accessed the call's data.
struct Own;

impl CallerMemory for Own {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let there = libc::iovec { iov_base: address as usize as *mut _, iov_len: to.len() };
        // SAFETY: the kernel fills `to`, and no more of it than its length. It reads the other
        // place and fails if there is no memory: before the call that is noted the pointers are
        // unchecked.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &here, 1, &there, 1, 0) };
        usize::try_from(read) == Ok(to.len())
    }
}
