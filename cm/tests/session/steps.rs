//! The steps of a session, one by one.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use mlx5::transport::Rc;
use mlx5::{
    CompletionQueue, Device, NotDone, ProtectionDomain, QueuePair, QueueState, Sge, WhyNotDone,
};
use mlx5_cm::{DEFAULT_TIMEOUT, ErrorKind, Listener, Session, SessionState, connect_on};
use mlx5_sim::{CmConfig, CmCounts, CmMessage, Fault, PortConfig, SimConfig, Simulator};

const ADDRESS: &str = "10.0.0.1:7473";
const LIMIT: Duration = Duration::from_secs(60);

fn simulator() -> Simulator {
    let cm = CmConfig { response_ms: 20, retries: 10_000, timewait_ms: 1 };
    Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).cm(cm))
}

fn objects(device: &Device) -> (ProtectionDomain, CompletionQueue, QueuePair<Rc>) {
    let context = device.open().unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(64).build().unwrap());
    let qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    (pd, cq, qp)
}

#[track_caller]
fn end(simulator: &Simulator) {
    assert_eq!(simulator.cm_counts(), CmCounts::default());
    assert_eq!(simulator.object_counts(0), Default::default());
    assert_eq!(simulator.violations(), []);
}

#[test]
fn each_step_has_its_state_and_a_wrong_one_is_refused() {
    let simulator = simulator();
    let (_pd, mut cq, qp) = objects(&mlx5::devices_on(simulator.kernel()).unwrap()[0]);
    let mut session = Session::new(qp);
    assert_eq!(session.state(), SessionState::Idle);
    assert!(session.connection().is_none());
    let mut listener = Listener::bind_on(simulator.kernel(), ADDRESS).unwrap();
    let resolved = || connect_on(simulator.kernel(), ADDRESS).unwrap().timeout(LIMIT);

    // The peer rejects: the session must be stopped before another attempt.
    let rejected = thread::scope(|scope| {
        scope.spawn(|| listener.next(Some(LIMIT)).unwrap().reject(b"no").unwrap());
        session.connect(resolved(), b"").unwrap_err()
    });
    assert_eq!(rejected.kind(), ErrorKind::Rejected);
    assert_eq!(session.state(), SessionState::Stopping);
    assert_eq!(session.connect(resolved(), b"").unwrap_err().kind(), ErrorKind::WrongState);
    assert_eq!(session.stop(&mut [&mut cq], |_| {}).unwrap(), []);
    assert_eq!(session.state(), SessionState::Idle);

    // The peer accepts, and ends the connection.
    for _ in 0..2 {
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener.next(Some(LIMIT)).unwrap();
                let (pd, cq, qp) = objects(&request.device().unwrap());
                drop(request.timeout(LIMIT).accept(qp, b"").unwrap());
                drop((pd, cq));
            });
            session.connect(resolved(), b"").unwrap();
        });
        assert_eq!(session.state(), SessionState::Connected);
        assert_eq!(session.connect(resolved(), b"").unwrap_err().kind(), ErrorKind::WrongState);
        let connection = session.connection().unwrap();
        connection.qp_mut().recv(7, Sge::default()).unwrap();
        connection.wait_disconnected(Some(LIMIT)).unwrap();
        let not_done = session.stop(&mut [&mut cq], |_| {}).unwrap();
        assert_eq!(not_done.len(), 1);
        assert_eq!((not_done[0].wr_id, not_done[0].receive), (7, true));
        assert!(matches!(not_done[0].why, WhyNotDone::Failed(error) if error.is_flushed()));
        assert_eq!(session.stop(&mut [&mut cq], |_| {}).unwrap(), [], "it is reported once");
    }
    drop((session, listener, cq, _pd));
    end(&simulator);
}

