//! Room in the ring: whether a request fits, and where it is built.

use crate::request::error::PostError;
use crate::request::flags::SendFlags;
use crate::send::queue::{Position, SendQueue};
use core::ptr::NonNull;

impl<T> SendQueue<T> {
    /// Returns the number of free blocks.
    pub fn free_blocks(&self) -> u32 {
        self.free_blocks_at(self.posted)
    }

    fn free_blocks_at(&self, at: Position) -> u32 {
        let (retired, _) = self.records().outstanding();
        if retired == at.sequence as u16 {
            return self.ring.blocks();
        }
        // The first outstanding request starts where the last retired one ends.
        let oldest = self.ring.info(retired.into()).first();
        self.ring.blocks() - u32::from((at.block as u16).wrapping_sub(oldest))
    }

    /// The fast test of a request of `blocks` blocks at `at`. It is stricter than the rule: it asks
    /// for room of a signaled request of the largest size after each unsignaled one, and may refuse
    /// one that `check_room` accepts.
    ///
    /// `signaled` is the request's own flag. Only if room is short does it matter that a queue
    /// signals all requests.
    #[inline(always)]
    pub(crate) fn has_room(&mut self, at: Position, blocks: u32, signaled: bool) -> bool {
        let reserve = if signaled { 0 } else { self.limits.max_blocks };
        self.free_end.wrapping_sub(at.block) >= blocks + reserve
            || self.find_room(at) >= blocks + self.reserve_after(signaled)
    }

    /// Returns the blocks that must be free after a request.
    #[inline]
    fn reserve_after(&self, signaled: bool) -> u32 {
        let signaled = signaled || self.common.flags.contains(SendFlags::SIGNALED);
        if signaled { 0 } else { self.limits.max_blocks }
    }

    /// Reads which requests the poller has retired, and returns the number of free blocks at `at`.
    /// Nothing else frees blocks.
    ///
    /// Every lap of the ring calls this at least once, so the journal is settled before its 32-bit
    /// WQE numbers become ambiguous.
    #[inline(never)]
    fn find_room(&mut self, at: Position) -> u32 {
        self.records().open();
        if !self.journal.is_empty() {
            return self.settle_and_find_room(at);
        }
        self.note_room(at)
    }

    /// [`SendQueue::find_room`] of a queue with changes of keys. Out of line, so that the other
    /// saves no registers for a call.
    #[inline(never)]
    fn settle_and_find_room(&mut self, at: Position) -> u32 {
        self.settle_key_changes();
        self.note_room(at)
    }

    /// Notes how far the ring is free at `at`. Returns the number of free blocks.
    #[inline]
    fn note_room(&mut self, at: Position) -> u32 {
        let free = self.free_blocks_at(at);
        self.free_end = at.block.wrapping_add(free);
        free
    }

    /// The rule for a request of `blocks` blocks at `at`: it must fit, and the blocks of unsignaled
    /// requests since the last signaled one must leave room for a signaled request of the largest
    /// size, because only a signaled request retires them.
    pub(crate) fn check_room(
        &mut self,
        at: Position,
        blocks: u32,
        signaled: bool,
    ) -> Result<(), PostError> {
        if self.has_room(at, blocks, signaled) {
            return Ok(());
        }
        let free = self.free_end.wrapping_sub(at.block);
        if blocks > free {
            return Err(PostError::QueueFull { free, needed: blocks });
        }
        let run = self.unsignaled_run(at) + blocks;
        if run + self.limits.max_blocks > self.ring.blocks() {
            return Err(PostError::UnsignaledRun);
        }
        Ok(())
    }

    /// Returns the blocks of the outstanding requests before `at` that follow the last signaled
    /// one. The completion of that signaled request does not free them.
    fn unsignaled_run(&self, at: Position) -> u32 {
        let (retired, _) = self.records().outstanding();
        let mut sequence = at.sequence as u16;
        let mut run = 0;
        while sequence != retired {
            sequence = sequence.wrapping_sub(1);
            let info = self.records().info(sequence);
            if info.signaled() {
                break;
            }
            run += u32::from(info.blocks());
        }
        run
    }

    /// Returns the address to build the request for `at` at, whose size is at most `most` blocks:
    /// in the ring if that many fit there in one piece, otherwise in the scratch buffer, from which
    /// [`SendQueue::put_in_ring`] copies it.
    pub(crate) fn build_address(&mut self, at: Position, most: u32) -> NonNull<u8> {
        if most <= self.ring.blocks_to_end(at.block) && self.has_room(at, most, true) {
            self.ring.at(at.block)
        } else {
            self.scratch()
        }
    }

