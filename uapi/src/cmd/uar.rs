//! Dynamic UAR pages.

use super::destroy as destroy_object;
use crate::{
    Errno,
    call::Call,
    ioctl::{attr, method},
    kernel::DeviceFile,
    mlx5::UarType,
};

/// A dynamic UAR page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uar {
    /// The kernel's handle.
    pub handle: u32,
    /// Offset for [`DeviceFile::map`].
    pub mmap_offset: u64,
    /// Length to map, in bytes.
    pub mmap_len: u32,
    /// The device's number of the page, for the creation of CQs and QPs.
    pub page_id: u32,
}

/// Allocates a UAR page (UAR_ALLOC).
pub fn alloc(file: &dyn DeviceFile, kind: UarType) -> Result<Uar, Errno> {
    use attr::uar_alloc as id;
    let mut uar = Uar { handle: 0, mmap_offset: 0, mmap_len: 0, page_id: 0 };
    let reply = Call::new(method::UAR_ALLOC)
        .new_handle(id::HANDLE)
        .input_u64(id::TYPE, u64::from(kind.raw()))
        .output(id::MMAP_OFFSET, &mut uar.mmap_offset)
        .output(id::MMAP_LENGTH, &mut uar.mmap_len)
        .output(id::PAGE_ID, &mut uar.page_id)
        .make(file)?;
    uar.handle = reply.handle(id::HANDLE);
    Ok(uar)
}

/// Frees a UAR page (UAR_DESTROY).
pub fn destroy(file: &dyn DeviceFile, handle: u32) -> Result<(), Errno> {
    destroy_object(file, method::UAR_DESTROY, attr::uar_destroy::HANDLE, handle)
}
