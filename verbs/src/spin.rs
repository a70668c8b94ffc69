//! The lock of a queue. C takes one for each post and each poll, and may hold it from one call to a
//! later one (`ibv_wr_start`, `ibv_start_poll`), so there is no guard.

use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Maximum number of pauses between two checks of a waiter, as a power of two. With 6, sixteen
/// threads that share a queue have half the throughput in total; 10 adds nothing.
const LONGEST: u32 = 8;
/// Number of checks after which a waiter yields its core once.
const PATIENCE: u32 = 16;

/// A spin lock that a thread domain or `MLX5_SINGLE_THREADED` turns off.
pub(crate) struct Spin {
    /// The number of the thread that holds the lock, or zero.
    holder: AtomicUsize,
    /// False if the caller has promised that one thread at a time uses the queue.
    needed: bool,
}

impl Spin {
    pub(crate) const fn new(needed: bool) -> Self {
        Self { holder: AtomicUsize::new(0), needed }
    }

    #[inline(always)]
    pub(crate) fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    /// Takes the lock if it is free. Returns whether it did.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> bool {
        if self.needed {
            return self.holder.compare_exchange(0, this_thread(), Acquire, Relaxed).is_ok();
        }
        self.holder.store(this_thread(), Relaxed);
        true
    }

    /// Whether it keeps other threads out; without one the program promised that there are none.
    pub(crate) fn is_needed(&self) -> bool {
        self.needed
    }

    /// Whether this thread took the lock in an earlier call.
    pub(crate) fn is_mine(&self) -> bool {
        self.holder.load(Relaxed) == this_thread()
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) {
        let mut waits = 0_u32;
        loop {
            // Reads leave the cache line with the holder, and become rarer the longer the wait
            // lasts.
            while self.holder.load(Relaxed) != 0 {
                for _ in 0..1_u32 << waits.min(LONGEST) {
                    std::hint::spin_loop();
                }
                waits += 1;
                // The holder may have been preempted: then it needs the core.
                if waits.is_multiple_of(PATIENCE) {
                    std::thread::yield_now();
                }
            }
            if self.holder.compare_exchange_weak(0, this_thread(), Acquire, Relaxed).is_ok() {
                return;
            }
        }
    }

    #[inline(always)]
    pub(crate) fn unlock(&self) {
        // Even if the lock is not needed: the store costs less than a check.
        self.holder.store(0, Release);
    }

    /// Runs `body` with the lock held.
    #[inline(always)]
    pub(crate) fn hold<R>(&self, body: impl FnOnce() -> R) -> R {
        self.lock();
        let result = body();
        self.unlock();
        result
    }
}

/// A number that no other running thread has. It is not zero.
#[inline(always)]
pub(crate) fn this_thread() -> usize {
    let number: usize;
    // SAFETY: it only reads the address of the thread's own memory, which stays the same as long as
    // the thread runs.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) number, options(nostack, preserves_flags, readonly));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) number, options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        thread_local!(static OWN: u8 = const { 0 });
        number = OWN.with(|own| std::ptr::from_ref(own).addr());
    }
    number
}
