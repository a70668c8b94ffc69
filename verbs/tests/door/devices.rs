//! Devices and contexts: listing, opening, querying, closing.

use crate::bed::*;
use crate::header::*;
use crate::machine::Machine;
use mlx5_sim::{PortConfig, SimConfig};
use mlx5_verbs::abi::*;
use mlx5_verbs::{close, cq, device, domain, event, mr, open, pd, qp, query};
use std::ffi::CStr;
use std::ptr::null_mut;

#[test]
fn a_list_has_each_device_and_ends_with_null() {
    let machine = Machine::new(SimConfig::new().devices(2));
    let mut count = 0;
    let list = made(c!(device::get_device_list_on(machine.kernel(), &mut count)));
    assert_eq!(count, 2);
    let devices = c!([*list, *list.add(1)]);
    assert!(c!(*list.add(2)).is_null());
    let names = devices.map(|of| c!(CStr::from_ptr(device::get_device_name(of))).to_owned());
    assert_eq!(names, [c"mlx5_0".to_owned(), c"mlx5_1".to_owned()]);
    let [one, other] = devices.map(|of| c!(device::get_device_guid(of)));
    assert_ne!(one, other);
    // The same devices again: programs compare pointers.
    let again = made(c!(device::get_device_list_on(machine.kernel(), null_mut())));
    assert_eq!(c!([*again, *again.add(1)]), devices);
    c!(device::free_device_list(list));
    c!(device::free_device_list(again));
}

#[test]
fn device_queries_agree_and_stay_within_the_room() {
    let bed = Bed::new();
    let mut attr: ibv_device_attr = blank();
    ok(c!(query::query_device(bed.context, &mut attr)));
    assert_eq!(attr.node_guid, c!(device::get_device_guid(bed.device)));
    assert_eq!((attr.phys_port_cnt, attr.vendor_id), (1, 0x02c9));
    assert!(attr.max_qp > 0 && attr.max_cqe > 0 && attr.max_mr > 0);
    let mut ex: ibv_device_attr_ex = blank();
    let size = size_of::<ibv_device_attr_ex>();
    ok(query_device_ex(bed.context, std::ptr::null(), &mut ex, size));
    assert_eq!(ex.orig_attr.node_guid, attr.node_guid);
    assert_eq!(ex.orig_attr.max_qp, attr.max_qp);
    // No byte beyond the room is written.
    let mut bytes = vec![0x5a_u8; size];
    let room = size_of::<ibv_device_attr>();
    ok(query_device_ex(bed.context, std::ptr::null(), bytes.as_mut_ptr().cast(), room));
    assert!(bytes[room..].iter().all(|byte| *byte == 0x5a));
    assert_eq!(query_device_ex(bed.context, std::ptr::null(), &mut ex, room - 1), libc::EINVAL);
    let unknown = ibv_query_device_ex_input { comp_mask: 1 };
    assert_eq!(query_device_ex(bed.context, &unknown, &mut ex, size), libc::EINVAL);
    bed.end();
}

#[test]
fn a_port_is_asked_by_its_number_and_the_room_is_kept() {
    let bed = Bed::with(SimConfig::new().ports([PortConfig::INFINIBAND, PortConfig::ROCE]));
    let link_layers = [1, 2].map(|port| {
        let mut attr: ibv_port_attr = blank();
        ok(query_port(bed.context, port, &mut attr, size_of::<ibv_port_attr>()));
        assert_eq!(attr.state, IBV_PORT_ACTIVE);
        attr.link_layer
    });
    assert_eq!(link_layers, [IBV_LINK_LAYER_INFINIBAND as u8, IBV_LINK_LAYER_ETHERNET as u8]);
    let mut attr: ibv_port_attr = blank();
    for port in [0, 3, 255] {
        let answer = query_port(bed.context, port, &mut attr, size_of::<ibv_port_attr>());
        assert_eq!(answer, libc::EINVAL, "port {port}");
    }
    // The structure of programs that were compiled before it grew.
    let mut bytes = [0x5a_u8; size_of::<ibv_port_attr>()];
    ok(c!(query::query_port_compat(bed.context, 1, bytes.as_mut_ptr().cast())));
    assert_eq!((bytes[0], bytes[48]), (IBV_PORT_ACTIVE as u8, 0x5a));
    bed.end();
}

