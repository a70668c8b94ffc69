//! Taking the results of a queue's requests, or waiting for them.

use std::mem;
use std::task::{Context, Poll};

use super::{Outcome, Slots, State};
use crate::error::Ended;
use crate::wakes::{Place, Wakes, discard, remember};

impl<K> Slots<K> {
    /// Returns the result of a request, once it has one.
    pub(crate) fn poll_outcome(
        &self,
        cx: &Context<'_>,
        number: u32,
    ) -> Poll<Result<Outcome<K>, Ended>> {
        let mut wakes = Wakes::default();
        let mut table = self.table();
        let lost = table.end.filter(|_| table.is_lost);
        let slot = &mut table.slots[number as usize];
        match (slot.state, lost) {
            (State::Done, _) => {
                let outcome = table.outcome(number);
                table.advance(&mut wakes);
                drop(table);
                wakes.wake();
                Poll::Ready(Ok(outcome))
            }
            (_, Some(end)) => {
                // The device may still use the kept value.
                slot.abandoned = true;
                Poll::Ready(Err(end))
            }
            (_, None) => {
                let former = remember(&mut slot.waker, cx);
                drop(table);
                discard(former);
                Poll::Pending
            }
        }
    }

    /// The future of a request is dropped. The kept value stays until the request has completed.
    pub(crate) fn abandon(&self, number: u32) {
        let mut table = self.table();
        let slot = &mut table.slots[number as usize];
        let waker = slot.waker.take();
        let mut wakes = Wakes::default();
        let mut keep = None;
        match slot.state {
            State::Done => {
                keep = table.outcome(number).2;
                table.advance(&mut wakes);
            }
            State::Posted => slot.abandoned = true,
            State::Free => {}
        }
        drop(table);
        wakes.wake();
        discard(waker);
        drop(keep);
    }

    /// Adds a stream: of one queue pair, or of those without a stream.
    pub(crate) fn enter_streams(&self, of: Option<u32>) {
        if let Some(qp_num) = of {
            self.table().ready_of.entry(qp_num).or_default().0 += 1;
        }
    }

    /// Returns the next result for a stream; `None` when the queue has ended and no result is left.
    pub(crate) fn poll_ready(
        &self,
        cx: &Context<'_>,
        of: Option<u32>,
        place: &mut Place,
    ) -> Poll<Option<Outcome<K>>> {
        let mut wakes = Wakes::default();
        let mut table = self.table();
        if let Some(outcome) = table.next_ready(of, &mut wakes) {
            drop(table);
            wakes.wake();
            return Poll::Ready(Some(outcome));
        }
        if table.is_lost || (table.end.is_some() && table.is_idle()) {
            return Poll::Ready(None);
        }
        let former = table.ready(of).waiting.wait(place, cx);
        drop(table);
        discard(former);
        Poll::Pending
    }

    /// Returns the next result for a stream, if there is one.
    pub(crate) fn next_ready(&self, of: Option<u32>) -> Option<Outcome<K>> {
        let mut wakes = Wakes::default();
        let outcome = self.table().next_ready(of, &mut wakes);
        wakes.wake();
        outcome
    }

    /// Removes a stream. If it was the last one of a queue pair, the other streams get its results.
    pub(crate) fn leave_streams(&self, of: Option<u32>, place: &mut Place) {
        let mut wakes = Wakes::default();
        let mut guard = self.table();
        let table = &mut *guard;
        let left = match of.and_then(|qp_num| Some((qp_num, table.ready_of.get_mut(&qp_num)?))) {
            None => table.ready.waiting.leave(place),
            Some((qp_num, (streams, ready))) => {
                let left = ready.waiting.leave(place);
                *streams -= 1;
                if *streams == 0 && !ready.slots.is_empty() {
                    table.ready.slots.append(&mut ready.slots);
                    table.ready.waiting.wake(&mut wakes);
                }
                if *streams == 0 {
                    table.ready_of.remove(&qp_num);
                }
                left
            }
        };
        drop(guard);
        discard(left);
        wakes.wake();
    }

    /// Ready when the device has no request.
    pub(crate) fn poll_idle(&self, cx: &Context<'_>, place: &mut Place) -> Poll<Result<(), Ended>> {
        let mut table = self.table();
        if table.is_idle() {
            return Poll::Ready(Ok(()));
        }
        if let Some(end) = table.end.filter(|_| table.is_lost) {
            return Poll::Ready(Err(end));
        }
        let former = table.idle.wait(place, cx);
        drop(table);
        discard(former);
        Poll::Pending
    }

    /// Stops waiting for [`Slots::poll_idle`].
    pub(crate) fn leave_idle(&self, place: &mut Place) {
        let left = self.table().idle.leave(place);
        discard(left);
    }

    /// Marks the queue as not over before [`Slots::note_drained`].
    pub(crate) fn need_drain(&self) {
        self.table().is_undrained = true;
    }

    pub(crate) fn is_undrained(&self) -> bool {
        self.table().is_undrained
    }

    pub(crate) fn note_drained(&self, wakes: &mut Wakes) {
        let mut table = self.table();
        if mem::take(&mut table.is_undrained) {
            table.note_idle(wakes);
        }
    }
}
