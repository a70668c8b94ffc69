//! XRC domains: private to a program, or shared by all programs that can open a file.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::AllocXrcdIn;
use mlx5_uapi::Errno;
use mlx5_uapi::write_cmd::{OpenXrcd, OpenXrcdResp};
use nix::fcntl::OFlag;

use crate::kernel::file::{OpenFile, State};
use crate::kernel::hca::{Hca, Inode};
use crate::kernel::objects::{Body, Xrcd};
use crate::kernel::write_call::WriteCall;
use crate::kernel::{current, lock};

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
