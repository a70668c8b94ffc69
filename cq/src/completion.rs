//! Work completions. Fields are read from the CQE on demand.

use crate::kind::{CompletionOpcode, Kind};
use crate::packet::{HashedHeaders, PacketHeaders, Strides};
use crate::user_tag::UserTag;
use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ptr::NonNull;
use mlx5_prm::cqe::{
    Cqe, CqeOpcode, DESCRIPTOR, ErrorCqe, Format, INLINE_32, INLINE_64, SOLICITED, Syndrome,
    TagEvent, hds_ip_ext, l4_l3_hdr_type,
};
use mlx5_prm::ethernet::{path_flags, tunnel_flags};
use mlx5_prm::wqe::Opcode;

/// Why a request failed (`enum ibv_wc_status`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ErrorKind {
    /// An error of the PRM.
    Known(Syndrome),
    /// An error code that has no name here.
    Unknown(u8),
    /// The tag to remove was no longer on the list: a message had matched it (`IBV_WC_TM_ERR`).
    TagConsumed,
    /// A rendezvous request matched, but the device does not fetch its data: the tag's buffer is
    /// too small or rendezvous is left to software. The buffer holds the request
    /// (`IBV_WC_TM_RNDV_INCOMPLETE`).
    RendezvousIncomplete,
    /// A message matched, but its data will not arrive (`IBV_WC_TM_RNDV_INCOMPLETE`).
    MessageCanceled,
}

/// Why and how a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CompletionError {
    /// The error.
    pub kind: ErrorKind,
    /// The vendor's error code.
    pub vendor: u8,
}

impl CompletionError {
    /// Whether the request was flushed because the queue pair was in the error state.
    pub const fn is_flushed(self) -> bool {
        matches!(self.kind, ErrorKind::Known(Syndrome::WorkRequestFlushed))
    }

    /// Whether a queue whose packets share receives ([`WorkCompletion::strides`]) receives nothing
    /// more after this error, and is done with the receive. After any other error the queue
    /// continues in the receive, after the strides that the completion names. These are the errors
    /// after which Linux' mlx5e (`cqe_syndrome_needs_recover`) and DPDK (`mlx5_rx_err_handle`)
    /// reset such a queue.
    pub const fn stops_receives(self) -> bool {
        use Syndrome::{LocalProtection, LocalQpOperation, WorkRequestFlushed};
        matches!(
            self.kind,
            ErrorKind::Known(LocalQpOperation | LocalProtection | WorkRequestFlushed)
        )
    }

    /// Whether a receive of a shared receive queue met a page fault of on-demand memory. The queue
    /// pair continues, and the device sends the message to another receive: post the buffer again,
    /// as after a success.
    pub const fn is_page_fault(self) -> bool {
        matches!(self.kind, ErrorKind::Known(Syndrome::RemoteAborted))
            && self.vendor == ErrorCqe::PAGE_FAULT
    }
}

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ErrorKind::Known(syndrome) => f.write_str(syndrome.text())?,
            ErrorKind::Unknown(code) => write!(f, "unknown error {code:#04x}")?,
            ErrorKind::TagConsumed => f.write_str("the tag was matched already")?,
            ErrorKind::RendezvousIncomplete => {
                f.write_str("rendezvous matched, to be fetched by software")?;
            }
            ErrorKind::MessageCanceled => f.write_str("matched message cancelled")?,
        }
        write!(f, " (vendor code {:#04x})", self.vendor)
    }
}

impl core::error::Error for CompletionError {}

/// A work completion (`struct ibv_wc`). Its fields are read from the CQE on demand; fields without
/// meaning for it are `None`. It cannot outlive the next poll.
#[derive(Clone, Copy)]
pub struct WorkCompletion<'poll> {
    descriptor: NonNull<u8>,
    wr_id: u64,
    kind: Kind,
    /// Marks of the kind. They are separate, so that the fast path does not combine them for
    /// callers that do not ask.
    marks: Kind,
    /// The tag of the queue. `None` in the view of an [`OwnedCompletion`], which has the tag's
    /// value.
    tag: Option<&'poll UserTag>,
    poll: PhantomData<&'poll ()>,
}

