//! `cargo xtask tsan`: looks for data races between threads.

mod door;

use std::path::Path;
use std::process::Command;

use crate::build;
use crate::failure::Failure;

/// Look for data races with ThreadSanitizer, at doorbell registers and in the library for C
/// programs
///
/// Accesses to memory that the device shares are volatile, and are not checked. Stores of two
/// threads to one doorbell register are atomic, and are checked. So are threads that call C's
/// functions at the same time: the stress program of verbs/programs runs for some seconds on the
/// simulated device, whose own memory accesses are not checked.
///
/// Needs a toolchain with the sanitizer's run time, such as rustup's; the library for C programs
/// also needs the sources of the standard library (rustup component add rust-src), gcc and
/// rdma-core's headers.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Check only one of the two
    #[arg(value_enum)]
    part: Option<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Doorbell registers
    Doorbells,
    /// libibverbs.so.1
    Door,
}

/// Compiler options for the sanitizer.
const FLAGS: &str = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
/// A folder of its own, apart from builds without the sanitizer.
const FOLDER: &str = "target/tsan";

/// Builds with the sanitizer, and runs.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let toolchain = Toolchain::here()?;
    if arguments.part != Some(Part::Door) {
        doorbells(&toolchain)?;
    }
    if arguments.part != Some(Part::Doorbells) { door::run(&toolchain) } else { Ok(()) }
}

/// Parts of a toolchain.
struct Toolchain {
    /// This machine's target.
    host: String,
    /// Folder of the libraries for that target.
    libraries: String,
    root: String,
}

impl Toolchain {
    fn here() -> Result<Self, Failure> {
        let libraries = build::rustc(&["--print", "target-libdir"])?;
        let root = build::rustc(&["--print", "sysroot"])?;
        let toolchain = Self { host: build::host()?, libraries, root };
        if toolchain.run_time().is_none() {
            let what =
                "this toolchain has no ThreadSanitizer (no librustc-*_rt.tsan.a): use rustup's";
            return Err(Failure::Missing(what.into()));
        }
        Ok(toolchain)
    }

    /// The sanitizer's run time.
    fn run_time(&self) -> Option<std::path::PathBuf> {
        let paths = Path::new(&self.libraries).read_dir().ok()?.flatten().map(|file| file.path());
        paths.into_iter().find(|path| path.to_string_lossy().ends_with("_rt.tsan.a"))
    }

    /// A cargo command that builds with the sanitizer.
    fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new("cargo");
        // With --target, build scripts are compiled without the sanitizer.
        cargo.args([command, "--target", &self.host, "--target-dir", FOLDER]);
        cargo.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS);
        cargo
    }
}

/// Runs the test that has only threads, without a device or a harness: a harness passes results
/// through the standard library, which is built without the sanitizer.
fn doorbells(toolchain: &Toolchain) -> Result<(), Failure> {
    let mut command = toolchain.cargo("test");
    match command.args(["--package", "mlx5-doorbell", "--test", "threads"]).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(Failure::Status { program: "a test with ThreadSanitizer".into(), status })
        }
        Err(error) => Err(Failure::Run { program: "cargo".into(), error }),
    }
}
