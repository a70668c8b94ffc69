//! Queue pairs as a file holds them.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::port::DetachFromMcgIn;
use mlx5_prm::cmd::qp::{DestroyQpIn, Qp2RstIn};
use mlx5_uapi::Errno;
use mlx5_uapi::verbs::{AccessFlags, QpCap, QpState, QpType};

use crate::engine::Gid;
use crate::kernel::events::Subscription;
use crate::kernel::hca::Hca;
use crate::kernel::lock;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: u32,
    pub(crate) kind: QpType,
    /// The state as the driver knows it.
    pub(crate) state: QpState,
    pub(crate) port: u8,
    /// Reads and atomics that the peer may have outstanding, and its rights.
    pub(crate) responder_depth: u8,
    pub(crate) access: AccessFlags,
    pub(crate) remote_qpn: u32,
    pub(crate) cap: QpCap,
    pub(crate) signal_all: bool,
    pub(crate) groups: Vec<Gid>,
    pub(crate) events: Option<Subscription>,
}

impl Qp {
    /// Ends the queue pair; how many of its events were read.
    pub(crate) fn end(&mut self, hca: &Hca) -> Result<u32, Errno> {
        if !self.groups.is_empty() {
            return Err(Errno::EBUSY);
        }
        if self.state != QpState::Reset {
            let mut input = Qp2RstIn::request();
            input.set_qpn(self.qpn);
            hca.command(&input)?;
            self.state = QpState::Reset;
        }
        let mut input = DestroyQpIn::request();
        input.set_qpn(self.qpn);
        hca.command(&input)?;
        lock(&hca.hub.routes).qps.remove(&self.qpn);
        Ok(self.events.as_ref().map_or(0, Subscription::end))
    }

    /// Leaves every group; what refuses stays, and keeps the queue pair.
    pub(crate) fn leave_groups(&mut self, hca: &Hca) {
        let qpn = self.qpn;
        self.groups.retain(|gid| leave(hca, qpn, *gid).is_err());
    }
}

/// Leaves one group.
pub(crate) fn leave(hca: &Hca, qpn: u32, gid: Gid) -> Result<(), Errno> {
    let mut input = DetachFromMcgIn::request();
    input.set_qpn(qpn);
    *input.multicast_gid_mut() = gid;
    hca.command(&input).map(drop)
}
