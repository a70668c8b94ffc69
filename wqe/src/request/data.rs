//! The data of a request: which forms it can have, and how they are written.

use crate::request::error::PostError;
use crate::request::sge::Sge;
use core::mem::offset_of;
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
    /// None, but up to so many 16-byte units of the operation's own follow what is counted as its
    /// remote side.
    Own(usize),
}

impl DataKind {
    /// Whether the data is the result of an atomic.
    pub(crate) const fn is_result(self) -> bool {
        matches!(self, Self::Result)
    }
}

/// Limits on the data of a request.
// Those of the fast path first: they share a cache line with what else it uses of a queue.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Limits {
    pub(crate) max_inline: usize,
    /// The maximum length of the SGE of a request with a single one; zero if the queue takes no
    /// SGEs.
    pub(crate) max_single_sge: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_message: u32,
    /// Bytes that an atomic returns; a value that no SGE's length has, if the device lacks atomics.
    pub(crate) atomic_result: u64,
}

/// One form of data.
///
/// # Safety
/// No method writes more than a request of the queue's largest size has room for behind any head,
/// or, for data that only one operation takes, more than its [`DataKind::Own`] says.
pub(crate) unsafe trait Data: Copy {
    /// The fewest 16-byte units of simple data.
    const LEAST: usize = 0;

    /// Whether the data is simple for `kind`, so that [`Data::write`] can write it. Never, unless
    /// the form has a fast path.
    #[inline(always)]
    fn is_fast(&self, _: DataKind, _: &Limits) -> bool {
        false
    }

    /// The 16-byte units of simple data. Not called for a form without a fast path, as [`Data::write`].
    fn units(&self) -> usize {
        0
    }

    /// Writes simple data.
    ///
    /// # Safety
    /// The address is the place of the data in a request of this queue.
    unsafe fn write(self, _: NonNull<u8>) {}

    /// Checks and writes any data and returns its units.
    ///
    /// # Safety
    /// `at` is the place of the data in a request of this queue.
    unsafe fn write_checked(
        self,
        at: NonNull<u8>,
        kind: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError>;
}

/// One SGE, as two words: its address; its length and key. They are loaded, kept in registers and passed
/// to the slow path as such.
#[derive(Clone, Copy)]
pub(crate) struct OneSge {
    addr: u64,
    rest: u64,
}

impl From<Sge> for OneSge {
    #[inline(always)]
    fn from(sge: Sge) -> Self {
        // SAFETY: the sizes are equal, and any bytes are valid.
        let [addr, rest] = unsafe { core::mem::transmute::<Sge, [u64; 2]>(sge) };
        Self { addr, rest: rest.to_le() }
    }
}

impl OneSge {
    #[inline(always)]
    const fn length(&self) -> u32 {
        self.rest as u32
    }

    /// Writes it by three stores: of numbers in registers of their own these take fewer instructions than two.
    ///
    /// # Safety
    /// The address is the place of the data in a request of a queue.
    #[inline(always)]
    pub(crate) unsafe fn write_numbers(self, at: NonNull<u8>) {
        let segment = DataSegment {
            byte_count: self.length().into(),
            lkey: ((self.rest >> 32) as u32).into(),
            address: self.addr.into(),
        };
        // SAFETY: there is room for one SGE.
        unsafe { at.cast().write(segment) };
    }
}

// SAFETY: one SGE is written, and only if the queue takes SGEs; otherwise as for a list.
unsafe impl Data for OneSge {
    const LEAST: usize = 1;

    #[inline(always)]
    fn is_fast(&self, kind: DataKind, limits: &Limits) -> bool {
        if kind.is_result() {
            return u64::from(self.length()) == limits.atomic_result;
        }
        // One comparison also rejects the length zero.
        self.length().wrapping_sub(1) < limits.max_single_sge
    }

    #[inline(always)]
    fn units(&self) -> usize {
        1
    }

    #[inline(always)]
    unsafe fn write(self, at: NonNull<u8>) {
        let words = [self.rest.rotate_left(32).to_be_bytes(), self.addr.to_be_bytes()];
        const _: () = {
            assert!(offset_of!(DataSegment, byte_count) == 0 && offset_of!(DataSegment, lkey) == 4);
            assert!(offset_of!(DataSegment, address) == 8);
        };
        // SAFETY: there is room for one SGE.
        unsafe { at.cast().write(words) };
    }

