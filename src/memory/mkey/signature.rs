//! The signature of a memory key: the two domains, and their encoding for the device.

use mlx5_prm::signature::{Bsf, BsfInline, block_format, block_selector, bsf_size, byte_mask};
use mlx5_prm::{U16, U32};
use mlx5_wqe::MkeyRefusal;

/// Bytes of data between two signatures (`enum mlx5dv_block_size`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum BlockSize {
    /// 512 bytes.
    B512 = block_selector::B512,
    /// 520 bytes.
    B520 = block_selector::B520,
    /// 4048 bytes.
    B4048 = block_selector::B4048,
    /// 4096 bytes.
    B4096 = block_selector::B4096,
    /// 4160 bytes.
    B4160 = block_selector::B4160,
}

impl BlockSize {
    /// The number of bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B520 => 520,
            Self::B4048 => 4048,
            Self::B4096 => 4096,
            Self::B4160 => 4160,
        }
    }
}

/// The guard of T10-DIF (`enum mlx5dv_sig_t10dif_bg_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Guard {
    /// CRC-16 of T10.
    Crc = BsfInline::GUARD_CRC,
    /// IP checksum.
    IpChecksum = BsfInline::GUARD_IP_CHECKSUM,
}

/// The blocks of T10-DIF that are not checked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Escape {
    /// All blocks are checked.
    #[default]
    None,
    /// Blocks with application tag 0xffff are not checked (types 1 and 2).
    ApplicationTag,
    /// Blocks with application tag 0xffff and reference tag 0xffffffff are not checked (type 3).
    ApplicationAndReferenceTag,
}

/// The initial value of a computation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub enum Seed {
    /// All bits zero.
    #[default]
    Zeros,
    /// All bits one.
    Ones,
}

impl Seed {
    const fn is_ones(self) -> bool {
        matches!(self, Self::Ones)
    }
}

/// Eight bytes after each block: guard, application tag, reference tag (`struct
/// mlx5dv_sig_t10dif`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct T10Dif {
    /// The algorithm of the guard.
    pub guard: Guard,
    /// The initial value of the guard's computation.
    pub seed: Seed,
    /// The application tag.
    pub application_tag: u16,
    /// The reference tag of the first block.
    pub reference_tag: u32,
    /// Whether the reference tag is incremented with each block (types 1 and 2).
    pub increment_reference_tag: bool,
    /// The blocks that are not checked.
    pub escape: Escape,
}

/// A CRC after each block (`struct mlx5dv_sig_crc`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Crc {
    /// CRC-32, four bytes.
    Crc32(Seed),
    /// CRC-32C, four bytes.
    Crc32c(Seed),
    /// CRC-64/XP10, eight bytes.
    Crc64Xp10(Seed),
}

impl Crc {
    const fn seed(self) -> Seed {
        let (Self::Crc32(seed) | Self::Crc32c(seed) | Self::Crc64Xp10(seed)) = self;
        seed
    }

    const fn base(self) -> u8 {
        match self {
            Self::Crc32(_) => block_format::CRC32,
            Self::Crc32c(_) => block_format::CRC32C,
            Self::Crc64Xp10(_) => block_format::CRC64_XP10,
        }
    }

    const fn mask(self) -> u8 {
        match self {
            Self::Crc64Xp10(_) => byte_mask::CRC64,
            _ => byte_mask::CRC32,
        }
    }
}

/// The kind of a signature.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Signature {
    /// T10-DIF.
    T10Dif(T10Dif),
    /// A CRC.
    Crc(Crc),
}

impl Signature {
    /// Returns the initial value of the device's PSV.
    pub(crate) const fn transient(self) -> u64 {
        match self {
            Self::T10Dif(dif) => {
                let guard = if dif.seed.is_ones() { 0xffff } else { 0 };
                guard << 48 | (dif.application_tag as u64) << 32 | dif.reference_tag as u64
            }
            Self::Crc(crc) => match (crc, crc.seed()) {
                (_, Seed::Zeros) => 0,
                (Crc::Crc64Xp10(_), Seed::Ones) => u64::MAX,
                (_, Seed::Ones) => (u32::MAX as u64) << 32,
            },
        }
    }

