//! Every option of every command with good and with bad input, on the simulated device: that the
//! status is right, that an error says what to do, and that no output is one of Rust's debug forms.

mod common;

use common::{Ended, Run, mlx5, mlx5_with_input};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of a command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ends {
    /// 0, with text on stdout, or in the file that it names.
    Well,
    /// 0, with JSON alone on stdout.
    Json,
    /// 0, with an object of JSON in each line on stdout.
    JsonLines,
    /// 1, and says why.
    Failing,
    /// 2: it is refused before anything is done.
    Refused,
}
use Ends::{Failing, Json, JsonLines, Refused, Well};

/// A file of a test, by this name in a line.
const FILE: &str = "FILE";
/// A path that cannot be written.
const NO_FILE: &str = "/proc/no/such/file";

const LIST: &[(&str, Ends)] = &[
    ("list", Well),
    ("list --sim", Well),
    ("list --sim --json", Json),
    ("list --device mlx5_0 --sim", Well),
    ("list -d mlx5_0 --sim", Well),
    ("list --sim-model cx5", Well),
    ("list --sim-link roce", Well),
    ("list --sim --device mlx5_7", Failing),
    ("list --sim --device=", Refused),
    ("list --sim-model cx9", Refused),
    ("list --sim-link wifi", Refused),
    ("list --sim-model cx6dx --sim-link ib", Refused),
    ("list --json=yes", Refused),
    ("list --sim --json more", Refused),
    ("list more", Refused),
];

const INFO: &[(&str, Ends)] = &[
    ("info --sim", Well),
    ("info --sim --verbose", Well),
    ("info -v --sim-link roce", Well),
    ("info --sim --json", Json),
    ("info -v --json --sim-model cx5", Json),
    ("info -d mlx5_0 --sim", Well),
    ("info --device mlx5_0 --sim", Well),
    ("info --sim --device nobody", Failing),
    ("info --sim-model 7", Refused),
    ("info --sim-link", Refused),
    ("info mlx5_0", Refused),
];

const DOCTOR: &[(&str, Ends)] = &[
    ("doctor --sim", Well),
    ("doctor --sim-link roce --sim-model cx6", Well),
    ("doctor --device mlx5_0 --sim --port 1", Well),
    ("doctor -d mlx5_0 --sim --gid-index 0", Well),
    ("doctor --sim --json", Json),
    // It prints faults among good results, on stdout.
    ("doctor --sim --port x", Refused),
    ("doctor --sim --port 256", Refused),
    ("doctor --sim --gid-index first", Refused),
    ("doctor --sim --gid-index 99", Failing),
    ("doctor --sim --device nobody", Failing),
    ("doctor --sim-model none", Refused),
    ("doctor --sim-link none", Refused),
    ("doctor --peer", Refused),
    ("doctor --sim --peer nowhere:x", Refused),
];

const PINGPONG: &[(&str, Ends)] = &[
    ("pingpong --sim --iters 3", Well),
    ("pingpong --sim -n 3 --transport uc --size 1", Well),
    ("pingpong --sim -n 3 -t ud -s 2k --events", Well),
    ("pingpong --sim-link roce --sim-model cx6dx -n 2 -e --port 1 --gid-index 3", Well),
    ("pingpong --sim -d mlx5_0 -n 1 --timeout 9", Well),
    ("pingpong --sim --device mlx5_0 -n 1", Well),
    ("pingpong --sim -n 3 --json", Json),
    ("pingpong --sim --json --listen 127.0.0.1:0", Refused),
    ("pingpong --iters 0", Refused),
    ("pingpong --iters many", Refused),
    ("pingpong --transport tcp", Refused),
    ("pingpong --size 1x", Refused),
    ("pingpong --sim -t ud --size 5000", Refused),
    ("pingpong --mtu 1500", Refused),
    ("pingpong --sim --mtu 1024", Refused),
    ("pingpong --ibv", Refused),
    ("pingpong --sim --ibv --connect 127.0.0.1:1 --mtu 1024", Failing),
    ("pingpong --sim --timeout 1 --listen 127.0.0.1:0", Failing),
    ("pingpong --sim --listen 127.0.0.1:99999", Refused),
    ("pingpong --sim --connect 127.0.0.1:1", Failing),
    ("pingpong --sim --connect 127.0.0.1:port", Refused),
    ("pingpong --listen --connect here", Refused),
    ("pingpong --timeout 0", Refused),
    ("pingpong --timeout soon", Refused),
    ("pingpong --sim --port 9", Failing),
    ("pingpong --sim --port 300", Refused),
    ("pingpong --sim --gid-index 200", Failing),
    ("pingpong --gid-index first", Refused),
    ("pingpong --sim --device nobody", Failing),
    ("pingpong --sim-model cx", Refused),
    ("pingpong --sim-link eth", Refused),
];

