//! Work queues, indirection tables and receive hashing.
//!
//! `infiniband/verbs.h`.

use super::*;

abi! {
    struct ibv_wq_init_attr [48] {
        0 wq_context: *mut c_void,
        8 wq_type: c_uint,
        12 max_wr: u32,
        16 max_sge: u32,
        24 pd: *mut ibv_pd,
        32 cq: *mut ibv_cq,
        40 comp_mask: u32,
        44 create_flags: u32,
    }

    struct ibv_wq_attr [20] {
        0 attr_mask: u32,
        4 wq_state: c_uint,
        8 curr_wq_state: c_uint,
        12 flags: u32,
        16 flags_mask: u32,
    }

    struct ibv_rwq_ind_table [24] {
        0 context: *mut ibv_context,
        8 ind_tbl_handle: c_int,
        12 ind_tbl_num: c_int,
        16 comp_mask: u32,
    }

    struct ibv_rwq_ind_table_init_attr [24] {
        0 log_ind_tbl_size: u32,
        8 ind_tbl: *mut *mut ibv_wq,
        16 comp_mask: u32,
    }

    struct ibv_rx_hash_conf [24] {
        0 rx_hash_function: u8,
        1 rx_hash_key_len: u8,
        8 rx_hash_key: *mut u8,
        16 rx_hash_fields_mask: u64,
    }

    struct ibv_wq [152] {
        0 context: *mut ibv_context,
        8 wq_context: *mut c_void,
        16 pd: *mut ibv_pd,
        24 cq: *mut ibv_cq,
        32 wq_num: u32,
        36 handle: u32,
        40 state: c_uint,
        44 wq_type: c_uint,
        48 post_recv: Option<unsafe extern "C" fn(
            current: *mut ibv_wq, recv_wr: *mut ibv_recv_wr, bad_recv_wr: *mut *mut ibv_recv_wr,
        ) -> c_int>,
        56 mutex: PthreadMutex,
        96 cond: PthreadCond,
        144 events_completed: u32,
        148 comp_mask: u32,
    }
}
