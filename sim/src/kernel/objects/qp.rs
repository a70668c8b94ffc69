//! Queue pairs of a file.

use std::sync::{Arc, Mutex};

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::port::DetachFromMcgIn;
use mlx5_prm::cmd::qp::{DestroyQpIn, Qp2RstIn};
use mlx5_uapi::Errno;
use mlx5_uapi::verbs::{QpCap, QpState, QpType};

use crate::engine::Gid;
use crate::kernel::events::Subscription;
use crate::kernel::hca::Hca;
use crate::kernel::known::Known;
use crate::kernel::lock;
use crate::kernel::objects::raw::Raw;

/// A queue pair, or one of several handles of a target.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: u32,
    pub(crate) kind: QpType,
    /// Shared by all handles of a target. Locked during a transition.
    pub(crate) known: Arc<Mutex<Known>>,
    pub(crate) cap: QpCap,
    pub(crate) signal_all: bool,
    pub(crate) groups: Vec<Gid>,
    pub(crate) events: Option<Subscription>,
    /// The parts of a raw packet queue pair.
    pub(crate) raw: Option<Raw>,
}

impl Qp {
    /// Ends the queue pair, and returns the number of its events that were read.
    pub(crate) fn end(&mut self, hca: &Hca) -> Result<u32, Errno> {
        if !self.groups.is_empty() {
            return Err(Errno::EBUSY);
        }
        if let Some(raw) = &mut self.raw {
            raw.end(hca)?;
            return Ok(self.events.as_ref().map_or(0, Subscription::end));
        }
        let mut targets = lock(&hca.targets);
        match targets.get_mut(&self.qpn) {
            Some(target) if target.users > 1 => target.users -= 1,
            _ => {
                self.destroy(hca)?;
                targets.remove(&self.qpn);
            }
        }
        let Some(events) = &self.events else { return Ok(0) };
        lock(&hca.hub.routes).forget_qp(self.qpn, events);
        Ok(events.end())
    }

    /// Ends the queue pair on the device.
    fn destroy(&self, hca: &Hca) -> Result<(), Errno> {
        let mut known = lock(&self.known);
        if known.state != QpState::Reset {
            let mut input = Qp2RstIn::request();
            input.set_qpn(self.qpn);
            hca.command(&input)?;
            known.state = QpState::Reset;
        }
        let mut input = DestroyQpIn::request();
        input.set_qpn(self.qpn);
        hca.command(&input).map(drop)
    }

    /// Detaches it from every group. A group that cannot be left stays, and keeps the queue pair.
    pub(crate) fn leave_groups(&mut self, hca: &Hca) {
        let qpn = self.qpn;
        self.groups.retain(|gid| leave(hca, qpn, *gid).is_err());
    }
}

/// Detaches it from one group.
pub(crate) fn leave(hca: &Hca, qpn: u32, gid: Gid) -> Result<(), Errno> {
    let mut input = DetachFromMcgIn::request();
    input.set_qpn(qpn);
    *input.multicast_gid_mut() = gid;
    hca.command(&input).map(drop)
}
