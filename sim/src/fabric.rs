//! The handle of a fabric: its lock, its thread, its steps.

use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::config::SimConfig;
use crate::dma::{Dma, ProcessMemory};
use crate::engine::Engine;

/// Units of work between releases of the lock.
const BURST: usize = 64;
/// Time for which an idle thread spins, and then yields between looks, before it sleeps between
/// looks.
#[derive(Clone, Copy)]
struct Patience {
    spin: Duration,
    yielding: Duration,
}

/// For a thread in the process that it serves.
const EAGER: Patience =
    Patience { spin: Duration::from_micros(50), yielding: Duration::from_millis(2) };
/// For a thread beside processes that spin themselves. The scheduler wakes a sleeping thread before
/// their time slices end, but a thread that spins or yields just competes with them.
const POLITE: Patience = Patience { spin: Duration::from_micros(5), yielding: Duration::ZERO };
/// The shortest and the longest sleep between looks. No doorbell wakes the thread: it is only a
/// write to plain memory.
const SLEEP: [Duration; 2] = [Duration::from_micros(50), Duration::from_millis(1)];
/// Idle time after which the thread uses the longest sleep.
const DEEP: Duration = Duration::from_millis(100);
/// Sleep after [`DEEP`] idle time if no device is open: no doorbell can ring, and the command that
/// opens a device wakes the thread.
const UNUSED: Duration = Duration::from_millis(50);

/// Behaviour of an idle thread until it looks again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    Spin,
    Yield,
    Sleep(Duration),
}

impl Patience {
    /// Behaviour of a thread after `idle` time without work. `waits` is whether work may come that
    /// does not wake the thread.
    fn rest(self, idle: Duration, waits: bool) -> Rest {
        if idle < self.spin {
            Rest::Spin
        } else if idle < self.yielding {
            Rest::Yield
        } else if idle < DEEP {
            Rest::Sleep(SLEEP[0])
        } else {
            Rest::Sleep(if waits { SLEEP[1] } else { UNUSED })
        }
    }
}

struct Shared {
    engine: Mutex<Engine>,
    /// Threads that wait for the lock, which the engine's thread would otherwise hardly release.
    waiting: AtomicUsize,
    stop: AtomicBool,
    config: SimConfig,
    patience: Patience,
    /// Additional work of the thread between units of work.
    chore: OnceLock<Chore>,
}

/// Work that the fabric's thread does in addition to the devices' work. It returns whether more of
/// it may become due without a wake-up of the thread.
pub(crate) type Chore = Box<dyn Fn() -> bool + Send + Sync>;

impl Shared {
    /// Locks the engine. A panic elsewhere leaves it usable: every command is checked again.
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops the thread when the last handle is dropped.
struct Owner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pid: u32,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // A forked child has no such thread, and may find the lock held forever.
        if self.pid != std::process::id() {
            if let Some(thread) = self.thread.take() {
                std::mem::forget(thread);
            }
            return;
        }
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            thread.thread().unpark();
            // The thread has no result and does not end by a panic.
            let _ = thread.join();
        }
    }
}

/// Devices that can reach each other, and the engine that runs them.
#[derive(Clone)]
pub struct Fabric {
    owner: Arc<Owner>,
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric").field("config", self.config()).finish_non_exhaustive()
    }
}

impl Fabric {
    /// The devices of a configuration, over this process's memory.
    #[must_use]
    pub fn new(config: SimConfig) -> Self {
        // SAFETY: only the doors of this crate give the engine buffers and keys. Their callers
        // promised to keep that memory mapped, and the doors destroy the objects before they
        // release it.
        let memory = unsafe {
            if config.checked_memory { ProcessMemory::checked() } else { ProcessMemory::new() }
        };
        let dma: Arc<dyn Dma> = Arc::new(memory);
        Self::with_memory(config, &dma)
    }

    /// The devices of a configuration, over some memory.
    #[must_use]
    pub fn with_memory(config: SimConfig, dma: &Arc<dyn Dma>) -> Self {
        Self::start(config, dma, EAGER)
    }

    /// The same for devices of other processes, with a thread that spins little.
    pub(crate) fn for_processes(config: SimConfig, dma: &Arc<dyn Dma>) -> Self {
        Self::start(config, dma, POLITE)
    }

