//! `cargo xtask vm`: the real kernel driver on the simulated ConnectX, in a virtual machine.

mod capture;
mod cpio;
mod filters;
mod guest;
mod initramfs;
mod kernel;
mod ledger;
mod machine;
mod network;
mod parts;
mod plan;
mod python;
mod record;
mod tools;
mod version;
mod whole;

pub(crate) use ledger::document;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::build::{self, Profile};
use crate::debian::cache::Cache;
use crate::failure::Failure;
use guest::{Guest, Link, Receives, Step};
use machine::{QEMU, SERIAL, SERVER};
use parts::Parts;
use record::{Event, Record};
use version::Version;

/// Run the real kernel driver on the simulated device, in a virtual machine
///
/// QEMU, the kernels and the C programs are Debian's packages, from this machine's apt sources;
/// they are unpacked into $XDG_CACHE_HOME/mlx5-vm, and nothing is installed. QEMU emulates every
/// instruction, so the task needs no privileges and no hardware.
///
/// Without --all, --kernel and --link it runs a selection of machines with every kernel and either
/// kind of port. A kernel whose packages cannot be fetched is reported as SKIP.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run only this kernel
    #[arg(long, value_enum, global = true)]
    kernel: Option<Version>,

    /// Run only this kind of port
    #[arg(long, value_enum, global = true)]
    link: Option<Link>,

    /// Run one receive mode
    ///
    /// It is that of the kernel's network interfaces. Without a program, each mode runs in turn.
    #[arg(long, value_enum, global = true)]
    receives: Option<Receives>,

    /// Number of devices in the machine
    #[arg(long, global = true, value_parser = clap::value_parser!(u32).range(0..=4))]
    hcas: Option<u32>,

    /// Time limit of a machine
    #[arg(long, value_name = "SECONDS", default_value_t = 900, global = true)]
    limit: u64,

    /// Program that serves the devices [default: mlx5-sim-pci, which is built]
    #[arg(long, value_name = "PATH", global = true)]
    device_program: Option<PathBuf>,

    /// Run every kernel on either kind of port
    #[arg(long, conflicts_with_all = ["kernel", "link"])]
    all: bool,

    /// Run only the steps with this word in their names, after the steps that they need
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,

    /// Write the results into docs/conformance.json and docs/CONFORMANCE.md; with --only or
    /// --receives, the other rows stay
    #[arg(long)]
    write: bool,

    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Run one program in the machine
    ///
    /// mlx5 and mlx5-conformance are ours, ibv_devinfo and others are rdma-core's; a path is a
    /// program of this machine. If a word contains python3, the machine has Python, pyverbs, and
    /// rdma-core's tests in the folder in which it starts.
    Run {
        /// The program and its arguments
        #[arg(last = true, required = true, value_name = "PROGRAM")]
        program: Vec<String>,
    },
    /// Run a shell in the machine
    Shell,
    /// Fetch the machine's parts, and do nothing else
    Fetch,
    /// Delete the fetched parts
    Clean,
}

/// Runs the task.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Failure::Vm(
            "the machine is made of programs for x86-64, which this is not".into(),
        ));
    }
    match &arguments.what {
        Some(What::Run { program }) => one(arguments, program),
        Some(What::Shell) => shell(arguments),
        Some(What::Fetch) => {
            let cache = cache()?;
            let wanted = Version::ALL.into_iter();
            let mut wanted = wanted.filter(|&it| arguments.kernel.is_none_or(|only| only == it));
            wanted.try_for_each(|version| {
                Parts::fetch(&cache, version)?.with_python(&cache, version, true).map(drop)
            })
        }
        Some(What::Clean) => cache()?.clear(),
        None => whole::run(arguments),
    }
}

/// The cache of the machines' parts.
fn cache() -> Result<Cache, Failure> {
    Cache::open("mlx5-vm")
}

/// A program of our own.
struct Own {
    name: &'static str,
    package: &'static str,
    /// Cargo's option that selects it in the package.
    target: &'static str,
    /// Whether only machines with Ethernet ports run it.
    ethernet: bool,
}

const OURS: [Own; 4] = [
    Own { name: "mlx5", package: "mlx5-cli", target: "--bins", ethernet: false },
    Own {
        name: "mlx5-conformance",
        package: "mlx5-conformance",
        target: "--bins",
        ethernet: false,
    },
    Own { name: network::PEER, package: "mlx5-cm", target: "--example=peer", ethernet: true },
    Own {
        name: network::HTTP_SERVER,
        package: "mlx5",
        target: "--example=http_server",
        ethernet: true,
    },
];

impl Own {
    fn build(&self) -> Result<PathBuf, Failure> {
        build::self_contained(self.package, self.target)
    }
}

