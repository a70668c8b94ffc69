//! Address handles.

use super::destroy as destroy_object;
use crate::{
    Errno,
    ioctl::{attr, method},
    kernel::DeviceFile,
    mlx5,
    verbs::AhAttr,
    write_cmd::{CreateAh, CreateAhResp, Nothing, WriteCommand, exchange_with_driver},
};

/// Creates an address handle (CREATE_AH). Returns its handle and the destination MAC that the
/// kernel resolved.
///
/// Requires a driver with [`crate::mlx5::CmdsSuppUhw::CREATE_AH`].
pub fn create(file: &dyn DeviceFile, pd: u32, path: &AhAttr) -> Result<(u32, [u8; 6]), Errno> {
    let request = CreateAh { pd_handle: pd, attr: *path, ..CreateAh::default() };
    let (core, driver): (CreateAhResp, mlx5::CreateAhResp) =
        exchange_with_driver::<_, _, Nothing, _>(file, WriteCommand::CREATE_AH, &request, &[])?;
    Ok((core.ah_handle, driver.dmac))
}

/// Destroys an address handle (AH_DESTROY).
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy_object(file, method::AH_DESTROY, attr::destroy_ah::HANDLE, handle)
}