#[test]
fn session_taken_apart_returns_unreported_requests() {
    let simulator = simulator();
    let (pd, mut cq, mut qp) = loopback(&simulator);
    qp.recv(5, Sge::default()).unwrap();
    let mut session = Session::new(qp);
    // The session is stopped and cannot reconnect: no program listens.
    let attempt = |peer: mlx5_cm::Resolved, qp| peer.timeout(LIMIT).connect(qp, b"");
    let (kernel, now) = (simulator.kernel(), Duration::ZERO);
    session.reconnect(&kernel, ADDRESS, now, &mut [&mut cq], attempt, |_| {}).unwrap_err();
    let (qp, not_done) = session.into_queue_pair();
    assert!(qp.is_some());
    assert!(not_done.iter().map(|one| (one.wr_id, one.receive)).eq([(5, true)]), "{not_done:?}");
    // A session that has reported everything has nothing more to report.
    let mut session = Session::new(qp.unwrap());
    assert_eq!(session.stop(&mut [&mut cq], |_| {}).unwrap(), []);
    let (qp, not_done) = session.into_queue_pair();
    assert_eq!((qp.map(|qp| qp.state()), not_done), (Some(QueueState::Reset), vec![]));
    drop((cq, pd));
    end(&simulator);
}

#[test]
fn a_peer_that_comes_later_is_waited_for_and_one_that_rejects_is_not() {
    let simulator = simulator();
    let kernel = simulator.kernel();
    let (pd, mut cq, qp) = objects(&mlx5::devices_on(simulator.kernel()).unwrap()[0]);
    let mut session = Session::new(qp);
    let mut attempts = 0;
    let mut reconnect = |session: &mut Session, patience| {
        let cqs = &mut [&mut cq];
        let attempt = |peer: mlx5_cm::Resolved, qp| {
            attempts += 1;
            peer.connect(qp, b"")
        };
        session.reconnect(&kernel, ADDRESS, patience, cqs, attempt, |_| {})
    };
    // No program listens.
    let error = reconnect(&mut session, Duration::from_millis(500)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Rejected, "{error}");
    assert_eq!(session.state(), SessionState::Stopping);

    thread::scope(|scope| {
        let late = scope.spawn(|| {
            let mut listener = Listener::bind_on(simulator.kernel(), ADDRESS).unwrap();
            let request = listener.next(Some(LIMIT)).unwrap();
            let (pd, cq, qp) = objects(&request.device().unwrap());
            let connection = request.timeout(LIMIT).accept(qp, b"").unwrap();
            (listener, pd, cq, connection)
        });
        assert_eq!(reconnect(&mut session, LIMIT).unwrap(), []);
        let (mut listener, _pd, _cq, connection) = late.join().unwrap();
        drop(connection);
        scope.spawn(move || listener.next(Some(LIMIT)).unwrap().reject(b"go away").unwrap());
        let error = reconnect(&mut session, LIMIT).unwrap_err();
        let said =
            error.rejection().map(|rejection| rejection.private_data.starts_with(b"go away"));
        assert_eq!(said, Some(true), "{error}");
    });
    assert!(attempts >= 3);
    drop((session, cq, pd));
    end(&simulator);
}

#[test]
fn patience_limits_all_steps_of_all_attempts() {
    let simulator = simulator();
    let kernel = simulator.kernel();
    let (pd, mut cq, qp) = objects(&mlx5::devices_on(kernel.clone()).unwrap()[0]);
    let mut session = Session::new(qp);
    let start = Instant::now();
    let patience = Duration::from_millis(100);
    let mut fails = |session: &mut Session, addresses: &[SocketAddr], limit: Option<Duration>| {
        let attempt = |peer: mlx5_cm::Resolved, qp| match limit {
            Some(limit) => peer.timeout(limit).connect(qp, b""),
            None => peer.connect(qp, b""),
        };
        let cqs = &mut [&mut cq];
        session.reconnect(&kernel, addresses, patience, cqs, attempt, |_| {}).unwrap_err().kind()
    };
    // No machine has these addresses: resolving takes its whole time limit.
    let unassigned = ["10.0.0.77:1", "10.0.0.78:1"].map(|address| address.parse().unwrap());
    let kind = fails(&mut session, &unassigned, None);
    assert!(matches!(kind, ErrorKind::Unreachable | ErrorKind::TimedOut), "{kind:?}");
    // A listener that gets no message: the limit holds whatever limit an attempt sets itself.
    let listener = Listener::bind_on(simulator.kernel(), ADDRESS).unwrap();
    simulator.lose_cm_messages(CmMessage::Req, u32::MAX);
    for limit in [None, Some(LIMIT)] {
        let kind = fails(&mut session, &[ADDRESS.parse().unwrap()], limit);
        assert_eq!(kind, ErrorKind::TimedOut);
    }
    let taken = start.elapsed();
    assert!(taken >= 3 * patience && taken < DEFAULT_TIMEOUT, "{taken:?}");
    drop((session, listener, cq, pd));
    end(&simulator);
}

