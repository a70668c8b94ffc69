//! Draining a send queue on command.

use mlx5_prm::event::EventType;

use crate::engine::qp::QpState;
use crate::engine::{Device, Error, Event};

/// Where a send queue shall stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DrainAt {
    /// Before the next WQE that is not executed yet.
    Now,
    /// After so many more WQEs.
    After(u32),
    /// Before the WQE at this block (free-running, 16 bits).
    Block(u16),
}

/// A drain that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    pub(crate) at: DrainAt,
    /// SQ_DRAINED is raised in the end.
    notify: bool,
}

impl Device {
    /// Makes a queue pair in RTS stop its send queue; at that place its state becomes
    /// [`QpState::SqDrained`] and SQ_DRAINED is raised. [`Device::set_qp_state`] with RTS resumes.
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
        qp.drain = Some(Drain { at, notify });
        if at == DrainAt::Now {
            qp.state = QpState::SqDraining;
        }
        self.reach_drain(qpn);
        Ok(())
    }

    /// Stops a send queue that has come to where it shall drain; says whether it has.
    pub(crate) fn reach_drain(&mut self, qpn: u32) -> bool {
        let Some(qp) = self.qps.get_mut(qpn) else { return false };
        let Some(drain) = qp.drain else { return false };
        let reached = match drain.at {
            DrainAt::Now | DrainAt::After(0) => true,
            DrainAt::After(_) => false,
            DrainAt::Block(block) => qp.sq_executed == block,
        };
        // A request that was sent in part is finished first.
        if !reached || qp.packets_done > 0 {
            return false;
        }
        qp.drain = None;
        qp.state = QpState::SqDrained;
        if drain.notify {
            self.raise(Event::Qp { qpn, kind: EventType::SQ_DRAINED });
        }
        true
    }
}
