//! Programs of rdma-core and perftest over the simulated connection manager: against each other,
//! and against `examples/peer`, on either side. All run unmodified, with the preload library, on a
//! machine that this process serves.
//!
//! A test of a program that is not installed is ignored; its reason names the Debian package. With
//! `--include-ignored` it fails.

mod machine;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};

use machine::{Machine, Program};

/// A test by its name, and the programs that it needs.
type Row = (&'static str, &'static [&'static str], fn());

macro_rules! rows {
    ($($test:ident: [$($program:literal),*],)*) => {
        &[$((stringify!($test), &[$($program),*], $test)),*]
    };
}

const TESTS: &[Row] = rows! {
    rping_passes_memory_to_and_fro: ["rping"],
    our_client_pings_their_server: ["rping"],
    their_client_pings_our_server: ["rping"],
    ucmatose_sends_both_ways: ["ucmatose"],
    our_ends_speak_to_ucmatose: ["ucmatose"],
    udaddy_sends_datagrams_both_ways: ["udaddy"],
    our_ends_speak_to_udaddy: ["udaddy"],
    our_ends_speak_to_each_other_by_system_calls: [],
    a_server_shares_its_receives_over_extended_connections: ["rdma_xserver", "rdma_xclient"],
    sockets_over_rdma_stream: ["rstream"],
    perftest_connects_by_the_connection_manager: ["ib_write_bw"],
    client_without_server_is_rejected: ["ucmatose"],
    either_side_may_be_killed_at_every_step: [],
    either_side_may_be_killed_at_any_moment: [],
};

fn main() -> ExitCode {
    let trials = TESTS.iter().map(|&(name, programs, test)| {
        let trial = Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        });
        match programs.iter().find(|program| !machine::is_installed(program)) {
            Some(program) => {
                let needs = format!("needs {program} of {}", machine::package(program));
                trial.with_kind(needs).with_ignored_flag(true)
            }
            None => trial,
        }
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// The server's address.
const HERE: &str = "10.0.0.1";
/// The kinds of port.
const LINKS: [&str; 2] = ["link=roce", "link=ib"];

/// The commands of both sides.
struct Pair {
    server: (&'static str, &'static [&'static str]),
    client: (&'static str, &'static [&'static str]),
    /// Texts that the sides print at least.
    said: [&'static str; 2],
}

/// Runs a server, and a client once the server listens. Checks that they leave nothing behind.
fn run(settings: &str, pair: &Pair) {
    let machine = Machine::serve(settings);
    let server = Program::start(&machine, pair.server);
    machine.wait_for_listener(&server);
    let client = Program::start(&machine, pair.client);
    for (program, text) in [(client, pair.said[1]), (server, pair.said[0])] {
        let said = program.succeeds();
        assert!(said.contains(text), "no \"{text}\" in {said}");
    }
    machine.end();
}

fn on_both_links(pair: &Pair) {
    for link in LINKS {
        run(link, pair);
    }
}

const RPING_SERVER: (&str, &[&str]) = ("rping", &["-s", "-a", HERE, "-C", "3", "-v"]);
const RPING_CLIENT: (&str, &[&str]) = ("rping", &["-c", "-a", HERE, "-C", "3", "-v"]);
const CMATOSE_SERVER: (&str, &[&str]) = ("ucmatose", &[]);
const CMATOSE_CLIENT: (&str, &[&str]) = ("ucmatose", &["-s", HERE]);
const UDADDY_SERVER: (&str, &[&str]) = ("udaddy", &[]);
const UDADDY_CLIENT: (&str, &[&str]) = ("udaddy", &["-s", HERE]);

fn rping_passes_memory_to_and_fro() {
    let said = ["server ping data: rdma-ping-2", "ping data: rdma-ping-2"];
    on_both_links(&Pair { server: RPING_SERVER, client: RPING_CLIENT, said });
}

fn our_client_pings_their_server() {
    let client = ("peer", &["rping", "client", HERE] as &[_]);
    let said = ["rdma-ping-2: ours", "pong: rdma-ping-2"];
    on_both_links(&Pair { server: RPING_SERVER, client, said });
}

fn their_client_pings_our_server() {
    let server = ("peer", &["rping", "server", HERE] as &[_]);
    on_both_links(&Pair {
        server,
        client: RPING_CLIENT,
        said: ["ping: rdma-ping-2", "rdma-ping-2"],
    });
}

fn ucmatose_sends_both_ways() {
    let said = ["return status 0"; 2];
    on_both_links(&Pair { server: CMATOSE_SERVER, client: CMATOSE_CLIENT, said });
}

fn our_ends_speak_to_ucmatose() {
    let server = ("peer", &["ucmatose", "server", HERE, "--port", "7471"] as &[_]);
    on_both_links(&Pair { server, client: CMATOSE_CLIENT, said: ["done", "return status 0"] });
    let client = ("peer", &["ucmatose", "client", HERE, "--port", "7471"] as &[_]);
    on_both_links(&Pair { server: CMATOSE_SERVER, client, said: ["return status 0", "done"] });
}

fn udaddy_sends_datagrams_both_ways() {
    let said = ["return status 0"; 2];
    on_both_links(&Pair { server: UDADDY_SERVER, client: UDADDY_CLIENT, said });
}

fn our_ends_speak_to_udaddy() {
    let server = ("peer", &["udaddy", "server", HERE, "--port", "7174"] as &[_]);
    on_both_links(&Pair { server, client: UDADDY_CLIENT, said: ["done", "return status 0"] });
    let client = ("peer", &["udaddy", "client", HERE, "--port", "7174"] as &[_]);
    on_both_links(&Pair { server: UDADDY_SERVER, client, said: ["return status 0", "done"] });
}

fn our_ends_speak_to_each_other_by_system_calls() {
    for (program, words) in [("rping", "rdma-ping-2"), ("ucmatose", "done"), ("udaddy", "done")] {
        let side = |side| vec![program, side, HERE];
        let (server, client) = (side("server"), side("client"));
        let (server, client): (&'static [_], &'static [_]) = (server.leak(), client.leak());
        let (server, client) = (("peer", server), ("peer", client));
        on_both_links(&Pair { server, client, said: [words; 2] });
    }
}

fn a_server_shares_its_receives_over_extended_connections() {
    on_both_links(&Pair {
        server: ("rdma_xserver", &["-c", "x"]),
        client: ("rdma_xclient", &["-s", HERE, "-c", "x"]),
        said: ["rdma_xserver: end 0", "rdma_xclient: end 0"],
    });
}

fn sockets_over_rdma_stream() {
    const SERVER: &[&str] = &["-C", "5", "-S", "4096"];
    const CLIENT: &[&str] = &["-C", "5", "-S", "4096", "-s", HERE];
    let said = ["custom"; 2];
    run(LINKS[0], &Pair { server: ("rstream", SERVER), client: ("rstream", CLIENT), said });
}

/// perftest connects twice. Its server listens for the second connection only after both sides have
/// exchanged data over the first, and its client, which connects at once, gives up after ten
/// rejections in a second (`rdma_cm_client_connection` of perftest_communication.c). On a machine
/// that does not run the server for that long, this fails with any connection manager; the test
/// then starts both again.
fn perftest_connects_by_the_connection_manager() {
    const SERVER: &[&str] = &["-R", "-n", "20"];
    const CLIENT: &[&str] = &["-R", "-n", "20", HERE];
    const GAVE_UP: &str = "Failed to connect RDMA CM client, tried 10 times.";
    for _ in 0..10 {
        let machine = Machine::serve(LINKS[0]);
        let server = Program::start(&machine, ("ib_write_bw", SERVER));
        machine.wait_for_listener(&server);
        let (succeeded, said) = Program::start(&machine, ("ib_write_bw", CLIENT)).ends();
        if said.contains(GAVE_UP) {
            println!("the server was too slow for perftest's client, which gave up: once more");
            server.kill();
            machine.end();
            continue;
        }
        let both = [said, server.succeeds()];
        assert!(succeeded, "{}", both[0]);
        for said in both {
            assert!(said.contains("65536      20"), "{said}");
        }
        return machine.end();
    }
    panic!("perftest's client gave up each time");
}

fn client_without_server_is_rejected() {
    let machine = Machine::serve(LINKS[0]);
    for (program, said) in [
        (("ucmatose", &["-s", HERE] as &[_]), "RDMA_CM_EVENT_REJECTED, error: 8"),
        (("peer", &["rping", "client", HERE]), "no program listens there"),
    ] {
        let (succeeded, text) = Program::start(&machine, program).ends();
        assert!(!succeeded && text.contains(said), "{text}");
    }
    machine.end();
}

fn hold(machine: &Machine, side: &'static str, stop_at: Option<&str>) -> Program {
    let mut arguments = vec!["hold", side, HERE];
    arguments.extend(stop_at.iter().flat_map(|step| ["--stop-at", step]));
    Program::start(machine, ("peer", &arguments))
}

/// The last lines of the remaining side: results of the manager or the queue pair.
const ENDS: [&str; 5] = [
    "done",
    "peer: rejected for reason",
    "peer: the connection has failed",
    "or the peer has gone meanwhile",
    "peer: unexpected: Rejected",
];

/// Checks that the remaining side ends with a reason, and that both leave nothing behind.
fn ends_alone(left: Program, machine: Machine, what: &str) {
    let (_, said) = left.ends();
    assert!(ENDS.iter().any(|end| said.contains(end)), "{what}: {said}");
    machine.end();
}

/// One side stops at a step and is killed there; the other one continues until it ends.
fn either_side_may_be_killed_at_every_step() {
    const SHARED: [&str; 3] = ["connected", "traffic", "disconnecting"];
    for step in ["listening", "request", "migrated", "accepted"].iter().chain(&SHARED) {
        let machine = Machine::serve(LINKS[0]);
        let mut server = hold(&machine, "server", Some(step));
        machine.wait_for_listener(&server);
        let client = hold(&machine, "client", None);
        server.wait_for_step(step);
        server.kill();
        ends_alone(client, machine, &format!("the server is killed at {step}"));
    }
    for step in ["resolved", "asked", "answered"].iter().chain(&SHARED) {
        let machine = Machine::serve(LINKS[0]);
        let mut server = hold(&machine, "server", None);
        machine.wait_for_listener(&server);
        let mut client = hold(&machine, "client", Some(step));
        client.wait_for_step(step);
        if *step == "asked" {
            server.wait_for("at Request");
        }
        client.kill();
        if *step == "resolved" {
            // The client has not asked yet: the server keeps listening for the next one.
            let mut client = hold(&machine, "client", Some("connected"));
            client.wait_for_step("connected");
            client.kill();
        }
        ends_alone(server, machine, &format!("the client is killed at {step}"));
    }
}

/// `MLX5_SEED`, or a random number.
fn seed() -> u64 {
    let seed = std::env::var("MLX5_SEED").map_or_else(
        |_| RandomState::new().build_hasher().finish(),
        |seed| seed.parse().expect("MLX5_SEED is a number"),
    );
    println!("MLX5_SEED={seed}");
    seed
}

/// Without a stop: the kill comes between two steps or in the middle of a call.
fn either_side_may_be_killed_at_any_moment() {
    const ROUNDS: u32 = 12;
    let seed = seed();
    let mut random = seed | 1;
    for round in 0..ROUNDS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let machine = Machine::serve(LINKS[0]);
        let server = hold(&machine, "server", None);
        machine.wait_for_listener(&server);
        let client = hold(&machine, "client", None);
        // A random moment within the time that starting and connecting take.
        std::thread::sleep(Duration::from_micros(random % 60_000));
        let what = format!("round {round} of MLX5_SEED={seed}");
        match round % 2 {
            0 => {
                server.kill();
                let (_, said) = client.ends();
                let no_listener = said.contains("rejected for reason 8");
                assert!(no_listener || ENDS.iter().any(|end| said.contains(end)), "{what}: {said}");
                machine.end();
            }
            _ => {
                client.kill();
                // If the client was killed before it asked, the next one asks.
                let next = hold(&machine, "client", Some("traffic"));
                let mut server = server;
                server.wait_for_one_of(&["at Traffic", "done", "peer: "]);
                next.kill();
                ends_alone(server, machine, &what);
            }
        }
    }
}
