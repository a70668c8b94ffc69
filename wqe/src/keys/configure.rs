//! Configuring memory keys from the send queue (`mlx5dv_wr_mkey_configure`): a UMR, and behind it a
//! SET_PSV for each domain that is signed. Together they are one request.

use crate::request::error::PostError;
use crate::request::flags::SendFlags;
use crate::request::sge::Sge;
use crate::request::transport::{Rc, Transport};
use crate::send::batch::Wr;
use crate::send::build::{Cursor, blocks_of};
use crate::send::journal::Change;
use crate::send::queue::SendQueue;
use crate::send::records::RequestInfo;
use core::marker::PhantomData;
use core::mem::{offset_of, size_of};
use core::ptr::NonNull;
use mlx5_prm::signature::{Bsf, SetPsvSegment};
use mlx5_prm::umr::{
    Klm, MkeyContextSegment, RepeatBlock, RepeatEntry, UmrControlSegment, mkey_access, mkey_mask,
    umr_flags,
};
use mlx5_prm::wqe::{
    BLOCK, ControlSegment, MAX_SGE_LENGTH, MAX_UNITS, Opcode, UNIT, control_flags,
};
use mlx5_prm::zerocopy::{IntoBytes, Unaligned};
use mlx5_prm::{U16, U32, U64};

/// A transport whose queues configure memory keys.
pub trait ConfiguresMkeys: Transport {}
impl ConfiguresMkeys for Rc {}

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
fn in_fours(mut sges: &[Sge], mut each: impl FnMut(&Sge)) {
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
    layout: MkeyLayout<'a>,
    length: u64,
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
    fn bsf(&self) -> Option<&Bsf> {
        match &self.bsf {
            BsfUpdate::Set(bsf) => Some(bsf),
            BsfUpdate::Keep | BsfUpdate::Disable => None,
        }
    }
}

/// What is to be made of a key. Whoever owns the key knows what a request then does.
pub trait ConfigureMkey {
    /// Builds `request`, or refuses it.
    fn configure<'q, T: ConfiguresMkeys>(&self, request: MkeyRequest<'q, T>) -> Finished<'q>;
}

/// A request that is to configure a key.
#[must_use = "it is to be built or refused"]
pub struct MkeyRequest<'q, T> {
    queue: &'q mut SendQueue<T>,
    cursor: Cursor,
    wr_id: u64,
    flags: SendFlags,
}

/// Says that the request of `'q` was built, or refused: that one and no other, for the lifetime can
/// stand for no other.
#[must_use = "whoever asks for it wants it back"]
pub struct Finished<'q>(Cursor, PhantomData<fn(&'q ()) -> &'q ()>);

impl<'q, T: ConfiguresMkeys> MkeyRequest<'q, T> {
    /// Builds it. `change` is asked once it is certain that it is built: what is the key, variant byte
    /// included, and what does its owner take it to be then?
    ///
    /// Each call of this is a copy of all that builds a request; what is usual can have one that does
    /// nothing else.
    #[inline(always)]
    pub fn build(
        self,
        update: MkeyUpdate<'_>,
        change: impl FnOnce() -> (u32, Change),
    ) -> Finished<'q> {
        let Self { queue, cursor, wr_id, flags } = self;
        match queue.build_mkey(cursor, wr_id, flags, update, change) {
            Ok(next) => Finished(next, PhantomData),
            Err(error) => Self { queue, cursor, wr_id, flags }.refuse(error),
        }
    }

    /// Refuses it, and with it the batch.
    #[cold]
    #[inline(never)]
    pub fn refuse(self, error: PostError) -> Finished<'q> {
        Finished(self.queue.refuse(self.cursor, error), PhantomData)
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

/// 16-byte units of a UMR before its translation entries.
const HEAD_UNITS: usize = (size_of::<ControlSegment>()
    + size_of::<UmrControlSegment>()
    + size_of::<MkeyContextSegment>())
    / UNIT;
const BSF_UNITS: usize = size_of::<Bsf>() / UNIT;
const PSV_UNITS: usize = 1 + size_of::<SetPsvSegment>() / UNIT;
// It is always in one piece.
const _: () = assert!(blocks_of(PSV_UNITS) == 1);
/// Translation entries come in fours.
const ENTRIES_ALIGN: usize = BLOCK / UNIT;

/// The most translation entries that a request can carry, beside a signature.
pub const MAX_MKEY_ENTRIES: usize =
    (MAX_UNITS - HEAD_UNITS - BSF_UNITS) / ENTRIES_ALIGN * ENTRIES_ALIGN;

