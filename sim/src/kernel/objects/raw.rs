//! Raw packet queue pairs and work queues of a file: the objects that they have on the device.

use std::sync::Mutex;

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::ethernet::{
    DestroyRqIn, DestroySqIn, ModifyRqIn, ModifySqIn, QueryRqIn, QuerySqIn, QueueState, modify_rq,
    modify_sq,
};
use mlx5_prm::cmd::steering::{DestroyRqtIn, DestroyTirIn, DestroyTisIn};
use mlx5_uapi::Errno;
use mlx5_uapi::verbs::WqState;

use crate::kernel::events::Subscription;
use crate::kernel::hca::Hca;
use crate::kernel::lock;
use crate::kernel::rates::Rate;

/// The parts of a raw packet queue pair. One with an indirection table has only a TIR.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    pub(crate) tis: Option<u32>,
    pub(crate) sq: Option<u32>,
    pub(crate) rq: Option<u32>,
    pub(crate) tir: Option<u32>,
    /// Its TIR decides about frames that come back, so that it is a user of the driver's loopback.
    pub(crate) loops_back: bool,
    /// The limit of its send queue's rate.
    pub(crate) rate: Mutex<Rate>,
    /// The states that the driver remembers.
    pub(crate) states: Mutex<States>,
}

/// The states of a raw packet queue pair's queues as the driver remembers them: from its last
/// change, or its last query. It gives them to the device with each change, without a query before
/// (`modify_raw_packet_qp_sq` and `_rq` of mlx5_ib).
#[derive(Clone, Copy, Debug)]
pub(crate) struct States {
    pub(crate) send: QueueState,
    pub(crate) receive: QueueState,
}

impl Default for States {
    fn default() -> Self {
        Self { send: QueueState::RST, receive: QueueState::RST }
    }
}

impl Raw {
    /// Ends the objects that exist, complete or not. An object that has ended is not ended again.
    pub(crate) fn end(&mut self, hca: &Hca) -> Result<(), Errno> {
        if let Some(tirn) = self.tir {
            let mut input = DestroyTirIn::request();
            input.set_tirn(tirn);
            hca.command(&input)?;
            self.tir = None;
        }
        if std::mem::take(&mut self.loops_back) {
            hca.loopback.leave_queue(hca);
        }
        if let Some(rqn) = self.rq {
            end_rq(hca, rqn)?;
            self.rq = None;
        }
        if let Some(sqn) = self.sq {
            let mut input = DestroySqIn::request();
            input.set_sqn(sqn);
            hca.command(&input)?;
            lock(&hca.hub.routes).end_qp(sqn);
            self.forget_rate(hca);
            self.sq = None;
        }
        if let Some(tisn) = self.tis {
            let mut input = DestroyTisIn::request();
            input.set_tisn(tisn);
            hca.command(&input)?;
            self.tis = None;
        }
        Ok(())
    }

    fn forget_rate(&self, hca: &Hca) {
        let rate = std::mem::take(&mut *lock(&self.rate));
        if rate.kilobits != 0 {
            hca.remove_rate(rate);
        }
    }

    /// Moves the existing queues to a state, each from the one that is remembered. A send queue
    /// that is ready may get another rate limit; in any other state it loses its limit.
    pub(crate) fn set_state(
        &self,
        hca: &Hca,
        receive: Option<QueueState>,
        send: Option<QueueState>,
        limit: Option<Rate>,
    ) -> Result<(), Errno> {
        let known = &mut *lock(&self.states);
        if let (Some(rqn), Some(state)) = (self.rq, receive) {
            modify_rq(hca, rqn, (known.receive, state), None)?;
            known.receive = state;
        }
        if let (Some(sqn), Some(state)) = (self.sq, send) {
            let mut input = ModifySqIn::request();
            input.set_sqn(sqn).set_sq_state(known.send.0).ctx_mut().set_state(state.0);
            let old = *lock(&self.rate);
            let changed = limit.filter(|limit| state == QueueState::RDY && *limit != old);
            if let Some(limit) = changed {
                let index = if limit.kilobits == 0 { 0 } else { hca.add_rate(limit)? };
                input.set_modify_bitmask(modify_sq::PACKET_PACING_RATE_LIMIT_INDEX);
                input.ctx_mut().set_packet_pacing_rate_limit_index(index);
            }
            if let Err(errno) = hca.command(&input) {
                if let Some(limit) = changed {
                    hca.remove_rate(limit);
                }
                return Err(errno);
            }
            if changed.is_some() || state != QueueState::RDY {
                self.forget_rate(hca);
                *lock(&self.rate) = changed.unwrap_or_default();
            }
            known.send = state;
        }
        Ok(())
    }

    /// Queries the states of the existing queues, and remembers them.
    pub(crate) fn ask(&self, hca: &Hca) -> Result<[Option<QueueState>; 2], Errno> {
        let known = &mut *lock(&self.states);
        let send = self.sq.map(|sqn| sq_state(hca, sqn)).transpose()?;
        known.send = send.unwrap_or(known.send);
        let receive = self.rq.map(|rqn| rq_state(hca, rqn)).transpose()?;
        known.receive = receive.unwrap_or(known.receive);
        Ok([send, receive])
    }
}

fn sq_state(hca: &Hca, sqn: u32) -> Result<QueueState, Errno> {
    let mut input = QuerySqIn::request();
    input.set_sqn(sqn);
    Ok(QueueState(hca.command(&input)?.sq_context().state()))
}

fn rq_state(hca: &Hca, rqn: u32) -> Result<QueueState, Errno> {
    let mut input = QueryRqIn::request();
    input.set_rqn(rqn);
    Ok(QueueState(hca.command(&input)?.rq_context().state()))
}

/// Moves a receive queue from one state to another, and sets whether it strips VLAN tags.
pub(crate) fn modify_rq(
    hca: &Hca,
    rqn: u32,
    (from, to): (QueueState, QueueState),
    keep_vlan: Option<bool>,
) -> Result<(), Errno> {
    let mut input = ModifyRqIn::request();
    input.set_rqn(rqn).set_rq_state(from.0).ctx_mut().set_state(to.0);
    if let Some(keep) = keep_vlan {
        input.set_modify_bitmask(modify_rq::VSD).ctx_mut().set_vsd(keep);
    }
    hca.command(&input).map(drop)
}

fn end_rq(hca: &Hca, rqn: u32) -> Result<(), Errno> {
    let mut input = DestroyRqIn::request();
    input.set_rqn(rqn);
    hca.command(&input)?;
    lock(&hca.hub.routes).end_qp(rqn);
    Ok(())
}

/// A work queue.
#[derive(Debug)]
pub(crate) struct Wq {
    pub(crate) rqn: u32,
    pub(crate) state: WqState,
    pub(crate) events: Option<Subscription>,
}

impl Wq {
    /// Ends the queue, and returns the number of its events that were read.
    pub(crate) fn end(&mut self, hca: &Hca) -> Result<u32, Errno> {
        let mut input = DestroyRqIn::request();
        input.set_rqn(self.rqn);
        hca.command(&input)?;
        lock(&hca.hub.routes).wqs.remove(&self.rqn);
        Ok(self.events.as_ref().map_or(0, Subscription::end))
    }
}

/// An indirection table.
#[derive(Debug)]
pub(crate) struct IndirectionTable {
    pub(crate) rqtn: u32,
    pub(crate) log_size: u32,
}

impl IndirectionTable {
    pub(crate) fn end(&mut self, hca: &Hca) -> Result<(), Errno> {
        let mut input = DestroyRqtIn::request();
        input.set_rqtn(self.rqtn);
        hca.command(&input).map(drop)
    }
}
