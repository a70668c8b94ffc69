//! Internet checksums: checks and corrects them.

use crate::frame::headers::{Layers, Network, Protocol, Transport, Version, number};

/// Offset of the checksum in a header.
const IN_IPV4: usize = 10;
const IN_TCP: usize = 16;
const IN_UDP: usize = 6;

/// The one's complement sum of bytes. The last byte of an odd number is the high half of a word.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    sum += rest.first().map_or(0, |byte| u64::from(*byte) << 8);
    fold(sum)
}

fn fold(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Result of a check of a frame's checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    /// There is an IP header, and it is correct.
    pub(crate) network: bool,
    /// There is a TCP or UDP header, and its checksum is correct.
    pub(crate) transport: bool,
}

/// The bytes that a transport's checksum covers; `None` if the headers claim an impossible length.
fn summed<'a>(frame: &'a [u8], network: &Network, transport: Transport) -> Option<&'a [u8]> {
    let last = match transport.protocol {
        Protocol::Tcp => network.payload.end,
        Protocol::Udp => transport.start + usize::from(number(frame, transport.start + 4)?),
        Protocol::Esp => return None,
    };
    let whole = !network.cut && (transport.end..=network.payload.end).contains(&last);
    whole.then(|| &frame[transport.start..last])
}

/// The sum over a transport's bytes and its pseudo header.
fn transport_sum(frame: &[u8], network: &Network, transport: Transport) -> Option<u16> {
    let bytes = summed(frame, network, transport)?;
    let addresses = network.addresses().map(|range| u64::from(sum(&frame[range])));
    let pseudo = addresses[0] + addresses[1] + u64::from(network.protocol) + bytes.len() as u64;
    Some(fold(pseudo + u64::from(sum(bytes))))
}

/// Checks the checksums of one level of headers.
pub(crate) fn verdict(frame: &[u8], layers: &Layers) -> Verdict {
    let Some(network) = &layers.network else {
        return Verdict { network: false, transport: false };
    };
    let header = match network.version {
        Version::V4 => sum(&frame[network.start..network.end]) == 0xffff,
        Version::V6 => true,
    };
    let transport = layers.transport.is_some_and(|transport| {
        let unchecked = transport.protocol == Protocol::Udp
            && network.version == Version::V4
            && number(frame, transport.start + IN_UDP) == Some(0)
            && summed(frame, network, transport).is_some();
        unchecked || transport_sum(frame, network, transport) == Some(0xffff)
    });
    Verdict { network: header && !network.cut, transport }
}

