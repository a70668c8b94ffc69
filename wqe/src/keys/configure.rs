//! Configuring memory keys from the send queue (`mlx5dv_wr_mkey_configure`): a UMR, followed by a
//! SET_PSV for each signed domain. Together they are one request.

use crate::keys::umr::{BSF_UNITS, HEAD_UNITS, MAX_MKEY_ENTRIES, PSV_UNITS, write_umr};
use crate::keys::update::{ENTRIES_ALIGN, MkeyUpdate, SigningUpdate};
use crate::request::error::PostError;
use crate::request::flags::SendFlags;
use crate::request::transport::{Rc, Transport};
use crate::send::batch::{Built, blocks_of};
use crate::send::builder::Wr;
use crate::send::journal::Change;
use crate::send::queue::{Position, SendQueue};
use crate::send::records::RequestInfo;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use mlx5_prm::signature::SetPsvSegment;
use mlx5_prm::wqe::{BLOCK, Opcode, UNIT, control_flags};
use mlx5_prm::{U32, U64};

/// A transport whose queues can configure memory keys.
pub trait ConfiguresMkeys: Transport {}
impl ConfiguresMkeys for Rc {}

/// A configuration of a key. The implementor owns the key and chooses what the request does.
pub trait ConfigureMkey: Copy {
    /// Builds `request`, or refuses it.
    fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q>;
}

/// A request that configures a key.
#[must_use = "it is to be built or refused"]
pub struct MkeyRequest<'q, T> {
    queue: &'q mut SendQueue<T>,
    at: Position,
    wr_id: u64,
    flags: SendFlags,
}

/// Proof that the request of `'q` was built or refused. The invariant lifetime ties it to that
/// request.
#[must_use = "the function that received the request must return it"]
pub struct Finished<'q>(Position, PhantomData<fn(&'q ()) -> &'q ()>);

impl Finished<'_> {
    fn at(next: Position) -> Self {
        Self(next, PhantomData)
    }
}

impl<T> fmt::Debug for MkeyRequest<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MkeyRequest")
            .field("wr_id", &self.wr_id)
            .field("flags", &self.flags)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Finished<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finished").finish_non_exhaustive()
    }
}

impl<'q, T: ConfiguresMkeys> MkeyRequest<'q, T> {
    /// Builds the request. `change` is called once nothing can refuse it any more. It returns the
    /// key, variant included, and the change of the owner's view of the key.
    #[inline]
    pub fn build(
        self,
        update: MkeyUpdate<'_>,
        change: impl FnOnce() -> (u32, Change),
    ) -> Finished<'q> {
        let Self { queue, at, wr_id, flags } = self;
        match queue.build_mkey(at, wr_id, flags, update, change) {
            Ok(next) => Finished::at(next),
            Err(error) => Self { queue, at, wr_id, flags }.refuse(error),
        }
    }

    /// Refuses the request, and so the batch.
    #[cold]
    pub fn refuse(self, error: PostError) -> Finished<'q> {
        self.queue.refuse(self.at, error);
        Finished::at(self.at)
    }
}

/// One WQE of a request.
#[derive(Clone, Copy)]
struct Part {
    opcode: Opcode,
    /// The immediate word of its control segment.
    key: u32,
    units: usize,
    /// Fence and completion flags.
    control: u8,
    /// Place among the WQEs of the request: [`RequestInfo::MORE`], [`RequestInfo::CONTINUES`].
    place: u32,
}

impl<T: ConfiguresMkeys> Wr<'_, '_, T> {
    /// Configures a memory key (`mlx5dv_wr_mkey_configure`), and finishes the request. Later
    /// requests on this queue see the new configuration. With [`SendFlags::SIGNALED`] one
    /// completion is reported, when all WQEs of the request are done.
    pub fn mkey_configure(self, key: impl ConfigureMkey) {
        let Self { batch, wr_id, flags } = self;
        batch.at = batch.queue.add_mkey(batch.at, wr_id, flags, key);
    }
}

impl<T: ConfiguresMkeys> SendQueue<T> {
    /// Lets `key` build the request at `at`, or refuse it, unless an earlier one was refused.
    /// Returns the position of the next request.
    #[inline]
    fn add_mkey(
        &mut self,
        at: Position,
        wr_id: u64,
        flags: SendFlags,
        key: impl ConfigureMkey,
    ) -> Position {
        // Before the key is asked: in a forked child it may be locked for ever.
        if !self.takes(at, flags, SendFlags::SIGNALED | SendFlags::FENCE) {
            return at;
        }
        // Brings the owner's view of its keys up to date.
        self.settle_key_changes();
        key.configure(MkeyRequest { queue: self, at, wr_id, flags }).0
    }

