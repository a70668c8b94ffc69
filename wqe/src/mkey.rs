//! Configuring memory keys from the send queue (`mlx5dv_wr_mkey_configure`): a UMR, and behind it a
//! SET_PSV for each domain that is signed. Together they are one request.

use crate::batch::Wr;
use crate::build::{Cursor, blocks_of};
use crate::change::Change;
use crate::error::PostError;
use crate::operation::SendFlags;
use crate::records::RequestInfo;
use crate::send::SendQueue;
use crate::sge::Sge;
use crate::transport::{Rc, Transport};
use core::mem::size_of;
use mlx5_prm::signature::{Bsf, SetPsvSegment};
use mlx5_prm::umr::{
    Klm, MkeyContextSegment, RepeatBlock, RepeatEntry, UmrControlSegment, mkey_access, mkey_mask,
    umr_flags,
};
use mlx5_prm::wqe::{
    BLOCK, ControlSegment, MAX_SGE_LENGTH, MAX_UNITS, Opcode, UNIT, control_flags,
};
use mlx5_prm::zerocopy::{Immutable, IntoBytes};
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

impl MkeyLayout<'_> {
    /// Translation entries that it takes.
    pub const fn entries(&self) -> usize {
        match self {
            Self::List(sges) => sges.len(),
            Self::Interleaved { entries, .. } => entries.len() + 1,
        }
    }

    /// The bytes that the key then has, or what is wrong with it.
    pub fn length(&self) -> Result<u64, PostError> {
        let mut length: u64 = 0;
        match self {
            Self::List(sges) => {
                for (index, sge) in sges.iter().enumerate() {
                    if sge.length > MAX_SGE_LENGTH {
                        return Err(PostError::SgeTooLong {
                            index: index as u32,
                            length: sge.length,
                        });
                    }
                    length += u64::from(sge.length);
                }
            }
            Self::Interleaved { repeat, entries } => {
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
                length = length.saturating_mul((*repeat).into());
            }
        }
        Ok(length)
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

/// A request that configures a key. Whoever owns the key makes it.
#[must_use = "a key is configured by the request that this is given to"]
pub struct MkeyUpdate<'a> {
    /// The key, variant byte included.
    pub key: u32,
    /// Translation entries that the key was made for.
    pub capacity: u32,
    /// New rights, if any.
    pub access: Option<MkeyAccess>,
    /// New layout, if any.
    pub layout: Option<MkeyLayout<'a>>,
    /// What becomes of its signature.
    pub bsf: BsfUpdate,
    /// The counter of signature errors that the device is to take as seen, if it is to be told.
    pub error_count: Option<u32>,
    /// The variables that start over: the memory's, the wire's.
    pub psvs: [Option<PsvUpdate>; 2],
    /// What the owner takes the key to be, once this is executed.
    pub change: Option<Change>,
}

/// 16-byte units of a UMR before its translation entries.
const HEAD_UNITS: usize = (size_of::<ControlSegment>()
    + size_of::<UmrControlSegment>()
    + size_of::<MkeyContextSegment>())
    / UNIT;
