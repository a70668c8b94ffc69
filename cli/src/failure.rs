//! Failures, with a hint at a remedy.

use mlx5::{BatchError, CancelError, Error, ErrorKind, ListError, PollError};
use nix::errno::Errno;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

/// The reason why a command ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    cause: String,
    hint: Option<String>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The command failed.
    Failed,
    /// Wrong usage.
    Usage,
    /// The reader of the output is gone (a closed pipe).
    ReaderGone,
    /// The user ended it, by SIGINT.
    Interrupted,
    /// A program that was run has ended with this status, and has said why itself.
    Program(u8),
}

/// The exit status that shells use for a program ended by SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

impl Failure {
    /// A failure of the command.
    pub(crate) fn new(cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), hint: None, kind: Kind::Failed }
    }

    /// A failure of the command line.
    pub(crate) fn usage(cause: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, ..Self::new(cause) }
    }

    /// The user ended the command; the results so far are printed.
    pub(crate) fn interrupted(cause: impl Into<String>) -> Self {
        Self { kind: Kind::Interrupted, ..Self::new(cause) }
    }

    /// A program that was run has ended with this status.
    pub(crate) fn program(status: u8) -> Self {
        Self { kind: Kind::Program(status), ..Self::new("") }
    }

    /// Adds a hint at a remedy.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Puts the step that failed before the cause.
    pub(crate) fn during(self, what: impl Display) -> Self {
        Self { cause: format!("{what}: {}", self.cause), ..self }
    }

    /// The cause in one line.
    pub(crate) fn cause(&self) -> &str {
        &self.cause
    }

    /// The remedy, if one is known.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Writes the failure to `to`, and returns the exit status. Errors of writing are ignored.
    pub(crate) fn report(&self, to: &mut impl Write) -> ExitCode {
        match self.kind {
            Kind::ReaderGone => return ExitCode::SUCCESS,
            Kind::Program(status) => return ExitCode::from(status),
            Kind::Usage => _ = writeln!(to, "error: {}", self.cause),
            Kind::Failed | Kind::Interrupted => _ = writeln!(to, "mlx5: {}", self.cause),
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(to, "  hint: {hint}");
        }
        match self.kind {
            Kind::Usage => ExitCode::from(2),
            Kind::Interrupted => ExitCode::from(INTERRUPTED),
            _ => ExitCode::FAILURE,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self { kind: Kind::ReaderGone, ..Self::new("") },
            // An error with a text of its own already says what failed.
            _ if error.get_ref().is_some() => Self::new(error.to_string()),
            _ => Self::new(format!("input or output failed: {error}")),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = Self::new(error.to_string());
        let hint = match error.kind() {
            ErrorKind::PermissionDenied => {
                "try as root, or see what `ls -l /dev/infiniband` says; --sim needs no privileges"
            }
            ErrorKind::OutOfMemory => "raise `ulimit -l`, or use fewer or smaller buffers",
            ErrorKind::ResourceLimit
                if matches!(error.errno(), Some(Errno::EMFILE | Errno::ENFILE)) =>
            {
                "each device, completion channel and watch takes a file"
            }
            ErrorKind::ResourceLimit => "`mlx5 info -v` shows the device's limits",
            ErrorKind::KernelTooOld => {
                "--sim uses a simulated device, which needs no kernel support"
            }
            ErrorKind::NoDevx => {
                "DEVX depends on the firmware, not on privileges: update the firmware, or use --sim"
            }
            ErrorKind::DeviceGone => "the kernel's log says why: `dmesg | grep mlx5`",
            _ => return failure,
        };
        failure.hint(hint)
    }
}

/// Errors whose text is the whole message.
macro_rules! plain {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::new(error.to_string())
            }
        })+
    };
}

plain!(
    mlx5::ethernet::EthernetError,
    PollError,
    ListError,
    BatchError,
    CancelError,
    mlx5::EndpointError,
    serde_json::Error
);

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(failure: &Failure) -> String {
        let mut text = Vec::new();
        let _ = failure.report(&mut text);
        String::from_utf8(text).expect("text")
    }

    #[test]
    fn a_failure_is_told_with_cause_and_hint() {
        let failure = Failure::new("no luck").hint("try again").during("posting");
        assert_eq!(reported(&failure), "mlx5: posting: no luck\n  hint: try again\n");
        assert_eq!(reported(&Failure::usage("what?")), "error: what?\n");
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(reported(&failure), "");
        assert_eq!(failure.report(&mut io::sink()), ExitCode::SUCCESS);
    }
}