/// Reads a field of a consumed CQE.
macro_rules! field {
    ($self:ident, $layout:ident . $field:ident as $int:ty) => {
        field!(at $self.descriptor, $layout . $field as $int)
    };
    (at $descriptor:expr, $layout:ident . $field:ident as $int:ty) => {{
        // SAFETY: the field is inside the descriptor and aligned for its type. The device does not
        // write the CQE before the poller has published that it passed it.
        <$int>::from_be(unsafe {
            $descriptor.byte_add(offset_of!($layout, $field)).cast::<$int>().read_volatile()
        })
    }};
}

/// Returns the reason why the request of the CQE at `descriptor` failed.
#[cold]
pub(crate) fn error_in(descriptor: NonNull<u8>, kind: Kind) -> CompletionError {
    if let Some(event) = kind.tag_failure() {
        let kind = match event {
            TagEvent::Remove => ErrorKind::TagConsumed,
            TagEvent::MessageCompletionCanceled => ErrorKind::MessageCanceled,
            _ => ErrorKind::RendezvousIncomplete,
        };
        return CompletionError { kind, vendor: 0 };
    }
    let syndrome = field!(at descriptor, ErrorCqe.syndrome as u8);
    CompletionError {
        kind: Syndrome::from_bits(syndrome).map_or(ErrorKind::Unknown(syndrome), ErrorKind::Known),
        vendor: field!(at descriptor, ErrorCqe.vendor_err_synd as u8),
    }
}

impl<'poll> WorkCompletion<'poll> {
    #[inline(always)]
    pub(crate) fn new(
        descriptor: NonNull<u8>,
        wr_id: u64,
        kind: Kind,
        marks: Kind,
        tag: Option<&'poll UserTag>,
    ) -> Self {
        Self { descriptor, wr_id, kind, marks, tag, poll: PhantomData }
    }

    /// Returns the value with a lifetime that the caller must bound again. The borrow checker does
    /// not accept returning a borrowed value on one path only.
    #[inline]
    pub(crate) fn detach<'other>(self) -> WorkCompletion<'other> {
        // SAFETY: the tag is part of a queue, which stays valid until the poller next frees
        // destroyed queues; the caller bounds the lifetime by the borrow of the poller.
        let tag = self.tag.map(|tag| unsafe { NonNull::from(tag).as_ref() });
        WorkCompletion::new(self.descriptor, self.wr_id, self.kind, self.marks, tag)
    }

    #[inline]
    pub(crate) const fn kind(&self) -> Kind {
        self.kind.with(self.marks)
    }

    /// Returns all of it but the tag.
    #[inline]
    pub(crate) const fn parts(&self) -> (NonNull<u8>, u64, Kind) {
        (self.descriptor, self.wr_id, self.kind())
    }

    #[inline]
    pub(crate) const fn descriptor(&self) -> NonNull<u8> {
        self.descriptor
    }

    /// The identifier of the request.
    #[inline]
    pub const fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// The tag that the user gave the queue of the request: no look-up by
    /// [`WorkCompletion::qp_num`] is needed. Zero unless one was given.
    #[inline(always)]
    pub fn user_tag(&self) -> u64 {
        match self.tag {
            Some(tag) => tag.get(),
            // SAFETY: without a tag this is a view of an `OwnedCompletion`, in which the value
            // follows the descriptor.
            None => unsafe { self.descriptor.byte_add(DESCRIPTOR).cast::<u64>().read() },
        }
    }

    /// Whether the request was posted to the queue with this tag. False for an [`OwnedCompletion`].
    #[doc(hidden)]
    pub fn is_of(&self, tag: &UserTag) -> bool {
        self.tag.is_some_and(|own| core::ptr::eq(own, tag))
    }

    /// Whether the request succeeded, or why it failed. A cancelled request counts as succeeded,
    /// unless it was flushed; [`WorkCompletion::cancelled`] distinguishes it.
    #[inline]
    pub fn status(&self) -> Result<(), CompletionError> {
        if self.kind.is_error() { Err(error_in(self.descriptor, self.kind)) } else { Ok(()) }
    }

    /// Whether the request succeeded.
    #[inline]
    pub const fn is_success(&self) -> bool {
        !self.kind.is_error()
    }

