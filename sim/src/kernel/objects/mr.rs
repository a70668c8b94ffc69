//! Memory regions and windows of a file.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::mkey::DestroyMkeyIn;
use mlx5_uapi::Errno;
use mlx5_uapi::verbs::AccessFlags;

use crate::kernel::hca::Hca;

/// A memory region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mr {
    /// Local and remote key.
    pub(crate) key: u32,
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) iova: u64,
    pub(crate) access: AccessFlags,
    pub(crate) pd: u32,
}

/// A memory window.
#[derive(Debug)]
pub(crate) struct Mw {
    pub(crate) key: u32,
}

impl Mr {
    /// Ends the region.
    pub(crate) fn end(&self, hca: &Hca) -> Result<(), Errno> {
        destroy_key(hca, self.key)
    }
}

impl Mw {
    /// Ends the window.
    pub(crate) fn end(&self, hca: &Hca) -> Result<(), Errno> {
        destroy_key(hca, self.key)
    }
}

/// Ends a memory key.
pub(crate) fn destroy_key(hca: &Hca, key: u32) -> Result<(), Errno> {
    let mut input = DestroyMkeyIn::request();
    input.set_mkey_index(key >> 8);
    hca.command(&input).map(drop)
}
