//! Looking at a queue pair's rings, as the device sees them.

use super::{QueuePair, QueuePairTransport};
use mlx5_prm::wqe::{BLOCK, UNIT};
use std::sync::PoisonError;

impl<T: QueuePairTransport> QueuePair<T> {
    /// A copy of the send ring as the device reads it: [`QueuePairCaps`](super::QueuePairCaps)'s
    /// `send_blocks` of 64 bytes, in device layout, the first at block counter zero. Blocks that
    /// were never used are zero; others keep their last request until a later one takes the place.
    ///
    /// For debuggers and for those who want to see what a cancel does.
    pub fn send_ring(&self) -> Vec<u8> {
        let inner = &self.control.inner;
        let caps = &inner.caps;
        // The send ring follows the receive ring; its requests are as large as their entries.
        let offset = caps.max_recv_wr as usize * caps.max_recv_sge as usize * UNIT;
        let memory = inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((buffer, ..)) = memory.as_ref().filter(|_| !inner.context.forked()) else {
            return Vec::new();
        };
        // SAFETY: the buffer holds both rings; the send ring is written by the send half alone,
        // which `self` has, and never by the device.
        unsafe {
            let ring = buffer.as_non_null().byte_add(offset);
            std::slice::from_raw_parts(ring.as_ptr(), caps.send_blocks as usize * BLOCK).to_vec()
        }
    }
}
