//! Why a chore was not done.

use std::fmt;
use std::io;
use std::process::ExitStatus;

/// Why a chore was not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A program could not be run.
    Run { program: String, error: io::Error },
    /// A program ran, and failed.
    Status { program: String, status: ExitStatus },
    /// Cargo built no such thing.
    NotBuilt(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { program, error } => write!(f, "cannot run {program}: {error}"),
            Self::Status { program, status } => write!(f, "{program} ended with {status}"),
            Self::NotBuilt(what) => write!(f, "cargo has not built {what}"),
        }
    }
}

impl std::error::Error for Failure {}
