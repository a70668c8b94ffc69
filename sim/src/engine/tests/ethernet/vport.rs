//! Whose frames a function takes: what decides it is its flow tables, and not its context.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::ethernet::ModifyNicVportContextIn;
use mlx5_prm::cmd::flow::MatchParameters;
use mlx5_prm::cmd::port::AllowedListType;

use super::*;
use crate::engine::tests::rig::ethernet::{NIC_RX, parameters};
use crate::engine::{FlowTarget, Mac};
use crate::firmware::Firmware;
use crate::frame::headers::C_TAG;
use crate::frame::samples::{self, GROUP, tagged};

const OTHER_GROUP: Mac = [0x01, 0x50, 0x56, 0x19, 0x20, 0xa8];
const FOREIGN: Mac = [0x02, 0, 0, 0, 0, 0x77];
const ALL: Mac = [0xff; 6];

/// One device that sends, and one whose tables are as mlx5e has them: VLANs first, then addresses.
struct Bench {
    rig: Rig,
    one: Nic,
    two: Nic,
    vlans: u32,
    addresses: u32,
    tir: u32,
    own: Mac,
    firmware: Firmware,
}

fn to(mac: Mac) -> Vec<u8> {
    samples::ethernet(mac, 0x88b5, &[0x33; 60])
}

fn destination(mac: Mac) -> MatchParameters {
    let [a, b, c, d, e, f] = mac;
    parameters(|parameters| {
        let headers = parameters.outer_headers_mut();
        headers.set_dmac_47_16(u32::from_be_bytes([a, b, c, d]));
        headers.set_dmac_15_0(u16::from_be_bytes([e, f]).into());
    })
}

/// Frames without a tag, or with that of a VLAN.
fn vlan(tagged: bool, vlan: u32) -> MatchParameters {
    parameters(|parameters| {
        parameters.outer_headers_mut().set_cvlan_tag(tagged).set_first_vid(vlan);
    })
}

impl Bench {
    fn new() -> Self {
        let rig = rig(2);
        let (one, mut two) = (Nic::new(&rig, 0), Nic::new(&rig, 1));
        two.fill(8);
        let tir = rig.tir(1, rig.direct(&two.rq));
        let (vlans, addresses) = (rig.table(1, 0), rig.table(1, 1));
        rig.root(1, vlans);
        let own = rig.lock().device(1).port(1).expect("a port").mac;
        let bench = Self { rig, one, two, vlans, addresses, tir, own, firmware: Firmware::new() };
        bench.rule(vlans, 0, (&vlan(true, 0), &vlan(false, 0)), FlowTarget::Table(addresses));
        bench.address(0, own);
        bench.address(1, ALL);
        bench
    }

    fn rule(
        &self,
        table: u32,
        index: u32,
        matched: (&MatchParameters, &MatchParameters),
        target: FlowTarget,
    ) {
        self.rig.rule(1, table, index, matched, |entry| entry.targets = vec![target]);
    }

    fn address(&self, index: u32, mac: Mac) {
        let matched = (&destination(ALL), &destination(mac));
        self.rule(self.addresses, index, matched, FlowTarget::Tir(self.tir));
    }

    fn without(&self, table: u32, index: u32) {
        let mut engine = self.rig.lock();
        let this = engine.device_mut(1);
        let group = this.flow_entry(NIC_RX, table, index).expect("an entry").group;
        this.delete_flow_entry(NIC_RX, table, index).expect("an entry");
        this.destroy_flow_group(NIC_RX, table, group).expect("a group");
    }

    /// Whether the second device takes a frame. One that it does not take is counted.
    fn takes(&mut self, frame: &[u8]) -> bool {
        let missed = |rig: &Rig| rig.lock().device(1).frame_counts().missed;
        let before = missed(&self.rig);
        self.one.post(frame);
        self.rig.run();
        self.one.send_cq.expect();
        let lost = missed(&self.rig) - before;
        match self.two.cq.poll() {
            Some(_) => {
                assert_eq!(lost, 0);
                self.two.fill(1);
                true
            }
            None => {
                assert_eq!(lost, 1);
                false
            }
        }
    }

    /// Has the second device's driver write its context.
    fn write(&mut self, change: impl FnOnce(&mut ModifyNicVportContextIn), list: &[Mac]) {
        let mut input = ModifyNicVportContextIn::request();
        input.nic_vport_context_mut().set_allowed_list_size(list.len() as u32);
        change(&mut input);
        let entries: Vec<u8> = list.iter().flat_map(|mac| [&[0, 0], &mac[..]].concat()).collect();
        let input = [input.as_bytes(), &entries[..]].concat();
        let mut engine = self.rig.lock();
        let status = self.firmware.execute(engine.device_mut(1), &input, &mut [0; 16]);
        assert_eq!(status, CommandStatus::OK);
    }

    fn list(&mut self, kind: AllowedListType, list: &[Mac]) {
        let change = |input: &mut ModifyNicVportContextIn| {
            input.set_select_addresses_list(true);
            input.nic_vport_context_mut().set_allowed_list_type(kind.0);
        };
        self.write(change, list);
    }
}

