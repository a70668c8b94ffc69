//! The conformance suite, against the public API, on any device.
//!
//! One list of cases runs on a simulated device, in a virtual machine or on hardware; only the
//! device that it is given differs. Without a word each case gets a simulated device of its own.
//! `MLX5_TEST_DEVICE=mlx5_0` or `--device mlx5_0` names a real one: it must be there. What a real
//! device cannot be made to do, such as to fail on command, is listed as ignored, with the reason.

mod bed;
mod case;
mod cases;
mod failed;
mod pair;
mod pattern;
mod prelude;
mod run;
mod traffic;

pub use run::main;
