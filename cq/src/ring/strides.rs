//! Polling packets that share receives.
//!
//! The packets of a request are stored one after the other, so the next CQE's first stride is
//! known. One comparison finds that the CQE is written, that it is a packet's, and that its strides
//! are the next ones.

use super::{Ring, byte_count, index_after_owner, read_tail};
use crate::completion::WorkCompletion;
use crate::kind::Kind;
use crate::queue::{CqeStrides, Queue, RetiredStrides, StridesOutcome};
use core::fmt;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::cqe::{Cqe, CqeOpcode, OPCODE_SHIFT, OWNER, SOLICITED};
use mlx5_prm::ethernet::striding::{BYTES_MASK, FILLER, STRIDES_SHIFT};

/// The last byte of the new CQE of a packet, as [`REQUEST`](super::REQUEST) is that of a request.
const PACKET: u8 = (CqeOpcode::ResponderSend as u8) << OPCODE_SHIFT;
/// The compared bits of the last four bytes of a CQE: all but the signature and the bit of a
/// solicited event.
const COMPARED: u32 = 0xffff_00ff & !(SOLICITED as u32);
/// Position of the first stride in these four bytes. The number of strides has the same position in
/// the byte count.
const FIRST_SHIFT: u32 = 16;
const _: () = assert!(FIRST_SHIFT == STRIDES_SHIFT);
/// A value that no CQE equals, so that nothing is taken.
const UNKNOWN: u64 = u64::MAX;
/// The expectation of a poll that knows no request.
const NOT_KNOWN: (u64, u64, u64, (u16, u16)) = (UNKNOWN, UNKNOWN, 0, (0, 0));

/// The number of strides in a byte count, at the position that it has there. With the bit of a
/// filler the result exceeds the strides of any request.
#[inline]
fn taken(bytes: u32) -> u64 {
    u64::from(bytes & !BYTES_MASK)
}

/// The strides that a completion took of its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundStrides {
    /// The first stride.
    pub first: u16,
    /// The byte count of the CQE ([`Strides::new`](crate::Strides::new)).
    pub bytes: u32,
    /// Whether the device is done with the request.
    pub ended: bool,
}

impl FoundStrides {
    pub(super) fn new(entry: &CqeStrides, retired: RetiredStrides) -> Self {
        Self { first: entry.first, bytes: entry.byte_count, ended: retired.ended }
    }
}

/// An event that a poll found before the packet that it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StrideNotice {
    /// The device is done with the request with this identifier: [`StridePoll::next_behind`]
    /// returned the packet of its last strides.
    Ended(u64),
    /// A packet failed, or the queue did.
    Failed {
        /// The identifier of the request.
        wr_id: u64,
        /// Whether the device is done with the request.
        ended: bool,
    },
}

/// Returns the word of a CQE that names the request, in the device's byte order.
#[inline]
fn request_at(descriptor: NonNull<u8>) -> u16 {
    const REQUEST: usize = offset_of!(Cqe, wqe_id);
    // SAFETY: the two bytes are inside a descriptor, and aligned to two.
    unsafe { descriptor.byte_add(REQUEST).cast::<u16>().read_volatile() }
}

/// Reads the strides of the CQE at `descriptor`.
#[inline(always)]
pub(super) fn strides_at(
    descriptor: NonNull<u8>,
    first: u16,
    outcome: StridesOutcome,
) -> CqeStrides {
    let request = u16::from_be(request_at(descriptor));
    CqeStrides { request, first, byte_count: byte_count(descriptor), outcome }
}

/// The position of a poll, and its expectation there.
#[derive(Clone, Copy)]
struct Position {
    next: NonNull<u8>,
    /// The CQE before which the fast path stops: the end of the ring, or of the poll.
    stop: NonNull<u8>,
    /// Compared with the last four bytes of the next CQE, if its packet is stored right after the
    /// last one.
    expected: u64,
    /// The expectation after the last stride of the request.
    end: u64,
    /// The request: its identifier, and its number with the mask of the slot's bits, both in the
    /// device's byte order.
    wr_id: u64,
    request: (u16, u16),
}

/// The progress of a poll. Dropping it stores the progress in the ring, also after a panic.
struct Passed<'a, Q> {
    ring: &'a mut Ring<Q>,
    next: NonNull<u8>,
    expected: u64,
}

