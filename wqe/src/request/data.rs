//! The data of a request: which forms it can have, and how they are written.

use crate::request::error::PostError;
use crate::request::sge::Sge;
use core::ptr::NonNull;
use mlx5_prm::wqe::{DataSegment, INLINE, MAX_SGE_LENGTH, UNIT};
use mlx5_prm::{U32, U64};

/// The kind of data of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataKind {
    /// Pieces of memory, up to the limits of the queue.
    Message,
    /// One piece of eight bytes, which receives the previous value.
    Result,
    /// None. At most this number of the operation's own 16-byte units follows its remote side.
    Own(usize),
}

impl DataKind {
    /// Whether the data is the result of an atomic.
    pub(crate) const fn is_result(self) -> bool {
        matches!(self, Self::Result)
    }
}

/// Limits on requests.
pub(crate) struct Limits {
    /// Blocks of the largest request.
    pub(crate) max_blocks: u32,
    pub(crate) max_inline: u32,
    /// The maximum length of the SGE of a request with a single one; zero if the queue takes no
    /// SGEs.
    pub(crate) max_single_sge: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_message: u32,
    pub(crate) has_atomics: bool,
    /// Of packets to be cut into segments.
    pub(crate) tso: TsoLimits,
}

/// Limits on packets to be cut into segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TsoLimits {
    /// Longest headers.
    pub(crate) max_header: u32,
    /// Longest packet, headers included.
    pub(crate) max_total: u32,
    /// 16-byte units of the largest request.
    pub(crate) max_units: u32,
}

impl TsoLimits {
    /// A queue that takes none.
    pub(crate) const NONE: Self = Self { max_header: 0, max_total: 0, max_units: 0 };
}

/// One form of data.
///
/// # Safety
/// No method writes more than a request of the queue's largest size has room for after any head,
/// or, for data that only one operation takes, more than its [`DataKind::Own`] says.
/// [`Data::write_fast`] writes as many units as [`Data::fast_units`] returns.
pub(crate) unsafe trait Data: Copy {
    /// Returns the 16-byte units of data that is one piece, not empty, and within the limits.
    /// Nothing for all other data, which [`Data::write`] checks.
    #[inline(always)]
    fn fast_units(&self, _: DataKind, _: &Limits) -> Option<usize> {
        None
    }

    /// Writes such data.
    ///
    /// # Safety
    /// The address is the place of the data in a request of a queue for whose limits
    /// [`Data::fast_units`] returned something.
    #[inline(always)]
    unsafe fn write_fast(self, _: NonNull<u8>) {}

    /// Checks and writes any data, and returns its units.
    ///
    /// # Safety
    /// `at` is the place of the data in a request of the queue that has these limits.
    unsafe fn write(
        self,
        at: NonNull<u8>,
        kind: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError>;
}

// SAFETY: one SGE is written, and only if the queue takes SGEs; otherwise as for a list.
unsafe impl Data for Sge {
    #[inline(always)]
    fn fast_units(&self, kind: DataKind, limits: &Limits) -> Option<usize> {
        let is_usual = match kind {
            DataKind::Result => limits.has_atomics && self.length == ATOMIC_RESULT,
            // One comparison also rejects the length zero.
            _ => self.length.wrapping_sub(1) < limits.max_single_sge,
        };
        is_usual.then_some(1)
    }

    #[inline(always)]
    unsafe fn write_fast(self, at: NonNull<u8>) {
        // SAFETY: by the contract.
        unsafe { write_sge(at, self) };
    }

    unsafe fn write(
        self,
        at: NonNull<u8>,
        kind: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        // SAFETY: by the contract.
        unsafe { core::slice::from_ref(&self).write(at, kind, limits) }
    }
}

// SAFETY: at most `max_sge` SGEs are written.
unsafe impl Data for &[Sge] {
    unsafe fn write(
        self,
        at: NonNull<u8>,
        kind: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        if kind.is_result() {
            // SAFETY: there is room for the SGE of the result.
            return unsafe { write_result(at, self, limits) };
        }
        // SAFETY: there is room for `max_sge` SGEs.
        unsafe { write_sges(at, self, limits.max_sge, Some(limits.max_message)) }
    }
}

/// Bytes to copy into the request.
#[derive(Clone, Copy)]
pub(crate) struct InlineBytes<'a>(pub(crate) &'a [u8]);

