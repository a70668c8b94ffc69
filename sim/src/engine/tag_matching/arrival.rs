//! Messages that arrive at a queue with a tag list.

use mlx5_prm::cqe::{Cqe, CqeOpcode, TagEvent};
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::{Opcode, RendezvousHeader, TagMatchingHeader, TagMessage};
use zerocopy::{FromBytes, IntoBytes};

use crate::engine::Device;
use crate::engine::respond::{Answer, Nak, Packet};
use crate::engine::state::codes::{self, Code};
use crate::engine::state::mkey::{Side, User};
use crate::engine::state::tag_message::{Arriving, Matched, Rendezvous};

/// The longest rendezvous request whose data the device fetches; the driver reports it as
/// `max_rndv_hdr_size` (`MLX5_TM_MAX_RNDV_MSG_SIZE`).
const MAX_RENDEZVOUS_REQUEST: u64 = 64;

/// Reads the head of a packet's data.
fn head<T: FromBytes>(data: &[u8]) -> Option<T> {
    T::read_from_prefix(data).ok().map(|(head, _)| head)
}

impl Device {
    /// Takes a packet of a SEND to a queue with a tag list.
    pub(crate) fn take_tagged(&mut self, qpn: u32, srqn: u32, packet: &Packet<'_>) -> Answer {
        let arriving = if packet.first {
            self.match_message(qpn, srqn, packet)
        } else {
            self.qps.get_mut(qpn).and_then(|qp| qp.arriving.take()).ok_or(Answer::Silence)
        };
        match arriving {
            Err(answer) => answer,
            Ok(Arriving::Unmatched(event)) => self.take_unmatched(qpn, srqn, event, packet),
            Ok(Arriving::Matched(matched)) => self.take_matched(qpn, srqn, matched, packet),
            Ok(Arriving::Ignored) => self.go_on(qpn, Arriving::Ignored, packet),
        }
    }

    /// Whether a message that was deferred for lack of a receive WQE may match now.
    pub(crate) fn may_match(&self, qpn: u32) -> bool {
        let Some(qp) = self.qps.get(qpn) else { return false };
        let srq = qp.config.srq.and_then(|srqn| self.srqs.get(srqn));
        let changes = srq.and_then(|srq| srq.tags.as_ref()).map(|list| list.changes);
        changes.is_some() && changes != qp.refused_at
    }

    /// Records a message of which more packets will come.
    fn go_on(&mut self, qpn: u32, arriving: Arriving, packet: &Packet<'_>) -> Answer {
        if !packet.last
            && let Some(qp) = self.qps.get_mut(qpn)
        {
            qp.arriving = Some(arriving);
        }
        Answer::Ack
    }

