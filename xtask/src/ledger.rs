//! `cargo xtask ledger`: runs rdma-core's own tests, and pairs of programs, on the simulated
//! device.

mod conformance;
pub(crate) mod door;
mod pairs;
pub(crate) mod pyverbs;
mod reasons;
mod report;
mod rows;
mod suites;
mod tools;
mod traces;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::failure::Failure;
use crate::provider::Provider;
use door::{Door, LINKS, Link};
use reasons::Unused;
pub(crate) use report::place;
pub(crate) use report::wrapped;
pub(crate) use rows::write_rows;
use rows::{Ledger, Outcome, Row};

/// Run rdma-core's tests and tools, perftest and our own suite on the simulated device, and update
/// the ledger
///
/// Every module runs unmodified in a process of its own with the simulator preloaded, on an
/// InfiniBand port and on a RoCE port. Writes docs/conformance.json and the pyverbs part of
/// docs/CONFORMANCE.md. Needs Debian's python3-pyverbs, python3-scapy, ibverbs-providers,
/// ibverbs-utils, perftest and ucx-utils.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing; fail if a test that passes in the ledger does not pass now
    #[arg(long, group = "partial")]
    check: bool,
    /// Run one part
    ///
    /// Prints the result of each of its tests, and writes nothing.
    #[arg(long, value_enum, group = "partial")]
    only: Option<Part>,
    /// Run only this module of the pyverbs tests: with --only pyverbs
    #[arg(long, requires = "only")]
    module: Option<String>,
    /// Run over this libibverbs only
    #[arg(long, value_enum)]
    provider: Option<Provider>,
    /// Run on this link only, and write nothing: with --check, --only or --traces
    #[arg(long, value_parser = ["ib", "roce"], requires = "partial")]
    link: Option<String>,
    /// With --check: run a third of the pairs of programs, and of the ways in which each runs over
    /// either libibverbs; always the same third. Pairs of raw packets, and pairs with our own
    /// programs, all run
    #[arg(long, requires = "check", conflicts_with_all = ["only", "traces"])]
    sample: bool,
    /// Run the tests of pyverbs over both libibverbs, and compare, test by test, which objects are
    /// created in the simulated kernel and which calls it refuses: a test that expects an error
    /// also passes over a library that can do nothing
    #[arg(long, group = "partial", conflicts_with = "provider")]
    traces: bool,
    /// Run nothing; regenerate the page from the ledger
    #[arg(long, conflicts_with = "partial")]
    pub(crate) document: bool,
}

impl Arguments {
    /// Refuses an unknown module, and a module without `--only pyverbs`.
    fn check_module(&self, modules: &[String]) -> Result<(), Failure> {
        let Some(module) = &self.module else { return Ok(()) };
        if self.only != Some(Part::Pyverbs) {
            return Err(Failure::Unknown("pyverbs alone has modules: --only pyverbs".into()));
        }
        if !modules.contains(module) {
            let what = format!("pyverbs has no tests {module}, but {}", modules.join(", "));
            return Err(Failure::Unknown(what));
        }
        Ok(())
    }
}

/// A part of the ledger's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// The tests of pyverbs
    Pyverbs,
    /// Programs that query devices
    Tools,
    /// Pairs of programs that send to each other
    Pairs,
    /// Our conformance suite
    Conformance,
}

/// Writes the ledger's part of docs/CONFORMANCE.md.
pub(crate) fn document() -> Result<(), Failure> {
    let [json, markdown] = documents();
    report::write(&markdown, &Ledger::read(&json)?, &pyverbs::peers()?)
}

/// Runs all the tests, then writes the ledger or compares with it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let begun = Instant::now();
    let [json, markdown] = documents();
    if arguments.traces {
        return compare_traces(arguments);
    }
    let mut kept = Ledger::read(&json)?;
    if arguments.sample {
        for provider in Provider::ALL {
            kept = kept.without(provider, &pairs::left_out_of_sample(provider));
        }
    }
    if arguments.check && !kept.has_passes() {
        let error = io::Error::other("no test passes in it, so that nothing can be compared");
        return Err(Failure::File { path: json, error });
    }
    let peers = pyverbs::peers()?;
    let suite = pyverbs::Suite::unpack()?;
    arguments.check_module(suite.modules())?;

    let mut rows = Vec::new();
    let mut unused = Unused::new();
    for provider in Provider::ALL {
        if arguments.provider.is_some_and(|only| only != provider) {
            continue;
        }
        let door = Door::build(provider)?;
        for link in LINKS {
            if arguments.link.as_ref().is_none_or(|only| only == link.name) {
                rows.extend(over(arguments, &door, link, &suite, &mut unused)?);
            }
        }
    }
    if arguments.only.is_some() {
        for row in &rows {
            println!("{row}");
        }
        return Ok(());
    }
    let now = Ledger::from_rows(rows);
    for link in LINKS {
        let of_link: Vec<Row> =
            now.rows().iter().filter(|row| row.link == link.name).cloned().collect();
        println!("{}: {}", link.name, tally(&of_link));
    }
    println!("{} s", begun.elapsed().as_secs());
    for known in unused.iter() {
        eprintln!("xtask: the reason \"{known}\" matches no test");
    }

    if arguments.check {
        let regressed = now.regressed_since(&kept);
        if !regressed.is_empty() {
            return Err(Failure::Regressed(regressed));
        }
        let gained = kept.regressed_since(&now).len();
        if gained > 0 {
            println!("{gained} more pass than the ledger has: cargo xtask ledger writes them down");
        }
    } else {
        let whole = kept.with(&now);
        whole.write(&json)?;
        report::write(&markdown, &whole, &peers)?;
    }
    let unexplained: Vec<String> =
        now.rows().iter().filter(|row| row.is_unexplained()).map(Row::to_string).collect();
    if unexplained.is_empty() { Ok(()) } else { Err(Failure::Unexplained(unexplained)) }
}

