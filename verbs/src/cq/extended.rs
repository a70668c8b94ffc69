//! Completion queues that are polled in steps (`ibv_create_cq_ex`), and their functions.

use super::poll::status;
use super::{Attributes, CqObject, Wanted, make};
use crate::abi::*;
use crate::pd::PdObject;
use crate::refusal::{Refusal, Verb, object};
use mlx5::{Clock, ClockRelation, Timestamps, WorkCompletion, real_time_ns};
use std::cell::Cell;

/// Converts timestamps in cycles to the time of day.
pub(crate) struct WallClock {
    clock: Clock,
    /// The clock relation, read when the last poll was started.
    relation: Cell<ClockRelation>,
}

type Ex = *mut ibv_cq_ex;

/// The queue of an `ibv_cq_ex`.
///
/// # Safety
/// `cq` is a completion queue that was not destroyed.
#[inline(always)]
unsafe fn of<'a>(cq: Ex) -> &'a CqObject {
    // SAFETY: the caller promises that `cq` is a completion queue that was not destroyed.
    unsafe { CqObject::of(cq.cast()) }
}

/// Publishes the fields that the program reads without a call.
#[inline(always)]
fn show(this: &CqObject, completion: &WorkCompletion<'_>) {
    let outcome = match completion.status() {
        Ok(()) => IBV_WC_SUCCESS,
        Err(error) => status(error.kind),
    };
    let c = this.c.get();
    // SAFETY: the lock is held, so no other call writes the fields; the program reads them only
    // while it holds the lock.
    unsafe {
        (*c).wr_id = completion.wr_id();
        (*c).status = outcome;
    }
}

/// `ibv_start_poll`. If there is a completion, the lock stays held until [`end_poll`].
unsafe extern "C" fn start_poll<const WALL_CLOCK: bool>(
    cq: Ex,
    attr: *mut ibv_poll_cq_attr,
) -> c_int {
    // SAFETY: the caller of `ibv_start_poll` passes a queue that was not destroyed and readable
    // attributes.
    let this = unsafe {
        if (*attr).comp_mask != 0 {
            return libc::EINVAL;
        }
        of(cq)
    };
    this.lock.lock();
    if WALL_CLOCK && let Err(refusal) = read_clock(this) {
        this.lock.unlock();
        return refusal.0;
    }
    // SAFETY: the lock is held.
    let refused = match unsafe { this.cursor() }.start() {
        Ok(Some(completion)) => {
            show(this, &completion);
            return 0;
        }
        Ok(None) => libc::ENOENT,
        Err(_) => libc::EIO,
    };
    this.lock.unlock();
    refused
}

/// Reads the relation of the clocks. The caller holds the lock.
fn read_clock(this: &CqObject) -> Verb {
    if let Some(wall) = &this.wall_clock {
        wall.relation.set(wall.clock.now()?);
    }
    Ok(())
}

/// `ibv_next_poll`.
unsafe extern "C" fn next_poll(cq: Ex) -> c_int {
    // SAFETY: the caller of `ibv_next_poll` has started a poll of this queue, so this thread holds
    // the lock.
    unsafe {
        let this = of(cq);
        match this.cursor().next() {
            Some(completion) => {
                show(this, &completion);
                0
            }
            None => libc::ENOENT,
        }
    }
}

/// `ibv_end_poll`.
unsafe extern "C" fn end_poll(cq: Ex) {
    // SAFETY: the caller of `ibv_end_poll` has started a poll of this queue, so this thread holds
    // the lock.
    unsafe {
        let this = of(cq);
        this.cursor().end();
        this.lock.unlock();
    }
}

