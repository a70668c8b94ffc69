//! Open devices: their table of functions, and what the objects of one share.

use crate::abi::*;
use crate::device::DeviceObject;
use crate::environment::Environment;
use crate::kernel::BlockingFile;
use crate::object::Blank;
use crate::process::InProcess;
use crate::refusal::{Verb, object, status};
use crate::{cq, dm, domain, dv, mr, mw, qp, query, srq, xrc};
use mlx5::{Context, CqId, Devx, OpenOptions, QpId, SrqId};
use mlx5_uapi::{DeviceFile, LinuxKernel};
use std::collections::HashMap;
use std::hash::Hash;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Objects of C by the identifier that events have. An object that was removed gets no event.
pub(crate) struct ById<I, T>(Mutex<HashMap<I, Counted<T>>>);

/// An object, and how many of its events were handed out.
struct Counted<T> {
    object: *mut T,
    told: u32,
}

// SAFETY: the pointers are only handed on, under the lock.
unsafe impl<I: Send, T> Send for ById<I, T> {}
// SAFETY: as above.
unsafe impl<I: Send, T> Sync for ById<I, T> {}

impl<I: Eq + Hash, T> ById<I, T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<I, Counted<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, id: I, object: *mut T) {
        self.lock().insert(id, Counted { object, told: 0 });
    }

    /// The object that an event is about, which was told of it once more.
    pub(crate) fn tell(&self, id: &I) -> Option<*mut T> {
        let mut objects = self.lock();
        let found = objects.get_mut(id)?;
        found.told = found.told.wrapping_add(1);
        Some(found.object)
    }

    /// How many events the object was told, after which it gets no more.
    pub(crate) fn remove(&self, id: &I) -> u32 {
        self.lock().remove(id).map_or(0, |object| object.told)
    }
}

/// An open device.
#[repr(C)]
pub(crate) struct ContextObject {
    verbs: verbs_context,
    /// Before the context: see there.
    pub(crate) dv: dv::State,
    pub(crate) context: InProcess<Context>,
    pub(crate) environment: Environment,
    pub(crate) qps: ById<QpId, ibv_qp>,
    pub(crate) cqs: ById<CqId, ibv_cq>,
    pub(crate) srqs: ById<SrqId, ibv_srq>,
}

impl ContextObject {
    /// # Safety
    /// `context` is an open context.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: by the contract, the context is that field of an object of this type.
        unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast() }
    }

    fn as_c(this: *mut Self) -> *mut ibv_context {
        this.wrapping_byte_add(offset_of!(verbs_context, context)).cast()
    }

    pub(crate) fn file(&self) -> &dyn DeviceFile {
        &**self.context.device_file()
    }
}

/// The functions that inline functions of the header call by the context.
fn table(device: *mut ibv_device, context: &Context) -> verbs_context {
    let mut verbs = verbs_context::blank();
    verbs.sz = size_of::<verbs_context>();
    verbs.query_port = Some(query::query_port);
    verbs.query_device_ex = Some(query::query_device_ex);
    verbs.alloc_td = Some(domain::alloc_td);
    verbs.dealloc_td = Some(domain::dealloc_td);
    verbs.alloc_parent_domain = Some(domain::alloc_parent_domain);
    verbs.open_xrcd = Some(xrc::open_xrcd);
    verbs.close_xrcd = Some(xrc::close_xrcd);
    verbs.open_qp = Some(xrc::open_qp);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    verbs.post_srq_ops = Some(srq::tags::post_srq_ops);
    verbs.advise_mr = Some(mr::advise_mr);
    verbs.alloc_dm = Some(dm::alloc_dm);
    verbs.free_dm = Some(dm::free_dm);
    verbs.reg_dm_mr = Some(dm::reg_dm_mr);
    verbs.create_cq_ex = Some(cq::extended::create_cq_ex);
    verbs.modify_cq = Some(cq::modify_cq);
    verbs.create_qp_ex = Some(qp::create::create_qp_ex);
    let c = &mut verbs.context;
    c.device = device;
    c.cmd_fd = context.device_file().as_fd().map_or(-1, |fd| fd.as_raw_fd());
    c.async_fd = context.async_events().as_fd().as_raw_fd();
    c.num_comp_vectors = context.num_comp_vectors() as c_int;
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    // In front of the context is a table.
    c.abi_compat = usize::MAX as *mut c_void;
    c.ops._compat_query_device = Some(query::query_device);
    c.ops._compat_query_port = Some(query::query_port_compat);
    c.ops.alloc_mw = Some(mw::alloc_mw);
    c.ops.bind_mw = Some(mw::bind_mw);
    c.ops.dealloc_mw = Some(mw::dealloc_mw);
    c.ops.poll_cq = Some(cq::poll::poll_cq);
    c.ops.req_notify_cq = Some(cq::req_notify_cq);
    c.ops.post_srq_recv = Some(srq::post_srq_recv);
    c.ops.post_send = Some(qp::post::post_send);
    c.ops.post_recv = Some(qp::post::post_recv);
    verbs
}

