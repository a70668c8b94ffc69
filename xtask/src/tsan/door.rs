//! Runs the library for C programs under ThreadSanitizer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::Toolchain;
use crate::build::{self, Profile, shared_library};
use crate::failure::Failure;
use crate::verbs;

/// The program, whose eight threads use all operations at the same time.
const PROGRAM: &str = "verbs/programs/stress.c";
/// Duration of a run, in seconds.
const SECONDS: &str = "60";
/// Time limit: a sanitized program is about ten times slower, and drains its queues at the end.
const LIMIT: &str = "300";
/// Exit status of a program with a data race.
const RACE: i32 = 66;

/// The device accesses rings, records and data at any time; the simulated one does it in this
/// library.
const SUPPRESSIONS: &str = "called_from_lib:libmlx5_sim_preload.so\n";

/// Runs the program, which must be free of races, and once more without locks, where the sanitizer
/// must find a race.
pub(super) fn run(toolchain: &Toolchain) -> Result<(), Failure> {
    let standard = Path::new(&toolchain.root).join("lib/rustlib/src/rust/library");
    if !standard.is_dir() {
        return Err(Failure::Missing("rustup component add rust-src".into()));
    }
    let simulator = shared_library("mlx5-sim-preload", Profile::Release)?;
    let library = library(toolchain)?;
    let program = program(toolchain, &library)?;
    let suppressions = library.join("tsan.supp");
    fs::write(&suppressions, SUPPRESSIONS).map_err(verbs::in_file(&suppressions))?;
    let stress = |locks: bool| -> Result<Output, Failure> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", LIMIT]).arg(&program).arg(SECONDS);
        command.env("LD_LIBRARY_PATH", &library).env("LD_PRELOAD", &simulator);
        command.env("MLX5_SIM", "link=ib");
        if !locks {
            command.env("MLX5_SINGLE_THREADED", "1");
        }
        let options =
            format!("halt_on_error=1 exitcode={RACE} suppressions={}", suppressions.display());
        command.env("TSAN_OPTIONS", options);
        command.output().map_err(|error| Failure::Run { program: PROGRAM.into(), error })
    };
    let output = stress(true)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        eprint!("{}{said}", String::from_utf8_lossy(&output.stdout));
        let program = format!("{PROGRAM} with ThreadSanitizer");
        return Err(Failure::Status { program, status: output.status });
    }
    println!("no data race at the door: {}", said.lines().last().unwrap_or_default());
    let output = stress(false)?;
    if output.status.code() != Some(RACE) {
        let what = "no data race without locks either: nothing is looked at".to_owned();
        return Err(Failure::Output { program: PROGRAM.into(), what });
    }
    Ok(())
}

/// Builds the library with the sanitizer; the program has the sanitizer's run time. The standard
/// library is sanitized as well: its locks and reference counts order the accesses of different
/// threads.
fn library(toolchain: &Toolchain) -> Result<PathBuf, Failure> {
    let mut command = toolchain.cargo("build");
    command.args(["-Zbuild-std=std,panic_abort", "--profile", "verbs", "--lib"]);
    command.args(["--package", verbs::EXPORT, "--message-format=json-render-diagnostics"]);
    // Parallel code generation, and symbols for the report's call stacks.
    command
        .env("CARGO_PROFILE_VERBS_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_VERBS_OPT_LEVEL", "1");
    command.env("CARGO_INCREMENTAL", "0");
    let archive = build::archive_among(&build::artifacts(command)?, verbs::EXPORT)?;
    verbs::link_with_run_time(archive)
}

/// Compiles the program with the sanitizer as well, because it shares memory with the library.
fn program(toolchain: &Toolchain, library: &Path) -> Result<PathBuf, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let (object, program) = (library.join("stress.o"), library.join("stress"));
    let mut compile = Command::new("gcc");
    compile.args(["-std=gnu11", "-O1", "-g", "-fsanitize=thread", "-c"]).arg(root.join(PROGRAM));
    build::succeeds(compile.arg("-o").arg(&object))?;
    let mut link = Command::new("gcc");
    // The libraries, too, use the sanitizer's functions in the program.
    link.arg("-rdynamic").arg(&object).arg("-Wl,--whole-archive");
    link.args(toolchain.run_time()).arg("-Wl,--no-whole-archive");
    link.args(["-lmlx5", "-libverbs", "-lpthread", "-ldl", "-lm", "-lrt", "-o"]).arg(&program);
    build::succeeds(&mut link)?;
    Ok(program)
}
