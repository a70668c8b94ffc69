//! The device of a benchmark, simulated or found, and the ways to make it work.

use mlx5::{Device, LinkLayer};
use mlx5_sim::engine::DrainAt;
use mlx5_sim::{PortConfig, SimConfig, Simulator};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Makes a device that stands still work until it is idle; returns the amount of work.
pub(crate) type Settle = unsafe extern "C" fn() -> usize;

/// Drains the send queue of a queue pair; returns 0 if it did.
pub(crate) type Drain = unsafe extern "C" fn(qpn: u32) -> c_int;

/// Total nanoseconds of calls to the simulated kernel.
type KernelTime = unsafe extern "C" fn() -> u64;

/// Memory of the process, without the simulated kernel's.
type Memory = unsafe extern "C" fn(*mut Held);

/// Bytes in use by a process.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Held {
    pub(crate) heap: i64,
    pub(crate) mapped: i64,
}

/// Looks up a function that a preloaded library may have.
///
/// # Safety
/// If there is a symbol of that name, it must be an `F`, which must be a function pointer.
unsafe fn symbol<F>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    // SAFETY: `dlsym` only reads `name`, which ends with zero because it is a `CStr`.
    let found = NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })?;
    // SAFETY: the caller promises that the symbol is an `F`, a function pointer; the sizes are
    // equal, checked at compile time above.
    Some(unsafe { std::mem::transmute_copy(&found) })
}

/// Nanoseconds of calls to a simulated kernel so far. Zero with a real kernel, whose time belongs
/// to the operation.
pub(crate) fn kernel_time() -> u64 {
    static FUNCTION: OnceLock<Option<KernelTime>> = OnceLock::new();
    // SAFETY: the preload library exports `mlx5_sim_kernel_time` with the type `KernelTime`.
    let function = FUNCTION.get_or_init(|| unsafe { symbol(c"mlx5_sim_kernel_time") });
    // SAFETY: the function takes no arguments and may be called at any time.
    function.map_or(0, |function| unsafe { function() })
}

/// Memory of the process, if the simulated kernel's can be subtracted.
pub(crate) fn held() -> Option<Held> {
    // SAFETY: the preload library exports `mlx5_sim_memory` with the type `Memory`.
    let function: Memory = unsafe { symbol(c"mlx5_sim_memory") }?;
    let mut held = Held::default();
    // SAFETY: the function writes one `Held`, and `held` is one.
    unsafe { function(&raw mut held) };
    Some(held)
}

/// Functions of the preload library.
#[derive(Clone, Copy)]
pub(crate) struct Preloaded {
    pub(crate) settle: Settle,
    pub(crate) drain: Drain,
}

/// The source of the device.
#[derive(Clone)]
pub(crate) enum Machine {
    /// Simulated in this program; it works only in calls of `settle`.
    Simulated(Simulator),
    /// Found like any device: a real one, or one that a preloaded library simulates, which may
    /// stand still.
    Found(Option<Preloaded>),
}

impl Machine {
    pub(crate) fn simulated() -> Self {
        Self::Simulated(Simulator::new(
            SimConfig::default()
                .step(true)
                .ports([PortConfig::INFINIBAND, PortConfig::ROCE])
                .raw_packets(true),
        ))
    }

    pub(crate) fn found() -> Self {
        // SAFETY: the preload library exports both with the types `Settle` and `Drain`.
        let preloaded = unsafe { symbol(c"mlx5_sim_settle").zip(symbol(c"mlx5_sim_drain")) };
        Self::Found(preloaded.map(|(settle, drain)| Preloaded { settle, drain }))
    }

    /// The first device.
    pub(crate) fn device(&self) -> Device {
        let devices = match self {
            Self::Simulated(simulator) => mlx5::devices_on(simulator.kernel()),
            Self::Found(_) => mlx5::devices(),
        };
        devices.expect("devices").into_iter().next().expect("a device")
    }

    /// Functions of the preload library, if there is one.
    pub(crate) fn preloaded(&self) -> Option<Preloaded> {
        match self {
            Self::Simulated(_) => None,
            Self::Found(preloaded) => *preloaded,
        }
    }

    /// The first port that sends and receives packets.
    pub(crate) fn ethernet_port(&self) -> Option<u8> {
        let context = self.device().open().expect("open");
        let is_ethernet = |port: &u8| {
            let port = context.query_port(*port).expect("query_port");
            port.link_layer == LinkLayer::Ethernet
        };
        let has_packets = context.query_device().ethernet.flow_rules;
        (1..=context.num_ports() as u8).find(is_ethernet).filter(|_| has_packets)
    }

    /// Whether a case can run here.
    pub(crate) fn can(&self, case: &str) -> bool {
        match self {
            // No program can make a real device drain a queue.
            Self::Found(None) if case.starts_with("cancel") => false,
            _ => !case.starts_with("eth_") || self.ethernet_port().is_some(),
        }
    }

    /// Drains the send queue of a queue pair, as a signature error does; returns whether it did.
    pub(crate) fn drain(&self, qpn: u32) -> bool {
        match self {
            Self::Simulated(simulator) => simulator.drain_qp(0, qpn, DrainAt::Now).is_ok(),
            // SAFETY: the function accepts any number, and may be called at any time.
            Self::Found(Some(preloaded)) => unsafe { (preloaded.drain)(qpn) == 0 },
            Self::Found(None) => false,
        }
    }

    /// Lets the device work until it is idle; waits a fixed time for a real one.
    pub(crate) fn settle(&self) {
        match self {
            Self::Simulated(simulator) => {
                simulator.run_until_idle();
            }
            // SAFETY: the function takes no arguments, and may be called at any time.
            Self::Found(Some(preloaded)) => unsafe {
                (preloaded.settle)();
            },
            Self::Found(None) => {
                let start = Instant::now();
                while start.elapsed() < Duration::from_micros(200) {
                    std::hint::spin_loop();
                }
            }
        }
    }

    /// Asserts that the simulated device saw no violation.
    pub(crate) fn check(&self) {
        if let Self::Simulated(simulator) = self {
            assert_eq!(simulator.violations(), []);
        }
    }
}