#[test]
fn an_attempt_that_patience_cut_short_does_not_hide_why_the_one_before_it_failed() {
    let simulator = simulator();
    let (pd, mut cq, qp) = objects(&mlx5::devices_on(simulator.kernel()).unwrap()[0]);
    let mut session = Session::new(qp);
    let mut attempts = 0;
    let attempt = |peer: mlx5_cm::Resolved, qp| {
        attempts += 1;
        // At the first attempt no program listens; the requests of later ones get lost.
        simulator.lose_cm_messages(CmMessage::Req, if attempts == 1 { 0 } else { u32::MAX });
        peer.connect(qp, b"")
    };
    let (kernel, patience) = (simulator.kernel(), Duration::from_millis(500));
    let error = session.reconnect(&kernel, ADDRESS, patience, &mut [&mut cq], attempt, |_| {});
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Rejected);
    assert_eq!(attempts, 2);
    drop((session, cq, pd));
    end(&simulator);
}

/// A name that is not found for `fails` look-ups, and the number of look-ups.
#[derive(Clone, Default)]
struct Name {
    fails: u32,
    looked_up: Arc<AtomicU32>,
}

impl ToSocketAddrs for Name {
    type Iter = std::option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        match self.looked_up.fetch_add(1, Ordering::Relaxed) {
            before if before < self.fails => Err(io::Error::other("no server of names answers")),
            _ => Ok(Some(ADDRESS.parse().unwrap()).into_iter()),
        }
    }
}

#[test]
fn a_name_that_is_not_found_is_looked_up_again_and_a_wrong_one_is_not() {
    let simulator = simulator();
    let kernel = simulator.kernel();
    let name = Name { fails: 1, ..Name::default() };
    let error = connect_on(kernel.clone(), name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("no server of names answers"), "{error}");
    let error = connect_on(kernel.clone(), "10.0.0.1:port").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");

    let (pd, mut cq, qp) = objects(&mlx5::devices_on(kernel.clone()).unwrap()[0]);
    let mut session = Session::new(qp);
    let mut listener = Listener::bind_on(kernel.clone(), ADDRESS).unwrap();
    let attempt = |peer: mlx5_cm::Resolved, qp| peer.timeout(LIMIT).connect(qp, b"");
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = listener.next(Some(LIMIT)).unwrap();
            let (pd, cq, qp) = objects(&request.device().unwrap());
            drop((request.timeout(LIMIT).accept(qp, b"").unwrap(), cq, pd));
        });
        let name = Name { fails: 3, ..Name::default() };
        let cqs = &mut [&mut cq];
        session.reconnect(&kernel, name.clone(), LIMIT, cqs, attempt, |_| {}).unwrap();
        assert_eq!(name.looked_up.load(Ordering::Relaxed), 4);
        server.join().unwrap();
    });
    let wrong = session.reconnect(&kernel, "10.0.0.1", LIMIT, &mut [&mut cq], attempt, |_| {});
    assert_eq!(wrong.unwrap_err().kind(), ErrorKind::InvalidArgument);
    drop((session, listener, cq, pd));
    end(&simulator);
}

