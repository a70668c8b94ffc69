//! Identifiers, channels, options and groups.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use mlx5::{AckTimeout, Errno, Kernel};
use mlx5_cm::{Address, ConnectParam, ErrorKind, EventChannel, EventKind, Id, Listener, PortSpace};
use mlx5_sim::{PortConfig, SimConfig, Simulator};
use mlx5_uapi::{CmFile, DeviceFile, EventFile};

use crate::rig::{ADDRESS, LIMIT, Machine, Objects, address, event, resolved};

fn listening(channel: &EventChannel, at: &str) -> Id {
    let id = channel.create_id(PortSpace::Tcp).expect("created");
    id.bind(at.parse::<std::net::SocketAddr>().expect("an address")).expect("bound");
    id.listen(0).expect("listening");
    id
}

#[test]
fn options_end_up_in_the_attributes_of_the_queue_pair() {
    let machine = Machine::roce();
    let (server, client) = (machine.channel(), machine.channel());
    let listener = listening(&server, ADDRESS);
    let id = resolved(&client, PortSpace::Tcp, |id| {
        id.set_tos(0x68).expect("set");
        id.set_ack_timeout(AckTimeout::new(9).expect("a timeout")).expect("set");
    });
    id.connect(&ConnectParam::new(1)).expect("asked");
    let EventKind::ConnectRequest { id: request, .. } = event(&server) else {
        panic!("no request")
    };
    request.accept(&ConnectParam::new(2)).expect("accepted");
    assert!(matches!(event(&client), EventKind::ConnectResponse(_)));
    let rtr = id.qp_attributes(mlx5::QueueState::ReadyToReceive).expect("attributes");
    let route = rtr.ah_attr.and_then(|path| path.grh).expect("a route");
    assert_eq!(route.traffic_class, 0x68);
    let rts = id.qp_attributes(mlx5::QueueState::ReadyToSend).expect("attributes");
    assert_eq!(rts.timeout.map(AckTimeout::get), Some(9));
    drop((id, request, listener, server, client));
    machine.end();
}

#[test]
fn address_in_use_is_refused_unless_both_listeners_share_it() {
    let machine = Machine::roce();
    let channel = machine.channel();
    let first = listening(&channel, ADDRESS);
    let second = channel.create_id(PortSpace::Tcp).expect("created");
    let error = second.bind(address()).expect_err("in use");
    assert_eq!(error.kind(), ErrorKind::AddressInUse);
    drop(first);
    let ids = [(); 2].map(|()| {
        let id = channel.create_id(PortSpace::Tcp).expect("created");
        id.set_reuse_addr(true).expect("set");
        id.bind(address()).expect("shared");
        id
    });
    assert_eq!(ids[0].local_addr().expect("asked"), Some(Address::Ip(address())));
    drop((ids, second, channel));
    machine.end();
}

#[test]
fn unspecified_ipv6_address_takes_ipv4_unless_v6_only() {
    let machine = Machine::roce();
    for (only, reaches) in [(false, true), (true, false)] {
        let (server, client) = (machine.channel(), machine.channel());
        let listener = server.create_id(PortSpace::Tcp).expect("created");
        listener.set_af_only(only).expect("set");
        listener.bind("[::]:7471".parse::<std::net::SocketAddr>().expect("IPv6")).expect("bound");
        listener.listen(0).expect("listening");
        let id = resolved(&client, PortSpace::Tcp, |_| {});
        id.connect(&ConnectParam::new(1)).expect("asked");
        match reaches {
            true => assert!(matches!(event(&server), EventKind::ConnectRequest { .. })),
            false => assert!(matches!(event(&client), EventKind::Rejected(_))),
        }
    }
    machine.end();
}

#[test]
fn an_identifier_takes_its_events_along_to_another_channel() {
    let machine = Machine::roce();
    let (server, client, other) = (machine.channel(), machine.channel(), machine.channel());
    let listener = listening(&server, ADDRESS);
    let mut id = resolved(&client, PortSpace::Tcp, |_| {});
    id.connect(&ConnectParam::new(1)).expect("asked");
    drop(event(&server));
    id.migrate(&other).expect("migrated");
    assert!(client.poll().expect("no error").is_none());
    let moved = other.wait(Some(LIMIT)).expect("no error").expect("an event");
    assert_eq!(moved.key, id.key());
    assert!(matches!(moved.kind, EventKind::Rejected(_)));
    drop((id, listener, server, client, other));
    machine.end();
}

