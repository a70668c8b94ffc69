//! Checks that the library offers programs the same interface as C's libraries.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mlx5_verbs_symbols::{DEBIAN, Kind, symbols};

use super::theirs::is_ours;
use super::{LIBIBVERBS, LIBMLX5, c_folder, in_file, types, with_library};
use crate::elf::{Elf, Export};
use crate::failure::Failure;

/// Libraries that ours may need.
const NEEDED: [&str; 5] =
    ["libgcc_s.so.1", "libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];

/// Folders of C's libraries in distributions.
const INSTALLED: [&str; 3] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"];

/// A program that runs with C's library and with this one: output and status must be the same. The
/// loader binds all its symbols before it starts.
struct Started {
    program: &'static str,
    arguments: &'static [&'static str],
    /// Arguments of a run that succeeds only if the program can run here.
    probe: &'static [&'static str],
}

/// Debian's Python, which has pyverbs.
const PYTHON: &str = "/usr/bin/python3";

const STARTED: [Started; 6] = [
    Started { program: "ibv_devices", arguments: &[], probe: &[] },
    Started { program: "ibv_rc_pingpong", arguments: &["--help"], probe: &[] },
    Started { program: "ib_write_bw", arguments: &["--version"], probe: &[] },
    Started { program: "rping", arguments: &["-h"], probe: &[] },
    Started {
        program: PYTHON,
        arguments: &[
            "-c",
            "import pyverbs.device, pyverbs.qp, pyverbs.cmid, pyverbs.providers.mlx5.mlx5dv, \
             pyverbs.providers.efa.efadv",
        ],
        probe: &["-c", "import pyverbs"],
    },
    Started { program: PYTHON, arguments: &["-c", ONE_LIBRARY], probe: &["-c", "import ctypes"] },
];

/// Checks that both names are one library, whichever a program loads first. Over C's the names are
/// two libraries, so the script asserts this over ours only.
const ONE_LIBRARY: &str = "\
import ctypes, os
names = ['libmlx5.so.1', 'libibverbs.so.1']
handles = {ctypes.CDLL(name)._handle for name in names + names[::-1]}
if 'MLX5_OURS' in os.environ: assert len(handles) == 1, 'they are loaded apart'";

/// Fails with all faults.
pub(super) fn run(folder: &Path, newer: Option<&Path>) -> Result<(), Failure> {
    let own = symbols().map(|symbol| Export {
        name: symbol.name.to_owned(),
        node: symbol.node.to_owned(),
        default: symbol.default,
        data: match symbol.kind {
            Kind::Function(_) => None,
            Kind::Data(size) => Some(size),
        },
    });
    let own: BTreeSet<Export> = own.collect();
    let mut faults = Vec::new();
    let whole = folder.join(LIBIBVERBS);
    let libraries = [
        (whole.clone(), LIBIBVERBS, ""),
        (folder.join("link/libibverbs.so"), LIBIBVERBS, "IBVERBS_"),
        (folder.join("link/libmlx5.so"), LIBMLX5, "MLX5_"),
    ];
    if is_ours(&fs::read(&whole).map_err(in_file(&whole))?) != Some(true) {
        faults.push("it is taken for C's library where that is asked for".to_owned());
    }
    for (path, soname, nodes) in libraries {
        let bytes = fs::read(&path).map_err(in_file(&path))?;
        let elf = Elf::new(&bytes).ok_or_else(|| not_elf(&path))?;
        let wanted = own.iter().filter(|export| export.node.starts_with(nodes)).cloned().collect();
        faults.extend(
            library(elf, soname, &wanted)
                .into_iter()
                .map(|fault| format!("{}: {fault}", path.display())),
        );
    }
    for (release, list) in DEBIAN {
        let listed = listed(list);
        match installed(release)? {
            Some(exports) if exports != listed => {
                let differing: Vec<String> =
                    exports.symmetric_difference(&listed).map(shown).collect();
                faults.push(format!("not as listed for {release}: {}", differing.join(", ")));
            }
            Some(exports) => println!("{} symbols, as C's libraries {release} here", exports.len()),
            None => println!("C's libraries {release} are not here: compared with the list alone"),
        }
        let absent: Vec<String> = listed.difference(&own).map(shown).collect();
        if !absent.is_empty() {
            faults.push(format!("{release} has besides: {}", absent.join(", ")));
        }
    }
    for headers in [Some(Path::new("/usr/include")), newer].into_iter().flatten() {
        faults.extend(types::differing(headers)?);
    }
    let theirs = c_folder()?;
    for started in &STARTED {
        faults.extend(start(folder, theirs.as_deref(), started));
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Library(faults)) }
}

