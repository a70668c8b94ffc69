//! UAR pages of a file.

use std::sync::Arc;

use crate::kernel::bar::BarPages;
use crate::kernel::hca::Hca;

/// Bytes of a UAR page.
pub(crate) const PAGE: usize = mlx5_prm::doorbell::UAR_PAGE;
/// The first mmap command that stands for the entries of a file's own table.
const FIRST_ENTRY_COMMAND: u64 = 9;

/// A UAR page. It lives as long as its object or a mapping of it.
pub(crate) struct UarPage {
    pub(crate) hca: Arc<Hca>,
    pub(crate) index: u32,
    pub(crate) memory: Option<BarPages>,
}

impl std::fmt::Debug for UarPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UarPage").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Drop for UarPage {
    fn drop(&mut self) {
        // Leaks a page at which an engine still looks: one whose queues are left, or one of the
        // parent process.
        if !self.hca.is_this_process() || self.hca.dealloc_uar(self.index).is_err() {
            std::mem::forget(self.memory.take());
        }
    }
}

/// A UAR page in a file.
#[derive(Debug)]
pub(crate) struct UarObject {
    pub(crate) page: Arc<UarPage>,
    /// Its entry in the file's table of mappable objects.
    pub(crate) entry: u32,
}

impl UarObject {
    /// Its mmap offset. The low byte of the entry's number is next to the command, the rest above
    /// it.
    pub(crate) fn mmap_offset(&self) -> u64 {
        let entry = u64::from(self.entry);
        ((entry >> 8) << 16 | FIRST_ENTRY_COMMAND << 8 | entry & 0xff) * PAGE as u64
    }
}
