//! A batch of requests, and the functions that write its WQEs.

use crate::request::batch_error::{BatchError, ListError};
use crate::request::data::{Data, DataKind};
use crate::request::error::PostError;
use crate::request::ethernet::Ethernet;
use crate::request::flags::SendFlags;
use crate::request::operation::SendOperation;
use crate::request::raw::RawWqe;
use crate::request::segment::Segment;
use crate::request::transport::Transport;
use crate::send::cancel::RequestHandle;
use crate::send::queue::{Position, SendQueue};
use crate::send::records::RequestInfo;
use core::fmt;
use core::mem::{ManuallyDrop, offset_of, size_of};
use core::ptr::NonNull;
use mlx5_prm::wqe::{BLOCK, ControlSegment, MAX_BLOCKS, Opcode, UNIT, control_flags};

/// A batch of requests under construction. [`Batch::complete`] posts all of it. Nothing is posted
/// if a request was refused or the batch is dropped.
///
/// A batch can be sent to another thread, so a future may hold one across an `.await`. It cannot be
/// shared by threads.
#[must_use = "a batch that is dropped posts nothing"]
pub struct Batch<'q, T: Transport> {
    pub(crate) queue: &'q mut SendQueue<T>,
    /// The position after the last request. A leaked batch is harmless: the queue's position has
    /// not moved. If the batch took the slow path, the next [`SendQueue::start`] clears its state
    /// and its changes of keys.
    pub(crate) at: Position,
}

impl<T: Transport> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("transport", &format_args!("{}", T::NAME))
            .field("qp_num", &format_args!("{:#x}", self.queue.qp_num()))
            .field("requests", &self.len())
            .field("refused", &self.queue.batch.error)
            .finish_non_exhaustive()
    }
}

impl<T: Transport> Drop for Batch<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.queue.is_slow {
            self.queue.reset_batch();
        }
    }
}

impl<T: Transport> SendQueue<T> {
    /// Starts a batch of requests (`ibv_wr_start`). Nothing reaches the device before
    /// [`Batch::complete`]. Dropping the batch aborts it.
    #[inline(always)]
    pub fn wr_start(&mut self) -> Batch<'_, T> {
        let at = self.start();
        Batch { queue: self, at }
    }

    /// Goes on with a batch that was [paused](Batch::pause) at `at`.
    ///
    /// # Safety
    /// The batch is of this queue. Since it was paused, nothing but reading used the queue.
    #[inline(always)]
    pub unsafe fn resume(&mut self, at: Position) -> Batch<'_, T> {
        Batch { queue: self, at }
    }
}

