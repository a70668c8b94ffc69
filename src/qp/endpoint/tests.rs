mod connect;

use super::wire::crc32;
use super::*;

const IPV4: Gid = Gid::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 2]);
const LINK_LOCAL: Gid =
    Gid::from_bytes([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x11, 0x22, 0xff, 0xfe, 3, 4, 5]);
const GLOBAL: Gid = Gid::from_bytes([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);

fn roce() -> Endpoint {
    Endpoint {
        transport: QpType::Rc,
        qp_num: QpNumber::new(0x1234).unwrap(),
        psn: Psn::new(0xabcdef).unwrap(),
        qkey: None,
        lid: 0,
        gid: IPV4,
        gid_type: GidType::RoceV2,
        gid_index: 3,
        mtu: Mtu::Mtu1024,
        rd_atomic: 16,
    }
}

fn infiniband() -> Endpoint {
    Endpoint {
        transport: QpType::Ud,
        qkey: Some(0x1111_1111),
        lid: 0x17,
        gid: LINK_LOCAL,
        gid_type: GidType::InfiniBand,
        gid_index: 0,
        mtu: Mtu::Mtu4096,
        ..roce()
    }
}

/// Endpoints that together have every value of every enumeration and the ends of every range.
fn samples() -> Vec<Endpoint> {
    let mut samples = vec![roce(), infiniband()];
    samples.push(Endpoint { gid: Gid::from_bytes([0; 16]), ..infiniband() });
    samples.push(Endpoint { lid: 0, ..infiniband() });
    samples.push(Endpoint { lid: 0xbfff, qkey: Some(0), ..infiniband() });
    samples.push(Endpoint { qkey: Some(u32::MAX), ..infiniband() });
    samples.push(Endpoint { transport: QpType::Uc, gid_type: GidType::RoceV1, ..roce() });
    samples.push(Endpoint { qp_num: QpNumber::MAX, psn: Psn::MAX, gid_index: 255, ..roce() });
    samples.push(Endpoint { qp_num: QpNumber::default(), psn: Psn::default(), ..roce() });
    samples.push(Endpoint { rd_atomic: 0, gid: GLOBAL, ..roce() });
    samples.push(Endpoint { rd_atomic: 255, ..roce() });
    samples.extend((1..=5).map(|raw| Endpoint { mtu: Mtu::from_raw(raw).unwrap(), ..roce() }));
    samples
}

/// The bytes with one changed and the checksum corrected.
fn forged(endpoint: &Endpoint, at: usize, value: u8) -> [u8; Endpoint::BYTES] {
    let mut bytes = endpoint.to_bytes();
    bytes[at] = value;
    let sum = crc32(&bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn the_checksum_is_the_ethernet_one() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
}

#[test]
fn bytes_come_back_as_the_same_endpoint() {
    for endpoint in samples() {
        assert_eq!(Endpoint::from_bytes(&endpoint.to_bytes()), Ok(endpoint));
    }
}

#[test]
fn text_comes_back_as_the_same_endpoint() {
    for endpoint in samples() {
        let text = endpoint.to_string();
        assert_eq!(text.parse(), Ok(endpoint), "{text}");
        assert!(!text.contains('\n'));
    }
}

#[test]
fn the_binary_form_stays_as_it_is() {
    let expected = [
        &b"mlx5"[..],
        &[1, 2, 2, 3, 0, 0, 0x12, 0x34, 0, 0xab, 0xcd, 0xef, 0, 0, 0, 0, 0, 0, 3, 16],
        &IPV4.to_bytes(),
        &[0; 20],
    ]
    .concat();
    assert_eq!(roce().to_bytes()[..60], expected);
    assert_eq!(roce().to_bytes()[60..], crc32(&expected).to_be_bytes());
}

#[test]
fn the_text_form_stays_as_it_is() {
    assert_eq!(
        roce().to_string(),
        "mlx5-endpoint/1 transport=rc qpn=0x001234 psn=0xabcdef lid=0x0000 gid=::ffff:10.0.1.2 \
         gid_type=roce-v2 gid_index=3 mtu=1024 rd_atomic=16"
    );
    assert_eq!(
        infiniband().to_string(),
        "mlx5-endpoint/1 transport=ud qpn=0x001234 psn=0xabcdef qkey=0x11111111 lid=0x0017 \
         gid=fe80::211:22ff:fe03:405 gid_type=ib gid_index=0 mtu=4096 rd_atomic=16"
    );
}

#[test]
fn words_come_in_any_order_with_any_space_and_decimal_numbers() {
    let text = "  mlx5-endpoint/1\tmtu=1024 rd_atomic=0x10 gid_index=3 gid=::ffff:a00:102 lid=0 \
                gid_type=roce-v2 psn=11259375 qpn=4660\n transport=rc\r\n";
    assert_eq!(text.parse(), Ok(roce()));
}

#[test]
fn bytes_of_any_other_length_are_refused() {
    let mut bytes = roce().to_bytes().to_vec();
    bytes.push(0);
    for length in (0..Endpoint::BYTES).chain([65]) {
        assert_eq!(
            Endpoint::from_bytes(&bytes[..length]),
            Err(EndpointError::Length { bytes: length })
        );
    }
}

#[test]
fn every_damaged_bit_is_noticed() {
    for endpoint in [roce(), infiniband()] {
        for bit in 0..8 * Endpoint::BYTES {
            let mut bytes = endpoint.to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let expected = match bit / 8 {
                0..4 => EndpointError::NotAnEndpoint,
                4 => EndpointError::Version { version: bytes[4].into() },
                _ => EndpointError::Checksum,
            };
            assert_eq!(Endpoint::from_bytes(&bytes), Err(expected), "bit {bit}");
        }
    }
}

#[test]
fn impossible_bytes_are_refused_though_their_checksum_is_right() {
    let value = |field| EndpointError::Value { field };
    let contradiction = |field| EndpointError::Contradiction { field };
    let cases = [
        (roce(), 5, 0, value("transport")),
        (roce(), 5, QpType::RawPacket.raw(), value("transport")),
        (roce(), 5, QpType::Driver.raw(), value("transport")),
        (roce(), 6, 3, value("gid_type")),
        (roce(), 7, 0, value("mtu")),
        (roce(), 7, 6, value("mtu")),
        (roce(), 8, 1, value("qpn")),
        (roce(), 12, 1, value("psn")),
        (roce(), 19, 1, value("qkey")),
        (roce(), 21, 1, contradiction("lid")),
        (roce(), 40, 1, value("reserved")),
        (roce(), 59, 1, value("reserved")),
        (infiniband(), 20, 0xc0, contradiction("lid")),
        (infiniband(), 6, GidType::RoceV2.raw() as u8, contradiction("lid")),
    ];
    for (endpoint, at, byte, expected) in cases {
        let bytes = forged(&endpoint, at, byte);
        assert_eq!(Endpoint::from_bytes(&bytes), Err(expected), "byte {at} = {byte}");
    }
}

#[test]
fn an_address_of_zero_is_refused_where_it_is_the_only_one() {
    let expected = Err(EndpointError::Contradiction { field: "gid" });
    let nowhere = Gid::from_bytes([0; 16]);
    for endpoint in
        [Endpoint { gid: nowhere, ..roce() }, Endpoint { gid: nowhere, lid: 0, ..infiniband() }]
    {
        assert_eq!(Endpoint::from_bytes(&endpoint.to_bytes()), expected);
        assert_eq!(endpoint.to_string().parse::<Endpoint>(), expected);
    }
}

#[test]
fn text_that_is_something_else_is_refused() {
    for text in ["", "  ", "hello", "mlx5-endpoint", "mlx5-endpoint/", "mlx5-endpoint/+1", "mlx5"] {
        assert_eq!(text.parse::<Endpoint>(), Err(EndpointError::NotAnEndpoint), "{text:?}");
    }
    assert_eq!(
        "mlx5-endpoint/2 anything".parse::<Endpoint>(),
        Err(EndpointError::Version { version: 2 })
    );
}

#[test]
fn text_that_was_cut_off_is_refused() {
    for endpoint in samples() {
        let text = endpoint.to_string();
        // The last value is complete from its first digit on.
        let whole = text.rfind('=').unwrap() + 1;
        for end in 0..=whole {
            assert!(text[..end].parse::<Endpoint>().is_err(), "{:?}", &text[..end]);
        }
    }
}

#[test]
fn each_missing_word_is_named() {
    for endpoint in [roce(), infiniband()] {
        let text = endpoint.to_string();
        for word in text.split(' ').skip(1) {
            let key = word.split('=').next().unwrap();
            let without = text.replace(&format!(" {word}"), "");
            let error = without.parse::<Endpoint>().unwrap_err();
            match key {
                "qkey" => assert_eq!(error, EndpointError::Contradiction { field: "qkey" }),
                _ => assert!(
                    matches!(error, EndpointError::Missing { field } if field == key),
                    "{key}: {error}"
                ),
            }
        }
    }
}

#[test]
fn words_that_are_unknown_or_there_twice_are_refused() {
    let error = |more: &str| format!("{} {more}", roce()).parse::<Endpoint>().unwrap_err();
    let unknown = |word: &str| EndpointError::UnknownWord { word: word.to_owned() };
    assert_eq!(error("speed=9"), unknown("speed=9"));
    assert_eq!(error("mtu"), unknown("mtu"));
    assert_eq!(error("=1"), unknown("=1"));
    assert_eq!(error("mtu=1024"), EndpointError::Twice { field: "mtu" });
    assert_eq!(error("qkey=1"), EndpointError::Contradiction { field: "qkey" });
}

#[test]
fn each_impossible_value_is_named() {
    let text = infiniband().to_string();
    let cases = [
        ("transport", "transport=xrc"),
        ("transport", "transport="),
        ("qpn", "qpn=0x1000000"),
        ("psn", "psn=16777216"),
        ("psn", "psn=-1"),
        ("psn", "psn=+1"),
        ("psn", "psn=0x"),
        ("psn", "psn=0x+1"),
        ("psn", "psn=12ab"),
        ("qkey", "qkey=0x100000000"),
        ("lid", "lid=65536"),
        ("gid", "gid=fe80::1::2"),
        ("gid", "gid=10.0.0.1"),
        ("gid_type", "gid_type=roce"),
        ("gid_index", "gid_index=256"),
        ("mtu", "mtu=1500"),
        ("mtu", "mtu=3"),
        ("rd_atomic", "rd_atomic=256"),
    ];
    for (field, word) in cases {
        let old = text.split(' ').find(|old| old.starts_with(&format!("{field}="))).unwrap();
        let error = text.replace(old, word).parse::<Endpoint>();
        assert_eq!(error, Err(EndpointError::Value { field }), "{word}");
    }
}
