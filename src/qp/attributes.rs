//! The attributes of MODIFY_QP and QUERY_QP.

mod info;
mod limits;
#[cfg(test)]
mod tests;

pub use info::{QpInfo, UnknownValue};
pub use limits::{AckTimeout, OutOfRange, Psn, QpNumber, RetryCount, RnrTimer};

#[cfg(doc)]
use super::QueuePair;
use crate::address::{AhAttr, GlobalRoute};
use crate::context::Gid;
use mlx5_uapi::verbs::{AccessFlags, MigState, Mtu, QpAttrMask, QpDest, QpState};
use mlx5_uapi::write_cmd::{ExModifyQp, ModifyQp};
use mlx5_wqe::QueueState;

/// The numbers of the states in `wqe` and in the kernel are the same (`enum ib_qp_state`).
const _: () = {
    assert!(QueueState::Reset as u8 == QpState::Reset.raw());
    assert!(QueueState::Init as u8 == QpState::Init.raw());
    assert!(QueueState::ReadyToReceive as u8 == QpState::Rtr.raw());
    assert!(QueueState::ReadyToSend as u8 == QpState::Rts.raw());
    assert!(QueueState::SendQueueDrained as u8 == QpState::Sqd.raw());
    assert!(QueueState::SendQueueError as u8 == QpState::Sqe.raw());
    assert!(QueueState::Error as u8 == QpState::Err.raw());
};

/// Sizes of a queue pair (`struct ibv_qp_cap`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpSizes {
    /// Number of send requests.
    pub max_send_wr: u32,
    /// Number of receive requests.
    pub max_recv_wr: u32,
    /// Maximum number of SGEs of a send request.
    pub max_send_sge: u32,
    /// Maximum number of SGEs of a receive request.
    pub max_recv_sge: u32,
    /// Maximum number of bytes of inline data of a send request.
    pub max_inline_data: u32,
}

/// The path that a connection migrates to when its path fails. InfiniBand only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlternatePath {
    /// The path, including its port.
    pub ah_attr: AhAttr,
    /// Index of the P_Key.
    pub pkey_index: u16,
    /// Acknowledge timeout.
    pub timeout: AckTimeout,
}