    /// Returns the bytes of a signature.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::T10Dif(_) | Self::Crc(Crc::Crc64Xp10(_)) => 8,
            Self::Crc(_) => 4,
        }
    }
}

/// One domain of a transfer: how the data is signed there (`struct mlx5dv_sig_block_domain`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Domain {
    /// The signature after each block.
    pub signature: Signature,
    /// Bytes of data between two signatures.
    pub block_size: BlockSize,
}

bitflags::bitflags! {
    /// A selection of the eight bytes after a block. A CRC of four bytes has the upper four.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct SignatureBytes: u8 {
        /// Guard of T10-DIF.
        const GUARD = byte_mask::GUARD;
        /// Application tag of T10-DIF.
        const APPLICATION_TAG = byte_mask::APPLICATION_TAG;
        /// Reference tag of T10-DIF.
        const REFERENCE_TAG = byte_mask::REFERENCE_TAG;
        /// CRC-32 or CRC-32C.
        const CRC32 = byte_mask::CRC32;
        /// All bytes: T10-DIF, or CRC-64.
        const ALL = 0xff;
        const _ = !0;
    }
}

/// The signatures of a key's blocks (`struct mlx5dv_sig_block_attr`). With a signature in one
/// domain only, the device generates it, or checks and removes it, in the transfer. With signatures
/// in both domains, the device checks and copies, or generates a new one.
///
/// ```
/// use mlx5::mkey::{BlockSize, Crc, Domain, Seed, Signature, SignatureBlock};
///
/// let crc = Domain {
///     signature: Signature::Crc(Crc::Crc32c(Seed::Ones)),
///     block_size: BlockSize::B512,
/// };
/// // Data that is plain in memory travels with a CRC behind every 512 bytes.
/// let block = SignatureBlock::new().wire(crc);
/// assert_eq!(crc.signature.bytes(), 4);
/// # let _ = block;
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SignatureBlock {
    pub(crate) memory: Option<Domain>,
    pub(crate) wire: Option<Domain>,
    check: SignatureBytes,
    copy: Option<SignatureBytes>,
}

impl Default for SignatureBlock {
    fn default() -> Self {
        Self::new()
    }
}

impl SignatureBlock {
    /// Creates a description without signatures, of which all bytes are checked. A key needs a
    /// signature in memory or on the wire ([`MkeyRefusal::NoDomain`]).
    pub const fn new() -> Self {
        Self { memory: None, wire: None, check: SignatureBytes::ALL, copy: None }
    }

    /// Sets the signature in memory. Default: none.
    #[must_use]
    pub const fn memory(mut self, domain: Domain) -> Self {
        self.memory = Some(domain);
        self
    }

    /// Sets the signature on the wire. Default: none.
    #[must_use]
    pub const fn wire(mut self, domain: Domain) -> Self {
        self.wire = Some(domain);
        self
    }

    /// Sets the bytes that are checked. Default: all.
    #[must_use]
    pub const fn check(mut self, bytes: SignatureBytes) -> Self {
        self.check = bytes;
        self
    }

    /// Sets the bytes that are copied unchanged. Default: those that are the same in both domains.
    /// Only for domains with the same block size and kind of signature ([`MkeyRefusal::CopyMask`]).
    #[must_use]
    pub const fn copy(mut self, bytes: SignatureBytes) -> Self {
        self.copy = Some(bytes);
        self
    }

    /// Encodes it for the device, with the PSVs of the two domains.
    pub(crate) fn encode(&self, psvs: [u32; 2]) -> Result<Bsf, MkeyRefusal> {
        let [memory_psv, wire_psv] = psvs;
        if self.memory.is_none() && self.wire.is_none() {
            return Err(MkeyRefusal::NoDomain);
        }
        let mut bsf = Bsf {
            bsf_size_sbs: bsf_size::WITH_INLINE << Bsf::SIZE_SHIFT,
            check_byte_mask: self.check.bits(),
            raw_data_size: U32::new(u32::MAX),
            ..Bsf::default()
        };
        if let Some(domain) = self.memory {
            bsf.memory_format_psv = format_psv(domain.signature, memory_psv);
            bsf.memory_block_selector = domain.block_size as u8;
            bsf.memory = inline(domain.signature);
        }
        let same = self.same_structure();
        if self.copy.is_some() && same.is_none() {
            return Err(MkeyRefusal::CopyMask);
        }
        if let Some(domain) = self.wire {
            bsf.wire_format_psv = format_psv(domain.signature, wire_psv);
            bsf.wire = inline(domain.signature);
            bsf.wire_copy_mask_or_block_selector = match same {
                Some(equal) => {
                    bsf.bsf_size_sbs |= Bsf::SAME_BLOCK_STRUCTURE;
                    self.copy.unwrap_or(equal).bits()
                }
                None => domain.block_size as u8,
            };
        }
        Ok(bsf)
    }

