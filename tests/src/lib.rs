//! The conformance suite, against the public API, on any device.
//!
//! One list of cases runs on a simulated device, in a virtual machine or on hardware; only the
//! device that it is given differs. Without a word each case gets a simulated device of its own, a
//! ConnectX-7 if it does not want another; `--sim-model cx5`, `--sim-model cx5,cx6` or `--sim-model all`
//! run all of them on these models.
//! `MLX5_TEST_DEVICE=mlx5_0` or `--device mlx5_0` names a real one: it must be there. `--second
//! mlx5_1`, or `mlx5_0:2`, puts the other end of each pair on another device or port. `--peer HOST` runs what takes two hosts, with one that runs `--serve`.
//! `--replug ROUNDS` holds things on a device that somebody takes away and brings back.
//! `--ledger
//! FILE` writes what each case came to into FILE.json and FILE.md. What a real device cannot be made to do, such as to fail on command, is listed as ignored, with the reason.

mod bed;
mod case;
mod cases;
mod failed;
mod frames;
mod hosts;
mod ledger;
mod options;
mod pair;
mod pattern;
mod prelude;
mod replug;
mod run;
mod station;
mod traffic;

pub use run::main;
