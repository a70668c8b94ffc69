//! The device's clock: its pages, and the time that it shows.

use crate::abi::*;
use crate::context::ContextObject;
use crate::dv_state::DvState;
use crate::refusal::{Refusal, Verb, status};
use mlx5_uapi::mlx5::{MmapCommand, UcontextRespMask};
use mlx5_uapi::{Access, page_size};

impl DvState {
    /// The kernel's page that relates the clock to the time of day, if there is one.
    pub(crate) fn clock(&self, context: &ContextObject) -> Option<&mlx5::Clock> {
        self.clock.get_or_init(|| context.context.clock().ok()).as_ref()
    }

    /// Returns the address of the device's clock, if it can be read.
    pub(crate) fn core_clock(&self, context: &ContextObject) -> Option<*mut c_void> {
        let answer = context.context.driver_limits();
        let mask = UcontextRespMask::from_bits_retain(answer.comp_mask);
        if !mask.contains(UcontextRespMask::CORE_CLOCK_OFFSET) {
            return None;
        }
        let size = page_size();
        let page = self.core_clock.get_or_init(|| {
            let offset = MmapCommand::CoreClock.offset(0, size);
            context.file().map(offset, size, Access::Read).ok()
        });
        let within = answer.hca_core_clock_offset as usize & (size - 1);
        Some(page.as_ref()?.as_ptr().wrapping_add(within).cast())
    }
}

/// Reads the clock. Its halves are read one after the other, until the upper one is the same before
/// and after.
fn cycles(context: &ContextObject) -> Verb<u64> {
    const LOOKS: u32 = 3;
    let clock = context.dv.core_clock(context).ok_or(Refusal::NOT_SUPPORTED)?.cast::<u32>();
    // SAFETY: the page is mapped while the context is open, and has two words there, which the
    // device keeps in network order.
    let half = |index| u32::from_be(unsafe { clock.add(index).read_volatile() });
    for _ in 0..LOOKS {
        let (high, low) = (half(0), half(1));
        if half(0) == high {
            return Ok(u64::from(high) << 32 | u64::from(low));
        }
    }
    Err(Refusal(libc::EBUSY))
}

/// The operation of `ibv_query_rt_values_ex`: cycles, which C returns as nanoseconds.
///
/// # Safety
/// `context` is open, `values` readable and writable.
pub unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    const RAW_CLOCK: u32 = IBV_VALUES_MASK_RAW_CLOCK;
    // SAFETY: the caller promises that `context` is open and that `values` is readable and
    // writable.
    let (context, values) = unsafe { (ContextObject::of(context), &mut *values) };
    let asked = std::mem::take(&mut values.comp_mask);
    if asked & RAW_CLOCK == 0 {
        return status(Ok(()));
    }
    status(cycles(context).map(|cycles| {
        values.raw_clock = Timespec { tv_sec: 0, tv_nsec: cycles as i64 };
        values.comp_mask = RAW_CLOCK;
    }))
}
