//! Collects the guest's files into its initramfs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::cpio::Archive;
use super::guest::Guest;
use super::kernel::Module;
use super::parts::Parts;
use super::python::Python;
use crate::debian::cache::in_file;
use crate::elf::Elf;
use crate::failure::Failure;

const INIT: &str = include_str!("guest/init.sh");
const COMMON: &str = include_str!("guest/steps.sh");
const NETWORK: &str = include_str!("guest/network.sh");
const FILTERS: &str = include_str!("guest/filters.sh");

/// Folder of all libraries in the guest.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// Folders of libraries in the packages.
const PACKAGED: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// Folder of the programs that rdma-core's tests start, outside the path of the other steps.
pub(super) const BESIDE_PYTHON: &str = "guest/python";

/// Folder of our libraries in the guest, outside the loader's default path, and the name of the
/// library.
pub(super) const VERBS: &str = "guest/verbs";
const OURS: &str = "libibverbs.so.1";

/// Programs of rdma-core in the guest.
const C_PROGRAMS: [&str; 12] = [
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "ibv_uc_pingpong",
    "ibv_ud_pingpong",
    "ibv_srq_pingpong",
    "ibv_xsrq_pingpong",
    "ib_send_lat",
    "ib_send_bw",
    "ib_write_bw",
    "ib_read_lat",
    "ib_atomic_lat",
];

/// Network programs in the guest.
const NETWORK_PROGRAMS: [&str; 7] =
    ["curl", "ethtool", "iperf3", "rping", "tcpdump", "ucmatose", "udaddy"];

/// Programs that busybox also has, in another form, and their folder in the guest.
const BESIDE_BUSYBOX: [&str; 2] = ["ip", "bridge"];
const IPROUTE: &str = "guest/iproute";

/// Libraries that the C library loads by itself: in older releases to look up names in files, and
/// to end a thread.
const LOADED_BY_C: [&str; 2] = ["libnss_files.so.2", "libgcc_s.so.1"];

/// rdma-core's provider, which libibverbs loads by itself.
const PROVIDER: &str = "libmlx5.so.1";

/// Builds the archive for a guest.
pub(super) fn build(guest: &Guest<'_>, modules: &[Module]) -> Result<Vec<u8>, Failure> {
    let python = guest.parts.python.as_ref();
    let Parts { shell, userland, network, .. } = guest.parts;
    // An older userland may have its own busybox; the first root has precedence.
    let roots = [Some(shell), Some(userland), Some(network), python.map(|python| &python.root)];
    let mut tree = Tree::new(roots.into_iter().flatten().map(PathBuf::as_path).collect());
    tree.folder("dev");
    // The kernel opens it as the first process' files before anything is mounted.
    tree.archive.device("dev/console", 5, 1);
    tree.folder("usr");
    tree.archive.link("usr/lib", "../lib");
    tree.archive.link("usr/bin", "../bin");
    tree.archive.link("sbin", "bin");

    let busybox = tree.packaged("busybox")?;
    tree.copy("bin/busybox", &busybox)?;
    tree.file("init", INIT.as_bytes());
    tree.file("guest/steps.sh", COMMON.as_bytes());
    tree.file("guest/network.sh", NETWORK.as_bytes());
    tree.file("guest/filters.sh", FILTERS.as_bytes());
    tree.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n");
    tree.file("etc/hosts", b"127.0.0.1 localhost\n::1 localhost\n");
    tree.file("etc/nsswitch.conf", b"passwd: files\nhosts: files\n");

    for program in C_PROGRAMS.iter().chain(&NETWORK_PROGRAMS) {
        let path = tree.packaged(program)?;
        tree.program(&format!("bin/{program}"), &path)?;
    }
    for program in BESIDE_BUSYBOX {
        let path = tree.packaged(program)?;
        tree.program(&format!("{IPROUTE}/{program}"), &path)?;
    }
    for name in LOADED_BY_C {
        tree.program(&format!("{LIBRARIES}/{name}"), &tree.library(name)?)?;
    }
    tree.provider()?;
    if let Some(python) = python {
        tree.python(python)?;
    }
    for path in guest.programs {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        tree.program(&format!("bin/{name}"), path)?;
    }

    if let Some(folder) = guest.verbs {
        tree.program(&format!("{VERBS}/{OURS}"), &folder.join(OURS))?;
        tree.archive.link(&format!("{VERBS}/{PROVIDER}"), OURS);
    }

    let names: Vec<&str> = modules.iter().map(|module| module.name.as_str()).collect();
    tree.file("guest/modules", names.join("\n").as_bytes());
    for module in modules {
        tree.file(&format!("guest/modules.d/{}", module.name), &module.content);
    }
    let settings = format!("HCAS={}\nLINK={}\nexport HCAS LINK\n", guest.hcas, guest.link.name());
    tree.file("guest/machine", settings.as_bytes());
    let mut list = String::new();
    for step in guest.steps {
        let needed = if step.needed { "needed" } else { "-" };
        list.push_str(&format!("{} {} {needed}\n", step.name, step.limit.as_secs()));
        let script = format!(". /guest/steps.sh\n{}\n", step.script);
        tree.file(&format!("guest/steps/{}", step.name), script.as_bytes());
    }
    tree.file("guest/list", list.as_bytes());
    if guest.shell {
        tree.file("guest/shell", b"");
    }
    Ok(tree.archive.finish())
}

