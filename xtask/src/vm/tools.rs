//! Programs of this machine or of unpacked packages: QEMU, and the unpackers for kernels and
//! modules.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::debian::root::Root;
use crate::failure::Failure;

/// Compression formats of kernels and modules: the first bytes, and the program that unpacks them.
const PACKED: [(&[u8], &str); 4] = [
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
    (&[0x02, 0x21, 0x4c, 0x18], "lz4"),
    (&[0x1f, 0x8b], "gzip"),
];

/// Programs in a folder of packages that are unpacked, not installed.
#[derive(Debug)]
pub(super) struct Tools {
    root: Root,
    /// Whether to use this machine's own QEMU.
    own_qemu: bool,
}

impl Tools {
    /// Packages that have the tools, QEMU's first.
    pub(super) const PACKAGES: [&str; 5] = ["qemu-system-x86", "xz-utils", "zstd", "lz4", "gzip"];

    /// Programs below `root`.
    pub(super) fn new(root: PathBuf, own_qemu: bool) -> Self {
        Self { root: Root::new(root), own_qemu }
    }

    /// A command that starts QEMU with its firmware.
    pub(super) fn qemu(&self) -> Command {
        const QEMU: &str = "qemu-system-x86_64";
        if self.own_qemu {
            return Command::new(QEMU);
        }
        let mut command = self.root.command(QEMU);
        for folder in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.root.join(folder));
        }
        command
    }

    /// Unpacks `bytes`.
    pub(super) fn unpacked(&self, bytes: &[u8]) -> Result<Vec<u8>, Failure> {
        let tool = PACKED.iter().find(|(magic, _)| bytes.starts_with(magic));
        let Some((_, tool)) = tool else {
            let begins = bytes.get(..8).unwrap_or(bytes);
            return Err(Failure::Vm(format!("packed in a way unknown here: {begins:02x?}")));
        };
        let failed = |error| Failure::Run { program: (*tool).to_owned(), error };
        let mut child = self
            .root
            .command(tool)
            .args(["-d", "-c"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut into = child.stdin.take().expect("it is piped");
        let output = std::thread::scope(|scope| {
            // A pipe has limited capacity: one thread must write while another reads.
            scope.spawn(move || into.write_all(bytes));
            child.wait_with_output()
        })
        .map_err(failed)?;
        if !output.status.success() {
            return Err(Failure::Status { program: (*tool).to_owned(), status: output.status });
        }
        Ok(output.stdout)
    }
}