#[test]
fn a_channel_is_readable_while_an_event_is_pending() {
    let machine = Machine::roce();
    let channel = machine.channel();
    let readable =
        || mlx5_uapi::wait::wait_readable(channel.as_fd(), Some(Duration::ZERO)).expect("polled");
    assert!(!readable());
    assert!(channel.wait(Some(Duration::from_millis(1))).expect("no error").is_none());
    let id = channel.create_id(PortSpace::Tcp).expect("created");
    id.resolve_addr(None, address(), LIMIT).expect("resolving");
    assert!(readable());
    event(&channel);
    assert!(!readable());
    drop((id, channel));
    machine.end();
}

#[test]
fn a_listener_is_not_moved_away_from_its_requests() {
    let machine = Machine::roce();
    let (server, other) = (machine.channel(), machine.channel());
    let mut listener = listening(&server, ADDRESS);
    let error = listener.migrate(&other).expect_err("it listens");
    assert_eq!(error.kind(), ErrorKind::WrongState);
    assert!(error.to_string().contains("before it listens"), "{error}");
    drop((listener, server, other));
    machine.end();
}

#[test]
fn a_group_of_no_datagrams_is_refused_with_the_reason() {
    let machine = Machine::roce();
    let channel = machine.channel();
    let id = channel.create_id(PortSpace::Tcp).expect("created");
    let group = std::net::SocketAddr::from(([239, 1, 2, 3], 0));
    let error = id.join_multicast(group, mlx5_cm::JoinFlag::FullMember).expect_err("no datagrams");
    assert!(error.to_string().contains("datagrams"), "{error}");
    drop((id, channel));
    machine.end();
}

#[test]
fn a_queue_pair_is_not_connected_before_the_peer_has_answered() {
    let machine = Machine::roce();
    let channel = machine.channel();
    let id = resolved(&channel, PortSpace::Tcp, |_| {});
    let (objects, mut qp) = Objects::new(&id.device().expect("a device"));
    // There is no answer yet, so there are no attributes to connect with.
    let error = id.to_rts(&mut qp).expect_err("not connected");
    assert_eq!(error.kind(), ErrorKind::WrongState);
    drop((qp, objects, id, channel));
    machine.end();
}

/// A kernel whose devices all have the same GUID.
struct Alike(Arc<dyn Kernel>);

impl Kernel for Alike {
    fn sysfs_list(&self, path: &str) -> Result<Vec<String>, Errno> {
        self.0.sysfs_list(path)
    }

    fn sysfs_read(&self, path: &str) -> Result<String, Errno> {
        self.0.sysfs_read(&path.replace("mlx5_1/node_guid", "mlx5_0/node_guid"))
    }

    fn sysfs_link(&self, path: &str) -> Result<String, Errno> {
        self.0.sysfs_link(path)
    }

    fn open(&self, node: &str, dev: (u32, u32)) -> Result<Arc<dyn DeviceFile>, Errno> {
        self.0.open(node, dev)
    }

    fn uevents(&self) -> Result<Box<dyn EventFile>, Errno> {
        self.0.uevents()
    }

    fn rdma_cm(&self) -> Result<Arc<dyn CmFile>, Errno> {
        self.0.rdma_cm()
    }
}

#[test]
fn indistinguishable_device_is_not_guessed() {
    let simulator = Simulator::new(SimConfig::new().devices(2).ports([PortConfig::ROCE]));
    let device = |kernel| Listener::bind_on(kernel, ADDRESS).expect("a listener").device();
    assert_eq!(device(simulator.kernel()).expect("a device").name(), "mlx5_0");
    let error = device(Arc::new(Alike(simulator.kernel()))).expect_err("two of them");
    assert_eq!(error.kind(), ErrorKind::AddressNotAvailable);
    assert!(error.to_string().contains("several devices"), "{error}");
    assert_eq!(simulator.cm_counts(), Default::default());
}
