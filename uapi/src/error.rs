//! The errors of [`crate::cmd::context::probe`] and [`crate::DeviceFile::allocate`].

use core::fmt;

use crate::{Errno, OLDEST_KERNEL};

/// The reason why this crate cannot use a device file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeError {
    /// The kernel lacks the uverbs ioctl, the commands that it carries, or a method that
    /// [`OLDEST_KERNEL`] has.
    TooOld,
    /// The kernel has the ioctl, but refused it.
    Kernel(Errno),
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooOld => {
                write!(f, "the kernel lacks uverbs calls that Linux {OLDEST_KERNEL} and newer have")
            }
            Self::Kernel(errno) => write!(f, "the kernel refused the first uverbs calls: {errno}"),
        }
    }
}

impl core::error::Error for ProbeError {}

impl From<ProbeError> for Errno {
    fn from(error: ProbeError) -> Self {
        match error {
            ProbeError::TooOld => Errno::ENOTTY,
            ProbeError::Kernel(errno) => errno,
        }
    }
}

/// The step at which an allocation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateStep {
    /// `mmap` of ordinary pages.
    Map,
    /// `mmap` of huge pages.
    MapHuge {
        /// Base-two logarithm of the page size.
        page_bits: u32,
    },
    /// `mbind` to a NUMA node.
    Bind {
        /// The node.
        node: u32,
    },
    /// `madvise` that keeps the pages from children of the process.
    Advise,
}

/// The reason why memory for the device could not be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocateError {
    /// The step that failed.
    pub step: AllocateStep,
    /// The kernel's error.
    pub errno: Errno,
}

impl AllocateStep {
    /// Returns the error that this step failed with `errno`.
    pub fn failed(self, errno: Errno) -> AllocateError {
        AllocateError { step: self, errno }
    }
}

impl fmt::Display for AllocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            AllocateStep::Map => write!(f, "mmap failed: {}", self.errno),
            AllocateStep::MapHuge { page_bits } => {
                write!(f, "mmap of pages of {} bytes failed: {}", 1_u64 << page_bits, self.errno)
            }
            AllocateStep::Bind { node } => write!(f, "mbind to node {node} failed: {}", self.errno),
            AllocateStep::Advise => write!(f, "madvise failed: {}", self.errno),
        }
    }
}

impl core::error::Error for AllocateError {}

/// The mapping itself failed.
impl From<Errno> for AllocateError {
    fn from(errno: Errno) -> Self {
        AllocateStep::Map.failed(errno)
    }
}

impl From<AllocateError> for Errno {
    fn from(error: AllocateError) -> Self {
        error.errno
    }
}
