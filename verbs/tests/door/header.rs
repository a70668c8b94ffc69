//! The inline functions of `infiniband/verbs.h`: programs call these operations through the table
//! of their context, and through those of extended objects.

use mlx5_verbs::abi::*;
use std::mem::{offset_of, zeroed};

/// Makes calls that a C program may make.
macro_rules! c {
    ($($does:tt)*) => {{
        #[allow(unused_unsafe, reason = "some expressions are part of others")]
        // SAFETY: the tests follow the rules for C programs: objects and variables exist, and are
        // not used after they are destroyed.
        unsafe {
            $($does)*
        }
    }};
}
pub(crate) use c;

/// A structure of zeros, as `= {}` in C.
pub(crate) fn blank<T>() -> T {
    // SAFETY: it is used for C structures only: numbers, pointers and optional functions, for which
    // zeros are valid.
    unsafe { zeroed() }
}

/// `errno` of this thread.
pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// The table before a context.
fn table(context: *mut ibv_context) -> &'static verbs_context {
    c!(&*context.byte_sub(offset_of!(verbs_context, context)).cast())
}

pub(crate) fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    c!(((*(*cq).context).ops.poll_cq.unwrap())(cq, count, wc))
}

pub(crate) fn req_notify_cq(cq: *mut ibv_cq, solicited_only: bool) -> c_int {
    c!(((*(*cq).context).ops.req_notify_cq.unwrap())(cq, solicited_only.into()))
}

pub(crate) fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: &mut *mut ibv_send_wr,
) -> c_int {
    c!(((*(*qp).context).ops.post_send.unwrap())(qp, wr, bad))
}

pub(crate) fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    c!(((*(*qp).context).ops.post_recv.unwrap())(qp, wr, bad))
}

pub(crate) fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: &mut *mut ibv_recv_wr,
) -> c_int {
    c!(((*(*srq).context).ops.post_srq_recv.unwrap())(srq, wr, bad))
}

pub(crate) fn alloc_mw(pd: *mut ibv_pd, kind: c_uint) -> *mut ibv_mw {
    c!(((*(*pd).context).ops.alloc_mw.unwrap())(pd, kind))
}

pub(crate) fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    c!(((*(*mw).context).ops.dealloc_mw.unwrap())(mw))
}

pub(crate) fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: &mut ibv_mw_bind) -> c_int {
    c!(((*(*mw).context).ops.bind_mw.unwrap())(qp, mw, bind))
}

/// The operations of the table before a context, one per line.
macro_rules! operations {
    ($($name:ident $slot:ident($($argument:ident: $ty:ty),*) -> $result:ty, of $context:expr;)*) => {$(
        pub(crate) fn $name($($argument: $ty),*) -> $result {
            c!((table($context).$slot.unwrap())($($argument),*))
        }
    )*};
}

operations! {
    query_port query_port(context: *mut ibv_context, port: u8, to: *mut ibv_port_attr, size: usize)
        -> c_int, of context;
    query_device_ex query_device_ex(context: *mut ibv_context, input: *const ibv_query_device_ex_input,
        to: *mut ibv_device_attr_ex, size: usize) -> c_int, of context;
    create_cq_ex create_cq_ex(context: *mut ibv_context, init: *mut ibv_cq_init_attr_ex)
        -> *mut ibv_cq_ex, of context;
    modify_cq modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int, of c!((*cq).context);
    create_qp_ex create_qp_ex(context: *mut ibv_context, init: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
        of context;
    create_srq_ex create_srq_ex(context: *mut ibv_context, init: *mut ibv_srq_init_attr_ex)
        -> *mut ibv_srq, of context;
    get_srq_num get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int, of c!((*srq).context);
    alloc_td alloc_td(context: *mut ibv_context, init: *mut ibv_td_init_attr) -> *mut ibv_td, of context;
    dealloc_td dealloc_td(td: *mut ibv_td) -> c_int, of c!((*td).context);
    alloc_parent_domain alloc_parent_domain(context: *mut ibv_context,
        init: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd, of context;
    open_xrcd open_xrcd(context: *mut ibv_context, init: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd,
        of context;
    close_xrcd close_xrcd(xrcd: *mut ibv_xrcd) -> c_int, of c!((*xrcd).context);
    alloc_dm alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm, of context;
    free_dm free_dm(dm: *mut ibv_dm) -> c_int, of c!((*dm).context);
    reg_dm_mr reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, offset: u64, length: usize, access: c_uint)
        -> *mut ibv_mr, of c!((*pd).context);
    alloc_null_mr alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr, of c!((*pd).context);
    create_wq create_wq(context: *mut ibv_context, init: *mut ibv_wq_init_attr) -> *mut ibv_wq, of context;
    modify_wq modify_wq(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int, of c!((*wq).context);
    destroy_wq destroy_wq(wq: *mut ibv_wq) -> c_int, of c!((*wq).context);
    create_rwq_ind_table create_rwq_ind_table(context: *mut ibv_context,
        init: *mut ibv_rwq_ind_table_init_attr) -> *mut ibv_rwq_ind_table, of context;
    destroy_rwq_ind_table destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int,
        of c!((*table).context);
    create_flow ibv_create_flow(qp: *mut ibv_qp, attr: *mut ibv_flow_attr) -> *mut ibv_flow,
        of c!((*qp).context);
    destroy_flow ibv_destroy_flow(flow: *mut ibv_flow) -> c_int, of c!((*flow).context);
    create_counters create_counters(context: *mut ibv_context, init: *mut ibv_counters_init_attr)
        -> *mut ibv_counters, of context;
    destroy_counters destroy_counters(counters: *mut ibv_counters) -> c_int, of c!((*counters).context);
    attach_counters attach_counters_point_flow(counters: *mut ibv_counters,
        attr: *mut ibv_counter_attach_attr, flow: *mut ibv_flow) -> c_int, of c!((*counters).context);
    read_counters read_counters(counters: *mut ibv_counters, values: *mut u64, count: u32, flags: u32)
        -> c_int, of c!((*counters).context);
}
