//! mlx5's additions to the uverbs calls: `rdma/mlx5-abi.h` and `rdma/mlx5_user_ioctl_verbs.h`.

use bitflags::bitflags;

use crate::layout::{layout, numbers};

/// `MLX5_IB_UVERBS_ABI_VERSION`: the `abi_version` of an mlx5 device in sysfs.
pub const ABI_VERSION: u32 = 1;

layout! {
    /// `struct mlx5_ib_alloc_ucontext_req_v2`, the driver's request of GET_CONTEXT.
    pub struct AllocUcontextReqV2 [32] {
        0  total_num_bfregs: u32 => "Number of BlueFlame registers requested.",
        4  num_low_latency_bfregs: u32 => "The number of them that are for one QP each.",
        8  flags: u32 => "[`UcontextFlags`].",
        12 comp_mask: u32 => "Zero.",
        16 max_cqe_version: u8 => "Newest CQE version that the driver supports: 1.",
        17 reserved0: u8 => "Zero.",
        18 reserved1: u16 => "Zero.",
        20 reserved2: u32 => "Zero.",
        24 lib_caps: u64 => "[`LibCaps`].",
    }

    /// `struct mlx5_ib_alloc_ucontext_resp`, the driver's response of GET_CONTEXT.
    pub struct AllocUcontextResp [72] {
        0  qp_tab_size: u32 => "Maximum number of QPs.",
        4  bf_reg_size: u32 => "Bytes of a BlueFlame register, both halves; zero without BlueFlame.",
        8  tot_bfregs: u32 => "Static BlueFlame registers; zero selects dynamic UARs.",
        12 cache_line_size: u32 => "Cache line size of the device in bytes.",
        16 max_sq_desc_sz: u16 => "Maximum size of a send WQE in bytes.",
        18 max_rq_desc_sz: u16 => "Maximum size of a receive WQE in bytes.",
        20 max_send_wqebb: u32 => "Maximum size of a send queue in basic blocks.",
        24 max_recv_wr: u32 => "Maximum size of a receive queue in requests.",
        28 max_srq_recv_wr: u32 => "Maximum size of a shared receive queue in requests.",
        32 num_ports: u16 => "Number of ports.",
        34 flow_action_flags: u16 => "ESP flow action capabilities.",
        36 comp_mask: u32 => "[`UcontextRespMask`].",
        40 response_length: u32 => "Bytes of this structure that the kernel knows.",
        44 cqe_version: u8 => "CQE version in use.",
        45 cmds_supp_uhw: u8 => "[`CmdsSuppUhw`].",
        46 eth_min_inline: u8 => "Minimum [`InlineMode`] of Ethernet sends.",
        47 clock_info_versions: u8 => "Bit n: version n of the clock-info page.",
        48 hca_core_clock_offset: u64 => "Offset of the core clock in its page.",
        56 log_uar_size: u32 => "Log2 of the size of a UAR in bytes.",
        60 num_uars_per_page: u32 => "UARs in a system page.",
        64 num_dyn_bfregs: u32 => "BlueFlame registers that can be allocated on demand.",
        68 dump_fill_mkey: u32 => "Key of the null region; big-endian in WQEs, like every key.",
    }

    /// `struct mlx5_ib_alloc_pd_resp`.
    pub struct AllocPdResp [4] {
        0 pdn: u32 => "The device's number for the PD.",
    }

    /// `struct mlx5_ib_tso_caps`.
    pub struct TsoCaps [8] {
        0 max_tso: u32 => "Maximum TSO payload in bytes.",
        4 supported_qpts: u32 => "Bit n: QP type n.",
    }

    /// `struct mlx5_ib_rss_caps`.
    pub struct RssCaps [16] {
        0 rx_hash_fields_mask: u64 => "Header fields that the hash can cover.",
        8 rx_hash_function: u8 => "Hash functions.",
        9 reserved: [u8; 7] => "Reserved.",
    }

    /// `struct mlx5_ib_cqe_comp_caps`.
    pub struct CqeCompCaps [8] {
        0 max_num: u32 => "Maximum number of CQEs in a compressed run.",
        4 supported_format: u32 => "[`CqeCompFormat`].",
    }

    /// `struct mlx5_packet_pacing_caps`.
    pub struct PacketPacingCaps [16] {
        0  qp_rate_limit_min: u32 => "Minimum rate in kb/s.",
        4  qp_rate_limit_max: u32 => "Maximum rate in kb/s.",
        8  supported_qpts: u32 => "Bit n: QP type n.",
        12 cap_flags: u8 => "Bit 0: bursts.",
        13 reserved: [u8; 3] => "Reserved.",
    }

    /// `struct mlx5_ib_sw_parsing_caps`.
    pub struct SwParsingCaps [8] {
        0 sw_parsing_offloads: u32 => "Software parsing capabilities.",
        4 supported_qpts: u32 => "Bit n: QP type n.",
    }

    /// `struct mlx5_ib_striding_rq_caps`.
    pub struct StridingRqCaps [24] {
        0  min_single_stride_log_num_of_bytes: u32 => "Log2 of the minimum stride in bytes.",
        4  max_single_stride_log_num_of_bytes: u32 => "Log2 of the maximum stride in bytes.",
        8  min_single_wqe_log_num_of_strides: u32 => "Log2 of the minimum strides per WQE.",
        12 max_single_wqe_log_num_of_strides: u32 => "Log2 of the maximum strides per WQE.",
        16 supported_qpts: u32 => "Bit n: QP type n.",
        20 reserved: u32 => "Reserved.",
    }

    /// `struct mlx5_ib_dci_streams_caps`.
    pub struct DciStreamsCaps [2] {
        0 max_log_num_concurent: u8 => "Log2 of the maximum number of concurrent streams.",
        1 max_log_num_errored: u8 => "Log2 of the failed streams that fail the DCI.",
    }

    /// `struct mlx5_ib_query_device_resp`, the driver's response of QUERY_DEVICE_EX.
    pub struct QueryDeviceResp [104] {
        0   comp_mask: u32 => "Zero.",
        4   response_length: u32 => "Bytes of this structure that the kernel knows.",
        8   tso_caps: TsoCaps => "TCP segmentation.",
        16  rss_caps: RssCaps => "Receive-side scaling.",
        32  cqe_comp_caps: CqeCompCaps => "CQE compression.",
        40  packet_pacing_caps: PacketPacingCaps => "Packet pacing.",
        56  support_multi_pkt_send_wqes: u32 => "Bit 1: multi-packet WQEs; bit 2: enhanced ones.",
        60  flags: u32 => "[`QueryDeviceFlags`].",
        64  sw_parsing_caps: SwParsingCaps => "Software parsing.",
        72  striding_rq_caps: StridingRqCaps => "Striding receive queues.",
        96  tunnel_offloads_caps: u32 => "Tunnels inside which offloads work.",
        100 dci_streams_caps: DciStreamsCaps => "DCI streams.",
        102 reserved: u16 => "Reserved.",
    }

    /// `struct mlx5_ib_create_cq`.
    pub struct CreateCq [32] {
        0  buf_addr: u64 => "The ring.",
        8  db_addr: u64 => "The doorbell record.",
        16 cqe_size: u32 => "64 or 128.",
        20 cqe_comp_en: u8 => "1 to compress.",
        21 cqe_comp_res_format: u8 => "One value of [`CqeCompFormat`].",
        22 flags: u16 => "[`CreateCqFlags`].",
        24 uar_page_index: u16 => "UAR page to arm through, with `UAR_PAGE_INDEX`.",
        26 reserved0: u16 => "Zero.",
        28 reserved1: u32 => "Zero.",
    }

    /// `struct mlx5_ib_create_cq_resp`.
    pub struct CreateCqResp [8] {
        0 cqn: u32 => "The device's number for the CQ.",
        4 reserved: u32 => "Reserved.",
    }

    /// `struct mlx5_ib_resize_cq`.
    pub struct ResizeCq [16] {
        0  buf_addr: u64 => "The new ring.",
        8  cqe_size: u16 => "64 or 128.",
        10 reserved0: u16 => "Zero.",
        12 reserved1: u32 => "Zero.",
    }

    /// `struct mlx5_ib_create_srq`.
    pub struct CreateSrq [32] {
        0  buf_addr: u64 => "The queue.",
        8  db_addr: u64 => "The doorbell record.",
        16 flags: u32 => "Bit 0: WQE signatures.",
        20 reserved0: u32 => "Zero.",
        24 uidx: u32 => "User index in CQEs.",
        28 reserved1: u32 => "Zero.",
    }

    /// `struct mlx5_ib_create_srq_resp`.
    pub struct CreateSrqResp [8] {
        0 srqn: u32 => "The device's number for the SRQ.",
        4 reserved: u32 => "Reserved.",
    }

    /// `struct mlx5_ib_create_qp_dci_streams`.
    pub struct DciStreams [2] {
        0 log_num_concurent: u8 => "Log2 of the number of concurrent streams.",
        1 log_num_errored: u8 => "Log2 of the failed streams that fail the DCI.",
    }

    /// `struct mlx5_ib_create_qp`.
    pub struct CreateQp [56] {
        0  buf_addr: u64 => "The queue buffer; of a raw packet QP, its receive queue.",
        8  db_addr: u64 => "The doorbell record.",
        16 sq_wqe_count: u32 => "Blocks of the send queue.",
        20 rq_wqe_count: u32 => "WQEs of the receive queue.",
        24 rq_wqe_shift: u32 => "Log2 of the size of a receive WQE in bytes.",
        28 flags: u32 => "[`QpFlags`].",
        32 uidx: u32 => "User index in CQEs.",
        36 bfreg_index: u32 => "BlueFlame register, or UAR page with `UAR_PAGE_INDEX`.",
        40 sq_buf_addr: u64 => "A raw packet QP's send queue; a DCT's access key.",
        48 ece_options: u32 => "Enhanced connection establishment.",
        52 dci_streams: DciStreams => "With `DCI_STREAM`.",
        54 reserved: u16 => "Zero.",
    }

    /// `struct mlx5_ib_create_qp_resp`.
    pub struct CreateQpResp [40] {
        0  bfreg_index: u32 => "The BlueFlame register that the kernel assigned.",
        4  ece_options: u32 => "Enhanced connection establishment.",
        8  comp_mask: u32 => "[`CreateQpRespMask`].",
        12 tirn: u32 => "TIR of a raw packet QP.",
        16 tisn: u32 => "TIS of a raw packet QP.",
        20 rqn: u32 => "Receive queue of a raw packet QP.",
        24 sqn: u32 => "Send queue of a raw packet QP.",
        28 reserved1: u32 => "Reserved.",
        32 tir_icm_addr: u64 => "Device address of the TIR.",
    }

    /// `struct mlx5_ib_burst_info`.
    pub struct BurstInfo [8] {
        0 max_burst_sz: u32 => "Maximum burst in bytes.",
        4 typical_pkt_sz: u16 => "Typical packet size in bytes.",
        6 reserved: u16 => "Zero.",
    }

    /// `struct mlx5_ib_modify_qp`.
    pub struct ModifyQp [16] {
        0  comp_mask: u32 => "Zero.",
        4  burst_info: BurstInfo => "Packet pacing.",
        12 ece_options: u32 => "Enhanced connection establishment.",
    }

    /// `struct mlx5_ib_modify_qp_resp`.
    pub struct ModifyQpResp [16] {
        0  response_length: u32 => "Bytes of this structure that the kernel knows.",
        4  dctn: u32 => "Number of a DCT, known once it is in RTR.",
        8  ece_options: u32 => "Enhanced connection establishment.",
        12 reserved: u32 => "Reserved.",
    }

    /// `struct mlx5_ib_create_qp_rss`, the driver's request of a QP with an indirection table.
    pub struct CreateQpRss [152] {
        0   rx_hash_fields_mask: u64 => "[`RxHashFields`].",
        8   rx_hash_function: u8 => "[`RxHashFunctions`], one of them.",
        9   rx_key_len: u8 => "Bytes of the key: 40.",
        10  reserved: [u8; 6] => "Zero.",
        16  rx_hash_key: [u8; 128] => "The key.",
        144 comp_mask: u32 => "Zero.",
        148 flags: u32 => "[`QpFlags`] of tunnels and loopback.",
    }

    /// `struct mlx5_ib_create_wq`.
    pub struct CreateWq [48] {
        0  buf_addr: u64 => "The ring.",
        8  db_addr: u64 => "The doorbell record, of which the first word counts receives.",
        16 rq_wqe_count: u32 => "WQEs of the ring.",
        20 rq_wqe_shift: u32 => "Log2 of the size of a WQE in bytes.",
        24 user_index: u32 => "User index in CQEs.",
        28 flags: u32 => "Bit 0: WQE signatures.",
        32 comp_mask: u32 => "[`CreateWqMask`].",
        36 single_stride_log_num_of_bytes: u32 => "Log2 of the bytes of a stride.",
        40 single_wqe_log_num_of_strides: u32 => "Log2 of the strides of a WQE.",
        44 two_byte_shift_en: u32 => "1 to put two bytes before each packet.",
    }

    /// `struct mlx5_ib_create_wq_resp` and `struct mlx5_ib_create_rwq_ind_tbl_resp`.
    pub struct LengthResp [8] {
        0 response_length: u32 => "Bytes of this structure that the kernel knows.",
        4 reserved: u32 => "Reserved.",
    }

    /// `struct mlx5_ib_modify_wq`.
    pub struct ModifyWq [8] {
        0 comp_mask: u32 => "Zero.",
        4 reserved: u32 => "Zero.",
    }

    /// `struct mlx5_ib_flow_counters_desc`: a value of a counters object.
    pub struct FlowCountersDesc [8] {
        0 description: u32 => "[`crate::flow::CounterKind`].",
        4 index: u32 => "Its place among the values that are read.",
    }

    /// `struct mlx5_ib_flow_counters_data`.
    pub struct FlowCountersData [16] {
        0  counters_data: u64 => "Address of [`FlowCountersDesc`]s.",
        8  ncounters: u32 => "Their number.",
        12 reserved: u32 => "Zero.",
    }

    /// `struct mlx5_ib_create_flow`, followed by as many [`FlowCountersData`] as the rule has
    /// counters that were not described before.
    pub struct CreateFlow [8] {
        0 ncounters_data: u32 => "Their number: 0 or 1.",
        4 reserved: u32 => "Zero.",
    }

    /// `struct mlx5_ib_create_ah_resp`.
    pub struct CreateAhResp [16] {
        0  response_length: u32 => "Bytes of this structure that the kernel knows.",
        4  dmac: [u8; 6] => "Destination MAC that the kernel resolved.",
        10 reserved: [u8; 6] => "Reserved.",
    }

    /// `struct mlx5_ib_clock_info`: the page at [`MmapCommand::ClockInfo`], which the kernel
    /// updates. It is protected by a sequence lock: `sign` is odd during an update.
    pub struct ClockInfo [56] {
        0  sign: u32 => "Sequence number; odd during an update.",
        4  resv: u32 => "Reserved.",
        8  nsec: u64 => "Nanoseconds at `cycles`.",
        16 cycles: u64 => "Device clock at the last update.",
        24 frac: u64 => "Fraction of a nanosecond.",
        32 mult: u32 => "Multiplier.",
        36 shift: u32 => "Shift.",
        40 mask: u64 => "Mask of the valid bits of the device clock.",
        48 overflow_period: u64 => "Jiffies between updates (length unknown to user space).",
    }

    /// `struct mlx5_ib_uapi_devx_async_event_hdr`: the header of each DEVX event.
    pub struct DevxAsyncEventHdr [8] {
        0 cookie: u64 => "The cookie of the subscription.",
    }
}

