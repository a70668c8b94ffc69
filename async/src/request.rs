//! Requests that are awaited, and streams of requests without a future.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use mlx5::OwnedCompletion;

use crate::error::{Ended, Failed, FailedBecause};
use crate::slots::{Outcome, Slots, Verdict};
use crate::wakes::Place;

/// A request that was done.
pub struct Done<K> {
    /// The kept value.
    pub keep: K,
    /// The completion: the length of a received message, its immediate data, and so on. For a
    /// batch, that of the last request. Its `wr_id` is internal to this package.
    pub completion: OwnedCompletion,
}

impl<K> fmt::Debug for Done<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done").field("completion", &self.completion).finish_non_exhaustive()
    }
}

/// Converts the outcome of a request to its result.
fn result<K>(
    slots: &Slots<K>,
    (completion, verdict, keep): Outcome<K>,
) -> Result<Done<K>, Failed<K>> {
    let because = match (verdict, completion.as_completion().status()) {
        (Verdict::Unused, _) => FailedBecause::Unused,
        (Verdict::Discarded, _) => FailedBecause::Discarded,
        (Verdict::Failed, Err(error)) => FailedBecause::Completion(error),
        _ => match keep {
            Some(keep) => return Ok(Done { keep, completion }),
            None => unreachable!("a slot that is done has what it keeps until its result is taken"),
        },
    };
    Err(Failed { keep, because, first: slots.first_error() })
}

/// A posted request. Awaiting it returns the kept value, once the request has completed.
///
/// Dropping it does not cancel the request, and no other request gets its completion: the kept
/// value stays until the device is done with the request, and is dropped then. Leaking the future
/// leaks the value. It takes no room from other requests, up to a limit:
/// [`RefusedBecause::Untaken`](crate::RefusedBecause::Untaken).
#[must_use = "the request is posted; await it to hear of its completion"]
pub struct Request<K> {
    slots: Arc<Slots<K>>,
    /// None once the result was taken.
    slot: Option<u32>,
}

impl<K> Request<K> {
    pub(crate) fn new(slots: &Arc<Slots<K>>, slot: u32) -> Self {
        Self { slots: Arc::clone(slots), slot: Some(slot) }
    }
}

impl<K> fmt::Debug for Request<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl<K> Future for Request<K> {
    type Output = Result<Done<K>, Failed<K>>;

    /// Ready once. Polled after that, it stays pending.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(slot) = self.slot else { return Poll::Pending };
        let outcome = match self.slots.poll_outcome(cx, slot) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(outcome)) => result(&self.slots, outcome),
            Poll::Ready(Err(end)) => Err(Failed {
                keep: None,
                because: FailedBecause::Lost(end),
                first: self.slots.first_error(),
            }),
        };
        self.slot = None;
        Poll::Ready(outcome)
    }
}

impl<K> Drop for Request<K> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.slots.abandon(slot);
        }
    }
}

/// The stream of a queue's requests without a future, in order of completion.
///
/// It ends when the queue was closed and everything has completed, or when the pump has ended. A
/// result that is not taken keeps its place in the queue. Several streams of one queue share its
/// results: each result goes to one of them.
#[must_use = "a stream does nothing unless it is polled"]
pub struct Completions<K> {
    slots: Arc<Slots<K>>,
    /// The queue pair whose results it returns; none for queue pairs without a stream.
    of: Option<u32>,
    place: Place,
}

impl<K> Completions<K> {
    pub(crate) fn new(slots: &Arc<Slots<K>>, of: Option<u32>) -> Self {
        slots.enter_streams(of);
        Self { slots: Arc::clone(slots), of, place: Place::default() }
    }

    /// Waits for the next completion; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<Result<Done<K>, Failed<K>>> {
        let Self { slots, of, place } = self;
        let outcome = poll_fn(|cx| slots.poll_ready(cx, *of, place)).await?;
        Some(result(slots, outcome))
    }

    /// Returns the next completion, if there is one.
    pub fn try_next(&mut self) -> Option<Result<Done<K>, Failed<K>>> {
        self.slots.next_ready(self.of).map(|outcome| result(&self.slots, outcome))
    }
}

impl<K> fmt::Debug for Completions<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completions").finish_non_exhaustive()
    }
}

impl<K> Stream for Completions<K> {
    type Item = Result<Done<K>, Failed<K>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { slots, of, place } = self.get_mut();
        let outcome = slots.poll_ready(cx, *of, place);
        outcome.map(|outcome| outcome.map(|outcome| result(slots, outcome)))
    }
}

impl<K> Drop for Completions<K> {
    fn drop(&mut self) {
        self.slots.leave_streams(self.of, &mut self.place);
    }
}

/// Waits until the device has no request of a queue.
pub(crate) async fn idle<K>(slots: &Slots<K>) -> Result<(), Ended> {
    let mut waiting = Idle { slots, place: Place::default() };
    poll_fn(|cx| waiting.slots.poll_idle(cx, &mut waiting.place)).await
}

struct Idle<'a, K> {
    slots: &'a Slots<K>,
    place: Place,
}

impl<K> Drop for Idle<'_, K> {
    fn drop(&mut self) {
        self.slots.leave_idle(&mut self.place);
    }
}
