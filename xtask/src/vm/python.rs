//! Python with rdma-core's pyverbs and the tests that use it, a part that only some guests have.

use std::fs;
use std::path::{Path, PathBuf};

use super::tools::Tools;
use super::version::Version;
use crate::debian::apt::Apt;
use crate::debian::cache::{Cache, files, in_file, make, name_of, remove};
use crate::debian::root::Root;
use crate::failure::Failure;

/// Packages whose dependencies include the rest.
const PACKAGES: [&str; 3] = ["python3-pyverbs", "python3-scapy", "iproute2"];

/// Programs that the tests start to query addresses. Busybox's own print less.
const PROGRAMS: [&str; 2] = ["ip", "rdma"];

/// Folder of the tests in the package.
const TESTS: &str = "usr/share/doc/rdma-core/tests";

/// Folders of modules that are not Python's own: pyverbs, and the one that builds packets for the
/// tests.
const MODULES: [&str; 2] =
    ["usr/lib/python3/dist-packages/pyverbs", "usr/lib/python3/dist-packages/scapy"];

/// Modules of Python that no test needs.
const LEFT_OUT: [&str; 14] = [
    "contrib",
    "libs",
    "tools",
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "lib2to3",
    "distutils",
    "ensurepip",
    "pydoc_data",
    "sqlite3",
    "_pyrepl",
    "curses",
];

/// A Python that is unpacked in the cache, with compiled modules.
#[derive(Debug)]
pub(super) struct Python {
    /// Root of its packages.
    pub(super) root: PathBuf,
    /// Name of the program and of its modules' folder.
    name: String,
}

impl Python {
    /// Python of the Debian release that the machine's programs come from; fetched if it is not in
    /// the cache.
    pub(super) fn fetch(cache: &Cache, version: Version, tools: &Tools) -> Result<Self, Failure> {
        let release = version.release();
        let root = cache.part(&format!("python-and-scapy-{release}"), |folder| {
            eprintln!("vm: fetching Python of {release}");
            let apt = Apt::new(&folder.join("apt"), &[release])?;
            apt.unpack(None, &PACKAGES, folder)?;
            remove(&folder.join("apt"))?;
            Self::open(folder)?.prepare(tools)
        })?;
        Self::open(&root)
    }

    fn open(root: &Path) -> Result<Self, Failure> {
        let programs = files(&root.join("usr/bin"))?;
        let mut names = programs.iter().map(|path| name_of(path));
        let name = names.find(|name| name.starts_with("python3.")).ok_or_else(|| {
            Failure::Vm(format!("{} has no Python: {} needs one", root.display(), PACKAGES[0]))
        })?;
        Ok(Self { root: root.to_owned(), name })
    }

    /// Unpacks the tests and compiles all modules. In the guest, with every instruction emulated,
    /// the compilation would take longer than the tests.
    fn prepare(&self, tools: &Tools) -> Result<(), Failure> {
        let tests = self.tests();
        make(&tests)?;
        for path in files(&self.root.join(TESTS))? {
            let name = name_of(&path);
            let bytes = fs::read(&path).map_err(in_file(&path))?;
            let (name, bytes) = match name.strip_suffix(".gz") {
                Some(name) => (name.to_owned(), tools.unpacked(&bytes)?),
                None => (name, bytes),
            };
            let to = tests.join(name);
            fs::write(&to, bytes).map_err(in_file(&to))?;
        }
        let mut command = Root::new(self.root.clone()).command(&self.name);
        command.env("PYTHONHOME", self.root.join("usr")).env_remove("PYTHONPATH");
        // The archive does not keep file times, so the compiled modules must not depend on them.
        command.args(["-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]);
        command.args(["-x", &format!("/({})/", LEFT_OUT.join("|"))]);
        command.arg(self.own_modules()).args(MODULES.map(|of| self.root.join(of))).arg(&tests);
        let output =
            command.output().map_err(|error| Failure::Run { program: self.name.clone(), error })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::Vm(format!("{} cannot compile its modules:\n{said}", self.name)))
    }

    /// The program's path, and its name in the guest.
    pub(super) fn program(&self) -> (PathBuf, &str) {
        (self.root.join("usr/bin").join(&self.name), &self.name)
    }

    /// Programs that the tests start.
    pub(super) fn programs(&self) -> Vec<(PathBuf, &'static str)> {
        let of = |name| {
            let mut paths = ["usr/bin", "usr/sbin", "bin", "sbin"].iter();
            let path = paths.find_map(|folder| {
                let path = self.root.join(folder).join(name);
                // The packages contain absolute links to each other, which do not resolve here.
                path.is_file().then_some(path)
            });
            (path.unwrap_or_else(|| self.root.join(name)), name)
        };
        PROGRAMS.into_iter().map(of).collect()
    }

    /// All files that the program reads: path here, and path in the guest.
    pub(super) fn files(&self) -> Result<Vec<(PathBuf, String)>, Failure> {
        let mut found = Vec::new();
        collect(&self.own_modules(), &format!("lib/{}", self.name), &mut found)?;
        for modules in MODULES {
            let inside = modules.trim_start_matches("usr/");
            collect(&self.root.join(modules), inside, &mut found)?;
        }
        collect(&self.tests(), "root/tests", &mut found)?;
        Ok(found)
    }

    /// Names of the tests' modules.
    pub(super) fn test_modules(&self) -> Result<Vec<String>, Failure> {
        let names = files(&self.tests())?.into_iter().map(|path| name_of(&path));
        let module = |name: String| name.strip_suffix(".py").map(str::to_owned);
        Ok(names.filter_map(module).filter(|name| name.starts_with("test_")).collect())
    }

    fn own_modules(&self) -> PathBuf {
        self.root.join("usr/lib").join(&self.name)
    }

    fn tests(&self) -> PathBuf {
        self.root.join("tests")
    }
}

/// Adds every file below a folder, except those that the guest does not need.
fn collect(folder: &Path, inside: &str, found: &mut Vec<(PathBuf, String)>) -> Result<(), Failure> {
    for path in files(folder)? {
        let name = name_of(&path);
        let needed = !LEFT_OUT.contains(&name.as_str()) && !name.starts_with("config-");
        let inside = format!("{inside}/{name}");
        if path.is_dir() && needed {
            collect(&path, &inside, found)?;
        } else if path.is_file() {
            found.push((path, inside));
        }
    }
    Ok(())
}
