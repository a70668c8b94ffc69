//! `rdma/ib_user_ioctl_verbs.h`, and the parts of `rdma/ib_user_verbs.h` that both kinds of calls
//! use.

use bitflags::bitflags;

use crate::layout::{layout, numbers};

/// `IB_USER_VERBS_ABI_VERSION`: the `abi_version` of the uverbs class in sysfs.
pub const ABI_VERSION: u32 = 6;

layout! {
    /// `struct ib_uverbs_qp_cap`.
    pub struct QpCap [20] {
        0  max_send_wr: u32 => "Send requests.",
        4  max_recv_wr: u32 => "Receive requests.",
        8  max_send_sge: u32 => "Scatter/gather elements of a send.",
        12 max_recv_sge: u32 => "Scatter/gather elements of a receive.",
        16 max_inline_data: u32 => "Inline bytes of a send.",
    }

    /// `struct ib_uverbs_gid_entry`.
    pub struct GidEntry [32] {
        0  gid: [u8; 16] => "The GID in network byte order.",
        16 gid_index: u32 => "Its index.",
        20 port_num: u32 => "Its port.",
        24 gid_type: u32 => "[`GidType`].",
        28 netdev_ifindex: u32 => "Its network interface; zero without one.",
    }

    /// `struct ib_uverbs_query_port_resp`.
    pub struct QueryPortResp [40] {
        0  port_cap_flags: u32 => "`IB_UVERBS_PCF_*`.",
        4  max_msg_sz: u32 => "Longest message.",
        8  bad_pkey_cntr: u32 => "Bad P_Keys met.",
        12 qkey_viol_cntr: u32 => "Q_Key violations met.",
        16 gid_tbl_len: u32 => "Length of the GID table.",
        20 pkey_tbl_len: u16 => "Length of the P_Key table.",
        22 lid: u16 => "Local id.",
        24 sm_lid: u16 => "Subnet manager's local id.",
        26 state: u8 => "[`PortState`].",
        27 max_mtu: u8 => "[`Mtu`] that the port can do.",
        28 active_mtu: u8 => "[`Mtu`] in force.",
        29 lmc: u8 => "LID mask control.",
        30 max_vl_num: u8 => "Virtual lanes.",
        31 sm_sl: u8 => "Subnet manager's service level.",
        32 subnet_timeout: u8 => "Subnet propagation delay.",
        33 init_type_reply: u8 => "Kind of initialization done.",
        34 active_width: u8 => "Link width: 1 = 1x, 2 = 4x, 4 = 8x, 8 = 12x, 16 = 2x.",
        35 active_speed: u8 => "Link speed, `IB_SPEED_*`.",
        36 phys_state: u8 => "Physical state.",
        37 link_layer: u8 => "[`LinkLayer`].",
        38 flags: u8 => "Bit 0: a GRH is required.",
        39 reserved: u8 => "Reserved.",
    }

    /// `struct ib_uverbs_query_port_resp_ex`.
    pub struct QueryPortRespEx [48] {
        0  legacy_resp: QueryPortResp => "The part that every kernel returns.",
        40 port_cap_flags2: u16 => "More capabilities.",
        42 reserved: [u8; 2] => "Reserved.",
        44 active_speed_ex: u32 => "Link speed with newer rates, from newer kernels; else zero.",
    }

    /// `struct ib_uverbs_global_route`.
    pub struct GlobalRoute [24] {
        0  dgid: [u8; 16] => "Destination GID.",
        16 flow_label: u32 => "Flow label, host order.",
        20 sgid_index: u8 => "Index of the source GID.",
        21 hop_limit: u8 => "Hop limit.",
        22 traffic_class: u8 => "Traffic class.",
        23 reserved: u8 => "Zero.",
    }

    /// `struct ib_uverbs_ah_attr`.
    pub struct AhAttr [32] {
        0  grh: GlobalRoute => "Global route, with `is_global`.",
        24 dlid: u16 => "Destination LID.",
        26 sl: u8 => "Service level.",
        27 src_path_bits: u8 => "Source path bits.",
        28 static_rate: u8 => "Rate limit.",
        29 is_global: u8 => "1 with a global route.",
        30 port_num: u8 => "Port.",
        31 reserved: u8 => "Zero.",
    }

    /// `struct ib_uverbs_qp_dest`: a path in the form of the QP commands.
    pub struct QpDest [32] {
        0  dgid: [u8; 16] => "Destination GID.",
        16 flow_label: u32 => "Flow label, host order.",
        20 dlid: u16 => "Destination LID.",
        22 reserved: u16 => "Zero.",
        24 sgid_index: u8 => "Index of the source GID.",
        25 hop_limit: u8 => "Hop limit.",
        26 traffic_class: u8 => "Traffic class.",
        27 sl: u8 => "Service level.",
        28 src_path_bits: u8 => "Source path bits.",
        29 static_rate: u8 => "Rate limit.",
        30 is_global: u8 => "1 with a global route.",
        31 port_num: u8 => "Port.",
    }

    /// `struct ib_uverbs_qp_attr`: QP attributes in the form of the kernel's connection manager.
    pub struct QpAttr [144] {
        0   qp_attr_mask: u32 => "[`QpAttrMask`].",
        4   qp_state: u32 => "[`QpState`].",
        8   cur_qp_state: u32 => "[`QpState`] that the QP is taken to be in.",
        12  path_mtu: u32 => "[`Mtu`].",
        16  path_mig_state: u32 => "Path migration state.",
        20  qkey: u32 => "Q_Key.",
        24  rq_psn: u32 => "Receive packet sequence number.",
        28  sq_psn: u32 => "Send packet sequence number.",
        32  dest_qp_num: u32 => "Peer's QP number.",
        36  qp_access_flags: u32 => "[`AccessFlags`] granted to the peer.",
        40  ah_attr: AhAttr => "Path.",
        72  alt_ah_attr: AhAttr => "Alternate path.",
        104 max_send_wr: u32 => "Send requests.",
        108 max_recv_wr: u32 => "Receive requests.",
        112 max_send_sge: u32 => "Scatter/gather elements of a send.",
        116 max_recv_sge: u32 => "Scatter/gather elements of a receive.",
        120 max_inline_data: u32 => "Inline bytes of a send.",
        124 pkey_index: u16 => "Index of the P_Key.",
        126 alt_pkey_index: u16 => "Index of the alternate path's P_Key.",
        128 en_sqd_async_notify: u8 => "1 to get an event when the send queue has drained.",
        129 sq_draining: u8 => "1 while the send queue drains.",
        130 max_rd_atomic: u8 => "Reads and atomics outstanding as initiator.",
        131 max_dest_rd_atomic: u8 => "Reads and atomics outstanding as responder.",
        132 min_rnr_timer: u8 => "RNR NAK timer.",
        133 port_num: u8 => "Port.",
        134 timeout: u8 => "Acknowledge timeout.",
        135 retry_cnt: u8 => "Retries.",
        136 rnr_retry: u8 => "Retries after RNR NAK.",
        137 alt_port_num: u8 => "Alternate path's port.",
        138 alt_timeout: u8 => "Alternate path's timeout.",
        139 reserved: [u8; 5] => "Zero.",
    }

    /// `struct ib_uverbs_sge`.
    pub struct Sge [16] {
        0  addr: u64 => "Address.",
        8  length: u32 => "Bytes.",
        12 lkey: u32 => "Key.",
    }

    /// `struct ib_uverbs_async_event_desc`: an event of an asynchronous event file.
    pub struct AsyncEventDesc [16] {
        0  element: u64 => "User handle of a CQ, QP or SRQ; number of a port; zero for the device.",
        8  event_type: u32 => "[`EventType`].",
        12 reserved: u32 => "Reserved.",
    }

    /// `struct ib_uverbs_comp_event_desc`: an event of a completion channel.
    pub struct CompEventDesc [8] {
        0 cq_handle: u64 => "User handle of the CQ.",
    }
}

