//! Memory of another process.

use mlx5_uapi::queues::CallerMemory;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;

/// The memory of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote(pub(crate) Pid);

impl CallerMemory for Remote {
    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        let length = to.len();
        let Ok(base) = usize::try_from(address) else { return false };
        let there = [RemoteIoVec { base, len: length }];
        loop {
            match process_vm_readv(self.0, &mut [IoSliceMut::new(to)], &there) {
                Err(Errno::EINTR) => {}
                read => return read == Ok(length),
            }
        }
    }
}
