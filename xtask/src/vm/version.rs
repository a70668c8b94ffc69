//! Kernels of the machines, and the Debian suites that have them.

/// A kernel version; Debian has many builds of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(crate) enum Version {
    /// The oldest kernel that the provider supports
    #[value(name = "5.10")]
    V5_10,
    /// Debian bookworm's kernel
    #[value(name = "6.1")]
    V6_1,
    /// Debian trixie's kernel
    #[value(name = "6.12")]
    V6_12,
    /// The newest kernel in trixie's backports
    Newest,
}

/// Names and sources of a kernel.
pub(super) struct Facts {
    pub(super) name: &'static str,
    /// Prefix of the names of the packages with this kernel's images.
    pub(super) image: &'static str,
    /// Debian suite that has this kernel.
    pub(super) suite: &'static str,
    /// Debian release that the C programs come from.
    pub(super) release: &'static str,
}

impl Version {
    /// Every kernel, the oldest first.
    pub(super) const ALL: [Self; 4] = [Self::V5_10, Self::V6_1, Self::V6_12, Self::Newest];

    pub(super) const fn facts(self) -> Facts {
        let (name, image, suite, release) = match self {
            Self::V5_10 => ("5.10", "linux-image-5.10.", "bullseye", "bullseye"),
            Self::V6_1 => ("6.1", "linux-image-6.1.", "bookworm", "bookworm"),
            Self::V6_12 => ("6.12", "linux-image-6.12.", "trixie", "trixie"),
            // The backports have no rdma-core: a machine with their kernel has trixie's.
            Self::Newest => ("newest", "linux-image-", "trixie-backports", "trixie"),
        };
        Facts { name, image, suite, release }
    }

    /// Name on the command line.
    pub(super) const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Debian release that the machine's C programs come from.
    pub(super) const fn release(self) -> &'static str {
        self.facts().release
    }
}
