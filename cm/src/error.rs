//! Errors: the operation, the reason, and what to do.

use std::borrow::Cow;
use std::fmt;
use std::io;

use mlx5::Errno;
use mlx5_uapi::rdma_cm::reject_reason;

use crate::data::PrivateData;

/// The category of an error, for programs to match on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// This machine has no connection manager.
    NoConnectionManager,
    /// The process lacks a permission.
    PermissionDenied,
    /// An argument is invalid.
    InvalidArgument,
    /// There is more private data than the message has room for.
    PrivateDataTooLong,
    /// Somebody else has the address.
    AddressInUse,
    /// No port of this machine has the address.
    AddressNotAvailable,
    /// There is no way to the address, or nobody answers there.
    Unreachable,
    /// The peer rejected; see [`Error::rejection`].
    Rejected,
    /// What was waited for did not come in time.
    TimedOut,
    /// The connection has ended.
    Disconnected,
    /// The call does not fit the state of the identifier.
    WrongState,
    /// The device is gone.
    DeviceGone,
    /// The kernel does not support this.
    NotSupported,
    /// The peer speaks another version, or something else.
    Protocol,
    /// The driver of the device failed; [`std::error::Error::source`] has its error.
    Driver,
    /// The kernel refused for another reason; see [`Error::errno`].
    Kernel,
}

/// What a peer said when it rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// The reason: see [`reject_reason`].
    pub reason: u32,
    /// The peer's private data, followed by zeros.
    pub private_data: PrivateData,
}

/// An error: the operation, the kind, and what to do.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    operation: &'static str,
    kind: ErrorKind,
    errno: Option<Errno>,
    rejection: Option<Rejection>,
    driver: Option<mlx5::Error>,
    cause: Cow<'static, str>,
}

impl Error {
    /// Returns the category.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the operation that failed.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// Returns the errno, if the kernel returned one.
    pub fn errno(&self) -> Option<Errno> {
        self.0.errno
    }

    /// Returns what the peer said, if it rejected.
    pub fn rejection(&self) -> Option<&Rejection> {
        self.0.rejection.as_ref()
    }

    pub(crate) fn new(
        operation: &'static str,
        kind: ErrorKind,
        cause: impl Into<Cow<'static, str>>,
    ) -> Self {
        let cause = cause.into();
        let inner = Inner { operation, kind, errno: None, rejection: None, driver: None, cause };
        Self(Box::new(inner))
    }

    /// The kernel refused.
    pub(crate) fn kernel(operation: &'static str, errno: Errno) -> Self {
        let (kind, cause) = usual_cause(operation, errno);
        let mut error = Self::new(operation, kind, cause);
        error.0.errno = Some(errno);
        error
    }

    /// The driver failed.
    pub(crate) fn driver(operation: &'static str, driver: mlx5::Error) -> Self {
        let kind = match driver.kind() {
            mlx5::ErrorKind::DeviceGone => ErrorKind::DeviceGone,
            _ => ErrorKind::Driver,
        };
        let mut error = Self::new(operation, kind, driver.to_string());
        error.0.driver = Some(driver);
        error
    }

    /// The peer rejected.
    pub(crate) fn rejected(operation: &'static str, rejection: Rejection) -> Self {
        let cause: Cow<'static, str> = match rejection.reason {
            reject_reason::INVALID_SERVICE_ID => {
                "nobody listens there: check port and port space, and that the server runs".into()
            }
            reject_reason::CONSUMER_DEFINED => {
                "the program at the other end rejected, or ended: its private data may say why"
                    .into()
            }
            reject_reason::TIMEOUT => "the peer gave up waiting: try again".into(),
            reject_reason::STALE_CONNECTION => {
                "the peer still has an older connection of this queue pair: use a new one, or try \
                 again later"
                    .into()
            }
            reason => {
                format!("the peer rejected for reason {reason} (enum ib_cm_rej_reason)").into()
            }
        };
        let mut error = Self::new(operation, ErrorKind::Rejected, cause);
        error.0.rejection = Some(rejection);
        error
    }

    /// What was waited for did not come.
    pub(crate) fn timed_out(operation: &'static str, what: &str) -> Self {
        let cause = format!("{what} did not come in time: try again, or set a longer time limit");
        Self::new(operation, ErrorKind::TimedOut, cause)
    }

    /// More private data than there is room for.
    pub(crate) fn too_long(operation: &'static str, bytes: usize, room: usize) -> Self {
        let cause = format!(
            "{bytes} bytes of private data, where the message has room for {room}: send the rest \
             over the connection"
        );
        Self::new(operation, ErrorKind::PrivateDataTooLong, cause)
    }
}

