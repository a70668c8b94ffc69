//! The attributes of a queue pair that the kernel returns, and the queue pairs that take them.

use mlx5::{
    AccessFlags, AckTimeout, AhAttr, Context, Gid, GlobalRoute, Mtu, Psn, QpAttributes, QpNumber,
    QueuePair, QueuePairTransport, QueueState, RetryCount, RnrTimer, XrcTarget,
};
use mlx5_uapi::verbs::{AhAttr as KernelPath, QpAttr, QpAttrMask};

/// A queue pair that an identifier can prepare: of any transport, or the target of extended
/// connections.
pub trait Prepare {
    /// Sets attributes.
    fn modify(&mut self, attributes: &QpAttributes) -> Result<(), mlx5::Error>;
    /// Returns the state.
    fn state(&self) -> QueueState;
    /// Returns the number.
    fn number(&self) -> u32;
    /// Whether it has a shared receive queue.
    fn is_shared(&self) -> bool;
    /// Returns the context in which it was created.
    fn context(&self) -> Context;
}

impl<T: QueuePairTransport> Prepare for QueuePair<T> {
    fn modify(&mut self, attributes: &QpAttributes) -> Result<(), mlx5::Error> {
        QueuePair::modify(self, attributes)
    }

    fn state(&self) -> QueueState {
        QueuePair::state(self)
    }

    fn number(&self) -> u32 {
        self.qp_num()
    }

    fn is_shared(&self) -> bool {
        self.has_srq()
    }

    fn context(&self) -> Context {
        QueuePair::context(self)
    }
}

impl Prepare for XrcTarget {
    fn modify(&mut self, attributes: &QpAttributes) -> Result<(), mlx5::Error> {
        XrcTarget::modify(self, attributes)
    }

    fn state(&self) -> QueueState {
        XrcTarget::state(self)
    }

    fn number(&self) -> u32 {
        self.qp_num()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn context(&self) -> Context {
        self.domain().context()
    }
}

/// Decodes the attributes; `None` if one is out of range.
pub(crate) fn decode(attr: &QpAttr, state: QueueState) -> Option<QpAttributes> {
    let mask = QpAttrMask::from_bits_truncate(attr.qp_attr_mask);
    let mut to = QpAttributes::new().qp_state(state);
    if mask.contains(QpAttrMask::ACCESS_FLAGS) {
        to = to.qp_access_flags(AccessFlags::from_bits_truncate(attr.qp_access_flags));
    }
    if mask.contains(QpAttrMask::PKEY_INDEX) {
        to = to.pkey_index(attr.pkey_index);
    }
    if mask.contains(QpAttrMask::PORT) {
        to = to.port_num(attr.port_num);
    }
    if mask.contains(QpAttrMask::QKEY) {
        to = to.qkey(attr.qkey);
    }
    if mask.contains(QpAttrMask::AV) {
        to = to.ah_attr(decode_path(&attr.ah_attr));
    }
    if mask.contains(QpAttrMask::PATH_MTU) {
        to = to.path_mtu(Mtu::from_raw(u8::try_from(attr.path_mtu).ok()?)?);
    }
    if mask.contains(QpAttrMask::TIMEOUT) {
        to = to.timeout(AckTimeout::new(attr.timeout).ok()?);
    }
    if mask.contains(QpAttrMask::RETRY_CNT) {
        to = to.retry_cnt(RetryCount::new(attr.retry_cnt).ok()?);
    }
    if mask.contains(QpAttrMask::RNR_RETRY) {
        to = to.rnr_retry(RetryCount::new(attr.rnr_retry).ok()?);
    }
    if mask.contains(QpAttrMask::RQ_PSN) {
        to = to.rq_psn(Psn::new(attr.rq_psn).ok()?);
    }
    if mask.contains(QpAttrMask::MAX_QP_RD_ATOMIC) {
        to = to.max_rd_atomic(attr.max_rd_atomic);
    }
    if mask.contains(QpAttrMask::MIN_RNR_TIMER) {
        to = to.min_rnr_timer(RnrTimer::new(attr.min_rnr_timer).ok()?);
    }
    if mask.contains(QpAttrMask::SQ_PSN) {
        to = to.sq_psn(Psn::new(attr.sq_psn).ok()?);
    }
    if mask.contains(QpAttrMask::MAX_DEST_RD_ATOMIC) {
        to = to.max_dest_rd_atomic(attr.max_dest_rd_atomic);
    }
    if mask.contains(QpAttrMask::DEST_QPN) {
        to = to.dest_qp_num(QpNumber::new(attr.dest_qp_num).ok()?);
    }
    Some(to)
}

/// Decodes a path.
pub(crate) fn decode_path(path: &KernelPath) -> AhAttr {
    AhAttr {
        port_num: path.port_num,
        dlid: path.dlid,
        sl: path.sl,
        src_path_bits: path.src_path_bits,
        static_rate: path.static_rate,
        grh: (path.is_global != 0).then(|| GlobalRoute {
            dgid: Gid::from_bytes(path.grh.dgid),
            flow_label: path.grh.flow_label,
            sgid_index: path.grh.sgid_index,
            hop_limit: path.grh.hop_limit,
            traffic_class: path.grh.traffic_class,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attributes_that_the_kernel_names_are_set() {
        let attr = QpAttr {
            qp_attr_mask: (QpAttrMask::STATE | QpAttrMask::RQ_PSN).bits(),
            rq_psn: 5,
            sq_psn: 6,
            ..QpAttr::default()
        };
        let set = decode(&attr, QueueState::ReadyToReceive).expect("in range");
        assert_eq!(set.rq_psn.map(Psn::get), Some(5));
        assert_eq!((set.sq_psn, set.path_mtu), (None, None));
        assert_eq!(set.qp_state, Some(QueueState::ReadyToReceive));
    }

    #[test]
    fn a_number_out_of_its_range_is_noticed() {
        let attr = QpAttr {
            qp_attr_mask: QpAttrMask::DEST_QPN.bits(),
            dest_qp_num: 1 << 24,
            ..QpAttr::default()
        };
        assert!(decode(&attr, QueueState::ReadyToReceive).is_none());
    }
}