/// Faults of a library that must have this name and these symbols.
fn library(elf: Elf<'_>, soname: &str, wanted: &BTreeSet<Export>) -> Vec<String> {
    let mut faults = Vec::new();
    if elf.soname() != Some(soname) {
        faults.push(format!("its name is {:?}", elf.soname()));
    }
    if !elf.stays() {
        faults.push("it is unloaded when it is closed".to_owned());
    }
    let strange: Vec<&str> =
        elf.needed().into_iter().filter(|needed| !NEEDED.contains(needed)).collect();
    if !strange.is_empty() {
        faults.push(format!("it needs {}", strange.join(", ")));
    }
    let Some(exports) = elf.exports() else {
        faults.push("its symbols cannot be read".to_owned());
        return faults;
    };
    let exports: BTreeSet<Export> = exports.into_iter().collect();
    faults.extend(wanted.difference(&exports).map(|one| format!("it lacks {}", shown(one))));
    faults.extend(exports.difference(wanted).map(|one| format!("it also has {}", shown(one))));
    faults
}

/// Symbols of C's libraries of a release, if that release is installed here.
fn installed(release: &str) -> Result<Option<BTreeSet<Export>>, Failure> {
    let mut exports = BTreeSet::new();
    for library in ["libibverbs.so.1.", "libmlx5.so.1."] {
        let Some(path) =
            INSTALLED.iter().find_map(|folder| find(Path::new(folder), library, release))
        else {
            return Ok(None);
        };
        let bytes = fs::read(&path).map_err(in_file(&path))?;
        let found = Elf::new(&bytes).and_then(Elf::exports).ok_or_else(|| not_elf(&path))?;
        exports.extend(found);
    }
    Ok(Some(exports))
}

/// The file in a folder whose name has this prefix and suffix.
fn find(folder: &Path, begins: &str, ends: &str) -> Option<PathBuf> {
    let paths = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with(begins) && name.ends_with(&format!(".{ends}")))
    };
    paths.into_iter().find(named)
}

/// Symbols in a list of `mlx5-verbs-symbols`.
fn listed(list: &str) -> BTreeSet<Export> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let symbol = words.get(1)?;
        let (name, node) = symbol.split_once('@')?;
        Some(Export {
            name: name.to_owned(),
            node: node.trim_start_matches('@').to_owned(),
            default: node.starts_with('@'),
            data: words.get(2).and_then(|size| size.parse().ok()),
        })
    };
    list.lines().filter_map(line).collect()
}

fn shown(export: &Export) -> String {
    let at = if export.default { "@@" } else { "@" };
    format!("{}{at}{}", export.name, export.node)
}

fn not_elf(path: &Path) -> Failure {
    Failure::Output { program: path.display().to_string(), what: "no symbols".to_owned() }
}