    /// A buffer for the largest WQE.
    pub(crate) fn scratch(&self) -> NonNull<u8> {
        self.records().scratch()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use crate::send::bed::{BLOCKS, Bed};
    use crate::{
        Change, ChangeObserver, ConfigureMkey, ConfiguresMkeys, Finished, MkeyLayout, MkeyRequest,
        MkeyUpdate, PostError, Rc, SendFlags, SendQueue,
    };
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    fn post(queue: &mut SendQueue<Rc>, key: Option<&Arc<Counts>>) -> Result<(), PostError> {
        let mut batch = queue.wr_start();
        match key {
            Some(key) => batch.wr(0, SendFlags::empty()).mkey_configure(Key(key)),
            None => batch.wr(0, SendFlags::empty()).send().inline_data(b"x"),
        }
        batch.complete().map_err(|error| error.error())
    }

    /// Moves the queue to where it is after many more requests. The device's and the records'
    /// counters have 16 bits and do not change.
    fn skip_ahead(queue: &mut SendQueue<Rc>) {
        queue.posted.block = queue.posted.block.wrapping_add(1 << 28);
        queue.free_end = queue.free_end.wrapping_add(1 << 28);
    }

    /// Whether there is room is found by 32-bit counters that wrap. A queue that is always full
    /// must be reported full over the whole range of the counters.
    #[test]
    fn a_queue_that_is_always_full_stays_so_when_its_counter_wraps() {
        let bed = Bed::new();
        // SAFETY: the only queue, and `bed` outlives it.
        let mut queue = unsafe { bed.queue() };
        let full = Err(PostError::QueueFull { free: 0, needed: 1 });
        for _ in 0..BLOCKS {
            post(&mut queue, None).unwrap();
        }
        for _ in 0..32 {
            for _ in 0..3 {
                assert_eq!(post(&mut queue, None), full);
                let oldest = queue.producer().wrapping_sub(BLOCKS as u16);
                bed.records().retire(oldest).unwrap();
                assert_eq!(post(&mut queue, None), Ok(()));
            }
            skip_ahead(&mut queue);
        }
    }

    /// Counts changes: in the lowest byte those made, then those executed and undone.
    #[derive(Default)]
    struct Counts(AtomicU64);

    impl Counts {
        fn now(&self) -> [u8; 3] {
            let [made, executed, undone, ..] = self.0.load(Relaxed).to_le_bytes();
            [made, executed, undone]
        }
    }

    impl ChangeObserver for Counts {
        fn undo(&self, _: u64) {
            self.0.fetch_add(1 << 16, Relaxed);
        }

        fn settle(&self, _: u64) {
            self.0.fetch_add(1 << 8, Relaxed);
        }

        fn mark_unknown(&self, _: u64) {}
    }

    #[derive(Clone, Copy)]
    struct Key<'a>(&'a Arc<Counts>);

    impl ConfigureMkey for Key<'_> {
        fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
            let layout = MkeyLayout::List(&[]).sized().ok();
            let update = MkeyUpdate { capacity: 4, access: None, layout, signing: None };
            request.build(update, || {
                let number = self.0.0.fetch_add(1, Relaxed);
                (0, Change::new(Arc::clone(self.0), number))
            })
        }
    }

    /// A change that was executed is settled by posting other requests, before the sequence number
    /// of its request means another one.
    #[test]
    fn a_change_is_settled_though_no_key_is_configured_any_more() {
        for waits in [false, true] {
            let counts = Arc::<Counts>::default();
            let bed = Bed::new();
            // SAFETY: the only queue, and `bed` outlives it.
            let mut queue = unsafe { bed.queue() };
            post(&mut queue, Some(&counts)).unwrap();
            bed.records().retire(0).unwrap();
            for _ in 0..2 * BLOCKS {
                let first = queue.producer();
                let mut batch = queue.wr_start();
                match waits {
                    true => batch.wr(0, SendFlags::empty()).local_inv(7),
                    false => batch.wr(0, SendFlags::empty()).send().inline_data(b"x"),
                }
                batch.complete().unwrap();
                bed.records().retire(first).unwrap();
            }
            assert_eq!(counts.now(), [1, 1, 0]);
            // Half of the numbers later, a batch is aborted.
            queue.posted.sequence = queue.posted.sequence.wrapping_add(1 << 31);
            let mut batch = queue.wr_start();
            batch.wr(0, SendFlags::empty()).mkey_configure(Key(&counts));
            drop(batch);
            assert_eq!(counts.now(), [2, 1, 1]);
        }
    }

    /// The owner looks at what was retired once in each time around an empty ring, at any depth.
    #[test]
    fn a_queue_of_depth_one_looks_for_room_once_in_each_time_around() {
        let bed = Bed::new();
        // SAFETY: the only queue, and `bed` outlives it.
        let mut queue = unsafe { bed.queue() };
        let mut looks = 0;
        for at in 0..4 * BLOCKS {
            let known = queue.free_end;
            post(&mut queue, None).unwrap();
            looks += u32::from(queue.free_end != known);
            assert!(!queue.is_slow);
            bed.records().retire(at as u16).unwrap();
        }
        // It looks before the last block: the requests themselves do not say that they are
        // signaled.
        assert_eq!(looks, (4 * BLOCKS - 1) / (BLOCKS - 1));
    }
}
