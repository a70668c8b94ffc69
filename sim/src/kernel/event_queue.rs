//! Event files: records that wait to be read, and a descriptor that is readable while there are
//! some.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use mlx5_uapi::Errno;

use crate::kernel::lock;
use crate::kernel::signal::Signal;

/// The number of an object's events that were read, for its destruction to report.
pub(crate) type Reported = Arc<AtomicU32>;

#[derive(Debug)]
struct Pending {
    record: Vec<u8>,
    /// Counts the reading of the record; also identifies the object or the subscription that it is
    /// about.
    reported: Option<Reported>,
}

#[derive(Debug, Default)]
struct Queued {
    events: VecDeque<Pending>,
    /// No record will be added; reads of an empty queue fail.
    closed: bool,
}

/// An event file: records, and a descriptor that is readable while there are some.
#[derive(Debug)]
pub(crate) struct EventQueue {
    signal: Signal,
    /// The error of a read with too small a buffer for the next record.
    no_room: Errno,
    queued: Mutex<Queued>,
}

impl EventQueue {
    pub(crate) fn new(no_room: Errno) -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self { signal: Signal::new()?, no_room, queued: Mutex::default() }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.signal.as_fd().as_raw_fd()
    }

    /// The number of the descriptor in answers: signed, of 64 bits.
    pub(crate) fn number(&self) -> u64 {
        i64::from(self.fd()) as u64
    }

    /// Updates the descriptor: it is readable when a read would not return EAGAIN.
    fn signal(&self, queued: &Queued) {
        self.signal.set(queued.closed || !queued.events.is_empty());
    }

    pub(crate) fn push(&self, record: &[u8], reported: Option<&Reported>) {
        let mut queued = lock(&self.queued);
        if !queued.closed {
            let reported = reported.cloned();
            queued.events.push_back(Pending { record: record.to_vec(), reported });
            self.signal(&queued);
        }
    }

    /// Adds a record, unless one of `of` already waits.
    pub(crate) fn push_once(&self, record: &[u8], of: &Reported) {
        let waits = |event: &Pending| event.reported.as_ref().is_some_and(|o| Arc::ptr_eq(o, of));
        if !lock(&self.queued).events.iter().any(waits) {
            self.push(record, Some(of));
        }
    }

    /// Bytes of the waiting records, each without a header of `header` bytes.
    pub(crate) fn waiting(&self, header: usize) -> usize {
        let queued = lock(&self.queued);
        queued.events.iter().map(|event| event.record.len().saturating_sub(header)).sum()
    }

    /// Drops the waiting events of an object that is gone.
    pub(crate) fn forget(&self, object: &Reported) {
        let mut queued = lock(&self.queued);
        queued.events.retain(|event| {
            !event.reported.as_ref().is_some_and(|reported| Arc::ptr_eq(reported, object))
        });
        self.signal(&queued);
    }

    /// Drops all waiting records.
    pub(crate) fn clear(&self) {
        let mut queued = lock(&self.queued);
        queued.events.clear();
        self.signal(&queued);
    }

    /// Ends the queue. The events of objects went with the objects; those that still wait are about
    /// the device.
    pub(crate) fn close(&self) {
        let mut queued = lock(&self.queued);
        queued.closed = true;
        self.signal(&queued);
    }

    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut queued = lock(&self.queued);
        let Some(event) = queued.events.front() else {
            return Err(if queued.closed { Errno::EIO } else { Errno::EAGAIN });
        };
        let length = event.record.len();
        // One event at a time, as the kernel does; an event that does not fit stays.
        buffer.get_mut(..length).ok_or(self.no_room)?.copy_from_slice(&event.record);
        if let Some(reported) = &event.reported {
            reported.fetch_add(1, Ordering::AcqRel);
        }
        queued.events.pop_front();
        self.signal(&queued);
        Ok(length)
    }
}

impl AsFd for EventQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signal.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(queue: &EventQueue) -> bool {
        let none = Some(std::time::Duration::ZERO);
        mlx5_uapi::wait::wait_readable(queue.as_fd(), none).expect("poll")
    }

    #[test]
    fn a_closed_queue_is_readable_and_fails() {
        let queue = EventQueue::new(Errno::EINVAL).expect("a pipe");
        queue.close();
        assert!(readable(&queue));
        assert_eq!(queue.read(&mut [0; 16]), Err(Errno::EIO));
        assert!(readable(&queue));
    }

    #[test]
    fn a_record_that_waits_is_not_added_again() {
        let queue = EventQueue::new(Errno::ENOSPC).expect("a pipe");
        let (one, other) = (Reported::default(), Reported::default());
        for of in [&one, &other, &one] {
            queue.push_once(&[1, 2, 3], of);
        }
        assert_eq!(queue.waiting(1), 4);
        assert_eq!(queue.read(&mut [0; 2]), Err(Errno::ENOSPC));
        assert_eq!(queue.read(&mut [0; 3]), Ok(3));
        queue.push_once(&[1, 2, 3], &one);
        assert_eq!(queue.waiting(0), 6);
        queue.clear();
        assert!(!readable(&queue));
    }
}
