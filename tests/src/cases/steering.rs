//! Flow rules: the packets that they match, and where these go.

use crate::frames::{self, ETHERNET, FROM, Flow, GROUP, SOURCE, TO, plain, tagged};
use crate::prelude::*;
use mlx5::ErrorKind;
use mlx5::flow::{
    Ethernet, FlowRule, Gre, HeaderFields, Ipv4, Ipv6, MatchFields, MatcherType, Mpls, Ports, Rule, Vxlan,
};

/// An address that no station here has.
const ELSEWHERE: [u8; 6] = [0x02, 0, 0, 0, 0x5e, 0x53];

pub(crate) const CASES: &[Case] = cases![
    a_rule_takes_the_packets_that_have_its_headers: RAW_PACKETS | EVERY_MODEL,
    a_rule_looks_inside_of_vxlan: RAW_PACKETS,
    a_rule_looks_inside_of_gre: RAW_PACKETS,
    a_rule_takes_the_label_of_mpls: RAW_PACKETS | SIMULATOR,
    a_matcher_compares_what_no_rule_of_the_verbs_says: RAW_PACKETS,
    rules_of_a_matcher_drop_and_pass_on_and_have_their_priority: RAW_PACKETS,
    a_matcher_gives_packets_to_work_queues: RAW_PACKETS,
    a_matcher_lives_as_long_as_its_rules: RAW_PACKETS,
    a_matcher_that_cannot_be_is_refused_by_name: RAW_PACKETS,
    a_mask_compares_some_bits: RAW_PACKETS,
    the_first_priority_wins: RAW_PACKETS,
    a_rule_that_drops_hides_packets_from_later_rules: RAW_PACKETS,
    tags_distinguish_rules: RAW_PACKETS,
    counters_count_the_packets_of_their_rules: RAW_PACKETS,
    two_queue_pairs_share_the_packets_of_equal_rules: RAW_PACKETS,
    a_rule_that_contradicts_another_exists_already: RAW_PACKETS,
    full_table_is_reported_and_takes_rules_again: RAW_PACKETS | SIMULATOR,
    packets_without_a_rule_go_to_the_default_rule: RAW_PACKETS,
    a_sniffer_gets_a_copy: RAW_PACKETS | SNIFFER,
    two_sniffers_get_a_copy_each: RAW_PACKETS | SNIFFER,
    a_rule_that_lets_packets_go_on_gets_a_copy: RAW_PACKETS,
    the_last_priority_is_fifteen: RAW_PACKETS,
    a_rule_needs_a_port_that_is_there: RAW_PACKETS,
    without_the_capability_of_the_process_refusals_name_it: RAW_PACKETS | SIMULATOR,
    a_rule_keeps_its_queue_pair_receiving: RAW_PACKETS,
    rules_for_a_multicast_address_come_after_all_priorities: RAW_PACKETS,
];

/// Rules, and the frames that they match; all frames are sent to each rule.
fn a_rule_takes_the_packets_that_have_its_headers(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let frames = [
        plain(70),
        Flow::UDP4.frame(&[1; 40]),
        Flow::TCP4.frame(&[2; 40]),
        Flow::UDP6.frame(&[3; 40]),
        Flow::TCP6.frame(&[4; 40]),
        Flow { host: 2, ports: (5, 6), ..Flow::UDP4 }.frame(&[5; 40]),
        tagged(&Flow::UDP4.frame(&[6; 40]), 0x2123),
    ];
    let group = || Ethernet::new().dst_mac(GROUP);
    let mut from6 = [0; 16];
    from6[..4].copy_from_slice(&[0x20, 1, 0x0d, 0xb8]);
    from6[15] = 1;
    let ethernet = || Rule::new().ethernet(group());
    let cases: [(Rule, &[usize]); 12] = [
        (ethernet(), &[0, 1, 2, 3, 4, 5, 6]),
        (Rule::new().ethernet(group().src_mac(SOURCE)), &[0, 1, 2, 3, 4, 5, 6]),
        (Rule::new().ethernet(group().src_mac([2; 6])), &[]),
        (Rule::new().ethernet(group().ether_type(0x88b5)), &[0]),
        (Rule::new().ethernet(group().vlan_tag_masked(0x123, 0xfff)), &[6]),
        (ethernet().ipv4(Ipv4::new()), &[1, 2, 5, 6]),
        (ethernet().ipv4(Ipv4::new().src_ip(FROM).dst_ip(TO)), &[1, 2, 6]),
        (ethernet().ipv4(Ipv4::new().proto(frames::TCP)), &[2]),
        (ethernet().ipv6(Ipv6::new().src_ip(from6)), &[3, 4]),
        (ethernet().ipv4(Ipv4::new()).udp(Ports::new().dst_port(2222)), &[1, 6]),
        (ethernet().ipv6(Ipv6::new()).tcp(Ports::new().dst_port(2222).src_port(1111)), &[4]),
        (ethernet().ipv4(Ipv4::new()).udp(Ports::new().src_port(5)), &[5]),
    ];
    for (number, (rule, takes)) in cases.iter().enumerate() {
        let rule = b.qp.attach(b.port, rule)?;
        b.recv(takes.len());
        for frame in &frames {
            a.send(bed, frame);
        }
        for &taken in *takes {
            assert_eq!(b.next(bed).frame, frames[taken], "rule {number}");
        }
        b.hears_nothing(bed);
        drop(rule);
    }
    Ok(())
}

