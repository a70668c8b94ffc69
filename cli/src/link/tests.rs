//! Both ends of a conversation, each in a thread of its own, on one simulated device.

use super::ends::{self, Initiator, Waiter};
use super::exchange::{ANSWER, Exchange};
use super::message::Hello;
use super::*;
use crate::device::{Opened, Port};
use mlx5_sim::{PortConfig, SimConfig, Simulator};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
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
    Shape { transport, queues: 1, message: 1024, depth: 16, receives: 64, inline: 0 }
}

fn hello(shape: Shape) -> Hello {
    Hello { session: 1, threads: 1, shape }
}

/// Runs `test` at the end that measures, while a thread answers over TCP.
fn with_remote(
    config: SimConfig,
    shape: Shape,
    test: impl FnOnce(&mut Initiator),
) -> Result<(), crate::failure::Failure> {
    let simulator = Simulator::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (mut exchange, _) = Exchange::accept(&listener, None, ANSWER)?;
            let hello = ends::greeted(&mut exchange)?;
            ends::answer(&port(&simulator), exchange, hello, waiter())
        });
        let exchange = Exchange::new(TcpStream::connect(address).expect("connected"), ANSWER)?;
        let exchange = ends::greet(exchange, hello(shape))?;
        let mut initiator = ends::connect(&port(&simulator), exchange, shape, waiter())?;
        test(&mut initiator);
        initiator.peer.part()?;
        server.join().expect("no panic")
    })
}

const PACE: Pace = Pace { signal_every: 4, batch: 2, depth: 16 };

fn phase(kind: Kind, op: Op) -> Phase {
    let size = if op.is_atomic() { ATOMIC } else { 1024 };
    Phase { kind, op, size, both: None }
}

/// Times messages until the goal, and returns their number.
fn times(initiator: &mut Initiator, phase: Phase, goal: Goal<'_>) -> u64 {
    let mut times = 0;
    let count = |_: &_, _, _| {
        times += 1;
        Ok(())
    };
    latency(initiator, phase, goal, || (), |_, _| Ok(()), count).expect("messages");
    times
}

fn rate_of(initiator: &mut Initiator, phase: Phase, goal: Goal<'_>) -> Rate {
    rate(initiator, phase, PACE, goal, || (), |_, _| ()).expect("a rate")
}

#[test]
fn two_ends_measure_sends_over_every_transport() {
    for link in [PortConfig::INFINIBAND, PortConfig::ROCE] {
        for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
            let config = SimConfig::new().ports([link]);
            let done = with_remote(config, shape(transport), |initiator| {
                let phase = phase(Kind::Latency, Op::Send);
                assert_eq!(times(initiator, phase, Goal::messages(20)), 20);
            });
            done.expect("served");
        }
    }
}

/// Asleep until a message comes, an end arms the one queue that it waits for: two arms for each
/// message, one at either end.
#[test]
fn one_queue_is_armed_for_each_message_at_either_end() {
    const MESSAGES: u64 = 100;
    let simulator = Simulator::new(SimConfig::new());
    let port = port(&simulator);
    let channel = port.opened.context.create_comp_channel().expect("a channel");
    let waiter = Waiter::new(Patience::new(TIMEOUT, true), Some(channel));
    let mut initiator = ends::both(&port, shape(Transport::Rc), waiter).expect("connected");
    let arms = || simulator.fabric().lock().devices()[0].arms();
    let before = arms();
    let phase = phase(Kind::Latency, Op::Send);
    assert_eq!(times(&mut initiator, phase, Goal::messages(MESSAGES)), MESSAGES);
    let arms = arms() - before;
    assert!(arms > 0 && arms <= 2 * MESSAGES + 2, "{arms} arms for {MESSAGES} messages");
    let phase = self::phase(Kind::Latency, Op::Write);
    let before = simulator.fabric().lock().devices()[0].arms();
    assert_eq!(times(&mut initiator, phase, Goal::messages(MESSAGES)), MESSAGES);
    let arms = simulator.fabric().lock().devices()[0].arms() - before;
    assert!(arms <= MESSAGES + 2, "{arms} arms for {MESSAGES} writes");
}

#[test]
fn two_ends_measure_every_operation_on_several_queue_pairs() {
    let shape = Shape { queues: 3, ..shape(Transport::Rc) };
    let done = with_remote(SimConfig::new(), shape, |initiator| {
        for (op, _) in Op::NAMES {
            // Neither is a multiple of the number of queue pairs.
            assert_eq!(
                times(initiator, phase(Kind::Latency, op), Goal::messages(10)),
                10,
                "{op:?}"
            );
            let measured = rate_of(initiator, phase(Kind::Rate, op), Goal::messages(500));
            assert_eq!((measured.out.messages, measured.lost()), (500, 0), "{op:?}");
            assert_eq!(measured.back, None);
        }
    });
    done.expect("served");
}