/// The kernel rejects for the dead peer, as for a program that rejects without a reason.
#[test]
fn a_peer_that_dies_while_it_is_asked_is_waited_for_and_may_come_back() {
    let simulator = simulator();
    let kernel = simulator.kernel();
    let (pd, mut cq, qp) = objects(&mlx5::devices_on(simulator.kernel()).unwrap()[0]);
    let mut session = Session::new(qp);
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            for _ in 0..3 {
                let mut listener = Listener::bind_on(simulator.kernel(), ADDRESS).unwrap();
                drop(listener.next(Some(LIMIT)).unwrap());
            }
            let mut listener = Listener::bind_on(simulator.kernel(), ADDRESS).unwrap();
            let request = listener.next(Some(LIMIT)).unwrap();
            let (pd, cq, qp) = objects(&request.device().unwrap());
            (request.timeout(LIMIT).accept(qp, b"").unwrap(), pd, cq)
        });
        let attempt = |peer: mlx5_cm::Resolved, qp| peer.timeout(LIMIT).connect(qp, b"");
        let not_done = session.reconnect(&kernel, ADDRESS, LIMIT, &mut [&mut cq], attempt, |_| {});
        assert_eq!(not_done.unwrap(), []);
        drop(server.join().unwrap());
    });
    drop((session, cq, pd));
    end(&simulator);
}

#[test]
fn an_address_that_another_device_leads_to_is_no_reason_to_try_again() {
    let cm = CmConfig { response_ms: 20, retries: 10_000, timewait_ms: 1 };
    let config = SimConfig::new().devices(2).ports([PortConfig::ROCE]).cm(cm);
    let simulator = Simulator::new(config);
    let kernel = simulator.kernel();
    // The route leads from one device to the one with the address, to which the queue pair belongs.
    let listener = Listener::bind_on(kernel.clone(), ADDRESS).unwrap();
    let other = &listener.device().unwrap();
    let (pd, mut cq, qp) = objects(other);
    let mut session = Session::new(qp);
    let attempt = |_: mlx5_cm::Resolved, _| unreachable!("it is not tried");
    let error = session.reconnect(&kernel, ADDRESS, LIMIT, &mut [&mut cq], attempt, |_| {});
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceGone);
    let text = error.to_string();
    assert!(text.contains("over mlx5_1 now") && text.contains("of mlx5_0"), "{text}");
    assert_eq!(session.stop(&mut [&mut cq], |_| {}).unwrap(), []);
    drop((session, listener, pd, cq));
    assert_eq!(simulator.object_counts(1), Default::default());
    end(&simulator);
}

#[test]
fn gone_device_ends_the_session_and_unknown_requests_are_reported() {
    let simulator = simulator();
    let (_pd, mut cq, qp) = objects(&mlx5::devices_on(simulator.kernel()).unwrap()[0]);
    let mut session = Session::new(qp);
    let mut listener = Listener::bind_on(simulator.kernel(), ADDRESS).unwrap();
    let server = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = listener.next(Some(LIMIT)).unwrap();
            let (pd, cq, qp) = objects(&request.device().unwrap());
            (request.timeout(LIMIT).accept(qp, b"").unwrap(), pd, cq)
        });
        let peer = connect_on(simulator.kernel(), ADDRESS).unwrap().timeout(LIMIT);
        session.connect(peer, b"").unwrap();
        server.join().unwrap()
    });
    let connection = session.connection().unwrap();
    for wr_id in 1..=3 {
        connection.qp_mut().recv(wr_id, Sge::default()).unwrap();
    }
    simulator.remove_device(0);
    let kernel = simulator.kernel();
    let attempt = |peer: mlx5_cm::Resolved, qp| peer.connect(qp, b"");
    let error = session.reconnect(&kernel, ADDRESS, LIMIT, &mut [&mut cq], attempt, |_| {});
    assert_eq!(error.unwrap_err().kind(), ErrorKind::DeviceGone);
    assert_eq!(session.state(), SessionState::Lost);
    // The next call reports the requests that the failed one could not.
    let failed = session.stop(&mut [&mut cq], |_| {}).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::DeviceGone, "{failed}");
    let reported: Vec<u64> = failed.not_done.iter().map(|one| one.wr_id).collect();
    assert_eq!(reported, [1, 2, 3]);
    let again = session.stop(&mut [&mut cq], |_| {}).unwrap_err();
    assert_eq!(again.not_done, []);
    drop(server);
}

