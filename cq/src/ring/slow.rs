//! The slow path of polling: CQEs with errors, compressed runs, inline data, completions out of
//! order, CQEs that are no completions, and CQEs that no correct device writes.

use super::strides::{FoundStrides, strides_at};
use super::{REQUEST, Ring, index_after_owner, read_tail};
use crate::completion::error_in;
use crate::corruption::Corruption;
use crate::kind::Kind;
use crate::queue::{Found, Queue, Sent, StridesOutcome};
use crate::state::COUNT as BYTE_COUNT;
use crate::state::{USER_INDEX, USER_INDEX_MASK, is_title};
use crate::table::{Lookup, Side};
use crate::tag_matching;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_doorbell::barrier;
use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, ErrorCqe, Format, INLINE_32, INLINE_64, OPCODE_SHIFT, SOLICITED,
    Syndrome,
};
use mlx5_prm::signature::SignatureErrorCqe;

/// Offset of the request's opcode in a CQE of a request.
const SEND_OPCODE: usize = offset_of!(Cqe, sop_drop_qpn);

/// The last byte of a CQE of the receive kind with the highest opcode.
const LAST_RECEIVE: u8 = (CqeOpcode::ResponderSendInvalidate as u8) << OPCODE_SHIFT;

/// The opcode of a CQE of a receive that failed.
const FAILED_RECEIVE: u8 = CqeOpcode::ResponderError as u8;

/// The fields of a CQE that the slow path needs.
struct Decoded {
    descriptor: NonNull<u8>,
    /// The word with the user index, in the device's byte order.
    index: u32,
    tail: u32,
    /// Whether it was compressed, or has inline data.
    marks: Kind,
}

impl<Q: Queue> Ring<Q> {
    /// Finds the next completion of any kind.
    #[inline(never)]
    pub(super) fn find_completion(&mut self) -> bool {
        if self.corruption.is_some() {
            return false;
        }
        if self.find_request() {
            return true;
        }
        while self.is_written() {
            barrier::from_device();
            let Decoded { descriptor, index, tail, marks } = match self.decode() {
                Ok(Some(decoded)) => decoded,
                Ok(None) => continue,
                Err(corruption) => return self.latch(corruption),
            };
            if CqeOpcode::from_bits(tail as u8 >> OPCODE_SHIFT) == Some(CqeOpcode::SignatureError) {
                // A signature error CQE has another field in place of the user index.
                self.report_signature_error(descriptor);
                self.pass_any(descriptor);
                continue;
            }
            let user_index = u32::from_be(index) & USER_INDEX_MASK;
            let side = self.side(tail as u8 >> OPCODE_SHIFT, user_index);
            if u64::from(index) != self.cached(side).0 {
                match self.queues.get(user_index, self.id, side) {
                    Lookup::Queue(queue) => *self.cached(side) = (index.into(), queue),
                    Lookup::Destroyed => {
                        self.skip_destroyed(user_index, tail);
                        self.pass_any(descriptor);
                        continue;
                    }
                    Lookup::Unknown => return self.latch(Corruption::UserIndex(user_index)),
                }
            }
            // SAFETY: the queue was just looked up, or was looked up before and not freed since.
            let queue = unsafe { self.cached(side).1.as_ref() };
            let (opcode, counter) = (tail as u8 >> OPCODE_SHIFT, (tail >> 16) as u16);
            if opcode == FAILED_RECEIVE && is_page_fault(descriptor) {
                let mut pass = || self.pass_any(descriptor);
                if queue.repost(counter, &mut pass) {
                    continue;
                }
            }
            let found = match Self::retire(queue, opcode, counter) {
                Err(Corruption::Opcode(_)) if queue.has_strides() && marks.is_inline() => {
                    return self.latch(Corruption::Format(Format::of(tail as u8)));
                }
                Err(Corruption::Opcode(_)) if queue.has_strides() => {
                    self.retire_strides(queue, descriptor, opcode, counter)
                }
                unknown @ (Ok(None) | Err(Corruption::Opcode(_))) => {
                    match tag_matching::retire(queue, descriptor, opcode, counter) {
                        Some(Found::Completion(wr_id, kind)) => {
                            // A new variable, because changing `side` would take a register on the
                            // path of every CQE.
                            let side = self.side_of_tags(opcode, user_index);
                            Ok(Some(Found::Completion(wr_id, kind.found_by(side))))
                        }
                        None => unknown,
                        found => Ok(found),
                    }
                }
                found => found,
            };
            return match found {
                Ok(Some(Found::Completion(wr_id, kind))) => {
                    self.pass_any(descriptor);
                    self.found = (descriptor, wr_id, kind.with(marks));
                    true
                }
                Ok(Some(Found::Duplicate)) => {
                    self.pass_any(descriptor);
                    continue;
                }
                Ok(None) if queue.is_lent(!is_of_send(opcode)) => {
                    self.found_raw(descriptor, opcode, marks);
                    true
                }
                Ok(None) => self.latch(Corruption::Counter { user_index, counter }),
                Err(corruption) => self.latch(corruption),
            };
        }
        // Publish skipped CQEs here: the caller has no completion to publish.
        self.publish();
        false
    }

