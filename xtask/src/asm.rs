//! `cargo xtask asm`: checks the machine code of the hot functions.

pub(crate) mod flow;
pub(crate) mod listing;

use crate::build::{Profile, program};
use crate::failure::Failure;
use flow::Allowed;
use listing::{Binutils, Listing, Names};

/// Check the machine code of the hot functions as it is released
///
/// The path of a successful request or completion has no call and no lock, except the lock of a
/// shared queue. No reachable code panics or divides. A doorbell is between two barriers, and after
/// the second one the function stores only the queue's own data about the register. This holds with
/// any toolchain.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// A function to check.
struct Hot {
    /// Its path, or the end of its path.
    path: &'static [&'static str],
    /// The instruction that every successful way passes.
    passes: Landmark,
    /// Locks that the way takes, and calls: of functions that are out of line on purpose and are
    /// checked themselves.
    locks: usize,
    calls: usize,
}

#[derive(Clone, Copy)]
enum Landmark {
    /// The fence after a doorbell.
    Doorbell,
    /// The mask that cuts the consumer counter to the bits that the device reads.
    Publishing,
    /// The cut of the number of receives to the bits that the device reads.
    Receives,
    /// The start: the function is a part of others.
    Start,
}

impl Landmark {
    fn is(self, instruction: &str) -> bool {
        match self {
            Self::Doorbell => {
                instruction == "sfence"
                    || instruction.starts_with("dsb") && instruction.ends_with("st")
            }
            Self::Publishing => instruction.starts_with("and") && instruction.ends_with("0xffffff"),
            Self::Receives => {
                let of_word = |register: &str| {
                    register.ends_with('w') && register.starts_with('r')
                        || ["ax", "bx", "cx", "dx", "si", "di", "bp"].contains(&register)
                };
                instruction.strip_prefix("movzx ").is_some_and(|operands| {
                    operands.split_once(',').is_some_and(|(_, from)| of_word(from))
                }) || instruction.starts_with("rev16")
            }
            Self::Start => true,
        }
    }
}

/// One function per line: an operation, or, in brackets, a function that some operations keep out
/// of line.
macro_rules! hot {
    ($($path:tt $(::$function:ident)? passes $landmark:ident, locks $locks:literal, calls $calls:literal;)*) => {
        const HOT: &[Hot] = &[$(Hot {
            path: hot!(@ $path $($function)?),
            passes: Landmark::$landmark,
            locks: $locks,
            calls: $calls,
        }),*];
    };
    (@ $module:ident $function:ident) => {
        &["operations", stringify!($module), stringify!($function)]
    };
    (@ [$($part:ident)*]) => { &[$(stringify!($part)),*] };
}

hot! {
    post::inline8 passes Doorbell, locks 0, calls 0;
    post::sge passes Doorbell, locks 0, calls 0;
    post::send passes Doorbell, locks 0, calls 0;
    post::batch_inline8 passes Doorbell, locks 0, calls 0;
    post::batch_array8 passes Doorbell, locks 0, calls 0;
    post::batch_sge passes Doorbell, locks 0, calls 0;
    post::list passes Start, locks 0, calls 1;
    [post_send_iter] passes Doorbell, locks 0, calls 1;
    post::inline8_shared passes Doorbell, locks 1, calls 0;
    locked::batch_inline8 passes Doorbell, locks 1, calls 0;
    locked::batch_sge passes Doorbell, locks 1, calls 0;
    receive::post_recv passes Receives, locks 0, calls 0;
    receive::post_srq_recv passes Receives, locks 0, calls 0;
    receive::srq_recv passes Receives, locks 0, calls 0;
    [Post post_list_rest] passes Receives, locks 0, calls 0;
    [Post recv_rest] passes Receives, locks 0, calls 1;
    [add_any] passes Start, locks 0, calls 0;
    poll::one passes Publishing, locks 0, calls 0;
    poll::many passes Publishing, locks 0, calls 0;
    poll::empty passes Start, locks 0, calls 0;
    poll::one_shared passes Publishing, locks 1, calls 0;
    [find_completion] passes Start, locks 0, calls 0;
    [Run expand] passes Start, locks 0, calls 0;
    mkey::configure passes Doorbell, locks 1, calls 1;
    [Journal settle] passes Start, locks 0, calls 1;
    ethernet::send passes Doorbell, locks 0, calls 0;
    ethernet::receive passes Publishing, locks 0, calls 0;
    ethernet::send_multi passes Doorbell, locks 0, calls 1;
    ethernet::receive_multi passes Start, locks 0, calls 2;
    ethernet::forward_multi passes Start, locks 0, calls 2;
    [each_behind] passes Start, locks 0, calls 0;
}

pub(crate) fn run(_: &Arguments) -> Result<(), Failure> {
    let bench = program("mlx5-bench", Profile::Release)?;
    let binutils = Binutils::own();
    let names = Names::of(&binutils, &bench)?;
    let mut faults = Vec::new();
    for hot in HOT {
        let path = hot.path.strip_prefix(&["operations"]).unwrap_or(hot.path);
        // A generic function has one listing for each type.
        for (number, listing) in (1..).zip(Listing::all_of(&binutils, &bench, &names, hot.path)?) {
            let suffix = if number == 1 { String::new() } else { format!("_{number}") };
            let name = path.join("::") + &suffix;
            let allowed = Allowed { locks: hot.locks, calls: hot.calls };
            let mut checked = flow::examine(&listing, |line| hot.passes.is(line), allowed);
            if let (Landmark::Doorbell, Ok(_)) = (hot.passes, &checked) {
                let rung = flow::rings_last(&listing, |line| Landmark::Doorbell.is(line));
                checked = checked.and_then(|length| rung.map(|()| length));
            }
            match checked {
                Ok(way) => {
                    let length = listing.len();
                    println!("{name:24} {length} instructions, {way} on the shortest path");
                }
                Err(fault) => {
                    println!("{name:24} {fault}");
                    faults.push(format!("{name}: {fault}"));
                }
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Code(faults)) }
}