    fn start(config: SimConfig, dma: &Arc<dyn Dma>, patience: Patience) -> Self {
        let mut engine = Engine::new(config.step);
        engine.set_network(&config);
        for _ in 0..config.devices {
            engine.add_device(&config, Arc::clone(dma));
        }
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            waiting: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            config,
            patience,
            chore: OnceLock::new(),
        });
        let thread = (!shared.config.step).then(|| spawn(Arc::clone(&shared)));
        Self { owner: Arc::new(Owner { shared, thread, pid: std::process::id() }) }
    }

    /// Sets the additional work of the thread, which it does with the fabric unlocked. It can be
    /// set only once.
    pub(crate) fn set_chore(&self, chore: Chore) {
        let _ = self.owner.shared.chore.set(chore);
    }

    /// Wakes the thread, so that it runs its chore.
    pub(crate) fn wake(&self) {
        if let Some(thread) = &self.owner.thread {
            thread.thread().unpark();
        }
    }

    /// The configuration from which it was made.
    #[must_use]
    pub fn config(&self) -> &SimConfig {
        &self.owner.shared.config
    }

    /// Stops the engine between units of work and returns it, for commands to its devices.
    #[must_use]
    pub fn lock(&self) -> Guard<'_> {
        let shared = &self.owner.shared;
        shared.waiting.fetch_add(1, Ordering::AcqRel);
        let engine = shared.lock();
        shared.waiting.fetch_sub(1, Ordering::AcqRel);
        Guard { engine, thread: self.owner.thread.as_ref().map(JoinHandle::thread) }
    }

    /// Does one unit of work, at most one WQE, and returns whether there was any.
    pub fn step(&self) -> bool {
        self.lock().step()
    }

    /// Works until nothing is left to do and returns the number of units.
    pub fn run_until_idle(&self) -> usize {
        let mut units = 0;
        while self.step() {
            units += 1;
        }
        units
    }

    /// Works until `time` of virtual time has passed.
    pub fn run_for(&self, time: Duration) {
        self.lock().run_for(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// The engine, locked.
pub struct Guard<'a> {
    engine: MutexGuard<'a, Engine>,
    thread: Option<&'a Thread>,
}

impl Deref for Guard<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // A command may have made work: wake an idle thread for it.
        if let Some(thread) = self.thread {
            thread.unpark();
        }
    }
}

/// Starts the engine's thread.
///
/// Without a thread there is no fabric, and a panic of the model ends the process: otherwise
/// drivers would wait forever, without a message, for a device whose thread never started or
/// panicked.
fn spawn(shared: Arc<Shared>) -> JoinHandle<()> {
    let run = move || {
        if catch_unwind(AssertUnwindSafe(|| work(&shared))).is_err() {
            eprintln!(
                "mlx5-sim: the model of the device panicked, which is a fault of the simulator"
            );
            std::process::abort();
        }
    };
    let thread = thread::Builder::new().name("mlx5-sim".into()).spawn(run);
    thread.unwrap_or_else(|error| panic!("mlx5-sim: no thread for the devices: {error}"))
}

fn work(shared: &Shared) {
    let mut idle_since: Option<Instant> = None;
    while !shared.stop.load(Ordering::Acquire) {
        let mut worked = false;
        let mut waits;
        {
            let mut engine = shared.lock();
            for _ in 0..BURST {
                if !engine.step() {
                    break;
                }
                worked = true;
            }
            waits = engine.is_open();
        }
        if let Some(chore) = shared.chore.get() {
            waits |= chore();
        }
        while shared.waiting.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        if worked {
            idle_since = None;
            continue;
        }
        let idle = idle_since.get_or_insert_with(Instant::now).elapsed();
        match shared.patience.rest(idle, waits) {
            Rest::Spin => std::hint::spin_loop(),
            Rest::Yield => thread::yield_now(),
            Rest::Sleep(time) => thread::park_timeout(time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sleeps_long_only_if_nothing_comes_that_does_not_wake_it() {
        let moment = Duration::from_nanos(1);
        for waits in [true, false] {
            assert_eq!(EAGER.rest(EAGER.spin - moment, waits), Rest::Spin);
            assert_eq!(EAGER.rest(EAGER.spin, waits), Rest::Yield);
            assert_eq!(POLITE.rest(POLITE.spin, waits), Rest::Sleep(SLEEP[0]));
            assert_eq!(POLITE.rest(DEEP - moment, waits), Rest::Sleep(SLEEP[0]));
        }
        assert_eq!(POLITE.rest(DEEP, true), Rest::Sleep(SLEEP[1]));
        assert_eq!(POLITE.rest(DEEP, false), Rest::Sleep(UNUSED));
    }

    #[test]
    fn a_device_is_open_while_somebody_has_a_page_of_it() {
        let fabric = Fabric::new(SimConfig::new().devices(2));
        assert!(!fabric.lock().is_open());
        let page = fabric.lock().device_mut(1).alloc_uar(None).expect("a page");
        assert!(fabric.lock().is_open());
        fabric.lock().device_mut(1).dealloc_uar(page).expect("nothing rings there");
        assert!(!fabric.lock().is_open());
    }
}
