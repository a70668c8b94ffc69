//! The headers of a frame that its request must contain, for devices that require some.

use mlx5_prm::ethernet::{InlineMode, L2_INLINE};
use mlx5_wqe::VlanTag;

/// Length of the two addresses.
const ADDRESSES: usize = 12;
/// Length of an Ethertype, and of a VLAN tag.
const KIND: usize = 2;
const TAG: usize = 4;
/// Ethertypes.
const C_TAG: u16 = 0x8100;
const S_TAG: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Maximum length of IPv4's header, and of TCP's.
const WITH_OPTIONS: usize = 60;
/// Length of IPv6's header, and the unit of the lengths of its extension headers.
const IPV6_HEADER: usize = 40;
const IPV6_UNIT: usize = 8;

/// Protocols.
mod protocol {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const TCP: u8 = 6;
    pub(super) const UDP: u8 = 17;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const DESTINATION: u8 = 60;
}
const UDP_HEADER: usize = 8;
/// The bits of IPv4's fragment offset: only the first fragment has the header of TCP or UDP.
const OFFSET: u16 = 0x1fff;

/// Maximum length of the inline headers in mode L2: two tags, and one that is inserted.
pub(super) const MOST_L2: usize = ADDRESSES + 3 * TAG + KIND;
/// Maximum length of the inline headers: with those of IPv4 and TCP.
pub(super) const MOST_INLINE: usize = MOST_L2 + 2 * WITH_OPTIONS;

/// Maximum length of the inline headers in this mode.
pub(super) const fn most_inline(mode: InlineMode) -> usize {
    match mode {
        InlineMode::None => 0,
        InlineMode::L2 => MOST_L2,
        InlineMode::Ip | InlineMode::TcpUdp => MOST_INLINE,
    }
}

/// Copies the first bytes of a frame to `to`, with the tag after the addresses: the headers that
/// the device requires. Returns them, and how many bytes of the frame they are.
pub(super) fn inline_header<'a>(
    frame: &[u8],
    tag: Option<VlanTag>,
    mode: InlineMode,
    to: &'a mut [u8; MOST_INLINE],
) -> (&'a [u8], usize) {
    let (kind, control) = match tag {
        None => {
            let taken = bytes_of(frame, mode, L2_INLINE, most_inline(mode));
            to[..taken].copy_from_slice(&frame[..taken]);
            return (&to[..taken], taken);
        }
        Some(VlanTag::Customer(control)) => (C_TAG, control),
        Some(VlanTag::Service(control)) => (S_TAG, control),
    };
    let taken = bytes_of(frame, mode, L2_INLINE - TAG, most_inline(mode) - TAG);
    let (addresses, rest) = to.split_at_mut(ADDRESSES);
    addresses.copy_from_slice(&frame[..ADDRESSES]);
    rest[..KIND].copy_from_slice(&kind.to_be_bytes());
    rest[KIND..TAG].copy_from_slice(&control.to_be_bytes());
    rest[TAG..][..taken - ADDRESSES].copy_from_slice(&frame[ADDRESSES..taken]);
    (&to[..taken + TAG], taken)
}

/// Number of bytes of the frame that go into its request. If the headers are longer than `most`
/// bytes together, they are cut, and the device decides.
fn bytes_of(frame: &[u8], mode: InlineMode, least: usize, most: usize) -> usize {
    end_of_headers(frame, mode).max(least).min(most).min(frame.len())
}

/// End of the last header that the mode names and the frame has. A header that is cut off counts as
/// absent.
fn end_of_headers(frame: &[u8], mode: InlineMode) -> usize {
    let mut kind_at = ADDRESSES;
    while let Some(C_TAG | S_TAG) = number(frame, kind_at) {
        kind_at += TAG;
    }
    let link = kind_at + KIND;
    if mode <= InlineMode::L2 {
        return link;
    }
    let network = match number(frame, kind_at) {
        Some(IPV4) => above_ipv4(frame, link),
        Some(IPV6) => above_ipv6(frame, link),
        _ => None,
    };
    let Some((network, protocol)) = network else { return link };
    let transport = match protocol {
        Some(protocol::TCP) if mode == InlineMode::TcpUdp => {
            byte(frame, network + 12).map(|words| network + usize::from(words >> 4) * 4)
        }
        Some(protocol::UDP) if mode == InlineMode::TcpUdp => Some(network + UDP_HEADER),
        _ => None,
    };
    transport.unwrap_or(network)
}

/// End of an IPv4 header, and the protocol that follows, unless the packet is a later fragment.
fn above_ipv4(frame: &[u8], at: usize) -> Option<(usize, Option<u8>)> {
    let end = at + usize::from(byte(frame, at)? & 0xf) * 4;
    let is_first = number(frame, at + 6)? & OFFSET == 0;
    let protocol = byte(frame, at + 9)?;
    Some((end, is_first.then_some(protocol)))
}

