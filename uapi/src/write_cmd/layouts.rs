//! Requests, without the header of write(2), and responses.

use crate::{
    layout::layout,
    verbs::{AhAttr, QpCap, QpDest},
};

layout! {
    /// `struct ib_uverbs_query_device_resp`.
    pub struct QueryDeviceResp [176] {
        0   fw_ver: u64 => "Firmware version, three numbers of 16, 16 and 32 bits.",
        8   node_guid: [u8; 8] => "GUID of the device, as on the wire.",
        16  sys_image_guid: [u8; 8] => "GUID of the system image, as on the wire.",
        24  max_mr_size: u64 => "Largest memory region.",
        32  page_size_cap: u64 => "Page sizes, one bit each.",
        40  vendor_id: u32 => "IEEE OUI of the vendor.",
        44  vendor_part_id: u32 => "Part: the PCI device id.",
        48  hw_ver: u32 => "Revision.",
        52  max_qp: u32 => "QPs.",
        56  max_qp_wr: u32 => "Requests of a queue.",
        60  device_cap_flags: u32 => "Low half of [`crate::verbs::DeviceCapFlags`].",
        64  max_sge: u32 => "Scatter/gather elements of a request.",
        68  max_sge_rd: u32 => "Scatter/gather elements of a read.",
        72  max_cq: u32 => "CQs.",
        76  max_cqe: u32 => "CQEs of a CQ.",
        80  max_mr: u32 => "Memory regions.",
        84  max_pd: u32 => "PDs.",
        88  max_qp_rd_atom: u32 => "Reads and atomics outstanding at a QP as responder.",
        92  max_ee_rd_atom: u32 => "The same of an EE context.",
        96  max_res_rd_atom: u32 => "The same of the device.",
        100 max_qp_init_rd_atom: u32 => "Reads and atomics outstanding at a QP as initiator.",
        104 max_ee_init_rd_atom: u32 => "The same of an EE context.",
        108 atomic_cap: u32 => "[`crate::verbs::AtomicCap`].",
        112 max_ee: u32 => "EE contexts.",
        116 max_rdd: u32 => "RD domains.",
        120 max_mw: u32 => "Memory windows.",
        124 max_raw_ipv6_qp: u32 => "Raw IPv6 QPs.",
        128 max_raw_ethy_qp: u32 => "Raw EtherType QPs.",
        132 max_mcast_grp: u32 => "Multicast groups.",
        136 max_mcast_qp_attach: u32 => "QPs of a multicast group.",
        140 max_total_mcast_qp_attach: u32 => "QPs in multicast groups.",
        144 max_ah: u32 => "Address handles.",
        148 max_fmr: u32 => "Fast memory regions.",
        152 max_map_per_fmr: u32 => "Mappings of a fast memory region.",
        156 max_srq: u32 => "SRQs.",
        160 max_srq_wr: u32 => "Requests of an SRQ.",
        164 max_srq_sge: u32 => "Scatter/gather elements of an SRQ's request.",
        168 max_pkeys: u16 => "P_Keys.",
        170 local_ca_ack_delay: u8 => "Delay of an acknowledge.",
        171 phys_port_cnt: u8 => "Ports.",
        172 reserved: [u8; 4] => "Reserved.",
    }

    /// `struct ib_uverbs_ex_query_device`.
    pub struct ExQueryDevice [8] {
        0 comp_mask: u32 => "Zero.",
        4 reserved: u32 => "Zero.",
    }

    /// `struct ib_uverbs_odp_caps`.
    pub struct OdpCaps [24] {
        0  general_caps: u64 => "Bit 0: on-demand paging; bit 1: of the whole address space.",
        8  rc_odp_caps: u32 => "Of RC: bits for send, receive, write, read, atomic, SRQ.",
        12 uc_odp_caps: u32 => "Of UC.",
        16 ud_odp_caps: u32 => "Of UD.",
        20 reserved: u32 => "Reserved.",
    }

    /// `struct ib_uverbs_rss_caps`.
    pub struct RssCaps [16] {
        0  supported_qpts: u32 => "Bit n: QP type n.",
        4  max_rwq_indirection_tables: u32 => "Indirection tables.",
        8  max_rwq_indirection_table_size: u32 => "Entries of one.",
        12 reserved: u32 => "Reserved.",
    }

    /// `struct ib_uverbs_tm_caps`.
    pub struct TmCaps [24] {
        0  max_rndv_hdr_size: u32 => "Longest rendezvous request.",
        4  max_num_tags: u32 => "Tags of an SRQ; zero without tag matching.",
        8  flags: u32 => "Bit 0: RC.",
        12 max_ops: u32 => "List operations outstanding.",
        16 max_sge: u32 => "Scatter/gather elements of a tagged buffer.",
        20 reserved: u32 => "Reserved.",
    }

    /// `struct ib_uverbs_cq_moderation_caps`.
    pub struct CqModerationCaps [8] {
        0 max_cq_moderation_count: u16 => "Most completions before an event.",
        2 max_cq_moderation_period: u16 => "Longest time before an event, microseconds.",
        4 reserved: u32 => "Reserved.",
    }

    /// `struct ib_uverbs_ex_query_device_resp`.
    pub struct ExQueryDeviceResp [304] {
        0   base: QueryDeviceResp => "The part that every kernel returns.",
        176 comp_mask: u32 => "Zero.",
        180 response_length: u32 => "Bytes of this structure that the kernel knows.",
        184 odp_caps: OdpCaps => "On-demand paging.",
        208 timestamp_mask: u64 => "Bits of a time stamp that count.",
        216 hca_core_clock: u64 => "Clock of time stamps, kHz.",
        224 device_cap_flags_ex: u64 => "[`crate::verbs::DeviceCapFlags`].",
        232 rss_caps: RssCaps => "Receive-side scaling.",
        248 max_wq_type_rq: u32 => "Receive work queues.",
        252 raw_packet_caps: u32 => "Raw packets: VLAN stripping, FCS, checksum, delay drop.",
        256 tm_caps: TmCaps => "Tag matching.",
        280 cq_moderation_caps: CqModerationCaps => "CQ moderation.",
        288 max_dm_size: u64 => "Largest device memory.",
        296 xrc_odp_caps: u32 => "On-demand paging of XRC.",
        300 reserved: u32 => "Reserved.",
    }

    /// `struct ib_uverbs_alloc_pd`, `struct ib_uverbs_create_comp_channel`: a request without
    /// contents.
    pub struct EmptyRequest [8] {
        0 response: u64 => "Zero.",
    }

    /// `struct ib_uverbs_alloc_pd_resp`.
    pub struct AllocPdResp [4] {
        0 pd_handle: u32 => "Handle.",
    }

    /// `struct ib_uverbs_create_comp_channel_resp`.
    pub struct CreateCompChannelResp [4] {
        0 fd: u32 => "Descriptor.",
    }

    /// `struct ib_uverbs_reg_mr`.
    pub struct RegMr [40] {
        0  response: u64 => "Zero.",
        8  start: u64 => "First byte in this process.",
        16 length: u64 => "Bytes.",
        24 hca_va: u64 => "First byte as the device will name it.",
        32 pd_handle: u32 => "Protection domain.",
        36 access_flags: u32 => "[`crate::verbs::AccessFlags`].",
    }

    /// `struct ib_uverbs_reg_mr_resp`.
    pub struct RegMrResp [12] {
        0 mr_handle: u32 => "Handle.",
        4 lkey: u32 => "Local key.",
        8 rkey: u32 => "Remote key.",
    }

    /// `struct ib_uverbs_rereg_mr`.
    pub struct ReregMr [48] {
        0  response: u64 => "Zero.",
        8  mr_handle: u32 => "Handle.",
        12 flags: u32 => "[`crate::verbs::ReregFlags`].",
        16 start: u64 => "First byte in this process.",
        24 length: u64 => "Bytes.",
        32 hca_va: u64 => "First byte as the device will name it.",
        40 pd_handle: u32 => "Protection domain.",
        44 access_flags: u32 => "[`crate::verbs::AccessFlags`].",
    }

    /// `struct ib_uverbs_rereg_mr_resp`.
    pub struct ReregMrResp [8] {
        0 lkey: u32 => "Local key.",
        4 rkey: u32 => "Remote key.",
    }

    /// `struct ib_uverbs_alloc_mw`.
    pub struct AllocMw [16] {
        0  response: u64 => "Zero.",
        8  pd_handle: u32 => "Protection domain.",
        12 mw_type: u8 => "[`crate::verbs::MwType`].",
        13 reserved: [u8; 3] => "Zero.",
    }

    /// `struct ib_uverbs_alloc_mw_resp`.
    pub struct AllocMwResp [8] {
        0 mw_handle: u32 => "Handle.",
        4 rkey: u32 => "Remote key.",
    }

    /// `struct ib_uverbs_create_ah`.
    pub struct CreateAh [56] {
        0  response: u64 => "Zero.",
        8  user_handle: u64 => "Not used.",
        16 pd_handle: u32 => "Protection domain.",
        20 reserved: u32 => "Zero.",
        24 attr: AhAttr => "The path.",
    }

    /// `struct ib_uverbs_create_ah_resp`.
    pub struct CreateAhResp [4] {
        0 ah_handle: u32 => "Handle.",
    }

    /// `struct ib_uverbs_resize_cq`.
    pub struct ResizeCq [16] {
        0  response: u64 => "Zero.",
        8  cq_handle: u32 => "Handle.",
        12 cqe: u32 => "CQEs wanted.",
    }

    /// `struct ib_uverbs_resize_cq_resp`.
    pub struct ResizeCqResp [8] {
        0 cqe: u32 => "CQEs given.",
        4 reserved: u32 => "Reserved.",
    }

    /// `struct ib_uverbs_ex_modify_cq`.
    pub struct ExModifyCq [16] {
        0  cq_handle: u32 => "Handle.",
        4  attr_mask: u32 => "Bit 0: moderation.",
        8  cq_count: u16 => "Completions before an event.",
        10 cq_period: u16 => "Microseconds before an event.",
        12 reserved: u32 => "Zero.",
    }

    /// `struct ib_uverbs_query_qp`.
    pub struct QueryQp [16] {
        0  response: u64 => "Zero.",
        8  qp_handle: u32 => "Handle.",
        12 attr_mask: u32 => "[`crate::verbs::QpAttrMask`].",
    }

    /// `struct ib_uverbs_query_qp_resp`.
    pub struct QueryQpResp [128] {
        0   dest: QpDest => "Path.",
        32  alt_dest: QpDest => "Alternate path.",
        64  max_send_wr: u32 => "Send requests.",
        68  max_recv_wr: u32 => "Receive requests.",
        72  max_send_sge: u32 => "Scatter/gather elements of a send.",
        76  max_recv_sge: u32 => "Scatter/gather elements of a receive.",
        80  max_inline_data: u32 => "Inline bytes of a send.",
        84  qkey: u32 => "Q_Key.",
        88  rq_psn: u32 => "Receive packet sequence number.",
        92  sq_psn: u32 => "Send packet sequence number.",
        96  dest_qp_num: u32 => "Peer's QP number.",
        100 qp_access_flags: u32 => "Rights of the peer.",
        104 pkey_index: u16 => "Index of the P_Key.",
        106 alt_pkey_index: u16 => "Index of the alternate path's P_Key.",
        108 qp_state: u8 => "[`crate::verbs::QpState`].",
        109 cur_qp_state: u8 => "[`crate::verbs::QpState`].",
        110 path_mtu: u8 => "[`crate::verbs::Mtu`].",
        111 path_mig_state: u8 => "[`crate::verbs::MigState`].",
        112 sq_draining: u8 => "1 while the send queue drains.",
        113 max_rd_atomic: u8 => "Reads and atomics outstanding as initiator.",
        114 max_dest_rd_atomic: u8 => "Reads and atomics outstanding as responder.",
        115 min_rnr_timer: u8 => "RNR NAK timer.",
        116 port_num: u8 => "Port.",
        117 timeout: u8 => "Acknowledge timeout.",
        118 retry_cnt: u8 => "Retries.",
        119 rnr_retry: u8 => "Retries after RNR NAK.",
        120 alt_port_num: u8 => "Alternate path's port.",
        121 alt_timeout: u8 => "Alternate path's timeout.",
        122 sq_sig_all: u8 => "1 if every send makes a completion.",
        123 reserved: [u8; 5] => "Reserved.",
    }

    /// `struct ib_uverbs_modify_qp`.
    pub struct ModifyQp [112] {
        0   dest: QpDest => "Path.",
        32  alt_dest: QpDest => "Alternate path.",
        64  qp_handle: u32 => "Handle.",
        68  attr_mask: u32 => "[`crate::verbs::QpAttrMask`].",
        72  qkey: u32 => "Q_Key.",
        76  rq_psn: u32 => "Receive packet sequence number.",
        80  sq_psn: u32 => "Send packet sequence number.",
        84  dest_qp_num: u32 => "Peer's QP number.",
        88  qp_access_flags: u32 => "Rights of the peer.",
        92  pkey_index: u16 => "Index of the P_Key.",
        94  alt_pkey_index: u16 => "Index of the alternate path's P_Key.",
        96  qp_state: u8 => "[`crate::verbs::QpState`].",
        97  cur_qp_state: u8 => "[`crate::verbs::QpState`].",
        98  path_mtu: u8 => "[`crate::verbs::Mtu`].",
        99  path_mig_state: u8 => "[`crate::verbs::MigState`].",
        100 en_sqd_async_notify: u8 => "1 to get an event when the send queue has drained.",
        101 max_rd_atomic: u8 => "Reads and atomics outstanding as initiator.",
        102 max_dest_rd_atomic: u8 => "Reads and atomics outstanding as responder.",
        103 min_rnr_timer: u8 => "RNR NAK timer.",
        104 port_num: u8 => "Port.",
        105 timeout: u8 => "Acknowledge timeout.",
        106 retry_cnt: u8 => "Retries.",
        107 rnr_retry: u8 => "Retries after RNR NAK.",
        108 alt_port_num: u8 => "Alternate path's port.",
        109 alt_timeout: u8 => "Alternate path's timeout.",
        110 reserved: [u8; 2] => "Zero.",
    }

    /// `struct ib_uverbs_ex_modify_qp`.
    pub struct ExModifyQp [120] {
        0   base: ModifyQp => "The fields of the plain command.",
        112 rate_limit: u32 => "Rate limit, kb/s.",
        116 reserved: u32 => "Zero.",
    }

    /// `struct ib_uverbs_ex_modify_qp_resp`.
    pub struct ExModifyQpResp [8] {
        0 comp_mask: u32 => "Zero.",
        4 response_length: u32 => "Bytes of this structure that the kernel knows.",
    }

    /// `struct ib_uverbs_open_qp`.
    pub struct OpenQp [32] {
        0  response: u64 => "Zero.",
        8  user_handle: u64 => "Comes back with the QP's events.",
        16 pd_handle: u32 => "The XRC domain's handle.",
        20 qpn: u32 => "Number of the QP.",
        24 qp_type: u8 => "[`crate::verbs::QpType::XrcTgt`].",
        25 reserved: [u8; 7] => "Zero.",
    }

    /// `struct ib_uverbs_create_cq_resp`, with which the response of the extended CREATE_CQ begins.
    pub struct CreateCqResp [8] {
        0 cq_handle: u32 => "Handle.",
        4 cqe: u32 => "The last index of the ring.",
    }

    /// `struct ib_uverbs_create_qp`.
    pub struct CreateQp [56] {
        0  response: u64 => "Zero.",
        8  user_handle: u64 => "Comes back with the QP's events.",
        16 pd_handle: u32 => "Protection domain.",
        20 send_cq_handle: u32 => "CQ of the send queue.",
        24 recv_cq_handle: u32 => "CQ of the receive queue.",
        28 srq_handle: u32 => "Shared receive queue.",
        32 cap: QpCap => "Sizes wanted.",
        52 sq_sig_all: u8 => "1 if every send makes a completion.",
        53 qp_type: u8 => "[`crate::verbs::QpType`].",
        54 is_srq: u8 => "1 with a shared receive queue.",
        55 reserved: u8 => "Zero.",
    }

    /// `struct ib_uverbs_ex_create_qp`.
    pub struct ExCreateQp [64] {
        0  user_handle: u64 => "Comes back with the QP's events.",
        8  pd_handle: u32 => "Protection domain.",
        12 send_cq_handle: u32 => "CQ of the send queue.",
        16 recv_cq_handle: u32 => "CQ of the receive queue.",
        20 srq_handle: u32 => "Shared receive queue.",
        24 cap: QpCap => "Sizes wanted.",
        44 sq_sig_all: u8 => "1 if every send makes a completion.",
        45 qp_type: u8 => "[`crate::verbs::QpType`].",
        46 is_srq: u8 => "1 with a shared receive queue.",
        47 reserved: u8 => "Zero.",
        48 comp_mask: u32 => "Bit 0: `rwq_ind_tbl_handle` is valid.",
        52 create_flags: u32 => "[`crate::verbs::QpCreateFlags`].",
        56 rwq_ind_tbl_handle: u32 => "Table of work queues.",
        60 source_qpn: u32 => "The source QP number of its packets.",
    }

    /// `struct ib_uverbs_create_srq_resp`.
    pub struct CreateSrqResp [16] {
        0  srq_handle: u32 => "Handle.",
        4  max_wr: u32 => "Receive requests.",
        8  max_sge: u32 => "Scatter/gather elements of each.",
        12 srqn: u32 => "Number of an XRC SRQ.",
    }

    /// `struct ib_uverbs_ex_create_wq_resp`.
    pub struct CreateWqResp [24] {
        0  comp_mask: u32 => "Zero.",
        4  response_length: u32 => "Bytes of this structure that the kernel knows.",
        8  wq_handle: u32 => "Handle.",
        12 max_wr: u32 => "Receive requests.",
        16 max_sge: u32 => "Scatter/gather elements of each.",
        20 wqn: u32 => "The device's number.",
    }

    /// `struct ib_uverbs_destroy_cq`, `struct ib_uverbs_destroy_qp` and `struct
    /// ib_uverbs_destroy_srq`.
    pub struct DestroyObject [16] {
        0  response: u64 => "Zero.",
        8  handle: u32 => "Handle.",
        12 reserved: u32 => "Zero.",
    }

    /// `struct ib_uverbs_ex_destroy_wq`.
    pub struct DestroyWq [8] {
        0 comp_mask: u32 => "Zero.",
        4 wq_handle: u32 => "Handle.",
    }

    /// `struct ib_uverbs_create_qp_resp`, the response of CREATE_QP and OPEN_QP.
    pub struct CreateQpResp [32] {
        0  qp_handle: u32 => "Handle.",
        4  qpn: u32 => "Number.",
        8  max_send_wr: u32 => "Send requests.",
        12 max_recv_wr: u32 => "Receive requests.",
        16 max_send_sge: u32 => "Scatter/gather elements of a send.",
        20 max_recv_sge: u32 => "Scatter/gather elements of a receive.",
        24 max_inline_data: u32 => "Inline bytes of a send.",
        28 reserved: u32 => "Reserved.",
    }

    /// `struct ib_uverbs_attach_mcast` and `struct ib_uverbs_detach_mcast`.
    pub struct Mcast [24] {
        0  gid: [u8; 16] => "The group.",
        16 qp_handle: u32 => "Handle.",
        20 mlid: u16 => "The group's LID.",
        22 reserved: u16 => "Zero.",
    }

    /// `struct ib_uverbs_modify_srq`.
    pub struct ModifySrq [16] {
        0  srq_handle: u32 => "Handle.",
        4  attr_mask: u32 => "[`crate::verbs::SrqAttrMask`].",
        8  max_wr: u32 => "Requests.",
        12 srq_limit: u32 => "Limit below which an event is due.",
    }

    /// `struct ib_uverbs_query_srq`.
    pub struct QuerySrq [16] {
        0  response: u64 => "Zero.",
        8  srq_handle: u32 => "Handle.",
        12 reserved: u32 => "Zero.",
    }

    /// `struct ib_uverbs_query_srq_resp`.
    pub struct QuerySrqResp [16] {
        0  max_wr: u32 => "Requests.",
        4  max_sge: u32 => "Scatter/gather elements.",
        8  srq_limit: u32 => "Limit below which an event is due.",
        12 reserved: u32 => "Reserved.",
    }

    /// `struct ib_uverbs_open_xrcd`.
    pub struct OpenXrcd [16] {
        0  response: u64 => "Zero.",
        8  fd: i32 => "The file that processes share the domain by, or -1.",
        12 oflags: u32 => "`O_CREAT`, `O_EXCL`.",
    }

    /// `struct ib_uverbs_open_xrcd_resp`.
    pub struct OpenXrcdResp [4] {
        0 xrcd_handle: u32 => "Handle.",
    }

    /// `struct ib_uverbs_ex_modify_wq`.
    pub struct ModifyWq [24] {
        0  attr_mask: u32 => "[`crate::verbs::WqAttrMask`].",
        4  wq_handle: u32 => "Handle.",
        8  wq_state: u32 => "[`crate::verbs::WqState`].",
        12 curr_wq_state: u32 => "[`crate::verbs::WqState`] that the queue is taken to be in.",
        16 flags: u32 => "[`crate::verbs::WqFlags`].",
        20 flags_mask: u32 => "Those that change.",
    }

    /// `struct ib_uverbs_ex_create_rwq_ind_table`; the handles of the work queues follow it, padded
    /// to eight bytes.
    pub struct CreateRwqIndTable [8] {
        0 comp_mask: u32 => "Zero.",
        4 log_ind_tbl_size: u32 => "Log2 of the number of entries.",
    }

    /// `struct ib_uverbs_ex_create_rwq_ind_table_resp`.
    pub struct CreateRwqIndTableResp [16] {
        0  comp_mask: u32 => "Zero.",
        4  response_length: u32 => "Bytes of this structure that the kernel knows.",
        8  ind_tbl_handle: u32 => "Handle.",
        12 ind_tbl_num: u32 => "The device's number.",
    }

    /// `struct ib_uverbs_flow_attr`.
    pub struct FlowAttr [16] {
        0  kind: u32 => "[`crate::flow::FlowType`].",
        4  size: u16 => "Bytes of the specifications that follow.",
        6  priority: u16 => "Priority; zero is the highest.",
        8  num_of_specs: u8 => "Specifications that follow.",
        9  reserved: [u8; 2] => "Zero.",
        11 port: u8 => "Port.",
        12 flags: u32 => "[`crate::flow::FlowFlags`].",
    }

    /// `struct ib_uverbs_create_flow`; the specifications of [`crate::flow`] follow it.
    pub struct CreateFlow [24] {
        0 comp_mask: u32 => "Zero.",
        4 qp_handle: u32 => "The QP that gets the packets.",
        8 flow_attr: FlowAttr => "The rule.",
    }

    /// `struct ib_uverbs_create_flow_resp`.
    pub struct CreateFlowResp [8] {
        0 comp_mask: u32 => "Zero.",
        4 flow_handle: u32 => "Handle.",
    }
}
