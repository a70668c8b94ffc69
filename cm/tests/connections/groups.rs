//! Multicast groups: joining, attaching and leaving, in any order of teardown.

use mlx5_cm::{EventChannel, EventKind, Group, Id, JoinFlag, PortSpace};

use crate::rig::{LIMIT, Machine};

fn bound(channel: &EventChannel) -> Id {
    let id = channel.create_id(PortSpace::Udp).expect("created");
    id.bind("10.0.0.1:0".parse::<std::net::SocketAddr>().expect("an address")).expect("bound");
    id
}

fn join(id: &Id, group: u8) -> Group {
    let group = std::net::SocketAddr::from(([239, 1, 2, group], 0));
    id.join_multicast(group, JoinFlag::FullMember).expect("joining")
}

#[test]
fn a_group_is_joined_and_a_queue_pair_attached() {
    let machine = Machine::roce();
    let channel = machine.channel();
    let id = bound(&channel);
    let joined = join(&id, 3);
    let event = channel.wait(Some(LIMIT)).expect("no error").expect("an event");
    assert_eq!(event.key, joined.key());
    let EventKind::MulticastJoined(place) = event.kind else { panic!("not joined") };
    let context = id.device().expect("a device").open().expect("a context");
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(4).build().expect("a queue");
    let mut qp = pd.create_qp::<mlx5::transport::Ud>(&cq, &cq).build().expect("a queue pair");
    id.to_rts(&mut qp).expect("RTS");
    let gid = place.path.grh.expect("a route").dgid;
    qp.attach_mcast(gid, place.path.dlid).expect("attached");
    qp.detach_mcast(gid, place.path.dlid).expect("detached");
    assert_eq!(machine.simulator.cm_counts().groups, 1);
    drop(joined);
    assert_eq!(machine.simulator.cm_counts().groups, 0);
    drop((id, qp, cq, pd, context, channel));
    machine.end();
}

/// The kernel gives the number of a destroyed group to the next one.
#[test]
fn a_group_that_went_with_its_identifier_is_not_left_in_place_of_another() {
    let machine = Machine::roce();
    let channel = machine.channel();
    let (first, second) = (bound(&channel), bound(&channel));
    let gone = join(&first, 1);
    drop(first);
    let there = join(&second, 2);
    drop(gone);
    assert_eq!(machine.simulator.cm_counts().groups, 1, "the second identifier is still a member");
    drop(there);
    assert_eq!(machine.simulator.cm_counts().groups, 0);
    drop((second, channel));
    machine.end();
}

#[test]
fn a_group_follows_its_identifier_to_another_channel() {
    let machine = Machine::roce();
    let (channel, other) = (machine.channel(), machine.channel());
    let mut id = bound(&channel);
    let joined = join(&id, 1);
    id.migrate(&other).expect("migrated");
    drop(channel);
    assert_eq!(machine.simulator.cm_counts().channels, 1, "nothing needs the first one");
    drop(joined);
    assert_eq!(machine.simulator.cm_counts().groups, 0);
    drop((id, other));
    machine.end();
}
