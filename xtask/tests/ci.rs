//! Tests of the scripts that check a change: the steps of `.ci/run`, by `.ci/steps`, and their
//! table; the failures of `.ci/bare`; and the programs that Cargo starts through `.cargo/runner`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Time limit of any program; far longer than any takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a program to the end of its output. Returns its process ID and output.
fn ended(command: &mut Command) -> (u32, Output) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("it starts");
    let number = child.id();
    let (done, waits) = channel();
    thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(output) = waits.recv_timeout(LIMIT) else {
        let _ = Command::new("kill").args(["-KILL", &number.to_string()]).status();
        panic!("{command:?} hangs");
    };
    (number, output.expect("its output"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// An empty folder for a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ci").join(name);
    if let Err(error) = fs::remove_dir_all(&folder) {
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{}", folder.display());
    }
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("a folder").next().is_none()
}

/// Writes an executable shell script.
fn script(path: &Path, lines: &str) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, format!("#!/bin/sh\n{lines}\n")).expect("a script");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a program");
}

/// Result of a script that uses `.ci/steps`, and the table that it kept.
struct Ran {
    output: Output,
    kept: String,
    /// Whether it left the folder of temporary files empty.
    leaves_nothing: bool,
}

impl Ran {
    fn said(&self) -> String {
        text(&self.output.stdout)
    }

    /// Rows of the table, with one space between words.
    fn table(&self) -> Vec<String> {
        let words = |row: &str| row.split_whitespace().collect::<Vec<_>>().join(" ");
        self.kept.lines().map(words).collect()
    }
}

