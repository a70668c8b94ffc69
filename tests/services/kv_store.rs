//! Tests of the example `kv_store`: a server, and up to three clients.

use crate::machine::{self, LINKS, Machine};

#[test]
fn one_client_gets_the_value_that_another_put() {
    for link in LINKS {
        let machine = Machine::serve(link);
        let (server, at) = machine.server("kv_store", &["10.0.0.1:0"]);
        let run = |arguments: &[&str]| {
            machine.start("kv_store", &[arguments, &["--server", &at]].concat())
        };
        assert_eq!(run(&["put", "colour", "blue"]).succeed(), "version 1");
        assert_eq!(run(&["put", "shape", "round"]).succeed(), "version 1");
        assert_eq!(run(&["get", "colour"]).succeed(), "blue (version 1, 0 torn reads)");
        assert_eq!(run(&["put", "colour", "red"]).succeed(), "version 2");
        assert_eq!(run(&["get", "colour"]).succeed(), "red (version 2, 0 torn reads)");
        assert_eq!(run(&["get", "shape"]).succeed(), "round (version 1, 0 torn reads)");
        // The keys `kiwi` and `date` have the same first slot.
        assert_eq!(run(&["put", "kiwi", "green"]).succeed(), "version 1");
        assert_eq!(run(&["put", "date", "brown"]).succeed(), "version 1");
        assert_eq!(run(&["get", "kiwi"]).succeed(), "green (version 1, 0 torn reads)");
        assert_eq!(run(&["get", "size"]).fail(), "error: there is no key \"size\"");
        let long = "x".repeat(300);
        let refused = run(&["put", "long", &long]).fail();
        assert_eq!(refused, "error: key and value have at most 238 bytes");
        server.kill();
        machine.end();
    }
}

/// The server stops in the middle of each write until the test presses Enter.
#[test]
fn a_read_that_meets_a_write_is_done_again() {
    for link in LINKS {
        let machine = Machine::serve(link);
        let (mut server, at) = machine.server("kv_store", &["10.0.0.1:0", "--step"]);
        for (value, version) in [("first", 1), ("second", 2)] {
            let put = machine.start("kv_store", &["put", "key", value, "--server", &at]);
            server.line("half of a slot is written");
            let mut get = machine.start("kv_store", &["get", "key", "--server", &at]);
            get.line("a read met a write");
            server.enter();
            let got = get.succeed();
            assert!(got.contains(&format!("\n{value} (version {version}, ")), "{got}");
            assert_eq!(put.succeed(), format!("version {version}"));
        }
        server.kill();
        machine.end();
    }
}

/// The server starts normally, and then hangs in the middle of a write.
#[test]
fn no_client_waits_longer_than_its_limit_for_a_server_that_hangs() {
    let machine = Machine::serve("");
    let (mut server, at) = machine.server("kv_store", &["10.0.0.1:0", "--step"]);
    let within = ["--limit", "1", "--server", &at];
    let put = machine.start("kv_store", &[&["put", "key", "value"], &within[..]].concat());
    server.line("half of a slot is written");
    let get = machine.start("kv_store", &[&["get", "key"], &within[..]].concat());
    let error = put.fail();
    assert!(error.contains("within 1s: does the other side run"), "{error}");
    assert_eq!(get.fail(), "error: a write of the server did not end within 1s");
    // The server finishes the write, and serves the next client.
    server.enter();
    let get = machine.start("kv_store", &["get", "key", "--server", &at]);
    assert!(get.succeed().ends_with("value (version 1, 0 torn reads)"));
    server.kill();
    machine.end();
}

#[test]
fn three_clients_that_put_and_get_the_same_keys_get_whole_values() {
    let machine = Machine::serve("");
    let (mut server, at) = machine.server("kv_store", &["10.0.0.1:0"]);
    let load = ["load", "--rounds", "200", "--server", &at];
    for client in [(); 3].map(|()| machine.start("kv_store", &load)) {
        let said = client.succeed();
        assert!(said.contains("200 puts and gets"), "{said}");
    }
    // The server does not report the end of a client as a failure.
    for line in [(); 6].map(|()| server.line("client ")) {
        assert!(line.ends_with(" is connected") || line.ends_with(" has left"), "{line}");
    }
    // The versions of the three keys add up to the number of puts of all clients, 600.
    let versions = ["red", "green", "blue"].map(|key| {
        let said = machine.start("kv_store", &["get", key, "--server", &at]).succeed();
        let (_, version) = said.split_once("(version ").expect("a version");
        version.split(',').next().and_then(|version| version.parse::<u32>().ok())
    });
    assert_eq!(versions, [Some(201), Some(201), Some(198)]);
    server.kill();
    machine.end();
}

#[test]
fn a_client_says_that_the_server_has_died() {
    let machine = Machine::serve("");
    let (mut server, at) = machine.server("kv_store", &["10.0.0.1:0"]);
    let client = machine.start("kv_store", &["load", "--rounds", "1000000000", "--server", &at]);
    server.line("client 1 is connected");
    server.kill();
    machine::lost(&client.fail());
    machine.end();
}
