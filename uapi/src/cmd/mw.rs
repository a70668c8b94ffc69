//! Memory windows.

use super::destroy;
use crate::{
    Errno,
    ioctl::{attr, method},
    kernel::DeviceFile,
    verbs::MwType,
    write_cmd::{AllocMw, AllocMwResp, WriteCommand, exchange},
};

/// A memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mw {
    /// The kernel's handle.
    pub handle: u32,
    /// Its rkey until it is bound.
    pub rkey: u32,
}

/// Allocates a memory window (ALLOC_MW).
pub fn alloc(file: &dyn DeviceFile, pd: u32, mw_type: MwType) -> Result<Mw, Errno> {
    let request = AllocMw { pd_handle: pd, mw_type: mw_type.raw(), ..AllocMw::default() };
    let answer: AllocMwResp = exchange(file, WriteCommand::ALLOC_MW, &request)?;
    Ok(Mw { handle: answer.mw_handle, rkey: answer.rkey })
}

/// Deallocates a memory window (MW_DESTROY).
pub fn dealloc(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::MW_DESTROY, attr::destroy_mw::HANDLE, handle)
}
