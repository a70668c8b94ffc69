//! A simulated ConnectX: firmware, engine, memory and wire, behind the kernel seam.
//!
//! The *engine* behaves as the hardware does: it fetches work requests from queue memory when a
//! doorbell says so, executes them over a simulated wire, and writes completions. A [`Fabric`]
//! holds the devices that can reach each other, and runs them in a thread of its own or step by
//! step.

pub mod config;
pub mod dma;
pub mod engine;
pub mod fabric;
pub mod firmware;
pub mod kernel;

pub use config::{LinkLayer, Model, PortConfig, SimConfig};
pub use engine::fault::{Fault, Violation};
pub use fabric::Fabric;
pub use kernel::Simulator;