    /// The operation that completed. Known for failed sends too; a failed receive is always
    /// [`CompletionOpcode::Receive`], because its CQE does not show how the message was sent.
    #[inline]
    pub fn opcode(&self) -> CompletionOpcode {
        self.kind.facts().opcode
    }

    /// [`CompletionOpcode::number`] of the opcode: quicker than asking for both.
    #[inline]
    pub fn opcode_number(&self) -> u8 {
        self.kind.facts().number
    }

    /// Whether it is a send request with immediate data that succeeded. (`ibv_poll_cq` sets
    /// `IBV_WC_WITH_IMM` for these too.) [`WorkCompletion::imm_data`] has the data of received
    /// messages.
    #[inline]
    pub fn sent_immediate(&self) -> bool {
        self.kind.facts().sent_immediate()
    }

    /// Whether the message is a receive with the fields of its packet, so that
    /// [`WorkCompletion::src_qp`] and the like have a value.
    #[inline]
    pub fn has_packet(&self) -> bool {
        self.has_packet_fields()
    }

    /// Whether the request was cancelled before the device executed it. Also true if it was flushed
    /// then, so that [`WorkCompletion::status`] is an error.
    #[inline]
    pub const fn cancelled(&self) -> bool {
        self.kind.is_cancelled()
    }

    /// The place of a packet of a striding work queue in the memory of its request. Of a packet
    /// that failed only the number of strides has a meaning. Meaningless for any other completion:
    /// the CQE does not say whether it is of such a packet.
    #[inline]
    pub fn strides(&self) -> Strides {
        let first = field!(self, Cqe.wqe_counter as u16);
        Strides::new(first, field!(self, Cqe.byte_count as u32))
    }

    /// As [`WorkCompletion::byte_len`], for a receive that succeeded. Meaningless for any other
    /// completion.
    #[doc(hidden)]
    #[inline]
    pub fn byte_count(&self) -> u32 {
        field!(self, Cqe.byte_count as u32)
    }

    /// Number of bytes received, read or returned by an atomic; `None` for other completions. Of a
    /// packet of a striding work queue, see [`WorkCompletion::strides`].
    #[inline]
    pub fn byte_len(&self) -> Option<u32> {
        self.kind.facts().has_length().then(|| field!(self, Cqe.byte_count as u32))
    }

    /// Immediate data of the message: the four bytes that the sender passed.
    #[inline]
    pub fn imm_data(&self) -> Option<[u8; 4]> {
        let has = self.kind.is(CqeOpcode::ResponderWriteImm)
            || self.kind.is(CqeOpcode::ResponderSendImm)
            || self.is_tagged_with_immediate();
        has.then(|| field!(self, Cqe.imm_inval_pkey as u32).to_be_bytes())
    }

