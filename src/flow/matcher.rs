//! Matchers: rules with the device's own match parameters, for fields that the headers of a
//! [`Rule`](super::Rule) lack.

use super::{CREATE, FlowRule, Target, supported};
use crate::context::{Context, Inner};
use crate::error::{DestroyError, Error};
use crate::qp::QueuePair;
use crate::rss::HashQueuePair;
use mlx5_prm::cmd::flow::{MatchHeaders, MatchMpls, MatchParameters};
use mlx5_prm::fields::IntoBytes;
use mlx5_uapi::cmd::matcher as command;
use mlx5_uapi::flow::{FlowFlags, MatchCriteria, MatcherFlowFlags, MatcherType, TableType};
use mlx5_wqe::transport::RawPacket;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CREATE_MATCHER: &str = "create_flow_matcher";
const DESTROY_MATCHER: &str = "destroy_flow_matcher";
/// The last priority (`MLX5_IB_FLOW_LAST_PRIO`).
const LAST_PRIORITY: u16 = 15;
/// The largest flow tag.
const MAX_TAG: u32 = 0xff_ffff;
/// Length of a part of the match parameters. Each part has a bit of [`MatchCriteria`].
const PART: usize = 64;

/// Declares methods that set a field: a line for each, with its type and the device's field.
macro_rules! setters {
    (|$this:ident| $place:expr; $( $(#[$doc:meta])* $name:ident: $type:ty => $set:ident; )*) => { $(
        $(#[$doc])*
        pub fn $name(mut self, value: $type) -> Self {
            let $this = &mut self;
            $place.$set(value.into());
            self
        }
    )* };
}

/// The header fields of one level of a packet, its own or those inside a tunnel: values, or in a
/// mask the bits that are compared. A field that is not set is zero.
#[derive(Clone, Copy, Default, Debug)]
#[must_use = "fields do nothing until they are part of a matcher or a rule"]
pub struct HeaderFields(MatchHeaders);

impl HeaderFields {
    /// Sets no field.
    pub fn new() -> Self {
        Self::default()
    }

    /// Destination address.
    pub fn dst_mac(mut self, mac: [u8; 6]) -> Self {
        let (high, low) = high_and_low(mac);
        self.0.set_dmac_47_16(high).set_dmac_15_0(low);
        self
    }

    /// Source address.
    pub fn src_mac(mut self, mac: [u8; 6]) -> Self {
        let (high, low) = high_and_low(mac);
        self.0.set_smac_47_16(high).set_smac_15_0(low);
        self
    }

    setters! { |fields| fields.0;
        /// Ethertype, after VLAN tags.
        ether_type: u16 => set_ethertype;
        /// Whether the first VLAN tag is a customer's.
        c_vlan: bool => set_cvlan_tag;
        /// Whether the first VLAN tag is a service provider's.
        s_vlan: bool => set_svlan_tag;
        /// Identifier of the first VLAN tag (12 bits).
        vlan_id: u16 => set_first_vid;
        /// Priority of the first VLAN tag (3 bits).
        vlan_priority: u8 => set_first_prio;
        /// Drop eligible indicator of the first VLAN tag.
        vlan_drop_eligible: bool => set_first_cfi;
        /// Version of IP: 4 or 6 (4 bits).
        ip_version: u8 => set_ip_version;
        /// Protocol of IPv4, or the last next header of IPv6.
        ip_protocol: u8 => set_ip_protocol;
        /// Differentiated services code point (6 bits).
        dscp: u8 => set_ip_dscp;
        /// Explicit congestion notification (2 bits).
        ecn: u8 => set_ip_ecn;
        /// Whether the packet is a fragment, the first or a later one.
        fragment: bool => set_frag;
        /// Time to live, or hop limit.
        ttl: u8 => set_ttl_hoplimit;
        /// Words of the header of IPv4 (4 bits): more than 5 if it has options.
        ipv4_words: u8 => set_ipv4_ihl;
        /// Flags of TCP (9 bits): FIN is the lowest, then SYN, RST, PSH, ACK, URG, ECE, CWR, NS.
        tcp_flags: u16 => set_tcp_flags;
        /// Source port of TCP.
        tcp_src_port: u16 => set_tcp_sport;
        /// Destination port of TCP.
        tcp_dst_port: u16 => set_tcp_dport;
        /// Source port of UDP.
        udp_src_port: u16 => set_udp_sport;
        /// Destination port of UDP.
        udp_dst_port: u16 => set_udp_dport;
    }

    /// Source address of IPv4. It shares its place with the last bytes of IPv6's: compare the
    /// version too.
    pub fn src_ipv4(mut self, ip: [u8; 4]) -> Self {
        self.0.src_ipv4_src_ipv6_mut()[12..].copy_from_slice(&ip);
        self
    }

    /// Destination address of IPv4.
    pub fn dst_ipv4(mut self, ip: [u8; 4]) -> Self {
        self.0.dst_ipv4_dst_ipv6_mut()[12..].copy_from_slice(&ip);
        self
    }

    /// Source address of IPv6.
    pub fn src_ipv6(mut self, ip: [u8; 16]) -> Self {
        *self.0.src_ipv4_src_ipv6_mut() = ip;
        self
    }

    /// Destination address of IPv6.
    pub fn dst_ipv6(mut self, ip: [u8; 16]) -> Self {
        *self.0.dst_ipv4_dst_ipv6_mut() = ip;
        self
    }
}

fn high_and_low([a, b, c, d, e, f]: [u8; 6]) -> (u32, u32) {
    (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]).into())
}

