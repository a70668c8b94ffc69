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
    /// Another program has the address.
    AddressInUse,
    /// No port of this machine has the address.
    AddressNotAvailable,
    /// There is no route to the address, or no program answers there.
    Unreachable,
    /// The peer rejected; see [`Error::rejection`].
    Rejected,
    /// The awaited event did not arrive in time.
    TimedOut,
    /// The connection has ended.
    Disconnected,
    /// The call does not fit the state of the identifier.
    WrongState,
    /// The device is gone.
    DeviceGone,
    /// The object belongs to the process from which this one was forked.
    Forked,
    /// The kernel does not support this.
    NotSupported,
    /// The peer runs another version, or another protocol.
    Protocol,
    /// The driver of the device failed; [`std::error::Error::source`] has its error.
    Driver,
    /// The kernel refused for another reason; see [`Error::errno`].
    Kernel,
}

/// A peer's rejection.
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

    /// Returns the rejection, if the peer rejected.
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

    /// The kernel refused a call.
    pub(crate) fn kernel(operation: &'static str, errno: Errno) -> Self {
        let (kind, cause) = usual_cause(operation, errno);
        Self::new(operation, kind, cause).with(errno)
    }

    /// An event of the kernel reports why a call failed.
    pub(crate) fn event(operation: &'static str, errno: Errno) -> Self {
        let (kind, cause) = cause_of_event(operation, errno);
        Self::new(operation, kind, cause).with(errno)
    }

    fn with(mut self, errno: Errno) -> Self {
        self.0.errno = Some(errno);
        self
    }

    /// A forked child made the call.
    pub(crate) fn forked(operation: &'static str) -> Self {
        let what = "the object belongs to the parent of this process: open a channel here";
        Self::new(operation, ErrorKind::Forked, what)
    }

    /// The driver failed.
    pub(crate) fn driver(operation: &'static str, driver: mlx5::Error) -> Self {
        let kind = match driver.kind() {
            mlx5::ErrorKind::DeviceGone => ErrorKind::DeviceGone,
            mlx5::ErrorKind::Forked => ErrorKind::Forked,
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
                "no program listens there: check port and port space, and that the server runs"
                    .into()
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
            reject_reason::NO_RESOURCES => {
                "the peer has no resources for another connection: try again later".into()
            }
            reject_reason::INVALID_COMM_ID => {
                "the peer does not know the connection any more: connect again".into()
            }
            reject_reason::VENDOR_OPTION_NOT_SUPPORTED => {
                "the program at the other end cannot do what ECE asks for: connect without options"
                    .into()
            }
            reason => format!(
                "the peer's connection manager rejected for reason {reason} (see enum \
                 ib_cm_rej_reason of the kernel): its kernel log may say more"
            )
            .into(),
        };
        let mut error = Self::new(operation, ErrorKind::Rejected, cause);
        error.0.rejection = Some(rejection);
        error
    }

    /// An awaited event did not arrive: `what` names it and says what to do.
    pub(crate) fn timed_out(operation: &'static str, what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(operation, ErrorKind::TimedOut, what)
    }

    /// There is more private data than the message has room for.
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
        Errno::EACCES | Errno::EPERM if matches!(operation, "bind" | "resolve_addr") => (
            PermissionDenied,
            "a port below 1024 needs CAP_NET_BIND_SERVICE; and a process that has changed its user \
             or capabilities has to open the channel afterwards",
        ),
        Errno::EACCES | Errno::EPERM => (
            PermissionDenied,
            "the process has changed its user or capabilities since it opened the channel: open the \
             channel afterwards",
        ),
        Errno::EADDRINUSE => {
            (AddressInUse, "another program has the address: use another port, or let it end")
        }
        // Linux reports a port in use by this number if either address is the unspecified one.
        // Resolving binds an unbound identifier.
        Errno::EADDRNOTAVAIL if matches!(operation, "bind" | "listen" | "resolve_addr") => (
            AddressNotAvailable,
            "no RDMA port of this machine has the address: see `ip address`; or, with 0.0.0.0 or [::] on \
             either side, another program has the port",
        ),
        Errno::EADDRNOTAVAIL => {
            (AddressNotAvailable, "no RDMA port of this machine has the address: see `ip address`")
        }
        Errno::ENODEV => {
            (AddressNotAvailable, "the address belongs to no RDMA port: see `rdma link`")
        }
        Errno::ENETUNREACH | Errno::EHOSTUNREACH => (
            Unreachable,
            "no RDMA port of this machine leads there: see `ip route`; in a simulated machine, which \
             that does not show, serve two RoCE devices (`devices=2,link=roce`) and bind the source \
             address",
        ),
        Errno::ETIMEDOUT => (Unreachable, "no answer from that address: check address and links"),
        Errno::EIO => {
            (DeviceGone, "the device is gone: drop what belongs to it, and connect again")
        }
        Errno::EINVAL => match operation {
            "resolve_addr" => (
                InvalidArgument,
                "both addresses have to be of one family, and the identifier not resolved yet",
            ),
            "join_multicast" => (
                WrongState,
                "a group is joined by an identifier of datagrams that is bound to a port",
            ),
            "set_option" => {
                (WrongState, "the option is not one of this kind or state of identifier")
            }
            _ => (
                WrongState,
                "the call does not fit the state of the identifier, or the peer has gone meanwhile",
            ),
        },
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

