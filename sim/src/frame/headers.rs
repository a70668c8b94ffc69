//! The headers of a frame.
//!
//! A header that does not fit its frame, or contradicts itself, counts as absent: a claimed length
//! is believed only up to the end of the frame's bytes. A complete header is found even if the
//! length of its datagram is wrong. Such a packet is steered by its ports like any other, but none
//! of its checksums is correct.

use std::ops::Range;

/// Bytes of an Ethernet header without tags, which is the shortest frame.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of a VLAN tag.
pub(crate) const TAG: usize = 4;
/// The ethertypes of a customer's tag and of a service provider's.
pub(crate) const C_TAG: u16 = 0x8100;
pub(crate) const S_TAG: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// MPLS labels, unicast and multicast.
const MPLS: [u16; 2] = [0x8847, 0x8848];
const TRANSPARENT_BRIDGING: u16 = 0x6558;

const TCP: u8 = 6;
const UDP: u8 = 17;
const GRE: u8 = 47;
const ESP: u8 = 50;
/// The UDP port of VXLAN.
const VXLAN_PORT: u16 = 4789;
const VXLAN: usize = 8;
/// The UDP port of MPLS.
const MPLS_PORT: u16 = 6635;
/// Bytes of an MPLS label, and the bit that marks the last one of a stack.
const LABEL: usize = 4;
const LAST_LABEL: u32 = 1 << 8;
/// IPv6 headers before another header.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const IPV6_HEADER: usize = 40;
const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;

/// The big-endian number of two bytes at an offset, if they exist.
pub(crate) fn number(frame: &[u8], at: usize) -> Option<u16> {
    let bytes = frame.get(at..at + 2)?;
    Some(u16::from_be_bytes([bytes[0], bytes[1]]))
}

/// The big-endian number of four bytes at an offset, if they exist.
fn word(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from(number(frame, at)?) << 16 | u32::from(number(frame, at + 2)?))
}

/// A VLAN tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tag {
    pub(crate) kind: u16,
    pub(crate) control: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    V4,
    V6,
}

/// An IP header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    pub(crate) version: Version,
    /// Offset of its start.
    pub(crate) start: usize,
    /// Offset of the end of the IPv4 header with its options, or of IPv6's 40 bytes.
    pub(crate) end: usize,
    /// Range of the datagram's payload, which the frame or the datagram's length ends.
    pub(crate) payload: Range<usize>,
    /// The frame is shorter than the datagram claims.
    pub(crate) cut: bool,
    pub(crate) protocol: u8,
    pub(crate) fragment: bool,
}

impl Network {
    /// Ranges of the source and the destination address.
    pub(crate) fn addresses(&self) -> [Range<usize>; 2] {
        let (first, bytes) = match self.version {
            Version::V4 => (self.start + 12, 4),
            Version::V6 => (self.start + 8, 16),
        };
        [first..first + bytes, first + bytes..first + 2 * bytes]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
    Esp,
}

/// A complete header above IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Transport {
    pub(crate) protocol: Protocol,
    pub(crate) start: usize,
    /// Offset of its payload.
    pub(crate) end: usize,
}

/// Encapsulation of inner headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tunnel {
    Vxlan {
        vni: u32,
    },
    Gre {
        checksum: bool,
        key: Option<u32>,
        sequence: bool,
        protocol: u16,
        /// The first MPLS label, if the tunnel has labels.
        label: Option<u32>,
    },
    /// MPLS labels over UDP: the first one.
    MplsUdp {
        label: u32,
    },
    /// MPLS labels directly over Ethernet: no tunnel, but they hide the headers after them like
    /// one.
    Mpls,
}

/// The headers of one level: a frame's own, or those inside a tunnel.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Layers {
    /// Offset of the Ethernet header; `None` for a tunnel that carries IP directly.
    pub(crate) ethernet: Option<usize>,
    pub(crate) tags: Vec<Tag>,
    /// The type after the tags.
    pub(crate) kind: u16,
    /// The first MPLS label, if the type announces labels.
    pub(crate) label: Option<u32>,
    pub(crate) network: Option<Network>,
    pub(crate) transport: Option<Transport>,
}

/// All headers of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Headers {
    pub(crate) outer: Layers,
    pub(crate) tunnel: Option<Tunnel>,
    pub(crate) inner: Option<Layers>,
}

/// The most tags that the parser skips.
const MOST_TAGS: usize = 2;
/// The most MPLS labels that the parser skips.
const MOST_LABELS: usize = 8;
/// The most IPv6 extension headers that the parser skips.
const MOST_EXTENSIONS: usize = 8;

