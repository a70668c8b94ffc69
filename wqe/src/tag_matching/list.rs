//! The owner half of a tag list.

use crate::receive::post::{FULL, write_scatter};
use crate::request::batch_error::ListError;
use crate::request::error::PostError;
use crate::request::transport::Rc;
use crate::send::queue::SendQueue;
use crate::tag_matching::operation::{OpsFlags, OpsWr, TagHandle, TagOperation};
use crate::tag_matching::records::{Posted, PostedOperation, TagRecords};
use alloc::sync::Arc;
use mlx5_prm::wqe::{BLOCK, ControlSegment, Opcode, TagMatchingSegment, UNIT};

/// The owner half of a tag list: posts operations on it.
#[derive(Debug)]
pub struct TagList {
    queue: SendQueue<Rc>,
    /// The shared half.
    records: Arc<TagRecords>,
    /// The number of the list, a part of the handles of its tags.
    id: u64,
    /// Operations since the last one that asks for a completion.
    run: u32,
}

/// Units of a request without an SGE.
const UNITS: usize = (size_of::<ControlSegment>() + size_of::<TagMatchingSegment>()) / UNIT;
const _: () = assert!((UNITS + TagList::MAX_SGE as usize) * UNIT == BLOCK);

impl TagList {
    /// The maximum number of SGEs of a tag: a request has room for one.
    pub const MAX_SGE: u32 = 1;

    /// Creates the owner half of a tag list. `queue` is the send queue of the command queue pair,
    /// to which nothing was posted. `records` was created for as many operations as `queue` has
    /// blocks. No other list has the number `id`.
    pub fn new(queue: SendQueue<Rc>, records: Arc<TagRecords>, id: u64) -> Self {
        // The list writes the blocks itself, so the queue does not count the written ones.
        queue.records().open();
        Self { queue, records, id, run: 0 }
    }

    /// The maximum number of outstanding operations.
    pub fn max_ops(&self) -> u32 {
        self.queue.ring.blocks()
    }

    /// The maximum number of tags on the list.
    pub fn max_num_tags(&self) -> u32 {
        self.records.max_tags()
    }

    /// The shared half.
    pub const fn records(&self) -> &Arc<TagRecords> {
        &self.records
    }

    /// Posts a list of operations (`ibv_post_srq_ops`). Operations before the first bad one are
    /// posted, with one doorbell. The error has the index of the bad operation and what is wrong
    /// with it.
    pub fn post(&mut self, list: &mut [OpsWr<'_>]) -> Result<(), ListError> {
        if !self.queue.gate.may_send() {
            return Err(ListError::new(0, self.queue.gate.refusal().into()));
        }
        let first = self.queue.posted.block;
        let bad = (0..).zip(list).find_map(|(index, wr)| {
            let error = self.write(wr).err()?;
            Some(ListError::new(index, error))
        });
        let posted = self.queue.posted.block.wrapping_sub(first);
        if posted > 0 {
            self.ring(posted);
        }
        bad.map_or(Ok(()), Err)
    }

    /// Rings the doorbell for the last `posted` operations.
    fn ring(&mut self, posted: u32) {
        let head = self.queue.posted.block;
        let wqe = self.queue.ring.at(head.wrapping_sub(1));
        let (record, register) = (self.queue.doorbell.record, &mut self.queue.doorbell.register);
        let copy = u32::from(posted == 1).min(register.blueflame_blocks());
        // SAFETY: `wqe` is the last request, which has one block, of the ring whose producer index
        // the record has.
        unsafe { register.ring(record, head as u16, wqe, copy) };
    }

    /// Writes an operation to the next block, or returns what is wrong with it.
    fn write(&mut self, wr: &mut OpsWr<'_>) -> Result<(), PostError> {
        let mut state = self.records.state();
        let max_ops = self.max_ops();
        if state.operations.len() >= max_ops as usize {
            return Err(FULL);
        }
        let head = self.queue.posted.block;
        let slot = self.queue.ring.at(head);
        let mut units = UNITS as u32;
        let mut segment = TagMatchingSegment::default();
        let operation = match wr.operation {
            TagOperation::Add(add) => {
                // SAFETY: the block has room for an SGE after the segments. It is free, because
                // fewer than `max_ops` operations are outstanding, checked above.
                unsafe { write_scatter(slot.byte_add(UNITS * UNIT), add.sges, Self::MAX_SGE)? };
                units += Self::MAX_SGE;
                let full = PostError::TagListFull { max: self.records.max_tags() };
                let (place, generation, next) = state.list(add.recv_wr_id).ok_or(full)?;
                wr.handle = Some(TagHandle { list: self.id, generation, place });
                segment.index.set(next);
                segment.append_tag.set(add.tag);
                segment.append_mask.set(add.mask);
                PostedOperation::Append(place)
            }
            TagOperation::Del(handle) => {
                if handle.list != self.id {
                    return Err(PostError::ForeignTag);
                }
                if !state.begin_removal(handle.place, handle.generation) {
                    return Err(PostError::StaleTag);
                }
                segment.index.set(handle.place);
                PostedOperation::Remove(handle.place)
            }
            TagOperation::Sync => PostedOperation::Nop,
        };
        segment.opcode = (operation.kind() as u8) << TagMatchingSegment::OPCODE_SHIFT;
        if wr.flags.contains(OpsFlags::TM_SYNC) {
            state.synchronised = wr.unexpected_cnt as u16;
            segment.software_count.set(state.synchronised);
            segment.flags |= TagMatchingSegment::SOFTWARE_COUNT;
        }
        let signaled = wr.flags.contains(OpsFlags::SIGNALED);
        // A removal needs a completion, because only that frees the place. Other operations need
        // one from time to time: a queue full of operations without completions would never have
        // room.
        let completes = signaled
            || matches!(operation, PostedOperation::Remove(_))
            || self.run + 1 >= (max_ops / 2).max(1);
        if completes {
            segment.flags |= TagMatchingSegment::COMPLETION;
        }
        let (wr_id, phase) = (wr.wr_id, state.synchronised);
        state.operations.push_back(Posted { wr_id, operation, phase, completes, signaled });
        let opcode = u32::from(head as u16) << 8 | Opcode::TagMatching as u32;
        let control = ControlSegment {
            opmod_index_opcode: opcode.into(),
            qpn_ds: (self.queue.qp_num() << 8 | units).into(),
            ..ControlSegment::default()
        };
        // SAFETY: the block is aligned, has room for both segments, and is free, because fewer than
        // `max_ops` operations are outstanding, checked above.
        unsafe {
            slot.cast().write(control);
            slot.byte_add(size_of::<ControlSegment>()).cast().write(segment);
        }
        self.run = if completes { 0 } else { self.run + 1 };
        self.queue.posted.block = head.wrapping_add(1);
        Ok(())
    }
}
