//! Flow rules: which packets they take, and what becomes of those.

use crate::frames::{self, FROM, Flow, GROUP, SOURCE, TO, plain, tagged};
use crate::prelude::*;
use mlx5::ErrorKind;
use mlx5::flow::{Ethernet, Ipv4, Ipv6, Ports, Rule, RuleError};

pub(crate) const CASES: &[Case] = cases![
    a_rule_takes_the_packets_that_have_its_headers: RAW_PACKETS | EVERY_MODEL,
    a_mask_compares_some_bits: RAW_PACKETS,
    the_first_priority_wins: RAW_PACKETS,
    a_rule_that_drops_hides_packets_from_later_rules: RAW_PACKETS,
    tags_tell_rules_apart: RAW_PACKETS,
    counters_count_the_packets_of_their_rules: RAW_PACKETS,
    two_queue_pairs_share_the_packets_of_equal_rules: RAW_PACKETS,
    a_rule_that_contradicts_another_exists_already: RAW_PACKETS,
    what_no_rule_takes_is_the_default_rules: RAW_PACKETS,
    a_sniffer_gets_a_copy: RAW_PACKETS | SNIFFER,
    a_rule_that_lets_packets_go_on_gets_a_copy: RAW_PACKETS,
    the_last_priority_is_fifteen: RAW_PACKETS,
    a_rule_needs_a_port_that_is_there: RAW_PACKETS,
    without_the_capability_of_the_process_refusals_name_it: RAW_PACKETS | SIMULATOR,
    a_rule_keeps_its_queue_pair_receiving: RAW_PACKETS,
    rules_for_a_multicast_address_come_after_all_priorities: RAW_PACKETS,
];

/// Rules, and the frames that they take; all frames are sent to each rule.
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

/// A rule for frames by their source: unlike that of rules for a multicast destination alone, its
/// priority counts.
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

fn tags_tell_rules_apart(bed: &Bed) -> Outcome {
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
    assert!(error.to_string().contains(&RuleError::Tag(1 << 24).to_string()), "{error}");
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
    // What finds no receive is counted as well: the rule took it.
    a.send(bed, &plain(123));
    b.hears_nothing(bed);
    assert_eq!(counted()?, (4, 1300));
    let kept = counters.clone().destroy().expect_err("rules use them");
    assert_eq!(kept.error().kind(), ErrorKind::Busy);
    drop((rule, also, kept));
    assert_eq!(counted()?, (4, 1300), "though the kernel reads nothing now");
    // It has forgotten what they count, and not what they have counted.
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
    // Another priority, or other headers, are no contradiction.
    let _later = b.qp.attach(b.port, &udp().tag(2).priority(1))?;
    let _other = b.qp.attach(b.port, &from_source().ipv4(Ipv4::new()).tcp(Ports::new()).tag(3))?;
    b.recv(2);
    a.send(bed, &Flow::UDP4.frame(&[1; 60]));
    a.send(bed, &Flow::TCP4.frame(&[1; 60]));
    assert_eq!((b.next(bed).tag(), b.next(bed).tag()), (1, 3));
    Ok(())
}

fn what_no_rule_takes_is_the_default_rules(bed: &Bed) -> Outcome {
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

fn a_sniffer_gets_a_copy(bed: &Bed) -> Outcome {
    let Stations { mut a, mut b, rule: _rule } = bed.stations()?;
    let mut c = bed.station()?;
    let sniffer = c.qp.attach(c.port, &Rule::sniffer())?;
    b.recv(2);
    c.recv(3);
    a.send(bed, &plain(60));
    assert_eq!((b.next(bed).frame, c.next(bed).frame), (plain(60), plain(60)));
    let dropping = b.qp.attach(b.port, &from_source().ipv4(Ipv4::new()).drop_packets())?;
    a.send(bed, &Flow::UDP4.frame(&[1; 60]));
    assert_eq!(c.next(bed).frame, Flow::UDP4.frame(&[1; 60]), "though it is dropped");
    drop((dropping, sniffer));
    a.send(bed, &plain(61));
    assert_eq!(b.next(bed).frame, plain(61));
    c.hears_nothing(bed);
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
    // Work queues and tables need none; a hash queue pair does.
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

/// The kernel has a priority of its own for rules that begin with a multicast destination.
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
