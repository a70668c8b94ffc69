//! The kernel interface: uverbs and mlx5 ioctls, sysfs, memory mappings, and the traits that
//! separate the driver from them.
//!
//! * [`kernel`] has the traits. [`real::LinuxKernel`] implements them with system calls; any other
//!   implementation of [`kernel::Kernel`] can replace it.
//! * [`ioctl`], [`verbs`], [`mlx5`], [`flow`] and [`write_cmd`] are the kernel's headers, written
//!   by hand: numbers and layouts, with sizes and offsets asserted at compile time.
//! * [`rdma_cm`] is the connection manager's header, with a typed call for each command.
//! * [`call`] encodes one ioctl; [`cmd`] has a typed function for each call that the driver makes.
//! * [`names`] displays a call by the kernel's names; [`queues`] decodes the effect of a call on
//!   queues, for tracers; [`numa`] places memory.
//! * [`sysfs`] finds the devices; [`uevent`] parses messages about those that appear, disappear or
//!   change; [`wait`] waits for event files; [`process`] detects a fork.
//!
//! The driver makes system calls and maps memory only through this crate. The simulated device
//! and the tools make their own.

#![deny(missing_debug_implementations)]

mod layout;

pub mod call;
pub mod cmd;
pub mod error;
#[expect(missing_debug_implementations, reason = "types that the derive of zerocopy makes")]
pub mod flow;
#[expect(missing_debug_implementations, reason = "types that the derive of zerocopy makes")]
pub mod ioctl;
pub mod kernel;
#[expect(missing_debug_implementations, reason = "types that the derive of zerocopy makes")]
pub mod mlx5;
pub mod names;
pub mod numa;
pub mod process;
pub mod queues;
#[expect(missing_debug_implementations, reason = "types that the derive of zerocopy makes")]
pub mod rdma_cm;
pub mod real;
pub mod sysfs;
pub mod uevent;
#[expect(missing_debug_implementations, reason = "types that the derive of zerocopy makes")]
pub mod verbs;
pub mod wait;
pub mod write_cmd;

pub use error::{AllocateError, AllocateStep, ProbeError};
pub use kernel::{
    Access, CmFile, DeviceFile, EventFile, HugePages, Kernel, Mapping, MemoryRequest, page_size,
};
pub use nix::errno::Errno;
pub use real::LinuxKernel;

#[cfg(test)]
mod fake;

/// The oldest kernel with every call of [`cmd`] that the driver requires.
///
/// The newest of these are QUERY_GID_TABLE and QUERY_GID_ENTRY (5.10). Others need the ioctl forms
/// of QP and SRQ creation (5.8), the mlx5 UAR object (5.7), GET_CONTEXT and ASYNC_EVENT_ALLOC (5.6)
/// and INVOKE_WRITE (5.0). REG_DMABUF_MR (5.12) is optional.
pub const OLDEST_KERNEL: &str = "5.10";
