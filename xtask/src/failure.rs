//! Errors of tasks.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Error of a task.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A program could not be run.
    Run { program: String, error: io::Error },
    /// A program ran, and failed.
    Status { program: String, status: ExitStatus },
    /// Cargo did not build this artifact.
    NotBuilt(String),
    /// A file could not be read or written.
    File { path: PathBuf, error: io::Error },
    /// A program's output is not what it should be.
    Output { program: String, what: String },
    /// A measurement exceeds its limit.
    Bars(usize),
    /// Machine code is not what it should be.
    Code(Vec<String>),
    /// The verbs library is not what programs need.
    Library(Vec<String>),
    /// The Debian package is not as it should be.
    Package(Vec<String>),
    /// A program does not take the verbs library.
    NotTaken(String),
    /// A program is missing; this command installs it.
    Missing(String),
    /// The arguments name something that does not exist.
    Unknown(String),
    /// The location of Debian's packages or of the cache is unknown, or packages could not be
    /// unpacked.
    Packages(String),
    /// The archive does not have packages, or does not answer.
    Unfetched(String),
    /// Checks on the other architecture failed.
    Aarch64(Vec<String>),
    /// The virtual machine could not be made, or a check in it failed.
    Vm(String),
    /// Modules import each other.
    Circles(Vec<String>),
    /// Tests that passed before do not pass.
    Regressed(Vec<String>),
    /// Tests of other crates pass over C's library, and not over ours.
    OverOurs(Vec<String>),
    /// Tests do not pass, or no test noticed a bug, without a known reason.
    Unexplained(Vec<String>),
    /// A tree with planted bugs does not compile, and none of the bugs is the cause.
    Uncompilable(Vec<String>),
    /// Tests did not notice too many of the planted bugs.
    Survived { caught: usize, viable: usize, bar: usize },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { program, error } => write!(f, "cannot run {program}: {error}"),
            Self::Status { program, status } => write!(f, "{program} ended with {status}"),
            Self::NotBuilt(what) => write!(f, "cargo has not built {what}"),
            Self::Missing(install) => write!(f, "packages are missing: {install}"),
            Self::Unknown(what) | Self::Packages(what) | Self::Vm(what) | Self::NotTaken(what) => {
                write!(f, "{what}")
            }
            Self::Unfetched(what) => write!(f, "packages cannot be fetched: {what}"),
            Self::Aarch64(faults) => write!(f, "on aarch64:\n  {}", faults.join("\n  ")),
            Self::Regressed(tests) => {
                write!(f, "{} no longer pass:\n  {}", tests.len(), tests.join("\n  "))
            }
            Self::Unexplained(tests) => {
                write!(f, "{} have no known reason:\n  {}", tests.len(), tests.join("\n  "))
            }
            Self::OverOurs(tests) => {
                write!(f, "{} pass over C's library alone:\n  {}", tests.len(), tests.join("\n  "))
            }
            Self::Circles(circles) => {
                write!(f, "{} circles of imports:\n  {}", circles.len(), circles.join("\n  "))
            }
            Self::Uncompilable(errors) => {
                write!(
                    f,
                    "a tree with bugs does not compile, whichever are left out:\n{}",
                    errors.concat()
                )
            }
            Self::Survived { caught, viable, bar } => {
                write!(f, "tests catch {caught} of {viable} mutants; at least {bar} % are required")
            }
            Self::File { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Output { program, what } => write!(f, "the output of {program} has {what}"),
            Self::Library(faults) => write!(f, "the library:\n  {}", faults.join("\n  ")),
            Self::Package(faults) => write!(f, "the package:\n  {}", faults.join("\n  ")),
            Self::Code(faults) => write!(f, "hot functions:\n  {}", faults.join("\n  ")),
            Self::Bars(count) => write!(
                f,
                "{count} bars are not as they are written down (xtask/src/bench/missed.rs)"
            ),
        }
    }
}

impl std::error::Error for Failure {}
