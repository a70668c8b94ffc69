//! Which time of day a timestamp of the device is.

use crate::context::{Context, Inner};
use crate::error::{Error, ErrorKind};
use mlx5_uapi::mlx5::{ClockInfo, MmapCommand};
use mlx5_uapi::{Access, Errno, Mapping, page_size};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
    fence,
};

const VERB: &str = "get_clock_info";
/// Bit of `clock_info_versions`: there is the page that this driver knows
/// (`MLX5_IB_CLOCK_INFO_V1`).
const VERSION_1: u8 = 1 << 0;
/// Bit of the page's sequence number: it is being rewritten
/// (`MLX5_IB_CLOCK_INFO_KERNEL_UPDATING`).
const UPDATING: u32 = 1;
/// Looks at a page that is being rewritten before giving up: a kernel is done in a few.
const LOOKS: u32 = 1 << 20;

/// The page in which the kernel keeps telling how the device's clock and the time of day belong
/// together. See [`Context::clock`].
pub struct Clock {
    /// There until the value is dropped.
    page: Option<Mapping>,
    start: NonNull<u8>,
    context: Arc<Inner>,
}

// SAFETY: `start` is an address in the page, which is Send, and is only read, atomically.
unsafe impl Send for Clock {}
// SAFETY: as above.
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
            let what = "the kernel has no page that relates the clocks";
            return Err(Error::new(VERB, ErrorKind::NotSupported, what));
        }
        let length = page_size();
        let offset = MmapCommand::ClockInfo.offset(0, length);
        let page = context.run(VERB, |file| file.map(offset, length, Access::Read))?;
        // Whoever implements the seam does so in safe code: an answer proves nothing.
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
    /// How the clocks belong together now. The device's clock moves on at a rate that is not quite
    /// even: for timestamps much later than [`ClockRelation::valid_for`], it is to be asked anew.
    pub fn now(&self) -> Result<ClockRelation, Error> {
        // A child does not have the page.
        self.context.check_process(VERB)?;
        let start = self.start;
        let word = |offset: usize| {
            // SAFETY: an aligned word of the page, which is mapped as long as `self` lives.
            unsafe { start.byte_add(offset).cast::<AtomicU64>().as_ref() }.load(Relaxed)
        };
        let half = |offset: usize| {
            // SAFETY: as above.
            unsafe { start.byte_add(offset).cast::<AtomicU32>().as_ref() }
        };
        for _ in 0..LOOKS {
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
                valid_for: word(offset_of!(ClockInfo, overflow_period)),
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
        // In a child the range is not mapped, or by now someone else's.
        if let Some(page) = self.page.take()
            && self.context.forked()
        {
            page.leak();
        }
    }
}

/// How the device's clock and the time of day belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockRelation {
    nanoseconds: u64,
    cycles: u64,
    fraction: u64,
    multiplier: u32,
    shift: u32,
    mask: u64,
    valid_for: u64,
}

impl ClockRelation {
    /// The time of day, in nanoseconds since 1970, of a timestamp in cycles: of half the clock's
    /// range before the last update of the page, or half after it.
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

    /// How many nanoseconds after the last update of the page it is good for: the kernel updates it
    /// more often.
    pub fn valid_for(&self) -> u64 {
        self.valid_for
    }
}

/// Nanoseconds since 1970 of a timestamp of a queue made with
/// [`Timestamps::RealTime`](crate::Timestamps::RealTime): the device counts seconds in the high half,
/// and nanoseconds in the low one.
pub const fn real_time_ns(timestamp: u64) -> u64 {
    (timestamp >> 32).wrapping_mul(1_000_000_000).wrapping_add(timestamp & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock of 1 GHz that stood at 5000 when it was 1,000,000 ns.
    const RELATION: ClockRelation = ClockRelation {
        nanoseconds: 1_000_000,
        cycles: 5000,
        fraction: 0,
        multiplier: 1 << 23,
        shift: 23,
        mask: (1 << 41) - 1,
        valid_for: 1,
    };

    #[test]
    fn timestamps_before_and_after_the_update_are_told_apart() {
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
    fn real_time_is_seconds_and_nanoseconds() {
        assert_eq!(real_time_ns(3 << 32 | 7), 3_000_000_007);
    }
}
