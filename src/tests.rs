//! Tests of everything except queues, on the simulated device.

mod buffers;
mod connecting;
mod debug;
mod docs;
mod ends;
mod ends_shared;
mod events;
mod faults;
mod flows;
mod kept;
mod keys;
mod memory;
mod numa;
mod open;
mod packets;
mod page_faults;
mod parts;
mod paths;
mod peers;
mod polling;
mod pool;
mod queues;
mod raw;
mod rings;
mod states;
mod views;
mod work_queues;

use crate::*;
use mlx5_sim::{PortConfig, SimConfig, Simulator};

fn infiniband() -> SimConfig {
    SimConfig::new().step(true)
}

fn roce() -> SimConfig {
    infiniband().ports([PortConfig::ROCE])
}

fn device(simulator: &Simulator) -> Device {
    let devices = devices_on(simulator.kernel()).expect("a list");
    devices.into_iter().next().expect("a device")
}

fn open(simulator: &Simulator) -> Context {
    device(simulator).open().expect("a context")
}

/// Asserts that no object is left on the device and that there was no violation.
fn assert_clean(simulator: &Simulator) {
    let empty = Simulator::new(simulator.config().clone()).object_counts(0);
    assert_eq!(simulator.object_counts(0), empty);
    assert_eq!(simulator.violations(), []);
}
