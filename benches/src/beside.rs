//! Ours beside the peer's: the same operations in turn on one device.

use crate::machine::Machine;
use crate::ours;
use crate::peer::Library;
use std::process::ExitCode;

/// Requests or completions of a round; `ROUND` of `peer/bench.h`.
pub(crate) const ROUND: u64 = 64;

/// Rounds before anything is measured, and rounds that are counted.
const WARM_UP: u64 = 5;
const COUNTED: u64 = 12;

/// How queues are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Ours, by one owner.
    Single,
    /// Ours, through a lock.
    Shared,
    /// The peer's, with its locks.
    Default,
    /// The peer's, told that there is one thread.
    SingleThreaded,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Shared => "shared",
            Self::Default => "default",
            Self::SingleThreaded => "single_threaded",
        }
    }
}

/// An operation that can be done in rounds.
pub(crate) struct Round {
    pub(crate) case: String,
    pub(crate) who: String,
    pub(crate) mode: Mode,
    /// Does one; its first request has this identifier. Answers how many nanoseconds the
    /// operations took.
    pub(crate) run: Box<dyn FnMut(u64) -> u64>,
}

impl Round {
    fn name(&self) -> String {
        format!("{}\t{}\t{}", self.case, self.who, self.mode.name())
    }
}

pub(crate) fn run(library: &str, what: &[&str]) -> Result<ExitCode, String> {
    let library = Library::load(library)?;
    match what {
        ["functions"] => {
            let ours = ours::FUNCTIONS.iter().map(|&name| name.to_owned());
            for function in ours.chain(library.functions()?) {
                println!("{function}");
            }
        }
        ["count"] => count(&library)?,
        ["time", rounds] => {
            let rounds = rounds.parse().map_err(|_| format!("{rounds:?} is no number"))?;
            time(&library, rounds)?;
        }
        _ => return Err("`mlx5-bench` alone tells how it is used".into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Everyone's rounds, case by case.
fn all(library: &Library) -> Result<Vec<Vec<Round>>, String> {
    let machine = Machine::found();
    let mut rounds = ours::rounds(&machine);
    rounds.extend(library.peer(machine.device().name(), machine.settle_function())?);
    rounds.extend(library.floor()?);
    let mut cases: Vec<Vec<Round>> = Vec::new();
    for round in rounds {
        match cases.iter_mut().find(|case| case[0].case == round.case) {
            Some(case) => case.push(round),
            None => cases.push(vec![round]),
        }
    }
    Ok(cases)
}

/// Does every round some times. Callgrind writes a file for each, and prints here how many
/// operations it is about.
fn count(library: &Library) -> Result<(), String> {
    for mut round in all(library)?.into_iter().flatten() {
        for i in 0..WARM_UP {
            (round.run)(i * ROUND);
        }
        library.begin()?;
        for i in WARM_UP..WARM_UP + COUNTED {
            (round.run)(i * ROUND);
        }
        library.end(&round.name())?;
    }
    println!("operations\t{}", COUNTED * ROUND);
    Ok(())
}

/// Times every round of a case in turn, many times over.
fn time(library: &Library, rounds: u64) -> Result<(), String> {
    for mut case in all(library)? {
        let mut times = vec![Vec::new(); case.len()];
        for i in 0..WARM_UP + rounds {
            for k in 0..case.len() {
                // There and back, so that nobody always comes after the same one.
                let who = if i % 2 == 0 { k } else { case.len() - 1 - k };
                let time = (case[who].run)(i * ROUND) as f64 / ROUND as f64;
                if i >= WARM_UP {
                    times[who].push(time);
                }
            }
        }
        for (round, times) in case.iter().zip(&times) {
            println!("time\t{}\t{:.2}", round.name(), median(times.iter().copied()));
        }
        let ours = case.iter().zip(&times).filter(|(round, _)| round.who == "mlx5");
        for (mine, my_times) in ours {
            let peers =
                case.iter().zip(&times).filter(|(round, _)| round.who.starts_with("rdma-core"));
            for (other, their_times) in peers {
                let ratios = my_times.iter().zip(their_times).map(|(mine, theirs)| mine / theirs);
                let (mode, other) = (mine.mode.name(), other.name());
                println!("pair\t{mode}\t{other}\t{:.3}", median(ratios));
            }
        }
    }
    Ok(())
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut of: Vec<f64> = of.collect();
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}