    /// The key that the message invalidated.
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        self.kind
            .is(CqeOpcode::ResponderSendInvalidate)
            .then(|| field!(self, Cqe.imm_inval_pkey as u32))
    }

    /// Returns the format that the CQE was found to have. Compressed CQEs and error CQEs have no
    /// inline data.
    #[inline]
    fn format(&self) -> Format {
        match self.kind().0 & (Kind::IN_DESCRIPTOR | Kind::BEFORE_DESCRIPTOR) {
            _ if self.kind.is_error() => Format::Plain,
            Kind::IN_DESCRIPTOR => Format::Inline32,
            Kind::BEFORE_DESCRIPTOR => Format::Inline64,
            _ => Format::Plain,
        }
    }

    /// Whether it is a receive, and the first half of the descriptor has packet fields rather than
    /// inline data.
    #[inline]
    fn has_packet_fields(&self) -> bool {
        self.kind.is_received() && self.format() != Format::Inline32
    }

    /// The message, or the data returned by the request, if the device put it into the CQE. It is
    /// not in the memory of the request then. See [`InlineData`].
    #[inline]
    pub fn inline_data(&self) -> Option<InlineData<'_>> {
        let (start, room) = match self.format() {
            Format::Inline32 => (self.descriptor, INLINE_32),
            // SAFETY: CQEs that were found to have this format have their data before the
            // descriptor; the ring rejects the format for 64-byte CQEs, where nothing is before it.
            Format::Inline64 => (unsafe { self.descriptor.byte_sub(INLINE_64) }, INLINE_64),
            Format::Plain | Format::Compressed => return None,
        };
        let length = field!(self, Cqe.byte_count as u32) as usize;
        Some(InlineData { start, length: length.min(room), entry: PhantomData })
    }

    /// Number of the local queue pair. The CQE of a received Ethernet packet has the [flow
    /// tag](WorkCompletion::flow_tag) in its place; use a [user tag](WorkCompletion::user_tag) to
    /// identify the queue then.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        field!(self, Cqe.sop_drop_qpn as u32) & 0xff_ffff
    }

    /// Number of the queue pair that sent the message.
    #[inline]
    pub fn src_qp(&self) -> Option<u32> {
        self.has_packet_fields().then(|| field!(self, Cqe.flags_rqpn as u32) & 0xff_ffff)
    }

    /// LID of the sender, on InfiniBand.
    #[inline]
    pub fn slid(&self) -> Option<u16> {
        self.has_packet_fields().then(|| field!(self, Cqe.slid as u16))
    }

    /// Service level of the message.
    #[inline]
    pub fn service_level(&self) -> Option<u8> {
        self.has_packet_fields().then(|| (field!(self, Cqe.flags_rqpn as u32) >> 24 & 0xf) as u8)
    }

    /// The low bits of the LID to which the message was sent.
    #[inline]
    pub fn dlid_path_bits(&self) -> Option<u8> {
        self.has_packet_fields().then(|| field!(self, Cqe.ml_path as u8) & 0x7f)
    }

    /// Whether the message has a global route header: on a datagram queue pair, the first 40 bytes
    /// of the receive buffer hold it.
    #[inline]
    pub fn has_grh(&self) -> Option<bool> {
        self.has_packet_fields().then(|| field!(self, Cqe.flags_rqpn as u32) >> 28 & 3 != 0)
    }

    /// The VLAN tag that the device stripped from the packet.
    #[inline]
    pub fn vlan(&self) -> Option<u16> {
        let has = self.has_packet_fields()
            && field!(self, Cqe.l4_l3_hdr_type as u8) & l4_l3_hdr_type::VLAN_STRIPPED != 0;
        has.then(|| field!(self, Cqe.vlan_info as u16))
    }

    /// Whether the device verified the checksums of an IPv4 packet and of its payload
    /// (`IBV_WC_IP_CSUM_OK`).
    #[inline]
    pub fn checksum_ok(&self) -> Option<bool> {
        // Both bytes at once: `hds_ip_ext`, and the header types.
        const _: () = assert!(offset_of!(Cqe, l4_l3_hdr_type) == offset_of!(Cqe, hds_ip_ext) + 1);
        const OK: u8 = hds_ip_ext::L3_OK | hds_ip_ext::L4_OK;
        const ASKED: u16 = u16::from_be_bytes([OK, 3 << l4_l3_hdr_type::L3_SHIFT]);
        const GOOD: u16 =
            u16::from_be_bytes([OK, l4_l3_hdr_type::L3_IPV4 << l4_l3_hdr_type::L3_SHIFT]);
        self.has_packet_fields().then(|| field!(self, Cqe.hds_ip_ext as u16) & ASKED == GOOD)
    }

    /// The headers of an Ethernet packet, and whether their checksums are right. Reads the CQE
    /// once.
    #[inline]
    pub fn packet_headers(&self) -> Option<PacketHeaders> {
        // The four bytes from `hds_ip_ext` on: that, the header types, the VLAN tag.
        const _: () = assert!(offset_of!(Cqe, vlan_info) == offset_of!(Cqe, hds_ip_ext) + 2);
        self.has_packet_fields().then(|| PacketHeaders::new(field!(self, Cqe.hds_ip_ext as u32)))
    }

    /// Whether the packet was in a tunnel of a kind that the device recognises.
    #[inline]
    pub fn tunneled(&self) -> Option<bool> {
        self.has_packet_fields().then(|| field!(self, Cqe.head as u8) & tunnel_flags::TUNNELED != 0)
    }

    /// Whether the IP header of an Ethernet packet says that congestion was experienced.
    #[inline]
    pub fn congestion_experienced(&self) -> Option<bool> {
        self.has_packet_fields()
            .then(|| field!(self, Cqe.ml_path as u8) & path_flags::CONGESTION != 0)
    }

    /// The headers that [`WorkCompletion::rss_hash`] covers.
    #[inline]
    pub fn hashed_headers(&self) -> Option<HashedHeaders> {
        let has = self.has_packet_fields() && self.kind().0 & Kind::KEPT_CHECKSUM == 0;
        has.then(|| HashedHeaders::new(field!(self, Cqe.rss_hash_type as u8)))
    }

    /// The checksum over the packet. Compressed CQEs have it only if the queue was created with
    /// that format.
    #[inline]
    pub fn checksum(&self) -> Option<u16> {
        let has = self.has_packet_fields() && self.kind().0 & Kind::KEPT_HASH == 0;
        has.then(|| field!(self, Cqe.check_sum as u16))
    }

    /// The hash over the packet's addresses. Compressed CQEs have it only if the queue was created
    /// with that format.
    #[inline]
    pub fn rss_hash(&self) -> Option<u32> {
        let has = self.has_packet_fields() && self.kind().0 & Kind::KEPT_CHECKSUM == 0;
        has.then(|| field!(self, Cqe.rss_hash_result as u32))
    }

    /// The flow tag of the packet, on raw packet queue pairs. Other queue pairs have their number
    /// in its place.
    #[inline]
    pub fn flow_tag(&self) -> Option<u32> {
        self.kind.is_received().then(|| field!(self, Cqe.sop_drop_qpn as u32) & 0xff_ffff)
    }

    /// Index of the message's partition key, for a datagram without immediate data.
    #[inline]
    pub fn pkey_index(&self) -> Option<u16> {
        self.kind
            .is(CqeOpcode::ResponderSend)
            .then(|| field!(self, Cqe.imm_inval_pkey as u32) as u16)
    }

    /// Whether the sender requested a solicited event.
    #[inline]
    pub fn solicited(&self) -> bool {
        field!(self, Cqe.op_own as u8) & SOLICITED != 0
    }

    /// The device's timestamp of the arrival or completion: cycles of its clock or real time, as
    /// the queue was created. `None` for compressed CQEs, which have no timestamp of their own.
    #[inline]
    pub fn timestamp(&self) -> Option<u64> {
        // Failures of tag matching itself are reported in a CQE like any other.
        let failed = self.kind.is_error() && self.kind.tag_failure().is_none();
        (!failed && !self.is_compressed()).then(|| field!(self, Cqe.timestamp as u64))
    }

    /// Whether the CQE was in a compressed run.
    #[inline]
    pub fn is_compressed(&self) -> bool {
        self.kind().is_compressed()
    }

    /// Returns a copy that does not borrow the queue.
    pub fn to_owned(&self) -> OwnedCompletion {
        let mut entry = [[0; 8]; 2];
        // SAFETY: a descriptor has 64 bytes and is aligned to 64. The device does not write it
        // before the poller has published that it passed the CQE.
        entry[1] = unsafe { self.descriptor.cast::<[u64; 8]>().read_volatile() };
        if self.format() == Format::Inline64 {
            // SAFETY: the ring accepts this format only in 128-byte CQEs, which have 64 bytes
            // before the descriptor, aligned to 64 as the whole CQE.
            let before = unsafe { self.descriptor.byte_sub(INLINE_64) };
            // SAFETY: the 64 bytes are part of the same 128-byte CQE, which the device does not
            // write before the poller has published that it passed it.
            entry[0] = unsafe { before.cast::<[u64; 8]>().read_volatile() };
        }
        let (_, wr_id, kind) = self.parts();
        OwnedCompletion { entry, user_tag: self.user_tag(), wr_id, kind }
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

/// Inline data of a CQE. The device may write this memory, so it is copied out and never borrowed.
#[derive(Clone, Copy)]
pub struct InlineData<'entry> {
    start: NonNull<u8>,
    length: usize,
    entry: PhantomData<&'entry ()>,
}

