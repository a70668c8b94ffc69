//! The guide's program of two processes.

use crate::machine::{LINKS, Machine, Process};

#[test]
fn the_client_writes_into_the_servers_memory_and_the_server_reads_it() {
    for link in LINKS {
        let machine = Machine::serve(link);
        let mut server =
            Process::start("two_processes", &["serve", "127.0.0.1:0", machine.socket()]);
        let line = server.line("ready on ");
        let address = line.trim_start_matches("ready on ");
        let client = Process::start("two_processes", &["call", address, machine.socket()]);
        assert_eq!(client.succeed(), "written");
        let said = server.succeed();
        assert!(said.ends_with("the client wrote \"hello from another process\""), "{said}");
        machine.end();
    }
}

#[test]
fn without_a_role_it_says_how_it_is_used() {
    let (success, said) = Process::start("two_processes", &[]).end();
    assert!(!success, "{said}");
    assert_eq!(said, "error: usage: two_processes serve|call ADDRESS [SOCKET]");
    let said = Process::start("two_processes", &["--help"]).succeed();
    assert_eq!(said, "usage: two_processes serve|call ADDRESS [SOCKET]");
}

#[test]
fn an_example_that_fails_says_why_in_words() {
    let example = Process::start("replicated_log", &["--seed", "first"]);
    let (success, said) = example.end();
    assert!(!success, "{said}");
    assert_eq!(said, "error: 'first' is not a seed: write a number, as --seed 1");
}

#[test]
fn without_a_machine_it_says_what_to_start() {
    for role in ["serve", "call"] {
        let lonely = Process::start("two_processes", &[role, "127.0.0.1:0", "/nowhere"]);
        let (success, said) = lonely.end();
        assert!(!success, "{said}");
        assert!(said.contains("no simulated machine is served at /nowhere (ENOENT"), "{said}");
        assert!(said.contains("`cargo run -p mlx5-sim-wire -- /nowhere --stay`"), "{said}");
    }
}

#[test]
fn without_a_server_the_client_says_where_it_looked() {
    let machine = Machine::serve("");
    let client = Process::start("two_processes", &["call", "127.0.0.1:1", machine.socket()]);
    let (success, said) = client.end();
    assert!(!success, "{said}");
    assert!(said.starts_with("error: no server at 127.0.0.1:1: "), "{said}");
    assert!(said.ends_with("start one with `two_processes serve 127.0.0.1:1`"), "{said}");
    machine.end();
}