/// The fields of a packet, as the device sees them (`mlx5_ifc_fte_match_param_bits`): values, or in
/// a matcher the bits that are compared. A field that is not set is zero.
///
/// If a number has fewer bits than its type, the lower bits count.
#[derive(Clone, Default, Debug)]
#[must_use = "fields do nothing until they are part of a matcher or a rule"]
pub struct MatchFields(Box<MatchParameters>);

impl MatchFields {
    /// Sets no field: the mask of a matcher that matches all packets.
    pub fn new() -> Self {
        Self::default()
    }

    /// The packet's own headers, all of them.
    pub fn outer(mut self, headers: HeaderFields) -> Self {
        *self.0.outer_headers_mut() = headers.0;
        self
    }

    /// The headers inside a tunnel, all of them.
    pub fn inner(mut self, headers: HeaderFields) -> Self {
        *self.0.inner_headers_mut() = headers.0;
        self
    }

    setters! { |fields| fields.0.misc_parameters_mut();
        /// Whether the second VLAN tag is a customer's.
        second_c_vlan: bool => set_outer_second_cvlan_tag;
        /// Whether the second VLAN tag is a service provider's.
        second_s_vlan: bool => set_outer_second_svlan_tag;
        /// Identifier of the second VLAN tag (12 bits).
        second_vlan_id: u16 => set_outer_second_vid;
        /// Priority of the second VLAN tag (3 bits).
        second_vlan_priority: u8 => set_outer_second_prio;
        /// Drop eligible indicator of the second VLAN tag.
        second_vlan_drop_eligible: bool => set_outer_second_cfi;
        /// Flow label of IPv6 (20 bits).
        flow_label: u32 => set_outer_ipv6_flow_label;
        /// Flow label of IPv6 inside a tunnel (20 bits).
        inner_flow_label: u32 => set_inner_ipv6_flow_label;
        /// Security parameters index of IPsec's ESP.
        esp_spi: u32 => set_outer_esp_spi;
        /// VXLAN network identifier (24 bits).
        vxlan_vni: u32 => set_vxlan_vni;
        /// Ethertype of the packet in a GRE tunnel.
        gre_protocol: u16 => set_gre_protocol;
        /// Key of GRE.
        gre_key: u32 => set_gre_key;
        /// Whether the header of GRE has a key.
        gre_has_key: bool => set_gre_k_present;
        /// Whether the header of GRE has a checksum.
        gre_has_checksum: bool => set_gre_c_present;
        /// Whether the header of GRE has a sequence number.
        gre_has_sequence: bool => set_gre_s_present;
    }

    /// The first label of MPLS after the Ethernet header: label (20 bits), traffic class (3),
    /// bottom of stack (1), time to live (8).
    pub fn mpls(mut self, label: u32) -> Self {
        set_label(self.0.misc_parameters_2_mut().outer_first_mpls_mut(), label);
        self
    }

    /// The same of MPLS in a GRE tunnel.
    pub fn mpls_over_gre(mut self, label: u32) -> Self {
        set_label(self.0.misc_parameters_2_mut().outer_first_mpls_over_gre_mut(), label);
        self
    }

    /// The same of MPLS after UDP.
    pub fn mpls_over_udp(mut self, label: u32) -> Self {
        set_label(self.0.misc_parameters_2_mut().outer_first_mpls_over_udp_mut(), label);
        self
    }

    /// Returns the parts with a nonzero bit.
    fn criteria(&self) -> MatchCriteria {
        let parts = self.0.as_bytes().chunks(PART).zip(MatchCriteria::all().iter());
        parts.filter(|(part, _)| part.iter().any(|byte| *byte != 0)).map(|(_, bit)| bit).collect()
    }

