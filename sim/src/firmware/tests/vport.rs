//! The function's context: lists, promiscuous flags, its own address.

use mlx5_prm::cmd::ethernet::ModifyNicVportContextIn;
use mlx5_prm::cmd::hca::TeardownHcaIn;
use mlx5_prm::cmd::port::{
    AllowedListType, NicVportContext, QueryNicVportContextIn, QueryNicVportContextOut,
    QueryVnicEnvIn,
};
use mlx5_prm::cmd::{CommandInput, CommandOpcode, CommandStatus};
use mlx5_prm::fields::get_bits;

use super::{Rig, refused};
use crate::engine::Mac;
use crate::firmware::syndrome;
use crate::{PortConfig, SimConfig};

const OK: (CommandStatus, u32) = (CommandStatus::OK, 0);
const BAD_VALUE: (CommandStatus, u32) = (CommandStatus::BAD_PARAM_ERR, syndrome::INVALID_VALUE);
const NO_SWITCH: (CommandStatus, u32) = (CommandStatus::BAD_PARAM_ERR, syndrome::NO_SWITCH);

fn ethernet() -> Rig {
    Rig::new(SimConfig::new().ports([PortConfig::ROCE]))
}

/// Makes `count` addresses, all different.
fn macs(count: usize, first: u8) -> Vec<Mac> {
    let address = |n: u32| {
        let [_, b, c, d] = n.to_be_bytes();
        [first, 0x10, 0x20, b, c, d]
    };
    (0..count as u32).map(address).collect()
}

/// Entries as a driver writes them.
fn mac_entries(macs: &[Mac]) -> Vec<u8> {
    macs.iter().flat_map(|mac| [&[0, 0], &mac[..]].concat()).collect()
}

fn vlan_entries(vlans: &[u16]) -> Vec<u8> {
    vlans.iter().flat_map(|vlan| [&[0, 0], &vlan.to_be_bytes()[..], &[0; 4]].concat()).collect()
}

/// Writes a list of `count` entries.
fn write(
    rig: &mut Rig,
    kind: AllowedListType,
    count: usize,
    entries: &[u8],
) -> (CommandStatus, u32) {
    let mut input = ModifyNicVportContextIn::request();
    input.set_select_addresses_list(true);
    let context = input.nic_vport_context_mut();
    context.set_allowed_list_type(kind.0).set_allowed_list_size(count as u32);
    rig.raw(&[input.as_bytes(), entries].concat(), &mut [0; 16])
}

/// Makes the command set the function's own address.
fn own_address(input: &mut ModifyNicVportContextIn, high: u32, low: u32) {
    let context = input.set_select_permanent_address(true).nic_vport_context_mut();
    context.permanent_address_mut().set_mac_addr_47_32(high).set_mac_addr_31_0(low);
}

/// Reads the context, and `room` bytes of the list after it.
fn read(rig: &mut Rig, kind: AllowedListType, room: usize) -> (NicVportContext, Vec<u8>) {
    let mut input = QueryNicVportContextIn::request();
    input.set_allowed_list_type(kind.0);
    let mut answer = vec![0xee; QueryNicVportContextOut::BYTES + room];
    assert_eq!(rig.raw(input.as_bytes(), &mut answer), OK);
    let (out, list) = QueryNicVportContextOut::split_from(&answer).expect("an answer");
    let context = *out.nic_vport_context();
    assert_eq!(context.allowed_list_type(), kind.0, "what was asked for");
    (context, list.to_vec())
}

/// Reads the whole of a list.
fn list(rig: &mut Rig, kind: AllowedListType) -> Vec<u8> {
    let (context, bytes) = read(rig, kind, 8 * 5000);
    let (list, behind) = bytes.split_at(8 * context.allowed_list_size() as usize);
    assert!(behind.iter().all(|byte| *byte == 0));
    list.to_vec()
}