const PERF: &[(&str, Ends)] = &[
    ("perf --sim --sizes 8 --iters 3 --messages 20", Well),
    (
        "perf --sim -s 8,64..128 -n 3 --op write --inline 64 --signal-every 4 --depth 8 --batch 4",
        Well,
    ),
    ("perf --sim --op read --sizes 8 -n 3 --only latency --json -", Json),
    ("perf --json --sim --sizes 8 -n 3 --only latency", Json),
    ("perf --sim --sizes 8 -n 3 --only latency --json", Json),
    ("perf --sim --op fetch-add -n 3 --csv -", Well),
    ("perf --sim --op compare-swap -n 3 --only rate --messages 20", Well),
    ("perf --sim --transport ud --all -n 1 --messages 4", Well),
    ("perf --sim -t uc -a -n 1 --messages 1 --only latency", Well),
    ("perf --sim --sizes 8 --duration 0.01 --qps 2 --threads 2 --json FILE", Well),
    ("perf --sim --sizes 8 --bidirectional --messages 20 --only rate", Well),
    ("perf --sim --sizes 8 -b --messages 20 -n 3 --csv FILE", Well),
    ("perf --sim --sizes 8 -n 3 --only latency --histogram --svg FILE", Well),
    ("perf --sim --sizes 8 -n 3 --histogram --json -", Json),
    ("perf --sim --sizes 8 -n 3 --only latency --svg -", Well),
    ("perf --sim --sizes 8 -n 3 --messages 20 --inline 972", Well),
    ("perf --sim -t ud --sizes 8 -n 3 --messages 20 --inline 940", Well),
    (
        "perf --sim-model cx5 --sim-link roce --sizes 8 -n 2 --messages 4 --gid-index 1 --port 1",
        Well,
    ),
    ("perf --sim -d mlx5_0 --sizes 8 -n 2 --messages 4 --timeout 20", Well),
    ("perf --sim --device mlx5_0 --sizes 8 -n 2 --messages 4", Well),
    ("perf --sim --raw --sizes 60,1514 -n 3 --messages 40 --depth 16 --batch 8", Well),
    ("perf --raw --all -n 2 --messages 4 --json - --sim", Json),
    ("perf --op teleport", Refused),
    ("perf --op read --transport ud", Refused),
    ("perf --transport", Refused),
    ("perf --sizes 64..8", Refused),
    ("perf --sizes 2000m", Refused),
    ("perf --sizes 8 --all", Refused),
    ("perf --iters -1", Refused),
    ("perf --iters none", Refused),
    ("perf --messages 0", Refused),
    ("perf --duration 0", Refused),
    ("perf --duration 1 --iters 5", Refused),
    ("perf --qps 0", Refused),
    ("perf --qps 3 --threads 2", Refused),
    ("perf --threads 65", Refused),
    ("perf --bidirectional --only latency", Refused),
    ("perf --depth 0", Refused),
    ("perf --depth 100000", Refused),
    ("perf --inline 973", Refused),
    ("perf -t ud --inline 941", Refused),
    ("perf --inline all", Refused),
    ("perf --signal-every 65", Refused),
    ("perf --signal-every 0", Refused),
    ("perf --batch 0", Refused),
    ("perf --batch 65", Refused),
    ("perf --only everything", Refused),
    ("perf --json - --csv -", Refused),
    ("perf --svg - --json -", Refused),
    ("perf --json --csv -", Refused),
    ("perf --csv - --svg -", Refused),
    ("perf --sim --sizes 8 -n 1 --messages 1 --json /proc/no/such/file", Failing),
    ("perf --sim --sizes 8 -n 1 --messages 1 --csv /proc/no/such/file", Failing),
    ("perf --sim --sizes 8 -n 1 --messages 1 --svg /proc/no/such/file", Failing),
    ("perf --only rate --svg x.svg", Refused),
    ("perf --only rate --histogram", Refused),
    ("perf --sim --listen 127.0.0.1:0", Failing),
    ("perf --sim --listen nowhere:x", Refused),
    ("perf --sim --connect 127.0.0.1:1", Failing),
    ("perf --sim --connect 70000", Refused),
    ("perf --listen --connect here", Refused),
    ("perf --timeout 9999", Refused),
    ("perf --sim --port 7", Failing),
    ("perf --port", Refused),
    ("perf --sim --gid-index 254", Failing),
    ("perf --sim --device nobody", Failing),
    ("perf --sim-model ConnectX", Refused),
    ("perf --sim-link fibre", Refused),
    ("perf --raw --op send", Refused),
    ("perf --raw --transport ud", Refused),
    ("perf --raw --connect here", Refused),
    ("perf --raw --listen", Refused),
    ("perf --raw --threads 2", Refused),
    ("perf --raw --qps 2", Refused),
    ("perf --raw --inline 8", Refused),
    ("perf --raw --signal-every 4", Refused),
    ("perf --raw --bidirectional", Refused),
    ("perf --raw --gid-index 1", Refused),
    ("perf --raw --sizes 59", Refused),
    ("perf --raw --sizes 9015", Refused),
    ("perf --raw --sim-link ib", Failing),
    // It is longer than the simulated interface takes.
    ("perf --raw --sim --sizes 1600 -n 1 --timeout 1", Failing),
];

