//! On-device memory.

use super::destroy;
use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
};

/// A range of on-device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dm {
    /// The kernel's handle.
    pub handle: u32,
    /// Start of the range; modulo the page size, it is the offset in the mapped page.
    pub start_offset: u64,
    /// Page index for [`crate::mlx5::MmapCommand::DeviceMem`].
    pub page_index: u16,
}

/// Allocates on-device memory for data (DM_ALLOC, type MEMIC).
pub fn alloc(file: &dyn DeviceFile, length: u64, log_align: u32) -> Result<Dm, Errno> {
    use attr::{alloc_dm as id, mlx5_alloc_dm as mlx5_id};
    let (mut start_offset, mut page_index) = (0_u64, 0_u16);
    let reply = Call::new(method::DM_ALLOC)
        .output(mlx5_id::RESP_START_OFFSET, &mut start_offset)
        .output(mlx5_id::RESP_PAGE_INDEX, &mut page_index)
        .new_handle(id::HANDLE)
        .input_u64(id::LENGTH, length)
        .input_u32(id::ALIGNMENT, log_align)
        .make(file)?;
    Ok(Dm { handle: reply.handle(id::HANDLE), start_offset, page_index })
}

/// Frees on-device memory (DM_FREE).
pub fn free(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy(file, method::DM_FREE, attr::free_dm::HANDLE, handle)
}

/// Queries existing device memory (DM_QUERY): its location and its length.
pub fn query(file: &dyn DeviceFile, handle: u32) -> Result<(Dm, u64), Errno> {
    use attr::query_dm as id;
    let (mut start_offset, mut page_index, mut length) = (0_u64, 0_u16, 0_u64);
    Call::new(method::DM_QUERY)
        .handle(id::REQ_HANDLE, handle)
        .output(id::RESP_START_OFFSET, &mut start_offset)
        .output(id::RESP_PAGE_INDEX, &mut page_index)
        .output(id::RESP_LENGTH, &mut length)
        .make(file)?;
    Ok((Dm { handle, start_offset, page_index }, length))
}
