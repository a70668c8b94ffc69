//! Protection domains.

use super::destroy;
use crate::{
    Errno,
    ioctl::{attr, method},
    kernel::DeviceFile,
    mlx5,
    write_cmd::{AllocPdResp, EmptyRequest, Nothing, WriteCommand, exchange_with_driver},
};

/// A protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pd {
    /// The kernel's handle.
    pub handle: u32,
    /// The device's number (PDN).
    pub pdn: u32,
}

/// Allocates a protection domain (ALLOC_PD).
pub fn alloc(file: &dyn DeviceFile) -> Result<Pd, Errno> {
    let (core, driver): (AllocPdResp, mlx5::AllocPdResp) = exchange_with_driver::<_, _, Nothing, _>(
        file,
        WriteCommand::ALLOC_PD,
        &EmptyRequest::default(),
        &[],
    )?;
    Ok(Pd { handle: core.pd_handle, pdn: driver.pdn })
}

/// Deallocates a protection domain (PD_DESTROY). `EBUSY` while objects belong to it.
pub fn dealloc(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::PD_DESTROY, attr::destroy_pd::HANDLE, handle)
}
