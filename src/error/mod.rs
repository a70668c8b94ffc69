//! Errors: the operation, the reason, and the usual cause.

mod allocate;
mod returned;

pub use returned::{DestroyError, RegisterError, ReregisterError};

use mlx5_prm::cmd::{CommandOutHead, CommandStatus};
use mlx5_uapi::{Errno, OLDEST_KERNEL, ProbeError};
use std::{borrow::Cow, fmt};

/// The category of an error, for programs to match on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is invalid, alone or together with others. Nothing was done, unless
    /// [`Error::in_doubt`] holds (`EFAULT`).
    InvalidArgument,
    /// The device is gone: unplugged, reset, or its driver unloaded.
    DeviceGone,
    /// The object belongs to the process from which this one was forked.
    Forked,
    /// The kernel is older than [`mlx5_uapi::OLDEST_KERNEL`].
    KernelTooOld,
    /// The operation needs DEVX, which the context does not have.
    NoDevx,
    /// The process lacks a permission.
    PermissionDenied,
    /// Not enough memory, or not enough that may be pinned.
    OutOfMemory,
    /// A limit of the device, or one set by the administrator, is reached.
    ResourceLimit,
    /// The object is still in use.
    Busy,
    /// The queue pair is in another state on the device. The text names the state and the remedy.
    WrongState,
    /// There is no such device, port or entry.
    NotFound,
    /// The object already exists.
    AlreadyExists,
    /// The device or the kernel does not support this. The text names which, if known.
    NotSupported,
    /// The firmware refused the command; see [`Error::firmware`].
    Firmware,
    /// The kernel refused for another reason; see [`Error::errno`].
    Kernel,
}

/// Status of a command that the firmware refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirmwareStatus {
    /// The command status.
    pub status: CommandStatus,
    /// The firmware's number for the exact reason; the vendor's support asks for it.
    pub syndrome: u32,
}

impl fmt::Display for FirmwareStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "firmware status {:#x}, syndrome {:#010x}", self.status.0, self.syndrome)
    }
}

/// An error: the operation, the kind, the numbers, and the usual cause as text.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Error {
    operation: &'static str,
    kind: ErrorKind,
    errno: Option<Errno>,
    firmware: Option<FirmwareStatus>,
    cause: Cow<'static, str>,
}

impl Error {
    /// Returns the category.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the verb that failed, without the prefix `ibv_`.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the errno, if the kernel returned one.
    pub const fn errno(&self) -> Option<Errno> {
        self.errno
    }

    /// Returns the firmware status, if the firmware refused and the kernel passed the status on.
    pub const fn firmware(&self) -> Option<FirmwareStatus> {
        self.firmware
    }

    /// Whether the kernel may have carried out the operation although it failed. A refusal means
    /// that nothing was done. If the answer could not be returned (`EFAULT`), or if the firmware
    /// did not answer (`EIO`, `ETIMEDOUT`), the outcome is unknown.
    ///
    /// Memory that such a call named is kept until the context closes, and
    /// [`Context::leaked`](crate::Context::leaked) counts it; foreign memory counts as registered.
    /// `EINTR` means that nothing was done; the call is then repeated.
    pub fn in_doubt(&self) -> bool {
        self.errno.is_some_and(|errno| !REFUSALS.contains(&errno))
    }

    pub(crate) fn new(
        operation: &'static str,
        kind: ErrorKind,
        cause: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { operation, kind, errno: None, firmware: None, cause: cause.into() }
    }

    /// Creates the error for an invalid argument.
    pub(crate) fn invalid(operation: &'static str, what: String) -> Self {
        Self::new(operation, ErrorKind::InvalidArgument, what)
    }

    /// Creates the error for an object that is still in use.
    pub(crate) fn busy(operation: &'static str, what: &'static str) -> Self {
        Self::new(operation, ErrorKind::Busy, what)
    }

