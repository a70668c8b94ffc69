//! Signatures of requests (`MLX5_QP_FLAG_SIGNATURE`). The signature byte makes the exclusive-or of
//! all bytes of a WQE 0xff. Not to be confused with signatures of data.

use crate::send::post::units_of;
use crate::send::queue::SendQueue;
use core::mem::offset_of;
use mlx5_prm::wqe::{ControlSegment, UNIT};

impl<T> SendQueue<T> {
    /// Signs the request at block `block`, which may wrap around the end of the ring.
    pub(crate) fn sign(&self, block: u32) {
        let control = self.ring.at(block);
        // SAFETY: a request in the ring starts with a control segment.
        unsafe {
            let signature = control.byte_add(offset_of!(ControlSegment, signature));
            signature.write(0);
            signature.write(!self.ring.xor(block, units_of(control) * UNIT));
        }
    }
}
