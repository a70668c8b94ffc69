//! XRC domains.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::destroy;
use crate::{
    Errno,
    ioctl::{attr, method},
    kernel::DeviceFile,
    write_cmd::{OpenXrcd, OpenXrcdResp, WriteCommand, exchange},
};

/// Opens the XRC domain of the inode of `share`, or, with `None`, a new one that is not shared
/// (OPEN_XRCD). Returns the handle.
///
/// `oflags` are flags of open(2): `O_CREAT`, `O_EXCL`.
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

/// Closes an XRC domain (XRCD_DESTROY).
pub fn close(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::XRCD_DESTROY, attr::destroy_xrcd::HANDLE, handle)
}
