//! The parameters that both ends exchange.

use mlx5::RetryCount;
use mlx5_uapi::rdma_cm::{ConnParam, Ece};

use crate::data::PrivateData;
use crate::error::Error;

/// The parameters that one end of a connection sends to the other (`struct rdma_conn_param`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct ConnectParam<'a> {
    qp_num: u32,
    srq: bool,
    private_data: &'a [u8],
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    retry_count: RetryCount,
    rnr_retry_count: RetryCount,
    /// The retry limit of this end alone; the peer does not learn it.
    pub(crate) own_rnr_retry_count: RetryCount,
    ece: Option<(u32, u32)>,
}

/// NVIDIA's number on the PCI bus.
pub(crate) const VENDOR: u32 = 0x15b3;

impl<'a> ConnectParam<'a> {
    /// The parameters of a queue pair with this number: 16 outstanding reads and atomics in either
    /// direction, unlimited retries when the peer has no receive posted, no private data.
    pub const fn new(qp_num: u32) -> Self {
        Self {
            qp_num,
            srq: false,
            private_data: &[],
            responder_resources: 16,
            initiator_depth: 16,
            retry_count: RetryCount::MAX,
            rnr_retry_count: RetryCount::MAX,
            own_rnr_retry_count: RetryCount::MAX,
            ece: None,
        }
    }

    /// The same parameters for another queue pair.
    pub(crate) const fn of(self, qp_num: u32, srq: bool) -> Self {
        Self { qp_num, srq, ..self }
    }

    /// Whether the queue pair has a shared receive queue. Default: `false`.
    pub const fn srq(self, srq: bool) -> Self {
        Self { srq, ..self }
    }

    /// Private data for the program at the other end. Default: none.
    /// [`private_data`](mlx5_uapi::rdma_cm::private_data) has the room of each message.
    pub const fn private_data(self, private_data: &'a [u8]) -> Self {
        Self { private_data, ..self }
    }

    /// Reads and atomics of the peer that this end answers at a time. Default: 16. Not more than
    /// the device supports.
    pub const fn responder_resources(self, responder_resources: u8) -> Self {
        Self { responder_resources, ..self }
    }

    /// Reads and atomics that this end starts at a time. Default: 16. Not more than the device
    /// supports.
    pub const fn initiator_depth(self, initiator_depth: u8) -> Self {
        Self { initiator_depth, ..self }
    }

    /// Number of retries, of both ends; the side that connects sets it. Default: 7.
    pub const fn retry_count(self, retry_count: RetryCount) -> Self {
        Self { retry_count, ..self }
    }

    /// Number of times that the peer sends again while this end has no receive posted. Default: 7,
    /// which is without limit: if this end never posts one, the peer's request never completes.
    /// Each end sets it for the other.
    pub const fn rnr_retry_count(self, rnr_retry_count: RetryCount) -> Self {
        Self { rnr_retry_count, ..self }
    }

    /// Maximum number of times that this end sends again while the peer has no receive posted.
    /// Default: the peer's value, mostly 7: without limit. With a lower value, a request to a peer
    /// that is stopped or posts nothing fails.
    pub const fn own_rnr_retry_count(self, own_rnr_retry_count: RetryCount) -> Self {
        Self { own_rnr_retry_count, ..self }
    }

    /// Enhanced connection establishment: a vendor, and its options. Default: in an answer the
    /// vendor of the request, else NVIDIA; no option. The queue pair is set to the options by other
    /// means.
    pub const fn ece(self, vendor: u32, options: u32) -> Self {
        Self { ece: Some((vendor, options)), ..self }
    }

    /// Encodes the parameters, if there is room for the private data.
    pub(crate) fn encode(
        &self,
        operation: &'static str,
        room: usize,
        vendor: u32,
    ) -> Result<(ConnParam, Ece), Error> {
        let len = self.private_data.len();
        if len > room {
            return Err(Error::too_long(operation, len, room));
        }
        let mut param = ConnParam {
            qp_num: self.qp_num,
            srq: self.srq.into(),
            private_data_len: len as u8,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            retry_count: self.retry_count.get(),
            rnr_retry_count: self.rnr_retry_count.get(),
            valid: 1,
            ..ConnParam::default()
        };
        param.private_data[..len].copy_from_slice(self.private_data);
        // This driver uses none of the vendor's options.
        let (vendor_id, attr_mod) = self.ece.unwrap_or((vendor, 0));
        Ok((param, Ece { vendor_id, attr_mod }))
    }
}

/// The parameters of the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Number of its queue pair.
    pub qp_num: u32,
    /// Whether that queue pair has a shared receive queue.
    pub srq: bool,
    /// Reads and atomics that this end may have outstanding as responder: the peer starts no more.
    pub responder_resources: u8,
    /// Reads and atomics that this end may start at a time: the peer answers no more.
    pub initiator_depth: u8,
    /// Its private data, followed by zeros.
    pub private_data: PrivateData,
    /// Vendor of enhanced connection establishment; 0 without.
    pub ece_vendor: u32,
    /// Its options.
    pub ece_options: u32,
}

impl Remote {
    pub(crate) fn decode(param: &ConnParam, ece: Ece) -> Self {
        Self {
            qp_num: param.qp_num,
            srq: param.srq != 0,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            private_data: PrivateData::new(param.private_data, param.private_data_len),
            ece_vendor: ece.vendor_id,
            ece_options: ece.attr_mod,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn private_data_that_does_not_fit_is_refused_with_both_numbers() {
        let param = ConnectParam::new(1).private_data(&[1; 57]);
        let error = param.encode("connect", 56, VENDOR).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::PrivateDataTooLong);
        assert!(error.to_string().contains("57") && error.to_string().contains("56"));
        assert!(param.encode("connect", 57, VENDOR).is_ok());
    }
}
