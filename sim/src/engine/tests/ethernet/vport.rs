//! Filtering of frames for a function. Its flow tables decide; for a virtual function its vport
//! context decides first.

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::CommandStatus;
use mlx5_prm::cmd::ethernet::ModifyNicVportContextIn;
use mlx5_prm::cmd::flow::MatchParameters;
use mlx5_prm::cmd::port::AllowedListType;

use super::*;
use crate::engine::tests::rig::ethernet::{NIC_RX, parameters};
use crate::engine::{FlowTarget, FrameCounts, FramesTo, Mac};
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

/// Match parameters for frames without a tag, or with the tag of a VLAN.
fn vlan(tagged: bool, vlan: u32) -> MatchParameters {
    parameters(|parameters| {
        parameters.outer_headers_mut().set_cvlan_tag(tagged).set_first_vid(vlan);
    })
}

impl Bench {
    fn new() -> Self {
        Self::with(SimConfig::new())
    }

    /// The second device is a virtual function, whose tables take every frame that reaches them.
    fn virtual_function() -> Self {
        let bench = Self::with(SimConfig::new().vport_filter(true));
        let any = MatchParameters::default();
        let next = FlowTarget::Table(bench.addresses);
        bench.rule(bench.vlans, 1, (&any, &any), next);
        bench.rule(bench.addresses, 2, (&any, &any), FlowTarget::Tir(bench.tir));
        bench
    }

