//! The lock service: its server is killed, and clients of it.

use crate::machine::{self, LINKS, Machine, Process};

/// The numbers after a word, in the lines that have it.
fn numbers(said: &str, word: &str) -> Vec<u64> {
    let after = |line: &str| -> Option<u64> {
        line.split_once(word)?.1.split_whitespace().next()?.parse().ok()
    };
    said.lines().filter_map(after).collect()
}

#[test]
fn a_lock_has_one_owner_at_a_time_and_each_has_a_token_of_its_own() {
    const ROUNDS: u64 = 30;
    for link in LINKS {
        let machine = Machine::serve(link);
        let (server, at) = machine.server("lock", &["10.0.0.1:0"]);
        let count = ["count", "5", "--rounds", &ROUNDS.to_string(), "--server", &at];
        let clients = [(); 3].map(|()| machine.start("lock", &count));
        let said = clients.map(|client| client.succeed()).join("\n");
        for word in ["token ", "counter "] {
            let mut all = numbers(&said, word);
            all.sort_unstable();
            assert_eq!(all, (1..=3 * ROUNDS).collect::<Vec<_>>(), "{word}");
        }
        server.kill();
        machine.end();
    }
}

#[test]
fn the_lock_of_a_client_that_is_killed_is_freed() {
    let machine = Machine::serve("");
    let (server, at) = machine.server("lock", &["10.0.0.1:0"]);
    let mut holder = machine.start("lock", &["hold", "0", "--server", &at]);
    holder.line("client 1 holds lock 0 with token 1");
    let mut waiter = machine.start("lock", &["count", "0", "--rounds", "1", "--server", &at]);
    waiter.line("client 2 waits: client 1 has lock 0");
    holder.kill();
    assert_eq!(numbers(&waiter.succeed(), "token "), [2]);
    server.kill();
    machine.end();
}

#[test]
fn clients_of_a_server_that_is_killed_say_so_and_a_new_server_gets_them_back_to_work() {
    for link in LINKS {
        let machine = Machine::serve(link);
        let (server, at) = machine.server("lock", &["10.0.0.1:0"]);
        let mut holder = machine.start("lock", &["hold", "7", "--server", &at]);
        holder.line("client 1 holds lock 7 with token 1");
        let count = ["count", "7", "--rounds", "4", "--server", &at];
        let mut waiter = machine.start("lock", &count);
        let mut patient = machine.start("lock", &[&count[..], &["--patience", "60"]].concat());
        waiter.line("waits: client 1 has lock 7");
        patient.line("waits: client 1 has lock 7");
        server.kill();
        for client in [holder, waiter] {
            machine::lost(&client.fail());
        }
        patient.line("lost the server: ");
        // A killed server must leave nothing that prevents the next one from working.
        let (server, again) = machine.server("lock", &[&at]);
        assert_eq!(again, at);
        assert_eq!(numbers(&patient.succeed(), "counter "), [1, 2, 3, 4]);
        assert_eq!(numbers(&machine.start("lock", &count).succeed(), "counter "), [5, 6, 7, 8]);
        server.kill();
        machine.end();
    }
}

#[test]
fn missing_server_and_missing_wire_are_reported_in_one_line() {
    let machine = Machine::serve("");
    let unserved = machine.start("lock", &["hold", "1", "--server", "10.0.0.1:1"]).fail();
    assert!(unserved.starts_with("error: there is no server at 10.0.0.1:1: "), "{unserved}");
    machine.end();
    let missing = ["hold", "1", "--server", "10.0.0.1:1", "--wire", "/nowhere"];
    let missing = Process::start("lock", &missing).fail();
    assert!(missing.contains("cargo run -p mlx5-sim-wire -- /nowhere"), "{missing}");
}
