//! Opens devices: makes contexts, and the table of functions of each context.

use crate::abi::*;
use crate::context::{ContextObject, Objects, Watched};
use crate::device::DeviceObject;
use crate::dv_state::DvState;
use crate::environment::Environment;
use crate::kernel::BlockingFile;
use crate::object::Blank;
use crate::process::InProcess;
use crate::refusal::{Verb, object};
use crate::{clock, close, counters, cq, dm, domain, flow, mr, mw, qp, query, srq, wq, xrc};
use mlx5::{Context, Devx, OpenOptions};
use mlx5_uapi::{DeviceFile, LinuxKernel};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// Makes the table of functions that the inline functions of the C header call through a context.
fn table(device: *mut ibv_device, context: &Context) -> verbs_context {
    let mut verbs = verbs_context::blank();
    verbs.sz = size_of::<verbs_context>();
    verbs.query_port = Some(query::query_port);
    verbs.query_rt_values = Some(clock::query_rt_values);
    verbs.query_device_ex = Some(query::query_device_ex);
    verbs.alloc_td = Some(domain::alloc_td);
    verbs.dealloc_td = Some(domain::dealloc_td);
    verbs.alloc_parent_domain = Some(domain::alloc_parent_domain);
    verbs.open_xrcd = Some(xrc::open_xrcd);
    verbs.close_xrcd = Some(xrc::close_xrcd);
    verbs.open_qp = Some(qp::target::open_qp);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    verbs.post_srq_ops = Some(srq::tags::post_srq_ops);
    verbs.alloc_null_mr = Some(mr::alloc_null_mr);
    verbs.advise_mr = Some(mr::advise_mr);
    verbs.alloc_dm = Some(dm::alloc_dm);
    verbs.free_dm = Some(dm::free_dm);
    verbs.reg_dm_mr = Some(dm::reg_dm_mr);
    verbs.create_cq_ex = Some(cq::extended::create_cq_ex);
    verbs.modify_cq = Some(cq::modify_cq);
    verbs.create_qp_ex = Some(qp::create::create_qp_ex);
    verbs.modify_qp_rate_limit = Some(qp::packet::modify_qp_rate_limit);
    verbs.create_wq = Some(wq::create_wq);
    verbs.modify_wq = Some(wq::modify_wq);
    verbs.destroy_wq = Some(wq::destroy_wq);
    verbs.create_rwq_ind_table = Some(wq::create_rwq_ind_table);
    verbs.destroy_rwq_ind_table = Some(wq::destroy_rwq_ind_table);
    verbs.ibv_create_flow = Some(flow::create_flow);
    verbs.ibv_destroy_flow = Some(flow::destroy_flow);
    verbs.create_counters = Some(counters::create_counters);
    verbs.destroy_counters = Some(counters::destroy_counters);
    verbs.attach_counters_point_flow = Some(counters::attach_counters_point_flow);
    verbs.read_counters = Some(counters::read_counters);
    let c = &mut verbs.context;
    c.device = device;
    // SAFETY: this function only copies the descriptor's number to a field. The C program is
    // responsible for what it does with the descriptor, just as with rdma-core's libibverbs.
    c.cmd_fd = unsafe { context.device_file() }.as_fd().map_or(-1, |fd| fd.as_raw_fd());
    c.async_fd = context.async_events().as_fd().as_raw_fd();
    c.num_comp_vectors = context.num_comp_vectors() as c_int;
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    // This value marks a context inside a `verbs_context`, whose functions lie before the context.
    c.abi_compat = usize::MAX as *mut c_void;
    c.ops._compat_query_device = Some(query::query_device);
    c.ops._compat_query_port = Some(query::query_port_compat);
    c.ops.alloc_mw = Some(mw::alloc_mw);
    c.ops.bind_mw = Some(qp::bind::bind_mw);
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
    close::again();
    // SAFETY: the caller of `open_device` promises that `device` is from a device list.
    let device = unsafe { DeviceObject::of(device) };
    let context = device.device.open_with(&options)?;
    Ok(make(device, context, environment))
}

/// Makes the context of a forked child, which shares the parent's device file. Returns `None` if
/// that fails.
fn in_child(device: &'static DeviceObject, parents: &Context) -> Option<Context> {
    // SAFETY: the descriptor is only duplicated here, and the child's context, which uses the
    // duplicate, destroys no object of the parent.
    let fd = unsafe { parents.device_file() }.as_fd()?.try_clone_to_owned().ok()?;
    let options = OpenOptions::new().blueflame(Environment::read().blueflame);
    device.device.import(BlockingFile::over(LinuxKernel::adopt(fd)), &options).ok()
}

/// Makes a context on `file`, a device file that is already open.
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
        dv: DvState::default(),
        context: InProcess::new(
            context,
            Arc::new(move |parents: &Context| in_child(device, parents)),
        ),
        environment,
        objects: Objects::new(),
        watched: Watched::default(),
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
