//! Why a request was not posted, or not done.

use std::fmt;

use mlx5::{BatchError, CompletionError, PollError, PostError};

/// Why a queue takes no more requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// It was closed. What had been posted completes.
    Closed,
    /// The pump was dropped: nothing more is known of what had been posted.
    NoPump,
    /// The completion queue cannot be polled any more: nothing more is known of what had been posted.
    Poll(PollError),
    /// The device did not complete within [`Pump::shutdown_timeout`](crate::Pump::shutdown_timeout)
    /// what was flushed when the hub was shut down: nothing more is known of what had been posted.
    TimedOut,
    /// The queue pair could not be flushed, or had been reset with requests posted, and was destroyed:
    /// nothing more is known of what had been posted.
    Destroyed,
    /// The program has the queue pair: it has left another one in the [`Seat`](crate::Seat), or none. What
    /// had been posted completes, if the queue pair is flushed before it is destroyed.
    Elsewhere,
}

impl Ended {
    /// Whether nothing more is known of what had been posted: it may have been done or not.
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
                 return the queue pair that the seat has lent",
            ),
            Self::Destroyed => f.write_str(
                "the queue pair could not be flushed and was destroyed: it is not known what was \
                 done of what had been posted",
            ),
        }
    }
}

impl std::error::Error for Ended {}

/// Why there is no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Full {
    /// None is free, or others wait for one.
    Now,
    /// Futures that were leaked, or that no task polls, have the results of all slots.
    Untaken,
    /// The queue holds fewer requests than that.
    Never,
    Ended(Ended),
}

/// Why a request was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RefusedBecause {
    /// The queue is full, or other tasks wait for room in it. Only the calls that do not wait return
    /// it.
    Full,
    /// There are futures of completed requests for 16 times as many requests as the queue holds: they
    /// were leaked, or no task polls them.
    Untaken,
    /// A batch of no request, or of more than the queue holds.
    WrongLength,
    /// The queue pair receives from a shared receive queue: receive requests are posted to
    /// [`AsyncSharedReceiveQueue`](crate::AsyncSharedReceiveQueue).
    SharedReceives,
    /// The queue takes no more requests.
    Ended(Ended),
    /// The queue pair is not here any more: another handle has closed it.
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

/// The part of a text about the queue pair's first error.
struct First(Option<CompletionError>);

impl fmt::Display for First {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(first) => write!(f, "; the first error of the queue pair: {first}"),
            None => Ok(()),
        }
    }
}

/// A request was not posted. It has what was to be kept.
pub struct Refused<K> {
    /// What was to be kept.
    pub keep: K,
    /// Why.
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

/// Why a request was not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FailedBecause {
    /// Its completion says so. See [`CompletionError::is_flushed`].
    Completion(CompletionError),
    /// Its completion did not come: it may have been done or not.
    Lost(Ended),
    /// No completion of it came before its shared receive queue was destroyed.
    Unused,
    /// The device took this receive request of a shared queue for a queue pair that was destroyed or
    /// reset before the pump had polled the completion.
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

/// A posted request was not done, or nobody knows.
pub struct Failed<K> {
    /// What was kept, if the device is done with it.
    pub keep: Option<K>,
    /// Why.
    pub because: FailedBecause,
    /// The first error of the queue pair, if one of its requests had failed by then: of a request that
    /// was flushed, the cause.
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
        // Of the one that failed first it is said already.
        let own = matches!(self.because, FailedBecause::Completion(own) if Some(own) == self.first);
        let first = self.first.filter(|_| !own);
        write!(f, "the request failed: {}{}", self.because, First(first))
    }
}

impl<K> std::error::Error for Failed<K> {}
