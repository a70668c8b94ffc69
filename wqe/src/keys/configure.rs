//! Configuring memory keys from the send queue (`mlx5dv_wr_mkey_configure`): a UMR, followed by a
//! SET_PSV for each signed domain. Together they are one request.

use crate::keys::umr::{BSF_UNITS, HEAD_UNITS, MAX_MKEY_ENTRIES, PSV_UNITS, Writer, write_umr};
use crate::keys::update::{ENTRIES_ALIGN, MkeyUpdate, SigningUpdate};
use crate::request::error::PostError;
use crate::request::flags::SendFlags;
use crate::request::transport::{Rc, Transport};
use crate::send::batch::Wr;
use crate::send::build::{Cursor, blocks_of};
use crate::send::journal::Change;
use crate::send::queue::SendQueue;
use crate::send::records::RequestInfo;
use crate::send::steps::Steps;
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
    /// Adds `request` to its batch: by [`MkeyRequest::build_list`], which is inlined into the caller, or by
    /// [`MkeyRequest::configure`].
    #[inline(always)]
    fn add<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q> {
        request.configure(self)
    }

    /// Builds `request`, or refuses it.
    fn configure<'q, T: ConfiguresMkeys>(self, request: MkeyRequest<'q, T>) -> Finished<'q>;
}

impl<T: ConfiguresMkeys> Steps<'_, T> {
    /// Adds a request that configures a memory key, as
    /// [`Wr::mkey_configure`](crate::Wr::mkey_configure) does.
    #[inline(always)]
    pub fn mkey_configure(&mut self, wr_id: u64, flags: SendFlags, key: impl ConfigureMkey) {
        let (queue, cursor) = self.begin_keyed();
        let next = queue.push_mkey(cursor, wr_id, flags, key);
        self.end_keyed(next);
    }
}

/// A request that configures a key.
#[must_use = "it is to be built or refused"]
pub struct MkeyRequest<'q, T> {
    pub(super) queue: &'q mut SendQueue<T>,
    pub(super) cursor: Cursor,
    pub(super) wr_id: u64,
    pub(super) flags: SendFlags,
}

/// Proof that the request of `'q` was built or refused. The invariant lifetime ties it to that
/// request.
#[must_use = "the function that received the request must return it"]
pub struct Finished<'q>(Cursor, PhantomData<fn(&'q ()) -> &'q ()>);

impl Finished<'_> {
    pub(super) fn at(next: Cursor) -> Self {
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
    /// Lets `key` build the request, or refuse it, unless an earlier one was refused.
    #[inline(never)]
    pub fn configure(self, key: impl ConfigureMkey) -> Finished<'q> {
        let queue = &mut *self.queue;
        queue.forget_leaked(self.cursor);
        if queue.error.is_some() {
            return Finished::at(self.cursor);
        }
        // Before the key is asked: in a forked child it may be locked for ever.
        if !queue.gate.may_send() {
            let error = queue.refusal();
            return self.refuse(error);
        }
        // Brings the owner's view of its keys up to date.
        queue.settle_changes();
        key.configure(self)
    }

    /// Builds the request. `change` is called once nothing can refuse it any more. It returns the
    /// key, variant included, and the change of the owner's view of the key.
    #[inline(always)]
    pub fn build(
        self,
        update: MkeyUpdate<'_>,
        change: impl FnOnce() -> (u32, Change),
    ) -> Finished<'q> {
        let Self { queue, cursor, wr_id, flags } = self;
        match queue.build_mkey(cursor, wr_id, flags, update, change) {
            Ok(next) => Finished::at(next),
            Err(error) => Self { queue, cursor, wr_id, flags }.refuse(error),
        }
    }

    /// Refuses the request, and so the batch.
    #[cold]
    #[inline(never)]
    pub fn refuse(self, error: PostError) -> Finished<'q> {
        Finished::at(self.queue.refuse(self.cursor, error))
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
    #[inline(always)]
    pub fn mkey_configure(self, key: impl ConfigureMkey) {
        let Self { batch, wr_id, flags } = self;
        let (queue, cursor) = batch.begin_keyed();
        let next = queue.push_mkey(cursor, wr_id, flags, key);
        batch.end_keyed(next);
    }
}

