//! Where the device comes from, and how it is made to work.

use mlx5::Device;
use mlx5_sim::engine::DrainAt;
use mlx5_sim::{SimConfig, Simulator};
use std::ffi::{CStr, c_int, c_void};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Lets a device work that only does so when it is told to; answers how much it did.
pub(crate) type Settle = unsafe extern "C" fn() -> usize;

/// Drains the send queue of a queue pair; answers 0 if it did.
pub(crate) type Drain = unsafe extern "C" fn(qpn: u32) -> c_int;

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
        Self::Simulated(Simulator::new(SimConfig::default().step(true)))
    }

    pub(crate) fn found() -> Self {
        let symbol = |name: &CStr| {
            // SAFETY: looks for a name.
            NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
        };
        let preloaded = symbol(c"mlx5_sim_settle").zip(symbol(c"mlx5_sim_drain"));
        Self::Found(preloaded.map(|(settle, drain)| {
            // SAFETY: the preloaded library declares them so.
            unsafe {
                Preloaded {
                    settle: std::mem::transmute::<NonNull<c_void>, Settle>(settle),
                    drain: std::mem::transmute::<NonNull<c_void>, Drain>(drain),
                }
            }
        }))
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

    /// Whether a send queue can be drained on command.
    pub(crate) fn drains(&self) -> bool {
        !matches!(self, Self::Found(None))
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
