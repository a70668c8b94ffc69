//! Counts instructions with valgrind's callgrind.

use crate::profile::{self, Profile};
use crate::requests;
use crate::round::Round;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Rounds before the count, and rounds that are counted.
const WARM_UP: u64 = 5;
const COUNTED: u64 = 12;

/// Counts of an operation.
pub(crate) struct Counted {
    pub(crate) case: String,
    pub(crate) who: String,
    pub(crate) mode: String,
    /// Instructions, without those of the simulated device.
    pub(crate) instructions: f64,
    /// Reads and writes that would have missed a first-level data cache like this machine's.
    pub(crate) misses: f64,
    /// Instructions by source file.
    pub(crate) places: Vec<(String, f64)>,
}

/// Runs every round several times. Callgrind writes a file for each.
pub(crate) fn rounds(rounds: Vec<Round>) {
    for mut round in rounds {
        // The first run may create objects that the others need.
        (round.run)(0);
        requests::look();
        for i in 1..WARM_UP {
            (round.run)(i * crate::round::ROUND);
        }
        requests::begin();
        for i in WARM_UP..WARM_UP + COUNTED {
            (round.run)(i * crate::round::ROUND);
        }
        let name = format!("{}\t{}", round.name(), round.operations * COUNTED);
        requests::end(&CString::new(name).expect("a name without zero"));
        requests::look_away();
    }
}

/// Counts this program's rounds with `arguments`, from the first instruction of each of `functions`
/// to its return.
///
/// Simulating a cache takes as long again; without `misses` there is no count of misses.
pub(crate) fn count(
    functions: &[String],
    arguments: &[&str],
    misses: bool,
) -> Result<Vec<Counted>, String> {
    // callgrind ignores some functions that follow a name given twice.
    let functions: BTreeSet<&String> = functions.iter().collect();
    let folder = Folder::new()?;
    let out = folder.0.join("out");
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--instr-atstart=no"])
        .arg(if misses { "--cache-sim=yes" } else { "--cache-sim=no" })
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args(functions.iter().map(|name| format!("--toggle-collect={name}")))
        .arg(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("valgrind does not run ({error}); install it"))?;
    if !output.status.success() {
        return Err(format!("the run failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let mut counted = Vec::new();
    for number in 1.. {
        let Ok(text) = fs::read_to_string(out.with_extension(number.to_string())) else { break };
        let profile = profile::parse(&text, &|object| !object.contains("mlx5_sim"))
            .ok_or_else(|| format!("a count that cannot be read:\n{text}"))?;
        counted.extend(of(&profile));
    }
    match counted.iter().find(|counted| counted.instructions == 0.0) {
        Some(nothing) => Err(format!("no instructions of {}, {}", nothing.case, nothing.who)),
        None if counted.is_empty() => Err("nothing was counted".into()),
        None => Ok(counted),
    }
}

/// Counts per operation in a profile; `None` if the profile is not of a round.
fn of(profile: &Profile) -> Option<Counted> {
    let [case, who, mode, operations] = profile.name.split('\t').collect::<Vec<_>>()[..] else {
        return None;
    };
    let operations: f64 = operations.parse().ok()?;
    let each = |count: u64| count as f64 / operations;
    Some(Counted {
        case: case.to_owned(),
        who: who.to_owned(),
        mode: mode.to_owned(),
        instructions: each(profile.instructions),
        misses: each(profile.misses),
        places: profile.files.iter().map(|(file, n)| (file.clone(), each(*n))).collect(),
    })
}

/// A folder for callgrind's files, which is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("mlx5-bench-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder left in the temporary directory does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
