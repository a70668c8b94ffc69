//! Ethernet frames built byte by byte, with checksums that are computed here.

/// The multicast address that stations receive, so that the device itself returns their frames.
pub(crate) const GROUP: [u8; 6] = [0x01, 0x50, 0x56, 0x19, 0x20, 0xa7];
/// The source address of frames.
pub(crate) const SOURCE: [u8; 6] = [0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8];
/// Bytes of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;
/// Bytes of Ethernet, IPv4 and TCP headers without options.
pub(crate) const TCP4: usize = 54;

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
/// An EtherType for local experiments: no layer above Ethernet claims it.
const EXPERIMENT: u16 = 0x88b5;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const GRE: u8 = 47;
/// EtherTypes of MPLS labels, and of a frame inside GRE.
pub(crate) const MPLS: u16 = 0x8847;
pub(crate) const BRIDGED: u16 = 0x6558;

/// Flags of TCP.
pub(crate) const FIN: u8 = 1;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 0x10;

/// Addresses of the documentation networks.
pub(crate) const FROM: [u8; 4] = [192, 0, 2, 1];
pub(crate) const TO: [u8; 4] = [198, 51, 100, 7];

/// A frame to the group.
pub(crate) fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&GROUP[..], &SOURCE, &kind.to_be_bytes(), payload].concat()
}

/// A frame of `bytes` bytes that no layer above Ethernet claims.
pub(crate) fn plain(bytes: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..bytes - ETHERNET).map(|n| (n * 7 + bytes) as u8).collect();
    ethernet(EXPERIMENT, &payload)
}

/// The headers of a packet, before its payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) six: bool,
    pub(crate) protocol: u8,
    /// Source and destination port.
    pub(crate) ports: (u16, u16),
    /// The last byte of the source address.
    pub(crate) host: u8,
    /// Flags of TCP.
    pub(crate) flags: u8,
}

impl Flow {
    pub(crate) const UDP4: Self =
        Self { six: false, protocol: UDP, ports: (1111, 2222), host: 1, flags: 0 };
    pub(crate) const TCP4: Self = Self { protocol: TCP, flags: ACK | PSH, ..Self::UDP4 };
    pub(crate) const UDP6: Self = Self { six: true, ..Self::UDP4 };
    pub(crate) const TCP6: Self = Self { six: true, ..Self::TCP4 };

    /// The frame, with the right checksums.
    pub(crate) fn frame(self, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.bare(payload);
        sum(&mut frame);
        frame
    }

    /// The frame, with zeros in place of the checksums.
    pub(crate) fn bare(self, payload: &[u8]) -> Vec<u8> {
        let ports = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        let transport = match self.protocol {
            UDP => {
                let length = (8 + payload.len() as u16).to_be_bytes();
                [&ports[..], &length, &[0, 0], payload].concat()
            }
            _ => {
                let rest = [0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1, 0x50, self.flags, 0x20, 0];
                [&ports[..], &rest, &[0; 4], payload].concat()
            }
        };
        if self.six {
            let length = (transport.len() as u16).to_be_bytes();
            let network = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let head = [0x60, 0, 0, 0, length[0], length[1], self.protocol, 64];
            let addresses = [&network[..], &[self.host], &network, &[9]].concat();
            return ethernet(IPV6, &[&head[..], &addresses, &transport].concat());
        }
        let length = (20 + transport.len() as u16).to_be_bytes();
        let head = [0x45, 0, length[0], length[1], 0x12, 0x34, 0x40, 0, 64, self.protocol, 0, 0];
        let from = [FROM[0], FROM[1], FROM[2], self.host];
        ethernet(IPV4, &[&head[..], &from, &TO, &transport].concat())
    }
}

/// An IPv4 packet to the group, with the right checksum in its header; tunnels use it.
pub(crate) fn datagram(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len() as u16).to_be_bytes();
    let mut head = vec![0x45, 0, length[0], length[1], 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0];
    head.extend([FROM, TO].as_flattened());
    let sum = !ones_sum(&[&head]);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    ethernet(IPV4, &[&head, payload].concat())
}

/// A UDP packet without a checksum, to a port.
fn to_port(port: u16, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let head = [5555, port, length, 0].map(u16::to_be_bytes);
    datagram(UDP, &[head.as_flattened(), payload].concat())
}

/// A frame inside VXLAN.
pub(crate) fn vxlan(network: u32, frame: &[u8]) -> Vec<u8> {
    to_port(4789, &[&[8, 0, 0, 0][..], &(network << 8).to_be_bytes(), frame].concat())
}

/// A packet inside GRE, with a key.
pub(crate) fn gre(protocol: u16, key: u32, packet: &[u8]) -> Vec<u8> {
    let head = [&[0x20, 0][..], &protocol.to_be_bytes(), &key.to_be_bytes()].concat();
    datagram(GRE, &[&head, packet].concat())
}

/// A stack of MPLS labels, the last of them marked as the bottom, and the packet after it.
pub(crate) fn labels(stack: &[u32], packet: &[u8]) -> Vec<u8> {
    let last = stack.len() - 1;
    let words = stack.iter().enumerate();
    let words =
        words.flat_map(|(n, label)| (label << 12 | u32::from(n == last) << 8 | 64).to_be_bytes());
    words.chain(packet.iter().copied()).collect()
}

/// Labels inside UDP.
pub(crate) fn labels_in_udp(stack: &[u8]) -> Vec<u8> {
    to_port(6635, stack)
}

/// The same frame with a VLAN tag after its source address.
pub(crate) fn tagged(frame: &[u8], tag: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0], &tag.to_be_bytes(), &frame[12..]].concat()
}

/// The one's complement sum of bytes as 16-bit words, folded (RFC 1071).
pub(crate) fn ones_sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for word in part.chunks(2) {
            sum += u64::from(word[0]) << 8 | word.get(1).map_or(0, |byte| u64::from(*byte));
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The offset at which the network header of an untagged frame ends, its source and destination
/// address, and its protocol.
fn network(frame: &[u8]) -> (usize, &[u8], u8) {
    match u16::from_be_bytes([frame[12], frame[13]]) {
        IPV4 => (ETHERNET + 20, &frame[26..34], frame[23]),
        _ => (ETHERNET + 40, &frame[22..54], frame[20]),
    }
}

/// The right checksum of the transport header, if the field is zero.
fn transport_sum(frame: &[u8]) -> u16 {
    let (start, addresses, protocol) = network(frame);
    let segment = &frame[start..];
    let length = (segment.len() as u32).to_be_bytes();
    !ones_sum(&[addresses, &[0, protocol], &length, segment])
}

/// Offset of the checksum in the transport header.
fn transport_field(frame: &[u8]) -> usize {
    let (start, _, protocol) = network(frame);
    start + if protocol == UDP { 6 } else { 16 }
}

/// Writes the right checksums into an untagged frame whose fields are zero.
pub(crate) fn sum(frame: &mut [u8]) {
    if frame[12..14] == IPV4.to_be_bytes() {
        let sum = !ones_sum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let field = transport_field(frame);
    let sum = match transport_sum(frame) {
        // In UDP, zero stands for no checksum.
        0 => 0xffff,
        sum => sum,
    };
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Makes the checksum of the transport header wrong.
pub(crate) fn spoil_transport(frame: &mut [u8]) {
    let field = transport_field(frame);
    frame[field] ^= 0x55;
}
