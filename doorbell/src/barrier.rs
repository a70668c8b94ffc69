//! Barriers between the CPU and a device that masters the bus.
//!
//! Rust's fences order memory among CPUs: on aarch64 they become `dmb ish`, whose shareability
//! domain ends before the device. These reach it. Each function says what it orders, for whom.

#[cfg(all(target_arch = "aarch64", not(miri)))]
macro_rules! instruction {
    ($text:literal) => {
        // SAFETY: a barrier instruction reads and writes nothing; the default memory clobber makes
        // it a barrier to the compiler too.
        unsafe { core::arch::asm!($text, options(nostack, preserves_flags)) }
    };
}

#[cfg(all(not(target_arch = "aarch64"), not(miri)))]
#[inline(always)]
fn compiler() {
    // SAFETY: no instruction; the default memory clobber stops the compiler from moving loads and
    // stores across it.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) }
}

#[cfg(miri)]
fn compiler() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Stores to coherent memory before it are seen by the device before stores to coherent memory
/// after it: WQE before doorbell record.
///
/// x86-64: stores to write-back memory become visible in program order, also to bus masters, so
/// only the compiler needs to be held. aarch64: `dmb oshst`.
#[inline(always)]
pub fn to_device() {
    #[cfg(feature = "watch")]
    watch::passed();
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    instruction!("dmb oshst");
    #[cfg(any(not(target_arch = "aarch64"), miri))]
    compiler();
}

/// Loads before it, of what the device writes, are performed before loads and stores after it:
/// owner bit before the rest of a CQE, CQE before the data it announces, and all of them before the
/// consumer counter that lets the device write there again.
///
/// x86-64: loads from write-back memory are performed in program order, and before later stores, so
/// only the compiler needs to be held (no `lfence`). aarch64: `dmb oshld`.
#[inline(always)]
pub fn from_device() {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    instruction!("dmb oshld");
    #[cfg(any(not(target_arch = "aarch64"), miri))]
    compiler();
}

/// Stores to coherent memory before it are seen by the device before write-combined stores after
/// it: doorbell record before doorbell register.
///
/// x86-64: write-combined stores are weakly ordered with all others: `sfence`. aarch64: `dsb st`.
#[inline(always)]
pub fn write_combining_start() {
    store_fence();
}

/// Write-combined stores before it leave the CPU before anything after it: one BlueFlame copy
/// before the next, which would else merge with it or overtake it; and the request before the
/// caller goes on to something else.
///
/// x86-64: `sfence` empties the combining buffers. aarch64: `dsb st`.
#[inline(always)]
pub fn write_combining_flush() {
    store_fence();
}

#[inline(always)]
fn store_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE2, which has the instruction, is part of the x86-64 baseline.
    unsafe {
        core::arch::x86_64::_mm_sfence()
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    instruction!("dsb st");
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// For tests: what there is when a barrier is passed whose absence nothing else would show, for on
/// x86-64 it holds the compiler alone.
#[cfg(feature = "watch")]
pub mod watch {
    use core::sync::atomic::{AtomicPtr, Ordering::SeqCst};

    static WATCHER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

    /// Has `watcher` called at every [`to_device`](super::to_device) of the process from now on, or
    /// nobody.
    pub fn set(watcher: Option<fn()>) {
        WATCHER.store(watcher.map_or(core::ptr::null_mut(), |watcher| watcher as *mut ()), SeqCst);
    }

    pub(super) fn passed() {
        let watcher = WATCHER.load(SeqCst);
        if !watcher.is_null() {
            // SAFETY: all that is ever stored there beside null is such a function.
            let watcher: fn() = unsafe { core::mem::transmute(watcher) };
            watcher();
        }
    }
}
