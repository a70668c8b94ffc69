//! CQEs about tag matching: operations on a tag list, and messages to its queue.

use crate::completion::WorkCompletion;
use crate::kind::Kind;
use crate::queue::{Found, Queue, Tagged, TaggedOutcome};
use core::ptr::NonNull;
use mlx5_prm::cqe::{
    APP_TAG_MATCHING, Cqe, CqeOpcode, DESCRIPTOR, Format, OPCODE_SHIFT, TagEvent, TagListCqe,
};
use mlx5_prm::wqe::TagMatchingHeader;

/// Information about a matched message, from its header (`struct ibv_wc_tm_info`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TmInfo {
    /// The tag of the message.
    pub tag: u64,
    /// The sender's own word (`priv`).
    pub app_ctx: u32,
}

/// Accessors for tag matching.
impl WorkCompletion<'_> {
    /// Whether the message matched a tag (`IBV_WC_TM_MATCH`): this is its only completion, or the
    /// first of two.
    #[inline]
    pub fn tm_match(&self) -> bool {
        use TagEvent::*;
        matches!(
            self.kind().tag_event(),
            Some(
                Consumed
                    | ConsumedSwRendezvous
                    | ConsumedMessage
                    | ConsumedMessageSwRendezvous
                    | MessageCompletionCanceled
            )
        )
    }

    /// Whether all data of a matched message is in memory (`IBV_WC_TM_DATA_VALID`): this is its
    /// only completion, or the second of two.
    #[inline]
    pub fn tm_data_valid(&self) -> bool {
        use TagEvent::*;
        matches!(
            self.kind().tag_event(),
            Some(Expected | ConsumedMessage | ConsumedMessageSwRendezvous)
        )
    }

    /// Whether a message to a queue with a tag list has immediate data.
    #[inline]
    pub(crate) fn is_tagged_with_immediate(&self) -> bool {
        self.kind().is_tagged() && {
            let last = DESCRIPTOR - 1;
            // SAFETY: the last byte of a descriptor, which the device does not write before the
            // poller has published that it passed it.
            let op_own = unsafe { self.descriptor().byte_add(last).read_volatile() };
            op_own >> OPCODE_SHIFT == CqeOpcode::ResponderSendImm as u8
        }
    }

    /// Whether the user must report to the device how many unexpected messages were handled
    /// (`IBV_WC_TM_SYNC_REQ`).
    #[inline]
    pub fn tm_sync_required(&self) -> bool {
        self.kind().needs_sync()
    }

    /// Tag and sender's word of a matched message, with its only or first completion
    /// (`ibv_wc_read_tm_info`). An unmatched message has them in its header, in the buffer.
    #[inline]
    pub fn tm_info(&self) -> Option<TmInfo> {
        use TagEvent::*;
        let Some(Consumed | ConsumedSwRendezvous | ConsumedMessage | ConsumedMessageSwRendezvous) =
            self.kind().tag_event()
        else {
            return None;
        };
        // SAFETY: the start of a descriptor, which the device does not write before the poller has
        // published that it passed it.
        let header = unsafe { self.descriptor().cast::<TagMatchingHeader>().read_volatile() };
        Some(TmInfo { tag: header.tag.get(), app_ctx: header.app_ctx.get() })
    }
}

/// Asks `queue` for the meaning of the CQE at `descriptor` for its tag list. Called if the queue
/// does not know the request otherwise.
#[cold]
pub(crate) fn retire<Q: Queue>(
    queue: &Q,
    descriptor: NonNull<u8>,
    opcode: u8,
    counter: u16,
) -> Option<Found> {
    let opcode_bits = opcode;
    let opcode = CqeOpcode::from_bits(opcode)?;
    // SAFETY: a descriptor, which the device does not write before the consumer index that passes
    // the CQE is published. Any bytes are a valid value.
    let entry = unsafe { descriptor.cast::<Cqe>().read_volatile() };
    let tagged = entry.app == APP_TAG_MATCHING;
    let ask = match opcode {
        CqeOpcode::RequesterError => Tagged::OperationError(counter),
        CqeOpcode::ResponderError => Tagged::Receive(counter),
        CqeOpcode::NoPacket
        | CqeOpcode::ResponderWriteImm
        | CqeOpcode::ResponderSend
        | CqeOpcode::ResponderSendImm
        | CqeOpcode::ResponderSendInvalidate
            if tagged =>
        {
            // SAFETY: a descriptor, which the device does not write before the consumer index that
            // passes the CQE is published. Any bytes are a valid value.
            let list_cqe = unsafe { descriptor.cast::<TagListCqe>().read_volatile() };
            let event = TagEvent::from_bits(entry.app_op)?;
            // Inline data would take the place of the fields of a match.
            if Format::of(entry.op_own) == Format::Inline32
                && !matches!(event, TagEvent::Unexpected | TagEvent::NoTag)
            {
                return None;
            }
            Tagged::Event {
                event,
                place: entry.app_info.get(),
                counter,
                success: list_cqe.success.get() & TagListCqe::SUCCESS != 0,
                phase: list_cqe.hw_phase_cnt.get(),
            }
        }
        CqeOpcode::ResponderWriteImm
        | CqeOpcode::ResponderSend
        | CqeOpcode::ResponderSendImm
        | CqeOpcode::ResponderSendInvalidate => Tagged::Receive(counter),
        _ => return None,
    };
    Some(match (queue.retire_tagged(ask)?, ask) {
        (TaggedOutcome::Unasked, _) => Found::Duplicate,
        (TaggedOutcome::OperationError { wr_id, operation }, _) => {
            Found::Completion(wr_id, Kind::tag_operation_error(operation))
        }
        (TaggedOutcome::Completion { wr_id, needs_sync }, Tagged::Event { event, success, .. }) => {
            Found::Completion(wr_id, Kind::tagged(event, success, needs_sync))
        }
        (TaggedOutcome::Completion { wr_id, .. }, _) => {
            let kind = match opcode {
                CqeOpcode::ResponderError => Kind::received_error(),
                _ => Kind::received(opcode_bits),
            };
            Found::Completion(wr_id, kind)
        }
    })
}
