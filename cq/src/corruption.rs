//! What no honest device writes.

use core::fmt;
use mlx5_prm::cqe::Format;

/// What a completion queue found that no honest device writes. It stays so: nothing after it can be
/// trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Corruption {
    /// An opcode that is not known, or not possible here.
    Opcode(u8),
    /// A user index that no queue ever had which completes so here: sends, or receives.
    UserIndex(u32),
    /// A request that is not outstanding.
    Counter {
        /// User index of the queue.
        user_index: u32,
        /// What should have been the place of a request.
        counter: u16,
    },
    /// A format that the queue's entries cannot have.
    Format(Format),
    /// A message that does not fit into its entry; its length.
    Inline(u32),
    /// Compressed entries of a number that cannot be.
    Run(u32),
    /// The entry that says that the queue was resized is not there.
    Resize,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opcode(opcode) => write!(f, "entry with opcode {opcode:#x}"),
            Self::UserIndex(index) => {
                write!(f, "entry for user index {index:#x}, which no queue has")
            }
            Self::Counter { user_index, counter } => write!(
                f,
                "entry for request {counter:#x} of the queue with user index {user_index:#x}, which is not outstanding"
            ),
            Self::Format(format) => {
                write!(f, "entry of a format that was not asked for: {}", format.text())
            }
            Self::Inline(bytes) => write!(f, "entry with a message of {bytes} bytes in it"),
            Self::Run(count) => write!(f, "run of {count} compressed entries"),
            Self::Resize => f.write_str("resized, but the entry that says so is missing"),
        }
    }
}

impl core::error::Error for Corruption {}