    unsafe fn write_checked(
        self,
        at: NonNull<u8>,
        kind: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        let Self { addr, rest } = self;
        let sge = Sge { addr, length: self.length(), lkey: (rest >> 32) as u32 };
        // SAFETY: by the caller's contract.
        unsafe { (&[sge][..]).write_checked(at, kind, limits) }
    }
}

// SAFETY: at most `max_sge` SGEs are written.
unsafe impl Data for &[Sge] {
    unsafe fn write_checked(
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
pub(crate) struct Inline<'a>(pub(crate) &'a [u8]);

// SAFETY: at most `max_inline` bytes are written behind their header.
unsafe impl Data for Inline<'_> {
    const LEAST: usize = 1;

    #[inline(always)]
    fn is_fast(&self, _: DataKind, limits: &Limits) -> bool {
        // One comparison also rejects the length zero.
        self.0.len().wrapping_sub(1) < limits.max_inline
    }

    #[inline(always)]
    fn units(&self) -> usize {
        inline_units(self.0.len())
    }

    #[inline(always)]
    unsafe fn write(self, at: NonNull<u8>) {
        let header = U32::new(self.0.len() as u32 | INLINE);
        // SAFETY: there is room for the header and the bytes, of which there is at least one.
        unsafe {
            at.cast().write(header);
            copy_inline(at.byte_add(INLINE_HEADER), self.0.as_ptr(), self.0.len());
        }
    }

    unsafe fn write_checked(
        self,
        at: NonNull<u8>,
        kind: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        // SAFETY: by the caller's contract.
        unsafe { InlineList(&[self.0]).write_checked(at, kind, limits) }
    }
}

/// Bytes to copy into the request, from a list of slices.
#[derive(Clone, Copy)]
pub(crate) struct InlineList<'a>(pub(crate) &'a [&'a [u8]]);

// SAFETY: at most `max_inline` bytes are written behind their header.
unsafe impl Data for InlineList<'_> {
    unsafe fn write_checked(
        self,
        at: NonNull<u8>,
        _: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        let length = self.0.iter().fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
        if length > limits.max_inline {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            return Err(PostError::InlineTooLong { length, max: limits.max_inline as u32 });
        }
        if length == 0 {
            return Ok(0);
        }
        let mut offset = INLINE_HEADER;
        // SAFETY: there is room for the header and `length` bytes.
        unsafe {
            at.cast().write(U32::new(length as u32 | INLINE));
            for piece in self.0 {
                at.byte_add(offset).as_ptr().copy_from_nonoverlapping(piece.as_ptr(), piece.len());
                offset += piece.len();
            }
        }
        Ok(offset.div_ceil(UNIT))
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
    /// The bytes at each address are readable while the request is posted. Other threads and devices
    /// may write them meanwhile: then it is not known which value is sent.
    pub const unsafe fn new(sges: &'a [Sge]) -> Self {
        Self(sges)
    }

    /// Returns where the bytes are.
    #[inline(always)]
    pub const fn pieces(&self) -> &'a [Sge] {
        self.0
    }

    /// Whether it is one piece: then its place and length.
    #[inline(always)]
    pub(crate) fn single(&self) -> Option<InlineBytesAt> {
        match *self.0 {
            [Sge { addr, length, .. }] => Some(InlineBytesAt { addr, length }),
            _ => None,
        }
    }
}

/// One piece of [`InlineSges`].
#[derive(Clone, Copy)]
pub(crate) struct InlineBytesAt {
    addr: u64,
    length: u32,
}

impl InlineBytesAt {
    /// Bytes that are readable as long as the value is used.
    #[inline(always)]
    pub(crate) fn new(from: *const u8, length: u32) -> Self {
        Self { addr: from.expose_provenance() as u64, length }
    }
}

// SAFETY: at most `max_inline` bytes are written behind their header.
unsafe impl Data for InlineBytesAt {
    const LEAST: usize = 1;

    #[inline(always)]
    fn is_fast(&self, _: DataKind, limits: &Limits) -> bool {
        // One comparison also rejects the length zero.
        (self.length as usize).wrapping_sub(1) < limits.max_inline
    }

    #[inline(always)]
    fn units(&self) -> usize {
        inline_units(self.length as usize)
    }

