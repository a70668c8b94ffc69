//! Fuzzes the code that reads the words of devices and kernels.
//!
//! It needs only the stable toolchain: each input is made from valid words by a few random changes,
//! and depends only on the seed. No input may cause a panic.
//!
//! `mlx5-fuzz [TARGET] [--seconds N] [--seed N]` runs all targets for ten seconds each, from seed
//! zero. A finding is reported with its seed; once it is fixed, the seed goes to `PINNED`.

mod cqe;
mod fenced;
mod kernel;
mod numbers;
mod packet;
mod session;
mod wqe;

use crate::numbers::Numbers;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A fuzz target.
struct Target {
    name: &'static str,
    about: &'static str,
    run: fn(&mut Numbers),
}

const TARGETS: [Target; 5] = [
    Target { name: "wqe", about: "the device's decoder of WQEs", run: wqe::run },
    Target { name: "cqe", about: "the driver's decoder of CQEs", run: cqe::run },
    Target { name: "packet", about: "a queue of packets, and its completions", run: packet::run },
    Target { name: "prm", about: "results of firmware commands", run: session::fuzz_firmware },
    Target { name: "ioctl", about: "results of system calls", run: session::fuzz_kernel },
];

/// Seeds that found a bug in the past.
#[cfg(test)]
const PINNED: &[(&str, u64)] = &[
    // The key of a window was all ones.
    ("ioctl", 151),
];

/// Runs a target once. Returns the message of a panic.
fn once(target: &Target, seed: u64) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(&mut Numbers::new(seed)))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without a message".to_owned())
    })
}

/// Options of the command line.
struct Options {
    target: Option<String>,
    seconds: u64,
    seed: Option<u64>,
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { target: None, seconds: 10, seed: None };
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or_else(|| format!("{argument} takes a number"))?;
            text.parse().map_err(|_| format!("{text} is not a number"))
        };
        match &*argument {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = Some(number()?),
            name if TARGETS.iter().any(|target| target.name == name) => {
                options.target = Some(argument);
            }
            other => return Err(format!("unknown target or option: {other}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("mlx5-fuzz: {error}");
            for Target { name, about, .. } in &TARGETS {
                eprintln!("  {name}: {about}");
            }
            return ExitCode::FAILURE;
        }
    };
    let wanted: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| options.target.as_ref().is_none_or(|name| name == target.name))
        .collect();
    // One thread for each processor.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, good) = (AtomicUsize::new(0), AtomicBool::new(true));
    std::thread::scope(|scope| {
        for _ in 0..processors.min(wanted.len()) {
            scope.spawn(|| {
                while let Some(target) = wanted.get(next.fetch_add(1, Relaxed)) {
                    good.fetch_and(search(target, &options), Relaxed);
                }
            });
        }
    });
    if good.into_inner() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a target for its time; returns whether there was no finding.
fn search(target: &Target, options: &Options) -> bool {
    let start = Instant::now();
    let mut count = 0_u64;
    for seed in options.seed.unwrap_or(0).. {
        if let Err(panic) = once(target, seed) {
            eprintln!("FINDING {} --seed {seed}: {panic}", target.name);
            return false;
        }
        count += 1;
        if options.seed.is_some() || start.elapsed() >= Duration::from_secs(options.seconds) {
            break;
        }
    }
    println!("{}: {count} inputs, nothing found", target.name);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_found_once_is_not_found_again() {
        for (name, seed) in PINNED {
            let target = TARGETS.iter().find(|target| target.name == *name).expect(name);
            assert_eq!(once(target, *seed), Ok(()), "{name} --seed {seed}");
        }
    }

    #[test]
    fn the_first_inputs_of_every_target_find_nothing() {
        for target in &TARGETS {
            for seed in 0..50 {
                assert_eq!(once(target, seed), Ok(()), "{} --seed {seed}", target.name);
            }
        }
    }
}
