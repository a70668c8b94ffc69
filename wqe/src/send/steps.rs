//! Requests that are built in steps, by calls that do not know of each other (`ibv_wr_*` as a C program
//! calls them): one names the operation, another one gives the data.
//!
//! The head of a usual request is written to the ring at once, so that nothing of it has to be kept for
//! the call that gives the data.

use crate::request::batch_error::BatchError;
use crate::request::data::{Data, DataKind, InlineBytesAt, InlineSges, OneSge};
use crate::request::flags::SendFlags;
use crate::request::operation::{Inline, SendOps};
use crate::request::segment::Segment;
use crate::request::sge::Sge;
use crate::request::transport::Transport;
use crate::send::batch::Batch;
use crate::send::build::{Cursor, Parts, blocks_of, opaque, write_head};
use crate::send::fast::allowed;
use crate::send::list::{ListTransport, SendWr, push_out_of_line};
use crate::send::post::UNITS_AT;
use crate::send::prefetch;
use crate::send::queue::SendQueue;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use mlx5_prm::U32;
use mlx5_prm::wqe::{BLOCK, UNIT};

/// What has to be kept of a batch that is built in steps, from one call to the next.
// The two numbers of the position lie apart, or the compiler increments both by one vector operation,
// which takes more instructions.
#[repr(C)]
pub struct StepsState {
    /// The block behind the last request built.
    head: u32,
    /// Where the data of the request that has a head goes; [`NONE`], or [`KEPT`].
    pending: *mut u8,
    /// Whether a request was built off the fast path, or is not of the usual size; [`KEYED`]. A whole
    /// word: it is tested with `pending`.
    slow: usize,
    /// The requests built, as [`Cursor`] counts them.
    sequence: u32,
}

/// No request waits for its data.
const NONE: *mut u8 = ptr::null_mut();
/// The caller keeps a request until its data is known. No data goes to this address, which is not that
/// of a unit.
const KEPT: *mut u8 = ptr::without_provenance_mut(1);

/// The blocks of a request that gives a key up to four entries.
const SHORT_KEYED: u32 = 3;

/// The first request configures a memory key. Others that follow take the slow path, and say so.
const KEYED: usize = 2;

// SAFETY: the address is in the ring of the queue, and is used only with a reference to the queue, which
// is `Send`.
unsafe impl Send for StepsState {}

impl StepsState {
    /// No batch.
    pub const fn new() -> Self {
        Self { head: 0, pending: NONE, slow: 0, sequence: 0 }
    }

    /// The position behind the last request built.
    #[inline(always)]
    fn cursor(&self) -> Cursor {
        Cursor { head: self.head, sequence: self.sequence }
    }

    #[inline(always)]
    fn set_cursor(&mut self, Cursor { head, sequence }: Cursor) {
        (self.head, self.sequence) = (head, sequence);
    }
}

impl Default for StepsState {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for StepsState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepsState")
            .field("pending", &!self.pending.is_null())
            .finish_non_exhaustive()
    }
}

/// A batch under construction whose requests are built in steps. As a [`Batch`] it is posted whole or
/// not at all. A value that is dropped changes nothing: [`SendQueue::steps`] goes on with the batch.
/// A batch that is never completed posts nothing.
pub struct Steps<'q, T: Transport> {
    queue: &'q mut SendQueue<T>,
    state: &'q mut StepsState,
}

impl<T: Transport> fmt::Debug for Steps<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps")
            .field("transport", &format_args!("{}", T::NAME))
            .field("qp_num", &format_args!("{:#x}", self.queue.qp_num()))
            .field("requests", &self.state.cursor().since(self.queue.here()).1)
            .finish_non_exhaustive()
    }
}

impl<T: Transport> SendQueue<T> {
    /// Starts a batch whose requests are built in steps, and sets up what has to be kept of it.
    #[inline(always)]
    pub fn start_steps<'q>(&'q mut self, state: &'q mut StepsState) -> Steps<'q, T> {
        self.look_at_gate();
        let Cursor { head, sequence } = self.here();
        *state = StepsState { head, pending: NONE, slow: 0, sequence };
        Steps { queue: self, state }
    }

