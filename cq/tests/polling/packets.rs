//! The fields of a received Ethernet packet, each at its offset in the PRM.

use crate::bed::Entry;
use crate::entries::{INDEX, SEND, check_received};
use mlx5_cq::{HashedHeaders, HashedTransport, NetworkHeader, TransportHeader};

/// A receive of a packet; every byte without a meaning here is 0xd7.
fn packet() -> Entry {
    Entry::new(SEND, INDEX, 0xfffe)
}

#[test]
fn types_of_headers_are_distinguished() {
    let network = [None, Some(NetworkHeader::Ipv6), Some(NetworkHeader::Ipv4), None];
    let transport = [
        None,
        Some(TransportHeader::Tcp),
        Some(TransportHeader::Udp),
        Some(TransportHeader::TcpEmptyAck),
        Some(TransportHeader::TcpAck),
        None,
        None,
        None,
    ];
    for types in 0..=u8::MAX {
        check_received(packet().put(29, &[types]), |completion| {
            let headers = completion.packet_headers().unwrap();
            assert_eq!(headers.network(), network[usize::from(types >> 2 & 3)], "{types:#x}");
            assert_eq!(headers.transport(), transport[usize::from(types >> 4 & 7)], "{types:#x}");
            assert_eq!(headers.vlan().is_some(), types & 1 != 0, "{types:#x}");
        });
    }
}

#[test]
fn each_checksum_has_a_verdict_of_its_own() {
    for checks in 0..8_u8 {
        for (types, ipv4) in [(1 << 2, false), (2 << 2, true), (0, false)] {
            check_received(packet().put(28, &[checks, types]), |completion| {
                let headers = completion.packet_headers().unwrap();
                assert_eq!(headers.network_ok(), checks & 2 != 0);
                assert_eq!(headers.transport_ok(), checks & 4 != 0);
                // `IBV_WC_IP_CSUM_OK` is for IPv4 only, and needs both.
                assert_eq!(completion.checksum_ok(), Some(ipv4 && checks & 6 == 6));
            });
        }
    }
}

#[test]
fn stripped_tag_is_reported_once_it_was_stripped() {
    let entry = packet().put(30, &[0x61, 0x23]);
    check_received(entry.put(29, &[1]), |completion| {
        assert_eq!(completion.vlan(), Some(0x6123));
        assert_eq!(completion.packet_headers().unwrap().vlan(), Some(0x6123));
    });
    check_received(entry.put(29, &[0xfe]), |completion| {
        assert_eq!(completion.vlan(), None);
        assert_eq!(completion.packet_headers().unwrap().vlan(), None);
    });
}

#[test]
fn a_hash_says_what_it_covers() {
    let network = [None, Some(NetworkHeader::Ipv4), Some(NetworkHeader::Ipv6), None];
    let transport =
        [None, Some(HashedTransport::Tcp), Some(HashedTransport::Udp), Some(HashedTransport::Spi)];
    for bits in 0..=u8::MAX {
        let entry = packet().put(12, &[0x51, 0xcc, 0xc1, 0x78, bits]);
        check_received(entry, |completion| {
            let covered = HashedHeaders {
                network: network[usize::from(bits >> 2 & 3)],
                transport: transport[usize::from(bits >> 6)],
            };
            assert_eq!(completion.hashed_headers(), Some(covered));
            assert_eq!(completion.rss_hash(), Some(0x51cc_c178));
        });
    }
}

#[test]
fn tunnel_congestion_flow_tag_and_checksum_are_at_their_places() {
    for on in [false, true] {
        let entry = packet()
            .put(0, &[if on { 0x01 } else { 0xfe }])
            .put(17, &[if on { 0x80 } else { 0x7f }])
            .put(20, &[0xbe, 0xef])
            .put(56, &[0x99, 0x12, 0x34, 0x56]);
        check_received(entry, |completion| {
            assert_eq!(completion.tunneled(), Some(on));
            assert_eq!(completion.congestion_experienced(), Some(on));
            assert_eq!(completion.checksum(), Some(0xbeef));
            assert_eq!(completion.flow_tag(), Some(0x12_3456));
        });
    }
}
