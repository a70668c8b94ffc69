//! The hash of a packet, which chooses its queue.

use std::ops::Range;

use mlx5_prm::cmd::steering::hash_fields;
use mlx5_prm::ethernet::hash_type;

use crate::engine::state::ethernet::{HashConfig, HashFields};
use crate::frame::headers::{Headers, Layers, Protocol, Version};
use crate::frame::toeplitz;

/// The hash of a packet, and the fields that it covers, as completions report them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Hashed {
    pub(crate) hash: u32,
    pub(crate) kind: u8,
}

/// Computes the hash of a packet. A packet that lacks the first field of the hash has none.
pub(crate) fn of(config: &HashConfig, frame: &[u8], headers: &Headers) -> Hashed {
    if !config.toeplitz {
        return Hashed::default();
    }
    let (fields, layers) = match &headers.inner {
        Some(inner) if config.inner.selected != 0 => (config.inner, inner),
        _ => (config.outer, &headers.outer),
    };
    hashed(config, fields, frame, layers).unwrap_or_default()
}

fn hashed(
    config: &HashConfig,
    fields: HashFields,
    frame: &[u8],
    layers: &Layers,
) -> Option<Hashed> {
    let network = layers.network.as_ref()?;
    if (network.version == Version::V6) != fields.ipv6 {
        return None;
    }
    let has = |field: u32| fields.selected & field != 0;
    let mut input = Vec::new();
    let mut kind = 0;
    let [source, destination] = network.addresses();
    let pair = [
        has(hash_fields::SRC_IP).then_some(source),
        has(hash_fields::DST_IP).then_some(destination),
    ];
    if add(&mut input, frame, pair, config.symmetric) {
        let version = if fields.ipv6 { hash_type::IPV6 } else { hash_type::IPV4 };
        kind |= version << hash_type::IP_SHIFT;
    }
    let wanted = if fields.udp { Protocol::Udp } else { Protocol::Tcp };
    match layers.transport {
        Some(transport) if transport.protocol == wanted => {
            let start = transport.start;
            let pair = [
                has(hash_fields::L4_SPORT).then_some(start..start + 2),
                has(hash_fields::L4_DPORT).then_some(start + 2..start + 4),
            ];
            if add(&mut input, frame, pair, config.symmetric) {
                let protocol = if fields.udp { hash_type::UDP } else { hash_type::TCP };
                kind |= protocol << hash_type::L4_SHIFT;
            }
        }
        Some(transport) if transport.protocol == Protocol::Esp && has(hash_fields::IPSEC_SPI) => {
            input.extend(&frame[transport.start..transport.start + 4]);
            kind |= hash_type::SPI << hash_type::L4_SHIFT;
        }
        _ => {}
    }
    (kind != 0).then(|| Hashed { hash: toeplitz::hash(&config.key, &input), kind })
}

/// Adds a source and a destination to the input of the hash and returns whether the hash covers any
/// of them. A symmetric hash covers values that are equal in both directions: their disjunction and
/// their difference.
fn add(
    input: &mut Vec<u8>,
    frame: &[u8],
    pair: [Option<Range<usize>>; 2],
    symmetric: bool,
) -> bool {
    match pair {
        [Some(source), Some(destination)] if symmetric => {
            let both = || frame[source.clone()].iter().zip(&frame[destination.clone()]);
            input.extend(both().map(|(one, other)| one | other));
            input.extend(both().map(|(one, other)| one ^ other));
            true
        }
        [None, None] => false,
        pair => {
            pair.into_iter().flatten().for_each(|range| input.extend(&frame[range]));
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::samples::{self, tcp4, udp4, udp6};

    const ALL: u32 =
        hash_fields::SRC_IP | hash_fields::DST_IP | hash_fields::L4_SPORT | hash_fields::L4_DPORT;

    fn config(outer: HashFields, symmetric: bool) -> HashConfig {
        let key = std::array::from_fn(|n| (n * 37 + 11) as u8);
        HashConfig { toeplitz: true, symmetric, key, outer, inner: HashFields::default() }
    }

    fn hash_of(config: &HashConfig, frame: &[u8]) -> Hashed {
        of(config, frame, &Headers::of(frame).expect("a frame"))
    }

    #[test]
    fn addresses_then_ports_are_hashed_in_the_order_of_the_wire() {
        let frame = udp4(b"data");
        let fields = HashFields { ipv6: false, udp: true, selected: ALL };
        let config = config(fields, false);
        let expected = toeplitz::hash(&config.key, &frame[26..38]);
        let kind = hash_type::IPV4 << hash_type::IP_SHIFT | hash_type::UDP << hash_type::L4_SHIFT;
        assert_eq!(hash_of(&config, &frame), Hashed { hash: expected, kind });
    }

    #[test]
    fn a_packet_of_another_transport_is_hashed_by_its_addresses() {
        let fields = HashFields { ipv6: false, udp: true, selected: ALL };
        let config = config(fields, false);
        let frame = tcp4(b"data");
        let expected = toeplitz::hash(&config.key, &frame[26..34]);
        let kind = hash_type::IPV4 << hash_type::IP_SHIFT;
        assert_eq!(hash_of(&config, &frame), Hashed { hash: expected, kind });
        assert_eq!(hash_of(&config, &udp6(b"data")), Hashed::default(), "another version of IP");
        assert_eq!(hash_of(&config, &samples::plain(60)), Hashed::default());
    }

    #[test]
    fn a_symmetric_hash_is_the_same_in_both_directions() {
        let there = udp4(b"data");
        let mut back = there.clone();
        back[26..30].copy_from_slice(&there[30..34]);
        back[30..34].copy_from_slice(&there[26..30]);
        back[34..36].copy_from_slice(&there[36..38]);
        back[36..38].copy_from_slice(&there[34..36]);
        let fields = HashFields { ipv6: false, udp: true, selected: ALL };
        let symmetric = config(fields, true);
        assert_eq!(hash_of(&symmetric, &there), hash_of(&symmetric, &back));
        let plain = config(fields, false);
        assert_ne!(hash_of(&plain, &there), hash_of(&plain, &back));
    }
}
