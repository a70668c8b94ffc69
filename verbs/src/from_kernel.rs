//! Converts attributes between the forms of the kernel's connection manager and of programs, for
//! librdmacm. The target may be uninitialized, so no reference to it is ever made.

use crate::abi::*;

/// Assigns fields of what one pointer points to, to those of the same name of another.
macro_rules! assign {
    ($to:expr, $from:expr; $($field:ident $(as $ty:ty)?),* $(,)?) => {
        $((*$to).$field = (*$from).$field $(as $ty)?;)*
    };
}

/// `ibv_copy_ah_attr_from_kern`.
///
/// # Safety
/// `from` is valid, `to` is writable.
pub unsafe extern "C" fn copy_ah_attr_from_kern(
    to: *mut ibv_ah_attr,
    from: *const ib_uverbs_ah_attr,
) {
    // SAFETY: the caller promises that `from` is valid and that `to` is writable.
    unsafe {
        let (route, kernels) = (&raw mut (*to).grh, &raw const (*from).grh);
        (*route).dgid = ibv_gid { raw: (*kernels).dgid };
        assign!(route, kernels; flow_label, sgid_index, hop_limit, traffic_class);
        assign!(to, from; dlid, sl, src_path_bits, static_rate, is_global, port_num);
    }
}

/// `ibv_copy_qp_attr_from_kern`: all fields but the state, which the caller knows.
///
/// # Safety
/// `from` is valid, `to` is writable.
pub unsafe extern "C" fn copy_qp_attr_from_kern(
    to: *mut ibv_qp_attr,
    from: *const ib_uverbs_qp_attr,
) {
    // SAFETY: the caller promises that `from` is valid and that `to` is writable.
    unsafe {
        assign!(to, from;
            cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num,
            qp_access_flags, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining,
            max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt,
            rnr_retry, alt_port_num, alt_timeout,
        );
        let cap = &raw mut (*to).cap;
        assign!(cap, from; max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data);
        copy_ah_attr_from_kern(&raw mut (*to).ah_attr, &raw const (*from).ah_attr);
        copy_ah_attr_from_kern(&raw mut (*to).alt_ah_attr, &raw const (*from).alt_ah_attr);
    }
}

/// `ibv_copy_path_rec_from_kern`.
///
/// # Safety
/// `from` is valid, `to` is writable.
pub unsafe extern "C" fn copy_path_rec_from_kern(
    to: *mut ibv_sa_path_rec,
    from: *const ib_user_path_rec,
) {
    // SAFETY: the caller promises that `from` is valid and that `to` is writable.
    unsafe {
        (*to).dgid = ibv_gid { raw: (*from).dgid };
        (*to).sgid = ibv_gid { raw: (*from).sgid };
        assign!(to, from;
            dlid, slid, raw_traffic as c_int, flow_label, hop_limit, traffic_class,
            reversible as c_int, numb_path, pkey, sl, mtu_selector, mtu as u8, rate_selector, rate,
            packet_life_time_selector, packet_life_time, preference,
        );
    }
}

/// `ibv_copy_path_rec_to_kern`.
///
/// # Safety
/// `from` is valid, `to` is writable.
pub unsafe extern "C" fn copy_path_rec_to_kern(
    to: *mut ib_user_path_rec,
    from: *const ibv_sa_path_rec,
) {
    // SAFETY: the caller promises that `from` is valid and that `to` is writable. A GID is bytes in
    // either of its forms.
    unsafe {
        (*to).dgid = (*from).dgid.raw;
        (*to).sgid = (*from).sgid.raw;
        assign!(to, from;
            dlid, slid, raw_traffic as u32, flow_label, hop_limit, traffic_class, reversible as u32,
            numb_path, pkey, sl, mtu_selector, mtu as u32, rate_selector, rate,
            packet_life_time_selector, packet_life_time, preference,
        );
    }
}
