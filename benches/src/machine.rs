//! Where the device comes from, and how it is made to work.

use mlx5::{Device, LinkLayer};
use mlx5_sim::engine::DrainAt;
use mlx5_sim::{PortConfig, SimConfig, Simulator};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Lets a device work that only does so when it is told to; answers how much it did.
pub(crate) type Settle = unsafe extern "C" fn() -> usize;

/// Drains the send queue of a queue pair; answers 0 if it did.
pub(crate) type Drain = unsafe extern "C" fn(qpn: u32) -> c_int;

/// Nanoseconds that calls of the simulated kernel have taken.
type KernelTime = unsafe extern "C" fn() -> u64;

/// What the process holds, without what the simulated kernel has taken.
type Memory = unsafe extern "C" fn(*mut Held);

/// Bytes that a process holds.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(crate) struct Held {
    pub(crate) heap: i64,
    pub(crate) mapped: i64,
}

/// Looks for a function that a preloaded library may have.
///
/// # Safety
/// If there is one of that name, it is an `F`, a pointer to a function.
unsafe fn symbol<F>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    // SAFETY: looks for a name.
    let found = NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })?;
    // SAFETY: the caller's contract; the sizes are equal.
    Some(unsafe { std::mem::transmute_copy(&found) })
}

/// Nanoseconds that calls of a simulated kernel have taken so far: none where it is a real one, whose
/// time belongs to the operation.
pub(crate) fn kernel_time() -> u64 {
    static FUNCTION: OnceLock<Option<KernelTime>> = OnceLock::new();
    // SAFETY: the preloaded library declares it so.
    let function = FUNCTION.get_or_init(|| unsafe { symbol(c"mlx5_sim_kernel_time") });
    // SAFETY: it may be called at any time.
    function.map_or(0, |function| unsafe { function() })
}

/// What the process holds, if it can be told apart from what the simulated kernel has taken.
pub(crate) fn held() -> Option<Held> {
    // SAFETY: the preloaded library declares it so.
    let function: Memory = unsafe { symbol(c"mlx5_sim_memory") }?;
    let mut held = Held::default();
    // SAFETY: there is room for the answer.
    unsafe { function(&raw mut held) };
    Some(held)
}

/// What a preloaded library offers.
#[derive(Clone, Copy)]
pub(crate) struct Preloaded {
    pub(crate) settle: Settle,
    pub(crate) drain: Drain,
}

/// Where the device comes from.
#[derive(Clone)]
pub(crate) enum Machine {
    /// It is simulated in this program, and stands still until it is told to work.
    Simulated(Simulator),
    /// It is where devices are looked for: a real one, or one that a preloaded library shows, which
    /// may stand still.
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
        // SAFETY: the preloaded library declares them so.
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

    /// What a preloaded library offers.
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

    /// Whether a case can be done here.
    pub(crate) fn can(&self, case: &str) -> bool {
        match self {
            // No program can make a real device drain.
            Self::Found(None) if case.starts_with("cancel") => false,
            _ => !case.starts_with("eth_") || self.ethernet_port().is_some(),
        }
    }

    /// Drains the send queue of a queue pair, as a signature error does; says whether it did.
    pub(crate) fn drain(&self, qpn: u32) -> bool {
        match self {
            Self::Simulated(simulator) => simulator.drain_qp(0, qpn, DrainAt::Now).is_ok(),
            // SAFETY: it may be called at any time.
            Self::Found(Some(preloaded)) => unsafe { (preloaded.drain)(qpn) == 0 },
            Self::Found(None) => false,
        }
    }

    /// Lets the device work until it has nothing left to do; a real one, for a while.
    pub(crate) fn settle(&self) {
        match self {
            Self::Simulated(simulator) => {
                simulator.run_until_idle();
            }
            // SAFETY: it may be called at any time.
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

    /// Makes sure that the device was content.
    pub(crate) fn check(&self) {
        if let Self::Simulated(simulator) = self {
            assert_eq!(simulator.violations(), []);
        }
    }
}
