//! Either side is killed at each step, one after the other: at every call of its program into the
//! kernel while it connects, and at every step of traffic. The other side notices, by an error or
//! by the end of the connection, and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use mlx5::{Kernel, SendFlags, Sge};
use mlx5_cm::{Connection, Error, ErrorKind, Listener, connect_on};

use crate::mortal::{Life, Mortal};
use crate::rig::{ADDRESS, LIMIT, Machine, Objects};

/// One side, and the step at which it is killed, if it is the one.
#[derive(Clone)]
struct Side {
    kernel: Arc<dyn Kernel>,
    life: Option<Arc<Life>>,
    /// The other side's program has ended.
    alone: Arc<AtomicBool>,
}

impl Side {
    fn is_dead(&self) -> bool {
        self.life.as_ref().is_some_and(|life| life.is_over())
    }

    /// A step that makes no call.
    fn step(&self) -> Option<()> {
        self.life.as_ref().is_none_or(|life| life.step().is_ok()).then_some(())
    }
}

/// Outcome of a side.
#[derive(Debug)]
enum Fate {
    /// It was killed.
    Dead,
    /// It received all messages.
    Served,
    /// It was connected, and noticed the end.
    Ended,
    Failed(Error),
    /// The other side never asked for a connection.
    Unasked,
}

const MESSAGES: usize = 3;

/// Sends messages, and waits for the same number.
fn talk(side: &Side, connection: &mut Connection, objects: &mut Objects) -> Fate {
    let (mut sent, mut done, start) = (0, 0, Instant::now());
    let mut failed = false;
    while done < 2 * MESSAGES && !failed {
        if sent < MESSAGES && sent <= done / 2 {
            let posted = connection.qp_mut().post(|batch| {
                batch.wr(0, SendFlags::SIGNALED).send().inline_data(&[]);
            });
            // In the error state, the request is flushed or refused.
            failed |= posted.is_err();
            sent += 1;
            if side.step().is_none() {
                return Fate::Dead;
            }
        }
        let before = done;
        let polled = objects.cq.poll(16, |completion| match completion.is_success() {
            true => done += 1,
            false => failed = true,
        });
        failed |= polled.is_err();
        if done > before && side.step().is_none() {
            return Fate::Dead;
        }
        if side.life.is_none() && connection.has_ended().expect("the device is there") {
            failed = true;
        }
        assert!(start.elapsed() < LIMIT, "no message came, and no end");
        thread::yield_now();
    }
    if failed {
        if side.is_dead() {
            return Fate::Dead;
        }
        connection.wait_disconnected(Some(LIMIT)).expect("the other side is gone");
        return Fate::Ended;
    }
    if connection.disconnect().is_err() && side.is_dead() {
        return Fate::Dead;
    }
    match connection.wait_disconnected(Some(LIMIT)) {
        _ if side.is_dead() => Fate::Dead,
        ended => ended.map_or_else(Fate::Failed, |()| Fate::Served),
    }
}

fn receives(qp: &mut mlx5::QueuePair<mlx5::transport::Rc>) {
    for _ in 0..MESSAGES {
        qp.recv(0, Sge::default()).expect("posted");
    }
}

fn client(side: &Side) -> Fate {
    let connected = (|| -> Result<_, Option<Error>> {
        let peer = connect_on(Arc::clone(&side.kernel), ADDRESS)?;
        let (objects, mut qp) = Objects::try_new(&peer.device()?).map_err(|_| None)?;
        peer.init(&mut qp)?;
        receives(&mut qp);
        let connection = peer.timeout(LIMIT).connect(qp, b"").map_err(Error::from)?;
        Ok((connection, objects))
    })();
    match connected {
        _ if side.is_dead() => Fate::Dead,
        Ok((mut connection, mut objects)) => talk(side, &mut connection, &mut objects),
        Err(error) => Fate::Failed(error.expect("the device is there")),
    }
}

