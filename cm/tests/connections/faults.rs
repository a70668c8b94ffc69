//! Faults: each leads to the right error, within the time limit, and leaves nothing behind.

use std::env;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use mlx5::{Errno, QueueState};
use mlx5_cm::{
    ConnectParam, ErrorKind, EventKind, Listener, PortSpace, Watched, connect_on, reject_reason,
};
use mlx5_sim::CmMessage;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::rig::{ADDRESS, Failed, LIMIT, Machine, Objects, address, event, resolved};

#[test]
fn connect_without_listener_fails_and_returns_the_queue_pair() {
    let machine = Machine::roce();
    let failed = machine.client(b"").expect_err("no listener");
    assert_eq!(failed.error().kind(), ErrorKind::Rejected);
    let reason = failed.error().rejection().expect("a rejection").reason;
    assert_eq!(reason, reject_reason::INVALID_SERVICE_ID);
    let Failed::Refused(failed) = failed else { panic!("the address is there") };
    let (error, mut qp) = failed.into_parts();
    assert!(error.to_string().contains("no program listens"), "{error}");
    qp.reset().expect("reset");
    drop(qp);
    machine.end();
}

#[test]
fn a_program_that_rejects_may_say_why() {
    let machine = Machine::roce();
    let mut listener = machine.listener();
    thread::scope(|scope| {
        scope.spawn(|| listener.next(Some(LIMIT)).expect("a request").reject(b"full"));
        let failed = machine.client(b"").expect_err("rejected");
        let rejection = failed.error().rejection().expect("a rejection");
        assert_eq!(rejection.reason, reject_reason::CONSUMER_DEFINED);
        assert!(rejection.private_data.starts_with(b"full\0"));
    });
    drop(listener);
    machine.end();
}

#[test]
fn private_data_that_is_too_long_is_refused_before_anything_is_sent() {
    let machine = Machine::roce();
    let mut listener = machine.listener();
    let failed = machine.client(&[1; 57]).expect_err("too long");
    assert_eq!(failed.error().kind(), ErrorKind::PrivateDataTooLong);
    assert!(failed.error().to_string().contains("57"));
    drop(failed);
    thread::scope(|scope| {
        let client = scope.spawn(|| machine.client(&[1; 56]).map(drop));
        let request = listener.next(Some(LIMIT)).expect("a request");
        assert_eq!(request.private_data()[..], [1; 56]);
        let error = request.id().reject(&[2; 149]).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::PrivateDataTooLong);
        let (objects, qp) = Objects::new(&request.device().expect("a device"));
        let failed = request.accept(qp, &[2; 197]).expect_err("too long");
        assert_eq!(failed.error().kind(), ErrorKind::PrivateDataTooLong);
        drop((failed, objects));
        // The failed attempt dropped the request.
        let failed = client.join().expect("the client").expect_err("rejected");
        assert_eq!(failed.error().kind(), ErrorKind::Rejected);
    });
    drop(listener);
    machine.end();
}

#[test]
fn unassigned_address_and_address_without_route_give_different_errors() {
    let machine = Machine::roce();
    let error = connect_on(machine.kernel(), "192.168.7.7:1").expect_err("no way");
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Unreachable, Some(Errno::ENETUNREACH)));
    // `ip route` does not know a simulated machine.
    assert!(error.to_string().contains("serve two RoCE devices (`devices=2"), "{error}");
    let channel = machine.channel();
    let id = channel.create_id(PortSpace::Tcp).expect("created");
    let unassigned: std::net::SocketAddr = "10.0.0.77:1".parse().expect("an address");
    id.resolve_addr(None, unassigned, Duration::from_millis(5)).expect("resolving");
    assert!(matches!(event(&channel), EventKind::AddressError(Errno::ETIMEDOUT)));
    let error = Listener::bind_on(machine.kernel(), unassigned).expect_err("not ours");
    assert_eq!(error.kind(), ErrorKind::AddressNotAvailable);
    drop((id, channel));
    machine.end();
}

