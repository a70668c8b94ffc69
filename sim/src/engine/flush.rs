//! Failing queue pairs and flushing their requests.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::{ControlSegment, UNIT};

use crate::engine::state::codes::{Code, FLUSHED, FLUSHED_FIRST};
use crate::engine::state::qp::{QpState, Wait};
use crate::engine::state::receive::{Inbound, Source};
use crate::engine::{Device, Event};

impl Device {
    /// Moves a queue pair to ERROR, as MODIFY does: the first request to be flushed says so.
    pub(crate) fn end_qp(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && qp.state != QpState::Error
        {
            qp.flushed = (FLUSHED_FIRST, 0);
        }
        self.fail_qp(qpn, None);
    }

    /// As [`Device::fail_qp`], after a request or a receive that failed with a code.
    pub(crate) fn fail_with(&mut self, qpn: u32, code: Code, event: Option<EventType>) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && qp.state != QpState::Error
        {
            qp.flushed = (FLUSHED, code.hardware);
        }
        self.fail_qp(qpn, event);
    }

    /// Moves a queue pair to ERROR, with an event if completions alone do not report
    /// it. Waiting requests are flushed as the engine reaches them.
    pub(crate) fn fail_qp(&mut self, qpn: u32, event: Option<EventType>) {
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        if qp.state == QpState::Error {
            return;
        }
        qp.state = QpState::Error;
        qp.wait = Wait::No;
        qp.drain = None;
        qp.packets_done = 0;
        qp.take_back();
        qp.inbound = Inbound::Idle;
        let held = qp.held.take();
        let (ethernet, receive) = (qp.is_ethernet(), qp.config.sq.is_none());
        let shared = qp.config.srq.is_some();
        self.cancel_tagged(qpn);
        if let Some(kind) = event {
            self.raise(match ethernet {
                true => Event::WorkQueue { number: qpn, receive, kind },
                false => Event::Qp { qpn, kind },
            });
        }
        // A WQE of the queue pair's own is still the first that waits; a shared one is not.
        if let Some(receive) = held.filter(|receive| receive.source == Source::Shared) {
            self.flush_receive(qpn, receive.index);
        }
        if shared {
            self.raise(Event::Qp { qpn, kind: EventType::SRQ_LAST_WQE });
        }
        if !self.config.exact_doorbells {
            self.rescan_qp(qpn);
        }
        self.watched.insert(qpn);
        self.wake(qpn);
    }

    /// Stops the send queue of an unreliable queue pair whose request failed with a code.
    pub(crate) fn fail_sq(&mut self, qpn: u32, code: Code) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && matches!(qp.state, QpState::Rts | QpState::SqDraining)
        {
            qp.state = QpState::SqError;
            qp.flushed = (FLUSHED, code.hardware);
            qp.wait = Wait::No;
            qp.drain = None;
            qp.packets_done = 0;
        }
    }

    fn flush_receive(&mut self, qpn: u32, index: u16) {
        let code = Code::flushed(FLUSHED, 0);
        self.complete_error(qpn, CqeOpcode::ResponderError, 0, index, code);
    }

    /// Flushes one request of a failed queue, sends first, and returns whether there was one.
    pub(crate) fn flush_one(&mut self, qpn: u32) -> bool {
        self.flush_send(qpn) || self.flush_own_receive(qpn)
    }

    fn flush_send(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.qps.get_mut(qpn) else { return false };
        if qp.sq_waiting() == 0 {
            return false;
        }
        let index = qp.sq_executed;
        let mut bytes = [0; UNIT];
        if let Err(fault) = qp.read_sq(&*self.dma, index, &mut bytes) {
            // Nothing can be flushed from queue memory that cannot be read.
            qp.sq_executed = qp.sq_posted;
            self.memory_violation(fault);
            return false;
        }
        let control: ControlSegment = zerocopy::transmute!(bytes);
        let blocks = (control.units().div_ceil(4).max(1) as u16).min(qp.sq_waiting());
        qp.sq_executed = index.wrapping_add(blocks);
        let opcode = control.opmod_index_opcode.get() as u8;
        let (vendor, hardware) = qp.flushed;
        qp.flushed.0 = FLUSHED;
        let code = Code::flushed(vendor, hardware);
        self.complete_error(qpn, CqeOpcode::RequesterError, opcode, index, code);
        true
    }

    fn flush_own_receive(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.qps.get(qpn) else { return false };
        if qp.state != QpState::Error || qp.config.rq.is_none() {
            return false;
        }
        if self.own_receives(qpn) == 0 {
            return false;
        }
        let index = if self.has_list(qpn) {
            let Some(receive) = self.take_own(qpn) else {
                // Nothing can be flushed from a list that cannot be followed.
                self.skip_own(qpn);
                return false;
            };
            self.retire_receive(qpn, &receive);
            receive.index
        } else {
            let Some(qp) = self.qps.get_mut(qpn) else { return false };
            let index = qp.rq_consumed;
            qp.rq_consumed = index.wrapping_add(1);
            index
        };
        self.flush_receive(qpn, index);
        true
    }
}
