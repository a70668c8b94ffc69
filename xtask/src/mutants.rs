//! `cargo xtask mutants`: plants bugs mechanically and checks that a test notices each.

mod compile;
mod draw;
mod list;
mod outcomes;
mod packages;
mod plant;
mod reasons;
mod report;
mod suite;
mod text;
mod tree;
mod trial;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::builder::RangedU64ValueParser;

use crate::failure::Failure;
use draw::Shard;
use list::Mutant;
use outcomes::Outcomes;
use reasons::Reasons;

/// Percentage of the viable mutants that tests must notice: of those that compile and are not
/// equivalent.
const BAR: usize = 95;

/// The same for the mutants of changed lines, which are few, so that chance has more weight.
const BAR_OF_A_CHANGE: usize = 90;

/// Time limit for the mutants of changed lines, in minutes.
const MINUTES_OF_A_CHANGE: u64 = 10;

/// Plant bugs in the driver, its packages and the doors for C, and check that tests notice them
///
/// cargo-mutants lists the possible changes in wqe/src, cq/src, cm/src, async/src, verbs/src,
/// sim/preload/src, src/ethernet, src/flow, src/memory/mkey, src/pools, src/qp, src/rss, src/srq
/// and src/tag_matching. The task draws a seeded sample with a share of every file, and builds it
/// into one copy of the tree in target/mutants, where an environment variable selects the active
/// bug. With each bug it runs the tests that reach its function until one fails: first those that
/// fail for other bugs of the file, then the fast ones, out of the tests of these packages and the
/// conformance suite. Bugs that cannot be selected this way, in a constant for example, are built
/// one by one.
///
/// A test has noticed a bug if it does not end within ten times its usual time and a minute; a test
/// that fails must fail twice. A mutant that no test notices is missed, unless
/// xtask/src/mutants/reasons.txt explains why it is equivalent. The task fails if tests notice
/// fewer than 95 in a hundred, or if a missed one has no reason. For changed lines it fails at
/// fewer than 90 in a hundred; if the time ended before all were tried, it fails only if chance
/// does not explain the share of those that were.
///
/// Outcomes are kept in target/mutants/outcomes.jsonl until a source file changes; an interrupted
/// run continues from there. When all of the sample have an outcome, the task writes
/// docs/mutants.json. Installs cargo-mutants into the cache.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Seed of the sample
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Size of the sample
    #[arg(long, value_name = "COUNT", default_value_t = 400, value_parser = one_or_more())]
    count: usize,
    /// Run part K of N of the sample; the run that completes the sample writes docs/mutants.json
    #[arg(long, value_name = "K/N")]
    shard: Option<Shard>,
    /// Plant bugs in the lines that changed since this commit, for ten minutes at most; write
    /// nothing
    #[arg(long, value_name = "BASE", num_args = 0..=1, default_missing_value = "HEAD~1")]
    changed: Option<String>,
    /// Draw only mutants whose file or description contains this; write nothing
    #[arg(long, value_name = "TEXT", conflicts_with = "changed")]
    only: Vec<String>,
    /// Run the missed mutants of the sample again, whatever has changed; write nothing
    #[arg(long)]
    missed: bool,
    /// Stop after this time, and print the number that is left
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,
    /// Number of tests that run at a time [default: the number of processors]
    #[arg(long, value_name = "COUNT", value_parser = one_or_more())]
    jobs: Option<usize>,
    /// Print the drawn mutants, and run nothing
    #[arg(long)]
    list: bool,
}

fn one_or_more() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// The mutants to run, and the time for them.
struct Plan {
    drawn: Vec<Mutant>,
    deadline: Option<Instant>,
    /// Whether the drawn mutants are the full sample, whose outcome is recorded.
    is_measure: bool,
}

/// Plants the mutants and reports those that no test notices.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let root = root();
    let folder = root.join("target/mutants");
    let reasons = Reasons::read(&root.join("xtask/src/mutants/reasons.txt"))?;
    let sources = tree::Sources::of(&root)?;
    let mut outcomes = Outcomes::open(&folder.join("outcomes.jsonl"), sources.hash())?;

    let Some(plan) = plan(arguments, &root, &reasons, &outcomes)? else { return Ok(()) };
    let wanted: Vec<&Mutant> = plan
        .drawn
        .iter()
        .enumerate()
        .filter(|(at, _)| in_shard(arguments, *at))
        .map(|(_, mutant)| mutant)
        .collect();
    if arguments.list {
        for mutant in &wanted {
            println!("{mutant}");
        }
        return Ok(());
    }
    if arguments.missed {
        outcomes.forget(&wanted);
    }
    if wanted.iter().any(|mutant| outcomes.of(mutant).is_none()) {
        let jobs = arguments
            .jobs
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        trial::run(&sources, &folder, &wanted, &mut outcomes, jobs, plan.deadline)?;
    }
    let shown: Vec<&Mutant> = if plan.is_measure { plan.drawn.iter().collect() } else { wanted };
    let report = report::Report::new(&shown, &outcomes, &reasons);
    report.print();
    if plan.is_measure && report.is_complete() {
        report.write(&root.join("docs/mutants.json"), arguments.seed)?;
    }
    match arguments.changed {
        Some(_) => report.share(BAR_OF_A_CHANGE),
        None => report.share(BAR).and_then(|()| report.explained()),
    }
}

/// The mutants to plant; `None` if nothing changed.
fn plan(
    arguments: &Arguments,
    root: &Path,
    reasons: &Reasons,
    outcomes: &Outcomes,
) -> Result<Option<Plan>, Failure> {
    let begun = Instant::now();
    let after = |minutes: u64| begun + Duration::from_secs(60 * minutes);
    if let Some(base) = &arguments.changed {
        let Some(diff) = list::diff(root, base)? else {
            println!("no line that mutants are planted in has changed since {base}");
            return Ok(None);
        };
        let mut changed = list::of_diff(root, &diff)?;
        draw::shuffle(&mut changed, arguments.seed);
        changed.truncate(arguments.count);
        let deadline = Some(after(arguments.minutes.unwrap_or(MINUTES_OF_A_CHANGE)));
        return Ok(Some(Plan { drawn: changed, deadline, is_measure: false }));
    }
    let all = list::all(root)?;
    for reason in reasons.that_fit_none(&all) {
        println!("reasons.txt has a reason for what is no mutant: {reason}");
    }
    let mut of = all;
    if !arguments.only.is_empty() {
        of.retain(|mutant| {
            let name = mutant.to_string();
            arguments.only.iter().any(|part| name.contains(part.as_str()))
        });
    }
    let mut drawn = draw::stratified(of, arguments.count, arguments.seed);
    if drawn.is_empty() && !arguments.only.is_empty() {
        let what = format!("no file or description with {}", arguments.only.join(" or "));
        return Err(Failure::Output { program: "cargo mutants --list".into(), what });
    }
    if arguments.missed {
        drawn.retain(|mutant| outcomes.was_missed(mutant) && reasons.of(mutant).is_none());
    }
    let is_measure = arguments.only.is_empty() && !arguments.missed;
    Ok(Some(Plan { drawn, deadline: arguments.minutes.map(after), is_measure }))
}

fn in_shard(arguments: &Arguments, at: usize) -> bool {
    arguments.shard.is_none_or(|shard| shard.has(at))
}

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}
