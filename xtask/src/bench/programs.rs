//! Programs with their default options: instructions of the library per message and per poll.
//!
//! Each program runs under callgrind over C's libraries and over ours, with two numbers of
//! messages. The difference of the two runs leaves out setup and warm-up. The simulated device is
//! another process, so that its instructions are not counted.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::ledger::door::{DEVICE, Door, LINKS, is_listened_to};
use crate::program;
use crate::provider::Provider;
use crate::wire::Host;

/// A program that sends messages to a second instance of itself.
struct Program {
    name: &'static str,
    /// The command; `COUNT` is the number of messages, `PORT` the TCP port of the server.
    command: &'static str,
    /// The client's command, if it differs from the server's by more than the host name.
    client: &'static str,
    /// The two numbers of messages.
    counts: [u32; 2],
}

/// Each with its default options, except for the number of messages.
const PROGRAMS: &[Program] = &[
    perftest("ib_write_lat", "ib_write_lat -F -d DEVICE -n COUNT -p PORT"),
    perftest("ib_send_lat", "ib_send_lat -F -d DEVICE -n COUNT -p PORT"),
    perftest("ib_read_lat", "ib_read_lat -F -d DEVICE -n COUNT -p PORT"),
    perftest("ib_write_bw", "ib_write_bw -F -d DEVICE -n COUNT -p PORT"),
    perftest("ib_send_bw", "ib_send_bw -F -d DEVICE -n COUNT -p PORT"),
    perftest("ibv_rc_pingpong", "ibv_rc_pingpong -d DEVICE -n COUNT -p PORT"),
    perftest("ibv_uc_pingpong", "ibv_uc_pingpong -d DEVICE -n COUNT -p PORT"),
    perftest("ibv_ud_pingpong", "ibv_ud_pingpong -d DEVICE -n COUNT -p PORT"),
    ucx("ucx_perftest -t put_lat", "-t put_lat -x rc_verbs -d DEVICE:1 -n COUNT -w 10"),
    ucx("ucx_perftest -t put_bw", "-t put_bw -x rc_verbs -d DEVICE:1 -n COUNT -w 10"),
];

const fn perftest(name: &'static str, command: &'static str) -> Program {
    Program { name, command, client: "", counts: [1000, 3000] }
}

const fn ucx(name: &'static str, client: &'static str) -> Program {
    Program { name, command: "ucx_perftest -p PORT", client, counts: [1000, 3000] }
}

/// The TCP port of the first pair of programs.
const FIRST_PORT: u16 = 19600;
/// Time limit of a program under callgrind.
const SECONDS: u32 = 300;

/// Counts of a program over one library.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ProgramRow {
    program: String,
    provider: Provider,
    /// Instructions of the library per posted message, from all calls other than polls.
    post: f64,
    /// Instructions of the library per poll. Most polls of these programs find no completion.
    poll: f64,
}

/// Number of calls into a library, and their instructions, including those of the functions they
/// call.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Calls {
    count: u64,
    instructions: u64,
}