impl<Q> Drop for Passed<'_, Q> {
    #[inline]
    fn drop(&mut self) {
        (self.ring.poll_state.at.next, self.ring.poll_state.at.expected) =
            (self.next, self.expected);
    }
}

/// The ring's state of a poll of packets that share receives.
pub(super) struct PollState {
    /// Whether there is a poll, which has the ring's position.
    is_open: bool,
    /// Whether it consumed CQEs that are not of packets.
    others: bool,
    /// Number of packets that it returned, up to the ring's position, and the limit.
    count: u32,
    most: u32,
    /// Its position.
    at: Position,
}

impl PollState {
    /// No poll; `first` is the descriptor of the first CQE.
    pub(super) fn not(first: NonNull<u8>) -> Self {
        let (expected, end, wr_id, request) = NOT_KNOWN;
        let at = Position { next: first, stop: first, expected, end, wr_id, request };
        Self { is_open: false, others: false, count: 0, most: 0, at }
    }

    /// Drops the expectation, because the queue may be freed.
    pub(super) fn forget_queue(&mut self) {
        (self.at.expected, self.at.end) = (UNKNOWN, UNKNOWN);
    }
}

/// A poll of a completion queue on which the packets of a queue with strides complete. It returns
/// the strides and the byte count of a packet as they were when the strides were taken, because a
/// device may change the CQE later. The poll's progress is stored in the ring, but the ring's own
/// position stays until [`Ring::end_strides`]; nothing else may poll the ring before.
#[must_use = "a poll is made to look at CQEs"]
pub struct StridePoll<'a, Q> {
    ring: &'a mut Ring<Q>,
}

impl<Q> fmt::Debug for StridePoll<'_, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridePoll")
            .field("next", &self.ring.poll_state.at.next)
            .finish_non_exhaustive()
    }
}

/// The descriptor of the next CQE in memory. After the last CQE it may lie outside of the buffer,
/// because a descriptor is the end of its CQE.
#[inline]
fn behind(descriptor: NonNull<u8>, stride: usize) -> NonNull<u8> {
    // SAFETY: no buffer reaches to the end of the address space, so the address does not wrap to
    // zero.
    unsafe { NonNull::new_unchecked(descriptor.as_ptr().wrapping_byte_add(stride)) }
}