/// Computes the checksum of an IPv4 header.
pub(crate) fn fill_network(frame: &mut [u8], layers: &Layers) {
    let Some(network) = layers.network.as_ref().filter(|ip| ip.version == Version::V4) else {
        return;
    };
    let header = &mut frame[network.start..network.end];
    header[IN_IPV4..IN_IPV4 + 2].fill(0);
    let sum = !sum(header);
    header[IN_IPV4..IN_IPV4 + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Computes the checksum of TCP or UDP and replaces the field, in which drivers leave the sum of
/// the pseudo header.
pub(crate) fn fill_transport(frame: &mut [u8], layers: &Layers) {
    let (Some(network), Some(transport)) = (&layers.network, layers.transport) else { return };
    let place = transport.start
        + match transport.protocol {
            Protocol::Tcp => IN_TCP,
            Protocol::Udp => IN_UDP,
            Protocol::Esp => return,
        };
    if summed(frame, network, transport).is_none() {
        return;
    }
    frame[place..place + 2].fill(0);
    let Some(sum) = transport_sum(frame, network, transport) else { return };
    // Zero in UDP's field means that there is no checksum.
    let sum = match (transport.protocol, !sum) {
        (Protocol::Udp, 0) => 0xffff,
        (_, sum) => sum,
    };
    frame[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::headers::{ETHERNET, Headers};
    use crate::frame::samples::{self, ethernet, ipv4, tcp4, tcp6, udp, udp4, udp6};

    fn judge(frame: &[u8]) -> (bool, bool) {
        let verdict = verdict(frame, &Headers::of(frame).expect("a frame").outer);
        (verdict.network, verdict.transport)
    }

    #[test]
    fn the_sum_is_the_internets() {
        // RFC 1071, section 3.
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[0x12]), 0x1200);
        assert_eq!(sum(&[]), 0);
    }

    /// A header and a datagram captured from a wire: the examples of Wikipedia's articles on the
    /// IPv4 header checksum and on UDP (a DNS request).
    #[test]
    fn a_header_of_the_wire_is_right() {
        let mut header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8,
            0, 0xc7,
        ];
        assert_eq!(sum(&header), 0xffff);
        header[8] -= 1;
        assert_ne!(sum(&header), 0xffff);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        for frame in [tcp4(b"some data"), udp4(b"some data"), tcp6(b"some data!"), udp6(b"data")] {
            assert_eq!(judge(&frame), (true, true));
            let headers = Headers::of(&frame).expect("a frame").outer;
            let transport = headers.transport.expect("a transport");
            for byte in transport.start..frame.len() {
                let mut bad = frame.clone();
                bad[byte] ^= 0x10;
                assert!(!judge(&bad).1, "byte {byte} of {frame:02x?}");
            }
        }
        let frame = tcp4(b"x");
        for byte in ETHERNET..ETHERNET + 20 {
            let mut bad = frame.clone();
            bad[byte] ^= 1;
            assert!(!judge(&bad).0, "byte {byte}");
        }
    }

    #[test]
    fn other_protocols_have_a_right_network_header_only() {
        let ping = samples::summed(ethernet(samples::GROUP, 0x0800, &ipv4(1, &[8, 0, 0, 0, 1])));
        assert_eq!(judge(&ping), (true, false));
        assert_eq!(judge(&samples::plain(60)), (false, false));
    }

    #[test]
    fn udp_without_a_checksum_passes_over_ipv4_only() {
        let mut frame = udp4(b"data");
        frame[ETHERNET + 20 + IN_UDP..][..2].fill(0);
        assert_eq!(judge(&frame), (true, true));
        let mut frame = udp6(b"data");
        frame[ETHERNET + 40 + IN_UDP..][..2].fill(0);
        assert_eq!(judge(&frame), (true, false));
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_ones() {
        // The port is chosen so that the sum of the rest is all ones.
        let mut frame = ethernet(samples::GROUP, 0x0800, &ipv4(17, &udp(0, 0, &[])));
        let headers = Headers::of(&frame).expect("a frame").outer;
        let network = headers.network.clone().expect("IPv4");
        let transport = headers.transport.expect("UDP");
        let rest = transport_sum(&frame, &network, transport).expect("UDP");
        frame[transport.start..][..2].copy_from_slice(&(!rest).to_be_bytes());
        assert_eq!(transport_sum(&frame, &network, transport), Some(0xffff));
        fill_transport(&mut frame, &headers);
        assert_eq!(frame[transport.start + IN_UDP..][..2], [0xff, 0xff]);
        fill_network(&mut frame, &headers);
        assert_eq!(judge(&frame), (true, true));
    }

    #[test]
    fn what_stands_in_the_field_does_not_count() {
        for frame in [tcp4(b"segment"), udp6(b"datagram")] {
            let headers = Headers::of(&frame).expect("a frame").outer;
            let transport = headers.transport.expect("a transport");
            let place = match transport.protocol {
                Protocol::Tcp => transport.start + IN_TCP,
                _ => transport.start + IN_UDP,
            };
            let mut garbled = frame.clone();
            garbled[place..place + 2].copy_from_slice(&[0xa5, 0x5a]);
            fill_transport(&mut garbled, &headers);
            assert_eq!(garbled, frame);
        }
    }
}