/// Opens a device of a device list.
pub(crate) fn open(device: *mut ibv_device, devx: Devx) -> Verb<*mut ibv_context> {
    let environment = Environment::read();
    let options = OpenOptions::new().blueflame(environment.blueflame).devx(devx);
    // SAFETY: by the contract of `open_device`.
    let device = unsafe { DeviceObject::of(device) };
    let context = device.device.open_with(&options)?;
    Ok(make(device, context, environment))
}

/// The context of a child process: it takes part in its parent's.
fn in_child(device: &'static DeviceObject, parents: &Context) -> Option<Context> {
    let fd = parents.device_file().as_fd()?.try_clone_to_owned().ok()?;
    let options = OpenOptions::new().blueflame(Environment::read().blueflame);
    device.device.import(BlockingFile::over(LinuxKernel::adopt(fd)), &options).ok()
}

/// Takes part in a context that is open already.
pub(crate) fn import(
    device: &'static DeviceObject,
    file: Arc<dyn DeviceFile>,
) -> Verb<*mut ibv_context> {
    let environment = Environment::read();
    let options = OpenOptions::new().blueflame(environment.blueflame);
    let context = device.device.import(BlockingFile::over(file), &options)?;
    Ok(make(device, context, environment))
}

fn make(
    device: &'static DeviceObject,
    context: Context,
    environment: Environment,
) -> *mut ibv_context {
    let verbs = table(device.as_c(), &context);
    let made = Box::new(ContextObject {
        verbs,
        dv: dv::State::default(),
        context: InProcess::new(
            context,
            Arc::new(move |parents: &Context| in_child(device, parents)),
        ),
        environment,
        qps: ById::new(),
        cqs: ById::new(),
        srqs: ById::new(),
    });
    ContextObject::as_c(Box::into_raw(made))
}

/// `ibv_open_device`.
///
/// # Safety
/// `device` is from a device list.
pub unsafe extern "C" fn open_device(device: *mut ibv_device) -> *mut ibv_context {
    object(open(device, Devx::Auto))
}

/// `ibv_close_device`.
///
/// # Safety
/// `context` is open; nothing of it is used any more.
pub unsafe extern "C" fn close_device(context: *mut ibv_context) -> c_int {
    let start = context.wrapping_byte_sub(offset_of!(verbs_context, context));
    // SAFETY: by the contract; the box was made by `open`.
    let this = unsafe { Box::<ContextObject>::from_raw(start.cast()) };
    let ContextObject { dv, context, .. } = *this;
    drop(dv);
    drop(context.into_inner());
    status(Ok(()))
}

/// Waits until as many events were acknowledged as the object was told.
///
/// # Safety
/// `mutex` and `cond` are the object's, `completed` the counter that they guard.
pub(crate) unsafe fn wait_for_acks(
    mutex: *mut PthreadMutex,
    cond: *mut PthreadCond,
    completed: *const u32,
    told: u32,
) {
    // SAFETY: by the contract.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        while completed.read_volatile() != told {
            libc::pthread_cond_wait(cond, mutex);
        }
        libc::pthread_mutex_unlock(mutex);
    }
}

/// Counts acknowledged events, and wakes who waits to destroy the object.
///
/// # Safety
/// As for [`wait_for_acks`]; the counter is writable.
pub(crate) unsafe fn acknowledge(
    mutex: *mut PthreadMutex,
    cond: *mut PthreadCond,
    completed: *mut u32,
    events: u32,
) {
    // SAFETY: by the contract.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        completed.write_volatile(completed.read_volatile().wrapping_add(events));
        libc::pthread_cond_signal(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}
