//! `rdma/rdma_user_cm.h`, and the paths of `rdma/ib_user_sa.h` that it refers to.

use crate::layout::layout;
use crate::verbs::AhAttr;

/// `struct __kernel_sockaddr_storage`: an address of any family, in the form of the C library: one
/// of [`Ipv4Address`], [`Ipv6Address`] and [`IbAddress`].
pub type SocketAddress = [u8; 128];
/// Room for an [`Ipv6Address`], which also holds an [`Ipv4Address`].
pub type IpAddress = [u8; 28];

/// `RDMA_MAX_PRIVATE_DATA`: bytes of private data for which a call has room. A message carries
/// fewer; see [`super::private_data`].
pub const MAX_PRIVATE_DATA: usize = 256;

/// Paths for which a response has room (`struct rdma_ucm_query_path_resp` of C's library).
pub const MAX_PATHS: usize = 6;

layout! {
    table LAYOUTS;

    /// `struct rdma_ucm_cmd_hdr`: precedes each command.
    pub struct Header [8] {
        0 cmd: u32 => "[`super::CommandId`].",
        4 in_len: u16 => "Bytes of the command.",
        6 out_len: u16 => "Bytes of its response.",
    }

    /// `struct rdma_ucm_create_id`.
    pub struct CreateId [24] {
        0  uid: u64 => "Returned with each event.",
        8  response: u64 => "Address of the response.",
        16 ps: u16 => "[`super::PortSpace`].",
        18 qp_type: u8 => "[`crate::verbs::QpType`]; counts in the port space of InfiniBand.",
        19 reserved: [u8; 5] => "Zero.",
    }

    /// `struct rdma_ucm_create_id_resp`.
    pub struct CreateIdResp [4] {
        0 id: u32 => "The identifier.",
    }

    /// `struct rdma_ucm_destroy_id`, also of LEAVE_MCAST.
    pub struct DestroyId [16] {
        0  response: u64 => "Address of the response.",
        8  id: u32 => "The identifier, or that of a multicast group.",
        12 reserved: u32 => "Zero.",
    }

    /// `struct rdma_ucm_destroy_id_resp`.
    pub struct DestroyIdResp [4] {
        0 events_reported: u32 => "Events of it that were read.",
    }

    /// `struct rdma_ucm_bind_ip`.
    pub struct BindIp [40] {
        0  response: u64 => "Unused.",
        8  addr: IpAddress => "The address.",
        36 id: u32 => "The identifier.",
    }

    /// `struct rdma_ucm_bind`.
    pub struct Bind [136] {
        0 id: u32 => "The identifier.",
        4 addr_size: u16 => "Bytes of the address.",
        6 reserved: u16 => "Zero.",
        8 addr: SocketAddress => "The address.",
    }

    /// `struct rdma_ucm_resolve_ip`.
    pub struct ResolveIp [64] {
        0  src_addr: IpAddress => "The source; family 0 for any.",
        28 dst_addr: IpAddress => "The destination.",
        56 id: u32 => "The identifier.",
        60 timeout_ms: u32 => "Time limit.",
    }

    /// `struct rdma_ucm_resolve_addr`.
    pub struct ResolveAddr [272] {
        0   id: u32 => "The identifier.",
        4   timeout_ms: u32 => "Time limit.",
        8   src_size: u16 => "Bytes of the source; 0 for any.",
        10  dst_size: u16 => "Bytes of the destination.",
        12  reserved: u32 => "Zero.",
        16  src_addr: SocketAddress => "The source.",
        144 dst_addr: SocketAddress => "The destination.",
    }

    /// `struct rdma_ucm_resolve_route`.
    pub struct ResolveRoute [8] {
        0 id: u32 => "The identifier.",
        4 timeout_ms: u32 => "Time limit.",
    }

    /// `struct rdma_ucm_query`, of QUERY and QUERY_ROUTE.
    pub struct Query [16] {
        0  response: u64 => "Address of the response.",
        8  id: u32 => "The identifier.",
        12 option: u32 => "[`super::QueryOption`].",
    }

    /// `struct ib_user_path_rec`.
    pub struct PathRecord [64] {
        0  dgid: [u8; 16] => "Destination GID.",
        16 sgid: [u8; 16] => "Source GID.",
        32 dlid: [u8; 2] => "Destination LID, network order.",
        34 slid: [u8; 2] => "Source LID, network order.",
        36 raw_traffic: u32 => "1 for raw traffic.",
        40 flow_label: [u8; 4] => "Flow label, network order.",
        44 reversible: u32 => "1 for a path that works both ways.",
        48 mtu: u32 => "[`crate::verbs::Mtu`].",
        52 pkey: [u8; 2] => "P_Key, network order.",
        54 hop_limit: u8 => "Hop limit.",
        55 traffic_class: u8 => "Traffic class.",
        56 numb_path: u8 => "Number of paths.",
        57 sl: u8 => "Service level.",
        58 mtu_selector: u8 => "2: exactly.",
        59 rate_selector: u8 => "2: exactly.",
        60 rate: u8 => "Rate.",
        61 packet_life_time_selector: u8 => "2: exactly.",
        62 packet_life_time: u8 => "Packet life time.",
        63 preference: u8 => "Preference among paths.",
    }

    /// `struct rdma_ucm_query_route_resp`.
    pub struct QueryRouteResp [208] {
        0   node_guid: [u8; 8] => "GUID of the device, network order; zero without one.",
        8   ib_route: [PathRecord; 2] => "The paths.",
        136 src_addr: IpAddress => "The source.",
        164 dst_addr: IpAddress => "The destination.",
        192 num_paths: u32 => "Paths that are there.",
        196 port_num: u8 => "Port.",
        197 reserved: [u8; 3] => "Zero.",
        200 ibdev_index: u32 => "Number of the device; from 5.9 on.",
        204 reserved1: u32 => "Zero.",
    }

    /// `struct rdma_ucm_query_addr_resp`.
    pub struct QueryAddrResp [280] {
        0   node_guid: [u8; 8] => "GUID of the device, network order; zero without one.",
        8   port_num: u8 => "Port.",
        9   reserved: u8 => "Zero.",
        10  pkey: [u8; 2] => "P_Key, network order.",
        12  src_size: u16 => "Bytes of the source.",
        14  dst_size: u16 => "Bytes of the destination.",
        16  src_addr: SocketAddress => "The source.",
        144 dst_addr: SocketAddress => "The destination.",
        272 ibdev_index: u32 => "Number of the device; from 5.9 on.",
        276 reserved1: u32 => "Zero.",
    }

    /// `struct ib_path_rec_data`.
    pub struct PathData [72] {
        0 flags: u32 => "`IB_PATH_*`.",
        4 reserved: u32 => "Zero.",
        8 path_rec: [u8; 64] => "The path record of the subnet administrator.",
    }

    /// `struct rdma_ucm_query_path_resp`, with room for as many paths as C's library has. The
    /// kernel fills a path in only if there is room for more than that one.
    pub struct QueryPathResp [440] {
        0 num_paths: u32 => "Paths that there are.",
        4 reserved: u32 => "Zero.",
        8 path_data: [PathData; MAX_PATHS] => "The paths.",
    }

    /// `struct sockaddr_in`.
    pub struct Ipv4Address [16] {
        0 family: u16 => "`AF_INET`.",
        2 port: [u8; 2] => "Port, network order.",
        4 addr: [u8; 4] => "Address.",
        8 zero: [u8; 8] => "Zero.",
    }

    /// `struct sockaddr_in6`.
    pub struct Ipv6Address [28] {
        0  family: u16 => "`AF_INET6`.",
        2  port: [u8; 2] => "Port, network order.",
        4  flowinfo: [u8; 4] => "Flow label and traffic class, network order.",
        8  addr: [u8; 16] => "Address.",
        24 scope_id: u32 => "The interface of a link-local address.",
    }

    /// `struct sockaddr_ib`.
    pub struct IbAddress [48] {
        0  family: u16 => "`AF_IB`.",
        2  pkey: [u8; 2] => "P_Key, network order.",
        4  flowinfo: [u8; 4] => "Flow label, network order.",
        8  addr: [u8; 16] => "GID.",
        24 sid: [u8; 8] => "Service ID, network order.",
        32 sid_mask: [u8; 8] => "The bits of it that count.",
        40 scope_id: u64 => "Scope.",
    }

    /// `struct rdma_ucm_conn_param`.
    pub struct ConnParam [272] {
        0   qp_num: u32 => "Number of the queue pair.",
        4   qkey: u32 => "Q_Key.",
        8   private_data: [u8; MAX_PRIVATE_DATA] => "Private data.",
        264 private_data_len: u8 => "Bytes of it.",
        265 srq: u8 => "1 with a shared receive queue.",
        266 responder_resources: u8 => "Reads and atomics outstanding as responder.",
        267 initiator_depth: u8 => "Reads and atomics outstanding as initiator.",
        268 flow_control: u8 => "1 with end-to-end flow control.",
        269 retry_count: u8 => "Retries.",
        270 rnr_retry_count: u8 => "Retries after RNR NAK.",
        271 valid: u8 => "1 if there are parameters.",
    }

    /// `struct rdma_ucm_ud_param`.
    pub struct UdParam [304] {
        0   qp_num: u32 => "Number of the queue pair.",
        4   qkey: u32 => "Q_Key.",
        8   ah_attr: AhAttr => "The path to it.",
        40  private_data: [u8; MAX_PRIVATE_DATA] => "Private data.",
        296 private_data_len: u8 => "Bytes of it.",
        297 reserved: [u8; 7] => "Zero.",
    }

    /// `struct rdma_ucm_ece`.
    pub struct Ece [8] {
        0 vendor_id: u32 => "Vendor; zero without ECE.",
        4 attr_mod: u32 => "Options of the vendor.",
    }

    /// `struct rdma_ucm_connect`.
    pub struct Connect [288] {
        0   conn_param: ConnParam => "Parameters.",
        272 id: u32 => "The identifier.",
        276 reserved: u32 => "Zero.",
        280 ece: Ece => "Enhanced connection establishment; from 5.9 on.",
    }

    /// `struct rdma_ucm_listen`.
    pub struct Listen [8] {
        0 id: u32 => "The identifier.",
        4 backlog: u32 => "Requests that may wait.",
    }

    /// `struct rdma_ucm_accept`.
    pub struct Accept [296] {
        0   uid: u64 => "Returned with each event.",
        8   conn_param: ConnParam => "Parameters; without `valid` it says that this side is ready.",
        280 id: u32 => "The identifier.",
        284 reserved: u32 => "Zero.",
        288 ece: Ece => "Enhanced connection establishment; from 5.9 on.",
    }

    /// `struct rdma_ucm_reject`.
    pub struct Reject [264] {
        0 id: u32 => "The identifier.",
        4 private_data_len: u8 => "Bytes of private data.",
        5 reason: u8 => "`IB_CM_REJ_*`, or zero.",
        6 reserved: [u8; 2] => "Zero.",
        8 private_data: [u8; MAX_PRIVATE_DATA] => "Private data.",
    }

    /// `struct rdma_ucm_disconnect`.
    pub struct Disconnect [4] {
        0 id: u32 => "The identifier.",
    }

    /// `struct rdma_ucm_init_qp_attr`.
    pub struct InitQpAttr [16] {
        0  response: u64 => "Address of the response, a [`crate::verbs::QpAttr`].",
        8  id: u32 => "The identifier.",
        12 qp_state: u32 => "[`crate::verbs::QpState`] that the queue pair shall enter.",
    }

    /// `struct rdma_ucm_notify`.
    pub struct Notify [8] {
        0 id: u32 => "The identifier.",
        4 event: u32 => "[`crate::verbs::EventType`].",
    }

    /// `struct rdma_ucm_join_ip_mcast`.
    pub struct JoinIpMcast [48] {
        0  response: u64 => "Address of the response.",
        8  uid: u64 => "Returned with each event.",
        16 addr: IpAddress => "The group.",
        44 id: u32 => "The identifier.",
    }

    /// `struct rdma_ucm_join_mcast`.
    pub struct JoinMcast [152] {
        0  response: u64 => "Address of the response.",
        8  uid: u64 => "Returned with each event.",
        16 id: u32 => "The identifier.",
        20 addr_size: u16 => "Bytes of the address.",
        22 join_flags: u16 => "[`super::JoinFlag`].",
        24 addr: SocketAddress => "The group.",
    }

    /// `struct rdma_ucm_get_event`.
    pub struct GetEvent [8] {
        0 response: u64 => "Address of the response.",
    }

    /// `struct rdma_ucm_event_resp`, with the larger member of its union.
    pub struct EventResp [336] {
        0   uid: u64 => "Of the identifier; of the listener for a request.",
        8   id: u32 => "The identifier; the new one for a request.",
        12  event: u32 => "[`super::EventType`].",
        16  status: u32 => "Zero, a negative errno, or the reason of a rejection.",
        20  param: [u8; 304] => "[`ConnParam`] or [`UdParam`].",
        324 reserved: u32 => "Zero.",
        328 ece: Ece => "Enhanced connection establishment; from 5.9 on.",
    }

    /// `struct rdma_ucm_set_option`.
    pub struct SetOption [24] {
        0  optval: u64 => "Address of the value.",
        8  id: u32 => "The identifier.",
        12 level: u32 => "[`super::OptionLevel`].",
        16 optname: u32 => "[`super::IdOption`], or 1 for a path of InfiniBand.",
        20 optlen: u32 => "Bytes of the value.",
    }

    /// `struct rdma_ucm_migrate_id`.
    pub struct MigrateId [16] {
        0  response: u64 => "Address of the response.",
        8  id: u32 => "The identifier.",
        12 fd: u32 => "Descriptor of the channel that it leaves.",
    }

    /// `struct rdma_ucm_migrate_resp`.
    pub struct MigrateResp [4] {
        0 events_reported: u32 => "Events of it that were read.",
    }
}
