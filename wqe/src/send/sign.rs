//! Signatures of requests (`MLX5_QP_FLAG_SIGNATURE`). The signature byte makes the exclusive-or of
//! all bytes of a WQE 0xff. Not to be confused with signatures of data.

use crate::request::transport::Transport;
use crate::send::queue::SendQueue;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::wqe::{BLOCK, ControlSegment, UNIT};

impl<T: Transport> SendQueue<T> {
    /// Signs the request at block `head`, which may wrap around the end of the ring.
    pub(crate) fn sign(&self, head: u32) {
        const SIGNATURE: usize = offset_of!(ControlSegment, signature);
        let control = self.at(head);
        // SAFETY: a request in the ring starts with a control segment.
        let units = unsafe { control.cast::<ControlSegment>().read() }.units();
        // SAFETY: as above; the byte is part of the control segment.
        unsafe { control.byte_add(SIGNATURE).write(0) };
        let bytes = (units * UNIT).min((self.mask as usize + 1) * BLOCK);
        let start = (head & self.mask) as usize * BLOCK;
        let first = bytes.min((self.mask as usize + 1) * BLOCK - start);
        // SAFETY: both ranges are inside the ring.
        let sum = unsafe { xor(control, first) ^ xor(self.ring, bytes - first) };
        // SAFETY: as above.
        unsafe { control.byte_add(SIGNATURE).write(!sum) };
    }
}

/// # Safety
/// `length` bytes at `at` are readable.
unsafe fn xor(at: NonNull<u8>, length: usize) -> u8 {
    // SAFETY: by the caller's contract.
    (0..length).fold(0, |sum, i| sum ^ unsafe { at.byte_add(i).read() })
}
