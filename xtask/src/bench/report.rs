//! Writes the results: JSON and Markdown.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::bars::{Against, Verdict};
use super::peer::PROCESSES;
use super::{CANNOT, Lines, Measured, OVER_OURS, Rival, Row, builds, latency, plot, programs};

/// Text of `docs/benchmarks.json`.
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
    let rows = rows.chain(cannot).chain(holdings).chain(measured.crowd.json(false));
    let rows = rows.chain(measured.elsewhere.json(true));
    let rows = rows.chain(programs::json(&measured.programs));
    let rows = rows.chain(latency::json(&measured.latencies)).chain(builds::json(&measured.builds));
    let rows: Vec<Value> = rows.collect();
    for (i, row) in rows.iter().enumerate() {
        let comma = if i + 1 < rows.len() { "," } else { "" };
        let _ = writeln!(text, "  {row}{comma}");
    }
    text + "]\n"
}

/// A column of the tables: its heading, the ways whose rows it shows, and their mode.
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

/// The same ways over our own libibverbs.
const DOOR_LEGACY: &[&str] = &[
    "mlx5-verbs-post_send",
    "mlx5-verbs-poll_cq",
    "mlx5-verbs-post_recv",
    "mlx5-verbs-post_srq_recv",
    "mlx5-verbs-cancel",
    "mlx5-verbs-create_qp",
];
const DOOR_EXTENDED: &[&str] = &["mlx5-verbs-wr", "mlx5-verbs-cq_ex"];

const COLUMNS: [Column; 11] = [
    Column { heading: "floor", who: &["floor"], mode: "single" },
    Column { heading: "by hand", who: &["by-hand"], mode: "single" },
    Column { heading: "mlx5", who: &["mlx5"], mode: "single" },
    Column { heading: "mlx5, lock", who: &["mlx5"], mode: "shared" },
    Column { heading: "UCX", who: &["ucx"], mode: "single" },
    Column { heading: "C", who: LEGACY, mode: "default" },
    Column { heading: "C, extended", who: EXTENDED, mode: "default" },
    Column { heading: "C API, ours", who: DOOR_LEGACY, mode: "default" },
    Column { heading: "C API, ours, extended", who: DOOR_EXTENDED, mode: "default" },
    Column { heading: "C, one thread", who: LEGACY, mode: "single_threaded" },
    Column { heading: "C, extended, one thread", who: EXTENDED, mode: "single_threaded" },
];

/// Text of `docs/BENCHMARKS.md`.
pub(super) fn markdown(measured: &Measured, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    let _ = write!(text, "{}", INTRODUCTION);
    machine(&mut text, measured);
    programs::markdown(&mut text, &measured.programs);
    for section in SECTIONS {
        bars(&mut text, verdicts, section);
    }
    text.push_str(OVER_TIME);
    goals(&mut text, measured);
    lines(&mut text, measured.lines, verdicts);
    plain_bars(&mut text, verdicts);
    text.push_str("\n## Instructions per operation\n\n");
    table(&mut text, measured, |row| format!("{:.1}", row.instructions));
    text.push_str("\n## Nanoseconds per operation\n\n");
    table(&mut text, measured, |row| format!("{:.1}", row.nanoseconds.unwrap_or(f64::NAN)));
    text.push_str("\n## First-level data cache misses per operation\n\n");
    table(&mut text, measured, |row| format!("{:.2}", row.misses));
    measured.crowd.markdown(&measured.elsewhere, &mut text);
    latency::markdown(&mut text, &measured.latencies);
    builds::markdown(&mut text, &measured.builds);
    holdings(&mut text, measured);
    text.push_str("\n![Instructions and nanoseconds as bars](benchmarks.svg)\n");
    let _ = writeln!(text, "\n![Instructions of the hot paths]({})", plot::HOT_PATHS);
    places(&mut text, measured, verdicts);
    text.push_str(END);
    text
}

const INTRODUCTION: &str = "\
# Benchmarks

