//! `cargo xtask asm`: what the hot functions are compiled to.

pub(crate) mod flow;
pub(crate) mod listing;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::{Profile, program, says};
use crate::failure::Failure;
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
    /// Its path in `mlx5_bench::operations`.
    path: [&'static str; 2],
    /// What all success passes: the doorbell, or the publishing of what was consumed.
    passes: Landmark,
    /// Locks that are taken on the way.
    locks: usize,
}

#[derive(Clone, Copy)]
enum Landmark {
    /// The fence behind a doorbell.
    Doorbell,
    /// The cut of the consumer counter to the bits that the device reads.
    Publishing,
}

impl Landmark {
    fn is(self, instruction: &str) -> bool {
        match self {
            Self::Doorbell => {
                instruction == "sfence"
                    || instruction.starts_with("dsb") && instruction.ends_with("st")
            }
            Self::Publishing => instruction.starts_with("and") && instruction.ends_with("0xffffff"),
        }
    }
}

macro_rules! hot {
    ($($module:ident::$function:ident passes $landmark:ident, locks $locks:literal;)*) => {
        const HOT: &[Hot] = &[$(Hot {
            path: [stringify!($module), stringify!($function)],
            passes: Landmark::$landmark,
            locks: $locks,
        }),*];
    };
}

hot! {
    post::inline8 passes Doorbell, locks 0;
    post::sge passes Doorbell, locks 0;
    post::send passes Doorbell, locks 0;
    post::inline8_shared passes Doorbell, locks 1;
    poll::one passes Publishing, locks 0;
    poll::many passes Publishing, locks 0;
    poll::one_shared passes Publishing, locks 1;
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
        let listing =
            Listing::of(&binutils, &bench, &names, &["operations", hot.path[0], hot.path[1]])?;
        let name = hot.path.join("::");
        let told = match flow::examine(&listing, |line| hot.passes.is(line), hot.locks) {
            Ok(way) => format!("{} instructions, at least {way} of them on the way", listing.len()),
            Err(fault) => {
                faults.push(format!("{name}: {fault}"));
                fault
            }
        };
        println!("{name:24} {told}");
        let path = folder.join(format!("{}.s", hot.path.join("_")));
        if arguments.bless {
            write(&path, &listing.to_string())?;
        } else if compare {
            faults.extend(difference(&path, &listing).map(|fault| format!("{name}: {fault}")));
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