bitflags! {
    /// `enum mlx5_ib_alloc_uctx_v2_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UcontextFlags: u32 {
        /// The context may use DEVX.
        const DEVX = 1 << 0;
    }

    /// `enum mlx5_lib_caps`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LibCaps: u64 {
        /// 4 KiB UARs, whatever the system's page size.
        const UAR_4K = 1 << 0;
        /// UARs allocated on demand.
        const DYN_UAR = 1 << 1;
    }

    /// `enum mlx5_ib_alloc_ucontext_resp_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct UcontextRespMask: u32 {
        /// `hca_core_clock_offset` is valid.
        const CORE_CLOCK_OFFSET = 1 << 0;
        /// `dump_fill_mkey` is valid.
        const DUMP_FILL_MKEY = 1 << 1;
        /// Enhanced connection establishment (ECE) is supported.
        const ECE = 1 << 2;
        /// The transition from SQD to RTS is supported.
        const SQD2RTS = 1 << 3;
        /// CQEs can have real-time timestamps.
        const REAL_TIME_TS = 1 << 4;
        /// UMR can update an mkey's tag.
        const MKEY_UPDATE_TAG = 1 << 5;
    }

    /// `enum mlx5_user_cmds_supp_uhw`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CmdsSuppUhw: u8 {
        /// QUERY_DEVICE has a driver response.
        const QUERY_DEVICE = 1 << 0;
        /// CREATE_AH has a driver response.
        const CREATE_AH = 1 << 1;
    }

    /// `enum mlx5_ib_query_dev_resp_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct QueryDeviceFlags: u32 {
        /// 128-byte CQEs can be compressed.
        const CQE_128B_COMP = 1 << 0;
        /// CQEs can be padded to 128 bytes.
        const CQE_128B_PAD = 1 << 1;
        /// Packet based credit mode.
        const PACKET_BASED_CREDIT_MODE = 1 << 2;
        /// A DCT supports scatter to CQE.
        const SCAT2CQE_DCT = 1 << 3;
    }

    /// `enum mlx5_ib_cqe_comp_res_format`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CqeCompFormat: u32 {
        /// Mini CQEs carry the RX hash.
        const HASH = 1 << 0;
        /// Mini CQEs carry the checksum.
        const CSUM = 1 << 1;
        /// Mini CQEs carry checksum and stride index.
        const CSUM_STRIDX = 1 << 2;
    }

    /// `enum mlx5_ib_create_cq_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CreateCqFlags: u16 {
        /// Pad CQEs to 128 bytes.
        const CQE_128B_PAD = 1 << 0;
        /// `uar_page_index` is valid.
        const UAR_PAGE_INDEX = 1 << 1;
        /// Real-time timestamps.
        const REAL_TIME_TS = 1 << 2;
    }

    /// `MLX5_QP_FLAG_*`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpFlags: u32 {
        /// WQE signatures.
        const SIGNATURE = 1 << 0;
        /// Scatters short payloads to CQEs.
        const SCATTER_CQE = 1 << 1;
        /// Offloads apply to tunnelled packets.
        const TUNNEL_OFFLOADS = 1 << 2;
        /// `bfreg_index` is valid.
        const BFREG_INDEX = 1 << 3;
        /// The QP is a DCT.
        const TYPE_DCT = 1 << 4;
        /// The QP is a DCI.
        const TYPE_DCI = 1 << 5;
        /// A TIR may receive its own unicast.
        const TIR_ALLOW_SELF_LB_UC = 1 << 6;
        /// A TIR may receive its own multicast.
        const TIR_ALLOW_SELF_LB_MC = 1 << 7;
        /// The responder may scatter to CQEs, too.
        const ALLOW_SCATTER_CQE = 1 << 8;
        /// Packet based credit mode.
        const PACKET_BASED_CREDIT_MODE = 1 << 9;
        /// `bfreg_index` is the index of a UAR page.
        const UAR_PAGE_INDEX = 1 << 10;
        /// `dci_streams` is valid.
        const DCI_STREAM = 1 << 11;
    }

    /// `enum mlx5_rx_hash_function_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RxHashFunctions: u8 {
        /// Toeplitz.
        const TOEPLITZ = 1 << 0;
    }

    /// `enum mlx5_rx_hash_fields`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RxHashFields: u64 {
        /// Source of IPv4.
        const SRC_IPV4 = 1 << 0;
        /// Destination of IPv4.
        const DST_IPV4 = 1 << 1;
        /// Source of IPv6.
        const SRC_IPV6 = 1 << 2;
        /// Destination of IPv6.
        const DST_IPV6 = 1 << 3;
        /// Source port of TCP.
        const SRC_PORT_TCP = 1 << 4;
        /// Destination port of TCP.
        const DST_PORT_TCP = 1 << 5;
        /// Source port of UDP.
        const SRC_PORT_UDP = 1 << 6;
        /// Destination port of UDP.
        const DST_PORT_UDP = 1 << 7;
        /// Security parameter index of IPsec.
        const IPSEC_SPI = 1 << 8;
        /// The fields of the inner headers of a tunnel.
        const INNER = 1 << 31;
    }

    /// `enum mlx5_ib_create_wq_mask`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CreateWqMask: u32 {
        /// The queue is striding: the fields of strides are valid.
        const STRIDING_RQ = 1 << 0;
    }

    /// `enum mlx5_ib_tunnel_offloads_caps`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TunnelOffloads: u32 {
        /// VXLAN.
        const VXLAN = 1 << 0;
        /// GRE.
        const GRE = 1 << 1;
        /// GENEVE.
        const GENEVE = 1 << 2;
        /// MPLS over GRE.
        const MPLS_GRE = 1 << 3;
        /// MPLS over UDP.
        const MPLS_UDP = 1 << 4;
    }

    /// `enum mlx5_ib_mpw_caps`: bits of [`QueryDeviceResp::support_multi_pkt_send_wqes`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MultiPacketSend: u32 {
        /// Packets of equal length.
        const LEGACY = 1 << 1;
        /// Packets of any length.
        const ENHANCED = 1 << 2;
    }

    /// `enum mlx5_ib_create_qp_resp_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CreateQpRespMask: u32 {
        /// `tirn` is valid.
        const TIRN = 1 << 0;
        /// `tisn` is valid.
        const TISN = 1 << 1;
        /// `rqn` is valid.
        const RQN = 1 << 2;
        /// `sqn` is valid.
        const SQN = 1 << 3;
        /// `tir_icm_addr` is valid.
        const TIR_ICM_ADDR = 1 << 4;
    }
}