const CANCEL: &[(&str, Ends)] = &[
    ("cancel --sim", Well),
    ("cancel --sim --transfers 3 --blocks 2 --corrupt 1:1 --part guard", Well),
    ("cancel --sim-model cx6dx --sim-link roce -n 2 -b 1 -c 2 -i", Well),
    ("cancel --sim --interleaved --port 1 --gid-index 0 --device mlx5_0", Well),
    ("cancel --sim -d mlx5_0", Well),
    ("cancel --sim --json", Json),
    ("cancel --transfers none", Refused),
    ("cancel --blocks 0", Refused),
    ("cancel --corrupt 9", Refused),
    ("cancel --part head", Refused),
    ("cancel --sim-model cx5", Failing),
    ("cancel --sim-model", Refused),
    ("cancel --sim-link 1", Refused),
    ("cancel --sim --port 3", Failing),
    ("cancel --sim --gid-index 99", Failing),
    ("cancel --sim --device nobody", Failing),
];

const CAPTURE: &[(&str, Ends)] = &[
    ("capture --sim --write FILE --count 3 --snap 64 --duration 20 --port 1", Well),
    ("capture --sim-model cx6 -w FILE -n 1", Well),
    ("capture --sim-link roce -d mlx5_0 -w FILE -n 1", Well),
    ("capture --sim --device mlx5_0 -w FILE -n 1", Well),
    ("capture --sim --write /proc/no/such/file", Failing),
    ("capture --sim --json --write FILE -n 1", Json),
    ("capture --sim --json -n 1", Refused),
    ("capture --count 0", Refused),
    ("capture --duration none", Refused),
    ("capture --snap 64x", Refused),
    ("capture --sim --snap 0", Refused),
    ("capture --sim --port 5", Failing),
    ("capture --sim-link ib", Failing),
    ("capture --sim-link x", Refused),
    ("capture --sim-model cx4", Refused),
    ("capture --sim --device nobody", Failing),
];

