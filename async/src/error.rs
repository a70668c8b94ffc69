//! Reasons for which a request was not posted, or not done.

use std::fmt;

use mlx5::{BatchError, CompletionError, PollError, PostError};

/// The reason why a queue takes no more requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// The queue was closed. The requests that were posted complete.
    Closed,
    /// The pump was dropped: the outcome of posted requests is unknown.
    NoPump,
    /// The completion queue cannot be polled any more: the outcome of posted requests is unknown.
    Poll(PollError),
    /// When the hub was shut down, the device did not complete the flushed requests within
    /// [`Pump::shutdown_timeout`](crate::Pump::shutdown_timeout): their outcome is unknown.
    TimedOut,
    /// The queue pair could not be flushed, or was reset with requests posted, and was destroyed:
    /// the outcome of posted requests is unknown.
    Destroyed,
    /// The program took the queue pair away: it left another one in the [`Seat`](crate::Seat), or
    /// none. The posted requests complete if the queue pair is flushed before it is destroyed.
    Elsewhere,
}

impl Ended {
    /// Whether the outcome of posted requests is unknown: they may have been done or not.
    pub fn is_lost(self) -> bool {
        !matches!(self, Self::Closed | Self::Elsewhere)
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the queue was closed"),
            Self::NoPump => f.write_str(
                "the pump was dropped, so no completion arrives: keep `Pump::run` or the future of \
                 `Pump::drive` running until it returns",
            ),
            Self::Poll(error) => error.fmt(f),
            Self::TimedOut => f.write_str(
                "the hub was shut down, and the device did not complete in time what was posted: it \
                 is not known what was done of it",
            ),
            Self::Elsewhere => f.write_str(
                "the queue pair was not given back to its seat, which has another one or none: \
                 return the queue pair that the seat passed to the closure",
            ),
            Self::Destroyed => f.write_str(
                "the queue pair could not be flushed and was destroyed: it is not known what was \
                 done of what had been posted",
            ),
        }
    }
}

impl std::error::Error for Ended {}

/// The reason why there is no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// None is free, or other tasks wait for one.
    Now,
    /// Futures that are leaked, or that no task polls, hold the results of all slots.
    Untaken,
    /// The queue holds fewer requests than the batch has.
    Never,
    Ended(Ended),
}

/// The reason why a request was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RefusedBecause {
    /// The queue is full, or other tasks wait for room in it. Only calls that do not wait return
    /// it.
    Full,
    /// Futures of completed requests hold results for 16 times as many requests as the queue holds:
    /// they were leaked, or no task polls them.
    Untaken,
    /// The batch is empty, or longer than the queue.
    WrongLength,
    /// The queue pair receives from a shared receive queue: receive requests are posted to
    /// [`AsyncSharedReceiveQueue`](crate::AsyncSharedReceiveQueue).
    SharedReceives,
    /// The queue takes no more requests.
    Ended(Ended),
    /// Another handle has closed the queue pair and taken it.
    Taken,
    /// The driver refused the request.
    Send(BatchError),
    /// The driver refused the receive request.
    Receive(PostError),
}

impl From<Full> for RefusedBecause {
    fn from(full: Full) -> Self {
        match full {
            Full::Now => Self::Full,
            Full::Untaken => Self::Untaken,
            Full::Never => Self::WrongLength,
            Full::Ended(end) => Self::Ended(end),
        }
    }
}

impl fmt::Display for RefusedBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the queue is full: wait for a completion"),
            Self::Untaken => f.write_str(
                "16 times as many requests as the queue holds have completed, and their futures have \
                 not taken the results: poll these futures or drop them, and do not leak them \
                 (`mem::forget`)",
            ),
            Self::WrongLength => f.write_str(
                "the batch has no request, or more than the queue holds: create the queue pair with \
                 a larger `max_send_wr`",
            ),
            Self::SharedReceives => f.write_str(
                "the queue pair receives from a shared receive queue: post receive requests there",
            ),
            Self::Ended(end) => end.fmt(f),
            Self::Taken => f.write_str("another handle has closed the queue pair"),
            Self::Send(error) => error.fmt(f),
            Self::Receive(error) => error.fmt(f),
        }
    }
}

/// The part of an error text about the queue pair's first error.
struct First(Option<CompletionError>);

impl fmt::Display for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(first) => write!(f, "; the first error of the queue pair: {first}"),
            None => Ok(()),
        }
    }
}

/// A request was not posted. The error returns the value to keep.
pub struct Refused<K> {
    /// The value that the request would have kept.
    pub keep: K,
    /// The reason.
    pub because: RefusedBecause,
    /// The first error of the queue pair, if one of its requests had failed by then.
    pub first: Option<CompletionError>,
}

impl<K> fmt::Debug for Refused<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("because", &self.because).finish_non_exhaustive()
    }
}

impl<K> fmt::Display for Refused<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not posted: {}{}", self.because, First(self.first))
    }
}

impl<K> std::error::Error for Refused<K> {}

/// The reason why a request was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FailedBecause {
    /// Its completion has an error. See [`CompletionError::is_flushed`].
    Completion(CompletionError),
    /// Its completion did not arrive: it may have been done or not.
    Lost(Ended),
    /// Its shared receive queue was destroyed before a completion arrived.
    Unused,
    /// The device took this receive request of a shared queue for a queue pair that was destroyed
    /// or reset before the pump had polled the completion.
    Discarded,
}

impl fmt::Display for FailedBecause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completion(error) => error.fmt(f),
            Self::Lost(end) => end.fmt(f),
            Self::Unused => f.write_str(
                "no message had come for it when its shared receive queue was destroyed",
            ),
            Self::Discarded => f.write_str(
                "its message came for a queue pair that was destroyed or reset before the pump took \
                 the completion: post the buffer again",
            ),
        }
    }
}

/// A posted request was not done, or its outcome is unknown.
pub struct Failed<K> {
    /// The kept value, if the device no longer uses the request's memory.
    pub keep: Option<K>,
    /// The reason.
    pub because: FailedBecause,
    /// The first error of the queue pair, if one of its requests had failed by then: for a flushed
    /// request, the cause.
    pub first: Option<CompletionError>,
}

impl<K> Failed<K> {
    /// Whether the request was flushed: the queue pair failed, or was closed, before the device
    /// acknowledged it.
    pub fn is_flushed(&self) -> bool {
        matches!(self.because, FailedBecause::Completion(error) if error.is_flushed())
    }
}

impl<K> fmt::Debug for Failed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed").field("because", &self.because).finish_non_exhaustive()
    }
}

impl<K> fmt::Display for Failed<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text has the first error already.
        let own = matches!(self.because, FailedBecause::Completion(own) if Some(own) == self.first);
        let first = self.first.filter(|_| !own);
        write!(f, "the request failed: {}{}", self.because, First(first))
    }
}

impl<K> std::error::Error for Failed<K> {}