The cost of posting and polling with this driver, with rdma-core's C provider, with UCX, with queues
that a C program drives by itself, and the minimum possible cost (the floor). `cargo xtask bench`
measures, and writes this page, `benchmarks.json` and the plots. It needs a C compiler, valgrind,
libibverbs with its mlx5 provider, and UCX with its headers. `cargo xtask bench --short --check`
counts the instructions of what has a bar, and fails where a bar is missed, unless
`xtask/src/bench/missed.rs` says so, and by how much.

";

const END: &str = "
## Method

* One process contains this driver, rdma-core's (`benches/peer`, through libibverbs and libmlx5), the
  same C program over our library, UCX, and the floor. All of them but the floor open the same
  simulated device. It runs only between measurements.
* The operations are what a program would write. Each is a function that is not inlined, with
  arguments that differ from call to call. Status, `wr_id`, opcode and length of each completion
  are read. `round` is a posted request and its polled completion: the sum of both.
* Instructions are counted by callgrind from entry to return of that function: the mean of 12
  rounds of, mostly, 64 operations. They repeat exactly. Each retired instruction counts as one.
  Misses are those of a simulated first-level data cache of this machine's size.
* Kernel calls are excluded from instructions, misses and nanoseconds, because a simulated kernel
  says nothing about a real one, and both drivers make the same calls. Callgrind excludes
  everything inside the simulator's library; for nanoseconds, that library measures its own time,
  so half a clock read per call remains on both sides. The encoding and decoding around a call is
  included.
* A cancel queries the position of the queue from the device (QUERY_QP through DEVX), and scans:
  `drained` and `cancel` here, one call that does both in rdma-core. `cancel_1_of_1000` cancels
  sixteen `wr_id`s, one per call, with 1,000 requests pending. `cancel_64_of_4096` cancels a set
  of 64 with 4,096 pending; rdma-core needs 64 calls with 64 queries. Real firmware takes
  microseconds to answer, which is not measured and adds to both sides.
* `on_1`, `on_100` and `on_10000` post to and poll from that many queue pairs in turn; most of
  10,000 have no BlueFlame register of their own. `post_prefetched` calls `prefetch` four queue
  pairs ahead. `create_destroy_qp` creates and destroys an
  unconnected queue pair. `mkey_configure` gives a key access rights and a list of four SGEs.
  `eth_send32` polls the completion of the batch before and posts 32 packets of 64 bytes, one a
  request, of which the last is signaled, with checksums for the device to compute; `eth_recv32` polls
  32 packets, reads number, length and checksum verdict of each, and posts their 32 buffers again;
  both count by packet. In `eth_send32_multi` one request has them all, and in `eth_recv32_multi`
  64 packets share a receive: `EthernetQueue::receive` of 32, and address, length and checksum verdict
  of each. `eth_send32_inline` copies them into three requests (`send_packets_inline`). `eth_send32_frames` is
  `EthernetQueue::send` of 32 frames of its own, which gives the buffers back of those that were sent before;
  `eth_fill32_frames` also takes the frames and copies 64 bytes into each. `eth_forward32` is a burst of 32 in both of these forms, whose addresses are changed and which
  is sent back; in `eth_forward32_single` each packet has a receive of its own.
  Compressed polls use runs of 64; rdma-core *cannot*, because its provider has no decoder.
* Nanoseconds are measured over rounds of 64 consecutive operations with one pair of clock reads,
  alternating between all competitors. The numbers are medians over rounds; the ratios are medians
  of the ratios of each alternation. The rounds are those of several processes, because where code and
  queues lie in the memory of one changes short times; a number is the median of theirs, also where
  threads work at the same time. On a busy machine they vary by about ten percent.
* glibc's malloc gives nothing back to the kernel meanwhile: a case that frees the end of the heap would
  pay for that, or not, by where the heap happens to end.
* Memory is the growth of malloc's bytes in use and of anonymous mappings when 256 queues are
  created after 16 others, divided by 256. Memory that the simulated kernel allocates, and
  doorbell pages, are excluded.
* *mlx5* is a queue with one owner; *mlx5, lock* is one after `into_shared`. *C* is
  `ibv_post_send`, `ibv_post_recv` and `ibv_poll_cq`; *extended* is `ibv_wr_*` and
  `ibv_start_poll`; *one thread* has `MLX5_SINGLE_THREADED=1` and single-threaded completion
  queues. A batch of `ibv_post_send` includes filling the list; `list16` does not.
