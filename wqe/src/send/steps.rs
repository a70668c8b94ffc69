//! Requests that are built in steps, by calls that do not know of each other (`ibv_wr_*` as a C program
//! calls them): one names the operation, another one gives the data.
//!
//! The head of a usual request is written to the ring at once, so that nothing of it has to be kept for
//! the call that gives the data.

use crate::request::data::{Data, DataKind, InlineBytesAt, InlineSges};
use crate::request::error::BatchError;
use crate::request::flags::SendFlags;
use crate::request::operation::{Inline, SendOps};
use crate::request::segment::Segment;
use crate::request::sge::Sge;
use crate::request::transport::Transport;
use crate::send::batch::Batch;
use crate::send::build::{Cursor, Parts, blocks_of, opaque};
use crate::send::list::{ListTransport, SendWr, push_out_of_line};
use crate::send::post::UNITS_AT;
use crate::send::queue::SendQueue;
use core::fmt;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;
use mlx5_prm::U32;
use mlx5_prm::wqe::{BLOCK, UNIT};

/// A batch under construction whose requests are built in steps. As a [`Batch`] it is posted whole or
/// not at all, and aborted if it is dropped.
#[must_use = "a batch that is dropped posts nothing"]
pub struct Steps<'q, T: Transport> {
    queue: &'q mut SendQueue<T>,
    /// The position behind the last request built.
    cursor: Cursor,
    /// The request that has a head, and where its data goes.
    slot: MaybeUninit<NonNull<u8>>,
    data: MaybeUninit<NonNull<u8>>,
    /// Whether a request was built off the fast path.
    slow: bool,
}

// SAFETY: the addresses are in the ring of the queue that the value has borrowed, and `SendQueue` is
// `Send`.
unsafe impl<T: Transport> Send for Steps<'_, T> {}

impl<T: Transport> fmt::Debug for Steps<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Steps")
            .field("transport", &format_args!("{}", T::NAME))
            .field("qp_num", &format_args!("{:#x}", self.queue.qp_num()))
            .field("requests", &self.cursor.since(self.queue.here()).1)
            .finish_non_exhaustive()
    }
}

impl<T: Transport> SendQueue<T> {
    /// Starts a batch whose requests are built in steps.
    #[inline(always)]
    pub fn start_steps(&mut self) -> Steps<'_, T> {
        if !self.gate.may_send() {
            self.leave_fast_path();
        }
        let (cursor, slot, data) = (self.here(), MaybeUninit::uninit(), MaybeUninit::uninit());
        Steps { queue: self, cursor, slot, data, slow: false }
    }

    /// Makes every request take the slow path, which refuses it.
    #[cold]
    fn leave_fast_path(&mut self) {
        self.fast_limit = self.head.wrapping_sub(1);
    }
}

