//! Either side of each service is killed (SIGKILL): at each of its calls into the kernel, from the
//! first to the last, and at random moments between them, while it works.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::thread;
use std::time::Duration;

use crate::machine::{LINKS, Machine};

const ROUNDS: u32 = 2;

struct Service {
    name: &'static str,
    /// Arguments of a client that never ends by itself.
    endless: &'static [&'static str],
    /// Arguments of a client that must succeed at once, although the first one was killed.
    short: &'static [&'static str],
}

const SERVICES: [Service; 3] = [
    Service {
        name: "kv_store",
        endless: &["load", "--rounds", "1000000000"],
        short: &["load", "--rounds", "3"],
    },
    Service {
        // Both clients want the same lock: the server must free the lock of the killed one.
        name: "lock",
        endless: &["count", "3", "--rounds", "1000000000"],
        short: &["count", "3", "--rounds", "2"],
    },
    Service {
        name: "echo",
        endless: &["call", "--connections", "4", "--messages", "1000000000"],
        short: &["call", "--connections", "4", "--messages", "2"],
    },
];

/// The errors of a client whose server was killed, at any step.
const CAUSES: [&str; 5] = [
    "hung up",
    "has failed",
    "there is no server at",
    "connect: ",
    // The server rejected the client between two of its calls.
    "the peer has gone meanwhile",
];

/// The seed: `MLX5_SEED`, or a new number for each run.
fn seed() -> u64 {
    let seed = std::env::var("MLX5_SEED").map_or_else(
        |_| RandomState::new().build_hasher().finish(),
        |seed| seed.parse().expect("MLX5_SEED is a number"),
    );
    println!("MLX5_SEED={seed}");
    seed
}

#[test]
fn either_side_is_killed_at_any_moment_and_the_other_goes_on_or_says_so() {
    let seed = seed();
    let mut random = seed | 1;
    // A random moment between the client's first request and its work.
    let mut moment = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        thread::sleep(Duration::from_micros(random % 100_000));
    };
    for Service { name, endless, short } in SERVICES {
        for (round, link) in (0..ROUNDS).flat_map(|round| LINKS.map(|link| (round, link))) {
            let machine = Machine::serve(link);
            let (server, at) = machine.server(name, &["10.0.0.1:0"]);
            let client = |work: &[&str]| machine.start(name, &[work, &["--server", &at]].concat());
            let killed = client(endless);
            moment();
            killed.kill();
            client(short).succeed();
            let left = client(endless);
            moment();
            server.kill();
            let error = left.fail();
            let known = CAUSES.iter().any(|cause| error.contains(cause));
            assert!(known, "{name}, {link}, round {round} of MLX5_SEED={seed}: {error}");
            machine.end();
        }
    }
}

/// All calls take minutes, so the test tries one call in this number, starting from a random one.
/// `SERVICES_KILLS=all` tries all of them.
const ONE_OF: usize = 16;

#[test]
fn either_side_is_killed_at_each_of_its_calls_and_the_other_goes_on_or_says_so() {
    let all = std::env::var("SERVICES_KILLS").is_ok_and(|which| which == "all");
    let one_of = if all { 1 } else { ONE_OF };
    let first = 1 + (seed() % one_of as u64) as u32;
    let services = LINKS.into_iter().flat_map(|link| SERVICES.map(|service| (link, service)));
    for (link, Service { name, short, .. }) in services {
        let machine = Machine::serve(link);
        let (server, at) = machine.server(name, &["10.0.0.1:0"]);
        let work = [short, &["--server", &at]].concat();
        for call in (first..).step_by(one_of) {
            let (success, said) = machine.start_mortal(name, &work, call).end();
            if success {
                assert!(call > 20, "{name}, {link}: {call}");
                break;
            }
            assert!(!said.contains("error: "), "{name}, {link}, call {call}: {said}");
        }
        machine.start(name, &work).succeed();
        server.kill();

        let serve = ["serve", "--listen", "10.0.0.1:0"];
        for call in (first..).step_by(one_of) {
            let mut server = machine.start_mortal(name, &serve, call);
            let Some(ready) = server.line_or_end("ready on ") else { continue };
            let work = [short, &["--server", ready.trim_start_matches("ready on ")]].concat();
            // The server may end when the first client has all that it wants.
            let served = [(); 2].map(|()| {
                let (success, said) = machine.start(name, &work).end();
                let known = CAUSES.iter().any(|cause| said.contains(cause));
                assert!(success || known, "{name}, {link}, call {call} of the server: {said}");
                success
            });
            server.kill();
            if served == [true; 2] {
                assert!(call > 20, "{name}, {link}: {call}");
                break;
            }
        }
        machine.end();
    }
}
