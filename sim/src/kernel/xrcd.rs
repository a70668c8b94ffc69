//! XRC domains: one of a program's own, or shared by whoever can open a file.

use std::collections::BTreeMap;
use std::sync::Mutex;

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::{AllocXrcdIn, DeallocXrcdIn};
use mlx5_uapi::Errno;
use mlx5_uapi::write_cmd::{OpenXrcd, OpenXrcdResp};
use nix::fcntl::OFlag;

use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::Hca;
use crate::kernel::objects::Body;
use crate::kernel::write::WriteCall;
use crate::kernel::{current, lock};

/// A file, by file system and inode.
pub(crate) type Inode = (u64, u64);

/// The domains of a device that are shared: number, and handles that name it.
pub(crate) type SharedDomains = Mutex<BTreeMap<Inode, (u32, u32)>>;

/// A handle of a domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xrcd {
    pub(crate) xrcd: u32,
    /// The file by which it is shared.
    inode: Option<Inode>,
}

fn inode(fd: i32) -> Result<Option<Inode>, Errno> {
    if fd == -1 {
        return Ok(None);
    }
    if fd < 0 {
        return Err(Errno::EBADF);
    }
    let found = current::file_status(fd)?;
    Ok(Some((found.st_dev, found.st_ino)))
}

fn alloc(hca: &Hca) -> Result<u32, Errno> {
    Ok(hca.command(&AllocXrcdIn::request())?.xrcd())
}

pub(crate) fn open(
    file: &OpenFile,
    state: &mut State,
    call: &mut WriteCall<'_, '_>,
) -> Result<(), Errno> {
    state.context()?;
    let request: OpenXrcd = call.request();
    let flags = OFlag::from_bits_truncate(request.oflags as i32);
    let inode = inode(request.fd)?;
    let xrcd = match inode {
        None => alloc(&file.hca)?,
        Some(inode) => {
            let mut shared = lock(&file.hca.xrc_domains);
            match shared.get_mut(&inode) {
                Some(_) if flags.contains(OFlag::O_EXCL) => return Err(Errno::EINVAL),
                Some((xrcd, users)) => {
                    *users += 1;
                    *xrcd
                }
                None if !flags.contains(OFlag::O_CREAT) => return Err(Errno::EAGAIN),
                None => {
                    let xrcd = alloc(&file.hca)?;
                    shared.insert(inode, (xrcd, 1));
                    xrcd
                }
            }
        }
    };
    let handle = state.objects.add(Body::Xrcd(Xrcd { xrcd, inode }), &[]);
    call.respond(&OpenXrcdResp { xrcd_handle: handle })
}

/// Gives up a handle; the last one ends the domain.
pub(crate) fn close(hca: &Hca, domain: Xrcd) -> Result<(), Errno> {
    let mut shared = lock(&hca.xrc_domains);
    if let Some((_, users)) = domain.inode.and_then(|inode| shared.get_mut(&inode))
        && *users > 1
    {
        *users -= 1;
        return Ok(());
    }
    let mut input = DeallocXrcdIn::request();
    input.set_xrcd(domain.xrcd);
    hca.command(&input)?;
    if let Some(inode) = domain.inode {
        shared.remove(&inode);
    }
    Ok(())
}
