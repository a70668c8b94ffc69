//! The descriptors of the simulated machine.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use mlx5_uapi::{CmFile, DeviceFile, EventFile};

use crate::machine::{Opened, OpenedChannel};

/// An open device.
pub(crate) struct Device {
    /// The name of its node.
    pub(crate) name: String,
    pub(crate) file: Arc<dyn DeviceFile>,
    /// The number by which a child process can inherit it.
    pub(crate) number: Option<u64>,
    /// The serial number of this open device in the process, for tracers.
    pub(crate) serial: u64,
}

impl Device {
    pub(crate) fn new(name: String, (file, number): Opened) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { name, file, number, serial: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

/// An open channel of the connection manager.
pub(crate) struct Channel {
    pub(crate) file: Arc<dyn CmFile>,
    /// The numbers of its node.
    pub(crate) node: (u32, u32),
    /// The number by which a child process can inherit it.
    pub(crate) number: Option<u64>,
}

impl Channel {
    pub(crate) fn new(node: (u32, u32), (file, number): OpenedChannel) -> Self {
        Self { file, node, number }
    }
}

/// The file behind a descriptor. Copies of a descriptor share it.
#[derive(Clone)]
pub(crate) enum Entry {
    Device(Arc<Device>),
    /// A completion channel or a file of asynchronous events, of the simulated kernel. In calls its
    /// number is that of the simulator's descriptor.
    Events(Arc<dyn EventFile>),
    /// A channel of the connection manager.
    Channel(Arc<Channel>),
}

/// Each descriptor below this number has a bit, set if it may be the machine's; larger ones are
/// always looked up.
const MARKED: usize = 1 << 16;

/// Most calls of a program are about other files, and should cost one load only.
static MARKS: [AtomicU64; MARKED / 64] = [const { AtomicU64::new(0) }; MARKED / 64];

fn mark(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok().filter(|fd| *fd < MARKED)?;
    Some((&MARKS[fd / 64], 1 << (fd % 64)))
}

/// Whether a descriptor may be the machine's.
pub(crate) fn may_be_ours(fd: RawFd) -> bool {
    mark(fd).is_none_or(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// Forgets all numbers, in a child process.
pub(crate) fn forget_numbers() {
    for word in &MARKS {
        word.store(0, Ordering::Release);
    }
}

/// Marks a descriptor that may be the machine's.
pub(crate) fn expect(fd: RawFd) {
    if let Some((word, bit)) = mark(fd) {
        word.fetch_or(bit, Ordering::AcqRel);
    }
}

/// Removes the marks of a range of descriptors.
pub(crate) fn unmark_range(first: u32, last: u32) {
    (first..=last).take_while(|fd| *fd < MARKED as u32).for_each(|fd| unmark(fd as RawFd));
}

/// Removes the mark of a descriptor.
pub(crate) fn unmark(fd: RawFd) {
    if let Some((word, bit)) = mark(fd) {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// The descriptors of a machine.
#[derive(Default)]
pub(crate) struct Descriptors {
    entries: RwLock<HashMap<RawFd, Entry>>,
}

impl Descriptors {
    /// The file behind a descriptor.
    pub(crate) fn get(&self, fd: RawFd) -> Option<Entry> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(&fd).cloned()
    }

    /// Adds a descriptor. An earlier entry for its number is dropped: that descriptor was closed
    /// unseen.
    pub(crate) fn add(&self, fd: RawFd, entry: Entry) {
        let before = self.entries.write().unwrap_or_else(PoisonError::into_inner).insert(fd, entry);
        expect(fd);
        drop(before);
    }

    /// Removes a descriptor. Its file is closed when the result is dropped.
    pub(crate) fn take(&self, fd: RawFd) -> Option<Entry> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.remove(&fd);
        unmark(fd);
        entry
    }

    /// All entries, unless another thread is changing them.
    pub(crate) fn try_all(&self) -> Option<Vec<(RawFd, Entry)>> {
        let entries = self.entries.try_read().ok()?;
        Some(entries.iter().map(|(fd, entry)| (*fd, entry.clone())).collect())
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> Vec<RawFd> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }
}
