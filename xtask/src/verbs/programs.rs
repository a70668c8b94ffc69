//! Runs C programs over rdma-core's libraries and over ours: both must print the same.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{in_file, with_c_library, with_library};
use crate::build::{self, Profile, shared_library};
use crate::failure::Failure;
use crate::wire::Host;

/// Folder of the programs: one file each, with shared headers. A program at which C's library
/// fails, always or by chance, has a text file of the same name with its output over ours.
const FOLDER: &str = "verbs/programs";

/// Simulated devices that every program runs on.
const DEVICES: [&str; 2] = ["link=ib", "link=roce"];

/// Devices with raw packets: one that needs no inline header in a request, and one that needs the
/// Ethernet header.
const PACKETS: [&str; 2] = ["link=roce,raw=on", "link=roce,raw=on,inline=l2"];
/// Programs that need them.
const WITH_PACKETS: &[&str] = &[
    "allocators",
    "counting",
    "flow_kinds",
    "inline_limits",
    "packets",
    "packets_posted",
    "parents",
    "raw_wqe",
    "variables",
    "work_queues",
    "wq_commands",
];

/// Devices with DEVX event files, and the programs that need them.
const DEVX_EVENTS: [&str; 2] = ["link=ib,devx_events=on", "link=roce,devx_events=on"];
const WITH_DEVX_EVENTS: &[&str] = &["dv_devx_events"];

/// Devices on which receives of shared queues meet page faults, and the programs that need them.
const FAULTS: [&str; 2] = ["link=ib,fault=fault-receives:5", "link=roce,fault=fault-receives:5"];
const WITH_FAULTS: &[&str] = &["faulting"];

/// Programs whose children use the device: they need a machine that another process serves.
const WITH_CHILDREN: &[&str] = &["daemon"];

/// Time limit of a program in seconds, in addition to the time it is asked to run; none takes a
/// tenth of it.
const LIMIT: u32 = 120;

/// Paths that every run needs.
struct Bed {
    /// Folder of the sources.
    sources: PathBuf,
    simulator: PathBuf,
    /// Folder of the built programs.
    built: PathBuf,
}

impl Bed {
    /// Fails without a compiler or headers.
    fn new(library: &Path) -> Result<Self, Failure> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let simulator = shared_library("mlx5-sim-preload", Profile::Release)?;
        let built = library.join("programs");
        fs::create_dir_all(&built).map_err(in_file(&built))?;
        match cannot_compile(&built) {
            Some(install) => Err(Failure::Missing(install)),
            None => Ok(Self { sources: root.join(FOLDER), simulator, built }),
        }
    }
}