fn run(name: &str, script: &str) -> Ran {
    let folder = folder(name);
    let (table, temporary) = (folder.join("table"), folder.join("tmp"));
    fs::create_dir(&temporary).expect("a folder");
    let mut command = Command::new("bash");
    command.args(["-c", &format!("set -euo pipefail; . .ci/steps\n{script}"), "bash"]);
    command.arg(&table).env("TMPDIR", &temporary).current_dir(workspace());
    let (_, output) = ended(&mut command);
    let kept = fs::read_to_string(table).expect("the table is kept");
    Ran { output, kept, leaves_nothing: is_empty(&temporary) }
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
         outside=$HOME:$TMPDIR export outside
         seen() { kill -INT $$; [ \"$HOME:$TMPDIR\" != \"$outside\" ]; [ -w \"$HOME\" ]; [ -w \"$TMPDIR\" ]; }
         declare -fx seen
         step 'apart' apart bash -ec 'seen; ! (: </dev/tty) 2>/dev/null; echo goes on'",
    );
    assert!(ran.output.status.success() && ran.said().contains("\ngoes on\n"), "{}", ran.said());
    assert!(ran.leaves_nothing);
}

/// The tests of `mlx5-sim-wire` need this.
#[test]
fn every_user_can_use_the_temporary_files_of_a_command_that_runs_apart() {
    let show = "umask 077; begin 0 \"$1\"; apart sh -c 'stat -c %a \"$TMPDIR/..\" \"$TMPDIR\"'";
    let ran = run("modes", show);
    assert!(ran.said().starts_with("755\n1777\n"), "{}", ran.said());
}

#[test]
fn a_command_that_fails_apart_fails_its_step_and_leaves_nothing() {
    let ran =
        run("fails-apart", "begin 0 \"$1\"; step one apart sh -c 'exit 3'; echo 'not reached'");
    assert_eq!(ran.output.status.code(), Some(3), "{}", ran.said());
    assert!(!ran.said().contains("not reached"), "{}", ran.said());
    assert!(ran.leaves_nothing);
}

#[test]
fn a_run_that_is_ended_ends_the_command_that_runs_apart_and_leaves_nothing() {
    // The command keeps the output open until it ends.
    let ran = run(
        "ends-apart",
        "begin 0 \"$1\"; run=$$ export run
         step one apart sh -c 'kill -TERM $run; sleep 600; true'",
    );
    assert_eq!(ran.output.status.code(), Some(143), "{}", ran.said());
    assert!(ran.leaves_nothing);
}

/// Runs `.ci/bare` with scripts in place of some programs, and with a cache of its own. Also
/// returns whether it left the cache empty.
fn bare(name: &str, arguments: &[&str], programs: &[(&str, &str)]) -> (Output, bool) {
    let folder = folder(name);
    for (program, lines) in programs {
        script(&folder.join("bin").join(program), lines);
    }
    let path = std::env::var("PATH").expect("a path");
    let mut command = Command::new("bash");
    command.arg(workspace().join(".ci/bare")).args(arguments);
    command.env("PATH", format!("{}:{path}", folder.join("bin").display()));
    command.env("XDG_CACHE_HOME", folder.join("cache"));
    let (_, output) = ended(&mut command);
    let cache = folder.join("cache/mlx5-bare");
    (output, !cache.exists() || is_empty(&cache))
}

/// Without arguments the script parses the commands and prints its usage.
#[test]
fn readme_has_the_commands_that_run_in_a_bare_debian() {
    let (output, _) = bare("usage", &[], &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn a_machine_without_namespaces_names_them_as_the_reason_to_have_no_bare_debian() {
    let refused = "echo 'unshare failed: Operation not permitted' >&2; exit 1";
    let programs = [("id", "echo 0"), ("debootstrap", "exit 0"), ("unshare", refused)];
    let (output, leaves_nothing) = bare("why-not", &["why-not"], &programs);
    let said = text(&output.stdout);
    assert!(said.starts_with("no overlay or namespace can be made"), "{output:?}");
    assert!(said.ends_with("unshare failed: Operation not permitted\n"), "{said}");
    assert!(output.status.success() && leaves_nothing, "{output:?}");
}

#[test]
fn a_bare_debian_whose_making_failed_is_not_kept() {
    let archive = ". /etc/os-release; echo \"archive ${VERSION_CODENAME-} main\"";
    for failing in ["debootstrap", "chroot"] {
        let mut programs = vec![
            ("id", "echo 0"),
            ("unshare", "exit 0"),
            ("apt-get", archive),
            ("debootstrap", "mkdir -p \"$3/etc/dpkg/dpkg.cfg.d\""),
            ("chroot", "exit 0"),
        ];
        programs.push((failing, "mkdir -p \"${3-$1}/etc/dpkg/dpkg.cfg.d\"; exit 9"));
        let (output, leaves_nothing) = bare(failing, &["whole", "bookworm"], &programs);
        assert!(!output.status.success() && leaves_nothing, "{failing}: {output:?}");
    }
}

/// Runs `command` in a shell in which `$runner` is the runner and `$program` a script at a path
/// below a folder of its own.
fn by_runner(name: &str, program: &str, lines: &str, command: &str) -> (u32, Output) {
    let program = folder(name).join(program);
    script(&program, lines);
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env_remove("MLX5_TEST_MINUTES");
    shell.env("runner", workspace().join(".cargo/runner")).env("program", program);
    ended(&mut shell)
}

/// Path where Cargo puts test programs.
const TESTS: &str = "debug/deps/some-0123";

#[test]
fn a_program_with_tests_ignores_the_signals_that_were_ignored() {
    let shown = "sed -n 's/^SigIgn:.*\\(....\\)$/\\1/p' /proc/self/status";
    for session in ["", "setsid -w "] {
        for (trap, ignored) in [
            ("", "0000"),
            ("trap '' INT;", "0002"),
            ("trap '' HUP;", "0001"),
            ("trap '' HUP INT QUIT TERM;", "4007"),
        ] {
            let name = format!("ignored-{}-{ignored}", session.len());
            let line = format!("{trap} exec {session}\"$runner\" \"$program\"");
            // This process may itself ignore signals.
            let (_, own) = by_runner(&name, TESTS, shown, "exec \"$program\"");
            let (_, output) = by_runner(&name, TESTS, shown, &line);
            let number = |text: &str| u16::from_str_radix(text.trim(), 16).expect("a mask");
            let expected = number(&text(&own.stdout)) | number(ignored);
            assert_eq!(number(&text(&output.stdout)), expected, "{line}: {output:?}");
        }
    }
}

#[test]
fn a_program_with_tests_gets_its_arguments_and_fails_with_its_status() {
    let line = "exec \"$runner\" \"$program\" 'a b' '' --exact";
    let (_, output) = by_runner("arguments", TESTS, "printf '<%s>' \"$@\"; exit 7", line);
    assert_eq!(text(&output.stdout), "<a b><><--exact>");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

#[test]
fn without_a_terminal_the_limit_ends_a_program_with_its_children() {
    let line = "MLX5_TEST_MINUTES=0.01 exec setsid -w \"$runner\" \"$program\"";
    // The child keeps the output open.
    let (_, output) = by_runner("limit", TESTS, "sleep 600 & wait", line);
    let status = output.status;
    assert!(status.code() == Some(128 + 9) || status.signal() == Some(9), "{output:?}");
}

#[test]
fn a_program_with_tests_ends_with_its_children_when_cargo_ends() {
    let line = "mkfifo \"$program.ready\"
         setsid -w sh -c '\"$runner\" \"$program\" & read -r _ <\"$program.ready\"; kill -KILL $$'";
    let (_, output) = by_runner("cargo-ends", TESTS, "sleep 600 & echo >\"$0.ready\"; wait", line);
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn a_program_without_tests_is_started_as_it_is() {
    let line = "exec \"$runner\" \"$program\"";
    for (name, program, line) in [
        ("own", "debug/mlx5", line.to_owned()),
        ("below", "debug/deps/target/debug/mlx5", line.to_owned()),
        ("bench", "release/deps/some-0123", format!("{line} --bench")),
        ("unlimited", TESTS, format!("MLX5_TEST_MINUTES=0 {line}")),
    ] {
        let (number, output) = by_runner(name, program, "echo $$", &line);
        assert_eq!(text(&output.stdout), format!("{number}\n"), "{name}: {output:?}");
    }
}

#[test]
fn a_machine_whose_timeout_lacks_the_options_runs_tests_without_a_limit() {
    let line = "mkdir \"$program.bin\"; PATH=\"$program.bin:$PATH\"
         printf '#!/bin/sh\\nexit 1\\n' >\"$program.bin/timeout\"; chmod +x \"$program.bin/timeout\"
         exec \"$runner\" \"$program\"";
    let (number, output) = by_runner("other-timeout", TESTS, "echo $$", line);
    assert_eq!(text(&output.stdout), format!("{number}\n"), "{output:?}");
}
