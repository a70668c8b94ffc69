//! Event channels.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Mutex;

use mlx5_uapi::Errno;
use mlx5_uapi::rdma_cm::EventResp;

use crate::kernel::lock;
use crate::kernel::signal::Signal;

/// An event that waits to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) record: EventResp,
    /// The identifier that counts its reading: of a request, the listener.
    pub(super) owner: u32,
    /// The new identifier of a request.
    pub(super) request: Option<u32>,
    /// The multicast group that it is about.
    pub(super) group: Option<u32>,
}

/// The queue of an open file, and a descriptor that is readable while there are events.
#[derive(Debug)]
pub(super) struct Channel {
    signal: Signal,
    queued: Mutex<VecDeque<Pending>>,
}

impl Channel {
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self { signal: Signal::new()?, queued: Mutex::default() })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.signal.as_fd().as_raw_fd()
    }

    /// Changes the queue, and updates the descriptor.
    fn with<T>(&self, work: impl FnOnce(&mut VecDeque<Pending>) -> T) -> T {
        let mut queued = lock(&self.queued);
        let result = work(&mut queued);
        self.signal.set(!queued.is_empty());
        result
    }

    pub(super) fn push(&self, event: Pending) {
        self.with(|queued| queued.push_back(event));
    }

    /// The next event, without taking it.
    pub(super) fn first(&self) -> Option<Pending> {
        lock(&self.queued).front().copied()
    }

    /// Takes the next event.
    pub(super) fn pop(&self) {
        self.with(VecDeque::pop_front);
    }

    /// Takes the events that `which` selects.
    pub(super) fn take(&self, which: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        self.with(|queued| {
            let (taken, left): (Vec<_>, Vec<_>) = queued.drain(..).partition(which);
            queued.extend(left);
            taken
        })
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}
