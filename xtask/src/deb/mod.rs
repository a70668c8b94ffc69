//! `cargo xtask deb`: builds a Debian package of the command and of the libraries for programs in
//! C.

mod bare;
mod check;
mod control;
mod entry;
mod licences;
mod lint;
mod tree;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{self, Profile};
use crate::debian::cache::{in_file, make, remove};
use crate::failure::Failure;
use crate::verbs;
use control::About;
use tree::Tree;

/// Build a Debian package of the mlx5 command and of libibverbs.so.1 and libmlx5.so.1
///
/// It has the command with its man pages and shell completions, the libraries in /usr/lib/mlx5,
/// outside the loader's path, and mlx5-verbs-switch, which gives the programs of a system these
/// libraries (rust) or rdma-core's (c). The package is written to target/debian, and runs on the
/// Debian that it was built on and on later ones.
///
/// The maintainer is DEBFULLNAME with DEBEMAIL, or the author of the last commit; the package's
/// time is SOURCE_DATE_EPOCH, or that of the last commit: the same tree gives the same package.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Check the package against Debian's policy, and build it again: it must be the same. Install
    /// it in a minimal Debian, whose packages are fetched and unpacked into a folder; switch, and
    /// check which library the loader takes; upgrade, switch back and remove. Needs root, or user
    /// namespaces
    #[arg(long)]
    check: bool,
}

/// Name of the package.
const NAME: &str = "mlx5";
/// Folder of the libraries.
const LIBRARIES: &str = "usr/lib/mlx5";
/// The command that switches between C's libraries and ours.
const SWITCH: &str = "mlx5-verbs-switch";

/// Builds the package, and checks it if asked to.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let folder = Path::new("target/debian");
    make(folder)?;
    let package = build(folder)?;
    println!("{}", package.display());
    if arguments.check {
        lint::run(&package)?;
        same_again(folder, &package)?;
        check::run(&package)?;
    }
    Ok(())
}

/// Builds the package in a folder; returns its path.
fn build(folder: &Path) -> Result<PathBuf, Failure> {
    let command = stripped(&build::program("mlx5-cli", Profile::Release)?, &folder.join("mlx5"))?;
    let library = verbs::build()?.join("libibverbs.so.1");
    let library = stripped(&library, &folder.join("libibverbs.so.1"))?;
    let other_name = folder.join("libmlx5.so.1");
    verbs::write_libmlx5(&library, &other_name)?;
    let about = About::new([&command, &library])?;

    let root = folder.join("root");
    remove(&root)?;
    let mut tree = Tree::new(root);
    tree.program("usr/bin/mlx5", &read(&command)?)?;
    tree.file(&format!("{LIBRARIES}/libibverbs.so.1"), &read(&library)?)?;
    tree.file(&format!("{LIBRARIES}/libmlx5.so.1"), &read(&other_name)?)?;
    // Names that programs look up first if they load a library themselves.
    for name in ["libibverbs.so", "libmlx5.so"] {
        tree.link(&format!("{LIBRARIES}/{name}"), &format!("{name}.1"))?;
    }
    let switch = include_str!("mlx5-verbs-switch.sh").replace("@ABI@", about.architecture.abi);
    tree.program(&format!("usr/sbin/{SWITCH}"), switch.as_bytes())?;
    let page = include_str!("mlx5-verbs-switch.8").replace("@VERSION@", about.upstream);
    tree.compressed(&format!("usr/share/man/man8/{SWITCH}.8"), page.as_bytes())?;
    pages(&command, folder, &mut tree)?;
    completions(&command, &mut tree)?;
    documents(&about, &mut tree)?;
    tree.control(&about)?;

    let package = folder.join(about.file_name());
    let mut pack = Command::new("dpkg-deb");
    pack.args(["--root-owner-group", "-Zxz", "--build"]).arg(&tree.root).arg(&package);
    pack.env("SOURCE_DATE_EPOCH", about.time.to_string());
    says(&mut pack)?;
    Ok(package)
}

/// The command's own man pages.
fn pages(command: &Path, folder: &Path, tree: &mut Tree) -> Result<(), Failure> {
    let pages = folder.join("man");
    remove(&pages)?;
    says(Command::new(command).arg("man").arg(&pages))?;
    for page in crate::debian::cache::files(&pages)? {
        let name = crate::debian::cache::name_of(&page);
        tree.compressed(&format!("usr/share/man/man1/{name}"), &read(&page)?)?;
    }
    Ok(())
}

/// The command's shell completions, in Debian's folders.
fn completions(command: &Path, tree: &mut Tree) -> Result<(), Failure> {
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/mlx5"),
        ("zsh", "usr/share/zsh/vendor-completions/_mlx5"),
        ("fish", "usr/share/fish/vendor_completions.d/mlx5.fish"),
    ] {
        let script = says(Command::new(command).args(["completions", shell]))?;
        tree.file(path, script.as_bytes())?;
    }
    Ok(())
}

/// Documents that Debian's policy requires, and the page on the libraries' differences from C's.
fn documents(about: &About, tree: &mut Tree) -> Result<(), Failure> {
    let folder = format!("usr/share/doc/{NAME}");
    tree.file(&format!("{folder}/copyright"), control::copyright()?.as_bytes())?;
    tree.compressed(&format!("{folder}/licences"), licences::text()?.as_bytes())?;
    tree.compressed(&format!("{folder}/changelog.Debian"), about.changelog()?.as_bytes())?;
    tree.compressed(&format!("{folder}/changelog"), &read(Path::new("CHANGELOG.md"))?)?;
    tree.compressed(&format!("{folder}/DROP_IN.md"), &read(Path::new("docs/DROP_IN.md"))?)
}

/// Copies a program without its symbols and line tables, which only a debugger needs.
fn stripped(program: &Path, to: &Path) -> Result<PathBuf, Failure> {
    let toolchain = build::own_folder()?;
    let objcopy = toolchain.join("bin/rust-objcopy");
    if !objcopy.exists() {
        return Err(Failure::NotBuilt(format!(
            "the package: this Rust toolchain has no {}; one of rustup's has",
            objcopy.display()
        )));
    }
    // rust-objcopy does not find the toolchain's libraries by itself.
    let libraries = toolchain.ancestors().nth(2).unwrap_or(&toolchain);
    let mut strip = Command::new(objcopy);
    strip.env("LD_LIBRARY_PATH", libraries).arg("--strip-all").arg(program).arg(to);
    says(&mut strip)?;
    Ok(to.to_owned())
}

/// Fails if a second build of the same tree gives a different package.
fn same_again(folder: &Path, package: &Path) -> Result<(), Failure> {
    let first = read(package)?;
    if read(&build(folder)?)? == first {
        return Ok(());
    }
    let what = format!("other bytes in {} when it is built again", package.display());
    Err(Failure::Output { program: "dpkg-deb".into(), what })
}

/// Output of a program that is a part of every Debian or that Cargo built.
fn says(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_owned();
    build::says(command).map_err(|failure| match failure {
        Failure::Run { error, .. } if error.kind() == std::io::ErrorKind::NotFound => {
            let program = program.to_string_lossy();
            Failure::Packages(format!("{program} is missing, which every Debian has"))
        }
        other => other,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(in_file(path))
}

/// An environment variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