#[test]
fn a_request_that_always_gets_lost_is_unreachable_or_out_of_time() {
    let machine = Machine::impatient();
    let listener = machine.listener();
    machine.simulator.lose_cm_messages(CmMessage::Req, u32::MAX);
    let failed = machine.client(b"").expect_err("unreachable");
    assert_eq!(failed.error().kind(), ErrorKind::Unreachable);
    drop(failed);
    // The program's time limit is shorter than the kernel's.
    let peer = connect_on(machine.kernel(), ADDRESS).expect("resolved");
    let (objects, qp) = Objects::new(&peer.device().expect("a device"));
    let failed = peer.timeout(Duration::from_millis(1)).connect(qp, b"").expect_err("no time");
    assert_eq!(failed.error().kind(), ErrorKind::TimedOut);
    drop((failed, objects, listener));
    machine.end();
}

#[test]
fn messages_that_are_lost_once_or_come_late_change_nothing() {
    for message in [CmMessage::Req, CmMessage::Rep, CmMessage::Rtu] {
        let machine = Machine::roce();
        machine.simulator.lose_cm_messages(message, 2);
        let [(mut client, mut ours), (mut server, mut theirs)] = machine.connected();
        ours.send(client.qp_mut(), "ping");
        assert_eq!(theirs.receive(), "ping", "{message:?}");
        machine.simulator.lose_cm_messages(CmMessage::Dreq, 1);
        machine.simulator.lose_cm_messages(CmMessage::Drep, 1);
        client.disconnect().expect("disconnected");
        server.wait_disconnected(Some(LIMIT)).expect("the end");
        client.wait_disconnected(Some(LIMIT)).expect("agreed");
        drop((client, server, ours, theirs));
        machine.end();
    }
}

#[test]
fn a_backlog_that_is_full_delays_and_does_not_refuse() {
    let machine = Machine::roce();
    let channel = machine.channel();
    let id = channel.create_id(PortSpace::Tcp).expect("created");
    id.bind(address()).expect("bound");
    id.listen(1).expect("listening");
    let mut listener = Listener::from_parts(channel, id);
    thread::scope(|scope| {
        let clients = [(); 3].map(|()| scope.spawn(|| machine.client(b"")));
        let servers = [(); 3].map(|()| {
            let request = listener.next(Some(LIMIT)).expect("a request");
            let (objects, qp) = Objects::new(&request.device().expect("a device"));
            (request.timeout(LIMIT).accept(qp, b"").expect("accepted"), objects)
        });
        for client in clients {
            drop(client.join().expect("a client").expect("connected"));
        }
        drop(servers);
    });
    drop(listener);
    machine.end();
}

#[test]
fn client_reports_a_gone_server_at_every_step() {
    let machine = Machine::roce();
    // The listener has not read the request, and has.
    for is_read in [false, true] {
        let mut listener = machine.listener();
        thread::scope(|scope| {
            let client = scope.spawn(|| machine.client(b"").map(drop));
            if is_read {
                drop(listener.next(Some(LIMIT)).expect("a request"));
            } else {
                // The request waits once the descriptor is readable.
                use std::os::fd::AsFd;
                let waits = mlx5_uapi::wait::wait_readable(listener.as_fd(), Some(LIMIT));
                assert_eq!(waits, Ok(true));
            }
            drop(listener);
            let failed = client.join().expect("the client").expect_err("rejected");
            assert_eq!(failed.error().kind(), ErrorKind::Rejected);
        });
    }
    // Connected, and while disconnecting.
    for disconnects in [false, true] {
        let [(mut client, ours), (server, theirs)] = machine.connected();
        if disconnects {
            client.disconnect().expect("disconnected");
        }
        drop((server, theirs));
        client.wait_disconnected(Some(LIMIT)).expect("the end");
        drop((client, ours));
    }
    machine.end();
}