impl Layers {
    fn of_frame(frame: &[u8], start: usize) -> Option<Self> {
        let mut at = start + ETHERNET - 2;
        let mut kind = number(frame, at)?;
        let mut tags = Vec::new();
        while matches!(kind, C_TAG | S_TAG) && tags.len() < MOST_TAGS {
            let (Some(control), Some(next)) = (number(frame, at + 2), number(frame, at + TAG))
            else {
                break;
            };
            tags.push(Tag { kind, control });
            (at, kind) = (at + TAG, next);
        }
        let (network, transport) = above(frame, at + 2, kind);
        let label = if MPLS.contains(&kind) { word(frame, at + 2) } else { None };
        Some(Self { ethernet: Some(start), tags, kind, label, network, transport })
    }

    fn of_datagram(frame: &[u8], start: usize, kind: u16) -> Self {
        let (network, transport) = above(frame, start, kind);
        Self { ethernet: None, tags: Vec::new(), kind, label: None, network, transport }
    }

    /// The headers after a stack of labels: IP, judged by its version alone, because no field names
    /// the protocol.
    fn behind_labels(frame: &[u8], start: usize) -> Option<Self> {
        let mut labels = (0..MOST_LABELS).map(|label| start + label * LABEL);
        let last =
            labels.find(|at| word(frame, *at).is_none_or(|label| label & LAST_LABEL != 0))?;
        let kind = match frame.get(last + LABEL)? >> 4 {
            4 => IPV4,
            6 => IPV6,
            _ => return None,
        };
        Some(Self::of_datagram(frame, last + LABEL, kind))
    }

    /// Offset of the Ethernet payload.
    fn payload(&self) -> Option<usize> {
        Some(self.ethernet? + ETHERNET + self.tags.len() * TAG)
    }
}

fn above(frame: &[u8], start: usize, kind: u16) -> (Option<Network>, Option<Transport>) {
    let network = match kind {
        IPV4 => version_4(frame, start),
        IPV6 => version_6(frame, start),
        _ => None,
    };
    let transport = network.as_ref().filter(|network| !network.fragment);
    let transport = transport.and_then(|network| transport_of(frame, network));
    (network, transport)
}

fn version_4(frame: &[u8], start: usize) -> Option<Network> {
    let first = *frame.get(start)?;
    let bytes = usize::from(first & 0xf) * 4;
    frame.get(start..start + bytes.max(IPV4_HEADER))?;
    let claimed = usize::from(number(frame, start + 2)?);
    if first >> 4 != 4 || bytes < IPV4_HEADER || claimed < bytes {
        return None;
    }
    let end = start + bytes;
    Some(Network {
        version: Version::V4,
        start,
        end,
        payload: end..frame.len().min(start + claimed),
        cut: frame.len() < start + claimed,
        protocol: frame[start + 9],
        fragment: number(frame, start + 6)? & 0x3fff != 0,
    })
}

fn version_6(frame: &[u8], start: usize) -> Option<Network> {
    let header = frame.get(start..start + IPV6_HEADER)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let claimed = IPV6_HEADER + usize::from(number(frame, start + 4)?);
    let last = frame.len().min(start + claimed);
    let (mut at, mut protocol, mut fragment) = (start + IPV6_HEADER, header[6], false);
    for _ in 0..MOST_EXTENSIONS {
        let bytes = match protocol {
            FRAGMENT => 8,
            HOP_BY_HOP | ROUTING | DESTINATION => match frame[..last].get(at + 1) {
                Some(units) => 8 + usize::from(*units) * 8,
                None => break,
            },
            _ => break,
        };
        if at + bytes > last {
            break;
        }
        fragment |= protocol == FRAGMENT;
        protocol = frame[at];
        at += bytes;
    }
    Some(Network {
        version: Version::V6,
        start,
        end: start + IPV6_HEADER,
        payload: at.min(last)..last,
        cut: frame.len() < start + claimed,
        protocol,
        fragment,
    })
}

fn transport_of(frame: &[u8], network: &Network) -> Option<Transport> {
    let Range { start, end: last } = network.payload;
    let (protocol, bytes) = match network.protocol {
        TCP => {
            let bytes = usize::from(*frame.get(start + 12)? >> 4) * 4;
            (Protocol::Tcp, (bytes >= TCP_HEADER).then_some(bytes)?)
        }
        UDP => (Protocol::Udp, UDP_HEADER),
        ESP => (Protocol::Esp, 8),
        _ => return None,
    };
    let end = start + bytes;
    (end <= last).then_some(Transport { protocol, start, end })
}

