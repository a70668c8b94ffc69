//! Event channels.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mlx5::{Kernel, LinuxKernel};
use mlx5_uapi::CmFile;
use mlx5_uapi::process::Origin;
use mlx5_uapi::rdma_cm::{ABI_VERSION, SYSFS};

use crate::error::{Error, ErrorKind};

/// Distinguishes identifiers in events. No two in a process are equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct IdKey(pub(crate) u64);

impl IdKey {
    /// A key that no identifier has.
    pub(crate) fn next() -> Self {
        // The kernel reports 0 for an identifier that no program has.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// An open channel, shared by its identifiers.
pub(crate) struct Channel {
    pub(crate) kernel: Arc<dyn Kernel>,
    file: Arc<dyn CmFile>,
    /// The process that opened it.
    pub(crate) origin: Origin,
}

impl Channel {
    /// Returns the file for a call. It fails in a forked child: a call there would act on the
    /// parent's identifiers.
    pub(crate) fn file(&self, operation: &'static str) -> Result<&dyn CmFile, Error> {
        if self.origin.left() { Err(Error::forked(operation)) } else { Ok(&*self.file) }
    }
}

/// An event channel (`struct rdma_event_channel`): identifiers are created on it, and it delivers
/// their events.
///
/// Clones are handles of the same channel, which is closed when the last of them and of its
/// identifiers is dropped. After a fork, the child shares its parent's channels: its calls fail
/// with [`ErrorKind::Forked`](crate::ErrorKind::Forked), and its drops do nothing.
#[derive(Clone)]
pub struct EventChannel {
    pub(crate) channel: Arc<Channel>,
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").finish_non_exhaustive()
    }
}

impl EventChannel {
    /// Opens a channel of the running kernel.
    pub fn open() -> Result<Self, Error> {
        Self::open_on(Arc::new(LinuxKernel::new()))
    }

    /// Opens a channel of `kernel`, for example a simulated one.
    pub fn open_on(kernel: Arc<dyn Kernel>) -> Result<Self, Error> {
        const OPERATION: &str = "open";
        // If the file is missing, opening the device below reports it.
        if let Ok(version) = kernel.sysfs_read(&format!("{SYSFS}/abi_version"))
            && version.trim().parse() != Ok(ABI_VERSION)
        {
            let version = version.trim();
            let what = format!(
                "the kernel's rdma_cm has ABI version {version}, and this library knows \
                 {ABI_VERSION}: use another version of the library"
            );
            return Err(Error::new(OPERATION, ErrorKind::NotSupported, what));
        }
        let file = kernel.rdma_cm().map_err(|errno| Error::kernel(OPERATION, errno))?;
        let origin = Origin::here();
        Ok(Self { channel: Arc::new(Channel { kernel, file, origin }) })
    }
}

/// Readable while an event is pending.
impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.file.as_fd()
    }
}