// SAFETY: at most `max_inline` bytes are written after their header.
unsafe impl Data for InlineBytes<'_> {
    #[inline(always)]
    fn fast_units(&self, _: DataKind, limits: &Limits) -> Option<usize> {
        usual_inline_units(self.0.len(), limits)
    }

    #[inline(always)]
    unsafe fn write_fast(self, at: NonNull<u8>) {
        // SAFETY: by the contract.
        unsafe { write_piece(at, self.0.as_ptr(), self.0.len()) };
    }

    unsafe fn write(
        self,
        at: NonNull<u8>,
        kind: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        // SAFETY: by the contract.
        unsafe { InlineList(&[self.0]).write(at, kind, limits) }
    }
}

/// Bytes to copy into the request, from a list of slices.
#[derive(Clone, Copy)]
pub(crate) struct InlineList<'a>(pub(crate) &'a [&'a [u8]]);

// SAFETY: at most `max_inline` bytes are written after their header.
unsafe impl Data for InlineList<'_> {
    unsafe fn write(
        self,
        at: NonNull<u8>,
        _: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        let pieces = self.0.iter().map(|piece| (piece.as_ptr(), piece.len()));
        // SAFETY: by the contract.
        unsafe { write_pieces(at, limits, pieces) }
    }
}

/// Bytes that are copied into the WQE from the addresses of SGEs (`IBV_SEND_INLINE`); the keys are
/// not used.
#[derive(Clone, Copy, Debug)]
pub struct InlineSges<'a>(&'a [Sge]);

impl<'a> InlineSges<'a> {
    /// Takes the bytes from `sges`.
    ///
    /// # Safety
    /// The bytes at each address are readable while the request is posted. Other threads and
    /// devices may write them meanwhile: then it is not known which value is sent.
    pub const unsafe fn new(sges: &'a [Sge]) -> Self {
        Self(sges)
    }

    /// Returns where the bytes are.
    #[inline]
    pub const fn pieces(&self) -> &'a [Sge] {
        self.0
    }
}

/// Returns where the bytes of one of [`InlineSges`] are.
#[inline]
fn bytes_of(sge: &Sge) -> (*const u8, usize) {
    (core::ptr::with_exposed_provenance(sge.addr as usize), sge.length as usize)
}

// SAFETY: at most `max_inline` bytes are written after their header.
unsafe impl Data for InlineSges<'_> {
    #[inline(always)]
    fn fast_units(&self, _: DataKind, limits: &Limits) -> Option<usize> {
        let [sge] = self.0 else { return None };
        usual_inline_units(sge.length as usize, limits)
    }

    #[inline(always)]
    unsafe fn write_fast(self, at: NonNull<u8>) {
        if let [sge] = self.0 {
            let (from, length) = bytes_of(sge);
            // SAFETY: by the contract, and that of `InlineSges::new`.
            unsafe { write_piece(at, from, length) };
        }
    }

    unsafe fn write(
        self,
        at: NonNull<u8>,
        _: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        // SAFETY: by the contract, and that of `InlineSges::new`.
        unsafe { write_pieces(at, limits, self.0.iter().map(bytes_of)) }
    }
}

/// The units of one piece of inline data, if it is not empty, and within the limits.
#[inline]
fn usual_inline_units(length: usize, limits: &Limits) -> Option<usize> {
    // One comparison also rejects the length zero.
    (length.wrapping_sub(1) < limits.max_inline as usize).then(|| inline_units(length))
}

/// Writes one piece of inline data.
///
/// # Safety
/// `at` has room for the header and `length` bytes, of which there is at least one. They are
/// readable.
#[inline(always)]
unsafe fn write_piece(at: NonNull<u8>, from: *const u8, length: usize) {
    // SAFETY: by the contract.
    unsafe {
        at.cast().write(U32::new(length as u32 | INLINE));
        copy_inline(at.byte_add(INLINE_HEADER).as_ptr(), from, length);
    }
}

/// Checks and writes inline data in pieces, and returns its units.
///
/// # Safety
/// As for [`Data::write`]. The pieces are readable, if they are within the limits.
unsafe fn write_pieces(
    at: NonNull<u8>,
    limits: &Limits,
    pieces: impl Iterator<Item = (*const u8, usize)> + Clone,
) -> Result<usize, PostError> {
    let length = pieces.clone().fold(0_usize, |sum, (_, length)| sum.saturating_add(length));
    if length > limits.max_inline as usize {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        return Err(PostError::InlineTooLong { length, max: limits.max_inline });
    }
    if length == 0 {
        return Ok(0);
    }
    // SAFETY: there is room for the header and `length` bytes.
    unsafe {
        at.cast().write(U32::new(length as u32 | INLINE));
        let mut to = at.byte_add(INLINE_HEADER).as_ptr();
        for (from, length) in pieces.filter(|(_, length)| *length != 0) {
            to.copy_from_nonoverlapping(from, length);
            to = to.add(length);
        }
    }
    Ok(inline_units(length))
}

