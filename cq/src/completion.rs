//! A work completion, read from its entry as it is asked.

use crate::ring::SentRequest;
use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::cqe::{Cqe, CqeOpcode, DESCRIPTOR, ErrorCqe, SOLICITED, Syndrome};
use mlx5_prm::wqe::Opcode;

/// What completed (`enum ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CompletionOpcode {
    /// A send, with or without immediate data or invalidation.
    Send,
    /// An RDMA write, with or without immediate data.
    RdmaWrite,
    /// An RDMA read.
    RdmaRead,
    /// An atomic compare and swap.
    CompareSwap,
    /// An atomic fetch and add.
    FetchAdd,
    /// Another request of this opcode.
    Other(Opcode),
    /// A send arrived, with or without immediate data or invalidation.
    Receive,
    /// An RDMA write with immediate data arrived.
    ReceiveRdmaWithImm,
}

/// Why a request failed (`enum ibv_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// A code of the PRM.
    Known(Syndrome),
    /// Another code.
    Unknown(u8),
}

/// The failure of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CompletionError {
    /// Why.
    pub kind: ErrorKind,
    /// The vendor's own code.
    pub vendor: u8,
}

impl CompletionError {
    /// Whether the request was flushed: the queue pair was in error already.
    pub const fn is_flushed(self) -> bool {
        matches!(self.kind, ErrorKind::Known(Syndrome::WorkRequestFlushed))
    }
}

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ErrorKind::Known(syndrome) => f.write_str(syndrome.text())?,
            ErrorKind::Unknown(code) => write!(f, "unknown error {code:#04x}")?,
        }
        write!(f, " (vendor code {:#04x})", self.vendor)
    }
}

impl core::error::Error for CompletionError {}

/// What a completion is about, in a few bits that index tables: the opcode of a send request
/// (6 bits) with the mark of a cancelled one, or that of the entry of a receive; and whether it
/// failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct What(u16);

impl What {
    const RECEIVED: u16 = 0x80;
    const ERROR: u16 = 0x100;
    const COUNT: usize = 0x200;

    #[inline(always)]
    pub(crate) const fn sent(opcode: u8) -> Self {
        Self(opcode as u16)
    }

    pub(crate) const fn sent_error(opcode: u8) -> Self {
        Self(Self::sent(opcode).0 | Self::ERROR)
    }

    #[inline(always)]
    pub(crate) const fn received(opcode: u8) -> Self {
        Self(opcode as u16 | Self::RECEIVED)
    }

    pub(crate) const fn received_error() -> Self {
        Self(Self::RECEIVED | Self::ERROR)
    }

    #[inline(always)]
    const fn is(self, opcode: CqeOpcode) -> bool {
        self.0 == Self::received(opcode as u8).0
    }

    #[inline(always)]
    const fn is_received(self) -> bool {
        self.0 & (Self::RECEIVED | Self::ERROR) == Self::RECEIVED
    }

    #[inline(always)]
    const fn is_error(self) -> bool {
        self.0 & Self::ERROR != 0
    }

    #[inline(always)]
    const fn is_cancelled(self) -> bool {
        self.0 & (Self::RECEIVED | SentRequest::CANCELLED as u16) == SentRequest::CANCELLED as u16
    }

    const fn sent_opcode(self) -> Opcode {
        match Opcode::from_bits(self.0 as u8 & 0x3f) {
            Some(opcode) => opcode,
            None => Opcode::Nop,
        }
    }

    const fn completion_opcode(self) -> CompletionOpcode {
        if self.0 & Self::RECEIVED != 0 {
            return if self.is(CqeOpcode::ResponderWriteImm) {
                CompletionOpcode::ReceiveRdmaWithImm
            } else {
                CompletionOpcode::Receive
            };
        }
        match self.sent_opcode() {
            Opcode::Send | Opcode::SendImm | Opcode::SendInvalidate => CompletionOpcode::Send,
            Opcode::RdmaWrite | Opcode::RdmaWriteImm => CompletionOpcode::RdmaWrite,
            Opcode::RdmaRead => CompletionOpcode::RdmaRead,
            Opcode::AtomicCs => CompletionOpcode::CompareSwap,
            Opcode::AtomicFa => CompletionOpcode::FetchAdd,
            other => CompletionOpcode::Other(other),
        }
    }