    pub(crate) fn device_gone(operation: &'static str) -> Self {
        let cause = "the device is gone; drop what belongs to it and open it again";
        Self::new(operation, ErrorKind::DeviceGone, cause)
    }

    pub(crate) fn forked(operation: &'static str) -> Self {
        let cause = "the object belongs to the parent of this process; open the device again";
        Self::new(operation, ErrorKind::Forked, cause)
    }

    /// Creates the error for an operation that the device or the kernel does not support.
    pub(crate) fn not_supported(operation: &'static str, what: &'static str) -> Self {
        Self::new(operation, ErrorKind::NotSupported, what)
    }

    pub(crate) fn no_devx(operation: &'static str) -> Self {
        let cause = "DEVX is required, but the context was opened with `Devx::Off`, or the device \
                     does not offer it";
        Self::new(operation, ErrorKind::NoDevx, cause)
    }

    pub(crate) fn too_old(operation: &'static str) -> Self {
        let cause = format!("the kernel is too old: Linux {OLDEST_KERNEL} or newer is needed");
        Self::new(operation, ErrorKind::KernelTooOld, cause)
    }

    /// Changes the cause to the state of the object.
    pub(crate) fn in_wrong_state(self, what: String) -> Self {
        Self { kind: ErrorKind::WrongState, cause: what.into(), ..self }
    }

    /// If the kernel or the device lacks support for the call, adds the requested feature to the
    /// text.
    pub(crate) fn asked_for(self, what: &str) -> Self {
        match self.kind {
            ErrorKind::NotSupported => {
                Self { cause: format!("{what}: {}", self.cause).into(), ..self }
            }
            _ => self,
        }
    }

    /// Adds the errno.
    pub(crate) fn with_errno(self, errno: Errno) -> Self {
        Self { errno: Some(errno), ..self }
    }

    /// Creates the error for a call that the kernel refused with `errno`.
    pub(crate) fn kernel(operation: &'static str, errno: Errno) -> Self {
        let (kind, cause) = usual_cause(operation, errno);
        Self { errno: Some(errno), ..Self::new(operation, kind, cause) }
    }

    /// Creates the error for a DEVX command that failed with output `answer`, which has the status
    /// if the firmware refused.
    pub(crate) fn devx(operation: &'static str, errno: Errno, answer: &[u8]) -> Self {
        let head = CommandOutHead::from_short(answer);
        let status = CommandStatus(head.status());
        if status.is_ok() {
            return Self::kernel(operation, errno);
        }
        let firmware = Some(FirmwareStatus { status, syndrome: head.syndrome() });
        let error = Self::new(operation, ErrorKind::Firmware, status.text());
        Self { errno: Some(errno), firmware, ..error }
    }

    pub(crate) fn probe(operation: &'static str, error: ProbeError) -> Self {
        match error {
            ProbeError::TooOld => Self::too_old(operation),
            ProbeError::Kernel(errno) => Self::kernel(operation, errno),
        }
    }
}

/// The feature that queues of packets and flow rules need.
pub(crate) const RAW_PACKETS: &str =
    "raw packets (a simulated device has them with `SimConfig::raw_packets(true)`)";

/// Errnos that the kernel returns before it does anything, or after it undid everything.
const REFUSALS: &[Errno] = &[
    Errno::E2BIG,
    Errno::EACCES,
    Errno::EAGAIN,
    Errno::EBADF,
    Errno::EBUSY,
    Errno::EEXIST,
    Errno::EINTR,
    Errno::EINVAL,
    Errno::EMFILE,
    Errno::EMSGSIZE,
    Errno::ENFILE,
    Errno::ENODATA,
    Errno::ENOENT,
    Errno::ENOMEM,
    Errno::ENOSPC,
    Errno::ENOSYS,
    Errno::ENOTTY,
    Errno::EOPNOTSUPP,
    Errno::EPERM,
    Errno::EPROTONOSUPPORT,
    Errno::ERANGE,
    // The firmware refused and returned a status.
    Errno::EREMOTEIO,
];

