//! Runs the unit tests, the conformance suite, and the command.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::toolchain::Toolchain;
use crate::build::{artifacts, executable};
use crate::failure::Failure;

/// The packages whose unit tests run.
const UNITS: [&str; 5] = ["mlx5-uapi", "mlx5-prm", "mlx5-doorbell", "mlx5-wqe", "mlx5-cq"];

/// A test that cannot run under an emulator with a certain limit.
struct Skip {
    test: &'static str,
    /// A test of the emulator's limit; it fails as long as the emulator has the limit.
    limit: &'static str,
    /// Its output when it fails.
    says: &'static str,
    reason: &'static str,
}

/// Tests of `mlx5-uapi` that an emulator may not be able to run.
const SKIPS: [Skip; 1] = [Skip {
    test: "real::tests::pages_of_the_device_are_mapped_for_reading_or_writing",
    limit: "real::tests::the_kernel_keeps_a_mapping_from_children",
    says: "EINVAL",
    reason: "the emulator refuses MADV_DONTFORK, without which no device page is mapped",
}];

/// A test program.
struct Program {
    path: PathBuf,
    /// The folder of its package, in which it runs.
    folder: PathBuf,
    package: String,
}

/// Runs the unit tests; returns the failures.
///
/// Documentation tests are left out: they are the same on every architecture.
pub(super) fn units(toolchain: &Toolchain) -> Result<Vec<String>, Failure> {
    let mut cargo = toolchain.cargo("test");
    cargo.args(["--no-run", "--lib", "--tests"]);
    cargo.args(UNITS.iter().flat_map(|package| ["--package", package]));
    let programs: Vec<Program> = artifacts(cargo)?.iter().filter_map(Program::of).collect();
    for package in UNITS {
        if !programs.iter().any(|program| program.package == package) {
            return Err(Failure::NotBuilt(format!("tests of {package}")));
        }
    }
    let mut faults = Vec::new();
    for program in &programs {
        let skips = program.skips(toolchain)?;
        let mut command = program.command(toolchain);
        for skip in &skips {
            command.args(["--skip", skip.test, "--skip", skip.limit]);
            println!("SKIP {}: {}", skip.test, skip.reason);
        }
        let name = name(&program.path);
        faults
            .extend(good(command)?.err().map(|end| format!("{} ({name}): {end}", program.package)));
    }
    Ok(faults)
}

impl Program {
    /// The test program in one of Cargo's messages.
    fn of(message: &Value) -> Option<Self> {
        let path = PathBuf::from(message["executable"].as_str()?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        // Of the form `path+file:///…/wqe#mlx5-wqe@0.1.0`; without the name if the folder has the
        // same name.
        let id = message["package_id"].as_str()?;
        let package = UNITS
            .iter()
            .find(|name| id.contains(&format!("#{name}@")) || id.contains(&format!("/{name}#")));
        Some(Self { path, folder, package: (*package?).to_owned() })
    }

    fn command(&self, toolchain: &Toolchain) -> Command {
        let mut command = toolchain.emulate(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// Tests of this program that the emulator cannot run, determined by running the tests of its
    /// limits.
    fn skips(&self, toolchain: &Toolchain) -> Result<Vec<&'static Skip>, Failure> {
        let mut skips = Vec::new();
        for skip in &SKIPS {
            let mut command = self.command(toolchain);
            let output = command.args(["--exact", skip.limit]).output();
            let output =
                output.map_err(|error| Failure::Run { program: name(&self.path), error })?;
            let said = String::from_utf8_lossy(&output.stdout);
            if !output.status.success() && said.contains(skip.says) {
                skips.push(skip);
            }
        }
        Ok(skips)
    }
}

/// Runs the conformance suite on the simulated device; returns the failures.
pub(super) fn suite(toolchain: &Toolchain) -> Result<Vec<String>, Failure> {
    let command = toolchain.emulate(&build(toolchain, "mlx5-conformance")?);
    let end = good(command)?.err();
    Ok(end.map(|end| format!("the conformance suite: {end}")).into_iter().collect())
}

/// Runs the README's first command; returns the failure.
pub(super) fn pingpong(toolchain: &Toolchain) -> Result<Vec<String>, Failure> {
    let mut command = toolchain.emulate(&build(toolchain, "mlx5-cli")?);
    command.arg("pingpong");
    Ok(good(command)?.err().map(|end| format!("mlx5 pingpong: {end}")).into_iter().collect())
}

/// Builds the programs that run, and the preload library, which does not run here.
pub(super) fn build_all(toolchain: &Toolchain) -> Result<(), Failure> {
    const PACKAGES: [&str; 4] = ["mlx5-bench", "mlx5-cli", "mlx5-conformance", "mlx5-sim-preload"];
    let mut cargo = toolchain.cargo("build");
    cargo.args(PACKAGES.iter().flat_map(|package| ["--package", package]));
    artifacts(cargo).map(drop)
}

/// Builds the program of a package.
pub(super) fn build(toolchain: &Toolchain, package: &str) -> Result<PathBuf, Failure> {
    let mut cargo = toolchain.cargo("build");
    cargo.args(["--bins", "--package", package]);
    executable(&artifacts(cargo)?)
        .ok_or_else(|| Failure::NotBuilt(format!("the program of {package}")))
}

/// Runs a command to its end, and prints its output except for tests that pass.
fn good(mut command: Command) -> Result<Result<(), String>, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |error| Failure::Run { program: program.clone(), error };
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let output = child.stdout.take().expect("it is piped");
    for line in BufReader::new(output).lines() {
        let line = line.map_err(failed)?;
        if !line.is_empty() && !line.ends_with(" ... ok") {
            println!("{line}");
        }
    }
    let status = child.wait().map_err(failed)?;
    Ok(if status.success() { Ok(()) } else { Err(status.to_string()) })
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
