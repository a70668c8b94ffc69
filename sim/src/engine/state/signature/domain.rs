//! One domain of a signature: computes and checks the signature after each block.

use mlx5_prm::signature::{BsfInline, SignatureErrorCqe, block_format, byte_mask};

use super::crc;
use crate::model::Capabilities;

/// A signature in the order of a PSV: T10-DIF guard (16 bits), application tag (16), reference tag
/// (32); a 32-bit CRC in the upper half; or a 64-bit CRC. Masks have a bit for each byte of it.
pub(crate) type Value = u64;

/// An application tag that may make a block exempt.
const ESCAPE_APPLICATION: u16 = 0xffff;
/// A reference tag that may be needed for that.
const ESCAPE_REFERENCE: u32 = 0xffff_ffff;

/// Algorithm of the guard of a T10-DIF tuple.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Guard {
    Crc,
    IpChecksum,
}

/// Which tags exempt a block from checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Escape {
    Nothing,
    Application,
    ApplicationAndReference,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    T10Dif {
        guard: Guard,
        application: u16,
        application_mask: u16,
        reference: u32,
        /// The tags come from the format, not from the PSV.
        refresh: bool,
        increment: bool,
        escape: Escape,
    },
    Crc32,
    Crc32c,
    Crc64,
}

/// The signatures of one domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Domain {
    kind: Kind,
    /// Data bytes of a block.
    pub(crate) block: u64,
    /// The PSV that its signatures start from.
    pub(crate) psv: u32,
    /// Blocks after the first start from all ones.
    seed_ones: bool,
}

/// A signature that does not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mismatch {
    /// A bit of the syndrome.
    pub(crate) syndrome: u16,
    pub(crate) found: Value,
    pub(crate) computed: Value,
}

impl Mismatch {
    /// A guard that differs from the one computed in its first bit.
    pub(crate) fn forced(computed: Value) -> Self {
        let syndrome = SignatureErrorCqe::GUARD;
        Self { syndrome, found: computed ^ 1 << (Value::BITS - 1), computed }
    }
}

impl Domain {
    /// Parses the domain that a format word and an inline section describe. `Ok(None)` if there are
    /// no signatures, `Err` for values that the device does not know.
    pub(crate) fn parse(
        format: u8,
        psv: u32,
        inline: &BsfInline,
        block: Option<u64>,
    ) -> Result<Option<Self>, ()> {
        let valid = inline.valid_refresh.get() & BsfInline::VALID != 0;
        if format == 0 && !valid {
            return Ok(None);
        }
        let block = block.ok_or(())?;
        if format != 0 {
            let kind = match format & block_format::KIND_MASK {
                block_format::CRC32 => Kind::Crc32,
                block_format::CRC32C => Kind::Crc32c,
                block_format::CRC64_XP10 => Kind::Crc64,
                _ => return Err(()),
            };
            if format & block_format::REPEAT == 0 {
                return Err(());
            }
            let seed_ones = format & block_format::SEED_ZERO == 0;
            return Ok(Some(Self { kind, block, psv, seed_ones }));
        }
        let has = |bit| inline.increment_escape & bit != 0;
        if inline.repeat_seed & BsfInline::REPEAT == 0 {
            return Err(());
        }
        let kind = Kind::T10Dif {
            guard: match inline.signature_type {
                BsfInline::GUARD_CRC => Guard::Crc,
                BsfInline::GUARD_IP_CHECKSUM => Guard::IpChecksum,
                _ => return Err(()),
            },
            application: inline.application_tag.get(),
            application_mask: inline.application_tag_mask.get(),
            reference: inline.reference_tag.get(),
            refresh: inline.valid_refresh.get() & BsfInline::REFRESH != 0,
            increment: has(BsfInline::INCREMENT_REFERENCE),
            escape: if has(BsfInline::ESCAPE_APPLICATION_REFERENCE) {
                Escape::ApplicationAndReference
            } else if has(BsfInline::ESCAPE_APPLICATION) {
                Escape::Application
            } else {
                Escape::Nothing
            },
        };
        let seed_ones = inline.repeat_seed & BsfInline::SEED_ONES != 0;
        Ok(Some(Self { kind, block, psv, seed_ones }))
    }

    /// Whether a device supports such signatures of blocks of this size.
    pub(crate) fn is_known_to(&self, device: &Capabilities) -> bool {
        let kind = match self.kind {
            Kind::T10Dif { .. } | Kind::Crc32 => true,
            Kind::Crc32c => device.crc32c,
            Kind::Crc64 => device.crc64_xp10,
        };
        kind && (self.block != 4048 || device.block_4048)
    }

    /// Bytes of a signature.
    pub(crate) fn bytes(&self) -> u64 {
        match self.kind {
            Kind::T10Dif { .. } | Kind::Crc64 => 8,
            Kind::Crc32 | Kind::Crc32c => 4,
        }
    }

