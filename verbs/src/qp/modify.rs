//! Changing and asking for the state of queue pairs.

use super::{CTransport, QpObject, QpOf};
use crate::abi::*;
use crate::ah::path;
use crate::object::Blank;
use crate::refusal::{Refusal, Verb, status};
use mlx5::{
    AccessFlags, AckTimeout, AlternatePath, ControlHalf, Mtu, Psn, QpAttributes, QpNumber, QpSizes,
    QueueState, RetryCount, RnrTimer,
};
use mlx5_uapi::cmd::qp as command;
use mlx5_uapi::verbs::{MigState, QpAttrMask, QpDest};
use std::sync::PoisonError;

fn state(raw: c_uint) -> Verb<QueueState> {
    u8::try_from(raw).ok().and_then(QueueState::from_bits).ok_or(Refusal::INVALID)
}

/// The provider's attributes: those that the mask names. A value that no device takes is refused,
/// as the kernel does, unless its driver cuts it to the bits of its field: programs rely on that,
/// as fio, which retries ten times.
fn attributes(attr: &ibv_qp_attr, mask: c_int) -> Verb<QpAttributes> {
    let mask = mask as u32;
    let has = |bit: c_uint| mask & bit != 0;
    if QpAttrMask::from_bits(mask).is_none() {
        return Err(Refusal::INVALID);
    }
    let mut to = QpAttributes::new();
    macro_rules! set {
        ($($bit:ident $name:ident = $value:expr;)*) => {
            $(if has($bit) { to.$name = Some($value); })*
        };
    }
    set! {
        IBV_QP_STATE qp_state = state(attr.qp_state)?;
        IBV_QP_CUR_STATE cur_qp_state = state(attr.cur_qp_state)?;
        IBV_QP_EN_SQD_ASYNC_NOTIFY en_sqd_async_notify = attr.en_sqd_async_notify != 0;
        IBV_QP_ACCESS_FLAGS qp_access_flags = AccessFlags::from_bits_retain(attr.qp_access_flags);
        IBV_QP_PKEY_INDEX pkey_index = attr.pkey_index;
        IBV_QP_PORT port_num = attr.port_num;
        IBV_QP_QKEY qkey = attr.qkey;
        IBV_QP_AV ah_attr = path(&attr.ah_attr);
        IBV_QP_PATH_MTU path_mtu =
            u8::try_from(attr.path_mtu).ok().and_then(Mtu::from_raw).ok_or(Refusal::INVALID)?;
        IBV_QP_TIMEOUT timeout = AckTimeout::wrapping(attr.timeout);
        IBV_QP_RETRY_CNT retry_cnt = RetryCount::wrapping(attr.retry_cnt);
        IBV_QP_RNR_RETRY rnr_retry = RetryCount::wrapping(attr.rnr_retry);
        IBV_QP_RQ_PSN rq_psn = Psn::wrapping(attr.rq_psn);
        IBV_QP_MAX_QP_RD_ATOMIC max_rd_atomic = attr.max_rd_atomic;
        IBV_QP_ALT_PATH alt_path = AlternatePath {
            ah_attr: mlx5::AhAttr { port_num: attr.alt_port_num, ..path(&attr.alt_ah_attr) },
            pkey_index: attr.alt_pkey_index,
            timeout: AckTimeout::wrapping(attr.alt_timeout),
        };
        IBV_QP_MIN_RNR_TIMER min_rnr_timer = RnrTimer::wrapping(attr.min_rnr_timer);
        IBV_QP_SQ_PSN sq_psn = Psn::wrapping(attr.sq_psn);
        IBV_QP_MAX_DEST_RD_ATOMIC max_dest_rd_atomic = attr.max_dest_rd_atomic;
        IBV_QP_PATH_MIG_STATE path_mig_state = u8::try_from(attr.path_mig_state)
            .ok()
            .and_then(MigState::from_raw)
            .ok_or(Refusal::INVALID)?;
        IBV_QP_CAP cap = QpSizes {
            max_send_wr: attr.cap.max_send_wr,
            max_recv_wr: attr.cap.max_recv_wr,
            max_send_sge: attr.cap.max_send_sge,
            max_recv_sge: attr.cap.max_recv_sge,
            max_inline_data: attr.cap.max_inline_data,
        };
        IBV_QP_DEST_QPN dest_qp_num =
            QpNumber::new(attr.dest_qp_num).map_err(|_| Refusal::INVALID)?;
        IBV_QP_RATE_LIMIT rate_limit = attr.rate_limit;
    }
    Ok(to)
}