const BSF_UNITS: usize = size_of::<Bsf>() / UNIT;
const PSV_UNITS: usize = 1 + size_of::<SetPsvSegment>() / UNIT;
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
struct Writer<'a> {
    to: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    /// # Panics
    /// If there is no room, which the caller has made sure of.
    fn put(&mut self, part: &(impl IntoBytes + Immutable + ?Sized)) {
        let bytes = part.as_bytes();
        self.to[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn pad_to(&mut self, units: usize) {
        self.to[self.at..units * UNIT].fill(0);
        self.at = units * UNIT;
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
    pub fn mkey_configure<'a>(self, update: impl Into<Result<MkeyUpdate<'a>, PostError>>) {
        let Self { batch, wr_id, flags } = self;
        let update = update.into();
        batch.push_aside(|queue, cursor| queue.push_mkey(cursor, wr_id, flags, update));
    }
}

impl<T: ConfiguresMkeys> SendQueue<T> {
    #[inline(never)]
    fn push_mkey(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        flags: SendFlags,
        update: Result<MkeyUpdate<'_>, PostError>,
    ) -> Cursor {
        // An earlier request was refused, and so is all.
        if self.error().is_some() {
            return cursor;
        }
        let built = update.and_then(|update| {
            let next = self.build_mkey(cursor, wr_id, flags, &update)?;
            Ok((next, update.change))
        });
        match built {
            Ok((next, change)) => {
                if let Some(change) = change {
                    self.note_change(cursor.sequence, change);
                }
                self.let_next_wait();
                self.more_wqes += next.sequence.wrapping_sub(cursor.sequence) - 1;
                next
            }
            Err(error) => {
                self.refuse(cursor, error);
                cursor
            }
        }
    }

    fn build_mkey(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        flags: SendFlags,
        update: &MkeyUpdate<'_>,
    ) -> Result<Cursor, PostError> {
        if !self.gate.may_send() {
            return Err(self.refusal());
        }
        let refused = flags.difference(SendFlags::SIGNALED | SendFlags::FENCE);
        if !refused.is_empty() {
            return Err(PostError::Flags { refused });
        }
        let entries = update.layout.map_or(0, |layout| layout.entries());
        let bsf = matches!(update.bsf, BsfUpdate::Set(_));
        let max = (update.capacity as usize).min(MAX_MKEY_ENTRIES);
        if entries > max {
            let (given, max) = (entries as u32, max as u32);
            return Err(PostError::TooManyMkeyEntries { given, max });
        }
        let length = update.layout.map(|layout| layout.length()).transpose()?;
        let units =
            HEAD_UNITS + entries.next_multiple_of(ENTRIES_ALIGN) + if bsf { BSF_UNITS } else { 0 };
        let psvs = update.psvs.iter().flatten().count();
        let signaled = flags.contains(SendFlags::SIGNALED) || self.always != 0;
        let blocks = blocks_of(units) + psvs as u32 * blocks_of(PSV_UNITS);
        self.check_room(cursor, blocks, signaled)?;
        // What rings for the batch takes a closer look.
        self.blueflame_now = 0;

        let fence = if flags.contains(SendFlags::FENCE) {
            [control_flags::FENCE; 2]
        } else {
            [self.fence_for(0), control_flags::SMALL_FENCE]
        };
        let last = |left: usize| match left {
            0 if signaled => control_flags::COMPLETION,
            _ => 0,
        };
        let more = |left: usize| if left == 0 { 0 } else { RequestInfo::MORE };
        let part = Part {
            opcode: Opcode::Umr,
            key: update.key,
            units,
            control: fence[0] | last(psvs),
            place: more(psvs),
        };
        let mut next =
            self.put_part(cursor, wr_id, part, |to| write_umr(to, update, length, units));
        let mut left = psvs;
        for psv in update.psvs.iter().flatten() {
            left -= 1;
            let part = Part {
                opcode: Opcode::SetPsv,
                key: 0,
                units: PSV_UNITS,
                control: fence[1] | last(left),
                place: more(left) | RequestInfo::CONTINUES,
            };
            next = self.put_part(next, wr_id, part, |to| {
                to.put(&SetPsvSegment {
                    psv_index: U32::new(psv.index),
                    transient_signature: U64::new(psv.transient_signature),
                    ..SetPsvSegment::default()
                });
            });
        }
        Ok(next)
    }

    /// Builds one WQE of a request aside, and copies it to its place, where there is room for it.
    fn put_part(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        part: Part,
        write: impl FnOnce(&mut Writer<'_>),
    ) -> Cursor {
        let blocks = blocks_of(part.units);
        let control = ControlSegment {
            opmod_index_opcode: U32::new((cursor.head & 0xffff) << 8 | part.opcode as u32),
            qpn_ds: U32::new(self.qp_num() << 8 | part.units as u32),
            fm_ce_se: part.control,
            immediate: U32::new(part.key),
            ..ControlSegment::default()
        };
        let mut to = Writer { to: &mut self.scratch.0, at: 0 };
        to.put(&control);
        write(&mut to);
        to.pad_to(blocks as usize * (BLOCK / UNIT));
        // SAFETY: the caller has made sure of room for the whole request.
        unsafe { self.copy_aside(cursor, blocks) };
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

impl<T: Transport> SendQueue<T> {
    /// Notes the change that the request `sequence` makes, the latest, unless it was refused.
    pub(crate) fn note_change(&mut self, sequence: u32, change: Change) {
        if self.error().is_none() {
            self.settle_changes();
            self.journal.push(sequence, change);
        }
    }

    /// What completed requests made of keys is certain.
    pub(crate) fn settle_changes(&mut self) {
        let (retired, committed) = self.records().outstanding();
        let retired = self.sequence.wrapping_sub(committed.wrapping_sub(retired).into());
        let failed = self.records().failed();
        self.journal.settle(retired, failed);
    }
}

/// Writes a UMR behind its control segment.
fn write_umr(to: &mut Writer<'_>, update: &MkeyUpdate<'_>, length: Option<u64>, units: usize) {
    let mut mask = mkey_mask::FREE | mkey_mask::MKEY;
    let mut flags_pd = 0;
    let bsf_octowords = match update.bsf {
        BsfUpdate::Keep => 0,
        BsfUpdate::Disable => {
            mask |= mkey_mask::BSF_ENABLE;
            0
        }
        BsfUpdate::Set(_) => {
            mask |= mkey_mask::BSF_ENABLE;
            flags_pd |= MkeyContextSegment::BSF_ENABLE;
            BSF_UNITS
        }
    };
    if update.access.is_some() {
        mask |= mkey_mask::ACCESS;
    }
    if length.is_some() {
        mask |= mkey_mask::LENGTH;
    }
    if let Some(count) = update.error_count {
        mask |= mkey_mask::SIGNATURE_ERROR_COUNT;
        flags_pd |= (count & 1) << MkeyContextSegment::SIGNATURE_ERROR_COUNT_SHIFT;
    }
    let entries = update.layout.map_or(0, |layout| layout.entries());
    to.put(&UmrControlSegment {
        flags: umr_flags::INLINE,
        klm_octowords: U16::new(entries.next_multiple_of(ENTRIES_ALIGN) as u16),
        offset_or_bsf_octowords: U16::new(bsf_octowords as u16),
        mkey_mask: U64::new(mask),
        ..UmrControlSegment::default()
    });
    to.put(&MkeyContextSegment {
        access_flags: update.access.map_or(0, |access| access.bits()),
        qpn_mkey: U32::new(MkeyContextSegment::ANY_QPN | update.key & 0xff),
        flags_pd: U32::new(flags_pd),
        length: U64::new(length.unwrap_or(0)),
        ..MkeyContextSegment::default()
    });
    match update.layout {
        None => {}
        Some(MkeyLayout::List(sges)) => {
            for sge in sges {
                to.put(&Klm {
                    byte_count: U32::new(sge.length),
                    mkey: U32::new(sge.lkey),
                    address: U64::new(sge.addr),
                });
            }
        }
        Some(MkeyLayout::Interleaved { repeat, entries }) => {
            let round: u32 = entries.iter().map(|entry| entry.bytes).sum();
            to.put(&RepeatBlock {
                byte_count: U32::new(round),
                op: U32::new(RepeatBlock::OP),
                repeat_count: U32::new(repeat),
                reserved: U16::ZERO,
                num_entries: U16::new(entries.len() as u16),
            });
            for entry in entries {
                to.put(&RepeatEntry {
                    stride: U16::new((entry.bytes + entry.skip) as u16),
                    byte_count: U16::new(entry.bytes as u16),
                    mkey: U32::new(entry.lkey),
                    address: U64::new(entry.addr),
                });
            }
        }
    }
    if let BsfUpdate::Set(bsf) = &update.bsf {
        to.pad_to(units - BSF_UNITS);
        to.put(bsf);
    }
}
