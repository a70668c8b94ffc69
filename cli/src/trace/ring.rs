//! Rings of another process, read as they move.
//!
//! A program writes its producer index to a doorbell record, and the device marks each completion
//! that it writes. Requests and completions stay readable until their place in the ring is used
//! again. Places that were used again between two looks are counted as lost.

use mlx5_prm::cqe::{Cqe, MINI_CQES, MiniCqe, MiniFormat};
use mlx5_prm::cqe::{CqeOpcode, DESCRIPTOR, FORMAT_MASK, OPCODE_SHIFT, OWNER};
use mlx5_prm::doorbell::{completion_queue_record, queue_pair_record};
use mlx5_prm::ethernet::striding;
use mlx5_prm::wqe::{BLOCK, ControlSegment, SrqNextSegment, UNIT};
use mlx5_prm::zerocopy::{FromBytes, IntoBytes};
use mlx5_uapi::queues::CallerMemory;
use std::mem::{offset_of, size_of};

/// The most bytes of a ring. 32,768 WQEs of 1 KiB do not exceed it, and no device has the 4 Mi
/// completions of 128 bytes that would.
const LARGEST: u64 = 1 << 29;
/// The longest WQE.
const LONGEST: u64 = 1 << 10;
/// The most places of a ring.
const MOST: u64 = 1 << 22;
/// Completions that are read at a time.
const BATCH: u32 = 64;

/// The requests or completions since the last look.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moved {
    /// Requests or completions, with their index.
    pub(crate) entries: Vec<(u32, Vec<u8>)>,
    /// Places that were used again before they were seen.
    pub(crate) lost: u64,
    /// Requests that were posted at places that cannot be known from outside the program.
    pub(crate) hidden: u64,
}

/// The ring cannot be read at its place any more, or never could.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unreadable;

/// The place of a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) ring: u64,
    pub(crate) record: u64,
    /// A power of two.
    pub(crate) entries: u64,
    pub(crate) entry_size: u64,
}

impl Place {
    /// `None` for a place that no kernel makes.
    pub(crate) fn checked(self) -> Option<Self> {
        let bytes = self.entries.checked_mul(self.entry_size)?;
        let good = self.entries.is_power_of_two()
            && self.entries <= MOST
            && (UNIT as u64..=LONGEST).contains(&self.entry_size)
            && bytes <= LARGEST
            && self.ring.checked_add(bytes).is_some();
        good.then_some(self)
    }

    /// The same for a ring of completions, which have 64 or 128 bytes.
    pub(crate) fn checked_completions(self) -> Option<Self> {
        self.checked().filter(|place| matches!(place.entry_size, 64 | 128))
    }

    fn mask(&self) -> u32 {
        (self.entries - 1) as u32
    }

    /// Reads `count` entries from a free-running index on.
    fn read(
        &self,
        memory: &dyn CallerMemory,
        from: u32,
        count: u32,
    ) -> Result<Vec<u8>, Unreadable> {
        let size = self.entry_size as usize;
        let mut bytes = vec![0; count as usize * size];
        let first = from & self.mask();
        let before_end = count.min(self.entries as u32 - first) as usize;
        let (start, rest) = bytes.split_at_mut(before_end * size);
        let at = self.ring + u64::from(first) * self.entry_size;
        if memory.read(at, start) && (rest.is_empty() || memory.read(self.ring, rest)) {
            Ok(bytes)
        } else {
            Err(Unreadable)
        }
    }

    /// Reads a word of the doorbell record.
    fn word(&self, memory: &dyn CallerMemory, at: usize) -> Result<u32, Unreadable> {
        let mut word = [0; 4];
        if memory.read(self.record.wrapping_add(at as u64), &mut word) {
            Ok(u32::from_be_bytes(word))
        } else {
            Err(Unreadable)
        }
    }
}

/// A ring of send requests. Its entries are blocks.
#[derive(Debug)]
pub(crate) struct SendRing {
    place: Place,
    at: u16,
}

impl SendRing {
    /// The ring of a new queue.
    pub(crate) fn new(place: Place) -> Self {
        Self { place, at: 0 }
    }

    /// Skips the requests that were posted already.
    pub(crate) fn pass(&mut self, memory: &dyn CallerMemory) -> Result<(), Unreadable> {
        self.at = self.posted(memory)?;
        Ok(())
    }

    /// The queue is empty: it was reset.
    pub(crate) fn start_over(&mut self) {
        self.at = 0;
    }

    fn posted(&self, memory: &dyn CallerMemory) -> Result<u16, Unreadable> {
        Ok(self.place.word(memory, queue_pair_record::SEND)? as u16)
    }

