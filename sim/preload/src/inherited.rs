//! What a child process has from its parent: on a shared machine, the devices that were open.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::descriptors::{Descriptors, Device, Entry};
use crate::machine::Machine;
use crate::{descriptors, say};

/// An open device of the parent's.
struct File {
    fd: RawFd,
    name: String,
    number: u64,
}

/// What there is to inherit, and from which process of the machine.
struct Inheritance {
    parent: u64,
    files: Vec<File>,
}

static INHERITANCE: Mutex<Option<Inheritance>> = Mutex::new(None);
/// Whether a descriptor might be inherited.
static WAITS: AtomicBool = AtomicBool::new(false);

/// Whether a descriptor that the door does not know might be one of the parent's.
pub(crate) fn waits() -> bool {
    WAITS.load(Ordering::Acquire)
}

/// In a child after a fork: remembers what the parent has open of its machine, which nobody can have
/// locked for good if it can be locked at all.
pub(crate) fn remember(machine: &Machine, open: &Descriptors) {
    let Some(parent) = machine.leave_to_parent() else { return };
    let Some(entries) = open.try_all() else {
        return say!("a child was forked while a device was opened, and inherits none");
    };
    let files = entries.into_iter().filter_map(|(fd, entry)| match entry {
        Entry::Device(device) => {
            let number = device.number?;
            Some(File { fd, name: device.name.clone(), number })
        }
        Entry::Events(_) => None,
    });
    let files: Vec<File> = files.collect();
    if let Ok(mut inheritance) = INHERITANCE.try_lock() {
        for file in &files {
            descriptors::expect(file.fd);
        }
        WAITS.store(!files.is_empty(), Ordering::Release);
        *inheritance = Some(Inheritance { parent, files });
    }
}

/// Opens what there is to inherit, but for what has been closed meanwhile.
pub(crate) fn take(machine: &Machine, to: &Descriptors) {
    let inheritance = INHERITANCE.try_lock().ok().and_then(|mut waiting| waiting.take());
    WAITS.store(false, Ordering::Release);
    let Some(Inheritance { parent, files }) = inheritance else { return };
    for File { fd, name, number } in files {
        if !descriptors::may_be_ours(fd) {
            continue;
        }
        match machine.inherit(parent, number) {
            Ok(opened) => to.add(fd, Entry::Device(Arc::new(Device::new(name, opened)))),
            Err(errno) => say!("{name}: cannot be inherited: {errno}"),
        }
    }
}
