//! Data transfers through a key with signatures.

use super::psv::Where;
use crate::engine::Device;
use crate::engine::memory::Copy;
use crate::engine::state::fence::Change;
use crate::engine::state::mkey::{KeyError, User};
use crate::engine::state::signature::{Domain, Format, Mismatch, Signatures, spread};

/// A piece of the wire under a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Piece {
    /// Data, from this offset in all data.
    Data { offset: u64, length: usize },
    /// A part of the signature of a block.
    Signature { block: u64, start: usize, length: usize },
}

impl Format {
    /// The pieces of a range of the wire.
    fn pieces(&self, offset: u64, length: usize) -> Vec<Piece> {
        let Some(domain) = self.wire else {
            return vec![Piece::Data { offset, length }];
        };
        let mut pieces = Vec::new();
        let (mut at, end) = (offset, offset + length as u64);
        while at < end {
            let (block, within) = (at / domain.stride(), at % domain.stride());
            let in_data = within < domain.block;
            let room = if in_data { domain.block } else { domain.stride() } - within;
            let length = room.min(end - at) as usize;
            pieces.push(match in_data {
                true => Piece::Data { offset: block * domain.block + within, length },
                false => {
                    let start = (within - domain.block) as usize;
                    Piece::Signature { block, start, length }
                }
            });
            at += length as u64;
        }
        pieces
    }

    /// The parts of a range of data between the signatures in memory: offset in memory, and length.
    fn memory_parts(&self, offset: u64, length: usize) -> Vec<(u64, usize)> {
        let Some(domain) = self.memory else { return vec![(offset, length)] };
        let mut parts = Vec::new();
        let (mut at, end) = (offset, offset + length as u64);
        while at < end {
            let (block, within) = (at / domain.block, at % domain.block);
            let length = (domain.block - within).min(end - at);
            parts.push((block * domain.stride() + within, length as usize));
            at += length;
        }
        parts
    }
}

/// The blocks whose last byte is in a range of data.
fn ended(domain: &Domain, offset: u64, length: usize) -> std::ops::Range<u64> {
    offset / domain.block..(offset + length as u64) / domain.block
}

/// A transfer through a key.
#[derive(Clone, Copy)]
struct Through<'a> {
    user: User,
    index: u32,
    depth: u32,
    format: &'a Format,
}

impl Device {
    /// Copies through a key with signatures; the offset is the wire's.
    pub(in crate::engine) fn copy_signed(
        &mut self,
        user: User,
        index: u32,
        offset: u64,
        mut copy: Copy<'_>,
        depth: u32,
    ) -> Result<(), KeyError> {
        let key = self.mkeys.get(index).ok_or(KeyError::Outside)?;
        // Without a description of its signatures a key lets nothing through.
        let format = key.signatures.format.clone().ok_or(KeyError::Outside)?;
        if format.psvs().any(|psv| self.psvs.get(&psv).is_none_or(|psv| psv.pd != user.pd)) {
            return Err(KeyError::Outside);
        }
        for psv in format.psvs() {
            self.used_by(user, Change::Psv(psv));
        }
        let through = Through { user, index, depth, format: &format };
        let mut done = 0;
        for piece in format.pieces(offset, copy.length()) {
            let (Piece::Data { length, .. } | Piece::Signature { length, .. }) = piece;
            match (piece, copy.part(done, length)) {
                (Piece::Data { offset, .. }, Copy::From(to)) => {
                    self.read_data(through, offset, to)?;
                    self.check_memory(through, offset, length)?;
                }
                (Piece::Signature { block, start, .. }, Copy::From(to)) => {
                    let bytes = self.signature_out(through, block)?;
                    to.copy_from_slice(&bytes[start..start + length]);
                }
                (Piece::Data { offset, .. }, Copy::To(from)) => {
                    self.write_data(through, offset, from)?;
                    if format.wire.is_none() || !format.is_copied() {
                        self.sign_memory(through, offset, length)?;
                    }
                }
                (Piece::Signature { block, start, .. }, Copy::To(from)) => {
                    self.signature_in(through, block, start, from)?;
                }
            }
            done += length;
        }
        Ok(())
    }

    fn copy_memory(
        &mut self,
        through: Through<'_>,
        offset: u64,
        copy: Copy<'_>,
    ) -> Result<(), KeyError> {
        self.copy_pieces(through.user, through.index, offset, copy, through.depth)
    }

    fn read_data(
        &mut self,
        through: Through<'_>,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), KeyError> {
        let mut done = 0;
        for (at, length) in through.format.memory_parts(offset, to.len()) {
            self.copy_memory(through, at, Copy::From(&mut to[done..done + length]))?;
            done += length;
        }
        Ok(())
    }

    fn write_data(
        &mut self,
        through: Through<'_>,
        offset: u64,
        from: &[u8],
    ) -> Result<(), KeyError> {
        let mut done = 0;
        for (at, length) in through.format.memory_parts(offset, from.len()) {
            self.copy_memory(through, at, Copy::To(&from[done..done + length]))?;
            done += length;
        }
        Ok(())
    }

    /// The expected signature of a block in a domain.
    fn compute(
        &mut self,
        through: Through<'_>,
        domain: &Domain,
        block: u64,
    ) -> Result<u64, KeyError> {
        let mut data = vec![0; domain.block as usize];
        self.read_data(through, block * domain.block, &mut data)?;
        let psv = self.psvs.get(&domain.psv).ok_or(KeyError::Outside)?;
        Ok(domain.compute(block, psv.transient, &data))
    }