    #[inline(always)]
    unsafe fn write(self, at: NonNull<u8>) {
        let length = self.length as usize;
        // SAFETY: there is room for the header and the bytes, of which there is at least one. They
        // are readable by the contract of `InlineSges::new`.
        unsafe {
            at.cast().write(U32::new(self.length | INLINE));
            let from = core::ptr::with_exposed_provenance(self.addr as usize);
            copy_inline(at.byte_add(INLINE_HEADER), from, length);
        }
    }

    unsafe fn write_checked(
        self,
        at: NonNull<u8>,
        kind: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        let sge = Sge { addr: self.addr, length: self.length, lkey: 0 };
        // SAFETY: by the caller's contract.
        unsafe { InlineSges(&[sge]).write_checked(at, kind, limits) }
    }
}

// SAFETY: at most `max_inline` bytes are written behind their header.
unsafe impl Data for InlineSges<'_> {
    unsafe fn write_checked(
        self,
        at: NonNull<u8>,
        _: DataKind,
        limits: &Limits,
    ) -> Result<usize, PostError> {
        let length = self.0.iter().fold(0_u64, |sum, sge| sum + u64::from(sge.length));
        if length > limits.max_inline as u64 {
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            return Err(PostError::InlineTooLong { length, max: limits.max_inline as u32 });
        }
        if length == 0 {
            return Ok(0);
        }
        let mut offset = INLINE_HEADER;
        // SAFETY: there is room for the header and `length` bytes, which are readable by the contract
        // of `InlineSges::new`.
        unsafe {
            at.cast().write(U32::new(length as u32 | INLINE));
            for sge in self.0.iter().filter(|sge| sge.length != 0) {
                let from = core::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
                let length = sge.length as usize;
                at.byte_add(offset).as_ptr().copy_from_nonoverlapping(from, length);
                offset += length;
            }
        }
        Ok(offset.div_ceil(UNIT))
    }
}

/// Writes the SGE in which an atomic returns the previous value.
///
/// # Safety
/// `at` has room for an SGE.
#[cold]
unsafe fn write_result(at: NonNull<u8>, sges: &[Sge], limits: &Limits) -> Result<usize, PostError> {
    if limits.atomic_result != ATOMIC_RESULT {
        return Err(PostError::NoAtomics);
    }
    match *sges {
        [sge] if u64::from(sge.length) == ATOMIC_RESULT => {
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
pub(crate) const ATOMIC_RESULT: u64 = 8;

// SAFETY: nothing is written.
unsafe impl Data for () {
    unsafe fn write_checked(
        self,
        _: NonNull<u8>,
        _: DataKind,
        _: &Limits,
    ) -> Result<usize, PostError> {
        Ok(0)
    }
}

/// Bytes of the header of inline data.
pub(crate) const INLINE_HEADER: usize = 4;

/// The 16-byte units of `length` bytes of inline data, of which there is at least one: as many as begin
/// before the last byte.
#[inline(always)]
const fn inline_units(length: usize) -> usize {
    1 + (INLINE_HEADER + length - 1) / UNIT
}

/// # Safety
/// `at` has 16 writable bytes.
#[inline(always)]
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

/// Copies a few bytes without a call, by words that may overlap but do not pass either end.
///
/// # Safety
/// `to` has room for `length` bytes, of which there is at least one, and `from` is readable for them.
#[inline(always)]
unsafe fn copy_inline(to: NonNull<u8>, from: *const u8, length: usize) {
    let to = to.as_ptr();
    // SAFETY: a word is copied only at offsets at which it ends at or before `length`.
    unsafe {
        if length >= 8 {
            copy_word::<u64>(to, from, length - 8);
            let mut offset = 0;
            while offset + 8 < length {
                copy_word::<u64>(to, from, offset);
                offset = opaque(offset + 8);
            }
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
    // SAFETY: by the caller's contract; no alignment is needed.
    unsafe {
        let word = from.add(offset).cast::<W>().read_unaligned();
        to.add(offset).cast::<W>().write_unaligned(word);
    }
}

/// Returns the same number, hidden from the optimizer, which would otherwise replace the copying
/// loop by a call.
#[inline(always)]
fn opaque(number: usize) -> usize {
    #[cfg(not(miri))]
    let number = {
        let mut number = number;
        // SAFETY: the assembly has no instruction.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
        }
        number
    };
    number
}
