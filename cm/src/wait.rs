//! Waiting for events of a channel's only identifier.

use std::time::{Duration, Instant};

use crate::channel::EventChannel;
use crate::error::{Error, ErrorKind};
use crate::event::EventKind;

/// The time limit of resolving, connecting, accepting and stopping, if none was set.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The time at which a wait ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    /// No limit for `None`.
    pub(crate) fn within(timeout: Option<Duration>) -> Self {
        timeout.map_or(Self(None), Self::after)
    }

    /// The earlier of both.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(match (self.0, other.0) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        })
    }

    pub(crate) fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }

    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|at| at.saturating_duration_since(Instant::now()))
    }
}

/// The error text for an event that did not arrive while a connection is set up.
pub(crate) fn late(what: &str) -> String {
    format!("{what} did not come in time: try again, or set a longer time limit")
}

/// Waits for an event on a channel with one identifier, and returns `wanted`'s result for it. Any
/// other event that ends the connection is an error. `late` is the error text at the deadline.
pub(crate) fn wait_for<R>(
    channel: &EventChannel,
    deadline: Deadline,
    (operation, late): (&'static str, &str),
    mut wanted: impl FnMut(&EventKind) -> Option<R>,
) -> Result<R, Error> {
    loop {
        let Some(event) = channel.wait(deadline.left())? else {
            return Err(Error::timed_out(operation, late.to_owned()));
        };
        if let Some(result) = wanted(&event.kind) {
            return Ok(result);
        }
        if let Some(error) = failure(operation, event.kind) {
            return Err(error);
        }
    }
}

/// Converts an event that ends a connection to an error.
pub(crate) fn failure(operation: &'static str, event: EventKind) -> Option<Error> {
    Some(match event {
        EventKind::AddressError(errno)
        | EventKind::RouteError(errno)
        | EventKind::ConnectError(errno)
        | EventKind::Unreachable(errno) => Error::event(operation, errno),
        EventKind::Rejected(rejection) => Error::rejected(operation, rejection),
        EventKind::Disconnected(_) => {
            Error::new(operation, ErrorKind::Disconnected, "the peer ended the connection")
        }
        EventKind::DeviceRemoval => {
            let what = "the device is gone: drop what belongs to it, and connect again";
            Error::new(operation, ErrorKind::DeviceGone, what)
        }
        EventKind::AddressChange => {
            let what = "the address moved to another device: connect again";
            Error::new(operation, ErrorKind::Disconnected, what)
        }
        _ => return None,
    })
}