/// Fails with all differences, and without a compiler or headers. The programs also run compiled
/// with the `newer` headers, if there are some.
pub(super) fn run(library: &Path, newer: Option<&Path>) -> Result<(), Failure> {
    let Bed { sources: folder, simulator, built } = Bed::new(library)?;
    let mut faults = Vec::new();
    let sources = sources(&folder)?;
    if sources.is_empty() {
        faults.push(format!("{FOLDER} has no program"));
    }
    for source in sources {
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let program = built.join(&name);
        compile(&source, &program, None)?;
        let again = built.join(format!("{name}-newer"));
        if let Some(headers) = newer {
            let link = library.join("link");
            compile(&source, &again, Some(Newer { headers, libraries: &link }))?;
        }
        let expected = fs::read_to_string(source.with_extension("txt")).ok();
        let devices: &[&str] = if WITH_PACKETS.contains(&&*name) {
            &PACKETS
        } else if WITH_DEVX_EVENTS.contains(&&*name) {
            &DEVX_EVENTS
        } else if WITH_FAULTS.contains(&&*name) {
            &FAULTS
        } else {
            &DEVICES
        };
        for &device in devices {
            let host = match WITH_CHILDREN.contains(&&*name) {
                true => {
                    let served = build::program("mlx5-sim-wire", Profile::Release)?;
                    Some(Host::start(&served, device, &name)?)
                }
                false => None,
            };
            let machine = host.as_ref().map_or_else(|| device.to_owned(), Host::settings);
            let theirs = match &expected {
                Some(expected) => expected.clone(),
                None => output(&program, None, &simulator, &machine, None)?,
            };
            let ours = output(&program, None, &simulator, &machine, Some(library))?;
            match first_difference(&theirs, &ours) {
                None => println!("{name}, {device}: {} lines", ours.lines().count()),
                Some(difference) => faults.push(format!("{name}, {device}: {difference}")),
            }
            if newer.is_some() && device == devices[0] {
                let theirs = match &expected {
                    Some(expected) => expected.clone(),
                    None => output(&again, None, &simulator, &machine, None)?,
                };
                let ours = output(&again, None, &simulator, &machine, Some(library))?;
                let difference = first_difference(&theirs, &ours);
                faults.extend(difference.map(|one| format!("{name} of newer headers: {one}")));
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Library(faults)) }
}

/// Runs the program with eight threads over our library for `seconds`, on each device. Violations
/// of the device model are a failure.
pub(super) fn stress(library: &Path, seconds: u32) -> Result<(), Failure> {
    let Bed { sources: folder, simulator, built } = Bed::new(library)?;
    let source = folder.join("stress.c");
    let expected = source.with_extension("txt");
    let expected = fs::read_to_string(&expected).map_err(in_file(&expected))?;
    let program = built.join("stress");
    compile(&source, &program, None)?;
    let mut faults = Vec::new();
    for device in DEVICES {
        let said = output(&program, Some(seconds), &simulator, device, Some(library))?;
        match first_difference(&expected, &said) {
            None => println!("stress, {device}: {seconds} s"),
            Some(difference) => faults.push(format!("stress, {device}: {difference}")),
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Library(faults)) }
}

fn compiler() -> String {
    env::var("CC").unwrap_or_else(|_| "cc".into())
}

/// Command that installs the compiler, or rdma-core's headers and libraries, if they are missing.
fn cannot_compile(folder: &Path) -> Option<String> {
    let probe = folder.join("probe.c");
    let text = "#include <infiniband/verbs.h>\nint main(void) { return !ibv_fork_init; }\n";
    fs::write(&probe, text).ok()?;
    let tried = Command::new(compiler())
        .arg(&probe)
        .args(["-libverbs", "-o"])
        .arg(folder.join("probe"))
        .status();
    match tried {
        Ok(status) if status.success() => None,
        Ok(_) => Some("apt-get install libibverbs-dev".into()),
        Err(_) => Some("apt-get install gcc libc6-dev".into()),
    }
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).map_err(in_file(folder))? {
        let path = entry.map_err(in_file(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

/// Headers of a newer rdma-core, and the libraries for linking that our pkg-config files name:
/// programs linked with them also run over C's libraries.
#[derive(Clone, Copy)]
struct Newer<'a> {
    headers: &'a Path,
    libraries: &'a Path,
}

fn compile(source: &Path, program: &Path, newer: Option<Newer<'_>>) -> Result<(), Failure> {
    let mut command = Command::new(compiler());
    if let Some(Newer { headers, libraries }) = newer {
        command.arg("-I").arg(headers).arg("-L").arg(libraries);
    }
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]);
    command.arg(program).arg(source).args(["-lmlx5", "-libverbs", "-lpthread", "-ldl"]);
    let name = compiler();
    match command.status() {
        Err(error) => Err(Failure::Run { program: name, error }),
        Ok(status) if !status.success() => Err(Failure::Status { program: name, status }),
        Ok(_) => Ok(()),
    }
}

/// Script that starts a program. The program and its children record violations of the device model
/// in a file; the program that it names fails if there are any.
const NOTING: &str = "export MLX5_SIM_REPORT=\"$0\"-$$; : >\"$MLX5_SIM_REPORT\"; exec \"$@\"";

/// malloc overwrites freed memory at once, so that a library that still uses it fails.
const MEMORY: &str = "glibc.malloc.tcache_count=0:glibc.malloc.perturb=165";

/// Output of a program on a simulated device, with its exit status at the end. `seconds` is the
/// program's argument, if it takes one. Violations make the program fail.
fn output(
    program: &Path,
    seconds: Option<u32>,
    simulator: &Path,
    device: &str,
    library: Option<&Path>,
) -> Result<String, Failure> {
    for report in reports(program)? {
        fs::remove_file(&report).map_err(in_file(&report))?;
    }
    let mut command = Command::new("timeout");
    let limit = LIMIT + seconds.unwrap_or(0);
    command.args(["--kill-after=5", &limit.to_string(), "sh", "-c", NOTING]);
    command.arg(program.with_extension("report")).arg(program);
    command.args(seconds.map(|seconds| seconds.to_string()));
    match library {
        Some(library) => with_library(&mut command, library),
        None => with_c_library(&mut command)?,
    }
    command.env("MLX5_SIM", device).env("LD_PRELOAD", simulator);
    command.env("GLIBC_TUNABLES", MEMORY).stderr(Stdio::inherit());
    let name = program.display().to_string();
    let output = command.output().map_err(|error| Failure::Run { program: name, error })?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(format!("{text}ended with {}\n", output.status.code().unwrap_or(-1)))
}

/// Report files of earlier runs of a program, one per process.
fn reports(program: &Path) -> Result<Vec<PathBuf>, Failure> {
    let folder = program.parent().unwrap_or(Path::new("."));
    let name = program.with_extension("report-");
    let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut reports = Vec::new();
    for entry in fs::read_dir(folder).map_err(in_file(folder))? {
        let entry = entry.map_err(in_file(folder))?;
        if entry.file_name().to_string_lossy().starts_with(&name) {
            reports.push(entry.path());
        }
    }
    Ok(reports)
}

/// The first line that differs.
fn first_difference(theirs: &str, ours: &str) -> Option<String> {
    let (mut left, mut right) = (theirs.lines(), ours.lines());
    for number in 1.. {
        match (left.next(), right.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let say = |line: Option<&str>| line.unwrap_or("nothing more").to_owned();
                return Some(format!("line {number}\n    C's:  {}\n    ours: {}", say(a), say(b)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn first_difference_is_reported() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        let shown = first_difference("a\nb\n", "a\nc\n").expect("a difference");
        assert!(shown.starts_with("line 2") && shown.contains("ours: c"), "{shown}");
        let shown = first_difference("a\n", "a\nc\n").expect("a difference");
        assert!(shown.contains("C's:  nothing more"), "{shown}");
    }
}
