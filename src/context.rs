//! An open device, and the state that its objects share.

use crate::{
    device::OpenOptions,
    error::{Error, ErrorKind},
    event::CqId,
    kept::Kept,
    mkey::SignedKeys,
    query::PortAttr,
    records::Records,
    uar::Uars,
    user_index::{UserIndex, UserIndexes},
};
use mlx5_cq::Attention;
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::caps::{CapGroup, CapMode, HcaCap, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_uapi::process::Origin;
use mlx5_uapi::{
    DeviceFile, Errno, EventFile, Kernel, Mapping,
    cmd::{context as command, devx, event, query},
    mlx5::{self, AllocUcontextReqV2, AllocUcontextResp, LibCaps, UcontextFlags, UcontextRespMask},
    sysfs::DeviceInfo,
    verbs::{AtomicCap, CoreSupport, LinkLayer},
    wait::wait_readable,
    write_cmd::ExQueryDeviceResp,
};
use mlx5_wqe::Gate;
use std::{
    collections::HashMap,
    fmt,
    io::{PipeReader, PipeWriter, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// An open device (`struct ibv_context`). Clones share the context; every object created from it
/// keeps it open.
#[derive(Clone)]
pub struct Context {
    pub(crate) inner: Arc<Inner>,
}

/// Whether a context uses DEVX, the kernel's interface to firmware commands. Cancelling, mkeys and
/// signature pipelining need it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Devx {
    /// Uses DEVX if the kernel grants it.
    #[default]
    Auto,
    /// Requires DEVX: opening fails without it.
    Require,
    /// Does not request DEVX.
    Off,
}

/// Capabilities, queried when the device was opened.
pub(crate) struct Caps {
    /// The answer of ib_core to QUERY_DEVICE.
    pub(crate) device: ExQueryDeviceResp,
    /// The answer of mlx5_ib to QUERY_DEVICE.
    pub(crate) driver: mlx5::QueryDeviceResp,
    /// Number of completion vectors.
    pub(crate) num_comp_vectors: u32,
    /// Optional features that ib_core supports.
    pub(crate) core_support: CoreSupport,
    /// The ports, in order. Their properties do not change.
    ports: Vec<Link>,
}

/// The constant properties of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// Ethernet, that is RoCE; otherwise InfiniBand.
    pub(crate) ethernet: bool,
    /// Every path needs a GRH.
    pub(crate) grh_required: bool,
    /// Maximum message size in bytes.
    pub(crate) max_msg_sz: u32,
}

impl Link {
    fn of(port: &PortAttr) -> Self {
        Self {
            ethernet: port.link_layer == LinkLayer::Ethernet,
            grh_required: port.grh_required,
            max_msg_sz: port.max_msg_sz,
        }
    }
}

/// A queue to be notified when the device goes away.
pub(crate) enum Watched {
    /// A queue that requests are posted to.
    Queue(Gate),
    /// A completion queue.
    Completions(Attention, CqId),
}

impl Watched {
    fn set_gone(&self) {
        match self {
            Self::Queue(gate) => gate.set_gone(),
            Self::Completions(attention, _) => attention.set_gone(),
        }
    }
}

/// Identifies a [`Watched`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct WatchId(u64);

/// The shared state of a context, which all its objects keep alive.
pub(crate) struct Inner {
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) info: DeviceInfo,
    pub(crate) limits: AllocUcontextResp,
    pub(crate) caps: Caps,
    pub(crate) user_indexes: Arc<UserIndexes>,
    pub(crate) uars: Uars,
    pub(crate) signed_keys: Arc<SignedKeys>,
    devx: bool,
    /// The process that opened the device.
    process: Origin,
    gone: AtomicBool,
    /// A pipe with one byte in it once the device is gone: wakes sleeping threads.
    gone_note: (PipeReader, PipeWriter),
    /// Whether any completion queue was marked as overrun, and the pipe that then wakes sleeping
    /// threads.
    overrun: AtomicBool,
    overrun_note: (PipeReader, PipeWriter),
    watched: Mutex<HashMap<WatchId, Watched>>,
    ids: AtomicU64,
    // Drop order: device pages are unmapped (see `Drop`); the files close, which destroys every
    // object; then the memory of objects that the kernel did not destroy is freed.
    pub(crate) async_file: Box<dyn EventFile>,
    pub(crate) file: Arc<dyn DeviceFile>,
    pub(crate) records: Records,
    kept: Kept,
}

const OPEN: &str = "open_device";

/// Maximum size of a send WQE in bytes: the control segment counts units in six bits.
const LONGEST_REQUEST: u16 = (mlx5_prm::wqe::MAX_UNITS * mlx5_prm::wqe::UNIT) as u16;

