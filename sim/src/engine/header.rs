//! The header that precedes a datagram in its receive buffer.

use mlx5_prm::wqe::Opcode;

use crate::engine::route::Origin;
use crate::engine::state::port::GidType;
use crate::engine::wqe::Request;

/// Next header: an InfiniBand transport header follows.
const NEXT_IBA: u8 = 0x1b;
/// Next header, or IP protocol: UDP.
const NEXT_UDP: u8 = 17;
/// Bytes of the headers and checks around a datagram's payload: BTH, DETH, ICRC.
const TRANSPORT: usize = 12 + 8 + 4;
/// Bytes of a UDP header.
const UDP: usize = 8;
/// Bytes of an IPv4 header.
const IPV4: usize = 20;

/// The 40 bytes in front of a datagram that has a global header: a GRH or IPv6 header, or twenty
/// undefined bytes and an IPv4 header.
pub(crate) fn global(origin: &Origin, request: &Request, payload: usize) -> [u8; 40] {
    let mut header = [0; 40];
    let (path, Some(source)) = (&origin.path, origin.gid) else { return header };
    let immediate = if request.opcode == Opcode::SendImm { 4 } else { 0 };
    let mut length = TRANSPORT + immediate + payload.next_multiple_of(4);
    if source.kind == GidType::RoceV2 {
        length += UDP;
    }
    if source.is_ipv4() {
        let ip = &mut header[40 - IPV4..];
        ip[0] = 0x45;
        ip[1] = path.traffic_class;
        ip[2..4].copy_from_slice(&((IPV4 + length) as u16).to_be_bytes());
        ip[6] = 0x40;
        ip[8] = path.hop_limit;
        ip[9] = NEXT_UDP;
        ip[12..16].copy_from_slice(&source.gid[12..]);
        ip[16..].copy_from_slice(&path.dgid[12..]);
        let sum = checksum(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        return header;
    }
    let word = 6 << 28 | u32::from(path.traffic_class) << 20 | path.flow_label;
    header[..4].copy_from_slice(&word.to_be_bytes());
    header[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    header[6] = if source.kind == GidType::RoceV2 { NEXT_UDP } else { NEXT_IBA };
    header[7] = path.hop_limit;
    header[8..24].copy_from_slice(&source.gid);
    header[24..].copy_from_slice(&path.dgid);
    header
}

/// The Internet checksum of a header whose own check field is zero.
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks::<2>().0.iter();
    let mut sum: u32 = words.map(|word| u32::from(u16::from_be_bytes(*word))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_internets() {
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
    }
}
