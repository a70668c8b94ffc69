//! The responder: handles packets that arrive at a queue pair.

use mlx5_prm::cqe::{Cqe, CqeOpcode, SOLICITED};
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::Opcode;

use crate::engine::complete;
use crate::engine::route::Origin;
use crate::engine::state::codes::{self, Code};
use crate::engine::state::mkey::{Access, KeyError, Side, User};
use crate::engine::state::port::GidType;
use crate::engine::state::qp::MIN_MTU;
use crate::engine::state::qp::{QpState, Transport};
use crate::engine::state::receive::{Inbound, Source};
use crate::engine::wqe::Request;
use crate::engine::{Device, Event};

/// Why a responder refuses for good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nak {
    InvalidRequest,
    RemoteAccess,
    RemoteOperation,
}

/// Answer of a responder to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Ack,
    /// No receive WQE: try again after the time of this code.
    NotReady(u8),
    Nak(Nak),
    /// A packet is missing.
    Gap,
    /// No answer.
    Silence,
}

/// One packet of a message.
pub(crate) struct Packet<'a> {
    pub(crate) origin: &'a Origin,
    pub(crate) request: &'a Request,
    pub(crate) psn: u32,
    pub(crate) first: bool,
    pub(crate) last: bool,
    pub(crate) offset: u64,
    pub(crate) data: &'a [u8],
}

impl Device {
    /// Whether a connected queue pair listens to packets of an origin.
    pub(crate) fn listens(&mut self, qpn: u32, transport: Transport, origin: &Origin) -> bool {
        let runs = self.runs();
        let Some(qp) = self.qps.get_mut(qpn) else { return false };
        let listens = runs
            && qp.receives()
            && qp.config.transport == transport
            && qp.attributes.remote_qpn == origin.qpn
            && origin.is_reached_by(&qp.attributes.path);
        let heard_first = listens && qp.state == QpState::Rtr && !qp.established;
        if heard_first {
            qp.established = true;
            self.raise(Event::Qp { qpn, kind: EventType::COMM_EST });
        }
        listens
    }

    /// Takes a packet of a SEND or an RDMA WRITE on a connection.
    pub(crate) fn take_packet(
        &mut self,
        qpn: u32,
        transport: Transport,
        packet: &Packet<'_>,
    ) -> Answer {
        if !self.listens(qpn, transport, packet.origin) {
            return Answer::Silence;
        }
        let Some(qp) = self.qps.get_mut(qpn) else { return Answer::Silence };
        let reliable = transport.is_reliable();
        if !reliable && packet.first {
            // An unreliable receiver adopts the sender's packet number at every message.
            qp.receive_psn = packet.psn;
        }
        if packet.psn != qp.receive_psn || !packet.first && qp.inbound != Inbound::Open {
            if !reliable {
                qp.inbound = Inbound::Lost;
            }
            return Answer::Silence;
        }
        let (length, mtu) = (packet.data.len(), qp.attributes.mtu.max(MIN_MTU) as usize);
        if length > mtu || !packet.last && length < mtu {
            // The other side cuts its messages in packets of another size.
            if !reliable {
                qp.inbound = Inbound::Lost;
                return Answer::Silence;
            }
            return self.refuse_request(qpn);
        }
        if packet.first && !self.open_queue(qpn, packet.request) {
            return self.refuse_request(qpn);
        }
        let answer = match packet.request.opcode {
            Opcode::RdmaWrite | Opcode::RdmaWriteImm => self.take_write(qpn, packet),
            _ => match self.tag_queue(qpn) {
                Some(srqn) => self.take_tagged(qpn, srqn, packet),
                None => self.take_send(qpn, packet),
            },
        };
        let Some(qp) = self.qps.get_mut(qpn) else { return answer };
        if answer == Answer::Ack {
            qp.receive_psn = (qp.receive_psn + 1) & 0xff_ffff;
            qp.inbound = if packet.last { Inbound::Idle } else { Inbound::Open };
        } else if !reliable {
            qp.inbound = Inbound::Lost;
        }
        answer
    }

