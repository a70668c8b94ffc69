//! Runs this driver's operations and those of the compared libraries in turn on one device.

use crate::bed::DEPTH;
use crate::count;
use crate::machine::Machine;
use crate::memory::{self, Holding, PerQueue};
use crate::peer::Library;
use crate::round::{ROUND, Round, median};
use crate::{cores, latency, rounds, threads};
use std::process::ExitCode;

/// Rounds before the first measurement.
const WARM_UP: u64 = 5;
/// Minimum number of rounds of a case that takes long.
const FEW: u64 = 20;
/// Number of queues for the measurement of memory.
const QUEUES: usize = 256;
/// Time, in nanoseconds, after which a case ends once it has run `FEW` rounds.
const LONG: u64 = 4_000_000_000;

/// Pairs of names whose times are compared. The second name of a pair is a prefix. The first is a
/// prefix only if it ends with a dash; then the rest of both names must be equal, too.
const COMPARED: [(&str, &str); 5] = [
    ("mlx5", "rdma-core-"),
    ("mlx5", "floor"),
    ("mlx5", "by-hand"),
    ("mlx5", "ucx"),
    ("mlx5-verbs-", "rdma-core-"),
];

/// Runs a measurement of this driver and of the compared libraries. `libraries` lists their paths
/// like the variable `PATH`. `what` has the name of the measurement, the number of rounds for
/// `time` and `latency`, and names of cases. Without names of cases, `latency` runs no case, and
/// the others run all.
pub(crate) fn run(libraries: &str, what: &[&str]) -> Result<ExitCode, String> {
    let peers = std::env::split_paths(libraries).map(|path| Library::load(&path));
    let peers: Vec<Library> = peers.collect::<Result<_, _>>()?;
    let (what, cases) = match what {
        ["time", rounds, cases @ ..] => {
            let rounds = rounds.parse().map_err(|_| format!("{rounds:?} is no number"))?;
            time(&peers, &|case| wanted(cases, case), rounds);
            return Ok(ExitCode::SUCCESS);
        }
        ["latency", rounds, cases @ ..] => {
            let rounds = rounds.parse().map_err(|_| format!("{rounds:?} is no number"))?;
            latencies(&peers, &|case| cases.contains(&case), rounds);
            return Ok(ExitCode::SUCCESS);
        }
        [what, cases @ ..] => (*what, cases),
        [] => return Err("wrong arguments: `mlx5-bench` alone prints its usage".into()),
    };
    match what {
        "count" | "instructions" => {
            let theirs = peers.iter().flat_map(Library::functions);
            let functions: Vec<_> = rounds::functions().into_iter().chain(theirs).collect();
            let arguments = [&["beside", libraries, "rounds"], cases].concat();
            for counted in count::count(&functions, &arguments, what == "count")? {
                let name = format!("{}\t{}\t{}", counted.case, counted.who, counted.mode);
                println!("count\t{name}\t{:.2}\t{:.3}", counted.instructions, counted.misses);
                for (file, instructions) in counted.places {
                    println!("place\t{name}\t{instructions:.2}\t{file}");
                }
            }
        }
        "memory" => {
            let machine = Machine::found();
            let ours = memory::ours(&machine, QUEUES);
            let theirs = peers.iter().flat_map(|peer| peer.memory(&machine, QUEUES));
            for holding in ours.into_iter().chain(theirs) {
                let Holding { case, who, mode, each } = holding;
                let (mode, PerQueue { heap, mapped }) = (mode.name(), each);
                println!("memory\t{case}\t{who}\t{mode}\t{heap:.0}\t{mapped:.0}");
            }
        }
        "threads" => threads::run(&Machine::found(), &peers),
        "rounds" => {
            let all = all(&peers, &|case| wanted(cases, case));
            count::rounds(all.into_iter().flatten().collect());
        }
        _ => return Err("wrong arguments: `mlx5-bench` alone prints its usage".into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a case is among the named cases. If none is named, every case is wanted.
pub(crate) fn wanted(cases: &[&str], case: &str) -> bool {
    cases.is_empty() || cases.contains(&case)
}

/// Returns the rounds of this driver and of the libraries, grouped by case.
fn all(peers: &[Library], wanted: &dyn Fn(&str) -> bool) -> Vec<Vec<Round>> {
    let machine = Machine::found();
    let mut rounds = rounds::rounds(&machine, wanted);
    rounds.extend(peers.iter().flat_map(|peer| peer.rounds(&machine, wanted)));
    let mut cases: Vec<Vec<Round>> = Vec::new();
    for round in rounds {
        match cases.iter_mut().find(|case| case[0].case == round.case) {
            Some(case) => case.push(round),
            None => cases.push(vec![round]),
        }
    }
    cases
}

/// Times the rounds of each case in turn, many times.
fn time(peers: &[Library], wanted: &dyn Fn(&str) -> bool, rounds: u64) {
    for mut case in all(peers, wanted) {
        let mut times = vec![Vec::new(); case.len()];
        let start = std::time::Instant::now();
        for i in 0..WARM_UP + rounds {
            if i >= WARM_UP + FEW && start.elapsed().as_nanos() as u64 > LONG {
                break;
            }
            for k in 0..case.len() {
                // The order is reversed in every other turn, so that no round always follows the
                // same round.
                let who = if i % 2 == 0 { k } else { case.len() - 1 - k };
                let round = &mut case[who];
                let time = (round.run)(i * ROUND) as f64 / round.operations as f64;
                if i >= WARM_UP {
                    times[who].push(time);
                }
            }
        }
        for (round, times) in case.iter().zip(&times) {
            println!("time\t{}\t{:.2}", round.name(), median(times.iter().copied()));
        }
        for (mine, my_times) in case.iter().zip(&times) {
            for (other, their_times) in case.iter().zip(&times) {
                if compared(&mine.who, &other.who) {
                    let ratios =
                        my_times.iter().zip(their_times).map(|(mine, theirs)| mine / theirs);
                    let (who, mode) = (&other.who, other.mode.name());
                    println!("pair\t{}\t{who}\t{mode}\t{:.3}", mine.name(), median(ratios));
                }
            }
        }
    }
}

/// Prints the distribution of the times of single operations, for each round in turn. Before that,
/// prints the distribution of the clock's own time, which is part of each time.
fn latencies(peers: &[Library], wanted: &dyn Fn(&str) -> bool, rounds: usize) {
    let report = |name: &str, found: latency::Distribution| {
        let numbers = found.percentiles.map(|time| format!("{time:.1}")).join("\t");
        println!("latency\t{name}\t{}\t{numbers}", found.samples);
        for (cause, count) in latency::Cause::ALL.iter().zip(found.causes) {
            println!("cause\t{name}\t{count}\t{}", cause.name());
        }
    };
    let clock = latency::distribution(rounds, ROUND as usize, DEPTH, |_| {
        if latency::is_sampled() {
            latency::sample(ROUND as usize, |_| true);
        }
    });
    report("nothing\tclock\tsingle", clock);
    // The device's thread inherits the last core from this thread. Operations run on the first
    // core.
    let device = cores::usable().last().map(|core| cores::pin(*core));
    let mut all: Vec<Round> = all(peers, wanted).into_iter().flatten().collect();
    // Run each round once, which creates its objects: all objects must exist before the first
    // sample, since the device serves them all.
    for round in &mut all {
        (round.run)(0);
    }
    drop(device);
    for round in &mut all {
        let operations = round.operations as usize;
        let found = latency::distribution(rounds, operations, DEPTH, |number| {
            (round.run)(number * ROUND);
        });
        report(&round.name(), found);
    }
}

/// Whether the times of `mine` and `other` are compared. The times of the C API over our library
/// are compared only with rdma-core's for the same way of calling it.
fn compared(mine: &str, other: &str) -> bool {
    COMPARED.iter().any(|(our, their)| match (our.strip_suffix('-'), other.strip_prefix(their)) {
        (Some(_), Some(way)) => mine.strip_prefix(our) == Some(way),
        (None, Some(_)) => mine == *our,
        (_, None) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::compared;

    #[test]
    fn ours_are_compared_with_everybody_and_the_c_api_with_the_same_way() {
        for other in ["rdma-core-wr", "rdma-core-poll_cq", "floor", "by-hand", "ucx"] {
            assert!(compared("mlx5", other), "{other}");
            assert!(!compared(other, other) && !compared(other, "mlx5"), "{other}");
        }
        assert!(compared("mlx5-verbs-wr", "rdma-core-wr"));
        assert!(!compared("mlx5-verbs-wr", "rdma-core-post_send"));
        assert!(!compared("mlx5-verbs-wr", "floor") && !compared("mlx5", "mlx5-verbs-wr"));
    }
}
