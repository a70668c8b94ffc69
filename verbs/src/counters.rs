//! Counters of flow rules.

use crate::abi::*;
use crate::close;
use crate::context::ContextObject;
use crate::object::{boxed, ended};
use crate::refusal::{Refusal, Verb, object, status};
use mlx5::Context;
use mlx5_uapi::cmd::counters as command;
use mlx5_uapi::mlx5::FlowCountersDesc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counters' configuration.
#[derive(Default)]
pub(crate) struct Counted {
    /// In the order in which C passes it to the kernel: the last attached entry first.
    list: Vec<FlowCountersDesc>,
    /// Number of rules that count.
    rules: u32,
}

/// The state that counters share with their rules: another thread may destroy the counters as soon
/// as the kernel has destroyed the last rule.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Counted>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a rule that counts. It passes the configuration to the kernel, unless another rule
    /// did.
    pub(crate) fn count<R>(
        &self,
        make: impl FnOnce(Option<&[FlowCountersDesc]>) -> Verb<R>,
    ) -> Verb<R> {
        let mut counted = self.lock();
        let first = counted.rules == 0;
        if first && counted.list.is_empty() {
            return Err(Refusal::INVALID);
        }
        let made = make(first.then_some(&counted.list))?;
        counted.rules += 1;
        Ok(made)
    }

    /// Destroys a rule that counts. No other rule is created before the kernel has forgotten the
    /// last one's configuration.
    pub(crate) fn end_rule(&self, end: impl FnOnce() -> Verb) -> Verb {
        let mut counted = self.lock();
        end()?;
        counted.rules -= 1;
        Ok(())
    }
}

/// Counters.
#[repr(C)]
pub(crate) struct CountersObject {
    c: ibv_counters,
    pub(crate) handle: u32,
    counted: Arc<Shared>,
    /// Keeps the context, which may be closed before the counters are destroyed.
    _kept: Context,
}

impl CountersObject {
    /// # Safety
    /// `counters` were not destroyed.
    pub(crate) unsafe fn of<'a>(counters: *mut ibv_counters) -> &'a Self {
        // SAFETY: the caller promises that `counters` were not destroyed: they are the first field
        // of an object of this type.
        unsafe { &*counters.cast() }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.counted)
    }

    fn file(&self) -> &dyn mlx5_uapi::DeviceFile {
        // SAFETY: the counters keep their context.
        unsafe { ContextObject::of(self.c.context) }.file()
    }
}

/// The operation of `ibv_create_counters`.
///
/// # Safety
/// `context` is open, `init` readable.
pub unsafe extern "C" fn create_counters(
    context: *mut ibv_context,
    init: *mut ibv_counters_init_attr,
) -> *mut ibv_counters {
    // SAFETY: the caller promises that `context` is open and that `init` is readable.
    let made = unsafe {
        match (*init).comp_mask {
            0 => command::create(ContextObject::of(context).file()).map_err(Into::into),
            _ => Err(Refusal::NOT_SUPPORTED),
        }
    };
    object(made.map(|handle| {
        let c = ibv_counters { context };
        // SAFETY: the caller promises that `context` is open.
        let _kept = unsafe { ContextObject::of(context) }.kept();
        boxed(CountersObject { c, handle, counted: Arc::default(), _kept })
    }))
}

/// The operation of `ibv_destroy_counters`: EBUSY while a rule counts.
///
/// # Safety
/// `counters` were not destroyed. If the call succeeds, they are used no more.
pub unsafe extern "C" fn destroy_counters(counters: *mut ibv_counters) -> c_int {
    // SAFETY: the caller promises that `counters` were not destroyed, and uses them no more if the
    // call succeeds; `create_counters` boxed them.
    status(unsafe {
        let this = CountersObject::of(counters);
        ended(command::destroy(this.file(), this.handle).map_err(Into::into)).map(|()| {
            drop(Box::<CountersObject>::from_raw(counters.cast()));
            close::again();
        })
    })
}

/// The operation of `ibv_attach_counters_point_flow`: sets what later rules count.
///
/// # Safety
/// `counters` were not destroyed, `attr` is readable.
pub unsafe extern "C" fn attach_counters_point_flow(
    counters: *mut ibv_counters,
    attr: *mut ibv_counter_attach_attr,
    flow: *mut ibv_flow,
) -> c_int {
    // SAFETY: the caller promises that `counters` were not destroyed and that `attr` is readable.
    let (this, attr) = unsafe { (CountersObject::of(counters), &*attr) };
    let attach = || {
        if !flow.is_null()
            || attr.comp_mask != 0
            || ![IBV_COUNTER_PACKETS, IBV_COUNTER_BYTES].contains(&attr.counter_desc)
        {
            return Err(Refusal::NOT_SUPPORTED);
        }
        let mut counted = this.counted.lock();
        if counted.rules != 0 {
            return Err(Refusal(libc::EBUSY));
        }
        let one = FlowCountersDesc { description: attr.counter_desc, index: attr.index };
        counted.list.insert(0, one);
        Ok(())
    };
    status(attach())
}

/// The operation of `ibv_read_counters`.
///
/// # Safety
/// `counters` were not destroyed; `values` is writable for `count` numbers.
pub unsafe extern "C" fn read_counters(
    counters: *mut ibv_counters,
    values: *mut u64,
    count: u32,
    flags: u32,
) -> c_int {
    /// `IBV_READ_COUNTERS_ATTR_PREFER_CACHED`.
    const CACHED: u32 = IBV_READ_COUNTERS_ATTR_PREFER_CACHED;
    if flags & !CACHED != 0 || values.is_null() {
        return status(Err(Refusal::INVALID));
    }
    // SAFETY: the caller promises that `counters` were not destroyed and that `values` is writable
    // for `count` numbers.
    let (this, values) = unsafe {
        let values = std::slice::from_raw_parts_mut(values, count as usize);
        (CountersObject::of(counters), values)
    };
    status(command::read(this.file(), this.handle, values, flags != 0).map_err(Into::into))
}