#[test]
fn server_reports_a_gone_client_at_every_step() {
    let machine = Machine::roce();
    let mut listener = machine.listener();
    let ask = || {
        let channel = machine.channel();
        let id = resolved(&channel, PortSpace::Tcp, |_| {});
        id.connect(&ConnectParam::new(1)).expect("asked");
        (channel, id)
    };
    // Before the server accepts.
    let client = ask();
    let request = listener.next(Some(LIMIT)).expect("a request");
    let (objects, qp) = Objects::new(&request.device().expect("a device"));
    drop(client);
    let failed = request.accept(qp, b"").expect_err("gone");
    assert_eq!(failed.error().kind(), ErrorKind::WrongState);
    assert!(failed.error().to_string().contains("gone"), "{failed}");
    drop(failed);
    // After the server has accepted, before the client is ready.
    let (channel, id) = ask();
    let request = listener.next(Some(LIMIT)).expect("a request");
    let qp = objects.queue_pair();
    thread::scope(|scope| {
        let server = scope.spawn(|| request.timeout(LIMIT).accept(qp, b"").map(drop));
        assert!(matches!(event(&channel), EventKind::ConnectResponse(_)));
        drop(id);
        let failed = server.join().expect("the server").expect_err("rejected");
        assert_eq!(failed.error().kind(), ErrorKind::Rejected);
    });
    drop((channel, objects, listener));
    // Connected, and while disconnecting.
    for disconnects in [false, true] {
        let [(client, ours), (mut server, theirs)] = machine.connected();
        if disconnects {
            server.disconnect().expect("disconnected");
        }
        drop((client, ours));
        server.wait_disconnected(Some(LIMIT)).expect("the end");
        drop((server, theirs));
    }
    machine.end();
}

#[test]
fn a_client_that_never_gets_ready_is_given_up() {
    let machine = Machine::impatient();
    let mut listener = machine.listener();
    let channel = machine.channel();
    let id = resolved(&channel, PortSpace::Tcp, |_| {});
    id.connect(&ConnectParam::new(1)).expect("asked");
    let request = listener.next(Some(LIMIT)).expect("a request");
    let (objects, qp) = Objects::new(&request.device().expect("a device"));
    let failed = request.timeout(LIMIT).accept(qp, b"").expect_err("never ready");
    assert_eq!(failed.error().kind(), ErrorKind::Unreachable);
    drop((failed, objects, id, channel, listener));
    machine.end();
}

#[test]
fn accept_without_client_times_out() {
    let machine = Machine::roce();
    let mut listener = machine.listener();
    let error = listener.next(Some(Duration::from_millis(1))).expect_err("no client");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(listener);
    machine.end();
}

#[test]
fn an_address_that_moves_leaves_connections_and_listeners_where_they_are() {
    let machine = Machine::roce();
    let mut listener = Listener::bind_on(machine.kernel(), "10.0.0.1:9").expect("a listener");
    let [(mut client, mut ours), (server, mut theirs)] = machine.connected();
    let (_, link) = {
        let [(other, objects), (peer, _)] = machine.connected();
        drop((objects, peer));
        other.split()
    };
    let watched = server.watched().expect("a thread");
    assert!(!client.address_has_changed().expect("asked"));
    machine.simulator.move_cm_addresses(0);
    assert!(client.address_has_changed().expect("asked"));
    assert!(!client.has_ended().expect("asked"));
    assert!(!watched.has_ended().expect("asked"));
    assert!(!watched.wait_ended(Some(Duration::from_millis(1))).expect("asked"));
    drop(link);
    ours.send(client.qp_mut(), "ping");
    assert_eq!(theirs.receive(), "ping");
    thread::scope(|scope| {
        scope.spawn(|| listener.next(Some(LIMIT)).expect("a request").reject(b"heard"));
        let peer = connect_on(machine.kernel(), "10.0.0.1:9").expect("resolved");
        let (objects, qp) = Objects::new(&peer.device().expect("a device"));
        let failed = peer.timeout(LIMIT).connect(qp, b"").expect_err("rejected");
        let rejection = failed.error().rejection().expect("a rejection");
        assert!(rejection.private_data.starts_with(b"heard"));
        drop((failed, objects));
    });
    drop((client, watched, ours, theirs, listener));
    machine.end();
}

#[test]
fn a_watched_connection_hears_of_the_end() {
    let machine = Machine::roce();
    let [(mut client, ours), (server, theirs)] = machine.connected();
    let watched = server.watched().expect("a thread");
    client.disconnect().expect("disconnected");
    assert!(watched.wait_ended(Some(LIMIT)).expect("the end"));
    assert!(watched.wait_ended(None).expect("the end") && watched.has_ended().expect("the end"));
    client.wait_disconnected(Some(LIMIT)).expect("agreed");
    drop((watched, client, ours, theirs));
    machine.end();
}

