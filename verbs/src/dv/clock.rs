//! The device's clock.

use crate::abi::mlx5dv::*;
use crate::abi::*;
use crate::context::ContextObject;
use crate::refusal::{Refusal, Verb, status};

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
    // SAFETY: the caller promises that `context` is open and that `info` is writable.
    let found = relation(unsafe { ContextObject::of(context) });
    // SAFETY: the caller promises that `info` is writable.
    status(found.map(|found| unsafe { info.write(found) }))
}
