//! Completion queues that a program polls itself.

use super::CompletionQueue;
use crate::error::Error;
use crate::pools::RawRing;
use std::ptr::NonNull;

/// A completion queue in memory: see [`CompletionQueue::hand_over`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawCompletionQueue {
    /// The CQEs, a power of two: the queue holds one less.
    pub cqes: RawRing,
    /// The doorbell record: the consumer index, and the words that arm the queue, four bytes each.
    pub record: NonNull<u8>,
    /// The page with the register that arms the queue, at offset 0x20.
    pub page: NonNull<u8>,
    /// Number of the queue in the device.
    pub cqn: u32,
}

impl CompletionQueue {
    /// Hands the queue over to a program that looks at it, or polls it itself (`mlx5dv_init_obj`).
    /// From now on the driver leaves its CQEs unchanged: those of a queue pair that is destroyed or
    /// reset stay in the queue, and a resize is refused.
    ///
    /// A poll takes the queue back. It continues at the consumer index in the doorbell record,
    /// which a program that polls itself moves. It skips completions of queue pairs that were
    /// meanwhile destroyed, purged ([`QueuePair::purge`](crate::QueuePair::purge)), or moved out of
    /// RESET. Requests whose completions the program has polled are not retired here: later sends
    /// of the same queue retire sends, and receives stay outstanding.
    ///
    /// The pointers are valid until the queue is destroyed. Code that writes through them must
    /// follow the device's rules for completion queues.
    ///
    /// No poll may be in progress: a queue pair that is reset after the hand-over starts without
    /// waiting for its completions, and a poll in progress would take them for those of new
    /// requests. So a cursor must end its poll first:
    ///
    /// ```compile_fail,E0596
    /// # fn f(mut cursor: mlx5::CompletionCursor) {
    /// let _ = cursor.start();
    /// let _ = cursor.hand_over();
    /// # }
    /// ```
    ///
    /// ```no_run
    /// # fn f(mut cursor: mlx5::CompletionCursor) {
    /// let _ = cursor.start();
    /// let _ = cursor.queue().hand_over();
    /// # }
    /// ```
    pub fn hand_over(&mut self) -> Result<RawCompletionQueue, Error> {
        let inner = &self.inner;
        inner.context.check_process("init_obj")?;
        let Some(slot) = &inner.slot else {
            return Err(Error::invalid("init_obj", "the completion queue was destroyed".into()));
        };
        // Other threads look for the last completion of a queue, and check whether it was handed
        // over.
        let _buffer = inner.buffer();
        if !inner.attention.is_handed_over() {
            // Completions that a leaked iterator passed, which the program must not find. Later the
            // record is the program's.
            self.ring.publish();
            inner.attention.set_handed_over();
        }
        let buffer = inner.state.ring_buffer();
        let (start, entries, stride) = (buffer.start, buffer.size(), buffer.stride as u32);
        Ok(RawCompletionQueue {
            cqes: RawRing { start, entries, stride },
            record: slot.record(),
            page: inner.context.uars.cq_page(),
            cqn: inner.cqn,
        })
    }
}
