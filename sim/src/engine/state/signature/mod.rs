//! Signatures of blocks of data, which a memory key adds, checks, changes and strips as data passes
//! through it.
//!
//! Lengths and offsets under such a key are those of the *wire*; its own length is that of the
//! *memory*. A signature that does not match does not stop the data: the error is reported
//! separately.

pub(crate) mod crc;
mod domain;

use mlx5_prm::signature::{Bsf, block_selector, bsf_size};
use zerocopy::FromBytes;

use crate::model::Capabilities;
pub(crate) use domain::{Domain, Mismatch, spread};

/// Bytes of the sections that a size selector names.
const BASIC: usize = 16;
const EXTENDED: usize = 32;

/// Signature processing of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Format {
    pub(crate) memory: Option<Domain>,
    pub(crate) wire: Option<Domain>,
    /// Bytes of the incoming signature that are checked.
    pub(crate) check: u8,
    /// Bytes of the incoming signature that go out as they came.
    pub(crate) copy: u8,
}

/// A signature variable: the value that a domain's signatures start from, and whether one of them
/// did not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Psv {
    /// Its protection domain.
    pub(crate) pd: u32,
    /// Value that the next signature starts from.
    pub(crate) transient: u64,
    /// A mismatch was reported; nothing more is reported until the PSV is set again.
    pub(crate) failed: bool,
}

/// Signature state of a key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Signatures {
    /// They are in force.
    pub(crate) enabled: bool,
    /// Their format, once a request has set it.
    pub(crate) format: Option<Format>,
    /// Room for their format, in units of 16 bytes.
    pub(crate) octwords: u32,
    /// Lowest bit of the number of errors that the driver has seen; the next one is reported only
    /// if this differs from [`Self::reported`].
    pub(crate) expected: bool,
    /// Lowest bit of the number of errors reported.
    pub(crate) reported: bool,
    /// The part of a block's signature that has arrived: block, bytes, and which of them.
    pub(crate) partial: Option<(u64, [u8; 8], u8)>,
}

impl Format {
    /// Parses a byte stream format; `None` for values that the device does not know.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let selector = bytes.first()? >> Bsf::SIZE_SHIFT;
        let length = match selector {
            bsf_size::BASIC => BASIC,
            bsf_size::EXTENDED => EXTENDED,
            bsf_size::WITH_INLINE => size_of::<Bsf>(),
            _ => return None,
        };
        let mut whole = [0; size_of::<Bsf>()];
        whole[..length].copy_from_slice(bytes.get(..length)?);
        let bsf = Bsf::read_from_bytes(&whole).ok()?;
        // The device has no signatures of whole transactions.
        if bsf.wire_transaction_format_psv.get() | bsf.memory_transaction_format_psv.get() != 0 {
            return None;
        }
        let size = |selector: u8| {
            let sizes = block_selector::SIZES.iter();
            sizes.into_iter().find(|size| size.0 == selector).map(|size| u64::from(size.1))
        };
        let split = |word: u32| ((word >> Bsf::FORMAT_SHIFT) as u8, word & Bsf::PSV_MASK);
        let same = bsf.bsf_size_sbs & Bsf::SAME_BLOCK_STRUCTURE != 0;
        let memory_block = size(bsf.memory_block_selector);
        let flags = bsf.wire_copy_mask_or_block_selector;
        let (wire_block, copy) = if same { (memory_block, flags) } else { (size(flags), 0) };
        let (format, psv) = split(bsf.memory_format_psv.get());
        let memory = Domain::parse(format, psv, &bsf.memory, memory_block).ok()?;
        let (format, psv) = split(bsf.wire_format_psv.get());
        let wire = Domain::parse(format, psv, &bsf.wire, wire_block).ok()?;
        Some(Self { memory, wire, check: bsf.check_byte_mask, copy })
    }

    /// Whether a device supports these signatures.
    pub(crate) fn is_known_to(&self, device: &Capabilities) -> bool {
        [self.memory, self.wire].iter().flatten().all(|domain| domain.is_known_to(device))
    }

    /// The PSVs that it names.
    pub(crate) fn psvs(&self) -> impl Iterator<Item = u32> {
        [self.memory, self.wire].into_iter().flatten().map(|domain| domain.psv)
    }

    /// Data bytes in `memory` bytes of memory: signatures stand after whole blocks.
    fn data_bytes(&self, memory: u64) -> u64 {
        match self.memory {
            Some(domain) => {
                let rest = memory % domain.stride();
                memory / domain.stride() * domain.block + rest.min(domain.block)
            }
            None => memory,
        }
    }

    /// Bytes on the wire for `memory` bytes of memory.
    pub(crate) fn wire_bytes(&self, memory: u64) -> u64 {
        let data = self.data_bytes(memory);
        match self.wire {
            // A key may be as long as the address space.
            Some(domain) => {
                data.saturating_add((data / domain.block).saturating_mul(domain.bytes()))
            }
            None => data,
        }
    }
}