    /// Finds the next completion if it is that of a successful request of the queue that completed
    /// last. Mostly, such a request comes after unsignaled ones. Otherwise nothing changes.
    #[inline(always)]
    fn find_request(&mut self) -> bool {
        let descriptor = self.next;
        let tail = read_tail(descriptor);
        let op_own = (tail ^ self.owner) as u8;
        if op_own & !SOLICITED != REQUEST || self.sent.0 != index_after_owner(descriptor).into() {
            return false;
        }
        // SAFETY: a cached queue is valid: the cache is cleared before destroyed queues are freed.
        let queue = unsafe { self.sent.1.as_ref() };
        let Some(sent) = queue.retire_send_ahead((tail >> 16) as u16) else { return false };
        self.pass(descriptor);
        self.found = (descriptor, sent.wr_id, Kind::sent(sent.opcode).with(self.marks));
        true
    }

    /// As [`Ring::side`], out of line: for a CQE of tag matching, and for a purge.
    #[cold]
    #[inline(never)]
    pub(super) fn side_of_tags(&self, opcode: u8, user_index: u32) -> Side {
        self.side(opcode, user_index)
    }

    /// Returns the side of a queue that a CQE is about. If the opcode does not determine it, it is
    /// the side that completes on this ring.
    #[inline(always)]
    fn side(&self, opcode: u8, user_index: u32) -> Side {
        use CqeOpcode::*;
        match CqeOpcode::from_bits(opcode) {
            Some(Requester | RequesterError) => Side::Send,
            Some(
                ResponderWriteImm
                | ResponderSend
                | ResponderSendImm
                | ResponderSendInvalidate
                | ResponderError,
            ) => Side::Receive,
            _ => match self.queues.get(user_index, self.id, Side::Send) {
                Lookup::Unknown => Side::Receive,
                _ => Side::Send,
            },
        }
    }

    #[cold]
    fn report_signature_error(&mut self, descriptor: NonNull<u8>) {
        if let Some(hook) = &mut self.signature_error {
            // SAFETY: the CQE, aligned to 64; the device does not write it before the consumer
            // index that passes it is published. Any bytes are a valid value.
            let entry = unsafe { descriptor.cast::<SignatureErrorCqe>().read_volatile() };
            hook(&entry);
        }
    }