    /// Matches a message by its first packet and chooses its destination.
    fn match_message(
        &mut self,
        qpn: u32,
        srqn: u32,
        packet: &Packet<'_>,
    ) -> Result<Arriving, Answer> {
        let Some(first) = packet.data.first() else {
            return Ok(Arriving::Unmatched(TagEvent::NoTag));
        };
        let kind = match TagMessage::from_bits(*first) {
            Some(TagMessage::NoTag | TagMessage::Finished) => {
                return Ok(Arriving::Unmatched(TagEvent::NoTag));
            }
            Some(kind) => kind,
            None => return Err(self.refuse_tagged(qpn)),
        };
        let Some(header) = head::<TagMatchingHeader>(packet.data) else {
            return Err(self.refuse_tagged(qpn));
        };
        let at = size_of::<TagMatchingHeader>();
        let wanted = match kind {
            TagMessage::Rendezvous => match head::<RendezvousHeader>(&packet.data[at..]) {
                Some(wanted) => Some(wanted),
                None => return Err(self.refuse_tagged(qpn)),
            },
            _ => None,
        };
        let has_receive = self.has_receive(qpn);
        let offloads = self.qps.get(qpn).is_some_and(|qp| qp.config.rendezvous);
        let Some(srq) = self.srqs.get_mut(srqn) else { return Err(Answer::Silence) };
        let pd = srq.config.pd;
        let Some(list) = &mut srq.tags else { return Err(Answer::Silence) };
        let Some((place, tag)) = list.consume(header.tag.get()) else {
            // Without a receive WQE the message is not accepted, and the sender sends it again.
            if !has_receive {
                let changes = list.changes;
                if let Some(qp) = self.qps.get_mut(qpn) {
                    qp.refused_at = Some(changes);
                }
                return Err(self.not_ready(qpn));
            }
            list.count_unexpected();
            return Ok(Arriving::Unmatched(TagEvent::Unexpected));
        };
        let single = packet.last;
        if let Some(wanted) = wanted
            && offloads
            && list.config.rendezvous
            && packet.request.length <= MAX_RENDEZVOUS_REQUEST
            && u64::from(wanted.len.get()) <= tag.capacity()
        {
            self.announce(qpn, srqn, TagEvent::Consumed, place, &header, packet);
            let rendezvous = Rendezvous::new(srqn, place, pd, tag.buffer, header, wanted);
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.rendezvous.push_back(rendezvous);
            }
            self.wake(qpn);
            return Ok(Arriving::Ignored);
        }
        let (skipped, now, later) = match wanted {
            // Software fetches the data, so it gets the whole request.
            Some(_) => (0, TagEvent::ConsumedMessageSwRendezvous, TagEvent::ConsumedSwRendezvous),
            None => (at as u64, TagEvent::ConsumedMessage, TagEvent::Consumed),
        };
        let event = if single {
            now
        } else {
            self.announce(qpn, srqn, later, place, &header, packet);
            TagEvent::Expected
        };
        Ok(Arriving::Matched(Matched { place, tag, header, skipped, event }))
    }

    /// Reports a match before the data has arrived.
    fn announce(
        &mut self,
        qpn: u32,
        srqn: u32,
        event: TagEvent,
        place: u16,
        header: &TagMatchingHeader,
        packet: &Packet<'_>,
    ) {
        // The entry of a rendezvous that software fetches carries a message; that of another match
        // has no packet.
        let opcode = match event {
            TagEvent::ConsumedSwRendezvous => CqeOpcode::ResponderSend,
            _ => CqeOpcode::NoPacket,
        };
        let mut cqe = self.received_entry(qpn, opcode, 0, 0, packet);
        put_header(&mut cqe, header);
        self.complete_tagged(srqn, cqe, event, place);
    }

    fn take_unmatched(
        &mut self,
        qpn: u32,
        srqn: u32,
        event: TagEvent,
        packet: &Packet<'_>,
    ) -> Answer {
        let Some(receive) = self.take_receive(qpn) else { return self.not_ready(qpn) };
        let end = packet.offset + packet.data.len() as u64;
        if end > receive.capacity() {
            self.fail_receive(qpn, receive.index, codes::LENGTH);
            return Answer::Nak(Nak::InvalidRequest);
        }
        let user = User { qpn, pd: receive.pd, side: Side::Responder };
        let scattered = self.scatter(user, &receive.entries, packet.offset, packet.data);
        if let Err(error) = scattered {
            self.fail_receive(qpn, receive.index, Code::scatter(error));
            return Answer::Nak(Nak::RemoteOperation);
        }
        if !packet.last {
            self.hold_receive(qpn, receive);
            return self.go_on(qpn, Arriving::Unmatched(event), packet);
        }
        let index = receive.index;
        let opcode = match self.opcode_of(qpn, packet) {
            Ok(opcode) => opcode,
            Err(answer) => {
                self.hold_receive(qpn, receive);
                return answer;
            }
        };
        let cqe = self.received_entry(qpn, opcode, index, end, packet);
        self.complete_tagged(srqn, cqe, event, 0);
        Answer::Ack
    }

    fn take_matched(
        &mut self,
        qpn: u32,
        srqn: u32,
        matched: Matched,
        packet: &Packet<'_>,
    ) -> Answer {
        let Matched { place, tag, header, skipped, event } = matched;
        let pd = self.srqs.get(srqn).map_or(0, |srq| srq.config.pd);
        let head = skipped.saturating_sub(packet.offset) as usize;
        let data = packet.data.get(head..).unwrap_or(&[]);
        let offset = (packet.offset + head as u64).saturating_sub(skipped);
        let end = offset + data.len() as u64;
        if end > tag.capacity() {
            self.cancel_tag(qpn, srqn, place);
            return self.refuse_tagged(qpn);
        }
        let entries: Vec<_> = tag.buffer.into_iter().collect();
        let user = User { qpn, pd, side: Side::Responder };
        if self.scatter(user, &entries, offset, data).is_err() {
            self.cancel_tag(qpn, srqn, place);
            self.fail_qp(qpn, Some(EventType::WQ_ACCESS_ERROR));
            return Answer::Nak(Nak::RemoteOperation);
        }
        if !packet.last {
            return self.go_on(qpn, Arriving::Matched(matched), packet);
        }
        let opcode = match self.opcode_of(qpn, packet) {
            Ok(opcode) => opcode,
            Err(answer) => {
                self.cancel_tag(qpn, srqn, place);
                return answer;
            }
        };
        let mut cqe = self.received_entry(qpn, opcode, 0, end, packet);
        if event != TagEvent::Expected {
            put_header(&mut cqe, &header);
        }
        self.complete_tagged(srqn, cqe, event, place);
        Answer::Ack
    }

    /// The opcode of the completion at the last packet of a message, after the key that it
    /// invalidates is invalid.
    fn opcode_of(&mut self, qpn: u32, packet: &Packet<'_>) -> Result<CqeOpcode, Answer> {
        let Some(user) = self.qps.get(qpn).map(|qp| qp.user(qpn, Side::Responder)) else {
            return Err(Answer::Silence);
        };
        match packet.request.opcode {
            Opcode::SendImm => Ok(CqeOpcode::ResponderSendImm),
            Opcode::SendInvalidate if !self.invalidate_remote(user, packet.request.immediate) => {
                Err(self.refuse_access(qpn))
            }
            Opcode::SendInvalidate => Ok(CqeOpcode::ResponderSendInvalidate),
            _ => Ok(CqeOpcode::ResponderSend),
        }
    }

    /// Refuses a message that tag matching does not support.
    fn refuse_tagged(&mut self, qpn: u32) -> Answer {
        self.fail_qp(qpn, Some(EventType::WQ_INVAL_REQ_ERROR));
        Answer::Nak(Nak::InvalidRequest)
    }

    /// Reports that the data of a matched message will not come.
    pub(super) fn cancel_tag(&mut self, qpn: u32, srqn: u32, place: u16) {
        let cqe = self.entry(qpn, CqeOpcode::ResponderSend, 0, 0);
        self.complete_tagged(srqn, cqe, TagEvent::MessageCompletionCanceled, place);
    }

    /// Gives up every matched message whose data is in flight to a queue pair.
    pub(crate) fn cancel_tagged(&mut self, qpn: u32) {
        let Some(srqn) = self.tag_queue(qpn) else { return };
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        let mut places: Vec<u16> = Vec::new();
        if let Some(Arriving::Matched(matched)) = qp.arriving.take() {
            places.push(matched.place);
        }
        places.extend(qp.rendezvous.drain(..).filter_map(|rendezvous| rendezvous.unfinished()));
        for place in places {
            self.cancel_tag(qpn, srqn, place);
        }
    }
}

/// Puts the header of the message into the entry of a match, in place of the fields of other
/// receives.
fn put_header(cqe: &mut Cqe, header: &TagMatchingHeader) {
    cqe.as_mut_bytes()[..size_of::<TagMatchingHeader>()].copy_from_slice(header.as_bytes());
}