    /// Bytes of a block with its signature.
    pub(crate) fn stride(&self) -> u64 {
        self.block + self.bytes()
    }

    /// The signature of a block. The first one starts from the value to which its PSV was set.
    pub(crate) fn compute(&self, index: u64, transient: Value, data: &[u8]) -> Value {
        let seed = match (index, self.seed_ones) {
            (0, _) => transient,
            (_, true) => Value::MAX,
            (_, false) => 0,
        };
        match self.kind {
            Kind::Crc32 => u64::from(crc::crc32((seed >> 32) as u32, data)) << 32,
            Kind::Crc32c => u64::from(crc::crc32c((seed >> 32) as u32, data)) << 32,
            Kind::Crc64 => crc::crc64_xp10(seed, data),
            Kind::T10Dif { guard, application, reference, refresh, increment, .. } => {
                let seed = (seed >> 48) as u16;
                let guard = match guard {
                    Guard::Crc => crc::t10_crc(seed, data),
                    Guard::IpChecksum => crc::ip_checksum(seed, data),
                };
                let (application, reference) = match refresh {
                    true => (application, reference),
                    false => ((transient >> 32) as u16, transient as u32),
                };
                let steps = if increment { index as u32 } else { 0 };
                u64::from(guard) << 48
                    | u64::from(application) << 32
                    | u64::from(reference.wrapping_add(steps))
            }
        }
    }

    /// Compares the signature found after a block with the computed one.
    pub(crate) fn compare(&self, found: Value, computed: Value, mask: u8) -> Option<Mismatch> {
        let mut differs = (found ^ computed) & spread(mask);
        if let Kind::T10Dif { application_mask, escape, .. } = self.kind {
            let application = (found >> 32) as u16 == ESCAPE_APPLICATION;
            let exempt = match escape {
                Escape::Nothing => false,
                Escape::Application => application,
                Escape::ApplicationAndReference => application && found as u32 == ESCAPE_REFERENCE,
            };
            if exempt {
                return None;
            }
            differs &= !(u64::from(!application_mask) << 32);
            let parts = [
                (byte_mask::GUARD, SignatureErrorCqe::GUARD),
                (byte_mask::APPLICATION_TAG, SignatureErrorCqe::APPLICATION_TAG),
                (byte_mask::REFERENCE_TAG, SignatureErrorCqe::REFERENCE_TAG),
            ];
            // Of several mismatches the device reports only the first, in the order of the
            // standard.
            let first = parts.into_iter().find(|(part, _)| differs & spread(*part) != 0);
            return first.map(|(_, syndrome)| Mismatch { syndrome, found, computed });
        }
        let syndrome = SignatureErrorCqe::GUARD;
        (differs != 0).then_some(Mismatch { syndrome, found, computed })
    }

    /// The bytes of a signature after a block: T10-DIF is big-endian, CRCs are little-endian.
    pub(crate) fn encode(self, value: Value) -> Vec<u8> {
        match self.kind {
            Kind::T10Dif { .. } => value.to_be_bytes().to_vec(),
            Kind::Crc64 => value.to_le_bytes().to_vec(),
            Kind::Crc32 | Kind::Crc32c => ((value >> 32) as u32).to_le_bytes().to_vec(),
        }
    }

    /// The reverse of [`Self::encode`]. `bytes` must have the length of a signature.
    pub(crate) fn decode(self, bytes: &[u8]) -> Value {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        match self.kind {
            Kind::T10Dif { .. } => u64::from_be_bytes(word),
            Kind::Crc64 => u64::from_le_bytes(word),
            Kind::Crc32 | Kind::Crc32c => u64::from_le_bytes(word) << 32,
        }
    }
}