impl Inner {
    /// Opens a device. On failure, closing the file undoes the earlier steps.
    pub(crate) fn open(
        kernel: Arc<dyn Kernel>,
        info: &DeviceInfo,
        options: &OpenOptions,
    ) -> Result<Arc<Self>, Error> {
        let refused = |errno| Error::kernel(OPEN, errno);
        let file = kernel.open(&info.uverbs, info.dev).map_err(refused)?;
        command::probe(&*file).map_err(|error| Error::probe(OPEN, error))?;
        let context = get_context(&*file, options.devx)?;
        let caps = Caps::query(&*file, &context)?;
        let async_file = event::alloc_async(&*file).map_err(refused)?;
        let blueflame_size = if options.blueflame { context.driver.bf_reg_size } else { 0 };
        let pages = options.max_blueflame_pages as usize;
        let note = || {
            std::io::pipe().map_err(|error| {
                refused(error.raw_os_error().map_or(Errno::EMFILE, Errno::from_raw))
            })
        };
        let (gone_note, overrun_note) = (note()?, note()?);
        let uars = Uars::new(&*file, blueflame_size, pages).map_err(refused)?;
        let records = Records::new(&*file).map_err(refused)?;
        Ok(Arc::new(Self {
            kernel,
            info: info.clone(),
            limits: AllocUcontextResp {
                // The device may allow more than a control segment can count.
                max_sq_desc_sz: context.driver.max_sq_desc_sz.min(LONGEST_REQUEST),
                ..context.driver
            },
            caps,
            user_indexes: Arc::new(UserIndexes::default()),
            uars,
            signed_keys: Arc::default(),
            devx: context.devx,
            process: Origin::here(),
            gone: AtomicBool::new(false),
            gone_note,
            overrun: AtomicBool::new(false),
            overrun_note,
            watched: Mutex::default(),
            ids: AtomicU64::new(1),
            async_file,
            file,
            records,
            kept: Kept::default(),
        }))
    }

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

    /// Makes a call, after [`Inner::check`].
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

    /// Returns the error for a failed call. `EIO` has many causes: a second call finds out whether
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

    /// Returns the error for a failed DEVX command with output `answer`.
    pub(crate) fn fail_devx(&self, operation: &'static str, errno: Errno, answer: &[u8]) -> Error {
        let error = Error::devx(operation, errno, answer);
        if error.kind() == ErrorKind::Firmware { error } else { self.fail(operation, errno) }
    }

    /// Whether the device is known to be gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    fn watched(&self) -> MutexGuard<'_, HashMap<WatchId, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the device as gone: later calls and posts fail, and polls fail when no CQE is left.
    pub(crate) fn mark_gone(&self) {
        let watched = self.watched();
        if !self.gone.swap(true, Relaxed) {
            // Written once and never read: the pipe has room.
            let _ = (&self.gone_note.1).write(&[1]);
        }
        watched.values().for_each(Watched::set_gone);
    }

