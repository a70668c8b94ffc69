//! Queue pairs of raw packets: what they are made with, packets that the device cuts, rate limits.

use super::flags::flags_of;
use super::{CTransport, QpObject};
use crate::abi::*;
use crate::cq::PACKETS;
use crate::refusal::{Refusal, Verb, status};
use mlx5::transport::RawPacket;
use mlx5::{
    Batch, Data, InlineSges, Operation, QueuePairBuilder, RateLimit, Segmented, SendOps, SendWr,
    Sge, UnsupportedOperation, operation,
};

/// The parameters of raw packet queue pairs only.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Packets {
    /// The longest headers of packets that the device cuts.
    pub(crate) max_tso_header: u16,
    pub(crate) strips_vlan: bool,
    pub(crate) scatters_fcs: bool,
    pub(crate) pads: bool,
    /// Looks into tunnels.
    pub(crate) tunnels: bool,
    /// Receives what this process sends to its own port.
    pub(crate) own_unicast: bool,
    pub(crate) own_multicast: bool,
}

impl Packets {
    /// With the flags of `ibv_create_qp_ex` that are about packets.
    pub(super) fn with(self, create_flags: u32) -> Self {
        let has = |flag: u32| create_flags & flag != 0;
        Self {
            strips_vlan: has(IBV_QP_CREATE_CVLAN_STRIPPING),
            scatters_fcs: has(IBV_QP_CREATE_SCATTER_FCS),
            pads: has(IBV_QP_CREATE_PCI_WRITE_END_PADDING),
            ..self
        }
    }

    /// Why no other queue pair has these.
    pub(super) fn elsewhere(self) -> Refusal {
        let of_libmlx5 = self.tunnels || self.own_unicast || self.own_multicast;
        if of_libmlx5 { Refusal::INVALID } else { Refusal::NOT_SUPPORTED }
    }

    pub(super) fn apply<'a>(
        self,
        builder: QueuePairBuilder<'a, RawPacket>,
    ) -> QueuePairBuilder<'a, RawPacket> {
        builder
            .user_tag(PACKETS)
            .max_tso_header(self.max_tso_header.into())
            .vlan_stripping(self.strips_vlan)
            .scatter_fcs(self.scatters_fcs)
            .end_padding(self.pads)
            .tunnel_offloads(self.tunnels)
            .self_loopback(self.own_unicast, self.own_multicast)
    }
}

/// Whether the transport has packets that the device cuts.
pub(super) const fn cuts<T: CTransport>() -> bool {
    SendOps::of::<T>().contains(SendOps::TSO)
}

/// The packet that a request names: its headers, and the payload that `data` has.
///
/// # Safety
/// `wr` is a request of opcode `IBV_WR_TSO` whose headers are readable as long as the value is
/// used.
pub(super) unsafe fn segmented<'a>(wr: &ibv_send_wr, data: &Data<'a>) -> Option<Segmented<'a>> {
    // SAFETY: the caller promises a request of opcode `IBV_WR_TSO`, so this member of the union is
    // set.
    let ibv_send_wr_u1_tso { hdr, hdr_sz, mss } = unsafe { wr.ext.tso };
    let Data::Sges(payload) = *data else { return None };
    let header = match hdr.is_null() {
        true => &[],
        // SAFETY: the caller promises that `hdr_sz` bytes are readable at `hdr`, which is not NULL.
        false => unsafe { std::slice::from_raw_parts(hdr.cast_const().cast(), hdr_sz.into()) },
    };
    Some(Segmented { header, mss, payload })
}

/// The provider's request for it. Without a packet, one that is refused: its payload is inline.
pub(super) fn tso_request<'a, T: CTransport>(
    wr: &ibv_send_wr,
    packet: Option<&'a Segmented<'a>>,
) -> SendWr<'a> {
    SendWr {
        wr_id: wr.wr_id,
        flags: flags_of::<T, operation::Tso>(wr.send_flags),
        operation: Operation::Tso,
        data: packet.map_or(Data::Inline(&[]), Data::Segmented),
        address: None,
        xrc_srqn: None,
    }
}

/// A request that is refused.
pub(super) fn refused() -> SendWr<'static> {
    let operation = Operation::Unsupported(UnsupportedOperation::Flush);
    SendWr { operation, ..SendWr::default() }
}

