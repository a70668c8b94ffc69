//! The kind of a completion.

use crate::table::Side;
use mlx5_prm::cqe::{CqeOpcode, Format, MiniFormat, TagEvent};
use mlx5_prm::wqe::{Opcode, TagOperation};

/// The operation that completed (`enum ibv_wc_opcode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CompletionOpcode {
    /// A send, with or without immediate data or invalidation.
    Send,
    /// An RDMA write, with or without immediate data.
    RdmaWrite,
    /// An RDMA read.
    RdmaRead,
    /// An atomic compare and swap, masked or not.
    CompareSwap,
    /// An atomic fetch and add, masked or not.
    FetchAdd,
    /// The binding of a memory window.
    BindWindow,
    /// The invalidation of a memory window.
    LocalInvalidate,
    /// A packet that the device segmented.
    Tso,
    /// Another request with this opcode.
    Other(Opcode),
    /// A raw request with an opcode that has no name here.
    Unnamed(u8),
    /// A send arrived, with or without immediate data or invalidation.
    Receive,
    /// An RDMA write with immediate data arrived.
    ReceiveRdmaWithImm,
    /// A tag was added to a list (`IBV_WC_TM_ADD`).
    TmAdd,
    /// A tag was removed from a list (`IBV_WC_TM_DEL`).
    TmDel,
    /// The number of handled unexpected messages was reported to the device (`IBV_WC_TM_SYNC`).
    TmSync,
    /// A message with a tag arrived, matched or not (`IBV_WC_TM_RECV`).
    TmReceive,
    /// A message without a tag arrived at a queue with a tag list (`IBV_WC_TM_NO_TAG`).
    TmNoTag,
}

impl CompletionOpcode {
    /// The number of this opcode in `enum ibv_wc_opcode`: `IBV_WC_DRIVER1` for an opcode that the
    /// enum does not name, and `IBV_WC_DRIVER2` for one without a name in this crate, either.
    pub const fn number(self) -> u8 {
        match self {
            Self::Send => 0,
            Self::RdmaWrite => 1,
            Self::RdmaRead => 2,
            Self::CompareSwap => 3,
            Self::FetchAdd => 4,
            Self::BindWindow => 5,
            Self::LocalInvalidate => 6,
            Self::Tso => 7,
            Self::Receive => 128,
            Self::ReceiveRdmaWithImm => 129,
            Self::TmAdd => 130,
            Self::TmDel => 131,
            Self::TmSync => 132,
            Self::TmReceive => 133,
            Self::TmNoTag => 134,
            Self::Other(_) => 135,
            Self::Unnamed(_) => 136,
        }
    }
}

/// The kind of a completion, in bits whose low ones index a table: the opcode of a send request (6
/// bits) with the mark of a cancelled one, or the CQE opcode of a receive; and whether it failed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(pub(crate) u16);

impl Kind {
    pub(crate) const RECEIVED: u16 = 0x80;
    pub(crate) const ERROR: u16 = 0x100;
    /// Marks the opcode of a cancelled request.
    pub(crate) const CANCELLED: u16 = 0x40;
    const COUNT: usize = 0x200;
    /// Not part of the table index: the CQE was compressed, and kept its own hash or checksum.
    pub(crate) const KEPT_HASH: u16 = 0x200;
    pub(crate) const KEPT_CHECKSUM: u16 = 0x400;
    /// Not part of the table index: inline data in the descriptor, or before it. Recorded when the
    /// format was checked, because a faulty device may change it in memory at any time.
    pub(crate) const IN_DESCRIPTOR: u16 = 0x800;
    pub(crate) const BEFORE_DESCRIPTOR: u16 = 0x4000;
    /// Not part of the table index: a completion of tag matching that was found on the send side.
    const OF_SENDS: u16 = 0x8000;

    /// No mark.
    pub(crate) const PLAIN: Self = Self(0);

    /// The mark of a compressed CQE.
    pub(crate) const fn compressed(format: MiniFormat) -> Self {
        Self(match format {
            MiniFormat::Hash => Self::KEPT_HASH,
            MiniFormat::Checksum | MiniFormat::ChecksumStride => Self::KEPT_CHECKSUM,
        })
    }

    /// The mark of a CQE whose format was checked.
    pub(crate) const fn formatted(format: Format) -> Self {
        Self(match format {
            Format::Plain | Format::Compressed => 0,
            Format::Inline32 => Self::IN_DESCRIPTOR,
            Format::Inline64 => Self::BEFORE_DESCRIPTOR,
        })
    }

    /// The marks of compression alone.
    #[inline]
    pub(crate) const fn of_compression(self) -> Self {
        Self(self.0 & (Self::KEPT_HASH | Self::KEPT_CHECKSUM))
    }