#[test]
fn each_list_is_returned_as_it_was_written_and_no_other_changes() {
    let mut rig = ethernet();
    let all = [AllowedListType::UNICAST, AllowedListType::MULTICAST, AllowedListType::VLAN];
    let entries = [
        mac_entries(&macs(3, 0x02)),
        mac_entries(&[&[[0xff; 6]], &macs(4, 0x33)[..]].concat()),
        vlan_entries(&[0, 5, 0xfff]),
    ];
    assert_eq!(all.map(|kind| list(&mut rig, kind)), [const { Vec::new() }; 3]);
    for (kind, entries) in all.into_iter().zip(&entries) {
        assert_eq!(write(&mut rig, kind, entries.len() / 8, entries), OK);
    }
    assert_eq!(all.map(|kind| list(&mut rig, kind)), entries);
    // A list replaces the one before; bytes after its end are ignored.
    let [unicast, multicast, vlans] = &entries;
    assert_eq!(write(&mut rig, AllowedListType::MULTICAST, 1, &multicast[8..]), OK);
    assert_eq!(list(&mut rig, AllowedListType::MULTICAST), multicast[8..16]);
    assert_eq!(write(&mut rig, AllowedListType::VLAN, 0, vlans), OK);
    assert_eq!(list(&mut rig, AllowedListType::VLAN), [0; 0]);
    assert_eq!(&list(&mut rig, AllowedListType::UNICAST), unicast);
    // A VLAN stands in the last bits of the first word (`mlx5_ifc_vlan_layout_bits`).
    assert_eq!(write(&mut rig, AllowedListType::VLAN, 3, vlans), OK);
    let bytes = list(&mut rig, AllowedListType::VLAN);
    assert_eq!([0, 1, 2].map(|place| get_bits(&bytes, place * 64 + 0x14, 12)), [0, 5, 0xfff]);
}

/// Linux queries the size with room for as many as the capabilities allow, or for none.
#[test]
fn an_answer_has_as_much_of_a_list_as_there_is_room_for_and_says_how_long_it_is() {
    let mut rig = ethernet();
    let entries = mac_entries(&macs(5, 0x01));
    assert_eq!(write(&mut rig, AllowedListType::MULTICAST, 5, &entries), OK);
    for (room, whole) in [(0, 0), (8, 8), (20, 16), (40, 40), (64, 40)] {
        let (context, bytes) = read(&mut rig, AllowedListType::MULTICAST, room);
        assert_eq!(context.allowed_list_size(), 5);
        assert_eq!(bytes[..whole], entries[..whole], "{room}");
        assert!(bytes[whole..].iter().all(|byte| *byte == 0), "{room}");
    }
}

/// Linux reads the lists of other functions and skips addresses of the wrong kind
/// (`esw_update_vport_addr_list`); firmware does not.
#[test]
fn addresses_of_the_wrong_kind_are_kept() {
    let mut rig = ethernet();
    let entries = mac_entries(&[[0; 6], [0xff; 6], [0x01, 0, 0x5e, 0, 0, 1], [0x02; 6], [0x02; 6]]);
    for kind in [AllowedListType::UNICAST, AllowedListType::MULTICAST] {
        assert_eq!(write(&mut rig, kind, 5, &entries), OK);
        assert_eq!(list(&mut rig, kind), entries);
    }
}