    fn take_send(&mut self, qpn: u32, packet: &Packet<'_>) -> Answer {
        let Some(receive) = self.take_receive(qpn) else { return self.not_ready(qpn) };
        if packet.first && receive.source == Source::Shared && self.faults.fault_receives > 0 {
            self.faults.fault_receives -= 1;
            let (opcode, index) = (CqeOpcode::ResponderError, receive.index);
            self.complete_error(qpn, opcode, 0, index, codes::PAGE_FAULT);
            return self.not_ready(qpn);
        }
        let user = User { qpn, pd: receive.pd, side: Side::Responder };
        let end = packet.offset + packet.data.len() as u64;
        if end > receive.capacity() {
            self.fail_receive(qpn, receive.index, codes::LENGTH);
            return Answer::Nak(Nak::InvalidRequest);
        }
        let limit = self.qps.get(qpn).map_or(0, |qp| qp.config.completion.inline_receives);
        let inline = packet.first && packet.last && packet.data.len() <= limit;
        let scattered = match inline {
            true => Ok(()),
            false => self.scatter(user, &receive.entries, packet.offset, packet.data),
        };
        if let Err(error) = scattered {
            self.fail_receive(qpn, receive.index, Code::scatter(error));
            return Answer::Nak(Nak::RemoteOperation);
        }
        if !packet.last {
            self.hold_receive(qpn, receive);
            return Answer::Ack;
        }
        let opcode = match packet.request.opcode {
            Opcode::SendImm => CqeOpcode::ResponderSendImm,
            Opcode::SendInvalidate => CqeOpcode::ResponderSendInvalidate,
            _ => CqeOpcode::ResponderSend,
        };
        if opcode == CqeOpcode::ResponderSendInvalidate
            && !self.invalidate_remote(user, packet.request.immediate)
        {
            self.hold_receive(qpn, receive);
            return self.refuse_access(qpn);
        }
        self.retire_receive(qpn, &receive);
        let message = if inline { packet.data } else { &[] };
        self.complete_receive(qpn, opcode, receive.index, end, message, packet);
        Answer::Ack
    }

    fn take_write(&mut self, qpn: u32, packet: &Packet<'_>) -> Answer {
        let Some(qp) = self.qps.get(qpn) else { return Answer::Silence };
        let (user, allowed) = (self.responder(qpn, qp), qp.attributes.remote_write);
        let request = packet.request;
        let (rkey, base) = (request.remote.rkey.get(), request.remote.address.get());
        let needs_receive = packet.last && request.opcode == Opcode::RdmaWriteImm;
        // The first packet has the whole length, but each is checked by itself: the packets before
        // the end of the region are written.
        if packet.first && !allowed {
            return self.refuse_operation(qpn);
        }
        let (address, length) = (base.wrapping_add(packet.offset), packet.data.len() as u64);
        let right = Access::REMOTE_WRITE;
        if length > 0 && self.check_key(user, rkey, address, length, right).is_err() {
            return self.refuse_access(qpn);
        }
        if needs_receive && !self.has_receive(qpn) {
            return self.not_ready(qpn);
        }
        if length > 0 {
            let written = self.write_key(user, rkey, address, packet.data, right);
            if let Err(error) = written {
                return self.refuse_error(qpn, error);
            }
        }
        if needs_receive {
            let Some(receive) = self.take_receive(qpn) else { return self.not_ready(qpn) };
            self.retire_receive(qpn, &receive);
            let opcode = CqeOpcode::ResponderWriteImm;
            self.complete_receive(qpn, opcode, receive.index, request.length, &[], packet);
        }
        Answer::Ack
    }