#[test]
fn gids_and_pkeys_are_those_of_the_tables() {
    let bed = Bed::with(SimConfig::new().ports([PortConfig::ROCE]));
    let mut gid: ibv_gid = blank();
    ok(c!(query::query_gid(bed.context, 1, 0, &mut gid)));
    let mut entry: ibv_gid_entry = blank();
    let size = size_of::<ibv_gid_entry>();
    ok(c!(query::query_gid_ex(bed.context, 1, 0, &mut entry, 0, size)));
    c!(assert_eq!(entry.gid.raw, gid.raw));
    assert_eq!((entry.port_num, entry.gid_index), (1, 0));
    let mut table: [ibv_gid_entry; 64] = blank();
    let found = c!(query::query_gid_table(bed.context, table.as_mut_ptr(), 64, 0, size));
    assert!(found >= 1);
    c!(assert_eq!(table[0].gid.raw, gid.raw));
    // Room for fewer entries than exist is refused.
    assert!(found > 1);
    for room in [0, found as usize - 1] {
        let refused = c!(query::query_gid_table(bed.context, table.as_mut_ptr(), room, 0, size));
        assert_eq!(refused, -libc::EINVAL as isize, "room for {room}");
    }
    assert_eq!(c!(query::query_gid(bed.context, 1, 5000, &mut gid)), -1);
    let mut pkey = 0;
    ok(c!(query::query_pkey(bed.context, 1, 0, &mut pkey)));
    assert_eq!(pkey, 0xffff);
    assert_eq!(c!(query::get_pkey_index(bed.context, 1, pkey)), 0);
    assert_eq!(c!(query::get_pkey_index(bed.context, 1, 0x1234)), -1);
    assert_eq!(c!(query::query_pkey(bed.context, 1, -1, &mut pkey)), -1);
    bed.end();
}

#[test]
fn port_event_is_delivered_and_acknowledged_without_an_object() {
    let bed = Bed::new();
    assert!(bed.async_event().is_none());
    for (active, expected) in [(false, IBV_EVENT_PORT_ERR), (true, IBV_EVENT_PORT_ACTIVE)] {
        bed.machine.sim.set_port_active(0, 1, active);
        bed.run();
        let mut event = bed.async_event().expect("an event");
        assert_eq!((event.event_type, c!(event.element.port_num)), (expected, 1));
        c!(event::ack_async_event(&mut event));
    }
    bed.end();
}

#[test]
fn two_contexts_of_a_device_have_nothing_in_common() {
    let bed = Bed::new();
    let other = made(c!(open::open_device(bed.device)));
    assert_ne!(other, bed.context);
    assert_ne!(c!((*other).async_fd), c!((*bed.context).async_fd));
    assert_eq!(c!((*other).device), bed.device);
    let pd = made(c!(pd::alloc_pd(other)));
    ok(c!(domain::dealloc_pd(pd)));
    ok(c!(close::close_device(other)));
    bed.end();
}

/// Programs with a garbage collector may destroy objects after the device was closed.
#[test]
fn a_device_that_is_closed_first_goes_with_its_last_object() {
    let mut bed = Bed::new();
    let channel = made(c!(cq::channel::create_comp_channel(bed.context)));
    let cq = made(c!(cq::create_cq(bed.context, 4, null_mut(), channel, 0)));
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    bed.destroy_left();
    ok(c!(close::close_device(bed.context)));
    assert_eq!(bed.machine.sim.object_counts(0).qps, 1, "it is there still");
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(cq::destroy_cq(cq)));
    ok(c!(cq::channel::destroy_comp_channel(channel)));
    ok(c!(mr::dereg_mr(bed.mr)));
    assert_eq!(bed.machine.sim.object_counts(0).contexts, 1);
    ok(c!(domain::dealloc_pd(bed.pd)));
    bed.is_clean();
}

#[test]
fn objects_of_a_device_that_was_pulled_out_are_refused_and_can_be_destroyed() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    bed.machine.sim.remove_device(0);
    bed.run();
    let event = bed.async_event().expect("an event");
    assert_eq!(event.event_type, IBV_EVENT_DEVICE_FATAL);
    let mut wr = send_wr(1, IBV_WR_SEND);
    assert_eq!(post_one(pair.qp, &mut wr), libc::EIO);
    assert_eq!(receive(pair.qp, 1, bed.sge(0, 8)), libc::EIO);
    let mut wc: ibv_wc = blank();
    assert_eq!(poll_cq(pair.cq, 1, &mut wc), -1);
    not_made(c!(pd::alloc_pd(bed.context)), libc::EIO);
    let destroyed = [pair.qp, pair.peer].map(|qp| c!(qp::create::destroy_qp(qp)));
    assert!(destroyed.iter().all(|answer| [0, libc::EIO].contains(answer)), "{destroyed:?}");
}
