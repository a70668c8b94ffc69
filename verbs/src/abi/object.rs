//! Objects, and the attributes that they are made with.
//!
//! `infiniband/verbs.h`.

use super::*;

abi! {
    struct ibv_alloc_dm_attr [16] {
        0 length: usize,
        8 log_align_req: u32,
        12 comp_mask: u32,
    }

    struct ibv_dm [32] {
        0 context: *mut ibv_context,
        8 memcpy_to_dm: Option<unsafe extern "C" fn(
            dm: *mut ibv_dm, dm_offset: u64, host_addr: *const c_void, length: usize,
        ) -> c_int>,
        16 memcpy_from_dm: Option<unsafe extern "C" fn(
            host_addr: *mut c_void, dm: *mut ibv_dm, dm_offset: u64, length: usize,
        ) -> c_int>,
        24 comp_mask: u32,
        28 handle: u32,
    }

    struct ibv_dmah [8] {
        0 context: *mut ibv_context,
    }

    struct ibv_pd [16] {
        0 context: *mut ibv_context,
        8 handle: u32,
    }

    struct ibv_td_init_attr [4] {
        0 comp_mask: u32,
    }

    struct ibv_td [8] {
        0 context: *mut ibv_context,
    }

    struct ibv_xrcd_init_attr [12] {
        0 comp_mask: u32,
        4 fd: c_int,
        8 oflags: c_int,
    }

    struct ibv_xrcd [8] {
        0 context: *mut ibv_context,
    }

    struct ibv_mr [48] {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 addr: *mut c_void,
        24 length: usize,
        32 handle: u32,
        36 lkey: u32,
        40 rkey: u32,
    }

    struct ibv_mr_init_attr [72] {
        0 length: usize,
        8 access: c_int,
        16 comp_mask: u64,
        24 iova: u64,
        32 addr: *mut c_void,
        40 fd: c_int,
        48 fd_offset: u64,
        56 dmah: *mut ibv_dmah,
        64 buf: *mut ibv_buf,
    }

    struct ibv_mw [32] {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 rkey: u32,
        20 handle: u32,
        24 r#type: c_uint,
    }

    struct ibv_global_route [24] {
        0 dgid: ibv_gid,
        16 flow_label: u32,
        20 sgid_index: u8,
        21 hop_limit: u8,
        22 traffic_class: u8,
    }

    struct ibv_ah_attr [32] {
        0 grh: ibv_global_route,
        24 dlid: u16,
        26 sl: u8,
        27 src_path_bits: u8,
        28 static_rate: u8,
        29 is_global: u8,
        30 port_num: u8,
    }

    struct ibv_srq_attr [12] {
        0 max_wr: u32,
        4 max_sge: u32,
        8 srq_limit: u32,
    }

    struct ibv_srq_init_attr [24] {
        0 srq_context: *mut c_void,
        8 attr: ibv_srq_attr,
    }

    struct ibv_srq_init_attr_ex [64] {
        0 srq_context: *mut c_void,
        8 attr: ibv_srq_attr,
        20 comp_mask: u32,
        24 srq_type: c_uint,
        32 pd: *mut ibv_pd,
        40 xrcd: *mut ibv_xrcd,
        48 cq: *mut ibv_cq,
        56 tm_cap: ibv_tm_cap,
    }

    struct ibv_qp_cap [20] {
        0 max_send_wr: u32,
        4 max_recv_wr: u32,
        8 max_send_sge: u32,
        12 max_recv_sge: u32,
        16 max_inline_data: u32,
    }

    struct ibv_qp_init_attr [64] {
        0 qp_context: *mut c_void,
        8 send_cq: *mut ibv_cq,
        16 recv_cq: *mut ibv_cq,
        24 srq: *mut ibv_srq,
        32 cap: ibv_qp_cap,
        52 qp_type: c_uint,
        56 sq_sig_all: c_int,
    }

    struct ibv_qp_init_attr_ex [136] {
        0 qp_context: *mut c_void,
        8 send_cq: *mut ibv_cq,
        16 recv_cq: *mut ibv_cq,
        24 srq: *mut ibv_srq,
        32 cap: ibv_qp_cap,
        52 qp_type: c_uint,
        56 sq_sig_all: c_int,
        60 comp_mask: u32,
        64 pd: *mut ibv_pd,
        72 xrcd: *mut ibv_xrcd,
        80 create_flags: u32,
        84 max_tso_header: u16,
        88 rwq_ind_tbl: *mut ibv_rwq_ind_table,
        96 rx_hash_conf: ibv_rx_hash_conf,
        120 source_qpn: u32,
        128 send_ops_flags: u64,
    }

    struct ibv_qp_open_attr [32] {
        0 comp_mask: u32,
        4 qp_num: u32,
        8 xrcd: *mut ibv_xrcd,
        16 qp_context: *mut c_void,
        24 qp_type: c_uint,
    }

    struct ibv_qp_attr [144] {
        0 qp_state: c_uint,
        4 cur_qp_state: c_uint,
        8 path_mtu: c_uint,
        12 path_mig_state: c_uint,
        16 qkey: u32,
        20 rq_psn: u32,
        24 sq_psn: u32,
        28 dest_qp_num: u32,
        32 qp_access_flags: c_uint,
        36 cap: ibv_qp_cap,
        56 ah_attr: ibv_ah_attr,
        88 alt_ah_attr: ibv_ah_attr,
        120 pkey_index: u16,
        122 alt_pkey_index: u16,
        124 en_sqd_async_notify: u8,
        125 sq_draining: u8,
        126 max_rd_atomic: u8,
        127 max_dest_rd_atomic: u8,
        128 min_rnr_timer: u8,
        129 port_num: u8,
        130 timeout: u8,
        131 retry_cnt: u8,
        132 rnr_retry: u8,
        133 alt_port_num: u8,
        134 alt_timeout: u8,
        136 rate_limit: u32,
    }

    struct ibv_qp_rate_limit_attr [16] {
        0 rate_limit: u32,
        4 max_burst_sz: u32,
        8 typical_pkt_sz: u16,
        12 comp_mask: u32,
    }

    struct ibv_fd_arr [16] {
        0 arr: *mut c_int,
        8 count: u32,
    }

    struct ibv_srq [128] {
        0 context: *mut ibv_context,
        8 srq_context: *mut c_void,
        16 pd: *mut ibv_pd,
        24 handle: u32,
        32 mutex: PthreadMutex,
        72 cond: PthreadCond,
        120 events_completed: u32,
    }

    struct ibv_qp [160] {
        0 context: *mut ibv_context,
        8 qp_context: *mut c_void,
        16 pd: *mut ibv_pd,
        24 send_cq: *mut ibv_cq,
        32 recv_cq: *mut ibv_cq,
        40 srq: *mut ibv_srq,
        48 handle: u32,
        52 qp_num: u32,
        56 state: c_uint,
        60 qp_type: c_uint,
        64 mutex: PthreadMutex,
        104 cond: PthreadCond,
        152 events_completed: u32,
    }

    struct ibv_qp_ex [360] {
        0 qp_base: ibv_qp,
        160 comp_mask: u64,
        168 wr_id: u64,
        176 wr_flags: c_uint,
        184 wr_atomic_cmp_swp: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64,
        )>,
        192 wr_atomic_fetch_add: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64,
        )>,
        200 wr_bind_mw: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info,
        )>,
        208 wr_local_inv: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, invalidate_rkey: u32)>,
        216 wr_rdma_read: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64,
        )>,
        224 wr_rdma_write: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64,
        )>,
        232 wr_rdma_write_imm: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: Be32,
        )>,
        240 wr_send: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
        248 wr_send_imm: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, imm_data: Be32)>,
        256 wr_send_inv: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, invalidate_rkey: u32)>,
        264 wr_send_tso: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16,
        )>,
        272 wr_set_ud_addr: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32,
        )>,
        280 wr_set_xrc_srqn: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, remote_srqn: u32)>,
        288 wr_set_inline_data: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize,
        )>,
        296 wr_set_inline_data_list: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf,
        )>,
        304 wr_set_sge: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32,
        )>,
        312 wr_set_sge_list: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge,
        )>,
        320 wr_start: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
        328 wr_complete: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex) -> c_int>,
        336 wr_abort: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
        344 wr_atomic_write: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, atomic_wr: *const c_void,
        )>,
        352 wr_flush: Option<unsafe extern "C" fn(
            qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, len: usize, _type: u8, level: u8,
        )>,
    }

    struct ibv_ece [12] {
        0 vendor_id: u32,
        4 options: u32,
        8 comp_mask: u32,
    }

    struct ibv_comp_channel [16] {
        0 context: *mut ibv_context,
        8 fd: c_int,
        12 refcnt: c_int,
    }

    struct ibv_cq [128] {
        0 context: *mut ibv_context,
        8 channel: *mut ibv_comp_channel,
        16 cq_context: *mut c_void,
        24 handle: u32,
        28 cqe: c_int,
        32 mutex: PthreadMutex,
        72 cond: PthreadCond,
        120 comp_events_completed: u32,
        124 async_events_completed: u32,
    }

    struct ibv_cq_ex [288] {
        0 context: *mut ibv_context,
        8 channel: *mut ibv_comp_channel,
        16 cq_context: *mut c_void,
        24 handle: u32,
        28 cqe: c_int,
        32 mutex: PthreadMutex,
        72 cond: PthreadCond,
        120 comp_events_completed: u32,
        124 async_events_completed: u32,
        128 comp_mask: u32,
        132 status: c_uint,
        136 wr_id: u64,
        144 start_poll: Option<unsafe extern "C" fn(
            current: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr,
        ) -> c_int>,
        152 next_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_int>,
        160 end_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex)>,
        168 read_opcode: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_uint>,
        176 read_vendor_err: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
        184 read_byte_len: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
        192 read_imm_data: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> Be32>,
        200 read_qp_num: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
        208 read_src_qp: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
        216 read_wc_flags: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_uint>,
        224 read_slid: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
        232 read_sl: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
        240 read_dlid_path_bits: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
        248 read_completion_ts: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u64>,
        256 read_cvlan: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u16>,
        264 read_flow_tag: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
        272 read_tm_info: Option<unsafe extern "C" fn(
            current: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info,
        )>,
        280 read_completion_wallclock_ns: Option<unsafe extern "C" fn(
            current: *mut ibv_cq_ex,
        ) -> u64>,
    }

    struct ibv_moderate_cq [4] {
        0 cq_count: u16,
        2 cq_period: u16,
    }

    struct ibv_modify_cq_attr [8] {
        0 attr_mask: u32,
        4 moderate: ibv_moderate_cq,
    }

    struct ibv_ah [24] {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 handle: u32,
    }

    struct ibv_cq_init_attr_ex [56] {
        0 cqe: u32,
        8 cq_context: *mut c_void,
        16 channel: *mut ibv_comp_channel,
        24 comp_vector: u32,
        32 wc_flags: u64,
        40 comp_mask: u32,
        44 flags: u32,
        48 parent_domain: *mut ibv_pd,
    }

    struct ibv_qp_attach_comp_cntr_attr [8] {
        0 comp_mask: u32,
        4 op_mask: u32,
    }

    struct ibv_parent_domain_init_attr [48] {
        0 pd: *mut ibv_pd,
        8 td: *mut ibv_td,
        16 comp_mask: u32,
        24 alloc: Option<unsafe extern "C" fn(
            pd: *mut ibv_pd, pd_context: *mut c_void, size: usize, alignment: usize,
            resource_type: u64,
        ) -> *mut c_void>,
        32 r#free: Option<unsafe extern "C" fn(
            pd: *mut ibv_pd, pd_context: *mut c_void, ptr: *mut c_void, resource_type: u64,
        )>,
        40 pd_context: *mut c_void,
    }

    struct ibv_dmah_init_attr [12] {
        0 comp_mask: u32,
        4 cpu_id: u32,
        8 ph: u8,
        9 tph_mem_type: u8,
    }
}