    pub(crate) fn look(&mut self, memory: &dyn CallerMemory) -> Result<Moved, Unreadable> {
        let mut moved = Moved::default();
        let posted = self.posted(memory)?;
        let mut count = posted.wrapping_sub(self.at);
        if count == 0 {
            return Ok(moved);
        }
        let room = self.place.entries.min(1 << 15) as u16;
        if count > room {
            moved.lost = u64::from(count - room);
            self.at = posted.wrapping_sub(room);
            count = room;
        }
        let bytes = self.place.read(memory, u32::from(self.at), u32::from(count))?;
        // Requests that were posted during the read may have overwritten the oldest.
        let later = self.posted(memory)?.wrapping_sub(self.at);
        let unsafe_blocks = later.saturating_sub(room).min(count);
        let mut block = 0;
        while block < count {
            let rest = &bytes[usize::from(block) * BLOCK..];
            let index = self.at.wrapping_add(block);
            match length(rest, index) {
                Some(blocks) if block >= unsafe_blocks => {
                    let blocks = blocks.min(count - block);
                    let request = rest[..usize::from(blocks) * BLOCK].to_vec();
                    moved.entries.push((index.into(), request));
                    block += blocks;
                }
                _ => {
                    moved.lost += 1;
                    block += 1;
                }
            }
        }
        self.at = posted;
        Ok(moved)
    }
}

/// The blocks of the request at the start of `bytes`, if one starts there: it has its own index.
fn length(bytes: &[u8], index: u16) -> Option<u16> {
    let (control, _) = ControlSegment::read_from_prefix(bytes).ok()?;
    let units = control.units();
    (control.index() == index && units > 0).then(|| (units * UNIT).div_ceil(BLOCK) as u16)
}

/// A ring of receive requests.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    place: Place,
    at: u16,
}

impl ReceiveRing {
    /// The ring of a new queue.
    pub(crate) fn new(place: Place) -> Self {
        Self { place, at: 0 }
    }

    /// Skips the requests that were posted already.
    pub(crate) fn pass(&mut self, memory: &dyn CallerMemory) -> Result<(), Unreadable> {
        self.at = self.posted(memory)?;
        Ok(())
    }

    /// The queue is empty: it was reset.
    pub(crate) fn start_over(&mut self) {
        self.at = 0;
    }

    fn posted(&self, memory: &dyn CallerMemory) -> Result<u16, Unreadable> {
        Ok(self.place.word(memory, queue_pair_record::RECEIVE)? as u16)
    }

    pub(crate) fn look(&mut self, memory: &dyn CallerMemory) -> Result<Moved, Unreadable> {
        let mut moved = Moved::default();
        let posted = self.posted(memory)?;
        let count = posted.wrapping_sub(self.at);
        if count == 0 {
            return Ok(moved);
        }
        let room = self.place.entries.min(1 << 15) as u16;
        let skipped = count.saturating_sub(room);
        let from = self.at.wrapping_add(skipped);
        let bytes = self.place.read(memory, from.into(), (count - skipped).into())?;
        let later = self.posted(memory)?.wrapping_sub(from);
        let gone = later.saturating_sub(room).min(count - skipped);
        moved.lost = u64::from(skipped) + u64::from(gone);
        for (index, entry) in
            bytes.chunks(self.place.entry_size as usize).enumerate().skip(gone.into())
        {
            moved.entries.push((from.wrapping_add(index as u16).into(), entry.to_vec()));
        }
        self.at = posted;
        Ok(moved)
    }
}

/// The requests of a shared receive queue: a list in a ring.
#[derive(Debug)]
pub(crate) struct SharedRing {
    place: Place,
    posted: u16,
    /// The place of the last request; none before the first.
    last: Option<u16>,
    /// Whether the list can be followed. The last request is removed from it when it completes, and
    /// its place may then be anywhere in the list.
    known: bool,
}

impl SharedRing {
    /// The ring of a new queue.
    pub(crate) fn new(place: Place) -> Self {
        Self { place, posted: 0, last: None, known: true }
    }

    /// Skips the requests that were posted already.
    pub(crate) fn pass(&mut self, memory: &dyn CallerMemory) -> Result<(), Unreadable> {
        self.known = false;
        self.posted = self.counter(memory)?;
        Ok(())
    }

    fn counter(&self, memory: &dyn CallerMemory) -> Result<u16, Unreadable> {
        Ok(self.place.word(memory, queue_pair_record::RECEIVE)? as u16)
    }

    /// A request of the queue has completed.
    pub(crate) fn completed(&mut self) {
        self.known = false;
    }

    pub(crate) fn look(&mut self, memory: &dyn CallerMemory) -> Result<Moved, Unreadable> {
        let mut moved = Moved::default();
        let posted = self.counter(memory)?;
        let count = posted.wrapping_sub(self.posted);
        self.posted = posted;
        self.known &= u64::from(count) < self.place.entries;
        if !self.known {
            moved.hidden = count.into();
            return Ok(moved);
        }
        for _ in 0..count {
            let index = match self.last {
                None => 0,
                Some(last) => self.next(memory, last)?,
            };
            let entry = self.place.read(memory, index.into(), 1)?;
            moved.entries.push((index.into(), entry));
            self.last = Some(index);
        }
        Ok(moved)
    }

