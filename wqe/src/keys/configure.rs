//! Configuring memory keys from the send queue (`mlx5dv_wr_mkey_configure`): a UMR, followed by a
//! SET_PSV for each signed domain. Together they are one request.

use crate::keys::umr::{BSF_UNITS, HEAD_UNITS, MAX_MKEY_ENTRIES, PSV_UNITS, Writer, write_umr};
use crate::keys::update::{ENTRIES_ALIGN, MkeyUpdate, SigningUpdate};
use crate::request::error::PostError;
use crate::request::flags::SendFlags;
use crate::request::transport::{Rc, Transport};
use crate::send::batch::blocks_of;
use crate::send::builder::Wr;
use crate::send::journal::Change;
use crate::send::queue::{Position, SendQueue};
use crate::send::records::RequestInfo;
use core::fmt;
use core::marker::PhantomData;
use mlx5_prm::signature::SetPsvSegment;
use mlx5_prm::wqe::{BLOCK, ControlSegment, Opcode, UNIT, control_flags};
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
    fn add_mkey(
        &mut self,
        at: Position,
        wr_id: u64,
        flags: SendFlags,
        key: impl ConfigureMkey,
    ) -> Position {
        if self.batch.error.is_some() {
            return at;
        }
        // Before the key is asked: in a forked child it may be locked for ever.
        if !self.gate.may_send() {
            let error = self.refusal();
            self.refuse(at, error);
            return at;
        }
        // Brings the owner's view of its keys up to date.
        self.settle_changes();
        let Finished(next, _) = key.configure(MkeyRequest { queue: self, at, wr_id, flags });
        if next != at {
            self.give_name(at.sequence);
        }
        next
    }

    fn build_mkey(
        &mut self,
        at: Position,
        wr_id: u64,
        flags: SendFlags,
        update: MkeyUpdate<'_>,
        change: impl FnOnce() -> (u32, Change),
    ) -> Result<Position, PostError> {
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
        // SAFETY: `check_room` found room for the whole request, and the writer writes no more than
        // `units`.
        let next = unsafe {
            self.put_part(at, wr_id, part, |to| write_umr(to, key, &update, entries, bsf))
        };
        let next = match update.signing {
            // SAFETY: as above.
            Some(signing) if psvs != 0 => unsafe {
                self.put_psvs(next, wr_id, flags, signaled, signing)
            },
            _ => next,
        };
        self.is_checked = true;
        self.batch.fence = true;
        self.batch.more_wqes += psvs as u32;
        Ok(next)
    }

    /// Adds the SET_PSVs after the UMR of the same request.
    ///
    /// # Safety
    /// There is room for them.
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
            // control segment.
            next = unsafe { self.put_part(next, wr_id, part, |to| to.put(segment)) };
        }
        next
    }

    /// Builds one WQE of a request in the ring, or in the scratch buffer if it would wrap around
    /// the end of the ring.
    ///
    /// # Safety
    /// There is room for its units at `at`. `write` writes exactly the units after the control
    /// segment.
    unsafe fn put_part(
        &mut self,
        at: Position,
        wr_id: u64,
        part: Part,
        write: impl FnOnce(&mut Writer),
    ) -> Position {
        let blocks = blocks_of(part.units);
        let in_ring = blocks <= self.ring.blocks_to_end(at.head);
        let slot = if in_ring { self.ring.at(at.head) } else { self.scratch() };
        let mut to = Writer { to: slot };
        // SAFETY: the slot has room for `blocks` blocks; control segment, what `write` writes and
        // the padding are that many.
        unsafe {
            to.put(ControlSegment {
                opmod_index_opcode: U32::new((at.head & 0xffff) << 8 | part.opcode as u32),
                qpn_ds: U32::new(self.common.qpn | part.units as u32),
                fm_ce_se: part.control,
                immediate: U32::new(part.key),
                ..ControlSegment::default()
            });
            write(&mut to);
            to.put_zeros(blocks as usize * (BLOCK / UNIT) - part.units);
        }
        if !in_ring {
            // SAFETY: by the contract, `blocks` blocks at `at` are free.
            unsafe { self.ring.copy_in(at.head, slot, blocks) };
        }
        if self.common.is_signed {
            self.sign(at.head);
        }
        // The user's completion is that of configuring the key, whichever WQE reports it.
        let place = u64::from(at.head as u16) << RequestInfo::FIRST_SHIFT
            | (Opcode::Umr as u64) << RequestInfo::OPCODE_SHIFT;
        let control = u32::from(part.control) << RequestInfo::CONTROL_SHIFT | part.place;
        self.ring.stage(at.sequence, wr_id, RequestInfo::new(place, control, blocks));
        at.after(blocks)
    }
}

const fn completion_if(signaled: bool) -> u8 {
    if signaled { control_flags::COMPLETION } else { 0 }
}