/// Returns the usual meaning of an errno, in general or for `operation`.
fn usual_cause(operation: &'static str, errno: Errno) -> (ErrorKind, &'static str) {
    use ErrorKind::*;
    let opening = operation == "open_device";
    // On RoCE the kernel resolves the peer's address on the network before it calls the firmware.
    let resolving = matches!(operation, "modify_qp" | "create_ah");
    match errno {
        Errno::EACCES if opening => (
            PermissionDenied,
            "no permission on the device node: the user needs to read and write \
             /dev/infiniband/uverbs*",
        ),
        Errno::EPERM if opening => (
            PermissionDenied,
            "the device belongs to another network namespace, or the device cgroup forbids it",
        ),
        Errno::EPERM | Errno::EACCES => (
            PermissionDenied,
            "a capability is missing (CAP_NET_RAW for raw packets and privileged Q_Keys, \
             CAP_IPC_LOCK to pin without limit)",
        ),
        Errno::ENOENT | Errno::ENXIO if opening => (
            NotFound,
            "the device node is missing or is another device's: load ib_uverbs, or in a container \
             pass /dev/infiniband on",
        ),
        Errno::ENOMEM => (
            OutOfMemory,
            "out of memory, or more than may be pinned, or a limit of the device is reached: raise \
             RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK=)",
        ),
        Errno::EAGAIN => (
            ResourceLimit,
            "the device or the RDMA cgroup (rdma.max) allows no more objects of this kind: destroy \
             unused ones",
        ),
        Errno::EEXIST if operation == "create_flow" => (
            AlreadyExists,
            "there is a rule for the same packets with another action: choose another priority",
        ),
        Errno::ENOSPC if operation == "create_flow" => {
            (ResourceLimit, "the table of flow rules is full: destroy unused rules")
        }
        Errno::ENOSPC => {
            (ResourceLimit, "the device supports no more objects of this kind: destroy unused ones")
        }
        Errno::EMFILE | Errno::ENFILE => {
            (ResourceLimit, "too many open files: raise RLIMIT_NOFILE (ulimit -n)")
        }
        Errno::EFAULT => (
            InvalidArgument,
            "the memory is not mapped, or is read-only and was to be registered for writing",
        ),
        Errno::EINVAL => (InvalidArgument, "the kernel or the device rejected an argument"),
        Errno::EBUSY => (Busy, "another object still uses it: destroy that first"),
        Errno::ENODATA => (NotFound, "the entry does not exist"),
        Errno::ENODEV => (DeviceGone, "the device is gone"),
        Errno::EOPNOTSUPP | Errno::ENOSYS => {
            (NotSupported, "the device, its firmware or the kernel does not support this")
        }
        Errno::ENOTTY | Errno::EPROTONOSUPPORT => {
            (NotSupported, "the kernel does not know this call; a newer one may")
        }
        Errno::EINTR => {
            (Kernel, "signals interrupted the call a thousand times: block them in this thread")
        }
        Errno::ETIMEDOUT if resolving => (
            Kernel,
            "no answer from the peer's address (RoCE; does ping reach it?), or the firmware did not \
             answer in time",
        ),
        Errno::ENETUNREACH | Errno::EHOSTUNREACH if resolving => (
            Kernel,
            "no route to the peer's address leads from the interface of this side's GID: are both \
             in one network, and both IPv4 or both IPv6?",
        ),
        Errno::ETIMEDOUT => (Kernel, "the firmware did not answer in time"),
        Errno::EREMOTEIO => (Firmware, "the firmware refused; see the kernel's log"),
        Errno::EIO => {
            (Kernel, "the device or its firmware failed the command; see the kernel's log")
        }
        _ => (Kernel, "the kernel refused"),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.cause)?;
        match (self.errno, self.firmware) {
            (Some(errno), Some(firmware)) => write!(f, " ({firmware}; {errno:?})"),
            (Some(errno), None) => write!(f, " ({errno})"),
            (None, Some(firmware)) => write!(f, " ({firmware})"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// A range outside remote memory, or text or bytes that are no remote address.
impl From<mlx5_wqe::RemoteError> for Error {
    fn from(error: mlx5_wqe::RemoteError) -> Self {
        Self::invalid("remote address", error.to_string())
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = error
            .errno
            .map_or(std::io::ErrorKind::Other, |errno| std::io::Error::from(errno).kind());
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mlx5_prm::cmd::{CommandOutput, qp::QueryQpOut};

    #[test]
    fn a_refusal_names_the_operation_the_cause_and_the_number() {
        let error = Error::kernel("reg_mr", Errno::ENOMEM);
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert_eq!(error.errno(), Some(Errno::ENOMEM));
        assert_eq!(error.operation(), "reg_mr");
        let text = error.to_string();
        assert!(text.starts_with("reg_mr: "), "{text}");
        assert!(text.contains("RLIMIT_MEMLOCK"), "{text}");
        assert!(text.contains("ENOMEM"), "{text}");
    }

    #[test]
    fn the_same_errno_means_other_things_when_opening() {
        let node = Error::kernel("open_device", Errno::EACCES).to_string();
        assert!(node.contains("/dev/infiniband"), "{node}");
        let namespace = Error::kernel("open_device", Errno::EPERM).to_string();
        assert!(namespace.contains("network namespace"), "{namespace}");
        let capability = Error::kernel("create_qp", Errno::EPERM).to_string();
        assert!(capability.contains("CAP_NET_RAW"), "{capability}");
        let cgroup = Error::kernel("create_qp", Errno::EAGAIN).to_string();
        assert!(cgroup.contains("cgroup"), "{cgroup}");
    }

    #[test]
    fn unanswered_address_is_not_the_firmwares_fault() {
        for verb in ["modify_qp", "create_ah"] {
            let silent = Error::kernel(verb, Errno::ETIMEDOUT).to_string();
            assert!(silent.contains("no answer from the peer's address"), "{silent}");
            let unreachable = Error::kernel(verb, Errno::ENETUNREACH).to_string();
            assert!(unreachable.contains("no route to the peer's address"), "{unreachable}");
        }
        let firmware = Error::kernel("create_cq", Errno::ETIMEDOUT).to_string();
        assert!(!firmware.contains("peer"), "{firmware}");
    }

    #[test]
    fn a_call_that_signals_never_let_through_says_so() {
        let text = Error::kernel("create_qp", Errno::EINTR).to_string();
        assert!(text.contains("signals") && text.contains("EINTR"), "{text}");
    }

    #[test]
    fn error_of_an_old_kernel_names_the_version_needed() {
        let error = Error::probe("open_device", ProbeError::TooOld);
        assert_eq!(error.kind(), ErrorKind::KernelTooOld);
        assert!(error.to_string().contains(OLDEST_KERNEL));
    }

    #[test]
    fn the_firmwares_status_is_taken_from_the_answer_if_it_is_there() {
        let answer = QueryQpOut::reply(CommandStatus::BAD_RES_STATE_ERR, 0xdead_beef);
        let error = Error::devx("query_qp", Errno::EREMOTEIO, answer.as_bytes());
        assert_eq!(error.kind(), ErrorKind::Firmware);
        let firmware = error.firmware().expect("a status");
        assert_eq!(firmware.status, CommandStatus::BAD_RES_STATE_ERR);
        assert!(error.to_string().contains("syndrome 0xdeadbeef"), "{error}");

        let silent = Error::devx("query_qp", Errno::EINVAL, &[0; 16]);
        assert_eq!(silent.firmware(), None);
        assert_eq!(silent.kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn it_becomes_an_io_error_of_the_same_kind() {
        let error = std::io::Error::from(Error::kernel("open_device", Errno::EACCES));
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    }
}
