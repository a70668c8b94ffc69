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
        (self.scratch.cast(), false)
    }

    /// Whether a list for a key, of so many blocks, can be built at `head` with nothing to check.
    #[inline(always)]
    pub(crate) fn has_list_room(&self, head: u32, blocks: u32) -> bool {
        self.list_limit.wrapping_sub(head) as i32 >= blocks as i32
    }

    /// As [`SendQueue::has_list_room`], where the limit is looked for.
    #[inline(never)]
    pub(crate) fn find_list_room(&mut self, cursor: Cursor, blocks: u32) -> bool {
        if self.error.is_some() || self.signed || !self.gate.may_send() {
            return false;
        }
        let room = self.span(cursor);
        self.list_limit = cursor.head.wrapping_add(room);
        blocks <= room
    }

    /// Forgets the limit of lists: the cursor goes back, or may go ahead of it by more than the counter
    /// can tell.
    #[inline(always)]
    pub(crate) fn forget_list_limit(&mut self) {
        self.list_limit = self.head;
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
        let (slot, scratch) = (self.at(head), self.scratch.as_ptr().cast::<u8>());
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

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use crate::send::bed::{BLOCKS, Bed};
    use crate::{
        Change, ChangeObserver, ConfigureMkey, ConfiguresMkeys, Finished, ListOwner, MkeyLayout,
        MkeyRequest, MkeyUpdate, PostError, Rc, SendFlags, SendQueue,
    };
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

    /// A key that counts its changes: in the lowest byte those made, then those executed and undone.
    #[derive(Clone, Copy)]
    struct Key<'a> {
        told: &'a Arc<Told>,
        /// Whether its list is built by the usual way.
        usual: bool,
    }

    #[derive(Default)]
    struct Told(AtomicU64);

    impl Told {
        fn now(&self) -> [u8; 3] {
            let [made, executed, undone, ..] = self.0.load(Relaxed).to_le_bytes();
            [made, executed, undone]
        }
    }

    impl ChangeObserver for Told {
        fn undo(&self, _: u64) {
            self.0.fetch_add(1 << 16, Relaxed);
        }

        fn settle(&self, _: u64) {
            self.0.fetch_add(1 << 8, Relaxed);
        }

        fn mark_unknown(&self, _: u64) {}
    }

    impl ListOwner for Key<'_> {
        fn change(&self, _: u64) -> Option<(u32, Change)> {
            let number = self.told.0.fetch_add(1, Relaxed);
            Some((0, Change::new(Arc::clone(self.told), number)))
        }
    }

    impl ConfigureMkey for Key<'_> {
        fn add<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
            if !self.usual {
                return request.configure(self);
            }
            match request.build_list(4, None, &[], &self) {
                Ok(finished) => finished,
                Err(request) => request.configure(self),
            }
        }

        fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
            let layout = MkeyLayout::List(&[]).sized().ok();
            let update = MkeyUpdate { capacity: 4, access: None, layout, signing: None };
            request.build(update, || self.change(0).unwrap())
        }
    }

    fn post(queue: &mut SendQueue<Rc>, key: Option<Key<'_>>) -> Result<(), PostError> {
        let mut batch = queue.wr_start();
        match key {
            Some(key) => batch.wr(0, SendFlags::empty()).mkey_configure(key),
            None => batch.wr(0, SendFlags::empty()).send().inline_data(b"x"),
        }
        batch.complete().map_err(|error| error.error())
    }

    /// What is known of the room for lists does not become true again when the counter wraps.
    #[test]
    fn a_list_finds_no_room_in_a_full_queue_when_its_counter_wraps() {
        let told = Arc::default();
        let list = Some(Key { told: &told, usual: true });
        let others = [None, Some(Key { told: &told, usual: false })];
        for (skips, other) in (0..16).flat_map(|skips| others.map(|other| (skips, other))) {
            let bed = Bed::new();
            // SAFETY: the only queue, and `bed` outlives it.
            let mut queue = unsafe { bed.queue() };
            // The limit is ahead of the list, and then passed by other requests.
            post(&mut queue, list).unwrap();
            assert!(queue.has_list_room(6, 1) && !queue.has_list_room(6, 2));
            let fill = |queue: &mut SendQueue<Rc>| {
                while queue.free_blocks() != 0 {
                    post(queue, other).unwrap();
                }
            };
            fill(&mut queue);
            for _ in 0..skips {
                for _ in 0..2 * BLOCKS {
                    let oldest = queue.producer().wrapping_sub(BLOCKS as u16);
                    bed.records().retire(oldest).unwrap();
                    fill(&mut queue);
                }
                // Skip ahead, as above.
                queue.head = queue.head.wrapping_add(1 << 28);
            }
            let full = PostError::QueueFull { free: 0, needed: 2 };
            assert_eq!(post(&mut queue, list), Err(full), "{skips}");
        }
    }

    /// A change that was executed is settled by those who post other requests, before the number of its
    /// request means another one: also by requests that let the next one wait, behind which no fast path is
    /// taken.
    #[test]
    fn a_change_is_settled_though_no_key_is_configured_any_more() {
        for waits in [false, true] {
            let told = Arc::<Told>::default();
            let bed = Bed::new();
            // SAFETY: the only queue, and `bed` outlives it.
            let mut queue = unsafe { bed.queue() };
            let list = Key { told: &told, usual: true };
            post(&mut queue, Some(list)).unwrap();
            bed.records().retire(0).unwrap();
            for _ in 0..2 * BLOCKS {
                let first = queue.producer();
                if waits {
                    let mut batch = queue.wr_start();
                    batch.wr(0, SendFlags::empty()).local_inv(7);
                    batch.complete().unwrap();
                } else {
                    post(&mut queue, None).unwrap();
                }
                bed.records().retire(first).unwrap();
            }
            assert_eq!(told.now(), [1, 1, 0]);
            // Half of the numbers later, a batch is aborted.
            queue.sequence = queue.sequence.wrapping_add(1 << 31);
            let mut batch = queue.wr_start();
            batch.wr(0, SendFlags::empty()).mkey_configure(list);
            drop(batch);
            assert_eq!(told.now(), [2, 1, 1]);
        }
    }

    /// What is known of the room for lists lasts while the head has not passed it, whatever else is posted,
    /// and no longer.
    #[test]
    fn the_room_for_lists_is_looked_for_once_in_each_time_around() {
        let told = Arc::default();
        let list = Key { told: &told, usual: true };
        let bed = Bed::new();
        // SAFETY: the only queue, and `bed` outlives it.
        let mut queue = unsafe { bed.queue() };
        for round in 0..4 {
            for at in [0, 3] {
                assert_eq!(
                    (queue.head % BLOCKS, queue.has_list_room(queue.head, 1)),
                    (at, at != 0)
                );
                // A key, and a request that uses it.
                let mut batch = queue.wr_start();
                batch.wr(0, SendFlags::empty()).mkey_configure(list);
                batch.wr(0, SendFlags::empty()).send().inline_data(b"x");
                batch.complete().unwrap();
                assert_eq!(queue.list_limit % BLOCKS, BLOCKS - 1);
                let first = queue.producer().wrapping_sub(1);
                bed.records().retire(first).unwrap();
            }
            for left in [1, 0] {
                assert_eq!(queue.has_list_room(queue.head, 1), left != 0, "{round}");
                let first = queue.producer();
                post(&mut queue, None).unwrap();
                bed.records().retire(first).unwrap();
            }
        }
    }
}
