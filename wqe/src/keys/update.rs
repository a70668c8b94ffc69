//! What a request does with a memory key.

use crate::request::error::PostError;
use crate::request::sge::Sge;
use mlx5_prm::signature::Bsf;
use mlx5_prm::umr::mkey_access;
use mlx5_prm::wqe::{BLOCK, MAX_SGE_LENGTH, UNIT};

/// Translation entries come in fours.
pub(crate) const ENTRIES_ALIGN: usize = BLOCK / UNIT;

bitflags::bitflags! {
    /// What may be done with memory by a configured key (the rights that a UMR can give).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct MkeyAccess: u8 {
        /// The device may write there for local requests.
        const LOCAL_WRITE = mkey_access::LOCAL_WRITE;
        /// Whoever has the remote key may read.
        const REMOTE_READ = mkey_access::REMOTE_READ;
        /// Whoever has the remote key may write.
        const REMOTE_WRITE = mkey_access::REMOTE_WRITE;
        /// Whoever has the remote key may do atomic operations.
        const REMOTE_ATOMIC = mkey_access::ATOMIC;
    }
}

/// One of the pieces that an interleaved layout takes in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interleaved {
    /// Where the first piece starts.
    pub addr: u64,
    /// Bytes taken in each round.
    pub bytes: u32,
    /// Bytes passed over after each.
    pub skip: u32,
    /// The key of that memory.
    pub lkey: u32,
}

/// What memory a key leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MkeyLayout<'a> {
    /// Pieces of memory, one after the other.
    List(&'a [Sge]),
    /// A piece from each of several places, and again, in rounds.
    Interleaved {
        /// Rounds.
        repeat: u32,
        /// The places.
        entries: &'a [Interleaved],
    },
}

impl<'a> MkeyLayout<'a> {
    /// The same, once it is known that the device can have it, and how long it is.
    #[inline]
    pub fn sized(self) -> Result<SizedLayout<'a>, PostError> {
        let length = self.length()?;
        Ok(SizedLayout { layout: self, length })
    }

    /// Translation entries that it takes.
    #[inline]
    pub const fn entries(&self) -> usize {
        match self {
            Self::List(sges) => sges.len(),
            Self::Interleaved { entries, .. } => entries.len() + 1,
        }
    }

    /// The bytes that the key then has, or what is wrong with it.
    #[inline]
    pub fn length(&self) -> Result<u64, PostError> {
        match *self {
            Self::List(sges) => {
                let (mut length, mut bits) = (0, 0);
                in_fours(sges, |sge| {
                    length += u64::from(sge.length);
                    bits |= sge.length;
                });
                if bits > MAX_SGE_LENGTH { Err(too_long(sges)) } else { Ok(length) }
            }
            Self::Interleaved { repeat, entries } => interleaved_length(repeat, entries),
        }
    }
}

/// Does `each` with all of `sges`, with little besides where they come in fours.
#[inline(always)]
pub(crate) fn in_fours(mut sges: &[Sge], mut each: impl FnMut(&Sge)) {
    while let Some((four, rest)) = sges.split_first_chunk::<ENTRIES_ALIGN>() {
        four.iter().for_each(&mut each);
        sges = rest;
    }
    sges.iter().for_each(each);
}

/// No length within the limit has a bit that the limit has not: all of them together tell whether
/// one is beyond it.
const _: () = assert!((MAX_SGE_LENGTH + 1).is_power_of_two());

/// Which of `sges` is too long; one is.
#[cold]
#[inline(never)]
fn too_long(sges: &[Sge]) -> PostError {
    let index = sges.iter().position(|sge| sge.length > MAX_SGE_LENGTH).unwrap_or(0);
    PostError::SgeTooLong { index: index as u32, length: sges[index].length }
}

#[inline(never)]
fn interleaved_length(repeat: u32, entries: &[Interleaved]) -> Result<u64, PostError> {
    let mut length: u64 = 0;
    for (index, entry) in entries.iter().enumerate() {
        let stride = u64::from(entry.bytes) + u64::from(entry.skip);
        // Both stand in 16 bits.
        if stride > u16::MAX.into() {
            return Err(PostError::StrideTooLong {
                index: index as u32,
                length: u32::try_from(stride).unwrap_or(u32::MAX),
            });
        }
        length += u64::from(entry.bytes);
    }
    // So many entries that this overflows are refused for their number.
    Ok(length.saturating_mul(repeat.into()))
}

/// A layout that the device can have. See [`MkeyLayout::sized`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizedLayout<'a> {
    pub(super) layout: MkeyLayout<'a>,
    pub(super) length: u64,
}

impl SizedLayout<'_> {
    /// The bytes that the key then has.
    #[inline]
    pub const fn length(&self) -> u64 {
        self.length
    }
}

/// What a request does with the signature of a key.
#[derive(Clone, Copy, Debug)]
pub enum BsfUpdate {
    /// The key keeps it.
    Keep,
    /// The key is not signed.
    Disable,
    /// The key is signed like this.
    Set(Bsf),
}

/// A protection signature variable that is set to start over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PsvUpdate {
    /// Its number.
    pub index: u32,
    /// The signature that it starts from.
    pub transient_signature: u64,
}

/// What a request does with a key that is made for signatures.
#[derive(Clone, Copy, Debug)]
pub struct SigningUpdate {
    /// What becomes of its signature.
    pub bsf: BsfUpdate,
    /// The counter of signature errors that the device is to take as seen, if it is to be told.
    pub error_count: Option<u32>,
    /// The variables that start over: the memory's, the wire's.
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

/// What a request does with a key. See [`ConfigureMkey`].
#[derive(Clone, Copy, Debug)]
pub struct MkeyUpdate<'a> {
    /// Translation entries that the key was made for.
    pub capacity: u32,
    /// New rights, if any.
    pub access: Option<MkeyAccess>,
    /// New layout, if any.
    pub layout: Option<SizedLayout<'a>>,
    /// What becomes of its signature; of a key that is not made for any, nothing.
    pub signing: Option<&'a SigningUpdate>,
}
