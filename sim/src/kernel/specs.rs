//! Converts the specifications of a flow rule into the device's match parameters
//! (`parse_flow_attr`).

use mlx5_prm::cmd::flow::{MatchHeaders, MatchMisc2, MatchMpls, MatchParameters, match_criteria};
use mlx5_uapi::Errno;
use mlx5_uapi::flow::{
    EthSpec, GreSpec, HandleAction, INNER, Ipv4Spec, Ipv6Spec, MplsSpec, PortSpec, SpecHeader,
    SpecKind, TagAction, TunnelSpec,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bits of a flow tag.
const TAG_BITS: u32 = 24;
const TCP: u32 = 6;
const UDP: u32 = 17;
const GRE: u32 = 47;

/// The match and the actions of a rule.
#[derive(Debug, Default)]
pub(crate) struct Specs {
    pub(crate) mask: MatchParameters,
    pub(crate) value: MatchParameters,
    pub(crate) tag: Option<u32>,
    pub(crate) drop: bool,
    /// The handle of counters.
    pub(crate) counters: Option<u32>,
}

fn read<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<T, Errno> {
    T::read_from_prefix(bytes).map(|(spec, _)| spec).map_err(|_| Errno::EINVAL)
}

/// A header with its mask. Each may be shorter than the kernel's, and then ends with zeros, or
/// longer, if the additional bytes of the mask are zero.
fn header<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Result<T, Errno> {
    let (head, filters) = bytes.split_at(size_of::<SpecHeader>());
    let known = (size_of::<T>() - head.len()) / 2;
    let (value, mask) = filters.split_at(filters.len() / 2);
    if mask.get(known..).is_some_and(|beyond| beyond.iter().any(|byte| *byte != 0)) {
        return Err(Errno::EINVAL);
    }
    let whole = |filter: &[u8]| {
        let mut whole = filter.to_vec();
        whole.resize(known, 0);
        whole
    };
    read(&[head, &whole(value), &whole(mask)].concat())
}

/// Fails if a mask has bits in fields that the driver cannot match.
fn refuse(bytes: &[u8]) -> Result<(), Errno> {
    if bytes.iter().all(|byte| *byte == 0) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

fn number(bytes: [u8; 2]) -> u32 {
    u16::from_be_bytes(bytes).into()
}

impl Specs {
    /// Reads `count` specifications.
    pub(crate) fn parse(mut bytes: &[u8], count: u8) -> Result<Self, Errno> {
        let mut specs = Self::default();
        let mut before = None;
        for _ in 0..count {
            let header: SpecHeader = read(bytes)?;
            let size = usize::from(header.size);
            if header.reserved != 0 || size < size_of::<SpecHeader>() || size > bytes.len() {
                return Err(Errno::EINVAL);
            }
            let (spec, rest) = bytes.split_at(size);
            let kind = SpecKind::from_raw(header.kind & !INNER).ok_or(Errno::EINVAL)?;
            let inner = header.kind & INNER != 0;
            match kind {
                SpecKind::Mpls => specs.mpls(before, inner, &self::header(spec)?),
                _ => specs.add(kind, inner, spec)?,
            }
            before = Some((kind, inner));
            bytes = rest;
        }
        if bytes.is_empty() { Ok(specs) } else { Err(Errno::EINVAL) }
    }

    /// The parts of the parameters that the rule compares: bits of `match_criteria`.
    pub(crate) fn enabled(&self) -> u8 {
        let parts = [
            (self.mask.outer_headers().as_bytes(), match_criteria::OUTER_HEADERS),
            (self.mask.misc_parameters().as_bytes(), match_criteria::MISC_PARAMETERS),
            (self.mask.inner_headers().as_bytes(), match_criteria::INNER_HEADERS),
            (self.mask.misc_parameters_2().as_bytes(), match_criteria::MISC_PARAMETERS_2),
        ];
        let used = parts.into_iter().filter(|(bytes, _)| bytes.iter().any(|byte| *byte != 0));
        used.map(|(_, bit)| bit as u8).sum()
    }

    fn headers(&mut self, inner: bool) -> [&mut MatchHeaders; 2] {
        match inner {
            true => [self.mask.inner_headers_mut(), self.value.inner_headers_mut()],
            false => [self.mask.outer_headers_mut(), self.value.outer_headers_mut()],
        }
    }

    /// Sets the protocol above IP; there can be one.
    fn protocol(&mut self, inner: bool, protocol: u32) -> Result<(), Errno> {
        let [mask, value] = self.headers(inner);
        if mask.ip_protocol() != 0
            && value.ip_protocol() & mask.ip_protocol() != protocol & mask.ip_protocol()
        {
            return Err(Errno::EINVAL);
        }
        mask.set_ip_protocol(0xff);
        value.set_ip_protocol(protocol);
        Ok(())
    }

    fn add(&mut self, kind: SpecKind, inner: bool, bytes: &[u8]) -> Result<(), Errno> {
        match kind {
            SpecKind::Eth => self.ethernet(inner, &header(bytes)?),
            SpecKind::Ipv4 => self.ipv4(inner, &header(bytes)?),
            SpecKind::Ipv6 => self.ipv6(inner, &header(bytes)?),
            SpecKind::Tcp | SpecKind::Udp => {
                self.ports(kind == SpecKind::Tcp, inner, &header(bytes)?)
            }
            SpecKind::VxlanTunnel => {
                let spec: TunnelSpec = header(bytes)?;
                self.mask
                    .misc_parameters_mut()
                    .set_vxlan_vni(u32::from_be_bytes(spec.mask.tunnel_id));
                self.value
                    .misc_parameters_mut()
                    .set_vxlan_vni(u32::from_be_bytes(spec.value.tunnel_id));
                Ok(())
            }
            SpecKind::Gre => self.gre(inner, &header(bytes)?),
            SpecKind::ActionTag => {
                let spec: TagAction = read(bytes)?;
                if spec.tag_id >> TAG_BITS != 0 || spec.reserved1 != 0 {
                    return Err(Errno::EINVAL);
                }
                self.tag = Some(spec.tag_id);
                Ok(())
            }
            SpecKind::ActionDrop => {
                self.drop = true;
                Ok(())
            }
            SpecKind::ActionCount => {
                let spec: HandleAction = read(bytes)?;
                if self.counters.replace(spec.handle).is_some() {
                    return Err(Errno::EINVAL);
                }
                Ok(())
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn ethernet(&mut self, inner: bool, spec: &EthSpec) -> Result<(), Errno> {
        let [mask, value] = self.headers(inner);
        for (to, from) in [(mask, &spec.mask), (value, &spec.value)] {
            let mac = |mac: &[u8; 6]| {
                let high = u32::from_be_bytes([mac[0], mac[1], mac[2], mac[3]]);
                (high, number([mac[4], mac[5]]))
            };
            let ((high, low), source) = (mac(&from.dst_mac), mac(&from.src_mac));
            to.set_dmac_47_16(high).set_dmac_15_0(low);
            to.set_smac_47_16(source.0).set_smac_15_0(source.1);
            to.set_ethertype(number(from.ether_type));
            if spec.mask.vlan_tag != [0; 2] {
                let tag = number(from.vlan_tag);
                to.set_cvlan_tag(true)
                    .set_first_vid(tag & 0xfff)
                    .set_first_cfi(tag >> 12 & 1 != 0)
                    .set_first_prio(tag >> 13);
            }
        }
        Ok(())
    }

    fn version(&mut self, inner: bool, version: u32) -> Result<(), Errno> {
        let [mask, value] = self.headers(inner);
        let kind = if version == 4 { 0x0800 } else { 0x86dd };
        let contradicts = (value.ethertype() ^ kind) & mask.ethertype() != 0
            || mask.ip_version() != 0 && value.ip_version() != version;
        if contradicts {
            return Err(Errno::EINVAL);
        }
        mask.set_ip_version(0xf);
        value.set_ip_version(version);
        Ok(())
    }

    fn ipv4(&mut self, inner: bool, spec: &Ipv4Spec) -> Result<(), Errno> {
        refuse(&[spec.mask.ttl, spec.mask.flags])?;
        self.version(inner, 4)?;
        let [mask, value] = self.headers(inner);
        for (to, from) in [(mask, &spec.mask), (value, &spec.value)] {
            to.src_ipv4_src_ipv6_mut()[12..].copy_from_slice(&from.src_ip);
            to.dst_ipv4_dst_ipv6_mut()[12..].copy_from_slice(&from.dst_ip);
            to.set_ip_ecn((from.tos & 3).into()).set_ip_dscp((from.tos >> 2).into());
            if spec.mask.proto != 0 {
                to.set_ip_protocol(from.proto.into());
            }
        }
        Ok(())
    }

    fn ipv6(&mut self, inner: bool, spec: &Ipv6Spec) -> Result<(), Errno> {
        refuse(&[spec.mask.hop_limit])?;
        self.version(inner, 6)?;
        let [mask, value] = self.headers(inner);
        for (to, from) in [(mask, &spec.mask), (value, &spec.value)] {
            *to.src_ipv4_src_ipv6_mut() = from.src_ip;
            *to.dst_ipv4_dst_ipv6_mut() = from.dst_ip;
            let class = from.traffic_class;
            to.set_ip_ecn((class & 3).into()).set_ip_dscp((class >> 2).into());
            if spec.mask.next_hdr != 0 {
                to.set_ip_protocol(from.next_hdr.into());
            }
        }
        for (misc, from) in [
            (self.mask.misc_parameters_mut(), &spec.mask),
            (self.value.misc_parameters_mut(), &spec.value),
        ] {
            let label = u32::from_be_bytes(from.flow_label);
            match inner {
                true => misc.set_inner_ipv6_flow_label(label),
                false => misc.set_outer_ipv6_flow_label(label),
            };
        }
        Ok(())
    }

    fn ports(&mut self, tcp: bool, inner: bool, spec: &PortSpec) -> Result<(), Errno> {
        self.protocol(inner, if tcp { TCP } else { UDP })?;
        let [mask, value] = self.headers(inner);
        for (to, from) in [(mask, &spec.mask), (value, &spec.value)] {
            let (source, destination) = (number(from.src_port), number(from.dst_port));
            match tcp {
                true => to.set_tcp_sport(source).set_tcp_dport(destination),
                false => to.set_udp_sport(source).set_udp_dport(destination),
            };
        }
        Ok(())
    }

    /// An MPLS label: the specification before it decides the header that it follows.
    fn mpls(&mut self, before: Option<(SpecKind, bool)>, inner: bool, spec: &MplsSpec) {
        let place: fn(&mut MatchMisc2) -> &mut MatchMpls = match (before, inner) {
            (Some((SpecKind::Udp, false)), _) => MatchMisc2::outer_first_mpls_over_udp_mut,
            (Some((SpecKind::Gre, false)), _) => MatchMisc2::outer_first_mpls_over_gre_mut,
            (_, true) => MatchMisc2::inner_first_mpls_mut,
            (_, false) => MatchMisc2::outer_first_mpls_mut,
        };
        let mask = place(self.mask.misc_parameters_2_mut());
        mask.as_mut_bytes().copy_from_slice(&spec.mask.label);
        let value = place(self.value.misc_parameters_2_mut());
        value.as_mut_bytes().copy_from_slice(&spec.value.label);
    }

    fn gre(&mut self, inner: bool, spec: &GreSpec) -> Result<(), Errno> {
        refuse(&spec.mask.c_ks_res0_ver)?;
        self.protocol(inner, GRE)?;
        for (misc, from) in [
            (self.mask.misc_parameters_mut(), &spec.mask),
            (self.value.misc_parameters_mut(), &spec.value),
        ] {
            misc.set_gre_protocol(number(from.protocol)).set_gre_key(u32::from_be_bytes(from.key));
        }
        Ok(())
    }
}

/// Whether a rule is for multicast packets only: those have a table of their own.
pub(crate) fn is_multicast_only(specs: &Specs) -> bool {
    let (mask, value) = (specs.mask.outer_headers(), specs.value.outer_headers());
    let bit = 1 << 24;
    if mask.dmac_47_16() & bit != 0 && value.dmac_47_16() & bit != 0 {
        return true;
    }
    let (address, masked) = (value.dst_ipv4_dst_ipv6()[12], mask.dst_ipv4_dst_ipv6()[12]);
    value.ip_version() == 4 && address & 0xf0 == 0xe0 && masked & 0xf0 == 0xf0
}
