//! Programs whose driver commits a violation: the library reports it, and the program fails.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};

use crate::shared::Machine;
use crate::{check, command, output, said};

/// The simulator checks that memory exists.
const SETTINGS: &str = "memory=checked";
/// The exit status of a program that would have succeeded.
const STATUS: Option<i32> = Some(70);
/// The word with which each violation is reported.
const TOLD: &str = "violation";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("what_no_driver_may_do_is_told_and_fails_the_program", alone),
        Trial::test("a_program_that_ends_at_once_is_told_so_too", at_once),
        Trial::test("a_program_that_fails_keeps_its_status", failing),
        Trial::test("what_a_child_did_fails_the_first_process_where_there_is_a_report", child),
        Trial::test("a_program_that_did_nothing_wrong_leaves_no_report", nothing_wrong),
        Trial::test("every_program_of_a_shared_machine_is_told_what_was_done_while_it_ran", shared),
        Trial::test("hooks_that_pass_the_library_by_are_refused_with_what_to_set", refused),
    ]
}

fn tells(output: &Output) -> bool {
    said(output).lines().any(|line| line.starts_with("mlx5-sim: ") && line.contains(TOLD))
}

fn alone() -> Result<(), Failed> {
    let ended = output(&mut command("wrong", SETTINGS));
    // The program's own output is not lost.
    let wrote = ended.stdout == b"the program is content\n";
    check(ended.status.code() == STATUS && tells(&ended) && wrote, &ended)
}

fn at_once() -> Result<(), Failed> {
    let ended = output(&mut command("wrong_and_ends_at_once", SETTINGS));
    check(ended.status.code() == STATUS && tells(&ended), &ended)
}

fn failing() -> Result<(), Failed> {
    let ended = output(&mut command("wrong_and_fails", SETTINGS));
    check(ended.status.code() == Some(3) && tells(&ended), &ended)
}

/// Runs a program as `cargo xtask with-sim` does, which becomes the program: its number is in the
/// name of the report. Also returns whether the report still exists.
fn with_report(name: &str, case: &str) -> (Output, bool) {
    let above = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // It may be there from a run that was ended.
    let _ = fs::remove_dir_all(&above);
    fs::create_dir_all(&above).expect("a directory");
    let program = command(case, SETTINGS);
    let mut shell = Command::new("sh");
    shell.args(["-c", ": >$0/report-$$; export MLX5_SIM_REPORT=$0/report-$$; exec env \"$@\""]);
    shell.arg(&above);
    // Only the program is to be preloaded.
    for (name, value) in program.get_envs() {
        let value = value.expect("nothing is taken out").to_string_lossy();
        shell.arg(format!("{}={value}", name.to_string_lossy()));
    }
    let ended = output(shell.arg(program.get_program()));
    let is_left = fs::read_dir(&above).expect("the directory").next().is_some();
    (ended, is_left)
}

fn child() -> Result<(), Failed> {
    let (ended, is_left) = with_report("wrong_in_a_child", "wrong_in_a_child");
    check(ended.status.code() == STATUS && tells(&ended) && !is_left, &ended)?;
    // The first process reports that another one failed.
    check(said(&ended).contains("in a child process"), &ended)
}

fn nothing_wrong() -> Result<(), Failed> {
    let case = "messages_go_from_one_queue_pair_to_another";
    let (ended, is_left) = with_report("nothing_wrong", case);
    check(ended.status.success() && !tells(&ended) && !is_left, &ended)
}

fn shared() -> Result<(), Failed> {
    let machine = Machine::serve("wrong", SETTINGS);
    let wrong = output(&mut command("wrong", &machine.settings()));
    // It came when it had happened.
    let later = output(&mut command("devices_are_found", &machine.settings()));
    let violations = machine.end_with_violations();
    check(wrong.status.code() == STATUS && tells(&wrong) && violations > 0, &wrong)?;
    check(later.status.success() && !tells(&later), &later)
}

fn refused() -> Result<(), Failed> {
    let mut command = command("a_call_that_is_none_of_the_device_s_is_refused", "");
    let ended = output(command.env("UCX_MEM_MMAP_HOOK_MODE", "reloc"));
    let says = said(&ended).contains("UCX_MEM_MMAP_HOOK_MODE=bistro or none");
    check(!ended.status.success() && says, &ended)
}
