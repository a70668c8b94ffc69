//! Room in the ring: whether a request fits, and where it is built.

use crate::request::error::PostError;
use crate::request::transport::Transport;
use crate::send::build::Cursor;
use crate::send::queue::SendQueue;
use crate::send::records::RequestInfo;
use core::ptr::NonNull;
use mlx5_prm::wqe::BLOCK;

impl<T: Transport> SendQueue<T> {
    /// Whether the fast path may build a request at `head`: one of the largest size fits in one
    /// piece.
    #[inline(always)]
    pub(crate) fn has_fast_room(&self, head: u32) -> bool {
        self.fast_limit.wrapping_sub(head) as i32 >= 0
    }

    /// Returns where to build the request at `cursor`, and whether that is in the ring. `blocks` is
    /// its maximum size if that can exceed the largest size of the queue. It is built in the ring
    /// if it fits there in one piece with room for another one of the largest size behind it;
    /// otherwise in the scratch buffer.
    pub(crate) fn slow_slot(&mut self, cursor: Cursor, blocks: u32) -> (NonNull<u8>, bool) {
        let head = cursor.head;
        if blocks <= self.max_request_blocks && self.has_fast_room(head) {
            return (self.at(head), true);
        }
        self.records().open();
        // The batch has passed the limit of the fast path. The limit does not move, because the
        // batch may be aborted; completing the batch computes the next one. `noted` also covers the
        // fence that the first request of a batch may need: if the batch is leaked, the next one
        // still needs it.
        (self.fast_blueflame_blocks, self.noted) = (0, cursor.sequence);
        if self.span(cursor) >= self.max_request_blocks.max(blocks) {
            return (self.at(head), true);
        }
        (NonNull::from(&mut self.scratch.0).cast(), false)
    }

    /// Returns the blocks at the cursor that are free, in one piece, and leave room for another
    /// request of the largest size. While there are any, a run of unsignaled requests cannot have
    /// filled the queue.
    pub(crate) fn span(&self, Cursor { head, sequence }: Cursor) -> u32 {
        let to_end = self.mask + 1 - (head & self.mask);
        self.free_at(head, sequence).saturating_sub(self.max_request_blocks).min(to_end)
    }

    /// Copies a request from the scratch buffer to its place in the ring, if there is room for it.
    pub(crate) fn copy_into_ring(
        &mut self,
        cursor: Cursor,
        info: RequestInfo,
    ) -> Result<(), PostError> {
        self.check_room(cursor, info.blocks().into(), info.signaled())?;
        // SAFETY: `check_room` found that many free blocks, and a record describes at most a
        // largest WQE.
        unsafe { self.copy_from_scratch(cursor, info.blocks().into()) };
        Ok(())
    }

    /// Checks whether a request of `blocks` blocks fits at the cursor.
    pub(crate) fn check_room(
        &self,
        Cursor { head, sequence }: Cursor,
        blocks: u32,
        signaled: bool,
    ) -> Result<(), PostError> {
        let free = self.free_at(head, sequence);
        if blocks > free {
            return Err(PostError::QueueFull { free, needed: blocks });
        }
        let stays_open = free - blocks >= self.max_request_blocks;
        if !signaled && !stays_open {
            let run = self.unsignaled_run(sequence as u16) + blocks;
            if run + self.max_request_blocks > self.mask + 1 {
                return Err(PostError::UnsignaledRun);
            }
        }
        Ok(())
    }

    /// Whether `blocks` blocks from `head` on do not wrap around the end of the ring.
    #[inline(always)]
    pub(crate) fn in_one_piece(&self, head: u32, blocks: u32) -> bool {
        blocks <= self.mask + 1 - (head & self.mask)
    }

    /// Copies a request from the scratch buffer to its place in the ring.
    ///
    /// # Safety
    /// `blocks` blocks at `cursor` are free. `blocks` is at most the size of the largest WQE.
    pub(crate) unsafe fn copy_from_scratch(&mut self, cursor: Cursor, blocks: u32) {
        let head = cursor.head;
        let to_end = self.mask + 1 - (head & self.mask);
        let first = blocks.min(to_end) as usize * BLOCK;
        let rest = blocks as usize * BLOCK - first;
        let (slot, scratch) = (self.at(head), self.scratch.0.as_ptr());
        // SAFETY: `blocks` free blocks start at `head`: `first` bytes up to the end of the ring,
        // the rest at its start. The scratch buffer holds a largest WQE and is not part of the
        // ring.
        unsafe {
            slot.as_ptr().copy_from_nonoverlapping(scratch, first);
            self.ring.as_ptr().copy_from_nonoverlapping(scratch.add(first), rest);
        }
    }

    /// Returns the blocks of the outstanding requests before `sequence`, including the batch under
    /// construction, that follow the last signaled one. They stay in use after its completion.
    fn unsignaled_run(&self, mut sequence: u16) -> u32 {
        let (retired, _) = self.records().outstanding();
        let mut run = 0;
        while sequence != retired {
            sequence = sequence.wrapping_sub(1);
            let info = self.records().get(sequence).info;
            if info.signaled() {
                break;
            }
            run += u32::from(info.blocks());
        }
        run
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::send::bed::{BLOCKS, Bed};
    use crate::{PostError, Rc, SendFlags, SendQueue};

    /// Whether there is room is a comparison with a 32-bit counter that wraps. A queue that is
    /// always full must be reported full over the whole range of the counter.
    #[test]
    fn a_queue_that_is_always_full_stays_so_when_its_counter_wraps() {
        let bed = Bed::new();
        // SAFETY: the only queue, and `bed` outlives it.
        let mut queue = unsafe { bed.queue() };
        let post = |queue: &mut SendQueue<Rc>| {
            let mut batch = queue.wr_start();
            batch.wr(0, SendFlags::empty()).send().inline_data(b"x");
            batch.complete().map_err(|error| error.error())
        };
        let full = Err(PostError::QueueFull { free: 0, needed: 1 });
        for _ in 0..BLOCKS {
            post(&mut queue).unwrap();
        }
        for _ in 0..32 {
            for _ in 0..3 {
                assert_eq!(post(&mut queue), full);
                let oldest = queue.producer().wrapping_sub(BLOCKS as u16);
                bed.records().retire(oldest).unwrap();
                assert_eq!(post(&mut queue), Ok(()));
            }
            // Skip ahead. The device's and the records' counters have 16 bits and do not change.
            queue.head = queue.head.wrapping_add(1 << 28);
        }
    }
}
