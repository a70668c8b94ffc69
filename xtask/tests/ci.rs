//! `.ci/steps`, on which `.ci/run` is built: how its steps end, and what its table says.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a script did that reads `.ci/steps`, and the table that it kept.
struct Ran {
    output: Output,
    kept: String,
}

impl Ran {
    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    /// The table: each row with one space between its words.
    fn table(&self) -> Vec<String> {
        let words = |row: &str| row.split_whitespace().collect::<Vec<_>>().join(" ");
        self.kept.lines().map(words).collect()
    }
}

fn run(name: &str, script: &str) -> Ran {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let table: PathBuf = [env!("CARGO_TARGET_TMPDIR"), name, "table"].iter().collect();
    let output = Command::new("bash")
        .args(["-c", &format!("set -euo pipefail; . .ci/steps\n{script}"), "bash"])
        .arg(&table)
        .current_dir(root)
        .output()
        .expect("bash runs");
    let kept = std::fs::read_to_string(table).expect("the table is kept");
    Ran { output, kept }
}

#[test]
fn a_run_that_passes_prints_its_steps_and_their_minutes() {
    let ran = run(
        "passes",
        "begin 60 \"$1\"
         slow() { SECONDS=$((SECONDS + 754)); }
         step 'a first one' true
         step 'a slow one' slow
         left_out 'another' 'no such machine'
         long_step 'a long one' false",
    );
    assert!(ran.output.status.success(), "{ran:?}", ran = ran.said());
    assert!(ran.said().ends_with(&ran.kept), "{}", ran.said());
    let [head, first, slow, another, long, whole] = &ran.table()[..] else {
        panic!("{:?}", ran.table())
    };
    assert_eq!(head, "minutes step");
    assert!(first.ends_with("a first one") && first.starts_with("0:0"), "{first}");
    assert!(slow.ends_with("a slow one") && slow.starts_with("12:3"), "{slow}");
    assert_eq!(another, "- another: left out: no such machine");
    assert_eq!(long, "- a long one: left out: only with --all");
    assert!(whole.ends_with("in all; the limit is 60:00") && whole.starts_with("12:3"), "{whole}");
}

#[test]
fn a_step_that_fails_ends_the_run_with_its_status_and_a_table() {
    let inside = "inside() { sh -c 'exit 3'; echo 'not reached'; }";
    let ran = run(
        "fails",
        &format!("{inside}; begin 60 \"$1\"; step one true; step two inside; step three true"),
    );
    assert_eq!(ran.output.status.code(), Some(3));
    assert!(!ran.said().contains("not reached") && !ran.said().contains("three"));
    let [_, one, two, whole] = &ran.table()[..] else { panic!("{:?}", ran.table()) };
    assert!(one.ends_with("one"), "{one}");
    assert!(two.ends_with("two: FAILED, exit status 3"), "{two}");
    assert!(whole.ends_with("in all; the limit is 60:00"), "{whole}");
    assert!(ran.said().ends_with(&ran.kept), "{}", ran.said());
}

#[test]
fn a_run_that_takes_longer_than_its_limit_fails() {
    let late = "late() { SECONDS=$((SECONDS + 3601)); }";
    let ran = run("late", &format!("{late}; begin 60 \"$1\"; step slow late"));
    assert_eq!(ran.output.status.code(), Some(1));
    let table = ran.table();
    assert!(table[2].ends_with("in all; the limit is 60:00: FAILED, too long"), "{table:?}");
}

#[test]
fn a_run_without_a_limit_takes_the_long_steps_as_well() {
    let late = "late() { SECONDS=$((SECONDS + 36000)); }";
    let ran = run("all", &format!("{late}; begin 0 \"$1\"; long_step long late"));
    assert!(ran.output.status.success());
    let table = ran.table();
    assert!(table[1].starts_with("600:0") && table[1].ends_with("long"), "{table:?}");
    assert!(table[2].ends_with("in all"), "{table:?}");
}

#[test]
fn a_step_that_needs_more_time_than_is_left_is_left_out() {
    // Ten minutes are left, or nine once a second has passed.
    let late = "late() { SECONDS=$((SECONDS + 50 * 60)); }";
    let ran = run(
        "within",
        &format!(
            "{late}; begin 60 \"$1\"; step slow late; step_within 9 fits true; step_within 11 short false"
        ),
    );
    assert!(ran.output.status.success(), "{}", ran.said());
    let [_, _, fits, short, _] = &ran.table()[..] else { panic!("{:?}", ran.table()) };
    assert!(fits.ends_with("fits") && !fits.contains("left out"), "{fits}");
    assert_eq!(short, "- short: left out: the time is short");
}

#[test]
fn without_a_limit_there_is_time_for_every_step() {
    let ran = run("unlimited", "begin 0 \"$1\"; SECONDS=360000; step_within 900 long true");
    assert!(ran.output.status.success(), "{}", ran.said());
    assert!(ran.table()[1].ends_with("long"), "{:?}", ran.table());
}

#[test]
fn a_run_that_is_ended_says_in_which_step() {
    let ran = run("ended", "begin 60 \"$1\"; step one true; step two kill -TERM $$");
    assert_eq!(ran.output.status.code(), Some(143));
    let table = ran.table();
    assert!(table[2].ends_with("two: FAILED, exit status 143"), "{table:?}");
}

#[test]
fn a_command_that_runs_apart_ignores_sigint_and_has_no_terminal_and_folders_of_its_own() {
    let ran = run(
        "apart",
        "begin 0 \"$1\"
         outside=$HOME:${TMPDIR-} export outside
         seen() { kill -INT $$; [ \"$HOME:$TMPDIR\" != \"$outside\" ]; [ -w \"$HOME\" ]; [ -w \"$TMPDIR\" ]; }
         declare -fx seen
         step 'apart' apart bash -ec 'seen; ! (: </dev/tty) 2>/dev/null; echo goes on'
         apart false",
    );
    assert!(ran.said().contains("\ngoes on\n"), "{}", ran.said());
    assert_eq!(ran.output.status.code(), Some(1), "what fails apart fails: {}", ran.said());
}

/// Without arguments it reads what it would run, and says how it is used.
#[test]
fn readme_has_the_commands_that_run_in_a_bare_debian() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let output = Command::new("bash").arg(root.join(".ci/bare")).output().expect("bash runs");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
