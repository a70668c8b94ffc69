//! Protection domains.

use super::destroy;
use crate::{
    Errno,
    call::Call,
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

/// Asks for the device's number of a protection domain (PD_QUERY).
pub fn query(file: &dyn DeviceFile, handle: u32) -> Result<Pd, Errno> {
    let mut pdn = 0_u32;
    Call::new(method::PD_QUERY)
        .handle(attr::query_pd::HANDLE, handle)
        .output(attr::query_pd::RESP_PDN, &mut pdn)
        .make(file)?;
    Ok(Pd { handle, pdn })
}