/// A queue pair that is connected to itself.
fn loopback(simulator: &Simulator) -> (ProtectionDomain, CompletionQueue, QueuePair<Rc>) {
    let (pd, cq, mut qp) = objects(&mlx5::devices_on(simulator.kernel()).unwrap()[0]);
    let port = qp.context().local_port(1, None).unwrap();
    let (psn, options) = Default::default();
    let own = qp.endpoint(&port, psn, &options);
    qp.connect(&port, psn, &own, &options).unwrap();
    (pd, cq, qp)
}

/// Runs `work`, which must end.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let worker = thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    assert_ne!(is_done.recv_timeout(LIMIT), Err(RecvTimeoutError::Timeout), "it does not end");
    worker.join().unwrap_or_else(|panic| resume_unwind(panic));
}

#[track_caller]
fn assert_withheld(error: &mlx5_cm::Error) {
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("stop: ") && text.contains("within 1ms: stop again"), "{text}");
}

#[test]
fn a_device_that_withholds_completions_does_not_hold_up_a_session_longer_than_its_limit() {
    ends(|| {
        let simulator = simulator();
        let (pd, mut cq, mut qp) = loopback(&simulator);
        let inbox = pd.allocate(64).unwrap();
        for wr_id in 1..=3 {
            qp.recv(wr_id, inbox.sge(..).unwrap()).unwrap();
        }
        let mut session = Session::new(qp).stop_timeout(Duration::from_millis(1));
        simulator.inject(0, Fault::Stall);
        let failed = session.stop(&mut [&mut cq], |_| {}).unwrap_err();
        assert_withheld(&failed.error);
        assert_eq!((failed.not_done, session.state()), (vec![], SessionState::Stopping));
        // The session does not reconnect before the device has completed the posted requests.
        let attempt = |_: mlx5_cm::Resolved, _| unreachable!("it is not tried");
        let kernel = simulator.kernel();
        let error = session.reconnect(&kernel, ADDRESS, LIMIT, &mut [&mut cq], attempt, |_| {});
        assert_withheld(&error.unwrap_err());
        assert_eq!(session.state(), SessionState::Stopping);
        assert!(simulator.object_counts(0).qps > 0, "what the device writes to stays");

        simulator.inject(0, Fault::Resume);
        let mut session = session.stop_timeout(LIMIT);
        let not_done = session.stop(&mut [&mut cq], |_| {}).unwrap();
        assert!(not_done.iter().map(|one| one.wr_id).eq(1..=3), "{not_done:?}");
        assert!(not_done.iter().all(|one| one.why != WhyNotDone::Unknown), "{not_done:?}");
        drop((session, inbox, cq, pd));
        end(&simulator);
    });
}

#[test]
fn session_stopped_now_reports_withheld_requests_and_can_connect_again() {
    ends(|| {
        let simulator = simulator();
        let (pd, mut cq, mut qp) = loopback(&simulator);
        let inbox = pd.allocate(64).unwrap();
        qp.recv(4, inbox.sge(..).unwrap()).unwrap();
        let mut session = Session::new(qp).stop_timeout(Duration::from_millis(1));
        simulator.inject(0, Fault::Stall);
        assert_withheld(&session.stop(&mut [&mut cq], |_| {}).unwrap_err().error);
        let not_done = session.stop_now(&mut [&mut cq], |_| panic!("none has come")).unwrap();
        assert_eq!(not_done, [NotDone { wr_id: 4, receive: true, why: WhyNotDone::Unknown }]);
        assert_eq!(session.state(), SessionState::Idle);
        assert_eq!(session.stop_now(&mut [&mut cq], |_| {}).unwrap(), [], "it is reported once");
        // The device has forgotten the receive, so its memory may be freed.
        drop(inbox);
        simulator.inject(0, Fault::Resume);
        let mut listener = Listener::bind_on(simulator.kernel(), ADDRESS).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let request = listener.next(Some(LIMIT)).unwrap();
                let (pd, cq, qp) = objects(&request.device().unwrap());
                drop((request.timeout(LIMIT).accept(qp, b"").unwrap(), cq, pd));
            });
            let peer = connect_on(simulator.kernel(), ADDRESS).unwrap().timeout(LIMIT);
            session.connect(peer, b"").unwrap();
        });
        session.connection().unwrap().wait_disconnected(Some(LIMIT)).unwrap();
        assert_eq!(session.stop_now(&mut [&mut cq], |_| {}).unwrap(), []);
        drop((session, listener, cq, pd));
        end(&simulator);
    });
}