/// Blocks that a request takes which gives a key `entries` translation entries and signs it.
pub const fn mkey_update_blocks(entries: usize, signed: bool) -> u32 {
    let entries = entries.next_multiple_of(ENTRIES_ALIGN);
    let umr = HEAD_UNITS + entries + if signed { BSF_UNITS } else { 0 };
    blocks_of(umr) + if signed { 2 * blocks_of(PSV_UNITS) } else { 0 }
}

/// Writes the parts of a WQE one behind the other.
struct Writer {
    to: NonNull<u8>,
}

impl Writer {
    /// # Safety
    /// There is room for it.
    #[inline(always)]
    unsafe fn put<P: IntoBytes + Unaligned>(&mut self, part: P) {
        // SAFETY: by the contract; it needs no alignment.
        unsafe {
            self.to.cast::<P>().write(part);
            self.to = self.to.byte_add(size_of::<P>());
        }
    }

    /// # Safety
    /// There is room for them.
    #[inline(always)]
    unsafe fn put_zeros(&mut self, units: usize) {
        for _ in 0..units {
            // SAFETY: by the contract.
            unsafe { self.put([0_u8; UNIT]) };
        }
    }
}

/// The place of a WQE among those of its request.
#[derive(Clone, Copy)]
struct Part {
    opcode: Opcode,
    /// Immediate word of its control segment.
    key: u32,
    units: usize,
    /// Fence and completion bits.
    control: u8,
    /// [`RequestInfo::MORE`], [`RequestInfo::CONTINUES`].
    place: u32,
}

impl<T: ConfiguresMkeys> Wr<'_, '_, T> {
    /// Configures a memory key (`mlx5dv_wr_mkey_configure`), and finishes the request. Requests that
    /// follow on this queue find the key configured. With [`SendFlags::SIGNALED`] one completion
    /// comes, once all of it is done.
    #[inline]
    pub fn mkey_configure(self, key: impl ConfigureMkey) {
        let Self { batch, wr_id, flags } = self;
        batch.push_keyed(|queue, cursor| queue.push_mkey(cursor, wr_id, flags, &key));
    }
}

impl<T: ConfiguresMkeys> SendQueue<T> {
    #[inline(never)]
    fn push_mkey(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        flags: SendFlags,
        key: &impl ConfigureMkey,
    ) -> Cursor {
        self.forget_leaked(cursor);
        // An earlier request was refused, and so is all.
        if self.error.is_some() {
            return cursor;
        }
        // So that the key's owner knows as much as can be known.
        self.settle_changes();
        key.configure(MkeyRequest { queue: self, cursor, wr_id, flags }).0
    }

    #[inline(always)]
    fn build_mkey(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        flags: SendFlags,
        update: MkeyUpdate<'_>,
        change: impl FnOnce() -> (u32, Change),
    ) -> Result<Cursor, PostError> {
        if !self.gate.may_send() {
            return Err(self.refusal());
        }
        let refused = flags.difference(SendFlags::SIGNALED | SendFlags::FENCE);
        if !refused.is_empty() {
            return Err(PostError::Flags { refused });
        }
        let entries = update.layout.map_or(0, |sized| sized.layout.entries());
        let max = (update.capacity as usize).min(MAX_MKEY_ENTRIES);
        if entries > max {
            let (given, max) = (entries as u32, max as u32);
            return Err(PostError::TooManyMkeyEntries { given, max });
        }
        let (bsf, psvs) = match update.signing {
            None => (None, 0),
            Some(signing) => (signing.bsf(), signing.psvs.iter().flatten().count()),
        };
        let units = HEAD_UNITS
            + entries.next_multiple_of(ENTRIES_ALIGN)
            + if bsf.is_some() { BSF_UNITS } else { 0 };
        let signaled = flags.contains(SendFlags::SIGNALED) || self.always != 0;
        let blocks = blocks_of(units) + psvs as u32 * blocks_of(PSV_UNITS);
        self.check_room(cursor, blocks, signaled)?;

        let (key, change) = change();
        self.journal.push(cursor.sequence, change);

        let fence =
            if flags.contains(SendFlags::FENCE) { control_flags::FENCE } else { self.fence_for(0) };
        let part = Part {
            opcode: Opcode::Umr,
            key,
            units,
            control: fence | completion_if(signaled && psvs == 0),
            place: if psvs == 0 { 0 } else { RequestInfo::MORE },
        };
        let in_ring = self.in_one_piece(cursor.head, blocks_of(units));
        // SAFETY: there is room for the whole request, and the writer writes no more than `units`.
        let next = unsafe {
            self.put_part(cursor, wr_id, part, in_ring, |to| {
                write_umr(to, key, &update, entries, bsf)
            })
        };
        let next = match update.signing {
            // SAFETY: as above.
            Some(signing) if psvs != 0 => unsafe {
                self.put_psvs(next, wr_id, flags, signaled, signing)
            },
            _ => next,
        };
        let whole = in_ring && psvs == 0;
        let blueflame_now = if whole { self.blueflame_now } else { 0 };
        self.let_next_wait(cursor.sequence);
        // One alone can go to a register at once: what the next one then has to know stands in
        // `fence_at`, of which that may have known which was before.
        self.note_fence();
        (self.blueflame_now, self.fence_at) = (blueflame_now, next.head);
        self.more_wqes += psvs as u32;
        Ok(next)
    }

