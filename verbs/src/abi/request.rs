//! Work requests and completions.
//!
//! `infiniband/verbs.h`.

use super::*;

abi! {
    union ibv_wc_imm {
        imm_data: Be32,
        invalidated_rkey: u32,
    }

    struct ibv_wc [48] {
        0 wr_id: u64,
        8 status: c_uint,
        12 opcode: c_uint,
        16 vendor_err: u32,
        20 byte_len: u32,
        24 imm: ibv_wc_imm,
        28 qp_num: u32,
        32 src_qp: u32,
        36 wc_flags: c_uint,
        40 pkey_index: u16,
        42 slid: u16,
        44 sl: u8,
        45 dlid_path_bits: u8,
    }

    struct ibv_mw_bind_info [32] {
        0 mr: *mut ibv_mr,
        8 addr: u64,
        16 length: u64,
        24 mw_access_flags: c_uint,
    }

    struct ibv_grh [40] {
        0 version_tclass_flow: Be32,
        4 paylen: Be16,
        6 next_hdr: u8,
        7 hop_limit: u8,
        8 sgid: ibv_gid,
        24 dgid: ibv_gid,
    }

    struct ibv_data_buf [16] {
        0 addr: *mut c_void,
        8 length: usize,
    }

    struct ibv_sge [16] {
        0 addr: u64,
        8 length: u32,
        12 lkey: u32,
    }

    union ibv_send_wr_imm {
        imm_data: Be32,
        invalidate_rkey: u32,
    }

    struct ibv_send_wr_wr_rdma {
        remote_addr: u64,
        rkey: u32,
    }

    struct ibv_send_wr_wr_atomic {
        remote_addr: u64,
        compare_add: u64,
        swap: u64,
        rkey: u32,
    }

    struct ibv_send_wr_wr_ud {
        ah: *mut ibv_ah,
        remote_qpn: u32,
        remote_qkey: u32,
    }

    union ibv_send_wr_wr {
        rdma: ibv_send_wr_wr_rdma,
        atomic: ibv_send_wr_wr_atomic,
        ud: ibv_send_wr_wr_ud,
    }

    struct ibv_send_wr_qp_type_xrc {
        remote_srqn: u32,
    }

    union ibv_send_wr_qp_type {
        xrc: ibv_send_wr_qp_type_xrc,
    }

    struct ibv_send_wr_u1_bind_mw {
        mw: *mut ibv_mw,
        rkey: u32,
        bind_info: ibv_mw_bind_info,
    }

    struct ibv_send_wr_u1_tso {
        hdr: *mut c_void,
        hdr_sz: u16,
        mss: u16,
    }

    union ibv_send_wr_ext {
        bind_mw: ibv_send_wr_u1_bind_mw,
        tso: ibv_send_wr_u1_tso,
    }

    struct ibv_send_wr [128] {
        0 wr_id: u64,
        8 next: *mut ibv_send_wr,
        16 sg_list: *mut ibv_sge,
        24 num_sge: c_int,
        28 opcode: c_uint,
        32 send_flags: c_uint,
        36 imm: ibv_send_wr_imm,
        40 wr: ibv_send_wr_wr,
        72 qp_type: ibv_send_wr_qp_type,
        80 ext: ibv_send_wr_ext,
    }

    struct ibv_recv_wr [32] {
        0 wr_id: u64,
        8 next: *mut ibv_recv_wr,
        16 sg_list: *mut ibv_sge,
        24 num_sge: c_int,
    }

    struct ibv_ops_wr_tm_add {
        recv_wr_id: u64,
        sg_list: *mut ibv_sge,
        num_sge: c_int,
        tag: u64,
        mask: u64,
    }

    struct ibv_ops_wr_tm {
        unexpected_cnt: u32,
        handle: u32,
        add: ibv_ops_wr_tm_add,
    }

    struct ibv_ops_wr [72] {
        0 wr_id: u64,
        8 next: *mut ibv_ops_wr,
        16 opcode: c_uint,
        20 flags: c_int,
        24 tm: ibv_ops_wr_tm,
    }

    struct ibv_mw_bind [48] {
        0 wr_id: u64,
        8 send_flags: c_uint,
        16 bind_info: ibv_mw_bind_info,
    }

    struct ibv_poll_cq_attr [4] {
        0 comp_mask: u32,
    }

    struct ibv_wc_tm_info [16] {
        0 tag: u64,
        8 r#priv: u32,
    }
}
