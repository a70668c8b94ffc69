//! Polling packets that share receives.

use super::{Ring, byte_count, index_after_owner, read_tail};
use crate::completion::WorkCompletion;
use crate::corruption::Corruption;
use crate::kind::Kind;
use crate::queue::Queue;
use core::fmt;
use core::ptr::NonNull;
use mlx5_prm::cqe::{CqeOpcode, OPCODE_SHIFT, OWNER, SOLICITED};

/// The last byte of the new CQE of a packet, as [`REQUEST`](super::REQUEST) that of a request.
const PACKET: u8 = (CqeOpcode::ResponderSend as u8) << OPCODE_SHIFT;

/// A poll of a completion queue on which the packets of a queue with strides complete. It returns with each
/// completion its first stride and byte count as they were when its strides were retired: a device may change
/// the CQE later. As [`super::Poll`],
/// it keeps its position to itself, and must be dropped.
#[must_use = "a poll is made to look at CQEs, and is dropped"]
pub struct StridePoll<'a, Q> {
    ring: &'a mut Ring<Q>,
    next: NonNull<u8>,
    owner: u32,
    /// CQEs that were consumed here, and whether there were others.
    count: u32,
    others: bool,
    /// The ring's queue of receives, and its index.
    queue: (u64, NonNull<Q>),
    marks: Kind,
}

impl<Q> fmt::Debug for StridePoll<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridePoll").field("count", &self.count).finish_non_exhaustive()
    }
}

impl<Q: Queue> Ring<Q> {
    /// Starts a poll of packets that share receives.
    #[inline(always)]
    pub fn poll_strides(&mut self) -> StridePoll<'_, Q> {
        if core::mem::replace(&mut self.is_lent, true) {
            // The last one was leaked, and with it how far it came. A CQE names strides, not their request:
            // those that were told already would be taken for strides of the next one.
            self.latch(Corruption::Leaked);
        }
        StridePoll {
            next: self.next,
            owner: self.owner,
            count: 0,
            others: false,
            queue: self.received,
            marks: self.marks,
            ring: self,
        }
    }
}

impl<Q: Queue> StridePoll<'_, Q> {
    /// Returns the completion of the next packet, if there is one, with its first stride and its byte count
    /// ([`Strides::new`](crate::Strides::new)). Receives that failed are passed to `failed`, by their
    /// identifiers.
    #[inline(always)]
    pub fn next(&mut self, mut failed: impl FnMut(u64)) -> Option<(WorkCompletion<'_>, u16, u32)> {
        let ((descriptor, wr_id, first, bytes), kind) = match self.fast() {
            Some(found) => (found, Kind::received(CqeOpcode::ResponderSend as u8)),
            // With its own marks: the ring is past the last CQE of a run already.
            None => (self.slow(&mut failed)?, self.ring.found.2),
        };
        // SAFETY: as in `fast`.
        let tag = Some(unsafe { self.queue.1.as_ref() }.user_tag());
        Some((WorkCompletion::new(descriptor, wr_id, kind, self.marks, tag), first, bytes))
    }

    /// The next packet, if there is nothing else to be done.
    #[inline(always)]
    fn fast(&mut self) -> Option<(NonNull<u8>, u64, u16, u32)> {
        let descriptor = self.next;
        let tail = read_tail(descriptor) ^ self.owner;
        if tail as u8 & !SOLICITED != PACKET
            || u64::from(index_after_owner(descriptor)) != self.queue.0
        {
            return None;
        }
        // SAFETY: a cached queue is valid: the cache is cleared before destroyed queues are freed, which
        // the poller does, and not during a poll.
        let queue = unsafe { self.queue.1.as_ref() };
        let (first, bytes) = ((tail >> 16) as u16, byte_count(descriptor));
        let wr_id = queue.retire_strides(first, bytes)?;
        let after = descriptor.as_ptr().wrapping_byte_add(self.ring.stride);
        self.next = if after == self.ring.end.as_ptr() {
            self.owner ^= u32::from(OWNER);
            self.ring.first
        } else {
            // SAFETY: the address is inside the buffer, or inside the expanded CQEs of a run.
            unsafe { NonNull::new_unchecked(after) }
        };
        self.count += 1;
        Some((descriptor, wr_id, first, bytes))
    }

    /// Lets the ring find the next packet, if there is one.
    #[cold]
    #[inline(never)]
    fn slow(&mut self, failed: &mut dyn FnMut(u64)) -> Option<(NonNull<u8>, u64, u16, u32)> {
        self.write_back();
        let found = loop {
            if !self.ring.find_completion() {
                break None;
            }
            self.others = true;
            let (descriptor, wr_id, kind) = self.ring.found;
            if !kind.is(CqeOpcode::ResponderSend) {
                // Of such a queue no other receive succeeds.
                failed(wr_id);
                continue;
            }
            let (first, bytes) = self.ring.found_strides;
            break Some((descriptor, wr_id, first, bytes));
        };
        (self.next, self.owner) = (self.ring.next, self.ring.owner);
        (self.queue, self.marks) = (self.ring.received, self.ring.marks);
        found
    }
}

impl<Q> StridePoll<'_, Q> {
    /// Tells the ring what was consumed.
    #[inline(always)]
    fn write_back(&mut self) {
        (self.ring.next, self.ring.owner) = (self.next, self.owner);
        // All of them are of one kind: a compressed run begins and ends off the fast path.
        self.ring.pass_slots(core::mem::take(&mut self.count));
    }
}

impl<Q> Drop for StridePoll<'_, Q> {
    #[inline(always)]
    fn drop(&mut self) {
        self.ring.is_lent = false;
        if self.count != 0 || self.others {
            self.write_back();
            self.ring.publish();
        }
    }
}
