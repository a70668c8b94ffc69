//! The kernels of the machines, and where Debian has them.

/// A kernel to run, of which Debian has many builds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(crate) enum Version {
    /// The oldest that the provider supports
    #[value(name = "5.10")]
    V5_10,
    /// Of Debian bookworm
    #[value(name = "6.1")]
    V6_1,
    /// Of Debian trixie
    #[value(name = "6.12")]
    V6_12,
    /// The newest in trixie's backports
    Newest,
}

/// What is known of a kernel.
pub(super) struct Facts {
    pub(super) name: &'static str,
    /// How the names of the packages that have this kernel's images begin.
    pub(super) image: &'static str,
    /// Debian's suite that has this kernel.
    pub(super) suite: &'static str,
    /// Debian's release that the C programs are of.
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
            // The backports have no rdma-core: a machine that has their kernel has trixie's.
            Self::Newest => ("newest", "linux-image-", "trixie-backports", "trixie"),
        };
        Facts { name, image, suite, release }
    }

    /// As the command line has it.
    pub(super) const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Debian's release that the machine's C programs are of.
    pub(super) const fn release(self) -> &'static str {
        self.facts().release
    }
}
