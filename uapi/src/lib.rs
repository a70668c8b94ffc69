//! The kernel's words: uverbs and mlx5 ioctl encoding, and the seam between provider and kernel.
//!
//! * [`kernel`] is the seam. [`real::LinuxKernel`] is the kernel behind it; anything else that
//!   implements [`kernel::Kernel`] can take its place.
//! * [`ioctl`], [`verbs`], [`mlx5`], [`write_cmd`] are the kernel's headers, by hand: numbers and
//!   layouts, each checked against its size and offsets at compile time.
//! * [`call`] encodes one ioctl; [`cmd`] has a typed function for each one that the provider needs.
//! * [`sysfs`] finds the devices; [`wait`] sleeps on their event files; [`process`] knows a child
//!   from its parent.
//!
//! No other crate of this workspace makes a system call or maps memory.

mod layout;

pub mod call;
pub mod cmd;
pub mod error;
pub mod ioctl;
pub mod kernel;
pub mod mlx5;
pub mod process;
pub mod real;
pub mod sysfs;
pub mod verbs;
pub mod wait;
pub mod write_cmd;

pub use error::ProbeError;
pub use kernel::{
    Access, DeviceFile, EventFile, HugePages, Kernel, Mapping, MemoryRequest, page_size,
};
pub use nix::errno::Errno;
pub use real::LinuxKernel;

#[cfg(test)]
mod fake;

/// The oldest kernel that has every call in [`cmd`] that the provider cannot do without.
///
/// The last of them to appear were QUERY_GID_TABLE and QUERY_GID_ENTRY, in 5.10; before them the
/// ioctl forms of QP and SRQ creation (5.8), the mlx5 UAR object (5.7), GET_CONTEXT and
/// ASYNC_EVENT_ALLOC (5.6) and INVOKE_WRITE (5.0). REG_DMABUF_MR (5.12) is an extra.
pub const OLDEST_KERNEL: &str = "5.10";
