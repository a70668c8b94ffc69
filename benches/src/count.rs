//! Counting instructions with valgrind's callgrind.

use crate::{CASES, Case, RUNS};
use std::process::{Command, ExitCode};

/// Counts every case and prints a table; with `bars`, fails where one takes more than it may.
pub(crate) fn report(bars: bool) -> ExitCode {
    let mut failed = 0;
    println!("{:18} {:>12} {:>8}", "case", "instructions", "bar");
    for case in CASES {
        match count(case) {
            Ok(count) => {
                let over = count > case.bar;
                failed += usize::from(over);
                let mark = if over { "  more than it may" } else { "" };
                println!("{:18} {count:12.1} {:8.0}{mark}", case.name, case.bar);
            }
            Err(problem) => {
                eprintln!("{}: {problem}", case.name);
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{} passed, {failed} failed", CASES.len() - failed);
    if bars && failed != 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Instructions of an operation, from the first of the function that does it to its return.
fn count(case: &Case) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={}", case.function))
        .arg(program)
        .args(["run", case.name])
        .output()
        .map_err(|error| format!("valgrind does not run ({error}); install it"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("the run failed:\n{told}"));
    }
    let collected = told
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, count)| count.trim().parse::<f64>().ok())
        .filter(|&count| count > 0.0)
        .ok_or_else(|| format!("callgrind counted nothing:\n{told}"))?;
    Ok(collected / RUNS as f64 / f64::from(case.operations))
}