const DUMP: &[(&str, Ends)] = &[
    ("dump 0000050a 0001a202 00000008 00000000 00000040 00001234 00007e00 00002000", Well),
    ("dump --kind wqe --transport ud 0000050a 0001a202 00000008 00000000", Well),
    ("dump -k recv --stride 24 00000040 00001234 00007e00 00002000", Refused),
    ("dump -k recv --stride 16 00000040 00001234 00007e00 00002000", Well),
    ("dump --live --sim", Well),
    ("dump --json 0000050a 0001a202 00000008 00000000", Json),
    ("dump --json --live --sim", Json),
    ("dump --live --sim-link roce --sim-model cx6 --port 1 --gid-index 1 -d mlx5_0", Well),
    ("dump --live --sim --device mlx5_0", Well),
    ("dump -t rc -f FILE -k auto", Well),
    ("dump --file FILE", Well),
    ("dump --file /proc/no/such/file", Failing),
    // Nothing is on stdin.
    ("dump --file -", Refused),
    ("dump --kind bytes 00", Refused),
    ("dump --transport tcp 00", Refused),
    ("dump --kind cqe --stride 100 00", Refused),
    ("dump 0g", Refused),
    ("dump --live 00", Refused),
    ("dump --live --sim --port 9", Failing),
    ("dump --live --sim --gid-index 250", Failing),
    ("dump --live --sim --device nobody", Failing),
    ("dump --live --sim-model x", Refused),
    ("dump --live --sim-link x", Refused),
];

const EXPLAIN: &[(&str, Ends)] = &[
    ("explain 0x4bb88f", Well),
    ("explain status bad parameter(0x3), syndrome (0x4bb88f)", Well),
    ("explain --json 0x4bb88f", Json),
    ("explain --file FILE", Well),
    ("explain -f FILE", Well),
    ("explain --file /proc/no/such/file", Failing),
    ("explain -f /proc/no/such/file", Failing),
    ("explain all is well", Failing),
    // Nothing is on stdin.
    ("explain", Failing),
    ("explain -", Failing),
    ("explain --file - 0x1", Refused),
    ("explain --kind cqe 0x1", Refused),
];

const TRACE: &[(&str, Ends)] = &[
    ("trace -- true", Well),
    ("trace --json -- true", JsonLines),
    ("trace --output FILE -- true", Well),
    ("trace -o FILE --queues -- true", Well),
    ("trace -o - -- true", Well),
    ("trace --queue 0x48 -q 72 --verbose -- true", Well),
    ("trace -v --errors -- true", Well),
    ("trace -e --interval 10ms -- true", Well),
    ("trace -i 1ms --summary --duration 5 -- true", Well),
    ("trace -s --duration 5 -- true", Well),
    ("trace", Refused),
    ("trace 0", Refused),
    ("trace 99999999", Failing),
    ("trace -- /no/such/program", Failing),
    ("trace --output /proc/no/such/file -- true", Failing),
    ("trace --queue 48h -- true", Refused),
    ("trace --interval 1 -- true", Refused),
    ("trace --duration never -- true", Refused),
    // In all other commands it names a device.
    ("trace -d 5 -- true", Refused),
    ("trace --queues --errors -- true", Refused),
    ("trace --summary --json --verbose -- true", Refused),
    ("trace --errors --summary -- true", Refused),
];

