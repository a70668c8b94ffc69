//! Multicast groups.

use super::QpObject;
use crate::abi::*;
use crate::refusal::{Refusal, Verb, status};
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::{DeviceFile, Errno};

/// A command about a queue pair and a group.
type Command = fn(&dyn DeviceFile, u32, [u8; 16], u16) -> Result<(), Errno>;

fn change(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16, command: Command) -> Verb {
    // SAFETY: the callers promise that `qp` was not destroyed and that `gid` is readable.
    let (this, gid) = unsafe { (QpObject::of(qp), (*gid).raw) };
    if this.qp_type() != IBV_QPT_UD {
        return Err(Refusal::INVALID);
    }
    // The provider keeps nothing of groups, so there is nothing to tell it.
    Ok(command(this.context().file(), this.handle(), gid, lid)?)
}

/// `ibv_attach_mcast`.
///
/// # Safety
/// `qp` was not destroyed, `gid` is readable.
pub unsafe extern "C" fn attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    status(change(qp, gid, lid, command::attach_mcast))
}

/// `ibv_detach_mcast`.
///
/// # Safety
/// `qp` was not destroyed, `gid` is readable.
pub unsafe extern "C" fn detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int {
    status(change(qp, gid, lid, command::detach_mcast))
}