#[test]
fn lists_are_as_long_as_the_capabilities_say() {
    let mut rig = ethernet();
    let caps = crate::firmware::caps::general_caps(rig.fabric.lock().device(0).config());
    for (kind, log_most) in [
        (AllowedListType::UNICAST, caps.log_max_current_uc_list()),
        (AllowedListType::MULTICAST, caps.log_max_current_mc_list()),
    ] {
        let most = 1 << log_most;
        let entries = mac_entries(&macs(most + 1, 0x02));
        assert_eq!(write(&mut rig, kind, most, &entries[..8 * most]), OK);
        let too_long = (CommandStatus::BAD_PARAM_ERR, syndrome::LIST_TOO_LONG);
        assert_eq!(write(&mut rig, kind, most + 1, &entries), too_long);
        assert_eq!(list(&mut rig, kind), entries[..8 * most]);
        // The length can be said: it has twelve bits.
        assert!(most < 1 << 12);
    }
    // There are no more VLANs than the list may have.
    assert_eq!(caps.log_max_vlan_list(), 12);
    let vlans: Vec<u16> = (0..4095).collect();
    assert_eq!(write(&mut rig, AllowedListType::VLAN, vlans.len(), &vlan_entries(&vlans)), OK);
    assert_eq!(list(&mut rig, AllowedListType::VLAN), vlan_entries(&vlans));
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut rig = ethernet();
    let entries = mac_entries(&macs(2, 0x02));
    assert_eq!(write(&mut rig, AllowedListType::UNICAST, 2, &entries), OK);
    // An unknown kind of list, and a list that is cut off.
    assert_eq!(write(&mut rig, AllowedListType(3), 1, &entries), BAD_VALUE);
    let short = (CommandStatus::BAD_INP_LEN_ERR, syndrome::SHORT_INPUT);
    assert_eq!(write(&mut rig, AllowedListType::UNICAST, 2, &entries[..15]), short);
    let mut query = QueryNicVportContextIn::request();
    query.set_allowed_list_type(3);
    assert_eq!(refused(rig.try_run(&query)), BAD_VALUE);

    // All other changes of the command are refused with it.
    let all_at_once = |change: fn(&mut ModifyNicVportContextIn)| {
        let mut input = ModifyNicVportContextIn::request();
        input.set_select_mtu(true).set_select_promisc(true).set_select_addresses_list(true);
        let context = input.nic_vport_context_mut();
        context.set_mtu(9000).set_promisc_all(true).set_allowed_list_size(1);
        change(&mut input);
        [input.as_bytes(), &mac_entries(&macs(1, 0x42))[..]].concat()
    };
    let unknown = (CommandStatus::BAD_OP_ERR, syndrome::UNKNOWN_MODIFIER);
    let cases: [(fn(&mut ModifyNicVportContextIn), _); 11] = [
        (|input| _ = input.set_op_mod(1), unknown),
        (|input| _ = input.set_other_vport(true).set_vport_number(1), NO_SWITCH),
        (|input| _ = input.set_select_node_guid(true), BAD_VALUE),
        (|input| _ = input.set_select_port_guid(true), BAD_VALUE),
        (|input| _ = input.set_select_min_inline(true), BAD_VALUE),
        (|input| _ = input.set_select_change_event(true), BAD_VALUE),
        (|input| _ = input.set_field_select(input.field_select() | 1), BAD_VALUE),
        (|input| _ = input.nic_vport_context_mut().set_allowed_list_type(7), BAD_VALUE),
        (|input| _ = input.nic_vport_context_mut().set_allowed_list_size(2), short),
        // A group's address, and a zero address.
        (|input| own_address(input, 0x0100, 0x5e00_0001), BAD_VALUE),
        (|input| own_address(input, 0, 0), BAD_VALUE),
    ];
    let before = read(&mut rig, AllowedListType::UNICAST, 16);
    for (change, why) in cases {
        assert_eq!(rig.raw(&all_at_once(change), &mut [0; 16]), why);
        assert_eq!(read(&mut rig, AllowedListType::UNICAST, 16), before);
    }
    assert_eq!(rig.raw(&all_at_once(|_| {}), &mut [0; 16]), OK);
    let (context, bytes) = read(&mut rig, AllowedListType::UNICAST, 8);
    assert_eq!((context.mtu(), context.promisc_all()), (9000, true));
    assert_eq!((context.allowed_list_size(), bytes), (1, mac_entries(&macs(1, 0x42))));
}

#[test]
fn promiscuous_flags_are_kept_apart_and_change_where_selected() {
    let mut rig = ethernet();
    let flags = |rig: &mut Rig| {
        let (context, _) = read(rig, AllowedListType::UNICAST, 0);
        [context.promisc_uc(), context.promisc_mc(), context.promisc_all()]
    };
    assert_eq!(flags(&mut rig), [false; 3]);
    let [mut a, mut b, mut c] = [false; 3];
    for turned in [0, 1, 2, 1, 0, 2] {
        match turned {
            0 => a = !a,
            1 => b = !b,
            _ => c = !c,
        }
        let mut input = ModifyNicVportContextIn::request();
        input.nic_vport_context_mut().set_promisc_uc(a).set_promisc_mc(b).set_promisc_all(c);
        let before = flags(&mut rig);
        rig.run(&input);
        assert_eq!(flags(&mut rig), before, "not selected");
        rig.run(input.set_select_promisc(true));
        assert_eq!(flags(&mut rig), [a, b, c]);
    }
}

