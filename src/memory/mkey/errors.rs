//! Signature errors, which pollers of completion queues report to the keys.

use super::signature::{Crc, Domain, Signature, SignatureBlock};
use mlx5_prm::signature::SignatureErrorCqe;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The domain of a signature.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// The wire domain.
    Wire,
    /// The memory domain.
    Memory,
}

/// The part of a signature that did not match (`enum mlx5dv_mkey_err_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SignatureErrorKind {
    /// The guard of T10-DIF, or the CRC.
    Guard,
    /// The reference tag.
    ReferenceTag,
    /// The application tag.
    ApplicationTag,
    /// Unknown whether there was an error: the transfer was posted before an earlier error of its
    /// key was known, and the device reports nothing then. The other fields have no meaning. See
    /// [`Mkey::check`](super::Mkey::check).
    Unchecked,
    /// The transfer was bad, but its details were dropped: 256 earlier errors of its key were
    /// waiting for [`Mkey::check`](super::Mkey::check). The other fields have no meaning.
    Lost,
    /// An error that is not known here, with the device's code. The values are as the device wrote
    /// them.
    Other(u16),
}

/// A signature error (`struct mlx5dv_mkey_err`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SignatureError {
    /// The part that did not match.
    pub kind: SignatureErrorKind,
    /// The domain.
    pub side: Side,
    /// The value of the signature.
    pub expected: u64,
    /// The value computed from the data or the configuration of the key.
    pub actual: u64,
    /// Offset in the transfer, in bytes.
    pub offset: u64,
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            SignatureErrorKind::Unchecked => {
                return f.write_str(
                    "not checked: the transfer was posted before an earlier signature error of its \
                     key was known, and the device reports no further one until the key is configured; \
                     configure it again and repeat the transfer",
                );
            }
            SignatureErrorKind::Lost => {
                return f.write_str(
                    "bad, but where and why was not kept: too many earlier errors of the key were \
                     waiting to be checked",
                );
            }
            SignatureErrorKind::Guard => "guard",
            SignatureErrorKind::ReferenceTag => "reference tag",
            SignatureErrorKind::ApplicationTag => "application tag",
            SignatureErrorKind::Other(_) => "signature",
        };
        let side = match self.side {
            Side::Wire => "wire",
            Side::Memory => "memory",
        };
        write!(
            f,
            "bad {what} in the {side} domain at byte {}: expected {:#x}, actual {:#x}",
            self.offset, self.expected, self.actual
        )?;
        if let SignatureErrorKind::Other(code) = self.kind {
            write!(f, " (device's code {code:#06x})")?;
        }
        Ok(())
    }
}

impl std::error::Error for SignatureError {}

impl SignatureError {
    /// The result of an unchecked transfer.
    pub(super) const UNCHECKED: Self = Self::bare(SignatureErrorKind::Unchecked);
    /// An error of which nothing was kept.
    const LOST: Self = Self::bare(SignatureErrorKind::Lost);

    const fn bare(kind: SignatureErrorKind) -> Self {
        Self { kind, side: Side::Memory, expected: 0, actual: 0, offset: 0 }
    }

    /// Decodes a signature error CQE of a key that is signed as in `block`.
    fn read(entry: &SignatureErrorCqe, block: Option<&SignatureBlock>) -> Self {
        let both = |signature: u32, tag: u32| u64::from(signature) << 32 | u64::from(tag);
        let expected =
            both(entry.expected_transaction_signature.get(), entry.expected_reference_tag.get());
        let actual =
            both(entry.actual_transaction_signature.get(), entry.actual_reference_tag.get());
        // Domain and type have three bits each. Nothing here configures signatures of transactions.
        let side = if entry.domain & 7 == 0 { Side::Wire } else { Side::Memory };
        let domain: Option<Domain> = block.and_then(|block| match side {
            Side::Wire => block.wire,
            Side::Memory => block.memory,
        });
        let syndrome = entry.syndrome.get();
        let known = domain.filter(|_| entry.signature_type & 7 == 0 && entry.domain & 7 <= 1);
        let (kind, part): (_, fn(u64) -> u64) = match known {
            Some(_) if syndrome & SignatureErrorCqe::REFERENCE_TAG != 0 => {
                (SignatureErrorKind::ReferenceTag, |value| value & 0xffff_ffff)
            }
            Some(_) if syndrome & SignatureErrorCqe::APPLICATION_TAG != 0 => {
                (SignatureErrorKind::ApplicationTag, |value| value >> 32 & 0xffff)
            }
            Some(domain) if syndrome & SignatureErrorCqe::GUARD != 0 => (
                SignatureErrorKind::Guard,
                match domain.signature {
                    Signature::T10Dif(_) => |value| value >> 48,
                    Signature::Crc(Crc::Crc64Xp10(_)) => |value| value,
                    Signature::Crc(_) => |value| value >> 32,
                },
            ),
            _ => (SignatureErrorKind::Other(syndrome), |value| value),
        };
        Self {
            kind,
            side,
            expected: part(expected),
            actual: part(actual),
            offset: entry.offset.get(),
        }
    }
}

