//! This process's memory, accessed through the kernel: an unmapped address is an error.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::libc;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::Pid;

/// Copies from memory.
pub(super) fn read(address: u64, to: &mut [u8]) -> Result<(), Errno> {
    let length = to.len();
    let there = RemoteIoVec { base: address as usize, len: length };
    match process_vm_readv(Pid::this(), &mut [IoSliceMut::new(to)], &[there]) {
        Err(Errno::ENOSYS | Errno::EPERM) => read_through_file(address, to),
        copied => whole(copied?, length),
    }
}

/// Copies to memory.
pub(super) fn write(address: u64, from: &[u8]) -> Result<(), Errno> {
    let there = RemoteIoVec { base: address as usize, len: from.len() };
    match process_vm_writev(Pid::this(), &[IoSlice::new(from)], &[there]) {
        Err(Errno::ENOSYS | Errno::EPERM) => write_through_file(address, from),
        copied => whole(copied?, from.len()),
    }
}

/// The same as [`read`], for systems on which its system call is missing, as in QEMU's user-mode
/// emulation, or forbidden, as in some containers.
fn read_through_file(address: u64, to: &mut [u8]) -> Result<(), Errno> {
    let file = file()?;
    // SAFETY: the kernel reads the memory, and returns EFAULT if this process cannot read it.
    let copied =
        unsafe { libc::pwrite(file.as_raw_fd(), address as *const libc::c_void, to.len(), 0) };
    whole(Errno::result(copied)?.cast_unsigned(), to.len())?;
    file.read_exact_at(to, 0).map_err(errno)
}

/// The same as [`write`], for the systems of [`read_through_file`].
fn write_through_file(address: u64, from: &[u8]) -> Result<(), Errno> {
    let file = file()?;
    file.write_all_at(from, 0).map_err(errno)?;
    // SAFETY: the kernel writes the memory, and returns EFAULT if this process cannot write it. The
    // caller of `ProcessMemory::checked` promised that no reference exists to memory that the
    // device may write.
    let copied =
        unsafe { libc::pread(file.as_raw_fd(), address as *mut libc::c_void, from.len(), 0) };
    whole(Errno::result(copied)?.cast_unsigned(), from.len())
}

/// A new file for each copy: a lasting one would be shared with child processes.
fn file() -> Result<File, Errno> {
    memfd_create(c"mlx5-sim-copy", MFdFlags::MFD_CLOEXEC).map(File::from)
}

fn errno(error: io::Error) -> Errno {
    Errno::try_from(error).unwrap_or(Errno::EIO)
}

/// A copy that stopped early met an unmapped page.
fn whole(copied: usize, length: usize) -> Result<(), Errno> {
    if copied == length { Ok(()) } else { Err(Errno::EFAULT) }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;

    type Read = fn(u64, &mut [u8]) -> Result<(), Errno>;
    type Write = fn(u64, &[u8]) -> Result<(), Errno>;

    const WAYS: [(Read, Write); 2] = [(read, write), (read_through_file, write_through_file)];

    /// Calls `each` with the address of a mapped page that an unmapped one follows.
    fn with_page(protection: ProtFlags, each: impl Fn(u64)) {
        const PAGE: usize = 65536;
        let length = NonZeroUsize::new(2 * PAGE).expect("not zero");
        // SAFETY: the kernel chooses an address at which nothing is mapped.
        let start = unsafe { mmap_anonymous(None, length, protection, MapFlags::MAP_PRIVATE) };
        let start = start.expect("memory");
        let hole = start.map_addr(|start| start.saturating_add(PAGE));
        // SAFETY: the second page of the mapping above, which nothing uses.
        unsafe { munmap(hole, PAGE) }.expect("mapped");
        each(start.addr().get() as u64);
        // SAFETY: the first page; `each` has returned, so nothing uses it.
        unsafe { munmap(start, PAGE) }.expect("mapped");
    }

    #[test]
    fn both_ways_carry_the_bytes_up_to_the_end_of_a_mapping_and_none_beyond() {
        with_page(ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, |page| {
            for (read, write) in WAYS {
                let end = page + 65536;
                let bytes = [0xa5, 1, 2, 3, 4, 5, 6, 7];
                write(end - 8, &bytes).expect("mapped");
                let mut back = [0; 8];
                read(end - 8, &mut back).expect("mapped");
                assert_eq!(back, bytes);
                assert_eq!(write(end - 4, &bytes), Err(Errno::EFAULT));
                assert_eq!(read(end - 4, &mut back), Err(Errno::EFAULT));
                assert_eq!(write(end, &bytes), Err(Errno::EFAULT));
                assert_eq!(read(end, &mut back), Err(Errno::EFAULT));
                write(end - 8, &[0; 8]).expect("mapped");
            }
        });
    }

    #[test]
    fn both_ways_heed_what_memory_may_be_used_for() {
        with_page(ProtFlags::PROT_READ, |page| {
            for (read, write) in WAYS {
                assert_eq!(read(page, &mut [0; 8]), Ok(()));
                assert_eq!(write(page, &[0; 8]), Err(Errno::EFAULT));
            }
        });
        with_page(ProtFlags::PROT_NONE, |page| {
            for (read, write) in WAYS {
                assert_eq!(read(page, &mut [0; 8]), Err(Errno::EFAULT));
                assert_eq!(write(page, &[0; 8]), Err(Errno::EFAULT));
            }
        });
    }
}