/// Runs a program with either library, and returns the difference, if there is one. C's library is
/// in `theirs` if programs do not find it by themselves.
fn start(folder: &Path, theirs: Option<&Path>, started: &Started) -> Option<String> {
    let run = |arguments: &[&str], ours: bool| {
        let mut command = Command::new(started.program);
        command.args(arguments).env("LD_BIND_NOW", "1").env_remove("LD_LIBRARY_PATH");
        if ours {
            with_library(command.env("MLX5_OURS", ""), folder);
        } else if let Some(theirs) = theirs {
            command.env("LD_LIBRARY_PATH", theirs);
        }
        command.output()
    };
    let shown = format!("{} {}", started.program, started.arguments.join(" "));
    let shown = shown.lines().next().unwrap_or_default();
    let here = run(started.probe, false);
    if here.is_ok_and(|here| started.probe.is_empty() || here.status.success()) {
        let (c, ours) = (run(started.arguments, false).ok()?, run(started.arguments, true).ok()?);
        if (c.status, &c.stdout) == (ours.status, &ours.stdout) {
            println!("as over C's library: {shown}");
            return None;
        }
        let said = String::from_utf8_lossy(&ours.stderr);
        return Some(format!(
            "{shown}: {} and not {} as over C's library: {}",
            ours.status,
            c.status,
            said.trim()
        ));
    }
    println!("left out, as it is not here: {shown}");
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> BTreeSet<Export> {
        DEBIAN.iter().flat_map(|(_, list)| listed(list)).collect()
    }

    /// Release and symbols of C's libraries here, if that release is listed.
    fn here() -> Option<(&'static str, BTreeSet<Export>)> {
        let of = |(release, list): &(&'static str, &str)| {
            let found = installed(release).expect("libraries that can be read")?;
            Some((*release, found)).filter(|(_, found)| !found.is_empty() && !list.is_empty())
        };
        DEBIAN.iter().find_map(of)
    }

    #[test]
    fn the_libraries_of_c_here_have_what_is_listed() {
        let Some((release, found)) = here() else {
            println!("skipped: no listed release of C's libraries is installed");
            return;
        };
        let (_, list) = DEBIAN.iter().find(|(name, _)| *name == release).expect("the list");
        assert_eq!(found, listed(list));
    }

    #[test]
    fn missing_misplaced_and_extra_symbols_are_reported() {
        let path =
            INSTALLED.iter().find_map(|folder| find(Path::new(folder), "libmlx5.so.1.", "0"));
        let Some(path) = path else {
            println!("skipped: libmlx5 is not installed");
            return;
        };
        let bytes = fs::read(&path).expect("the library");
        let elf = Elf::new(&bytes).expect("an ELF");
        let mut wanted: BTreeSet<Export> = elf.exports().expect("symbols").into_iter().collect();
        let init_obj = |export: &&Export| export.name == "mlx5dv_init_obj" && export.default;
        let one = wanted.iter().find(init_obj).cloned().expect("a symbol of two nodes");
        let has_faults = |wanted: &BTreeSet<Export>| {
            let faults = library(elf, LIBMLX5, wanted);
            let about = |fault: &&String| fault.contains("mlx5dv_init_obj");
            faults.iter().filter(about).cloned().collect::<Vec<_>>()
        };
        assert_eq!(has_faults(&wanted), [""; 0]);
        wanted.remove(&one);
        assert_eq!(has_faults(&wanted), ["it also has mlx5dv_init_obj@@MLX5_1.2"]);
        wanted.insert(Export { node: "MLX5_1.3".into(), ..one.clone() });
        let both = ["it lacks mlx5dv_init_obj@@MLX5_1.3", "it also has mlx5dv_init_obj@@MLX5_1.2"];
        assert_eq!(has_faults(&wanted), both);
        wanted.insert(Export { default: false, ..one.clone() });
        assert!(has_faults(&wanted).contains(&"it lacks mlx5dv_init_obj@MLX5_1.2".to_owned()));
        let other = library(elf, LIBIBVERBS, &wanted);
        assert!(other.contains(&"its name is Some(\"libmlx5.so.1\")".to_owned()), "{other:?}");
        assert!(other.contains(&"it is unloaded when it is closed".to_owned()), "{other:?}");
        assert!(other.contains(&"it needs libibverbs.so.1".to_owned()), "{other:?}");
    }

    #[test]
    fn list_has_nodes_defaults_and_the_size_of_data() {
        let found = listed("l a@N_1\nl b@@N_1 8\n");
        let export = |name: &str, default, data| Export {
            name: name.into(),
            node: "N_1".into(),
            default,
            data,
        };
        assert_eq!(found, [export("a", false, None), export("b", true, Some(8))].into());
        assert!(own().len() > 300);
    }
}