    /// Goes on with a batch.
    ///
    /// # Safety
    /// [`SendQueue::start_steps`] of this queue set `state` up, the batch was neither completed nor
    /// aborted, and since then nothing but the steps of this state used the queue mutably.
    #[inline(always)]
    pub unsafe fn steps<'q>(&'q mut self, state: &'q mut StepsState) -> Steps<'q, T> {
        Steps { queue: self, state }
    }
}

impl<T: Transport> Steps<'_, T> {
    /// Whether a request waits for its data: it has a head, or the caller keeps it.
    #[inline(always)]
    pub fn is_pending(&self) -> bool {
        !self.state.pending.is_null()
    }

    /// Whether a request of the batch was refused.
    pub fn is_refused(&self) -> bool {
        self.queue.error().is_some()
    }

    /// Whether a request that has a head waits for its data.
    #[inline(always)]
    pub fn has_head(&self) -> bool {
        self.state.pending.addr() > KEPT.addr()
    }

    /// Notes that the caller keeps a request: until it is added, or [`Steps::release`], no head is
    /// written and no data is taken.
    #[inline(always)]
    pub fn keep(&mut self) {
        self.state.pending = KEPT;
    }

    /// As [`Steps::keep`], for a request that configures a key: starts loading the blocks that a short one
    /// is written to.
    #[inline(always)]
    pub fn keep_keyed(&mut self) {
        self.keep();
        for block in 0..SHORT_KEYED {
            prefetch::line(self.queue.at(self.state.head.wrapping_add(block)));
        }
    }

    /// Forgets the request that waits for its data.
    #[inline(always)]
    pub fn release(&mut self) {
        self.state.pending = NONE;
    }

    /// Writes the head of a request, whose data follows. Returns false, and does nothing, unless the
    /// fast path can build it, its transport needs no address, and no request is pending: then
    /// [`Steps::push_with`] adds it, when its data is known.
    #[inline(always)]
    pub fn head<O: Inline>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        immediate: [u8; 4],
        remote: O::Remote,
    ) -> bool {
        let units = const {
            let units = 1 + O::Remote::UNITS + 1;
            assert!(blocks_of(units) == 1);
            units
        };
        let cursor = self.state.cursor();
        if T::ADDRESS_UNITS != 0
            || !const { SendOps::of::<T>().contains(O::BIT) }
            || self.is_pending()
            || !allowed::<T, O>().contains(flags)
            || !self.queue.has_fast_room(cursor.head)
        {
            return false;
        }
        let queue = &mut *self.queue;
        let immediate = U32::from_bytes(immediate);
        let parts = Parts { wr_id, flags, immediate, address: (), remote };
        // SAFETY: there is room for a request of the largest size, in blocks that the device does not
        // own, and the flags were looked at; posting was allowed when the batch was started, or there would be
        // no room.
        unsafe {
            let slot = opaque(queue.at(cursor.head));
            write_head(slot, (), remote);
            queue.build_control::<O, _>(slot, cursor, &parts, units, units, 1);
            self.state.pending = slot.byte_add((units - 1) * UNIT).as_ptr();
        }
        true
    }

    /// Gives the request that has a head one piece of local memory. Returns false, and does nothing,
    /// if there is none, or the piece has to be checked: then [`Steps::list`] takes it.
    #[inline(always)]
    pub fn sge(&mut self, sge: Sge) -> bool {
        let Some(data) = self.fast_data() else { return false };
        let sge = OneSge::from(sge);
        if !sge.is_fast(DataKind::Message, &self.queue.limits) {
            return false;
        }
        // SAFETY: the data of the request goes there. The head already counts one unit of data.
        unsafe { sge.write_numbers(data) };
        self.state.pending = NONE;
        self.state.set_cursor(self.state.cursor().after(1));
        true
    }

    /// Gives the request that has a head its data: `length` bytes that are copied into it. Returns
    /// false, and does nothing, if there is none, or no data of this length: then
    /// [`Steps::inline_list`] takes none, and refuses more than fit.
    ///
    /// # Safety
    /// The bytes are readable, unless they are longer than the queue takes.
    #[inline(always)]
    pub unsafe fn inline(&mut self, from: *const u8, length: usize) -> bool {
        let Some(data) = self.fast_data() else { return false };
        // One comparison also rejects the length zero.
        if length.wrapping_sub(1) >= self.queue.limits.max_inline {
            return false;
        }
        self.state.pending = NONE;
        let piece = InlineBytesAt::new(from, length as u32);
        let units = piece.units();
        // SAFETY: the data of the request goes there; the bytes are readable, by the contract.
        unsafe {
            piece.write(data);
            self.finish(data, units);
        }
        true
    }

    /// Gives the request that has a head a list of pieces of local memory. If none has a head
    /// ([`Steps::has_head`]), the pieces are dropped.
    pub fn list(&mut self, sges: &[Sge]) {
        self.finish_checked(sges);
    }

    /// Gives the request that has a head its data: bytes that are copied into it. If none has a head
    /// ([`Steps::has_head`]), they are dropped.
    pub fn inline_list(&mut self, pieces: InlineSges<'_>) {
        self.finish_checked(pieces);
    }

    /// Where the data of the request that has a head goes.
    #[inline(always)]
    fn fast_data(&self) -> Option<NonNull<u8>> {
        // Nothing has to be asked where no request has a head.
        if T::ADDRESS_UNITS == 0 && self.has_head() {
            NonNull::new(self.state.pending)
        } else {
            None
        }
    }

    #[cold]
    #[inline(never)]
    fn finish_checked(&mut self, data: impl Data) {
        let Some(at) = self.fast_data() else { return };
        self.state.pending = NONE;
        self.state.slow = 1;
        // SAFETY: the data of the request goes there, with room for a request of the largest size.
        unsafe {
            match data.write_checked(at, DataKind::Message, &self.queue.limits) {
                Ok(units) => self.finish(at, units),
                Err(error) => {
                    let cursor = self.queue.refuse(self.state.cursor(), error);
                    self.state.set_cursor(cursor);
                }
            }
        }
    }

    /// Finishes the request that has a head, and so many units of data at `data`.
    ///
    /// # Safety
    /// They were written, behind the head at the cursor.
    #[inline(always)]
    unsafe fn finish(&mut self, data: NonNull<u8>, data_units: usize) {
        // A request starts a block, and the data of this one starts in its first.
        const { assert!(BLOCK.is_power_of_two()) };
        let head = data.addr().get() % BLOCK;
        let units = head / UNIT + data_units;
        // SAFETY: by the contract a control segment is there.
        unsafe { data.byte_sub(head).byte_add(UNITS_AT).write(units as u8) };
        if units > BLOCK / UNIT {
            // SAFETY: by the contract.
            return unsafe { Self::finish_large(self.queue, self.state, blocks_of(units)) };
        }
        self.state.set_cursor(self.state.cursor().after(1));
    }

    /// [`Steps::finish`] of a request of several blocks.
    ///
    /// # Safety
    /// As for [`Steps::finish`].
    #[inline(never)]
    unsafe fn finish_large(queue: &SendQueue<T>, state: &mut StepsState, blocks: u32) {
        // SAFETY: by the contract, the request has a record.
        unsafe { queue.slots.set_blocks(queue.mask, state.sequence, blocks) };
        state.set_cursor(state.cursor().after(blocks));
        state.slow = 1;
    }

    /// Adds a request of the list form, as [`Batch::push_fast`] does.
    #[inline(always)]
    pub fn push_fast(&mut self, wr: &SendWr<'_>) -> bool
    where
        T: ListTransport,
    {
        let before = self.state.cursor();
        let mut batch = Batch::at(self.queue, before);
        let added = batch.push_fast(wr);
        let (_, _, cursor) = batch.into_parts();
        if added {
            self.state.set_cursor(cursor);
            self.state.pending = NONE;
            let (blocks, _) = cursor.since(before);
            self.state.slow |= usize::from(blocks != SendQueue::<T>::USUAL_BLOCKS);
        }
        added
    }

    /// Adds a request of the list form, as [`Batch::push_with`] does.
    #[inline(always)]
    pub fn push_with<'a>(&mut self, wr: impl FnOnce() -> SendWr<'a>)
    where
        T: ListTransport,
    {
        self.state.slow = 1;
        self.state.pending = NONE;
        let cursor = push_out_of_line(self.queue, self.state.cursor(), wr);
        self.state.set_cursor(cursor);
    }

    /// A request of one or several WQEs that configures a key is to be added at the cursor that this
    /// returns. [`Steps::end_keyed`] follows.
    #[inline(always)]
    pub(crate) fn begin_keyed(&mut self) -> (&mut SendQueue<T>, Cursor) {
        let first = self.state.sequence == self.queue.sequence;
        self.state.slow = if first { KEYED } else { 1 };
        self.state.pending = NONE;
        // Wherever there is room.
        self.queue.records().open();
        (&mut *self.queue, self.state.cursor())
    }

    /// It ends at the cursor.
    #[inline(always)]
    pub(crate) fn end_keyed(&mut self, cursor: Cursor) {
        self.state.set_cursor(cursor);
    }

    /// Posts the batch if it is one request that configures a key, and goes to the queue's own BlueFlame
    /// register. Otherwise returns false, and does nothing: then [`Steps::complete`] posts it.
    #[inline(always)]
    pub fn complete_keyed(&mut self) -> bool {
        self.state.slow == KEYED && self.queue.complete_single(self.state.cursor())
    }

    /// Adds requests by the typed builder. If `add` panics, or puts another batch in the place of the
    /// one that it gets, all requests of this batch are discarded.
    pub fn with_batch<R>(&mut self, add: impl FnOnce(&mut Batch<'_, T>) -> R) -> R {
        self.state.slow = 1;
        self.state.pending = NONE;
        let before = self.state.cursor();
        let queue = core::ptr::from_mut(&mut *self.queue);
        let discarded = Discarded { queue, state: &mut *self.state };
        // SAFETY: the reference that it is of is not used before the batch is gone.
        let mut batch = Batch::at(unsafe { &mut *queue }, before);
        let added = add(&mut batch);
        let (of, _, cursor) = batch.into_parts();
        if core::ptr::eq(of, queue) {
            ManuallyDrop::new(discarded).state.set_cursor(cursor);
        }
        added
    }

    /// Posts the batch: all of it, or nothing if a request was refused. A request that has a head and
    /// no data is not part of it.
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        self.state.pending = NONE;
        self.queue.complete_slow(self.state.cursor())
    }

    /// Posts the batch if no request is pending, nothing of it was refused, and the room need not be
    /// computed again. Otherwise returns false, and does nothing: then [`Steps::complete`] posts it, or
    /// says what was refused.
    #[inline(always)]
    pub fn complete_many(&mut self) -> bool {
        if self.is_pending() {
            return false;
        }
        let cursor = self.state.cursor();
        Self::complete_built(self.queue, cursor)
    }

    // Out of line, as it is called for each operation that a program may name first.
    #[inline(never)]
    fn complete_built(queue: &mut SendQueue<T>, cursor: Cursor) -> bool {
        queue.complete_built(cursor)
    }

    /// Posts the batch if it is one request of the usual size (a message with one SGE), which goes to the
    /// queue's own BlueFlame register, and no other one is pending. Otherwise returns false, and does
    /// nothing: then [`Steps::complete`] posts it.
    #[inline(always)]
    pub fn complete_fast(&mut self) -> bool {
        // If none is slow, each has as many blocks as the usual one.
        let one = self.queue.sequence.wrapping_add(1) == self.state.sequence;
        if self.state.pending.addr() | self.state.slow != 0
            || !one
            || !self.queue.copies_usual()
            || !self.queue.gate.may_send()
        {
            return false;
        }
        // SAFETY: as just checked.
        unsafe { self.queue.post_usual(self.state.cursor()) };
        true
    }

    /// Discards the batch.
    #[inline(always)]
    pub fn abort(self) {
        self.state.pending = NONE;
        self.queue.abort_dropped();
    }
}

/// Dropping it discards the requests of a batch: its state starts where the queue is.
struct Discarded<'a, T: Transport> {
    queue: *const SendQueue<T>,
    state: &'a mut StepsState,
}

impl<T: Transport> Drop for Discarded<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the queue outlives the value, and no batch of it is left that is used.
        self.state.set_cursor(unsafe { &*self.queue }.here());
    }
}
