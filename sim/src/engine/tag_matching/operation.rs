//! Operations that a command queue pair executes on its tag list.

use mlx5_prm::cqe::{APP_TAG_MATCHING, CqeOpcode, TagEvent, TagListCqe};
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::{
    ControlSegment, DataSegment, INLINE, INVALID_LKEY, Opcode, TagMatchingSegment, TagOperation,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::engine::complete;
use crate::engine::fault::Violation;
use crate::engine::state::codes::{self, Code};
use crate::engine::state::receive::Entry;
use crate::engine::state::tags::{BadPlace, Tag};
use crate::engine::wqe::Request;
use crate::engine::{Device, Event};

/// Bytes of a request before its scatter entry.
const HEAD: usize = size_of::<ControlSegment>() + size_of::<TagMatchingSegment>();

impl Device {
    /// The queue with a tag list from which a queue pair receives.
    pub(crate) fn tag_queue(&self, qpn: u32) -> Option<u32> {
        let srqn = self.qps.get(qpn)?.config.srq?;
        self.srqs.get(srqn)?.tags.is_some().then_some(srqn)
    }

    /// Executes a TAG_MATCHING request; an error if the device does not understand it.
    pub(crate) fn operate_on_tags(&mut self, qpn: u32, request: &Request) -> Result<(), Code> {
        let srqn = self.tag_queue(qpn).ok_or(codes::BAD_WQE)?;
        let segment = request.bytes.get(size_of::<ControlSegment>()..HEAD);
        let segment = segment.and_then(|bytes| TagMatchingSegment::read_from_bytes(bytes).ok());
        let segment = segment.ok_or(codes::BAD_WQE)?;
        let operation = TagOperation::from_bits(segment.opcode >> TagMatchingSegment::OPCODE_SHIFT)
            .ok_or(codes::BAD_WQE)?;
        let tag = match operation {
            TagOperation::Append => {
                let entry = request.bytes.get(HEAD..HEAD + size_of::<DataSegment>());
                let entry = entry.and_then(|bytes| DataSegment::read_from_bytes(bytes).ok());
                let entry = entry.ok_or(codes::BAD_WQE)?;
                if entry.byte_count.get() & INLINE != 0 {
                    return Err(codes::BAD_WQE);
                }
                let buffer = (entry.lkey.get() != INVALID_LKEY).then(|| Entry::from(&entry));
                Some(Tag::new(segment.append_tag.get(), segment.append_mask.get(), buffer))
            }
            TagOperation::Nop | TagOperation::Remove => None,
        };
        let Some(list) = self.srqs.get_mut(srqn).and_then(|srq| srq.tags.as_mut()) else {
            return Err(codes::BAD_WQE);
        };
        let index = segment.index.get();
        let count = (segment.flags & TagMatchingSegment::SOFTWARE_COUNT != 0)
            .then(|| segment.software_count.get());
        // The count takes effect after a removal and before an append: it does not make a removed
        // tag match, and it covers an added one.
        let removed = match operation {
            TagOperation::Remove => list.remove(index),
            TagOperation::Nop | TagOperation::Append => Ok(true),
        };
        if let Some(count) = count {
            list.synchronise(count);
        }
        let done = match tag {
            Some(tag) => list.append(tag, index).map(|place| (place, true)),
            None => removed.map(|was_there| (index, was_there)),
        };
        let (place, success) = match done {
            Ok(done) => done,
            Err(BadPlace(index)) => {
                self.violation(Violation::TagList { srqn, index });
                return Err(codes::BAD_WQE);
            }
        };
        if segment.flags & TagMatchingSegment::COMPLETION != 0 {
            let hw_phase_cnt = list.hardware_phase;
            let event = match operation {
                TagOperation::Nop => TagEvent::Noop,
                TagOperation::Append => TagEvent::Append,
                TagOperation::Remove => TagEvent::Remove,
            };
            let told = TagListCqe {
                success: if success { TagListCqe::SUCCESS } else { 0 }.into(),
                hw_phase_cnt: hw_phase_cnt.into(),
                ..TagListCqe::default()
            };
            let opcode = Opcode::TagMatching as u8;
            let mut cqe = self.entry(qpn, CqeOpcode::NoPacket, opcode, request.index);
            cqe.as_mut_bytes()[..size_of::<TagListCqe>()].copy_from_slice(told.as_bytes());
            self.complete_tagged(srqn, cqe, event, place);
        }
        Ok(())
    }

    /// Writes an entry about a tag list to its queue's completion queue.
    pub(super) fn complete_tagged(
        &mut self,
        srqn: u32,
        mut cqe: mlx5_prm::cqe::Cqe,
        event: TagEvent,
        place: u16,
    ) {
        let Some(srq) = self.srqs.get_mut(srqn) else { return };
        let index = srq.config.user_index;
        let Some(list) = &mut srq.tags else { return };
        if matches!(
            event,
            TagEvent::Expected
                | TagEvent::ConsumedMessage
                | TagEvent::ConsumedMessageSwRendezvous
                | TagEvent::MessageCompletionCanceled
        ) {
            list.finish(place);
        }
        let cqn = list.config.cqn;
        cqe.srqn_uidx.set(complete::srqn_or_index(self.config.cqe_version, srqn, index));
        cqe.app = APP_TAG_MATCHING;
        cqe.app_op = event as u8;
        cqe.app_info.set(place);
        let bytes = complete::bytes(&cqe);
        if !self.write_entry(cqn, bytes, &[], false, false)
            && let Some(srq) = self.srqs.get_mut(srqn)
            && !std::mem::replace(&mut srq.failed, true)
        {
            self.raise(Event::Srq { srqn, kind: EventType::SRQ_CATAS_ERROR });
        }
    }
}