/// The bits of the bytes that a mask names; bit 7 is the most significant byte.
pub(crate) fn spread(mask: u8) -> Value {
    Value::from_le_bytes(std::array::from_fn(|n| if mask >> n & 1 == 1 { 0xff } else { 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn t10(repeat_seed: u8, increment_escape: u8) -> Domain {
        let inline = BsfInline {
            valid_refresh: (BsfInline::VALID | BsfInline::REFRESH).into(),
            application_tag: 0x5678.into(),
            reference_tag: 0xabcd_ef90.into(),
            signature_type: BsfInline::GUARD_CRC,
            repeat_seed: BsfInline::REPEAT | repeat_seed,
            increment_escape,
            application_tag_mask: 0xffff.into(),
            ..BsfInline::default()
        };
        Domain::parse(0, 1, &inline, Some(512)).expect("known").expect("a domain")
    }

    #[test]
    fn a_tuple_is_guard_application_tag_and_reference_tag_in_network_order() {
        let domain = t10(0, BsfInline::INCREMENT_REFERENCE);
        let mut data = [0; 32];
        data[..2].fill(0xff);
        let second = domain.compute(1, 0, &data);
        assert_eq!(domain.encode(second), [0x21, 0xb8, 0x56, 0x78, 0xab, 0xcd, 0xef, 0x91]);
        assert_eq!(domain.decode(&domain.encode(second)), second);
        assert_eq!(t10(0, 0).compute(1, 0, &data) as u32, 0xabcd_ef90, "no increment");
    }

    #[test]
    fn the_reference_tag_wraps() {
        let inline = BsfInline {
            valid_refresh: BsfInline::VALID.into(),
            signature_type: BsfInline::GUARD_IP_CHECKSUM,
            repeat_seed: BsfInline::REPEAT,
            increment_escape: BsfInline::INCREMENT_REFERENCE,
            ..BsfInline::default()
        };
        let domain = Domain::parse(0, 1, &inline, Some(512)).expect("known").expect("a domain");
        // Without refresh the tags are the PSV's.
        assert_eq!(domain.compute(3, 0x1234_ffff_ffff, &[0; 512]), 0xffff_1234_0000_0002);
    }

    #[test]
    fn the_first_block_starts_from_the_psv_and_the_others_from_the_format() {
        let domain = t10(BsfInline::SEED_ONES, 0);
        let data = b"123456789";
        assert_eq!((domain.compute(0, 0, data) >> 48) as u16, 0xd0db);
        let ones = domain.compute(0, u64::MAX, data) >> 48;
        assert_eq!(domain.compute(1, 0, data) >> 48, ones);
        assert_ne!(ones, 0xd0db);
    }

    #[test]
    fn of_several_differences_the_first_of_guard_application_and_reference_is_named() {
        let domain = t10(0, 0);
        let syndrome = |found, mask| domain.compare(found, 0, mask).map(|m| m.syndrome);
        let all = 0xff;
        assert_eq!(syndrome(0, all), None);
        assert_eq!(syndrome(1 << 48 | 1 << 32 | 1, all), Some(SignatureErrorCqe::GUARD));
        assert_eq!(syndrome(1 << 32 | 1, all), Some(SignatureErrorCqe::APPLICATION_TAG));
        assert_eq!(syndrome(1, all), Some(SignatureErrorCqe::REFERENCE_TAG));
        assert_eq!(syndrome(1 << 48, !byte_mask::GUARD), None);
        assert_eq!(syndrome(1 << 8, 0x01), None, "another byte of the reference tag");
        assert_eq!(syndrome(1 << 8, 0x02), Some(SignatureErrorCqe::REFERENCE_TAG));
    }

    #[test]
    fn escape_tags_exempt_a_block() {
        let application = 0xffffu64 << 32;
        let both = application | 0xffff_ffff;
        let checked = |flags, found| t10(0, flags).compare(found, 0x1111 << 48, 0xff).is_some();
        assert!(checked(0, both));
        assert!(!checked(BsfInline::ESCAPE_APPLICATION, application));
        assert!(checked(BsfInline::ESCAPE_APPLICATION_REFERENCE, application));
        assert!(!checked(BsfInline::ESCAPE_APPLICATION_REFERENCE, both));
        assert!(checked(BsfInline::ESCAPE_APPLICATION, 0xfffe << 32));
    }

    #[test]
    fn crcs_are_stored_little_endian() {
        let parse = |format: u8| {
            let format = format | block_format::REPEAT;
            let inline = BsfInline::default();
            Domain::parse(format, 1, &inline, Some(4096)).expect("known").expect("a domain")
        };
        // 4096 times 'a': the value that a ConnectX left in memory, read as a word of the host.
        let crc32c = parse(block_format::CRC32C);
        let value = crc32c.compute(0, u64::MAX, &[b'a'; 4096]);
        assert_eq!(crc32c.encode(value), 0x26c7_4ca2u32.to_le_bytes());
        assert_eq!(value, 0x26c7_4ca2 << 32);
        assert_eq!(crc32c.decode(&crc32c.encode(value)), value);
        let crc64 = parse(block_format::CRC64_XP10);
        let value = crc64.compute(1, 0, b"123456789");
        assert_eq!(crc64.encode(value), 0xae8b_1486_0a79_9888u64.to_le_bytes());
        let zero = parse(block_format::CRC32 | block_format::SEED_ZERO);
        assert_eq!(
            zero.compute(1, u64::MAX, b"123456789") >> 32,
            crc::crc32(0, b"123456789").into()
        );
    }

    #[test]
    fn formats_that_are_not_known_are_refused() {
        let inline = BsfInline::default();
        assert_eq!(Domain::parse(0, 1, &inline, None), Ok(None));
        assert_eq!(Domain::parse(0x32, 1, &inline, Some(512)), Err(()));
        assert_eq!(Domain::parse(block_format::CRC32, 1, &inline, Some(512)), Err(()), "once");
        assert_eq!(Domain::parse(block_format::CRC32 | 2, 1, &inline, None), Err(()), "no blocks");
    }
}
