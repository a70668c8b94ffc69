//! `cargo xtask oracle`: compares this provider with rdma-core's, byte for byte.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{Profile, program, shared_library, succeeds};
use crate::debian::cache::make;
use crate::failure::Failure;
use crate::verbs;

/// Post the same requests through rdma-core's provider and this one, and compare the bytes that
/// they write
///
/// Needs a C compiler and rdma-core's headers and libraries: on Debian the packages gcc,
/// libibverbs-dev, librdmacm-dev and ibverbs-providers.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rewrite the section about the oracle in docs/CONFORMANCE.md
    #[arg(long)]
    document: bool,

    /// Write the scripts that both sides run into this directory
    #[arg(long, value_name = "DIRECTORY")]
    scripts: Option<PathBuf>,
}

/// Command that installs the compiler and the headers.
const PACKAGES: &str =
    "apt-get install gcc libc6-dev libibverbs-dev librdmacm-dev ibverbs-providers";

/// Compiles, runs, compares.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(scripts) = &arguments.scripts {
        make(scripts)?;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
    let library = shared_library("mlx5-sim-preload", Profile::Release)?;
    let peer = library.with_file_name("oracle-peer");
    compile(&root.join("tests/oracle/peer/oracle.c"), &peer)?;
    let tags = library.with_file_name("oracle-tags");
    compile(&root.join("tests/oracle/peer/tags.c"), &tags)?;
    let completions = library.with_file_name("oracle-completions");
    compile(&root.join("tests/oracle/peer/completions.c"), &completions)?;
    let faults = library.with_file_name("oracle-faults");
    compile(&root.join("tests/oracle/peer/faults.c"), &faults)?;
    let mut command = Command::new(program("mlx5-oracle", Profile::Dev)?);
    command.arg("--peer").arg(&peer).arg("--tags").arg(&tags);
    command.arg("--completions").arg(&completions).arg("--faults").arg(&faults);
    command.arg("--verbs").arg(verbs::build()?).arg("--preload").arg(&library);
    verbs::with_c_library(&mut command)?;
    if arguments.document {
        command.arg("--document").arg(root.join("docs/CONFORMANCE.md"));
    }
    if let Some(scripts) = &arguments.scripts {
        command.arg("--scripts").arg(scripts);
    }
    succeeds(&mut command)
}

/// Compiles the program that drives rdma-core's provider.
fn compile(source: &Path, program: &Path) -> Result<(), Failure> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(compiler);
    // `-rdynamic` lets the libraries find the program's `ioctl`.
    command.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-o"]);
    command.arg(program).arg(source).args(["-libverbs", "-lmlx5", "-ldl"]);
    succeeds(&mut command).inspect_err(|_| {
        eprintln!("xtask: the oracle needs rdma-core's headers and libraries: {PACKAGES}");
    })
}