* *C API, ours* is the same C program over our own libibverbs.so.1 (`cargo xtask verbs`), linked under
  another name, because the process has C's as well.
* *By hand* (`benches/peer/by_hand.c`) is a C program that has its queues from `mlx5dv_init_obj`, and
  writes requests and reads completions by itself, with the inline functions of mlx5dv.h: what a
  service has that goes around libibverbs. It checks for room, keeps a `wr_id` for each request, finds
  the queue of a completion in a table, takes no lock, and copies a BlueFlame block by eight stores.
* *UCX* (`benches/peer/ucx.c`) is its transport rc_mlx5, through UCT, whose code is inlined in none of
  these: `uct_ep_put_short` (`post_inline8`), `uct_ep_put_zcopy` (`post_sge`), `uct_ep_am_zcopy`
  (`post_send`), `uct_ep_atomic64_fetch`, `uct_ep_put_bcopy`, `uct_ep_am_short`, and
  `uct_iface_progress`, which handles one completion of a `put_zcopy` and calls its callback
  (`poll1`), or finds none. It asks its completion queue of receives first, and dispatches what waits
  for room. `uct_ep_am_zcopy` puts a header of its own into the request. Status and the program's
  number of a completion are read, not opcode and length. Every request is signaled
  (`TX_CQ_MODERATION=0`), as it is for the others, and flow control is off. UCX keeps no record of a
  request without a callback. Debian builds it without logging, but with its assertions and checks of
  parameters.
* The *floor* (`benches/peer/floor*.c`) is the bare stores, loads and fences on plain memory:
  prebuilt header words, one check for room, one record per request, the doorbell record, the
  register with its fences. It checks nothing else, selects nothing and takes no lock.
* This driver is compiled in the release profile for baseline x86-64, without LTO; the C code with
  `-O2`, and Debian's libraries as shipped. A single request is copied to a BlueFlame register:
  with four 16-byte stores here and in the floor, with eight 8-byte stores in rdma-core. A batch
  rings an 8-byte doorbell.

## Not measured

The doorbell register of a simulated device is ordinary memory. Only silicon can show the cost of
stores to write-combining memory and of the fences after them, whether BlueFlame saves the device
a read, how the device's writes to queue memory interact with CPU caches, and latency and message
rate on a wire. The benchmark runs unchanged on a real ConnectX
(`mlx5-bench beside LIBRARIES time 1000`), except for the cancel cases: no program can drain a real
device's queue on command.
";

/// Describes the machine and the programs of the measurement.
fn machine(text: &mut String, measured: &Measured) {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("a CPU of unknown model", |(_, model)| model);
    let rdma_core = says("pkg-config", &["--modversion", "libibverbs"]);
    let _ = writeln!(
        text,
        "Measured on: {model}, {}; libibverbs {rdma_core}; {}; {}; {}. Times are of {} rounds, in {} processes.",
        std::env::consts::ARCH,
        says("rustc", &["--version"]),
        says("cc", &["--version"]),
        says("valgrind", &["--version"]),
        measured.rounds,
        PROCESSES,
    );
}

/// The first line of a program's output.
fn says(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    text.lines().next().map_or_else(|| format!("{program} unknown"), str::to_owned)
}

/// A table of bars: the rivals that it has, the text above it, and the rival's name.
struct Section {
    is_in: fn(Rival) -> bool,
    text: &'static str,
    rival: &'static str,
}

const SECTIONS: [Section; 4] = [
    Section {
        is_in: |rival| rival == Rival::C,
        text: "Compared with the better of C's two interfaces\n\n\
               Instructions are compared with C in its default mode, nanoseconds with C in its \
               single-threaded mode.",
        rival: "C",
    },
    Section {
        is_in: |rival| matches!(rival, Rival::Floor { .. }),
        text: "Compared with the floor\n\n\
               The lock of a shared queue may take twelve further instructions a call, which the \
               ratio leaves out. A shared receive queue has no such form.",
        rival: "floor",
    },
    Section {
        is_in: |rival| rival == Rival::SameProgram,
        text: "The C API: our libibverbs.so.1 and rdma-core's\n\n\
               The same C program over either library, in one process, by turns; instructions include \
               the program's own part.",
        rival: "C",
    },
    Section {
        is_in: |rival| matches!(rival, Rival::Case(_)),
        text: "Compared with other cases of ours",
        rival: "other",
    },
];

