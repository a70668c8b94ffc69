//! An open uverbs device: the calls that come through it, and what becomes of its objects.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, Weak};

use mlx5_prm::cmd::alloc::DeallocTransportDomainIn;
use mlx5_uapi::ioctl::{IoctlAttr, IoctlHeader, object};
use mlx5_uapi::mlx5::MmapCommand;
use mlx5_uapi::{Access, DeviceFile, Errno, EventFile, Mapping, MemoryRequest, page_size};
use zerocopy::IntoBytes;

use crate::kernel::calls::Calls;
use crate::kernel::current::Current;
use crate::kernel::devx::destroy_uctx;
use crate::kernel::events::EventQueue;
use crate::kernel::hca::Hca;
use crate::kernel::objects::{Body, Mappable, Objects};
use crate::kernel::{
    clock, cq, decode, devx, dm, lock, memory, methods, mr, qp, simple, srq, uar, xrcd,
};
use crate::processes::Process;

/// What GET_CONTEXT made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// The firmware's number of the user context; 0 without DEVX.
    pub(crate) uid: u32,
    pub(crate) transport_domain: u32,
    pub(crate) cqe_version: u8,
}

/// What events a file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Channel {
    Completion,
    Asynchronous,
}

/// What the destruction of an object reports of its events that were read: nothing, or as the
/// method has it.
pub(crate) type Report = Vec<u8>;

/// An object that ended before it was destroyed.
#[derive(Debug)]
struct Ended {
    kind: u16,
    report: Report,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) context: Option<Context>,
    pub(crate) objects: Objects,
    /// Objects that ended because the device went, until their handles are given back.
    ended: BTreeMap<u32, Ended>,
    channels: BTreeMap<RawFd, (Channel, Arc<EventQueue>)>,
    default_async: Option<Arc<EventQueue>>,
}

impl State {
    /// The context; without one nothing can be made.
    pub(crate) fn context(&self) -> Result<Context, Errno> {
        self.context.ok_or(Errno::EINVAL)
    }

    /// Gives back the handle of an object that ended because the device went; `None` if it did not
    /// end so.
    pub(crate) fn give_back(&mut self, handle: u32, kind: u16) -> Result<Option<Report>, Errno> {
        match self.ended.get(&handle) {
            Some(ended) if ended.kind != kind => Err(Errno::EINVAL),
            _ => Ok(self.ended.remove(&handle).map(|ended| ended.report)),
        }
    }

    /// Adds an event file, and answers its descriptor.
    pub(crate) fn add_channel(&mut self, kind: Channel) -> Result<Arc<EventQueue>, Errno> {
        self.context()?;
        let queue = EventQueue::new()?;
        self.channels.insert(queue.fd(), (kind, Arc::clone(&queue)));
        if kind == Channel::Asynchronous && self.default_async.is_none() {
            self.default_async = Some(Arc::clone(&queue));
        }
        Ok(queue)
    }

    /// The event file behind a descriptor.
    pub(crate) fn channel(&self, fd: i64, kind: Channel) -> Result<Arc<EventQueue>, Errno> {
        let fd = RawFd::try_from(fd).map_err(|_| Errno::EINVAL)?;
        match self.channels.get(&fd) {
            Some((found, queue)) if *found == kind => Ok(Arc::clone(queue)),
            _ => Err(Errno::EBADF),
        }
    }

    /// Where an object's asynchronous events go: the file that the call names, or the first one.
    pub(crate) fn async_events(&self, fd: Option<i64>) -> Result<Option<Arc<EventQueue>>, Errno> {
        match fd {
            Some(fd) => self.channel(fd, Channel::Asynchronous).map(Some),
            None => Ok(self.default_async.clone()),
        }
    }
}

/// An open file. It lives as long as anything that keeps it open: the handle of the file itself,
/// and every device page that is mapped through it.
pub(crate) struct OpenFile {
    pub(crate) hca: Arc<Hca>,
    calls: Arc<Calls>,
    state: Mutex<State>,
}

impl OpenFile {
    pub(crate) fn new(hca: &Arc<Hca>, calls: &Arc<Calls>) -> Arc<Self> {
        let file = Arc::new(Self {
            hca: Arc::clone(hca),
            calls: Arc::clone(calls),
            state: Mutex::default(),
        });
        hca.opened(&file);
        file
    }