/// Writes the SGE in which an atomic returns the previous value.
///
/// # Safety
/// `at` has room for an SGE.
#[cold]
unsafe fn write_result(at: NonNull<u8>, sges: &[Sge], limits: &Limits) -> Result<usize, PostError> {
    if !limits.has_atomics {
        return Err(PostError::NoAtomics);
    }
    match *sges {
        [sge] if sge.length == ATOMIC_RESULT => {
            // SAFETY: by the caller's contract.
            unsafe { write_sge(at, sge) };
            Ok(1)
        }
        _ => Err(PostError::AtomicResult {
            entries: u32::try_from(sges.len()).unwrap_or(u32::MAX),
            length: sges.first().map_or(0, |sge| sge.length),
        }),
    }
}

/// Bytes that an atomic returns.
const ATOMIC_RESULT: u32 = 8;

// SAFETY: nothing is written.
unsafe impl Data for () {
    unsafe fn write(self, _: NonNull<u8>, _: DataKind, _: &Limits) -> Result<usize, PostError> {
        Ok(0)
    }
}

/// Bytes of the header of inline data.
pub(crate) const INLINE_HEADER: usize = 4;

/// The 16-byte units of `length` bytes of inline data, of which there is at least one: as many as
/// begin before the last byte.
#[inline]
const fn inline_units(length: usize) -> usize {
    1 + (INLINE_HEADER + length - 1) / UNIT
}

/// # Safety
/// `at` has 16 writable bytes.
#[inline]
pub(crate) unsafe fn write_sge(at: NonNull<u8>, sge: Sge) {
    let segment = DataSegment {
        byte_count: U32::new(sge.length),
        lkey: U32::new(sge.lkey),
        address: U64::new(sge.addr),
    };
    // SAFETY: by the caller's contract; a segment needs no alignment.
    unsafe { at.cast().write(segment) };
}

/// Checks a list, writes its SGEs that are not empty and returns their number. Their total length
/// may be at most `max_message`, if that is given.
///
/// # Safety
/// `at` has room for `max_sge` SGEs.
pub(crate) unsafe fn write_sges(
    at: NonNull<u8>,
    sges: &[Sge],
    max_sge: u32,
    max_message: Option<u32>,
) -> Result<usize, PostError> {
    if sges.len() > max_sge as usize {
        let given = u32::try_from(sges.len()).unwrap_or(u32::MAX);
        return Err(PostError::TooManySges { given, max: max_sge });
    }
    let mut units = 0;
    let mut total = 0;
    for (index, &sge) in sges.iter().enumerate() {
        if sge.length > MAX_SGE_LENGTH {
            return Err(PostError::SgeTooLong { index: index as u32, length: sge.length });
        }
        if sge.length == 0 {
            continue;
        }
        total += u64::from(sge.length);
        // SAFETY: `units` is at most `index`, which is less than `max_sge`.
        unsafe { write_sge(at.byte_add(units * UNIT), sge) };
        units += 1;
    }
    if let Some(max) = max_message
        && total > u64::from(max)
    {
        let length = u32::try_from(total).unwrap_or(u32::MAX);
        return Err(PostError::MessageTooLong { length, max });
    }
    Ok(units)
}

/// Copies bytes, few of them without a call: by words that may overlap and do not pass either end.
///
/// # Safety
/// `to` has room for `length` bytes, of which there is at least one, and `from` is readable for
/// them.
#[inline(always)]
unsafe fn copy_inline(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: a word is copied only at offsets at which it ends at or before `length`.
    unsafe {
        if length > 16 {
            to.copy_from_nonoverlapping(from, length);
        } else if length >= 8 {
            copy_word::<u64>(to, from, 0);
            copy_word::<u64>(to, from, length - 8);
        } else if length >= 4 {
            copy_word::<u32>(to, from, 0);
            copy_word::<u32>(to, from, length - 4);
        } else {
            copy_word::<u8>(to, from, 0);
            copy_word::<u8>(to, from, length / 2);
            copy_word::<u8>(to, from, length - 1);
        }
    }
}

/// # Safety
/// `to` and `from` each have a `W` at `offset`.
#[inline(always)]
unsafe fn copy_word<W>(to: *mut u8, from: *const u8, offset: usize) {
    // SAFETY: by the contract; no alignment is needed.
    unsafe {
        let word = from.add(offset).cast::<W>().read_unaligned();
        to.add(offset).cast::<W>().write_unaligned(word);
    }
}
