//! Both ends of a conversation, each in a thread of its own, on one simulated device.

use super::ends::{self, Initiator, Waiter};
use super::exchange::Exchange;
use super::*;
use crate::device::{Opened, Port};
use mlx5_sim::{PortConfig, SimConfig, Simulator};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn port(simulator: &Simulator) -> Port {
    let device = mlx5::devices_on(simulator.kernel()).expect("devices").remove(0);
    let context = device.open().expect("it opens");
    let local = context.local_port(1, None).expect("a port");
    Port { opened: Opened { context, device, simulator: Some(simulator.clone()) }, local }
}

pub(super) fn waiter() -> Waiter {
    Waiter::new(Patience::new(TIMEOUT, true), None)
}

pub(super) fn shape(transport: Transport) -> Shape {
    Shape { transport, message: 1024, depth: 16, receives: 64, inline: 0 }
}

/// Runs `test` at the end that measures, while a thread answers over TCP.
fn with_remote(
    config: SimConfig,
    transport: Transport,
    test: impl FnOnce(&mut Initiator),
) -> Result<(), crate::failure::Failure> {
    let simulator = Simulator::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (exchange, _) = Exchange::accept(&listener)?;
            ends::answer(&port(&simulator), exchange, waiter())
        });
        let exchange = Exchange::new(TcpStream::connect(address).expect("connected"))?;
        let mut initiator = ends::connect(&port(&simulator), exchange, shape(transport), waiter())?;
        test(&mut initiator);
        initiator.peer.part()?;
        server.join().expect("no panic")
    })
}

fn phase(kind: Kind, op: Op, messages: u64) -> Phase {
    Phase { kind, op, size: 1024, messages }
}

#[test]
fn two_hosts_measure_sends_over_every_transport() {
    for link in [PortConfig::INFINIBAND, PortConfig::ROCE] {
        for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
            let config = SimConfig::new().ports([link]);
            let done = with_remote(config, transport, |initiator| {
                let mut times = 0;
                let phase = phase(Kind::Latency, Op::Send, 20);
                latency(
                    initiator,
                    phase,
                    |_, _| Ok(()),
                    |_, _, _| {
                        times += 1;
                        Ok(())
                    },
                )
                .expect("a ping-pong");
                assert_eq!(times, 20);
            });
            done.expect("served");
        }
    }
}

#[test]
fn two_hosts_measure_rates() {
    let pace = Pace { signal_every: 4, batch: 2 };
    let done = with_remote(SimConfig::new(), Transport::Rc, |initiator| {
        for op in [Op::Send, Op::Write, Op::Read] {
            let phase = phase(Kind::Rate, op, 500);
            let measured = rate(initiator, phase, pace, |_| {}).expect("a rate");
            assert_eq!((measured.messages, measured.lost), (500, 0));
        }
    });
    done.expect("served");
}

#[test]
fn the_end_that_measures_hears_why_the_other_one_cannot() {
    let simulator = Simulator::new(SimConfig::new());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut exchange, _) = Exchange::accept(&listener).expect("accepted");
            let _ = exchange.receive();
            exchange.send(&message::Message::Error("no memory".to_owned())).expect("sent");
        });
        let exchange = Exchange::new(TcpStream::connect(address).expect("connected"));
        let exchange = exchange.expect("a conversation");
        let failure = ends::connect(&port(&simulator), exchange, shape(Transport::Rc), waiter());
        let failure = failure.err().expect("refused");
        assert_eq!(failure.cause(), "the other side: no memory");
    });
}

#[test]
fn datagrams_that_are_lost_are_counted() {
    let simulator = Simulator::new(SimConfig::new());
    let port = port(&simulator);
    let mut initiator = ends::both(&port, shape(Transport::Ud), waiter()).expect("connected");
    let pace = Pace { signal_every: 8, batch: 1 };
    let measured = rate(&mut initiator, phase(Kind::Rate, Op::Send, 300), pace, |_| {});
    let measured = measured.expect("a rate");
    assert_eq!((measured.messages, measured.lost), (300, 0));
    assert!(measured.gbits(1024) > 0.0);
}
