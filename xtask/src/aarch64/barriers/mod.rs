//! Checks that the hot functions have each barrier that the device needs.
//!
//! An emulator on a processor with a stronger memory order does not reveal a missing barrier. So
//! this examines the machine code itself: on every way through a function, stores, loads and
//! barriers must have the order that `mlx5_doorbell` promises.

mod complete;
mod post;
mod walk;

use super::tests::build;
use super::toolchain::Toolchain;
use crate::asm::listing::{Binutils, Listing, Names};
use crate::failure::Failure;

/// The order that a function must keep.
enum Rule {
    /// Request, doorbell record, register.
    Send,
    /// Doorbell record, register.
    Ring,
    /// Register.
    Register,
    /// Request, doorbell record.
    Receive,
    /// A copy to a register, by words of at least eight bytes.
    Copy,
    /// Owner bit, the rest of the completion, the consumer counter.
    Poll,
}

/// Functions to examine, by the end of their path.
const HOT: [(&[&str], Rule); 22] = [
    (&["operations", "post", "inline8"], Rule::Send),
    (&["operations", "post", "sge"], Rule::Send),
    (&["operations", "post", "send"], Rule::Send),
    (&["operations", "post", "fetch_add"], Rule::Send),
    (&["operations", "post", "compare_swap"], Rule::Send),
    (&["operations", "post", "datagram"], Rule::Send),
    (&["operations", "post", "inline8_half"], Rule::Send),
    (&["operations", "post", "inline8_shared"], Rule::Send),
    (&["operations", "post", "sge_shared"], Rule::Send),
    (&["operations", "post", "send_shared"], Rule::Send),
    // The end of batches and lists: a list itself rings no doorbell.
    (&["complete_slow"], Rule::Send),
    // Functions that the ones above call.
    (&["register", "copy_blocks"], Rule::Copy),
    (&["register", "SharedBlueFlame", "write"], Rule::Register),
    (&["register", "SendRegister", "ring_wrapped"], Rule::Ring),
    (&["operations", "receive", "post_recv"], Rule::Receive),
    (&["operations", "receive", "post_srq_recv"], Rule::Receive),
    (&["operations", "receive", "recv"], Rule::Receive),
    (&["operations", "receive", "srq_recv"], Rule::Receive),
    // The first of these calls it for a list of any length.
    (&["receive", "post", "Post", "post_list_rest"], Rule::Receive),
    (&["operations", "poll", "one"], Rule::Poll),
    (&["operations", "poll", "many"], Rule::Poll),
    (&["operations", "poll", "one_shared"], Rule::Poll),
];

/// Examines the hot functions; returns the faults.
pub(super) fn examine(toolchain: &Toolchain) -> Result<Vec<String>, Failure> {
    let bench = build(toolchain, "mlx5-bench")?;
    let binutils = Binutils::aarch64(toolchain.binutils());
    let names = Names::of(&binutils, &bench)?;
    let mut faults = Vec::new();
    for (path, rule) in &HOT {
        let listing = Listing::of(&binutils, &bench, &names, path)?;
        let name = path[path.len().saturating_sub(2)..].join("::");
        let kept = match rule {
            Rule::Send => post::in_order(&listing, &post::SEND),
            Rule::Receive => post::in_order(&listing, &post::RECEIVE),
            Rule::Ring => post::in_order(&listing, post::RING),
            Rule::Register => post::in_order(&listing, post::REGISTER),
            Rule::Copy => post::in_order(&listing, post::COPIES),
            Rule::Poll => complete::in_order(&listing),
        };
        match kept {
            Ok(()) => println!("{name:32} {:4} instructions, in order", listing.len()),
            Err(fault) => faults.push(format!("{name}: {fault}")),
        }
    }
    Ok(faults)
}

#[cfg(test)]
pub(super) mod testing {
    use crate::asm::listing::{Instruction, Listing};

    /// A listing of instructions separated by `;`, where `cbz x0 >N` jumps to the N-th.
    pub(super) fn listing(text: &str) -> Listing {
        let line = |line: &str| {
            let (text, jump) = match line.trim().split_once(" >") {
                Some((text, jump)) => (text, jump.parse().ok()),
                None => (line.trim(), None),
            };
            Instruction { text: text.into(), jump }
        };
        Listing(text.split(';').map(line).collect())
    }
}
