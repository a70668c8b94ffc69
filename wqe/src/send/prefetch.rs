//! Loading what the next post on a queue uses.

use crate::send::queue::SendQueue;
use core::ptr::NonNull;
use mlx5_doorbell::prefetch;

impl<T> SendQueue<T> {
    /// Starts loading what the next post uses into the first-level cache. Does nothing else.
    ///
    /// Called a few posts ahead, for a queue among thousands: none of it is in a cache then.
    #[inline]
    pub fn prefetch(&self) {
        self.next_lines().into_iter().for_each(prefetch);
    }

    /// The memory that the next post uses besides the queue itself: the next block of the ring, its
    /// record, the doorbell record, and the counter that the poller reads.
    #[inline]
    fn next_lines(&self) -> [NonNull<u8>; 4] {
        [
            self.ring.at(self.posted.block),
            self.ring.record_at(self.posted.sequence),
            self.doorbell.record.as_non_null(),
            self.records().committed_line(),
        ]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::SendFlags;
    use crate::send::bed::{BLOCKS, Bed};

    #[test]
    fn what_the_next_post_writes_is_loaded() {
        let bed = Bed::new();
        // SAFETY: the only queue, and `bed` outlives it.
        let mut queue = unsafe { bed.queue() };
        let (first, _) = bed.records().as_ring();
        // More than a lap: the last place is followed by the first.
        for post in 0..BLOCKS as usize + 3 {
            queue.prefetch();
            let [block, record, doorbell, _] = queue.next_lines();
            let place = post % BLOCKS as usize;
            // SAFETY: a block of the ring.
            let next = unsafe { bed.ring().byte_add(64 * place) };
            assert_eq!((block, doorbell), (next, bed.words()));
            // Sixteen bytes each.
            assert_eq!(record.addr().get(), first.addr().get() + 16 * place);
            // SAFETY: as above; nothing else uses it.
            let before: [u8; 64] = unsafe { next.cast().read() };
            let mut batch = queue.wr_start();
            batch.wr(post as u64, SendFlags::empty()).send().inline_data(b"x");
            batch.complete().unwrap();
            // SAFETY: as above.
            let after: [u8; 64] = unsafe { next.cast().read() };
            assert_ne!(before, after);
            bed.records().retire(post as u16).unwrap();
        }
    }
}
