//! Messages about devices that appear and disappear, in the form of the kernel's netlink socket.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use mlx5_uapi::{Errno, EventFile};

use crate::kernel::event_queue::EventQueue;
use crate::kernel::hca::Hca;
use crate::kernel::{lock, sysfs};

/// The listeners, and the number of the next message.
#[derive(Default)]
pub(crate) struct Uevents {
    listeners: Mutex<Vec<Weak<EventQueue>>>,
    number: AtomicU64,
}

impl Uevents {
    /// A file of all messages from now on.
    pub(crate) fn watch(&self) -> Result<UeventFile, Errno> {
        let queue = EventQueue::new(Errno::EINVAL)?;
        let mut listeners = lock(&self.listeners);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(&queue));
        Ok(UeventFile(queue))
    }

    /// Sends messages about a device: first that of its node, as the kernel does.
    pub(crate) fn tell(&self, action: &str, hca: &Hca) {
        let function = sysfs::function(hca);
        let (node, (major, minor)) = (sysfs::node(hca), sysfs::numbers(hca));
        let numbers = format!("MAJOR={major}\0MINOR={minor}\0DEVNAME=infiniband/{node}\0");
        self.send(
            action,
            "infiniband_verbs",
            &format!("/{function}/infiniband_verbs/{node}"),
            &numbers,
        );
        let name = sysfs::name(hca);
        let words = format!("NAME={name}\0");
        self.send(action, "infiniband", &format!("/{function}/infiniband/{name}"), &words);
    }

    fn send(&self, action: &str, subsystem: &str, path: &str, words: &str) {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let message = format!(
            "{action}@{path}\0ACTION={action}\0DEVPATH={path}\0SUBSYSTEM={subsystem}\0{words}\
             SEQNUM={number}\0"
        );
        for listener in lock(&self.listeners).iter().filter_map(Weak::upgrade) {
            listener.push(message.as_bytes(), None);
        }
    }
}

/// A file of messages.
pub(crate) struct UeventFile(Arc<EventQueue>);

impl AsFd for UeventFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl EventFile for UeventFile {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        self.0.read(buf)
    }
}