fn server(side: &Side, ready: &AtomicBool) -> Fate {
    let served = (|| -> Result<_, Option<Error>> {
        let listener = Listener::bind_on(Arc::clone(&side.kernel), ADDRESS);
        // Set this even if the listener was killed.
        ready.store(true, Ordering::Release);
        let mut listener = listener?;
        let request = loop {
            match listener.next(Some(Duration::from_millis(2))) {
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    if side.alone.load(Ordering::Acquire) {
                        return Ok(None);
                    }
                }
                request => break request?,
            }
        };
        let (objects, mut qp) = Objects::try_new(&request.device()?).map_err(|_| None)?;
        request.init(&mut qp)?;
        receives(&mut qp);
        let connection = request.timeout(LIMIT).accept(qp, b"").map_err(Error::from)?;
        Ok(Some((connection, objects)))
    })();
    match served {
        _ if side.is_dead() => Fate::Dead,
        Ok(None) => Fate::Unasked,
        Ok(Some((mut connection, mut objects))) => talk(side, &mut connection, &mut objects),
        Err(error) => Fate::Failed(error.expect("the device is there")),
    }
}

/// Makes a connection and kills one of its sides at a step. Returns the fates of client and server.
fn run(machine: &Machine, kills_client: bool, step: u64) -> [Fate; 2] {
    let life = Life::of(step);
    let mortal: Arc<dyn Kernel> =
        Arc::new(Mortal { kernel: machine.kernel(), life: Arc::clone(&life) });
    let alone = Arc::new(AtomicBool::new(false));
    let side = |dies: bool| Side {
        kernel: if dies { Arc::clone(&mortal) } else { machine.kernel() },
        life: dies.then(|| Arc::clone(&life)),
        alone: Arc::clone(&alone),
    };
    let ready = AtomicBool::new(false);
    thread::scope(|scope| {
        let server_side = side(!kills_client);
        let server = scope.spawn(|| server(&{ server_side }, &ready));
        while !ready.load(Ordering::Acquire) {
            thread::yield_now();
        }
        let fate = client(&side(kills_client));
        alone.store(true, Ordering::Release);
        [fate, server.join().expect("the server")]
    })
}

#[test]
fn process_killed_at_any_step_is_reported_to_the_peer_and_leaves_nothing() {
    for kills_client in [true, false] {
        let machine = Machine::roce();
        let mut heard = Vec::new();
        for step in 1.. {
            let start = Instant::now();
            let fates = run(&machine, kills_client, step);
            let said = format!("kills the client: {kills_client}, step {step}: {fates:?}");
            let [client, server] = fates;
            let (dead, other) = if kills_client { (client, server) } else { (server, client) };
            // Far below the time limits of the steps: nothing waited for a limit.
            assert!(start.elapsed() < LIMIT, "{said}");
            assert_eq!(machine.simulator.cm_counts(), Default::default(), "{said}");
            assert_eq!(machine.simulator.object_counts(0), Default::default(), "{said}");
            match (&dead, &other) {
                (Fate::Served, Fate::Served | Fate::Ended) => break,
                (Fate::Dead, Fate::Unasked | Fate::Served | Fate::Ended) => {}
                (Fate::Dead, Fate::Failed(error)) => {
                    use ErrorKind::{Disconnected, Rejected, WrongState};
                    let known = [Disconnected, Rejected, WrongState];
                    assert!(known.contains(&error.kind()), "{said}");
                }
                _ => panic!("{said}"),
            }
            heard.push(other);
        }
        // Some runs were killed before there was a connection, and some while there was one.
        assert!(heard.iter().any(|fate| matches!(fate, Fate::Failed(_))), "{heard:?}");
        assert!(heard.iter().filter(|fate| matches!(fate, Fate::Ended)).count() >= 3, "{heard:?}");
        println!("kills the client: {kills_client}: {} steps", heard.len());
        machine.end();
    }
}