    /// Notes the side of its queue on which a completion of tag matching was found.
    pub(crate) const fn found_by(self, side: Side) -> Self {
        match side {
            Side::Send => Self(self.0 | Self::OF_SENDS),
            Side::Receive => self,
        }
    }

    /// The side of the queue that completed.
    #[inline(always)]
    pub(crate) const fn side(self) -> Side {
        if self.0 & (Self::RECEIVED | Self::OF_SENDS) == Self::RECEIVED {
            Side::Receive
        } else {
            Side::Send
        }
    }

    /// Adds a mark.
    pub(crate) const fn with(self, mark: Self) -> Self {
        Self(self.0 | mark.0)
    }

    #[inline]
    pub(crate) const fn is_compressed(self) -> bool {
        self.0 & (Self::KEPT_HASH | Self::KEPT_CHECKSUM) != 0
    }

    /// Whether it has inline data.
    pub(crate) const fn is_inline(self) -> bool {
        self.0 & (Self::IN_DESCRIPTOR | Self::BEFORE_DESCRIPTOR) != 0
    }

    #[inline]
    pub(crate) const fn sent(opcode: u8) -> Self {
        Self(opcode as u16)
    }

    pub(crate) const fn sent_error(opcode: u8) -> Self {
        Self(Self::sent(opcode).0 | Self::ERROR)
    }

    #[inline]
    pub(crate) const fn received(opcode: u8) -> Self {
        Self(opcode as u16 | Self::RECEIVED)
    }

    pub(crate) const fn received_error() -> Self {
        Self(Self::RECEIVED | Self::ERROR)
    }

    #[inline]
    pub(crate) const fn is(self, opcode: CqeOpcode) -> bool {
        self.0 & (Self::COUNT as u16 - 1) == Self::received(opcode as u8).0
    }

    #[inline]
    pub(crate) const fn is_received(self) -> bool {
        self.0 & (Self::OPERATION | Self::ERROR) == Self::RECEIVED
    }

    #[inline]
    pub(crate) const fn is_error(self) -> bool {
        self.0 & Self::ERROR != 0
    }

    #[inline]
    pub(crate) const fn is_cancelled(self) -> bool {
        self.0 & (Self::RECEIVED | Self::CANCELLED) == Self::CANCELLED
    }

    const fn completion_opcode(self) -> CompletionOpcode {
        if let Some(event) = self.tag_event() {
            return match event {
                TagEvent::Append => CompletionOpcode::TmAdd,
                TagEvent::Remove => CompletionOpcode::TmDel,
                TagEvent::Noop => CompletionOpcode::TmSync,
                TagEvent::NoTag => CompletionOpcode::TmNoTag,
                _ => CompletionOpcode::TmReceive,
            };
        }
        if self.0 & Self::RECEIVED != 0 {
            return if self.is(CqeOpcode::ResponderWriteImm) {
                CompletionOpcode::ReceiveRdmaWithImm
            } else {
                CompletionOpcode::Receive
            };
        }
        let number = self.0 as u8 & 0x3f;
        let Some(opcode) = Opcode::from_bits(number) else {
            return CompletionOpcode::Unnamed(number);
        };
        match opcode {
            Opcode::Send | Opcode::SendImm | Opcode::SendInvalidate => CompletionOpcode::Send,
            Opcode::RdmaWrite | Opcode::RdmaWriteImm => CompletionOpcode::RdmaWrite,
            Opcode::RdmaRead => CompletionOpcode::RdmaRead,
            Opcode::AtomicCs | Opcode::AtomicMaskedCs => CompletionOpcode::CompareSwap,
            Opcode::AtomicFa | Opcode::AtomicMaskedFa => CompletionOpcode::FetchAdd,
            Opcode::Fmr => CompletionOpcode::BindWindow,
            Opcode::LocalInvalidate => CompletionOpcode::LocalInvalidate,
            Opcode::Tso => CompletionOpcode::Tso,
            other => CompletionOpcode::Other(other),
        }
    }

    const fn has_length(self) -> bool {
        if let Some(event) = self.tag_event() {
            return matches!(
                event,
                TagEvent::Expected
                    | TagEvent::Unexpected
                    | TagEvent::NoTag
                    | TagEvent::ConsumedMessage
                    | TagEvent::ConsumedMessageSwRendezvous
            );
        }
        let returns = matches!(
            self.completion_opcode(),
            CompletionOpcode::RdmaRead | CompletionOpcode::CompareSwap | CompletionOpcode::FetchAdd
        );
        self.is_received() || returns && !self.is_cancelled() && !self.is_error()
    }

    const fn sent_immediate(self) -> bool {
        let executed = self.0 & (Self::RECEIVED | Self::CANCELLED | Self::ERROR) == 0;
        let opcode = Opcode::from_bits(self.0 as u8 & 0x3f);
        executed && matches!(opcode, Some(Opcode::SendImm | Opcode::RdmaWriteImm))
    }

