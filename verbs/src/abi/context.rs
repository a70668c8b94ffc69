//! Devices and contexts, with the tables of functions that inline functions of the header call.
//!
//! `infiniband/verbs.h`.

use super::*;

abi! {
    struct ibv_device_ops [16] {
        0 _dummy1: Option<unsafe extern "C" fn(
            device: *mut ibv_device, cmd_fd: c_int,
        ) -> *mut ibv_context>,
        8 _dummy2: Option<unsafe extern "C" fn(context: *mut ibv_context)>,
    }

    struct ibv_device [664] {
        0 ops: ibv_device_ops,
        16 node_type: c_uint,
        20 transport_type: c_uint,
        24 name: [c_char; 64],
        88 dev_name: [c_char; 64],
        152 dev_path: [c_char; 256],
        408 ibdev_path: [c_char; 256],
    }

    struct ibv_context_ops [256] {
        0 _compat_query_device: Option<unsafe extern "C" fn(
            context: *mut ibv_context, device_attr: *mut ibv_device_attr,
        ) -> c_int>,
        8 _compat_query_port: Option<unsafe extern "C" fn(
            context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr,
        ) -> c_int>,
        16 _compat_alloc_pd: Option<unsafe extern "C" fn() -> *mut c_void>,
        24 _compat_dealloc_pd: Option<unsafe extern "C" fn() -> *mut c_void>,
        32 _compat_reg_mr: Option<unsafe extern "C" fn() -> *mut c_void>,
        40 _compat_rereg_mr: Option<unsafe extern "C" fn() -> *mut c_void>,
        48 _compat_dereg_mr: Option<unsafe extern "C" fn() -> *mut c_void>,
        56 alloc_mw: Option<unsafe extern "C" fn(pd: *mut ibv_pd, _type: c_uint) -> *mut ibv_mw>,
        64 bind_mw: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind,
        ) -> c_int>,
        72 dealloc_mw: Option<unsafe extern "C" fn(mw: *mut ibv_mw) -> c_int>,
        80 _compat_create_cq: Option<unsafe extern "C" fn() -> *mut c_void>,
        88 poll_cq: Option<unsafe extern "C" fn(
            cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc,
        ) -> c_int>,
        96 req_notify_cq: Option<unsafe extern "C" fn(
            cq: *mut ibv_cq, solicited_only: c_int,
        ) -> c_int>,
        104 _compat_cq_event: Option<unsafe extern "C" fn() -> *mut c_void>,
        112 _compat_resize_cq: Option<unsafe extern "C" fn() -> *mut c_void>,
        120 _compat_destroy_cq: Option<unsafe extern "C" fn() -> *mut c_void>,
        128 _compat_create_srq: Option<unsafe extern "C" fn() -> *mut c_void>,
        136 _compat_modify_srq: Option<unsafe extern "C" fn() -> *mut c_void>,
        144 _compat_query_srq: Option<unsafe extern "C" fn() -> *mut c_void>,
        152 _compat_destroy_srq: Option<unsafe extern "C" fn() -> *mut c_void>,
        160 post_srq_recv: Option<unsafe extern "C" fn(
            srq: *mut ibv_srq, recv_wr: *mut ibv_recv_wr, bad_recv_wr: *mut *mut ibv_recv_wr,
        ) -> c_int>,
        168 _compat_create_qp: Option<unsafe extern "C" fn() -> *mut c_void>,
        176 _compat_query_qp: Option<unsafe extern "C" fn() -> *mut c_void>,
        184 _compat_modify_qp: Option<unsafe extern "C" fn() -> *mut c_void>,
        192 _compat_destroy_qp: Option<unsafe extern "C" fn() -> *mut c_void>,
        200 post_send: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr,
        ) -> c_int>,
        208 post_recv: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr,
        ) -> c_int>,
        216 _compat_create_ah: Option<unsafe extern "C" fn() -> *mut c_void>,
        224 _compat_destroy_ah: Option<unsafe extern "C" fn() -> *mut c_void>,
        232 _compat_attach_mcast: Option<unsafe extern "C" fn() -> *mut c_void>,
        240 _compat_detach_mcast: Option<unsafe extern "C" fn() -> *mut c_void>,
        248 _compat_async_event: Option<unsafe extern "C" fn() -> *mut c_void>,
    }

    struct ibv_context [328] {
        0 device: *mut ibv_device,
        8 ops: ibv_context_ops,
        264 cmd_fd: c_int,
        268 async_fd: c_int,
        272 num_comp_vectors: c_int,
        280 mutex: PthreadMutex,
        320 abi_compat: *mut c_void,
    }

    struct verbs_context [696] {
        0 free_buf: Option<unsafe extern "C" fn(buf: *mut ibv_buf)>,
        8 alloc_buf: Option<unsafe extern "C" fn(
            pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf,
        ) -> *mut c_void>,
        16 dm_export_dmabuf_fd: Option<unsafe extern "C" fn(dm: *mut ibv_dm) -> c_int>,
        24 reg_mr_ex: Option<unsafe extern "C" fn(
            pd: *mut ibv_pd, mr_init_attr: *mut ibv_mr_init_attr,
        ) -> *mut ibv_mr>,
        32 dealloc_dmah: Option<unsafe extern "C" fn(dmah: *mut ibv_dmah) -> c_int>,
        40 alloc_dmah: Option<unsafe extern "C" fn(
            context: *mut ibv_context, attr: *mut ibv_dmah_init_attr,
        ) -> *mut ibv_dmah>,
        48 query_port: Option<unsafe extern "C" fn(
            context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr,
            port_attr_len: usize,
        ) -> c_int>,
        56 advise_mr: Option<unsafe extern "C" fn(
            pd: *mut ibv_pd, advice: c_uint, flags: u32, sg_list: *mut ibv_sge, num_sges: u32,
        ) -> c_int>,
        64 alloc_null_mr: Option<unsafe extern "C" fn(pd: *mut ibv_pd) -> *mut ibv_mr>,
        72 read_counters: Option<unsafe extern "C" fn(
            counters: *mut ibv_counters, counters_value: *mut u64, ncounters: u32, flags: u32,
        ) -> c_int>,
        80 attach_counters_point_flow: Option<unsafe extern "C" fn(
            counters: *mut ibv_counters, attr: *mut ibv_counter_attach_attr, flow: *mut ibv_flow,
        ) -> c_int>,
        88 create_counters: Option<unsafe extern "C" fn(
            context: *mut ibv_context, init_attr: *mut ibv_counters_init_attr,
        ) -> *mut ibv_counters>,
        96 destroy_counters: Option<unsafe extern "C" fn(counters: *mut ibv_counters) -> c_int>,
        104 reg_dm_mr: Option<unsafe extern "C" fn(
            pd: *mut ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: c_uint,
        ) -> *mut ibv_mr>,
        112 alloc_dm: Option<unsafe extern "C" fn(
            context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr,
        ) -> *mut ibv_dm>,
        120 free_dm: Option<unsafe extern "C" fn(dm: *mut ibv_dm) -> c_int>,
        128 modify_flow_action_esp: Option<unsafe extern "C" fn(
            action: *mut ibv_flow_action, attr: *mut ibv_flow_action_esp_attr,
        ) -> c_int>,
        136 destroy_flow_action: Option<unsafe extern "C" fn(
            action: *mut ibv_flow_action,
        ) -> c_int>,
        144 create_flow_action_esp: Option<unsafe extern "C" fn(
            context: *mut ibv_context, attr: *mut ibv_flow_action_esp_attr,
        ) -> *mut ibv_flow_action>,
        152 modify_qp_rate_limit: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr,
        ) -> c_int>,
        160 alloc_parent_domain: Option<unsafe extern "C" fn(
            context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr,
        ) -> *mut ibv_pd>,
        168 dealloc_td: Option<unsafe extern "C" fn(td: *mut ibv_td) -> c_int>,
        176 alloc_td: Option<unsafe extern "C" fn(
            context: *mut ibv_context, init_attr: *mut ibv_td_init_attr,
        ) -> *mut ibv_td>,
        184 modify_cq: Option<unsafe extern "C" fn(
            cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr,
        ) -> c_int>,
        192 post_srq_ops: Option<unsafe extern "C" fn(
            srq: *mut ibv_srq, op: *mut ibv_ops_wr, bad_op: *mut *mut ibv_ops_wr,
        ) -> c_int>,
        200 destroy_rwq_ind_table: Option<unsafe extern "C" fn(
            rwq_ind_table: *mut ibv_rwq_ind_table,
        ) -> c_int>,
        208 create_rwq_ind_table: Option<unsafe extern "C" fn(
            context: *mut ibv_context, init_attr: *mut ibv_rwq_ind_table_init_attr,
        ) -> *mut ibv_rwq_ind_table>,
        216 destroy_wq: Option<unsafe extern "C" fn(wq: *mut ibv_wq) -> c_int>,
        224 modify_wq: Option<unsafe extern "C" fn(
            wq: *mut ibv_wq, wq_attr: *mut ibv_wq_attr,
        ) -> c_int>,
        232 create_wq: Option<unsafe extern "C" fn(
            context: *mut ibv_context, wq_init_attr: *mut ibv_wq_init_attr,
        ) -> *mut ibv_wq>,
        240 query_rt_values: Option<unsafe extern "C" fn(
            context: *mut ibv_context, values: *mut ibv_values_ex,
        ) -> c_int>,
        248 create_cq_ex: Option<unsafe extern "C" fn(
            context: *mut ibv_context, init_attr: *mut ibv_cq_init_attr_ex,
        ) -> *mut ibv_cq_ex>,
        256 r#priv: *mut verbs_ex_private,
        264 query_device_ex: Option<unsafe extern "C" fn(
            context: *mut ibv_context, input: *const ibv_query_device_ex_input,
            attr: *mut ibv_device_attr_ex, attr_size: usize,
        ) -> c_int>,
        272 ibv_destroy_flow: Option<unsafe extern "C" fn(flow: *mut ibv_flow) -> c_int>,
        280 ABI_placeholder2: Option<unsafe extern "C" fn()>,
        288 ibv_create_flow: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp, flow_attr: *mut ibv_flow_attr,
        ) -> *mut ibv_flow>,
        296 ABI_placeholder1: Option<unsafe extern "C" fn()>,
        304 open_qp: Option<unsafe extern "C" fn(
            context: *mut ibv_context, attr: *mut ibv_qp_open_attr,
        ) -> *mut ibv_qp>,
        312 create_qp_ex: Option<unsafe extern "C" fn(
            context: *mut ibv_context, qp_init_attr_ex: *mut ibv_qp_init_attr_ex,
        ) -> *mut ibv_qp>,
        320 get_srq_num: Option<unsafe extern "C" fn(
            srq: *mut ibv_srq, srq_num: *mut u32,
        ) -> c_int>,
        328 create_srq_ex: Option<unsafe extern "C" fn(
            context: *mut ibv_context, srq_init_attr_ex: *mut ibv_srq_init_attr_ex,
        ) -> *mut ibv_srq>,
        336 open_xrcd: Option<unsafe extern "C" fn(
            context: *mut ibv_context, xrcd_init_attr: *mut ibv_xrcd_init_attr,
        ) -> *mut ibv_xrcd>,
        344 close_xrcd: Option<unsafe extern "C" fn(xrcd: *mut ibv_xrcd) -> c_int>,
        352 _ABI_placeholder3: u64,
        360 sz: usize,
        368 context: ibv_context,
    }
}
