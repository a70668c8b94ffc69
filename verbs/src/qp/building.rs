//! A batch that `ibv_wr_*` build by several calls: what of it is in the ring, and what waits in C's
//! form until all of it is known.

use super::configuring::Configuring;
use super::packet::{cuts, segmented, tso_request};
use super::post::{self, Common, any_request, send_errno};
use super::{Address, CTransport, QpOf};
use crate::abi::*;
use crate::object::Blank;
use crate::refusal::Refusal;
use mlx5::operation::Inline;
use mlx5::{
    AddressVector, Batch, BatchError, Begun, Data, InlineSges, Position, QueuePairCaps, SendFlags,
    SendHalf, Sge, UdAddress,
};

pub(super) type Qp = *mut ibv_qp_ex;

/// The opcode of no request: none is kept.
const NONE: c_uint = c_uint::MAX;
/// The opcode of a request that none of C's opcodes names, which waits for its setters.
const DRIVER: c_uint = c_uint::MAX - 1;

/// A batch under construction, between two calls.
#[repr(C, align(64))]
pub(super) struct Building {
    /// Of the batch, from `wr_start` to `wr_complete` or `wr_abort`.
    at: Position,
    pending: Pending,
    kept: Kept,
}

/// The request that waits for its data, or for its receiver.
#[derive(Clone, Copy)]
pub(super) enum Pending {
    Nothing,
    /// Its head is in the ring.
    Begun(Begun),
    /// It is kept in C's form.
    Kept,
}

/// The parts of a request that are not in the ring yet.
pub(super) struct Kept {
    /// The request of [`Pending::Kept`].
    pub(super) wr: ibv_send_wr,
    /// Whether its receiver is set.
    addressed: bool,
    /// Its receiver's address, copied: the address handle need not outlive the call that names it.
    pub(super) vector: AddressVector,
    /// The errno of a refusal that C's library has another one for than the batch.
    refused: c_int,
    /// The configuration of a memory key that waits for its setters.
    pub(super) configuring: Option<Box<Configuring>>,
    /// Data that was set before the receiver, which is copied: the program's own may be gone.
    early: Option<Early>,
    /// Room for the headers of a packet that the device cuts, which are copied as well.
    headers: Box<[u8]>,
    /// Whether the device needs the first bytes of a packet in its request.
    heads: bool,
}

/// The batch of a queue pair during a call.
pub(super) struct Open<'a, T: CTransport> {
    half: &'a mut SendHalf<T>,
    at: &'a mut Position,
    pub(super) pending: &'a mut Pending,
    pub(super) kept: &'a mut Kept,
}

/// Data of a request whose receiver is not set yet.
struct Early {
    /// Room for one SGE more than a request can have, and for the inline data of one.
    room: Box<[Sge]>,
    kind: Kind,
}

/// The contents of the room.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Nothing,
    Sges(usize),
    Inline(u32),
}

impl Building {
    /// For a queue pair of transport `T` with such requests, and headers of packets.
    pub(super) fn new<T: CTransport>(caps: &QueuePairCaps, max_header: u16, heads: bool) -> Self {
        let mut building = Self::default();
        building.kept.early = (T::ADDRESS != Address::Nothing).then(|| {
            let inline = (caps.max_inline_data as usize).div_ceil(size_of::<Sge>());
            let room = vec![Sge::default(); inline.max(caps.max_send_sge as usize + 1)];
            Early { room: room.into(), kind: Kind::Nothing }
        });
        building.kept.headers = vec![0; max_header.into()].into();
        building.kept.heads = heads;
        building
    }
}

/// For a queue pair without batches.
impl Default for Building {
    fn default() -> Self {
        let mut wr = ibv_send_wr::blank();
        wr.opcode = NONE;
        let kept = Kept {
            wr,
            addressed: false,
            vector: AddressVector::default(),
            refused: 0,
            configuring: None,
            early: None,
            headers: Box::default(),
            heads: false,
        };
        Self { at: Position::default(), pending: Pending::Nothing, kept }
    }
}

impl Kept {
    /// The errno of a batch that was refused.
    #[cold]
    pub(super) fn errno(&mut self, refused: BatchError) -> c_int {
        match std::mem::take(&mut self.refused) {
            0 => send_errno(refused.error()),
            errno => errno,
        }
    }
}

