//! Links the archive of the verbs into a shared library with nothing but the Rust toolchain's
//! linker.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{in_file, nodes};
use crate::build;
use crate::failure::Failure;

/// Libraries that Rust's runtime may call. Every Linux with the GNU C library has them, and their
/// run-time files are enough for linking.
const RUNTIME: [&str; 4] = ["libgcc_s.so.1", "libc.so.6", "libm.so.6", LOADER];

#[cfg(target_arch = "aarch64")]
const LOADER: &str = "ld-linux-aarch64.so.1";
#[cfg(not(target_arch = "aarch64"))]
const LOADER: &str = "ld-linux-x86-64.so.2";

/// The linker's name for this architecture.
#[cfg(target_arch = "aarch64")]
const EMULATION: &str = "aarch64linux";
#[cfg(not(target_arch = "aarch64"))]
const EMULATION: &str = "elf_x86_64";

/// Inputs of a link.
pub(super) struct Linked {
    linker: PathBuf,
    archive: PathBuf,
    runtime: Vec<PathBuf>,
    /// Whether every symbol must be defined.
    whole: bool,
}

impl Linked {
    /// Finds the inputs for a link of `archive`.
    pub(super) fn new(archive: PathBuf) -> Result<Self, Failure> {
        Ok(Self { linker: linker()?, archive, runtime: runtime()?, whole: true })
    }

    /// Leaves undefined symbols to the programs that load the library.
    pub(super) fn with_run_time_of_programs(self) -> Self {
        Self { whole: false, ..self }
    }

    /// Writes a shared library with the symbols of the wanted nodes.
    pub(super) fn write(
        &self,
        path: &Path,
        soname: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), Failure> {
        let script = path.with_extension("map");
        let text = nodes::script(mlx5_verbs_symbols::symbols(), wanted);
        fs::write(&script, text).map_err(in_file(&script))?;
        // A program that has the old file mapped keeps that file.
        let partial = path.with_extension("partial");
        let mut command = Command::new(&self.linker);
        command.args(["-flavor", "gnu", "-shared", "-soname", soname]);
        command.arg("--version-script").arg(&script);
        command.args(["--gc-sections", "--eh-frame-hdr", "--hash-style=gnu"]);
        command.args(self.whole.then_some("--no-undefined"));
        command.args(["--build-id", "-O1", "-z", "relro", "-z", "now", "-z", "noexecstack"]);
        // A closed library stays loaded: a thread that ends later may have data of it.
        command.args(["-z", "nodelete"]);
        command.arg("--whole-archive").arg(&self.archive).arg("--no-whole-archive");
        command.arg("--as-needed").args(&self.runtime).arg("-o").arg(&partial);
        build::succeeds(&mut command)?;
        fs::rename(&partial, path).map_err(in_file(path))
    }
}

/// Writes a library with another name that has the wanted nodes, and no symbols in them. The loader
/// finds the symbols in `library`, which the new library needs.
pub(super) fn write_name(
    path: &Path,
    soname: &str,
    library: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), Failure> {
    let script = path.with_extension("map");
    let text = nodes::empty(mlx5_verbs_symbols::symbols(), wanted);
    fs::write(&script, text).map_err(in_file(&script))?;
    let mut command = Command::new(linker()?);
    command.args(["-flavor", "gnu", "-m", EMULATION, "-shared", "-soname", soname]);
    command.arg("--version-script").arg(&script);
    command.args(["--hash-style=gnu", "--build-id", "-z", "relro", "-z", "now"]);
    command.args(["-z", "noexecstack", "-z", "nodelete", "--no-as-needed"]);
    command.arg(library).arg("-o").arg(path);
    build::succeeds(&mut command)
}

/// Path of the Rust toolchain's linker.
fn linker() -> Result<PathBuf, Failure> {
    let linker = build::own_folder()?.join("bin/rust-lld");
    if linker.exists() {
        return Ok(linker);
    }
    Err(Failure::NotBuilt(format!(
        "libibverbs.so.1: this Rust toolchain has no linker at {}; one of rustup's has",
        linker.display()
    )))
}

/// Paths of the libraries of Rust's runtime on this machine: this program itself runs with them.
fn runtime() -> Result<Vec<PathBuf>, Failure> {
    let maps = Path::new("/proc/self/maps");
    let maps = fs::read_to_string(maps).map_err(in_file(maps))?;
    let loaded = |name: &str| {
        let mut paths =
            maps.lines().filter_map(|line| line.split_whitespace().nth(5)).map(Path::new);
        paths.find(|path| path.file_name().is_some_and(|file| file == name)).map(Path::to_owned)
    };
    let beside = loaded("libc.so.6").ok_or_else(|| missing("libc.so.6"))?;
    RUNTIME
        .into_iter()
        .map(|name| {
            let other = || Some(beside.with_file_name(name)).filter(|path| path.exists());
            loaded(name).or_else(other).ok_or_else(|| missing(name))
        })
        .collect()
}

fn missing(name: &str) -> Failure {
    Failure::NotBuilt(format!(
        "libibverbs.so.1: this program runs without {name}, so this is no Linux with the GNU C library, \
         for which alone the library is"
    ))
}
