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
}

impl ControlHalf {
    /// Queries the device, whose state may have changed without the kernel. Needs DEVX.
    pub(crate) fn device_state(&self, verb: &'static str) -> Result<DeviceState, Error> {
        let inner = &self.inner;
        if inner.qp_type == QpType::RawPacket {
            // Its number is that of a send queue, and the device may have a queue pair of that number.
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
        Ok(DeviceState { state: QpState(qpc.state()), counter })
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
    /// Returns a copy of the send ring as the device reads it:
    /// [`QueuePairCaps`](super::QueuePairCaps)'s `send_blocks` blocks of 64 bytes, in device
    /// layout; the first one has block counter zero. Blocks that were never used are zero; others
    /// keep their last request until they are reused.
    ///
    /// For debuggers, and to see what a cancel does.
    pub fn send_ring(&self) -> Vec<u8> {
        let inner = &self.control.inner;
        let caps = &inner.caps;
        let memory = inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((buffer, ..)) = memory.as_ref().filter(|_| !inner.context.forked()) else {
            return Vec::new();
        };
        // SAFETY: the buffer holds both rings. Only the send half writes the send ring, and `self`
        // has it; the device never writes it.
        unsafe {
            let ring = buffer.as_non_null().byte_add(inner.send_offset);
            std::slice::from_raw_parts(ring.as_ptr(), caps.send_blocks as usize * BLOCK).to_vec()
        }
    }
}