    const fn has_length(self) -> bool {
        let returns = matches!(
            self.completion_opcode(),
            CompletionOpcode::RdmaRead | CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd
        );
        self.is_received() || returns && !self.is_cancelled() && !self.is_error()
    }

    /// Looks up what follows from it.
    #[inline(always)]
    fn facts(self) -> &'static Facts {
        &FACTS[usize::from(self.0) % Self::COUNT]
    }
}

/// What follows from [`What`] a completion is about.
struct Facts {
    opcode: CompletionOpcode,
    has_length: bool,
}

/// A table made at compile time, so that nothing is worked out when a completion is read.
static FACTS: [Facts; What::COUNT] = {
    let mut table =
        [const { Facts { opcode: CompletionOpcode::Send, has_length: false } }; What::COUNT];
    let mut what = 0;
    while what < What::COUNT {
        let of = What(what as u16);
        table[what] = Facts { opcode: of.completion_opcode(), has_length: of.has_length() };
        what += 1;
    }
    table
};

/// A work completion (`struct ibv_wc`). Its fields are read from the completion queue when they are
/// asked for; those that have no meaning for it are `None`. It cannot outlive the next poll.
#[derive(Clone, Copy)]
pub struct WorkCompletion<'poll> {
    descriptor: NonNull<u8>,
    wr_id: u64,
    what: What,
    poll: PhantomData<&'poll ()>,
}

/// Reads a field of an entry that the device is done with.
macro_rules! field {
    ($self:ident, $layout:ident . $field:ident as $int:ty) => {
        field!(at $self.descriptor, $layout . $field as $int)
    };
    (at $descriptor:expr, $layout:ident . $field:ident as $int:ty) => {{
        // SAFETY: a field of the descriptor, aligned in it as the type asks; the device does not
        // write the entry before the poller has published that it passed it.
        <$int>::from_be(unsafe {
            $descriptor.byte_add(offset_of!($layout, $field)).cast::<$int>().read_volatile()
        })
    }};
}

/// Why the request failed of which the entry at `descriptor` tells.
#[cold]
fn error_in(descriptor: NonNull<u8>) -> CompletionError {
    let syndrome = field!(at descriptor, ErrorCqe.syndrome as u8);
    CompletionError {
        kind: Syndrome::from_bits(syndrome).map_or(ErrorKind::Unknown(syndrome), ErrorKind::Known),
        vendor: field!(at descriptor, ErrorCqe.vendor_err_synd as u8),
    }
}