fn bars(text: &mut String, verdicts: &[Verdict], section: Section) {
    let Section { is_in, text: above, rival } = section;
    let _ = write!(
        text,
        "\n## {above}\n\n\
         | case | mode or way | instructions: ours | {rival} | ratio | at most | ns: ours | {rival} | ratio | at most |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for verdict in verdicts.iter().filter(|verdict| is_in(verdict.rival)) {
        let name = |who: &str| match verdict.rival {
            Rival::C => format!(" ({})", who.trim_start_matches("rdma-core-")),
            Rival::Case(case) => format!(" (`{case}`)"),
            Rival::Floor { .. } | Rival::SameProgram | Rival::Lines | Rival::Nobody => {
                String::new()
            }
        };
        let [by_instructions, by_time] = [name(&verdict.rivals[0]), name(&verdict.rivals[1])];
        let [ours, theirs] = verdict.counts;
        let [our_time, their_time] = verdict.times.map(nanoseconds);
        let _ = write!(
            text,
            "| `{}` | {} | {ours:.1} | {theirs:.1}{by_instructions} | {} | {our_time} |",
            verdict.case,
            verdict.way(),
            against(verdict.instructions),
        );
        let _ = match verdict.nanoseconds {
            Some(time) => writeln!(text, " {their_time}{by_time} | {} |", against(time)),
            None => writeln!(text, " {their_time} | | |"),
        };
    }
}

/// Times that exceed their bars in most runs, and why.
const OVER_TIME: &str = "
## Times over their bars

Over their bars in run after run are `batch16_sge`, and in some `batch16_inline8`, beside C in its single-threaded mode,
0.54 to 0.72 of it, where the bar is 0.55, and `cancel_1_of_1000`, 0.39 to 0.51, where it is 0.40.

Over our library `mkey_configure`, `post_fetch_add` and `batch16_sge` by `ibv_wr_*` and `post_srq_recv1` take what they
take over C's, give or take a tenth: one run has them above it, the next below.
";

/// Goals in nanoseconds: the case, the goal, and the reason where it takes longer.
const GOALS: [(&str, f64, &str); 4] = [
    ("post_srq_recv_random_1024", 60.0, ""),
    (
        "post_srq_recv_random_32768",
        60.0,
        "of 32,768 places those that are free lie alone: each post writes a line of the ring, and a record, \
         that no cache has",
    ),
    (
        "round_inline8_on_10000",
        60.0,
        "the lines below, of a queue pair that no cache and no TLB has; a program that knows what it posts to \
         next calls `prefetch`, as the next case does",
    ),
    ("post_prefetched_on_10000", 60.0, ""),
];

/// Times of the cases that have a goal in nanoseconds.
fn goals(text: &mut String, measured: &Measured) {
    text.push_str(
        "\n## Goals in time\n\n\
         Nanoseconds differ from machine to machine, so these are not held by a test.\n\n\
         | case | ns | goal | what is over it |\n\
         |---|--:|--:|---|\n",
    );
    for (case, goal, why) in GOALS {
        let time = measured.row(case, "mlx5", "single").and_then(|row| row.nanoseconds);
        let time = time.unwrap_or(f64::NAN);
        let (mark, why) = if time <= goal { ("", "") } else { (" **missed**", why) };
        let _ = writeln!(text, "| `{case}` | {time:.1}{mark} | {goal:.0} | {why} |");
    }
}