impl InlineData<'_> {
    /// The maximum length.
    pub const MAX: usize = INLINE_64;

    /// The number of bytes.
    #[inline]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the byte at `at`.
    #[inline]
    pub fn get(&self, at: usize) -> Option<u8> {
        // SAFETY: `at < self.length`, so the byte is inside the CQE, which the device does not
        // write before the poller has published that it passed it.
        (at < self.length).then(|| unsafe { self.start.byte_add(at).read_volatile() })
    }

    /// Iterates over the bytes.
    #[inline]
    pub fn bytes(&self) -> impl ExactSizeIterator<Item = u8> + '_ {
        // SAFETY: `at < self.length`, so the byte is inside the CQE, which the device does not
        // write before the poller has published that it passed it.
        (0..self.length).map(|at| unsafe { self.start.byte_add(at).read_volatile() })
    }

    /// Copies the bytes to the start of `to` and returns their number. `None`, and nothing is
    /// copied, if `to` is too short.
    pub fn copy_to(&self, to: &mut [u8]) -> Option<usize> {
        let to = to.get_mut(..self.length)?;
        to.iter_mut().zip(self.bytes()).for_each(|(to, byte)| *to = byte);
        Some(self.length)
    }
}

impl fmt::Debug for InlineData<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.bytes()).finish()
    }
}

