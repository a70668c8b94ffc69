//! Receive work queues, and the tables of them over which a queue pair spreads packets.

use crate::abi::*;
use crate::close;
use crate::context::{ContextObject, wait_for_acks};
use crate::cq::CqObject;
use crate::environment;
use crate::object::{Blank, boxed, destroy, ended};
use crate::parent::Purpose;
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object, status};
use crate::request::{only, receive_errno, receives, refused, single_receive};
use crate::spin::Spin;
use mlx5::{IndirectionTable, RawWorkQueue, WorkQueue, WorkQueueTarget};
use mlx5_uapi::verbs::{WqFlags, WqState};
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A receive work queue.
#[repr(C)]
pub(crate) struct WqObject {
    /// Written by threads that acknowledge events or change the state.
    c: UnsafeCell<ibv_wq>,
    /// The lock of the requests.
    lock: Spin,
    queue: UnsafeCell<ManuallyDrop<WorkQueue>>,
    /// Held while the state changes: the other lock is not, because posting threads spin on it.
    control: Mutex<WorkQueueTarget>,
}

impl WqObject {
    /// # Safety
    /// `wq` is a work queue that was not destroyed.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(wq: *mut ibv_wq) -> &'a Self {
        // SAFETY: the caller promises that `wq` is a work queue that was not destroyed: it is the
        // first field of an object of this type.
        unsafe { &*wq.cast() }
    }

    /// Runs `body` with the queue, and the lock held.
    #[inline(always)]
    fn with<R>(&self, body: impl FnOnce(&mut WorkQueue) -> R) -> R {
        // SAFETY: the lock is held.
        self.lock.hold(|| body(unsafe { &mut *self.queue.get() }))
    }

    fn target(&self) -> WorkQueueTarget {
        self.with(|queue| queue.target())
    }

    fn control(&self) -> MutexGuard<'_, WorkQueueTarget> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the completions from before a reset, when the queue becomes ready.
    ///
    /// # Safety
    /// The completion queue exists.
    unsafe fn purge(&self) -> Verb {
        // The work queue's locks are not held: a thread that polls in steps has the lock of the
        // completion queue, and may post or change the state meanwhile.
        let target = self.target();
        if target.state() == WqState::Reset {
            // SAFETY: the caller promises that the completion queue exists.
            unsafe { CqObject::of((*self.c.get()).cq) }.with_mut(|cq| target.purge(cq))?;
        }
        Ok(())
    }

    /// Publishes the state. The caller, which changes it, holds the lock.
    fn set_state(&self, state: WqState) {
        // SAFETY: the field is valid. Programs only read it.
        unsafe { (&raw mut (*self.c.get()).state).write_volatile(state.raw()) };
    }

    /// Runs `change`, which brings the queue to a state by a firmware command, and records the
    /// state.
    ///
    /// # Safety
    /// The completion queue exists.
    pub(crate) unsafe fn change_beside(
        &self,
        to: Option<WqState>,
        change: impl FnOnce() -> Verb,
    ) -> Verb {
        if to == Some(WqState::Ready) {
            // SAFETY: the caller promises that the completion queue exists.
            unsafe { self.purge() }?;
        }
        let control = self.control();
        if to == Some(WqState::Ready) {
            self.with(WorkQueue::rewind)?;
        }
        control.change_beside(to, change)?;
        if let Some(state) = to {
            self.set_state(state);
        }
        Ok(())
    }

    /// Returns the parts of the queue in memory.
    pub(crate) fn raw_parts(&self) -> Verb<RawWorkQueue> {
        Ok(self.with(|queue| {
            let parts = queue.raw_parts()?;
            queue.report_unrecorded();
            Ok::<_, mlx5::Error>(parts)
        })?)
    }
}

