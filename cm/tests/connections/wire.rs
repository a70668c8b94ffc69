//! Machines of several devices, which stand for hosts that a wire connects.

use mlx5::{CompletionErrorKind, RetryCount, Syndrome};
use mlx5_cm::{ErrorKind, connect_on};
use mlx5_sim::{Network, PortConfig, SimConfig};

use crate::rig::{LIMIT, Machine, Objects};

const MILLION: u32 = 1_000_000;

/// What became of one message from a client, and what its device counted of it.
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