impl<'q, T: Transport> Batch<'q, T> {
    /// Returns the number of requests in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        let (_, wqes) = self.at.since(self.queue.posted);
        let more_wqes = if self.queue.is_slow { self.queue.batch.more_wqes } else { 0 };
        (wqes - more_wqes) as usize
    }

    /// Whether the batch has no requests.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a request was refused. Then [`Batch::complete`] posts nothing.
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.queue.is_slow && self.queue.batch.is_refused()
    }

    /// Returns a handle of the request that is added next, by which it can be cancelled. If that
    /// request is not posted (the batch is refused or aborted, or no request follows), the handle
    /// refers to nothing.
    pub fn handle(&mut self) -> RequestHandle {
        let queue = &mut *self.queue;
        queue.is_slow = true;
        let number = match queue.batch.handle_number {
            Some(number) => number,
            None => queue.handle_numbers.next(),
        };
        queue.batch.handle_number = Some(number);
        let generation = queue.handle_numbers.generation;
        RequestHandle { sequence: self.at.sequence, number: number.get(), generation }
    }

    /// Posts the batch (`ibv_wr_complete`): all of it, or nothing if a request was refused.
    #[inline(always)]
    pub fn complete(self) -> Result<(), BatchError> {
        let (queue, at) = self.into_parts();
        queue.complete(at)
    }

    /// Posts the requests before the first refused one. The error has the index of that one, and
    /// what is wrong with it.
    #[inline(always)]
    pub fn complete_list(self) -> Result<(), ListError> {
        let (queue, at) = self.into_parts();
        queue.complete_list(at)
    }

    /// Discards the batch (`ibv_wr_abort`), as dropping it does.
    pub fn abort(self) {
        drop(self);
    }

    /// Lets the queue go, without posting or discarding the batch. [`SendQueue::resume`] goes on
    /// with it: for a batch that is built by several calls.
    #[inline(always)]
    pub fn pause(self) -> Position {
        let (_, at) = self.into_parts();
        at
    }

    /// Takes the batch apart without dropping it.
    #[inline(always)]
    fn into_parts(self) -> (&'q mut SendQueue<T>, Position) {
        let this = ManuallyDrop::new(self);
        // SAFETY: the value is read once; the source is in a `ManuallyDrop` and never used again.
        (unsafe { core::ptr::read(&this.queue) }, this.at)
    }

    /// Refuses the next request, and so the batch.
    #[inline]
    pub(crate) fn refuse(&mut self, error: PostError) {
        self.queue.refuse(self.at, error);
    }

    /// Adds a request of operation `O`. All requests but raw WQEs and configurations of keys enter
    /// the ring here.
    #[inline(always)]
    pub(crate) fn add<O: SendOperation, A: Segment>(
        &mut self,
        fields: RequestFields,
        address: A,
        remote: O::Remote,
        data: impl Data,
    ) {
        let (queue, at) = (&mut *self.queue, self.at);
        if !queue.is_slow
            && const { T::FLAGS.intersection(O::FLAGS) }.contains(fields.flags)
            && let Some(more) = data.fast_units(O::DATA, &queue.limits)
        {
            let before = 1 + A::UNITS + O::Remote::UNITS;
            let (units, blocks) = (before + more, blocks_of(before + more));
            let signaled = fields.flags.contains(SendFlags::SIGNALED);
            let in_one_piece = blocks == 1 || blocks <= queue.ring.blocks_to_end(at.block);
            if in_one_piece && queue.has_room(at, blocks, signaled) {
                let slot = queue.ring.at(at.block);
                // SAFETY: `blocks` blocks are free there, in one piece, and the request has as
                // many.
                unsafe {
                    write_segments(slot, address, remote);
                    data.write_fast(slot.byte_add(before * UNIT));
                    let info = queue.write_control::<O>(slot, at, fields, units, 0);
                    queue.ring.stage(at.sequence, fields.wr_id, info);
                }
                self.at = at.after(blocks);
                return;
            }
        }
        let RequestFields { wr_id, flags, immediate } = fields;
        self.at = queue.add_slow::<O, A>(at, wr_id, flags, immediate, address, remote, data);
    }

    /// Adds a WQE that the caller has built.
    pub(crate) fn add_raw(&mut self, wr_id: u64, flags: SendFlags, wqe: RawWqe<'_>) {
        self.at = self.queue.add_raw(self.at, wr_id, flags, wqe);
    }
}

/// The fields of a request that are not in its segments.
#[derive(Clone, Copy)]
pub(crate) struct RequestFields {
    pub(crate) wr_id: u64,
    pub(crate) flags: SendFlags,
    pub(crate) immediate: [u8; 4],
}

const _: () = {
    assert!(size_of::<ControlSegment>() == 2 * size_of::<u64>());
    assert!(offset_of!(ControlSegment, qpn_ds) == 4);
    assert!(offset_of!(ControlSegment, fm_ce_se) == 8 + RequestInfo::CONTROL_SHIFT as usize / 8);
    assert!(offset_of!(ControlSegment, immediate) == 12);
};

/// Writes the segments between control segment and data.
///
/// # Safety
/// `slot` has room for a request that has these segments.
#[inline]
pub(crate) unsafe fn write_segments<A: Segment, R: Segment>(
    slot: NonNull<u8>,
    address: A,
    remote: R,
) {
    // SAFETY: the caller promises room for these segments.
    unsafe {
        address.write(slot.byte_add(UNIT));
        remote.write(slot.byte_add((1 + A::UNITS) * UNIT));
    }
}

/// A request that was built off the fast path, and is not part of the batch yet.
pub(crate) struct Built {
    pub(crate) slot: NonNull<u8>,
    pub(crate) units: usize,
    pub(crate) wr_id: u64,
    pub(crate) info: RequestInfo,
    /// The next request must not overtake it.
    pub(crate) rewrites_key: bool,
}

