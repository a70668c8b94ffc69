//! Telling what was measured.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::bars::Verdict;
use super::{CANNOT, Measured, Row};

/// The rows, as `docs/benchmarks.json` has them.
pub(super) fn json(measured: &Measured) -> String {
    let rounded = |number: f64| (number * 100.0).round() / 100.0;
    let rows = measured.rows.iter().map(|row| {
        json!({
            "case": row.case,
            "who": row.who,
            "mode": row.mode,
            "instructions": rounded(row.instructions),
            "ns": row.nanoseconds.map(rounded),
            "misses": rounded(row.misses),
        })
    });
    let cannot = CANNOT.iter().flat_map(|(cases, who, why)| {
        cases.iter().map(move |case| {
            json!({
                "case": case,
                "who": who,
                "mode": "default",
                "instructions": null,
                "ns": null,
                "misses": null,
                "cannot": why,
            })
        })
    });
    let holdings = measured.holdings.iter().map(|holding| {
        json!({
            "case": holding.case,
            "who": holding.who,
            "mode": holding.mode,
            "instructions": null,
            "ns": null,
            "misses": null,
            "bytes": holding.bytes(),
            "heap": holding.heap,
            "mapped": holding.mapped,
        })
    });
    let mut text = String::from("[\n");
    let rows: Vec<Value> = rows.chain(cannot).chain(holdings).collect();
    for (i, row) in rows.iter().enumerate() {
        let comma = if i + 1 < rows.len() { "," } else { "" };
        let _ = writeln!(text, "  {row}{comma}");
    }
    text + "]\n"
}

/// A column of the tables: its heading, whose rows and in which mode.
struct Column {
    heading: &'static str,
    who: &'static [&'static str],
    mode: &'static str,
}

const LEGACY: &[&str] = &[
    "rdma-core-post_send",
    "rdma-core-poll_cq",
    "rdma-core-post_recv",
    "rdma-core-post_srq_recv",
    "rdma-core-cancel",
    "rdma-core-create_qp",
];
const EXTENDED: &[&str] = &["rdma-core-wr", "rdma-core-cq_ex"];

const COLUMNS: [Column; 7] = [
    Column { heading: "floor", who: &["floor"], mode: "single" },
    Column { heading: "mlx5", who: &["mlx5"], mode: "single" },
    Column { heading: "mlx5, lock", who: &["mlx5"], mode: "shared" },
    Column { heading: "C", who: LEGACY, mode: "default" },
    Column { heading: "C, extended", who: EXTENDED, mode: "default" },
    Column { heading: "C, one thread", who: LEGACY, mode: "single_threaded" },
    Column { heading: "C, extended, one thread", who: EXTENDED, mode: "single_threaded" },
];

/// `docs/BENCHMARKS.md`.
pub(super) fn markdown(measured: &Measured, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    let _ = write!(text, "{}", INTRODUCTION);
    machine(&mut text, measured);
    bars(&mut text, measured, verdicts);
    text.push_str("\n## Instructions of an operation\n\n");
    table(&mut text, measured, |row| format!("{:.1}", row.instructions));
    text.push_str("\n## Nanoseconds of an operation\n\n");
    table(&mut text, measured, |row| format!("{:.1}", row.nanoseconds.unwrap_or(f64::NAN)));
    text.push_str("\n## Misses of a first-level data cache, of an operation\n\n");
    table(&mut text, measured, |row| format!("{:.2}", row.misses));
    holdings(&mut text, measured);
    text.push_str("\n![The same as bars](benchmarks.svg)\n");
    places(&mut text, measured, verdicts);
    text.push_str(END);
    text
}

const INTRODUCTION: &str = "\
# Benchmarks

What posting and polling cost here, what they cost with rdma-core's C provider, and what they cost at
the least. `cargo xtask bench` measures, and writes this page, `benchmarks.json` and `benchmarks.svg`;
it needs a C compiler, valgrind, and libibverbs with its mlx5 provider.

";

const END: &str = "
## How it is measured

* One process holds all: our provider, rdma-core's (`benches/peer`, by libibverbs and libmlx5), and the
  floor. Both providers find the same simulated device where they look for a real one. It stands still
  while anything is measured, and does its work in between.
* The operations are what a program writes, each in a function of its own that is not inlined, given
  arguments that differ from call to call. A completion's status, identifier, operation and length are
  read. `round` is a request posted and its completion polled, the sum of both.
* Instructions are callgrind's, from the first of that function to its return, the mean of 12 rounds,
  of 64 operations mostly; they repeat exactly. They count what a retired instruction costs as one,
  whatever it does. Misses are those of the first-level data cache that callgrind simulates, of this
  machine's size.
