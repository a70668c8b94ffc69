//! The command line.

use crate::{
    cancel, capture, doctor, dump, explain, info, list, man, perf, pingpong, shell, trace,
};
use clap::{Parser, Subcommand};

const LONG_ABOUT: &str = "\
Lists, describes and measures mlx5 (NVIDIA/Mellanox ConnectX) devices, and decodes
their queues.

A command that needs a device uses the first mlx5 device of this machine, or the one
that --device names. Where there is none, it uses a simulated ConnectX inside this
process, which needs neither hardware nor privileges, and says so on stderr; doctor
uses it only with --sim.

Each of these commands writes JSON with --json, where the key simulated says whether
the device is the simulated one.";

const EXAMPLES: &str = "\
Examples:
  mlx5 list                              list the devices
  mlx5 info -v                           their limits and capabilities
  mlx5 doctor                            is this machine fit for RDMA, and if not, what to do
  mlx5 pingpong                          send and verify messages, in one process
  mlx5 pingpong --sim-link roce          the same over simulated RoCE
  mlx5 perf --sizes 8..64k               latency and rate of RC sends
  mlx5 perf --op write --all --svg w.svg RDMA writes of all sizes, with a plot
  mlx5 perf --op fetch-add --qps 8       atomics, on eight queue pairs
  mlx5 cancel                            watch posted requests being cancelled
  mlx5 capture -n 100 -w all.pcapng      packets with the device's own timestamps
  mlx5 dump --live                       watch requests and completions as the device sees them
  dmesg | mlx5 dump                      what a device has said, taken apart and explained
  mlx5 explain 0x4bb88f                  why the firmware refused a command
  mlx5 trace -- ib_write_bw -n 5         the same of any program, while it runs

Between two processes, here on two machines with devices (the guide, hardware.md, shows
how without one):
  server$ mlx5 perf --listen
  client$ mlx5 perf --connect server --op read

Exit status: 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C
(capture: 0; trace: see its help).";

/// Lists, describes and measures mlx5 devices, and decodes their queues.
#[derive(Parser, Debug)]
#[command(
    name = "mlx5",
    version,
    long_about = LONG_ABOUT,
    after_long_help = EXAMPLES,
    after_help = "See `mlx5 --help` for examples, and `mlx5 help COMMAND` for each command."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Lists the devices
    #[command(long_about = list::LONG_ABOUT)]
    List(list::Args),
    /// Shows limits and capabilities of a device
    #[command(long_about = info::LONG_ABOUT)]
    Info(info::Args),
    /// Checks what RDMA programs need of this machine, and says what to do
    #[command(long_about = doctor::LONG_ABOUT)]
    Doctor(doctor::Args),
    /// Bounces messages between two queue pairs and verifies them
    #[command(long_about = pingpong::LONG_ABOUT)]
    Pingpong(pingpong::Args),
    /// Measures latency, message rate and bandwidth
    #[command(long_about = perf::LONG_ABOUT)]
    Perf(perf::Args),
    /// Cancels posted requests, step by step
    #[command(long_about = cancel::LONG_ABOUT)]
    Cancel(cancel::Args),
    /// Writes the packets of an Ethernet port to a file
    #[command(long_about = capture::LONG_ABOUT)]
    Capture(capture::Args),
    /// Decodes work requests and completions into readable text
    #[command(long_about = dump::LONG_ABOUT)]
    Dump(dump::Args),
    /// Explains error texts: of the firmware, the kernel, UCX, NCCL, DPDK
    #[command(long_about = explain::LONG_ABOUT)]
    Explain(explain::Args),
    /// Decodes the queues of a running program as they move
    #[command(long_about = trace::LONG_ABOUT)]
    Trace(trace::Args),
    /// Writes a completion script for a shell
    #[command(long_about = shell::COMPLETIONS)]
    Completions(shell::CompletionsArgs),
    /// Writes the man pages into a folder
    #[command(long_about = man::LONG_ABOUT)]
    Man(man::Args),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_but_the_generators_takes_json_without_a_value() {
        let mut all = Cli::command();
        all.build();
        let has_json = |command: &clap::Command| {
            let mut arguments = command.get_arguments();
            let json = arguments.find(|argument| argument.get_long() == Some("json"));
            json.and_then(|json| json.get_num_args()).is_some_and(|values| values.min_values() == 0)
        };
        let without = all.get_subcommands().filter(|command| !has_json(command));
        let without: Vec<&str> = without.map(clap::Command::get_name).collect();
        assert_eq!(without, ["completions", "man", "help"]);
    }
}
