//! A simulated ConnectX: firmware, engine, memory and wire, below the kernel traits.
//!
//! The *engine* behaves as the hardware does: when a doorbell rings, it fetches work requests from
//! queue memory, executes them over a simulated wire, and writes completions. A [`Fabric`] holds
//! the devices that can reach each other, and runs them in a thread of its own or step by step. The
//! [*firmware*](firmware) is the command interface to the engine, and the [*kernel*](kernel) a
//! small uverbs driver on top of it, for drivers in the same process:
//!
//! ```
//! use mlx5_sim::{PortConfig, SimConfig, Simulator};
//!
//! let sim = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]));
//! let devices = mlx5_uapi::sysfs::devices(&*sim.kernel())?;
//! assert_eq!(devices[0].name, "mlx5_0");
//! # Ok::<(), mlx5_uapi::Errno>(())
//! ```

pub mod config;
#[doc(hidden)]
pub mod diagnostics;
pub mod dma;
pub mod engine;
pub mod fabric;
mod fault;
pub mod firmware;
mod frame;
pub mod kernel;
mod link;
pub mod model;
mod network;
pub mod processes;
pub mod settings;

pub use config::{CmConfig, LinkLayer, PortConfig, SimConfig};
pub use engine::fault::{Fault, Violation};
pub use fabric::Fabric;
pub use fault::UnknownFault;
pub use kernel::{CmCounts, CmMessage, Simulator};
pub use model::{Capabilities, Model};
pub use network::Network;