/// The same for IPv6: end of the extension headers, and the protocol that follows them.
fn above_ipv6(frame: &[u8], at: usize) -> Option<(usize, Option<u8>)> {
    let (mut end, mut next) = (at + IPV6_HEADER, byte(frame, at + 6)?);
    loop {
        let units = match next {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION => {
                1 + usize::from(byte(frame, end + 1)?)
            }
            protocol::FRAGMENT => {
                // The offset is in units, above three other bits.
                if number(frame, end + 2)? >> 3 != 0 {
                    return Some((end + IPV6_UNIT, None));
                }
                1
            }
            _ => return Some((end, Some(next))),
        };
        next = byte(frame, end)?;
        end += units * IPV6_UNIT;
    }
}

fn byte(frame: &[u8], at: usize) -> Option<u8> {
    frame.get(at).copied()
}

/// Returns a number of two bytes.
fn number(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use InlineMode::{Ip, L2, TcpUdp};

    /// A frame with these headers after that of Ethernet, and with more bytes than the device
    /// requires.
    fn frame(kind: u16, headers: &[&[u8]]) -> Vec<u8> {
        let link = [&[1; ADDRESSES][..], &kind.to_be_bytes()].concat();
        [&link[..], &headers.concat(), &[0xff; 100]].concat()
    }

    fn ipv4(protocol: u8) -> [u8; 20] {
        let mut header = [0; 20];
        (header[0], header[9]) = (0x45, protocol);
        header
    }

    fn ipv6(next: u8) -> [u8; IPV6_HEADER] {
        let mut header = [0; IPV6_HEADER];
        (header[0], header[6]) = (0x60, next);
        header
    }

    /// Header of a fragment that starts at this offset, in units of eight bytes.
    fn fragment(next: u8, offset: u16) -> [u8; IPV6_UNIT] {
        let [high, low] = (offset << 3 | 1).to_be_bytes();
        [next, 0, high, low, 0, 0, 0, 0]
    }

    #[test]
    fn a_request_contains_the_headers_that_its_mode_names_and_no_more() {
        use protocol::{DESTINATION, FRAGMENT, TCP, UDP};
        let (mut tcp, udp) = ([0; 24], [0; UDP_HEADER]);
        tcp[12] = 6 << 4;
        let options = [UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let first = [&ipv6(FRAGMENT)[..], &fragment(UDP, 0), &udp].concat();
        let later = [&ipv6(FRAGMENT)[..], &fragment(UDP, 1), &udp].concat();
        for (name, frame, [ip, transport]) in [
            ("UDP", frame(IPV4, &[&ipv4(UDP), &udp]), [34, 42]),
            ("TCP", frame(IPV4, &[&ipv4(TCP), &tcp]), [34, 58]),
            ("UDP6", frame(IPV6, &[&ipv6(UDP), &udp]), [54, 62]),
            ("TCP6", frame(IPV6, &[&ipv6(TCP), &tcp]), [54, 78]),
            ("options", frame(IPV6, &[&ipv6(DESTINATION), &options, &udp]), [70, 78]),
            ("first fragment", frame(IPV6, &[&first]), [62, 70]),
            ("later fragment", frame(IPV6, &[&later]), [62, 62]),
        ] {
            for (mode, end) in [(L2, L2_INLINE), (Ip, ip), (TcpUdp, transport)] {
                let mut to = [0; MOST_INLINE];
                let (header, taken) = inline_header(&frame, None, mode, &mut to);
                assert_eq!((header, taken), (&frame[..end], end), "{name}, {mode:?}");
            }
        }
    }

    /// Each of the 13 bits of the offset makes a later fragment, and none of the flags beside them.
    #[test]
    fn a_later_fragment_has_no_header_of_transport_wherever_it_lies() {
        use protocol::{FRAGMENT, TCP, UDP};
        let length = |frame: &[u8]| inline_header(frame, None, TcpUdp, &mut [0; MOST_INLINE]).1;
        for (protocol, header) in [(UDP, 8), (TCP, 20)] {
            let mut transport = [0; 20];
            transport[12] = 5 << 4;
            // Reserved, do not fragment, more fragments.
            for flags in [0, 1 << 15, 1 << 14, 1 << 13, 7 << 13] {
                let of = |offset: u16| {
                    let mut ip = ipv4(protocol);
                    ip[6..8].copy_from_slice(&(flags | offset).to_be_bytes());
                    frame(IPV4, &[&ip, &transport])
                };
                assert_eq!(length(&of(0)), 34 + header, "{flags:#x}");
                for bit in 0..13 {
                    assert_eq!(length(&of(1 << bit)), 34, "{flags:#x}, bit {bit}");
                }
            }
            let of =
                |offset| frame(IPV6, &[&ipv6(FRAGMENT), &fragment(protocol, offset), &transport]);
            assert_eq!(length(&of(0)), 62 + header);
            for bit in 0..13 {
                assert_eq!(length(&of(1 << bit)), 62, "bit {bit}");
            }
        }
    }
}
