//! The conformance suite, against the public API, on any device.
//!
//! One list of cases runs on a simulated device, in a virtual machine or on hardware; only the
//! device differs. Without options each case gets a simulated device of its own, a ConnectX-7
//! unless the case needs another; `--sim-model cx5`, `--sim-model cx5,cx6` or `--sim-model all` run
//! all of them on these models.
//!
//! * `--device mlx5_0`, or `MLX5_TEST_DEVICE=mlx5_0`: a real device, which must exist.
//! * `--second mlx5_1`, or `mlx5_0:2`: the other end of each pair is on another device or port.
//! * `--peer HOST`: the cases for two hosts, with a host that runs `--serve`.
//! * `--replug ROUNDS`: holds objects on a device that is removed and inserted again.
//! * `--ledger FILE`: writes the result of each case to FILE.json and FILE.md, and a report that
//!   can be sent to others to FILE.report.txt.
//!
//! On a real device the riskiest cases run first, and the suite says before how long it will take.
//!
//! Cases that a real device cannot run, such as those in which it fails on command, are listed as
//! ignored, with the reason.

mod bed;
mod case;
mod cases;
mod failed;
mod frames;
mod hosts;
mod ledger;
mod mask;
mod options;
mod pair;
mod panics;
mod pattern;
mod plan;
mod prelude;
mod replug;
mod report;
mod run;
mod station;
mod traffic;

pub use run::main;
