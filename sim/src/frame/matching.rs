//! The fields of a packet that entries of flow tables may match.

use mlx5_prm::cmd::flow::{MatchHeaders, MatchMisc, MatchMisc2, MatchMpls, MatchParameters};

use crate::frame::headers::{C_TAG, ETHERNET, Headers, Layers, Protocol, Tunnel, Version, number};

/// All fields of a packet that an entry may compare.
pub(crate) fn parameters(frame: &[u8], headers: &Headers, sender: Option<u32>) -> MatchParameters {
    let mut parameters = MatchParameters::default();
    fill_headers(parameters.outer_headers_mut(), frame, &headers.outer);
    if let Some(inner) = &headers.inner {
        fill_headers(parameters.inner_headers_mut(), frame, inner);
    }
    let misc = parameters.misc_parameters_mut();
    fill_misc(misc, frame, headers);
    misc.set_source_sqn(sender.unwrap_or(0));
    fill_labels(parameters.misc_parameters_2_mut(), headers);
    parameters
}

/// Whether a packet's fields, under a mask, equal those of an entry.
pub(crate) fn matches(packet: &MatchParameters, mask: &[u8], value: &[u8]) -> bool {
    let fields = packet.as_bytes().iter().zip(mask.iter().zip(value));
    fields.into_iter().all(|(packet, (mask, value))| (packet ^ value) & mask == 0)
}

fn high_and_low(mac: &[u8]) -> (u32, u32) {
    (
        u32::from_be_bytes([mac[0], mac[1], mac[2], mac[3]]),
        u32::from(u16::from_be_bytes([mac[4], mac[5]])),
    )
}

fn fill_headers(fields: &mut MatchHeaders, frame: &[u8], layers: &Layers) {
    if let Some(start) = layers.ethernet.filter(|start| frame.len() >= start + ETHERNET) {
        let (high, low) = high_and_low(&frame[start..]);
        fields.set_dmac_47_16(high).set_dmac_15_0(low);
        let (high, low) = high_and_low(&frame[start + 6..]);
        fields.set_smac_47_16(high).set_smac_15_0(low).set_ethertype(layers.kind.into());
    }
    if let Some(tag) = layers.tags.first() {
        let control = u32::from(tag.control);
        fields
            .set_first_prio(control >> 13)
            .set_first_cfi(control >> 12 & 1 != 0)
            .set_first_vid(control & 0xfff)
            .set_cvlan_tag(tag.kind == C_TAG)
            .set_svlan_tag(tag.kind != C_TAG);
    }
    let Some(network) = &layers.network else { return };
    let [source, destination] = network.addresses();
    let from = 16 - source.len();
    fields.src_ipv4_src_ipv6_mut()[from..].copy_from_slice(&frame[source]);
    fields.dst_ipv4_dst_ipv6_mut()[from..].copy_from_slice(&frame[destination]);
    fields.set_ip_protocol(network.protocol.into()).set_frag(network.fragment);
    let (version, class, ttl) = match network.version {
        Version::V4 => (4, frame[network.start + 1], frame[network.start + 8]),
        Version::V6 => {
            let class = number(frame, network.start).unwrap_or(0) >> 4;
            (6, class as u8, frame[network.start + 7])
        }
    };
    fields
        .set_ip_version(version)
        .set_ip_dscp((class >> 2).into())
        .set_ip_ecn((class & 3).into())
        .set_ttl_hoplimit(ttl.into());
    if network.version == Version::V4 {
        fields.set_ipv4_ihl((frame[network.start] & 0xf).into());
    }
    let Some(transport) = layers.transport else { return };
    let word = |at: usize| u32::from(number(frame, transport.start + at).unwrap_or(0));
    match transport.protocol {
        Protocol::Tcp => {
            fields.set_tcp_sport(word(0)).set_tcp_dport(word(2)).set_tcp_flags(word(12) & 0x1ff);
        }
        Protocol::Udp => {
            fields.set_udp_sport(word(0)).set_udp_dport(word(2));
        }
        Protocol::Esp => {}
    }
}

fn fill_labels(fields: &mut MatchMisc2, headers: &Headers) {
    let set = |field: &mut MatchMpls, label: Option<u32>| {
        let label = label.unwrap_or(0);
        field
            .set_mpls_label(label >> 12)
            .set_mpls_exp(label >> 9 & 7)
            .set_mpls_s_bos(label >> 8 & 1 != 0)
            .set_mpls_ttl(label & 0xff);
    };
    set(fields.outer_first_mpls_mut(), headers.outer.label);
    set(fields.inner_first_mpls_mut(), headers.inner.as_ref().and_then(|inner| inner.label));
    match headers.tunnel {
        Some(Tunnel::Gre { label, .. }) => set(fields.outer_first_mpls_over_gre_mut(), label),
        Some(Tunnel::MplsUdp { label }) => set(fields.outer_first_mpls_over_udp_mut(), Some(label)),
        _ => {}
    }
}