#[test]
fn a_group_is_heard_while_there_is_an_entry_for_it() {
    let mut bench = Bench::new();
    let heard = |bench: &mut Bench| {
        [bench.own, ALL, GROUP, OTHER_GROUP, FOREIGN].map(|mac| bench.takes(&to(mac)))
    };
    assert_eq!(heard(&mut bench), [true, true, false, false, false]);
    bench.address(2, GROUP);
    assert_eq!(heard(&mut bench), [true, true, true, false, false]);
    bench.without(bench.addresses, 2);
    assert_eq!(heard(&mut bench), [true, true, false, false, false]);
    // All groups, which all stations are one of.
    let groups = destination([1, 0, 0, 0, 0, 0]);
    bench.rule(bench.addresses, 2, (&groups, &groups), FlowTarget::Tir(bench.tir));
    assert_eq!(heard(&mut bench), [true, true, true, true, false]);
    bench.without(bench.addresses, 2);
    let any = MatchParameters::default();
    bench.rule(bench.addresses, 3, (&any, &any), FlowTarget::Tir(bench.tir));
    assert_eq!(heard(&mut bench), [true; 5]);
}

#[test]
fn a_vlan_is_heard_while_there_is_an_entry_for_it() {
    let mut bench = Bench::new();
    let frame = to(bench.own);
    let heard = |bench: &mut Bench| {
        let [five, six] = [5, 6].map(|vlan| bench.takes(&tagged(&frame, C_TAG, vlan)));
        [bench.takes(&frame), five, six]
    };
    assert_eq!(heard(&mut bench), [true, false, false]);
    let next = FlowTarget::Table(bench.addresses);
    bench.rule(bench.vlans, 1, (&vlan(true, 0xfff), &vlan(true, 5)), next);
    assert_eq!(heard(&mut bench), [true, true, false]);
    // The filter off: any tag.
    bench.rule(bench.vlans, 2, (&vlan(true, 0), &vlan(true, 0)), next);
    assert_eq!(heard(&mut bench), [true; 3]);
    bench.without(bench.vlans, 2);
    bench.without(bench.vlans, 1);
    assert_eq!(heard(&mut bench), [true, false, false]);
    // Behind the VLANs the addresses decide still.
    bench.rule(bench.vlans, 1, (&vlan(true, 0xfff), &vlan(true, 5)), next);
    assert!(!bench.takes(&tagged(&to(FOREIGN), C_TAG, 5)));
}

#[test]
fn what_a_driver_says_of_the_function_decides_nothing_about_frames_from_the_wire() {
    let mut bench = Bench::new();
    bench.address(2, GROUP);
    let heard = |bench: &mut Bench| {
        [bench.own, GROUP, OTHER_GROUP, FOREIGN].map(|mac| bench.takes(&to(mac)))
    };
    let by_tables = [true, true, false, false];
    assert_eq!(heard(&mut bench), by_tables, "lists that were never written");
    bench.list(AllowedListType::UNICAST, &[FOREIGN]);
    bench.list(AllowedListType::MULTICAST, &[ALL, OTHER_GROUP]);
    assert_eq!(heard(&mut bench), by_tables, "lists that have others");
    bench.write(
        |input| {
            input.set_select_promisc(true);
            let context = input.nic_vport_context_mut();
            context.set_promisc_uc(true).set_promisc_mc(true).set_promisc_all(true);
        },
        &[],
    );
    assert_eq!(heard(&mut bench), by_tables, "promiscuous");
    // A VLAN in the list is none in a table.
    bench.list(AllowedListType::VLAN, &[[0, 5, 0, 0, 0, 0]]);
    let frame = tagged(&to(bench.own), C_TAG, 5);
    assert!(!bench.takes(&frame));
}

/// Here the list has an effect: nothing else says which of the frames that a function sends are its own.
#[test]
fn a_function_hears_itself_at_the_addresses_that_it_has_listed() {
    let mut bench = Bench::new();
    let heard = |bench: &mut Bench, mac| {
        let before = bench.rig.lock().device(1).frame_counts().received;
        bench.two.post(&to(mac));
        bench.rig.run();
        bench.two.send_cq.expect();
        bench.rig.lock().device(1).frame_counts().received - before == 1
    };
    let own = bench.own;
    assert_eq!([own, FOREIGN].map(|mac| heard(&mut bench, mac)), [true, false]);
    bench.list(AllowedListType::UNICAST, &[own, FOREIGN]);
    assert_eq!([own, FOREIGN].map(|mac| heard(&mut bench, mac)), [true, true]);
    bench.list(AllowedListType::UNICAST, &[own]);
    assert_eq!([own, FOREIGN].map(|mac| heard(&mut bench, mac)), [true, false]);
    let move_to = |input: &mut ModifyNicVportContextIn| {
        input.set_select_permanent_address(true);
        let address = input.nic_vport_context_mut().permanent_address_mut();
        address.set_mac_addr_47_32(0x0200).set_mac_addr_31_0(0x77);
    };
    bench.list(AllowedListType::UNICAST, &[]);
    bench.write(move_to, &[]);
    assert_eq!([own, FOREIGN].map(|mac| heard(&mut bench, mac)), [false, true]);
}
