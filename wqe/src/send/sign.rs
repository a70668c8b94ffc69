//! Signatures of requests (`MLX5_QP_FLAG_SIGNATURE`): with its signature byte, the exclusive-or of all
//! bytes of a request is 0xff. Not to be taken for signatures of data.

use crate::request::transport::Transport;
use crate::send::queue::SendQueue;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::wqe::{BLOCK, ControlSegment, UNIT};

impl<T: Transport> SendQueue<T> {
    /// Signs the request that stands at block `head`, around the end of the ring if need be.
    pub(crate) fn sign(&self, head: u32) {
        const SIGNATURE: usize = offset_of!(ControlSegment, signature);
        let control = self.at(head);
        // SAFETY: a request that stands in the ring has a control segment.
        let units = unsafe { control.cast::<ControlSegment>().read() }.units();
        // SAFETY: as above.
        unsafe { control.byte_add(SIGNATURE).write(0) };
        let bytes = (units * UNIT).min((self.mask as usize + 1) * BLOCK);
        let start = (head & self.mask) as usize * BLOCK;
        let first = bytes.min((self.mask as usize + 1) * BLOCK - start);
        // SAFETY: both runs are inside the ring.
        let sum = unsafe { xor(control, first) ^ xor(self.ring, bytes - first) };
        // SAFETY: as above.
        unsafe { control.byte_add(SIGNATURE).write(!sum) };
    }
}

/// # Safety
/// `length` bytes at `at` can be read.
unsafe fn xor(at: NonNull<u8>, length: usize) -> u8 {
    // SAFETY: by the contract.
    (0..length).fold(0, |sum, i| sum ^ unsafe { at.byte_add(i).read() })
}
