//! Draining a send queue on command.

use mlx5_prm::event::EventType;
use mlx5_prm::wqe::{ControlSegment, UNIT, control_flags};

use crate::engine::state::drain::{Drain, DrainAt};
use crate::engine::state::qp::QpState;
use crate::engine::{Device, Error, Event};

impl Device {
    /// Makes a queue pair in RTS stop its send queue at a point; there its state becomes
    /// [`QpState::SqDrained`] and the device raises SQ_DRAINED. [`Device::set_qp_state`] with RTS
    /// resumes it.
    pub fn drain_qp(&mut self, qpn: u32, at: DrainAt) -> Result<(), Error> {
        self.stop_sq(qpn, at, true)
    }

    /// The same, with or without the event.
    pub(crate) fn stop_sq(&mut self, qpn: u32, at: DrainAt, notify: bool) -> Result<(), Error> {
        let qp = self.qps.get_mut(qpn).ok_or(Error::NotFound)?;
        match qp.state {
            QpState::Rts | QpState::SqDraining => {}
            QpState::SqDrained => return Ok(()),
            _ => return Err(Error::State("only a queue pair in RTS can be drained")),
        }
        qp.drain = Some(Drain { at, before_fence: false, notify });
        if at == DrainAt::Now {
            qp.state = QpState::SqDraining;
        }
        self.reach_drain(qpn);
        Ok(())
    }

    /// Stops a send queue that has reached its drain point and returns whether it has.
    pub(crate) fn reach_drain(&mut self, qpn: u32) -> bool {
        let is_there = self.is_at_drain(qpn);
        let Some(qp) = self.qps.get_mut(qpn) else { return false };
        // All executed requests must be acknowledged first.
        if !is_there || !qp.executed.is_empty() {
            return false;
        }
        let notify = qp.drain.take().is_some_and(|drain| drain.notify);
        qp.state = QpState::SqDrained;
        if notify {
            self.raise(Event::Qp { qpn, kind: EventType::SQ_DRAINED });
        }
        true
    }

    /// Whether a send queue has reached its drain point.
    pub(crate) fn is_at_drain(&mut self, qpn: u32) -> bool {
        let Some(drain) = self.qps.get(qpn).and_then(|qp| qp.drain) else { return false };
        let fenced = drain.before_fence && self.is_fenced(qpn);
        let Some(qp) = self.qps.get(qpn) else { return false };
        let reached = match drain.at {
            _ if fenced => true,
            DrainAt::Now | DrainAt::After(0) => true,
            DrainAt::After(_) => false,
            DrainAt::Block(block) => qp.sq_executed == block,
        };
        // A request that was sent in part is completed first.
        reached && qp.packets_done == 0
    }

    /// Whether the next WQE has a fence, or there is none.
    fn is_fenced(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.qps.get(qpn) else { return false };
        let mut head = [0; UNIT];
        if qp.sq_waiting() == 0 {
            return true;
        }
        if let Err(fault) = qp.read_sq(&*self.dma, qp.sq_executed, &mut head) {
            self.memory_violation(fault);
            return false;
        }
        let control: ControlSegment = zerocopy::transmute!(head);
        control.fm_ce_se & control_flags::FENCE_MASK == control_flags::FENCE
    }
}
