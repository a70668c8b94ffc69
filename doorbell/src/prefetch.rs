//! Loading a cache line ahead of its use.

use core::ptr::NonNull;

/// Starts to load the cache line at an address, for writing. Never faults, whatever is there.
#[inline(always)]
pub fn prefetch(at: NonNull<u8>) {
    let at = at.as_ptr();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction is in the x86-64 baseline; it accesses nothing that the program can
    // see.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: the instruction is in the aarch64 baseline; it accesses nothing that the program can
    // see.
    unsafe {
        core::arch::asm!("prfm pstl1keep, [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    let _ = at;
}