impl<T: ConfiguresMkeys> SendQueue<T> {
    #[inline(always)]
    pub(crate) fn push_mkey(
        &mut self,
        cursor: Cursor,
        wr_id: u64,
        flags: SendFlags,
        key: impl ConfigureMkey,
    ) -> Cursor {
        key.add(MkeyRequest { queue: self, cursor, wr_id, flags }).0
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
        let signaled = flags.contains(SendFlags::SIGNALED) || self.default_flags != 0;
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
        // SAFETY: `check_room` found room for the whole request, and the writer writes no more than
        // `units`.
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
        let fast_blueflame_blocks =
            if in_ring && psvs == 0 { self.fast_blueflame_blocks } else { 0 };
        self.let_next_wait(cursor.sequence);
        self.fast_blueflame_blocks = fast_blueflame_blocks;
        self.note_fence_at(next);
        self.more_wqes += psvs as u32;
        Ok(next)
    }

    /// Notes that the request that ends at `next` configures a key, so that the next one needs a fence. If
    /// it is one WQE in one piece in the ring, it may be posted alone by the fast path, and then this is all
    /// that says so.
    #[inline(always)]
    pub(super) fn note_fence_at(&mut self, next: Cursor) {
        // The previous value of `fence_at` is folded into `fence` here.
        self.note_fence();
        self.fence_at = next.head;
    }

    /// Adds the SET_PSVs behind the UMR of the same request.
    ///
    /// # Safety
    /// There is room for them.
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
            // SAFETY: by the caller's contract; the segment is all that such a WQE has behind its
            // control segment.
            next = unsafe { self.put_part(next, wr_id, part, true, |to| to.put(segment)) };
        }
        next
    }

    /// Builds one WQE of a request in the ring, or in the scratch buffer if it would wrap around
    /// the end of the ring.
    ///
    /// # Safety
    /// There is room for its units at `cursor`, in one piece if `in_ring`. `write` writes exactly
    /// the units behind the control segment.
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
        let slot = if in_ring { self.at(cursor.head) } else { self.scratch.cast() };
        let mut to = Writer { to: slot };
        // SAFETY: the slot has room for `blocks` blocks; control segment, what `write` writes and
        // the padding are that many.
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
            // SAFETY: by the caller's contract, `blocks` blocks at `cursor` are free.
            unsafe { self.copy_from_scratch(cursor, blocks) };
        }
        if self.signed {
            self.sign(cursor.head);
        }
        // The user's completion is that of configuring the key, whichever WQE reports it.
        let place = u64::from(cursor.head as u16) << RequestInfo::FIRST_SHIFT
            | (Opcode::Umr as u64) << RequestInfo::OPCODE_SHIFT;
        let control = u32::from(part.control) << RequestInfo::CONTROL_SHIFT | part.place;
        let info = RequestInfo::new(place, control, blocks);
        // SAFETY: the records are alive, and were created for this ring.
        unsafe { self.slots.stage(self.mask, cursor.sequence, wr_id, info) };
        cursor.after(blocks)
    }
}

const fn completion_if(signaled: bool) -> u8 {
    if signaled { control_flags::COMPLETION } else { 0 }
}

impl<T: Transport> SendQueue<T> {
    /// Adds the change of request `sequence`, the latest one, to the journal, unless the request
    /// was refused.
    pub(crate) fn note_change(&mut self, sequence: u32, change: Change) {
        if self.error().is_none() {
            self.settle_changes();
            self.journal.push(sequence, change);
        }
    }
}

impl<T> SendQueue<T> {
    /// Settles the changes of retired requests.
    #[inline(always)]
    pub(crate) fn settle_changes(&mut self) {
        let sequence = self.sequence;
        let outstanding = self.records().outstanding_before(sequence as u16);
        let retired = sequence.wrapping_sub(outstanding.into());
        if self.journal.starts_before(retired) {
            self.settle_before(retired);
        }
    }

    /// Settles the changes of the requests before `retired`, which are retired.
    #[inline(never)]
    fn settle_before(&mut self, retired: u32) {
        let failed = self.records().failed();
        self.journal.settle(retired, failed);
    }

    /// Undoes the changes of keys by requests that are not posted.
    #[cold]
    #[inline(never)]
    pub(crate) fn undo_changes(&mut self) {
        if self.gate.is_forked() {
            return self.journal.forget();
        }
        self.journal.undo_from(self.sequence);
    }

    /// Ends all changes, because the queue starts over or goes: those of requests that were not posted are
    /// undone, those of executed ones final, and of the others it will never be known. The records still
    /// tell which requests were retired.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_changes(&mut self) {
        // In a forked child a key may be locked for ever, by a thread that only the parent has.
        self.undo_changes();
        self.settle_changes();
        self.journal.mark_unknown();
    }
}