fn fill_misc(fields: &mut MatchMisc, frame: &[u8], headers: &Headers) {
    if let Some(tag) = headers.outer.tags.get(1) {
        let control = u32::from(tag.control);
        fields
            .set_outer_second_prio(control >> 13)
            .set_outer_second_cfi(control >> 12 & 1 != 0)
            .set_outer_second_vid(control & 0xfff)
            .set_outer_second_cvlan_tag(tag.kind == C_TAG)
            .set_outer_second_svlan_tag(tag.kind != C_TAG);
    }
    match headers.tunnel {
        Some(Tunnel::Vxlan { vni }) => {
            fields.set_vxlan_vni(vni);
        }
        Some(Tunnel::Gre { checksum, key, sequence, protocol, .. }) => {
            fields
                .set_gre_c_present(checksum)
                .set_gre_k_present(key.is_some())
                .set_gre_s_present(sequence)
                .set_gre_protocol(protocol.into())
                .set_gre_key(key.unwrap_or(0));
        }
        Some(Tunnel::MplsUdp { .. } | Tunnel::Mpls) | None => {}
    }
    let label = |layers: &Layers| {
        let network = layers.network.as_ref().filter(|ip| ip.version == Version::V6)?;
        let bytes = &frame[network.start..];
        Some(u32::from_be_bytes([0, bytes[1] & 0xf, bytes[2], bytes[3]]))
    };
    let index = |layers: &Layers| {
        let esp = layers.transport.filter(|transport| transport.protocol == Protocol::Esp)?;
        let word = |at| number(frame, esp.start + at).map(u32::from);
        Some(word(0)? << 16 | word(2)?)
    };
    fields
        .set_outer_ipv6_flow_label(label(&headers.outer).unwrap_or(0))
        .set_outer_esp_spi(index(&headers.outer).unwrap_or(0));
    if let Some(inner) = &headers.inner {
        fields
            .set_inner_ipv6_flow_label(label(inner).unwrap_or(0))
            .set_inner_esp_spi(index(inner).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::samples::{self, GROUP, SOURCE, tagged, tcp4, udp4, udp6};

    fn of(frame: &[u8]) -> MatchParameters {
        parameters(frame, &Headers::of(frame).expect("a frame"), None)
    }

    #[test]
    fn every_header_has_its_fields() {
        let frame = tagged(&udp4(b"data"), C_TAG, 0x7123);
        let parameters = of(&frame);
        let outer = parameters.outer_headers();
        let bytes = outer.as_bytes();
        assert_eq!(bytes[..6], SOURCE);
        assert_eq!(bytes[8..14], GROUP);
        assert_eq!(outer.ethertype(), 0x0800, "of what is behind the tag");
        assert_eq!((outer.first_prio(), outer.first_vid()), (3, 0x123));
        assert!(outer.first_cfi() && outer.cvlan_tag() && !outer.svlan_tag());
        assert_eq!((outer.ip_version(), outer.ip_protocol(), outer.ttl_hoplimit()), (4, 17, 64));
        assert_eq!(bytes[32..48], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
        assert_eq!(bytes[60..64], [198, 51, 100, 7]);
        assert_eq!((outer.udp_sport(), outer.udp_dport()), (1111, 2222));
        assert_eq!((outer.tcp_sport(), outer.tcp_dport()), (0, 0));

        let frame = tcp4(b"data");
        let parameters = of(&frame);
        let outer = parameters.outer_headers();
        assert_eq!((outer.tcp_sport(), outer.tcp_dport(), outer.tcp_flags()), (1234, 80, 0x18));

        let mut frame = udp6(b"data");
        frame[14..18].copy_from_slice(&[0x6b, 0x91, 0x23, 0x45]);
        let parameters = of(&frame);
        let outer = parameters.outer_headers();
        assert_eq!((outer.ip_version(), outer.ip_dscp(), outer.ip_ecn()), (6, 0x2e, 1));
        assert_eq!(parameters.misc_parameters().outer_ipv6_flow_label(), 0x1_2345);
    }

    #[test]
    fn tunnels_fill_the_inner_headers() {
        let parameters = of(&samples::vxlan(&tcp4(b"data"), 77));
        assert_eq!(parameters.misc_parameters().vxlan_vni(), 77);
        assert_eq!(parameters.inner_headers().tcp_dport(), 80);
        assert_eq!(parameters.outer_headers().udp_dport(), 4789);
    }

    #[test]
    fn labels_are_told_apart_by_what_they_are_over() {
        let stack = samples::labels(&[0xabcd_e7ff], &tcp4(b"data")[ETHERNET..]);
        let over = |parameters: &MatchParameters| {
            let misc = parameters.misc_parameters_2();
            [
                *misc.outer_first_mpls(),
                *misc.inner_first_mpls(),
                *misc.outer_first_mpls_over_gre(),
                *misc.outer_first_mpls_over_udp(),
            ]
            .map(|label| {
                (label.mpls_label(), label.mpls_exp(), label.mpls_s_bos(), label.mpls_ttl())
            })
        };
        let ethernet = samples::ethernet(GROUP, 0x8847, &stack);
        let frames = [
            &ethernet,
            &samples::vxlan(&ethernet, 5),
            &samples::gre(&stack, 0x8847, None),
            &samples::mpls_udp(&stack),
        ];
        for (place, frame) in frames.into_iter().enumerate() {
            let found = of(frame);
            let mut expected = [(0, 0, false, 0); 4];
            expected[place] = (0xabcde, 3, true, 0xff);
            assert_eq!(over(&found), expected);
            let inside = found.inner_headers().tcp_dport();
            assert_eq!(inside, if place == 1 { 0 } else { 80 });
        }
    }

    #[test]
    fn only_masked_bits_are_compared() {
        let packet = of(&udp4(b"data"));
        let (mut mask, mut value) = (MatchParameters::default(), MatchParameters::default());
        mask.outer_headers_mut().set_udp_dport(0xfff0);
        value.outer_headers_mut().set_udp_dport(2222 ^ 0xf);
        assert!(matches(&packet, mask.as_bytes(), value.as_bytes()));
        mask.outer_headers_mut().set_udp_dport(0xffff);
        assert!(!matches(&packet, mask.as_bytes(), value.as_bytes()));
    }
}
