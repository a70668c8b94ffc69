//! Results of other ways to build: link-time optimization, instructions of newer processors,
//! profiles.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::build;
use crate::failure::Failure;

/// Cases that are measured for each way.
const CASES: [&str; 8] = [
    "post_inline8",
    "post_sge",
    "batch16_inline8",
    "list16_inline8",
    "poll1",
    "poll16",
    "empty_poll",
    "post_recv1",
];

/// Processors of the last ten years; valgrind supports their instructions.
#[cfg(target_arch = "x86_64")]
const NEWER: &str = "-Ctarget-cpu=x86-64-v3";
#[cfg(not(target_arch = "x86_64"))]
const NEWER: &str = "-Ctarget-cpu=native";

/// A way to build.
struct Way {
    name: &'static str,
    flags: &'static [&'static str],
    /// Link-time optimization of the whole program, as one unit.
    whole: bool,
    /// Optimized with a profile of the same program.
    profiled: bool,
}

const WAYS: [Way; 5] = [
    Way { name: "release", flags: &[], whole: false, profiled: false },
    Way { name: "LTO", flags: &[], whole: true, profiled: false },
    Way { name: "newer processors", flags: &[NEWER], whole: false, profiled: false },
    Way { name: "LTO, newer processors", flags: &[NEWER], whole: true, profiled: false },
    Way { name: "LTO, profile", flags: &[], whole: true, profiled: true },
];

/// Measurements of a case.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Build {
    way: &'static str,
    case: String,
    instructions: f64,
    nanoseconds: f64,
}

/// Builds the benchmark in every way and measures our driver.
pub(super) fn measure() -> Result<Vec<Build>, Failure> {
    let mut all = Vec::new();
    for way in &WAYS {
        let mut flags: Vec<String> = way.flags.iter().map(|&flag| flag.to_owned()).collect();
        if way.profiled {
            let missing = "rustup component add llvm-tools, or leave other builds out: --no-builds";
            let profile = profile()?.ok_or_else(|| Failure::Missing(missing.into()))?;
            flags.push(format!("-Cprofile-use={}", profile.display()));
        }
        println!("measuring ours built as: {}", way.name);
        let bench = compile(&flags, way.whole)?;
        let counted = build::says(Command::new(&bench).arg("count").args(CASES))?;
        let timed = build::says(Command::new(&bench).arg("time").args(CASES))?;
        all.extend(read(way.name, &counted, &timed).ok_or_else(|| Failure::Output {
            program: bench.display().to_string(),
            what: "no table of cases".to_owned(),
        })?);
    }
    Ok(all)
}

/// Results of an earlier run in the file at `path`; empty if there is no file.
pub(super) fn measured_before(path: &Path) -> Vec<Build> {
    std::fs::read_to_string(path).map_or_else(|_| Vec::new(), |text| of_json(&text))
}

/// Finds the rows of [`json()`] among all rows of the file.
fn of_json(text: &str) -> Vec<Build> {
    let rows: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    let build = |row: &Value| {
        let way = WAYS.iter().find(|way| row["build"] == way.name)?.name;
        let case = row["case"].as_str()?.to_owned();
        let (instructions, nanoseconds) = (row["instructions"].as_f64()?, row["ns"].as_f64()?);
        Some(Build { way, case, instructions, nanoseconds })
    };
    rows.iter().filter_map(build).collect()
}

/// Parses two tables with a case, a mode and a number in each line.
fn read(way: &'static str, counted: &str, timed: &str) -> Option<Vec<Build>> {
    let number = |table: &str, case: &str| {
        let line = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut lines =
            line.filter(|words| words.first() == Some(&case) && words.get(1) == Some(&"single"));
        lines.next()?.get(2)?.parse::<f64>().ok()
    };
    CASES
        .iter()
        .map(|case| {
            let (instructions, nanoseconds) = (number(counted, case)?, number(timed, case)?);
            Some(Build { way, case: (*case).to_owned(), instructions, nanoseconds })
        })
        .collect()
}

