//! Atomic operations: the effect of each on its operand.
//!
//! They are atomic to each other, across all queue pairs and devices of the machine. Hardware
//! promises nothing about accesses by the host's processor, and neither does this: an operand in
//! this process is exchanged atomically, one in another process is read and then written.

use mlx5_prm::wqe::{AtomicSegment, MaskedAtomicSegment, Opcode};
use zerocopy::FromBytes;

/// Bit of the opcode modifier. If it is set, the low bits give the operand's size.
const EXTENDED: u8 = 1 << 3;
/// Base-two logarithm of the operand size that low bits 0 mean.
const LOG_SMALLEST: u8 = 2;
/// Bytes of a segment of a 4-byte operation.
const SEGMENT_4: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    /// The bits of `compare_mask` are compared; if they are equal, those of `swap_mask` change.
    CompareSwap { swap: u64, compare: u64, swap_mask: u64, compare_mask: u64 },
    /// Each field is added separately; a bit of `boundary` ends it.
    FetchAdd { add: u64, boundary: u64 },
}

/// An atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Atomic {
    /// Bytes of the operand: 4 or 8.
    pub(crate) bytes: u64,
    operation: Operation,
}

pub(crate) fn is_atomic(opcode: Opcode) -> bool {
    use Opcode::{AtomicCs, AtomicFa, AtomicMaskedCs, AtomicMaskedFa};
    matches!(opcode, AtomicCs | AtomicFa | AtomicMaskedCs | AtomicMaskedFa)
}

/// The first four words of a segment.
fn words(bytes: &[u8]) -> Option<[u64; 4]> {
    let words = bytes.as_chunks::<4>().0.first_chunk::<4>()?;
    Some(words.map(|word| u32::from_be_bytes(word).into()))
}

impl Atomic {
    /// Reads the segment of an atomic and returns it with its length.
    pub(crate) fn parse(opcode: Opcode, modifier: u8, bytes: &[u8]) -> Option<(Self, usize)> {
        let masked = matches!(opcode, Opcode::AtomicMaskedCs | Opcode::AtomicMaskedFa);
        let log = match modifier {
            0 => 3,
            _ if masked && modifier & EXTENDED != 0 => (modifier & !EXTENDED) + LOG_SMALLEST,
            _ => return None,
        };
        let (operation, length) = match (opcode, log) {
            (Opcode::AtomicMaskedCs, 3) => {
                let (segment, _) = MaskedAtomicSegment::read_from_prefix(bytes).ok()?;
                let operation = Operation::CompareSwap {
                    swap: segment.swap.get(),
                    compare: segment.compare.get(),
                    swap_mask: segment.swap_mask.get(),
                    compare_mask: segment.compare_mask.get(),
                };
                (operation, size_of::<MaskedAtomicSegment>())
            }
            (Opcode::AtomicMaskedCs, 2) => {
                let [swap, compare, swap_mask, compare_mask] = words(bytes)?;
                (Operation::CompareSwap { swap, compare, swap_mask, compare_mask }, SEGMENT_4)
            }
            (Opcode::AtomicMaskedFa, 2) => {
                let [add, boundary, ..] = words(bytes)?;
                (Operation::FetchAdd { add, boundary }, SEGMENT_4)
            }
            (_, 3) => {
                let (segment, _) = AtomicSegment::read_from_prefix(bytes).ok()?;
                let (first, second) = (segment.swap_or_add.get(), segment.compare.get());
                let operation = match opcode {
                    Opcode::AtomicCs => Operation::CompareSwap {
                        swap: first,
                        compare: second,
                        swap_mask: u64::MAX,
                        compare_mask: u64::MAX,
                    },
                    Opcode::AtomicFa => Operation::FetchAdd { add: first, boundary: 0 },
                    _ => Operation::FetchAdd { add: first, boundary: second },
                };
                (operation, size_of::<AtomicSegment>())
            }
            _ => return None,
        };
        Some((Self { bytes: 1 << log, operation }, length))
    }

    /// The new value of an operand.
    pub(crate) fn apply(&self, old: u64) -> u64 {
        match self.operation {
            Operation::CompareSwap { swap, compare, swap_mask, compare_mask } => {
                let equal = (old ^ compare) & compare_mask == 0;
                if equal { old & !swap_mask | swap & swap_mask } else { old }
            }
            Operation::FetchAdd { add, boundary } => {
                // The highest bit of each field is added without a carry out of the field.
                let top = boundary;
                let sum = (old & !top).wrapping_add(add & !top);
                let new = sum ^ (old ^ add) & top;
                new & u64::MAX >> (64 - 8 * self.bytes)
            }
        }
    }

    /// The bytes of an operand in memory order.
    pub(crate) fn to_memory(self, value: u64) -> Vec<u8> {
        match self.bytes {
            4 => (value as u32).to_ne_bytes().to_vec(),
            _ => value.to_ne_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::*;

    fn parse(opcode: Opcode, modifier: u8, words: &[u64]) -> Option<Atomic> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let (atomic, length) = Atomic::parse(opcode, modifier, &bytes)?;
        assert_eq!(length, bytes.as_bytes().len());
        Some(atomic)
    }

    #[test]
    fn plain_operations_take_the_whole_word() {
        let swap = parse(Opcode::AtomicCs, 0, &[7, 5]).expect("a segment");
        assert_eq!((swap.apply(5), swap.apply(6)), (7, 6));
        let add = parse(Opcode::AtomicFa, 0, &[2, 99]).expect("a segment");
        assert_eq!((add.apply(5), add.apply(u64::MAX)), (7, 1));
        assert_eq!(parse(Opcode::AtomicFa, 9, &[2, 99]), None);
    }

    #[test]
    fn a_masked_swap_compares_and_changes_only_its_bits() {
        let swap = parse(Opcode::AtomicMaskedCs, 9, &[0xaaaa, 0x00ff, 0x0ff0, 0x00f0]);
        let swap = swap.expect("a segment");
        assert_eq!(swap.apply(0x12f4), 0x1aa4);
        assert_eq!(swap.apply(0x12e4), 0x12e4);
    }

    #[test]
    fn a_masked_addition_keeps_carries_within_fields() {
        let boundary = 0x8000_8000_8000_8000;
        let add = parse(Opcode::AtomicMaskedFa, 9, &[0x0001_ffff_8000_0001, boundary]);
        let add = add.expect("a segment");
        assert_eq!(add.apply(0xffff_0001_8000_ffff), 0x0000_0000_0000_0000);
        assert_eq!(add.apply(0x0001_0003_0001_0001), 0x0002_0002_8001_0002);
        let whole = parse(Opcode::AtomicMaskedFa, 9, &[1, 0]).expect("a segment");
        assert_eq!(whole.apply(0xffff), 0x1_0000);
    }

    #[test]
    fn operands_of_four_bytes_have_their_own_segments() {
        let add = parse(Opcode::AtomicMaskedFa, 8, &[1 << 32, 0]).expect("a segment");
        assert_eq!((add.bytes, add.apply(0xffff_ffff)), (4, 0));
        let swap = parse(Opcode::AtomicMaskedCs, 8, &[7 << 32 | 5, u64::MAX]).expect("a segment");
        assert_eq!((swap.bytes, swap.apply(5)), (4, 7));
        assert_eq!(parse(Opcode::AtomicMaskedCs, 10, &[0, 0]), None);
    }
}