/// An archive, and the folders and libraries that its files need.
struct Tree<'a> {
    archive: Archive,
    /// Roots of the unpacked packages; the first that has a file supplies it.
    roots: Vec<&'a Path>,
    /// Names that the archive contains already.
    names: BTreeSet<String>,
}

impl<'a> Tree<'a> {
    fn new(roots: Vec<&'a Path>) -> Self {
        Self { archive: Archive::default(), roots, names: BTreeSet::new() }
    }

    /// Adds a folder and its parents.
    fn folder(&mut self, name: &str) {
        if let Some((above, _)) = name.rsplit_once('/') {
            self.folder(above);
        }
        if self.names.insert(name.to_owned()) {
            self.archive.folder(name);
        }
    }

    fn file(&mut self, name: &str, content: &[u8]) {
        if let Some((above, _)) = name.rsplit_once('/') {
            self.folder(above);
        }
        if self.names.insert(name.to_owned()) {
            self.archive.file(name, content);
        }
    }

    fn copy(&mut self, name: &str, path: &Path) -> Result<Vec<u8>, Failure> {
        let content = fs::read(path).map_err(in_file(path))?;
        self.file(name, &content);
        Ok(content)
    }

    /// Adds a program with its loader and libraries.
    fn program(&mut self, name: &str, path: &Path) -> Result<(), Failure> {
        let content = self.copy(name, path)?;
        let Some(elf) = Elf::new(&content) else { return Ok(()) };
        if let Some(loader) = elf.interpreter() {
            let file = loader.rsplit('/').next().unwrap_or(loader);
            let path = self.library(file)?;
            self.copy(loader.trim_start_matches('/'), &path)?;
        }
        self.libraries(&elf)
    }

    fn libraries(&mut self, elf: &Elf<'_>) -> Result<(), Failure> {
        for name in elf.needed() {
            let inside = format!("{LIBRARIES}/{name}");
            if self.names.contains(&inside) {
                continue;
            }
            let path = self.library(name)?;
            let content = self.copy(&inside, &path)?;
            if let Some(elf) = Elf::new(&content) {
                self.libraries(&elf)?;
            }
        }
        Ok(())
    }

    /// Adds rdma-core's provider for mlx5 under the name that libibverbs looks for, and the file
    /// that registers it with libibverbs.
    fn provider(&mut self) -> Result<(), Failure> {
        let path = self.library(PROVIDER)?;
        self.program(&format!("{LIBRARIES}/{PROVIDER}"), &path)?;
        for folder in self.below(&PACKAGED, "libibverbs") {
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries {
                let name = entry.map_err(in_file(&folder))?.file_name();
                let name = name.to_string_lossy();
                if name.starts_with("libmlx5") {
                    self.folder(&format!("{LIBRARIES}/libibverbs"));
                    let inside = format!("{LIBRARIES}/libibverbs/{name}");
                    if self.names.insert(inside.clone()) {
                        self.archive.link(&inside, &format!("../{PROVIDER}"));
                    }
                }
            }
        }
        self.file("etc/libibverbs.d/mlx5.driver", b"driver mlx5\n");
        Ok(())
    }

    /// Adds Python with its modules, and the tests.
    fn python(&mut self, python: &Python) -> Result<(), Failure> {
        let (path, name) = python.program();
        self.program(&format!("bin/{name}"), &path)?;
        self.archive.link("bin/python3", name);
        for (path, name) in python.programs() {
            self.program(&format!("{BESIDE_PYTHON}/{name}"), &path)?;
        }
        for (path, inside) in python.files()? {
            let content = self.copy(&inside, &path)?;
            if let Some(elf) = Elf::new(&content) {
                self.libraries(&elf)?;
            }
        }
        Ok(())
    }

    /// Candidate paths of a file, in order of precedence.
    fn below(&self, folders: &[&str], name: &str) -> Vec<PathBuf> {
        let of = |root: &&Path| -> Vec<PathBuf> {
            folders.iter().map(|folder| root.join(folder).join(name)).collect()
        };
        self.roots.iter().flat_map(of).collect()
    }

    /// Path of a program in the packages.
    fn packaged(&self, program: &str) -> Result<PathBuf, Failure> {
        self.find(&["usr/bin", "bin", "usr/sbin", "sbin"], program)
    }

    /// Path of a library in the packages.
    fn library(&self, name: &str) -> Result<PathBuf, Failure> {
        self.find(&PACKAGED, name)
    }

    fn find(&self, folders: &[&str], name: &str) -> Result<PathBuf, Failure> {
        let paths = self.below(folders, name);
        paths.into_iter().find(|path| path.exists()).ok_or_else(|| {
            Failure::Vm(format!("the guest's packages have no {name}: a program needs it there"))
        })
    }
}