impl<Q: Queue> Ring<Q> {
    /// Starts a poll of at most `most` packets that share receives.
    ///
    /// # Safety
    /// Until [`Ring::end_strides`], or the next such poll, nothing else polls, purges or moves the
    /// ring.
    #[inline(always)]
    pub unsafe fn poll_strides(&mut self, most: u32) -> StridePoll<'_, Q> {
        if self.poll_state.is_open {
            self.end_unended();
        }
        (self.poll_state.is_open, self.poll_state.others) = (true, false);
        (self.poll_state.count, self.poll_state.most) = (0, most);
        self.poll_state.at = self.position();
        StridePoll { ring: self }
    }

    /// Ends a poll of packets that share receives, if there is one; the ring continues at its
    /// position. Returns the number of packets that it returned. If [`StridePoll::next_behind`]
    /// returned the last strides of a request as its last packet, also returns that request.
    #[inline(always)]
    pub fn end_strides(&mut self) -> (u32, Option<u64>) {
        if !core::mem::take(&mut self.poll_state.is_open) {
            return (0, None);
        }
        let ended = self.take_over();
        let PollState { count, others, .. } = self.poll_state;
        if count != 0 || others {
            self.publish();
        }
        (count, ended)
    }

    /// Ends a poll that was not ended. The owner does not learn which request the poll ended, so it
    /// may leave a poll only if that returned no last packet of a request.
    #[cold]
    #[inline(never)]
    fn end_unended(&mut self) {
        self.end_strides();
    }

    /// The position and the expectation of a poll that starts where the ring is.
    #[inline(always)]
    fn position(&self) -> Position {
        let (index, queue) = self.received;
        let oldest = if index == Self::NOT_CACHED {
            None
        } else {
            // SAFETY: a cached queue is valid, because the cache is cleared before destroyed queues
            // are freed. The poller frees them, and not during a poll.
            let queue = unsafe { queue.as_ref() };
            queue.oldest_strides()
        };
        let (expected, end, wr_id, request) = match oldest {
            // With more strides, the bit of a filler would be part of their number.
            Some(oldest) if oldest.strides < FILLER >> STRIDES_SHIFT => {
                let last_byte = u32::from(PACKET) | self.owner;
                let place = |stride: u32| u64::from(stride) << FIRST_SHIFT | u64::from(last_byte);
                let request = (oldest.request.to_be(), oldest.mask.to_be());
                (place(oldest.taken), place(oldest.strides), oldest.wr_id, request)
            }
            _ => NOT_KNOWN,
        };
        Position { next: self.next, stop: self.stop(), expected, end, wr_id, request }
    }

    /// Makes the completion of a packet. It has only the marks of compression, because a packet's
    /// CQE has no inline data.
    #[inline(always)]
    fn packet<'poll>(
        &self,
        descriptor: NonNull<u8>,
        wr_id: u64,
        marks: Kind,
    ) -> WorkCompletion<'poll>
    where
        Q: 'poll,
    {
        let kind = Kind::received(CqeOpcode::ResponderSend as u8);
        // SAFETY: the queue is cached, and the cache is cleared before destroyed queues are freed.
        // Callers bound the lifetime by a borrow of the poll.
        let tag = Some(unsafe { self.received.1.as_ref() }.user_tag());
        WorkCompletion::new(descriptor, wr_id, kind, marks.of_compression(), tag)
    }

    /// Returns the byte count of the next packet if its CQE is at `next`, it takes the expected
    /// strides of the expected request, no more than are left, and `accept` takes the byte count.
    #[inline(always)]
    fn look_behind(
        &self,
        next: NonNull<u8>,
        (expected, left): (u64, u64),
        (request, mask): (u16, u16),
        accept: impl FnOnce(u32) -> bool,
    ) -> Option<u32> {
        if (expected as u32 ^ read_tail(next)) & COMPARED != 0
            || index_after_owner(next) != self.received.0 as u32
            || (request_at(next) ^ request) & mask != 0
        {
            return None;
        }
        let bytes = byte_count(next);
        let taken = taken(bytes);
        (taken != 0 && taken <= left && accept(bytes)).then_some(bytes)
    }

    /// Position at which a poll stops that continues from the position of the ring.
    #[inline]
    fn stop(&self) -> NonNull<u8> {
        let left = u64::from(self.poll_state.most.wrapping_sub(self.poll_state.count))
            * self.stride as u64;
        self.next.map_addr(|next| next.saturating_add(left as usize).min(self.end.addr()))
    }

    /// Advances the ring to the poll's position. Returns the request that the poll ended, if it
    /// did.
    #[inline(always)]
    fn take_over(&mut self) -> Option<u64> {
        let Position { next, expected, end, wr_id, .. } = self.poll_state.at;
        let bytes = next.addr().get() - self.next.addr().get();
        let count = (bytes >> self.stride.trailing_zeros()) as u32;
        self.poll_state.count += count;
        // All CQEs are of one kind, because a compressed run begins and ends off the fast path.
        self.pass_slots(count);
        self.next = next;
        if next == self.end {
            self.next = self.first;
            self.owner ^= u32::from(OWNER);
            self.countdown = 1;
        }
        if expected == UNKNOWN {
            return None;
        }
        // SAFETY: an expectation exists only while the queue is cached, and the cache is cleared
        // before destroyed queues are freed.
        let queue = unsafe { self.received.1.as_ref() };
        queue.take_strides((expected >> FIRST_SHIFT) as u32);
        (expected == end).then_some(wr_id)
    }

    /// Finds the next packet of a poll by the slow path, and returns whether there is one.
    #[cold]
    #[inline(never)]
    fn find_packet(&mut self, note: &mut dyn FnMut(StrideNotice)) -> bool {
        if let Some(wr_id) = self.take_over() {
            note(StrideNotice::Ended(wr_id));
        }
        let mut found = false;
        if self.poll_state.count < self.poll_state.most {
            found = self.find_plain_packet();
            while !found && self.find_completion() {
                self.poll_state.others = true;
                found = self.found.2.is(CqeOpcode::ResponderSend);
                if !found {
                    // No other receive of such a queue succeeds, so this one failed.
                    let (wr_id, ended) = (self.found.1, self.found_strides.ended);
                    note(StrideNotice::Failed { wr_id, ended });
                }
            }
            self.poll_state.count += u32::from(found);
        }
        self.poll_state.at = self.position();
        found
    }

    /// Finds the next packet, if it is of the cached queue and needs no other handling.
    #[inline(always)]
    fn find_plain_packet(&mut self) -> bool {
        let descriptor = self.next;
        let tail = read_tail(descriptor) ^ self.owner;
        if tail as u8 & !SOLICITED != PACKET
            || u64::from(index_after_owner(descriptor)) != self.received.0
        {
            return false;
        }
        // SAFETY: the CQE's index equals that of the cached queue. The cache is cleared before
        // destroyed queues are freed.
        let queue = unsafe { self.received.1.as_ref() };
        let entry = strides_at(descriptor, (tail >> FIRST_SHIFT) as u16, StridesOutcome::Arrived);
        let Some(retired) = queue.retire_strides(entry) else { return false };
        self.pass(descriptor);
        let kind = Kind::received(CqeOpcode::ResponderSend as u8);
        self.found = (descriptor, retired.wr_id, kind.with(self.marks));
        self.found_strides = FoundStrides::new(&entry, retired);
        true
    }
}