* Where an operation calls the kernel, what is below the call is left out, of instructions, misses and
  nanoseconds alike: a simulated kernel says nothing about a real one, and both providers call the
  same. callgrind's sums are those of everything but the calls into the simulator's library, with all
  that they call in turn; of nanoseconds the preloaded library keeps the sum of what it took, which
  leaves both sides the same half of reading a clock. What each does around the call, encoding and
  decoding, is in.
* A cancel asks the device where the queue stands (QUERY_QP over DEVX), and scans: `drained` and
  `cancel` here, one call there, whose first half is that question. `cancel_1_of_1000` cancels one
  identifier after the other, sixteen of them, while 1,000 requests are pending; `cancel_64_of_4096`
  a set of 64, for which rdma-core is called 64 times, and asks as often. Real firmware takes
  microseconds to answer: with `cancel_1_of_1000` that comes on top of either side's time, unmeasured.
* `on_10000` posts and polls on so many queue pairs in turn; most of them have no BlueFlame register
  of their own. `create_destroy_qp` is a queue pair's life without a connection. `mkey_configure` gives
  a key rights and a list of four pieces. Compressed polls are of runs of 64; rdma-core *cannot*: its
  provider has no decoder for them.
* Nanoseconds are of rounds of 64 operations that follow each other, the clock read once for them; the
  numbers are medians over rounds, in which everybody has his turn. Ratios are medians of the ratios of
  each turn. On a machine that has other things to do they vary by some ten percent.
* Memory is the growth of malloc's count of bytes in use, and of the mappings that are of no file,
  while 256 queues are made behind 16 others, divided by 256. What the simulated kernel takes within
  its calls, and doorbell pages, are no part of it.
* *mlx5* is a queue with one owner, *mlx5, lock* one that was made `into_shared`. *C* is
  `ibv_post_send`, `ibv_post_recv` and `ibv_poll_cq`, *extended* is `ibv_wr_*` and `ibv_start_poll`;
  *one thread* has `MLX5_SINGLE_THREADED=1`, and completion queues made for one thread. A batch by
  `ibv_post_send` is a list that is filled in first; `list16` finds the list filled in.
* The *floor* (`benches/peer/floor.c`) is the bare stores, loads and fences on plain memory: header
  words built beforehand, one look for room, one record for each request, the doorbell record, the
  register with the fences around it. Nothing is checked, chosen or locked.
* Ours is the release profile for plain x86-64, without link-time optimisation; the C is `-O2`, and
  Debian's libraries as they come. One request alone is copied to a BlueFlame register: ours and the
  floor with four 16-byte stores, rdma-core with eight of 8 bytes. A batch rings an 8-byte doorbell.

## What this cannot show

The doorbell register of a simulated device is ordinary memory. What only silicon can show is
unmeasured: stores to write-combining memory and the fences behind them, whether BlueFlame saves the
device a read, how the device's writes to queue memory meet the CPU's caches, latency and message rate
on a wire. The benchmark runs on a real ConnectX as it is (`mlx5-bench beside LIBRARY time 1000`).
";

/// What it was measured with.
fn machine(text: &mut String, measured: &Measured) {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("a CPU of unknown model", |(_, model)| model);
    let rdma_core = says("pkg-config", &["--modversion", "libibverbs"]);
    let _ = writeln!(
        text,
        "Here: {model}, {}; libibverbs {rdma_core}; {}; {}; {}. Times are of {} rounds.",
        std::env::consts::ARCH,
        says("rustc", &["--version"]),
        says("cc", &["--version"]),
        says("valgrind", &["--version"]),
        measured.rounds,
    );
}

/// The first line of what a program says.
fn says(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    text.lines().next().map_or_else(|| format!("{program} unknown"), str::to_owned)
}

