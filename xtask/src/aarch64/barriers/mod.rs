//! Whether each barrier of the hot functions stands where the device needs it.
//!
//! An emulator on a processor of stronger memory order shows no barrier that is missing. So the machine
//! code itself is looked at: on every way through a function, stores, loads and barriers have to come in
//! the order that `mlx5_doorbell` promises.

mod complete;
mod post;
mod walk;

use super::tests::build;
use super::toolchain::Toolchain;
use crate::asm::listing::{Binutils, Listing, Names, mangled};
use crate::failure::Failure;

/// What a function has to keep.
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

/// The functions that are looked at, by the end of their path.
const HOT: [(&[&str], Rule); 19] = [
    (&["operations", "post", "inline8"], Rule::Send),
    (&["operations", "post", "sge"], Rule::Send),
    (&["operations", "post", "send"], Rule::Send),
    (&["operations", "post", "fetch_add"], Rule::Send),
    (&["operations", "post", "compare_swap"], Rule::Send),
    (&["operations", "post", "datagram"], Rule::Send),
    (&["operations", "post", "inline8_shared"], Rule::Send),
    (&["operations", "post", "sge_shared"], Rule::Send),
    (&["operations", "post", "send_shared"], Rule::Send),
    // What batches and lists end in: a list itself rings no doorbell.
    (&["complete_slow"], Rule::Send),
    (&["complete_before_refused"], Rule::Send),
    // What these call.
    (&["register", "copy_blocks"], Rule::Copy),
    (&["register", "SharedBlueFlame", "write"], Rule::Register),
    (&["register", "SendRegister", "ring_wrapped"], Rule::Ring),
    (&["operations", "receive", "post_recv"], Rule::Receive),
    (&["operations", "receive", "post_srq_recv"], Rule::Receive),
    (&["operations", "poll", "one"], Rule::Poll),
    (&["operations", "poll", "many"], Rule::Poll),
    (&["operations", "poll", "one_shared"], Rule::Poll),
];

/// What is looked at instead of a function that jumps to it: the compiler may put it into that function,
/// or not.
const BEHIND: [&[&str]; 2] = [
    &["mlx5_wqe", "receive", "queue", "ReceiveQueue", "post_recv"],
    &["mlx5_wqe", "receive", "shared", "SharedReceiveQueue", "post_recv"],
];

/// Which of these a function jumps to.
fn behind(listing: &Listing) -> Option<&'static [&'static str]> {
    let jumps = |to: &str| {
        listing
            .0
            .iter()
            .any(|line| line.text.strip_prefix("b ").is_some_and(|name| name.ends_with(to)))
    };
    BEHIND.into_iter().find(|path| jumps(&mangled(path)))
}

/// Looks at the hot functions; answers what is wrong.
pub(super) fn examine(toolchain: &Toolchain) -> Result<Vec<String>, Failure> {
    let bench = build(toolchain, "mlx5-bench")?;
    let binutils = Binutils::aarch64(toolchain.binutils());
    let names = Names::of(&binutils, &bench)?;
    let mut faults = Vec::new();
    for (path, rule) in &HOT {
        let mut listing = Listing::of(&binutils, &bench, &names, path)?;
        if let Some(path) = behind(&listing) {
            listing = Listing::of(&binutils, &bench, &names, path)?;
        }
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
mod tests {
    use super::behind;
    use super::testing::listing;

    #[test]
    fn a_jump_out_of_a_function_is_followed_and_a_call_is_not() {
        let name = "_ZN8mlx5_wqe7receive5queue12ReceiveQueue9post_recv";
        let followed = behind(&listing(&format!("cbz x0 >2; b {name}; ret")));
        assert_eq!(followed.and_then(|path| path.last()), Some(&"post_recv"));
        assert_eq!(behind(&listing(&format!("bl {name}; ret"))), None);
        assert_eq!(behind(&listing("b >1; ret")), None);
    }
}

#[cfg(test)]
pub(super) mod testing {
    use crate::asm::listing::{Instruction, Listing};

    /// A listing of `;`-separated instructions; `cbz x0 >N` jumps to the N-th.
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
