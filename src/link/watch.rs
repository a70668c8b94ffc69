//! Notifies queues and sleeping threads when the device is removed or a completion queue overruns.

use super::ids::CqId;
use mlx5_cq::Attention;
use mlx5_uapi::Errno;
use mlx5_wqe::Gate;
use std::{
    collections::BTreeMap,
    io::{PipeReader, PipeWriter, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A queue to be notified when the device is removed.
pub(crate) enum Watched {
    /// A queue with requests.
    Queue(Gate),
    /// A completion queue.
    Completions(Attention, CqId),
}

impl Watched {
    fn set_gone(&self) {
        match self {
            Self::Queue(gate) => gate.set_gone(),
            Self::Completions(attention, _) => attention.set_gone(),
        }
    }
}

/// Identifies a [`Watched`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct WatchId(pub(super) u64);

/// The queues of a context, and whether the device is gone.
pub(super) struct Watchers {
    gone: AtomicBool,
    /// A pipe with one byte in it once the device is gone: wakes sleeping threads.
    gone_note: (PipeReader, PipeWriter),
    /// Whether any completion queue was marked as overrun, and the pipe that then wakes sleeping
    /// threads.
    overrun: AtomicBool,
    overrun_note: (PipeReader, PipeWriter),
    watched: Mutex<BTreeMap<WatchId, Watched>>,
}

impl Watchers {
    pub(super) fn new() -> Result<Self, Errno> {
        let note = || {
            std::io::pipe()
                .map_err(|error| error.raw_os_error().map_or(Errno::EMFILE, Errno::from_raw))
        };
        let (gone_note, overrun_note) = (note()?, note()?);
        Ok(Self {
            gone: AtomicBool::new(false),
            gone_note,
            overrun: AtomicBool::new(false),
            overrun_note,
            watched: Mutex::default(),
        })
    }

    /// Whether the device is known to be gone.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    fn watched(&self) -> MutexGuard<'_, BTreeMap<WatchId, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the device as gone.
    pub(super) fn mark_gone(&self) {
        let watched = self.watched();
        if !self.gone.swap(true, Relaxed) {
            // Written once and never read: the pipe has room.
            let _ = (&self.gone_note.1).write(&[1]);
        }
        watched.values().for_each(Watched::set_gone);
    }

    /// Returns a descriptor that is readable once the device is known to be gone.
    pub(super) fn gone_fd(&self) -> BorrowedFd<'_> {
        self.gone_note.0.as_fd()
    }

    /// Marks a completion queue as overrun.
    pub(super) fn mark_overrun(&self, cq: CqId) {
        for watched in self.watched().values() {
            if let Watched::Completions(attention, id) = watched
                && *id == cq
            {
                attention.set_overrun();
            }
        }
        // After the marking above, so that a thread woken by the byte sees it.
        if !self.overrun.swap(true, Relaxed) {
            // Written once and never read: the pipe has room.
            let _ = (&self.overrun_note.1).write(&[1]);
        }
    }

    /// Returns a descriptor that is readable once any completion queue was marked as overrun.
    pub(super) fn overrun_fd(&self) -> BorrowedFd<'_> {
        self.overrun_note.0.as_fd()
    }

    /// Registers `what` under `id`; notifies it now if the device is gone.
    pub(super) fn add(&self, id: WatchId, what: Watched) -> WatchId {
        let mut watched = self.watched();
        if self.is_gone() {
            what.set_gone();
        }
        watched.insert(id, what);
        id
    }

    /// Removes a registration.
    pub(super) fn remove(&self, id: WatchId) {
        self.watched().remove(&id);
    }
}
