//! The changes that a request makes to a memory key.

use crate::request::error::PostError;
use crate::request::sge::Sge;
use mlx5_prm::signature::Bsf;
use mlx5_prm::umr::mkey_access;
use mlx5_prm::wqe::{BLOCK, MAX_SGE_LENGTH, UNIT};

/// Translation entries come in groups of four.
pub(crate) const ENTRIES_ALIGN: usize = BLOCK / UNIT;

bitflags::bitflags! {
    /// Access rights of a configured key (those that a UMR can set).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct MkeyAccess: u8 {
        /// Local requests may write.
        const LOCAL_WRITE = mkey_access::LOCAL_WRITE;
        /// Peers with the remote key may read.
        const REMOTE_READ = mkey_access::REMOTE_READ;
        /// Peers with the remote key may write.
        const REMOTE_WRITE = mkey_access::REMOTE_WRITE;
        /// Peers with the remote key may do atomics.
        const REMOTE_ATOMIC = mkey_access::ATOMIC;
    }
}

/// One entry of an interleaved layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interleaved {
    /// Address of the first piece.
    pub addr: u64,
    /// Bytes taken in each repetition.
    pub bytes: u32,
    /// Bytes skipped after each piece.
    pub skip: u32,
    /// Local key of the memory.
    pub lkey: u32,
}

/// The memory that a key covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MkeyLayout<'a> {
    /// Pieces of memory, one after the other.
    List(&'a [Sge]),
    /// A piece of each entry in turn, repeated.
    Interleaved {
        /// Number of repetitions.
        repeat: u32,
        /// The entries.
        entries: &'a [Interleaved],
    },
}

impl<'a> MkeyLayout<'a> {
    /// Checks the layout and computes its length.
    #[inline]
    pub fn sized(self) -> Result<SizedLayout<'a>, PostError> {
        let length = self.length()?;
        Ok(SizedLayout { layout: self, length })
    }

    /// The number of translation entries.
    #[inline]
    pub const fn entries(&self) -> usize {
        match self {
            Self::List(sges) => sges.len(),
            Self::Interleaved { entries, .. } => entries.len() + 1,
        }
    }

    /// Computes the length of the key in bytes, or returns what is wrong with the layout.
    #[inline]
    pub fn length(&self) -> Result<u64, PostError> {
        match *self {
            Self::List(sges) => {
                let mut total = 0;
                for (index, &Sge { length, .. }) in sges.iter().enumerate() {
                    if length > MAX_SGE_LENGTH {
                        return Err(PostError::SgeTooLong { index: index as u32, length });
                    }
                    total += u64::from(length);
                }
                Ok(total)
            }
            Self::Interleaved { repeat, entries } => interleaved_length(repeat, entries),
        }
    }
}

fn interleaved_length(repeat: u32, entries: &[Interleaved]) -> Result<u64, PostError> {
    let mut length: u64 = 0;
    for (index, entry) in entries.iter().enumerate() {
        let stride = u64::from(entry.bytes) + u64::from(entry.skip);
        // The stride and the byte count have 16 bits each.
        if stride > u16::MAX.into() {
            return Err(PostError::StrideTooLong {
                index: index as u32,
                length: u32::try_from(stride).unwrap_or(u32::MAX),
            });
        }
        length += u64::from(entry.bytes);
    }
    // A layout with enough entries to overflow is refused for their number.
    Ok(length.saturating_mul(repeat.into()))
}

/// A layout that was checked. See [`MkeyLayout::sized`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizedLayout<'a> {
    pub(super) layout: MkeyLayout<'a>,
    pub(super) length: u64,
}

impl SizedLayout<'_> {
    /// The length of the key in bytes.
    #[inline]
    pub const fn length(&self) -> u64 {
        self.length
    }
}

/// A change of a key's signature.
#[derive(Clone, Copy, Debug)]
pub enum BsfUpdate {
    /// The signature stays.
    Keep,
    /// The key is no longer signed.
    Disable,
    /// The key gets this signature.
    Set(Bsf),
}

/// A protection signature variable (PSV) to reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PsvUpdate {
    /// Its number.
    pub index: u32,
    /// The initial signature.
    pub transient_signature: u64,
}

/// Changes of a key that was created for signatures.
#[derive(Clone, Copy, Debug)]
pub struct SigningUpdate {
    /// The change of its signature.
    pub bsf: BsfUpdate,
    /// The error count that the device takes as seen, to re-arm its error reports.
    pub error_count: Option<u32>,
    /// The PSVs to reset: memory domain, wire domain.
    pub psvs: [Option<PsvUpdate>; 2],
}

impl SigningUpdate {
    pub(super) fn bsf(&self) -> Option<&Bsf> {
        match &self.bsf {
            BsfUpdate::Set(bsf) => Some(bsf),
            BsfUpdate::Keep | BsfUpdate::Disable => None,
        }
    }
}

/// The changes that a request makes to a key. See [`ConfigureMkey`](crate::ConfigureMkey).
#[derive(Clone, Copy, Debug)]
pub struct MkeyUpdate<'a> {
    /// Translation entries that the key was created for.
    pub capacity: u32,
    /// New access rights, if any.
    pub access: Option<MkeyAccess>,
    /// New layout, if any.
    pub layout: Option<SizedLayout<'a>>,
    /// Changes of its signature. `None` for a key that was not created for signatures.
    pub signing: Option<&'a SigningUpdate>,
}
