//! Sleeping on the files of a device.

use super::Link;
use crate::error::Error;
use mlx5_uapi::{
    Errno,
    wait::{wait_any_readable, wait_readable},
};
use std::{
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

/// Returns the error for a failed read of an event file. `EIO` here means that the device was
/// removed and all events were read.
pub(crate) fn closed(link: &Link, operation: &'static str, errno: Errno) -> Error {
    if errno == Errno::EIO {
        link.mark_gone();
    }
    link.fail(operation, errno)
}

/// Returns the end of a timeout that starts now; `None` without a limit.
pub(crate) fn deadline_in(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}

/// Time between two checks of the device by a sleeping thread while asynchronous events are unread.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Sleeps until `fd` is readable, the device is gone, or `give_up` returns `true`; a channel's file
/// reports only the first of these. Returns `false` on timeout. Calls `give_up` when asynchronous
/// events or overruns are reported, and every [`LOOK_EVERY`] while such events stay unread.
pub(crate) fn sleep_on(
    link: &Link,
    operation: &'static str,
    fd: BorrowedFd<'_>,
    deadline: Option<Instant>,
    give_up: impl Fn() -> bool,
) -> Result<bool, Error> {
    let gone = link.gone_fd();
    let mut unread = false;
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let (others, nap) = match unread {
            false => ([link.async_fd(), link.overrun_fd()], left),
            true => ([gone; 2], Some(left.map_or(LOOK_EVERY, |left| left.min(LOOK_EVERY)))),
        };
        match wait_any_readable([fd, gone, others[0], others[1]], nap) {
            Ok([true, ..] | [_, true, ..]) => return Ok(true),
            Ok([.., event, overrun]) => {
                // It may concern the caller or not: check.
                unread |= event || overrun;
                if unread {
                    link.check_alive();
                    if give_up() {
                        return Ok(true);
                    }
                }
                if link.is_gone() {
                    return Ok(true);
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Ok(false);
                }
            }
            Err(errno) => return Err(link.fail(operation, errno)),
        }
    }
}

/// Sleeps on `fd` until `next` returns a value, or until the timeout. Another thread may have read
/// the event that woke this one: then it sleeps again.
pub(crate) fn wait_for<T>(
    link: &Link,
    operation: &'static str,
    fd: BorrowedFd<'_>,
    timeout: Option<Duration>,
    next: impl Fn() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    wait_until(fd, deadline_in(timeout), |errno| link.fail(operation, errno), next)
}

/// Sleeps on `fd` until `next` returns a value, or until the deadline.
pub(crate) fn wait_until<T>(
    fd: BorrowedFd<'_>,
    deadline: Option<Instant>,
    fail: impl Fn(Errno) -> Error,
    next: impl Fn() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    loop {
        if let Some(event) = next()? {
            return Ok(Some(event));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match wait_readable(fd, left) {
            Ok(true) => {}
            Ok(false) => return next(),
            Err(errno) => return Err(fail(errno)),
        }
    }
}
