//! The owner half of a tag list.

use crate::request::batch_error::ListError;
use crate::request::error::PostError;
use crate::request::sge::Sge;
use crate::request::transport::Rc;
use crate::send::queue::SendQueue;
use crate::tag_matching::operation::{OpsFlags, OpsWr, TagAdd, TagHandle, TagOperation};
use crate::tag_matching::records::{Posted, TagRecords};
use alloc::sync::Arc;
use core::fmt;
use core::ptr::NonNull;
use mlx5_prm::wqe::{
    BLOCK, ControlSegment, DataSegment, MAX_SGE_LENGTH, Opcode, TagMatchingSegment,
    TagOperation as Operation, UNIT,
};
use mlx5_prm::zerocopy::IntoBytes;

/// The parts of a tag list's owner half.
pub struct TagListParts {
    /// The send queue of the command queue pair, on which nothing was posted.
    pub queue: SendQueue<Rc>,
    /// The shared half, created for as many operations as the send queue has blocks.
    pub records: Arc<TagRecords>,
    /// A number that no other list has.
    pub id: u64,
    /// The device's maximum number of SGEs of a tag.
    pub max_sge: u32,
}

/// The owner half of a tag list: posts operations on it.
pub struct TagList {
    queue: SendQueue<Rc>,
    records: Arc<TagRecords>,
    id: u64,
    max_sge: u32,
    /// Operations posted so far, one block each; free-running.
    posted: u16,
    /// Tags added so far; free-running.
    taken: u16,
    /// The number of handled unexpected messages last reported to the device.
    phase: u16,
    /// Operations since the last one that asks for a completion.
    run: u32,
}

impl fmt::Debug for TagListParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagListParts")
            .field("id", &self.id)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TagList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagList")
            .field("id", &self.id)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

/// Units of a request with an SGE, and without one.
const ADD_UNITS: u32 =
    ((size_of::<ControlSegment>() + size_of::<TagMatchingSegment>() + size_of::<DataSegment>())
        / UNIT) as u32;
const OTHER_UNITS: u32 = ADD_UNITS - 1;
const _: () = assert!(ADD_UNITS as usize * UNIT == BLOCK);

/// SGEs that a request has room for.
const MAX_SGE: u32 = 1;

impl TagList {
    /// Creates the owner half of a tag list.
    pub fn new(TagListParts { queue, records, id, max_sge }: TagListParts) -> Self {
        // Written here, and by the queue no more.
        queue.records().open();
        Self {
            queue,
            records,
            id,
            max_sge: max_sge.min(MAX_SGE),
            posted: 0,
            taken: 0,
            phase: 0,
            run: 0,
        }
    }

    /// The maximum number of outstanding operations.
    pub fn max_ops(&self) -> u32 {
        self.queue.ring.blocks()
    }

    /// The maximum number of tags on the list.
    pub fn max_num_tags(&self) -> u32 {
        self.records.max_tags()
    }

    /// The maximum number of SGEs of a tag.
    pub const fn max_sge(&self) -> u32 {
        self.max_sge
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
        let first = self.posted;
        let mut result = Ok(());
        for (index, wr) in list.iter_mut().enumerate() {
            if let Err(error) = self.write(wr) {
                result = Err(ListError::new(index as u32, error));
                break;
            }
        }
        let requests = self.posted.wrapping_sub(first);
        if requests > 0 {
            self.ring(requests);
        }
        result
    }

    fn at(&self, sequence: u16) -> NonNull<u8> {
        self.queue.ring.at(sequence.into())
    }

    /// Publishes the last `requests` operations to the poller, then rings the doorbell.
    fn ring(&mut self, requests: u16) {
        self.records.publish(self.posted, self.phase);
        let wqe = self.at(self.posted.wrapping_sub(1));
        let queue = &mut self.queue;
        queue.posted.head = queue.posted.head.wrapping_add(requests.into());
        let (record, register) = (queue.doorbell.record, &mut queue.doorbell.register);
        let copy = u32::from(requests == 1).min(register.blueflame_blocks());
        // SAFETY: `wqe` is the last request, of one block, in the ring whose producer index the
        // record has.
        unsafe { register.ring(record, self.posted, wqe, copy) };
    }