    /// Reports a CQE of a request that a program posted itself: the driver has only the CQE's
    /// fields.
    #[cold]
    #[inline(never)]
    fn found_raw(&mut self, descriptor: NonNull<u8>, opcode: u8, marks: Kind) {
        // SAFETY: the byte is inside a descriptor.
        let posted = unsafe { descriptor.byte_add(SEND_OPCODE).read_volatile() };
        let kind = match CqeOpcode::from_bits(opcode) {
            Some(CqeOpcode::Requester) => Kind::sent(posted),
            Some(CqeOpcode::RequesterError) => Kind::sent_error(posted),
            Some(CqeOpcode::ResponderError) => Kind::received_error(),
            _ => Kind::received(opcode),
        };
        self.pass_any(descriptor);
        self.found = (descriptor, 0, kind.with(marks));
    }

    /// Decodes the next CQE, which is written. `None` if it is about no request, and was passed.
    fn decode(&mut self) -> Result<Option<Decoded>, Corruption> {
        let op_own = read_tail(self.next) as u8;
        if is_title(op_own) {
            return self.decode_compressed(op_own).map(Some);
        }
        if self.run.is_active() {
            return Ok(Some(self.decode_at(self.next, self.marks)));
        }
        if op_own >> OPCODE_SHIFT == CqeOpcode::Resize as u8 && self.resizes > 0 {
            self.resizes -= 1;
            self.pass(self.next);
            return Ok(None);
        }
        let format = self.check_format(op_own)?;
        Ok(Some(self.decode_at(self.next, Kind::formatted(format))))
    }

    /// Starts a compressed run, or continues it, and decodes its next CQE.
    fn decode_compressed(&mut self, op_own: u8) -> Result<Decoded, Corruption> {
        if !self.run.is_active() {
            if self.state.compression().is_none() {
                return Err(Corruption::Format(Format::of(op_own)));
            }
            let start = self.run.start(&self.state, self.consumer, op_own);
            start.map_err(Corruption::Run)?;
            let (opcode, user_index, _) = self.run.title();
            if opcode != CqeOpcode::Requester as u8
                && let Lookup::Queue(queue) = self.queues.get(user_index, self.id, Side::Receive)
            {
                // SAFETY: the queue was just looked up, and stays valid until this poller handles
                // destroyed queues.
                self.run.set_strides(unsafe { queue.as_ref() }.has_strides());
            }
        }
        if let Some(first) = self.run.expand(&self.state).map_err(Corruption::Run)? {
            self.enter_run(first);
        }
        Ok(self.decode_at(self.next, self.marks))
    }

    fn decode_at(&self, descriptor: NonNull<u8>, marks: Kind) -> Decoded {
        // SAFETY: the four bytes are inside a descriptor, and aligned to four.
        let index = unsafe { descriptor.byte_add(USER_INDEX).cast::<u32>().read_volatile() };
        Decoded { descriptor, index, tail: read_tail(descriptor), marks }
    }

    /// Returns the format of the next CQE, if it is allowed here.
    fn check_format(&self, op_own: u8) -> Result<Format, Corruption> {
        let format = Format::of(op_own);
        let room = match format {
            // The format bits of an error CQE have no meaning.
            _ if op_own >> OPCODE_SHIFT > LAST_RECEIVE >> OPCODE_SHIFT => return Ok(Format::Plain),
            Format::Plain => return Ok(format),
            Format::Inline32 => INLINE_32,
            // The data is before the descriptor, where only 128-byte CQEs have room.
            Format::Inline64 if self.stride > DESCRIPTOR => INLINE_64,
            Format::Inline64 | Format::Compressed => return Err(Corruption::Format(format)),
        };
        // SAFETY: the four bytes are inside a descriptor, and aligned to four.
        let bytes = unsafe { self.next.byte_add(BYTE_COUNT).cast::<u32>().read_volatile() };
        match u32::from_be(bytes) {
            bytes if bytes as usize <= room => Ok(format),
            bytes => Err(Corruption::Inline(bytes)),
        }
    }

    /// Passes the CQE, which may end a compressed run.
    fn pass_any(&mut self, descriptor: NonNull<u8>) {
        if self.run.is_active() && self.run.is_last() {
            self.consumer = self.consumer.wrapping_add(self.run.pass(&self.state));
            self.find_position();
        } else {
            self.pass(descriptor);
        }
    }

