//! Contexts, queues and raw parts of objects.
//!
//! `infiniband/mlx5dv.h`.

use super::*;
use crate::abi::*;

abi! {
    struct mlx5dv_cqe_comp_caps [8] {
        0 max_num: u32,
        4 supported_format: u32,
    }

    struct mlx5dv_sw_parsing_caps [8] {
        0 sw_parsing_offloads: u32,
        4 supported_qpts: u32,
    }

    struct mlx5dv_striding_rq_caps [20] {
        0 min_single_stride_log_num_of_bytes: u32,
        4 max_single_stride_log_num_of_bytes: u32,
        8 min_single_wqe_log_num_of_strides: u32,
        12 max_single_wqe_log_num_of_strides: u32,
        16 supported_qpts: u32,
    }

    struct mlx5dv_dci_streams_caps [2] {
        0 max_log_num_concurent: u8,
        1 max_log_num_errored: u8,
    }

    struct mlx5dv_ooo_recv_wrs_caps [20] {
        0 max_rc: u32,
        4 max_xrc: u32,
        8 max_dct: u32,
        12 max_ud: u32,
        16 max_uc: u32,
    }

    struct mlx5dv_reg [8] {
        0 value: u32,
        4 mask: u32,
    }

    struct mlx5dv_context [200] {
        0 version: u8,
        8 flags: u64,
        16 comp_mask: u64,
        24 cqe_comp_caps: mlx5dv_cqe_comp_caps,
        32 sw_parsing_caps: mlx5dv_sw_parsing_caps,
        40 striding_rq_caps: mlx5dv_striding_rq_caps,
        60 tunnel_offloads_caps: u32,
        64 max_dynamic_bfregs: u32,
        72 max_clock_info_update_nsec: u64,
        80 flow_action_flags: u32,
        84 dc_odp_caps: u32,
        88 hca_core_clock: *mut c_void,
        96 num_lag_ports: u8,
        104 sig_caps: mlx5dv_sig_caps,
        120 dci_streams_caps: mlx5dv_dci_streams_caps,
        128 max_wr_memcpy_length: usize,
        136 crypto_caps: mlx5dv_crypto_caps,
        152 max_dc_rd_atom: u64,
        160 max_dc_init_rd_atom: u64,
        168 reg_c0: mlx5dv_reg,
        176 ooo_recv_wrs_caps: mlx5dv_ooo_recv_wrs_caps,
    }

    struct mlx5dv_cq_init_attr [24] {
        0 comp_mask: u64,
        8 cqe_comp_res_format: u8,
        12 flags: u32,
        16 cqe_size: u16,
    }

    struct mlx5dv_dci_streams [2] {
        0 log_num_concurent: u8,
        1 log_num_errored: u8,
    }

    union mlx5dv_dc_init_attr_dc {
        dct_access_key: u64,
        dci_streams: mlx5dv_dci_streams,
    }

    struct mlx5dv_dc_init_attr [16] {
        0 dc_type: c_uint,
        8 dc: mlx5dv_dc_init_attr_dc,
    }

    struct mlx5dv_qp_init_attr [40] {
        0 comp_mask: u64,
        8 create_flags: u32,
        16 dc_init_attr: mlx5dv_dc_init_attr,
        32 send_ops_flags: u64,
    }

    struct mlx5dv_qp_sq {
        buf: *mut c_void,
        wqe_cnt: u32,
        stride: u32,
    }

    struct mlx5dv_qp_rq {
        buf: *mut c_void,
        wqe_cnt: u32,
        stride: u32,
    }

    struct mlx5dv_qp_bf {
        reg: *mut c_void,
        size: u32,
    }

    struct mlx5dv_qp [96] {
        0 dbrec: *mut Be32,
        8 sq: mlx5dv_qp_sq,
        24 rq: mlx5dv_qp_rq,
        40 bf: mlx5dv_qp_bf,
        56 comp_mask: u64,
        64 uar_mmap_offset: i64,
        72 tirn: u32,
        76 tisn: u32,
        80 rqn: u32,
        84 sqn: u32,
        88 tir_icm_addr: u64,
    }

    struct mlx5dv_cq [48] {
        0 buf: *mut c_void,
        8 dbrec: *mut Be32,
        16 cqe_cnt: u32,
        20 cqe_size: u32,
        24 cq_uar: *mut c_void,
        32 cqn: u32,
        40 comp_mask: u64,
    }

    struct mlx5dv_srq [48] {
        0 buf: *mut c_void,
        8 dbrec: *mut Be32,
        16 stride: u32,
        20 head: u32,
        24 tail: u32,
        32 comp_mask: u64,
        40 srqn: u32,
    }

    struct mlx5dv_rwq [32] {
        0 buf: *mut c_void,
        8 dbrec: *mut Be32,
        16 wqe_cnt: u32,
        20 stride: u32,
        24 comp_mask: u64,
    }

    struct mlx5dv_alloc_dm_attr [16] {
        0 r#type: c_uint,
        8 comp_mask: u64,
    }

    struct mlx5dv_dm [32] {
        0 buf: *mut c_void,
        8 length: u64,
        16 comp_mask: u64,
        24 remote_va: u64,
    }

    struct mlx5dv_ah [16] {
        0 av: *mut c_void,
        8 comp_mask: u64,
    }

    struct mlx5dv_pd [16] {
        0 pdn: u32,
        8 comp_mask: u64,
    }

    struct mlx5dv_obj_qp {
        r#in: *mut ibv_qp,
        out: *mut mlx5dv_qp,
    }

    struct mlx5dv_obj_cq {
        r#in: *mut ibv_cq,
        out: *mut mlx5dv_cq,
    }

    struct mlx5dv_obj_srq {
        r#in: *mut ibv_srq,
        out: *mut mlx5dv_srq,
    }

    struct mlx5dv_obj_rwq {
        r#in: *mut ibv_wq,
        out: *mut mlx5dv_rwq,
    }

    struct mlx5dv_obj_dm {
        r#in: *mut ibv_dm,
        out: *mut mlx5dv_dm,
    }

    struct mlx5dv_obj_ah {
        r#in: *mut ibv_ah,
        out: *mut mlx5dv_ah,
    }

    struct mlx5dv_obj_pd {
        r#in: *mut ibv_pd,
        out: *mut mlx5dv_pd,
    }

    struct mlx5dv_obj_devx {
        r#in: *mut mlx5dv_devx_obj,
        out: *mut mlx5dv_devx,
    }

    struct mlx5dv_obj [128] {
        0 qp: mlx5dv_obj_qp,
        16 cq: mlx5dv_obj_cq,
        32 srq: mlx5dv_obj_srq,
        48 rwq: mlx5dv_obj_rwq,
        64 dm: mlx5dv_obj_dm,
        80 ah: mlx5dv_obj_ah,
        96 pd: mlx5dv_obj_pd,
        112 devx: mlx5dv_obj_devx,
    }

    struct mlx5dv_striding_rq_init_attr [12] {
        0 single_stride_log_num_of_bytes: u32,
        4 single_wqe_log_num_of_strides: u32,
        8 two_byte_shift_en: u8,
    }

    struct mlx5dv_wq_init_attr [24] {
        0 comp_mask: u64,
        8 striding_rq_attrs: mlx5dv_striding_rq_init_attr,
    }

    struct mlx5dv_ctx_allocators [24] {
        0 alloc: Option<unsafe extern "C" fn(size: usize, priv_data: *mut c_void) -> *mut c_void>,
        8 r#free: Option<unsafe extern "C" fn(ptr: *mut c_void, priv_data: *mut c_void)>,
        16 data: *mut c_void,
    }

    struct mlx5dv_clock_info [40] {
        0 nsec: u64,
        8 last_cycles: u64,
        16 frac: u64,
        24 mult: u32,
        28 shift: u32,
        32 mask: u64,
    }

    struct mlx5dv_context_attr [24] {
        0 flags: u32,
        8 comp_mask: u64,
        16 fds: *mut ibv_fd_arr,
    }

    struct mlx5dv_vfio_context_attr [24] {
        0 pci_name: *mut c_char,
        8 flags: u32,
        16 comp_mask: u64,
    }
}
