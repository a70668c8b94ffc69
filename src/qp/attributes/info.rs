//! The results of QUERY_QP.

use super::{
    AckTimeout, AlternatePath, OutOfRange, Psn, QpNumber, QpSizes, RetryCount, RnrTimer, from_dest,
};
use crate::address::AhAttr;
use mlx5_uapi::verbs::{AccessFlags, MigState, Mtu};
use mlx5_uapi::write_cmd::QueryQpResp;
use mlx5_wqe::QueueState;
use std::error::Error;
use std::fmt;

/// The kernel returned an undefined number from QUERY_QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownValue {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: u32,
}

impl fmt::Display for UnknownValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel's answer to QUERY_QP has {} = {}", self.field, self.value)
    }
}

impl Error for UnknownValue {}

/// A queue pair as the kernel sees it (`struct ibv_qp_attr` and `struct ibv_qp_init_attr`).
///
/// An attribute that no transition has set yet has the device's initial value.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct QpInfo {
    /// State.
    pub qp_state: QueueState,
    /// State, repeated by the kernel.
    pub cur_qp_state: QueueState,
    /// The maximum packet size on the path, once set.
    pub path_mtu: Option<Mtu>,
    /// State of path migration, if it has a verbs name.
    pub path_mig_state: Option<MigState>,
    /// Q_Key.
    pub qkey: u32,
    /// Next sequence number to receive.
    pub rq_psn: Psn,
    /// Next sequence number to send.
    pub sq_psn: Psn,
    /// The peer's QP number.
    pub dest_qp_num: QpNumber,
    /// Access rights of the peer.
    pub qp_access_flags: AccessFlags,
    /// Sizes.
    pub cap: QpSizes,
    /// The path, once set; always `None` for datagrams.
    pub ah_attr: Option<AhAttr>,
    /// The alternate path, if set.
    pub alt_path: Option<AlternatePath>,
    /// Index of the P_Key.
    pub pkey_index: u16,
    /// Whether the send queue is draining.
    pub sq_draining: bool,
    /// Maximum number of outstanding reads and atomics as initiator.
    pub max_rd_atomic: u8,
    /// Maximum number of outstanding reads and atomics as responder.
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer.
    pub min_rnr_timer: RnrTimer,
    /// Port; 0 if not set.
    pub port_num: u8,
    /// Acknowledge timeout.
    pub timeout: AckTimeout,
    /// Number of retries.
    pub retry_cnt: RetryCount,
    /// Number of retries after RNR NAK.
    pub rnr_retry: RetryCount,
    /// Whether every send request is signaled.
    pub sq_sig_all: bool,
}

impl QpInfo {
    /// Decodes the kernel's answer.
    pub fn decode(from: &QueryQpResp) -> Result<Self, UnknownValue> {
        let alt_path = match from_dest(&from.alt_dest) {
            None => None,
            Some(ah_attr) => Some(AlternatePath {
                ah_attr,
                pkey_index: from.alt_pkey_index,
                timeout: fits("alt_timeout", AckTimeout::new(from.alt_timeout))?,
            }),
        };
        Ok(Self {
            qp_state: state("qp_state", from.qp_state)?,
            cur_qp_state: state("cur_qp_state", from.cur_qp_state)?,
            path_mtu: match from.path_mtu {
                0 => None,
                raw => Some(path_mtu(raw)?),
            },
            path_mig_state: MigState::from_raw(from.path_mig_state),
            qkey: from.qkey,
            rq_psn: fits("rq_psn", Psn::new(from.rq_psn))?,
            sq_psn: fits("sq_psn", Psn::new(from.sq_psn))?,
            dest_qp_num: fits("dest_qp_num", QpNumber::new(from.dest_qp_num))?,
            qp_access_flags: AccessFlags::from_bits_truncate(from.qp_access_flags),
            cap: QpSizes {
                max_send_wr: from.max_send_wr,
                max_recv_wr: from.max_recv_wr,
                max_send_sge: from.max_send_sge,
                max_recv_sge: from.max_recv_sge,
                max_inline_data: from.max_inline_data,
            },
            ah_attr: from_dest(&from.dest),
            alt_path,
            pkey_index: from.pkey_index,
            sq_draining: from.sq_draining != 0,
            max_rd_atomic: from.max_rd_atomic,
            max_dest_rd_atomic: from.max_dest_rd_atomic,
            min_rnr_timer: fits("min_rnr_timer", RnrTimer::new(from.min_rnr_timer))?,
            port_num: from.port_num,
            timeout: fits("timeout", AckTimeout::new(from.timeout))?,
            retry_cnt: fits("retry_cnt", RetryCount::new(from.retry_cnt))?,
            rnr_retry: fits("rnr_retry", RetryCount::new(from.rnr_retry))?,
            sq_sig_all: from.sq_sig_all != 0,
        })
    }
}

fn state(field: &'static str, raw: u8) -> Result<QueueState, UnknownValue> {
    QueueState::from_bits(raw).ok_or(UnknownValue { field, value: raw.into() })
}

fn path_mtu(raw: u8) -> Result<Mtu, UnknownValue> {
    Mtu::from_raw(raw).ok_or(UnknownValue { field: "path_mtu", value: raw.into() })
}

fn fits<T>(field: &'static str, value: Result<T, OutOfRange>) -> Result<T, UnknownValue> {
    value.map_err(|error| UnknownValue { field, value: error.value })
}