    /// Reads a part of the data of an RDMA READ.
    pub(crate) fn take_read(
        &mut self,
        qpn: u32,
        request: &Request,
        offset: u64,
        to: &mut [u8],
    ) -> Answer {
        if !self.open_queue(qpn, request) {
            return self.refuse_request(qpn);
        }
        let Some(qp) = self.qps.get(qpn) else { return Answer::Silence };
        let (user, allowed) = (self.responder(qpn, qp), qp.attributes.remote_read);
        let (rkey, base) = (request.remote.rkey.get(), request.remote.address.get());
        if !allowed {
            return self.refuse_operation(qpn);
        }
        let whole = self.check_key(user, rkey, base, request.length, Access::REMOTE_READ);
        if request.length > 0 && whole.is_err() {
            return self.refuse_access(qpn);
        }
        if to.is_empty() {
            return Answer::Ack;
        }
        match self.read_key(user, rkey, base.wrapping_add(offset), to, Access::REMOTE_READ) {
            Ok(()) => Answer::Ack,
            Err(error) => self.refuse_error(qpn, error),
        }
    }

    /// Executes an atomic and returns the operand's old value.
    pub(crate) fn take_atomic(&mut self, qpn: u32, request: &Request) -> Result<Vec<u8>, Answer> {
        let atomic = request.atomic.ok_or(Answer::Silence)?;
        if !self.open_queue(qpn, request) {
            return Err(self.refuse_request(qpn));
        }
        let qp = self.qps.get(qpn).ok_or(Answer::Silence)?;
        let (user, allowed) = (self.responder(qpn, qp), qp.attributes.remote_atomic);
        let (rkey, address) = (request.remote.rkey.get(), request.remote.address.get());
        if !address.is_multiple_of(atomic.bytes) {
            return Err(self.refuse_request(qpn));
        }
        if !allowed {
            return Err(self.refuse_operation(qpn));
        }
        let old = self.update_key(user, rkey, address, atomic.bytes, &mut |old| atomic.apply(old));
        match old {
            Ok(old) => Ok(atomic.to_memory(old)),
            Err(_) => Err(self.refuse_access(qpn)),
        }
    }

    pub(super) fn not_ready(&mut self, qpn: u32) -> Answer {
        let timer = self.qps.get(qpn).map_or(0, |qp| qp.attributes.min_rnr_timer);
        Answer::NotReady(timer)
    }

    fn refuse_request(&mut self, qpn: u32) -> Answer {
        self.refuse(qpn, EventType::WQ_INVAL_REQ_ERROR);
        Answer::Nak(Nak::InvalidRequest)
    }

    /// Refuses an operation that the queue pair does not grant: an invalid request to the peer, an
    /// access error to the driver.
    fn refuse_operation(&mut self, qpn: u32) -> Answer {
        self.refuse(qpn, EventType::WQ_ACCESS_ERROR);
        Answer::Nak(Nak::InvalidRequest)
    }

    /// Refuses an access that a key does not allow, or whose memory did not answer.
    fn refuse_error(&mut self, qpn: u32, error: KeyError) -> Answer {
        if !matches!(error, KeyError::Memory(_)) {
            return self.refuse_access(qpn);
        }
        self.refuse(qpn, EventType::WQ_CATAS_ERROR);
        Answer::Nak(Nak::RemoteOperation)
    }

    pub(super) fn refuse_access(&mut self, qpn: u32) -> Answer {
        self.refuse(qpn, EventType::WQ_ACCESS_ERROR);
        Answer::Nak(Nak::RemoteAccess)
    }

    /// Refuses a packet: an unreliable queue pair ignores it, a reliable one fails.
    fn refuse(&mut self, qpn: u32, kind: EventType) {
        if self.qps.get(qpn).is_some_and(|qp| qp.config.transport.is_reliable()) {
            self.fail_qp(qpn, Some(kind));
        }
    }