pub(super) unsafe fn modify_of<T: CTransport>(this: &QpObject, wanted: &QpAttributes) -> Verb {
    let before = this.with_control(|control| Ok(control.state()))?;
    let to = wanted.qp_state.unwrap_or(before);
    let leaves_reset = before == QueueState::Reset && to == QueueState::Init;
    let modify = |control: &mut ControlHalf| {
        control.modify(wanted)?;
        this.set_state(control.state());
        Ok(())
    };
    // SAFETY: the caller of `modify_qp` promises that the queue pair was not destroyed; its
    // functions are those of transport `T`.
    let whole = unsafe { QpOf::<T>::of(this.as_c()) };
    if leaves_reset {
        return whole.with_whole(|mut qp| {
            let done = qp.modify(wanted).map(|()| this.set_state(qp.state()));
            (done.map_err(Into::into), Some(qp))
        });
    }
    if to != QueueState::Reset {
        return this.with_control(modify);
    }
    let purger = this.with_control(|control| {
        modify(control)?;
        Ok(control.purger()?)
    })?;
    // Its completions vanish, and what it took from a shared receive queue goes back. No lock of
    // the queue pair is held: a thread that polls in steps has that of the completion queue, and
    // may post meanwhile.
    for cq in whole.completion_queues() {
        cq.with_mut(|cq| purger.purge(cq))?;
    }
    whole.with_whole(|mut qp| (qp.forget().map_err(Into::into), Some(qp)))
}

/// The attributes that an end of extended connections uses. The kernel passes over the others,
/// which programs give as for a whole connection.
fn used(qp_type: c_uint, mask: c_int) -> c_int {
    let unused = match qp_type {
        IBV_QPT_XRC_SEND => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        IBV_QPT_XRC_RECV => IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
        _ => 0,
    };
    mask & !(unused as c_int)
}

/// `ibv_modify_qp`.
///
/// # Safety
/// `qp` was not destroyed, `attr` is readable.
pub unsafe extern "C" fn modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
) -> c_int {
    // SAFETY: the caller promises that `qp` was not destroyed and that `attr` is readable.
    let (this, attr) = unsafe { (QpObject::of(qp), &*attr) };
    // SAFETY: the queue pair was not destroyed, and its functions are those of its transport.
    status(
        attributes(attr, used(this.qp_type(), attr_mask))
            .and_then(|to| unsafe { (this.functions.modify)(this, &to) }),
    )
}

fn to_path(from: &QpDest) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: from.dgid },
            flow_label: from.flow_label,
            sgid_index: from.sgid_index,
            hop_limit: from.hop_limit,
            traffic_class: from.traffic_class,
        },
        dlid: from.dlid,
        sl: from.sl,
        src_path_bits: from.src_path_bits,
        static_rate: from.static_rate,
        is_global: from.is_global,
        port_num: from.port_num,
    }
}

