//! Blocks signed with T10-DIF, and ways to corrupt them.

use clap::ValueEnum;
use mlx5::mkey::{BlockSize, Domain, Escape, Guard, Seed, Signature, SignatureBlock, T10Dif};

/// Bytes of a block without and with its signature.
pub(super) const DATA: usize = 512;
pub(super) const SIGNED: usize = DATA + 8;

/// Offsets of the signature's parts in a signed block.
const GUARD: usize = DATA;
const APPLICATION_TAG: usize = DATA + 2;
const REFERENCE_TAG: usize = DATA + 4;

/// The generator of the guard's CRC, without its highest term.
const POLYNOMIAL: u16 = 0x8bb7;

/// The part of a block that is corrupted.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// A bit of the data; the guard no longer matches
    Data,
    /// A bit of the guard itself
    Guard,
    /// A bit of the application tag
    ApplicationTag,
    /// A bit of the reference tag, as of a misplaced block
    ReferenceTag,
}

impl Part {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Guard => "guard",
            Self::ApplicationTag => "application tag",
            Self::ReferenceTag => "reference tag",
        }
    }

    /// Flips a bit of this part of a signed block.
    pub(super) fn spoil(self, signed: &mut [u8]) {
        let at = match self {
            Self::Data => 0,
            Self::Guard => GUARD,
            Self::ApplicationTag => APPLICATION_TAG,
            Self::ReferenceTag => REFERENCE_TAG,
        };
        signed[at] ^= 1;
    }
}

/// Signed in memory, unsigned on the wire.
pub(super) fn protection() -> SignatureBlock {
    SignatureBlock::new().memory(Domain {
        signature: Signature::T10Dif(T10Dif {
            guard: Guard::Crc,
            seed: Seed::Zeros,
            application_tag: 0,
            reference_tag: 0,
            increment_reference_tag: true,
            escape: Escape::None,
        }),
        block_size: BlockSize::B512,
    })
}

/// The data of a block; both numbers count from 1.
pub(super) fn data(transfer: u16, block: u16) -> Vec<u8> {
    let text = format!("transfer {transfer} block {block}; ");
    text.bytes().cycle().take(DATA).collect()
}

/// A block with its signature, the `index`th of its transfer, counted from 0.
pub(super) fn signed(data: &[u8], index: u32) -> Vec<u8> {
    let mut bytes = data.to_vec();
    bytes.extend(guard(data).to_be_bytes());
    bytes.extend(0_u16.to_be_bytes());
    bytes.extend(index.to_be_bytes());
    bytes
}

fn guard(data: &[u8]) -> u16 {
    data.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            crc << 1 ^ if crc & 0x8000 != 0 { POLYNOMIAL } else { 0 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_is_the_crc_of_t10() {
        // The check value of CRC-16/T10-DIF.
        assert_eq!(guard(b"123456789"), 0xd0db);
    }

    #[test]
    fn a_spoiled_block_differs_in_one_bit_of_the_part_that_is_named() {
        let good = signed(&data(1, 2), 1);
        assert_eq!((good.len(), &good[DATA + 2..]), (SIGNED, &[0, 0, 0, 0, 0, 1][..]));
        for (part, range) in [
            (Part::Data, 0..DATA),
            (Part::Guard, DATA..DATA + 2),
            (Part::ApplicationTag, DATA + 2..DATA + 4),
            (Part::ReferenceTag, DATA + 4..SIGNED),
        ] {
            let mut bad = good.clone();
            part.spoil(&mut bad);
            let differs: Vec<usize> = (0..SIGNED).filter(|at| bad[*at] != good[*at]).collect();
            assert!(differs.len() == 1 && range.contains(&differs[0]), "{part:?}: {differs:?}");
        }
    }
}
