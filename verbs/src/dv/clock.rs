//! The device's clock.

use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::context::ContextObject;
use crate::dv_state::DvState;
use crate::refusal::{Refusal, Verb, status};
use mlx5_uapi::mlx5::{MmapCommand, UcontextRespMask};
use mlx5_uapi::{Access, page_size};

impl DvState {
    /// The kernel's page that relates the clock to the time of day, if there is one.
    pub(super) fn clock(&self, context: &ContextObject) -> Option<&mlx5::Clock> {
        self.clock.get_or_init(|| context.context.clock().ok()).as_ref()
    }

    /// Where the device's clock can be read, if it can.
    pub(super) fn core_clock(&self, context: &ContextObject) -> Option<*mut c_void> {
        let answer = context.context.driver_limits();
        let told = UcontextRespMask::from_bits_retain(answer.comp_mask);
        if !told.contains(UcontextRespMask::CORE_CLOCK_OFFSET) {
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

fn relation(context: &ContextObject) -> Verb<mlx5dv_clock_info> {
    let now = context.dv.clock(context).ok_or(Refusal::INVALID)?.now()?;
    Ok(mlx5dv_clock_info {
        nsec: now.nanoseconds,
        last_cycles: now.cycles,
        frac: now.fraction,
        mult: now.multiplier,
        shift: now.shift,
        mask: now.mask,
    })
}

/// `mlx5dv_get_clock_info`.
///
/// # Safety
/// `context` is open, `info` writable.
pub unsafe extern "C" fn get_clock_info(
    context: *mut ibv_context,
    info: *mut mlx5dv_clock_info,
) -> c_int {
    // SAFETY: by the contract.
    let found = relation(unsafe { ContextObject::of(context) });
    // SAFETY: by the contract.
    status(found.map(|found| unsafe { info.write(found) }))
}
