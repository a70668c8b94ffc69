//! Ours beside the peer's: the same operations in turn on one device.

use crate::count;
use crate::machine::Machine;
use crate::memory::{self, Holding, PerQueue};
use crate::peer::Library;
use crate::round::{ROUND, Round};
use crate::rounds;
use std::process::ExitCode;

/// Rounds before anything is timed.
const WARM_UP: u64 = 5;
/// The least rounds of a case that takes long.
const FEW: u64 = 20;
/// Queues of which it is measured what one holds.
const QUEUES: usize = 256;
/// How long the rounds of a case may take, in nanoseconds.
const LONG: u64 = 4_000_000_000;

/// Whose operations are done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// Ours, those of the peer's library, and the floor.
    Everyone,
    /// Those that the peer's library does by libibverbs: it may be anybody's.
    Peer,
}

impl Who {
    /// The word of the command line.
    fn word(self) -> &'static str {
        match self {
            Self::Everyone => "beside",
            Self::Peer => "peer",
        }
    }
}

/// What is done with a peer's library: `what` and the cases, or all.
pub(crate) fn run(library: &str, what: &[&str], who: Who) -> Result<ExitCode, String> {
    let peer = Library::load(library)?;
    let (what, cases) = match what {
        ["time", rounds, cases @ ..] => {
            let rounds = rounds.parse().map_err(|_| format!("{rounds:?} is no number"))?;
            time(&peer, &|case| wanted(cases, case), rounds, who);
            return Ok(ExitCode::SUCCESS);
        }
        [what, cases @ ..] => (*what, cases),
        [] => return Err("`mlx5-bench` alone tells how it is used".into()),
    };
    match what {
        "count" | "instructions" => {
            let functions = [rounds::functions(), peer.functions()].concat();
            let arguments = [&[who.word(), library, "rounds"], cases].concat();
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
            for holding in ours.into_iter().chain(peer.memory(&machine, QUEUES)) {
                let Holding { case, who, mode, each } = holding;
                let (mode, PerQueue { heap, mapped }) = (mode.name(), each);
                println!("memory\t{case}\t{who}\t{mode}\t{heap:.0}\t{mapped:.0}");
            }
        }
        "rounds" => {
            let all = all(&peer, &|case| wanted(cases, case), who);
            count::rounds(all.into_iter().flatten().collect());
        }
        _ => return Err("`mlx5-bench` alone tells how it is used".into()),
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a case is among those named; if none is, all are wanted.
pub(crate) fn wanted(cases: &[&str], case: &str) -> bool {
    cases.is_empty() || cases.contains(&case)
}

/// The rounds, case by case.
fn all(peer: &Library, wanted: &dyn Fn(&str) -> bool, who: Who) -> Vec<Vec<Round>> {
    let machine = Machine::found();
    let mut rounds = peer.rounds(&machine, wanted);
    match who {
        Who::Everyone => rounds.splice(0..0, rounds::rounds(&machine, wanted)).for_each(drop),
        Who::Peer => rounds.retain(|round| round.who != "floor"),
    }
    let mut cases: Vec<Vec<Round>> = Vec::new();
    for round in rounds {
        match cases.iter_mut().find(|case| case[0].case == round.case) {
            Some(case) => case.push(round),
            None => cases.push(vec![round]),
        }
    }
    cases
}

/// Times every round of a case in turn, many times over.
fn time(peer: &Library, wanted: &dyn Fn(&str) -> bool, rounds: u64, who: Who) {
    for mut case in all(peer, wanted, who) {
        let mut times = vec![Vec::new(); case.len()];
        let start = std::time::Instant::now();
        for i in 0..WARM_UP + rounds {
            if i >= WARM_UP + FEW && start.elapsed().as_nanos() as u64 > LONG {
                break;
            }
            for k in 0..case.len() {
                // There and back, so that nobody always comes after the same one.
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
}

pub(crate) fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut of: Vec<f64> = of.collect();
    of.sort_unstable_by(f64::total_cmp);
    of[of.len() / 2]
}
