//! Clocks that user space reads: the page in which the driver relates the device's clock to the
//! time of day, and the device's own page with its clock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use mlx5_uapi::Errno;
use mlx5_uapi::mlx5::ClockInfo;
use zerocopy::IntoBytes;

use crate::engine::DeviceId;
use crate::fabric::Fabric;
use crate::kernel::bar::{Bar, BarPages};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Set in the sequence number while the page is rewritten (`MLX5_IB_CLOCK_INFO_KERNEL_UPDATING`).
const UPDATING: u32 = 1;
/// Bits of the device's clock that the driver counts with (`CLOCKSOURCE_MASK(41)`).
const MASK: u64 = (1 << 41) - 1;
/// `MLX5_CYCLES_SHIFT`.
const SHIFT: u32 = 23;
/// Jiffies of a second (`CONFIG_HZ`), as Debian's kernels have them.
const HZ: u64 = 250;
const NS_PER_JIFFY: u64 = 1_000_000_000 / HZ;
/// The clock pages of a device.
pub(crate) struct Clocks {
    pub(crate) info: BarPages,
    pub(crate) core: BarPages,
    fabric: Fabric,
    pub(crate) device: DeviceId,
    pid: u32,
}

impl Clocks {
    pub(crate) fn new(fabric: &Fabric, device: DeviceId, bar: &Bar) -> Result<Self, Errno> {
        let page = || bar.map(PAGE);
        let clocks = Self {
            info: page()?,
            core: page()?,
            fabric: fabric.clone(),
            device,
            pid: std::process::id(),
        };
        clocks.update();
        Ok(clocks)
    }

    /// Rewrites the page, as the driver does from time to time.
    pub(crate) fn update(&self) {
        let mut engine = self.fabric.lock();
        let device = engine.device_mut(self.device);
        let (nsec, cycles) = device.clocks();
        let khz = u64::from(device.config().clock_khz);
        // Under the fabric's lock, so that there is one writer.
        let mult = ((1_000_000 << SHIFT) + khz / 2) / khz;
        let overflow_cycles = (u64::MAX / 2 / mult).min(MASK / 3);
        let info = ClockInfo {
            nsec,
            cycles: cycles & MASK,
            frac: 0,
            mult: mult as u32,
            shift: SHIFT,
            mask: MASK,
            overflow_period: ((overflow_cycles * mult) >> SHIFT) / NS_PER_JIFFY,
            ..ClockInfo::default()
        };
        let start = self.info.as_non_null();
        // SAFETY: the first word of the page, which lives as long as this; readers read it as they
        // do the rest, atomically or through memory of their own.
        let sign = unsafe { start.cast::<AtomicU32>().as_ref() };
        let sequence = sign.load(Ordering::Relaxed);
        sign.store(sequence | UPDATING, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for (place, word) in info.as_bytes().as_chunks::<8>().0.iter().enumerate().skip(1) {
            // SAFETY: an aligned word of the page.
            let at = unsafe { start.cast::<AtomicU64>().add(place).as_ref() };
            at.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        sign.store(sequence.wrapping_add(2 * UPDATING), Ordering::Release);
    }

    /// Whether the driver would have rewritten the page by now.
    fn is_old(&self) -> bool {
        let start = self.info.as_non_null().cast::<AtomicU64>();
        let word = |place| {
            // SAFETY: an aligned word of the page.
            unsafe { start.add(place).as_ref() }.load(Ordering::Relaxed)
        };
        let (nsec, period) = (word(1), word(6) * NS_PER_JIFFY);
        self.fabric.lock().device_mut(self.device).clocks().0 - nsec >= period
    }

    /// Does what the driver does every now and then.
    pub(crate) fn tick(&self) {
        if self.is_old() {
            self.update();
        }
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        // In a child the lock may be held by a thread that is not there, and no engine runs.
        if self.pid == std::process::id() {
            self.fabric.lock().device_mut(self.device).set_core_clock(None);
        }
    }
}
