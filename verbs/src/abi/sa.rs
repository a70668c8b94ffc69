//! Attributes of queue pairs and paths as the kernel's connection manager has them, and paths as
//! librdmacm has them.
//!
//! `rdma/ib_user_verbs.h`, `rdma/ib_user_sa.h` and `infiniband/sa.h`.

use super::*;

abi! {
    struct ib_uverbs_global_route [24] {
        0 dgid: [u8; 16],
        16 flow_label: u32,
        20 sgid_index: u8,
        21 hop_limit: u8,
        22 traffic_class: u8,
        23 reserved: u8,
    }

    struct ib_uverbs_ah_attr [32] {
        0 grh: ib_uverbs_global_route,
        24 dlid: u16,
        26 sl: u8,
        27 src_path_bits: u8,
        28 static_rate: u8,
        29 is_global: u8,
        30 port_num: u8,
        31 reserved: u8,
    }

    struct ib_uverbs_qp_attr [144] {
        0 qp_attr_mask: u32,
        4 qp_state: u32,
        8 cur_qp_state: u32,
        12 path_mtu: u32,
        16 path_mig_state: u32,
        20 qkey: u32,
        24 rq_psn: u32,
        28 sq_psn: u32,
        32 dest_qp_num: u32,
        36 qp_access_flags: u32,
        40 ah_attr: ib_uverbs_ah_attr,
        72 alt_ah_attr: ib_uverbs_ah_attr,
        104 max_send_wr: u32,
        108 max_recv_wr: u32,
        112 max_send_sge: u32,
        116 max_recv_sge: u32,
        120 max_inline_data: u32,
        124 pkey_index: u16,
        126 alt_pkey_index: u16,
        128 en_sqd_async_notify: u8,
        129 sq_draining: u8,
        130 max_rd_atomic: u8,
        131 max_dest_rd_atomic: u8,
        132 min_rnr_timer: u8,
        133 port_num: u8,
        134 timeout: u8,
        135 retry_cnt: u8,
        136 rnr_retry: u8,
        137 alt_port_num: u8,
        138 alt_timeout: u8,
        139 reserved: [u8; 5],
    }

    struct ib_user_path_rec [64] {
        0 dgid: [u8; 16],
        16 sgid: [u8; 16],
        32 dlid: Be16,
        34 slid: Be16,
        36 raw_traffic: u32,
        40 flow_label: Be32,
        44 reversible: u32,
        48 mtu: u32,
        52 pkey: Be16,
        54 hop_limit: u8,
        55 traffic_class: u8,
        56 numb_path: u8,
        57 sl: u8,
        58 mtu_selector: u8,
        59 rate_selector: u8,
        60 rate: u8,
        61 packet_life_time_selector: u8,
        62 packet_life_time: u8,
        63 preference: u8,
    }

    struct ibv_sa_path_rec [64] {
        0 dgid: ibv_gid,
        16 sgid: ibv_gid,
        32 dlid: Be16,
        34 slid: Be16,
        36 raw_traffic: c_int,
        40 flow_label: Be32,
        44 hop_limit: u8,
        45 traffic_class: u8,
        48 reversible: c_int,
        52 numb_path: u8,
        54 pkey: Be16,
        56 sl: u8,
        57 mtu_selector: u8,
        58 mtu: u8,
        59 rate_selector: u8,
        60 rate: u8,
        61 packet_life_time_selector: u8,
        62 packet_life_time: u8,
        63 preference: u8,
    }
}
