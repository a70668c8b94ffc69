//! The calls that come through an open uverbs device.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::{Arc, Weak};

use mlx5_uapi::ioctl::{IoctlAttr, IoctlHeader};
use mlx5_uapi::mlx5::MmapCommand;
use mlx5_uapi::{
    Access, AllocateError, DeviceFile, Errno, EventFile, Mapping, MemoryRequest, page_size,
};

use crate::kernel::current::Current;
use crate::kernel::event_queue::EventQueue;
use crate::kernel::file::OpenFile;
use crate::kernel::objects::Mappable;
use crate::kernel::{clock_map, decode, dm, lock, memory, methods, uar};
use crate::processes::Process;

/// The handle of an open file that a driver holds.
pub(crate) struct SimFile(pub(crate) Arc<OpenFile>);

impl OpenFile {
    /// # Safety
    /// As for [`DeviceFile::ioctl`]; addresses in the attributes are those of the current process.
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        let late = self.calls.enter_work()?;
        if !self.hca.is_removed() {
            self.hca.clocks.tick();
        }
        // SAFETY: the caller promises that the header, the attributes and the memory that they
        // point to are valid; nothing else uses them until the call returns.
        let (method, request) = unsafe { decode::open(header) }?;
        let mut state = lock(&self.state);
        methods::run(self, &mut state, method, request)?;
        late.map_or(Ok(()), Err)
    }
}

/// An open file that another process has.
pub struct ProcessFile {
    file: SimFile,
    process: Arc<Process>,
}

impl std::fmt::Debug for ProcessFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProcessFile").field("process", &self.process).finish_non_exhaustive()
    }
}

impl ProcessFile {
    pub(crate) fn new(file: Arc<OpenFile>, process: &Arc<Process>) -> Self {
        Self { file: SimFile(file), process: Arc::clone(process) }
    }

    /// The same file for a process that inherited it.
    #[must_use]
    pub fn inherited_by(&self, process: &Arc<Process>) -> Self {
        Self::new(Arc::clone(&self.file.0), process)
    }

    /// Executes one call. `words` has the header and the attributes; the addresses in the
    /// attributes are the calling process's, and a bad one makes the call fail.
    pub fn call(&self, words: &mut [u64]) -> Result<(), Errno> {
        let room = size_of_val(words);
        let header: *mut IoctlHeader = words.as_mut_ptr().cast();
        if room < size_of::<IoctlHeader>() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: `words` is at least a header long, and every bit pattern is a header.
        let counted = usize::from(unsafe { (*header).num_attrs });
        if size_of::<IoctlHeader>() + counted * size_of::<IoctlAttr>() > room {
            return Err(Errno::EFAULT);
        }
        let _current = Current::enter(Some(&self.process));
        // SAFETY: `words` holds the header and all its attributes; the addresses in them are
        // another process's.
        unsafe { self.file.0.ioctl(header) }
    }

    /// Maps a page of the device into this process, as [`DeviceFile::map`].
    pub fn map(&self, offset: u64, length: usize, access: Access) -> Result<Mapping, Errno> {
        self.file.map(offset, length, access)
    }

    /// Takes over the event file with this number, as [`DeviceFile::event_file`].
    pub fn event_file(&self, number: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        self.file.events(number)
    }
}

impl SimFile {
    /// The event file with this number.
    fn events(&self, number: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        self.0.calls.enter()?;
        let state = lock(&self.0.state);
        let (_, queue) = state.channels.get(&number).ok_or(Errno::EBADF)?;
        Ok(Box::new(SimEvents { queue: Arc::clone(queue), file: Arc::downgrade(&self.0) }))
    }
}

impl DeviceFile for SimFile {
    unsafe fn ioctl(&self, header: *mut IoctlHeader) -> Result<(), Errno> {
        let _current = Current::enter(None);
        // SAFETY: the caller promises that the header and the attributes are valid; `enter(None)`
        // makes their addresses this process's.
        unsafe { self.0.ioctl(header) }
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        self.0.calls.enter()?;
        self.0.check_device()?;
        self.0.hca.clocks.tick();
        if offset == MmapCommand::ClockInfo.offset(0, page_size()) {
            return clock_map::map_info(&self.0, len, access);
        }
        if offset == MmapCommand::CoreClock.offset(0, page_size()) {
            return clock_map::map_core(&self.0, len, access);
        }
        let state = lock(&self.0.state);
        let what = state.objects.mapped_at(offset).ok_or(Errno::EINVAL)?;
        drop(state);
        match what {
            Mappable::Uar(page) => uar::map(&self.0, page, len),
            Mappable::Dm(pages) => dm::map(&self.0, pages, len),
        }
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
        // Anonymous memory does not need the device.
        self.0.calls.enter()?;
        memory::allocate(&self.0.hca.fabric, request)
    }

    /// Any number is valid: it is looked up.
    unsafe fn event_file(&self, fd: RawFd) -> Result<Box<dyn EventFile>, Errno> {
        self.events(fd)
    }
}

/// An event file that a driver holds.
struct SimEvents {
    queue: Arc<EventQueue>,
    file: Weak<OpenFile>,
}

impl AsFd for SimEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

impl EventFile for SimEvents {
    fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        self.queue.read(buf)
    }
}

impl Drop for SimEvents {
    fn drop(&mut self) {
        if let Some(file) = self.file.upgrade().filter(|file| file.hca.is_this_process()) {
            file.forget_channel(self.queue.fd());
        }
    }
}