#[test]
fn watched_connection_knows_its_end_before_anything_is_flushed() {
    let machine = Machine::roce();
    let [(mut client, ours), (server, theirs)] = machine.connected();
    let watched = server.watched().expect("a thread");
    // While this thread has the control half, the watching thread cannot flush.
    let control = watched.qp().lock_control();
    client.disconnect().expect("disconnected");
    assert!(watched.wait_ended(Some(LIMIT)).expect("the end"), "flushed first, known afterwards");
    assert_ne!(control.state(), QueueState::Error);
    drop(control);
    client.wait_disconnected(Some(LIMIT)).expect("agreed");
    drop((watched, client, ours, theirs));
    machine.end();
}

#[test]
fn a_watched_connection_says_by_which_error_it_ended() {
    let machine = Machine::roce();
    let by = |watched: &Watched| {
        let error = watched.wait_ended(Some(LIMIT)).expect_err("an error");
        // The error stays.
        let again = watched.wait_ended(None).expect_err("an error");
        let asked = watched.has_ended().expect_err("an error");
        assert_eq!([again.kind(), asked.kind()], [error.kind(); 2]);
        error
    };
    let [(client, ours), (server, theirs)] = machine.connected();
    let watched = server.watched().expect("a thread");
    // The thread reads the event, and the call fails.
    machine.simulator.fail_call(1, Errno::ENOMEM);
    machine.simulator.move_cm_addresses(0);
    assert_eq!(by(&watched).errno(), Some(Errno::ENOMEM));
    // The queue pair is flushed, so a caller that waits for a completion gets one.
    let start = Instant::now();
    while watched.qp().state() != QueueState::Error {
        assert!(start.elapsed() < LIMIT, "the queue pair is not flushed");
        thread::yield_now();
    }
    drop((watched, client, ours, theirs));

    let [(client, ours), (server, theirs)] = machine.connected();
    let watched = server.watched().expect("a thread");
    machine.simulator.remove_device(0);
    let gone = by(&watched);
    assert_eq!(gone.kind(), ErrorKind::DeviceGone);
    assert!(gone.to_string().starts_with("watch: the device is gone"), "{gone}");
    drop((watched, client, ours, theirs));
    assert_eq!(machine.simulator.cm_counts(), Default::default());
}

#[test]
fn a_connection_that_cannot_be_watched_is_returned_as_it_was() {
    // The limit belongs to a process, so the test runs in another one.
    const IS_OTHER: &str = "CONNECTIONS_WITHOUT_DESCRIPTORS";
    if env::var_os(IS_OTHER).is_none() {
        let name = "faults::a_connection_that_cannot_be_watched_is_returned_as_it_was";
        let mut other = Command::new(env::current_exe().expect("this program"));
        let ended = other.args(["--exact", name]).env(IS_OTHER, "").output().expect("it runs");
        let said = String::from_utf8_lossy(&ended.stdout);
        return assert!(ended.status.success() && said.contains("1 passed"), "{said}");
    }
    let machine = Machine::roce();
    let [(mut client, mut ours), (server, mut theirs)] = machine.connected();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let next = File::open("/dev/null").expect("a file").as_raw_fd();
    setrlimit(Resource::RLIMIT_NOFILE, next.cast_unsigned().into(), hard).expect("a limit");
    let failed = server.watched().expect_err("there is no descriptor for a pipe");
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("a limit");
    assert_eq!(failed.error().errno(), Some(Errno::EMFILE));
    let (error, mut server) = failed.into_parts();
    assert!(error.to_string().starts_with("watch: too many open files"), "{error}");
    assert!(![&mut client, &mut server].map(|end| end.has_ended().expect("asked")).contains(&true));
    ours.send(client.qp_mut(), "ping");
    assert_eq!(theirs.receive(), "ping");
    client.disconnect().expect("disconnected");
    server.wait_disconnected(Some(LIMIT)).expect("the end");
    drop((client, server, ours, theirs));
    machine.end();
}