impl<T: Transport> SendQueue<T> {
    /// Writes the control segment of the request at `at`, which has this many units, and returns
    /// its record. `fence` is added to its flags.
    ///
    /// # Safety
    /// `slot` is the place of the request.
    #[inline(always)]
    pub(crate) unsafe fn write_control<O: SendOperation>(
        &self,
        slot: NonNull<u8>,
        at: Position,
        fields: RequestFields,
        units: usize,
        fence: u8,
    ) -> RequestInfo {
        let flags = fields.flags.intersection(SendFlags::CONTROL) | self.common.flags;
        let control = u32::from(flags.bits() | fence) << RequestInfo::CONTROL_SHIFT;
        let place = u64::from(O::MODIFIER) << 24 | u64::from(at.block as u16) << 8;
        let posted = place | O::OPCODE as u64;
        // SAFETY: the caller promises that `slot` is the place of the request.
        unsafe { self.write_words(slot, posted, units, control, fields.immediate) };
        let recorded = (place | O::RECORD as u64) << RequestInfo::OPCODE_SHIFT;
        RequestInfo::new(recorded, control, blocks_of(units))
    }

    /// Writes a control segment as two words. `place` has modifier, first block and opcode;
    /// `control` the `fm_ce_se` byte.
    ///
    /// # Safety
    /// `slot` is the place of a request.
    #[inline(always)]
    pub(crate) unsafe fn write_words(
        &self,
        slot: NonNull<u8>,
        place: u64,
        units: usize,
        control: u32,
        immediate: [u8; 4],
    ) {
        let first = place << 32 | u64::from(self.common.qpn) | units as u64;
        let second = u64::from(u32::from_le_bytes(immediate)) << 32 | u64::from(control);
        // SAFETY: by the contract; a block is aligned.
        unsafe { slot.cast().write([first.to_be(), second.to_le()]) };
    }

    /// [`Batch::add`] with all checks: of the batch, of flags and data, of room, and of the end of
    /// the ring. Returns the position of the next request.
    #[cold]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "one by one, they stay in registers")]
    fn add_slow<O: SendOperation, A: Segment>(
        &mut self,
        at: Position,
        wr_id: u64,
        flags: SendFlags,
        immediate: [u8; 4],
        address: A,
        remote: O::Remote,
        data: impl Data,
    ) -> Position {
        if !self.takes(at, flags, T::FLAGS & O::FLAGS) {
            return at;
        }
        if self.common.needs_inline_header && A::UNITS == Ethernet::UNITS {
            self.refuse(at, PostError::InlineHeaderMissing);
            return at;
        }
        let most = const { most_blocks::<O, A>() }.max(self.limits.max_blocks);
        let slot = self.build_address(at, most);
        let before = 1 + A::UNITS + O::Remote::UNITS;
        // SAFETY: there is room for a request of the largest size, or of that of the operation if
        // it is larger, in memory that the device does not use.
        let written = unsafe {
            write_segments(slot, address, remote);
            data.write(slot.byte_add(before * UNIT), O::DATA, &self.limits)
        };
        let units = match written {
            Ok(more) => before + more,
            Err(error) => {
                self.refuse(at, error);
                return at;
            }
        };
        let fields = RequestFields { wr_id, flags, immediate };
        let fence = self.fence_for(flags.bits());
        // SAFETY: as above.
        let info = unsafe { self.write_control::<O>(slot, at, fields, units, fence) };
        let rewrites_key = rewrites_key(O::RECORD as u8);
        self.put_in_ring(at, Built { slot, units, wr_id, info, rewrites_key })
    }

    #[inline(never)]
    fn add_raw(&mut self, at: Position, wr_id: u64, flags: SendFlags, wqe: RawWqe<'_>) -> Position {
        if !self.takes(at, flags, T::FLAGS) {
            return at;
        }
        let bytes = wqe.bytes();
        let units = bytes.len() / UNIT;
        let slot = self.build_address(at, blocks_of(units));
        let flags = flags.intersection(SendFlags::CONTROL) | self.common.flags;
        let mut control = flags.bits() | wqe.control();
        if self.batch.fence && control & control_flags::FENCE_MASK == control_flags::LARGE_FENCE {
            control = control & !control_flags::FENCE_MASK | control_flags::FENCE;
        }
        let control = control | self.fence_for(control);
        let place = u64::from(wqe.modifier()) << 24 | u64::from(at.block as u16) << 8;
        let first = (place | u64::from(wqe.opcode())) << 32 | u64::from(self.common.qpn);
        // SAFETY: there is room for `units` units, in memory that the device does not use.
        unsafe {
            slot.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            slot.cast().write((first | units as u64).to_be());
            slot.byte_add(offset_of!(ControlSegment, fm_ce_se)).write(control);
        }
        let recorded = (place | u64::from(wqe.reported())) << RequestInfo::OPCODE_SHIFT;
        let control = u32::from(control) << RequestInfo::CONTROL_SHIFT;
        let info = RequestInfo::new(recorded, control, blocks_of(units));
        let rewrites_key = rewrites_key(wqe.opcode());
        self.put_in_ring(at, Built { slot, units, wr_id, info, rewrites_key })
    }

