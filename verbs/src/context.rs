//! What the objects of an open device share.

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

/// Objects of C by the identifier that events have. An object that was removed gets no event.
pub(crate) struct ById<I, T>(Mutex<Table<I, T>>);

type Table<I, T> = HashMap<I, Counted<T>, BuildHasherDefault<Spread>>;

/// A hash of identifiers, which the provider counts up: no program chooses them.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        // No identifier comes here: each is one number. A zero counts too.
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte) + 1));
    }

    fn write_u64(&mut self, number: u64) {
        // By the golden ratio: numbers that follow each other differ in all bits that are used.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// An object, and how many of its events were handed out.
struct Counted<T> {
    object: *mut T,
    told: u32,
}

// SAFETY: the pointers are only handed on, under the lock.
unsafe impl<I: Send, T> Send for ById<I, T> {}
// SAFETY: as above.
unsafe impl<I: Send, T> Sync for ById<I, T> {}

impl<I: Eq + Hash, T> ById<I, T> {
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    fn lock(&self) -> MutexGuard<'_, Table<I, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, id: I, object: *mut T) {
        self.lock().insert(id, Counted { object, told: 0 });
    }

    /// The object that an event is about, which was told of it once more.
    pub(crate) fn tell(&self, id: &I) -> Option<*mut T> {
        let mut objects = self.lock();
        let found = objects.get_mut(id)?;
        found.told = found.told.wrapping_add(1);
        Some(found.object)
    }

    /// How many events the object was told, after which it gets no more.
    pub(crate) fn remove(&self, id: &I) -> u32 {
        self.lock().remove(id).map_or(0, |object| object.told)
    }
}

/// An open device.
#[repr(C)]
pub(crate) struct ContextObject {
    pub(crate) verbs: verbs_context,
    /// Before the context: see there.
    pub(crate) dv: DvState,
    pub(crate) context: InProcess<Context>,
    pub(crate) environment: Environment,
    pub(crate) objects: Arc<Objects>,
    pub(crate) watched: Watched,
}

/// The objects of a device that events are about. A thread that was told of an event has them too: another
/// one may close the device meanwhile.
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

/// What a thread that waits for an event of a device finds again: what the event is about.
pub(crate) struct Events {
    pub(crate) of: DetachedEvents,
    pub(crate) objects: Arc<Objects>,
}

static EVENTS: Places<Events> = Places::new();

/// Where threads that wait for events of a context find it again. A child has events of its own.
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
        // SAFETY: by the contract, the context is that field of an object of this type.
        unsafe { &*context.byte_sub(offset_of!(verbs_context, context)).cast() }
    }

    pub(crate) fn as_c(this: *mut Self) -> *mut ibv_context {
        this.wrapping_byte_add(offset_of!(verbs_context, context)).cast()
    }

    /// A handle that keeps the context if the program closes it before an object that is the kernel's
    /// alone.
    pub(crate) fn kept(&self) -> Context {
        Context::clone(&self.context)
    }

    pub(crate) fn file(&self) -> &dyn DeviceFile {
        // SAFETY: by it the library makes and ends what `mlx5` does not know (rules, counters, objects of
        // DEVX), and asks about the rest. An object that `mlx5` made is changed by it only with a command of
        // the program's, which owns the object and promises that the command does no harm.
        &**unsafe { self.context.device_file() }
    }
}

/// Waits until as many events were acknowledged as the object was told.
///
/// # Safety
/// `mutex` and `cond` are the object's, `completed` the counter that they guard.
pub(crate) unsafe fn wait_for_acks(
    mutex: *mut PthreadMutex,
    cond: *mut PthreadCond,
    completed: *const u32,
    told: u32,
) {
    // SAFETY: by the contract.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        while completed.read_volatile() != told {
            libc::pthread_cond_wait(cond, mutex);
        }
        libc::pthread_mutex_unlock(mutex);
    }
}

/// Counts acknowledged events, and wakes who waits to destroy the object.
///
/// # Safety
/// As for [`wait_for_acks`]; the counter is writable.
pub(crate) unsafe fn acknowledge(
    mutex: *mut PthreadMutex,
    cond: *mut PthreadCond,
    completed: *mut u32,
    events: u32,
) {
    // SAFETY: by the contract.
    unsafe {
        libc::pthread_mutex_lock(mutex);
        completed.write_volatile(completed.read_volatile().wrapping_add(events));
        libc::pthread_cond_signal(cond);
        libc::pthread_mutex_unlock(mutex);
    }
}