/// Returns the usual meaning of an errno, in general or for an operation.
fn usual_cause(operation: &'static str, errno: Errno) -> (ErrorKind, &'static str) {
    use ErrorKind::*;
    let opening = operation == "open";
    match errno {
        Errno::ENOENT | Errno::ENXIO | Errno::ENODEV if opening => {
            (NoConnectionManager, "there is no /dev/infiniband/rdma_cm: load rdma_ucm")
        }
        Errno::EACCES | Errno::EPERM if opening => {
            (PermissionDenied, "the user needs to read and write /dev/infiniband/rdma_cm")
        }
        Errno::EACCES | Errno::EPERM => (
            PermissionDenied,
            "a capability is missing: CAP_NET_BIND_SERVICE for a port below 1024",
        ),
        Errno::EADDRINUSE => {
            (AddressInUse, "another program has the address: use another port, or let it end")
        }
        Errno::EADDRNOTAVAIL => {
            (AddressNotAvailable, "no RDMA port of this machine has the address: see `ip address`")
        }
        Errno::ENODEV => {
            (AddressNotAvailable, "the address belongs to no RDMA port: see `rdma link`")
        }
        Errno::ENETUNREACH | Errno::EHOSTUNREACH => {
            (Unreachable, "no RDMA port of this machine leads there: see `ip route`")
        }
        Errno::ETIMEDOUT => (Unreachable, "nobody answers there: check address and links"),
        Errno::EINVAL => (
            WrongState,
            "the call does not fit the state of the identifier, or the peer has gone meanwhile",
        ),
        Errno::ENOENT => (Disconnected, "the kernel does not know the identifier any more"),
        Errno::EAFNOSUPPORT => (InvalidArgument, "the kernel does not know this kind of address"),
        Errno::ENOSYS | Errno::EOPNOTSUPP => (NotSupported, "the kernel does not support this"),
        Errno::EMFILE | Errno::ENFILE => {
            (Kernel, "too many open files: raise RLIMIT_NOFILE (ulimit -n)")
        }
        Errno::ENOMEM => (Kernel, "out of memory"),
        _ => (Kernel, "the kernel refused"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.cause)?;
        match self.0.errno {
            Some(errno) => write!(f, " ({errno})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.driver.as_ref().map(|driver| driver as _)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::NoConnectionManager => io::ErrorKind::NotFound,
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            ErrorKind::InvalidArgument | ErrorKind::PrivateDataTooLong => {
                io::ErrorKind::InvalidInput
            }
            ErrorKind::AddressInUse => io::ErrorKind::AddrInUse,
            ErrorKind::AddressNotAvailable => io::ErrorKind::AddrNotAvailable,
            ErrorKind::Unreachable => io::ErrorKind::HostUnreachable,
            ErrorKind::Rejected => io::ErrorKind::ConnectionRefused,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::Disconnected => io::ErrorKind::NotConnected,
            ErrorKind::NotSupported => io::ErrorKind::Unsupported,
            ErrorKind::Protocol => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_operation_and_what_to_do() {
        let error = Error::kernel("open", Errno::ENOENT);
        assert_eq!(error.kind(), ErrorKind::NoConnectionManager);
        let text = error.to_string();
        assert!(text.starts_with("open: ") && text.contains("rdma_ucm"), "{text}");
        let text = Error::kernel("bind", Errno::EADDRINUSE).to_string();
        assert!(text.contains("another port"), "{text}");
    }

    #[test]
    fn a_rejection_says_whether_nobody_listens_or_the_program_refused() {
        let rejected = |reason| {
            let rejection = Rejection { reason, private_data: PrivateData::default() };
            Error::rejected("connect", rejection).to_string()
        };
        assert!(rejected(reject_reason::INVALID_SERVICE_ID).contains("nobody listens"));
        assert!(rejected(reject_reason::CONSUMER_DEFINED).contains("the program"));
        assert!(rejected(99).contains("99"));
    }

    #[test]
    fn it_becomes_an_io_error_of_the_same_kind() {
        let error = io::Error::from(Error::too_long("connect", 57, 56));
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("57"));
    }
}