bitflags! {
    /// `enum ib_uverbs_access_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// The local process's requests may write.
        const LOCAL_WRITE = 1 << 0;
        /// Peers may write.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read.
        const REMOTE_READ = 1 << 2;
        /// Peers may perform atomics.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound.
        const MW_BIND = 1 << 4;
        /// Addresses are offsets from the start of the region.
        const ZERO_BASED = 1 << 5;
        /// On-demand paging: pages are faulted in when the device accesses them.
        const ON_DEMAND = 1 << 6;
        /// The region is on-demand and consists of huge pages.
        const HUGETLB = 1 << 7;
        /// PCIe writes may be reordered. A kernel that does not know the flag ignores it.
        const RELAXED_ORDERING = 1 << 20;
    }

    /// `enum ib_uverbs_core_support`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CoreSupport: u64 {
        /// The kernel ignores optional access flags that it does not know.
        const OPTIONAL_MR_ACCESS = 1 << 0;
    }

    /// `enum ib_uverbs_ex_create_cq_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CqFlags: u32 {
        /// CQEs have timestamps.
        const TIMESTAMP_COMPLETION = 1 << 0;
        /// The CQ may overrun.
        const IGNORE_OVERRUN = 1 << 1;
    }

    /// `enum ib_uverbs_qp_create_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpCreateFlags: u32 {
        /// Does not loop multicast packets back.
        const BLOCK_MULTICAST_LOOPBACK = 1 << 1;
        /// Receives raw packets with their FCS.
        const SCATTER_FCS = 1 << 8;
        /// Strips the VLAN tag from received packets into the CQE.
        const CVLAN_STRIPPING = 1 << 9;
        /// Pads short PCIe writes to a cache line.
        const PCI_WRITE_END_PADDING = 1 << 11;
        /// Every send is signaled.
        const SQ_SIG_ALL = 1 << 12;
    }

    /// `enum ib_qp_attr_mask`: the attributes that MODIFY_QP changes and QUERY_QP reads.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpAttrMask: u32 {
        /// `qp_state`.
        const STATE = 1 << 0;
        /// `cur_qp_state`.
        const CUR_STATE = 1 << 1;
        /// `en_sqd_async_notify`.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `qp_access_flags`.
        const ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`.
        const PKEY_INDEX = 1 << 4;
        /// `port_num`.
        const PORT = 1 << 5;
        /// `qkey`.
        const QKEY = 1 << 6;
        /// The path.
        const AV = 1 << 7;
        /// `path_mtu`.
        const PATH_MTU = 1 << 8;
        /// `timeout`.
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`.
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`.
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`.
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// The alternate path.
        const ALT_PATH = 1 << 14;
        /// `min_rnr_timer`.
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`.
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`.
        const PATH_MIG_STATE = 1 << 18;
        /// The sizes.
        const CAP = 1 << 19;
        /// `dest_qp_num`.
        const DEST_QPN = 1 << 20;
        /// `rate_limit`, of the extended command.
        const RATE_LIMIT = 1 << 25;
    }

    /// `enum ib_uverbs_wq_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WqFlags: u32 {
        /// Strips the VLAN tag from received packets into the CQE.
        const CVLAN_STRIPPING = 1 << 0;
        /// Receives packets with their FCS.
        const SCATTER_FCS = 1 << 1;
        /// Packets wait for a while if no receive is posted.
        const DELAY_DROP = 1 << 2;
        /// Pads short PCIe writes to a cache line.
        const PCI_WRITE_END_PADDING = 1 << 3;
    }

    /// `enum ib_wq_attr_mask`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WqAttrMask: u32 {
        /// `wq_state`.
        const STATE = 1 << 0;
        /// `curr_wq_state`.
        const CUR_STATE = 1 << 1;
        /// `flags`.
        const FLAGS = 1 << 2;
    }

    /// `enum ib_uverbs_raw_packet_caps`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RawPacketCaps: u32 {
        /// VLAN tags can be stripped.
        const CVLAN_STRIPPING = 1 << 0;
        /// The FCS can be received.
        const SCATTER_FCS = 1 << 1;
        /// Checksums are computed and checked.
        const IP_CSUM = 1 << 2;
        /// Packets can wait for a receive.
        const DELAY_DROP = 1 << 3;
    }

    /// `enum ib_srq_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SrqAttrMask: u32 {
        /// `max_wr`.
        const MAX_WR = 1 << 0;
        /// `srq_limit`.
        const LIMIT = 1 << 1;
    }

    /// The parts of a region that REREG_MR changes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ReregFlags: u32 {
        /// The memory.
        const TRANSLATION = 1 << 0;
        /// The protection domain.
        const PD = 1 << 1;
        /// The access rights.
        const ACCESS = 1 << 2;
    }

    /// Flags for opening a shared domain by OPEN_XRCD, as of open(2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct XrcdFlags: u32 {
        /// Creates the domain if it does not exist (`O_CREAT`).
        const CREATE = 0o100;
        /// Fails if the domain exists (`O_EXCL`).
        const EXCLUSIVE = 0o200;
    }

    /// `enum ib_uverbs_device_cap_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DeviceCapFlags: u64 {
        /// A QP's queues can be resized.
        const RESIZE_MAX_WR = 1 << 0;
        /// Bad P_Keys are counted.
        const BAD_PKEY_CNTR = 1 << 1;
        /// Bad Q_Keys are counted.
        const BAD_QKEY_CNTR = 1 << 2;
        /// Raw packet multicast.
        const RAW_MULTI = 1 << 3;
        /// Automatic path migration.
        const AUTO_PATH_MIG = 1 << 4;
        /// A QP's port can be changed.
        const CHANGE_PHY_PORT = 1 << 5;
        /// An AH's port is checked.
        const UD_AV_PORT_ENFORCE = 1 << 6;
        /// `cur_qp_state` is supported.
        const CURR_QP_STATE_MOD = 1 << 7;
        /// A port can be shut down.
        const SHUTDOWN_PORT = 1 << 8;
        /// Port-active events.
        const PORT_ACTIVE_EVENT = 1 << 10;
        /// System image GUID.
        const SYS_IMAGE_GUID = 1 << 11;
        /// RC sends RNR NAKs.
        const RC_RNR_NAK_GEN = 1 << 12;
        /// SRQs can be resized.
        const SRQ_RESIZE = 1 << 13;
        /// Arming for n completions.
        const N_NOTIFY_CQ = 1 << 14;
        /// Memory windows of type 1.
        const MEM_WINDOW = 1 << 17;
        /// IP checksums on UD.
        const UD_IP_CSUM = 1 << 18;
        /// XRC.
        const XRC = 1 << 20;
        /// Fast registration and local invalidate.
        const MEM_MGT_EXTENSIONS = 1 << 21;
        /// Memory windows of type 2A.
        const MEM_WINDOW_TYPE_2A = 1 << 23;
        /// Memory windows of type 2B.
        const MEM_WINDOW_TYPE_2B = 1 << 24;
        /// IP checksums on RC.
        const RC_IP_CSUM = 1 << 25;
        /// IP checksums of raw packets.
        const RAW_IP_CSUM = 1 << 26;
        /// Flow steering.
        const MANAGED_FLOW_STEERING = 1 << 29;
        /// FCS of raw packets.
        const RAW_SCATTER_FCS = 1 << 34;
        /// Short PCIe writes can be padded.
        const PCI_WRITE_END_PADDING = 1 << 36;
    }
}

