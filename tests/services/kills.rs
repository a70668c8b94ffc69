//! Either side of each service is killed (SIGKILL) at any moment: while it connects, while it works.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::thread;
use std::time::Duration;

use crate::machine::Machine;

const ROUNDS: u32 = 3;

struct Service {
    name: &'static str,
    /// What a client does that goes on for ever.
    endless: &'static [&'static str],
    /// What another client does at once, although the first one was killed.
    short: &'static [&'static str],
}

const SERVICES: [Service; 3] = [
    Service {
        name: "kv_store",
        endless: &["load", "--rounds", "1000000000"],
        short: &["load", "--rounds", "3"],
    },
    Service {
        // Both want the same lock: that of a client that is killed is freed.
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

/// What a client says whose server was killed, at whatever step.
const CAUSES: [&str; 5] = [
    "hung up",
    "has failed",
    "there is no server at",
    "connect: ",
    // It rejected the client between two of its calls.
    "the peer has gone meanwhile",
];

#[test]
fn either_side_is_killed_at_any_moment_and_the_other_goes_on_or_says_so() {
    let seed = RandomState::new().build_hasher().finish();
    println!("seed {seed:#x}");
    let mut random = seed | 1;
    // A moment of no meaning, from before the client asks until it works.
    let mut moment = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        thread::sleep(Duration::from_micros(random % 100_000));
    };
    for Service { name, endless, short } in SERVICES {
        for round in 0..ROUNDS {
            let machine = Machine::serve("");
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
            assert!(known, "{name}, round {round} of seed {seed:#x}: {error}");
            machine.end();
        }
    }
}