    /// If both domains have the same block size and kind of signature: returns the bytes that are
    /// equal in both.
    fn same_structure(&self) -> Option<SignatureBytes> {
        let (memory, wire) = (self.memory?, self.wire?);
        if memory.block_size != wire.block_size {
            return None;
        }
        match (memory.signature, wire.signature) {
            (Signature::Crc(memory), Signature::Crc(wire)) if memory.base() == wire.base() => {
                Some(SignatureBytes::from_bits_retain(wire.mask()))
            }
            (Signature::T10Dif(memory), Signature::T10Dif(wire)) => {
                let mut equal = SignatureBytes::empty();
                let guards = (memory.guard, memory.seed) == (wire.guard, wire.seed);
                equal.set(SignatureBytes::GUARD, guards);
                let tags = memory.application_tag == wire.application_tag;
                equal.set(SignatureBytes::APPLICATION_TAG, tags);
                let tags = memory.reference_tag == wire.reference_tag;
                equal.set(SignatureBytes::REFERENCE_TAG, tags);
                Some(equal)
            }
            _ => None,
        }
    }
}

fn format_psv(signature: Signature, psv: u32) -> U32 {
    let format = match signature {
        Signature::T10Dif(_) => 0,
        Signature::Crc(crc) => {
            let seed = if crc.seed().is_ones() { 0 } else { block_format::SEED_ZERO };
            crc.base() | block_format::REPEAT | seed
        }
    };
    U32::new(u32::from(format) << Bsf::FORMAT_SHIFT | psv & Bsf::PSV_MASK)
}

fn inline(signature: Signature) -> BsfInline {
    let Signature::T10Dif(dif) = signature else { return BsfInline::default() };
    let increment = if dif.increment_reference_tag { BsfInline::INCREMENT_REFERENCE } else { 0 };
    let escape = match dif.escape {
        Escape::None => 0,
        Escape::ApplicationTag => BsfInline::ESCAPE_APPLICATION,
        Escape::ApplicationAndReferenceTag => BsfInline::ESCAPE_APPLICATION_REFERENCE,
    };
    BsfInline {
        valid_refresh: U16::new(BsfInline::VALID | BsfInline::REFRESH),
        application_tag: U16::new(dif.application_tag),
        reference_tag: U32::new(dif.reference_tag),
        signature_type: dif.guard as u8,
        repeat_seed: BsfInline::REPEAT | if dif.seed.is_ones() { BsfInline::SEED_ONES } else { 0 },
        increment_escape: increment | escape,
        application_tag_mask: U16::new(0xffff),
        ..BsfInline::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_with_equal_blocks_and_one_kind_of_signature_have_one_structure() {
        let of = |crc| Domain { signature: Signature::Crc(crc), block_size: BlockSize::B512 };
        let block = |memory, wire| SignatureBlock::new().memory(of(memory)).wire(of(wire));
        let (zeros, ones) = (Crc::Crc32(Seed::Zeros), Crc::Crc32(Seed::Ones));
        // The seed is no part of the structure.
        for wire in [zeros, ones] {
            let all = SignatureBytes::from_bits_retain(wire.mask());
            assert_eq!(block(zeros, wire).same_structure(), Some(all));
        }
        assert_eq!(block(zeros, Crc::Crc32c(Seed::Zeros)).same_structure(), None);
        let longer = Domain { block_size: BlockSize::B4096, ..of(zeros) };
        assert_eq!(SignatureBlock::new().memory(of(zeros)).wire(longer).same_structure(), None);
        assert_eq!(SignatureBlock::new().memory(of(zeros)).same_structure(), None);
    }
}