numbers! {
    /// `enum mlx5_user_inline_mode`.
    pub enum InlineMode: u8 {
        NotApplicable = 0 => "Not an Ethernet port.",
        None = 1 => "Nothing.",
        L2 = 2 => "The Ethernet header.",
        Ip = 3 => "The headers up to IP.",
        TcpUdp = 4 => "The headers up to TCP or UDP.",
    }

    /// `enum mlx5_ib_mmap_cmd`: the kind of page at an mmap offset of the older encoding.
    pub enum MmapCommand: u8 {
        RegularPage = 0 => "A static UAR page.",
        GetContiguousPages = 1 => "Contiguous memory; no longer served.",
        WcPage = 2 => "A static UAR page, write combining.",
        NcPage = 3 => "A static UAR page, not cached.",
        CoreClock = 5 => "The device's free-running clock.",
        AllocWc = 6 => "A dynamic UAR page, by index.",
        ClockInfo = 7 => "The clock-info page, `struct mlx5_ib_clock_info`.",
        DeviceMem = 8 => "Device memory.",
    }

    /// `enum mlx5_ib_uapi_uar_alloc_type`.
    pub enum UarType: u8 {
        BlueFlame = 0 => "Write combining, for BlueFlame.",
        NonCached = 1 => "Not cached, for 8-byte doorbells.",
    }

    /// `enum mlx5_ib_uapi_dm_type`.
    pub enum DmType: u8 {
        Memic = 0 => "Memory on the device for data.",
        SteeringSwIcm = 1 => "Steering entries.",
        HeaderModifySwIcm = 2 => "Header rewrite actions.",
        HeaderModifyPatternSwIcm = 3 => "Header rewrite patterns.",
    }
}