/// Measures every program over both libraries.
pub(super) fn measure() -> Result<Vec<ProgramRow>, Failure> {
    let ours = Door::build(Provider::Rust)?;
    let link = LINKS[0];
    let mut ports = FIRST_PORT..;
    let mut rows = Vec::new();
    for one in PROGRAMS {
        let server = one.command.split(' ').next().unwrap_or_default();
        if program::is_there(server.as_ref()).is_err() {
            println!("left out: {}, which is not installed", one.name);
            continue;
        }
        for provider in Provider::ALL {
            let door = ours.over(provider);
            let host = door.machine(&format!("{},devices=1", link.settings), link)?;
            let [mut short, mut long] = [HashMap::new(), HashMap::new()];
            for (calls, count) in [(&mut short, one.counts[0]), (&mut long, one.counts[1])] {
                let port = ports.next().unwrap_or(FIRST_PORT);
                *calls = counted(&door, &host, one, count, port)?;
            }
            let messages = u64::from(one.counts[1] - one.counts[0]);
            let row = compare(one.name, provider, &short, &long, messages)?;
            println!("{}", row.text());
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Runs a program with `count` messages, its client under callgrind.
fn counted(
    door: &Door,
    host: &Host,
    one: &Program,
    count: u32,
    port: u16,
) -> Result<HashMap<String, Calls>, Failure> {
    let folder = std::env::temp_dir();
    let file = folder.join(format!("mlx5-callgrind-{}-{port}", std::process::id()));
    let fill = |line: &str| {
        let line = line.replace("DEVICE", DEVICE).replace("COUNT", &count.to_string());
        line.replace("PORT", &port.to_string())
    };
    let start = |program: &str, arguments: &str| {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        door.start(&host.settings(), &folder, SECONDS, program, &words)
    };
    let command = fill(one.command);
    let (server, arguments) = command.split_once(' ').unwrap_or((&command, ""));
    let mut server = start(server, arguments)?;
    while !is_listened_to(port) {
        if server.has_ended()? {
            let said = server.wait()?.stderr_with_simulator;
            return Err(wrong(one, format!("the server ended at once: {said}")));
        }
        std::thread::yield_now();
    }
    let out = format!("--callgrind-out-file={}", file.display());
    let client = format!("-q --tool=callgrind {out} {command} {} localhost", fill(one.client));
    let client = start("valgrind", &client)?.wait()?;
    let server = server.wait()?;
    for ended in [&client, &server] {
        if let Some(trouble) = &ended.trouble {
            return Err(wrong(one, format!("{trouble}: {}", ended.stderr_with_simulator)));
        }
    }
    let text = fs::read_to_string(&file);
    let _ = fs::remove_file(&file);
    let text = text.map_err(|error| Failure::File { path: file.clone(), error })?;
    Ok(calls_into(&text, is_library))
}

fn wrong(one: &Program, what: String) -> Failure {
    Failure::Output { program: one.name.to_owned(), what }
}

/// Whether an object file is libibverbs or one of its providers.
fn is_library(path: &str) -> bool {
    let name = Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with("libibverbs.so") || name.starts_with("libmlx5.so") || name.contains("-rdmav")
}

/// Calls from other objects into the objects for which `inside` holds, by function, from
/// callgrind's output. The file spells out a name once, with a number that stands for it
/// afterwards.
fn calls_into(text: &str, inside: impl Fn(&str) -> bool) -> HashMap<String, Calls> {
    let mut objects: HashMap<&str, bool> = HashMap::new();
    let mut names: HashMap<&str, &str> = HashMap::new();
    let (mut here, mut there, mut callee) = (false, None, "");
    let mut pending = None;
    let mut calls: HashMap<String, Calls> = HashMap::new();
    for line in text.lines() {
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let (number, given) = value.split_once(' ').unwrap_or((value, ""));
        match key {
            "ob" | "cob" => {
                if !given.is_empty() {
                    objects.insert(number, inside(given));
                }
                let inside = objects.get(number).copied().unwrap_or(false);
                if key == "ob" { here = inside } else { there = Some(inside) }
            }
            "fn" | "cfn" => {
                if !given.is_empty() {
                    names.insert(number, given);
                }
                if key == "cfn" {
                    callee = names.get(number).copied().unwrap_or(number);
                }
            }
            "calls" => pending = number.parse::<u64>().ok(),
            // The line after "calls" has the cost of these calls.
            _ if pending.is_some() && !line.is_empty() => {
                let count = pending.take().unwrap_or(0);
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse().ok()).unwrap_or(0);
                if there.take().unwrap_or(here) && !here {
                    let calls = calls.entry(callee.to_owned()).or_default();
                    calls.count += count;
                    calls.instructions += cost;
                }
            }
            _ => {}
        }
    }
    calls
}

/// The row of a program, from its calls in a short and in a long run. A function whose number of
/// calls grows with the messages counts as posting. Polls are those of the long run: their number
/// depends on timing, so the short run may have more of them.
fn compare(
    program: &str,
    provider: Provider,
    short: &HashMap<String, Calls>,
    long: &HashMap<String, Calls>,
    messages: u64,
) -> Result<ProgramRow, Failure> {
    let (mut post, mut poll) = (0, Calls::default());
    for (name, after) in long {
        let before = short.get(name).copied().unwrap_or_default();
        if is_poll(name, *after, before, messages) {
            poll.count += after.count;
            poll.instructions += after.instructions;
        } else if after.count.saturating_sub(before.count) >= messages / 4 {
            post += after.instructions - before.instructions;
        }
    }
    if post == 0 || poll.count == 0 {
        let what = format!("no call posts, or none polls, over {}", provider.name());
        return Err(Failure::Output { program: program.to_owned(), what });
    }
    Ok(ProgramRow {
        program: program.to_owned(),
        provider,
        post: post as f64 / messages as f64,
        poll: poll.instructions as f64 / poll.count as f64,
    })
}

/// Whether a function polls: by its name if it has one; otherwise (C's provider is stripped)
/// because it is called often, but not a whole number of times per message.
fn is_poll(name: &str, after: Calls, before: Calls, messages: u64) -> bool {
    match name.starts_with("0x") {
        true => {
            let more = after.count.abs_diff(before.count);
            after.count >= messages / 4 && more != 0 && !more.is_multiple_of(messages)
        }
        false => name.contains("poll"),
    }
}

impl ProgramRow {
    fn text(&self) -> String {
        let Self { program, provider, post, poll } = self;
        let over = provider.name();
        format!("{program:24} over {over:5} {post:8.1} per message, {poll:6.1} per poll")
    }
}

/// Rows for `benchmarks.json`.
pub(super) fn json(rows: &[ProgramRow]) -> impl Iterator<Item = Value> + '_ {
    let rounded = |number: f64| (number * 10.0).round() / 10.0;
    rows.iter().map(move |row| {
        json!({
            "case": row.program,
            "who": match row.provider { Provider::C => "rdma-core", Provider::Rust => "mlx5-verbs" },
            "mode": "program",
            "instructions": rounded(row.post),
            "poll_instructions": rounded(row.poll),
        })
    })
}

/// The table of programs.
pub(super) fn markdown(text: &mut String, rows: &[ProgramRow]) {
    let _ = write!(text, "{HEAD}");
    for ours in rows.iter().filter(|row| row.provider == Provider::Rust) {
        let is_theirs =
            |row: &&ProgramRow| row.provider == Provider::C && row.program == ours.program;
        let Some(theirs) = rows.iter().find(is_theirs) else { continue };
        let _ = writeln!(
            text,
            "| `{}` | {:.0} | {:.0} | {:.2} | {:.0} | {:.0} | {:.2} |",
            ours.program,
            ours.post,
            theirs.post,
            ours.post / theirs.post,
            ours.poll,
            theirs.poll,
            ours.poll / theirs.poll
        );
    }
}

const HEAD: &str = "
## Programs with their default options

Instructions of the library, over ours and over rdma-core's: of all calls that post a message, and of
one poll (most polls find nothing). The same program, the same simulated device, counted by callgrind
as the difference of runs of 1000 and 3000 messages. A message of a pingpong is posted once to be sent
and once to be received.

| program | post: ours | C | ratio | poll: ours | C | ratio |
|---|--:|--:|--:|--:|--:|--:|
";

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
events: Ir
ob=(1) /usr/bin/ib_write_lat
fl=(1) a.c
fn=(1) main
10 5
cob=(2) /usr/lib/libibverbs.so.1
cfi=(2) b.c
cfn=(2) ibv_wr_start
calls=3 0
* 300
cfn=(3) local
calls=7 0
* 70
cob=(2)
cfn=(4) 0x1e880
calls=11 0
* 44

ob=(2)
fn=(2)
* 200
cfn=(5) helper
calls=3 0
* 100
cob=(3) /usr/lib/libc.so.6
cfn=(6) memcpy
calls=3 0
* 50
totals: 1
";

    #[test]
    fn only_calls_from_outside_into_the_library_are_counted() {
        let calls = calls_into(TEXT, is_library);
        assert_eq!(calls.len(), 2);
        assert_eq!(calls["ibv_wr_start"], Calls { count: 3, instructions: 300 });
        assert_eq!(calls["0x1e880"], Calls { count: 11, instructions: 44 });
    }

    #[test]
    fn a_row_is_the_difference_of_two_runs() {
        let calls = |posts, polls| {
            let of = |count, each| Calls { count, instructions: 1000 + count * each };
            HashMap::from([("0x10".to_owned(), of(posts, 30)), ("0x20".to_owned(), of(polls, 9))])
        };
        let row = compare("p", Provider::C, &calls(10, 15), &calls(30, 85), 20).expect("a row");
        assert_eq!((row.post, row.poll), (30.0, (1000.0 + 85.0 * 9.0) / 85.0));
        compare("p", Provider::C, &calls(10, 10), &calls(30, 30), 20).expect_err("no polls");
    }

    #[test]
    fn more_polls_in_the_short_run_change_no_row() {
        let of = |count| Calls { count, instructions: count * 9 };
        let calls = |posts, polls| {
            HashMap::from([("0x10".to_owned(), of(posts)), ("0x20".to_owned(), of(polls))])
        };
        let row = compare("p", Provider::C, &calls(10, 500), &calls(30, 85), 20).expect("a row");
        assert_eq!((row.post, row.poll), (9.0, 9.0));
    }

    #[test]
    fn a_named_function_polls_by_its_name_and_a_stripped_one_by_its_calls() {
        let of = |count| Calls { count, instructions: count };
        let polls = |name, count| is_poll(name, of(count), of(0), 20);
        assert!(polls("mlx5_verbs::cq::poll::poll_cq", 20));
        assert!(!polls("mlx5_verbs::qp::post::post_send", 33));
        assert!(polls("0x1e880", 33) && !polls("0x1e880", 40));
    }

    #[test]
    fn the_library_is_known_by_its_file() {
        assert!(is_library("/usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0"));
        assert!(is_library("target/verbs/libibverbs.so.1"));
        assert!(is_library("/usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so"));
        assert!(!is_library("/usr/bin/ib_write_lat") && !is_library("libuct_ib.so.0"));
    }
}
