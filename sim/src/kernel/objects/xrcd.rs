//! XRC domains of a file.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::DeallocXrcdIn;
use mlx5_uapi::Errno;

use crate::kernel::hca::{Hca, Inode};
use crate::kernel::lock;

/// A handle of a domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xrcd {
    pub(crate) xrcd: u32,
    /// The file by which it is shared.
    pub(crate) inode: Option<Inode>,
}

impl Xrcd {
    /// Closes the handle; the last one ends the domain.
    pub(crate) fn end(&self, hca: &Hca) -> Result<(), Errno> {
        let mut shared = lock(&hca.xrc_domains);
        if let Some((_, users)) = self.inode.and_then(|inode| shared.get_mut(&inode))
            && *users > 1
        {
            *users -= 1;
            return Ok(());
        }
        let mut input = DeallocXrcdIn::request();
        input.set_xrcd(self.xrcd);
        hca.command(&input)?;
        if let Some(inode) = self.inode {
            shared.remove(&inode);
        }
        Ok(())
    }
}