/// The maximum number of errors kept for a key. A domain in error reports no more until its PSV is
/// set again, so a correct device stays far below it.
const MAX_ERRORS: usize = 256;

/// The errors of one key. Pollers on any thread add to them.
#[derive(Default)]
pub(crate) struct Errors(Mutex<Found>);

#[derive(Default)]
struct Found {
    /// All errors so far; the device counts them the same way.
    count: u32,
    waiting: VecDeque<SignatureError>,
    lost: u64,
}

impl Errors {
    fn lock(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an error of the key, which is signed as in `block`. Returns the error count that
    /// the device had before this error.
    pub(crate) fn add(&self, entry: &SignatureErrorCqe, block: Option<&SignatureBlock>) -> u32 {
        let error = SignatureError::read(entry, block);
        let mut found = self.lock();
        found.count = found.count.wrapping_add(1);
        // Keep the first ones: later ones may be their consequences.
        if found.waiting.len() < MAX_ERRORS {
            found.waiting.push_back(error);
        } else {
            found.lost += 1;
        }
        found.count
    }

    /// Returns the error count as the device has it, which starts at one.
    pub(crate) fn count(&self) -> u32 {
        self.lock().count.wrapping_add(1)
    }

    /// Removes and returns the oldest error. If its details were dropped, it says only that the
    /// transfer was bad.
    pub(crate) fn take(&self) -> Option<SignatureError> {
        let mut found = self.lock();
        found.waiting.pop_front().or_else(|| {
            found.lost = found.lost.checked_sub(1)?;
            Some(SignatureError::LOST)
        })
    }

    /// Returns how many errors were not taken, including those that were not kept.
    pub(crate) fn waiting(&self) -> u64 {
        let found = self.lock();
        found.waiting.len() as u64 + found.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn the_first_errors_are_kept_and_what_is_too_much_is_counted() {
        let errors = Errors::default();
        for number in 1..=MAX_ERRORS as u32 + 3 {
            assert_eq!(errors.add(&SignatureErrorCqe::new_zeroed(), None), number);
        }
        assert_eq!(errors.waiting(), MAX_ERRORS as u64 + 3);
        let taken: Vec<_> = std::iter::from_fn(|| errors.take().map(|error| error.kind)).collect();
        let (kept, lost) = taken.split_at(MAX_ERRORS);
        assert_eq!(kept, [SignatureErrorKind::Other(0); MAX_ERRORS], "as the device wrote them");
        assert_eq!(lost, [SignatureErrorKind::Lost; 3], "bad all the same");
        assert_eq!(errors.waiting(), 0);
    }

    #[test]
    fn an_error_is_told_with_what_where_and_both_values() {
        let error =
            |kind, side| SignatureError { kind, side, expected: 0xab, actual: 0, offset: 512 };
        let cases = [
            (
                error(SignatureErrorKind::Guard, Side::Wire),
                "bad guard in the wire domain at byte 512: expected 0xab, actual 0x0",
            ),
            (
                error(SignatureErrorKind::ReferenceTag, Side::Memory),
                "bad reference tag in the memory domain at byte 512: expected 0xab, actual 0x0",
            ),
            (
                error(SignatureErrorKind::ApplicationTag, Side::Memory),
                "bad application tag in the memory domain at byte 512: expected 0xab, actual 0x0",
            ),
            (
                error(SignatureErrorKind::Other(0x2000), Side::Wire),
                "bad signature in the wire domain at byte 512: expected 0xab, actual 0x0 \
                 (device's code 0x2000)",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
        let text = SignatureError::UNCHECKED.to_string();
        assert!(text.contains("not checked") && text.contains("repeat the transfer"), "{text}");
        let text = SignatureError::LOST.to_string();
        assert!(text.starts_with("bad") && text.contains("not kept"), "{text}");
    }
}