fn tunnel_of(frame: &[u8], outer: &Layers) -> Option<(Tunnel, Option<Layers>)> {
    if outer.label.is_some() {
        return Some((Tunnel::Mpls, Layers::behind_labels(frame, outer.payload()?)));
    }
    let network = outer.network.as_ref()?;
    if let Some(Transport { protocol: Protocol::Udp, start, end }) = outer.transport {
        let port = number(frame, start + 2)?;
        if port == MPLS_PORT {
            let label = word(frame, end)?;
            return Some((Tunnel::MplsUdp { label }, Layers::behind_labels(frame, end)));
        }
        let header = frame.get(end..end + VXLAN)?;
        if port != VXLAN_PORT {
            return None;
        }
        let vni = u32::from_be_bytes([0, header[4], header[5], header[6]]);
        return Some((Tunnel::Vxlan { vni }, Layers::of_frame(frame, end + VXLAN)));
    }
    if network.protocol != GRE || network.fragment || network.cut {
        return None;
    }
    let start = network.payload.start;
    let (flags, protocol) = (number(frame, start)?, number(frame, start + 2)?);
    let has = |bit: u16| flags & bit != 0;
    let (checksum, with_key, sequence) = (has(0x8000), has(0x2000), has(0x1000));
    let mut at = start + 4 + if checksum { 4 } else { 0 };
    let mut key = None;
    if with_key {
        key = Some(word(frame, at)?);
        at += 4;
    }
    at += if sequence { 4 } else { 0 };
    let label = if MPLS.contains(&protocol) { word(frame, at) } else { None };
    let inner = match protocol {
        TRANSPARENT_BRIDGING => Layers::of_frame(frame, at),
        _ if label.is_some() => Layers::behind_labels(frame, at),
        _ => Some(Layers::of_datagram(frame, at, protocol)),
    };
    Some((Tunnel::Gre { checksum, key, sequence, protocol, label }, inner))
}

impl Headers {
    /// The headers of a frame; `None` if it is shorter than an Ethernet header.
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let outer = Layers::of_frame(frame, 0)?;
        let (tunnel, inner) = match tunnel_of(frame, &outer) {
            Some((tunnel, inner)) => (Some(tunnel), inner),
            None => (None, None),
        };
        Some(Self { outer, tunnel, inner })
    }
}