    /// Readable once the device is known to be gone.
    pub(crate) fn gone_fd(&self) -> BorrowedFd<'_> {
        self.gone_note.0.as_fd()
    }

    /// Marks a completion queue as overrun: once it is empty, polls fail.
    pub(crate) fn mark_overrun(&self, cq: CqId) {
        for watched in self.watched().values() {
            if let Watched::Completions(attention, id) = watched
                && *id == cq
            {
                attention.set_overrun();
            }
        }
        // After the marking above, so that a thread woken by the byte sees it.
        if !self.overrun.swap(true, Relaxed) {
            // Written once and never read: the pipe has room.
            let _ = (&self.overrun_note.1).write(&[1]);
        }
    }

    /// Readable once any completion queue was marked as overrun.
    pub(crate) fn overrun_fd(&self) -> BorrowedFd<'_> {
        self.overrun_note.0.as_fd()
    }

    /// Registers `what` for notification when the device goes away; notifies it now if it is gone.
    pub(crate) fn watch(&self, what: Watched) -> WatchId {
        let id = WatchId(self.next_handle_id());
        let mut watched = self.watched();
        if self.is_gone() {
            what.set_gone();
        }
        watched.insert(id, what);
        id
    }

    /// Removes a registration. The memory of the queue's words may be freed afterwards.
    pub(crate) fn unwatch(&self, id: WatchId) {
        // After a fork, a thread that does not exist in the child may hold the lock.
        if !self.forked() {
            self.watched().remove(&id);
        }
    }

    /// Checks whether the device is still there. The event file of a removed device is readable.
    #[cold]
    pub(crate) fn check_alive(&self) {
        if self.is_gone() || self.forked() {
            return;
        }
        if !matches!(wait_readable(self.async_fd(), Some(Duration::ZERO)), Ok(false)) {
            self.ask_whether_gone();
        }
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

    /// Keeps such memory until the process ends, because freeing it would let its owner use it
    /// again.
    pub(crate) fn keep_for_good(&self, memory: Mapping) {
        if self.forked() { memory.leak() } else { self.kept.for_good(memory) }
    }

    /// Keeps the records of a queue that was not destroyed: CQEs may still name it.
    pub(crate) fn keep_index(&self, index: Arc<UserIndex>) {
        if self.forked() { std::mem::forget(index) } else { self.kept.index(index) }
    }

    /// Returns a number that is unique in the context.
    pub(crate) fn next_handle_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    /// Whether DEVX commands are available.
    pub(crate) fn has_devx(&self) -> bool {
        self.devx
    }

    /// Runs a firmware command that creates an object. Returns the kernel's handle.
    ///
    /// # Safety
    /// The command may name memory and objects. It must not harm any that others rely on.
    pub(crate) unsafe fn devx_create(
        &self,
        operation: &'static str,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<u32, Error> {
        self.check(operation)?;
        if !self.devx {
            return Err(Error::no_devx(operation));
        }
        // SAFETY: the caller guarantees that the command does no harm.
        unsafe { devx::obj_create(&*self.file, input, output) }
            .map_err(|errno| self.fail_devx(operation, errno, output))
    }

    /// Runs a firmware command that modifies the object with the kernel's `handle`.
    ///
    /// # Safety
    /// As for [`Inner::devx_create`].
    pub(crate) unsafe fn devx_modify(
        &self,
        operation: &'static str,
        handle: u32,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Error> {
        self.check(operation)?;
        if !self.devx {
            return Err(Error::no_devx(operation));
        }
        // SAFETY: the caller guarantees that the command does no harm.
        unsafe { devx::obj_modify(&*self.file, handle, input, output) }
            .map_err(|errno| self.fail_devx(operation, errno, output))
    }

    /// Destroys an object made by [`Inner::devx_create`].
    pub(crate) fn devx_destroy(&self, operation: &'static str, handle: u32) -> Result<(), Error> {
        self.run_destroy(operation, |file| devx::obj_destroy(file, handle))
    }

    /// Whether mlx5_ib reported this feature when the device was opened.
    pub(crate) fn kernel_can(&self, what: UcontextRespMask) -> bool {
        UcontextRespMask::from_bits_retain(self.limits.comp_mask).contains(what)
    }

    /// Queries the current general HCA capabilities (QUERY_HCA_CAP), on behalf of `operation`.
    pub(crate) fn hca_cap(&self, operation: &'static str) -> Result<HcaCap, Error> {
        self.check(operation)?;
        if !self.devx {
            return Err(Error::no_devx(operation));
        }
        let mut request = QueryHcaCapIn::request();
        request.set_op_mod(CapGroup::GENERAL.op_mod(CapMode::CURRENT));
        let mut answer = Box::new(QueryHcaCapOut::default());
        // SAFETY: QUERY_HCA_CAP names no memory or object and changes nothing.
        unsafe { devx::general_cmd(&*self.file, request.as_bytes(), answer.as_bytes_mut()) }
            .map_err(|errno| self.fail_devx(operation, errno, answer.as_bytes()))?;
        Ok(*answer.hca_cap())
    }

    /// Runs a firmware command that queries the object with the kernel's `handle`.
    pub(crate) fn devx_query(
        &self,
        operation: &'static str,
        handle: u32,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), Error> {
        self.check(operation)?;
        if !self.devx {
            return Err(Error::no_devx(operation));
        }
        devx::obj_query(&*self.file, handle, input, output)
            .map_err(|errno| self.fail_devx(operation, errno, output))
    }

    /// The file of asynchronous events.
    pub(crate) fn async_fd(&self) -> BorrowedFd<'_> {
        self.async_file.as_fd()
    }

    /// Number of completion vectors.
    pub(crate) fn num_comp_vectors(&self) -> u32 {
        self.caps.num_comp_vectors
    }

    /// Maximum number of CQEs of a completion queue.
    pub(crate) fn max_cqe(&self) -> u32 {
        self.caps.device.base.max_cqe
    }

    /// Whether the device supports atomics.
    pub(crate) fn has_atomics(&self) -> bool {
        AtomicCap::from_raw(self.caps.device.base.atomic_cap)
            .is_some_and(|cap| cap != AtomicCap::None)
    }

    /// Maximum message size that all ports support, in bytes.
    pub(crate) fn max_message(&self) -> u32 {
        self.caps.ports.iter().map(|link| link.max_msg_sz).min().unwrap_or(0)
    }

    /// Number of ports.
    pub(crate) fn num_ports(&self) -> usize {
        self.caps.ports.len()
    }

    /// Returns the properties of a port, counted from 1.
    pub(crate) fn link(&self, operation: &'static str, port_num: u8) -> Result<Link, Error> {
        let link = usize::from(port_num).checked_sub(1).and_then(|i| self.caps.ports.get(i));
        link.copied().ok_or_else(|| {
            let what =
                format!("port {port_num} does not exist: ports are 1 to {}", self.num_ports());
            Error::invalid(operation, what)
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.forked() {
            self.uars.abandon();
            self.records.abandon();
            self.kept.abandon();
            return;
        }
        self.uars.close(&*self.file);
        // The [`Kernel`] may hold another reference to the file: then dropping ours does not close
        // it.
        if Arc::get_mut(&mut self.file).is_none() {
            self.records.never_free();
            self.kept.never_free();
        }
    }
}

impl Caps {
    fn query(file: &dyn DeviceFile, context: &command::GetContext) -> Result<Self, Error> {
        let refused = |errno| Error::kernel(OPEN, errno);
        let (device, driver) = query::device(file).map_err(refused)?;
        let ports = (1..=context.driver.num_ports.min(u8::MAX.into()))
            .map(|port| Ok(Link::of(&PortAttr::from_kernel(&query::port(file, port as u8)?))))
            .collect::<Result<_, Errno>>()
            .map_err(refused)?;
        Ok(Self {
            device,
            driver,
            num_comp_vectors: context.num_comp_vectors,
            core_support: context.core_support,
            ports,
        })
    }
}

/// Issues GET_CONTEXT.
fn get_context(file: &dyn DeviceFile, wish: Devx) -> Result<command::GetContext, Error> {
    let flags = if wish == Devx::Off { UcontextFlags::empty() } else { UcontextFlags::DEVX };
    let request = AllocUcontextReqV2 {
        // Only kernels without dynamic UARs, which are too old, use these two counts; but all
        // kernels refuse a total of zero.
        total_num_bfregs: 2,
        num_low_latency_bfregs: 1,
        flags: flags.bits(),
        max_cqe_version: 1,
        lib_caps: LibCaps::all().bits(),
        ..AllocUcontextReqV2::default()
    };
    let context = command::get_context(file, &request).map_err(|e| Error::kernel(OPEN, e))?;
    if !context.lib_caps || context.driver.tot_bfregs != 0 {
        return Err(Error::too_old(OPEN));
    }
    if context.driver.cqe_version != 1 {
        let cause = "the device's completions carry no user index (CQE version 0), which this \
                     driver needs; newer firmware may help";
        return Err(Error::new(OPEN, ErrorKind::NotSupported, cause));
    }
    if wish == Devx::Require && !context.devx {
        return Err(Error::no_devx(OPEN));
    }
    Ok(context)
}

impl Context {
    /// The device's name, such as `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.inner.info.name
    }

    /// Number of completion vectors, over which completion queues spread their interrupts.
    pub fn num_comp_vectors(&self) -> u32 {
        self.inner.num_comp_vectors()
    }

    /// Number of ports, which are counted from 1.
    pub fn num_ports(&self) -> u32 {
        self.inner.num_ports() as u32
    }

    /// Whether DEVX was granted. Cancelling, mkeys and signature pipelining need it.
    pub fn has_devx(&self) -> bool {
        self.inner.has_devx()
    }

    /// Whether the device is known to be gone. Then calls and posts fail, and polls fail when no
    /// CQE is left.
    pub fn is_gone(&self) -> bool {
        self.inner.is_gone()
    }

    /// Number of memory areas that are kept because the kernel did not destroy the object for which
    /// the device uses them, or because creating the object failed with [`Error::in_doubt`].
    ///
    /// They are freed when the context closes, after its last handle is gone: closing the file
    /// destroys every object. Two kinds stay until the process ends, and [`leaked`](crate::leaked)
    /// counts them: memory of a [`QueueAllocator`](crate::QueueAllocator), and all of it if a
    /// [`Kernel`] implementation keeps the file open.
    pub fn leaked(&self) -> usize {
        self.inner.kept.pieces()
    }
}

impl PartialEq for Context {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Context {}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.inner.info.name).finish_non_exhaustive()
    }
}
