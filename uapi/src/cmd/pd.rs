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
    /// The device's number.
    pub pdn: u32,
}

/// ALLOC_PD.
pub fn alloc(file: &dyn DeviceFile) -> Result<Pd, Errno> {
    let (core, driver): (AllocPdResp, mlx5::AllocPdResp) = exchange_with_driver::<_, _, Nothing, _>(
        file,
        WriteCommand::ALLOC_PD,
        &EmptyRequest::default(),
        &[],
    )?;
    Ok(Pd { handle: core.pd_handle, pdn: driver.pdn })
}

/// PD_DESTROY. `EBUSY` while something belongs to it.
pub fn dealloc(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::PD_DESTROY, attr::destroy_pd::HANDLE, handle)
}
