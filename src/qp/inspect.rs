//! Inspecting a queue pair: its state in the device, and its rings.

use super::{ControlHalf, QueuePair, QueuePairTransport};
use crate::error::{Error, ErrorKind};
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::qp::{QpState, QueryQpIn, QueryQpOut};
use mlx5_prm::wqe::BLOCK;
use mlx5_uapi::verbs::QpType;
use mlx5_wqe::QueueState;
use std::sync::PoisonError;

/// The state of a queue pair in the device.
pub(crate) struct DeviceState {
    pub(crate) state: QpState,
    /// The block, free-running in 16 bits, at which the send queue will resume.
    pub(crate) counter: u16,
    /// Whether it places data in order. Only devices with `qp_data_in_order` report this.
    data_in_order: bool,
}

/// Whether the processor sees a device's ordered writes in the same order. rdma-core's C library
/// assumes it only for x86 (`ibv_query_qp_data_in_order`).
const PROCESSOR_KEEPS_ORDER: bool = cfg!(any(target_arch = "x86", target_arch = "x86_64"));

impl ControlHalf {
    /// Queries the device, whose state may have changed without the kernel. Needs DEVX.
    pub(crate) fn device_state(&self, verb: &'static str) -> Result<DeviceState, Error> {
        let inner = &self.inner;
        if inner.qp_type == QpType::RawPacket {
            // The number is that of a send queue, and an unrelated queue pair may have the same
            // number.
            let what = "the device has queues of a raw packet queue pair, not a queue pair to ask";
            return Err(Error::new(verb, ErrorKind::NotSupported, what));
        }
        let handle = inner.live_handle(verb)?;
        let mut query = QueryQpIn::request();
        query.set_qpn(inner.qp_num);
        let mut answer = QueryQpOut::default();
        inner.context.devx_query(verb, handle, query.as_bytes(), answer.as_bytes_mut())?;
        let qpc = answer.qpc();
        let counter = qpc.hw_sq_wqebb_counter() as u16;
        let data_in_order = qpc.data_in_order();
        Ok(DeviceState { state: QpState(qpc.state()), counter, data_in_order })
    }

    /// Queries whether the data of each request that arrives here is placed in ascending order, so
    /// that a program may poll the last byte of a message instead of its completion
    /// (`ibv_query_qp_data_in_order`). Says nothing about the order of different requests.
    ///
    /// `true` holds for a queue pair in RTS, for memory that the processor reads, and for regions
    /// without [`Access::RELAXED_ORDERING`](crate::Access::RELAXED_ORDERING). `false` means that
    /// the order is unknown: the device does not promise it, there is no DEVX to query it, the
    /// queue pair is in another state, or the processor is not x86. Firmware that is configured to
    /// relax the order of all writes (`PCI_WR_ORDERING=force_relax`) does not report that.
    ///
    /// [`MessageRing`](crate::MessageRing) and [`MessageSlots`](crate::MessageSlots) do not depend
    /// on such an order.
    ///
    /// # Errors
    /// If the device is gone, or does not answer.
    pub fn data_in_order(&self) -> Result<bool, Error> {
        Ok(PROCESSOR_KEEPS_ORDER && self.device_data_in_order()?)
    }

    /// Like [`ControlHalf::data_in_order`], but only for the device: for memory that another device
    /// reads, or with knowledge of the processor (`IBV_QUERY_QP_DATA_IN_ORDER_DEVICE_ONLY`).
    pub fn device_data_in_order(&self) -> Result<bool, Error> {
        const VERB: &str = "query_qp_data_in_order (DEVX)";
        let context = &self.inner.context;
        context.check(VERB)?;
        if self.state() != QueueState::ReadyToSend
            || self.inner.qp_type == QpType::RawPacket
            || !context.has_devx()
            || !context.hca_cap(VERB)?.qp_data_in_order()
        {
            return Ok(false);
        }
        Ok(self.device_state(VERB)?.data_in_order)
    }
}

/// Converts a state to the device's number.
pub(super) const fn state_at_device(state: QueueState) -> QpState {
    match state {
        QueueState::Reset => QpState::RST,
        QueueState::Init => QpState::INIT,
        QueueState::ReadyToReceive => QpState::RTR,
        QueueState::ReadyToSend => QpState::RTS,
        QueueState::SendQueueDrained => QpState::SQD,
        QueueState::SendQueueError => QpState::SQER,
        QueueState::Error => QpState::ERR,
    }
}

impl<T: QueuePairTransport> QueuePair<T> {
    /// Queries whether the data of each request that arrives here is placed in ascending order. See
    /// [`ControlHalf::data_in_order`].
    pub fn data_in_order(&self) -> Result<bool, Error> {
        self.control.data_in_order()
    }

    /// Returns a copy of the send ring as the device reads it: `send_blocks` blocks
    /// ([`QueuePairCaps`](super::QueuePairCaps)) of 64 bytes, in device layout; the first one has
    /// block counter zero. Blocks that were never used are zero; others hold their last request
    /// until they are reused.
    ///
    /// For debuggers, and to see the effect of a cancel.
    pub fn send_ring(&self) -> Vec<u8> {
        let inner = &self.control.inner;
        let caps = &inner.caps;
        let memory = inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((buffer, ..)) = memory.as_ref().filter(|_| !inner.context.forked()) else {
            return Vec::new();
        };
        // SAFETY: the buffer holds both rings. Only the send half, which `self` owns, writes the
        // send ring; the device never writes it.
        unsafe {
            let ring = buffer.as_non_null().byte_add(inner.send_offset);
            std::slice::from_raw_parts(ring.as_ptr(), caps.send_blocks as usize * BLOCK).to_vec()
        }
    }
}
