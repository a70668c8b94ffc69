//! Failing queue pairs and flushing their requests.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::event::EventType;
use mlx5_prm::wqe::{ControlSegment, UNIT};

use crate::engine::state::qp::{QpState, Wait};
use crate::engine::state::receive::{Inbound, Source};
use crate::engine::{Device, Event};

/// The vendor's code of a flushed request.
pub(crate) const VENDOR_FLUSHED: u8 = 0xf9;

impl Device {
    /// Moves a queue pair to ERROR, with an event if the completions alone do not report the
    /// failure. The engine flushes waiting requests later.
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

    /// Stops the send queue of an unreliable queue pair whose request failed.
    pub(crate) fn fail_sq(&mut self, qpn: u32) {
        if let Some(qp) = self.qps.get_mut(qpn)
            && matches!(qp.state, QpState::Rts | QpState::SqDraining)
        {
            qp.state = QpState::SqError;
            qp.wait = Wait::No;
            qp.drain = None;
            qp.packets_done = 0;
        }
    }

    fn flush_receive(&mut self, qpn: u32, index: u16) {
        let syndrome = Syndrome::WorkRequestFlushed;
        self.complete_error(qpn, CqeOpcode::ResponderError, 0, index, syndrome, VENDOR_FLUSHED);
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
        let syndrome = Syndrome::WorkRequestFlushed;
        self.complete_error(
            qpn,
            CqeOpcode::RequesterError,
            opcode,
            index,
            syndrome,
            VENDOR_FLUSHED,
        );
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