    /// Adds what sets the variables of a signature, behind the UMR of the same request.
    ///
    /// # Safety
    /// There is room for it.
    #[inline(never)]
    unsafe fn put_psvs(
        &mut self,
        mut next: Cursor,
        wr_id: u64,
        flags: SendFlags,
        signaled: bool,
        signing: &SigningUpdate,
    ) -> Cursor {
        let fence = if flags.contains(SendFlags::FENCE) {
            control_flags::FENCE
        } else {
            control_flags::SMALL_FENCE
        };
        let mut left = signing.psvs.iter().flatten().count();
        for psv in signing.psvs.iter().flatten() {
            left -= 1;
            let part = Part {
                opcode: Opcode::SetPsv,
                key: 0,
                units: PSV_UNITS,
                control: fence | completion_if(signaled && left == 0),
                place: RequestInfo::CONTINUES | if left == 0 { 0 } else { RequestInfo::MORE },
            };
            let segment = SetPsvSegment {
                psv_index: U32::new(psv.index),
                transient_signature: U64::new(psv.transient_signature),
                ..SetPsvSegment::default()
            };
            // SAFETY: by the contract; the segment is all that such a WQE has.
            next = unsafe { self.put_part(next, wr_id, part, true, |to| to.put(segment)) };
        }
        next
    }

    /// Builds one WQE of a request in its place, or, where that is at both ends of the ring, aside.
    ///
    /// # Safety
    /// There is room for its units at `cursor`, in one piece if `in_ring`, and `write` writes those behind the control segment.
    #[inline(always)]
    unsafe fn put_part(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        part: Part,
        in_ring: bool,
        write: impl FnOnce(&mut Writer),
    ) -> Cursor {
        let blocks = blocks_of(part.units);
        let slot =
            if in_ring { self.at(cursor.head) } else { NonNull::from(&mut self.scratch.0).cast() };
        let mut to = Writer { to: slot };
        // SAFETY: the slot has room for `blocks` blocks, all that the request has there.
        unsafe {
            to.put(ControlSegment {
                opmod_index_opcode: U32::new((cursor.head & 0xffff) << 8 | part.opcode as u32),
                qpn_ds: U32::new(self.qpn as u32 | part.units as u32),
                fm_ce_se: part.control,
                immediate: U32::new(part.key),
                ..ControlSegment::default()
            });
            write(&mut to);
            to.put_zeros(blocks as usize * (BLOCK / UNIT) - part.units);
        }
        if !in_ring {
            // SAFETY: there is room for it.
            unsafe { self.copy_aside(cursor, blocks) };
        }
        if self.signed {
            self.sign(cursor.head);
        }
        // To the user the request is the configuration of the key, whichever WQE completes.
        let place = u64::from(cursor.head as u16) << RequestInfo::FIRST_SHIFT
            | (Opcode::Umr as u64) << RequestInfo::OPCODE_SHIFT;
        let control = u32::from(part.control) << RequestInfo::CONTROL_SHIFT | part.place;
        let info = RequestInfo::new(place, control, blocks);
        // SAFETY: the records are alive, and were made for this ring.
        unsafe { self.slots.stage(self.mask, cursor.sequence, wr_id, info) };
        cursor.after(blocks)
    }
}

const fn completion_if(signaled: bool) -> u8 {
    if signaled { control_flags::COMPLETION } else { 0 }
}

impl<T: Transport> SendQueue<T> {
    /// Notes the change that the request `sequence` makes, the latest, unless it was refused.
    pub(crate) fn note_change(&mut self, sequence: u32, change: Change) {
        if self.error().is_none() {
            self.settle_changes();
            self.journal.push(sequence, change);
        }
    }

