//! The machine behind the door: one in this process, or one that several processes share.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use mlx5_sim::engine::DrainAt;
use mlx5_sim::kernel::SysfsEntry;
use mlx5_sim::{SimConfig, Simulator};
use mlx5_sim_wire::{Unreached, Wire, WireCmFile};
use mlx5_uapi::{CmFile, DeviceFile, Errno, Kernel};

/// A machine.
pub(crate) enum Machine {
    /// In this process.
    Own { simulator: Simulator, kernel: Arc<dyn Kernel> },
    /// At a socket.
    Shared(Wire),
}

/// An open device, and the number by which a child process can inherit it.
pub(crate) type Opened = (Arc<dyn DeviceFile>, Option<u64>);
/// The same for a channel of the connection manager.
pub(crate) type OpenedChannel = (Arc<dyn CmFile>, Option<u64>);

impl Machine {
    pub(crate) fn start(config: SimConfig) -> Self {
        let simulator = Simulator::new(config);
        let kernel = simulator.kernel();
        Self::Own { simulator, kernel }
    }

    pub(crate) fn connect(path: &Path) -> Result<Self, Unreached> {
        Wire::connect(path).map(Self::Shared)
    }

    pub(crate) fn sysfs(&self) -> Result<Vec<(String, SysfsEntry)>, Errno> {
        match self {
            Self::Own { simulator, .. } => simulator.sysfs(),
            Self::Shared(wire) => wire.sysfs(),
        }
    }

    pub(crate) fn open(&self, node: &str, numbers: (u32, u32)) -> Result<Opened, Errno> {
        match self {
            Self::Own { kernel, .. } => Ok((kernel.open(node, numbers)?, None)),
            Self::Shared(wire) => {
                let file = wire.open_file(node, numbers)?;
                let number = file.number();
                Ok((Arc::new(file), Some(number)))
            }
        }
    }

    /// Opens a channel of the connection manager.
    pub(crate) fn open_cm(&self) -> Result<OpenedChannel, Errno> {
        match self {
            Self::Own { kernel, .. } => Ok((kernel.rdma_cm()?, None)),
            Self::Shared(wire) => Ok(numbered(wire.open_cm()?)),
        }
    }

    /// Opens the channel that a parent process has open under a number.
    pub(crate) fn inherit_cm(&self, parent: u64, number: u64) -> Result<OpenedChannel, Errno> {
        match self {
            Self::Own { .. } => Err(Errno::ENOTTY),
            Self::Shared(wire) => Ok(numbered(wire.inherit_cm(parent, number)?)),
        }
    }

    /// Opens the device that a parent process has open under a number.
    pub(crate) fn inherit(&self, parent: u64, number: u64) -> Result<Opened, Errno> {
        match self {
            Self::Own { .. } => Err(Errno::ENOTTY),
            Self::Shared(wire) => {
                let file = wire.inherit(parent, number)?;
                let number = file.number();
                Ok((Arc::new(file), Some(number)))
            }
        }
    }

    /// Works until nothing is left to do, and returns the number of units.
    pub(crate) fn settle(&self) -> usize {
        match self {
            Self::Own { simulator, .. } => simulator.run_until_idle(),
            Self::Shared(wire) => wire.settle(),
        }
    }

    /// The violations since the last call. A machine in free-running mode first does the work that
    /// is left, as the program may end before the machine gets to it.
    pub(crate) fn violations(&self) -> Vec<String> {
        match self {
            Self::Own { simulator, .. } => {
                if !simulator.config().step {
                    mlx5_sim_wire::finish(simulator);
                }
                let found = simulator.take_violations();
                found.iter().map(|violation| format!("{violation:?}")).collect()
            }
            Self::Shared(wire) => wire.violations(),
        }
    }

    /// Drains the send queue of a queue pair in RTS, as a signature error does. Returns whether
    /// this process's machine has it.
    pub(crate) fn drain(&self, qpn: u32) -> bool {
        match self {
            Self::Own { simulator, .. } => simulator.drain_qp(0, qpn, DrainAt::Now).is_ok(),
            Self::Shared(_) => false,
        }
    }

    /// Pulls the first device out. Returns whether this process has the machine.
    pub(crate) fn unplug(&self) -> bool {
        match self {
            Self::Own { simulator, .. } => {
                simulator.remove_device(0);
                true
            }
            Self::Shared(_) => false,
        }
    }

    /// In a child process: closes the descriptor that would keep the parent's connection open, and
    /// returns the number by which to inherit from the parent.
    pub(crate) fn leave_to_parent(&self) -> Option<u64> {
        match self {
            Self::Own { .. } => None,
            Self::Shared(wire) => {
                // SAFETY: the child never uses the connection of its parent.
                unsafe { crate::next::close(wire.descriptor().as_raw_fd()) };
                Some(wire.number())
            }
        }
    }
}

fn numbered(channel: WireCmFile) -> OpenedChannel {
    let number = channel.number();
    (Arc::new(channel), Some(number))
}
