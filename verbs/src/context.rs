//! The state that the objects of an open device share.

use crate::abi::*;
use crate::channels::Channels;
use crate::dv_state::DvState;
use crate::environment::Environment;
use crate::process::InProcess;
use crate::waiting::{Places, Shown, Waited};
use mlx5::{AsyncEvents, Context, CqId, DetachedEvents, QpId, SrqId, WqId};
use mlx5_uapi::DeviceFile;
use mlx5_uapi::process::Origin;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::mem::offset_of;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// C's objects by the identifier that events carry. A removed object gets no event.
pub(crate) struct ById<I, T>(Mutex<Table<I, T>>);

type Table<I, T> = HashMap<I, Counted<T>, BuildHasherDefault<Spread>>;

/// A hash of identifiers. The provider counts them up, so no program chooses them.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        // Identifiers do not use this: each is one number. A zero must change the hash, too.
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte) + 1));
    }

    fn write_u64(&mut self, number: u64) {
        // Multiply by the golden ratio: consecutive numbers then differ in all bits that are used.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// An object, and the number of its events that were returned.
struct Counted<T> {
    object: *mut T,
    delivered: u32,
}

// SAFETY: the pointers are stored and copied under the lock, and never dereferenced here.
unsafe impl<I: Send, T> Send for ById<I, T> {}
// SAFETY: the pointers are stored and copied under the lock, and never dereferenced here.
unsafe impl<I: Send, T> Sync for ById<I, T> {}

impl<I: Eq + Hash, T> ById<I, T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    fn lock(&self) -> MutexGuard<'_, Table<I, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, id: I, object: *mut T) {
        self.lock().insert(id, Counted { object, delivered: 0 });
    }

    /// Returns the object of an event, and counts the event for it.
    pub(crate) fn deliver(&self, id: &I) -> Option<*mut T> {
        let mut objects = self.lock();
        let found = objects.get_mut(id)?;
        found.delivered = found.delivered.wrapping_add(1);
        Some(found.object)
    }

    /// Removes an object, and returns the number of its events; it gets no more.
    pub(crate) fn remove(&self, id: &I) -> u32 {
        self.lock().remove(id).map_or(0, |object| object.delivered)
    }
}

/// An open device.
#[repr(C)]
pub(crate) struct ContextObject {
    pub(crate) verbs: verbs_context,
    /// Dropped before the context: see `DvState`.
    pub(crate) dv: DvState,
    pub(crate) context: InProcess<Context>,
    pub(crate) environment: Environment,
    pub(crate) objects: Arc<Objects>,
    pub(crate) watched: Watched,
}

/// The objects of a device that events are about. A thread that got an event shares them, because
/// another thread may close the device meanwhile.
pub(crate) struct Objects {
    pub(crate) qps: ById<QpId, ibv_qp>,
    pub(crate) cqs: ById<CqId, ibv_cq>,
    pub(crate) srqs: ById<SrqId, ibv_srq>,
    pub(crate) wqs: ById<WqId, ibv_wq>,
    pub(crate) channels: Channels,
}

impl Objects {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            qps: ById::new(),
            cqs: ById::new(),
            srqs: ById::new(),
            wqs: ById::new(),
            channels: Channels::default(),
        })
    }
}

/// The state that a thread needs after it waited for an event: the objects of the device.
pub(crate) struct Events {
    pub(crate) of: DetachedEvents,
    pub(crate) objects: Arc<Objects>,
}

static EVENTS: Places<Events> = Places::new();

/// The entry by which threads that wait for events of a context find its state. A child has its own
/// events.
#[derive(Default)]
pub(crate) struct Watched(Mutex<Option<(Origin, Shown<Events>)>>);

impl Watched {
    pub(crate) fn events(&self, objects: &Arc<Objects>, of: &AsyncEvents) -> Waited<Events> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((origin, events)) = &*watched
            && !origin.left()
        {
            return events.waited();
        }
        let events = Events { of: of.detach(), objects: Arc::clone(objects) };
        watched.insert((Origin::here(), EVENTS.show(events))).1.waited()
    }
}

impl ContextObject {
    /// # Safety
    /// `context` is an open context.
    pub(crate) unsafe fn of<'a>(context: *mut ibv_context) -> &'a Self {
        // SAFETY: the caller promises that `context` is open: it is that field of an object of this
        // type.
        unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast() }
    }

    pub(crate) fn as_c(this: *mut Self) -> *mut ibv_context {
        this.wrapping_byte_add(offset_of!(verbs_context, context)).cast()
    }

    /// A handle that keeps the context if the program closes it before an object that exists only
    /// in the kernel.
    pub(crate) fn kept(&self) -> Context {
        Context::clone(&self.context)
    }

    pub(crate) fn file(&self) -> &dyn DeviceFile {
        // SAFETY: the library uses it to create and destroy objects that `mlx5` does not have
        // (rules, counters, objects of DEVX), and otherwise only to query. It changes an object of
        // `mlx5` only by a command of the program, which owns the object and promises that the
        // command does no harm.
        &**unsafe { self.context.device_file() }
    }
}

/// Waits until the program has acknowledged all events of the object.
///
/// # Safety
/// `mutex` and `cond` are the object's, `completed` the counter that they guard.
pub(crate) unsafe fn wait_for_acks(
    mutex: *mut PthreadMutex,
    cond: *mut PthreadCond,
    completed: *const u32,
    delivered: u32,
) {
    // SAFETY: the caller promises that `mutex` and `cond` are the object's, and that they guard
    // `completed`.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        while completed.read_volatile() != delivered {
            libc::pthread_cond_wait(cond, mutex);
        }
        libc::pthread_mutex_unlock(mutex);
    }
}

/// Counts acknowledged events, and wakes the thread that waits to destroy the object.
///
/// # Safety
/// As for [`wait_for_acks`]; the counter is writable.
pub(crate) unsafe fn acknowledge(
    mutex: *mut PthreadMutex,
    cond: *mut PthreadCond,
    completed: *mut u32,
    events: u32,
) {
    // SAFETY: the caller promises that `mutex` and `cond` are the object's, and that they guard
    // `completed`.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        completed.write_volatile(completed.read_volatile().wrapping_add(events));
        libc::pthread_cond_signal(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}
