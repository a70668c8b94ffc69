//! Fences. A later request of the queue is sure to see the change of an earlier one only after a
//! fence, or if it was posted after the earlier one's completion.

use mlx5_prm::wqe::control_flags;

use crate::engine::Device;
use crate::engine::fault::Violation;
use crate::engine::state::fence::Change;
use crate::engine::state::mkey::{Side, User};
use crate::engine::wqe::Request;

impl Device {
    /// Begins a request, with or without a fence.
    pub(crate) fn begin(&mut self, qpn: u32, request: &Request) {
        if request.flags & control_flags::FENCE_MASK != 0
            && let Some(qp) = self.qps.get_mut(qpn)
        {
            qp.unfenced.clear();
        }
    }

    /// Notes the change that a request made. A driver that polled its completion before it posted
    /// more needs no fence.
    pub(crate) fn changed(&mut self, qpn: u32, request: &Request, change: Change) {
        self.used(qpn, change);
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        if !request.completes() || qp.sq_waiting() > request.blocks {
            qp.unfenced.push(change);
        }
    }

    /// Notes that a request uses something: without a fence it may see the state before the change.
    pub(crate) fn used(&mut self, qpn: u32, change: Change) {
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        let Some(at) = qp.unfenced.iter().position(|other| *other == change) else { return };
        qp.unfenced.remove(at);
        let index = qp.sq_executed;
        self.violation(match change {
            Change::Mkey(mkey) => Violation::MkeyWithoutFence { qpn, index, mkey },
            Change::Psv(psv) => Violation::PsvWithoutFence { qpn, index, psv },
        });
    }

    /// The requester's own use of a key.
    pub(crate) fn used_by(&mut self, user: User, change: Change) {
        if user.side == Side::Requester {
            self.used(user.qpn, change);
        }
    }
}
