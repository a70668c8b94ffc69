//! Sends the same requests through rdma-core's mlx5 provider and through this one, and compares
//! byte for byte every work request, doorbell record and doorbell register, and the calls to the
//! kernel.
//!
//! Both sides run on simulated devices that execute nothing. `cargo xtask oracle` builds the
//! programs and runs them.

mod calls;
mod compare;
mod completions;
mod event;
mod expand;
mod failure;
mod faults;
mod headers;
mod known;
mod memory;
mod operations;
mod ours;
mod packets;
mod peer;
mod poster;
mod report;
mod script;
mod table;
mod tags;
mod watch;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use mlx5_prm::ethernet::InlineMode;
use mlx5_sim::{PortConfig, SimConfig, Simulator};

use crate::compare::compare;
use crate::known::KnownDifferences;
use crate::ours::Ours;
use crate::peer::Peer;
use crate::report::Report;
use crate::table::{Door, Link, Table};

/// Compare this provider with rdma-core's
#[derive(Debug, Parser)]
struct Arguments {
    /// The C program that drives rdma-core's provider
    #[arg(long)]
    peer: PathBuf,

    /// The C program that posts operations on a list of tags through it
    #[arg(long)]
    tags: PathBuf,

    /// The C program that reads completions through it
    #[arg(long)]
    completions: PathBuf,

    /// The C program that shows the faults of rdma-core's provider
    #[arg(long)]
    faults: PathBuf,

    /// The folder of this provider's libibverbs, over which that program runs too
    #[arg(long)]
    verbs: PathBuf,

    /// The library that gives it a simulated device
    #[arg(long)]
    preload: PathBuf,

    /// The document in which the oracle replaces its section
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,

    /// Writes the scripts here, for inspection
    #[arg(long, value_name = "DIRECTORY")]
    scripts: Option<PathBuf>,
}

/// The device, for this side.
fn machine(link: Link) -> Simulator {
    let port = match link {
        Link::InfiniBand => PortConfig::INFINIBAND,
        Link::Ethernet => PortConfig::ROCE,
    };
    Simulator::new(SimConfig::new().ports([port]).step(true))
}

/// A device with packets, for this side; it may need their header in a request.
fn packet_machine(needs_header: bool) -> Simulator {
    let inline = if needs_header { InlineMode::L2 } else { InlineMode::None };
    let config = SimConfig::new().ports([PortConfig::ROCE]).step(true);
    Simulator::new(config.raw_packets(true).inline_mode(inline))
}

/// The same device's GIDs.
fn gids(link: Link) -> Result<Vec<[u8; 16]>, Box<dyn Error>> {
    let devices = mlx5::devices_on(machine(link).kernel())?;
    let context = devices.first().ok_or("no device")?.open()?;
    // RoCE has each address twice: for version 1 and for version 2.
    let count = if link == Link::Ethernet { 2 } else { 1 };
    let gids = (0..count).map(|index| Ok(context.query_gid(1, index)?.gid.to_bytes()));
    gids.collect::<Result<_, mlx5::Error>>().map_err(Into::into)
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let table = Table::load()?;
    let Arguments { faults, preload, verbs, .. } = arguments;
    let started = faults::start(faults.clone(), preload.clone(), verbs.clone());
    let (infiniband, ethernet) = (gids(Link::InfiniBand)?, gids(Link::Ethernet)?);
    let own = |link| match link {
        Link::InfiniBand => infiniband.clone(),
        Link::Ethernet => ethernet.clone(),
    };
    let mut report = Report::new(KnownDifferences::load());
    for (number, script) in expand::expand(&table, own).into_iter().enumerate() {
        let link = if script.link == Link::InfiniBand { "ib" } else { "roce" };
        if let Some(directory) = &arguments.scripts {
            let text: String = script.commands.iter().map(|line| format!("{line}\n")).collect();
            std::fs::write(directory.join(format!("{number}.script")), text)?;
        }
        let peer = Peer {
            program: &arguments.peer,
            library: &arguments.preload,
            machine: format!("step,link={link}"),
            plain: script.plain,
            folder: None,
        };
        let theirs = peer.run(&script.commands)?;
        let door = if script.plain { Door::Plain } else { Door::Own };
        let ours = Ours::new(machine(script.link), door)?.run(&script.commands)?;
        for comparison in compare(&theirs, &ours) {
            report.add(&comparison);
        }
    }
    let peer = Peer {
        program: &arguments.peer,
        library: &arguments.preload,
        machine: "step,link=ib".to_owned(),
        plain: false,
        folder: None,
    };
    for comparison in operations::compare(&peer, &machine(Link::InfiniBand))? {
        report.add(&comparison);
    }
    for comparison in packets::compare(&arguments.peer, preload, verbs, packet_machine)? {
        report.add(&comparison);
    }
    let simulator = machine(Link::InfiniBand);
    for comparison in tags::compare(&arguments.tags, &arguments.preload, &simulator)? {
        report.add(&comparison);
    }
    let with_packets = |link| match link {
        Link::InfiniBand => machine(link),
        Link::Ethernet => packet_machine(false),
    };
    let read = completions::compare(&arguments.completions, &arguments.preload, with_packets)?;
    for comparison in read {
        report.add(&comparison);
    }
    for comparison in faults::compare(started, || machine(Link::InfiniBand))? {
        report.add(&comparison);
    }
    let (compared, differing) = headers::compare()?;
    for layout in &differing {
        println!("not what the header says: {layout}");
    }
    println!(
        "{compared} sizes, offsets and constants of the headers, {} of them wrong",
        differing.len()
    );
    report.finish();
    print!("{report}");
    if let Some(document) = &arguments.document {
        report.write(document)?;
    }
    Ok(report.is_good() && differing.is_empty())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("oracle: {error}");
            ExitCode::FAILURE
        }
    }
}