numbers! {
    /// `enum ib_uverbs_gid_type`.
    pub enum GidType: u32 {
        InfiniBand = 0 => "InfiniBand.",
        RoceV1 = 1 => "RoCE, its own EtherType.",
        RoceV2 = 2 => "RoCE over UDP.",
    }

    /// `enum ib_uverbs_qp_type`.
    pub enum QpType: u8 {
        Rc = 2 => "Reliable connection.",
        Uc = 3 => "Unreliable connection.",
        Ud = 4 => "Unreliable datagram.",
        RawPacket = 8 => "Raw Ethernet packets.",
        XrcIni = 9 => "XRC, sending side.",
        XrcTgt = 10 => "XRC, receiving side.",
        Driver = 0xff => "The driver's own: DCI and DCT.",
    }

    /// `enum ib_qp_state`.
    pub enum QpState: u8 {
        Reset = 0 => "Reset.",
        Init = 1 => "Initialized.",
        Rtr = 2 => "Ready to receive.",
        Rts = 3 => "Ready to send.",
        Sqd = 4 => "Send queue drained.",
        Sqe = 5 => "Send queue error.",
        Err = 6 => "Error.",
    }

    /// `enum ib_mtu`.
    pub enum Mtu: u8 {
        Mtu256 = 1 => "256 bytes.",
        Mtu512 = 2 => "512 bytes.",
        Mtu1024 = 3 => "1024 bytes.",
        Mtu2048 = 4 => "2048 bytes.",
        Mtu4096 = 5 => "4096 bytes.",
    }

    /// `enum ib_port_state`.
    pub enum PortState: u8 {
        Nop = 0 => "No change.",
        Down = 1 => "Down.",
        Init = 2 => "Link up, not configured.",
        Armed = 3 => "Configured.",
        Active = 4 => "In use.",
        ActiveDefer = 5 => "In use, link lost for a moment.",
    }

    /// Link layer of a port.
    pub enum LinkLayer: u8 {
        Unspecified = 0 => "Unspecified: InfiniBand.",
        InfiniBand = 1 => "InfiniBand.",
        Ethernet = 2 => "Ethernet.",
    }

    /// Path migration state of a QP.
    pub enum MigState: u8 {
        Migrated = 0 => "On the alternate path.",
        Rearm = 1 => "Alternate path being loaded.",
        Armed = 2 => "Ready to migrate.",
    }

    /// `enum ib_uverbs_srq_type`.
    pub enum SrqType: u8 {
        Basic = 0 => "Shared between QPs of one PD.",
        Xrc = 1 => "Shared through an XRC domain.",
        Tm = 2 => "With tag matching.",
    }

    /// `enum ib_uverbs_wq_type`.
    pub enum WqType: u8 {
        Rq = 0 => "Receive queue.",
    }

    /// `enum ib_wq_state`.
    pub enum WqState: u32 {
        Reset = 0 => "Reset.",
        Ready = 1 => "Receiving.",
        Error = 2 => "Error.",
    }

    /// Type of a memory window.
    pub enum MwType: u8 {
        Type1 = 1 => "Bound by a verb.",
        Type2 = 2 => "Bound by posting.",
    }

    /// `enum ib_uverbs_advise_mr_advice`.
    pub enum Advice: u32 {
        Prefetch = 0 => "Fetch for reading.",
        PrefetchWrite = 1 => "Fetch for writing.",
        PrefetchNoFault = 2 => "Fetch what is present.",
    }

    /// Atomicity of the device's atomics (`enum ib_atomic_cap`).
    pub enum AtomicCap: u32 {
        None = 0 => "No atomics.",
        Hca = 1 => "Atomic among the QPs of the device.",
        Global = 2 => "Atomic to the whole machine.",
    }

    /// `enum ib_event_type`.
    pub enum EventType: u32 {
        CqError = 0 => "A CQ overran or broke.",
        QpFatal = 1 => "A QP went to error.",
        QpRequestError = 2 => "A QP met an invalid request.",
        QpAccessError = 3 => "A QP met an access violation.",
        CommunicationEstablished = 4 => "A QP in RTR received a message.",
        SqDrained = 5 => "A send queue drained.",
        PathMigrated = 6 => "A QP is on its alternate path.",
        PathMigrationError = 7 => "A QP could not go to its alternate path.",
        DeviceFatal = 8 => "The device is gone.",
        PortActive = 9 => "A port became active.",
        PortError = 10 => "A port went down.",
        LidChange = 11 => "A port's LID changed.",
        PkeyChange = 12 => "A port's P_Key table changed.",
        SmChange = 13 => "The subnet manager changed.",
        SrqError = 14 => "An SRQ broke.",
        SrqLimitReached = 15 => "An SRQ fell below its limit.",
        QpLastWqeReached = 16 => "A QP in error takes no more from its SRQ.",
        ClientReregister = 17 => "The subnet manager wants subscriptions again.",
        GidChange = 18 => "A port's GID table changed.",
        WqFatal = 19 => "A work queue went to error.",
    }
}

