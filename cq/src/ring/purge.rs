//! Removing the CQEs of a queue that was reset.

use super::Ring;
use crate::queue::Queue;
use crate::state::{is_title, names_a_queue};
use crate::table::Lookup;
use mlx5_doorbell::barrier;
use mlx5_prm::cqe::{CqeOpcode, OPCODE_SHIFT};

/// A CQE, or a compressed run.
struct Unit {
    /// The slots that it takes.
    slots: u32,
    /// Number of its CQEs that are not consumed.
    left: u32,
    /// The user index that it names, if it names one.
    index: Option<u32>,
    opcode: u8,
    /// The counter of its first CQE that is not consumed.
    counter: u16,
}

impl Unit {
    /// Calls `each` with the counter of every receive in it.
    fn receives(&self, mut each: impl FnMut(u16)) {
        use CqeOpcode::*;
        if let Some(
            ResponderWriteImm
            | ResponderSend
            | ResponderSendImm
            | ResponderSendInvalidate
            | ResponderError,
        ) = CqeOpcode::from_bits(self.opcode)
        {
            (0..self.left).for_each(|number| each(self.counter.wrapping_add(number as u16)));
        }
    }
}

impl<Q: Queue> Ring<Q> {
    /// Removes the CQEs that name user index `index`, and returns their number. `discard` gets the
    /// counter of each receive among them. The other CQEs stay, in order.
    ///
    /// CQEs of destroyed queues are removed, too: a purge would move them away from the index for
    /// which deferred destruction waits. Does nothing if the ring is corrupt.
    ///
    /// # Safety
    /// No thread calls [`RingState::end_of`](crate::RingState::end_of) meanwhile.
    pub unsafe fn purge(&mut self, index: u32, discard: impl FnMut(u16)) -> u32 {
        // SAFETY: the caller promises that no thread calls `end_of` meanwhile.
        unsafe { self.purge_until(index, None, discard) }
    }

    /// As [`Ring::purge`], of the CQEs before the index `end`, if there is one.
    ///
    /// # Safety
    /// As for [`Ring::purge`].
    pub unsafe fn purge_until(
        &mut self,
        index: u32,
        end: Option<u32>,
        mut discard: impl FnMut(u16),
    ) -> u32 {
        if self.corruption.is_some() {
            return 0;
        }
        let room = match end {
            Some(end) => (end.wrapping_sub(self.consumer()) as i32).max(0) as u32,
            None => u32::MAX,
        };
        let (mut scanned, mut removed, mut count) = (0, 0, 0);
        while scanned < room
            && let Some(unit) = self.unit(scanned)
        {
            let at = self.consumer().wrapping_add(scanned);
            scanned += unit.slots;
            if unit.index == Some(index) {
                unit.receives(&mut discard);
                removed += unit.slots;
                count += unit.left;
            } else if let Some(gone) = self.destroyed(&unit) {
                unit.receives(|counter| {
                    if let Some(departed) = &mut self.departed {
                        departed(gone, counter);
                    }
                });
                // From here on only CQEs with this index are removed. A second look at the table
                // could find more destroyed queues, because other threads destroy them.
                self.rename(at, index);
                removed += unit.slots;
            }
        }
        if removed != 0 {
            self.compact(index, scanned, removed);
        }
        count
    }

    /// Calls `each` with the user index and the counter of every receive among the CQEs from index
    /// `from` on that are not consumed. They stay.
    pub fn each_receive(&self, from: u32, mut each: impl FnMut(u32, u16)) {
        let mut scanned = (from.wrapping_sub(self.consumer()) as i32).max(0) as u32;
        while let Some(unit) = self.unit(scanned) {
            scanned += unit.slots;
            if let Some(index) = unit.index {
                unit.receives(|counter| each(index, counter));
            }
        }
    }

    /// Continues with a queue that was handed over, after the CQEs that the other program polled.
    pub fn follow(&mut self) {
        let at = self.state.consumed_elsewhere();
        if (at.wrapping_sub(self.consumer()) as i32) > 0 {
            self.run.abandon();
            self.consumer = at;
            self.find_position();
            self.publish();
        }
    }

    /// Returns the CQE or run `ahead` slots after the consumer index. `None` if there is none, or
    /// if no correct device writes it.
    fn unit(&self, ahead: u32) -> Option<Unit> {
        let buffer = self.state.ring_buffer();
        let at = self.consumer().wrapping_add(ahead);
        if ahead == 0 && self.run.is_active() {
            return Some(self.run_unit());
        }
        if ahead >= buffer.size() || !buffer.is_written(at) {
            return None;
        }
        barrier::from_device();
        let op_own = buffer.op_own(at);
        let (slots, index) = buffer.extent(at, op_own);
        let run = is_title(op_own);
        if slots > buffer.size() - ahead || run && (slots < 2 || self.state.compression().is_none())
        {
            return None;
        }
        Some(self.describe(op_own >> OPCODE_SHIFT, index, slots, slots, buffer.counter(at)))
    }

    /// Returns the run of which some CQEs may be consumed.
    fn run_unit(&self) -> Unit {
        let (opcode, index, counter) = self.run.title();
        let (slots, consumed) = (self.run.slots(), self.run.consumed(self.next));
        let counter = counter.wrapping_add(consumed as u16);
        self.describe(opcode, index, slots, slots - consumed, counter)
    }

    fn describe(&self, opcode: u8, index: u32, slots: u32, left: u32, counter: u16) -> Unit {
        let index = names_a_queue(opcode << OPCODE_SHIFT).then_some(index);
        Unit { slots, left, index, opcode, counter }
    }

    /// Returns the user index of a unit if its queue was destroyed.
    fn destroyed(&self, unit: &Unit) -> Option<u32> {
        let index = unit.index?;
        let side = self.side_of_tags(unit.opcode, index);
        matches!(self.queues.get(index, self.id, side), Lookup::Destroyed).then_some(index)
    }

    /// Makes the unit at `at` name the user index `index`.
    fn rename(&mut self, at: u32, index: u32) {
        if at == self.consumer() && self.run.is_active() {
            self.run.rename(index);
        }
        self.state.ring_buffer().set_user_index(at, index);
    }

    /// Moves the units that do not name `index` after the `removed` slots of those that do. There
    /// are `scanned` slots.
    fn compact(&mut self, index: u32, scanned: u32, removed: u32) {
        let buffer = self.state.ring_buffer();
        // First moves them together at the front, with the ownership bits of their final slots, and
        // then back.
        let (mut ahead, mut kept) = (0, 0);
        while ahead < scanned {
            let Some(unit) = self.unit(ahead) else { break };
            let first = ahead;
            ahead += unit.slots;
            if unit.index == Some(index) {
                continue;
            }
            for slot in 0..unit.slots {
                let from = self.consumer().wrapping_add(first + slot);
                buffer.copy(from, &buffer, self.consumer().wrapping_add(kept + slot));
            }
            let front = self.consumer().wrapping_add(kept);
            buffer.set_owner(front, buffer.owner(front.wrapping_add(removed)));
            kept += unit.slots;
        }
        for slot in (0..kept).rev() {
            let from = self.consumer().wrapping_add(slot);
            buffer.copy(from, &buffer, from.wrapping_add(removed));
        }
        if self.run.is_active() && self.run.title().1 == index {
            self.run.abandon();
        } else {
            self.run.move_by(removed);
        }
        self.state.clear(self.consumer(), removed);
        self.consumer = self.consumer.wrapping_add(removed);
        self.find_position();
        // Orders the writes above before the doorbell record shows the device that the slots are
        // free.
        barrier::to_device();
        self.publish();
    }
}
