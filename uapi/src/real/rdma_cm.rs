//! The connection manager of the running kernel.

use std::{
    fs::{File, OpenOptions},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
};

use nix::fcntl::OFlag;

use super::errno;
use crate::{Errno, kernel::CmFile, rdma_cm::NODE};

/// An open `/dev/infiniband/rdma_cm`.
#[derive(Debug)]
pub(super) struct RdmaCmFile {
    file: File,
}

impl RdmaCmFile {
    /// Opens the node in `directory`.
    pub(super) fn open(directory: &Path) -> Result<Self, Errno> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits());
        let file = options.open(directory.join(NODE)).map_err(errno)?;
        if !file.metadata().map_err(errno)?.file_type().is_char_device() {
            return Err(Errno::ENXIO);
        }
        Ok(Self { file })
    }
}

impl AsFd for RdmaCmFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl CmFile for RdmaCmFile {
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno> {
        // The kernel takes a whole call or none of it.
        nix::unistd::write(&self.file, call).map(drop)
    }
}