/// One attribute per row: its verbs name and type, its mask bit, and the request field that carries
/// it.
macro_rules! attributes {
    ($( $(#[$doc:meta])* $name:ident: $ty:ty = $bit:ident, |$to:ident, $value:ident| $put:expr; )*) => {
        /// The attributes that one MODIFY_QP sets (`struct ibv_qp_attr` with its mask). Attributes
        /// that are not set do not change.
        ///
        /// [`QueuePair::modify`] checks which ones a transition requires and allows.
        #[derive(Clone, Copy, PartialEq, Debug, Default)]
        #[non_exhaustive]
        pub struct QpAttributes {
            $( $(#[$doc])* pub $name: Option<$ty>, )*
        }

        impl QpAttributes {
            /// The mask bit and the setter of every attribute.
            pub(crate) const SETTERS: &[(QpAttrMask, &str)] =
                &[$( (QpAttrMask::$bit, stringify!($name)) ),*];

            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $name(mut self, value: $ty) -> Self {
                    self.$name = Some(value);
                    self
                }
            )*

            /// Returns the bits of the attributes that are set.
            pub const fn mask(&self) -> QpAttrMask {
                let mut mask = QpAttrMask::empty();
                $(
                    if self.$name.is_some() {
                        mask = mask.union(QpAttrMask::$bit);
                    }
                )*
                mask
            }

            /// Encodes the kernel's request. Only [`base`](ExModifyQp::base) of it is sent unless
            /// [`is_extended`](Self::is_extended).
            pub fn encode(&self, qp_handle: u32) -> ExModifyQp {
                let base =
                    ModifyQp { qp_handle, attr_mask: self.mask().bits(), ..ModifyQp::default() };
                let mut request = ExModifyQp { base, ..ExModifyQp::default() };
                $(
                    if let Some($value) = self.$name {
                        let $to = &mut request;
                        $put;
                    }
                )*
                request
            }
        }
    };
}

attributes! {
    /// The new state.
    qp_state: QueueState = STATE, |to, state| to.base.qp_state = state as u8;
    /// The current state, overriding the kernel's view. Required to leave
    /// [`QueueState::SendQueueDrained`]: the device does not notify the kernel that it drained.
    cur_qp_state: QueueState = CUR_STATE, |to, state| to.base.cur_qp_state = state as u8;
    /// Whether an event reports that the send queue has drained.
    en_sqd_async_notify: bool = EN_SQD_ASYNC_NOTIFY,
        |to, notify| to.base.en_sqd_async_notify = notify.into();
    /// Access rights of the peer, within the rights of each region.
    qp_access_flags: AccessFlags = ACCESS_FLAGS, |to, flags| to.base.qp_access_flags = flags.bits();
    /// Index of the P_Key in the port's table.
    pkey_index: u16 = PKEY_INDEX, |to, index| to.base.pkey_index = index;
    /// The port, counted from 1.
    port_num: u8 = PORT, |to, port| to.base.port_num = port;
    /// The Q_Key that a datagram must carry to be received. One with the top bit set is a
    /// controlled Q_Key, which requires a privilege.
    qkey: u32 = QKEY, |to, qkey| to.base.qkey = qkey;
    /// The path to the peer.
    ah_attr: AhAttr = AV, |to, path| to.base.dest = to_dest(&path);
    /// The maximum packet size on the path.
    path_mtu: Mtu = PATH_MTU, |to, mtu| to.base.path_mtu = mtu.raw();
    /// The time to wait for an acknowledgement ([`AckTimeout::at_least`]).
    timeout: AckTimeout = TIMEOUT, |to, timeout| to.base.timeout = timeout.get();
    /// Number of retransmissions without an acknowledgement.
    retry_cnt: RetryCount = RETRY_CNT, |to, count| to.base.retry_cnt = count.get();
    /// Number of retransmissions when the peer has no receive posted (RNR).
    rnr_retry: RetryCount = RNR_RETRY, |to, count| to.base.rnr_retry = count.get();
    /// The first sequence number to receive: the peer's `sq_psn`.
    rq_psn: Psn = RQ_PSN, |to, psn| to.base.rq_psn = psn.get();
    /// Maximum number of outstanding reads and atomics as initiator. The device rounds up to a
    /// power of two.
    max_rd_atomic: u8 = MAX_QP_RD_ATOMIC, |to, max| to.base.max_rd_atomic = max;
    /// The alternate path.
    alt_path: AlternatePath = ALT_PATH, |to, path| {
        to.base.alt_dest = to_dest(&path.ah_attr);
        to.base.alt_port_num = path.ah_attr.port_num;
        to.base.alt_pkey_index = path.pkey_index;
        to.base.alt_timeout = path.timeout.get();
    };
    /// Time that the peer waits after it finds no receive posted.
    min_rnr_timer: RnrTimer = MIN_RNR_TIMER, |to, timer| to.base.min_rnr_timer = timer.get();
    /// The first sequence number to send: the peer's `rq_psn`.
    sq_psn: Psn = SQ_PSN, |to, psn| to.base.sq_psn = psn.get();
    /// Maximum number of outstanding reads and atomics as responder. The device rounds up to a
    /// power of two.
    max_dest_rd_atomic: u8 = MAX_DEST_RD_ATOMIC, |to, max| to.base.max_dest_rd_atomic = max;
    /// The state of path migration.
    path_mig_state: MigState = PATH_MIG_STATE, |to, state| to.base.path_mig_state = state.raw();
    /// Sizes. No transition allows them and the request has no field for them: an mlx5 queue pair
    /// keeps the sizes that it was created with.
    cap: QpSizes = CAP, |_to, _sizes| {};
    /// The peer's QP number.
    dest_qp_num: QpNumber = DEST_QPN, |to, number| to.base.dest_qp_num = number.get();
    /// Rate limit in kb/s; 0 for none. Only the extended request carries it.
    rate_limit: u32 = RATE_LIMIT, |to, rate| to.rate_limit = rate;
}

impl QpAttributes {
    /// The attributes that only the extended command can carry.
    const EXTENDED: QpAttrMask = QpAttrMask::RATE_LIMIT;

    /// Sets no attribute.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the request must be the extended one.
    pub const fn is_extended(&self) -> bool {
        self.mask().intersects(Self::EXTENDED)
    }
}

/// Encodes a path for QP commands.
fn to_dest(path: &AhAttr) -> QpDest {
    let mut dest = QpDest {
        dlid: path.dlid,
        sl: path.sl,
        src_path_bits: path.src_path_bits,
        static_rate: path.static_rate,
        port_num: path.port_num,
        ..QpDest::default()
    };
    if let Some(route) = &path.grh {
        dest.is_global = 1;
        dest.dgid = route.dgid.to_bytes();
        dest.flow_label = route.flow_label;
        dest.sgid_index = route.sgid_index;
        dest.hop_limit = route.hop_limit;
        dest.traffic_class = route.traffic_class;
    }
    dest
}

/// Decodes a path. `None` while its port is 0, as before the first RTR.
fn from_dest(dest: &QpDest) -> Option<AhAttr> {
    if dest.port_num == 0 {
        return None;
    }
    let grh = (dest.is_global != 0).then(|| GlobalRoute {
        dgid: Gid::from_bytes(dest.dgid),
        flow_label: dest.flow_label,
        sgid_index: dest.sgid_index,
        hop_limit: dest.hop_limit,
        traffic_class: dest.traffic_class,
    });
    Some(AhAttr {
        dlid: dest.dlid,
        sl: dest.sl,
        src_path_bits: dest.src_path_bits,
        static_rate: dest.static_rate,
        port_num: dest.port_num,
        grh,
    })
}
