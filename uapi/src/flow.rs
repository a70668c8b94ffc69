//! Flow rules: `struct ib_uverbs_flow_spec_*` of `rdma/ib_user_verbs.h`, and the numbers of
//! `enum ib_flow_*` (Linux `include/rdma/ib_verbs.h`).
//!
//! The request of CREATE_FLOW is a [`write_cmd::CreateFlow`](crate::write_cmd::CreateFlow),
//! followed by the specifications: headers that a packet must have, from the outermost on, then
//! actions. Fields of packets are in network byte order. A bit of a mask that is set must be equal.

use crate::layout::{layout, numbers};

layout! {
    /// `struct ib_uverbs_flow_spec_hdr`: the start of each specification.
    pub struct SpecHeader [8] {
        0 kind: u32 => "[`SpecKind`], with [`INNER`] for a header inside a tunnel.",
        4 size: u16 => "Bytes of the specification, this header included.",
        6 reserved: u16 => "Zero.",
    }

    /// `struct ib_uverbs_flow_eth_filter`.
    pub struct EthFilter [16] {
        0  dst_mac: [u8; 6] => "Destination.",
        6  src_mac: [u8; 6] => "Source.",
        12 ether_type: [u8; 2] => "Ethertype.",
        14 vlan_tag: [u8; 2] => "Tag control information of the VLAN tag.",
    }

    /// `struct ib_uverbs_flow_ipv4_filter`.
    pub struct Ipv4Filter [12] {
        0  src_ip: [u8; 4] => "Source.",
        4  dst_ip: [u8; 4] => "Destination.",
        8  proto: u8 => "Protocol.",
        9  tos: u8 => "Type of service.",
        10 ttl: u8 => "Time to live.",
        11 flags: u8 => "Fragmentation flags.",
    }

    /// `struct ib_uverbs_flow_ipv6_filter`.
    pub struct Ipv6Filter [40] {
        0  src_ip: [u8; 16] => "Source.",
        16 dst_ip: [u8; 16] => "Destination.",
        32 flow_label: [u8; 4] => "Flow label.",
        36 next_hdr: u8 => "Next header.",
        37 traffic_class: u8 => "Traffic class.",
        38 hop_limit: u8 => "Hop limit.",
        39 reserved: u8 => "Zero.",
    }

    /// `struct ib_uverbs_flow_tcp_udp_filter`.
    pub struct PortFilter [4] {
        0 dst_port: [u8; 2] => "Destination.",
        2 src_port: [u8; 2] => "Source.",
    }

    /// `struct ib_uverbs_flow_tunnel_filter`.
    pub struct TunnelFilter [4] {
        0 tunnel_id: [u8; 4] => "VXLAN network identifier, in the low 24 bits.",
    }

    /// `struct ib_uverbs_flow_gre_filter`.
    pub struct GreFilter [8] {
        0 c_ks_res0_ver: [u8; 2] => "Flags and version, the first two bytes of the header.",
        2 protocol: [u8; 2] => "Ethertype of the payload.",
        4 key: [u8; 4] => "Key.",
    }

    /// `struct ib_uverbs_flow_mpls_filter`.
    pub struct MplsFilter [4] {
        0 label: [u8; 4] => "Label, traffic class, bottom of stack and time to live.",
    }

    /// `struct ib_uverbs_flow_spec_eth`.
    pub struct EthSpec [40] {
        0  header: SpecHeader => "Kind and size.",
        8  value: EthFilter => "The values that a packet must have.",
        24 mask: EthFilter => "The bits that are compared.",
    }

    /// `struct ib_uverbs_flow_spec_ipv4`.
    pub struct Ipv4Spec [32] {
        0  header: SpecHeader => "Kind and size.",
        8  value: Ipv4Filter => "The values that a packet must have.",
        20 mask: Ipv4Filter => "The bits that are compared.",
    }

    /// `struct ib_uverbs_flow_spec_ipv6`.
    pub struct Ipv6Spec [88] {
        0  header: SpecHeader => "Kind and size.",
        8  value: Ipv6Filter => "The values that a packet must have.",
        48 mask: Ipv6Filter => "The bits that are compared.",
    }

    /// `struct ib_uverbs_flow_spec_tcp_udp`.
    pub struct PortSpec [16] {
        0  header: SpecHeader => "Kind and size.",
        8  value: PortFilter => "The values that a packet must have.",
        12 mask: PortFilter => "The bits that are compared.",
    }

    /// `struct ib_uverbs_flow_spec_tunnel`.
    pub struct TunnelSpec [16] {
        0  header: SpecHeader => "Kind and size.",
        8  value: TunnelFilter => "The values that a packet must have.",
        12 mask: TunnelFilter => "The bits that are compared.",
    }

    /// `struct ib_uverbs_flow_spec_gre`.
    pub struct GreSpec [24] {
        0  header: SpecHeader => "Kind and size.",
        8  value: GreFilter => "The values that a packet must have.",
        16 mask: GreFilter => "The bits that are compared.",
    }

    /// `struct ib_uverbs_flow_spec_mpls`.
    pub struct MplsSpec [16] {
        0  header: SpecHeader => "Kind and size.",
        8  value: MplsFilter => "The values that a packet must have.",
        12 mask: MplsFilter => "The bits that are compared.",
    }

    /// `struct ib_uverbs_flow_spec_action_tag`.
    pub struct TagAction [16] {
        0  header: SpecHeader => "Kind and size.",
        8  tag_id: u32 => "The flow tag of the packet's CQE, 24 bits.",
        12 reserved1: u32 => "Zero.",
    }

    /// `struct ib_uverbs_flow_spec_action_drop`.
    pub struct DropAction [8] {
        0 header: SpecHeader => "Kind and size.",
    }

    /// `struct ib_uverbs_flow_spec_action_count` and `_handle`.
    pub struct HandleAction [16] {
        0  header: SpecHeader => "Kind and size.",
        8  handle: u32 => "The counters, or the flow action.",
        12 reserved1: u32 => "Zero.",
    }
}

