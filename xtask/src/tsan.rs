//! `cargo xtask tsan`: data races in what threads share without a lock.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;

/// Look for data races, with ThreadSanitizer, in what threads do at doorbell registers
///
/// The device is a stranger to Rust's memory model: a queue shares its memory with it by volatile
/// access. But two threads may ring one register, and those stores are Rust's business. Needs a
/// toolchain that has the sanitizer's run time, as those of rustup have.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// The test that has threads only, and no device and no harness: a harness hands over results by
/// means of the standard library, which is built without the sanitizer.
const TEST: [&str; 4] = ["--package", "mlx5-doorbell", "--test", "threads"];

/// Builds the tests with the sanitizer, and runs them.
pub(crate) fn run(_: &Arguments) -> Result<(), Failure> {
    let libraries = says(&["--print", "target-libdir"])?;
    if !has_run_time(Path::new(&libraries)) {
        let what = "this toolchain has no ThreadSanitizer (no librustc-*_rt.tsan.a): use rustup's";
        return Err(Failure::Missing(what.into()));
    }
    let version = says(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let mut command = Command::new("cargo");
    // Without a target, build scripts were to be sanitized, too.
    command.args(["test", "--quiet", "--target", host, "--target-dir", "target/tsan"]).args(TEST);
    command.env("RUSTC_BOOTSTRAP", "1");
    command.env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(Failure::Status { program: "a test with ThreadSanitizer".into(), status })
        }
        Err(error) => Err(Failure::Run { program: "cargo".into(), error }),
    }
}

/// Whether the sanitizer's run time is among a toolchain's libraries.
fn has_run_time(libraries: &Path) -> bool {
    let Ok(files) = libraries.read_dir() else { return false };
    files.flatten().any(|file| file.file_name().to_string_lossy().ends_with("_rt.tsan.a"))
}

/// What the compiler answers.
fn says(arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new("rustc").args(arguments).output();
    let output = output.map_err(|error| Failure::Run { program: "rustc".into(), error })?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
