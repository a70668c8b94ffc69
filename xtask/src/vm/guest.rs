//! A machine's configuration: its parts, its devices, and its steps.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::parts::Parts;

/// Link layer of the ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Link {
    /// InfiniBand
    Ib,
    /// Ethernet, and with it RoCE
    Eth,
}

impl Link {
    /// Both kinds.
    pub(super) const ALL: [Self; 2] = [Self::Ib, Self::Eth];

    /// Name on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ib => "ib",
            Self::Eth => "eth",
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ib => "InfiniBand",
            Self::Eth => "Ethernet",
        })
    }
}

/// Configuration of the device that determines how the kernel's network interfaces receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Receives {
    /// One buffer for each frame
    Cyclic,
    /// Buffers that several frames share; a frame takes one or more strides
    Striding,
    /// As cyclic, on a virtual function that takes only frames for listed addresses
    Filtered,
}

impl Receives {
    /// The device's setting for `--sim`.
    pub(super) fn setting(self) -> &'static str {
        match self {
            Self::Cyclic => "striding=off",
            Self::Striding => "striding=on",
            Self::Filtered => "vport_filter=on",
        }
    }

    /// Suffix of the machine's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Cyclic => "",
            Self::Striding => "-striding",
            Self::Filtered => "-filtered",
        }
    }
}

/// A step that the guest runs.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Name, in one word.
    pub(super) name: String,
    /// Script for the guest's shell.
    pub(super) script: String,
    /// Time limit.
    pub(super) limit: Duration,
    /// Whether the steps after it are skipped if it fails.
    pub(super) needed: bool,
}

impl Step {
    /// A step that the later steps do not need.
    pub(super) fn new(name: impl Into<String>, seconds: u64, script: impl Into<String>) -> Self {
        let (name, script) = (name.into(), script.into());
        Self { name, script, limit: Duration::from_secs(seconds), needed: false }
    }

    /// The same step; the later steps need it.
    pub(super) fn needed(self) -> Self {
        Self { needed: true, ..self }
    }
}

/// A machine: its parts, devices, programs and steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest<'a> {
    pub(super) parts: &'a Parts,
    pub(super) link: Link,
    pub(super) receives: Receives,
    /// Number of devices.
    pub(super) hcas: u32,
    /// Program that serves the devices; needed if there are any.
    pub(super) device: &'a Path,
    /// Programs of the host to copy into the guest.
    pub(super) programs: &'a [PathBuf],
    /// Folder of our libibverbs, if the guest can run it.
    pub(super) verbs: Option<&'a Path>,
    pub(super) steps: &'a [Step],
    /// Whether the machine runs a shell on the terminal instead of the steps.
    pub(super) shell: bool,
    /// Time limit of the whole run.
    pub(super) limit: Duration,
    /// Folder of the logs.
    pub(super) folder: &'a Path,
}
