//! The reasons why a machine cannot be reached.

use std::error::Error;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mlx5_uapi::Errno;

/// The reason why [`Wire::connect`](crate::Wire::connect) failed. Its text has the reason and a
/// remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreached {
    path: PathBuf,
    cause: Cause,
    errno: Errno,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    NotServed,
    /// The socket belongs to this user, if that can be known, and cannot be connected to.
    Denied(Option<u32>),
    /// The host has no number for this process.
    Unseen,
    /// The host cannot reach this process's memory.
    Memory,
    Version,
    /// The host has hung up.
    HungUp,
    /// The host does not answer.
    Silent,
    /// The host serves as many processes as it can.
    Full,
    /// This process has no descriptor left.
    Descriptors,
    Other,
}

impl Unreached {
    /// The socket cannot be connected to.
    pub(crate) fn by_socket(path: &Path, errno: Errno) -> Self {
        let cause = match errno {
            Errno::ENOENT | Errno::ENOTDIR | Errno::ECONNREFUSED => Cause::NotServed,
            Errno::EACCES | Errno::EPERM => {
                Cause::Denied(path.metadata().ok().map(|socket| socket.uid()))
            }
            Errno::EMFILE | Errno::ENFILE => Cause::Descriptors,
            // More programs wait to be let in than the socket holds.
            Errno::EAGAIN => Cause::Silent,
            _ => Cause::Other,
        };
        Self { path: path.to_owned(), cause, errno }
    }

    /// The host answered with this error.
    pub(crate) fn by_host(path: &Path, errno: Errno) -> Self {
        let cause = match errno {
            Errno::EIO => Cause::HungUp,
            Errno::ETIMEDOUT => Cause::Silent,
            Errno::EAGAIN => Cause::Full,
            Errno::EMFILE | Errno::ENFILE => Cause::Descriptors,
            Errno::ESRCH => Cause::Unseen,
            Errno::EPERM | Errno::EFAULT | Errno::ENOSYS => Cause::Memory,
            Errno::EPROTO => Cause::Version,
            _ => Cause::Other,
        };
        Self { path: path.to_owned(), cause, errno }
    }

    /// Whether no machine is served there, or one has just ended: one may be served later.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self.cause, Cause::NotServed | Cause::HungUp)
    }

    /// Returns what the kernel, or the process that serves, answered.
    #[must_use]
    pub fn errno(&self) -> Errno {
        self.errno
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, errno) = (self.path.display(), self.errno);
        match self.cause {
            Cause::NotServed => write!(
                f,
                "no simulated machine is served at {path} ({errno}); start one in the checkout with \
                 `cargo run -p mlx5-sim-wire -- {path} --stay`"
            ),
            Cause::Denied(owner) => {
                write!(f, "this user may not connect to {path} ({errno})")?;
                if let Some(owner) = owner {
                    write!(f, ", which is of the user {owner}")?;
                }
                f.write_str(
                    ": run this program and mlx5-sim-wire as one user, or name a socket of this user",
                )
            }
            Cause::Unseen => write!(
                f,
                "the process that serves at {path} cannot see this one, which is in another PID \
                 namespace ({errno}): run both in one container (`--pid=container:NAME`), or \
                 mlx5-sim-wire in no container"
            ),
            Cause::Memory => write!(
                f,
                "the process that serves at {path} may not reach the memory of this one ({errno}): \
                 run both as one user; containers need `--cap-add SYS_PTRACE`"
            ),
            Cause::Version => write!(
                f,
                "the process that serves at {path} is of another version ({errno}): build both \
                 programs from one checkout, and start it again"
            ),
            Cause::HungUp => write!(
                f,
                "the process that serves at {path} hung up ({errno}): it has ended, or can start no \
                 thread for this program; its standard error says more"
            ),
            Cause::Silent => write!(
                f,
                "the process that serves at {path} does not answer ({errno}): it may be stopped; let \
                 it go on (`kill -CONT`), or end it and start it again"
            ),
            Cause::Full => write!(
                f,
                "the machine at {path} serves as many processes as it can ({errno}): end some of \
                 them, or start another machine at another socket"
            ),
            Cause::Descriptors => write!(
                f,
                "this process has too many open files to connect to {path} ({errno}): raise \
                 RLIMIT_NOFILE (`ulimit -n`)"
            ),
            Cause::Other => write!(
                f,
                "cannot connect to a simulated machine at {path} ({errno}): name another socket"
            ),
        }
    }
}

impl Error for Unreached {}