/// Number of cache lines that operations use.
fn lines(text: &mut String, traced: Lines, verdicts: &[Verdict]) {
    text.push_str(
        "\n## Cache lines\n\n\
         Lines of 64 bytes that one post uses of a queue pair of 10,000, which are in no cache: the misses of \
         a simulated first-level cache. The register is not among them: most of these queues share one.\n\n\
         | case | lines | at most |\n\
         |---|--:|--:|\n",
    );
    for verdict in verdicts.iter().filter(|verdict| verdict.rival == Rival::Lines) {
        let Against { ratio, bar } = verdict.instructions;
        let mark = if verdict.instructions.holds() { "" } else { " **missed**" };
        let _ = writeln!(text, "| `{}` | {ratio:.0}{mark} | {bar:.0} |", verdict.case);
    }
    let Lines { own, register, common } = traced;
    let _ = writeln!(
        text,
        "\nA trace of reads and writes (`mlx5-bench lines`), of a post to each of a hundred queue pairs, has \
         {own:.2} lines of the queue pair, {register:.2} of the register, and {common:.2} that every post uses: \
         the stack, and constants."
    );
}

/// Bars that are a fixed number of instructions.
fn plain_bars(text: &mut String, verdicts: &[Verdict]) {
    text.push_str(
        "\n## Instructions of what libibverbs has no call for\n\n\
         | case | instructions | at most |\n\
         |---|--:|--:|\n",
    );
    for verdict in verdicts.iter().filter(|verdict| verdict.rival == Rival::Nobody) {
        let Against { ratio, bar } = verdict.instructions;
        let mark = if verdict.instructions.holds() { "" } else { " **missed**" };
        let _ = writeln!(text, "| `{}` | {ratio:.1}{mark} | {bar:.0} |", verdict.case);
    }
    text.push_str(PUBLISHED);
}

/// Published results of others for packets. They were not measured here.
const PUBLISHED: &str = "
Results that others publish for forwarding a packet of 64 bytes, beside `eth_forward32`: instructions of one
core of another machine, with a ConnectX-6 Dx. Their programs look up the route of a packet, which
`eth_forward32` does not.

| implementation | instructions a packet |
|---|--:|
| AF_XDP | 1,500 |
| DPDK's mlx5 driver, in VPP | 440 |
| VPP's own node in C, on the queues of rdma-core | 317 |
";

fn against(against: Against) -> String {
    let mark = if against.holds() { "" } else { " **missed**" };
    format!("{:.3}{mark} | {:.2}", against.ratio, against.bar)
}

fn nanoseconds(time: f64) -> String {
    if time.is_nan() { String::new() } else { format!("{time:.1}") }
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

/// Whether the library of a column cannot run the case at all.
fn cannot(case: &str, column: &Column) -> bool {
    column.mode == "default"
        && CANNOT.iter().any(|(cases, who, _)| cases.contains(&case) && column.who.contains(who))
}

/// Memory of queues.
fn holdings(text: &mut String, measured: &Measured) {
    let _ = write!(
        text,
        "\n## Memory per queue\n\n\
         Bytes per additional queue. `memory_qp` is a reliable connection for 256 send and 256 receive \
         requests, with one SGE and 28 bytes of inline data; `memory_cq` is created for 1,024 CQEs.\n\n\
         | case | implementation | mapped | heap | total |\n|---|---|--:|--:|--:|\n"
    );
    for holding in &measured.holdings {
        let who = match holding.who.as_str() {
            "mlx5" => "mlx5",
            who if who.starts_with(OVER_OURS) => "C API, ours",
            _ => "C",
        };
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

/// Source files of the instructions in cases over their bars.
fn places(text: &mut String, measured: &Measured, verdicts: &[Verdict]) {
    let mut over: Vec<_> = verdicts.iter().filter(|one| !one.instructions.holds()).collect();
    over.dedup_by_key(|one| (one.case, one.who, one.mode));
    if over.is_empty() {
        return;
    }
    text.push_str(
        "\n## Instructions of missed bars by source file\n\n| case | mode or way | source |\n|---|---|---|\n",
    );
    for verdict in over {
        let Some(row) = measured.row(verdict.case, verdict.who, verdict.mode) else { continue };
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
        let _ = writeln!(text, "| `{}` | {} | {} |", verdict.case, verdict.way(), list.join(", "));
    }
}

/// The displayed name of a source file: its path inside the project, or the library it belongs to.
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
