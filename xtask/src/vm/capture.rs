//! Checks the captured frames between the devices: every checksum is right, and the frames that the
//! network steps send are there.

use std::fmt;
use std::path::Path;

use super::network::VLAN;
use crate::debian::cache::in_file;
use crate::failure::Failure;

/// Bytes of the file's head and of each frame's head, and the offset of the frame's length in the
/// latter.
const FILE_HEAD: usize = 24;
const FRAME_HEAD: usize = 16;
const LENGTH: usize = 8;

const ETHERNET: usize = 14;
const TAGGED: u16 = 0x8100;
const TAG: usize = 4;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const IPV6_HEADER: usize = 40;

/// TCP port of the iperf3 server.
const IPERF3: u16 = 5201;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Source address of the frames that the suite builds byte by byte (`SOURCE` in
/// tests/src/frames.rs); some of them have wrong checksums on purpose.
const OF_THE_SUITE: [u8; 6] = [0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8];

/// Length of the longest frame of a network with an MTU of 1500, with a tag.
const USUAL: usize = 1500 + ETHERNET + TAG;

/// Counts of the frames in a capture.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Carried {
    frames: usize,
    /// TCP frames of full length for an MTU of 1500.
    full: usize,
    /// Frames that are longer.
    jumbo: usize,
    /// Full TCP frames to iperf3's port.
    streamed: usize,
    /// Frames with the tag of the steps' VLAN.
    tagged: usize,
    /// Numbers of the frames with wrong checksums.
    wrong: Vec<usize>,
}

/// A big-endian number of two bytes.
fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// One's complement sum of the bytes; all ones if they contain their checksum and it is right.
fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    sum as u16
}

/// Whether the checksum of a datagram is right, pseudo header included.
fn is_right(addresses: &[u8], protocol: u8, datagram: &[u8]) -> bool {
    let length = (datagram.len() as u32).to_be_bytes();
    match protocol {
        TCP | UDP | ICMPV6 => sum(&[addresses, &length, &[0, protocol], datagram]) == 0xffff,
        ICMP => sum(&[datagram]) == 0xffff,
        _ => true,
    }
}

/// Whether all checksums of an IPv4 packet are right. Of a fragment only the header's is checked.
fn ipv4_is_right(packet: &[u8]) -> Option<bool> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let end = usize::from(number(packet, 2)?);
    let fragment = number(packet, 6)? & 0x3fff != 0;
    let right = sum(&[packet.get(..header)?]) == 0xffff;
    let datagram = packet.get(header..end)?;
    Some(right && (fragment || is_right(&packet[12..20], packet[9], datagram)))
}

/// The same for IPv6. Extension headers are skipped.
fn ipv6_is_right(packet: &[u8]) -> Option<bool> {
    let end = IPV6_HEADER + usize::from(number(packet, 4)?);
    Some(is_right(packet.get(8..40)?, packet[6], packet.get(IPV6_HEADER..end)?))
}

impl Carried {
    /// Counts the frames of a capture. An incomplete last frame does not count.
    fn of(capture: &[u8]) -> Self {
        let mut carried = Self::default();
        let mut rest = capture.get(FILE_HEAD..).unwrap_or_default();
        while let Some(length) = rest.get(LENGTH..LENGTH + 4) {
            let length =
                length.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
            let Some(frame) = rest.get(FRAME_HEAD..FRAME_HEAD + length) else { break };
            carried.frame(frame);
            rest = &rest[FRAME_HEAD + length..];
        }
        carried
    }

