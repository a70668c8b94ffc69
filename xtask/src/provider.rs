//! Whose libibverbs and libmlx5 a program runs over.

/// Whose libraries a program finds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(crate) enum Provider {
    /// rdma-core's, also where programs would find ours.
    C,
    /// This provider's, from target/verbs.
    Rust,
}

impl Provider {
    /// Every one.
    pub(crate) const ALL: [Self; 2] = [Self::C, Self::Rust];

    /// As the command line and the ledger have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Rust => "rust",
        }
    }
}
