//! UAR pages as a file holds them.

use std::sync::Arc;

use crate::kernel::bar::BarPages;
use crate::kernel::hca::Hca;

/// Bytes of a UAR page.
pub(crate) const PAGE: usize = mlx5_prm::doorbell::UAR_PAGE;
/// The first mmap command that stands for the entries of a file's own table.
const FIRST_ENTRY_COMMAND: u64 = 9;

/// A UAR page. It lives while its object does or while it is mapped.
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
        // A page on which queues still ring stays where the engine looks.
        if !self.hca.is_this_process() || self.hca.dealloc_uar(self.index).is_err() {
            std::mem::forget(self.memory.take());
        }
    }
}

/// A UAR page in a file.
#[derive(Debug)]
pub(crate) struct UarObject {
    pub(crate) page: Arc<UarPage>,
    /// Its place in the file's table of what can be mapped.
    pub(crate) entry: u32,
}

impl UarObject {
    /// The offset at which it is mapped: the low byte of the entry's number stands beside the
    /// command, the rest above it.
    pub(crate) fn mmap_offset(&self) -> u64 {
        let entry = u64::from(self.entry);
        ((entry >> 8) << 16 | FIRST_ENTRY_COMMAND << 8 | entry & 0xff) * PAGE as u64
    }
}