/// Bytes of a packet that a device needs in its request, where it needs any: as many as C's library
/// copies.
pub(super) const HEADER: usize = mlx5_prm::ethernet::L2_INLINE;
/// As many pieces of a packet are kept without an allocation: more than most requests have.
const PIECES: usize = 64;

/// The first bytes of a packet whose pieces these are, and the pieces without them, for which
/// `rest` has room. Nothing if the packet is shorter.
///
/// # Safety
/// The bytes are readable, as a device that needs them makes C's library read them.
unsafe fn split<'a>(pieces: &[Sge], rest: &'a mut [Sge]) -> Option<([u8; HEADER], &'a [Sge])> {
    let (mut header, mut copied, mut left) = ([0; HEADER], 0, 0);
    for piece in pieces {
        let length = (HEADER - copied).min(piece.length as usize);
        let from = std::ptr::with_exposed_provenance::<u8>(piece.addr as usize);
        // SAFETY: the caller promises that the bytes are readable, and `copied + length` is at most
        // `HEADER`.
        unsafe { header.as_mut_ptr().add(copied).copy_from(from, length) };
        copied += length;
        if length < piece.length as usize {
            let place = rest.get_mut(left)?;
            let (addr, length) =
                (piece.addr.wrapping_add(length as u64), piece.length - length as u32);
            *place = Sge { addr, length, lkey: piece.lkey };
            left += 1;
        }
    }
    (copied == HEADER).then_some((header, &rest[..left]))
}

/// Adds a packet for a device that needs its first bytes in the request. One that is too short is
/// refused.
///
/// # Safety
/// `wr` is a request as C makes them, with this data, whose bytes are readable as long as the call
/// runs.
#[cold]
pub(super) unsafe fn add_headed(
    batch: &mut Batch<'_, RawPacket>,
    wr: &ibv_send_wr,
    data: &Data<'_>,
) {
    let (pieces, inline) = match data {
        Data::Sges(pieces) => (*pieces, false),
        Data::InlineAt(pieces) => (pieces.pieces(), true),
        _ => (&[][..], false),
    };
    let (mut few, mut many) = ([Sge::default(); PIECES], Vec::new());
    let rest = match few.get_mut(..pieces.len()) {
        Some(few) => few,
        None => {
            many.resize(pieces.len(), Sge::default());
            &mut many[..]
        }
    };
    // SAFETY: the caller promises that the bytes of the pieces are readable.
    let split = unsafe { split(pieces, rest) };
    let (IBV_WR_SEND, Some((header, rest))) = (wr.opcode, split) else {
        return batch.push(&refused());
    };
    let flags = flags_of::<RawPacket, operation::Send>(wr.send_flags);
    let request = batch.wr(wr.wr_id, flags).send().inline_header(&header);
    match inline {
        false => request.sge_list(rest),
        // SAFETY: the caller promises that the bytes of the pieces are readable until the call
        // returns.
        true => request.inline_data_at(unsafe { InlineSges::new(rest) }),
    }
}

/// The operation behind `ibv_modify_qp_rate_limit`.
///
/// # Safety
/// `qp` was not destroyed, `attr` is readable.
pub unsafe extern "C" fn modify_qp_rate_limit(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_rate_limit_attr,
) -> c_int {
    let limit = |qp: &QpObject, attr: &ibv_qp_rate_limit_attr| -> Verb {
        let ibv_qp_rate_limit_attr { rate_limit, max_burst_sz, typical_pkt_sz, comp_mask } = *attr;
        let bursts = max_burst_sz != 0 || typical_pkt_sz != 0;
        if comp_mask != 0 || bursts && rate_limit == 0 {
            return Err(Refusal::INVALID);
        }
        let limit =
            RateLimit { rate: rate_limit, max_burst: max_burst_sz, typical_packet: typical_pkt_sz };
        // The kernel has one number for what the device lacks and what is out of range.
        qp.with_control(|control| {
            control.set_rate_limit(limit).map_err(|error| match Refusal::from(error) {
                Refusal::NOT_SUPPORTED => Refusal::INVALID,
                refusal => refusal,
            })
        })
    };
    // SAFETY: the caller promises that `qp` was not destroyed and that `attr` is readable.
    status(unsafe { limit(QpObject::of(qp), &*attr) })
}