    /// Whether every bit is one of `mask`.
    fn is_within(&self, mask: &Self) -> bool {
        let bytes = self.0.as_bytes().iter().zip(mask.0.as_bytes());
        bytes.into_iter().all(|(value, mask)| value & !mask == 0)
    }
}

fn set_label(place: &mut MatchMpls, label: u32) {
    place.as_mut_bytes().copy_from_slice(&label.to_be_bytes());
}

/// Makes a [`Matcher`]. See [`Context::create_matcher`].
#[derive(Debug)]
#[must_use = "call `build` to make the matcher"]
pub struct MatcherBuilder<'a> {
    context: &'a Context,
    mask: MatchFields,
    priority: u16,
    kind: MatcherType,
}

struct MatcherInner {
    context: Arc<Inner>,
    mask: MatchFields,
    handle: Mutex<Option<u32>>,
}

/// A matcher (`mlx5dv_create_flow_matcher`): the bits of packets that its rules compare, and their
/// priority. Its rules, each with values for these bits, determine the action:
/// [`QueuePair::attach_matched`](QueuePair::<RawPacket>::attach_matched),
/// [`HashQueuePair::attach_matched`], [`Matcher::drop_packets`].
///
/// A clone is another handle of the same matcher. Rules keep their matcher alive; it is destroyed
/// after the last of them.
///
/// ```no_run
/// # use mlx5::{Context, Error, QueuePair, transport::RawPacket};
/// use mlx5::flow::{HeaderFields, MatchFields};
/// # fn f(context: &Context, qp: &QueuePair<RawPacket>) -> Result<(), Error> {
///
/// // Segments of TCP that open a connection: SYN without ACK.
/// let compared = HeaderFields::new().ip_protocol(0xff).tcp_flags(0b1_0010);
/// let matcher = context.create_matcher(MatchFields::new().outer(compared)).priority(1).build()?;
/// let opening = MatchFields::new().outer(HeaderFields::new().ip_protocol(6).tcp_flags(0b0_0010));
/// let rule = qp.attach_matched(&matcher, &opening, Some(7))?;
/// // ... until the rule is dropped.
/// drop(rule);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Matcher {
    inner: Arc<MatcherInner>,
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher").field("mask", &self.inner.mask).finish_non_exhaustive()
    }
}

impl Context {
    /// Starts building a matcher whose rules compare the bits of `mask`. It needs CAP_NET_RAW.
    pub fn create_matcher(&self, mask: MatchFields) -> MatcherBuilder<'_> {
        MatcherBuilder { context: self, mask, priority: 0, kind: MatcherType::Normal }
    }
}

impl MatcherBuilder<'_> {
    /// The priority of its rules, among those of all programs, 0 to 15: zero is the highest.
    /// Default: 0. The first rule that matches gets the packet.
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    /// The packets that its rules are for. Default: [`MatcherType::Normal`], those that match. The
    /// others have no priority, and Linux refuses their rules (`NotSupported`).
    pub fn flow_type(mut self, kind: MatcherType) -> Self {
        self.kind = kind;
        self
    }

    /// Makes the matcher.
    pub fn build(self) -> Result<Matcher, Error> {
        let Self { context: Context { inner: context }, mask, priority, kind } = self;
        supported(CREATE_MATCHER, context)?;
        if priority > LAST_PRIORITY {
            let what = format!("priority {priority}; the last is {LAST_PRIORITY}");
            return Err(Error::invalid(CREATE_MATCHER, what));
        }
        if priority != 0 && kind != MatcherType::Normal {
            let what = format!("a matcher of type {kind:?} has no priority");
            return Err(Error::invalid(CREATE_MATCHER, what));
        }
        let handle = context.run(CREATE_MATCHER, |file| {
            command::create(
                file,
                &command::CreateMatcher {
                    kind,
                    priority,
                    mask: mask.0.as_bytes(),
                    criteria: mask.criteria(),
                    flags: FlowFlags::empty(),
                    table: TableType::NicRx,
                },
            )
        })?;
        let context = Arc::clone(context);
        Ok(Matcher {
            inner: Arc::new(MatcherInner { context, mask, handle: Mutex::new(Some(handle)) }),
        })
    }
}