impl MmapCommand {
    /// Returns the mmap offset of page `index` of this kind, on a system with pages of `page_size`
    /// bytes.
    ///
    /// In units of pages, the offset has the low byte of the index in bits 0 to 7, the command in
    /// bits 8 to 15, and the rest of the index from bit 16.
    pub const fn offset(self, index: u32, page_size: usize) -> u64 {
        let index = index as u64;
        let page = (index >> 8) << 16 | (self as u64) << 8 | index & 0xff;
        page * page_size as u64
    }

    /// Returns the kind of page at an mmap offset, `None` for a kind that is not in the table.
    pub const fn of(offset: u64, page_size: usize) -> Option<Self> {
        Self::from_raw(((offset / page_size as u64) >> 8) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mmap_offsets_put_a_long_index_around_the_command() {
        assert_eq!(MmapCommand::ClockInfo.offset(0, 4096), 0x700 * 4096);
        assert_eq!(MmapCommand::DeviceMem.offset(0x12, 4096), 0x812 * 4096);
        assert_eq!(MmapCommand::AllocWc.offset(0x345, 65536), 0x3_0645 * 65536);
        assert_eq!(MmapCommand::of(0x3_0645 * 65536, 65536), Some(MmapCommand::AllocWc));
        assert_eq!(MmapCommand::of(0x400 * 4096, 4096), None);
    }
}
