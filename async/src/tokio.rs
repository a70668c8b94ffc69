//! Waiting for descriptors with tokio.

#![allow(unsafe_code, reason = "tokio's `AsyncFd` has no safe constructor that is not deprecated")]

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use tokio::io::{Interest, unix::AsyncFd};

use crate::pump::{Pump, PumpError, Step};

/// Registers a descriptor with the runtime of this task. It duplicates the descriptor, so that
/// nothing else closes it.
fn register(of: &impl AsFd) -> io::Result<AsyncFd<OwnedFd>> {
    let fd = of.as_fd().try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` has one open descriptor, which `as_raw_fd` returns unchanged until it is
    // dropped. It belongs to the `AsyncFd`, which this module neither replaces by `get_mut` nor
    // exposes: it is private to `Readable` and to `Pump::drive`.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
impl Pump {
    /// Runs until the hub is shut down, as a task of tokio, which needs its I/O driver
    /// (`enable_io`). Sleeps while nothing completes.
    pub async fn drive(mut self) -> Result<(), PumpError> {
        let readable = register(&self).map_err(PumpError::Wait)?;
        loop {
            match self.step()? {
                // Let the woken tasks run.
                Step::Again => tokio::task::yield_now().await,
                Step::Stopped => return Ok(()),
                // Clear it before reading the events: a later event sets it again.
                Step::Wait => readable.readable().await.map_err(PumpError::Wait)?.clear_ready(),
            }
        }
    }
}

/// An object with a descriptor that is readable while the object has news, such as a listener, a
/// connection or an event channel.
///
/// ```no_run
/// # async fn f(listener: std::net::TcpListener) -> std::io::Result<()> {
/// # use mlx5_async::Readable;
/// listener.set_nonblocking(true)?;
/// let mut listener = Readable::new(listener)?;
/// let (stream, from) = listener
///     .found(|listener| match listener.accept() {
///         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
///         accepted => accepted.map(Some),
///     })
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub struct Readable<T> {
    readable: AsyncFd<OwnedFd>,
    inner: T,
}

impl<T: AsFd> Readable<T> {
    /// Registers the descriptor with the runtime of this task.
    pub fn new(inner: T) -> io::Result<Self> {
        Ok(Self { readable: register(&inner)?, inner })
    }

    /// Returns the object.
    pub fn get_ref(&self) -> &T {
        &self.inner
    }

    /// Returns the object.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Returns the object, and deregisters its descriptor.
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Waits until `look` returns something. If the call is dropped before, nothing is lost.
    pub async fn found<R, E: Into<io::Error>>(
        &mut self,
        mut look: impl FnMut(&mut T) -> Result<Option<R>, E>,
    ) -> io::Result<R> {
        poll_fn(|cx| self.poll_found(cx, &mut look)).await
    }

    /// Ready when `look` returns something. The task is woken when the descriptor becomes readable.
    pub fn poll_found<R, E: Into<io::Error>>(
        &mut self,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&mut T) -> Result<Option<R>, E>,
    ) -> Poll<io::Result<R>> {
        loop {
            if let Some(found) = look(&mut self.inner).map_err(Into::into)? {
                return Poll::Ready(Ok(found));
            }
            ready!(self.readable.poll_read_ready(cx))?.clear_ready();
        }
    }

    /// Returns the stream of the results of `look`. It ends after an error.
    pub fn into_stream<R, E, F>(self, look: F) -> Found<T, F>
    where
        E: Into<io::Error>,
        F: FnMut(&mut T) -> Result<Option<R>, E>,
    {
        Found { of: Some((self, look)) }
    }
}

/// The stream of the results of a look. See [`Readable::into_stream`].
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub struct Found<T, F> {
    of: Option<(Readable<T>, F)>,
}

impl<T, F> std::fmt::Debug for Found<T, F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").finish_non_exhaustive()
    }
}

// No field is pinned.
impl<T, F> Unpin for Found<T, F> {}

impl<T: AsFd, F, R, E: Into<io::Error>> Stream for Found<T, F>
where
    F: FnMut(&mut T) -> Result<Option<R>, E>,
{
    type Item = io::Result<R>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some((readable, look)) = &mut self.of else { return Poll::Ready(None) };
        let found = ready!(readable.poll_found(cx, look));
        if found.is_err() {
            self.of = None;
        }
        Poll::Ready(Some(found))
    }
}
