//! Faults of rdma-core's provider, seen by execution. Our driver has to be right in the same cases:
//! by its own API, and by the C API, in the same C program.
//!
//! Each fault runs in a process of its own, because some never end, and some end the process. A
//! fault that no longer occurs fails the oracle, and so does any other unexpected answer of either
//! side.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use mlx5_sim::Simulator;

use self::ours::Side;
use self::table::{AT_DOOR, FAULTS};
use crate::compare::{Comparison, Difference};
use crate::failure::Failure;

mod ours;
mod table;

/// The C program's answers to one fault's script, over rdma-core's library and over ours.
struct Said {
    peer: Vec<String>,
    door: Vec<String>,
}

/// The thread that runs the C program for each fault, and returns the answers.
pub(crate) struct Peers(JoinHandle<Result<Vec<Said>, Failure>>);

/// Runs the C program, over the library in `folder` if there is one.
fn said(
    program: &Path,
    library: &Path,
    folder: Option<&Path>,
    commands: &[String],
) -> Result<Vec<String>, Failure> {
    let mut process = Command::new(program);
    if let Some(folder) = folder {
        process.env("LD_LIBRARY_PATH", folder);
    }
    process.env("LD_PRELOAD", library).env("MLX5_SIM", "step,link=ib");
    process.env("MLX5_DEBUG_FILE", "/dev/null");
    let mut child = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or(Failure::Missing("the C program's input"))?;
    // A program that ends early explains itself in its output, and does not read on.
    let written = input.write_all((commands.join("\n") + "\n").as_bytes());
    drop(input);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(Failure::Peer(output.status));
    }
    written?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Starts the C programs. Some of them wait for completions that never come, so they run while the
/// other side works.
pub(crate) fn start(program: PathBuf, library: PathBuf, verbs: PathBuf) -> Peers {
    Peers(std::thread::spawn(move || {
        let run = |fault: &table::Fault| {
            let commands = fault.commands();
            let peer = said(&program, &library, None, &commands)?;
            let door = said(&program, &library, Some(&verbs), &commands)?;
            Ok(Said { peer, door })
        };
        FAULTS.iter().map(run).collect()
    }))
}

/// Compares the answers of both sides with the known ones.
pub(crate) fn compare(
    peers: Peers,
    machine: impl Fn() -> Simulator,
) -> Result<Vec<Comparison>, Failure> {
    let peers = peers.0.join().map_err(|_| Failure::Missing("a thread that ends"))??;
    let mut comparisons = Vec::new();
    for (fault, Said { peer, door }) in FAULTS.iter().zip(peers) {
        let simulator = machine();
        let ours = Side::new(&simulator)?.run(&fault.commands())?;
        let mut differences = Vec::new();
        let at_door = AT_DOOR.iter().find(|(name, ..)| *name == fault.name);
        let at_door = at_door.map_or(fault.ours, |(_, known, _)| known);
        for (side, known, said) in [
            ("rdma-core", fault.peer, peer),
            ("ours", fault.ours, ours),
            ("ours by the C API", at_door, door),
        ] {
            if known != said {
                let id = format!("fault/{}", fault.name);
                let (peer, ours) = (known.join("; "), said.join("; "));
                let place = format!("{side}: what is known, and what was said");
                differences.push(Difference { id, place, peer, ours });
            }
        }
        comparisons.push(Comparison { kind: "fault", differences });
    }
    Ok(comparisons)
}

/// The table for the document.
pub(crate) fn document() -> String {
    let mut text = String::from(
        "### Faults of rdma-core's provider, reproduced\n\n\
         Each ran in its own process, with unmodified libmlx5 on the simulated device, which executes \
         nothing:\ncompletions and the drained position are synthetic. This driver did the same, by its own \
         API and, in the same C program, by the C API. The numbers are those of\n[CANCEL.md](CANCEL.md), which names the conformance case of each. Not \
         reproduced: 06 and 07, which no interface of\nrdma-core can trigger; 11, 14 and 15, which \
         are about missing features; 16, a race without effect while the queue\nis drained; 17, which \
         the others show.\n\n\
         | case | what happens | rdma-core | ours |\n|---|---|---|---|\n",
    );
    for fault in FAULTS {
        let about = fault.about;
        let (peer, ours) = (fault.peer.join("; "), fault.ours.join("; "));
        _ = writeln!(text, "| `{}` | {about} | {peer} | {ours} |", fault.name);
    }
    text.push_str("\nThe C API over this driver answers differently for:\n\n");
    for (name, known, why) in AT_DOOR {
        _ = writeln!(text, "* `{name}`: {}. {why}", known.join("; "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::table::{AT_DOOR, FAULTS};

    #[test]
    fn each_exception_of_the_c_api_is_a_fault_and_differs_from_ours() {
        for (name, known, why) in AT_DOOR {
            let fault = FAULTS.iter().find(|fault| fault.name == *name);
            let fault = fault.unwrap_or_else(|| panic!("{name} is no fault"));
            assert_ne!(*known, fault.ours, "{name} is no exception");
            assert!(!why.is_empty(), "{name} has no reason");
        }
    }
}