/// The receiver of a request that is kept, on a transport whose requests name it.
///
/// # Safety
/// The request has a receiver, or is refused.
#[inline(always)]
unsafe fn receiver<'a, T: CTransport>(
    wr: &ibv_send_wr,
    vector: &'a AddressVector,
) -> Option<UdAddress<'a>> {
    // A constant of the transport.
    if T::ADDRESS != Address::Datagram {
        return None;
    }
    // SAFETY: the members of the union are numbers and a pointer.
    let ud = unsafe { wr.wr.ud };
    Some(UdAddress { vector, qp_num: ud.remote_qpn, qkey: ud.remote_qkey })
}

impl<T: CTransport> Open<'_, T> {
    /// Goes on with the batch. The pending request, if there was one, is part of it then.
    #[inline(always)]
    pub(super) fn add<R>(&mut self, add: impl FnOnce(&mut Batch<'_, T>) -> R) -> R {
        *self.pending = Pending::Nothing;
        // SAFETY: the caller of `open` promises that the batch was started; it was paused at this
        // position.
        let mut batch = unsafe { self.half.resume(*self.at) };
        let added = add(&mut batch);
        *self.at = batch.pause();
        added
    }

    /// Begins a request by writing its head. Returns false, and does nothing, if it must be kept
    /// until its data is known.
    #[inline(always)]
    pub(super) fn begin<O: Inline>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        immediate: [u8; 4],
        remote: O::Remote,
    ) -> bool {
        if !matches!(self.pending, Pending::Nothing) {
            return false;
        }
        let begun = self.add(|batch| batch.begin::<O>(wr_id, flags, immediate, remote));
        *self.pending = begun.map_or(Pending::Nothing, Pending::Begun);
        begun.is_some()
    }

    /// Posts the batch.
    #[inline(always)]
    pub(super) fn complete(self) -> Result<(), BatchError> {
        // SAFETY: the caller of `open` promises that the batch was started; it was paused at this
        // position.
        unsafe { self.half.resume(*self.at) }.complete()
    }

    /// Discards the batch.
    pub(super) fn abort(self) {
        *self.pending = Pending::Nothing;
        // SAFETY: the caller of `open` promises that the batch was started; it was paused at this
        // position.
        unsafe { self.half.resume(*self.at) }.abort();
    }

    /// Whether a request waits for its data or its receiver.
    #[inline(always)]
    pub(super) fn is_pending(&self) -> bool {
        !matches!(self.pending, Pending::Nothing)
    }

    /// A request begins that is kept until all of it is known.
    #[inline(always)]
    fn keep(&mut self, opcode: c_uint) {
        *self.pending = Pending::Kept;
        self.kept.wr.opcode = opcode;
    }

    /// A request begins that is none of C's: see [`Open::leave_driver_request`].
    #[inline(always)]
    pub(super) fn begin_driver_request(&mut self) {
        if self.is_pending() {
            self.refuse_unfinished();
        }
        self.keep(DRIVER);
    }

    /// It was added to the batch, or refused.
    pub(super) fn leave_driver_request(&mut self) {
        if self.kept.wr.opcode == DRIVER {
            *self.pending = Pending::Nothing;
            self.kept.wr.opcode = NONE;
        }
    }

    /// Refuses the batch: the program left a request without data or receiver.
    #[cold]
    #[inline(never)]
    fn refuse_unfinished(&mut self) {
        self.kept.wr.opcode = NONE;
        // SAFETY: the opcode is none of C's, so nothing of the request is used.
        unsafe { self.finish(Data::default()) };
    }

    /// Refuses the batch with an errno of C's library.
    #[cold]
    pub(super) fn refuse(&mut self, refusal: Refusal) {
        // The first refusal is the one that is reported.
        if self.kept.refused == 0 && !self.add(|batch| batch.is_refused()) {
            self.kept.refused = refusal.0;
        }
        self.refuse_unfinished();
    }

    /// Adds the request, which is complete, to the batch.
    ///
    /// # Safety
    /// As for [`any_request`].
    #[inline(never)]
    pub(super) unsafe fn finish(&mut self, data: Data<'_>) {
        *self.pending = Pending::Nothing;
        // SAFETY: the caller of `open` promises that the batch was started; it was paused at this
        // position.
        let mut batch = unsafe { self.half.resume(*self.at) };
        let Kept { wr, vector, heads, .. } = &*self.kept;
        if const { cuts::<T>() } && wr.opcode == IBV_WR_TSO {
            // SAFETY: the headers of a request that is kept are in their room.
            let packet = unsafe { segmented(wr, &data) };
            batch.push(&tso_request::<T>(wr, packet.as_ref()));
        } else if const { cuts::<T>() } && *heads {
            // SAFETY: the caller promises a complete request, whose data is readable until the call
            // returns.
            unsafe { T::add_headed(&mut batch, wr, &data) };
        } else {
            // SAFETY: the caller promises a complete request, whose data is readable until the call
            // returns.
            batch.push(&unsafe { any_request::<T>(wr, data, receiver::<T>(wr, vector)) });
        }
        *self.at = batch.pause();
        self.kept.wr.opcode = NONE;
    }

    /// Sets the data of a request that is kept, and finishes it, unless its receiver is still to be
    /// set: then `keep` copies the data.
    ///
    /// # Safety
    /// As for [`Open::finish`].
    #[inline(always)]
    pub(super) unsafe fn set(&mut self, data: Data<'_>, keep: impl FnOnce(&mut [Sge]) -> Kind) {
        if T::ADDRESS != Address::Nothing && !self.kept.addressed {
            self.keep_data(keep);
        } else {
            // SAFETY: the request has its receiver, and the caller promises that the rest of it is
            // set.
            unsafe { self.finish(data) };
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_data(&mut self, keep: impl FnOnce(&mut [Sge]) -> Kind) {
        if let Some(early) = &mut self.kept.early {
            early.kind = keep(&mut early.room);
        }
    }

    /// The receiver of the request is set: finishes it if its data is.
    ///
    /// # Safety
    /// As for [`Open::finish`].
    #[inline(always)]
    pub(super) unsafe fn addressed(&mut self) {
        self.kept.addressed = true;
        if let Some(Early { kind: Kind::Sges(_) | Kind::Inline(_), .. }) = &self.kept.early {
            // SAFETY: receiver and data are set, and the caller promises that the rest of the
            // request is.
            unsafe { self.finish_early() };
        }
    }

    /// Finishes a request whose data was set first.
    ///
    /// # Safety
    /// As for [`Open::finish`].
    #[cold]
    #[inline(never)]
    unsafe fn finish_early(&mut self) {
        let Some(early) = self.kept.early.take() else { return };
        let Early { room, kind } = early;
        // SAFETY: the caller promises a request that lacks only its data; the bytes in the room are
        // readable.
        unsafe {
            match kind {
                Kind::Nothing => {}
                Kind::Sges(count) => self.finish(Data::Sges(&room[..count])),
                Kind::Inline(length) => {
                    let addr = room.as_ptr().expose_provenance() as u64;
                    let pieces = [Sge { addr, length, lkey: 0 }];
                    self.finish(Data::InlineAt(InlineSges::new(&pieces)));
                }
            }
        }
        self.kept.early = Some(Early { room, kind: Kind::Nothing });
    }

    /// Keeps the headers of a packet that the device cuts. Returns whether there is room for them.
    ///
    /// # Safety
    /// `length` bytes are readable at `from`.
    pub(super) unsafe fn keep_headers(&mut self, from: *const u8, length: u16, mss: u16) -> bool {
        let Kept { wr, headers, .. } = &mut *self.kept;
        if usize::from(length) > headers.len() {
            return false;
        }
        if length != 0 {
            // SAFETY: the caller promises that `length` bytes are readable, and `headers` has room
            // for them.
            unsafe { headers.as_mut_ptr().copy_from(from, length.into()) };
        }
        wr.ext.tso = ibv_send_wr_u1_tso { hdr: headers.as_mut_ptr().cast(), hdr_sz: length, mss };
        true
    }

    /// [`Open::finish`] of a request of operation `O`, unless its receiver is still to be set.
    /// Returns whether it did.
    ///
    /// # Safety
    /// As for [`Open::finish`].
    #[inline(always)]
    pub(super) unsafe fn finish_as<O: Common>(&mut self, data: Data<'_>) -> bool {
        let waits = T::ADDRESS != Address::Nothing && !self.kept.addressed;
        if waits || const { cuts::<T>() } && self.kept.heads {
            return false;
        }
        *self.pending = Pending::Nothing;
        // SAFETY: the caller of `open` promises that the batch was started; it was paused at this
        // position. The caller of this promises a request of operation `O`.
        unsafe {
            let mut batch = self.half.resume(*self.at);
            let Kept { wr, vector, .. } = &*self.kept;
            batch.push(&post::request::<T, O>(wr, data, receiver::<T>(wr, vector)));
            *self.at = batch.pause();
        }
        self.kept.wr.opcode = NONE;
        true
    }
}

/// The batch of `qp`.
///
/// # Safety
/// `qp` is a queue pair of this transport, of which this thread has started a batch.
#[inline(always)]
pub(super) unsafe fn open<'a, T: CTransport>(qp: Qp) -> Open<'a, T> {
    // SAFETY: the caller promises that this thread has started a batch, so it holds the send lock:
    // no other code uses the queue before the batch is completed.
    unsafe {
        let this = QpOf::<T>::of(qp.cast());
        let Building { at, pending, kept } = &mut *this.building.get();
        Open { half: this.send(), at, pending, kept }
    }
}

/// Starts the batch.
///
/// # Safety
/// This thread holds the send lock, and there is no batch.
#[inline(always)]
pub(super) unsafe fn start_batch<T: CTransport>(this: &QpOf<T>) {
    // SAFETY: the caller promises that this thread holds the send lock, and that there is no batch.
    unsafe {
        let building = &mut *this.building.get();
        building.at = this.send().wr_start().pause();
        building.pending = Pending::Nothing;
    }
}

/// Drops the batch: nothing of it is posted.
///
/// # Safety
/// `qp` is a queue pair of this transport, of which this thread has started a batch, which is not
/// used any more.
pub(super) unsafe fn drop_batch<T: CTransport>(qp: Qp) {
    // SAFETY: the caller promises that this thread has started a batch, and uses it no more.
    unsafe {
        let open = open::<T>(qp);
        open.kept.wr.opcode = NONE;
        open.kept.refused = 0;
        open.kept.configuring = None;
        open.abort();
    }
}

/// Starts a request that is kept: takes its identifier and flags, as they are now.
///
/// # Safety
/// As for [`open`].
#[inline(always)]
pub(super) unsafe fn request<'a, T: CTransport>(qp: Qp, opcode: c_uint) -> &'a mut ibv_send_wr {
    // SAFETY: the caller promises that this thread has started a batch on this queue pair.
    unsafe {
        let mut open = open::<T>(qp);
        if open.is_pending() {
            open.refuse_unfinished();
        }
        open.keep(opcode);
        let kept = open.kept;
        kept.wr.wr_id = (*qp).wr_id;
        kept.wr.send_flags = (*qp).wr_flags;
        if T::ADDRESS != Address::Nothing {
            kept.addressed = false;
            if let Some(early) = &mut kept.early {
                early.kind = Kind::Nothing;
            }
        }
        &mut kept.wr
    }
}

/// Copies as many SGEs as there is room for: more than a request can have, if it has too many, so
/// that it is refused.
pub(super) fn keep_sges(list: &[Sge], room: &mut [Sge]) -> Kind {
    let count = list.len().min(room.len());
    room[..count].copy_from_slice(&list[..count]);
    Kind::Sges(count)
}

/// Copies the bytes at `pieces`. If they do not fit, none, and a length that is refused.
///
/// # Safety
/// The pieces are readable, if they fit.
pub(super) unsafe fn keep_inline(pieces: &[Sge], room: &mut [Sge]) -> Kind {
    let length = pieces.iter().fold(0, |sum, piece| sum + u64::from(piece.length));
    if length > size_of_val(room) as u64 {
        return Kind::Inline(u32::MAX);
    }
    let mut to = room.as_mut_ptr().cast::<u8>();
    for piece in pieces.iter().filter(|piece| piece.length != 0) {
        let from = std::ptr::with_exposed_provenance::<u8>(piece.addr as usize);
        // SAFETY: the caller promises that the pieces are readable; the sum of their lengths fits
        // into `room`, and any bytes are valid SGEs.
        unsafe {
            to.copy_from(from, piece.length as usize);
            to = to.add(piece.length as usize);
        }
    }
    Kind::Inline(length as u32)
}