/// A work completion with a copy of its CQE.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct OwnedCompletion {
    /// The data before the descriptor, if any, and the descriptor.
    entry: [[u64; 8]; 2],
    /// Follows the descriptor, for [`WorkCompletion::user_tag`].
    user_tag: u64,
    wr_id: u64,
    kind: Kind,
}

/// A placeholder to poll into.
impl Default for OwnedCompletion {
    fn default() -> Self {
        Self { entry: [[0; 8]; 2], user_tag: 0, wr_id: 0, kind: Kind::sent(Opcode::Nop as u8) }
    }
}

impl OwnedCompletion {
    /// Returns the descriptor as the device wrote it.
    pub fn descriptor(&self) -> [u8; DESCRIPTOR] {
        let mut bytes = [0; DESCRIPTOR];
        for (bytes, word) in bytes.chunks_exact_mut(size_of::<u64>()).zip(self.entry[1]) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Returns it as a [`WorkCompletion`].
    pub fn as_completion(&self) -> WorkCompletion<'_> {
        const _: () = assert!(offset_of!(OwnedCompletion, user_tag) == 2 * DESCRIPTOR);
        // SAFETY: it is the second half of the copy, with which the value starts.
        let descriptor = unsafe { NonNull::from(self).cast::<u8>().byte_add(DESCRIPTOR) };
        WorkCompletion::new(descriptor, self.wr_id, self.kind, Kind::PLAIN, None)
    }
}

/// The fields of a completion, as of the [`WorkCompletion`] of the same name.
macro_rules! owned_fields {
    ($($name:ident: $type:ty),+ $(,)?) => {
        impl OwnedCompletion {
            $(
                #[doc = concat!("See [`WorkCompletion::", stringify!($name), "`].")]
                #[inline]
                pub fn $name(&self) -> $type {
                    self.as_completion().$name()
                }
            )+

            /// See [`WorkCompletion::inline_data`].
            #[inline]
            pub fn inline_data(&self) -> Option<InlineData<'_>> {
                let InlineData { start, length, .. } = self.as_completion().inline_data()?;
                Some(InlineData { start, length, entry: PhantomData })
            }
        }
    };
}

owned_fields! {
    wr_id: u64,
    user_tag: u64,
    status: Result<(), CompletionError>,
    is_success: bool,
    opcode: CompletionOpcode,
    cancelled: bool,
    strides: Strides,
    byte_len: Option<u32>,
    imm_data: Option<[u8; 4]>,
    invalidated_rkey: Option<u32>,
    qp_num: u32,
    src_qp: Option<u32>,
    slid: Option<u16>,
    service_level: Option<u8>,
    dlid_path_bits: Option<u8>,
    has_grh: Option<bool>,
    vlan: Option<u16>,
    checksum_ok: Option<bool>,
    checksum: Option<u16>,
    rss_hash: Option<u32>,
    packet_headers: Option<PacketHeaders>,
    tunneled: Option<bool>,
    congestion_experienced: Option<bool>,
    hashed_headers: Option<HashedHeaders>,
    flow_tag: Option<u32>,
    pkey_index: Option<u16>,
    solicited: bool,
    timestamp: Option<u64>,
    is_compressed: bool,
}

impl fmt::Debug for OwnedCompletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_completion().fmt(f)
    }
}