/// Returns the meaning of an errno in an event.
fn cause_of_event(operation: &'static str, errno: Errno) -> (ErrorKind, &'static str) {
    use ErrorKind::*;
    match (operation, errno) {
        (_, Errno::ETIMEDOUT) => {
            (Unreachable, "no answer from that address: check address and links")
        }
        ("resolve_addr", _) => {
            (Unreachable, "the address cannot be resolved: see `ip route` and `ip neighbour`")
        }
        ("resolve_route", _) => {
            (Unreachable, "no path leads there: check the links, and that a subnet manager runs")
        }
        (_, Errno::ENODEV) => {
            (DeviceGone, "the device is gone: drop what belongs to it, and connect again")
        }
        _ => (Unreachable, "the connection could not be set up: check that the peer runs"),
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
        // Each of these operations binds.
        for operation in ["bind", "listen", "resolve_addr"] {
            let text = Error::kernel(operation, Errno::EADDRNOTAVAIL).to_string();
            assert!(text.contains("another program has the port"), "{text}");
        }
        let text = Error::kernel("join_multicast", Errno::EADDRNOTAVAIL).to_string();
        assert!(text.contains("ip address") && !text.contains("the port"), "{text}");
    }

    #[test]
    fn rejection_distinguishes_no_listener_from_refusal_by_the_program() {
        let rejected = |reason| {
            let rejection = Rejection { reason, private_data: PrivateData::default() };
            Error::rejected("connect", rejection).to_string()
        };
        assert!(rejected(reject_reason::INVALID_SERVICE_ID).contains("no program listens"));
        assert!(rejected(reject_reason::CONSUMER_DEFINED).contains("the program"));
        assert!(rejected(99).contains("99"));
    }

    #[test]
    fn meaning_of_an_errno_depends_on_the_call() {
        let text = |operation, errno| Error::kernel(operation, errno).to_string();
        assert!(text("bind", Errno::EACCES).contains("1024"));
        assert!(!text("accept", Errno::EACCES).contains("1024"));
        assert!(text("accept", Errno::EACCES).contains("open the channel afterwards"));
        assert!(text("join_multicast", Errno::EINVAL).contains("datagrams"));
        assert_eq!(Error::kernel("accept", Errno::EIO).kind(), ErrorKind::DeviceGone);
        let route = Error::event("resolve_route", Errno::EINVAL);
        assert_eq!((route.kind(), route.errno()), (ErrorKind::Unreachable, Some(Errno::EINVAL)));
        assert!(route.to_string().contains("no path"), "{route}");
    }

    #[test]
    fn it_becomes_an_io_error_of_the_same_kind() {
        let error = io::Error::from(Error::too_long("connect", 57, 56));
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("57"));
    }
}
