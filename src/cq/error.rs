//! Why a completion queue cannot be polled.

use mlx5_cq::Corruption;
use std::fmt;

/// Why a completion queue cannot be polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PollError {
    /// The device wrote a CQE that no correct device writes. No later CQE can be read.
    Corrupt(Corruption),
    /// The device is gone, and all CQEs that it wrote were polled.
    DeviceGone,
    /// The queue overran, or the device could not write to it, and all CQEs written before were
    /// polled. The device writes no more: see [`crate::AsyncEvent::CqError`].
    Overrun,
    /// The queue belongs to the process from which this one was forked.
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