#[test]
fn completions_before_and_after_the_limit_are_reported_once() {
    ends(|| {
        let simulator = Simulator::new(SimConfig::new().step(true));
        let (pd, mut cq, mut qp) = loopback(&simulator);
        for wr_id in 1..=3 {
            qp.recv(wr_id, Sge::default()).unwrap();
        }
        let mut session = Session::new(qp).stop_timeout(Duration::ZERO);
        let mut polled = 0;
        while polled == 0 {
            let failed = session.stop(&mut [&mut cq], |_| polled += 1).unwrap_err();
            assert_eq!((failed.error.kind(), failed.not_done), (ErrorKind::TimedOut, vec![]));
            assert!(simulator.step(), "a device that works");
        }
        assert!(polled < 3);
        simulator.run_until_idle();
        let not_done = session.stop(&mut [&mut cq], |_| {}).unwrap();
        assert!(not_done.iter().map(|one| one.wr_id).eq(1..=3), "{not_done:?}");
        drop((session, cq, pd));
        end(&simulator);
    });
}

#[test]
fn session_waits_for_the_device_as_long_as_for_a_peer_by_default() {
    let simulator = simulator();
    let (_pd, _cq, qp) = objects(&mlx5::devices_on(simulator.kernel()).unwrap()[0]);
    let text = format!("{:?}", Session::new(qp));
    assert!(text.contains(&format!("stop_timeout: {DEFAULT_TIMEOUT:?}")), "{text}");
}

/// Stops a session while the `k`-th call fails, before or after its work, and stops it again if
/// that failed. Returns whether it failed.
fn stop_with_a_failure(now: bool, k: u64, late: bool) -> bool {
    let simulator = simulator();
    let (_pd, mut cq, mut qp) = loopback(&simulator);
    qp.recv(9, Sge::default()).unwrap();
    let mut session = Session::new(qp);
    assert_eq!(session.state(), SessionState::Stopping);
    match late {
        false => simulator.fail_call(k, mlx5::Errno::ENOMEM),
        true => simulator.fail_call_late(k, mlx5::Errno::EFAULT),
    }
    let mut reported = Vec::new();
    let first = match now {
        false => session.stop(&mut [&mut cq], |_| {}),
        true => session.stop_now(&mut [&mut cq], |_| {}),
    };
    simulator.fail_no_call();
    let failed = first.is_err();
    match first {
        Ok(not_done) => reported.extend(not_done),
        Err(error) => {
            assert_eq!(session.state(), SessionState::Stopping, "call {k}: {error}");
            reported.extend(error.not_done);
            reported.extend(session.stop(&mut [&mut cq], |_| {}).unwrap());
        }
    }
    assert_eq!(session.state(), SessionState::Idle);
    let reported: Vec<u64> = reported.iter().map(|one| one.wr_id).collect();
    assert_eq!(reported, [9], "call {k}, now: {now}, late: {late}");
    failed
}

#[test]
fn failed_stop_can_be_repeated_and_reports_every_request_once() {
    for (now, late) in [(false, false), (false, true), (true, false), (true, true)] {
        let failed = (1..).take_while(|k| stop_with_a_failure(now, *k, late)).count();
        assert!(failed >= 2 - usize::from(now), "to flush and to reset can fail, late: {late}");
    }
}
