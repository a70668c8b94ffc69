//! Debian's kernels: unpacks the image, and finds the modules.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::tools::Tools;
use crate::debian::cache::{files, in_file, name_of};
use crate::elf::Elf;
use crate::failure::Failure;

/// Modules that the machine loads, in this order, each after its dependencies.
const MODULES: [&str; 3] = ["mlx5_core", "ib_uverbs", "mlx5_ib"];

/// Modules that it also loads where it has network interfaces: VLANs, and the connection manager,
/// whose addresses are those of interfaces.
const NETWORK: [&str; 2] = ["8021q", "rdma_ucm"];

/// File name of the unpacked image in the kernel's part of the cache.
const IMAGE: &str = "vmlinux";

/// An unpacked kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    /// Release, as `uname -r` prints it.
    pub(super) release: String,
    /// The image, which QEMU starts by its PVH note.
    pub(super) image: PathBuf,
    modules: BTreeMap<String, PathBuf>,
}

/// A module, ready to be loaded.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
}

impl Kernel {
    /// Unpacks the kernel image of the package that is unpacked in `root`.
    ///
    /// QEMU emulates every instruction, and the kernel's own unpacking is two thirds of the start
    /// time.
    pub(super) fn unpack_image(root: &Path, tools: &Tools) -> Result<(), Failure> {
        let packed = packed(root)?;
        let bytes = fs::read(&packed).map_err(in_file(&packed))?;
        let payload = payload(&bytes).ok_or_else(|| strange(&packed, "no bzImage"))?;
        let image = tools.unpacked(payload)?;
        if Elf::new(&image).is_none() {
            return Err(strange(&packed, "a payload that is no vmlinux"));
        }
        let path = root.join(IMAGE);
        fs::write(&path, image).map_err(in_file(&path))
    }

    /// Opens the kernel in its part of the cache.
    pub(super) fn open(root: &Path) -> Result<Self, Failure> {
        let release = release(root)?;
        let mut modules = BTreeMap::new();
        collect(&release, &mut modules)?;
        Ok(Self { release: name_of(&release), image: root.join(IMAGE), modules })
    }

    /// The modules that the machine loads, in an order in which they can be loaded. `network`
    /// includes those for network interfaces.
    pub(super) fn modules(&self, tools: &Tools, network: bool) -> Result<Vec<Module>, Failure> {
        let mut loaded = Vec::new();
        let network = if network { &NETWORK[..] } else { &[] };
        for name in MODULES.iter().chain(network) {
            self.load(name, tools, &mut loaded)?;
        }
        Ok(loaded)
    }

    fn load(&self, name: &str, tools: &Tools, loaded: &mut Vec<Module>) -> Result<(), Failure> {
        if loaded.iter().any(|module| module.name == name) {
            return Ok(());
        }
        // A module without a file is built into the kernel.
        let Some(path) = self.modules.get(name) else { return Ok(()) };
        let bytes = fs::read(path).map_err(in_file(path))?;
        let content = if Elf::new(&bytes).is_some() { bytes } else { tools.unpacked(&bytes)? };
        let needs = depends(&content).ok_or_else(|| strange(path, "no word on what it needs"))?;
        for need in needs {
            self.load(&need, tools, loaded)?;
        }
        loaded.push(Module { name: name.to_owned(), content });
        Ok(())
    }
}

/// Folder of the modules; its name is the kernel's release.
fn release(root: &Path) -> Result<PathBuf, Failure> {
    let below = ["usr/lib/modules", "lib/modules"].map(|name| root.join(name));
    let folder = below.iter().find(|folder| folder.is_dir());
    let folder = folder.ok_or_else(|| strange(root, "no modules"))?;
    files(folder)?.pop().ok_or_else(|| strange(folder, "no modules"))
}

/// Path of the image in the package: in /boot, or beside the modules.
fn packed(root: &Path) -> Result<PathBuf, Failure> {
    let boot = root.join("boot");
    let in_boot = if boot.is_dir() { files(&boot)? } else { Vec::new() };
    let beside = release(root)?.join("vmlinuz");
    let named = |path: &PathBuf| name_of(path).starts_with("vmlinuz-");
    let found = in_boot.into_iter().find(named).or_else(|| beside.is_file().then_some(beside));
    found.ok_or_else(|| strange(root, "no vmlinuz"))
}

/// The compressed kernel in a bzImage. The kernel's Documentation/arch/x86/boot.rst describes the
/// fields.
fn payload(image: &[u8]) -> Option<&[u8]> {
    const SETUP_SECTORS: usize = 0x1f1;
    const MAGIC: usize = 0x202;
    const PAYLOAD_OFFSET: usize = 0x248;
    const PAYLOAD_LENGTH: usize = 0x24c;
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let number = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?));
    let sectors = match image[SETUP_SECTORS] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (sectors + 1) * 512 + number(PAYLOAD_OFFSET)? as usize;
    let whole = image.get(start..start + number(PAYLOAD_LENGTH)? as usize)?;
    // All forms but gzip's, which contains it, are followed by the unpacked length.
    let end = if whole.starts_with(&[0x1f, 0x8b]) { whole.len() } else { whole.len() - 4 };
    whole.get(..end)
}

/// Names of the modules that a module depends on.
fn depends(module: &[u8]) -> Option<Vec<String>> {
    let lines = Elf::new(module)?.section(".modinfo")?.split(|&byte| byte == 0);
    let mut found = None;
    for line in lines {
        if let Some(list) = line.strip_prefix(b"depends=") {
            let list = std::str::from_utf8(list).ok()?;
            let names = list.split(',').filter(|name| !name.is_empty());
            found = Some(names.map(|name| name.replace('-', "_")).collect());
        }
    }
    found
}

/// Adds every module below a folder, by its name.
fn collect(folder: &Path, modules: &mut BTreeMap<String, PathBuf>) -> Result<(), Failure> {
    for path in files(folder)? {
        let name = name_of(&path);
        if path.is_dir() {
            collect(&path, modules)?;
        } else if let Some((name, _)) = name.split_once(".ko") {
            modules.insert(name.replace('-', "_"), path);
        }
    }
    Ok(())
}

fn strange(path: &Path, what: &str) -> Failure {
    Failure::Vm(format!("{} is not as expected: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_in_boot_or_beside_the_modules() {
        let root = std::env::temp_dir().join(format!("mlx5-vm-image-{}", std::process::id()));
        let modules = root.join("usr/lib/modules/7.3");
        fs::create_dir_all(&modules).expect("a folder");
        assert!(packed(&root).is_err());
        fs::write(modules.join("vmlinuz"), b"").expect("a file");
        assert_eq!(packed(&root).ok(), Some(modules.join("vmlinuz")));
        let boot = root.join("boot");
        fs::create_dir_all(&boot).expect("a folder");
        for name in ["System.map-7.3", "vmlinuz-7.3"] {
            fs::write(boot.join(name), b"").expect("a file");
        }
        assert_eq!(packed(&root).ok(), Some(boot.join("vmlinuz-7.3")));
        fs::remove_dir_all(&root).expect("it is there");
    }

    #[test]
    fn the_payload_is_behind_the_setup_without_its_length() {
        let mut image = vec![0; 0x600];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&0x10_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&0x8_u32.to_le_bytes());
        image[0x410..0x418].copy_from_slice(b"datasize");
        assert_eq!(payload(&image), Some(&b"data"[..]));
        image[0x410..0x412].copy_from_slice(&[0x1f, 0x8b]);
        assert_eq!(payload(&image).map(<[u8]>::len), Some(8));
        assert_eq!(payload(&image[..0x412]), None);
    }
}
