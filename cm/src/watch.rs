//! A connection that a thread watches.

use std::fmt;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::AsFd;
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
use crate::wait::Deadline;

/// How long the peer may take to agree to the end, before nobody waits for it any more.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A connection whose end a thread watches for: when the peer ends it, the queue pair goes to the
/// error state, so that whoever waits for a completion gets one, which says so.
///
/// Dropping it ends the connection, and waits for at most a second until the peer agrees.
pub struct Watched {
    // The thread is joined before the rest is dropped. The identifier goes before the queue pair.
    watcher: Option<JoinHandle<()>>,
    stop: Option<PipeWriter>,
    inner: Arc<Inner>,
    qp: Arc<SharedQueuePair<Rc>>,
    remote: Remote,
}

struct Inner {
    id: Id,
    channel: EventChannel,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

impl Inner {
    fn has_ended(&self) -> MutexGuard<'_, bool> {
        self.has_ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an event tells of the end.
    fn look(&self) -> bool {
        loop {
            match self.channel.poll() {
                Ok(None) => return false,
                Ok(Some(event)) => match event.kind {
                    EventKind::Disconnected(_) | EventKind::DeviceRemoval => return true,
                    _ => {}
                },
                Err(_) => return true,
            }
        }
    }

    /// Waits for the end, or until nobody has the other end of `stop` and the peer has had its time.
    fn watch(&self, stop: &PipeReader) {
        let mut last_words: Option<Deadline> = None;
        while !self.look() {
            let fds = [self.channel.as_fd(), stop.as_fd()];
            match last_words {
                None => match wait_any_readable(fds, None) {
                    Ok([_, false]) => {}
                    Ok([_, true]) => last_words = Some(Deadline::after(LAST_WORDS)),
                    Err(_) => return,
                },
                Some(deadline) => match self.channel.wait_readable(deadline.left()) {
                    Ok(true) if deadline.left() != Some(Duration::ZERO) => {}
                    _ => return,
                },
            }
        }
    }
}

impl Connection {
    /// Starts a thread that watches for the end of the connection. The queue pair is shared from now
    /// on.
    pub fn watched(self) -> Result<Watched, Error> {
        let failed = |error: std::io::Error| {
            Error::kernel("watch", Errno::from_raw(error.raw_os_error().unwrap_or(0)))
        };
        let (stop, stopped) = pipe().map_err(failed)?;
        let remote = *self.remote();
        let (qp, id, channel) = self.into_parts();
        let qp = Arc::new(qp.into_shared());
        let inner =
            Arc::new(Inner { id, channel, has_ended: Mutex::new(false), ended: Condvar::new() });
        let watcher = {
            let (qp, inner) = (Arc::clone(&qp), Arc::clone(&inner));
            let watch = move || {
                inner.watch(&stop);
                // First, so that who gets a flushed completion can ask for the cause.
                *inner.has_ended() = true;
                inner.ended.notify_all();
                // Both fail if the device is gone.
                let _ = qp.to_error();
                let _ = inner.id.disconnect();
            };
            thread::Builder::new().name("connection".into()).spawn(watch).map_err(failed)?
        };
        Ok(Watched { watcher: Some(watcher), stop: Some(stopped), inner, qp, remote })
    }
}

impl Watched {
    /// Returns the queue pair.
    pub fn qp(&self) -> &Arc<SharedQueuePair<Rc>> {
        &self.qp
    }

    /// Returns what the peer said of itself.
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Whether the connection has ended.
    pub fn has_ended(&self) -> bool {
        *self.inner.has_ended()
    }

    /// Waits until the connection has ended, for at most `timeout`; `None` stands for no limit. Says
    /// whether it has.
    pub fn wait_ended(&self, timeout: Option<Duration>) -> bool {
        let deadline = Deadline::within(timeout);
        let mut has_ended = self.inner.has_ended();
        while !*has_ended {
            let ended = &self.inner.ended;
            has_ended = match deadline.left() {
                None => ended.wait(has_ended).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return false,
                Some(left) => {
                    ended.wait_timeout(has_ended, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.inner.id.left() {
            // A forked child has no such thread.
            std::mem::forget(self.watcher.take());
            return;
        }
        // The peer agrees, which ends the thread. It fails if that one was faster.
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
