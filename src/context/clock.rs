//! Conversion of device timestamps to the time of day.

use crate::context::{Context, Inner};
use crate::error::{Error, ErrorKind};
use mlx5_uapi::mlx5::{ClockInfo, MmapCommand};
use mlx5_uapi::{Access, Errno, Mapping, page_size};
use std::fmt;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
    fence,
};
use std::time::Duration;

const VERB: &str = "get_clock_info";
/// Bit of `clock_info_versions`: the kernel has the clock page in the layout of this driver
/// (`MLX5_IB_CLOCK_INFO_V1`).
const VERSION_1: u8 = 1 << 0;
/// Bit of the page's sequence number: the kernel is updating the page
/// (`MLX5_IB_CLOCK_INFO_KERNEL_UPDATING`).
const UPDATING: u32 = 1;
/// Maximum number of attempts to read a consistent page. A kernel update ends within a few.
const LOOKS: u32 = 1 << 20;

/// The page in which the kernel relates the device's clock to the time of day. See
/// [`Context::clock`].
pub struct Clock {
    /// `Some` until the value is dropped.
    page: Option<Mapping>,
    start: NonNull<u8>,
    context: Arc<Inner>,
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("device", &self.context.info.name).finish_non_exhaustive()
    }
}

// SAFETY: `start` is an address inside the page, whose mapping is Send; the page is only read, with
// atomic loads.
unsafe impl Send for Clock {}
// SAFETY: a shared reference only reads the page, with atomic loads.
unsafe impl Sync for Clock {}

impl Context {
    /// Maps the page that relates the device's clock to the time of day (`mlx5dv_get_clock_info`).
    ///
    /// ```no_run
    /// # fn f(context: &mlx5::Context, cq: &mut mlx5::CompletionQueue)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// let clock = context.clock()?.now()?;
    /// cq.poll(16, |wc| {
    ///     if let Some(cycles) = wc.timestamp() {
    ///         println!("{} ns since 1970", clock.nanoseconds(cycles));
    ///     }
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn clock(&self) -> Result<Clock, Error> {
        let context = &self.inner;
        if context.limits.clock_info_versions & VERSION_1 == 0 {
            let what = "the kernel provides no clock-info page";
            return Err(Error::new(VERB, ErrorKind::NotSupported, what));
        }
        let length = page_size();
        let offset = MmapCommand::ClockInfo.offset(0, length);
        let page = context.run(VERB, |file| file.map(offset, length, Access::Read))?;
        // `DeviceFile` can be implemented in safe code, so its result is checked.
        if page.len() < size_of::<ClockInfo>()
            || !page.as_ptr().addr().is_multiple_of(align_of::<AtomicU64>())
        {
            return Err(context.fail(VERB, Errno::EPROTO));
        }
        let start = page.as_non_null();
        Ok(Clock { page: Some(page), start, context: Arc::clone(context) })
    }
}

impl Clock {
    /// Maximum time between two updates of the page by the kernel, in jiffies, as the page has it.
    pub fn overflow_period(&self) -> u64 {
        if self.context.forked() {
            return 0;
        }
        // SAFETY: the offset is that of an aligned `u64` of [`ClockInfo`]. `clock` checked the
        // page's length and alignment; the page is mapped as long as `self` lives, and this is not
        // a forked child.
        unsafe {
            let word = self.start.byte_add(offset_of!(ClockInfo, overflow_period));
            word.cast::<AtomicU64>().as_ref().load(Relaxed)
        }
    }

    /// Reads the current relation of the clocks. The rate of the device's clock drifts: read again
    /// for timestamps much later than [`ClockRelation::valid_for`] allows.
    pub fn now(&self) -> Result<ClockRelation, Error> {
        // The page is not mapped in a child.
        self.context.check_process(VERB)?;
        let start = self.start;
        let word = |offset: usize| {
            // SAFETY: `offset` is that of an aligned `u64` of [`ClockInfo`]. `clock` checked the
            // page's length and alignment; the page is mapped as long as `self` lives.
            unsafe { start.byte_add(offset).cast::<AtomicU64>().as_ref() }.load(Relaxed)
        };
        let half = |offset: usize| {
            // SAFETY: `offset` is that of an aligned `u32` of [`ClockInfo`], in the page that
            // `clock` checked, which is mapped as long as `self` lives.
            unsafe { start.byte_add(offset).cast::<AtomicU32>().as_ref() }
        };
        for _ in 0..LOOKS {
            // The page is a sequence lock. On every architecture, the Acquire load orders the read
            // of `sign` before the reads of the fields; the Acquire fence orders these before the
            // second read of `sign`. They pair with the kernel's ordered stores to `sign` around
            // its update.
            let before = half(offset_of!(ClockInfo, sign)).load(Acquire);
            if before & UPDATING != 0 {
                std::hint::spin_loop();
                continue;
            }
            let relation = ClockRelation {
                nanoseconds: word(offset_of!(ClockInfo, nsec)),
                cycles: word(offset_of!(ClockInfo, cycles)),
                fraction: word(offset_of!(ClockInfo, frac)),
                multiplier: half(offset_of!(ClockInfo, mult)).load(Relaxed),
                shift: half(offset_of!(ClockInfo, shift)).load(Relaxed),
                mask: word(offset_of!(ClockInfo, mask)),
            };
            fence(Acquire);
            if half(offset_of!(ClockInfo, sign)).load(Relaxed) == before {
                return Ok(relation);
            }
        }
        Err(Error::busy(VERB, "the kernel does not stop rewriting the page"))
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        // In a child the range is not mapped, or holds another mapping: do not unmap it.
        if let Some(page) = self.page.take()
            && self.context.forked()
        {
            page.leak();
        }
    }
}

