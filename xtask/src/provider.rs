//! The provider of libibverbs and libmlx5 that a program runs over.

/// The libraries that a program finds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(crate) enum Provider {
    /// rdma-core's, also on a system whose programs find ours by themselves.
    C,
    /// This provider's, from target/verbs.
    Rust,
}

impl Provider {
    /// All providers.
    pub(crate) const ALL: [Self; 2] = [Self::C, Self::Rust];

    /// Name on the command line and in the ledger.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Rust => "rust",
        }
    }
}
