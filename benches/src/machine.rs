//! Where the device comes from, and how it is made to work.

use mlx5::Device;
use mlx5_sim::{SimConfig, Simulator};
use std::ffi::c_void;
use std::time::{Duration, Instant};

/// Lets a device work that only does so when it is told to; answers how much it did.
pub(crate) type Settle = unsafe extern "C" fn() -> usize;

/// Where the device comes from.
#[derive(Clone)]
pub(crate) enum Machine {
    /// It is simulated in this program, and stands still until it is told to work.
    Simulated(Simulator),
    /// It is where devices are looked for: a real one, or one that a preloaded library shows, which
    /// may stand still.
    Found(Option<Settle>),
}

impl Machine {
    pub(crate) fn simulated() -> Self {
        Self::Simulated(Simulator::new(SimConfig::default().step(true)))
    }

    pub(crate) fn found() -> Self {
        // SAFETY: looks for a name.
        let symbol: *mut c_void =
            unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mlx5_sim_settle".as_ptr()) };
        // SAFETY: the preloaded library declares it so.
        Self::Found(unsafe { std::mem::transmute::<*mut c_void, Option<Settle>>(symbol) })
    }

    /// The first device.
    pub(crate) fn device(&self) -> Device {
        let devices = match self {
            Self::Simulated(simulator) => mlx5::devices_on(simulator.kernel()),
            Self::Found(_) => mlx5::devices(),
        };
        devices.expect("devices").into_iter().next().expect("a device")
    }

    pub(crate) fn settle_function(&self) -> Option<Settle> {
        match self {
            Self::Simulated(_) => None,
            Self::Found(settle) => *settle,
        }
    }

    /// Lets the device work until it has nothing left to do; a real one, for a while.
    pub(crate) fn settle(&self) {
        match self {
            Self::Simulated(simulator) => {
                simulator.run_until_idle();
            }
            // SAFETY: it may be called at any time.
            Self::Found(Some(settle)) => unsafe {
                settle();
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