    /// The signature in memory after a block.
    fn found_in_memory(
        &mut self,
        through: Through<'_>,
        domain: &Domain,
        block: u64,
    ) -> Result<u64, KeyError> {
        let mut bytes = vec![0; domain.bytes() as usize];
        let at = block * domain.stride() + domain.block;
        self.copy_memory(through, at, Copy::From(&mut bytes))?;
        Ok(domain.decode(&bytes))
    }

    fn check(
        &mut self,
        through: Through<'_>,
        (place, domain): (Where, &Domain),
        block: u64,
        found: u64,
    ) -> Result<(), KeyError> {
        let computed = self.compute(through, domain, block)?;
        let mismatch = match self.fails_signature(through.index) {
            true => Some(Mismatch::forced(computed)),
            false => domain.compare(found, computed, through.format.check),
        };
        if let Some(mismatch) = mismatch {
            self.report_mismatch(through.user, through.index, (place, domain), block, mismatch);
        }
        Ok(())
    }

    /// Whether a fault makes the next signature check fail.
    fn fails_signature(&mut self, index: u32) -> bool {
        let failures = &mut self.faults.fail_signatures;
        let at = failures.iter().position(|failure| failure.is_none_or(|key| key == index));
        at.map(|at| failures.remove(at)).is_some()
    }

    /// Checks the signatures in memory of the blocks whose end a read reached.
    fn check_memory(
        &mut self,
        through: Through<'_>,
        offset: u64,
        length: usize,
    ) -> Result<(), KeyError> {
        let Some(domain) = through.format.memory else { return Ok(()) };
        for block in ended(&domain, offset, length) {
            let found = self.found_in_memory(through, &domain, block)?;
            self.check(through, (Where::Memory, &domain), block, found)?;
        }
        Ok(())
    }

    /// The outgoing signature of a block: computed, except for the parts that are copied from
    /// memory.
    fn signature_out(&mut self, through: Through<'_>, block: u64) -> Result<Vec<u8>, KeyError> {
        let Some(wire) = through.format.wire else { return Err(KeyError::Outside) };
        let mut value = self.compute(through, &wire, block)?;
        if let Some(memory) = through.format.memory.filter(|_| through.format.is_copied()) {
            let found = self.found_in_memory(through, &memory, block)?;
            value = mix(found, value, through.format.copy);
        }
        Ok(wire.encode(value))
    }

    /// Takes a part of the signature that arrives after a block, and checks the signature at its
    /// last part.
    fn signature_in(
        &mut self,
        through: Through<'_>,
        block: u64,
        start: usize,
        from: &[u8],
    ) -> Result<(), KeyError> {
        let Some(wire) = through.format.wire else { return Err(KeyError::Outside) };
        let key = self.mkeys.get_mut(through.index).ok_or(KeyError::Outside)?;
        let Some(bytes) = key.signatures.collect(block, start, from, wire.bytes() as usize) else {
            return Ok(());
        };
        let found = wire.decode(&bytes[..wire.bytes() as usize]);
        self.check(through, (Where::Wire, &wire), block, found)?;
        if let Some(memory) = through.format.memory.filter(|_| through.format.is_copied()) {
            let value = self.compute(through, &memory, block)?;
            let value = mix(found, value, through.format.copy);
            self.store_signature(through, &memory, block, value)?;
        }
        Ok(())
    }

    /// Writes the signatures in memory of the blocks whose end a write reached.
    fn sign_memory(
        &mut self,
        through: Through<'_>,
        offset: u64,
        length: usize,
    ) -> Result<(), KeyError> {
        let Some(domain) = through.format.memory else { return Ok(()) };
        for block in ended(&domain, offset, length) {
            let value = self.compute(through, &domain, block)?;
            self.store_signature(through, &domain, block, value)?;
        }
        Ok(())
    }

    fn store_signature(
        &mut self,
        through: Through<'_>,
        domain: &Domain,
        block: u64,
        value: u64,
    ) -> Result<(), KeyError> {
        let at = block * domain.stride() + domain.block;
        self.copy_memory(through, at, Copy::To(&domain.encode(value)))
    }
}

impl Format {
    /// Whether any part of a signature is copied unchanged.
    fn is_copied(&self) -> bool {
        self.copy != 0
    }
}

/// Combines two values: the bytes of `named` that the mask selects, and the rest of `others`.
fn mix(named: u64, others: u64, mask: u8) -> u64 {
    named & spread(mask) | others & !spread(mask)
}

impl Signatures {
    /// Collects the parts of a signature and returns it when it is complete.
    fn collect(&mut self, block: u64, start: usize, from: &[u8], whole: usize) -> Option<[u8; 8]> {
        let (mut bytes, mut have) = match self.partial {
            Some((same, bytes, have)) if same == block && start > 0 => (bytes, have),
            _ => ([0; 8], 0),
        };
        bytes[start..start + from.len()].copy_from_slice(from);
        for n in start..start + from.len() {
            have |= 1 << n;
        }
        let complete = u32::from(have).trailing_ones() as usize >= whole;
        self.partial = (!complete).then_some((block, bytes, have));
        complete.then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_signature_make_it_whole_in_order() {
        let mut signatures = Signatures::default();
        assert_eq!(signatures.collect(3, 0, &[1, 2], 4), None);
        assert_eq!(signatures.collect(3, 2, &[3, 4], 4), Some([1, 2, 3, 4, 0, 0, 0, 0]));
        assert_eq!(signatures.collect(4, 2, &[3, 4], 4), None, "the first part never came");
        assert_eq!(signatures.collect(4, 0, &[1, 2, 3, 4], 4), Some([1, 2, 3, 4, 0, 0, 0, 0]));
    }
}