    fn with(config: SimConfig) -> Self {
        let rig = Rig::new(config.ports([PortConfig::ROCE]).devices(2));
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

    fn counts(&self) -> FrameCounts {
        self.rig.lock().device(1).frame_counts()
    }

    /// Whether the second device takes a frame. One that it does not take is counted by the filter
    /// that rejected it.
    fn takes(&mut self, frame: &[u8]) -> bool {
        let before = self.counts();
        self.one.post(frame);
        self.rig.run();
        self.one.send_cq.expect();
        let now = self.counts();
        let [missed, filtered] = [now.missed - before.missed, now.filtered - before.filtered];
        let taken = self.two.cq.poll().is_some();
        if taken {
            self.two.fill(1);
        }
        assert_eq!(missed + filtered, u64::from(!taken));
        // A virtual function's tables take everything that reaches them.
        let by_context = self.rig.lock().device(1).config().vport_filter;
        assert_eq!(missed, u64::from(!taken && !by_context));
        taken
    }

    /// Whether the second device receives a frame that it sends itself.
    fn hears_itself(&mut self, mac: Mac) -> bool {
        let before = self.counts().received;
        self.two.post(&to(mac));
        self.rig.run();
        self.two.send_cq.expect();
        if self.two.cq.poll().is_some() {
            self.two.fill(1);
        }
        self.counts().received - before == 1
    }

    fn promiscuous(&mut self, unicast: bool, multicast: bool, all: bool) {
        let change = |input: &mut ModifyNicVportContextIn| {
            input.set_select_promisc(true);
            let context = input.nic_vport_context_mut();
            context.set_promisc_uc(unicast).set_promisc_mc(multicast).set_promisc_all(all);
        };
        self.write(change, &[]);
    }

    /// Gives the second device's port the address `FOREIGN`.
    fn move_to_foreign(&mut self) {
        let move_to = |input: &mut ModifyNicVportContextIn| {
            input.set_select_permanent_address(true);
            let address = input.nic_vport_context_mut().permanent_address_mut();
            address.set_mac_addr_47_32(0x0200).set_mac_addr_31_0(0x77);
        };
        self.write(move_to, &[]);
    }

    /// Writes the vport context, as the second device's driver.
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
    // All groups, broadcasts included.
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
    // The filter is off: any tag passes.
    bench.rule(bench.vlans, 2, (&vlan(true, 0), &vlan(true, 0)), next);
    assert_eq!(heard(&mut bench), [true; 3]);
    bench.without(bench.vlans, 2);
    bench.without(bench.vlans, 1);
    assert_eq!(heard(&mut bench), [true, false, false]);
    // After the VLAN table the address table still decides.
    bench.rule(bench.vlans, 1, (&vlan(true, 0xfff), &vlan(true, 5)), next);
    assert!(!bench.takes(&tagged(&to(FOREIGN), C_TAG, 5)));
}

#[test]
fn what_a_driver_says_of_a_physical_function_decides_nothing_about_frames_from_the_wire() {
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
    bench.promiscuous(true, true, true);
    assert_eq!(heard(&mut bench), by_tables, "promiscuous");
    // A VLAN in the list is not one in a table.
    bench.list(AllowedListType::VLAN, &[[0, 5, 0, 0, 0, 0]]);
    let frame = tagged(&to(bench.own), C_TAG, 5);
    assert!(!bench.takes(&frame));
}

/// Here the list has an effect: nothing else defines which of its sent frames are for the function
/// itself.
#[test]
fn a_function_hears_itself_at_the_addresses_that_it_has_listed() {
    let mut bench = Bench::new();
    let own = bench.own;
    let heard = |bench: &mut Bench| [own, FOREIGN].map(|mac| bench.hears_itself(mac));
    assert_eq!(heard(&mut bench), [true, false]);
    bench.list(AllowedListType::UNICAST, &[own, FOREIGN]);
    assert_eq!(heard(&mut bench), [true, true]);
    bench.list(AllowedListType::UNICAST, &[own]);
    assert_eq!(heard(&mut bench), [true, false]);
    bench.list(AllowedListType::UNICAST, &[]);
    bench.move_to_foreign();
    assert_eq!(heard(&mut bench), [false, true]);
}

#[test]
fn a_virtual_function_gets_frames_for_the_addresses_and_groups_that_are_listed() {
    let mut bench = Bench::virtual_function();
    let own = bench.own;
    let heard = |bench: &mut Bench| {
        [own, FOREIGN, GROUP, OTHER_GROUP, ALL].map(|mac| bench.takes(&to(mac)))
    };
    assert_eq!(heard(&mut bench), [false; 5], "nothing is listed, nor its own address");
    bench.list(AllowedListType::UNICAST, &[own, FOREIGN]);
    assert_eq!(heard(&mut bench), [true, true, false, false, false]);
    bench.list(AllowedListType::MULTICAST, &[ALL, GROUP]);
    assert_eq!(heard(&mut bench), [true, true, true, false, true]);
    // A list replaces the one before it.
    bench.list(AllowedListType::UNICAST, &[own]);
    bench.list(AllowedListType::MULTICAST, &[OTHER_GROUP]);
    assert_eq!(heard(&mut bench), [true, false, false, true, false]);
    bench.move_to_foreign();
    assert_eq!(heard(&mut bench), [true, false, false, true, false], "the list is as it was");
    // An address in the list of the other kind has no effect.
    bench.list(AllowedListType::UNICAST, &[GROUP]);
    bench.list(AllowedListType::MULTICAST, &[own]);
    assert_eq!(heard(&mut bench), [false; 5]);
}

#[test]
fn a_promiscuous_virtual_function_gets_frames_for_others() {
    let mut bench = Bench::virtual_function();
    let heard =
        |bench: &mut Bench| [bench.own, FOREIGN, GROUP, ALL].map(|mac| bench.takes(&to(mac)));
    for (flags, expected) in [
        ([true, false, false], [true, true, false, false]),
        ([false, true, false], [false, false, true, true]),
        ([false, false, true], [true, true, true, true]),
        ([false, false, false], [false, false, false, false]),
    ] {
        let [unicast, multicast, all] = flags;
        bench.promiscuous(unicast, multicast, all);
        assert_eq!(heard(&mut bench), expected, "unicast, multicast, all: {flags:?}");
    }
}

/// No Linux switch reads the list.
#[test]
fn the_list_of_vlans_keeps_no_frame_from_a_virtual_function() {
    let mut bench = Bench::virtual_function();
    let [untagged, five] = [to(bench.own), tagged(&to(bench.own), C_TAG, 5)];
    bench.list(AllowedListType::UNICAST, &[bench.own]);
    for list in [&[][..], &[[0, 6, 0, 0, 0, 0]]] {
        bench.list(AllowedListType::VLAN, list);
        assert!(bench.takes(&untagged) && bench.takes(&five));
    }
    // A tag makes no foreign address the function's own.
    assert!(!bench.takes(&tagged(&to(FOREIGN), C_TAG, 5)));
}

/// The switch is between the port and the function.
#[test]
fn what_is_kept_from_a_virtual_function_counts_at_its_port_and_nowhere_behind() {
    let mut bench = Bench::virtual_function();
    let before = bench.counts();
    assert!(!bench.takes(&to(FOREIGN)) && !bench.takes(&to(GROUP)) && !bench.takes(&to(ALL)));
    let now = bench.counts();
    assert_eq!(now.filtered - before.filtered, 3);
    let for_whom = |to: FramesTo| [to.one, to.group, to.all].map(|traffic| traffic.frames);
    assert_eq!(for_whom(now.from_wire), [1; 3]);
    assert_eq!(for_whom(now.received_to), [0; 3]);
    assert_eq!((now.received, now.missed, now.dropped), (0, 0, 0));
}

/// The switch passes frames on, and then the tables decide as they do without a switch.
#[test]
fn what_reaches_a_virtual_function_still_needs_an_entry() {
    let mut bench = Bench::virtual_function();
    bench.without(bench.addresses, 2);
    bench.list(AllowedListType::MULTICAST, &[GROUP]);
    let before = bench.counts();
    bench.one.post(&to(GROUP));
    bench.rig.run();
    let now = bench.counts();
    assert_eq!((now.missed - before.missed, now.filtered), (1, 0));
    assert!(bench.two.cq.poll().is_none());
}

/// On Linux a promiscuous function receives the frames from the wire
/// (`esw_fdb_set_vport_promisc_rule`), and those to all groups from any sender
/// (`esw_fdb_set_vport_allmulti_rule`).
#[test]
fn a_virtual_function_hears_itself_in_the_groups_that_it_has_listed() {
    let mut bench = Bench::virtual_function();
    let own = bench.own;
    let heard = |bench: &mut Bench| [own, FOREIGN, GROUP, ALL].map(|mac| bench.hears_itself(mac));
    assert_eq!(heard(&mut bench), [true, false, false, false]);
    bench.list(AllowedListType::MULTICAST, &[GROUP]);
    assert_eq!(heard(&mut bench), [true, false, true, false]);
    for flags in [[false, true, false], [false, false, true]] {
        let [unicast, multicast, all] = flags;
        bench.promiscuous(unicast, multicast, all);
        assert_eq!(heard(&mut bench), [true, false, true, true], "{flags:?}");
    }
    // The switch has rejected none of these frames.
    assert_eq!(bench.counts().filtered, 0);
    bench.rig.lock().device_mut(1).vport_mut().no_multicast_loopback = true;
    assert_eq!(heard(&mut bench), [true, false, false, false]);
}
