use super::*;
use zerocopy::IntoBytes;

fn route() -> GlobalRoute {
    GlobalRoute {
        dgid: "fe80::aabb".parse().unwrap(),
        flow_label: 0xabcde,
        sgid_index: 3,
        hop_limit: 64,
        traffic_class: 0x20,
    }
}

#[test]
fn an_infiniband_path_names_the_lid() {
    let path =
        AhAttr { sl: 5, src_path_bits: 0x11, static_rate: 3, ..AhAttr::infiniband(1, 0x1234) };
    let vector = infiniband_vector(&path);
    let bytes = vector.as_bytes();
    assert_eq!(bytes[12..16], [0x85, 0x11, 0x12, 0x34], "rate and SL, path bits, LID");
    assert_eq!(bytes[16..], [0; 32], "no MAC, no route");
    assert_eq!(bytes[..12], [0; 12], "queue pair and Q_Key are the request's");
}

#[test]
fn an_infiniband_path_with_a_route_says_that_there_is_a_grh() {
    let vector = infiniband_vector(&AhAttr::infiniband(1, 7).with_grh(route()));
    let bytes = vector.as_bytes();
    assert_eq!(bytes[26..28], [0x20, 64], "traffic class, hop limit");
    assert_eq!(bytes[28..32], [0x40, 0x3a, 0xbc, 0xde], "GRH, index 3, flow label");
    assert_eq!(bytes[32..48], route().dgid.to_bytes());
}

#[test]
fn a_roce_path_names_the_mac_and_the_udp_port() {
    let path = AhAttr { sl: 5, ..AhAttr::roce(1, route().dgid, 3).with_grh(route()) };
    let vector = roce_vector(&path, &route(), [2, 0, 0, 0, 0, 9], 0xc123);
    let bytes = vector.as_bytes();
    assert_eq!(bytes[12..16], [0x0a, 0, 0xc1, 0x23], "the priority is shifted by one");
    assert_eq!(bytes[20..26], [2, 0, 0, 0, 0, 9]);
    assert_eq!(bytes[28..32], [0x00, 0x3a, 0xbc, 0xde], "the GRH bit is reserved on Ethernet");
}

#[test]
fn udp_ports_follow_the_flow_and_stay_in_their_range() {
    assert!((0..100).all(|_| random_udp_source_port() >= 0xc000));
    let ports: std::collections::HashSet<u16> =
        (0..100).map(|_| random_udp_source_port()).collect();
    assert!(ports.len() > 1, "100 random ports are not all the same");
}

#[test]
fn speeds_are_the_devices_numbers() {
    let rate_of = |static_rate| rate(&AhAttr { static_rate, ..AhAttr::infiniband(1, 1) });
    assert_eq!([0, 2, 3, 5, 10, 18, 200].map(rate_of), [0, 7, 8, 10, 15, 0, 0]);
}

/// A GRH or an IPv6 header, as in a receive buffer.
fn ipv6(next_header: u8, destination: &str) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..4].copy_from_slice(&(6_u32 << 28 | 0x20 << 20 | 0xabcde).to_be_bytes());
    bytes[6] = next_header;
    bytes[7] = 63;
    bytes[8..24].copy_from_slice(&"fe80::1".parse::<Gid>().unwrap().to_bytes());
    bytes[24..].copy_from_slice(&destination.parse::<Gid>().unwrap().to_bytes());
    bytes
}

/// An IPv4 header after 20 bytes of `junk`.
fn ipv4(junk: u8) -> [u8; 40] {
    let mut bytes = [junk; 40];
    bytes[20..].copy_from_slice(&[
        0x45, 0x08, 0, 60, 0, 0, 0x40, 0, 63, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    let sum: u32 =
        bytes[20..].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[30..32].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

#[test]
fn a_received_header_is_read_by_its_kind() {
    let v2 = Header::parse(&ipv6(17, "fe80::2"), true).expect("RoCE v2 over IPv6");
    assert_eq!(v2.source, "fe80::1".parse().unwrap());
    assert_eq!(v2.destination, "fe80::2".parse().unwrap());
    assert_eq!((v2.flow_label, v2.hop_limit, v2.traffic_class), (0xabcde, 63, 0x20));
    assert_eq!(v2.gid_type, GidType::RoceV2);

    let v1 = Header::parse(&ipv6(0x1b, "fe80::2"), true).expect("RoCE v1");
    assert_eq!(v1.gid_type, GidType::RoceV1);
    let grh = Header::parse(&ipv6(0x1b, "fe80::2"), false).expect("a GRH");
    assert_eq!(grh.gid_type, GidType::InfiniBand);

    let v4 = Header::parse(&ipv4(0), true).expect("RoCE v2 over IPv4");
    assert_eq!(v4.source.ipv4(), Some(Ipv4Addr::new(10, 0, 0, 1)));
    assert_eq!(v4.destination.ipv4(), Some(Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!((v4.hop_limit, v4.traffic_class, v4.gid_type), (63, 8, GidType::RoceV2));
}

#[test]
fn an_ipv4_header_is_believed_behind_junk_if_its_checksum_is_right() {
    assert!(Header::parse(&ipv4(0x66), true).unwrap().source.is_ipv4_mapped());
    let mut wrong = ipv4(0x66);
    wrong[30] ^= 1;
    let read = Header::parse(&wrong, true);
    assert!(read.is_none_or(|header| !header.source.is_ipv4_mapped()));
}

#[test]
fn malformed_header_is_refused() {
    assert_eq!(Header::parse(&[0; 40], true), None);
    assert_eq!(Header::parse(&[0; 40], false), None);
    assert_eq!(Header::parse(&ipv6(6, "fe80::2"), true), None, "TCP is not RoCE");
}