impl MatcherInner {
    fn state(&self) -> MutexGuard<'_, Option<u32>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn destroy(&self) -> Result<(), Error> {
        // In a child, a thread that does not exist there may hold the lock.
        self.context.check_process(DESTROY_MATCHER)?;
        let mut state = self.state();
        if let Some(handle) = *state {
            self.context.run_destroy(DESTROY_MATCHER, |file| command::destroy(file, handle))?;
            *state = None;
        }
        Ok(())
    }
}

impl Drop for MatcherInner {
    fn drop(&mut self) {
        // It has no memory that must be kept; the kernel destroys it when the file is closed.
        let _ = self.destroy();
    }
}

impl Matcher {
    /// Drops the packets that have these values.
    pub fn drop_packets(&self, value: &MatchFields) -> Result<FlowRule, Error> {
        self.without_target(value, MatcherFlowFlags::DROP)
    }

    /// Lets the packets that have these values pass all rules of programs with a priority, to the
    /// network interface and to default rules.
    pub fn pass_on(&self, value: &MatchFields) -> Result<FlowRule, Error> {
        self.without_target(value, MatcherFlowFlags::DEFAULT_MISS)
    }

    fn without_target(
        &self,
        value: &MatchFields,
        flags: MatcherFlowFlags,
    ) -> Result<FlowRule, Error> {
        self.inner.context.check(CREATE)?;
        let target = Target::Untargeted(Arc::clone(&self.inner.context));
        self.rule(value, target, command::Destination::Flags(flags), None)
    }

    fn attach(
        &self,
        value: &MatchFields,
        target: Target,
        tag: Option<u32>,
    ) -> Result<FlowRule, Error> {
        self.inner.context.check(CREATE)?;
        if !Arc::ptr_eq(target.context(), &self.inner.context) {
            let what = "matcher and queue pair belong to different contexts";
            return Err(Error::invalid(CREATE, what.into()));
        }
        if let Some(tag) = tag.filter(|tag| *tag > MAX_TAG) {
            return Err(Error::invalid(CREATE, format!("flow tag {tag:#x}: it has 24 bits")));
        }
        let qp = target.live()?;
        self.rule(value, target, command::Destination::Qp(qp), tag)
    }

    fn rule(
        &self,
        value: &MatchFields,
        target: Target,
        destination: command::Destination,
        tag: Option<u32>,
    ) -> Result<FlowRule, Error> {
        let context = &self.inner.context;
        if !value.is_within(&self.inner.mask) {
            let what = "the values have bits that the matcher does not compare";
            return Err(Error::invalid(CREATE, what.into()));
        }
        // Held until the rule is made: if a clone were destroyed meanwhile, the kernel could reuse
        // the handle for another matcher.
        let state = self.inner.state();
        let Some(matcher) = *state else {
            return Err(Error::invalid(CREATE, "the matcher was destroyed".into()));
        };
        let handle = context.run(CREATE, |file| {
            command::create_rule(
                file,
                &command::CreateRule {
                    matcher,
                    value: value.0.as_bytes(),
                    destination: Some(destination),
                    tag,
                    actions: &[],
                    counter: None,
                },
            )
        })?;
        drop(state);
        let matcher = Some(self.clone());
        Ok(FlowRule { handle: Some(handle), target, counters: None, _matcher: matcher })
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap, unless it was
    /// destroyed. See [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        *self.inner.state()
    }

    /// Destroys the matcher (`mlx5dv_destroy_flow_matcher`). If the kernel refuses, because it has
    /// rules, the error returns it.
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        self.inner.destroy().map_err(|error| DestroyError::new(self, error))
    }
}

impl QueuePair<RawPacket> {
    /// Steers the packets that have these values of a matcher's fields to the queue pair
    /// (`mlx5dv_create_flow`), with a flow tag if one is given. It needs CAP_NET_RAW.
    pub fn attach_matched(
        &self,
        matcher: &Matcher,
        value: &MatchFields,
        tag: Option<u32>,
    ) -> Result<FlowRule, Error> {
        matcher.attach(value, Target::Queue(Arc::clone(&self.control.inner)), tag)
    }
}