/// The relation between the device's clock and the time of day, as of one update of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockRelation {
    /// Nanoseconds since 1970 at the update.
    pub nanoseconds: u64,
    /// The device's clock at the update.
    pub cycles: u64,
    /// The fraction of a nanosecond at the update, in units of `1 / 2^shift` ns.
    pub fraction: u64,
    /// Units of `1 / 2^shift` ns in a cycle.
    pub multiplier: u32,
    /// See `multiplier`.
    pub shift: u32,
    /// Mask of the bits of a timestamp that the device's clock has.
    pub mask: u64,
}

impl ClockRelation {
    /// Converts a timestamp in cycles to nanoseconds since 1970. Correct for timestamps up to half
    /// the range of the clock before or after the last update of the page.
    pub fn nanoseconds(&self, timestamp: u64) -> u64 {
        let scale = |cycles: u64| u128::from(cycles) * u128::from(self.multiplier);
        let fraction = u128::from(self.fraction);
        let shift = self.shift & 0x7f;
        let ahead = timestamp.wrapping_sub(self.cycles) & self.mask;
        if ahead > self.mask / 2 {
            let behind = self.cycles.wrapping_sub(timestamp) & self.mask;
            self.nanoseconds.wrapping_sub((scale(behind).saturating_sub(fraction) >> shift) as u64)
        } else {
            self.nanoseconds.wrapping_add(((scale(ahead) + fraction) >> shift) as u64)
        }
    }

    /// Returns how long after [`Clock::now`] the timestamps of new completions are converted
    /// correctly: a sixth of the range of the device's clock, six minutes for 41 bits at 1 GHz.
    ///
    /// The conversion is correct up to half the range after the last update of the page, and the
    /// kernel updates the page at least every third of the range. The page's own `overflow_period`
    /// gives that in jiffies, whose length the kernel does not report.
    pub fn valid_for(&self) -> Duration {
        let cycles = u128::from(self.mask / 6);
        let nanoseconds = (cycles * u128::from(self.multiplier)) >> (self.shift & 0x7f);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

/// Converts a timestamp of a queue with [`Timestamps::RealTime`](crate::Timestamps::RealTime) to
/// nanoseconds since 1970. Such a timestamp has seconds in the high 32 bits and nanoseconds in the
/// low 32 bits.
pub const fn real_time_ns(timestamp: u64) -> u64 {
    (timestamp >> 32).wrapping_mul(1_000_000_000).wrapping_add(timestamp & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 1 GHz clock that read 5000 cycles at 1,000,000 ns.
    const RELATION: ClockRelation = ClockRelation {
        nanoseconds: 1_000_000,
        cycles: 5000,
        fraction: 0,
        multiplier: 1 << 23,
        shift: 23,
        mask: (1 << 41) - 1,
    };

    #[test]
    fn timestamps_before_and_after_the_update_are_distinguished() {
        assert_eq!(RELATION.nanoseconds(5000), 1_000_000);
        assert_eq!(RELATION.nanoseconds(5123), 1_000_123);
        assert_eq!(RELATION.nanoseconds(4900), 999_900);
        assert_eq!(RELATION.nanoseconds((1 << 41) + 5001), 1_000_001, "bits beyond the mask");
        let late = ClockRelation { cycles: (1 << 41) - 10, ..RELATION };
        assert_eq!(late.nanoseconds(5), 1_000_015, "the counter came round");
        let half = ClockRelation { multiplier: 1 << 22, fraction: 1 << 22, ..RELATION };
        assert_eq!(half.nanoseconds(5001), 1_000_001, "a half and a half");
        assert_eq!(half.nanoseconds(4999), 1_000_000);
        let far = 1 << 39;
        assert_eq!(RELATION.nanoseconds(5000 + far), 1_000_000 + far, "no overflow");
    }

    #[test]
    fn a_relation_is_valid_for_a_sixth_of_the_range() {
        assert_eq!(RELATION.valid_for(), Duration::from_nanos((1 << 41) / 6));
        // 156.25 MHz: 6.4 ns for each cycle.
        let slow = ClockRelation { multiplier: (64 << 23) / 10, ..RELATION };
        assert_eq!(slow.valid_for().as_secs(), 2345);
        // A page read just before its update, and a timestamp at the end of that time.
        let last = RELATION.cycles + RELATION.mask / 3 + RELATION.mask / 6;
        let right = |time| 1_000_000 + (time - RELATION.cycles);
        assert_eq!(RELATION.nanoseconds(last), right(last));
        assert_ne!(RELATION.nanoseconds(last + 4), right(last + 4), "taken for an earlier one");
        let zero = ClockRelation { multiplier: 0, shift: 0, ..RELATION };
        assert_eq!(zero.valid_for(), Duration::ZERO);
        let odd = ClockRelation { multiplier: u32::MAX, shift: 0, mask: u64::MAX, ..RELATION };
        assert_eq!(odd.valid_for(), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn real_time_is_seconds_and_nanoseconds() {
        assert_eq!(real_time_ns(3 << 32 | 7), 3_000_000_007);
    }
}