/// Builds the benchmark with flags, in a folder of its own; returns its path.
fn compile(flags: &[String], whole: bool) -> Result<PathBuf, Failure> {
    let mut command = build::release("mlx5-bench", "--bins");
    // Within the folder, Cargo keeps builds with other flags or another profile apart.
    command.env("RUSTFLAGS", flags.join(" "));
    command.env(
        "CARGO_TARGET_DIR",
        Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target/builds"),
    );
    if whole {
        command.env("CARGO_PROFILE_RELEASE_LTO", "fat");
        command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    }
    build::executable(&build::artifacts(command)?)
        .ok_or_else(|| Failure::NotBuilt("the program of mlx5-bench".to_owned()))
}

/// Profile of a run of the benchmark, if the toolchain can merge profiles.
fn profile() -> Result<Option<PathBuf>, Failure> {
    let merge = build::own_folder()?.join("bin/llvm-profdata");
    if !merge.exists() {
        return Ok(None);
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target/builds/profile");
    // Profiles of earlier runs belong to other code.
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Failure::File { path: folder, error });
        }
        _ => {}
    }
    let bench = compile(&[format!("-Cprofile-generate={}", folder.display())], true)?;
    build::says(Command::new(bench).arg("time"))?;
    let merged = folder.join("merged.profdata");
    build::says(Command::new(merge).arg("merge").arg("-o").arg(&merged).arg(&folder))?;
    Ok(Some(merged))
}

pub(super) fn json(all: &[Build]) -> impl Iterator<Item = Value> + '_ {
    all.iter().map(|one| {
        json!({
            "case": one.case,
            "who": "mlx5",
            "mode": "single",
            "build": one.way,
            "instructions": one.instructions,
            "ns": one.nanoseconds,
        })
    })
}

pub(super) fn markdown(text: &mut String, all: &[Build]) {
    if all.is_empty() {
        return;
    }
    text.push_str(ABOVE);
    let mut ways: Vec<&str> = all.iter().map(|one| one.way).collect();
    ways.dedup();
    let _ = writeln!(text, "| case | {} |\n|---|{}", ways.join(" | "), "--:|".repeat(ways.len()));
    for case in CASES {
        let _ = write!(text, "| `{case}` |");
        for way in &ways {
            let one = all.iter().find(|one| one.case == case && one.way == *way);
            let cell = one.map(|one| format!("{:.1}, {:.1} ns", one.instructions, one.nanoseconds));
            let _ = write!(text, " {} |", cell.unwrap_or_default());
        }
        text.push('\n');
    }
}

const ABOVE: &str = "
## Ways to build

Ours alone, in a process with the simulated device, as a user may build it: the release profile as it
is; link-time optimization of all packages (`lto = \"fat\"`, `codegen-units = 1`); for newer
processors (`-Ctarget-cpu=x86-64-v3`); with the profile of a run of this benchmark
(`-Cprofile-use`), whose hot paths are therefore those that are measured. Instructions, nanoseconds.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_rows_are_read_back_among_others() {
        let all: Vec<Build> = [("release", 94.0, 8.9), ("LTO", 93.5, 8.5)]
            .map(|(way, instructions, nanoseconds)| Build {
                way,
                case: "post_inline8".into(),
                instructions,
                nanoseconds,
            })
            .into();
        let other =
            json!({"case": "post_inline8", "who": "mlx5", "instructions": 94.0, "ns": 13.0});
        let rows: Vec<Value> = json(&all).chain([other]).collect();
        assert_eq!(of_json(&Value::from(rows).to_string()), all);
        assert_eq!(of_json("nothing"), []);
        assert_eq!(measured_before(Path::new("/nonexistent")), []);
    }

    #[test]
    fn the_numbers_of_both_tables_are_read_by_case() {
        let table = |times: f64| {
            let line = |(i, case): (usize, &&str)| {
                let number = (i + 1) as f64 * times;
                format!("{case:18} shared  {:12.1}\n{case:18} single  {number:12.1} ns\n", 7.0)
            };
            CASES.iter().enumerate().map(line).collect::<String>()
        };
        let all = read("LTO", &table(10.0), &table(1.0)).expect("readable");
        assert_eq!(all.len(), CASES.len());
        assert_eq!((all[2].instructions, all[2].nanoseconds), (30.0, 3.0));
        assert_eq!(read("LTO", &table(10.0), ""), None);
        let mut page = String::new();
        markdown(&mut page, &all);
        assert!(page.contains("| `post_inline8` | 10.0, 1.0 ns |"), "{page}");
    }
}