impl HashQueuePair {
    /// Spreads the packets that have these values over the work queues. See
    /// [`QueuePair::attach_matched`](QueuePair::<RawPacket>::attach_matched).
    pub fn attach_matched(
        &self,
        matcher: &Matcher,
        value: &MatchFields,
        tag: Option<u32>,
    ) -> Result<FlowRule, Error> {
        matcher.attach(value, Target::Hash(Arc::clone(&self.inner)), tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets in bytes, as in `mlx5_ifc_fte_match_param_bits`.
    #[test]
    fn each_field_of_a_matcher_is_where_the_device_looks() {
        let level = |headers: HeaderFields| headers.0.as_bytes().to_vec();
        let new = HeaderFields::new;
        for (headers, at, bytes) in [
            (new().src_mac([1, 2, 3, 4, 5, 6]), 0, &[1, 2, 3, 4, 5, 6][..]),
            (new().ether_type(0x0800), 6, &[8, 0]),
            (new().dst_mac([1, 2, 3, 4, 5, 6]), 8, &[1, 2, 3, 4, 5, 6]),
            (new().vlan_priority(7), 14, &[0xe0]),
            (new().vlan_drop_eligible(true), 14, &[0x10]),
            (new().vlan_id(0xfabc), 14, &[0x0a, 0xbc]),
            (new().ip_protocol(6), 16, &[6]),
            (new().dscp(0x3f), 17, &[0xfc]),
            (new().ecn(3), 17, &[3]),
            (new().c_vlan(true), 18, &[0x80]),
            (new().s_vlan(true), 18, &[0x40]),
            (new().fragment(true), 18, &[0x20]),
            (new().ip_version(4), 18, &[0x08]),
            (new().tcp_flags(0x1ff), 18, &[0x01, 0xff]),
            (new().tcp_src_port(0x1234), 20, &[0x12, 0x34]),
            (new().tcp_dst_port(0x1234), 22, &[0x12, 0x34]),
            (new().ipv4_words(5), 26, &[0x50]),
            (new().ttl(64), 27, &[64]),
            (new().udp_src_port(0x1234), 28, &[0x12, 0x34]),
            (new().udp_dst_port(0x1234), 30, &[0x12, 0x34]),
            (new().src_ipv4([1, 2, 3, 4]), 44, &[1, 2, 3, 4]),
            (new().dst_ipv4([1, 2, 3, 4]), 60, &[1, 2, 3, 4]),
            (new().src_ipv6([9; 16]), 32, &[9; 16]),
            (new().dst_ipv6([9; 16]), 48, &[9; 16]),
        ] {
            let mut expected = vec![0; PART];
            expected[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(level(headers), expected, "{headers:?}");
        }
        let new = MatchFields::new;
        for (fields, at, bytes, part) in [
            (new().outer(HeaderFields::new().ttl(1)), 27, &[1][..], MatchCriteria::OUTER),
            (new().gre_has_checksum(true), 64, &[0x80], MatchCriteria::MISC),
            (new().gre_has_key(true), 64, &[0x20], MatchCriteria::MISC),
            (new().gre_has_sequence(true), 64, &[0x10], MatchCriteria::MISC),
            (new().second_vlan_priority(7), 72, &[0xe0], MatchCriteria::MISC),
            (new().second_vlan_drop_eligible(true), 72, &[0x10], MatchCriteria::MISC),
            (new().second_vlan_id(0xabc), 72, &[0x0a, 0xbc], MatchCriteria::MISC),
            (new().second_c_vlan(true), 76, &[0x80], MatchCriteria::MISC),
            (new().second_s_vlan(true), 76, &[0x20], MatchCriteria::MISC),
            (new().gre_protocol(0x6558), 78, &[0x65, 0x58], MatchCriteria::MISC),
            (new().gre_key(0x0102_0304), 80, &[1, 2, 3, 4], MatchCriteria::MISC),
            (new().vxlan_vni(0x01_0203), 84, &[1, 2, 3], MatchCriteria::MISC),
            (new().flow_label(0xf_1234), 93, &[0xf, 0x12, 0x34], MatchCriteria::MISC),
            (new().inner_flow_label(0xf_1234), 97, &[0xf, 0x12, 0x34], MatchCriteria::MISC),
            (new().esp_spi(0x0102_0304), 112, &[1, 2, 3, 4], MatchCriteria::MISC),
            (new().inner(HeaderFields::new().ttl(1)), 155, &[1], MatchCriteria::INNER),
            (new().mpls(0x0102_0304), 192, &[1, 2, 3, 4], MatchCriteria::MISC_2),
            (new().mpls_over_gre(0x0102_0304), 200, &[1, 2, 3, 4], MatchCriteria::MISC_2),
            (new().mpls_over_udp(0x0102_0304), 204, &[1, 2, 3, 4], MatchCriteria::MISC_2),
        ] {
            let mut expected = vec![0; MatchParameters::BYTES];
            expected[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(fields.0.as_bytes().to_vec(), expected, "{fields:?}");
            assert_eq!(fields.criteria(), part);
            assert!(fields.is_within(&fields) && !fields.is_within(&new()));
        }
        assert_eq!(new().criteria(), MatchCriteria::empty());
    }
}
