//! Barriers between the CPU and a bus-mastering device.
//!
//! Rust's fences order memory accesses between CPUs only: on aarch64 they compile to `dmb ish`, and
//! the inner shareable domain does not include the device. The barriers of this module do. Each
//! function states what it orders, for whom, and the instruction that it uses.

#[cfg(all(target_arch = "aarch64", not(miri)))]
macro_rules! instruction {
    ($text:literal) => {
        // SAFETY: a barrier instruction accesses no memory. The default memory clobber makes it a
        // compiler barrier as well.
        unsafe { core::arch::asm!($text, options(nostack, preserves_flags)) }
    };
}

#[cfg(all(not(target_arch = "aarch64"), not(miri)))]
#[inline]
fn compiler() {
    // SAFETY: the template is empty, so no instruction runs. The default memory clobber keeps the
    // compiler from moving loads and stores across it.
    unsafe { core::arch::asm!("", options(nostack, preserves_flags)) }
}

#[cfg(miri)]
fn compiler() {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Orders earlier stores to coherent memory before later stores to coherent memory, as the device
/// sees them: a WQE before the doorbell record.
///
/// x86-64: stores to write-back memory become visible in program order, to bus masters too, so a
/// compiler barrier suffices. aarch64: `dmb oshst`.
#[inline(always)]
pub fn to_device() {
    #[cfg(feature = "watch")]
    watch::passed();
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    instruction!("dmb oshst");
    #[cfg(any(not(target_arch = "aarch64"), miri))]
    compiler();
}

/// Orders earlier loads of memory that the device writes before later loads and stores: the
/// ownership bit before the rest of a CQE, the CQE before the data that it announces, and all of
/// them before the consumer index, which lets the device overwrite the CQE.
///
/// x86-64: loads from write-back memory are performed in program order, and before later stores, so
/// a compiler barrier suffices (no `lfence`). aarch64: `dmb oshld`.
#[inline]
pub fn from_device() {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    instruction!("dmb oshld");
    #[cfg(any(not(target_arch = "aarch64"), miri))]
    compiler();
}

/// Orders earlier stores to coherent memory before later stores to write-combining memory, as the
/// device sees them: the doorbell record before the doorbell register.
///
/// x86-64: write-combining stores are weakly ordered with respect to all other stores: `sfence`.
/// aarch64: `dsb st`.
#[inline]
pub fn write_combining_start() {
    store_fence();
}

/// Makes earlier stores to write-combining memory leave the CPU before anything later. Without it,
/// the next BlueFlame copy could merge with this one or overtake it, and the request could stay in
/// the write-combining buffer while the caller does something else.
///
/// x86-64: `sfence` drains the write-combining buffers. aarch64: `dsb st`.
#[inline]
pub fn write_combining_flush() {
    store_fence();
}

#[inline(always)]
fn store_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: `sfence` is part of SSE, and the x86-64 baseline includes SSE2.
    unsafe {
        core::arch::x86_64::_mm_sfence()
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    instruction!("dsb st");
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
}

/// Lets a test observe each call of `to_device`.
///
/// On x86-64 that barrier emits no instruction, so no other test would notice if a call were
/// missing.
#[cfg(feature = "watch")]
#[cfg_attr(docsrs, doc(cfg(feature = "watch")))]
pub mod watch {
    use core::sync::atomic::{AtomicPtr, Ordering::SeqCst};

    static WATCHER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

    /// Installs a function that every later [`to_device`](super::to_device) call of the process
    /// runs, or removes it with `None`.
    pub fn set(watcher: Option<fn()>) {
        WATCHER.store(watcher.map_or(core::ptr::null_mut(), |watcher| watcher as *mut ()), SeqCst);
    }

    pub(super) fn passed() {
        let watcher = WATCHER.load(SeqCst);
        if !watcher.is_null() {
            // SAFETY: the pointer is not null, and `set` stores nothing else but pointers made from
            // `fn()`.
            let watcher: fn() = unsafe { core::mem::transmute(watcher) };
            watcher();
        }
    }
}