    /// Looks up the properties of this kind.
    #[inline]
    pub(crate) fn facts(self) -> &'static Facts {
        &FACTS[usize::from(self.0) % Self::COUNT]
    }
}

/// The properties of a kind of completion. Four bytes, so that the table is indexed by the
/// addressing mode alone.
#[repr(align(4))]
pub(crate) struct Facts {
    pub(crate) opcode: CompletionOpcode,
    /// [`Facts::HAS_LENGTH`], [`Facts::SENT_IMMEDIATE`] or zero: no kind is both.
    bits: u8,
    /// [`CompletionOpcode::number`].
    pub(crate) number: u8,
}

impl Facts {
    const HAS_LENGTH: u8 = 1 << 0;
    const SENT_IMMEDIATE: u8 = 1 << 1;

    #[inline]
    pub(crate) const fn has_length(&self) -> bool {
        self.bits == Self::HAS_LENGTH
    }

    /// A send request with immediate data that was executed.
    #[inline]
    pub(crate) const fn sent_immediate(&self) -> bool {
        self.bits & Self::SENT_IMMEDIATE != 0
    }
}

/// Computed at compile time, so that reading a completion only looks it up.
static FACTS: [Facts; Kind::COUNT] = {
    let mut table =
        [const { Facts { opcode: CompletionOpcode::Send, bits: 0, number: 0 } }; Kind::COUNT];
    let mut kind = 0;
    while kind < Kind::COUNT {
        let of = Kind(kind as u16);
        let opcode = of.completion_opcode();
        let has_length = if of.has_length() { Facts::HAS_LENGTH } else { 0 };
        let sent_immediate = if of.sent_immediate() { Facts::SENT_IMMEDIATE } else { 0 };
        let (bits, number) = (has_length | sent_immediate, opcode.number());
        table[kind] = Facts { opcode, bits, number };
        kind += 1;
    }
    table
};

impl Kind {
    /// A message to a queue with a tag list; the event is in the low four bits.
    const TAGGED: u16 = Self::RECEIVED | 0x40;
    /// An operation on the tag list; the event is in the low four bits. Send requests may have any
    /// opcode, so these kinds are among the receives, whose opcodes have four bits.
    pub(crate) const OPERATION: u16 = Self::RECEIVED | 0x20;
    const EVENT: u16 = 0xf;
    /// Not part of the table index: the CQE is an error CQE.
    const ERROR_ENTRY: u16 = 0x1000;
    /// Not part of the table index: the user must report to the device how many unexpected messages
    /// were handled.
    const NEEDS_SYNC: u16 = 0x2000;

    pub(crate) fn tagged(event: TagEvent, success: bool, needs_sync: bool) -> Self {
        use TagEvent::*;
        let failed = match event {
            Remove => !success,
            ConsumedSwRendezvous | ConsumedMessageSwRendezvous | MessageCompletionCanceled => true,
            _ => false,
        };
        let mut kind = event as u16;
        kind |= if is_operation(event) { Self::OPERATION } else { Self::TAGGED };
        kind |= if failed { Self::ERROR } else { 0 };
        kind |= if needs_sync { Self::NEEDS_SYNC } else { 0 };
        Self(kind)
    }

    pub(crate) fn tag_operation_error(operation: TagOperation) -> Self {
        let event = match operation {
            TagOperation::Nop => TagEvent::Noop,
            TagOperation::Append => TagEvent::Append,
            TagOperation::Remove => TagEvent::Remove,
        };
        Self(Self::OPERATION | event as u16 | Self::ERROR | Self::ERROR_ENTRY)
    }

    /// Whether it is a message to a queue with a tag list.
    pub(crate) const fn is_tagged(self) -> bool {
        self.0 & Self::TAGGED == Self::TAGGED
    }

    /// Returns the event of tag matching.
    pub(crate) const fn tag_event(self) -> Option<TagEvent> {
        let event = TagEvent::from_bits((self.0 & Self::EVENT) as u8);
        let marks = self.0 & 0xff & !Self::EVENT;
        match event {
            Some(event) if is_operation(event) && marks == Self::OPERATION => Some(event),
            Some(event) if !is_operation(event) && marks == Self::TAGGED => Some(event),
            _ => None,
        }
    }

    /// Returns the event of tag matching that failed without an error CQE.
    pub(crate) const fn tag_failure(self) -> Option<TagEvent> {
        if self.0 & Self::ERROR_ENTRY != 0 { None } else { self.tag_event() }
    }

    pub(crate) const fn needs_sync(self) -> bool {
        self.0 & Self::NEEDS_SYNC != 0
    }
}

const fn is_operation(event: TagEvent) -> bool {
    matches!(event, TagEvent::Append | TagEvent::Remove | TagEvent::Noop)
}
