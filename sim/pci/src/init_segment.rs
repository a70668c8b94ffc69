//! The initialization segment, at the start of BAR 0.

use std::time::Instant;

use mlx5_prm::cmd::init_seg::offset;
use mlx5_sim::Model;

/// The command interface that the function speaks.
const COMMAND_INTERFACE: u32 = 5;
/// Base-two logarithms of the command queue's entries and of the bytes of each.
const LOG_ENTRIES: u32 = 5;
const LOG_STRIDE: u32 = 6;
/// Bits of the command queue's address word that give the state of the interface: 0 while a
/// driver has it all, this one when it has none.
const INTERFACE_STATE: u32 = 0x700;
const INTERFACE_DISABLED: u32 = 1 << 8;
/// Bits of the address in its lower word.
const ADDRESS: u32 = !0xfff;
/// Period of the health counter, in milliseconds.
const BEAT_MS: u128 = 10;
/// Words of the health buffer of a device that failed: that it wants a reset (`rfr_severity`), and
/// an internal error of the firmware (`synd`).
const SEVERITY: usize = offset::HEALTH + 0x38;
const SYNDROME: usize = offset::HEALTH + 0x3c;
const WANTS_RESET: u32 = 1 << 31;
const INTERNAL_ERROR: u32 = 1 << 16;

/// The request that a driver makes by writing a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// Nothing that lies outside the segment.
    Nothing,
    /// It rings for these entries of the command queue.
    Commands(u32),
    /// It asks for the interface to be reset.
    Reset,
}

/// The registers of the segment.
#[derive(Debug)]
pub struct InitSegment {
    model: Model,
    clock_khz: u32,
    began: Instant,
    queue_high: u32,
    queue_low: u32,
}

impl InitSegment {
    /// The segment of a device whose driver is not there yet.
    #[must_use]
    pub fn new(model: Model, clock_khz: u32) -> Self {
        Self { model, clock_khz, began: Instant::now(), queue_high: 0, queue_low: 0 }
    }

    /// Forgets what a driver wrote. A driver that is still there sees that its interface is gone.
    pub fn reset(&mut self) {
        (self.queue_high, self.queue_low) = (0, INTERFACE_DISABLED);
    }

    /// Whether a driver has the interface: what else is written means nothing without.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.queue_low & INTERFACE_STATE == 0
    }

    /// The address of an entry of the command queue.
    #[must_use]
    pub fn entry(&self, index: u32) -> u64 {
        let queue = u64::from(self.queue_high) << 32 | u64::from(self.queue_low & ADDRESS);
        queue + (u64::from(index) << LOG_STRIDE)
    }

    /// The register at `at`, a multiple of four, of a device that is `well` or not. The firmware is
    /// up before the machine is: it is never initializing.
    #[must_use]
    pub fn read(&self, at: usize, well: bool) -> u32 {
        let [major, minor, sub] = self.model.firmware_version().map(u32::from);
        let elapsed = self.began.elapsed();
        let ticks = elapsed.as_nanos() * u128::from(self.clock_khz) / 1_000_000;
        match at {
            offset::FW_REV => minor << 16 | major,
            offset::CMDIF_REV_FW_SUB => COMMAND_INTERFACE << 16 | sub,
            offset::CMDQ_ADDR_H => self.queue_high,
            offset::CMDQ_ADDR_L_SZ => self.queue_low | LOG_ENTRIES << 4 | LOG_STRIDE,
            offset::INTERNAL_TIMER_H => (ticks >> 32) as u32,
            offset::INTERNAL_TIMER_L => ticks as u32,
            offset::HEALTH_COUNTER if well => (elapsed.as_millis() / BEAT_MS) as u32,
            SEVERITY if !well => WANTS_RESET,
            SYNDROME if !well => INTERNAL_ERROR,
            _ => 0,
        }
    }

    /// Writes the register at `at`, a multiple of four.
    pub fn write(&mut self, at: usize, value: u32) -> Written {
        match at {
            offset::CMDQ_ADDR_H => self.queue_high = value,
            offset::CMDQ_ADDR_L_SZ => {
                self.queue_low = value & ADDRESS;
                if value & INTERFACE_STATE != 0 {
                    // Whether it is to be disabled or reset: it ends disabled.
                    self.queue_low |= INTERFACE_DISABLED;
                    return Written::Reset;
                }
            }
            offset::CMD_DBELL => return Written::Commands(value),
            _ => {}
        }
        Written::Nothing
    }
}
