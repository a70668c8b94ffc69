//! The steps of a session, one by one.

use std::thread;
use std::time::Duration;

use mlx5::transport::Rc;
use mlx5::{CompletionQueue, Device, ProtectionDomain, QueuePair, Sge, WhyNotDone};
use mlx5_cm::{ErrorKind, Listener, Session, SessionState, connect_on};
use mlx5_sim::{CmConfig, CmCounts, PortConfig, SimConfig, Simulator};

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

    // The peer rejects: the queue pair has to be stopped before another attempt.
    let rejected = thread::scope(|scope| {
        scope.spawn(|| listener.next(Some(LIMIT)).unwrap().reject(b"no").unwrap());
        session.connect(resolved(), b"").unwrap_err()
    });
    assert_eq!(rejected.kind(), ErrorKind::Rejected);
    assert_eq!(session.state(), SessionState::Stopping);
    assert_eq!(session.connect(resolved(), b"").unwrap_err().kind(), ErrorKind::WrongState);
    assert_eq!(session.stop(&mut [&mut cq], |_| {}).unwrap(), []);
    assert_eq!(session.state(), SessionState::Idle);

    // The peer accepts, and ends it.
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
        assert_eq!(session.stop(&mut [&mut cq], |_| {}).unwrap(), [], "it is told once");
    }
    drop((session, listener, cq, _pd));
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
    // Nobody listens.
    let error = reconnect(&mut session, Duration::from_millis(5)).unwrap_err();
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

/// Its kernel rejects for it, in the same words as for a program that rejects without a reason.
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
    // One device has the address; the queue pair is of the other one.
    let listener = Listener::bind_on(kernel.clone(), ADDRESS).unwrap();
    let devices = mlx5::devices_on(kernel.clone()).unwrap();
    let guid = listener.device().unwrap().guid();
    let other = devices.iter().find(|device| device.guid() != guid).unwrap();
    let (pd, mut cq, qp) = objects(other);
    let mut session = Session::new(qp);
    let attempt = |_: mlx5_cm::Resolved, _| unreachable!("it is not tried");
    let error = session.reconnect(&kernel, ADDRESS, LIMIT, &mut [&mut cq], attempt, |_| {});
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceGone);
    assert!(error.to_string().contains("another device"), "{error}");
    assert_eq!(session.stop(&mut [&mut cq], |_| {}).unwrap(), []);
    drop((session, listener, pd, cq));
    assert_eq!(simulator.object_counts(1), Default::default());
    end(&simulator);
}

#[test]
fn a_device_that_is_gone_ends_the_session_and_what_is_unknown_is_told() {
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
    // What that call could not tell is told by the next.
    let failed = session.stop(&mut [&mut cq], |_| {}).unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::DeviceGone, "{failed}");
    let told: Vec<u64> = failed.not_done.iter().map(|one| one.wr_id).collect();
    assert_eq!(told, [1, 2, 3]);
    let again = session.stop(&mut [&mut cq], |_| {}).unwrap_err();
    assert_eq!(again.not_done, []);
    drop(server);
}

/// Stops a session while the `k`-th call fails, before or after its work, and again if that failed: whether
/// it did.
fn stop_with_a_failure(k: u64, late: bool) -> bool {
    let simulator = simulator();
    let (_pd, mut cq, mut qp) = objects(&mlx5::devices_on(simulator.kernel()).unwrap()[0]);
    let port = qp.context().local_port(1, None).unwrap();
    let (psn, options) = Default::default();
    let own = qp.endpoint(&port, psn, &options);
    qp.connect(&port, psn, &own, &options).unwrap();
    qp.recv(9, Sge::default()).unwrap();
    let mut session = Session::new(qp);
    assert_eq!(session.state(), SessionState::Stopping);
    match late {
        false => simulator.fail_call(k, mlx5::Errno::ENOMEM),
        true => simulator.fail_call_late(k, mlx5::Errno::EFAULT),
    }
    let mut told = Vec::new();
    let first = session.stop(&mut [&mut cq], |_| {});
    simulator.fail_no_call();
    let failed = first.is_err();
    match first {
        Ok(not_done) => told.extend(not_done),
        Err(error) => {
            assert_eq!(session.state(), SessionState::Stopping, "call {k}: {error}");
            told.extend(error.not_done);
            told.extend(session.stop(&mut [&mut cq], |_| {}).unwrap());
        }
    }
    assert_eq!(session.state(), SessionState::Idle);
    let told: Vec<u64> = told.iter().map(|one| one.wr_id).collect();
    assert_eq!(told, [9], "call {k}, late: {late}");
    failed
}

#[test]
fn a_call_that_fails_leaves_a_session_that_can_be_stopped_again_and_tells_everything_once() {
    for late in [false, true] {
        let failed = (1..).take_while(|k| stop_with_a_failure(*k, late)).count();
        assert!(failed >= 2, "to flush and to reset can fail, late: {late}");
    }
}
