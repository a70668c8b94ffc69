//! What runs in a machine: its parts, its devices, and the steps that it does.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::parts::Parts;

/// A kind of port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Link {
    /// InfiniBand
    Ib,
    /// Ethernet, which is RoCE
    Eth,
}

impl Link {
    /// Both kinds.
    pub(super) const ALL: [Self; 2] = [Self::Ib, Self::Eth];

    /// As the command line has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ib => "ib",
            Self::Eth => "eth",
        }
    }
}

/// In words.
impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ib => "InfiniBand",
            Self::Eth => "Ethernet",
        })
    }
}

/// How the kernel's network interfaces can receive: a configuration of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Receives {
    /// One frame in each buffer
    Cyclic,
    /// Frames that share buffers, of which each takes strides
    Striding,
    /// Cyclic, and frames for listed addresses alone, as a virtual function
    Filtered,
}

impl Receives {
    /// The device's setting.
    pub(super) fn setting(self) -> &'static str {
        match self {
            Self::Cyclic => "striding=off",
            Self::Striding => "striding=on",
            Self::Filtered => "vport_filter=on",
        }
    }

    /// What is behind the name of a machine.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Cyclic => "",
            Self::Striding => "-striding",
            Self::Filtered => "-filtered",
        }
    }
}

/// Something that the guest does.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// One word.
    pub(super) name: String,
    /// For the guest's shell.
    pub(super) script: String,
    /// The longest that it may take.
    pub(super) limit: Duration,
    /// Whether nothing behind it is of use if it fails.
    pub(super) needed: bool,
}

impl Step {
    /// A step that others do without.
    pub(super) fn new(name: impl Into<String>, seconds: u64, script: impl Into<String>) -> Self {
        let (name, script) = (name.into(), script.into());
        Self { name, script, limit: Duration::from_secs(seconds), needed: false }
    }

    /// The same step, that nothing goes without.
    pub(super) fn needed(self) -> Self {
        Self { needed: true, ..self }
    }
}

/// What runs in a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guest<'a> {
    pub(super) parts: &'a Parts,
    pub(super) link: Link,
    pub(super) receives: Receives,
    /// How many devices there are.
    pub(super) hcas: u32,
    /// The program that serves the devices; needed if there are any.
    pub(super) device: &'a Path,
    /// Programs of this machine that the guest has too.
    pub(super) programs: &'a [PathBuf],
    /// Where our libibverbs is, if the guest can have it.
    pub(super) verbs: Option<&'a Path>,
    pub(super) steps: &'a [Step],
    /// Whether somebody types, in place of the steps.
    pub(super) shell: bool,
    /// The longest that all may take.
    pub(super) limit: Duration,
    /// Where logs are kept.
    pub(super) folder: &'a Path,
}