    pub(super) fn fail_receive(&mut self, qpn: u32, index: u16, code: Code) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && qp.config.srq.is_none()
        {
            qp.rq_consumed = index.wrapping_add(1);
        }
        self.complete_error(qpn, CqeOpcode::ResponderError, 0, index, code);
        self.fail_with(qpn, code, None);
    }

    fn complete_receive(
        &mut self,
        qpn: u32,
        opcode: CqeOpcode,
        index: u16,
        length: u64,
        message: &[u8],
        packet: &Packet<'_>,
    ) {
        let cqe = self.received_entry(qpn, opcode, index, length, packet);
        self.complete(qpn, true, complete::bytes(&cqe), message, false);
    }

    /// An entry for the message that a packet ended, with the known fields of its origin.
    pub(super) fn received_entry(
        &self,
        qpn: u32,
        opcode: CqeOpcode,
        index: u16,
        length: u64,
        packet: &Packet<'_>,
    ) -> Cqe {
        let mut cqe = self.entry(qpn, opcode, 0, index);
        let Origin { gid, path, lid, qpn: source, .. } = packet.origin;
        cqe.byte_count.set(length as u32);
        cqe.imm_inval_pkey.set(match opcode {
            CqeOpcode::ResponderSend => self.told_partition(qpn),
            _ => packet.request.immediate,
        });
        let (level, header) = match gid {
            // On Ethernet the field of the service level has the format of the packet.
            Some(entry) if entry.kind != GidType::Ib => {
                let look = match entry.kind {
                    GidType::RoceV2 if entry.is_ipv4() => 2,
                    GidType::RoceV2 => 1,
                    _ => 0,
                };
                (look, true)
            }
            _ => {
                cqe.slid.set(*lid);
                let local = self.qps.get(qpn).and_then(|qp| self.port(qp.attributes.port));
                cqe.ml_path = (path.dlid & ((1 << local.map_or(0, |port| port.lmc)) - 1)) as u8;
                (path.sl & 0xf, path.grh)
            }
        };
        // Only the entry of a datagram reports that a header precedes it.
        let datagram = self.qps.get(qpn).is_some_and(|qp| qp.config.transport == Transport::Ud);
        let header = header && datagram;
        cqe.flags_rqpn.set(u32::from(header) << 28 | u32::from(level) << 24 | source);
        if packet.request.is_solicited() {
            cqe.op_own |= SOLICITED;
        }
        cqe
    }

    /// Takes a datagram, with the header that precedes it in the receive buffer.
    pub(crate) fn take_datagram(
        &mut self,
        qpn: u32,
        qkey: u32,
        header: &[u8; 40],
        packet: &Packet<'_>,
    ) {
        let runs = self.runs();
        let Some(qp) = self.qps.get(qpn) else { return };
        let port = self.port(qp.attributes.port);
        let pkey = port.and_then(|port| port.pkeys.get(usize::from(qp.attributes.pkey_index)));
        let listens = runs
            && qp.receives()
            && qp.config.transport == Transport::Ud
            && qp.attributes.qkey == qkey
            && pkey.is_some_and(|pkey| super::route::same_partition(*pkey, packet.origin.pkey));
        if !listens {
            return;
        }
        let Some(receive) = self.take_receive(qpn) else { return };
        let length = header.len() as u64 + packet.data.len() as u64;
        if length > receive.capacity() {
            return self.fail_receive(qpn, receive.index, codes::LENGTH);
        }
        let has_header = packet.origin.path.grh;
        let user = User { qpn, pd: receive.pd, side: Side::Responder };
        let mut scattered = Ok(());
        if has_header {
            scattered = self.scatter(user, &receive.entries, 0, header);
        }
        let data = header.len() as u64;
        scattered =
            scattered.and_then(|()| self.scatter(user, &receive.entries, data, packet.data));
        if let Err(error) = scattered {
            return self.fail_receive(qpn, receive.index, Code::scatter(error));
        }
        self.retire_receive(qpn, &receive);
        let opcode = match packet.request.opcode {
            Opcode::SendImm => CqeOpcode::ResponderSendImm,
            _ => CqeOpcode::ResponderSend,
        };
        self.complete_receive(qpn, opcode, receive.index, length, &[], packet);
    }
}
