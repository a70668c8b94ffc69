//! Fetches a send WQE from its ring and parses it.

use mlx5_prm::signature::SetPsvSegment;
use mlx5_prm::umr::{MkeyContextSegment, UmrControlSegment};
use mlx5_prm::wqe::{
    AddressVector, ControlSegment, DataSegment, EXTENDED_UD_AV, INLINE, INVALID_LKEY, InlineHeader,
    Opcode, RemoteAddressSegment, UNIT, XrcSegment, control_flags,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::engine::Device;
use crate::engine::atomic::{Atomic, is_atomic};
use crate::engine::fault::Violation;
use crate::engine::state::codes::{self, Code};
use crate::engine::state::ethernet::Registers;
use crate::engine::state::ethernet::request::FrameRequest;
use crate::engine::state::mkey::{Access, KeyError, User};
use crate::engine::state::qp::Transport;
use crate::engine::state::receive::Entry;

/// Bytes of an address vector with a LID and without a global header.
const COMPACT_AV: usize = 16;
/// Bytes of the shortest UMR.
pub(crate) const SMALLEST_UMR: usize =
    UNIT + size_of::<UmrControlSegment>() + size_of::<MkeyContextSegment>();

/// A piece of what a request carries, or where its answer goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    /// Bytes of the WQE itself.
    Inline { start: usize, length: usize },
    /// Memory under a key.
    Entry(Entry),
}

impl Piece {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Inline { length, .. } => *length as u64,
            Self::Entry(entry) => entry.length,
        }
    }
}

/// A parsed send WQE.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) opcode: Opcode,
    pub(crate) index: u16,
    pub(crate) blocks: u16,
    pub(crate) flags: u8,
    /// Immediate data or key, as the WQE has it.
    pub(crate) immediate: u32,
    pub(crate) remote: RemoteAddressSegment,
    /// The shared receive queue at the other side of an extended connection.
    pub(crate) srqn: u32,
    pub(crate) atomic: Option<Atomic>,
    pub(crate) vector: AddressVector,
    /// Settings and bytes of its Ethernet frame.
    pub(crate) frame: Option<FrameRequest>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) length: u64,
    /// The protection domain of its entries, if it is not the queue pair's.
    pub(crate) pd: Option<u32>,
    /// The whole WQE.
    pub(crate) bytes: Vec<u8>,
}

impl Request {
    fn new(opcode: Opcode) -> Self {
        Self {
            opcode,
            index: 0,
            blocks: 0,
            flags: 0,
            immediate: 0,
            remote: RemoteAddressSegment::default(),
            srqn: 0,
            atomic: None,
            vector: AddressVector::default(),
            frame: None,
            pieces: Vec::new(),
            length: 0,
            pd: None,
            bytes: Vec::new(),
        }
    }

    /// An RDMA READ by the device itself.
    pub(crate) fn read(
        pd: u32,
        remote: RemoteAddressSegment,
        entry: Option<Entry>,
        length: u64,
    ) -> Self {
        let pieces = entry.map(Piece::Entry).into_iter().collect();
        Self { remote, pieces, length, pd: Some(pd), ..Self::new(Opcode::RdmaRead) }
    }

    /// A SEND by the device itself.
    pub(crate) fn message(bytes: Vec<u8>) -> Self {
        let length = bytes.len();
        let pieces = vec![Piece::Inline { start: 0, length }];
        Self { pieces, length: length as u64, bytes, ..Self::new(Opcode::Send) }
    }

    pub(crate) fn completes(&self) -> bool {
        self.flags & control_flags::COMPLETION != 0
    }

    pub(crate) fn is_solicited(&self) -> bool {
        self.flags & control_flags::SOLICITED != 0
    }
}

/// A WQE that the device does not understand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadWqe {
    pub(crate) opcode: u8,
    pub(crate) blocks: u16,
    pub(crate) code: Code,
}

