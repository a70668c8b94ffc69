//! A connected queue pair, and the end of its connection.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mlx5::QueuePair;
use mlx5::transport::Rc;

use crate::channel::EventChannel;
use crate::data::PrivateData;
use crate::error::{Error, ErrorKind};
use crate::event::EventKind;
use crate::id::Id;
use crate::param::Remote;
use crate::wait::{Deadline, wait_for};

/// A connection could not be established. Bring the returned queue pair back to RESET to use it
/// again.
pub struct ConnectionFailed {
    inner: Box<Failed>,
}

// Nothing contends for the lock: it makes the error `Sync`, so that it converts to `Box<dyn
// std::error::Error + Send + Sync>`.
struct Failed {
    error: Error,
    qp: Mutex<QueuePair<Rc>>,
}

impl ConnectionFailed {
    /// Wraps the error with the queue pair that could not be connected.
    pub fn new(error: Error, qp: QueuePair<Rc>) -> Self {
        Self { inner: Box::new(Failed { error, qp: Mutex::new(qp) }) }
    }

    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.inner.error
    }

    /// Returns the error and the queue pair.
    pub fn into_parts(self) -> (Error, QueuePair<Rc>) {
        let Failed { error, qp } = *self.inner;
        (error, qp.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for ConnectionFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionFailed").field("error", self.error()).finish_non_exhaustive()
    }
}

impl fmt::Display for ConnectionFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().fmt(f)
    }
}

impl std::error::Error for ConnectionFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

impl From<ConnectionFailed> for Error {
    fn from(failed: ConnectionFailed) -> Self {
        failed.into_parts().0
    }
}

/// A connected queue pair. Dropping it ends the connection and notifies the peer.
#[derive(Debug)]
pub struct Connection {
    // Dropped in this order: the peer learns of the end before the queue pair is destroyed.
    link: Link,
    qp: QueuePair<Rc>,
}

impl Connection {
    pub(crate) fn new(id: Id, qp: QueuePair<Rc>, channel: EventChannel, remote: Remote) -> Self {
        Self { link: Link { id, channel, remote, end: None, address_changed: false }, qp }
    }

    /// Returns the queue pair.
    pub fn qp(&self) -> &QueuePair<Rc> {
        &self.qp
    }

    /// Returns the queue pair, to post and to change it.
    pub fn qp_mut(&mut self) -> &mut QueuePair<Rc> {
        &mut self.qp
    }

    /// Returns the peer's private data, followed by zeros.
    pub fn private_data(&self) -> &PrivateData {
        &self.link.remote.private_data
    }

    /// Returns the peer's parameters.
    pub fn remote(&self) -> &Remote {
        &self.link.remote
    }

    /// Returns the identifier.
    pub fn id(&self) -> &Id {
        &self.link.id
    }

    /// Whether the connection has ended, without waiting. Fails, each time, if it ended by an
    /// error: the device is gone.
    pub fn has_ended(&mut self) -> Result<bool, Error> {
        in_time(self.wait(Deadline::after(Duration::ZERO)))
    }

    /// Whether the address of this end has moved to another device, without waiting. The connection
    /// continues on its device; a new one goes over the other device.
    pub fn address_has_changed(&mut self) -> Result<bool, Error> {
        self.has_ended()?;
        Ok(self.link.address_changed)
    }

    /// Ends the connection: brings the queue pair to the error state, which flushes it, and
    /// notifies the peer. [`Connection::wait_disconnected`] then waits until the peer agrees.
    pub fn disconnect(&mut self) -> Result<(), Error> {
        let flushed = flush(&mut self.qp);
        // Notify the peer even if the flush failed.
        let disconnected = self.link.id.disconnect();
        flushed.and(disconnected)
    }

    /// Waits until the connection has ended, for at most `timeout`; `None` stands for no limit. If
    /// the peer ended it, this side agrees, and the queue pair is in the error state. Fails, each
    /// time, if it ended by an error.
    pub fn wait_disconnected(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.wait(Deadline::within(timeout))
    }

    fn wait(&mut self, deadline: Deadline) -> Result<(), Error> {
        let Self { link, qp } = self;
        link.wait(deadline, || flush(qp))
    }

    /// Returns the queue pair and the rest of the connection separately: for a queue pair with
    /// another owner, for example an asynchronous one.
    pub fn split(self) -> (QueuePair<Rc>, Link) {
        (self.qp, self.link)
    }

    /// Returns the queue pair, the identifier and its channel, whose events the caller handles from
    /// then on.
    pub fn into_parts(self) -> (QueuePair<Rc>, Id, EventChannel) {
        (self.qp, self.link.id, self.link.channel)
    }
}

/// Readable when the connection has ended.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

fn flush(qp: &mut QueuePair<Rc>) -> Result<(), Error> {
    qp.to_error().map_err(|error| Error::driver("disconnect", error))
}

/// Whether the wait ended before its deadline, without an error.
fn in_time(waited: Result<(), Error>) -> Result<bool, Error> {
    match waited {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(false),
        Err(error) => Err(error),
    }
}

/// A connection without its queue pair: see [`Connection::split`]. Dropping it ends the connection
/// and notifies the peer; the queue pair's owner flushes the queue pair.
#[derive(Debug)]
pub struct Link {
    id: Id,
    channel: EventChannel,
    remote: Remote,
    /// The result of the connection, once it has ended.
    end: Option<Result<(), Error>>,
    address_changed: bool,
}

impl Link {
    /// Returns the peer's parameters.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Returns the identifier.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// As [`Connection::has_ended`].
    pub fn has_ended(&mut self) -> Result<bool, Error> {
        in_time(self.wait(Deadline::after(Duration::ZERO), || Ok(())))
    }

    fn wait(
        &mut self,
        deadline: Deadline,
        flush: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if let Some(end) = &self.end {
            return end.clone();
        }
        let what = ("disconnect", "the connection did not end in the given time");
        let changed = &mut self.address_changed;
        let ended = loop {
            let heard = wait_for(&self.channel, deadline, what, |event| match event {
                EventKind::Disconnected(_) => Some(true),
                EventKind::AddressChange => {
                    *changed = true;
                    Some(false)
                }
                _ => None,
            });
            if !matches!(heard, Ok(false)) {
                break heard.map(drop);
            }
        };
        let end = match ended {
            Ok(()) => {
                let flushed = flush();
                // Notify the peer even if the flush failed.
                let disconnected = self.id.disconnect();
                flushed.and(disconnected)
            }
            // A child must not record an end, and a connection that timed out may still end.
            Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::Forked) => {
                return Err(error);
            }
            Err(error) => Err(error),
        };
        self.end.insert(end).clone()
    }
}

/// Readable when the connection has ended.
impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
