//! Completion queues that a program polls itself.

use super::{CompletionQueue, CqInner};
use crate::error::Error;
use crate::pools::RawRing;
use std::ptr::NonNull;

/// A completion queue in memory: see [`CompletionQueue::hand_over`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawCompletionQueue {
    /// The CQEs, a power of two: the queue holds one less.
    pub cqes: RawRing,
    /// The doorbell record: the consumer index, and the words by which the queue is armed, four bytes
    /// each.
    pub record: NonNull<u8>,
    /// The page with the register by which the queue is armed, at offset 0x20.
    pub page: NonNull<u8>,
    /// Number of the queue in the device.
    pub cqn: u32,
}

impl CompletionQueue {
    /// Hands the queue over to a program that looks at it, or polls it itself (`mlx5dv_init_obj`).
    /// From now on nothing here changes it: a queue pair that is destroyed or reset leaves its CQEs
    /// there, and a resize is refused.
    ///
    /// A poll takes the queue back. It goes on at the consumer index in the doorbell record, which a
    /// program that polls itself moves, and returns no completion of queue pairs that were destroyed,
    /// or that [`QueuePair::purge`](crate::QueuePair::purge) or leaving RESET was for, meanwhile.
    /// Requests that the program has polled are not done here: later ones of a send queue end them,
    /// receives stay outstanding.
    ///
    /// The pointers are valid until the queue is destroyed. What writes through them must follow the
    /// device's rules for completion queues.
    pub fn hand_over(&self) -> Result<RawCompletionQueue, Error> {
        self.inner.hand_over()
    }
}

impl CqInner {
    pub(super) fn hand_over(&self) -> Result<RawCompletionQueue, Error> {
        self.context.check_process("init_obj")?;
        let Some(slot) = &self.slot else {
            return Err(Error::invalid("init_obj", "the completion queue was destroyed".into()));
        };
        self.attention.set_handed_over();
        // Another thread may resize the queue.
        let _buffer = self.buffer();
        let buffer = self.state.ring_buffer();
        let (start, entries, stride) = (buffer.start, buffer.size(), buffer.stride as u32);
        Ok(RawCompletionQueue {
            cqes: RawRing { start, entries, stride },
            record: slot.record(),
            page: self.context.uars.cq_page(),
            cqn: self.cqn,
        })
    }
}