const OTHERS: &[(&str, Ends)] = &[
    ("--version", Well),
    ("-V", Well),
    ("help", Well),
    ("help perf", Well),
    ("help nothing", Refused),
    ("help --help", Well),
    ("help perf --help", Well),
    ("help -h perf", Well),
    ("help -h nothing", Refused),
    ("completions bash", Well),
    ("completions sh", Refused),
    ("completions", Refused),
    ("man", Refused),
    ("man /proc/no/such", Failing),
    ("nothing", Refused),
    ("--nothing", Refused),
];

const ALL: [&[(&str, Ends)]; 10] =
    [LIST, INFO, DOCTOR, PINGPONG, PERF, CANCEL, CAPTURE, DUMP, EXPLAIN, TRACE];

/// Options that work only between two processes; tests/processes.rs has them.
const BETWEEN_PROCESSES: [(&str, &str); 6] = [
    ("doctor", "--peer"),
    ("pingpong", "--listen"),
    ("pingpong", "--connect"),
    ("perf", "--listen"),
    ("perf", "--connect"),
    ("pingpong", "--ibv"),
];
/// One whose good use is between two processes, too.
const WITH_IBV: (&str, &str) = ("pingpong", "--mtu");

/// An option as `--help` has it.
#[derive(Debug)]
struct Known {
    names: Vec<String>,
    takes_a_value: bool,
}

/// The options of a command, without those that every command has.
fn options(command: &str) -> Vec<Known> {
    let help = mlx5(&format!("{command} --help")).done();
    let lines = help.lines().map(str::trim_start).filter(|line| {
        line.starts_with("--") || line.starts_with('-') && line.as_bytes().get(2) == Some(&b',')
    });
    let known = lines.map(|line| {
        let words = line.split([' ', ',', '=']).filter(|word| !word.is_empty());
        let names = words.take_while(|word| word.starts_with('-')).map(str::to_owned).collect();
        Known { names, takes_a_value: line.contains('<') }
    });
    known.filter(|known: &Known| !known.names.contains(&"--help".to_owned())).collect()
}

/// The last option of a row, and the value that it has there.
fn last_option(row: &str) -> Option<(&str, Option<&str>)> {
    let is_option = |word: &str| {
        word.starts_with('-') && word.trim_start_matches('-').starts_with(char::is_alphabetic)
    };
    let words: Vec<&str> = row.split(' ').collect();
    let place = words.iter().rposition(|word| is_option(word))?;
    Some((words[place], words.get(place + 1).copied().filter(|word| !word.starts_with('-'))))
}

/// Whether a command line that ends badly does so for what its last option has as a value: the
/// first line of the error names it, or says that there is none.
fn value_is_bad(row: &str, long: &str) -> bool {
    let Some((_, value)) = last_option(row) else { return false };
    let Run { err, .. } = mlx5_with_input(row, "");
    let is_error = |line: &&str| line.starts_with("error: ") || line.starts_with("mlx5: ");
    let Some(error) = err.lines().find(is_error) else { return false };
    // Another option may be what it does not go with.
    let Some(value) = value else { return error.contains("a value is required for '") };
    let quoted = error.contains(&format!("invalid value '{value}' for '{long} "));
    let word = |letter: char| letter.is_whitespace() || ",:".contains(letter);
    let own = !error.contains('\'') && error.split(word).any(|word| word == value);
    quoted || own
}

/// Options that need two processes are tested there.
#[test]
fn the_tests_between_processes_have_what_the_rows_leave_to_them() {
    let tests = include_str!("processes.rs");
    for (command, option) in BETWEEN_PROCESSES.into_iter().chain([WITH_IBV]) {
        assert!(tests.contains(command) && tests.contains(option), "{command} {option}");
    }
}

