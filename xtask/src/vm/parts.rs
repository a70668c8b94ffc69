//! What the machine is made of, and where it comes from.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::kernel::Kernel;
use super::python::Python;
use super::tools::Tools;
use crate::debian::apt::Apt;
use crate::debian::cache::{Cache, remove};
use crate::failure::Failure;

/// A kernel to run, of which Debian has many builds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Version {
    /// The oldest that the provider supports
    #[value(name = "6.1")]
    V6_1,
    /// A newer one
    #[value(name = "6.12")]
    V6_12,
}

impl Version {
    /// Every kernel that the whole run takes.
    pub(super) const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    /// As the command line has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// Debian's release that has this kernel; the C programs are of the same.
    pub(super) fn suite(self) -> &'static str {
        match self {
            Self::V6_1 => "bookworm",
            Self::V6_12 => "trixie",
        }
    }
}

/// Debian's release that has the tools, and its backports, which have the QEMU.
const TOOLS: [&str; 2] = ["trixie", "trixie-backports"];

/// The device that QEMU needs to have.
const VFIO_USER: &str = "vfio-user-pci";

/// What the guest has beside the kernel and our own programs.
const USERLAND: [&str; 4] = ["busybox-static", "ibverbs-providers", "ibverbs-utils", "perftest"];

/// All that a machine with one kernel is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) tools: Tools,
    pub(super) kernel: Kernel,
    /// The root below which the guest's C programs and busybox are.
    pub(super) userland: PathBuf,
    /// What only some machines have.
    pub(super) python: Option<Python>,
}

impl Parts {
    /// Fetches what is not in the cache.
    pub(super) fn fetch(cache: &Cache, version: Version) -> Result<Self, Failure> {
        let tools = tools(cache)?;
        let suite = version.suite();
        let kernel = cache.part(&format!("kernel-{}", version.name()), |folder| {
            eprintln!("vm: fetching the kernel {} of {suite}", version.name());
            let apt = Apt::new(&folder.join("apt"), &[suite])?;
            let package =
                apt.behind("linux-image-cloud-amd64", &format!("linux-image-{}.", version.name()))?;
            apt.unpack_one(&package, folder)?;
            Kernel::unpack_image(folder, &tools)?;
            remove(&folder.join("apt"))
        })?;
        let userland = cache.part(&format!("userland-{suite}"), |folder| {
            eprintln!("vm: fetching the C programs of {suite}");
            let apt = Apt::new(&folder.join("apt"), &[suite])?;
            apt.unpack(None, &USERLAND, folder)?;
            remove(&folder.join("apt"))
        })?;
        Ok(Self { tools, kernel: Kernel::open(&kernel)?, userland, python: None })
    }

    /// Fetches Python too, if the machine is to have it.
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

/// QEMU and the unpackers. This machine's own QEMU does where it can.
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

/// Whether this machine has a QEMU that can be given a device by another process.
fn own_qemu() -> bool {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-device", "help"]).stderr(Stdio::null());
    let output = command.output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VFIO_USER))
}
