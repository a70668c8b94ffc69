//! CQEs that no correct device writes.

use core::fmt;
use mlx5_prm::cqe::Format;

/// The reason why a completion queue is corrupt: the device wrote a CQE that no correct device
/// writes. The queue stays corrupt, because nothing after that CQE can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Corruption {
    /// An opcode that is unknown or not possible here.
    Opcode(u8),
    /// A user index that never named a queue whose sends (or receives) complete here.
    UserIndex(u32),
    /// A request that is not outstanding.
    Counter {
        /// User index of the queue.
        user_index: u32,
        /// The counter that should name a request.
        counter: u16,
    },
    /// A format that the queue's CQEs cannot have.
    Format(Format),
    /// The length of inline data that does not fit into its CQE.
    Inline(u32),
    /// A compressed run with an impossible number of CQEs.
    Run(u32),
    /// The resize CQE is missing.
    Resize,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcode(opcode) => write!(f, "CQE with opcode {opcode:#x}"),
            Self::UserIndex(index) => {
                write!(f, "CQE for user index {index:#x}, which no queue has")
            }
            Self::Counter { user_index, counter } => write!(
                f,
                "CQE for request {counter:#x} of the queue with user index {user_index:#x}, which \
                 is not outstanding"
            ),
            Self::Format(format) => {
                write!(f, "CQE of a format that was not requested: {}", format.text())
            }
            Self::Inline(bytes) => write!(f, "CQE with {bytes} bytes of inline data"),
            Self::Run(count) => write!(f, "compressed run of {count} CQEs"),
            Self::Resize => f.write_str("the resize CQE is missing"),
        }
    }
}

impl core::error::Error for Corruption {}