    /// Reports a skipped CQE of a destroyed queue, if it is a receive's.
    #[cold]
    fn skip_destroyed(&mut self, user_index: u32, tail: u32) {
        use CqeOpcode::*;
        if let Some(departed) = &mut self.departed
            && let Some(
                ResponderWriteImm
                | ResponderSend
                | ResponderSendImm
                | ResponderSendInvalidate
                | ResponderError,
            ) = CqeOpcode::from_bits(tail as u8 >> OPCODE_SHIFT)
        {
            departed(user_index, (tail >> 16) as u16);
        }
    }

    /// Asks `queue` for the request of a CQE.
    fn retire(queue: &Q, opcode: u8, counter: u16) -> Result<Option<Found>, Corruption> {
        let sent = |failed, kind: fn(u8) -> Kind| {
            queue.retire_send(counter, failed).map(|sent| match sent {
                Sent::Request(sent) => Found::Completion(sent.wr_id, kind(sent.opcode)),
                Sent::Duplicate => Found::Duplicate,
            })
        };
        let received =
            |kind| queue.retire_receive(counter).map(|wr_id| Found::Completion(wr_id, kind));
        Ok(match CqeOpcode::from_bits(opcode) {
            Some(CqeOpcode::Requester) => sent(false, Kind::sent),
            Some(CqeOpcode::RequesterError) => sent(true, Kind::sent_error),
            Some(
                CqeOpcode::ResponderWriteImm
                | CqeOpcode::ResponderSend
                | CqeOpcode::ResponderSendImm
                | CqeOpcode::ResponderSendInvalidate,
            ) if !queue.has_strides() => received(Kind::received(opcode)),
            Some(CqeOpcode::ResponderError) if !queue.has_strides() => {
                received(Kind::received_error())
            }
            _ => return Err(Corruption::Opcode(opcode)),
        })
    }
}

impl<Q: Queue> Ring<Q> {
    /// Asks a queue with strides for the request of a CQE.
    fn retire_strides(
        &mut self,
        queue: &Q,
        descriptor: NonNull<u8>,
        opcode: u8,
        counter: u16,
    ) -> Result<Option<Found>, Corruption> {
        let (outcome, kind) = match CqeOpcode::from_bits(opcode) {
            Some(CqeOpcode::ResponderSend) => (StridesOutcome::Arrived, Kind::received(opcode)),
            Some(CqeOpcode::ResponderError) => {
                let kind = Kind::received_error();
                match error_in(descriptor, kind).stops_receives() {
                    true => (StridesOutcome::Stopped, kind),
                    false => (StridesOutcome::Failed, kind),
                }
            }
            _ => return Err(Corruption::Opcode(opcode)),
        };
        let entry = strides_at(descriptor, counter, outcome);
        Ok(queue.retire_strides(entry).map(|retired| {
            self.found_strides = FoundStrides::new(&entry, retired);
            Found::Completion(retired.wr_id, kind)
        }))
    }
}

/// Whether the CQE of a failed receive reports a page fault.
fn is_page_fault(descriptor: NonNull<u8>) -> bool {
    // SAFETY: the bytes are inside a descriptor.
    let [syndrome, vendor] =
        [offset_of!(ErrorCqe, syndrome), offset_of!(ErrorCqe, vendor_err_synd)]
            .map(|at| unsafe { descriptor.byte_add(at).read_volatile() });
    syndrome == Syndrome::RemoteAborted as u8 && vendor == ErrorCqe::PAGE_FAULT
}

/// Whether a CQE of this opcode names a send request.
const fn is_of_send(opcode: u8) -> bool {
    matches!(CqeOpcode::from_bits(opcode), Some(CqeOpcode::Requester | CqeOpcode::RequesterError))
}