    fn next(&self, memory: &dyn CallerMemory, place: u16) -> Result<u16, Unreadable> {
        let entry = self.place.read(memory, place.into(), 1)?;
        let (next, _) = SrqNextSegment::read_from_prefix(&entry).map_err(|_| Unreadable)?;
        Ok(next.next_wqe_index.get() & self.place.mask() as u16)
    }
}

/// A ring of completions.
#[derive(Debug)]
pub(crate) struct CompletionRing {
    place: Place,
    at: u32,
    /// The format of the mini CQEs of receives, if the device may compress completions.
    compressed: Option<MiniFormat>,
}

impl CompletionRing {
    /// The ring of a new queue.
    pub(crate) fn new(place: Place, compressed: Option<MiniFormat>) -> Self {
        Self { place, at: 0, compressed }
    }

    /// Skips the completions that the program has passed already.
    pub(crate) fn pass(&mut self, memory: &dyn CallerMemory) -> Result<(), Unreadable> {
        let consumer = self.place.word(memory, completion_queue_record::CONSUMER)?;
        self.at = consumer & completion_queue_record::CONSUMER_MASK;
        Ok(())
    }

    /// The queue has another ring; completions keep their indices.
    pub(crate) fn resize(&mut self, place: Place) {
        self.place = Place { record: self.place.record, ..place };
    }

    /// Number of completions that the program has passed from the one that is read next; negative
    /// if that one waits for the program.
    fn passed(&self, memory: &dyn CallerMemory) -> Result<i32, Unreadable> {
        let consumer = self.place.word(memory, completion_queue_record::CONSUMER)?;
        // The record has 24 bits.
        Ok((consumer.wrapping_sub(self.at) << 8) as i32 >> 8)
    }

    /// Takes the new completions. `strides` returns for a completion's user index whether its queue
    /// has strides.
    pub(crate) fn look(
        &mut self,
        memory: &dyn CallerMemory,
        strides: &dyn Fn(u32) -> bool,
    ) -> Result<Moved, Unreadable> {
        let mut moved = Moved::default();
        let size = self.place.entry_size as usize;
        // The number is limited, in case the device writes as fast as this reads.
        let mut left = 2 * self.place.entries as i64;
        while left > 0 {
            let count = BATCH.min(self.place.entries as u32);
            let first = self.place.read(memory, self.at, count)?;
            let valid = self.valid(&first);
            let passed = self.passed(memory)?;
            if valid == 0 {
                if passed <= 0 {
                    break;
                }
                // The device has written on meanwhile.
                let passed = passed as u32;
                let skipped = self.skip(passed, self.unwritten(&first).min(passed));
                (moved.lost, left) = (moved.lost + u64::from(skipped), left - i64::from(skipped));
                continue;
            }
            // The ownership bits are at the ends of completions, and are read last: a completion
            // that the device is writing may have its bit without the rest. The second read has the
            // whole.
            let bytes = self.place.read(memory, self.at, count)?;
            let passed = self.passed(memory)?;
            if passed > self.place.entries as i32 {
                let skipped = self.skip(passed as u32, 0);
                (moved.lost, left) = (moved.lost + u64::from(skipped), left - i64::from(skipped));
                continue;
            }
            let taken = self.take(memory, strides, &bytes[..valid * size], &mut moved)?;
            left -= i64::from(taken);
        }
        Ok(moved)
    }

    /// Goes on at places that were not used again. Returns the number of skipped ones: of the
    /// completions that the program has passed, the first `unwritten` were.
    fn skip(&mut self, passed: u32, unwritten: u32) -> u32 {
        // Within a compressed run a completion looks like the other bytes there. Only at the
        // program's consumer index does one begin for certain.
        let skipped = match passed.saturating_sub(self.place.entries as u32) {
            _ if self.compressed.is_some() => passed,
            0 => unwritten,
            more => more,
        };
        self.at = self.at.wrapping_add(skipped);
        skipped
    }

