//! The connection to the kernel's driver for one open device: the data that every call needs.
//!
//! A [`Link`] has the files of the device, knows whether the device is gone and whether this
//! process is a forked child, and keeps memory that the device may still use until the files are
//! closed. It owns no queue, no key and none of the pools that these come from.
//! owns no queue, no key and none of the pools that these come from.

mod caps;
mod devx;
mod ids;
mod kept;
mod open;
mod wait;
mod watch;

pub(crate) use caps::{Caps, PortCaps};
pub use ids::{CqId, QpId, SrqId, WqId};
pub use kept::leaked;
pub use open::Devx;
pub(crate) use open::OPEN;
pub(crate) use wait::{closed, deadline_in, sleep_on, wait_for, wait_until};
pub(crate) use watch::{WatchId, Watched};

use crate::error::Error;
use kept::Kept;
use mlx5_uapi::{
    DeviceFile, Errno, EventFile, Kernel, Mapping, cmd::query, mlx5::AllocUcontextResp,
    process::Origin, sysfs::DeviceInfo, wait::wait_readable,
};
use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use watch::Watchers;

/// An open device, as calls and pools need it. Every object that was made through it keeps it open.
pub(crate) struct Link {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) info: DeviceInfo,
    pub(crate) limits: AllocUcontextResp,
    pub(crate) caps: Caps,
    devx: bool,
    /// Base-two logarithm of the minimum size of a receive with strides, once it was queried.
    log_striding_bytes: OnceLock<u32>,
    /// The process that opened the device.
    process: Origin,
    watchers: Watchers,
    ids: AtomicU64,
    // Drop order: the files close, which destroys every object; then the memory of objects that the
    // kernel did not destroy is freed. Device pages were unmapped before: their pools hold the
    // link.
    pub(crate) async_file: Arc<dyn EventFile>,
    pub(crate) file: Arc<dyn DeviceFile>,
    kept: Kept,
}

impl Link {
    /// Whether this process is a forked child of the one that opened the device.
    pub(crate) fn forked(&self) -> bool {
        self.process.left()
    }

    /// Fails in a child process, and when the device is gone.
    pub(crate) fn check(&self, operation: &'static str) -> Result<(), Error> {
        self.check_process(operation)?;
        if self.is_gone() { Err(Error::device_gone(operation)) } else { Ok(()) }
    }

    /// Fails in a child process: a call there would act on the parent's objects.
    pub(crate) fn check_process(&self, operation: &'static str) -> Result<(), Error> {
        if self.forked() { Err(Error::forked(operation)) } else { Ok(()) }
    }

    /// Makes a call, after [`Link::check`].
    pub(crate) fn run<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&dyn DeviceFile) -> Result<T, Errno>,
    ) -> Result<T, Error> {
        self.check(operation)?;
        call(&*self.file).map_err(|errno| self.fail(operation, errno))
    }

    /// Makes a call that destroys an object. It is made even if the device is gone, because the
    /// kernel may still have the object.
    pub(crate) fn run_destroy<T>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&dyn DeviceFile) -> Result<T, Errno>,
    ) -> Result<T, Error> {
        self.check_process(operation)?;
        call(&*self.file).map_err(|errno| self.fail(operation, errno))
    }

    /// Returns the error for a failed call. `EIO` has many causes: a second call determines whether
    /// the device is gone.
    pub(crate) fn fail(&self, operation: &'static str, errno: Errno) -> Error {
        match errno {
            Errno::EIO => self.ask_whether_gone(),
            Errno::ENODEV => self.mark_gone(),
            _ => {}
        }
        if self.is_gone() {
            Error::device_gone(operation).with_errno(errno)
        } else {
            Error::kernel(operation, errno)
        }
    }

    /// Whether the device is known to be gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.watchers.is_gone()
    }

    /// Marks the device as gone: later calls and posts fail, and polls fail when no CQE is left.
    pub(crate) fn mark_gone(&self) {
        self.watchers.mark_gone();
    }

    /// Returns a descriptor that is readable once the device is known to be gone.
    pub(crate) fn gone_fd(&self) -> BorrowedFd<'_> {
        self.watchers.gone_fd()
    }

    /// Marks a completion queue as overrun: once it is empty, polls fail.
    pub(crate) fn mark_overrun(&self, cq: CqId) {
        self.watchers.mark_overrun(cq);
    }

    /// Returns a descriptor that is readable once any completion queue was marked as overrun.
    pub(crate) fn overrun_fd(&self) -> BorrowedFd<'_> {
        self.watchers.overrun_fd()
    }

    /// Registers `what` for notification when the device is removed; notifies it now if it is gone.
    pub(crate) fn watch(&self, what: Watched) -> WatchId {
        self.watchers.add(WatchId(self.next_handle_id()), what)
    }

    /// Removes a registration. The memory of the queue's words may be freed afterwards.
    pub(crate) fn unwatch(&self, id: WatchId) {
        // After a fork, a thread that does not exist in the child may hold the lock.
        if !self.forked() {
            self.watchers.remove(id);
        }
    }

    /// Checks whether the device is still there. The event file of a removed device is readable.
    #[cold]
    pub(crate) fn check_alive(&self) {
        if self.is_gone() || self.forked() {
            return;
        }
        if self.has_events() {
            self.ask_whether_gone();
        }
    }

    /// Whether an asynchronous event is pending, or may be.
    pub(crate) fn has_events(&self) -> bool {
        !matches!(wait_readable(self.async_fd(), Some(Duration::ZERO)), Ok(false))
    }

    #[cold]
    fn ask_whether_gone(&self) {
        if let Err(Errno::EIO | Errno::ENODEV) = query::port(&*self.file, 1) {
            self.mark_gone();
        }
    }

    /// Keeps memory of an object that was not destroyed until the context closes.
    pub(crate) fn keep(&self, memory: Mapping) {
        if self.forked() {
            // The range may hold another mapping, and a thread that does not exist here may hold
            // the lock.
            memory.leak();
        } else {
            self.kept.memory(memory);
        }
    }

    /// Keeps memory of such an object until the process ends, because its owner would reuse it once
    /// it is freed.
    pub(crate) fn keep_until_exit(&self, memory: Mapping) {
        if self.forked() { memory.leak() } else { self.kept.keep_until_exit(memory) }
    }

    /// Counts memory of a page that [`Link::keep_page`] will keep.
    pub(crate) fn count_kept(&self) {
        self.kept.count();
    }

    /// Keeps a page of which the device may still use a part. Does not count it.
    pub(crate) fn keep_page(&self, page: Mapping) {
        if self.forked() { page.leak() } else { self.kept.page(page) }
    }

    /// Keeps the records of a queue that was not destroyed: CQEs may still name it.
    pub(crate) fn keep_records(&self, records: Arc<dyn Send + Sync>) {
        if self.forked() { std::mem::forget(records) } else { self.kept.records(records) }
    }

    /// Returns the number of memory areas that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.kept.pieces()
    }

    /// Returns a number that is unique in the context.
    pub(crate) fn next_handle_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    /// Returns the file of asynchronous events.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        self.async_file.as_fd()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.forked() {
            self.kept.forget_mappings();
            return;
        }
        // The [`Kernel`] may hold another reference to the file: then dropping this one does not
        // close it.
        if Arc::get_mut(&mut self.file).is_none() {
            self.kept.keep_all_until_exit();
        }
    }
}