/// A word that contains this needs Python in the machine.
const PYTHON: &str = "python3";

/// The machine that the arguments describe.
struct Wanted {
    parts: Parts,
    link: Link,
    receives: Receives,
    hcas: u32,
    device: PathBuf,
    programs: Vec<PathBuf>,
    folder: PathBuf,
}

impl Wanted {
    fn new(arguments: &Arguments, python: bool) -> Result<Self, Failure> {
        let version = arguments.kernel.unwrap_or(Version::V6_1);
        let link = arguments.link.unwrap_or(Link::Ib);
        let receives = arguments.receives.unwrap_or(Receives::Cyclic);
        let hcas = arguments.hcas.unwrap_or(1);
        let cache = cache()?;
        let parts = Parts::fetch(&cache, version)?.with_python(&cache, version, python)?;
        drop(cache);
        let device = if hcas == 0 { PathBuf::new() } else { device(arguments)? };
        let folder = logs().join(format!("run-{}-{}", version.name(), link.name()));
        Ok(Self { parts, link, receives, hcas, device, programs: Vec::new(), folder })
    }

    fn guest<'a>(&'a self, steps: &'a [Step], limit: Duration) -> Guest<'a> {
        Guest {
            parts: &self.parts,
            link: self.link,
            receives: self.receives,
            hcas: self.hcas,
            device: &self.device,
            programs: &self.programs,
            verbs: None,
            steps,
            shell: false,
            limit,
            folder: &self.folder,
        }
    }
}

/// Path of the program that serves the devices.
fn device(arguments: &Arguments) -> Result<PathBuf, Failure> {
    match &arguments.device_program {
        Some(path) => Ok(path.clone()),
        None => build::program("mlx5-sim-pci", Profile::Release),
    }
}

fn one(arguments: &Arguments, program: &[String]) -> Result<(), Failure> {
    let python = program.iter().any(|word| word.contains(PYTHON));
    let mut wanted = Wanted::new(arguments, python)?;
    let (name, rest) = program.split_first().expect("the arguments have a program, or are refused");
    let mut words = vec![name.clone()];
    if let Some(own) = OURS.iter().find(|own| own.name == name) {
        wanted.programs.push(own.build()?);
    } else if name.contains('/') {
        let path = PathBuf::from(name);
        words[0] = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        wanted.programs.push(path);
    }
    words.extend(rest.iter().cloned());
    let quoted: Vec<String> =
        words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    let mut steps = Vec::new();
    if wanted.hcas > 0 {
        steps.push(Step::new("load", 120, "load && ready").needed());
    }
    steps.push(Step::new("run", arguments.limit, quoted.join(" ")));
    let guest = wanted.guest(&steps, Duration::from_secs(arguments.limit));
    eprintln!("vm: Linux {}, {} device(s), {}", guest.parts.kernel.release, guest.hcas, guest.link);
    let mut on = String::new();
    let record = guest.run(|event, _| match event {
        Event::Begin(name) => on.clone_from(name),
        Event::Line(line) if on == "run" => println!("{line}"),
        Event::Line(line) => eprintln!("vm: {line}"),
        Event::End(..) | Event::Over => {}
    })?;
    verdict(&record, &wanted.folder)
}

fn shell(arguments: &Arguments) -> Result<(), Failure> {
    let wanted = Wanted::new(arguments, true)?;
    let guest = Guest { shell: true, ..wanted.guest(&[], Duration::MAX) };
    guest.run(|_, _| {}).map(drop)
}

/// Fails with all problems of the run, if there are any.
fn verdict(record: &Record, folder: &Path) -> Result<(), Failure> {
    let mut wrong: Vec<String> = record
        .steps
        .iter()
        .filter(|step| step.status != Some(0))
        .map(ToString::to_string)
        .collect();
    wrong.extend(record.troubles());
    if wrong.is_empty() {
        return Ok(());
    }
    show(record, folder);
    Err(Failure::Vm(wrong.join("\n  ")))
}

/// Prints the end of the kernel's log and the standard error of QEMU and of the devices' process.
fn show(record: &Record, folder: &Path) {
    const LAST: usize = 40;
    for name in [QEMU, SERVER] {
        let path = folder.join(name);
        for line in std::fs::read_to_string(&path).unwrap_or_default().lines() {
            eprintln!("vm: {}: {line}", path.display());
        }
    }
    let lines: Vec<&str> = record.log.lines().collect();
    eprintln!("vm: the end of {}:", folder.join(SERIAL).display());
    for line in &lines[lines.len().saturating_sub(LAST)..] {
        eprintln!("    {}", line.trim_end());
    }
}

/// Folder of the logs.
fn logs() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of the workspace");
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |target| root.join(target));
    target.join("vm")
}
