//! Completion queues of a file.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::cq::DestroyCqIn;
use mlx5_uapi::Errno;
use mlx5_uapi::cmd::cq::CqEvents;

use crate::kernel::events::Subscription;
use crate::kernel::hca::Hca;
use crate::kernel::lock;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) cqn: u32,
    pub(crate) cqe: u32,
    pub(crate) cqe_size: u32,
    pub(crate) padded: bool,
    /// Timestamps are the time of day.
    pub(crate) real_time: bool,
    pub(crate) completions: Option<Subscription>,
    pub(crate) asynchronous: Option<Subscription>,
}

impl Cq {
    /// Ends the queue, and returns the numbers of its events that were read.
    pub(crate) fn end(&self, hca: &Hca) -> Result<CqEvents, Errno> {
        let mut input = DestroyCqIn::request();
        input.set_cqn(self.cqn);
        hca.command(&input)?;
        {
            let mut routes = lock(&hca.hub.routes);
            routes.completions.remove(&self.cqn);
            routes.cqs.remove(&self.cqn);
        }
        Ok(CqEvents {
            comp_events_reported: self.completions.as_ref().map_or(0, Subscription::end),
            async_events_reported: self.asynchronous.as_ref().map_or(0, Subscription::end),
        })
    }
}