/// Sends all frames to each rule, which must take those with the given numbers.
fn take(bed: &Bed, frames: &[Vec<u8>], cases: &[(Rule, &[usize])]) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    for (number, (rule, takes)) in cases.iter().enumerate() {
        let rule = b.qp.attach(b.port, rule)?;
        b.recv(takes.len());
        for frame in frames {
            a.send(bed, frame);
        }
        for &taken in *takes {
            assert_eq!(b.next(bed).frame, frames[taken], "rule {number}");
        }
        b.hears_nothing(bed);
        drop(rule);
    }
    Ok(())
}

/// Frames inside a tunnel: UDP, UDP with another address and port, TCP, and IPv6.
fn wrapped(wrap: impl Fn(&[u8]) -> Vec<u8>) -> [Vec<u8>; 4] {
    [
        Flow { ports: (5, 6), ..Flow::UDP4 },
        Flow { ports: (5, 7), host: 3, ..Flow::UDP4 },
        Flow::TCP4,
        Flow::TCP6,
    ]
    .map(|flow| wrap(&flow.frame(&[1; 40])))
}

fn a_rule_looks_inside_of_vxlan(bed: &Bed) -> Outcome {
    let mut frames = wrapped(|frame| frames::vxlan(42, frame)).to_vec();
    frames.extend(wrapped(|frame| frames::vxlan(43, frame)));
    // Frames without a tunnel: the headers that a rule wants inside are the outer ones here, so no
    // rule matches.
    frames.extend(wrapped(<[u8]>::to_vec));
    let tunnel = |vxlan| from_source().ipv4(Ipv4::new()).udp(Ports::new().dst_port(4789)).vxlan(vxlan);
    let of = |network| tunnel(Vxlan::new().tunnel_id(network));
    let inner = |rule: Rule| rule.ethernet(Ethernet::new().src_mac(SOURCE));
    take(
        bed,
        &frames,
        &[
            (tunnel(Vxlan::new()), &[0, 1, 2, 3, 4, 5, 6, 7]),
            (tunnel(Vxlan::new().tunnel_id_masked(42, !1)), &[0, 1, 2, 3, 4, 5, 6, 7]),
            (of(42), &[0, 1, 2, 3]),
            (inner(of(43)), &[4, 5, 6, 7]),
            (of(42).ethernet(Ethernet::new().src_mac([2; 6])), &[]),
            (inner(of(42)).ipv4(Ipv4::new()).udp(Ports::new().dst_port(6)), &[0]),
            (of(43).ipv4(Ipv4::new().src_ip([192, 0, 2, 3])), &[5]),
            (tunnel(Vxlan::new()).ipv4(Ipv4::new()).tcp(Ports::new()), &[2, 6]),
            (of(42).ipv6(Ipv6::new()).tcp(Ports::new().src_port(1111)), &[3]),
            (of(42).ipv6(Ipv6::new()).tcp(Ports::new().src_port(1112)), &[]),
        ],
    )
}