fn bars(text: &mut String, measured: &Measured, verdicts: &[Verdict]) {
    text.push_str(
        "\n## Against the better of C's two ways\n\n\
         Instructions against C as it is by default, nanoseconds against C told that there is one \
         thread.\n\n\
         | case | mode | instructions: ours | C | ratio | at most | ns: ours | C | ratio | at most |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for verdict in verdicts {
        let row = |who, mode| measured.row(verdict.case, who, mode);
        let ours = row("mlx5", verdict.mode);
        let peer = match verdict.own {
            Some(own) => measured.row(own, "mlx5", verdict.mode),
            None => row(&verdict.peer, "default"),
        };
        let in_time = row(&verdict.peer_in_time, "single_threaded");
        let instructions = |row: Option<&Row>| row.map_or(f64::NAN, |row| row.instructions);
        let nanoseconds =
            |row: Option<&Row>| row.and_then(|row| row.nanoseconds).unwrap_or(f64::NAN);
        let short = |who: &str| who.trim_start_matches("rdma-core-").to_owned();
        let mark = |holds| if holds { "" } else { " **over**" };
        let _ = write!(
            text,
            "| `{}` | {} | {:.1} | {:.1} ({}) | {:.3}{} | {:.2} |",
            verdict.case,
            verdict.mode,
            instructions(ours),
            instructions(peer),
            verdict.own.map_or_else(|| short(&verdict.peer), |own| format!("`{own}`")),
            verdict.instructions.ratio,
            mark(verdict.instructions.holds()),
            verdict.instructions.bar,
        );
        let _ = match verdict.nanoseconds {
            Some(time) => writeln!(
                text,
                " {:.1} | {:.1} ({}) | {:.2}{} | {:.2} |",
                nanoseconds(ours),
                nanoseconds(in_time),
                short(&verdict.peer_in_time),
                time.ratio,
                mark(time.holds()),
                time.bar,
            ),
            None => writeln!(text, " {:.1} | | | |", nanoseconds(ours)),
        };
    }
}

fn table(text: &mut String, measured: &Measured, cell: impl Fn(&Row) -> String) {
    let headings: Vec<_> = COLUMNS.iter().map(|column| column.heading).collect();
    let _ = writeln!(
        text,
        "| case | {} |\n|---|{}",
        headings.join(" | "),
        "--:|".repeat(COLUMNS.len())
    );
    for case in measured.cases() {
        let _ = write!(text, "| `{case}` |");
        for column in &COLUMNS {
            let row = column.who.iter().find_map(|who| measured.row(case, who, column.mode));
            let empty = || if cannot(case, column) { "cannot".into() } else { String::new() };
            let _ = write!(text, " {} |", row.map_or_else(empty, &cell));
        }
        text.push('\n');
    }
}

/// Whether whoever a column is of cannot do a case at all.
fn cannot(case: &str, column: &Column) -> bool {
    column.mode == "default"
        && CANNOT.iter().any(|(cases, who, _)| cases.contains(&case) && column.who.contains(who))
}

/// What queues hold.
fn holdings(text: &mut String, measured: &Measured) {
    let _ = write!(
        text,
        "\n## Memory of a queue\n\n\
         Bytes that one more queue takes: `memory_qp`, a reliable connection for 256 requests either way, \
         of one piece and 28 bytes inline; `memory_cq`, 1,024 entries asked for.\n\n\
         | case | who | mapped | on the heap | together |\n|---|---|--:|--:|--:|\n"
    );
    for holding in &measured.holdings {
        let who = if holding.who == "mlx5" { "mlx5" } else { "C" };
        let _ = writeln!(
            text,
            "| `{}` | {who} | {:.0} | {:.0} | {:.0} |",
            holding.case,
            holding.mapped,
            holding.heap,
            holding.bytes()
        );
    }
}

/// Where the instructions are of what has not reached its bar.
fn places(text: &mut String, measured: &Measured, verdicts: &[Verdict]) {
    let over: Vec<_> = verdicts.iter().filter(|verdict| !verdict.instructions.holds()).collect();
    if over.is_empty() {
        return;
    }
    text.push_str("\n## Where the instructions are that are too many\n\n| case | mode | source |\n|---|---|---|\n");
    for verdict in over {
        let Some(row) = measured.row(verdict.case, "mlx5", verdict.mode) else { continue };
        let mut named: Vec<(String, f64)> = Vec::new();
        for (file, count) in &row.places {
            let name = shown(file);
            match named.iter_mut().find(|(other, _)| *other == name) {
                Some((_, sum)) => *sum += count,
                None => named.push((name, *count)),
            }
        }
        named.sort_by(|a, b| b.1.total_cmp(&a.1));
        let list: Vec<_> = named.iter().map(|(name, count)| format!("{name} {count:.1}")).collect();
        let _ = writeln!(text, "| `{}` | {} | {} |", verdict.case, verdict.mode, list.join(", "));
    }
}

/// A source file as it is shown: inside the project, or of which library.
fn shown(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"));
    if let Ok(inside) = Path::new(file).strip_prefix(root) {
        return format!("`{}`", inside.display());
    }
    match file.split_once("/library/") {
        Some((_, inside)) => {
            format!("Rust's `{}`", inside.split('/').next().unwrap_or(inside))
        }
        None => "libc and others".to_owned(),
    }
}
