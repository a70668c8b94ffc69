//! `cargo xtask asm`: what the hot functions are compiled to.

pub(crate) mod flow;
pub(crate) mod listing;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{Profile, program, says};
use crate::failure::Failure;
use flow::Allowed;
use listing::{Binutils, Listing, Names};

/// Look at the machine code of the hot functions, as it is released
///
/// On the way of a request or completion that succeeds there is no call and no lock, but for the one
/// of a shared queue; nowhere is there a panic. On x86-64 and with the toolchain that the listings in
/// benches/asm are of, they are what the functions are compiled to, line by line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Write the listings instead of comparing them
    #[arg(long)]
    bless: bool,
}

/// A function that is looked at.
struct Hot {
    /// Its path, or the end of it.
    path: &'static [&'static str],
    /// What all success passes.
    passes: Landmark,
    /// Locks that are taken on the way, and calls: of what is out of line on purpose, which is looked at
    /// itself.
    locks: usize,
    calls: usize,
}

#[derive(Clone, Copy)]
enum Landmark {
    /// The fence behind a doorbell.
    Doorbell,
    /// The cut of the consumer counter to the bits that the device reads.
    Publishing,
    /// The cut of the number of receives to the bits that the device reads.
    Receives,
    /// The start: it is a part of others.
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

/// One a line: one of the operations, or, in brackets, what is out of line in some.
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
    [ReceiveQueue post_list] passes Receives, locks 0, calls 0;
    [SharedReceiveQueue recv_slow] passes Receives, locks 0, calls 0;
    [SharedReceiveQueue extend_run] passes Start, locks 0, calls 0;
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

/// The file with the toolchain that the listings are of.
const TOOLCHAIN: &str = "toolchain.txt";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = program("mlx5-bench", Profile::Release)?;
    let binutils = Binutils::own();
    let names = Names::of(&binutils, &bench)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("benches/asm");
    let toolchain = says(Command::new("rustc").arg("--version"))?;
    let pinned = fs::read_to_string(folder.join(TOOLCHAIN)).unwrap_or_default();
    let compare = cfg!(target_arch = "x86_64") && pinned.trim() == toolchain.trim();
    let mut faults = Vec::new();
    for hot in HOT {
        let path = hot.path.strip_prefix(&["operations"]).unwrap_or(hot.path);
        // Of a generic one there is one for each type.
        for (number, listing) in (1..).zip(Listing::all_of(&binutils, &bench, &names, hot.path)?) {
            let suffix = if number == 1 { String::new() } else { format!("_{number}") };
            let name = path.join("::") + &suffix;
            let allowed = Allowed { locks: hot.locks, calls: hot.calls };
            let told = match flow::examine(&listing, |line| hot.passes.is(line), allowed) {
                Ok(way) => {
                    format!("{} instructions, at least {way} of them on the way", listing.len())
                }
                Err(fault) => {
                    faults.push(format!("{name}: {fault}"));
                    fault
                }
            };
            println!("{name:24} {told}");
            let path = folder.join(format!("{}{suffix}.s", path.join("_")));
            if arguments.bless {
                write(&path, &listing.to_string())?;
            } else if compare {
                faults.extend(difference(&path, &listing).map(|fault| format!("{name}: {fault}")));
            }
        }
    }
    if arguments.bless {
        write(&folder.join(TOOLCHAIN), &toolchain)?;
    } else if !compare {
        println!("not compared line by line: the listings are of {}", pinned.trim());
    }
    if faults.is_empty() { Ok(()) } else { Err(Failure::Code(faults)) }
}

/// Where a listing differs from the one that was reviewed.
fn difference(path: &Path, listing: &Listing) -> Option<String> {
    let reviewed = fs::read_to_string(path).unwrap_or_default();
    let now = listing.to_string();
    let lines = reviewed.lines().map(Some).chain(std::iter::repeat(None));
    let differs = now.lines().zip(lines).position(|(now, reviewed)| Some(now) != reviewed);
    let at = match differs {
        Some(at) => at,
        None if now.lines().count() == reviewed.lines().count() => return None,
        None => now.lines().count(),
    };
    Some(format!(
        "not what was reviewed, from line {} of {} on; look at it, then `cargo xtask asm --bless`",
        at + 1,
        path.display()
    ))
}

fn write(path: &PathBuf, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::File { path: path.clone(), error };
    path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
    fs::write(path, text).map_err(failed)
}