/// Reads a value with `read` from the current completion; zero if there is none.
///
/// # Safety
/// As for [`of`]; a poll was started and not ended.
#[inline(always)]
unsafe fn read<R: Default>(cq: Ex, read: impl FnOnce(WorkCompletion<'_>) -> Option<R>) -> R {
    // SAFETY: the caller promises that it started a poll of `cq` and did not end it, so this thread
    // holds the lock.
    unsafe { of(cq).cursor() }.current().and_then(read).unwrap_or_default()
}

/// The opcode. Programs read it after [`end_poll`] too.
unsafe extern "C" fn read_opcode(cq: Ex) -> c_uint {
    // SAFETY: the program has polled `cq` in this thread, and no other thread has polled it since.
    unsafe { of(cq).cursor() }.last_opcode().number().into()
}

/// The functions that read a completion, a line each.
macro_rules! readers {
    ($($name:ident -> $ty:ty, |$completion:ident| $value:expr;)*) => {$(
        unsafe extern "C" fn $name(cq: Ex) -> $ty {
            // SAFETY: the program calls a reader only between starting and ending a poll of `cq`.
            unsafe { read(cq, |$completion| $value) }
        }
    )*};
}

readers! {
    read_vendor_err -> u32, |of| Some(of.status().err()?.vendor.into());
    read_wc_flags -> c_uint, |of| Some(flags(&of));
    read_byte_len -> u32, |of| of.byte_len();
    read_imm_data -> Be32, |of| immediate(&of);
    read_qp_num -> u32, |of| Some(of.qp_num());
    read_src_qp -> u32, |of| of.src_qp();
    read_slid -> u32, |of| Some(of.slid()?.into());
    read_sl -> u8, |of| of.service_level();
    read_dlid_path_bits -> u8, |of| of.dlid_path_bits();
    read_completion_ts -> u64, |of| of.timestamp();
    read_cvlan -> u16, |of| of.vlan();
    read_flow_tag -> u32, |of| of.flow_tag();
    read_real_time -> u64, |of| Some(real_time_ns(of.timestamp()?));
}

/// The time of day of a completion whose timestamp is in cycles.
unsafe extern "C" fn read_wall_clock(cq: Ex) -> u64 {
    // SAFETY: the program calls a reader only between starting and ending a poll of `cq`.
    unsafe {
        let Some(wall) = &of(cq).wall_clock else { return 0 };
        read(cq, |completion| Some(wall.relation.get().nanoseconds(completion.timestamp()?)))
    }
}

unsafe extern "C" fn read_tm_info(cq: Ex, info: *mut ibv_wc_tm_info) {
    // SAFETY: the program calls a reader only between starting and ending a poll of `cq`, and
    // `info` is writable.
    unsafe {
        let (tag, own) = read(cq, |completion| {
            let found = completion.tm_info()?;
            Some((found.tag, found.app_ctx))
        });
        (*info).tag = tag;
        (*info).r#priv = own;
    }
}

/// The immediate data, or the key that was invalidated, as a number.
fn immediate(completion: &WorkCompletion<'_>) -> Option<Be32> {
    let data = completion.imm_data().map(Be32::from_ne_bytes);
    data.or_else(|| completion.invalidated_rkey())
}

/// The flags that `ibv_poll_cq` returns, and those of tag matching.
fn flags(completion: &WorkCompletion<'_>) -> c_uint {
    let mut flags = super::poll::flags(completion);
    let mut set = |is: bool, flag: c_uint| flags |= if is { flag } else { 0 };
    set(completion.tm_match(), IBV_WC_TM_MATCH);
    set(completion.tm_data_valid(), IBV_WC_TM_DATA_VALID);
    set(completion.tm_sync_required(), IBV_WC_TM_SYNC_REQ);
    flags
}

/// Fills in the functions that `wc_flags` requests. As in C, the others stay NULL, but opcode,
/// vendor error and flags can always be read.
fn fill(c: &mut ibv_cq_ex, wc_flags: c_uint, timestamps: Timestamps, wall_clock: bool) {
    macro_rules! asked {
        ($($flag:ident $slot:ident = $function:ident;)*) => {
            $(if wc_flags & $flag != 0 { c.$slot = Some($function); })*
        };
    }
    c.start_poll = Some(if wall_clock { start_poll::<true> } else { start_poll::<false> });
    c.next_poll = Some(next_poll);
    c.end_poll = Some(end_poll);
    c.read_opcode = Some(read_opcode);
    c.read_vendor_err = Some(read_vendor_err);
    c.read_wc_flags = Some(read_wc_flags);
    asked! {
        IBV_WC_EX_WITH_BYTE_LEN read_byte_len = read_byte_len;
        IBV_WC_EX_WITH_IMM read_imm_data = read_imm_data;
        IBV_WC_EX_WITH_QP_NUM read_qp_num = read_qp_num;
        IBV_WC_EX_WITH_SRC_QP read_src_qp = read_src_qp;
        IBV_WC_EX_WITH_SLID read_slid = read_slid;
        IBV_WC_EX_WITH_SL read_sl = read_sl;
        IBV_WC_EX_WITH_DLID_PATH_BITS read_dlid_path_bits = read_dlid_path_bits;
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP read_completion_ts = read_completion_ts;
        IBV_WC_EX_WITH_CVLAN read_cvlan = read_cvlan;
        IBV_WC_EX_WITH_FLOW_TAG read_flow_tag = read_flow_tag;
        IBV_WC_EX_WITH_TM_INFO read_tm_info = read_tm_info;
    }
    if wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK != 0 {
        c.read_completion_wallclock_ns = Some(match timestamps {
            Timestamps::RealTime => read_real_time,
            Timestamps::Cycles => read_wall_clock,
        });
    }
}

/// Creates a completion queue with attributes of mlx5.
///
/// # Safety
/// As for [`create_cq_ex`].
pub(crate) unsafe fn create_with(
    context: *mut ibv_context,
    init: &ibv_cq_init_attr_ex,
    attributes: Attributes,
) -> Verb<*mut ibv_cq_ex> {
    // SAFETY: the caller promises that `context` is open, `init` is readable, and the objects that
    // it names exist.
    unsafe { create(context, init, attributes) }.map(<*mut CqObject>::cast)
}

/// # Safety
/// As for [`create_cq_ex`].
unsafe fn create(
    context: *mut ibv_context,
    init: &ibv_cq_init_attr_ex,
    attributes: Attributes,
) -> Verb<*mut CqObject> {
    const KNOWN: u32 = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
    const FLAGS: u32 = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    let has = |bit: u32| init.comp_mask & bit != 0;
    let flags = if has(IBV_CQ_INIT_ATTR_MASK_FLAGS) { init.flags } else { 0 };
    if init.cqe == 0 || init.comp_mask & !KNOWN != 0 || flags & !FLAGS != 0 {
        return Err(Refusal::INVALID);
    }
    let wc_flags = u32::try_from(init.wc_flags).map_err(|_| Refusal::NOT_SUPPORTED)?;
    if wc_flags & !IBV_CREATE_CQ_SUP_WC_FLAGS != 0 {
        return Err(Refusal::NOT_SUPPORTED);
    }
    let parent_domain =
        if has(IBV_CQ_INIT_ATTR_MASK_PD) { init.parent_domain } else { std::ptr::null_mut() };
    if has(IBV_CQ_INIT_ATTR_MASK_PD) {
        // SAFETY: the caller promises that the objects that `init` names exist. As in C, only a
        // parent domain is accepted.
        let parent = !parent_domain.is_null() && unsafe { PdObject::of(parent_domain) }.is_parent();
        if !parent {
            return Err(Refusal::INVALID);
        }
    }
    let mut wanted = Wanted {
        context,
        entries: init.cqe.try_into().map_err(|_| Refusal::INVALID)?,
        cq_context: init.cq_context,
        channel: init.channel,
        comp_vector: init.comp_vector.try_into().map_err(|_| Refusal::INVALID)?,
        parent_domain,
        ignore_overrun: flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
        single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
        timestamps: Timestamps::Cycles,
        attributes,
    };
    let wall = wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK != 0;
    // If a program reads cycles, too, the time of day is computed from them.
    if wall && wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP == 0 {
        wanted.timestamps = Timestamps::RealTime;
        // SAFETY: the caller promises that `context` is open and that the objects that `init` names
        // exist.
        match unsafe { make(&wanted, None, |c| fill(c, wc_flags, Timestamps::RealTime, false)) } {
            Err(Refusal::NOT_SUPPORTED) => wanted.timestamps = Timestamps::Cycles,
            made => return made,
        }
    }
    let wall_clock = if wall {
        // SAFETY: the caller promises that `context` is open.
        let clock = unsafe { crate::context::ContextObject::of(context) }.context.clock()?;
        let relation = Cell::new(clock.now()?);
        Some(WallClock { clock, relation })
    } else {
        None
    };
    // SAFETY: the caller promises that `context` is open and that the objects that `init` names
    // exist.
    unsafe { make(&wanted, wall_clock, |c| fill(c, wc_flags, Timestamps::Cycles, wall)) }
}

/// The operation of `ibv_create_cq_ex`.
///
/// # Safety
/// `context` is open; `init` is readable; what it names exists.
pub unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    init: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the caller promises that `context` is open, `init` is readable, and the objects that
    // it names exist.
    object(unsafe { create_with(context, &*init, Attributes::default()) })
}
