//! Fences: what a request changed is sure to be seen by a later one of its queue only behind a fence,
//! or once its completion was there to be read.

use mlx5_prm::wqe::control_flags;

use crate::engine::Device;
use crate::engine::fault::Violation;
use crate::engine::state::fence::Change;
use crate::engine::state::mkey::{Side, User};
use crate::engine::wqe::Request;

impl Device {
    /// A request begins, with a fence or without.
    pub(crate) fn begin(&mut self, qpn: u32, request: &Request) {
        if request.flags & control_flags::FENCE_MASK != 0
            && let Some(qp) = self.qps.get_mut(qpn)
        {
            qp.unfenced.clear();
        }
    }

    /// A request has changed something. Whoever saw its completion before posting more needs no
    /// fence.
    pub(crate) fn changed(&mut self, qpn: u32, request: &Request, change: Change) {
        self.used(qpn, change);
        let Some(qp) = self.qps.get_mut(qpn) else { return };
        if !request.completes() || qp.sq_waiting() > request.blocks {
            qp.unfenced.push(change);
        }
    }

    /// A request uses something: without a fence it may find it as it was before.
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
