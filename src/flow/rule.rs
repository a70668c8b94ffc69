//! Rules as values: the headers that a packet must have, and the action.

use super::FlowCounters;
use super::counters::CountersInner;
use mlx5_uapi::flow::{
    DropAction, EthFilter, EthSpec, FlowFlags, FlowType, GreFilter, GreSpec, HandleAction,
    Ipv4Filter, Ipv4Spec, Ipv6Filter, Ipv6Spec, MplsFilter, MplsSpec, PortFilter, PortSpec,
    SpecHeader, SpecKind, TagAction, TunnelFilter, TunnelSpec,
};
use std::fmt;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Declares a header to match: a line for each field, with its type for callers and for the kernel.
macro_rules! headers {
    ($(
        $(#[$doc:meta])*
        $name:ident: $filter:ident in $spec:ident {
            $( $(#[$field_doc:meta])* $field:ident, $masked:ident: $type:ty => |$value:ident| $bytes:expr; )*
        }
    )*) => { $(
        $(#[$doc])*
        ///
        /// A field that is not set may have any value.
        #[derive(Clone, Copy, Default)]
        pub struct $name {
            value: $filter,
            mask: $filter,
        }

        impl $name {
            /// Matches any header of this kind.
            pub fn new() -> Self {
                Self::default()
            }

            $(
                $(#[$field_doc])*
                #[must_use]
                pub fn $field(self, value: $type) -> Self {
                    self.$masked(value, <$type as AllOnes>::ALL_ONES)
                }

                #[doc = concat!("As [`", stringify!($name), "::", stringify!($field), "`], comparing only the bits of `mask`.")]
                #[must_use]
                pub fn $masked(mut self, value: $type, mask: $type) -> Self {
                    let bytes = |$value: $type| $bytes;
                    (self.value.$field, self.mask.$field) = (bytes(value), bytes(mask));
                    self
                }
            )*

            fn spec(&self, kind: SpecKind, inner: bool) -> Spec {
                let header = SpecHeader::new(kind, inner, size_of::<$spec>());
                let spec = $spec { header, value: self.value, mask: self.mask };
                Spec { kind, bytes: spec.as_bytes().to_vec() }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = f.debug_struct(stringify!($name));
                $(
                    if self.mask.$field.as_bytes().iter().any(|byte| *byte != 0) {
                        let field = (&self.value.$field, &self.mask.$field);
                        text.field(stringify!($field), &format_args!("{:02x?}/{:02x?}", field.0, field.1));
                    }
                )*
                text.finish()
            }
        }
    )* };
}

/// The mask that compares every bit.
trait AllOnes {
    const ALL_ONES: Self;
}

macro_rules! all_ones {
    ($($type:ty = $ones:expr),* $(,)?) => { $( impl AllOnes for $type { const ALL_ONES: Self = $ones; } )* };
}

all_ones! {
    u8 = u8::MAX, u16 = u16::MAX, u32 = u32::MAX,
    [u8; 4] = [u8::MAX; 4], [u8; 6] = [u8::MAX; 6], [u8; 16] = [u8::MAX; 16],
}

headers! {
    /// An Ethernet header.
    Ethernet: EthFilter in EthSpec {
        /// Destination address.
        dst_mac, dst_mac_masked: [u8; 6] => |mac| mac;
        /// Source address.
        src_mac, src_mac_masked: [u8; 6] => |mac| mac;
        /// Ethertype; in a packet with a VLAN tag, the one after the tag.
        ether_type, ether_type_masked: u16 => |number| number.to_be_bytes();
        /// Tag control information of the VLAN tag: priority, drop eligible indicator, VLAN
        /// identifier (12 bits).
        vlan_tag, vlan_tag_masked: u16 => |tag| tag.to_be_bytes();
    }

    /// An IPv4 header.
    Ipv4: Ipv4Filter in Ipv4Spec {
        /// Source address.
        src_ip, src_ip_masked: [u8; 4] => |ip| ip;
        /// Destination address.
        dst_ip, dst_ip_masked: [u8; 4] => |ip| ip;
        /// Protocol.
        proto, proto_masked: u8 => |number| number;
        /// Type of service.
        tos, tos_masked: u8 => |number| number;
    }

    /// An IPv6 header.
    Ipv6: Ipv6Filter in Ipv6Spec {
        /// Source address.
        src_ip, src_ip_masked: [u8; 16] => |ip| ip;
        /// Destination address.
        dst_ip, dst_ip_masked: [u8; 16] => |ip| ip;
        /// Flow label (20 bits).
        flow_label, flow_label_masked: u32 => |label| (label & 0xf_ffff).to_be_bytes();
        /// Next header.
        next_hdr, next_hdr_masked: u8 => |number| number;
        /// Traffic class.
        traffic_class, traffic_class_masked: u8 => |number| number;
    }

    /// The ports of TCP or UDP.
    Ports: PortFilter in PortSpec {
        /// Destination.
        dst_port, dst_port_masked: u16 => |port| port.to_be_bytes();
        /// Source.
        src_port, src_port_masked: u16 => |port| port.to_be_bytes();
    }

    /// A VXLAN tunnel.
    Vxlan: TunnelFilter in TunnelSpec {
        /// VXLAN network identifier (24 bits).
        tunnel_id, tunnel_id_masked: u32 => |number| (number & 0xff_ffff).to_be_bytes();
    }

    /// A GRE tunnel.
    Gre: GreFilter in GreSpec {
        /// The first two bytes of the header: flags and version.
        c_ks_res0_ver, c_ks_res0_ver_masked: u16 => |bits| bits.to_be_bytes();
        /// Ethertype of the packet in the tunnel.
        protocol, protocol_masked: u16 => |number| number.to_be_bytes();
        /// Key.
        key, key_masked: u32 => |key| key.to_be_bytes();
    }

    /// An MPLS label.
    Mpls: MplsFilter in MplsSpec {
        /// Label (20 bits), traffic class (3), bottom of stack (1), time to live (8).
        label, label_masked: u32 => |label| label.to_be_bytes();
    }
}

/// A specification in the kernel's layout.
#[derive(Clone)]
struct Spec {
    kind: SpecKind,
    bytes: Vec<u8>,
}

/// Actions of a rule, besides delivering the packets.
#[derive(Clone, Default)]
struct Actions {
    tag: Option<u32>,
    drops: bool,
    counters: Option<Arc<CountersInner>>,
}

/// A flow rule as a value: the headers that a packet must have, from the outermost on, and the
/// action. `attach` of a queue pair puts it in force.
///
/// ```
/// use mlx5::flow::{Ethernet, Ipv6, Ports, Rule, Vxlan};
///
/// // TCP to port 80 from a network, inside of VXLAN 42.
/// let network = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// let mut mask = [0; 16];
/// mask[..4].fill(0xff);
/// let rule = Rule::new()
///     .ethernet(Ethernet::new())
///     .udp(Ports::new().dst_port(4789))
///     .vxlan(Vxlan::new().tunnel_id(42))
///     .ipv6(Ipv6::new().src_ip_masked(network, mask))
///     .tcp(Ports::new().dst_port(80))
///     .priority(1);
/// # let _ = rule;
/// ```
#[derive(Clone)]
#[must_use = "a rule does nothing until it is attached"]
pub struct Rule {
    kind: FlowType,
    headers: Vec<Spec>,
    /// Whether headers that follow are inside a tunnel.
    inside: bool,
    actions: Actions,
    priority: u16,
    flags: FlowFlags,
}

impl Default for Rule {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|spec| spec.kind).collect();
        f.debug_struct("Rule")
            .field("kind", &self.kind)
            .field("headers", &headers)
            .field("tag", &self.actions.tag)
            .field("drops", &self.actions.drops)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

impl Rule {
    /// Returns a rule for every packet, to which headers can be added.
    pub fn new() -> Self {
        Self::of(FlowType::Normal)
    }

    /// Returns a rule for all packets that no other rule matches (`IBV_FLOW_ATTR_ALL_DEFAULT`).
    pub fn all_default() -> Self {
        Self::of(FlowType::AllDefault)
    }

    /// Returns a rule for all multicast packets that no other rule matches
    /// (`IBV_FLOW_ATTR_MC_DEFAULT`).
    pub fn multicast_default() -> Self {
        Self::of(FlowType::McDefault)
    }

    /// Returns a rule for a copy of all packets of the port, those that it receives and those that
    /// the device sends (`IBV_FLOW_ATTR_SNIFFER`). A packet that is looped back to its port is
    /// copied twice.
    pub fn sniffer() -> Self {
        Self::of(FlowType::Sniffer)
    }

    fn of(kind: FlowType) -> Self {
        Self {
            kind,
            headers: Vec::new(),
            inside: false,
            actions: Actions::default(),
            priority: 0,
            flags: FlowFlags::empty(),
        }
    }

    /// Adds an Ethernet header.
    pub fn ethernet(self, header: Ethernet) -> Self {
        self.with(|inside| header.spec(SpecKind::Eth, inside))
    }

    /// Adds an IPv4 header.
    pub fn ipv4(self, header: Ipv4) -> Self {
        self.with(|inside| header.spec(SpecKind::Ipv4, inside))
    }

    /// Adds an IPv6 header.
    pub fn ipv6(self, header: Ipv6) -> Self {
        self.with(|inside| header.spec(SpecKind::Ipv6, inside))
    }

    /// Adds a TCP header.
    pub fn tcp(self, ports: Ports) -> Self {
        self.with(|inside| ports.spec(SpecKind::Tcp, inside))
    }

    /// Adds a UDP header.
    pub fn udp(self, ports: Ports) -> Self {
        self.with(|inside| ports.spec(SpecKind::Udp, inside))
    }

    /// Adds a VXLAN tunnel: headers that follow are inside it.
    pub fn vxlan(self, tunnel: Vxlan) -> Self {
        self.with(|_| tunnel.spec(SpecKind::VxlanTunnel, false)).enter()
    }

    /// Adds a GRE tunnel: headers that follow are inside it.
    pub fn gre(self, tunnel: Gre) -> Self {
        self.with(|_| tunnel.spec(SpecKind::Gre, false)).enter()
    }

    /// Adds an MPLS label, the first of its stack: after Ethernet, UDP (port 6635) or GRE, or after
    /// the Ethernet header inside VXLAN. Headers that follow are after the labels, as inside a
    /// tunnel.
    pub fn mpls(self, label: Mpls) -> Self {
        let over_gre = self.headers.last().is_some_and(|spec| spec.kind == SpecKind::Gre);
        self.with(|inside| label.spec(SpecKind::Mpls, inside && !over_gre)).enter()
    }

    fn with(mut self, spec: impl FnOnce(bool) -> Spec) -> Self {
        let spec = spec(self.inside);
        self.headers.push(spec);
        self
    }

    fn enter(mut self) -> Self {
        self.inside = true;
        self
    }

    /// Tags the packets: [`WorkCompletion::flow_tag`](crate::WorkCompletion::flow_tag) returns
    /// these 24 bits.
    pub fn tag(mut self, tag: u32) -> Self {
        self.actions.tag = Some(tag);
        self
    }

    /// Drops the packets instead of delivering them.
    pub fn drop_packets(mut self) -> Self {
        self.actions.drops = true;
        self
    }

    /// Counts the packets.
    pub fn count(mut self, counters: &FlowCounters) -> Self {
        self.actions.counters = Some(Arc::clone(&counters.inner));
        self
    }

    /// Priority among the rules of all programs, 0 to 15: zero is the highest. Default: 0. The
    /// first rule that matches gets the packet. A rule whose first header is a multicast
    /// destination address always has the kernel's own priority for those, after all others.
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    /// Passes the packets on to later rules, too (`IBV_FLOW_ATTR_FLAGS_DONT_TRAP`).
    pub fn dont_trap(mut self) -> Self {
        self.flags.insert(FlowFlags::DONT_TRAP);
        self
    }

    pub(super) fn counters(&self) -> Option<&Arc<CountersInner>> {
        self.actions.counters.as_ref()
    }

    /// Returns the kernel's request. `handle` is the kernel's handle of the counters, if they still
    /// exist.
    pub(super) fn build(&self, handle: Option<u32>) -> Result<Built, RuleError> {
        let mut specs: Vec<Vec<u8>> = self.headers.iter().map(|spec| spec.bytes.clone()).collect();
        if self.kind != FlowType::Normal && !specs.is_empty() {
            return Err(RuleError::Headers);
        }
        let Actions { tag, drops, counters } = &self.actions;
        if let Some(tag) = *tag {
            if tag > MAX_TAG {
                return Err(RuleError::Tag(tag));
            }
            let header = SpecHeader::new(SpecKind::ActionTag, false, size_of::<TagAction>());
            let action = TagAction { header, tag_id: tag, reserved1: 0 };
            specs.push(action.as_bytes().to_vec());
        }
        if *drops {
            if tag.is_some() {
                return Err(RuleError::TagOfDropped);
            }
            let header = SpecHeader::new(SpecKind::ActionDrop, false, size_of::<DropAction>());
            specs.push(DropAction { header }.as_bytes().to_vec());
        }
        if counters.is_some() {
            let handle = handle.ok_or(RuleError::CountersDestroyed)?;
            let header = SpecHeader::new(SpecKind::ActionCount, false, size_of::<HandleAction>());
            let action = HandleAction { header, handle, reserved1: 0 };
            specs.push(action.as_bytes().to_vec());
        }
        if specs.len() > MAX_SPECS {
            return Err(RuleError::TooMany(specs.len()));
        }
        if self.priority > LAST_PRIORITY {
            return Err(RuleError::Priority(self.priority));
        }
        Ok(Built {
            kind: self.kind,
            priority: self.priority,
            flags: self.flags,
            spec_count: specs.len() as u8,
            specs: specs.concat(),
        })
    }
}

/// The largest flow tag.
const MAX_TAG: u32 = 0xff_ffff;
/// Maximum number of specifications of a rule (`IB_FLOW_SPEC_SUPPORT_LAYERS`).
const MAX_SPECS: usize = 10;

/// The last priority (`MLX5_IB_FLOW_LAST_PRIO`). For a greater one the kernel returns ENOMEM.
const LAST_PRIORITY: u16 = 15;

/// A rule in the kernel's layout.
pub(super) struct Built {
    pub(super) kind: FlowType,
    pub(super) priority: u16,
    pub(super) flags: FlowFlags,
    pub(super) spec_count: u8,
    pub(super) specs: Vec<u8>,
}

/// The reason that a rule is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RuleError {
    /// A default or sniffer rule names headers.
    Headers,
    /// The flow tag has more than 24 bits.
    Tag(u32),
    /// Packets that are dropped have no completion that could carry a tag.
    TagOfDropped,
    /// The counters were destroyed.
    CountersDestroyed,
    /// There are more headers and actions than the kernel accepts.
    TooMany(usize),
    /// The priority is beyond the last.
    Priority(u16),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Headers => f.write_str("a default or sniffer rule has no headers"),
            Self::Tag(tag) => write!(f, "flow tag {tag:#x}: it has 24 bits"),
            Self::TagOfDropped => f.write_str("packets that are dropped have no flow tag"),
            Self::CountersDestroyed => f.write_str("the counters were destroyed"),
            Self::TooMany(count) => {
                write!(f, "{count} headers and actions; the kernel takes {MAX_SPECS} in a rule")
            }
            Self::Priority(priority) => {
                write!(f, "priority {priority}; the last is {LAST_PRIORITY}")
            }
        }
    }
}
