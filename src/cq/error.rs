//! Why a completion queue cannot be polled.

use mlx5_cq::Corruption;
use std::fmt;

/// Why a completion queue cannot be polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PollError {
    /// The queue holds something that no honest device writes. Nothing more can be read from it.
    Corrupt(Corruption),
    /// The device is gone, and what it wrote was read.
    DeviceGone,
    /// The queue overran, or the device could not write to it, and what it wrote before was read. It
    /// takes nothing more: see [`crate::AsyncEvent::CqError`].
    Overrun,
    /// The queue belongs to the process that this one was forked from.
    Forked,
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(corruption) => write!(f, "completion queue corrupt: {corruption}"),
            Self::Overrun => f.write_str("the completion queue overran"),
            Self::DeviceGone => f.write_str("the device is gone"),
            Self::Forked => {
                f.write_str("the completion queue belongs to the parent of this process")
            }
        }
    }
}

impl std::error::Error for PollError {}