/// Every option has a row in which it does well, and one in which its value is bad.
#[test]
fn the_rows_have_every_option() {
    let mut missing = BTreeSet::new();
    for rows in ALL {
        let command = rows[0].0.split(' ').next().expect("a command");
        let known = options(command);
        assert!(known.len() > 1, "{command}: {known:?}");
        let has = |row: &&(&str, Ends), name: &str| row.0.split(' ').any(|word| word == name);
        let good = |row: &&(&str, Ends)| !matches!(row.1, Failing | Refused);
        for option in &known {
            let Some(name) = option.names.iter().find(|name| name.starts_with("--")) else {
                panic!("{command}: {option:?}")
            };
            let between = BETWEEN_PROCESSES.contains(&(command, name));
            let apart = between || WITH_IBV == (command, name);
            for name in option.names.iter().filter(|_| !apart) {
                if !rows.iter().filter(good).any(|row| has(&row, name)) {
                    missing.insert(format!("{command} {name}, good"));
                }
            }
            let is_it = |word: &str| option.names.iter().any(|name| name == word);
            let bad = |row: &&(&str, Ends)| {
                let is_last = last_option(row.0).is_some_and(|(word, _)| is_it(word));
                !good(row) && is_last && value_is_bad(row.0, name)
            };
            if option.takes_a_value && !rows.iter().any(|row| bad(&row)) {
                missing.insert(format!("{command} {name}, bad"));
            }
        }
        // No row is of an option that is gone: those that do well would fail, and these say why.
        for (row, _) in rows {
            assert!(row.starts_with(command), "{row} among those of {command}");
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_command_has_rows() {
    let help = mlx5("--help").done();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands: Vec<&str> = commands.take_while(|line| !line.is_empty()).collect();
    assert!(commands.len() > ALL.len(), "{help}");
    for line in commands {
        let name = line.split_whitespace().next().expect("a name");
        let has = |rows: &[(&str, Ends)]| rows.iter().any(|row| row.0.starts_with(name));
        assert!(ALL.iter().any(|rows| has(rows)) || has(OTHERS), "{name}");
    }
}

/// A file that goes away with its row.
struct Scratch(PathBuf);

impl Scratch {
    fn new(row: &str) -> Self {
        let letters: String = row.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("mlx5-options-{}-{letters}", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The parts of a text that only Rust's debug forms have. In a file, they would be data.
fn debug_forms(text: &str) -> Option<&str> {
    const FORMS: [&str; 12] = [
        "panicked",
        "RUST_BACKTRACE",
        "Some(",
        "None",
        "Ok(",
        "Err(",
        "Error {",
        "Os {",
        "code: ",
        "kind: ",
        "unwrap",
        "\\u{",
    ];
    let path = |line: &str| {
        line.as_bytes().windows(4).any(|four| {
            four[0].is_ascii_alphabetic() && &four[1..3] == b"::" && four[3].is_ascii_uppercase()
        })
    };
    text.lines().find(|line| FORMS.iter().any(|form| line.contains(form)) || path(line))
}

fn check(row: &str, ends: Ends) {
    let file = Scratch::new(row);
    let line = row.replace(FILE, file.0.to_str().expect("a path of text"));
    let read = [
        ("dump ", "0000050a 0001a202 00000008 00000000"),
        ("explain ", "status bad parameter(0x3), syndrome (0x4bb88f)"),
    ];
    if let Some((_, text)) = read.iter().find(|(start, _)| row.starts_with(start))
        && row.contains(FILE)
    {
        std::fs::write(&file.0, text).expect("a file");
    }
    let Run { code, out, err } = mlx5_with_input(&line, "");
    let all = format!("{row}: {code:?}\n{out}\n{err}");
    let expected = match ends {
        Well | Json | JsonLines => 0,
        Failing => 1,
        Refused => 2,
    };
    assert_eq!(code, Some(expected), "{all}");
    assert_eq!(debug_forms(&err), None, "{all}");
    let json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    match ends {
        Well => {
            assert_eq!(debug_forms(&out), None, "{all}");
            let text = if row.contains(FILE) {
                std::fs::read(&file.0).unwrap_or_else(|error| panic!("{all}\n{error}"))
            } else {
                out.into_bytes()
            };
            assert!(!text.trim_ascii().is_empty(), "it has nothing to say; {all}");
        }
        Json => assert!(json(&out), "{all}"),
        JsonLines => assert!(!out.is_empty() && out.lines().all(json), "{all}"),
        Failing => {
            assert!(!row.contains(NO_FILE) || err.contains(NO_FILE), "which file? {all}");
            assert!(err.lines().any(|line| line.starts_with("mlx5: ")), "{all}");
            // The system's text about a file is enough.
            assert!(err.contains("hint: ") || err.contains("No such file"), "{all}");
        }
        Refused => {
            // The device's refusals follow its name.
            let first = err.lines().find(|line| !line.starts_with("device "));
            assert!(first.is_some_and(|line| line.starts_with("error: ")), "{all}");
            assert!(out.is_empty(), "{all}");
            assert!(err.contains("hint: ") || err.contains("For more information, try"), "{all}");
        }
    }
}

fn check_all(rows: &[(&str, Ends)]) {
    for (row, ends) in rows {
        check(row, *ends);
    }
}

macro_rules! commands {
    ($($name:ident of $rows:ident)*) => {
        $(#[test] fn $name() { check_all($rows); })*
    };
}

commands! {
    options_of_list of LIST
    options_of_info of INFO
    options_of_doctor of DOCTOR
    options_of_pingpong of PINGPONG
    options_of_perf of PERF
    options_of_cancel of CANCEL
    options_of_capture of CAPTURE
    options_of_dump of DUMP
    options_of_explain of EXPLAIN
    options_of_trace of TRACE
    what_is_no_command_of_devices of OTHERS
}

/// Whether this machine has a program. With `MLX5_NEED_SHELLS` it must.
fn there_is(program: &str) -> bool {
    common::there_is(program, "MLX5_NEED_SHELLS")
}

/// Runs a program on a text, and returns what it has to say.
fn says(program: &str, words: &[&str], file: &Path) -> String {
    let mut command = Command::new(program);
    let output = command.args(words).arg(file).stdin(Stdio::null()).ended();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{program} {}: {text}", file.display());
    text
}

#[test]
fn shells_take_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = mlx5(&format!("completions {shell}")).done();
        if !there_is(shell) {
            continue;
        }
        let file = Scratch::new(shell);
        std::fs::write(&file.0, script).expect("a file");
        assert_eq!(says(shell, &["-n"], &file.0), "", "{shell}");
    }
    if there_is("bash") {
        let file = Scratch::new("completed");
        let script = mlx5("completions bash").done();
        // The calls of the Tab key after `mlx5 pi` and `mlx5 perf --ra`.
        let ask = "
            complete -p mlx5
            tab() { COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
                _mlx5 mlx5 \"${@: -1}\" \"${@: -2:1}\"; echo \"${COMPREPLY[@]}\"; }
            tab mlx5 pi
            tab mlx5 perf --ra";
        std::fs::write(&file.0, script + ask).expect("a file");
        let reported = says("bash", &[], &file.0);
        let lines: Vec<&str> = reported.lines().collect();
        assert!(
            lines[0].ends_with(" -F _mlx5 mlx5") && lines[1..] == ["pingpong", "--raw"],
            "{reported}"
        );
    }
}

#[test]
fn man_pages_render_without_a_warning() {
    let folder = Scratch::new("man");
    let reported = mlx5(&format!("man {}", folder.0.display())).done();
    assert!(reported.lines().count() > ALL.len(), "{reported}");
    if there_is("groff") {
        for page in reported.lines() {
            let shown = says("groff", &["-man", "-ww", "-z", "-Tutf8", "-Kutf8"], Path::new(page));
            assert_eq!(shown, "", "{page}");
        }
    }
    std::fs::remove_dir_all(&folder.0).expect("the folder");
}
