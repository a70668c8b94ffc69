//! `cargo xtask verbs`: builds libibverbs.so.1 and libmlx5.so.1 from this provider.

mod check;
mod headers;
mod link;
mod nodes;
mod programs;
mod taken;
mod theirs;
mod types;

pub(crate) use taken::takes;
pub(crate) use theirs::{c_folder, with_c_library};

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, os};

use crate::build;
use crate::failure::Failure;
use link::Linked;

/// Build libibverbs.so.1 and libmlx5.so.1 from this provider, for unmodified programs
///
/// They are one library under two names, in target/verbs: a program that finds it first, for
/// example through LD_LIBRARY_PATH, runs on this provider instead of rdma-core's.
/// target/verbs/pkgconfig is for compiling programs; these also run on rdma-core's libraries.
///
/// Needs no C compiler, and no linker other than the Rust toolchain's. The library runs with this
/// machine's C library and newer ones.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Compare the symbols with those of Debian's libraries and the functions with the headers, run
    /// programs with the library, and run the checks of --programs
    #[arg(long)]
    check: bool,

    /// Run the programs of verbs/programs over rdma-core's libraries and over this one, on
    /// simulated devices, and compare their output; a violation is a failure. They also run
    /// compiled with the headers of Debian 13, which are fetched, and linked with
    /// target/verbs/link. Needs a C compiler and rdma-core's headers
    #[arg(long)]
    programs: bool,

    /// Run verbs/programs/stress.c for this number of seconds over this library, on each simulated
    /// device: eight threads that post, poll, arm, modify, destroy and create. With --programs it
    /// runs for four
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["check", "programs"],
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    stress: Option<u32>,
}

/// The package whose archive the library is linked from.
pub(crate) const EXPORT: &str = "mlx5-verbs-export";
/// The two libraries.
const LIBIBVERBS: &str = "libibverbs.so.1";
const LIBMLX5: &str = "libmlx5.so.1";
/// Name of the library in a process that also has C's.
const APART: &str = "libmlx5-verbs.so";

/// Builds the libraries, and runs the requested checks.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = build()?;
    println!("{}", folder.join(LIBIBVERBS).display());
    if let Some(seconds) = arguments.stress {
        return programs::stress(&folder, seconds);
    }
    if !arguments.check && !arguments.programs {
        return Ok(());
    }
    let newer = headers::newer()?;
    if arguments.check {
        check::run(&folder, newer.as_deref())?;
    }
    programs::run(&folder, newer.as_deref())
}

/// Compiles the archive; returns the inputs of the link and the library's folder.
fn compile() -> Result<(Linked, PathBuf), Failure> {
    let archive = build::archive(EXPORT, "verbs")?;
    let folder = archive.parent().unwrap_or(Path::new(".")).to_owned();
    Ok((Linked::new(archive)?, folder))
}

/// Builds the library under a name of its own, for a process that also has C's; returns its path.
pub(crate) fn build_apart() -> Result<PathBuf, Failure> {
    let (linked, folder) = compile()?;
    let path = folder.join(APART);
    linked.write(&path, APART, |_| true)?;
    Ok(path)
}

/// Links the library from an archive whose run time the programs have themselves; returns its
/// folder.
pub(crate) fn link_with_run_time(archive: PathBuf) -> Result<PathBuf, Failure> {
    let folder = archive.parent().unwrap_or(Path::new(".")).to_owned();
    let linked = Linked::new(archive)?.with_run_time_of_programs();
    linked.write(&folder.join(LIBIBVERBS), LIBIBVERBS, |_| true)?;
    point(&folder.join(LIBMLX5), LIBIBVERBS)?;
    Ok(folder)
}

/// Builds the library; returns its folder.
pub(crate) fn build() -> Result<PathBuf, Failure> {
    let (linked, folder) = compile()?;
    linked.write(&folder.join(LIBIBVERBS), LIBIBVERBS, |_| true)?;
    for (name, target) in
        [("libibverbs.so", LIBIBVERBS), (LIBMLX5, LIBIBVERBS), ("libmlx5.so", LIBMLX5)]
    {
        point(&folder.join(name), target)?;
    }
    for_compilers(&linked, &folder)?;
    Ok(folder)
}

/// Writes libmlx5.so.1 next to a built library, for the loader's cache. The cache goes by the
/// libraries' own names, so a symbolic link with this name would not be in it.
pub(crate) fn write_libmlx5(library: &Path, path: &Path) -> Result<(), Failure> {
    link::write_name(path, LIBMLX5, library, |node| node.starts_with("MLX5_"))
}

/// Lets a program find the library before C's.
pub(crate) fn with_library(command: &mut Command, folder: &Path) {
    let mut path = folder.as_os_str().to_owned();
    if let Some(others) = env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
        path.push(":");
        path.push(others);
    }
    command.env("LD_LIBRARY_PATH", path);
}

/// Writes the libraries for linking: one of each name, with no more symbols than C's has. A program
/// that is linked with the single library would look for the symbols of libmlx5.so.1 in
/// libibverbs.so.1, and would not run on C's libraries.
fn for_compilers(linked: &Linked, folder: &Path) -> Result<(), Failure> {
    let libraries = folder.join("link");
    let descriptions = folder.join("pkgconfig");
    for folder in [&libraries, &descriptions] {
        fs::create_dir_all(folder).map_err(in_file(folder))?;
    }
    let each = [
        ("libibverbs", LIBIBVERBS, "ibverbs", "IBVERBS_", "1.14.56.1", ""),
        ("libmlx5", LIBMLX5, "mlx5", "MLX5_", "1.25.56.1", "Requires.private: libibverbs\n"),
    ];
    for (name, soname, short, nodes, version, requires) in each {
        let library = libraries.join(format!("{name}.so"));
        linked.write(&library, soname, |node| node.starts_with(nodes))?;
        let text = format!(
            "libdir=${{pcfiledir}}/../link\n\nName: {name}\nDescription: {soname}, of the mlx5 \
             provider in Rust\nVersion: {version}\n{requires}Libs: -L${{libdir}} -l{short}\n"
        );
        let path = descriptions.join(format!("{name}.pc"));
        fs::write(&path, text).map_err(in_file(&path))?;
    }
    Ok(())
}

/// Creates a symbolic link, or replaces one.
fn point(path: &Path, target: impl AsRef<Path>) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(in_file(path)(error)),
        _ => os::unix::fs::symlink(target, path).map_err(in_file(path)),
    }
}

pub(crate) fn in_file(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::File { path: path.to_owned(), error }
}
