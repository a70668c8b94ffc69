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

/// What is counted.
#[derive(Default)]
pub(crate) struct Counted {
    /// In the order in which C tells the kernel: the last that was attached first.
    list: Vec<FlowCountersDesc>,
    /// Rules that count.
    rules: u32,
}

/// What counters share with the rules that count: another thread may destroy them as soon as the kernel has
/// ended the last rule.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Counted>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a rule that counts, with what is counted if no other one has told the kernel.
    pub(crate) fn count<R>(
        &self,
        make: impl FnOnce(Option<&[FlowCountersDesc]>) -> Verb<R>,
    ) -> Verb<R> {
        let mut counted = self.lock();
        let untold = counted.rules == 0;
        if untold && counted.list.is_empty() {
            return Err(Refusal::INVALID);
        }
        let made = make(untold.then_some(&counted.list))?;
        counted.rules += 1;
        Ok(made)
    }

    /// Ends a rule that counts. No other is made before the kernel has forgotten what the last one counted.
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
    /// The context may be closed before they are destroyed.
    _kept: Context,
}

impl CountersObject {
    /// # Safety
    /// `counters` were not destroyed.
    pub(crate) unsafe fn of<'a>(counters: *mut ibv_counters) -> &'a Self {
        // SAFETY: by the contract, it is the first field of an object of this type.
        unsafe { &*counters.cast() }
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.counted)
    }

    fn file(&self) -> &dyn mlx5_uapi::DeviceFile {
        // SAFETY: counters have a context, which they keep.
        unsafe { ContextObject::of(self.c.context) }.file()
    }
}

/// The operation behind `ibv_create_counters`.
///
/// # Safety
/// `context` is open, `init` readable.
pub unsafe extern "C" fn create_counters(
    context: *mut ibv_context,
    init: *mut ibv_counters_init_attr,
) -> *mut ibv_counters {
    // SAFETY: by the contract.
    let made = unsafe {
        match (*init).comp_mask {
            0 => command::create(ContextObject::of(context).file()).map_err(Into::into),
            _ => Err(Refusal::NOT_SUPPORTED),
        }
    };
    object(made.map(|handle| {
        let c = ibv_counters { context };
        // SAFETY: by the contract.
        let _kept = unsafe { ContextObject::of(context) }.kept();
        boxed(CountersObject { c, handle, counted: Arc::default(), _kept })
    }))
}

/// The operation behind `ibv_destroy_counters`: EBUSY as long as a rule counts.
///
/// # Safety
/// `counters` were not destroyed. If the call succeeds, they are used no more.
pub unsafe extern "C" fn destroy_counters(counters: *mut ibv_counters) -> c_int {
    // SAFETY: by the contract; the box was made by `create_counters`.
    status(unsafe {
        let this = CountersObject::of(counters);
        ended(command::destroy(this.file(), this.handle).map_err(Into::into)).map(|()| {
            drop(Box::<CountersObject>::from_raw(counters.cast()));
            close::again();
        })
    })
}

/// The operation behind `ibv_attach_counters_point_flow`: what rules count that are made later.
///
/// # Safety
/// `counters` were not destroyed, `attr` is readable.
pub unsafe extern "C" fn attach_counters_point_flow(
    counters: *mut ibv_counters,
    attr: *mut ibv_counter_attach_attr,
    flow: *mut ibv_flow,
) -> c_int {
    // SAFETY: by the contract.
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

/// The operation behind `ibv_read_counters`.
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
    // SAFETY: by the contract.
    let (this, values) = unsafe {
        let values = std::slice::from_raw_parts_mut(values, count as usize);
        (CountersObject::of(counters), values)
    };
    status(command::read(this.file(), this.handle, values, flags != 0).map_err(Into::into))
}
