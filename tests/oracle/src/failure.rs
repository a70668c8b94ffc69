//! The reasons why the oracle has no result.

use std::fmt;
use std::io;
use std::process::ExitStatus;

/// The reason why a script could not be run, or its answer not be read.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This provider refused what the script needs.
    Own(mlx5::Error),
    /// A queue cannot be polled.
    Poll(mlx5::PollError),
    /// A number of the script does not fit.
    Range(mlx5::OutOfRange),
    /// Something was not there.
    Missing(&'static str),
    /// The other program could not be run.
    Io(io::Error),
    /// The other program failed.
    Peer(ExitStatus),
    /// The other program said something that cannot be understood.
    Said(String),
}

macro_rules! from {
    ($($variant:ident: $type:ty,)*) => { $(
        impl From<$type> for Failure {
            fn from(error: $type) -> Self {
                Self::$variant(error)
            }
        }
    )* };
}

from! {
    Own: mlx5::Error,
    Poll: mlx5::PollError,
    Range: mlx5::OutOfRange,
    Io: io::Error,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(error) => write!(f, "this provider: {error}"),
            Self::Poll(error) => write!(f, "this provider: {error}"),
            Self::Range(error) => write!(f, "the script: {error}"),
            Self::Missing(what) => write!(f, "{what} is missing"),
            Self::Io(error) => write!(f, "the C program: {error}"),
            Self::Peer(status) => write!(f, "the C program ended with {status}"),
            Self::Said(line) => write!(f, "the C program said \"{line}\""),
        }
    }
}

impl std::error::Error for Failure {}
