//! Segmentation: cuts a large packet into segments.

use crate::frame::headers::{Headers, Network, Protocol, Version, number};

/// Flags of TCP.
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Reason for which a packet cannot be cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The segment size is zero.
    NoSegmentSize,
    /// The headers are not those of TCP or UDP over IP, or do not end where the request says they
    /// do.
    Headers,
}

/// A packet to cut: its headers, and the offsets of the fields that change.
pub(crate) struct Plan {
    headers: Vec<u8>,
    network: Network,
    protocol: Protocol,
    transport: usize,
    mss: usize,
}

impl Plan {
    /// Reads the headers of a packet. Their length fields may have any value, because drivers do
    /// not set them.
    pub(crate) fn new(headers: &[u8], mss: u16) -> Result<Self, Refusal> {
        if mss == 0 {
            return Err(Refusal::NoSegmentSize);
        }
        // The headers are parsed with the lengths of a packet without payload.
        let mut bytes = headers.to_vec();
        correct_lengths(&mut bytes).ok_or(Refusal::Headers)?;
        let layers = Headers::of(&bytes).ok_or(Refusal::Headers)?.outer;
        let (Some(network), Some(transport)) = (layers.network, layers.transport) else {
            return Err(Refusal::Headers);
        };
        if transport.end != headers.len() || transport.protocol == Protocol::Esp {
            return Err(Refusal::Headers);
        }
        Ok(Self {
            headers: bytes,
            network,
            protocol: transport.protocol,
            transport: transport.start,
            mss: mss.into(),
        })
    }

    /// Number of segments for a payload.
    pub(crate) fn count(&self, payload: usize) -> usize {
        payload.div_ceil(self.mss).max(1)
    }

    /// One segment of a payload. Its checksums are those of the headers, not corrected.
    pub(crate) fn segment(&self, payload: &[u8], index: usize) -> Vec<u8> {
        let (first, last) = (index == 0, index + 1 == self.count(payload.len()));
        let start = index * self.mss;
        let data = &payload[start..payload.len().min(start + self.mss)];
        let mut frame = [&self.headers[..], data].concat();
        set_lengths(&mut frame, &self.network, self.protocol, self.transport);
        if self.network.version == Version::V4 {
            let place = self.network.start + 4;
            let id = number(&frame, place).unwrap_or(0).wrapping_add(index as u16);
            frame[place..place + 2].copy_from_slice(&id.to_be_bytes());
        }
        if self.protocol == Protocol::Tcp {
            let place = self.transport + 4;
            let high = u32::from(number(&frame, place).unwrap_or(0)) << 16;
            let sequence = high | u32::from(number(&frame, place + 2).unwrap_or(0));
            let sequence = sequence.wrapping_add(start as u32);
            frame[place..place + 4].copy_from_slice(&sequence.to_be_bytes());
            let flags = &mut frame[self.transport + 13];
            if !last {
                *flags &= !(FIN | PSH);
            }
            if !first {
                *flags &= !CWR;
            }
        }
        frame
    }
}

/// Sets the length fields of headers without payload.
fn correct_lengths(headers: &mut [u8]) -> Option<()> {
    let mut at = 12;
    while matches!(number(headers, at)?, 0x8100 | 0x88a8) {
        at += 4;
    }
    let ip = at + 2;
    let bytes = headers.len().checked_sub(ip)?;
    let (place, length) = match headers.get(ip)? >> 4 {
        4 => (ip + 2, bytes),
        6 => (ip + 4, bytes.checked_sub(40)?),
        _ => return None,
    };
    let length = u16::try_from(length).ok()?;
    headers.get_mut(place..place + 2)?.copy_from_slice(&length.to_be_bytes());
    Some(())
}