/// The segments of a WQE, one after another.
struct Segments<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Segments<'_> {
    fn take<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable>(&mut self) -> Option<T> {
        let (segment, _) = T::read_from_prefix(&self.bytes[self.at..]).ok()?;
        self.at += size_of::<T>();
        Some(segment)
    }

    /// Reads a datagram's address: all of it, or the first sixteen bytes if these do not announce
    /// more. The rest is zero then: no global header, and no MAC address.
    fn address_vector(&mut self) -> Option<AddressVector> {
        let compact: [u8; COMPACT_AV] = self.take()?;
        let mut vector = AddressVector::default();
        vector.as_mut_bytes()[..COMPACT_AV].copy_from_slice(&compact);
        if vector.dqp_dct.get() & EXTENDED_UD_AV == 0 {
            return Some(vector);
        }
        self.at -= COMPACT_AV;
        self.take()
    }
}

/// Whether a transport has an operation that this device executes.
fn executes(transport: Transport, opcode: Opcode) -> bool {
    use Opcode::{
        AtomicCs, AtomicFa, AtomicMaskedCs, AtomicMaskedFa, EnhancedMpw, LocalInvalidate, Nop,
        RdmaRead, RdmaWrite, RdmaWriteImm, Send, SendImm, SendInvalidate, SetPsv, TagMatching, Tso,
        Umr,
    };
    match opcode {
        Nop => true,
        Send | Tso | EnhancedMpw if transport == Transport::Ethernet => true,
        _ if transport == Transport::Ethernet => false,
        Umr | LocalInvalidate | SetPsv => transport != Transport::Ud,
        _ if transport == Transport::Umr => false,
        Send | SendImm => true,
        SendInvalidate | RdmaWrite | RdmaWriteImm => transport != Transport::Ud,
        RdmaRead | AtomicCs | AtomicFa | AtomicMaskedCs | AtomicMaskedFa => transport.is_reliable(),
        TagMatching => transport == Transport::Rc,
        _ => false,
    }
}

impl Device {
    /// Fetches the next WQE of a queue pair that has one waiting.
    pub(crate) fn fetch(&mut self, qpn: u32) -> Result<Request, BadWqe> {
        let Some(qp) = self.qps.get(qpn) else {
            return Err(BadWqe { opcode: 0, blocks: 1, code: codes::BAD_WQE });
        };
        let (index, waiting) = (qp.sq_executed, qp.sq_waiting());
        let (transport, signed) = (qp.config.transport, qp.config.signed);
        let mut head = [0; UNIT];
        if let Err(fault) = qp.read_sq(&*self.dma, index, &mut head) {
            self.memory_violation(fault);
            return Err(BadWqe { opcode: 0, blocks: waiting.max(1), code: codes::NO_MEMORY });
        }
        let control: ControlSegment = zerocopy::transmute!(head);
        let units = control.units();
        let blocks = units.div_ceil(4) as u16;
        let bad = |code| BadWqe {
            opcode: control.opmod_index_opcode.get() as u8,
            blocks: blocks.clamp(1, waiting.max(1)),
            code,
        };
        if control.qpn() != qpn {
            self.violation(Violation::WqeQpn { qpn, found: control.qpn() });
            return Err(bad(codes::BAD_WQE));
        }
        if control.index() != index {
            let found = control.index();
            // Real devices do not look at it, DPDK says and one trial showed: it is no failure.
            self.violation(Violation::WqeIndex { qpn, expected: index, found });
        }
        if units == 0 || blocks > waiting {
            return Err(bad(codes::BAD_WQE));
        }
        let registers = self.ethernet.sqs.get(&qpn).map(|sq| sq.registers);
        let opcode = control.opcode().filter(|opcode| match (opcode, registers) {
            (Opcode::Umr, Some(registers)) => registers != Registers::Nothing,
            _ => executes(transport, *opcode),
        });
        let opcode = opcode.ok_or(bad(codes::BAD_WQE))?;
        let mut bytes = vec![0; units * UNIT];
        let read = self.qps.get(qpn).map(|qp| qp.read_sq(&*self.dma, index, &mut bytes));
        if let Some(Err(fault)) = read {
            self.memory_violation(fault);
            return Err(bad(codes::NO_MEMORY));
        }
        if signed && bytes.iter().fold(0, |sum, byte| sum ^ byte) != 0xff {
            return Err(bad(codes::WQE_SIGNATURE));
        }
        parse(control, index, opcode, transport, bytes).ok_or(bad(codes::BAD_WQE))
    }

