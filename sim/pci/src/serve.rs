//! Sockets, each with a function.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;

use mlx5_sim::{Fabric, SimConfig};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_INFO_NORESIZE, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX, VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE, vfio_region_info,
};
use vfio_user::{IrqInfo, Server, ServerRegion};

use crate::capture::Capture;
use crate::config_space::{BAR0_BYTES, BYTES};
use crate::function::Function;
use crate::interrupts::VECTORS;
use crate::log::Log;

/// UAR pages that fit BAR 0 after its other parts.
const UARS: u32 = 4096;

/// Adapts a configuration to a bus: every doorbell arrives, and names its queue.
#[must_use]
pub fn machine(mut config: SimConfig) -> SimConfig {
    // Devices are added with their functions.
    config.devices = 0;
    config.exact_doorbells = true;
    config.addresses = false;
    config.limits.uars = UARS;
    config
}

fn regions() -> Vec<ServerRegion> {
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match index {
                VFIO_PCI_BAR0_REGION_INDEX => BAR0_BYTES,
                VFIO_PCI_CONFIG_REGION_INDEX => BYTES as u64,
                _ => 0,
            };
            let flags = VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
            let region_info = vfio_region_info {
                argsz: size_of::<vfio_region_info>() as u32,
                flags: if size > 0 { flags } else { 0 },
                index,
                size,
                ..Default::default()
            };
            ServerRegion { region_info, sparse_areas: Vec::new(), mmap_fd: None }
        })
        .collect()
}

fn irqs() -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| match index {
            VFIO_PCI_MSIX_IRQ_INDEX => {
                let flags = VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE;
                IrqInfo { index, flags, count: VECTORS }
            }
            _ => IrqInfo { index, flags: 0, count: 0 },
        })
        .collect()
}

/// Functions that wait for a machine to connect.
pub struct Bus {
    fabric: Fabric,
    slots: Vec<(Server, Function, PathBuf)>,
}

impl Bus {
    /// Makes a function for each of these sockets, all on one wire. Existing files at their paths
    /// are removed.
    pub fn listen(config: SimConfig, sockets: &[PathBuf], log: &Log) -> io::Result<Self> {
        let fabric = Fabric::new(machine(config));
        let mut slots = Vec::new();
        for socket in sockets {
            let server = Self::server(socket)?;
            slots.push((server, Function::new(&fabric, log.clone()), socket.clone()));
        }
        Ok(Self { fabric, slots })
    }

    /// Writes the frames on the wire to a capture.
    pub fn capture(&self, mut capture: Capture<impl Write + Send + 'static>) {
        let tap = move |now_ns, frame: &[u8]| capture.frame(now_ns, frame);
        self.fabric.lock().set_tap(Some(Box::new(tap)));
    }

    fn server(socket: &Path) -> io::Result<Server> {
        match std::fs::remove_file(socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Server::new(socket, true, irqs(), regions()).map_err(io::Error::other)
    }

    /// Serves until the machine has disconnected from every function.
    pub fn run(self, log: &Log) {
        thread::scope(|scope| {
            for (server, mut function, socket) in self.slots {
                scope.spawn(move || {
                    if let Err(error) = server.run(&mut function) {
                        log.problem(format_args!("{}: {error}", socket.display()));
                    }
                    function.report();
                });
            }
        });
    }
}