/// Compares the calls that the tests make to the simulated kernel over either library.
fn compare_traces(arguments: &Arguments) -> Result<(), Failure> {
    pyverbs::peers()?;
    let suite = pyverbs::Suite::unpack()?;
    for link in LINKS {
        if arguments.link.as_ref().is_none_or(|only| only == link.name) {
            println!("{}: {} tests compared", link.name, traces::run(&suite, link)?);
        }
    }
    Ok(())
}

/// Runs the wanted parts on one link over one provider.
fn over(
    Arguments { only, module: named, sample, .. }: &Arguments,
    door: &Door,
    link: Link,
    suite: &pyverbs::Suite,
    unused: &mut Unused,
) -> Result<Vec<Row>, Failure> {
    let wanted = |part| only.is_none_or(|only| only == part);
    let mut rows = Vec::new();
    let mut found = |what: &str, found: Vec<Row>| {
        eprintln!("{:4} {:4} {what}: {}", link.name, door.provider.name(), tally(&found));
        rows.extend(found);
    };
    let modules =
        suite.modules().iter().filter(|module| named.as_ref().is_none_or(|one| one == *module));
    for module in modules.filter(|_| wanted(Part::Pyverbs)) {
        found(module, suite.run(door, link, module, unused)?);
    }
    if wanted(Part::Tools) {
        found("tools", tools::run(door, link)?);
    }
    if wanted(Part::Pairs) {
        found("pairs", pairs::run(door, link, *sample)?);
    }
    // The suite uses our driver directly, without a libibverbs, so it runs once, with C's.
    if wanted(Part::Conformance) && door.provider == Provider::C {
        found("conformance", conformance::run(door, link, unused)?);
    }
    Ok(rows)
}

/// Paths of the ledger: JSON for programs, Markdown for readers.
pub(crate) fn documents() -> [PathBuf; 2] {
    ["docs/conformance.json", "docs/CONFORMANCE.md"].map(|name| root().join(name))
}

/// The root of the workspace.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("xtask is a folder of the workspace").to_owned()
}

/// Counts of the rows' outcomes, in one line.
fn tally(rows: &[Row]) -> String {
    let count = |outcome| rows.iter().filter(|row| row.outcome == outcome).count();
    format!(
        "{} run, {} pass, {} fail, {} error, {} skip",
        rows.len(),
        count(Outcome::Pass),
        count(Outcome::Fail),
        count(Outcome::Error),
        count(Outcome::Skip)
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: super::Arguments,
    }

    #[test]
    fn the_rows_of_one_link_are_compared_or_shown_and_not_written() {
        let parse = |line: &str| Line::try_parse_from(line.split(' '));
        assert!(parse("ledger --link ib").is_err());
        assert!(parse("ledger --link ib --document").is_err());
        for mode in ["--check", "--only pairs", "--traces"] {
            let line = parse(&format!("ledger --link ib {mode}")).expect("it says what to do");
            assert_eq!(line.arguments.link.as_deref(), Some("ib"));
        }
        assert!(parse("ledger --check --traces").is_err());
        assert!(parse("ledger --sample --only pairs").is_err(), "a sample is compared, not shown");
    }

    #[test]
    fn a_module_that_would_not_run_is_refused_by_name() {
        let modules = ["test_cq", "test_qp"].map(String::from);
        let check = |line: &str| {
            let line = Line::try_parse_from(line.split(' ')).expect("a line");
            line.arguments.check_module(&modules).map_err(|refused| refused.to_string())
        };
        assert_eq!(check("ledger --only pyverbs --module test_qp"), Ok(()));
        assert_eq!(check("ledger --only tools"), Ok(()));
        let refused = check("ledger --only pyverbs --module test_pq").expect_err("a typo");
        assert!(refused.contains("test_pq") && refused.contains("test_cq, test_qp"), "{refused}");
        let refused = check("ledger --only tools --module test_qp").expect_err("no modules");
        assert!(refused.contains("--only pyverbs"), "{refused}");
    }
}
