//! The command line: help, mistakes, exit status.

mod common;

use common::{Limit, command, mlx5};
use std::process::Stdio;

const COMMANDS: [&str; 10] =
    ["list", "info", "doctor", "pingpong", "perf", "cancel", "capture", "dump", "explain", "trace"];

#[test]
fn help_lists_every_command_and_shows_examples() {
    let help = mlx5("--help").done();
    for name in COMMANDS {
        assert!(help.contains(&format!("\n  {name} ")), "{name} is missing in\n{help}");
    }
    assert!(help.contains("Examples:") && help.contains("Exit status:"), "{help}");
    assert!(help.contains("simulated ConnectX"), "{help}");
}

#[test]
fn every_command_explains_itself() {
    for name in COMMANDS {
        let help = mlx5(&format!("{name} --help")).done();
        assert!(help.contains("Usage: mlx5 "), "{help}");
        assert!(help.lines().position(|line| line.starts_with("Usage")) > Some(2), "{help}");
        // Two of them use no device themselves.
        for option in ["--device", "--sim", "--sim-model", "--sim-link"] {
            let tells = help.contains(option);
            assert_eq!(tells, !["explain", "trace"].contains(&name), "{name} and {option}");
        }
        let wide = help.lines().map(|line| line.chars().count()).max();
        assert!(wide <= Some(100), "{name}: {wide:?} columns");
    }
}

#[test]
fn shells_and_man_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = mlx5(&format!("completions {shell}")).done();
        assert!(COMMANDS.iter().all(|name| script.contains(name)), "{shell}: {script}");
    }
    // A name is none of a file.
    let script = mlx5("completions fish").done();
    let option = |name: &str| {
        let line = script.lines().find(|line| line.contains(&format!("subcommand perf\" {name} ")));
        line.unwrap_or_else(|| panic!("{name} is missing in\n{script}")).to_owned()
    };
    assert!(option("-s d -l device").ends_with(" -r -f") && option("-l json").ends_with(" -r -F"));
    assert!(option("-l depth").ends_with(" -r -f"), "{}", option("-l depth"));
    let folder = std::env::temp_dir().join(format!("mlx5-man-{}", std::process::id()));
    let reported = mlx5(&format!("man {}", folder.display())).done();
    let page = std::fs::read_to_string(folder.join("mlx5-perf.1"));
    std::fs::remove_dir_all(&folder).expect("the folder");
    assert_eq!(reported.lines().count(), COMMANDS.len() + 3, "{reported}");
    let page = page.expect("a page");
    assert!(page.contains("mlx5\\-perf") && page.contains("\\-\\-sizes"), "{page}");
    // Examples are not filled, and have a section.
    let (_, examples) = page.split_once(".SH \"EXAMPLES\"\n.nf\n  mlx5 perf ").expect("examples");
    assert!(examples.contains("\n.fi\n") && !page.contains(".SH EXTRA"), "{page}");
    mlx5("completions tcl").refused();
    mlx5("man").refused();
    let text = mlx5("man /dev/null/pages").failed();
    assert!(text.contains("cannot write /dev/null/pages"), "{text}");
}

#[test]
fn mistakes_on_the_command_line_exit_with_2_and_a_hint() {
    for line in [
        "frobnicate",
        "list --what",
        "pingpong --transport tcp",
        "pingpong --listen --connect host",
        "pingpong --ibv",
        "pingpong --ibv --listen --mtu 1000",
        "perf --sizes 8..4",
        "perf --sizes 12q",
        "perf --sizes 8 --all",
        "perf --iters 0",
        "perf --op read --transport uc",
        "perf --op write --transport ud",
        "perf --op read --inline 8",
        "perf --inline 4k",
        "perf --depth 8 --signal-every 9",
        "perf --only rate --svg x.svg",
        "perf --sim-model cx9",
        "cancel --transfers 0",
        "cancel --transfers 3 --corrupt 4",
        "cancel --corrupt 1:3",
        "cancel --corrupt 0",
        "cancel --corrupt two",
        "dump 00zz",
        "dump --kind recv",
        "dump --live 00",
        "dump --kind cqe --stride 100 00",
        "explain --file - 0x1",
    ] {
        mlx5(line).refused();
    }
}

#[test]
fn without_a_command_the_help_is_shown() {
    let run = mlx5("");
    assert_eq!(run.code, Some(2));
    assert!(run.err.contains("Usage: mlx5 <COMMAND>") && run.err.contains("perf"), "{}", run.err);
}

#[test]
fn a_refusal_says_what_would_do() {
    let text = mlx5("perf --op read --transport uc").refused();
    assert!(text.contains("uc has no RDMA read") && text.contains("--transport rc"), "{text}");
    let text = mlx5("perf --sizes 64..8").refused();
    assert!(text.contains("8..64"), "{text}");
    let text = mlx5("perf --sim -t ud --sizes 8k").refused();
    assert!(text.contains("4096"), "{text}");
    let text = mlx5("pingpong --sim -t ud --size 8k").refused();
    assert!(text.contains("--transport rc"), "{text}");
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_a_hint() {
    let text = mlx5("info --device mlx5_9 --sim").failed();
    assert!(text.contains("no mlx5 device named mlx5_9"), "{text}");
    assert!(text.contains("hint: the simulated device is named mlx5_0"), "{text}");
    let text = mlx5("info --device no_such_device").failed();
    assert!(text.contains("hint: "), "{text}");
}

#[test]
fn simulated_devices_of_two_processes_do_not_meet() {
    for line in
        ["pingpong --sim --listen 127.0.0.1:1", "perf --sim --connect 127.0.0.1:1 --sizes 8"]
    {
        let text = mlx5(line).failed();
        assert!(text.contains("simulated inside this process"), "{text}");
        assert!(text.contains("hint: without --listen and --connect"), "{text}");
        assert!(
            text.contains("`cargo xtask with-sim --sim wire=SOCKET -- target/debug/mlx5 ...`"),
            "{text}"
        );
    }
}

#[test]
fn a_full_disk_is_named() {
    for line in ["trace -o /dev/full -- true", "capture --sim -n 1 -w /dev/full"] {
        let text = mlx5(line).failed();
        assert!(text.contains("mlx5: cannot write /dev/full: No space left"), "{line}: {text}");
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_reason_to_panic() {
    for line in ["info -v --sim", "dump --live --sim", "--help", "cancel --sim"] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut child =
            command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let _limit = Limit::on(&child);
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains("panicked"), "{line}: {text}");
        assert_eq!(output.status.code(), Some(0), "{line}: {text}");
    }
}
