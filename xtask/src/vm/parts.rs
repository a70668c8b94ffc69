//! The parts of a machine: fetched packages, and programs of this machine.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::kernel::Kernel;
use super::python::Python;
use super::tools::Tools;
use super::version::{Facts, Version};
use crate::debian::apt::Apt;
use crate::debian::cache::{Cache, remove};
use crate::failure::Failure;

/// Debian's release that has the tools, and its backports, which have QEMU.
const TOOLS: [&str; 2] = ["trixie", "trixie-backports"];

/// QEMU's device that takes a PCI function from another process.
const VFIO_USER: &str = "vfio-user-pci";

/// Packages in the guest, besides the kernel and our own programs.
const USERLAND: [&str; 3] = ["ibverbs-providers", "ibverbs-utils", "perftest"];

/// The guest's shell and tools. The program needs none of the guest's libraries, and older releases
/// cannot move an interface to another namespace, so every guest has the build in [`TOOLS`].
const SHELL: &str = "busybox-static";

/// Packages for the kernel's network interfaces and the connection manager.
const NETWORK: [&str; 6] = ["curl", "ethtool", "iperf3", "iproute2", "rdmacm-utils", "tcpdump"];

/// The parts of a machine with one kernel.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) tools: Tools,
    pub(super) kernel: Kernel,
    /// Root of the package with busybox.
    pub(super) shell: PathBuf,
    /// Root of the packages with the guest's C programs.
    pub(super) userland: PathBuf,
    /// Root of the packages with the network programs.
    pub(super) network: PathBuf,
    /// Python, which only some machines have.
    pub(super) python: Option<Python>,
}

impl Parts {
    /// Fetches the parts that are not in the cache.
    pub(super) fn fetch(cache: &Cache, version: Version) -> Result<Self, Failure> {
        let tools = tools(cache).map_err(|failure| match failure {
            // No kernel runs without QEMU, so this is a failure and not a reason to skip one
            // kernel.
            Failure::Unfetched(what) => Failure::Vm(format!("QEMU cannot be fetched: {what}")),
            other => other,
        })?;
        let Facts { name, image, suite, release } = version.facts();
        let kernel = cache.part(&format!("kernel-{name}"), |folder| {
            eprintln!("vm: fetching the kernel {name} of {suite}");
            let apt = Apt::new(&folder.join("apt"), &[suite])?;
            for package in packages(&apt, image)? {
                apt.unpack_one(None, &package, folder)?;
            }
            Kernel::unpack_image(folder, &tools)?;
            remove(&folder.join("apt"))
        })?;
        let [release_of_tools, _] = TOOLS;
        let shell = cache.part(&format!("busybox-{release_of_tools}"), |folder| {
            eprintln!("vm: fetching busybox of {release_of_tools}");
            let apt = Apt::new(&folder.join("apt"), &[release_of_tools])?;
            apt.unpack_one(None, SHELL, folder)?;
            remove(&folder.join("apt"))
        })?;
        let userland = cache.part(&format!("userland-{release}"), |folder| {
            eprintln!("vm: fetching the C programs of {release}");
            let apt = Apt::new(&folder.join("apt"), &[release])?;
            apt.unpack(None, &USERLAND, folder)?;
            remove(&folder.join("apt"))
        })?;
        let network =
            cache.part(&format!("network-{}-{release}", NETWORK.join("-")), |folder| {
                eprintln!("vm: fetching the programs for the network of {release}");
                let apt = Apt::new(&folder.join("apt"), &[release])?;
                apt.unpack(None, &NETWORK, folder)?;
                remove(&folder.join("apt"))
            })?;
        let kernel = Kernel::open(&kernel)?;
        Ok(Self { tools, kernel, shell, userland, network, python: None })
    }

    /// Fetches Python too, if the machine needs it.
    pub(super) fn with_python(
        mut self,
        cache: &Cache,
        version: Version,
        wanted: bool,
    ) -> Result<Self, Failure> {
        if wanted {
            self.python = Some(Python::fetch(cache, version, &self.tools)?);
        }
        Ok(self)
    }
}

/// Package that depends on the newest build of a suite's kernel.
const NEWEST_BUILD: &str = "linux-image-cloud-amd64";

/// Packages that have a kernel's image and its modules: one with both, or two that the build
/// depends on.
fn packages(apt: &Apt, image: &str) -> Result<Vec<String>, Failure> {
    let builds = apt.depends(NEWEST_BUILD)?;
    let build = builds.into_iter().find(|name| name.starts_with(image));
    let build = build.ok_or_else(|| Failure::Output {
        program: "apt-cache".into(),
        what: format!("no {image}* that {NEWEST_BUILD} depends on"),
    })?;
    let behind = apt.depends(&build)?;
    Ok(contents(build, behind))
}

/// Packages of a kernel build whose package depends on `behind`.
fn contents(build: String, behind: Vec<String>) -> Vec<String> {
    let apart =
        |name: &String| ["linux-binary-", "linux-modules-"].iter().any(|of| name.starts_with(of));
    let parts: Vec<String> = behind.into_iter().filter(apart).collect();
    if parts.is_empty() { vec![build] } else { parts }
}

/// QEMU and the unpackers. Uses this machine's own QEMU if that has [`VFIO_USER`].
fn tools(cache: &Cache) -> Result<Tools, Failure> {
    let own = own_qemu();
    let name = if own { "unpackers" } else { "qemu" };
    let root = cache.part(name, |folder| {
        eprintln!("vm: fetching {name} of {}", TOOLS[1]);
        let apt = Apt::new(&folder.join("apt"), &TOOLS)?;
        let packages = if own { &Tools::PACKAGES[1..] } else { &Tools::PACKAGES[..] };
        apt.unpack(Some(TOOLS[1]), packages, folder)?;
        remove(&folder.join("apt"))
    })?;
    Ok(Tools::new(root, own))
}

/// Whether this machine has a QEMU that can use a device of another process.
fn own_qemu() -> bool {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-device", "help"]).stderr(Stdio::null());
    let output = command.output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VFIO_USER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_one_package_or_its_image_and_its_modules_apart() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let behind = names(&["kmod", "linux-base"]);
        assert_eq!(contents("linux-image-1".into(), behind), ["linux-image-1"]);
        let behind = names(&["dracut", "linux-base-2", "linux-binary-2", "linux-modules-2"]);
        assert_eq!(contents("linux-image-2".into(), behind), ["linux-binary-2", "linux-modules-2"]);
    }
}
