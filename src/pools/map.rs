//! Memory from the system, checked.

use mlx5_uapi::{AllocateError, DeviceFile, Errno, Mapping, MemoryRequest, page_size};

/// Allocates memory and checks its length and alignment. The check is needed because [`DeviceFile`]
/// can be implemented in safe code, on whose results unsafe code must not rely.
pub(crate) fn map(
    file: &dyn DeviceFile,
    request: &MemoryRequest,
) -> Result<Mapping, AllocateError> {
    let mapping = file.allocate(request)?;
    let align = request.align.max(page_size());
    let sound = mapping.len() >= request.len && mapping.as_ptr().addr().is_multiple_of(align);
    if sound { Ok(mapping) } else { Err(Errno::EPROTO.into()) }
}