    /// Fails if the device is gone.
    pub(crate) fn check_device(&self) -> Result<(), Errno> {
        if self.hca.is_removed() { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Ends one object.
    pub(crate) fn destroy(&self, state: &mut State, handle: u32) -> Result<Report, Errno> {
        if !state.objects.is_free(handle) {
            return Err(Errno::EBUSY);
        }
        let hca = &self.hca;
        let mut reported = Report::new();
        match state.objects.get_mut(handle)? {
            Body::Pd { pdn } => simple::dealloc_pd(hca, *pdn)?,
            Body::Xrcd(body) => xrcd::close(hca, *body)?,
            // Pages go when nobody maps them any more.
            Body::Ah | Body::Uar(_) | Body::Dm(_) => {}
            Body::Mr(body) => mr::destroy(hca, body)?,
            Body::Mw(body) => mr::destroy_window(hca, body)?,
            Body::Cq(body) => reported.extend(cq::destroy(hca, body)?.as_bytes()),
            Body::Qp(body) => reported.extend(qp::destroy(hca, body)?.as_bytes()),
            Body::Srq(body) => reported.extend(srq::destroy(hca, body)?.as_bytes()),
            Body::Devx(body) => devx::destroy(hca, body)?,
            Body::Umem(body) => devx::destroy_umem(hca, body)?,
        }
        state.objects.remove(handle);
        Ok(reported)
    }

    /// Ends everything that was made through the file. The handles are left, to be given back.
    fn clean_up(&self, state: &mut State) {
        // A queue pair leaves its groups before it ends, as it does when the kernel cleans up.
        for handle in state.objects.of_kind(object::QP) {
            if let Ok(qp) = state.objects.qp_mut(handle) {
                qp::leave_groups(&self.hca, qp);
            }
        }
        // Users come after what they use; what refuses is tried again after the others.
        loop {
            let handles = state.objects.newest_first();
            let before = handles.len();
            for handle in handles {
                let Ok(kind) = state.objects.get(handle).map(Body::kind) else { continue };
                // A refusal shows in the handles that are left.
                if let Ok(report) = self.destroy(state, handle) {
                    state.ended.insert(handle, Ended { kind, report });
                }
            }
            if state.objects.newest_first().len() == before {
                break;
            }
        }
        if let Some(context) = state.context.take() {
            let mut input = <DeallocTransportDomainIn as mlx5_prm::cmd::CommandInput>::request();
            input.set_transport_domain(context.transport_domain);
            // Nobody is left to be told of a refusal; the device's counts show it.
            let _ = self.hca.command(&input);
            if context.uid != 0 {
                let _ = destroy_uctx(&self.hca, context.uid);
            }
        }
        for (_, queue) in state.channels.values() {
            queue.close();
        }
        state.default_async = None;
    }

    /// Loses the device.
    pub(crate) fn disassociate(&self) {
        self.clean_up(&mut lock(&self.state));
    }

    fn forget_channel(&self, fd: RawFd) {
        let mut state = lock(&self.state);
        let removed = state.channels.remove(&fd);
        if let (Some((_, queue)), Some(default)) = (&removed, &state.default_async)
            && Arc::ptr_eq(queue, default)
        {
            state.default_async = None;
        }
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // What a forked child closes is not the parent's last reference.
        if self.hca.is_this_process() {
            let mut state = std::mem::take(&mut *lock(&self.state));
            self.clean_up(&mut state);
        }
    }
}

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
        // SAFETY: the caller's contract; the attributes and what they point to are the call's
        // until it returns.
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

    /// One call, of which header and attributes are here. What the attributes point to is in the
    /// process, where an address that is not good is a fault.
    pub fn call(&self, words: &mut [u64]) -> Result<(), Errno> {
        let room = size_of_val(words);
        let header: *mut IoctlHeader = words.as_mut_ptr().cast();
        if room < size_of::<IoctlHeader>() {
            return Err(Errno::EFAULT);
        }
        // SAFETY: there are as many words, and every value of them is a header.
        let counted = usize::from(unsafe { (*header).num_attrs });
        if size_of::<IoctlHeader>() + counted * size_of::<IoctlAttr>() > room {
            return Err(Errno::EFAULT);
        }
        let _current = Current::enter(Some(&self.process));
        // SAFETY: header and attributes are the words; the addresses are another process's.
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
        // SAFETY: the caller's contract; without a process the addresses are this one's.
        unsafe { self.0.ioctl(header) }
    }

    fn map(&self, offset: u64, len: usize, access: Access) -> Result<Mapping, Errno> {
        self.0.calls.enter()?;
        self.0.check_device()?;
        self.0.hca.clocks.tick();
        if offset == MmapCommand::ClockInfo.offset(0, page_size()) {
            return clock::map_info(&self.0, len, access);
        }
        if offset == MmapCommand::CoreClock.offset(0, page_size()) {
            return clock::map_core(&self.0, len, access);
        }
        let state = lock(&self.0.state);
        let what = state.objects.mapped_at(offset).ok_or(Errno::EINVAL)?;
        drop(state);
        match what {
            Mappable::Uar(page) => uar::map(&self.0, page, len),
            Mappable::Dm(pages) => dm::map(&self.0, pages, len),
        }
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Mapping, Errno> {
        // Anonymous memory has nothing to do with whether the device is there.
        self.0.calls.enter()?;
        memory::allocate(&self.0.hca.fabric, request)
    }

    /// Any number will do: it is looked up.
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
