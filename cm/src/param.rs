//! The parameters that both ends tell each other.

use mlx5::RetryCount;
use mlx5_uapi::rdma_cm::{ConnParam, Ece};

use crate::data::PrivateData;
use crate::error::Error;

/// What one end of a connection tells the other (`struct rdma_conn_param`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct ConnectParam<'a> {
    pub(crate) qp_num: u32,
    pub(crate) srq: bool,
    private_data: &'a [u8],
    responder_resources: u8,
    initiator_depth: u8,
    retry_count: RetryCount,
    rnr_retry_count: RetryCount,
    pub(crate) ece_vendor: u32,
}

/// NVIDIA's number on the PCI bus.
const VENDOR: u32 = 0x15b3;

impl<'a> ConnectParam<'a> {
    /// The parameters of a queue pair with this number: 16 outstanding reads and atomics either
    /// way, retries without end when the peer has no receive posted, no private data.
    pub const fn new(qp_num: u32) -> Self {
        Self {
            qp_num,
            srq: false,
            private_data: &[],
            responder_resources: 16,
            initiator_depth: 16,
            retry_count: RetryCount::MAX,
            rnr_retry_count: RetryCount::MAX,
            ece_vendor: VENDOR,
        }
    }

    /// Whether the queue pair has a shared receive queue. Default: `false`.
    pub const fn srq(self, srq: bool) -> Self {
        Self { srq, ..self }
    }

    /// Private data for the program at the other end. Default: none. How much a message has room
    /// for: [`private_data`](mlx5_uapi::rdma_cm::private_data).
    pub const fn private_data(self, private_data: &'a [u8]) -> Self {
        Self { private_data, ..self }
    }

    /// Outstanding reads and atomics as responder. Default: 16. Not more than the device supports.
    pub const fn responder_resources(self, responder_resources: u8) -> Self {
        Self { responder_resources, ..self }
    }

    /// Outstanding reads and atomics as initiator. Default: 16. Not more than the device supports.
    pub const fn initiator_depth(self, initiator_depth: u8) -> Self {
        Self { initiator_depth, ..self }
    }

    /// Number of retries, of both ends; counts where a connection is asked for. Default: 7.
    pub const fn retry_count(self, retry_count: RetryCount) -> Self {
        Self { retry_count, ..self }
    }

    /// Number of retries of the peer while this end has no receive posted. Default: 7, which is
    /// without limit.
    pub const fn rnr_retry_count(self, rnr_retry_count: RetryCount) -> Self {
        Self { rnr_retry_count, ..self }
    }

    /// Encodes the parameters, if there is room for the private data.
    pub(crate) fn encode(
        &self,
        operation: &'static str,
        room: usize,
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
        // This provider uses no option of the vendor.
        Ok((param, Ece { vendor_id: self.ece_vendor, attr_mod: 0 }))
    }
}

/// What the other end said of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Number of its queue pair.
    pub qp_num: u32,
    /// Whether that has a shared receive queue.
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
        let error = param.encode("connect", 56).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::PrivateDataTooLong);
        assert!(error.to_string().contains("57") && error.to_string().contains("56"));
        assert!(param.encode("connect", 57).is_ok());
    }
}