#[test]
fn watched_connection_is_dropped_in_time_despite_other_events() {
    let machine = Machine::roce();
    let [(client, ours), (server, theirs)] = machine.connected();
    let watched = server.watched().expect("a thread");
    // The peer does not learn of the end, so it does not agree.
    machine.simulator.lose_cm_messages(CmMessage::Dreq, u32::MAX);
    let (dropped, is_dropped) = channel();
    let simulator = &machine.simulator;
    let in_time = thread::scope(|scope| {
        let news = scope.spawn(move || {
            let start = Instant::now();
            while is_dropped.recv_timeout(Duration::from_millis(10)).is_err() {
                if start.elapsed() > LIMIT {
                    return false;
                }
                simulator.move_cm_addresses(0);
            }
            true
        });
        drop(watched);
        let _ = dropped.send(());
        news.join().expect("no panic")
    });
    assert!(in_time, "it waits as long as there is news");
    machine.simulator.lose_cm_messages(CmMessage::Dreq, 0);
    drop((client, ours, theirs));
    machine.end();
}

#[test]
fn an_address_that_moves_while_a_connection_is_made_ends_it_with_an_error_that_says_so() {
    let machine = Machine::roce();
    let mut listener = machine.listener();
    // The side that connects waits for an answer.
    machine.simulator.lose_cm_messages(CmMessage::Req, u32::MAX);
    let peer = connect_on(machine.kernel(), ADDRESS).expect("resolved");
    let (objects, qp) = Objects::new(&peer.device().expect("a device"));
    machine.simulator.move_cm_addresses(0);
    let failed = peer.timeout(LIMIT).connect(qp, b"").expect_err("moved");
    assert_eq!(failed.error().kind(), ErrorKind::Disconnected);
    assert!(failed.error().to_string().contains("moved"), "{failed}");
    drop((failed, objects));
    machine.simulator.lose_cm_messages(CmMessage::Req, 0);
    // The side that accepts waits until the other is ready.
    let channel = machine.channel();
    let id = resolved(&channel, PortSpace::Tcp, |_| {});
    id.connect(&ConnectParam::new(1)).expect("asked");
    let request = listener.next(Some(LIMIT)).expect("a request");
    let (objects, qp) = Objects::new(&request.device().expect("a device"));
    let accepting = request.timeout(LIMIT).begin_accept(qp, b"").expect("accepted");
    machine.simulator.move_cm_addresses(0);
    let failed = accepting.finish().expect_err("moved");
    assert!(failed.error().to_string().contains("moved"), "{failed}");
    drop((failed, objects, id, channel, listener));
    machine.end();
}

#[test]
fn a_connection_without_its_queue_pair_ends_as_a_whole_one_does() {
    let machine = Machine::roce();
    for ours_first in [true, false] {
        let [(client, ours), (mut server, theirs)] = machine.connected();
        let (mut qp, mut link) = client.split();
        assert_eq!(link.remote().qp_num, server.qp().qp_num());
        assert!(!link.has_ended().expect("asked"));
        if ours_first {
            qp.to_error().expect("flushed");
            drop(link);
            server.wait_disconnected(Some(LIMIT)).expect("the end");
        } else {
            server.disconnect().expect("disconnected");
            let start = std::time::Instant::now();
            while !link.has_ended().expect("asked") {
                assert!(start.elapsed() < LIMIT, "it did not hear of the end");
                mlx5_uapi::wait::wait_readable(std::os::fd::AsFd::as_fd(&link), Some(LIMIT))
                    .expect("waited");
            }
            // The end stays, and this side has agreed.
            assert!(link.has_ended().expect("asked"));
            server.wait_disconnected(Some(LIMIT)).expect("agreed");
        }
        drop((qp, ours, server, theirs));
    }
    machine.end();
}

