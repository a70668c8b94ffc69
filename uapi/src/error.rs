//! The error of [`crate::cmd::context::probe`].

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
