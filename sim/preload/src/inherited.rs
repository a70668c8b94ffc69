//! The files that a child process inherits: on a shared machine, the devices that its parent had
//! open.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::descriptors::{Channel, Descriptors, Device, Entry};
use mlx5_uapi::rdma_cm;

use crate::machine::Machine;
use crate::{descriptors, say};

/// The kind of an open file of the parent's.
enum Kind {
    /// A device, by its name.
    Device(String),
    /// A channel of the connection manager, by the numbers of its node.
    Channel((u32, u32)),
}

/// An open file of the parent's.
struct File {
    fd: RawFd,
    kind: Kind,
    number: u64,
}

/// The files to inherit, and the process of the machine that they come from.
struct Inheritance {
    parent: u64,
    files: Vec<File>,
}

static INHERITANCE: Mutex<Option<Inheritance>> = Mutex::new(None);
/// The process in which a descriptor may be inherited, or zero. A child in its memory is another
/// process: descriptors that it closes stay open here.
static WAITS: AtomicU32 = AtomicU32::new(0);

/// Whether a descriptor that the door does not know may be one of the parent's.
pub(crate) fn waits() -> bool {
    match WAITS.load(Ordering::Acquire) {
        0 => false,
        process => process == std::process::id(),
    }
}

/// In a child after a fork: remembers the parent's open files of its machine. If their lock is
/// free, no thread can hold it for good.
pub(crate) fn remember(machine: &Machine, open: &Descriptors) {
    let Some(parent) = machine.leave_to_parent() else { return };
    let Some(entries) = open.try_all() else {
        return say!("a child was forked while a device was opened, and inherits none");
    };
    let files = entries.into_iter().filter_map(|(fd, entry)| match entry {
        Entry::Device(device) => {
            Some(File { fd, kind: Kind::Device(device.name.clone()), number: device.number? })
        }
        Entry::Channel(channel) => {
            Some(File { fd, kind: Kind::Channel(channel.node), number: channel.number? })
        }
        Entry::Events(_) => None,
    });
    let files: Vec<File> = files.collect();
    if let Ok(mut inheritance) = INHERITANCE.try_lock() {
        for file in &files {
            descriptors::expect(file.fd);
        }
        let process = if files.is_empty() { 0 } else { std::process::id() };
        WAITS.store(process, Ordering::Release);
        *inheritance = Some(Inheritance { parent, files });
    }
}

/// Opens the inherited files, without those that were closed meanwhile.
pub(crate) fn take(machine: &Machine, to: &Descriptors) {
    let inheritance = INHERITANCE.try_lock().ok().and_then(|mut waiting| waiting.take());
    WAITS.store(0, Ordering::Release);
    let Some(Inheritance { parent, files }) = inheritance else { return };
    for File { fd, kind, number } in files {
        if !descriptors::may_be_ours(fd) {
            continue;
        }
        let (name, opened) = match kind {
            Kind::Device(name) => {
                let opened = machine.inherit(parent, number);
                let device = opened.map(|opened| Device::new(name.clone(), opened));
                (name, device.map(|device| Entry::Device(Arc::new(device))))
            }
            Kind::Channel(node) => {
                let opened = machine.inherit_cm(parent, number);
                let channel = opened.map(|opened| Channel::new(node, opened));
                (rdma_cm::NODE.into(), channel.map(|channel| Entry::Channel(Arc::new(channel))))
            }
        };
        match opened {
            Ok(entry) => to.add(fd, entry),
            Err(errno) => say!("{name}: cannot be inherited: {errno}"),
        }
    }
}