/// Whether a frame is for a group or a broadcast.
pub(crate) fn is_multicast(frame: &[u8]) -> bool {
    frame.first().is_some_and(|byte| byte & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::checksum;
    use crate::frame::samples::{self, tcp4, udp4, udp6};

    #[test]
    fn the_type_behind_tags_counts() {
        let plain = udp4(b"payload");
        let tagged = samples::tagged(&samples::tagged(&plain, C_TAG, 0x2005), S_TAG, 0x0fff);
        let headers = Headers::of(&tagged).expect("a frame");
        let tags = [Tag { kind: S_TAG, control: 0xfff }, Tag { kind: C_TAG, control: 0x2005 }];
        assert_eq!(headers.outer.tags, tags);
        assert_eq!(headers.outer.kind, IPV4);
        let transport = headers.outer.transport.expect("UDP");
        assert_eq!(&tagged[transport.end..], b"payload");
    }

    #[test]
    fn headers_that_do_not_fit_their_frame_are_not_there() {
        for whole in [tcp4(b"data"), udp4(b"data"), udp6(b"data")] {
            for length in 0..whole.len() {
                let cut = &whole[..length];
                let headers = Headers::of(cut);
                assert_eq!(headers.is_some(), length >= ETHERNET);
                let Some(headers) = headers else { continue };
                let fits = length >= whole.len() - 4;
                assert_eq!(headers.outer.transport.is_some(), fits, "{length} of {}", whole.len());
                let verdict = checksum::verdict(cut, &headers.outer);
                assert!(!verdict.network && !verdict.transport, "{length} of {}", whole.len());
            }
        }
    }

    #[test]
    fn lengths_that_lie_hide_what_is_behind() {
        let mut frame = udp4(b"data");
        frame[ETHERNET] = 0x44;
        assert_eq!(Headers::of(&frame).expect("a frame").outer.network, None, "IHL of 16 bytes");
        let mut frame = udp4(b"data");
        frame[ETHERNET + 3] = 19;
        assert_eq!(Headers::of(&frame).expect("a frame").outer.network, None, "total below IHL");
        let mut frame = udp4(b"data");
        frame[ETHERNET + 2] = 9;
        let network = Headers::of(&frame).expect("a frame").outer.network.expect("IPv4");
        assert!(network.cut);
        let mut frame = tcp4(b"data");
        frame[ETHERNET + 20 + 12] = 0xf0;
        let headers = Headers::of(&frame).expect("a frame");
        assert_eq!(headers.outer.transport, None, "TCP options beyond the datagram");
    }

    /// rdma-core's tests send IPv6 packets whose length includes the IPv6 header.
    #[test]
    fn ports_are_found_though_a_length_lies_and_no_checksum_is_right() {
        for (whole, at) in [
            (udp4(b"data"), ETHERNET + 2),
            (udp6(b"data"), ETHERNET + 4),
            (udp4(b"data"), ETHERNET + 20 + 4),
            (udp6(b"data"), ETHERNET + 40 + 4),
        ] {
            for lie in [[9, 0], [0, 0xff], [0, 7]] {
                let mut frame = whole.clone();
                frame[at..at + 2].copy_from_slice(&lie);
                let layers = Headers::of(&frame).expect("a frame").outer;
                let verdict = checksum::verdict(&frame, &layers);
                assert!(!verdict.transport, "{lie:?} at {at}");
                let ends_before = lie == [0, 7] && at < ETHERNET + 20;
                assert_eq!(layers.transport.is_none(), ends_before, "{lie:?} at {at}");
            }
        }
    }

    #[test]
    fn the_second_fragment_has_no_ports() {
        let mut frame = udp4(b"data");
        frame[ETHERNET + 7] = 1;
        let headers = Headers::of(&frame).expect("a frame");
        assert!(headers.outer.network.expect("IPv4").fragment);
        assert_eq!(headers.outer.transport, None);
    }

    #[test]
    fn extension_headers_are_looked_through_and_a_loop_ends() {
        let plain = udp6(b"data");
        let ip = ETHERNET + IPV6_HEADER;
        let mut frame = plain[..ip].to_vec();
        frame[ETHERNET + 6] = HOP_BY_HOP;
        frame[ETHERNET + 5] += 8;
        frame.extend([UDP, 0, 1, 4, 0, 0, 0, 0]);
        frame.extend(&plain[ip..]);
        let headers = Headers::of(&frame).expect("a frame");
        assert_eq!(headers.outer.transport.expect("UDP").start, ip + 8);
        let mut endless = plain[..ip].to_vec();
        endless[ETHERNET + 6] = DESTINATION;
        endless[ETHERNET + 4..][..2].copy_from_slice(&800u16.to_be_bytes());
        endless.extend([DESTINATION, 0, 0, 0, 0, 0, 0, 0].repeat(100));
        let headers = Headers::of(&endless).expect("a frame");
        assert_eq!(headers.outer.transport, None);
    }

    #[test]
    fn tunnels_show_what_is_inside() {
        let inner = tcp4(b"inner");
        let vxlan = samples::vxlan(&inner, 0x12_3456);
        let headers = Headers::of(&vxlan).expect("a frame");
        assert_eq!(headers.tunnel, Some(Tunnel::Vxlan { vni: 0x12_3456 }));
        let inside = headers.inner.expect("inner headers");
        assert_eq!(inside.transport.expect("TCP").protocol, Protocol::Tcp);
        let gre = samples::gre(&inner[ETHERNET..], 0x0800, Some(0xdead_beef));
        let headers = Headers::of(&gre).expect("a frame");
        let Some(Tunnel::Gre { key, .. }) = headers.tunnel else { panic!("GRE") };
        assert_eq!(key, Some(0xdead_beef));
        assert!(headers.inner.expect("inner headers").transport.is_some());
    }

    #[test]
    fn what_is_behind_labels_is_found_wherever_the_stack_lies() {
        let datagram = &tcp4(b"inner")[ETHERNET..];
        let stack = samples::labels(&[0x1234_5040, 0x0000_1140], datagram);
        let first = 0x1234_5040;
        for frame in [
            samples::ethernet(samples::GROUP, 0x8847, &stack),
            samples::tagged(&samples::ethernet(samples::GROUP, 0x8848, &stack), C_TAG, 5),
            samples::gre(&stack, 0x8847, Some(7)),
            samples::mpls_udp(&stack),
        ] {
            let headers = Headers::of(&frame).expect("a frame");
            let found = match headers.tunnel.expect("labels") {
                Tunnel::Mpls => headers.outer.label,
                Tunnel::Gre { label, .. } => label,
                Tunnel::MplsUdp { label } => Some(label),
                Tunnel::Vxlan { .. } => None,
            };
            assert_eq!(found, Some(first), "{headers:?}");
            let inner = headers.inner.expect("inner headers");
            assert_eq!(inner.transport.expect("TCP").protocol, Protocol::Tcp);
            for length in 0..frame.len() {
                // No length makes the parser panic.
                let _ = Headers::of(&frame[..length]);
            }
        }
        // A stack without a last label, and one that is not followed by IP.
        for stack in [samples::labels(&[0x40; 20], datagram), samples::labels(&[0x140], &[0; 60])] {
            let frame = samples::ethernet(samples::GROUP, 0x8847, &stack);
            assert_eq!(Headers::of(&frame).expect("a frame").inner, None);
        }
    }
}