    /// Whether a request with these flags may be added. If not, the batch is refused.
    pub(crate) fn takes(&mut self, at: Position, flags: SendFlags, allowed: SendFlags) -> bool {
        let refused = flags.intersection(SendFlags::all()).difference(allowed);
        let error = if self.batch.error.is_some() {
            return false;
        } else if !self.gate.may_send() {
            self.refusal()
        } else if !refused.is_empty() {
            PostError::Flags { refused }
        } else {
            return true;
        };
        self.refuse(at, error);
        false
    }

    /// Makes a request that was built part of the batch, if there is room for it. Returns the
    /// position of the next one.
    fn put_in_ring(&mut self, at: Position, built: Built) -> Position {
        if let Err(error) = self.check_room(at, built.info.blocks().into(), built.info.signaled()) {
            self.refuse(at, error);
            return at;
        }
        self.enter(at, built)
    }

    /// [`SendQueue::put_in_ring`] of a request, or a part of one, for which there is room.
    #[inline]
    pub(crate) fn enter(&mut self, at: Position, built: Built) -> Position {
        let Built { slot, units, wr_id, info, rewrites_key } = built;
        let blocks = info.blocks().into();
        let is_copied = slot == self.scratch();
        if is_copied {
            // SAFETY: the blocks are free, and the scratch buffer holds the request.
            unsafe { self.ring.copy_in(at.block, slot, blocks) };
        }
        if self.common.is_signed {
            self.sign(at.block);
        }
        self.ring.stage(at.sequence, wr_id, info);
        // `complete` copies one contiguous WQE of more than one unit that no later request waits
        // for; all others go to `complete_slow`.
        self.is_slow |= is_copied || units == 1 || rewrites_key;
        self.batch.fence = rewrites_key;
        // The handle number that was asked for.
        if let Some(number) = self.batch.handle_number.take() {
            self.records().set_handle_number(at.sequence as u16, number.get());
            self.ring.restage(at.sequence, info.with_handle());
        }
        at.after(blocks)
    }

    /// Returns the small fence if a request with `control` in its `fm_ce_se` byte needs one: the
    /// request before it rewrites a key, and it has no fence of its own. [`control_flags::FENCE`]
    /// includes the small one.
    pub(crate) const fn fence_for(&self, control: u8) -> u8 {
        let needed = self.batch.fence && control & control_flags::FENCE_MASK == 0;
        if needed { control_flags::SMALL_FENCE } else { 0 }
    }
}

/// Returns the blocks of a request of `units` units.
#[inline]
#[expect(clippy::manual_div_ceil, reason = "`div_ceil` takes three instructions more")]
pub(crate) const fn blocks_of(units: usize) -> u32 {
    const UNITS_PER_BLOCK: u32 = (BLOCK / UNIT) as u32;
    (units as u32 + UNITS_PER_BLOCK - 1) / UNITS_PER_BLOCK
}

/// Returns the maximum number of blocks of an operation whose size does not depend on data; zero
/// for others.
const fn most_blocks<O: SendOperation, A: Segment>() -> u32 {
    let blocks = match O::DATA {
        DataKind::Message => 0,
        DataKind::Result => blocks_of(2 + A::UNITS + O::Remote::UNITS),
        DataKind::Own(units) => blocks_of(1 + A::UNITS + O::Remote::UNITS + units),
    };
    assert!(blocks <= MAX_BLOCKS as u32);
    blocks
}

/// Whether a request of this opcode rewrites a memory key or a signature of one, so that the next
/// request must not overtake it.
const fn rewrites_key(opcode: u8) -> bool {
    const UMR: u8 = Opcode::Umr as u8;
    const SET_PSV: u8 = Opcode::SetPsv as u8;
    const FMR: u8 = Opcode::Fmr as u8;
    const LOCAL_INVALIDATE: u8 = Opcode::LocalInvalidate as u8;
    matches!(opcode, UMR | SET_PSV | FMR | LOCAL_INVALIDATE)
}
