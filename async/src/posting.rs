//! From a slot to a posted request.

use std::future::poll_fn;
use std::sync::Arc;

use mlx5::PostError;

use crate::error::{Refused, RefusedBecause};
use crate::line::Ticket;
use crate::slots::{Slots, To, Want};

/// A slot whose request is not posted yet. Dropping it gives the slot back.
struct Taken<'a, K> {
    slots: &'a Slots<K>,
    slot: Option<u32>,
}

impl<K> Taken<'_, K> {
    fn give_back(mut self) -> Option<K> {
        self.slot.take().and_then(|slot| self.slots.give_back(slot))
    }
}

impl<K> Drop for Taken<'_, K> {
    fn drop(&mut self) {
        // The closure that builds the request has panicked.
        drop(self.slot.take().and_then(|slot| self.slots.give_back(slot)));
    }
}

/// A place in the line of a queue. Dropping it leaves the line.
struct InLine<'a, K> {
    slots: &'a Slots<K>,
    ticket: Ticket,
}

impl<K> Drop for InLine<'_, K> {
    fn drop(&mut self) {
        self.slots.leave(&mut self.ticket);
    }
}

/// Whether the driver's queue was full.
fn is_full(because: &RefusedBecause) -> bool {
    let error = match because {
        RefusedBecause::Send(refused) => refused.error(),
        RefusedBecause::Receive(error) => *error,
        _ => return false,
    };
    matches!(error, PostError::QueueFull { .. })
}

/// Posts a request through `post`, which gets the slot that was taken for it.
fn post<K>(
    slots: &Slots<K>,
    slot: u32,
    post: impl FnOnce(u32) -> Result<(), RefusedBecause>,
) -> Result<u32, (Option<K>, RefusedBecause)> {
    let mut taken = Taken { slots, slot: Some(slot) };
    match post(slot) {
        Ok(()) => {
            taken.slot = None;
            Ok(slot)
        }
        Err(because) => Err((taken.give_back(), because)),
    }
}

/// Posts a request, if there is room at once.
pub(crate) fn try_post<K>(
    slots: &Arc<Slots<K>>,
    keep: K,
    want: Want,
    attempt: impl FnOnce(u32) -> Result<(), RefusedBecause>,
) -> Result<u32, Refused<K>> {
    let mut kept = Some(keep);
    let outcome = match slots.try_take(want, &mut kept) {
        Ok(slot) => post(slots, slot, attempt),
        Err(full) => Err((kept, full.into())),
    };
    outcome.map_err(|(keep, because)| refused(slots, keep, because))
}

/// Posts a request as soon as there is room.
pub(crate) async fn post_in_turn<K>(
    slots: &Arc<Slots<K>>,
    keep: K,
    want: Want,
    mut attempt: impl FnMut(u32) -> Result<(), RefusedBecause>,
) -> Result<u32, Refused<K>> {
    let mut kept = Some(keep);
    let mut line = InLine { slots, ticket: Ticket::default() };
    loop {
        let (completed, _) = slots.progress();
        let taken = poll_fn(|cx| slots.poll_take(cx, &mut line.ticket, want, &mut kept)).await;
        let slot = match taken {
            Ok(slot) => slot,
            Err(full) => return Err(refused(slots, kept, full.into())),
        };
        let (keep, because) = match post(slots, slot, &mut attempt) {
            Ok(slot) => return Ok(slot),
            Err(refused) => refused,
        };
        // A request of an unusual size may find too few blocks, though requests of the usual size
        // would have room. It waits for a completion, if the device has any request.
        let (now, any) = slots.progress();
        if !is_full(&because) || (now == completed && !any) {
            return Err(refused(slots, keep, because));
        }
        kept = keep;
        line.ticket.refused_at = Some(completed);
    }
}

fn refused<K>(slots: &Slots<K>, keep: Option<K>, because: RefusedBecause) -> Refused<K> {
    match keep {
        Some(keep) => Refused { keep, because, first: slots.first_error() },
        // A slot that is given back returns the value stored when it was taken.
        None => unreachable!("a slot that was not posted lost what it kept"),
    }
}

impl Want {
    pub(crate) fn one(to: To) -> Self {
        Self { parts: 1, to }
    }
}