fn a_rule_looks_inside_of_gre(bed: &Bed) -> Outcome {
    // IP directly inside, and a whole frame inside.
    let ip = |key, frame: &[u8]| {
        let kind = u16::from_be_bytes([frame[12], frame[13]]);
        frames::gre(kind, key, &frame[ETHERNET..])
    };
    let mut frames = wrapped(|frame| ip(1, frame)).to_vec();
    frames.extend(wrapped(|frame| frames::gre(frames::BRIDGED, 2, frame)));
    frames.extend(wrapped(<[u8]>::to_vec));
    let tunnel = |gre| from_source().ipv4(Ipv4::new()).gre(gre);
    take(
        bed,
        &frames,
        &[
            (tunnel(Gre::new()), &[0, 1, 2, 3, 4, 5, 6, 7]),
            (tunnel(Gre::new().key(1)), &[0, 1, 2, 3]),
            (tunnel(Gre::new().protocol(frames::IPV6)), &[3]),
            (tunnel(Gre::new().protocol(frames::BRIDGED).key(2)), &[4, 5, 6, 7]),
            (tunnel(Gre::new().protocol(frames::BRIDGED).key(1)), &[]),
            (tunnel(Gre::new()).ipv4(Ipv4::new()).udp(Ports::new().dst_port(7)), &[1, 5]),
            (tunnel(Gre::new().key(2)).ipv4(Ipv4::new()).tcp(Ports::new()), &[6]),
            (tunnel(Gre::new()).ipv6(Ipv6::new()).tcp(Ports::new().dst_port(2222)), &[3, 7]),
            (tunnel(Gre::new()).ethernet(Ethernet::new().src_mac(SOURCE)), &[4, 5, 6, 7]),
        ],
    )
}

fn a_rule_takes_the_label_of_mpls(bed: &Bed) -> Outcome {
    let stack = |label, frame: &[u8]| frames::labels(&[label, 99], &frame[ETHERNET..]);
    let mut frames = Vec::new();
    for label in [0x12345, 0x12346] {
        let udp = Flow { ports: (5, 6), ..Flow::UDP4 }.frame(&[1; 40]);
        for inner in [udp, Flow::TCP6.frame(&[2; 40])] {
            let stack = stack(label, &inner);
            frames.push(frames::ethernet(frames::MPLS, &stack));
            frames.push(frames::gre(frames::MPLS, 1, &stack));
            frames.push(frames::labels_in_udp(&stack));
            frames.push(frames::vxlan(5, &frames::ethernet(frames::MPLS, &stack)));
        }
    }
    frames.push(Flow::UDP4.frame(&[3; 40]));
    let ip = || from_source().ipv4(Ipv4::new());
    let label = |label: u32| Mpls::new().label_masked(label << 12, 0xffff_f000);
    // The rule matches the first label of the stack, not the last.
    let last = Mpls::new().label_masked(1 << 8, 1 << 8);
    let vxlan = || ip().udp(Ports::new()).vxlan(Vxlan::new()).ethernet(Ethernet::new());
    take(
        bed,
        &frames,
        &[
            (from_source().mpls(label(0x12345)), &[0, 4]),
            (from_source().mpls(label(0x12346)), &[8, 12]),
            (from_source().mpls(last), &[]),
            (from_source().mpls(label(99)), &[]),
            (from_source().mpls(label(0x12345)).ipv4(Ipv4::new()).udp(Ports::new()), &[0]),
            (from_source().mpls(label(0x12345)).ipv6(Ipv6::new()).tcp(Ports::new()), &[4]),
            (ip().gre(Gre::new()).mpls(label(0x12345)), &[1, 5]),
            (ip().gre(Gre::new()).mpls(label(0x12346)).ipv6(Ipv6::new()), &[13]),
            (ip().udp(Ports::new()).mpls(label(0x12345)), &[2, 6]),
            (
                ip().udp(Ports::new()).mpls(label(0x12346)).ipv4(Ipv4::new().src_ip(FROM)),
                &[10],
            ),
            (vxlan().mpls(label(0x12345)), &[3, 7]),
        ],
    )
}

/// A matcher's fields of the packet's own headers.
fn own(headers: HeaderFields) -> MatchFields {
    MatchFields::new().outer(headers.src_mac(SOURCE))
}

/// The mask of such fields.
fn mask(headers: HeaderFields) -> MatchFields {
    MatchFields::new().outer(headers.src_mac([0xff; 6]))
}

