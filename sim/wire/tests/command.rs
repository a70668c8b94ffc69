//! The command line of `mlx5-sim-wire`. What it serves is in `wire.rs`.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mlx5-sim-wire"));
    command.args(arguments).output().expect("it runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn who_asks_for_help_is_told_how_it_is_used() {
    for arguments in [&["--help"][..], &["-h"], &["/nowhere", "--stay", "--help"]] {
        let told = run(arguments);
        assert!(told.status.success(), "{arguments:?}: {told:?}");
        let help = text(&told.stdout);
        assert!(help.starts_with("usage: mlx5-sim-wire SOCKET"), "{help}");
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        assert_eq!(text(&told.stderr), "");
    }
}

#[test]
fn mistakes_exit_with_2_and_say_how_it_is_used() {
    for (arguments, says) in [
        (&[][..], "no socket is named"),
        (&["--what"], "cannot understand \"--what\""),
        (&["/nowhere", "/elsewhere"], "cannot understand \"/elsewhere\""),
        (&["/nowhere", "--sim"], "--sim needs a list"),
        (
            &["/nowhere", "--sim", "colour=blue"],
            "--sim: cannot understand \"colour=blue\"; known settings",
        ),
    ] {
        let told = run(arguments);
        assert_eq!(told.status.code(), Some(2), "{arguments:?}: {told:?}");
        assert_eq!(text(&told.stdout), "");
        let error = text(&told.stderr);
        assert!(error.contains(says) && error.contains("usage: mlx5-sim-wire"), "{error}");
    }
}

#[test]
fn a_place_where_no_socket_can_be_is_an_error() {
    let told = run(&["/proc/no/such/socket"]);
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(text(&told.stderr).contains("mlx5-sim-wire: /proc/no/such/socket: "), "{told:?}");
}
