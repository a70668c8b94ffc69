//! Copies of the frames that a port receives and sends.

use mlx5_prm::cmd::flow::{FlowTableType, MatchParameters};
use mlx5_prm::ethernet::{checksum_flags, insert};

use super::*;
use crate::Fault;
use crate::engine::{FlowEntry, FlowGroup, FlowTableConfig, FlowTarget, TirConfig};
use crate::frame::headers::{C_TAG, Headers};
use crate::frame::samples::{ethernet, ipv4, plain, tagged, tcp, udp4};

/// Gives a transport interface copies of the frames that pass one kind of flow table. Returns the
/// table.
fn sniff(rig: &Rig, device: usize, kind: FlowTableType, tir: u32) -> u32 {
    let mut engine = rig.lock();
    let this = engine.device_mut(device);
    let kind = kind.0 as u8;
    let config = FlowTableConfig { kind, level: 0, log_size: 0, miss: None };
    let table = this.create_flow_table(config).expect("a table");
    let any = MatchParameters::default();
    let group = this.create_flow_group(kind, table, FlowGroup::new(0, 0, 0, &any));
    let entry = FlowEntry {
        group: group.expect("a group"),
        value: Box::new(any),
        tag: 0xa_bcde,
        drop: false,
        targets: vec![FlowTarget::Tir(tir)],
        counters: Vec::new(),
    };
    this.set_flow_entry(kind, table, 0, entry).expect("an entry");
    this.set_flow_root(kind, Some(table)).expect("a root");
    table
}

/// Two devices. At the first one, `sent` gets copies of the frames that it sends, `received` of
/// those that it receives.
struct Bench {
    rig: Rig,
    one: Nic,
    two: Nic,
    sent: Nic,
    received: Nic,
    tables: [u32; 2],
}

const KINDS: [FlowTableType; 2] = [FlowTableType::SNIFFER_TX, FlowTableType::SNIFFER_RX];

impl Bench {
    fn new() -> Self {
        let rig = rig(2);
        let (mut sent, mut received) = (Nic::new(&rig, 0), Nic::new(&rig, 0));
        let tables = [(KINDS[0], &mut sent), (KINDS[1], &mut received)].map(|(kind, nic)| {
            nic.fill(8);
            // It is in the sender's domain and does not accept the sender's frames when they loop
            // back.
            let config = TirConfig { own_frames: 0, domain: 7, ..rig.direct(&nic.rq) };
            sniff(&rig, 0, kind, rig.tir(0, config))
        });
        let (mut one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
        one.fill(8);
        two.fill(8);
        Self { rig, one, two, sent, received, tables }
    }

    #[track_caller]
    fn nothing_more(&mut self) {
        for nic in [&mut self.one, &mut self.two, &mut self.sent, &mut self.received] {
            nic.cq.expect_none();
        }
    }
}

#[test]
fn either_direction_is_copied_and_goes_where_it_went_without() {
    let mut bench = Bench::new();
    bench.one.post(&plain(60));
    bench.rig.run();
    // A frame to a group loops back, too.
    bench.one.expect(&plain(60));
    bench.two.expect(&plain(60));
    let copy = bench.sent.expect(&plain(60));
    assert_eq!(copy.cqe.sop_drop_qpn.get(), 0xa_bcde);
    bench.nothing_more();
    bench.two.post(&udp4(&[1; 60]));
    bench.rig.run();
    for nic in [&mut bench.one, &mut bench.two, &mut bench.received] {
        nic.expect(&udp4(&[1; 60]));
    }
    bench.nothing_more();
    // A copy of a sent frame does not count as received.
    let counts = bench.rig.lock().device(0).frame_counts();
    assert_eq!((counts.sent, counts.received), (1, 2));
}

#[test]
fn who_takes_the_frames_of_its_own_domain_gets_those_that_come_back_twice() {
    let mut bench = Bench::new();
    let tir = bench.rig.tir(0, TirConfig { domain: 7, ..bench.rig.direct(&bench.received.rq) });
    for kind in KINDS {
        sniff(&bench.rig, 0, kind, tir);
    }
    bench.one.post(&plain(60));
    bench.rig.run();
    bench.received.expect(&plain(60));
    bench.received.expect(&plain(60));
    bench.one.expect(&plain(60));
    bench.two.expect(&plain(60));
    bench.nothing_more();
}

#[test]
fn the_copy_of_what_is_sent_is_the_frame_that_the_device_made() {
    let mut bench = Bench::new();
    let frame = udp4(b"data");
    let segment = EthernetSegment {
        inline_size_or_insert: insert::VLAN.into(),
        inline_start_or_tag: 0x6123u16.to_be_bytes(),
        ..EthernetSegment::default()
    };
    // The wire pads the frames, after it has lost one and changed one.
    bench.rig.lock().device_mut(0).inject(Fault::DropPackets(1));
    bench.rig.lock().device_mut(0).inject(Fault::CorruptPackets(1));
    for _ in 0..2 {
        bench.one.post_with(Opcode::Send, &segment, &frame);
        bench.rig.run();
        bench.sent.expect(&tagged(&frame, C_TAG, 0x6123));
    }
    bench.two.take();
    bench.sent.cq.expect_none();
    let payload = [0x5a; 300];
    let packet = ethernet([2, 0, 0, 0, 0, 9], 0x0800, &ipv4(6, &tcp(0x18, &payload)));
    let flags = checksum_flags::L3 | checksum_flags::L4;
    let segment = EthernetSegment { mss: 100.into(), ..checksums(flags) };
    bench.one.post_inline(Opcode::Tso, segment, &packet[..54], &payload);
    bench.rig.run();
    for _ in 0..3 {
        let (completion, bytes) = bench.sent.take();
        assert_eq!(completion.cqe.hds_ip_ext, 7, "its sums are right");
        let transport = Headers::of(&bytes).expect("a frame").outer.transport.expect("TCP");
        assert_eq!(bytes[transport.end..], payload[..100]);
    }
    bench.sent.cq.expect_none();
}

#[test]
fn what_does_not_leave_the_device_is_not_copied() {
    let mut bench = Bench::new();
    bench.one.post(&plain(1519));
    bench.rig.run();
    bench.rig.lock().device_mut(0).set_port_active(1, false);
    bench.one.post(&plain(60));
    bench.rig.run();
    assert_eq!(bench.rig.lock().device(0).frame_counts().not_sent, 2);
    bench.nothing_more();
}

#[test]
fn a_table_that_ends_copies_no_more() {
    let mut bench = Bench::new();
    for (kind, table) in KINDS.into_iter().zip(bench.tables) {
        let mut engine = bench.rig.lock();
        let this = engine.device_mut(0);
        let kind = kind.0 as u8;
        this.delete_flow_entry(kind, table, 0).expect("an entry");
        this.destroy_flow_group(kind, table, 1).expect("a group");
        // Linux never removes the root before it destroys the table.
        this.destroy_flow_table(kind, table).expect("a table");
    }
    bench.one.post(&plain(60));
    bench.two.post(&plain(70));
    bench.rig.run();
    for nic in [&mut bench.one, &mut bench.two] {
        nic.expect(&plain(60));
        nic.expect(&plain(70));
    }
    bench.nothing_more();
}
