//! Mapping the pages with the clocks.

use std::sync::Arc;

use mlx5_prm::cmd::init_seg;
use mlx5_uapi::{Access, Errno, Mapping};

use crate::kernel::clock::PAGE;
use crate::kernel::file::OpenFile;

/// The device's clock in its page.
const TIMER: usize = init_seg::offset::INTERNAL_TIMER_H % PAGE;

/// Checks that one page is mapped, for reading.
fn check(length: usize, access: Access) -> Result<(), Errno> {
    match (length, access) {
        (PAGE, Access::Read) => Ok(()),
        (PAGE, _) => Err(Errno::EPERM),
        _ => Err(Errno::EINVAL),
    }
}

/// Maps the page that relates the clocks.
pub(crate) fn map_info(
    file: &Arc<OpenFile>,
    length: usize,
    access: Access,
) -> Result<Mapping, Errno> {
    check(length, access)?;
    let clocks = &file.hca.clocks;
    clocks.update();
    // SAFETY: the mapping holds the file, and the file holds the page. No code makes references to
    // the page except to its atomic words.
    Ok(unsafe { Mapping::new(clocks.info.as_non_null(), length, Box::new(Arc::clone(file))) })
}

/// Maps the page with the device's clock, which the device writes from then on.
pub(crate) fn map_core(
    file: &Arc<OpenFile>,
    length: usize,
    access: Access,
) -> Result<Mapping, Errno> {
    check(length, access)?;
    let clocks = &file.hca.clocks;
    let timer = clocks.core.address() + TIMER as u64;
    file.hca.fabric.lock().device_mut(clocks.device).set_core_clock(Some(timer));
    // SAFETY: the mapping holds the file, and the file holds the page. No code makes references to
    // the page except to its atomic words.
    Ok(unsafe { Mapping::new(clocks.core.as_non_null(), length, Box::new(Arc::clone(file))) })
}
