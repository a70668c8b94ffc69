//! Multicast groups.

use super::QueuePair;
use crate::context::Gid;
use crate::error::Error;
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::{DeviceFile, Errno};
use mlx5_wqe::transport::Ud;

/// A command with a queue pair and a group.
type GroupCommand = fn(&dyn DeviceFile, u32, [u8; 16], u16) -> Result<(), Errno>;

impl QueuePair<Ud> {
    /// Adds the queue pair to a multicast group (`ibv_attach_mcast`): it also receives messages to
    /// the group.
    pub fn attach_mcast(&self, group: Gid, mlid: u16) -> Result<(), Error> {
        self.multicast("attach_mcast", group, mlid, command::attach_mcast)
    }

    /// Removes the queue pair from a multicast group (`ibv_detach_mcast`).
    pub fn detach_mcast(&self, group: Gid, mlid: u16) -> Result<(), Error> {
        self.multicast("detach_mcast", group, mlid, command::detach_mcast)
    }

    fn multicast(
        &self,
        verb: &'static str,
        group: Gid,
        mlid: u16,
        command: GroupCommand,
    ) -> Result<(), Error> {
        let inner = &self.control.inner;
        if !group.is_multicast() {
            return Err(Error::invalid(
                verb,
                "not a multicast GID: it neither starts with ff nor is a multicast address of IPv4"
                    .into(),
            ));
        }
        let handle = inner.live_handle(verb)?;
        inner.context.run(verb, |file| command(file, handle, group.to_bytes(), mlid))
    }
}