/// Bit of [`SpecHeader::kind`]: the header is inside a tunnel (`IB_FLOW_SPEC_INNER`).
pub const INNER: u32 = 0x100;

numbers! {
    /// `enum ib_flow_spec_type`.
    pub enum SpecKind: u32 {
        Eth = 0x20 => "An Ethernet header: [`EthSpec`].",
        Ipv4 = 0x30 => "An IPv4 header: [`Ipv4Spec`].",
        Ipv6 = 0x31 => "An IPv6 header: [`Ipv6Spec`].",
        Esp = 0x34 => "An IPsec ESP header.",
        Tcp = 0x40 => "A TCP header: [`PortSpec`].",
        Udp = 0x41 => "A UDP header: [`PortSpec`].",
        VxlanTunnel = 0x50 => "A VXLAN tunnel: [`TunnelSpec`].",
        Gre = 0x51 => "A GRE tunnel: [`GreSpec`].",
        Mpls = 0x60 => "An MPLS label: [`MplsSpec`].",
        ActionTag = 0x1000 => "Tags the packet: [`TagAction`].",
        ActionDrop = 0x1001 => "Drops the packet: [`DropAction`].",
        ActionHandle = 0x1002 => "Applies a flow action: [`HandleAction`].",
        ActionCount = 0x1003 => "Counts the packet: [`HandleAction`].",
    }

    /// `enum ib_flow_attr_type`: the packets that a rule matches.
    pub enum FlowType: u32 {
        Normal = 0 => "Those that its specifications describe.",
        AllDefault = 1 => "Those that no other rule takes.",
        McDefault = 2 => "Multicast packets that no other rule takes.",
        Sniffer = 3 => "A copy of all packets of the port.",
    }

    /// `enum ib_counters_description`.
    pub enum CounterKind: u32 {
        Packets = 0 => "Packets.",
        Bytes = 1 => "Bytes.",
    }

    /// `enum mlx5_ib_flow_type`: the packets that a rule of a matcher matches.
    pub enum MatcherType: u32 {
        Normal = 0 => "Those that match.",
        Sniffer = 1 => "A copy of all packets of the port.",
        AllDefault = 2 => "Those that no other rule takes.",
        McDefault = 3 => "Multicast packets that no other rule takes.",
    }

    /// `enum mlx5_ib_uapi_flow_table_type`.
    pub enum TableType: u8 {
        NicRx = 0 => "Received packets of a NIC port.",
        NicTx = 1 => "Sent packets of a NIC port.",
        Fdb = 2 => "Packets of an embedded switch.",
        RdmaRx = 3 => "Received RDMA packets.",
        RdmaTx = 4 => "Sent RDMA packets.",
    }
}

bitflags::bitflags! {
    /// `enum ib_flow_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FlowFlags: u32 {
        /// The packet also continues to later rules (`IB_FLOW_ATTR_FLAGS_DONT_TRAP`).
        const DONT_TRAP = 1 << 1;
        /// The rule is for packets that are sent (`IB_FLOW_ATTR_FLAGS_EGRESS`).
        const EGRESS = 1 << 2;
    }

    /// `enum mlx5_ib_create_flow_flags`, of a matcher's rule.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MatcherFlowFlags: u32 {
        /// The packet goes to the kernel's rules.
        const DEFAULT_MISS = 1 << 0;
        /// Drops the packet.
        const DROP = 1 << 1;
    }

    /// The groups of fields that a matcher compares: bits of `match_criteria_enable`
    /// (`MLX5_MATCH_*`, Linux `include/linux/mlx5/fs.h`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MatchCriteria: u8 {
        /// Outer headers.
        const OUTER = 1 << 0;
        /// Miscellaneous fields.
        const MISC = 1 << 1;
        /// Inner headers.
        const INNER = 1 << 2;
        /// Second group of miscellaneous fields.
        const MISC_2 = 1 << 3;
        /// Third group of miscellaneous fields.
        const MISC_3 = 1 << 4;
        /// Fourth group of miscellaneous fields.
        const MISC_4 = 1 << 5;
        /// Fifth group of miscellaneous fields.
        const MISC_5 = 1 << 6;
    }
}

impl SpecHeader {
    /// The header of a specification of this kind and size.
    pub const fn new(kind: SpecKind, inner: bool, size: usize) -> Self {
        let inner = if inner { INNER } else { 0 };
        Self { kind: kind as u32 | inner, size: size as u16, reserved: 0 }
    }
}
