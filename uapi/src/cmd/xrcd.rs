//! XRC domains.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::destroy;
use crate::{
    Errno,
    ioctl::{attr, method},
    kernel::DeviceFile,
    write_cmd::{OpenXrcd, OpenXrcdResp, WriteCommand, exchange},
};

/// OPEN_XRCD: the domain of the inode behind `share`, or one of its own; the handle.
///
/// `oflags` are those of open(2): `O_CREAT`, `O_EXCL`.
pub fn open(
    file: &dyn DeviceFile,
    share: Option<BorrowedFd<'_>>,
    oflags: u32,
) -> Result<u32, Errno> {
    let fd = share.map_or(-1, |fd| fd.as_raw_fd());
    let answer: OpenXrcdResp =
        exchange(file, WriteCommand::OPEN_XRCD, &OpenXrcd { response: 0, fd, oflags })?;
    Ok(answer.xrcd_handle)
}

/// XRCD_DESTROY.
pub fn close(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::XRCD_DESTROY, attr::destroy_xrcd::HANDLE, handle)
}