impl<'q, T: Transport> Steps<'q, T> {
    /// Writes the head of a request, whose data follows. Returns false, and does nothing, unless the
    /// fast path can build it and its transport needs no address: then [`Steps::push_with`] adds it,
    /// when its data is known.
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
        let allowed = T::FLAGS.intersection(O::FLAGS).union(SendFlags::all().complement());
        if T::ADDRESS_UNITS != 0
            || !const { SendOps::of::<T>().contains(O::BIT) }
            || !allowed.contains(flags)
            || !self.queue.has_fast_room(self.cursor.head)
        {
            return false;
        }
        let queue = &mut *self.queue;
        let slot = opaque(queue.at(self.cursor.head));
        let immediate = U32::from_bytes(immediate);
        let parts = Parts { wr_id, flags, immediate, address: (), remote };
        // SAFETY: there is room for a request of the largest size, in blocks that the device does not
        // own; posting was allowed when the batch was started, or there would be no room. The records
        // were created for this ring.
        unsafe {
            SendQueue::<T>::write_head::<O, ()>(slot, (), remote);
            let info = queue.write_control::<O, _>(slot, self.cursor, &parts, units, 1, 0);
            queue.slots.stage(queue.mask, self.cursor.sequence, wr_id, info);
            self.data.write(slot.byte_add((units - 1) * UNIT));
        }
        self.slot.write(slot);
        true
    }

    /// Gives the request that has a head one piece of local memory. Returns false, and does nothing,
    /// if it has to be checked: then [`Steps::list`] takes it.
    ///
    /// # Safety
    /// The last call wrote a head.
    #[inline(always)]
    pub unsafe fn sge(&mut self, sge: Sge) -> bool {
        if !sge.is_fast(DataKind::Message, &self.queue.limits) {
            return false;
        }
        // SAFETY: by the contract, `data` is where the data of a request goes. The head already counts
        // one unit of data.
        unsafe { sge.write(self.data.assume_init()) };
        self.cursor = self.cursor.after(1);
        true
    }

    /// Whether [`Steps::inline`] takes so many bytes: [`Steps::inline_list`] takes none, and refuses
    /// more than fit.
    #[inline(always)]
    pub fn fits_inline(&self, length: usize) -> bool {
        // One comparison also rejects the length zero.
        length.wrapping_sub(1) < self.queue.limits.max_inline
    }

    /// Gives the request that has a head its data: `length` bytes that are copied into it.
    ///
    /// # Safety
    /// The last call wrote a head; the bytes are readable, and [`Steps::fits_inline`].
    #[inline(always)]
    pub unsafe fn inline(&mut self, from: *const u8, length: usize) {
        let piece = InlineBytesAt::new(from, length as u32);
        // SAFETY: by the contract, `data` is where the data of a request goes.
        unsafe {
            let units = piece.write(self.data.assume_init());
            self.finish(units);
        }
    }

    /// Gives the request that has a head a list of pieces of local memory.
    ///
    /// # Safety
    /// The last call wrote a head.
    pub unsafe fn list(&mut self, sges: &[Sge]) {
        // SAFETY: by the contract.
        unsafe { self.finish_checked(sges) };
    }

    /// Gives the request that has a head its data: bytes that are copied into it.
    ///
    /// # Safety
    /// The last call wrote a head.
    pub unsafe fn inline_list(&mut self, pieces: InlineSges<'_>) {
        // SAFETY: by the contract.
        unsafe { self.finish_checked(pieces) };
    }

    /// # Safety
    /// The last call wrote a head.
    #[cold]
    #[inline(never)]
    unsafe fn finish_checked(&mut self, data: impl Data) {
        self.slow = true;
        // SAFETY: by the contract, `data` is where the data of a request goes.
        unsafe {
            let at = self.data.assume_init();
            match data.write_checked(at, DataKind::Message, &self.queue.limits) {
                Ok(units) => self.finish(units),
                Err(error) => self.cursor = self.queue.refuse(self.cursor, error),
            }
        }
    }

    /// Finishes the request that has a head and so many units of data.
    ///
    /// # Safety
    /// The last call wrote a head.
    #[inline(always)]
    unsafe fn finish(&mut self, data_units: usize) {
        // SAFETY: by the contract, both were written, and a control segment is at `slot`.
        let units = unsafe {
            let (slot, data) = (self.slot.assume_init(), self.data.assume_init());
            let head = data.addr().get().wrapping_sub(slot.addr().get());
            let units = head / UNIT + data_units;
            slot.byte_add(UNITS_AT).write(units as u8);
            units
        };
        if units > BLOCK / UNIT {
            // SAFETY: by the contract.
            return unsafe { self.finish_large(blocks_of(units)) };
        }
        self.cursor = self.cursor.after(1);
    }

    /// [`Steps::finish`] of a request of several blocks.
    ///
    /// # Safety
    /// As for [`Steps::finish`].
    #[inline(never)]
    unsafe fn finish_large(&mut self, blocks: u32) {
        // SAFETY: by the contract, the request has a record.
        unsafe { self.queue.slots.set_blocks(self.queue.mask, self.cursor.sequence, blocks) };
        self.cursor = self.cursor.after(blocks);
    }

    /// Adds a request of the list form, as [`Batch::push_fast`] does.
    #[inline(always)]
    pub fn push_fast(&mut self, wr: &SendWr<'_>) -> bool
    where
        T: ListTransport,
    {
        let mut batch = Batch::at(self.queue, self.cursor);
        let added = batch.push_fast(wr);
        let (_, _, cursor) = batch.into_parts();
        self.cursor = cursor;
        added
    }

    /// Adds a request of the list form, as [`Batch::push_with`] does.
    #[inline(always)]
    pub fn push_with<'a>(&mut self, wr: impl FnOnce() -> SendWr<'a>)
    where
        T: ListTransport,
    {
        self.slow = true;
        self.cursor = push_out_of_line(self.queue, self.cursor, wr);
    }

    /// Adds requests by the typed builder.
    pub fn with_batch<R>(&mut self, add: impl FnOnce(&mut Batch<'_, T>) -> R) -> R {
        self.slow = true;
        let mut batch = Batch::at(self.queue, self.cursor);
        let added = add(&mut batch);
        let (_, _, cursor) = batch.into_parts();
        self.cursor = cursor;
        added
    }

    /// Posts the batch: all of it, or nothing if a request was refused. A request that has a head and
    /// no data is not part of it.
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is read once; the source is in a `ManuallyDrop` and never used again.
        let queue = unsafe { core::ptr::read(&this.queue) };
        queue.complete_slow(this.cursor)
    }

    /// Posts the batch if it is one request of the usual size (a message with one SGE), which goes to the
    /// queue's own BlueFlame register. Otherwise returns false, and does nothing: then [`Steps::complete`] posts it. If this
    /// returns true, the value must not be dropped.
    #[inline(always)]
    pub fn complete_fast(&mut self) -> bool {
        !self.slow && self.queue.complete_usual(self.cursor)
    }

    /// Discards the batch, as dropping it does.
    pub fn abort(self) {
        drop(self);
    }
}

impl<T: Transport> Drop for Steps<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.queue.abort_dropped();
    }
}
