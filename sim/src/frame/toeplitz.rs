//! The hash that spreads packets over queues.

/// Bytes of a key.
pub(crate) const KEY: usize = 40;

/// The Toeplitz hash: the exclusive or, over all bits that are set, of the 32 bits of the key from
/// that bit on.
pub(crate) fn hash(key: &[u8; KEY], input: &[u8]) -> u32 {
    let bit = |at: usize| u32::from(key[at / 8 % KEY] >> (7 - at % 8) & 1);
    let mut window = u32::from_be_bytes([key[0], key[1], key[2], key[3]]);
    let mut hash = 0;
    for (at, byte) in input.iter().enumerate() {
        for n in 0..8 {
            if byte >> (7 - n) & 1 != 0 {
                hash ^= window;
            }
            window = window << 1 | bit(at * 8 + n + 32);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key and the hashes that Microsoft publishes ("Verifying the RSS hash calculation"), over
    /// addresses alone and over addresses and ports.
    const PUBLISHED: [u8; KEY] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn the_published_hashes_of_ipv4() {
        let vectors = [
            ([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, 0x323e_8fc2, 0x51cc_c178),
            ([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, 0xd718_262a, 0xc626_b0ea),
            ([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, 0xd2d0_a5de, 0x5c2b_394a),
            ([38, 27, 205, 30], 48228, [209, 142, 163, 6], 2217, 0x8298_9176, 0xafc7_327f),
            ([153, 39, 163, 191], 44251, [202, 188, 127, 2], 1303, 0x5d18_09c5, 0x10e8_28a2),
        ];
        for (source, sport, destination, dport, addresses, ports) in vectors {
            let mut input = [source, destination].concat();
            assert_eq!(hash(&PUBLISHED, &input), addresses);
            input.extend([sport, dport].map(u16::to_be_bytes).as_flattened());
            assert_eq!(hash(&PUBLISHED, &input), ports);
        }
    }

    #[test]
    fn the_published_hashes_of_ipv6() {
        let vectors = [
            ("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, 0x2cc1_8cd5, 0x4020_7d3d),
            ("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, 0x0f0c_461c, 0xdde5_1bbf),
            (
                "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                44251,
                "fe80::200:f8ff:fe21:67cf",
                38024,
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        for (source, sport, destination, dport, addresses, ports) in vectors {
            let address = |text: &str| text.parse::<std::net::Ipv6Addr>().expect("IPv6").octets();
            let mut input = [address(source), address(destination)].concat();
            assert_eq!(hash(&PUBLISHED, &input), addresses, "{source}");
            input.extend([sport, dport].map(|port: u16| port.to_be_bytes()).as_flattened());
            assert_eq!(hash(&PUBLISHED, &input), ports, "{source}");
        }
    }
}