fn set_lengths(frame: &mut [u8], network: &Network, protocol: Protocol, transport: usize) {
    let bytes = frame.len() - network.start;
    let (place, length) = match network.version {
        Version::V4 => (network.start + 2, bytes),
        Version::V6 => (network.start + 4, frame.len() - network.end),
    };
    frame[place..place + 2].copy_from_slice(&(length as u16).to_be_bytes());
    if protocol == Protocol::Udp {
        let length = (frame.len() - transport) as u16;
        frame[transport + 4..transport + 6].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::checksum;
    use crate::frame::headers::ETHERNET;
    use crate::frame::samples::{self, tagged, tcp4, tcp6, udp4, udp6};

    fn cut(packet: &[u8], mss: u16) -> Vec<Vec<u8>> {
        let headers = Headers::of(packet).expect("a frame").outer;
        let end = headers.transport.expect("a transport").end;
        let plan = Plan::new(&packet[..end], mss).expect("can be cut");
        let payload = &packet[end..];
        let segments = (0..plan.count(payload.len())).map(|index| {
            let mut frame = plan.segment(payload, index);
            let layers = Headers::of(&frame).expect("a frame").outer;
            checksum::fill_network(&mut frame, &layers);
            checksum::fill_transport(&mut frame, &layers);
            frame
        });
        segments.collect()
    }

    #[test]
    fn segments_are_the_packets_that_software_would_have_sent() {
        let data: Vec<u8> = (0..2500u32).map(|n| ((n * 31) >> 3) as u8).collect();
        for packet in [tcp4(&data), tcp6(&data), tagged(&tcp4(&data), 0x8100, 7)] {
            let mut joined: Vec<u8> = Vec::new();
            let segments = cut(&packet, 1000);
            assert_eq!(segments.len(), 3);
            for (index, segment) in segments.iter().enumerate() {
                let layers = Headers::of(segment).expect("a frame").outer;
                let verdict = checksum::verdict(segment, &layers);
                assert!(verdict.network && verdict.transport);
                let transport = layers.transport.expect("TCP");
                let sequence: [u8; 4] = segment[transport.start + 4..][..4].try_into().expect("4");
                assert_eq!(u32::from_be_bytes(sequence), 0x1122_3344 + index as u32 * 1000);
                let network = layers.network.expect("IP");
                assert_eq!(network.payload.end, segment.len());
                if network.version == Version::V4 {
                    assert_eq!(number(segment, network.start + 4), Some(0x1234 + index as u16));
                }
                joined.extend(&segment[transport.end..]);
            }
            assert_eq!(joined, data);
        }
    }

    #[test]
    fn flags_that_end_or_begin_are_on_one_segment() {
        let flags = FIN | PSH | CWR | 0x10;
        let packet = samples::summed(samples::ethernet(
            samples::GROUP,
            0x0800,
            &samples::ipv4(6, &samples::tcp(flags, &[7; 30])),
        ));
        let found: Vec<u8> =
            cut(&packet, 10).iter().map(|frame| frame[ETHERNET + 20 + 13]).collect();
        assert_eq!(found, [CWR | 0x10, 0x10, FIN | PSH | 0x10]);
    }

    #[test]
    fn datagrams_are_cut_in_datagrams() {
        for packet in [udp4(&[9; 700]), udp6(&[9; 700])] {
            let lengths: Vec<usize> = cut(&packet, 300)
                .iter()
                .map(|frame| {
                    let layers = Headers::of(frame).expect("a frame").outer;
                    assert!(checksum::verdict(frame, &layers).transport);
                    frame.len() - layers.transport.expect("UDP").end
                })
                .collect();
            assert_eq!(lengths, [300, 300, 100]);
        }
    }

    #[test]
    fn a_packet_that_is_short_enough_is_one_segment() {
        for payload in [&[][..], &[1], &[1; 10]] {
            let packet = tcp4(payload);
            assert_eq!(cut(&packet, 10), [packet]);
        }
    }

    #[test]
    fn lengths_may_be_anything_and_headers_may_not() {
        let packet = tcp6(&[1; 50]);
        let end = ETHERNET + 40 + 20;
        let mut lying = packet[..end].to_vec();
        lying[ETHERNET + 4..][..2].fill(0);
        let plan = Plan::new(&lying, 20).expect("can be cut");
        let first = plan.segment(&packet[end..], 0);
        assert_eq!(first[ETHERNET + 4..][..2], [0, 40]);

        assert_eq!(Plan::new(&packet[..end], 0).err(), Some(Refusal::NoSegmentSize));
        for bad in [&packet[..end - 1], &packet[..end + 1], &packet[..14], &packet[..3], &[]] {
            assert_eq!(Plan::new(bad, 20).err(), Some(Refusal::Headers), "{} bytes", bad.len());
        }
        let ping = samples::ethernet(samples::GROUP, 0x0800, &samples::ipv4(1, &[8, 0, 0, 0]));
        assert_eq!(Plan::new(&ping, 20).err(), Some(Refusal::Headers));
    }
}