    /// What completed requests made of keys is certain.
    #[inline(always)]
    pub(crate) fn settle_changes(&mut self) {
        if self.journal.is_empty() {
            return;
        }
        let (retired, committed) = self.records().outstanding();
        let retired = self.sequence.wrapping_sub(committed.wrapping_sub(retired).into());
        if self.journal.starts_before(retired) {
            let failed = self.records().failed();
            self.journal.settle(retired, failed);
        }
    }
}

/// Writes a UMR behind its control segment, with so many translation entries.
///
/// # Safety
/// There is room for it.
#[inline(always)]
unsafe fn write_umr(
    to: &mut Writer,
    key: u32,
    update: &MkeyUpdate<'_>,
    entries: usize,
    bsf: Option<&Bsf>,
) {
    let mut mask = mkey_mask::FREE | mkey_mask::MKEY;
    let mut flags_pd = 0;
    let mut bsf_octowords = 0;
    if let Some(signing) = update.signing {
        match signing.bsf {
            BsfUpdate::Keep => {}
            BsfUpdate::Disable => mask |= mkey_mask::BSF_ENABLE,
            BsfUpdate::Set(_) => {
                mask |= mkey_mask::BSF_ENABLE;
                flags_pd |= MkeyContextSegment::BSF_ENABLE;
                bsf_octowords = BSF_UNITS;
            }
        }
        if let Some(count) = signing.error_count {
            mask |= mkey_mask::SIGNATURE_ERROR_COUNT;
            flags_pd |= (count & 1) << MkeyContextSegment::SIGNATURE_ERROR_COUNT_SHIFT;
        }
    }
    if update.access.is_some() {
        mask |= mkey_mask::ACCESS;
    }
    if update.layout.is_some() {
        mask |= mkey_mask::LENGTH;
    }
    let aligned = entries.next_multiple_of(ENTRIES_ALIGN);
    // SAFETY: of the room, these are the first.
    unsafe {
        to.put(UmrControlSegment {
            flags: umr_flags::INLINE,
            klm_octowords: U16::new(aligned as u16),
            offset_or_bsf_octowords: U16::new(bsf_octowords as u16),
            mkey_mask: U64::new(mask),
            ..UmrControlSegment::default()
        });
        to.put(MkeyContextSegment {
            access_flags: update.access.map_or(0, |access| access.bits()),
            qpn_mkey: U32::new(MkeyContextSegment::ANY_QPN | key & 0xff),
            flags_pd: U32::new(flags_pd),
            length: U64::new(update.layout.map_or(0, |sized| sized.length)),
            ..MkeyContextSegment::default()
        });
    }
    match update.layout {
        None => {}
        Some(SizedLayout { layout: MkeyLayout::List(sges), .. }) => {
            in_fours(sges, |sge| {
                // SAFETY: there is room for `entries`.
                unsafe {
                    to.put(klm(sge));
                }
            });
        }
        Some(SizedLayout { layout: MkeyLayout::Interleaved { repeat, entries }, .. }) => {
            // SAFETY: as above.
            unsafe { write_interleaved(to, repeat, entries) };
        }
    }
    // SAFETY: as above; a signature follows where there is one.
    unsafe {
        to.put_zeros(aligned - entries);
        if let Some(bsf) = bsf {
            to.put(*bsf);
        }
    }
}

/// A [`Klm`] as two words. Length and key are one load, as they stand in an entry.
#[inline(always)]
fn klm(sge: &Sge) -> [[u8; 8]; 2] {
    const {
        assert!(offset_of!(Klm, mkey) == 4 && offset_of!(Klm, address) == 8);
    }
    let both = u64::from(sge.length) | u64::from(sge.lkey) << 32;
    [both.rotate_left(32).to_be_bytes(), sge.addr.to_be_bytes()]
}

/// # Safety
/// There is room for one translation entry more than `entries`.
#[inline(never)]
unsafe fn write_interleaved(to: &mut Writer, repeat: u32, entries: &[Interleaved]) {
    let round: u32 = entries.iter().map(|entry| entry.bytes).sum();
    // SAFETY: by the contract.
    unsafe {
        to.put(RepeatBlock {
            byte_count: U32::new(round),
            op: U32::new(RepeatBlock::OP),
            repeat_count: U32::new(repeat),
            reserved: U16::ZERO,
            num_entries: U16::new(entries.len() as u16),
        });
        for entry in entries {
            to.put(RepeatEntry {
                stride: U16::new((entry.bytes + entry.skip) as u16),
                byte_count: U16::new(entry.bytes as u16),
                mkey: U32::new(entry.lkey),
                address: U64::new(entry.addr),
            });
        }
    }
}
