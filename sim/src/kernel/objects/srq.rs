//! Shared receive queues of a file.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::srq::{DestroyRmpIn, DestroyXrcSrqIn, DestroyXrqIn};
use mlx5_uapi::Errno;
use mlx5_uapi::verbs::SrqType;

use crate::kernel::events::Subscription;
use crate::kernel::hca::Hca;
use crate::kernel::lock;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) srqn: u32,
    pub(crate) kind: SrqType,
    /// WQEs of the ring; one of them stays empty.
    pub(crate) wqes: u32,
    pub(crate) max_sge: u32,
    pub(crate) events: Option<Subscription>,
}

impl Srq {
    /// Ends the queue, and returns the number of its events that were read.
    pub(crate) fn end(&mut self, hca: &Hca) -> Result<u32, Errno> {
        match self.kind {
            SrqType::Xrc => {
                let mut input = DestroyXrcSrqIn::request();
                input.set_xrc_srqn(self.srqn);
                hca.command(&input).map(drop)
            }
            SrqType::Tm => {
                let mut input = DestroyXrqIn::request();
                input.set_xrqn(self.srqn);
                hca.command(&input).map(drop)
            }
            SrqType::Basic => {
                let mut input = DestroyRmpIn::request();
                input.set_rmpn(self.srqn);
                hca.command(&input).map(drop)
            }
        }?;
        lock(&hca.hub.routes).srqs.remove(&self.srqn);
        Ok(self.events.as_ref().map_or(0, Subscription::end))
    }
}