fn a_matcher_compares_what_no_rule_of_the_verbs_says(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let udp = Flow::UDP4.frame(&[1; 40]);
    let changed = |at: usize, bytes: &[u8]| {
        let mut frame = udp.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let frames = [
        udp.clone(),
        Flow { flags: 0b0_0010, ..Flow::TCP4 }.frame(&[2; 40]),
        Flow { flags: 0b1_0010, ..Flow::TCP4 }.frame(&[3; 40]),
        Flow { flags: 0b1_0000, ..Flow::TCP6 }.frame(&[4; 40]),
        // Time to live of 1; class 46 with congestion; more fragments, and the second of them.
        changed(22, &[1]),
        changed(15, &[46 << 2 | 3]),
        changed(20, &[0x20, 0]),
        changed(20, &[0, 5]),
        tagged(&udp, 0x2123),
        tagged(&tagged(&udp, 0x2123), 0x6456),
    ];
    let new = HeaderFields::new;
    let second = |fields: MatchFields, id| fields.second_vlan_id(id);
    let tcp = || new().ip_protocol(frames::TCP);
    let cases: [(MatchFields, MatchFields, &[usize]); 12] = [
        (mask(new()), own(new()), &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (mask(new().ip_protocol(0xff).tcp_flags(0x1ff)), own(tcp().tcp_flags(0b0_0010)), &[1]),
        (mask(new().ip_protocol(0xff).tcp_flags(0b1_0000)), own(tcp().tcp_flags(0x10)), &[2, 3]),
        (mask(new().ip_protocol(0xff).tcp_flags(0b1_0000)), own(tcp()), &[1]),
        (mask(new().ttl(0xff)), own(new().ttl(1)), &[4]),
        (mask(new().dscp(0x3f)), own(new().dscp(46)), &[5]),
        (mask(new().ecn(3)), own(new().ecn(3)), &[5]),
        (mask(new().fragment(true)), own(new().fragment(true)), &[6, 7]),
        (mask(new().c_vlan(true).vlan_id(0xfff)), own(new().c_vlan(true).vlan_id(0x123)), &[8]),
        (second(mask(new()), 0xfff), second(own(new()), 0x123), &[9]),
        (
            mask(new()).second_c_vlan(true).second_vlan_priority(7),
            own(new()).second_c_vlan(true).second_vlan_priority(1),
            &[9],
        ),
        (mask(new().ip_version(0xf).ttl(0xff)), own(new().ip_version(6).ttl(64)), &[3]),
    ];
    for (number, (mask, value, takes)) in cases.into_iter().enumerate() {
        let matcher = b.context.create_matcher(mask).build()?;
        let rule = b.qp.attach_matched(&matcher, &value, Some(0xab_0000 + number as u32))?;
        drop(matcher);
        b.recv(takes.len());
        for frame in &frames {
            a.send(bed, frame);
        }
        for &taken in takes {
            let received = b.next(bed);
            assert_eq!(received.frame, frames[taken], "matcher {number}");
            assert_eq!(received.tag(), 0xab_0000 + number as u32);
        }
        b.hears_nothing(bed);
        drop(rule);
    }
    Ok(())
}

fn rules_of_a_matcher_drop_and_pass_on_and_have_their_priority(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let new = HeaderFields::new;
    let context = b.context.clone();
    let matcher = |priority| {
        context.create_matcher(mask(new().ttl(0xff))).priority(priority).build()
    };
    let (first, middle, last) = (matcher(1)?, matcher(2)?, matcher(3)?);
    let all = context.create_matcher(mask(new())).priority(9).build()?;
    let _all = b.qp.attach_matched(&all, &own(new()), Some(9))?;
    let alive = own(new().ttl(64));
    let late = b.qp.attach_matched(&last, &alive, Some(3))?;
    let dropping = middle.drop_packets(&alive)?;
    let passing = first.pass_on(&own(new().ttl(0)))?;
    let early = b.qp.attach_matched(&first, &alive, Some(1))?;
    let frame = Flow::UDP4.frame(&[1; 60]);
    let mut tag = |b: &mut Station, frame: &[u8]| {
        b.recv(1);
        a.send(bed, frame);
        b.next(bed).tag()
    };
    assert_eq!(tag(&mut b, &frame), 1);
    early.destroy()?;
    // This frame has no time to live, so it passes the rules of all priorities.
    b.recv(1);
    a.send(bed, &plain(60));
    b.hears_nothing(bed);
    // It goes to the rule for unmatched packets, even if that one is younger.
    let mut c = bed.station()?;
    c.recv(1);
    let rest = c.qp.attach(c.port, &Rule::all_default())?;
    a.send(bed, &plain(60));
    assert_eq!(c.next(bed).frame, plain(60));
    drop(rest);
    passing.destroy()?;
    a.send(bed, &plain(60));
    assert_eq!(b.next(bed).tag(), 9);
    b.recv(1);
    a.send(bed, &frame);
    b.hears_nothing(bed);
    drop(dropping);
    a.send(bed, &frame);
    assert_eq!(b.next(bed).tag(), 3);
    drop(late);
    b.recv(1);
    a.send(bed, &frame);
    assert_eq!(b.next(bed).tag(), 9);
    Ok(())
}

fn a_matcher_gives_packets_to_work_queues(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let b = bed.station()?;
    let mut cq = b.context.create_cq(16).cqe_size(bed.cqe_size()).build()?;
    let mut queue = b.pd.create_wq(&cq).max_wr(4).build()?;
    let table = b.context.create_indirection_table([&queue])?;
    let qp = b.pd.create_hash_qp(&table).build()?;
    queue.start()?;
    for n in 0..2 {
        queue.recv(n, b.memory.sge(n as usize * SLOT..(n as usize + 1) * SLOT)?)?;
    }
    let matcher = b.context.create_matcher(mask(HeaderFields::new().ttl(0xff))).build()?;
    let _rule = qp.attach_matched(&matcher, &own(HeaderFields::new().ttl(64)), Some(5))?;
    a.send(bed, &plain(60));
    a.send(bed, &Flow::UDP4.frame(&[1; 60]));
    let found = bed.poll_good(&mut cq, 1)[0];
    assert_eq!(found.as_completion().flow_tag(), Some(5));
    bed.nothing(&mut cq);
    Ok(())
}

fn a_matcher_lives_as_long_as_its_rules(bed: &Bed) -> Outcome {
    let b = bed.station()?;
    let matcher = b.context.create_matcher(mask(HeaderFields::new())).build()?;
    let value = own(HeaderFields::new());
    let rule = b.qp.attach_matched(&matcher, &value, None)?;
    let error = matcher.clone().destroy().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::Busy, "{error}");
    rule.destroy()?;
    let again = matcher.clone();
    matcher.destroy()?;
    assert_eq!(again.kernel_handle(), None);
    let error = b.qp.attach_matched(&again, &value, None).unwrap_err();
    assert!(error.to_string().contains("matcher was destroyed"), "{error}");
    // In any order, because a rule keeps its matcher and its queue pair.
    for _ in 0..2 {
        let matcher = b.context.create_matcher(mask(HeaderFields::new())).build()?;
        let rule = b.qp.attach_matched(&matcher, &value, None)?;
        drop(matcher);
        drop(rule);
    }
    let last = b.context.create_matcher(mask(HeaderFields::new())).build()?;
    let rule = b.qp.attach_matched(&last, &value, None)?;
    drop(b);
    drop(last);
    drop(rule);
    Ok(())
}

fn a_matcher_that_cannot_be_is_refused_by_name(bed: &Bed) -> Outcome {
    let a = bed.station()?;
    let b = bed.station()?;
    let new = HeaderFields::new;
    let compared = || mask(new().ttl(0xf0));
    for (builder, text) in [
        (b.context.create_matcher(compared()).priority(16), "the last is 15"),
        (b.context.create_matcher(compared()).priority(1).flow_type(MatcherType::AllDefault), "has no priority"),
    ] {
        let error = builder.build().unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    let foreign = a.context.create_matcher(compared()).build()?;
    let matcher = b.context.create_matcher(compared()).priority(15).build()?;
    for (matcher, value, tag, text) in [
        (&foreign, own(new()), None, "different contexts"),
        (&matcher, own(new().ttl(0x41)), None, "bits that the matcher does not compare"),
        (&matcher, own(new().dscp(1)), None, "bits that the matcher does not compare"),
        (&matcher, own(new()), Some(1 << 24), "it has 24 bits"),
    ] {
        let error = b.qp.attach_matched(matcher, &value, tag).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
    let _rule = b.qp.attach_matched(&matcher, &own(new().ttl(0x40)), Some(1))?;
    let error = b.qp.attach_matched(&matcher, &own(new().ttl(0x40)), Some(2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    Ok(())
}

fn a_mask_compares_some_bits(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let rule = Rule::new()
        .ethernet(Ethernet::new().dst_mac(GROUP))
        .ipv4(Ipv4::new().src_ip_masked([FROM[0], FROM[1], FROM[2], 4], [255, 255, 255, 0xfc]))
        .udp(Ports::new().dst_port_masked(0x1230, 0xfff0));
    let _rule = b.qp.attach(b.port, &rule)?;
    for host in 0..10 {
        for port in [0x122f, 0x1230, 0x123f, 0x1240] {
            b.recv(1);
            let frame = Flow { host, ports: (1, port), ..Flow::UDP4 }.frame(&[host; 30]);
            a.send(bed, &frame);
            if (4..8).contains(&host) && (0x1230..0x1240).contains(&port) {
                assert_eq!(b.next(bed).frame, frame);
            } else {
                b.hears_nothing(bed);
            }
        }
    }
    Ok(())
}

/// A rule that matches frames by their source. Its priority counts, unlike that of a rule for a
/// multicast destination alone.
fn from_source() -> Rule {
    Rule::new().ethernet(Ethernet::new().src_mac(SOURCE))
}

/// The same for UDP packets of IPv4.
fn udp() -> Rule {
    from_source().ipv4(Ipv4::new()).udp(Ports::new())
}

fn the_first_priority_wins(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let frame = Flow::UDP4.frame(&[1; 60]);
    let _late = b.qp.attach(b.port, &from_source().priority(7).tag(7))?;
    let middle = b.qp.attach(b.port, &udp().priority(4).tag(4))?;
    let early = b.qp.attach(b.port, &from_source().priority(2).tag(2))?;
    let mut tag = || {
        b.recv(1);
        a.send(bed, &frame);
        b.next(bed).tag()
    };
    assert_eq!(tag(), 2);
    drop(early);
    assert_eq!(tag(), 4);
    middle.destroy()?;
    assert_eq!(tag(), 7);
    Ok(())
}

fn a_rule_that_drops_hides_packets_from_later_rules(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    let dropping = b.qp.attach(b.port, &udp().drop_packets())?;
    b.recv(2);
    a.send(bed, &Flow::UDP4.frame(&[1; 60]));
    b.hears_nothing(bed);
    a.send(bed, &Flow::TCP4.frame(&[2; 60]));
    assert_eq!(b.next(bed).frame, Flow::TCP4.frame(&[2; 60]));
    drop(dropping);
    a.send(bed, &Flow::UDP4.frame(&[1; 60]));
    assert_eq!(b.next(bed).frame, Flow::UDP4.frame(&[1; 60]));
    Ok(())
}

fn tags_distinguish_rules(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let to_port = |port| to_group().ipv4(Ipv4::new()).udp(Ports::new().dst_port(port));
    let tags = [0, 1, 0xff_ffff, 0x12_3456];
    let mut rules = Vec::new();
    for (port, tag) in (100..).zip(tags) {
        rules.push(b.qp.attach(b.port, &to_port(port).tag(tag))?);
    }
    for (port, tag) in (100..).zip(tags) {
        b.recv(1);
        a.send(bed, &Flow { ports: (9, port), ..Flow::UDP4 }.frame(&[1; 60]));
        assert_eq!(b.next(bed).tag(), tag);
    }
    let error = b.qp.attach(b.port, &to_port(99).tag(1 << 24)).expect_err("24 bits");
    assert!(error.to_string().contains("flow tag 0x1000000: it has 24 bits"), "{error}");
    Ok(())
}

fn counters_count_the_packets_of_their_rules(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let counters = b.context.create_flow_counters()?;
    let counted = || counters.read().map(|values| (values.packets, values.bytes));
    assert_eq!(counted()?, (0, 0));
    let rule = b.qp.attach(b.port, &udp().count(&counters))?;
    let also = b.qp.attach(b.port, &from_source().priority(3).count(&counters))?;
    b.recv(3);
    for frame in [Flow::UDP4.frame(&[1; 58]), plain(77), Flow::UDP4.frame(&[1; 958])] {
        a.send(bed, &frame);
        b.next(bed);
    }
    assert_eq!(counted()?, (3, 100 + 77 + 1000));
    // A packet without a receive is counted as well, because the rule took it.
    a.send(bed, &plain(123));
    b.hears_nothing(bed);
    assert_eq!(counted()?, (4, 1300));
    let kept = counters.clone().destroy().expect_err("rules use them");
    assert_eq!(kept.error().kind(), ErrorKind::Busy);
    drop((rule, also, kept));
    assert_eq!(counted()?, (4, 1300), "though the kernel reads nothing now");
    // The driver has dropped the description of the counters, but not their values.
    let again = b.qp.attach(b.port, &udp().count(&counters))?;
    a.send(bed, &Flow::UDP4.frame(&[1; 58]));
    b.hears_nothing(bed);
    assert_eq!(counted()?, (5, 1400));
    drop(again);
    counters.destroy()?;
    Ok(())
}

fn two_queue_pairs_share_the_packets_of_equal_rules(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule } = bed.stations()?;
    let mut c = bed.station()?;
    let second = c.qp.attach(c.port, &to_group())?;
    b.recv(3);
    c.recv(3);
    a.send(bed, &plain(60));
    assert_eq!((b.next(bed).frame, c.next(bed).frame), (plain(60), plain(60)));
    drop(rule);
    a.send(bed, &plain(61));
    b.hears_nothing(bed);
    assert_eq!(c.next(bed).frame, plain(61));
    drop(second);
    a.send(bed, &plain(62));
    b.hears_nothing(bed);
    c.hears_nothing(bed);
    Ok(())
}

fn a_rule_that_contradicts_another_exists_already(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let _rule = b.qp.attach(b.port, &udp().tag(1))?;
    for other in [udp().tag(2), udp().drop_packets()] {
        let error = b.qp.attach(b.port, &other).expect_err("it contradicts");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        assert!(error.to_string().contains("create_flow"), "{error}");
    }
    // Another priority, or other headers, do not contradict the rule.
    let _later = b.qp.attach(b.port, &udp().tag(2).priority(1))?;
    let _other = b.qp.attach(b.port, &from_source().ipv4(Ipv4::new()).tcp(Ports::new()).tag(3))?;
    b.recv(2);
    a.send(bed, &Flow::UDP4.frame(&[1; 60]));
    a.send(bed, &Flow::TCP4.frame(&[1; 60]));
    assert_eq!((b.next(bed).tag(), b.next(bed).tag()), (1, 3));
    Ok(())
}

/// The number of rules per priority in the simulated kernel. The real one has as many as the
/// device's largest table.
const MOST_RULES: u16 = 4096;

fn full_table_is_reported_and_takes_rules_again(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let rule = |port| from_source().ipv4(Ipv4::new()).udp(Ports::new().dst_port(port));
    let frame = |port| Flow { ports: (1, port), ..Flow::UDP4 }.frame(&[1; 60]);
    let rules = (0..MOST_RULES).map(|port| b.qp.attach(b.port, &rule(port)));
    let mut rules = rules.collect::<Result<Vec<_>, _>>()?;
    let refused = |b: &Station, rule: &Rule| {
        let error = b.qp.attach(b.port, rule).expect_err("the table is full");
        assert_eq!(error.kind(), ErrorKind::ResourceLimit, "{error}");
        assert!(error.to_string().contains("the table of flow rules is full"), "{error}");
    };
    refused(&b, &rule(MOST_RULES));
    // Another priority has a table of its own.
    drop(b.qp.attach(b.port, &rule(MOST_RULES).priority(1))?);
    // The slot of a destroyed rule is free for one other rule.
    drop(rules.remove(1234));
    rules.push(b.qp.attach(b.port, &rule(MOST_RULES))?);
    refused(&b, &rule(1234));
    b.recv(3);
    for port in [0, 1234, MOST_RULES - 1, MOST_RULES] {
        a.send(bed, &frame(port));
    }
    for port in [0, MOST_RULES - 1, MOST_RULES] {
        assert_eq!(b.next(bed).frame, frame(port));
    }
    b.hears_nothing(bed);
    Ok(())
}

fn packets_without_a_rule_go_to_the_default_rule(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let mut c = bed.station()?;
    let _mine = b.qp.attach(b.port, &udp())?;
    let rest = c.qp.attach(c.port, &Rule::multicast_default())?;
    b.recv(1);
    c.recv(2);
    a.send(bed, &Flow::UDP4.frame(&[1; 60]));
    a.send(bed, &plain(60));
    assert_eq!(b.next(bed).frame, Flow::UDP4.frame(&[1; 60]));
    assert_eq!(c.next(bed).frame, plain(60));
    drop(rest);
    let _rest = c.qp.attach(c.port, &Rule::all_default())?;
    a.send(bed, &plain(61));
    assert_eq!(c.next(bed).frame, plain(61));
    let refused = c.qp.attach(c.port, &Rule::all_default().ethernet(Ethernet::new()));
    assert_eq!(refused.expect_err("a default rule with headers").kind(), ErrorKind::InvalidArgument);
    Ok(())
}

/// A station that receives all frames of a port. It ignores those of other programs and of the
/// kernel.
struct Sniffer {
    station: Station,
    rule: FlowRule,
}

impl Sniffer {
    fn new(bed: &Bed) -> Result<Self, Failed> {
        let mut station = bed.station()?;
        station.recv(64);
        let rule = station.qp.attach(station.port, &Rule::sniffer())?;
        Ok(Self { station, rule })
    }

    fn next(&mut self, bed: &Bed) -> Vec<u8> {
        loop {
            let frame = self.station.next(bed).frame;
            self.station.recv(1);
            if frame[6..12] == SOURCE {
                return frame;
            }
        }
    }

    fn hears_nothing(&mut self, bed: &Bed) {
        bed.settle();
        let mut heard = Vec::new();
        let polled = self.station.recv_cq.poll(128, |entry| heard.push(entry.to_owned()));
        polled.expect("completions");
        for entry in heard {
            let frame = self.station.received(entry).frame;
            self.station.recv(1);
            assert_ne!(frame[6..12], SOURCE, "{frame:02x?}");
        }
    }
}

fn a_sniffer_gets_a_copy(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    let mut sniffer = Sniffer::new(bed)?;
    b.recv(2);
    a.send(bed, &plain(60));
    assert_eq!(b.next(bed).frame, plain(60));
    assert_eq!(sniffer.next(bed), plain(60), "as it is sent");
    assert_eq!(sniffer.next(bed), plain(60), "as it comes back to its port");
    sniffer.hears_nothing(bed);
    let dropping = b.qp.attach(b.port, &from_source().ipv4(Ipv4::new()).drop_packets())?;
    a.send(bed, &Flow::UDP4.frame(&[1; 60]));
    for _ in 0..2 {
        assert_eq!(sniffer.next(bed), Flow::UDP4.frame(&[1; 60]), "though it is dropped");
    }
    drop(dropping);
    // A frame that does not come back is received once, as the copy of the sent one.
    let mut away = plain(62);
    away[..6].copy_from_slice(&ELSEWHERE);
    a.send(bed, &away);
    assert_eq!(sniffer.next(bed), away);
    sniffer.hears_nothing(bed);
    drop(sniffer.rule);
    a.send(bed, &plain(61));
    assert_eq!(b.next(bed).frame, plain(61));
    bed.nothing(&mut sniffer.station.recv_cq);
    Ok(())
}

fn two_sniffers_get_a_copy_each(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut sniffers = [Sniffer::new(bed)?, Sniffer::new(bed)?];
    let mut away = plain(60);
    away[..6].copy_from_slice(&ELSEWHERE);
    for _ in 0..3 {
        a.send(bed, &away);
        for sniffer in &mut sniffers {
            assert_eq!(sniffer.next(bed), away);
            sniffer.hears_nothing(bed);
        }
    }
    let [first, mut second] = sniffers;
    drop(first);
    a.send(bed, &away);
    assert_eq!(second.next(bed), away);
    Ok(())
}

fn a_rule_that_lets_packets_go_on_gets_a_copy(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    let mut c = bed.station()?;
    let _copy = c.qp.attach(c.port, &udp().dont_trap())?;
    b.recv(1);
    c.recv(1);
    a.send(bed, &Flow::UDP4.frame(&[1; 60]));
    assert_eq!(b.next(bed).frame, c.next(bed).frame);
    Ok(())
}

fn the_last_priority_is_fifteen(bed: &Bed) -> Outcome {
    let b = bed.station()?;
    let _rule = b.qp.attach(b.port, &from_source().priority(15))?;
    let error = b.qp.attach(b.port, &from_source().priority(16)).expect_err("beyond the last");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.to_string().contains("the last is 15"), "{error}");
    Ok(())
}

fn a_rule_needs_a_port_that_is_there(bed: &Bed) -> Outcome {
    let b = bed.station()?;
    let ports = b.context.num_ports() as u8;
    for port in [0, ports + 1] {
        let error = b.qp.attach(port, &to_group()).expect_err("there is no such port");
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::NotFound), "{error}");
    }
    Ok(())
}

fn without_the_capability_of_the_process_refusals_name_it(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.net_raw(false))?;
    let context = bed.context();
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(16).build()?);
    let refused = pd.create_qp::<mlx5::transport::RawPacket>(&cq, &cq).build();
    let error = refused.expect_err("the process lacks CAP_NET_RAW");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    // Work queues and tables need no right; a hash queue pair does.
    let queue = pd.create_wq(&cq).build()?;
    let table = context.create_indirection_table([&queue])?;
    let error = pd.create_hash_qp(&table).build().expect_err("the process lacks CAP_NET_RAW");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    Ok(())
}

fn a_rule_keeps_its_queue_pair_receiving(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule } = bed.stations()?;
    b.recv(2);
    let Station { qp, mut recv_cq, memory, .. } = b;
    drop(qp);
    a.send(bed, &plain(60));
    assert_eq!(wr_ids(&bed.poll_good(&mut recv_cq, 1)), [0]);
    drop(rule);
    a.send(bed, &plain(61));
    bed.nothing(&mut recv_cq);
    drop(memory);
    Ok(())
}

/// The kernel has a separate priority for rules that begin with a multicast destination.
fn rules_for_a_multicast_address_come_after_all_priorities(bed: &Bed) -> Outcome {
    let mut a = bed.station()?;
    let mut b = bed.station()?;
    let _group = b.qp.attach(b.port, &to_group().priority(0).tag(1))?;
    let last = b.qp.attach(b.port, &from_source().priority(15).tag(2))?;
    b.recv(2);
    a.send(bed, &plain(60));
    assert_eq!(b.next(bed).tag(), 2);
    drop(last);
    a.send(bed, &plain(60));
    assert_eq!(b.next(bed).tag(), 1);
    Ok(())
}
