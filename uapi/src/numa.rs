//! NUMA placement of anonymous memory (`include/uapi/linux/mempolicy.h`).

use core::ptr::NonNull;
use std::sync::OnceLock;

use nix::libc::{self, c_ulong, c_void};

use crate::Errno;

/// Nodes that a mask has: the most that a kernel can be built for (`NODES_SHIFT` is at most 10).
const NODES: u32 = 1024;
const WORD_BITS: u32 = c_ulong::BITS;

/// Returns the node on which the calling thread runs. The thread may move to another one at any
/// time.
///
/// Zero, without a system call, on a machine with one node.
pub fn local_node() -> u32 {
    static SEVERAL: OnceLock<bool> = OnceLock::new();
    let several = SEVERAL.get_or_init(|| {
        // A list of ranges, as `0-1,4`.
        std::fs::read_to_string("/sys/devices/system/node/online")
            .is_ok_and(|online| online.contains(['-', ',']))
    });
    if !several {
        return 0;
    }
    let mut node: libc::c_uint = 0;
    let (cpu, cache) = (core::ptr::null_mut::<c_void>(), core::ptr::null_mut::<c_void>());
    // SAFETY: the kernel writes the node, and nothing to null pointers.
    let result = unsafe { libc::syscall(libc::SYS_getcpu, cpu, &raw mut node, cache) };
    if result == 0 { node } else { 0 }
}

/// Makes the kernel take pages of a mapping from a node as long as it has free memory
/// (`MPOL_PREFERRED`). Pages that were touched before stay on their node.
///
/// # Errors
/// `EINVAL` if the node is not online, has no memory, or is outside of the process's cpuset;
/// `ENOSYS` if the kernel has no NUMA support; `EPERM` if a sandbox forbids the call.
///
/// # Safety
/// The `len` bytes at `start` are whole pages of one or more mappings of the caller.
pub unsafe fn prefer_node(start: NonNull<u8>, len: usize, node: u32) -> Result<(), Errno> {
    if node >= NODES {
        return Err(Errno::EINVAL);
    }
    let mut mask = [0 as c_ulong; (NODES / WORD_BITS) as usize];
    mask[(node / WORD_BITS) as usize] = 1 << (node % WORD_BITS);
    // The kernel uses one bit less than the number passed.
    let bits = c_ulong::from(NODES) + 1;
    let start: *mut c_void = start.as_ptr().cast();
    // SAFETY: the mask has the bits that the kernel reads. The call changes only the policy of the
    // range, which the caller owns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            start,
            len as c_ulong,
            libc::MPOL_PREFERRED as c_ulong,
            mask.as_ptr(),
            bits,
            0 as c_ulong,
        )
    };
    Errno::result(result).map(drop)
}
