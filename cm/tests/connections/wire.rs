//! Machines with several devices, which stand for hosts that a wire connects.

use std::time::Duration;

use mlx5::{CompletionErrorKind, RetryCount, Syndrome};
use mlx5_cm::{ConnectParam, ErrorKind, PortSpace, connect_on};
use mlx5_sim::{Network, PortConfig, SimConfig};

use crate::rig::{LIMIT, Machine, Objects, resolved};

const MILLION: u32 = 1_000_000;

/// The outcome of one message from a client, and the counts of its device.
fn message(machine: &Machine) -> (Result<(), CompletionErrorKind>, [u64; 2]) {
    let mut listener = machine.listener();
    let address = listener.local_addr().expect("an address");
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let request = listener.next(Some(LIMIT)).expect("a request");
            let device = request.device().expect("a device");
            assert_eq!(device.name(), "mlx5_0");
            let (objects, mut qp) = Objects::new(&device);
            request.init(&mut qp).expect("INIT");
            objects.post(&mut qp);
            (request.timeout(LIMIT).accept(qp, b"").expect("accepted"), objects)
        });
        let peer = connect_on(machine.kernel(), address).expect("resolved");
        let device = peer.device().expect("a device");
        assert_eq!(device.name(), "mlx5_1", "the wire is between them");
        let (mut objects, qp) = Objects::new(&device);
        let peer = peer.timeout(LIMIT).retry_count(RetryCount::new(2).expect("a count"));
        let mut client = peer.connect(qp, b"").expect("connected");
        objects.send(client.qp_mut(), "over the wire");
        let start = std::time::Instant::now();
        let mut sent = None;
        while sent.is_none() {
            objects.cq.poll(1, |completion| sent = Some(completion.status())).expect("polled");
            assert!(start.elapsed() < LIMIT, "the message does not complete");
            std::thread::yield_now();
        }
        drop((client, server.join().expect("the server")));
        let counted = ["local_ack_timeout_err", "req_transport_retries_exceeded"]
            .map(|name| device.hw_counter(1, name).expect("a counter"));
        (sent.expect("a completion").map_err(|error| error.kind), counted)
    })
}

#[test]
fn a_client_is_on_another_device_and_what_the_wire_loses_is_lost_and_counted() {
    for port in [PortConfig::ROCE, PortConfig::INFINIBAND] {
        let with = |loss| {
            let machine = Machine::of(Machine::config(port, 10_000).devices(2).network(loss));
            let outcome = message(&machine);
            machine.end();
            outcome
        };
        assert_eq!(with(Network::INSTANT), (Ok(()), [0, 0]));
        let lost = CompletionErrorKind::Known(Syndrome::RetryExceeded);
        assert_eq!(with(Network::INSTANT.loss(MILLION)), (Err(lost), [2, 1]));
    }
}

/// Otherwise both sides would report wrong reasons: a retry that failed, a connection that ended.
#[test]
fn a_queue_pair_of_another_device_is_refused_and_both_are_named() {
    let machine = Machine::of(Machine::config(PortConfig::ROCE, 10_000).devices(2));
    let mut listener = machine.listener();
    let address = listener.local_addr().expect("an address");
    let devices = mlx5::devices_on(machine.kernel()).expect("devices");
    let refused = |error: &mlx5_cm::Error, own: &str, bound: &str| {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(text.contains(&format!("a queue pair of {own}")), "{text}");
        assert!(text.contains(&format!("leads over {bound}")), "{text}");
        assert!(text.contains("device()"), "{text}");
    };
    // The client's queue pair: in INIT by this call, by the one that connects, and by other means.
    let peer = || connect_on(machine.kernel(), address).expect("resolved");
    let (objects, mut qp) = Objects::new(&devices[0]);
    let attempt = peer();
    refused(&attempt.init(&mut qp).expect_err("another device"), "mlx5_0", "mlx5_1");
    assert_eq!(qp.state(), mlx5::QueueState::Reset);
    let failed = attempt.connect(qp, b"").expect_err("another device");
    refused(failed.error(), "mlx5_0", "mlx5_1");
    let (_, mut qp) = failed.into_parts();
    let port = qp.context().local_port(1, None).expect("a port");
    qp.init(&port, &mlx5::ConnectOptions::default()).expect("INIT");
    let failed = peer().connect(qp, b"").expect_err("another device");
    refused(failed.error(), "mlx5_0", "mlx5_1");
    drop(failed);
    assert!(listener.next(Some(Duration::ZERO)).is_err(), "the peer was not asked");

    // The server's queue pair.
    let channel = machine.channel();
    let id = resolved(&channel, PortSpace::Tcp, |_| {});
    id.connect(&ConnectParam::new(1)).expect("asked");
    let request = listener.next(Some(LIMIT)).expect("a request");
    let (others, mut qp) = Objects::new(&devices[1]);
    refused(&request.init(&mut qp).expect_err("another device"), "mlx5_1", "mlx5_0");
    let failed = request.accept(qp, b"").expect_err("another device");
    refused(failed.error(), "mlx5_1", "mlx5_0");
    drop((failed, objects, others, id, channel, listener, devices));
    machine.end();
}

#[test]
fn a_machine_whose_other_devices_are_gone_does_not_connect_within_the_last() {
    let machine = Machine::of(SimConfig::new().devices(2).ports([PortConfig::ROCE]));
    let listener = machine.listener();
    machine.simulator.remove_device(1);
    let address = listener.local_addr().expect("an address");
    let error = connect_on(machine.kernel(), address).expect_err("no way leads there");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    drop(listener);
    machine.end();
}
