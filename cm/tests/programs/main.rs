//! Programs of rdma-core and perftest over the simulated connection manager: against each other, and
//! against `examples/peer.rs`, either way round. All run unmodified, with the preload library, on a
//! machine that this process serves.

mod machine;

use machine::{Machine, Program};

/// The server's address.
const HERE: &str = "10.0.0.1";
/// The kinds of port.
const LINKS: [&str; 2] = ["link=roce", "link=ib"];

/// What both sides run, and how.
struct Pair {
    server: (&'static str, &'static [&'static str]),
    client: (&'static str, &'static [&'static str]),
    /// What both say at least.
    said: [&'static str; 2],
}

/// Runs a server, and a client once it listens. Nothing is left of them.
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

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn rping_passes_memory_to_and_fro() {
    let said = ["server ping data: rdma-ping-2", "ping data: rdma-ping-2"];
    on_both_links(&Pair { server: RPING_SERVER, client: RPING_CLIENT, said });
}

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn our_client_pings_their_server() {
    let client = ("peer", &["rping", "client", HERE] as &[_]);
    let said = ["rdma-ping-2: ours", "pong: rdma-ping-2"];
    on_both_links(&Pair { server: RPING_SERVER, client, said });
}

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn their_client_pings_our_server() {
    let server = ("peer", &["rping", "server", HERE] as &[_]);
    on_both_links(&Pair {
        server,
        client: RPING_CLIENT,
        said: ["ping: rdma-ping-2", "rdma-ping-2"],
    });
}

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn ucmatose_sends_both_ways() {
    let said = ["return status 0"; 2];
    on_both_links(&Pair { server: CMATOSE_SERVER, client: CMATOSE_CLIENT, said });
}

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn our_ends_speak_to_ucmatose() {
    let server = ("peer", &["ucmatose", "server", HERE, "--port", "7471"] as &[_]);
    run(LINKS[0], &Pair { server, client: CMATOSE_CLIENT, said: ["done", "return status 0"] });
    let client = ("peer", &["ucmatose", "client", HERE, "--port", "7471"] as &[_]);
    run(LINKS[0], &Pair { server: CMATOSE_SERVER, client, said: ["return status 0", "done"] });
}

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn udaddy_sends_datagrams_both_ways() {
    let said = ["return status 0"; 2];
    on_both_links(&Pair { server: UDADDY_SERVER, client: UDADDY_CLIENT, said });
}

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn our_ends_speak_to_udaddy() {
    let server = ("peer", &["udaddy", "server", HERE, "--port", "7174"] as &[_]);
    run(LINKS[0], &Pair { server, client: UDADDY_CLIENT, said: ["done", "return status 0"] });
    let client = ("peer", &["udaddy", "client", HERE, "--port", "7174"] as &[_]);
    run(LINKS[0], &Pair { server: UDADDY_SERVER, client, said: ["return status 0", "done"] });
}

#[test]
fn our_ends_speak_to_each_other_by_system_calls() {
    for (program, words) in [("rping", "rdma-ping-2"), ("ucmatose", "done"), ("udaddy", "done")] {
        let side = |side| vec![program, side, HERE];
        let (server, client) = (side("server"), side("client"));
        let (server, client): (&'static [_], &'static [_]) = (server.leak(), client.leak());
        run(
            LINKS[0],
            &Pair { server: ("peer", server), client: ("peer", client), said: [words; 2] },
        );
    }
}

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn sockets_over_rdma_stream() {
    const SERVER: &[&str] = &["-C", "5", "-S", "4096"];
    const CLIENT: &[&str] = &["-C", "5", "-S", "4096", "-s", HERE];
    let said = ["custom"; 2];
    run(LINKS[0], &Pair { server: ("rstream", SERVER), client: ("rstream", CLIENT), said });
}

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn perftest_connects_by_the_connection_manager() {
    const SERVER: &[&str] = &["-R", "-n", "20"];
    const CLIENT: &[&str] = &["-R", "-n", "20", HERE];
    let said = ["65536      20"; 2];
    run(LINKS[0], &Pair { server: ("ib_write_bw", SERVER), client: ("ib_write_bw", CLIENT), said });
}

#[test]
#[ignore = "needs the Debian packages rdmacm-utils and perftest"]
fn a_client_of_nobody_is_rejected() {
    let machine = Machine::serve(LINKS[0]);
    for (program, said) in [
        (("ucmatose", &["-s", HERE] as &[_]), "RDMA_CM_EVENT_REJECTED, error: 8"),
        (("peer", &["hold", "client", HERE]), "nobody listens there"),
    ] {
        let (succeeded, text) = Program::start(&machine, program).ends();
        assert!(!succeeded && text.contains(said), "{text}");
    }
    machine.end();
}

/// Whichever side is killed while it is connected, the other one hears of it, and nothing is left.
#[test]
fn either_side_may_be_killed() {
    for kills_server in [true, false] {
        let machine = Machine::serve(LINKS[0]);
        let server = Program::start(&machine, ("peer", &["hold", "server", HERE]));
        machine.wait_for_listener(&server);
        let client = Program::start(&machine, ("peer", &["hold", "client", HERE]));
        let (killed, mut left) = if kills_server { (server, client) } else { (client, server) };
        left.wait_for("connected");
        drop(killed);
        assert!(left.succeeds().contains("done"));
        machine.end();
    }
}