impl<Q: Queue> StridePoll<'_, Q> {
    /// Returns the completion of the next packet and its byte count, if the packet takes the
    /// strides [right after](StridePoll::behind) the last one, and if `accept` takes the byte
    /// count. Otherwise [`StridePoll::find`] looks for it.
    #[inline(always)]
    pub fn next_behind(
        &mut self,
        accept: impl FnOnce(u32) -> bool,
    ) -> Option<(WorkCompletion<'_>, u32)> {
        let Position { next, stop, expected, end, wr_id, request } = self.ring.poll_state.at;
        if next == stop {
            return None;
        }
        let bytes = self.ring.look_behind(next, (expected, end - expected), request, accept)?;
        self.ring.poll_state.at.expected = expected + taken(bytes);
        self.ring.poll_state.at.next = behind(next, self.ring.stride);
        Some((self.ring.packet(next, wr_id, self.ring.marks), bytes))
    }

    /// Calls `each` with every packet that [`StridePoll::next_behind`] would return, until it would
    /// return none.
    #[inline(always)]
    pub fn each_behind(
        &mut self,
        accept: impl Fn(u32) -> bool,
        mut each: impl FnMut(WorkCompletion<'_>, u32),
    ) {
        let Position { next, stop, expected, end, wr_id, request } = self.ring.poll_state.at;
        let (marks, stride, mut left) = (self.ring.marks, self.ring.stride, end - expected);
        let mut passed = Passed { ring: self.ring, next, expected };
        while passed.next != stop {
            let next = passed.next;
            let looked = passed.ring.look_behind(next, (passed.expected, left), request, &accept);
            let Some(bytes) = looked else { break };
            left -= taken(bytes);
            // Before the call, because `each` may panic.
            passed.expected += taken(bytes);
            passed.next = behind(next, stride);
            each(passed.ring.packet(next, wr_id, marks), bytes);
        }
    }

    /// Returns the request and the first stride of the packet that [`StridePoll::next_behind`]
    /// returns next. Meaningless if that returns none.
    #[inline]
    pub fn behind(&self) -> (u64, u16) {
        let Position { expected, wr_id, .. } = self.ring.poll_state.at;
        (wr_id, (expected >> FIRST_SHIFT) as u16)
    }

    /// Whether [`StridePoll::find`] has something to do: not at the end of most polls.
    #[inline]
    pub fn has_next(&self) -> bool {
        let Position { next, stop, .. } = self.ring.poll_state.at;
        next == stop || (read_tail(next) ^ self.ring.owner) as u8 & OWNER == 0
    }

    /// Finds the next packet off the fast path, once the one before is dropped. Returns its
    /// completion and its strides, and passes the events before it to `note`.
    #[inline(always)]
    pub fn find(
        &mut self,
        mut note: impl FnMut(StrideNotice),
    ) -> Option<(WorkCompletion<'_>, FoundStrides)> {
        if !self.ring.find_packet(&mut note) {
            return None;
        }
        let ((descriptor, wr_id, kind), strides) = (self.ring.found, self.ring.found_strides);
        // The completion's own marks: the ring has already left a run with its last CQE.
        Some((self.ring.packet(descriptor, wr_id, kind), strides))
    }

    /// Raises the poll's limit by one packet.
    #[inline]
    pub fn allow_another(&mut self) {
        self.ring.poll_state.most += 1;
        self.ring.poll_state.at.stop = self.ring.stop();
    }
}