/// Makes a work queue. If packets share its requests, `striding` has the bytes of a stride and the
/// strides of a request.
///
/// # Safety
/// As for [`create_wq`].
pub(crate) unsafe fn make(
    context: *mut ibv_context,
    init: *mut ibv_wq_init_attr,
    striding: Option<(u32, u32)>,
) -> Verb<*mut ibv_wq> {
    // SAFETY: the caller promises that `init` is readable with writable sizes.
    let wanted = unsafe { &mut *init };
    if wanted.wq_type != IBV_WQT_RQ
        || wanted.comp_mask >= IBV_WQ_INIT_ATTR_RESERVED
        || wanted.max_wr == 0
        || wanted.pd.is_null()
        || wanted.cq.is_null()
    {
        return Err(Refusal::INVALID);
    }
    let has_flags = wanted.comp_mask & IBV_WQ_INIT_ATTR_FLAGS != 0;
    let flags = if has_flags { wanted.create_flags } else { 0 };
    let flags = WqFlags::from_bits(flags).ok_or(Refusal::NOT_SUPPORTED)?;
    // SAFETY: the caller promises that `context` is open and that the domain exists.
    let (this, pd) = unsafe { (ContextObject::of(context), PdObject::of(wanted.pd)) };
    // SAFETY: the caller promises that the completion queue exists. No lock is held while the
    // program's functions are called.
    let cq = unsafe { CqObject::of(wanted.cq) }.target();
    let allocator = pd.allocator(Purpose::ReceiveWorkQueue).or_else(|| this.dv.allocator());
    let builder = pd
        .domain
        .create_wq_on(cq)
        .max_wr(wanted.max_wr)
        .max_sge(wanted.max_sge)
        .vlan_stripping(flags.contains(WqFlags::CVLAN_STRIPPING))
        .scatter_fcs(flags.contains(WqFlags::SCATTER_FCS))
        .delay_drop(flags.contains(WqFlags::DELAY_DROP))
        .end_padding(flags.contains(WqFlags::PCI_WRITE_END_PADDING));
    let builder = match &allocator {
        Some(allocator) => builder.allocator(allocator),
        None => builder.huge_pages(environment::pages("MLX_RWQ_ALLOC_TYPE")),
    };
    let builder = match striding {
        Some((stride, strides)) => builder.striding(stride, strides),
        None => builder,
    };
    let queue = builder.build()?;
    wanted.max_wr = queue.capacity();
    wanted.max_sge = queue.max_sge();
    pd.hold();
    let id = queue.id();
    let mut c = ibv_wq::blank();
    c.context = context;
    c.wq_context = wanted.wq_context;
    c.pd = wanted.pd;
    c.cq = wanted.cq;
    c.wq_num = queue.wq_num();
    c.handle = queue.kernel_handle().unwrap_or(0);
    c.state = IBV_WQS_RESET;
    c.wq_type = wanted.wq_type;
    c.post_recv = Some(post_recv);
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    c.cond = libc::PTHREAD_COND_INITIALIZER;
    let locks = this.environment.locks && pd.thread_domain().is_none();
    let made: *mut ibv_wq = boxed(WqObject {
        c: UnsafeCell::new(c),
        control: Mutex::new(queue.target()),
        lock: Spin::new(locks),
        queue: UnsafeCell::new(ManuallyDrop::new(queue)),
    });
    this.objects.wqs.add(id, made);
    Ok(made)
}

/// The operation of `ibv_create_wq`.
///
/// # Safety
/// `context` is open; `init` is readable, its sizes are writable; what it names exists.
pub unsafe extern "C" fn create_wq(
    context: *mut ibv_context,
    init: *mut ibv_wq_init_attr,
) -> *mut ibv_wq {
    // SAFETY: the caller promises that `context` is open, that `init` is readable with writable
    // sizes, and that its objects exist.
    object(unsafe { make(context, init, None) })
}

/// Whether `attr` turns the stripping of tags on or off, if it changes it.
fn strips(attr: &ibv_wq_attr) -> Verb<Option<bool>> {
    const KNOWN: u32 = IBV_WQ_FLAGS_RESERVED - 1;
    const REFUSED: u32 = !KNOWN | IBV_WQ_FLAGS_PCI_WRITE_END_PADDING;
    if attr.attr_mask & IBV_WQ_ATTR_FLAGS == 0 {
        return Ok(None);
    }
    if attr.flags_mask & REFUSED != 0 {
        return Err(Refusal::NOT_SUPPORTED);
    }
    // The kernel ignores the others.
    let changed = attr.flags_mask & IBV_WQ_FLAGS_CVLAN_STRIPPING != 0;
    Ok(changed.then_some(attr.flags & IBV_WQ_FLAGS_CVLAN_STRIPPING != 0))
}

unsafe fn modify(wq: *mut ibv_wq, attr: &ibv_wq_attr) -> Verb {
    // SAFETY: the caller of `modify_wq` promises that `wq` was not destroyed and that `attr` is
    // readable.
    let this = unsafe { WqObject::of(wq) };
    let has = |bit: c_uint| attr.attr_mask & bit != 0;
    if attr.attr_mask == 0 || attr.attr_mask >= IBV_WQ_ATTR_RESERVED {
        return Err(Refusal::INVALID);
    }
    let strip = strips(attr)?;
    let to = match has(IBV_WQ_ATTR_STATE) {
        true => Some(WqState::from_raw(attr.wq_state).ok_or(Refusal::INVALID)?),
        false => None,
    };
    if to == Some(WqState::Ready) {
        // SAFETY: a completion queue outlives its work queues.
        unsafe { this.purge() }?;
    }
    let control = this.control();
    let before = control.state();
    if has(IBV_WQ_ATTR_CURR_STATE) && attr.curr_wq_state != before.raw() {
        return Err(Refusal::INVALID);
    }
    let to = to.filter(|to| *to != before || before == WqState::Reset);
    if to == Some(WqState::Ready) {
        this.with(WorkQueue::rewind)?;
    }
    if to.is_some() || strip.is_some() {
        control.modify(to, strip)?;
    }
    if let Some(to) = to {
        this.set_state(to);
    }
    Ok(())
}