    fn frame(&mut self, frame: &[u8]) {
        self.frames += 1;
        let mut at = ETHERNET;
        let mut kind = number(frame, at - 2);
        let mut longest = USUAL - TAG;
        if kind == Some(TAGGED) {
            self.tagged += usize::from(number(frame, at).is_some_and(|tag| tag & 0xfff == VLAN));
            at += TAG;
            longest = USUAL;
            kind = number(frame, at - 2);
        }
        let packet = frame.get(at..).unwrap_or_default();
        let (right, protocol) = match kind {
            Some(IPV4) => (ipv4_is_right(packet), packet.get(9)),
            Some(IPV6) => (ipv6_is_right(packet), packet.get(6)),
            _ => return,
        };
        if right != Some(true) && frame[6..12] != OF_THE_SUITE {
            self.wrong.push(self.frames);
        }
        let full = frame.len() == longest && protocol == Some(&TCP);
        self.full += usize::from(full);
        self.streamed +=
            usize::from(full && kind == Some(IPV4) && number(packet, 22) == Some(IPERF3));
        self.jumbo += usize::from(frame.len() > USUAL);
    }

    /// Problems of the capture: wrong checksums, and fewer frames than the steps in `sent` send.
    fn troubles(&self, sent: Sent) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(first) = self.wrong.first() {
            let count = self.wrong.len();
            found.push(format!(
                "{count} frames on the wire have wrong checksums, number {first} first"
            ));
        }
        // A tenth of the frames of the shorter steps; a hundred megabytes take 69,000 frames.
        let full = if sent.hundred_megabytes { 68_000 } else { 1000 };
        let expected = [
            ("of TCP and of 1500 bytes", self.full, full),
            ("of 1500 bytes from iperf3", self.streamed, 8000),
            ("with the tag of a VLAN", self.tagged, 100),
            ("of more than 1500 bytes", self.jumbo, 1000),
        ];
        for (what, count, least) in expected.iter().filter(|_| sent.all) {
            if count < least {
                found.push(format!("the wire carried {count} frames {what}, fewer than {least}"));
            }
        }
        found
    }
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, full, streamed, jumbo, tagged, wrong } = self;
        write!(
            f,
            "the wire carried {frames} frames: {full} of TCP and of 1500 bytes ({streamed} from iperf3), \
             {jumbo} longer ones, {tagged} of a VLAN, {} with wrong checksums",
            wrong.len()
        )
    }
}

/// The steps that a machine has run, as far as the capture is concerned.
#[derive(Clone, Copy, Default)]
pub(super) struct Sent {
    /// Whether it has run all the steps that every machine runs.
    pub(super) all: bool,
    /// Whether it has run the step that moves a hundred megabytes.
    pub(super) hundred_megabytes: bool,
}