impl WorkCompletion<'_> {
    #[inline(always)]
    pub(crate) fn new(descriptor: NonNull<u8>, wr_id: u64, what: What) -> Self {
        Self { descriptor, wr_id, what, poll: PhantomData }
    }

    /// The same, of a lifetime that the caller bounds again: the borrow checker refuses to return
    /// what it lends on one path only.
    #[inline(always)]
    pub(crate) fn detach<'other>(self) -> WorkCompletion<'other> {
        WorkCompletion::new(self.descriptor, self.wr_id, self.what)
    }

    /// The identifier of the request.
    #[inline(always)]
    pub const fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// Whether the request succeeded, or why not. A request that was cancelled and passed over
    /// counts as succeeded; [`WorkCompletion::cancelled`] tells it apart.
    #[inline(always)]
    pub fn status(&self) -> Result<(), CompletionError> {
        if self.what.is_error() { Err(error_in(self.descriptor)) } else { Ok(()) }
    }

    /// Whether the request succeeded.
    #[inline(always)]
    pub const fn is_success(&self) -> bool {
        !self.what.is_error()
    }

    /// What completed. Known for a failed request too; of a failed receive it is not known how the
    /// message came, and it counts as [`CompletionOpcode::Receive`].
    #[inline(always)]
    pub fn opcode(&self) -> CompletionOpcode {
        self.what.facts().opcode
    }

    /// Whether the request was cancelled before the device came to it.
    #[inline(always)]
    pub const fn cancelled(&self) -> bool {
        self.what.is_cancelled()
    }

    /// Bytes received, read or returned; `None` where nothing was.
    #[inline(always)]
    pub fn byte_len(&self) -> Option<u32> {
        self.what.facts().has_length.then(|| field!(self, Cqe.byte_count as u32))
    }

    /// Immediate data that came with the message: the same four bytes that the sender gave.
    #[inline]
    pub fn imm_data(&self) -> Option<[u8; 4]> {
        let has =
            self.what.is(CqeOpcode::ResponderWriteImm) || self.what.is(CqeOpcode::ResponderSendImm);
        has.then(|| field!(self, Cqe.imm_inval_pkey as u32).to_be_bytes())
    }

    /// The key that the sender had invalidated.
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        self.what
            .is(CqeOpcode::ResponderSendInvalidate)
            .then(|| field!(self, Cqe.imm_inval_pkey as u32))
    }

    /// Number of the local queue pair.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        field!(self, Cqe.sop_drop_qpn as u32) & 0xff_ffff
    }

    /// Number of the queue pair that sent the message.
    #[inline]
    pub fn src_qp(&self) -> Option<u32> {
        self.what.is_received().then(|| field!(self, Cqe.flags_rqpn as u32) & 0xff_ffff)
    }

    /// LID of the sender, on InfiniBand.
    #[inline]
    pub fn slid(&self) -> Option<u16> {
        self.what.is_received().then(|| field!(self, Cqe.slid as u16))
    }

    /// Service level of the message.
    #[inline]
    pub fn service_level(&self) -> Option<u8> {
        self.what.is_received().then(|| (field!(self, Cqe.flags_rqpn as u32) >> 24 & 0xf) as u8)
    }

    /// The low bits of the LID to which the message was sent.
    #[inline]
    pub fn dlid_path_bits(&self) -> Option<u8> {
        self.what.is_received().then(|| field!(self, Cqe.ml_path as u8) & 0x7f)
    }

    /// Whether the message has a global route header: on a datagram queue pair, the first 40 bytes
    /// of the receive buffer hold it.
    #[inline]
    pub fn has_grh(&self) -> Option<bool> {
        self.what.is_received().then(|| field!(self, Cqe.flags_rqpn as u32) >> 28 & 3 != 0)
    }

    /// Index of the message's partition key, of a datagram without immediate data.
    #[inline]
    pub fn pkey_index(&self) -> Option<u16> {
        self.what
            .is(CqeOpcode::ResponderSend)
            .then(|| field!(self, Cqe.imm_inval_pkey as u32) as u16)
    }

    /// Whether the sender asked for an event.
    #[inline]
    pub fn solicited(&self) -> bool {
        field!(self, Cqe.op_own as u8) & SOLICITED != 0
    }

    /// The device's time, in cycles of its clock, at which it wrote the entry.
    #[inline]
    pub fn timestamp(&self) -> Option<u64> {
        (!self.what.is_error()).then(|| field!(self, Cqe.timestamp as u64))
    }

    /// A copy that does not depend on the queue.
    pub fn to_owned(&self) -> OwnedCompletion {
        // SAFETY: a descriptor of 64 bytes, aligned to it; as in `field!`.
        let descriptor = unsafe { self.descriptor.cast::<[u64; 8]>().read_volatile() };
        OwnedCompletion { descriptor, wr_id: self.wr_id, what: self.what }
    }
}

impl fmt::Debug for WorkCompletion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkCompletion")
            .field("wr_id", &self.wr_id())
            .field("status", &self.status())
            .field("opcode", &self.opcode())
            .field("qp_num", &self.qp_num())
            .field("byte_len", &self.byte_len())
            .field("imm_data", &self.imm_data())
            .field("cancelled", &self.cancelled())
            .finish()
    }
}

/// A work completion with a copy of its entry.
#[derive(Clone, Copy)]
pub struct OwnedCompletion {
    descriptor: [u64; 8],
    wr_id: u64,
    what: What,
}

/// A completion of nothing: room for one to be polled into.
impl Default for OwnedCompletion {
    fn default() -> Self {
        Self { descriptor: [0; 8], wr_id: 0, what: What::sent(Opcode::Nop as u8) }
    }
}

impl OwnedCompletion {
    /// The entry's descriptor, as the device wrote it.
    pub fn descriptor(&self) -> [u8; DESCRIPTOR] {
        let mut bytes = [0; DESCRIPTOR];
        for (bytes, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(self.descriptor) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Reads it as a [`WorkCompletion`].
    pub fn as_completion(&self) -> WorkCompletion<'_> {
        WorkCompletion::new(NonNull::from(&self.descriptor).cast(), self.wr_id, self.what)
    }
}

impl fmt::Debug for OwnedCompletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_completion().fmt(f)
    }
}