/// The operation of `ibv_modify_wq`.
///
/// # Safety
/// `wq` was not destroyed, `attr` is readable.
pub unsafe extern "C" fn modify_wq(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int {
    // SAFETY: the caller promises that `wq` was not destroyed and that `attr` is readable.
    status(unsafe { modify(wq, &*attr) })
}

/// The operation of `ibv_destroy_wq`: EBUSY while a table has it; waits until its events are
/// acknowledged.
///
/// # Safety
/// `wq` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_wq(wq: *mut ibv_wq) -> c_int {
    let this: *mut WqObject = wq.cast();
    // SAFETY: the caller promises that `wq` was not destroyed, and uses it no more if the call
    // succeeds. Other threads may post to a queue in use, and acknowledge events of one that is
    // not: so its memory is freed last. After its kernel object is destroyed no event of it is
    // returned, so the count that this waits for is final.
    status(unsafe {
        let context = ContextObject::of((*wq).context);
        let target = (*this).target();
        let id = (*this).with(|queue| queue.id());
        ended(target.withdraw().map_err(Into::into)).map(|()| {
            let parent = PdObject::counting((*wq).pd);
            let delivered = context.objects.wqs.remove(&id);
            let (mutex, cond) = (&raw mut (*wq).mutex, &raw mut (*wq).cond);
            wait_for_acks(mutex, cond, &raw const (*wq).events_completed, delivered);
            ManuallyDrop::drop(&mut *(*this).queue.get());
            drop(Box::from_raw(this));
            // Its functions have the memory back now.
            parent.inspect(|parent| parent.release_queue());
            close::again();
        })
    })
}

/// The operation of `ibv_post_wq_recv`.
///
/// # Safety
/// `wq` was not destroyed; `wr` is a list of requests; `bad_wr` is writable.
pub unsafe extern "C" fn post_recv(
    wq: *mut ibv_wq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller promises that `wq` was not destroyed and that `wr` is a list of requests.
    let this = unsafe { WqObject::of(wq) };
    // SAFETY: the caller promises that `wr` is a list of requests.
    let posted = this.with(|queue| match unsafe { single_receive(wr) } {
        Some((wr_id, sge)) => queue.recv(wr_id, sge).map_err(only),
        // SAFETY: the caller promises that `wr` is a list of requests.
        None => queue.post_recv_iter(unsafe { receives(wr) }).map(drop),
    });
    match posted {
        Ok(()) => 0,
        // SAFETY: the caller promises that `wr` is a list of requests and that `bad_wr` is
        // writable.
        Err(error) => unsafe { refused(wr, bad_wr, error, receive_errno) },
    }
}

/// A table of work queues.
#[repr(C)]
pub(crate) struct TableObject {
    c: ibv_rwq_ind_table,
    table: UnsafeCell<ManuallyDrop<IndirectionTable>>,
}

impl TableObject {
    /// Returns the table.
    ///
    /// # Safety
    /// `table` was not destroyed.
    pub(crate) unsafe fn table(table: *mut ibv_rwq_ind_table) -> IndirectionTable {
        // SAFETY: the caller promises that `table` was not destroyed: it is the first field of an
        // object of this type.
        unsafe { IndirectionTable::clone(&*(*table.cast::<Self>()).table.get()) }
    }
}

/// The largest table that is read; the device supports less.
const MAX_LOG_TABLE: u32 = 24;

unsafe fn make_table(
    context: *mut ibv_context,
    init: &ibv_rwq_ind_table_init_attr,
) -> Verb<*mut ibv_rwq_ind_table> {
    if init.comp_mask != 0 || init.log_ind_tbl_size > MAX_LOG_TABLE {
        return Err(Refusal::INVALID);
    }
    // SAFETY: the caller of `create_rwq_ind_table` promises that `init` has as many work queues as
    // it says, which exist.
    let table = unsafe {
        let entries = std::slice::from_raw_parts(init.ind_tbl, 1 << init.log_ind_tbl_size);
        let targets = entries.iter().map(|wq| WqObject::of(*wq).target());
        ContextObject::of(context).context.create_indirection_table_on(targets)?
    };
    let c = ibv_rwq_ind_table {
        context,
        ind_tbl_handle: table.kernel_handle().unwrap_or(0) as c_int,
        ind_tbl_num: table.number() as c_int,
        comp_mask: 0,
    };
    Ok(boxed(TableObject { c, table: UnsafeCell::new(ManuallyDrop::new(table)) }))
}

/// The operation of `ibv_create_rwq_ind_table`.
///
/// # Safety
/// `context` is open; `init` is readable, and has as many work queues as it says, which exist.
pub unsafe extern "C" fn create_rwq_ind_table(
    context: *mut ibv_context,
    init: *mut ibv_rwq_ind_table_init_attr,
) -> *mut ibv_rwq_ind_table {
    // SAFETY: the caller promises that `context` is open and that `init` is readable, and has as
    // many work queues as it says, which exist.
    object(unsafe { make_table(context, &*init) })
}

/// The operation of `ibv_destroy_rwq_ind_table`: EBUSY while a queue pair has it.
///
/// # Safety
/// `table` was not destroyed. If the call succeeds, it is used no more.
pub unsafe extern "C" fn destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int {
    let this: *mut TableObject = table.cast();
    // SAFETY: the caller promises that `table` was not destroyed, and no longer uses it if the call
    // succeeds.
    status(unsafe { destroy(this, (*this).table.get(), IndirectionTable::destroy) })
}