/// Problems of the capture in a file.
pub(super) fn troubles(path: &Path, sent: Sent) -> Result<Vec<String>, Failure> {
    let capture = std::fs::read(path).map_err(in_file(path))?;
    let carried = Carried::of(&capture);
    if carried.frames > 0 {
        eprintln!("vm: {carried}");
    }
    Ok(carried.troubles(sent))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ping on the wire, as tcpdump prints it.
    const PING: &str = "ffffffffffff 020000000001 0800 \
                        45000020 00000000 4001 66db 0a000001 0a000002 0800 f3f6 0001 0002 01020304";

    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    /// A frame with a TCP packet over IPv4 of `length` bytes and right checksums.
    fn tcp4(length: usize, tag: Option<u16>) -> Vec<u8> {
        let mut packet = vec![0x5a; length];
        packet[..20].copy_from_slice(&bytes("45000000 00000000 4006 0000 0a000001 0a000002"));
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        let header = !sum(&[&packet[..20]]);
        packet[10..12].copy_from_slice(&header.to_be_bytes());
        packet[36..38].fill(0);
        let pseudo = (length as u32 - 20).to_be_bytes();
        let check = !sum(&[&packet[12..20], &pseudo, &[0, TCP], &packet[20..]]);
        packet[36..38].copy_from_slice(&check.to_be_bytes());
        let mut frame = bytes("020000000002 020000000001");
        if let Some(tag) = tag {
            frame.extend([0x81, 0]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend([8, 0]);
        frame.extend(packet);
        frame
    }

    fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut file = vec![0; FILE_HEAD];
        for frame in frames {
            file.extend([0; LENGTH]);
            file.extend((frame.len() as u32).to_le_bytes());
            file.extend([0; 4]);
            file.extend(frame);
        }
        file
    }

    #[test]
    fn frames_are_counted_by_kind() {
        let mut streamed = tcp4(1500, None);
        streamed[36..38].copy_from_slice(&IPERF3.to_be_bytes());
        // Adjusts the checksum for the new port.
        let before = [!streamed[50], !streamed[51], !0x5a, !0x5a];
        let check = !sum(&[&before, &IPERF3.to_be_bytes()]);
        streamed[50..52].copy_from_slice(&check.to_be_bytes());
        let frames = [
            bytes(PING),
            streamed,
            tcp4(1500, None),
            tcp4(1500, Some(0x6005)),
            tcp4(1400, Some(6)),
            tcp4(9000, None),
            vec![0xff; 60],
        ];
        let carried = Carried::of(&capture(&frames));
        let expected =
            Carried { frames: 7, full: 3, streamed: 1, jumbo: 1, tagged: 1, wrong: Vec::new() };
        assert_eq!(carried, expected);
    }

    #[test]
    fn a_wrong_sum_of_any_header_is_found() {
        for (frame, at) in [(bytes(PING), 20), (bytes(PING), 41), (tcp4(200, None), 100)] {
            let mut bad = frame.clone();
            bad[at] ^= 1;
            let carried = Carried::of(&capture(&[frame, bad]));
            assert_eq!(carried.wrong, [2], "byte {at}");
            assert_eq!(carried.troubles(Sent::default()).len(), 1);
        }
        // The suite sends wrong checksums on purpose; its frames do not count.
        let mut made = tcp4(200, None);
        made[100] ^= 1;
        made[6..12].copy_from_slice(&OF_THE_SUITE);
        assert_eq!(Carried::of(&capture(&[made])).wrong, [0; 0]);
        // Linux leaves the checksum to the device and stores the sum of the pseudo header in its
        // place.
        let mut frame = tcp4(200, None);
        frame[50..52].copy_from_slice(&[0x12, 0x34]);
        assert_eq!(Carried::of(&capture(&[frame])).wrong, [1]);
    }

    #[test]
    fn padding_and_fragments_are_no_trouble() {
        let mut padded = tcp4(40, None);
        padded.resize(60, 0xee);
        let mut fragment = bytes(PING);
        // A fragment; the rest of the datagram is in another packet.
        fragment[20] = 0x20;
        let header = bytes("46db");
        fragment[24..26].copy_from_slice(&header);
        fragment[41] ^= 1;
        assert_eq!(Carried::of(&capture(&[padded, fragment])).wrong, [0; 0]);
    }

    #[test]
    fn unsent_packets_are_reported() {
        let carried = Carried::of(&capture(&[tcp4(1500, None)]));
        let sent = Sent { all: true, hundred_megabytes: false };
        assert_eq!(carried.troubles(Sent::default()), [""; 0]);
        let found = carried.troubles(sent);
        assert_eq!(found.len(), 4, "{found:?}");
        let all = Carried {
            frames: 9000,
            full: 1000,
            streamed: 8000,
            jumbo: 1000,
            tagged: 100,
            wrong: Vec::new(),
        };
        assert_eq!(all.troubles(sent), [""; 0]);
        assert_eq!(all.troubles(Sent { hundred_megabytes: true, ..sent }).len(), 1);
    }

    #[test]
    fn a_capture_that_ends_in_a_frame_has_those_before_it() {
        let mut file = capture(&[tcp4(100, None), tcp4(100, None)]);
        file.truncate(file.len() - 1);
        assert_eq!(Carried::of(&file).frames, 1);
        assert_eq!(Carried::of(&[]).frames, 0);
    }
}