    /// Copies a range of a request's data.
    pub(crate) fn gather(
        &mut self,
        user: User,
        request: &Request,
        mut offset: u64,
        to: &mut [u8],
    ) -> Result<(), KeyError> {
        let mut done = 0;
        for piece in &request.pieces {
            if done == to.len() {
                break;
            }
            if offset >= piece.length() {
                offset -= piece.length();
                continue;
            }
            let room = usize::try_from(piece.length() - offset).unwrap_or(usize::MAX);
            let n = room.min(to.len() - done);
            let now = &mut to[done..done + n];
            match piece {
                Piece::Inline { start, .. } => {
                    let start = start + offset as usize;
                    now.copy_from_slice(&request.bytes[start..start + n]);
                }
                Piece::Entry(entry) => {
                    let address = entry.address.wrapping_add(offset);
                    self.read_key(user, entry.lkey, address, now, Access::LOCAL_READ)?;
                }
            }
            (offset, done) = (0, done + n);
        }
        Ok(())
    }
}

impl Request {
    /// The whole WQE.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The memory for the response.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.pieces
            .iter()
            .filter_map(|piece| match piece {
                Piece::Entry(entry) => Some(*entry),
                Piece::Inline { .. } => None,
            })
            .collect()
    }
}

/// Parses a WQE; `None` if a segment does not fit it or its operation.
fn parse(
    control: ControlSegment,
    index: u16,
    opcode: Opcode,
    transport: Transport,
    bytes: Vec<u8>,
) -> Option<Request> {
    let mut request = Request {
        index,
        blocks: control.units().div_ceil(4) as u16,
        flags: control.fm_ce_se,
        immediate: control.immediate.get(),
        ..Request::new(opcode)
    };
    let atomic = is_atomic(opcode);
    let remote =
        atomic || matches!(opcode, Opcode::RdmaWrite | Opcode::RdmaWriteImm | Opcode::RdmaRead);
    if opcode == Opcode::Umr && bytes.len() < SMALLEST_UMR {
        return None;
    }
    if opcode == Opcode::SetPsv && bytes.len() < UNIT + size_of::<SetPsvSegment>() {
        return None;
    }
    let own_segments =
        [Opcode::Nop, Opcode::Umr, Opcode::LocalInvalidate, Opcode::SetPsv, Opcode::TagMatching];
    if !own_segments.contains(&opcode) {
        let mut segments = Segments { bytes: &bytes, at: UNIT };
        if transport == Transport::Ud {
            request.vector = segments.address_vector()?;
        }
        if transport == Transport::Ethernet {
            let (frame, length) = FrameRequest::parse(&bytes[segments.at..])?;
            segments.at += length;
            request.frame = Some(frame);
        }
        if transport == Transport::XrcSend {
            request.srqn = segments.take::<XrcSegment>()?.srqn.get() & 0xff_ffff;
        }
        if remote {
            request.remote = segments.take()?;
        }
        if atomic {
            let (operation, length) =
                Atomic::parse(opcode, control.opcode_modifier(), &bytes[segments.at..])?;
            segments.at += length;
            request.atomic = Some(operation);
        }
        while segments.at < bytes.len() {
            let start = segments.at + size_of::<InlineHeader>();
            let segment: DataSegment = segments.take()?;
            let count = segment.byte_count.get();
            let piece = if count & INLINE != 0 {
                let length = (count & !INLINE) as usize;
                let end = start.checked_add(length)?;
                if atomic || opcode == Opcode::RdmaRead || end > bytes.len() {
                    return None;
                }
                segments.at = end.next_multiple_of(UNIT);
                Piece::Inline { start, length }
            } else if segment.lkey.get() == INVALID_LKEY {
                break;
            } else {
                Piece::Entry(Entry::from(&segment))
            };
            request.length += piece.length();
            request.pieces.push(piece);
        }
        if request.atomic.is_some_and(|atomic| request.length != atomic.bytes) {
            return None;
        }
    }
    request.bytes = bytes;
    Some(request)
}
