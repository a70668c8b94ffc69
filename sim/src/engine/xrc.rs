//! Extended reliable connections: each message names its shared receive queue; the receiving queue
//! pair has none of its own.

use crate::engine::Device;
use crate::engine::state::mkey::{Side, User};
use crate::engine::state::qp::{Qp, Transport};
use crate::engine::state::srq::XrcConfig;
use crate::engine::wqe::Request;

impl Qp {
    /// The shared receive queue from which it takes WQEs now.
    pub(crate) fn shared_queue(&self) -> Option<u32> {
        match self.config.transport {
            Transport::XrcReceive => self.named_srq,
            _ => self.config.srq,
        }
    }
}

impl Device {
    /// Switches to the shared receive queue that a message names and returns whether that is
    /// allowed. Other transports have none to switch to.
    pub(crate) fn open_queue(&mut self, qpn: u32, request: &Request) -> bool {
        let Some(qp) = self.qps.get_mut(qpn) else { return false };
        if qp.config.transport != Transport::XrcReceive {
            return true;
        }
        let named = self.srqs.get(request.srqn).and_then(|srq| srq.config.xrc);
        let allowed = named.is_some_and(|xrc| Some(xrc.xrcd) == qp.config.xrcd);
        qp.named_srq = allowed.then_some(request.srqn);
        allowed
    }

    /// The user for whom a queue pair accesses memory as a responder: on an extended connection,
    /// the owner of the shared receive queue.
    pub(crate) fn responder(&self, qpn: u32, qp: &Qp) -> User {
        let user = qp.user(qpn, Side::Responder);
        let extended = qp.config.transport == Transport::XrcReceive;
        let srq = qp.named_srq.filter(|_| extended).and_then(|srqn| self.srqs.get(srqn));
        srq.map_or(user, |srq| User { pd: srq.config.pd, ..user })
    }

    /// The completion queue and user index of the receives of an extended connection.
    pub(crate) fn extended_receiver(&self, qpn: u32) -> Option<(XrcConfig, u32)> {
        let qp = self.qps.get(qpn).filter(|qp| qp.config.transport == Transport::XrcReceive)?;
        let srq = self.srqs.get(qp.named_srq?)?;
        Some((srq.config.xrc?, srq.config.user_index))
    }
}
