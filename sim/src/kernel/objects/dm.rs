//! Memory on the device, of a file.

use std::sync::Arc;

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::mkey::DeallocMemicIn;
use mlx5_uapi::mlx5::MmapCommand;
use mlx5_uapi::page_size;

use crate::kernel::hca::Hca;

/// Logarithm of the pages in which the driver assigns ranges to the firmware.
pub(crate) const LOG_PAGE: u32 = 12;

/// A piece of a device's memory. Its pages live as long as its object or a mapping of it.
pub(crate) struct DevicePages {
    pub(crate) hca: Arc<Hca>,
    /// Its first page in the device's memory.
    pub(crate) first: u64,
    pub(crate) bytes: u64,
}

impl std::fmt::Debug for DevicePages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("DevicePages");
        f.field("first", &self.first).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl DevicePages {
    /// Address of the start, as the driver sees it.
    pub(crate) fn address(&self) -> u64 {
        self.hca.device_memory.address() + (self.first << LOG_PAGE)
    }

    pub(crate) fn pages(&self) -> u64 {
        self.bytes.div_ceil(1 << LOG_PAGE)
    }
}

impl Drop for DevicePages {
    fn drop(&mut self) {
        if self.hca.is_this_process() {
            let mut input = DeallocMemicIn::request();
            input.set_memic_start_addr(self.address()).set_memic_size(self.bytes as u32);
            // If the firmware does not free it, the device's counts show it.
            if self.hca.command(&input).is_ok() {
                self.hca.give_back_pages(self.first, self.pages());
            }
        }
    }
}

/// A piece of device memory in a file.
#[derive(Debug)]
pub(crate) struct Dm {
    pub(crate) pages: Arc<DevicePages>,
    /// Requested bytes.
    pub(crate) length: u64,
    pub(crate) index: u32,
}

impl Dm {
    /// The offset at which it is mapped.
    pub(crate) fn mmap_offset(&self) -> u64 {
        MmapCommand::DeviceMem.offset(self.index, page_size())
    }
}
