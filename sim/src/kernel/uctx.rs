//! Firmware user contexts, in which commands of user space are executed.

use mlx5_prm::cmd::CommandOpcode;
use mlx5_uapi::Errno;

use crate::kernel::hca::Hca;
use crate::kernel::mailbox::{Place, put, take};

/// The number of a user context.
const UCTX: Place = (0x50, 16);
/// Bytes of CREATE_UCTX's input.
const CREATE_UCTX_BYTES: usize = 0x40;

/// Makes a firmware user context, and returns its number.
pub(crate) fn create_uctx(hca: &Hca) -> Result<u32, Errno> {
    if hca.caps.log_max_uctx() == 0 {
        return Err(Errno::EINVAL);
    }
    let mut input = [0; CREATE_UCTX_BYTES];
    put(&mut input, (0, 16), CommandOpcode::CREATE_UCTX.0);
    let output: [u8; 16] = hca.command_raw(&input)?;
    Ok(take(&output, UCTX))
}

pub(crate) fn destroy_uctx(hca: &Hca, uid: u32) -> Result<(), Errno> {
    let mut input = [0; 16];
    put(&mut input, (0, 16), CommandOpcode::DESTROY_UCTX.0);
    put(&mut input, UCTX, uid);
    hca.command_raw::<16>(&input).map(drop)
}