#[test]
fn a_device_that_is_pulled_out_ends_connections_and_listeners() {
    let machine = Machine::roce();
    let mut listener = Listener::bind_on(machine.kernel(), "10.0.0.1:9").expect("a listener");
    let [(mut client, ours), (mut server, theirs)] = machine.connected();
    machine.simulator.remove_device(0);
    for connection in [&mut client, &mut server] {
        let error = connection.wait_disconnected(Some(LIMIT)).expect_err("gone");
        assert_eq!(error.kind(), ErrorKind::DeviceGone);
        // The error stays, also for a call that does not wait.
        let error = connection.has_ended().expect_err("gone");
        assert_eq!(error.kind(), ErrorKind::DeviceGone);
        let error = connection.wait_disconnected(None).expect_err("gone");
        assert_eq!(error.kind(), ErrorKind::DeviceGone);
        let error = connection.id().device().expect_err("gone");
        assert_eq!((error.kind(), error.errno()), (ErrorKind::DeviceGone, Some(Errno::EIO)));
    }
    let error = listener.next(Some(LIMIT)).expect_err("gone");
    assert_eq!(error.kind(), ErrorKind::DeviceGone);
    drop((client, server, ours, theirs, listener));
    assert_eq!(machine.simulator.cm_counts(), Default::default());
}

/// A whole connection, by the calls of identifiers, in one thread. Returns the events that arrived.
/// Time is virtual: an event is pending at once, or it never arrives.
fn session(machine: &Machine) -> Result<Vec<&'static str>, mlx5_cm::Error> {
    let (server, client) = (
        mlx5_cm::EventChannel::open_on(machine.kernel())?,
        mlx5_cm::EventChannel::open_on(machine.kernel())?,
    );
    let mut heard = Vec::new();
    // If a fault suppressed an event, the session ends, and its objects are dropped.
    let mut next = |channel: &mlx5_cm::EventChannel| -> Result<Option<EventKind>, mlx5_cm::Error> {
        let kind = channel.poll()?.map(|event| event.kind);
        heard.extend(kind.as_ref().map(|kind| match kind {
            EventKind::AddressResolved => "address",
            EventKind::RouteResolved => "route",
            EventKind::ConnectRequest { .. } => "request",
            EventKind::ConnectResponse(_) => "response",
            EventKind::Established => "established",
            EventKind::Disconnected(_) => "disconnected",
            _ => "another",
        }));
        Ok(kind)
    };
    let listener = server.create_id(PortSpace::Tcp)?;
    listener.bind(address())?;
    listener.listen(4)?;
    let id = client.create_id(PortSpace::Tcp)?;
    id.resolve_addr(None, address(), LIMIT)?;
    next(&client)?;
    id.resolve_route(LIMIT)?;
    next(&client)?;
    id.connect(&ConnectParam::new(1).private_data(b"hello"))?;
    let Some(EventKind::ConnectRequest { id: mut request, .. }) = next(&server)? else {
        return Ok(heard);
    };
    let own = mlx5_cm::EventChannel::open_on(machine.kernel())?;
    request.migrate(&own)?;
    request.qp_attributes(mlx5::QueueState::ReadyToReceive)?;
    request.accept(&ConnectParam::new(2))?;
    next(&client)?;
    id.ready()?;
    next(&own)?;
    id.disconnect()?;
    next(&own)?;
    request.disconnect()?;
    next(&client)?;
    Ok(heard)
}

#[test]
fn each_call_may_fail_before_or_after_its_work_and_nothing_is_left() {
    const ALL: [&str; 7] =
        ["address", "route", "request", "response", "established", "disconnected", "disconnected"];
    let machine = Machine::stepped();
    assert_eq!(session(&machine).expect("nothing fails"), ALL);
    let calls = machine.simulator.calls();
    assert!(calls > 20, "{calls}");
    for late in [false, true] {
        for k in 1..=calls {
            match late {
                false => machine.simulator.fail_call(k, Errno::ENOMEM),
                true => machine.simulator.fail_call_late(k, Errno::EFAULT),
            }
            // The error depends on the call, and no caller learns of a failed destruction.
            let _ = session(&machine);
            machine.simulator.fail_no_call();
            let counts = machine.simulator.cm_counts();
            assert_eq!(counts, Default::default(), "call {k}, late {late}");
        }
    }
    assert_eq!(session(&machine).expect("nothing fails"), ALL);
    machine.end();
}