#[test]
fn the_functions_own_address_can_be_changed() {
    let mut rig = ethernet();
    let mac = |rig: &mut Rig| {
        let (context, _) = read(rig, AllowedListType::UNICAST, 0);
        let address = *context.permanent_address();
        (address.mac_addr_47_32(), address.mac_addr_31_0())
    };
    let [a, b, c, d, e, f] = rig.fabric.lock().device(0).port(1).expect("a port").mac;
    let first = (u32::from(u16::from_be_bytes([a, b])), u32::from_be_bytes([c, d, e, f]));
    assert_eq!(mac(&mut rig), first);
    let mut input = ModifyNicVportContextIn::request();
    own_address(&mut input, 0x0212, 0x3456_789a);
    rig.run(input.set_select_permanent_address(false));
    assert_eq!(mac(&mut rig), first, "not selected");
    rig.run(input.set_select_permanent_address(true));
    assert_eq!(mac(&mut rig), (0x0212, 0x3456_789a));
    let own = rig.fabric.lock().device(0).port(1).expect("a port").mac;
    assert_eq!(own, [0x02, 0x12, 0x34, 0x56, 0x78, 0x9a]);
}

/// A driver that is loaded again finds none of the settings of the one before.
#[test]
fn the_context_ends_with_the_driver() {
    let mut rig = ethernet();
    let whole = |rig: &mut Rig| {
        [AllowedListType::UNICAST, AllowedListType::MULTICAST, AllowedListType::VLAN]
            .map(|kind| read(rig, kind, 16))
    };
    let first = whole(&mut rig);
    let entries = mac_entries(&macs(1, 0x02));
    for kind in [AllowedListType::UNICAST, AllowedListType::MULTICAST, AllowedListType::VLAN] {
        assert_eq!(write(&mut rig, kind, 1, &entries), OK);
    }
    let mut input = ModifyNicVportContextIn::request();
    input.set_select_mtu(true).set_select_promisc(true).set_select_disable_uc_local_lb(true);
    let context = input.nic_vport_context_mut();
    context.set_mtu(5000).set_promisc_mc(true).set_disable_uc_local_lb(true);
    rig.run(&input);
    assert!(whole(&mut rig).iter().zip(&first).all(|(now, before)| now != before));
    rig.run(&TeardownHcaIn::request());
    assert_eq!(whole(&mut rig), first);
}

/// A function that manages no switch can ask only about itself, and has no table of others'
/// addresses.
#[test]
fn what_a_switchs_manager_may_do_is_refused() {
    let mut rig = ethernet();
    let mut query = QueryNicVportContextIn::request();
    query.set_other_vport(true).set_vport_number(1);
    assert_eq!(refused(rig.try_run(&query)), NO_SWITCH);
    let mut query = QueryVnicEnvIn::request();
    query.set_other_vport(true).set_vport_number(1);
    assert_eq!(refused(rig.try_run(&query)), NO_SWITCH);
    for opcode in [
        CommandOpcode::SET_L2_TABLE_ENTRY,
        CommandOpcode::QUERY_L2_TABLE_ENTRY,
        CommandOpcode::DELETE_L2_TABLE_ENTRY,
    ] {
        let mut input = [0; 64];
        input[..2].copy_from_slice(&(opcode.0 as u16).to_be_bytes());
        let answer = rig.raw(&input, &mut [0; 64]);
        assert_eq!(answer, (CommandStatus::BAD_OP_ERR, syndrome::NO_SWITCH), "{opcode:?}");
    }
    let caps = crate::firmware::caps::general_caps(rig.fabric.lock().device(0).config());
    assert_eq!((caps.eswitch_manager(), caps.log_max_l2_table()), (false, 0));
}

/// `rx_steer_missed_packets` of mlx5e.
#[test]
fn frames_that_met_no_entry_are_counted_for_the_driver() {
    let mut rig = ethernet();
    let caps = crate::firmware::caps::general_caps(rig.fabric.lock().device(0).config());
    assert!(caps.nic_receive_steering_discard());
    rig.fabric.lock().device_mut(0).ethernet.counts.missed = 0x1_0000_0007;
    let out = rig.run(&QueryVnicEnvIn::request());
    assert_eq!(out.vport_env().nic_receive_steering_discard(), 0x1_0000_0007);
    // `mlx5_ifc_query_vnic_env_out_bits`.
    assert_eq!(get_bits(out.as_bytes(), 0x80 + 0x80, 64), 0x1_0000_0007);
}