#[test]
fn both_ends_send_where_a_run_goes_both_ways() {
    for transport in [Transport::Rc, Transport::Uc, Transport::Ud] {
        for &(op, _) in Op::NAMES.iter().filter(|(op, _)| op.transports().contains(&transport)) {
            let phase = Phase { both: Some(PACE), ..phase(Kind::Rate, op) };
            let check = |initiator: &mut Initiator| {
                for messages in [1, 200] {
                    let measured = rate_of(initiator, phase, Goal::messages(messages));
                    let back = measured.back.expect("messages of the other end");
                    assert_eq!(measured.out.messages, messages, "{transport:?} {op:?}");
                    assert!(back.lost <= back.messages, "{back:?}");
                    let sum = (messages as f64 - measured.out.lost as f64)
                        / measured.out.elapsed.as_secs_f64();
                    assert!(measured.per_second() >= sum, "{measured:?}");
                }
                // A later run one way finds nothing left of it.
                assert_eq!(
                    rate_of(initiator, self::phase(Kind::Rate, op), Goal::messages(9)).back,
                    None
                );
            };
            let shape = Shape { queues: 2, ..shape(transport) };
            let simulator = Simulator::new(SimConfig::new());
            check(&mut ends::both(&port(&simulator), shape, waiter()).expect("connected"));
            if op == Op::Send {
                with_remote(SimConfig::new(), shape, check).expect("served");
            }
        }
    }
}

#[test]
fn a_run_ends_when_its_time_is_over_or_it_is_stopped() {
    let simulator = Simulator::new(SimConfig::new());
    let port = port(&simulator);
    let mut initiator = ends::both(&port, shape(Transport::Rc), waiter()).expect("connected");
    let limit = Duration::from_millis(20);
    let timed = Goal { messages: None, duration: Some(limit), stop: None };
    for op in [Op::Send, Op::FetchAdd] {
        let measured = rate_of(&mut initiator, phase(Kind::Rate, op), timed);
        assert!(measured.out.messages > 0 && measured.out.elapsed >= limit, "{measured:?}");
        assert!(times(&mut initiator, phase(Kind::Latency, op), timed) > 0);
    }
    let stop = AtomicBool::new(true);
    let stopped = Goal { messages: Some(u64::MAX), duration: None, stop: Some(&stop) };
    assert_eq!(times(&mut initiator, phase(Kind::Latency, Op::Write), stopped), 1);
    for both in [None, Some(PACE)] {
        let phase = Phase { both, ..phase(Kind::Rate, Op::Send) };
        let measured = rate_of(&mut initiator, phase, stopped);
        assert!(measured.out.messages > 0 && measured.lost() == 0, "{measured:?}");
    }
}

#[test]
fn each_fetch_and_add_adds_one() {
    let simulator = Simulator::new(SimConfig::new());
    let port = port(&simulator);
    let mut initiator = ends::both(&port, shape(Transport::Rc), waiter()).expect("connected");
    let mut old = [0; ATOMIC];
    for (op, wanted) in [(Op::FetchAdd, 99), (Op::CompareSwap, 100)] {
        rate_of(&mut initiator, phase(Kind::Rate, op), Goal::messages(100));
        initiator.side.returned(&mut old).expect("memory");
        assert_eq!(u64::from_ne_bytes(old), wanted, "the value before the last {op:?}");
    }
}

#[test]
fn the_end_that_measures_hears_why_the_other_one_cannot() {
    let simulator = Simulator::new(SimConfig::new());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its number");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut exchange, _) = Exchange::accept(&listener, None, ANSWER).expect("accepted");
            let _ = exchange.receive();
            exchange.send(&message::Message::Error("no memory".to_owned())).expect("sent");
        });
        let exchange = Exchange::new(TcpStream::connect(address).expect("connected"), ANSWER);
        let exchange = exchange.expect("a conversation");
        let shape = shape(Transport::Rc);
        let exchange = ends::greet(exchange, hello(shape)).expect("sent");
        let failure = ends::connect(&port(&simulator), exchange, shape, waiter());
        let failure = failure.err().expect("refused");
        assert_eq!(failure.cause(), "the other side: no memory");
    });
}

#[test]
fn what_was_posted_has_the_names_of_the_manual() {
    let names = [
        (CompletionOpcode::RdmaWrite, "RDMA_WRITE"),
        (CompletionOpcode::FetchAdd, "ATOMIC_FA"),
        (CompletionOpcode::Other(Opcode::Nop), "NOP"),
        (CompletionOpcode::Unnamed(0x3f), "opcode 0x3f"),
        (CompletionOpcode::ReceiveRdmaWithImm, "RECV"),
    ];
    for (opcode, name) in names {
        assert_eq!(posted_as(opcode), name);
    }
}

#[test]
fn datagrams_that_are_lost_are_counted() {
    let simulator = Simulator::new(SimConfig::new());
    let port = port(&simulator);
    let mut initiator = ends::both(&port, shape(Transport::Ud), waiter()).expect("connected");
    let measured = rate_of(&mut initiator, phase(Kind::Rate, Op::Send), Goal::messages(300));
    assert_eq!((measured.out.messages, measured.lost()), (300, 0));
    assert!(measured.gbits(1024) > 0.0);
}