    /// Writes an operation, or returns what is wrong with it.
    fn write(&mut self, wr: &mut OpsWr<'_>) -> Result<(), PostError> {
        if self.records.room(self.posted) == 0 {
            return Err(PostError::QueueFull { free: 0, needed: 1 });
        }
        let phase = match wr.flags.contains(OpsFlags::TM_SYNC) {
            true => wr.unexpected_cnt as u16,
            false => self.phase,
        };
        let mut segment = TagMatchingSegment::default();
        let (operation, place, entry) = match wr.operation {
            TagOperation::Add(add) => {
                let entry = self.entry(add.sges)?;
                let (place, next) = self
                    .records
                    .free_places(self.taken)
                    .ok_or(PostError::TagListFull { max: self.max_num_tags() })?;
                wr.handle = Some(self.take(place, &add));
                segment.index.set(next);
                segment.append_tag.set(add.tag);
                segment.append_mask.set(add.mask);
                (Operation::Append, place, Some(entry))
            }
            TagOperation::Del(handle) => {
                if handle.list != self.id {
                    return Err(PostError::ForeignTag);
                }
                if !self.records.begin_removal(handle.place, handle.generation) {
                    return Err(PostError::StaleTag);
                }
                segment.index.set(handle.place);
                (Operation::Remove, handle.place, None)
            }
            TagOperation::Sync => (Operation::Nop, 0, None),
        };
        let signaled = wr.flags.contains(OpsFlags::SIGNALED);
        // A place is free only after the completion of its removal. And a queue full of operations
        // without completion would never get room.
        let completes = signaled
            || operation == Operation::Remove
            || self.run + 1 >= (self.max_ops() / 2).max(1);
        segment.opcode = (operation as u8) << TagMatchingSegment::OPCODE_SHIFT;
        segment.flags = wr.segment_flags(completes);
        if wr.flags.contains(OpsFlags::TM_SYNC) {
            segment.software_count.set(phase);
        }
        self.put(segment, entry);
        let posted = Posted { wr_id: wr.wr_id, operation, place, phase, completes, signaled };
        self.records.stage(self.posted, posted);
        self.posted = self.posted.wrapping_add(1);
        self.phase = phase;
        self.run = if completes { 0 } else { self.run + 1 };
        Ok(())
    }

    /// Returns the SGE of a tag.
    fn entry(&self, sges: &[Sge]) -> Result<DataSegment, PostError> {
        if sges.len() > self.max_sge as usize {
            let given = u32::try_from(sges.len()).unwrap_or(u32::MAX);
            return Err(PostError::TooManySges { given, max: self.max_sge });
        }
        match sges {
            [sge, ..] if sge.length > MAX_SGE_LENGTH => {
                Err(PostError::SgeTooLong { index: 0, length: sge.length })
            }
            // The device reads a length of zero as 2 GiB.
            [sge, ..] if sge.length > 0 => Ok(DataSegment {
                byte_count: sge.length.into(),
                lkey: sge.lkey.into(),
                address: sge.addr.into(),
            }),
            _ => Ok(DataSegment::END),
        }
    }

    fn take(&mut self, place: u16, add: &TagAdd<'_>) -> TagHandle {
        let generation = self.records.list(place, add.recv_wr_id);
        self.taken = self.taken.wrapping_add(1);
        TagHandle { list: self.id, generation, place }
    }

    /// Writes a request to the next block, which is free.
    fn put(&mut self, segment: TagMatchingSegment, entry: Option<DataSegment>) {
        let units = if entry.is_some() { ADD_UNITS } else { OTHER_UNITS };
        let opcode = u32::from(self.posted) << 8 | Opcode::TagMatching as u32;
        let control = ControlSegment {
            opmod_index_opcode: opcode.into(),
            qpn_ds: (self.queue.qp_num() << 8 | units).into(),
            ..ControlSegment::default()
        };
        let mut block = [0; BLOCK];
        let (head, rest) = block.split_at_mut(size_of::<ControlSegment>());
        head.copy_from_slice(control.as_bytes());
        let (middle, last) = rest.split_at_mut(size_of::<TagMatchingSegment>());
        middle.copy_from_slice(segment.as_bytes());
        if let Some(entry) = entry {
            last.copy_from_slice(entry.as_bytes());
        }
        // SAFETY: the block is in the ring, aligned to its size, and the device has executed what
        // it held.
        unsafe { self.at(self.posted).cast::<[u8; BLOCK]>().write(block) };
    }
}