    #[inline]
    fn build_mkey(
        &mut self,
        at: Position,
        wr_id: u64,
        flags: SendFlags,
        update: MkeyUpdate<'_>,
        change: impl FnOnce() -> (u32, Change),
    ) -> Result<Position, PostError> {
        let entries = update.layout.map_or(0, |sized| sized.layout.entries());
        let max = (update.capacity as usize).min(MAX_MKEY_ENTRIES);
        if entries > max {
            let (given, max) = (entries as u32, max as u32);
            return Err(PostError::TooManyMkeyEntries { given, max });
        }
        let entries = entries.next_multiple_of(ENTRIES_ALIGN);
        let bsf = update.signing.and_then(SigningUpdate::bsf);
        let psvs = update.signing.map_or(0, |signing| signing.psvs.iter().flatten().count());
        let units = HEAD_UNITS + entries + if bsf.is_some() { BSF_UNITS } else { 0 };
        let signaled = (flags | self.common.flags).contains(SendFlags::SIGNALED);
        let blocks = blocks_of(units) + psvs as u32 * blocks_of(PSV_UNITS);
        self.check_room(at, blocks, signaled)?;

        let (key, change) = change();
        self.journal.push(at.sequence, change);

        let fence = flags.intersection(SendFlags::FENCE).bits();
        let fence = fence | self.fence_for(fence);
        let part = Part {
            opcode: Opcode::Umr,
            key,
            units,
            control: fence | completion_if(signaled && psvs == 0),
            place: if psvs == 0 { 0 } else { RequestInfo::MORE },
        };
        // SAFETY: `check_room` found room for the whole request, and the writer writes the units
        // after the control segment.
        let next = unsafe {
            self.put_part(at, wr_id, part, |at| write_umr(at, key, &update, entries, bsf))
        };
        let Some(signing) = update.signing.filter(|_| psvs != 0) else { return Ok(next) };
        // SAFETY: as above.
        Ok(unsafe { self.put_psvs(next, wr_id, flags, signaled, signing) })
    }

    /// Adds the SET_PSVs after the UMR of the same request.
    ///
    /// # Safety
    /// There is room for them.
    #[cold]
    #[inline(never)]
    unsafe fn put_psvs(
        &mut self,
        mut next: Position,
        wr_id: u64,
        flags: SendFlags,
        signaled: bool,
        signing: &SigningUpdate,
    ) -> Position {
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
            // SAFETY: by the caller's contract; the segment is all that such a WQE has after its
            // control segment, and padding fills its block.
            next = unsafe {
                self.put_part(next, wr_id, part, |at| {
                    at.write_bytes(0, BLOCK - UNIT);
                    at.cast().write(segment);
                })
            };
            self.batch.more_wqes += 1;
        }
        next
    }

    /// Builds one WQE of a request.
    ///
    /// # Safety
    /// There is room for its units at `at`. `write` writes the units after the control segment, and
    /// no more than its blocks have.
    #[inline]
    unsafe fn put_part(
        &mut self,
        at: Position,
        wr_id: u64,
        part: Part,
        write: impl FnOnce(NonNull<u8>),
    ) -> Position {
        let Part { opcode, key, units, control, place } = part;
        let slot = self.build_address(at, blocks_of(units));
        let first = u64::from(at.block as u16) << 8;
        let control = u32::from(control) << RequestInfo::CONTROL_SHIFT;
        // The user's completion is that of configuring the key, whichever WQE reports it.
        let recorded = (first | Opcode::Umr as u64) << RequestInfo::OPCODE_SHIFT;
        let info = RequestInfo::new(recorded, control | place, blocks_of(units));
        // SAFETY: the slot has room for the units.
        unsafe {
            write(slot.byte_add(UNIT));
            self.write_words(slot, first | opcode as u64, units, control, key.to_be_bytes());
        }
        self.enter(at, Built { slot, units, wr_id, info, rewrites_key: true })
    }
}

const fn completion_if(signaled: bool) -> u8 {
    if signaled { control_flags::COMPLETION } else { 0 }
}
