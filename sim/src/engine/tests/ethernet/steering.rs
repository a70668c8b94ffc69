//! The path of a frame through flow tables, transport interfaces and tables of queues.

use mlx5_prm::cmd::flow::MatchParameters;
use mlx5_prm::cmd::steering::{hash_fields, self_lb_block};

use super::*;
use crate::engine::tests::rig::ethernet::{NIC_RX, UNHASHED, parameters};
use crate::engine::{
    Error, FlowEntry, FlowGroup, FlowTableConfig, FlowTarget, HashConfig, HashFields, TirTarget,
};
use crate::frame::samples::{GROUP, SOURCE, plain, tcp4, udp4, udp6};

fn port_80(parameters: &mut MatchParameters, value: u32) {
    parameters.outer_headers_mut().set_ip_protocol(if value == 80 { 6 } else { 0xff });
    parameters.outer_headers_mut().set_tcp_dport(value);
}

/// One device that sends, and one with a root table of its own.
struct Bench {
    rig: Rig,
    one: Nic,
    two: Nic,
    table: u32,
    tir: u32,
}

impl Bench {
    fn new() -> Self {
        let rig = rig(2);
        let (one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
        let tir = rig.tir(1, rig.direct(&two.rq));
        let table = rig.table(1, 0);
        rig.root(1, table);
        two.fill(8);
        Self { rig, one, two, table, tir }
    }

    fn send(&mut self, frame: &[u8]) {
        self.one.post(frame);
        self.rig.run();
        self.one.send_cq.expect();
    }

    fn rule(
        &self,
        table: u32,
        index: u32,
        mask: &MatchParameters,
        value: &MatchParameters,
        change: impl FnOnce(&mut FlowEntry),
    ) {
        self.rig.rule(1, table, index, (mask, value), change);
    }

    fn to_queue(&self) -> impl FnOnce(&mut FlowEntry) + use<> {
        let tir = self.tir;
        move |entry| entry.targets = vec![FlowTarget::Tir(tir)]
    }

    fn counts(&self) -> crate::engine::FrameCounts {
        self.rig.lock().device(1).frame_counts()
    }
}

#[test]
fn a_frame_that_no_entry_takes_is_dropped_and_counted() {
    let mut bench = Bench::new();
    let (mask, value) = (parameters(|p| port_80(p, 0xffff)), parameters(|p| port_80(p, 80)));
    bench.rule(bench.table, 0, &mask, &value, bench.to_queue());
    bench.send(&udp4(&[1; 60]));
    bench.two.cq.expect_none();
    assert_eq!(bench.counts().missed, 1);
    bench.send(&tcp4(&[1; 60]));
    bench.two.expect(&tcp4(&[1; 60]));
}

#[test]
fn the_lowest_index_wins_whatever_was_made_first() {
    let mut bench = Bench::new();
    let any = MatchParameters::default();
    let tagged = |tag: u32, tir: u32| {
        move |entry: &mut FlowEntry| {
            entry.tag = tag;
            entry.targets = vec![FlowTarget::Tir(tir)];
        }
    };
    bench.rule(bench.table, 2, &any, &any, tagged(0x22_2222, bench.tir));
    bench.rule(bench.table, 1, &any, &any, tagged(0xab_cdef, bench.tir));
    bench.send(&plain(70));
    assert_eq!(bench.two.expect(&plain(70)).cqe.sop_drop_qpn.get(), 0xab_cdef);
    bench.rig.lock().device_mut(1).delete_flow_entry(NIC_RX, bench.table, 1).expect("an entry");
    bench.send(&plain(70));
    assert_eq!(bench.two.expect(&plain(70)).cqe.sop_drop_qpn.get(), 0x22_2222);
}

#[test]
fn a_rule_that_drops_counts_and_hides_those_behind() {
    let mut bench = Bench::new();
    let counter = bench.rig.lock().device_mut(1).create_flow_counter().expect("a counter");
    let any = MatchParameters::default();
    let mask = parameters(|p| _ = p.outer_headers_mut().set_smac_47_16(u32::MAX));
    let from = u32::from_be_bytes([SOURCE[0], SOURCE[1], SOURCE[2], SOURCE[3]]);
    let value = parameters(|p| _ = p.outer_headers_mut().set_smac_47_16(from));
    bench.rule(bench.table, 0, &mask, &value, |entry| {
        entry.drop = true;
        entry.counters = vec![counter];
    });
    bench.rule(bench.table, 1, &any, &any, bench.to_queue());
    bench.send(&plain(100));
    let mut other = plain(120);
    other[6] ^= 2;
    bench.send(&other);
    bench.send(&plain(60));
    bench.two.expect(&other);
    bench.two.cq.expect_none();
    assert_eq!(bench.counts().dropped, 2);
    let count = bench.rig.lock().device(1).flow_count(counter).expect("a counter");
    assert_eq!((count.packets, count.bytes), (2, 160));
}

#[test]
fn tables_lead_to_higher_tables_by_entry_and_by_miss() {
    let mut bench = Bench::new();
    let any = MatchParameters::default();
    let (by_entry, by_miss) = (bench.rig.table(1, 3), bench.rig.table(1, 5));
    let (mask, value) = (parameters(|p| port_80(p, 0xffff)), parameters(|p| port_80(p, 80)));
    bench.rule(bench.table, 0, &mask, &value, |entry| {
        entry.targets = vec![FlowTarget::Table(by_entry)];
        // Only the last table on the path sets the tag.
        entry.tag = 5;
    });
    bench.rule(by_miss, 0, &any, &any, bench.to_queue());
    bench.send(&udp4(&[1; 60]));
    bench.two.cq.expect_none();
    let set_miss = |table, next| bench.rig.lock().device_mut(1).set_flow_miss(NIC_RX, table, next);
    set_miss(bench.table, Some(by_miss)).expect("a table");
    bench.send(&udp4(&[1; 60]));
    bench.two.expect(&udp4(&[1; 60]));
    bench.send(&tcp4(&[1; 60]));
    bench.two.cq.expect_none();
    let set_miss = |table, next| bench.rig.lock().device_mut(1).set_flow_miss(NIC_RX, table, next);
    set_miss(by_entry, Some(by_miss)).expect("a table");
    // No table leads back or to its own level.
    assert!(matches!(set_miss(by_miss, Some(by_entry)), Err(Error::Invalid(_))));
    assert!(matches!(set_miss(by_entry, Some(by_entry)), Err(Error::Invalid(_))));
    bench.send(&tcp4(&[1; 60]));
    assert_eq!(bench.two.expect(&tcp4(&[1; 60])).cqe.sop_drop_qpn.get(), 0);
}

#[test]
fn a_frame_is_copied_to_every_destination() {
    let mut bench = Bench::new();
    let any = MatchParameters::default();
    let next = bench.rig.table(1, 1);
    bench.rule(next, 0, &any, &any, bench.to_queue());
    let tir = bench.tir;
    bench.rule(bench.table, 0, &any, &any, |entry| {
        entry.targets = vec![FlowTarget::Tir(tir), FlowTarget::Table(next), FlowTarget::Tir(tir)];
    });
    bench.send(&plain(77));
    for _ in 0..3 {
        bench.two.expect(&plain(77));
    }
    bench.two.cq.expect_none();
}

#[test]
fn a_hash_spreads_flows_and_keeps_each_on_one_queue() {
    let mut bench = Bench::new();
    let cqs: Vec<Cq> = (0..4).map(|_| bench.rig.cq(1, 5, 64)).collect();
    let mut rqs: Vec<Qp> =
        cqs.iter().map(|cq| bench.rig.rq(1, cq, ReceiveQueueConfig::default())).collect();
    for rq in &mut rqs {
        for _ in 0..8 {
            rq.post_receive(&[data(bench.two.received.at(0), 256, bench.two.received.key)]);
        }
    }
    let key = std::array::from_fn(|n| (n * 91 + 3) as u8);
    let selected = hash_fields::SRC_IP | hash_fields::L4_SPORT;
    let outer = HashFields { ipv6: false, udp: true, selected };
    let queues = [0, 1, 2, 3, 3, 2, 1, 0].map(|n: usize| rqs[n].qpn).to_vec();
    let table = bench.rig.lock().device_mut(1).create_rqt(queues.clone()).expect("a table");
    let config = crate::engine::TirConfig {
        target: TirTarget::Table(table),
        hash: HashConfig { toeplitz: true, key, outer, ..UNHASHED },
        ..bench.rig.direct(&rqs[0])
    };
    let tir = bench.rig.tir(1, config);
    bench.rig.everything_to(1, tir);
    let mut reached = [0; 4];
    for port in 1000..1010u16 {
        let mut frame = udp4(&[1; 60]);
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        let input = [&frame[26..30], &port.to_be_bytes()].concat();
        let hash = crate::frame::toeplitz::hash(&key, &input);
        let rqn = queues[hash as usize & 7];
        let chosen = rqs.iter().position(|rq| rq.qpn == rqn).expect("a queue");
        for _ in 0..2 {
            let before = cqs[chosen].peek_produced(&bench.rig);
            bench.send(&frame);
            assert_eq!(cqs[chosen].peek_produced(&bench.rig), before + 1);
            reached[chosen] += 1;
        }
        let last = cqs[chosen].peek_produced(&bench.rig) - 1;
        let entry = cqs[chosen].descriptor(last as usize);
        assert_eq!(entry[12..16], hash.to_be_bytes());
        assert_eq!(entry[16], 2 << 6 | 1 << 2, "UDP ports and IPv4 addresses");
    }
    assert_eq!(reached.iter().sum::<u32>(), 20);
    assert!(reached.iter().filter(|count| **count > 0).count() > 1, "{reached:?}");
    // The hash does not cover the other version of IP, so the first queue takes the packet.
    let before = cqs[0].peek_produced(&bench.rig);
    bench.send(&udp6(&[1; 60]));
    assert_eq!(cqs[0].peek_produced(&bench.rig), before + 1);
    // The queues of the table can change between frames.
    bench.rig.lock().device_mut(1).set_rqt(table, vec![rqs[2].qpn]).expect("a table");
    let before = cqs[2].peek_produced(&bench.rig);
    bench.send(&udp4(&[2; 60]));
    assert_eq!(cqs[2].peek_produced(&bench.rig), before + 1);
}

#[test]
fn a_transport_interface_takes_frames_of_its_own_domain_if_it_says_so() {
    let rig = rig(1);
    let mut nic = Nic::new(&rig, 0);
    nic.fill(8);
    let own = rig.lock().device(0).port(1).expect("a port").mac;
    let to = |mac: [u8; 6]| crate::frame::samples::ethernet(mac, 0x88b5, &[7; 60]);
    // The send queue is in domain 7.
    for (domain, own_frames, unicast, multicast) in [
        (7, 0, false, false),
        (7, self_lb_block::UNICAST, true, false),
        (7, self_lb_block::MULTICAST, false, true),
        (7, self_lb_block::UNICAST | self_lb_block::MULTICAST, true, true),
        (6, 0, true, true),
    ] {
        let config = crate::engine::TirConfig { domain, own_frames, ..rig.direct(&nic.rq) };
        let tir = rig.tir(0, config);
        rig.everything_to(0, tir);
        for (mac, heard) in [(own, unicast), (GROUP, multicast)] {
            nic.post(&to(mac));
            rig.run();
            nic.send_cq.expect();
            assert_eq!(nic.cq.poll().is_some(), heard, "{domain} {own_frames} {mac:02x?}");
        }
    }
}

#[test]
fn what_is_used_does_not_go() {
    let bench = Bench::new();
    let any = MatchParameters::default();
    let counter = bench.rig.lock().device_mut(1).create_flow_counter().expect("a counter");
    let next = bench.rig.table(1, 1);
    let tir = bench.tir;
    bench.rule(bench.table, 0, &any, &any, |entry| {
        entry.targets = vec![FlowTarget::Tir(tir), FlowTarget::Table(next)];
        entry.counters = vec![counter];
    });
    let (rq, table) = (bench.two.rq.qpn, bench.table);
    let mut engine = bench.rig.lock();
    let device = engine.device_mut(1);
    let rqt = device.create_rqt(vec![rq]).expect("a table");
    assert_eq!(device.destroy_rq(rq), Err(Error::Busy));
    assert_eq!(device.destroy_tir(tir), Err(Error::Busy));
    assert_eq!(device.destroy_flow_table(NIC_RX, next), Err(Error::Busy));
    assert_eq!(device.destroy_flow_table(NIC_RX, table), Err(Error::Busy));
    assert_eq!(device.destroy_flow_group(NIC_RX, table, 1), Err(Error::Busy));
    assert_eq!(device.destroy_flow_counter(counter), Err(Error::Busy));
    device.delete_flow_entry(NIC_RX, table, 0).expect("an entry");
    device.destroy_flow_group(NIC_RX, table, 1).expect("a group");
    device.destroy_flow_counter(counter).expect("a counter");
    device.destroy_flow_table(NIC_RX, table).expect("a table");
    device.destroy_flow_table(NIC_RX, next).expect("a table");
    device.destroy_tir(tir).expect("a TIR");
    assert_eq!(device.destroy_rq(rq), Err(Error::Busy), "the table of queues is left");
    device.destroy_rqt(rqt).expect("a table");
}

#[test]
fn tables_that_cannot_be_are_refused() {
    let bench = Bench::new();
    let mut engine = bench.rig.lock();
    let device = engine.device_mut(1);
    let any = MatchParameters::default();
    let mut group = |first, last| {
        device.create_flow_group(NIC_RX, bench.table, FlowGroup::new(first, last, 0, &any))
    };
    assert!(group(1, 2).is_ok());
    for (first, last) in [(2, 3), (0, 1), (0, 3), (1, 1), (3, 2), (3, 4)] {
        assert!(matches!(group(first, last), Err(Error::Invalid(_))), "{first} to {last}");
    }
    let entry = |group| FlowEntry {
        group,
        value: Box::new(any),
        tag: 0,
        drop: true,
        targets: Vec::new(),
        counters: Vec::new(),
    };
    let mut set = |index, entry| device.set_flow_entry(NIC_RX, bench.table, index, entry);
    assert!(matches!(set(0, entry(1)), Err(Error::Invalid(_))));
    assert_eq!(set(1, entry(2)), Err(Error::NotFound));
    let astray = FlowEntry { targets: vec![FlowTarget::Tir(999)], ..entry(1) };
    assert_eq!(set(1, astray), Err(Error::NotFound));
    let uncounted = FlowEntry { counters: vec![999], ..entry(1) };
    assert_eq!(set(1, uncounted), Err(Error::NotFound));
    assert_eq!(set(1, entry(1)), Ok(()));
    let large = FlowTableConfig { kind: NIC_RX, level: 0, log_size: 25, miss: None };
    assert!(matches!(device.create_flow_table(large), Err(Error::Invalid(_))));
    // A table of another kind does not exist here.
    assert_eq!(device.set_flow_root(5, Some(bench.table)), Err(Error::NotFound));
}

#[test]
fn many_tables_that_fork_end() {
    let mut bench = Bench::new();
    let any = MatchParameters::default();
    // Each table sends two copies to the next: 2 to the 20th in total.
    let tables: Vec<u32> = (1..=20).map(|level| bench.rig.table(1, level)).collect();
    for (table, next) in tables.iter().zip(&tables[1..]) {
        bench.rule(*table, 0, &any, &any, |entry| {
            entry.targets = vec![FlowTarget::Table(*next); 2];
        });
    }
    bench.rule(bench.table, 0, &any, &any, |entry| {
        entry.targets = vec![FlowTarget::Table(tables[0])];
    });
    bench.send(&plain(60));
    assert!(bench.counts().missed <= 1 << 13);
}
