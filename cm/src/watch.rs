//! A connection that a thread watches.

use std::fmt;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsFd;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mlx5::transport::Rc;
use mlx5::{Errno, SharedQueuePair};
use mlx5_uapi::wait::wait_any_readable;

use crate::channel::EventChannel;
use crate::connection::Connection;
use crate::error::Error;
use crate::event::EventKind;
use crate::id::Id;
use crate::param::Remote;
use crate::wait::{Deadline, failure};

/// Time that the peer has to agree to the end; after it, the thread stops waiting.
const LAST_WORDS: Duration = Duration::from_secs(1);

const OPERATION: &str = "watch";

/// A connection with a thread that watches for its end: when the peer ends it, the queue pair goes
/// to the error state, so that a caller that waits for a completion gets a flushed one.
///
/// Dropping it ends the connection, and waits for at most a second until the peer agrees.
pub struct Watched {
    // The thread is joined before the other fields are dropped, and the identifier is destroyed
    // before the queue pair.
    watcher: Option<JoinHandle<()>>,
    stop: Option<PipeWriter>,
    inner: Arc<Inner>,
    qp: Arc<SharedQueuePair<Rc>>,
    remote: Remote,
}

struct Inner {
    id: Id,
    channel: EventChannel,
    /// The result of the connection, once it has ended.
    end: Mutex<Option<Result<(), Error>>>,
    ended: Condvar,
}

impl Inner {
    /// Locks the result. It fails in a forked child, where the parent's thread may have held the
    /// lock during the fork.
    fn end(&self) -> Result<MutexGuard<'_, Option<Result<(), Error>>>, Error> {
        match self.id.left() {
            true => Err(Error::forked(OPERATION)),
            false => Ok(self.end.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Whether a pending event is the end. Fails if the connection ended by an error.
    fn look(&self) -> Result<bool, Error> {
        while let Some(event) = self.channel.poll()? {
            match event.kind {
                EventKind::Disconnected(_) => return Ok(true),
                // The connection continues on its device.
                EventKind::AddressChange => {}
                other => failure(OPERATION, other).map_or(Ok(()), Err)?,
            }
        }
        Ok(false)
    }

    /// Waits for the end, or until the other end of `stop` is closed and the peer's time is over.
    fn watch(&self, stop: &PipeReader) -> Result<(), Error> {
        let mut last_words: Option<Deadline> = None;
        while !self.look()? {
            match last_words {
                None => {
                    let fds = [self.channel.as_fd(), stop.as_fd()];
                    let waited = wait_any_readable(fds, None);
                    if waited.map_err(|errno| Error::kernel(OPERATION, errno))? == [false, true] {
                        last_words = Some(Deadline::after(LAST_WORDS));
                    }
                }
                Some(deadline) => {
                    if !self.channel.wait_readable(deadline.left())? || deadline.is_over() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// No thread could be started. The connection is returned.
pub struct WatchFailed {
    error: Error,
    // Nothing contends for the lock: it makes the error `Sync`, so that it converts to `Box<dyn
    // std::error::Error + Send + Sync>`.
    connection: Box<Mutex<Connection>>,
}

impl WatchFailed {
    /// Returns the error.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the error and the unchanged connection.
    pub fn into_parts(self) -> (Error, Connection) {
        (self.error, self.connection.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for WatchFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchFailed").field("error", &self.error).finish_non_exhaustive()
    }
}

impl fmt::Display for WatchFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for WatchFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<WatchFailed> for Error {
    fn from(failed: WatchFailed) -> Self {
        failed.error
    }
}

/// A watching thread's work.
type Task = (Arc<SharedQueuePair<Rc>>, Arc<Inner>);

/// Starts a thread that watches the connection that it receives, until the pipe is closed.
fn start() -> Result<(JoinHandle<()>, PipeWriter, SyncSender<Task>), Error> {
    let failed = |error: std::io::Error| {
        Error::kernel(OPERATION, Errno::from_raw(error.raw_os_error().unwrap_or(0)))
    };
    let (stop, stopped) = pipe().map_err(failed)?;
    let (give, taken) = sync_channel::<Task>(1);
    let watch = move || {
        let Ok((qp, inner)) = taken.recv() else { return };
        let how = inner.watch(&stop);
        // Set the result first, so that a caller that gets a flushed completion can ask for the
        // cause.
        if let Ok(mut end) = inner.end() {
            *end = Some(how);
        }
        inner.ended.notify_all();
        // Both fail if the device is gone.
        let _ = qp.to_error();
        let _ = inner.id.disconnect();
    };
    let watcher = thread::Builder::new().name("connection".into()).spawn(watch).map_err(failed)?;
    Ok((watcher, stopped, give))
}

impl Connection {
    /// Starts a thread that watches for the end of the connection. From then on the queue pair is
    /// shared. If no thread can be started, the connection is returned.
    pub fn watched(self) -> Result<Watched, WatchFailed> {
        let started = match self.id().left() {
            true => Err(Error::forked(OPERATION)),
            false => start(),
        };
        let (watcher, stop, give) = match started {
            Ok(started) => started,
            Err(error) => {
                return Err(WatchFailed { error, connection: Box::new(Mutex::new(self)) });
            }
        };
        let remote = *self.remote();
        let (qp, id, channel) = self.into_parts();
        let qp = Arc::new(qp.into_shared());
        let inner = Arc::new(Inner { id, channel, end: Mutex::new(None), ended: Condvar::new() });
        // The thread waits for this.
        let _ = give.send((Arc::clone(&qp), Arc::clone(&inner)));
        Ok(Watched { watcher: Some(watcher), stop: Some(stop), inner, qp, remote })
    }
}

impl Watched {
    /// Returns the queue pair.
    pub fn qp(&self) -> &Arc<SharedQueuePair<Rc>> {
        &self.qp
    }

    /// Returns the peer's parameters.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Whether the connection has ended. Fails, each time, if it ended by an error: the device is
    /// gone, or the channel failed.
    pub fn has_ended(&self) -> Result<bool, Error> {
        self.wait_ended(Some(Duration::ZERO))
    }

    /// Waits until the connection has ended, for at most `timeout`; `None` stands for no limit.
    /// Returns whether it has. Fails, each time, if it ended by an error.
    pub fn wait_ended(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let deadline = Deadline::within(timeout);
        let mut end = self.inner.end()?;
        loop {
            if let Some(how) = &*end {
                return how.clone().map(|()| true);
            }
            let ended = &self.inner.ended;
            end = match deadline.left() {
                None => ended.wait(end).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Ok(false),
                Some(left) => {
                    ended.wait_timeout(end, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.inner.id.left() {
            // A forked child does not have the thread.
            std::mem::forget(self.watcher.take());
            return;
        }
        // The peer agrees, which ends the thread. It fails if the peer ended the connection first.
        let _ = self.inner.id.disconnect();
        drop(self.stop.take());
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("has_ended", &self.has_ended())
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}
