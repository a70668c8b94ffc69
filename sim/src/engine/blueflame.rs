//! BlueFlame registers on a bus on which every write arrives alone: the pieces of a copy.

use mlx5_prm::doorbell::{BLUEFLAME, BLUEFLAME_UNIT};
use mlx5_prm::wqe::UNIT;

use crate::engine::Device;
use crate::engine::fault::Violation;
use crate::engine::state::qp::Qp;
use crate::engine::state::uar::{Arriving, Copied, SendDoorbell};

/// Time limit for the rest of a copy that the device needs, in nanoseconds.
const PATIENCE_NS: u64 = 100_000;
/// Bytes of one piece.
const PIECE: usize = 8;
/// Copies that a queue pair stores for requests that are not executed yet.
const MOST_COPIES: usize = 16;
/// Offsets of the opcode and the flags in a control segment; the flags in [`COMPLETION`] ask for a
/// completion.
const OPCODE: usize = 3;
const NOP: u8 = 0;
const FLAGS: usize = 11;
const COMPLETION: u8 = 0b1100;

/// Whether the device must execute the request from the copy: the ring has a NOP without
/// completion. A driver that tests whether its writes are combined asks for the completion in the
/// copy alone.
fn needs_copy(ring: &[u8]) -> bool {
    ring.len() == UNIT && ring[OPCODE] == NOP && ring[FLAGS] & COMPLETION == 0
}

impl Device {
    /// Takes a piece that was written to the BlueFlame registers of a page.
    pub(crate) fn blueflame_write(&mut self, uar: u32, offset: usize, value: u64) {
        let half = self.half_register();
        if (offset - BLUEFLAME).is_multiple_of(half) {
            self.give_up_copy(uar);
            let bytes = value.to_be_bytes().to_vec();
            let ring = self.ring_at(uar, value).unwrap_or_default();
            let held = needs_copy(&ring).then(|| self.now_ns + PATIENCE_NS);
            let arriving =
                Arriving { next: offset + PIECE, value, bytes, ring, held: held.is_some() };
            if let Some(page) = self.uars.get_mut(uar) {
                page.arriving = Some(arriving);
            }
            if let Some(until) = held {
                self.held.insert(uar, until);
            } else {
                self.ring_sq(uar, value, &[]);
            }
            return;
        }
        let Some(page) = self.uars.get_mut(uar) else { return };
        let Some(mut arriving) = page.arriving.take() else { return };
        if arriving.next != offset {
            // The write continues no copy, so its meaning is unknown and it has no effect.
            page.arriving = Some(arriving);
            return;
        }
        arriving.next += PIECE;
        arriving.bytes.extend(value.to_be_bytes());
        let doorbell = SendDoorbell::from(arriving.value);
        let (bytes, ring, held) = (&arriving.bytes, &arriving.ring, arriving.held);
        if held && bytes.len() == BLUEFLAME_UNIT {
            self.held.remove(&uar);
            let mut block = [0; BLUEFLAME_UNIT];
            block.copy_from_slice(bytes);
            if let Some(qp) = self.qps.get_mut(doorbell.qpn) {
                qp.take_copy((doorbell.index, block));
            }
            self.ring_sq(uar, arriving.value, &[]);
        } else if !ring.is_empty() && bytes.len() == ring.len().next_multiple_of(BLUEFLAME_UNIT) {
            if let Some(byte) = bytes.iter().zip(ring).position(|(copy, ring)| copy != ring) {
                let SendDoorbell { qpn, index, .. } = doorbell;
                self.violation(Violation::BlueFlame { qpn, index, byte: byte as u16 });
            }
        } else if bytes.len() < self.half_register()
            && let Some(page) = self.uars.get_mut(uar)
        {
            page.arriving = Some(arriving);
        }
    }

    /// The request in the ring that a doorbell announces. `None` if an earlier doorbell announced
    /// it with the record already: it may be done and its place in the ring reused.
    fn ring_at(&self, uar: u32, value: u64) -> Option<Vec<u8>> {
        let doorbell = SendDoorbell::from(value);
        let qp = self.qps.get(doorbell.qpn).filter(|qp| qp.config.uar == uar)?;
        if doorbell.index.wrapping_sub(qp.sq_executed).cast_signed() < 0 {
            return None;
        }
        let mut ring = vec![0; usize::from(doorbell.units) * UNIT];
        qp.read_sq(&*self.dma, doorbell.index, &mut ring).ok()?;
        Some(ring)
    }

    /// Rings the doorbell of a request whose copy did not arrive in full.
    pub(crate) fn give_up_copy(&mut self, uar: u32) {
        self.held.remove(&uar);
        let Some(page) = self.uars.get_mut(uar) else { return };
        let arriving = page.arriving.take();
        if let Some(Arriving { value, held: true, .. }) = arriving {
            self.ring_sq(uar, value, &[]);
        }
    }

    /// Gives up copies whose time limit has passed.
    pub(crate) fn give_up_copies(&mut self) {
        let late = self.held.iter().filter(|(_, until)| **until <= self.now_ns);
        for uar in late.map(|(uar, _)| *uar).collect::<Vec<_>>() {
            self.give_up_copy(uar);
        }
    }
}

impl Qp {
    /// Stores a block that the device executes as the copy has it.
    fn take_copy(&mut self, copied: Copied) {
        let executed = self.sq_executed;
        self.copies.retain(|(index, _)| index.wrapping_sub(executed).cast_signed() >= 0);
        if self.copies.len() < MOST_COPIES {
            self.copies.push(copied);
        }
    }
}
