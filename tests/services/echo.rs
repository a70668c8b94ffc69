//! The echo service: 64 connections on each side.

use crate::machine::{self, LINKS, Machine};

#[test]
fn messages_on_64_connections_come_back() {
    for link in LINKS {
        let machine = Machine::serve(link);
        let (server, at) = machine.server("echo", &["10.0.0.1:0"]);
        let call = ["call", "--connections", "64", "--messages", "10", "--server", &at];
        let clients = [(); 2].map(|()| machine.start("echo", &call));
        for client in clients {
            assert_eq!(client.succeed(), "64 connections, 640 messages came back");
        }
        server.kill();
        machine.end();
    }
}

/// All connections share the buffers, so a buffer lost with a client would stay lost.
#[test]
fn clients_that_are_killed_take_no_buffers_along() {
    let machine = Machine::serve("");
    let (mut server, at) = machine.server("echo", &["10.0.0.1:0"]);
    let call = ["call", "--connections", "32", "--messages", "1000000", "--server", &at];
    for _ in 0..3 {
        let client = machine.start("echo", &call);
        for _ in 0..32 {
            server.line("a connection is made");
        }
        client.kill();
        let ended = [(); 32].map(|()| server.line("a connection has ended: "));
        // The last connection that counts finds all of them; its line need not be the last.
        assert!(ended.iter().any(|line| line.ends_with("; 64 buffers are posted")), "{ended:#?}");
    }
    let call = ["call", "--connections", "32", "--messages", "20", "--server", &at];
    assert_eq!(machine.start("echo", &call).succeed(), "32 connections, 640 messages came back");
    server.kill();
    machine.end();
}

#[test]
fn a_client_says_that_the_server_has_died() {
    let machine = Machine::serve("");
    let (mut server, at) = machine.server("echo", &["10.0.0.1:0"]);
    let call = ["call", "--connections", "4", "--messages", "1000000", "--server", &at];
    let client = machine.start("echo", &call);
    for _ in 0..4 {
        server.line("a connection is made");
    }
    server.kill();
    machine::lost(&client.fail());
    machine.end();
}

#[test]
fn no_client_waits_longer_than_its_limit_for_a_server_that_hangs() {
    let machine = Machine::serve("");
    let (mut server, at) = machine.server("echo", &["10.0.0.1:0"]);
    let call = ["call", "--connections", "2", "--messages", "1000000000"];
    let client = machine.start("echo", &[&call, &["--limit", "1", "--server", &at][..]].concat());
    for _ in 0..2 {
        server.line("a connection is made");
    }
    server.stop();
    let error = client.fail();
    assert!(error.contains("within 1s: does the other side run"), "{error}");
    server.kill();
    machine.end();
}