/// The kind of number in the `element` of an asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSubject {
    /// User handle of a CQ.
    Cq,
    /// User handle of a QP.
    Qp,
    /// User handle of an SRQ.
    Srq,
    /// User handle of a work queue.
    Wq,
    /// Number of a port.
    Port,
    /// Zero: the event concerns the device.
    Device,
}

impl EventType {
    /// Returns the subject of the event, that is, how to read its `element`.
    pub const fn subject(self) -> EventSubject {
        match self {
            Self::CqError => EventSubject::Cq,
            Self::QpFatal
            | Self::QpRequestError
            | Self::QpAccessError
            | Self::CommunicationEstablished
            | Self::SqDrained
            | Self::PathMigrated
            | Self::PathMigrationError
            | Self::QpLastWqeReached => EventSubject::Qp,
            Self::SrqError | Self::SrqLimitReached => EventSubject::Srq,
            Self::WqFatal => EventSubject::Wq,
            Self::PortActive
            | Self::PortError
            | Self::LidChange
            | Self::PkeyChange
            | Self::SmChange
            | Self::ClientReregister
            | Self::GidChange => EventSubject::Port,
            Self::DeviceFatal => EventSubject::Device,
        }
    }
}

impl Mtu {
    /// Returns the MTU in bytes.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }
}