    fn descriptor<'a>(&self, bytes: &'a [u8], index: usize) -> &'a [u8] {
        let size = self.place.entry_size as usize;
        &bytes[(index + 1) * size - DESCRIPTOR..(index + 1) * size]
    }

    fn is_written(&self, bytes: &[u8], index: usize) -> bool {
        let op_own = self.descriptor(bytes, index)[DESCRIPTOR - 1];
        let lap = self.at.wrapping_add(index as u32) >> self.place.entries.trailing_zeros() & 1;
        op_own >> OPCODE_SHIFT != CqeOpcode::Invalid as u8 && u32::from(op_own & OWNER) == lap
    }

    fn indices(&self, bytes: &[u8]) -> std::ops::Range<usize> {
        0..bytes.len() / self.place.entry_size as usize
    }

    /// Number of completions at the start that are written.
    fn valid(&self, bytes: &[u8]) -> usize {
        self.indices(bytes).take_while(|index| self.is_written(bytes, *index)).count()
    }

    /// Number of completions at the start that are not written.
    fn unwritten(&self, bytes: &[u8]) -> u32 {
        self.indices(bytes).take_while(|index| !self.is_written(bytes, *index)).count() as u32
    }

    /// Takes completions, up to and including the first compressed run. Returns their number.
    fn take(
        &mut self,
        memory: &dyn CallerMemory,
        strides: &dyn Fn(u32) -> bool,
        written: &[u8],
        moved: &mut Moved,
    ) -> Result<u32, Unreadable> {
        let size = self.place.entry_size as usize;
        let mut taken = 0;
        for entry in written.chunks_exact(size) {
            let at = self.at;
            let op_own = entry[size - 1];
            if op_own & FORMAT_MASK == FORMAT_MASK
                && let Some(format) = self.compressed
            {
                let title = &entry[size - DESCRIPTOR..];
                let count = self.expand(memory, (title, format), strides, moved)?;
                self.at = at.wrapping_add(count);
                return Ok(taken + count);
            }
            moved.entries.push((at, entry.to_vec()));
            self.at = at.wrapping_add(1);
            taken += 1;
        }
        Ok(taken)
    }

    /// Expands a compressed run, of which `title` is the first completion.
    fn expand(
        &self,
        memory: &dyn CallerMemory,
        (title, format): (&[u8], MiniFormat),
        strides: &dyn Fn(u32) -> bool,
        moved: &mut Moved,
    ) -> Result<u32, Unreadable> {
        let Ok(title) = Cqe::read_from_bytes(title) else { return Ok(1) };
        let count = title.byte_count.get();
        if count == 0 || u64::from(count) > self.place.entries {
            // No device writes this.
            moved.lost += 1;
            return Ok(1);
        }
        let size = self.place.entry_size as usize;
        let request = title.op_own >> OPCODE_SHIFT == CqeOpcode::Requester as u8;
        let strides = !request && strides(title.srqn_uidx.get());
        let mut counter = title.wqe_counter.get();
        let mut array = Vec::new();
        for reported in 0..count {
            let place = reported as usize % MINI_CQES;
            if place == 0 {
                // The arrays are in the places 1, 8, 16 and so on.
                let whole = self.place.read(memory, self.at.wrapping_add(reported.max(1)), 1)?;
                array = whole[size - DESCRIPTOR..].to_vec();
            }
            let Ok((mini, _)) = MiniCqe::read_from_prefix(&array[place * size_of::<MiniCqe>()..])
            else {
                break;
            };
            let unique = mini.unique.get();
            let mut cqe = title;
            cqe.op_own &= !FORMAT_MASK;
            cqe.byte_count = mini.byte_count;
            if request {
                let qpn = title.sop_drop_qpn.get() & 0xff_ffff;
                let opcode = unique >> MiniCqe::OPCODE_SHIFT & 0xff;
                cqe.sop_drop_qpn.set(opcode << 24 | qpn);
                cqe.wqe_counter.set((unique >> MiniCqe::COUNTER_SHIFT) as u16);
            } else {
                match format {
                    MiniFormat::Hash => cqe.rss_hash_result.set(unique),
                    MiniFormat::Checksum | MiniFormat::ChecksumStride => {
                        cqe.check_sum.set((unique >> MiniCqe::COUNTER_SHIFT) as u16);
                    }
                }
                if strides && format == MiniFormat::ChecksumStride {
                    counter = unique as u16;
                }
                cqe.wqe_counter.set(counter);
                // The strides of one follow those of the one before.
                let taken = match strides {
                    true => {
                        mini.byte_count.get() >> striding::STRIDES_SHIFT & striding::STRIDES_MASK
                    }
                    false => 1,
                };
                counter = counter.wrapping_add(taken as u16);
            }
            // A program that passes a run marks its places as not written. The mark lies on the
            // last byte of an array.
            let mark = CqeOpcode::Invalid as u8;
            if place == MINI_CQES - 1 && array[DESCRIPTOR - 1] >> OPCODE_SHIFT == mark {
                moved.lost += 1;
                continue;
            }
            moved.entries.push((self.at.wrapping_add(reported), cqe.as_bytes().to_vec()));
        }
        Ok(count)
    }
}

const _: () = assert!(offset_of!(Cqe, op_own) == DESCRIPTOR - 1);

#[cfg(test)]
mod tests;
