//! Frames for tests, written by hand.

use crate::frame::checksum;
use crate::frame::headers::{ETHERNET, Headers};

pub(crate) const SOURCE: [u8; 6] = [0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8];
pub(crate) const GROUP: [u8; 6] = [0x01, 0x50, 0x56, 0x19, 0x20, 0xa7];

/// Sets the correct checksums in every header.
pub(crate) fn summed(mut frame: Vec<u8>) -> Vec<u8> {
    let headers = Headers::of(&frame).expect("a frame");
    checksum::fill_network(&mut frame, &headers.outer);
    checksum::fill_transport(&mut frame, &headers.outer);
    frame
}

pub(crate) fn ethernet(to: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &SOURCE, &kind.to_be_bytes(), payload].concat()
}

pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len() as u16).to_be_bytes();
    let mut header = vec![0x45, 0, length[0], length[1], 0x12, 0x34, 0x40, 0, 64, protocol, 0, 0];
    header.extend([192, 0, 2, 1, 198, 51, 100, 7]);
    header.extend(payload);
    header
}

pub(crate) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let mut header = vec![0x60, 0, 0, 0, length[0], length[1], next, 64];
    header.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    header.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    header.extend(payload);
    header
}

pub(crate) fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = 8 + payload.len() as u16;
    let words = [source, destination, length, 0].map(u16::to_be_bytes);
    [words.as_flattened(), payload].concat()
}

pub(crate) fn tcp(flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x04, 0xd2, 0x00, 0x50, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1, 0x50, flags];
    header.extend([0x20, 0, 0, 0, 0, 0]);
    header.extend(payload);
    header
}

pub(crate) fn udp4(payload: &[u8]) -> Vec<u8> {
    summed(ethernet(GROUP, 0x0800, &ipv4(17, &udp(1111, 2222, payload))))
}

pub(crate) fn udp6(payload: &[u8]) -> Vec<u8> {
    summed(ethernet(GROUP, 0x86dd, &ipv6(17, &udp(1111, 2222, payload))))
}

/// A segment with the flags ACK and PSH.
pub(crate) fn tcp4(payload: &[u8]) -> Vec<u8> {
    summed(ethernet(GROUP, 0x0800, &ipv4(6, &tcp(0x18, payload))))
}

pub(crate) fn tcp6(payload: &[u8]) -> Vec<u8> {
    summed(ethernet(GROUP, 0x86dd, &ipv6(6, &tcp(0x18, payload))))
}

pub(crate) fn tagged(frame: &[u8], kind: u16, control: u16) -> Vec<u8> {
    let tag = [kind, control].map(u16::to_be_bytes);
    [&frame[..12], tag.as_flattened(), &frame[12..]].concat()
}

pub(crate) fn vxlan(inner: &[u8], vni: u32) -> Vec<u8> {
    let header = [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes(), inner].concat();
    summed(ethernet(GROUP, 0x0800, &ipv4(17, &udp(5555, 4789, &header))))
}

pub(crate) fn gre(inner: &[u8], protocol: u16, key: Option<u32>) -> Vec<u8> {
    let flags: u16 = if key.is_some() { 0x2000 } else { 0 };
    let mut header = [flags, protocol].map(u16::to_be_bytes).as_flattened().to_vec();
    header.extend(key.into_iter().flat_map(u32::to_be_bytes));
    header.extend(inner);
    summed(ethernet(GROUP, 0x0800, &ipv4(47, &header)))
}

/// A stack of MPLS labels and the payload after it.
pub(crate) fn labels(stack: &[u32], payload: &[u8]) -> Vec<u8> {
    let stack: Vec<u8> = stack.iter().flat_map(|label| label.to_be_bytes()).collect();
    [&stack, payload].concat()
}

pub(crate) fn mpls_udp(stack: &[u8]) -> Vec<u8> {
    summed(ethernet(GROUP, 0x0800, &ipv4(17, &udp(5555, 6635, stack))))
}

/// A frame of `bytes` bytes with an ethertype of no known protocol.
pub(crate) fn plain(bytes: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..bytes - ETHERNET).map(|n| (n * 7) as u8).collect();
    ethernet(GROUP, 0x88b5, &payload)
}