fn query(this: &QpObject, mask: c_int) -> Verb<(ibv_qp_attr, ibv_qp_init_attr)> {
    if !this.functions.has_states {
        return Err(Refusal::NOT_SUPPORTED);
    }
    let mask = QpAttrMask::from_bits_retain(mask as u32);
    // Held while the state is asked for, so that what is shown is not from before another thread's
    // change.
    let _held = this.control_lock.lock().unwrap_or_else(PoisonError::into_inner);
    let from = command::query(this.context().file(), this.handle(), mask)?;
    let mut to = ibv_qp_attr::blank();
    macro_rules! copy {
        ($($name:ident)*) => { $(to.$name = from.$name as _;)* };
    }
    copy! {
        qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags
        pkey_index alt_pkey_index sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num
        timeout retry_cnt rnr_retry alt_port_num alt_timeout
    }
    to.ah_attr = to_path(&from.dest);
    to.alt_ah_attr = to_path(&from.alt_dest);
    to.cap = this.sizes();
    let init = ibv_qp_init_attr {
        qp_context: this.qp_context(),
        send_cq: this.send_cq(),
        recv_cq: this.recv_cq(),
        srq: this.srq(),
        cap: to.cap,
        qp_type: this.qp_type(),
        sq_sig_all: this.signal_all.into(),
    };
    // The device may have changed the state by itself.
    if let Some(state) = QueueState::from_bits(from.qp_state) {
        this.set_state(state);
    }
    Ok((to, init))
}

/// `ibv_query_qp`.
///
/// # Safety
/// `qp` was not destroyed, `attr` and `init_attr` are writable.
pub unsafe extern "C" fn query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    attr_mask: c_int,
    init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller promises that `qp` was not destroyed.
    let found = query(unsafe { QpObject::of(qp) }, attr_mask);
    // SAFETY: the caller promises that `attr` and `init_attr` are writable.
    status(found.map(|(found, init)| unsafe {
        attr.write(found);
        init_attr.write(init);
    }))
}

/// The answer of `ibv_query_qp_data_in_order`. `ask` asks the device, if the flags allow it.
fn in_order(flags: c_uint, ask: impl FnOnce() -> bool) -> c_int {
    const CAPS: c_uint = IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS;
    const DEVICE_ONLY: c_uint = IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY;
    let known = flags & !(CAPS | DEVICE_ONLY) == 0;
    // C's library promises nothing of other processors.
    let processor = cfg!(any(target_arch = "x86", target_arch = "x86_64"));
    if !known || !(processor || flags & DEVICE_ONLY != 0) || !ask() {
        return 0;
    }
    match flags & CAPS != 0 {
        // A device that places the whole in order does so with each block of it.
        true => {
            (IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG | IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES)
                as c_int
        }
        false => 1,
    }
}

/// `ibv_query_qp_data_in_order`. The device's answer is the same for all operations. Of the
/// receiving end of extended connections it is not asked: no promise.
///
/// # Safety
/// `qp` was not destroyed.
pub unsafe extern "C" fn query_qp_data_in_order(
    qp: *mut ibv_qp,
    _op: c_uint,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller promises that `qp` was not destroyed.
    let this = unsafe { QpObject::of(qp) };
    in_order(flags, || {
        let asked = this.with_control(|control| Ok(control.device_data_in_order()?));
        // C's library takes any failure for no promise.
        asked.unwrap_or(false)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_in_order_is_answered_as_the_flags_ask() {
        const CAPS: c_uint = IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS;
        const DEVICE_ONLY: c_uint = IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY;
        let x86 = cfg!(any(target_arch = "x86", target_arch = "x86_64"));
        for (flags, processor_counts, yes) in
            [(0, true, 1), (CAPS, true, 3), (DEVICE_ONLY, false, 1), (CAPS | DEVICE_ONLY, false, 3)]
        {
            let expected = if x86 || !processor_counts { yes } else { 0 };
            assert_eq!(in_order(flags, || true), expected, "flags {flags}");
            assert_eq!(in_order(flags, || false), 0, "flags {flags}");
        }
        // A flag of a later release is no question that can be answered.
        assert_eq!(in_order(4, || unreachable!("it is not asked")), 0);
        assert_eq!(in_order(CAPS | 1 << 31, || unreachable!("it is not asked")), 0);
    }
}
