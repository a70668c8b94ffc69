//! WQEs written by hand from the tables of the PRM, and functions that make a queue build the same
//! WQEs.

use mlx5_prm::wqe::AddressVector;
use mlx5_prm::{U16, U32};
use mlx5_wqe::{
    Batch, Data, ListError, ListTransport, Operation, Rc, RemoteAddress, SendFlags, SendQueue,
    SendWr, Sge, Uc, Ud, UdAddress, XrcSend,
};

pub(crate) const QPN: u32 = 0xc0_ffee;

pub(crate) const COMPLETION: u8 = 0x08;

/// The flags that have bits in the control segment.
pub(crate) const CONTROL: SendFlags =
    SendFlags::SIGNALED.union(SendFlags::SOLICITED).union(SendFlags::FENCE);

/// A WQE as one piece of memory. The padding after inline data, up to the next unit, means nothing
/// to the device and is not known.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    pub(crate) bytes: Vec<u8>,
    known: Vec<bool>,
}

impl Wqe {
    /// Control segment: opcode modifier 0, block index, opcode; queue pair number, units (filled in
    /// as the WQE grows); signature, stream, `fm_ce_se`; immediate data.
    pub(crate) fn control(opcode: u8, index: u16, fm_ce_se: u8, imm: [u8; 4]) -> Self {
        let [high, low] = index.to_be_bytes();
        let mut wqe = Self { bytes: vec![], known: vec![] };
        wqe.push(&[0, high, low, opcode, 0xc0, 0xff, 0xee, 0, 0, 0, 0, fm_ce_se]);
        wqe.push(&imm);
        wqe
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.known.resize(self.bytes.len(), true);
        self.bytes[7] = self.bytes.len().div_ceil(16) as u8;
    }

    /// Address of a datagram: [`ADDRESS`] with the receiver's number and key put in.
    pub(crate) fn address(mut self) -> Self {
        self.push(&ADDRESS_BYTES);
        self
    }

    /// Number of the peer's shared receive queue.
    pub(crate) fn srqn(mut self) -> Self {
        self.push(&SRQN_BYTES);
        self
    }

    /// Bytes that are all known.
    pub(crate) fn with(mut self, bytes: &[u8]) -> Self {
        self.push(bytes);
        self
    }

    /// Remote address segment.
    pub(crate) fn remote(mut self, to: RemoteAddress) -> Self {
        self.push(&to.addr.to_be_bytes());
        self.push(&to.rkey.to_be_bytes());
        self.push(&[0; 4]);
        self
    }

    /// Data segment.
    pub(crate) fn sge(mut self, sge: Sge) -> Self {
        self.push(&sge.length.to_be_bytes());
        self.push(&sge.lkey.to_be_bytes());
        self.push(&sge.addr.to_be_bytes());
        self
    }

    /// Inline segment.
    pub(crate) fn inline(mut self, data: &[u8]) -> Self {
        self.push(&(data.len() as u32 | 0x8000_0000).to_be_bytes());
        self.push(data);
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        self.known.resize(self.bytes.len(), false);
        self
    }

    /// The WQE after a cancel.
    pub(crate) fn nop(mut self) -> Self {
        self.bytes[0] = 0;
        self.bytes[3] = 0;
        self
    }

    pub(crate) fn blocks(&self) -> usize {
        self.bytes.len().div_ceil(64)
    }

    #[track_caller]
    pub(crate) fn assert_eq(&self, found: &[u8]) {
        assert!(self.is(found), "\nfound    {found:02x?}\nexpected {:02x?}", self.bytes);
    }

    /// Whether a device would find the same in `found`.
    pub(crate) fn is(&self, found: &[u8]) -> bool {
        found.len() == self.bytes.len()
            && (found == self.bytes
                || (0..found.len()).all(|i| !self.known[i] || found[i] == self.bytes[i]))
    }
}

/// A receiver. Every field has bytes of its own.
pub(crate) const ADDRESS: AddressVector = AddressVector {
    qkey: U32::from_bytes([0xee; 4]),
    dc_key_low: U32::from_bytes([0; 4]),
    dqp_dct: U32::from_bytes([0xee; 4]),
    stat_rate_sl: 0x35,
    fl_mlid: 0x86,
    rlid: U16::from_bytes([0x12, 0x34]),
    reserved: U32::from_bytes([0; 4]),
    rmac: [0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee],
    tclass: 0x77,
    hop_limit: 0x40,
    grh_gid_fl: U32::from_bytes([0x40, 0x51, 0x23, 0x45]),
    rgid: *b"\xfe\x80\0\0\0\0\0\0abcdefgh",
};
pub(crate) const TO_QPN: u32 = 0x12_3456;
pub(crate) const QKEY: u32 = 0x8001_0203;
/// [`ADDRESS`] as it goes to the device, with [`QKEY`], and [`TO_QPN`] with the mark of the
/// extended form.
const ADDRESS_BYTES: [u8; 48] = [
    0x80, 0x01, 0x02, 0x03, 0, 0, 0, 0, // key
    0x80, 0x12, 0x34, 0x56, 0x35, 0x86, 0x12, 0x34, // receiver, rate and level, path, LID
    0, 0, 0, 0, 0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0x77, 0x40, // MAC, class, hop limit
    0x40, 0x51, 0x23, 0x45, // GRH, GID index, flow label
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, b'a', b'b', b'c', b'd', b'e', b'f', b'g', b'h', // GID
];

pub(crate) const REMOTE: RemoteAddress =
    RemoteAddress { addr: 0x0123_4567_89ab_cdef, rkey: 0xa1b2_c3d4 };

/// The key that a send invalidates.
pub(crate) const INVALIDATED: u32 = 0x0102_0304;

/// The peer's shared receive queue, and its segment.
pub(crate) const SRQN: u32 = 0x0a_0b0c;
const SRQN_BYTES: [u8; 16] = [0, 0x0a, 0x0b, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

pub(crate) const IMM: [u8; 4] = [0xde, 0xad, 0xbe, 0x01];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Send,
    SendImm,
    SendInv,
    Write,
    WriteImm,
    Read,
}

impl Op {
    /// Number in the control segment.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Send => 0x0a,
            Self::SendImm => 0x0b,
            Self::SendInv => 0x01,
            Self::Write => 0x08,
            Self::WriteImm => 0x09,
            Self::Read => 0x10,
        }
    }

    const fn imm(self) -> [u8; 4] {
        match self {
            Self::SendImm | Self::WriteImm => IMM,
            Self::SendInv => INVALIDATED.to_be_bytes(),
            _ => [0; 4],
        }
    }

    const fn is_remote(self) -> bool {
        matches!(self, Self::Write | Self::WriteImm | Self::Read)
    }

    /// The flags that the operation supports: an event at the peer needs a receive there.
    pub(crate) const fn flags(self) -> SendFlags {
        match self {
            Self::Write | Self::Read => SendFlags::SIGNALED.union(SendFlags::FENCE),
            _ => CONTROL,
        }
    }

    fn operation(self) -> Operation {
        match self {
            Self::Send => Operation::Send,
            Self::SendImm => Operation::SendImm(IMM),
            Self::SendInv => Operation::SendInvalidate(INVALIDATED),
            Self::Write => Operation::RdmaWrite(REMOTE),
            Self::WriteImm => Operation::RdmaWriteImm(REMOTE, IMM),
            Self::Read => Operation::RdmaRead(REMOTE),
        }
    }
}

/// Each of the four ways to give a request its data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Given<'a> {
    Sge(Sge),
    List(&'a [Sge]),
    Inline(&'a [u8]),
    Pieces(&'a [&'a [u8]]),
}

macro_rules! give {
    ($request:expr, $given:expr) => {
        match $given {
            Given::Sge(sge) => $request.sge(sge),
            Given::List(sges) => $request.sge_list(sges),
            Given::Inline(bytes) => $request.inline_data(bytes),
            Given::Pieces(pieces) => $request.inline_data_list(pieces),
        }
    };
}

/// A transport, as the tests know it.
pub(crate) trait Kind: ListTransport {
    const OPS: &'static [Op];
    const FLAGS: SendFlags;
    /// Bytes before the data of a request.
    fn head(op: Op) -> usize;
    /// Asks the typed builder for a request.
    fn build(batch: &mut Batch<'_, Self>, wr_id: u64, flags: SendFlags, op: Op, given: Given<'_>)
    where
        Self: Sized;
    /// Puts the same request together by hand.
    fn by_hand(index: u16, control: u8, op: Op, given: Given<'_>) -> Wqe;
}

fn data(mut wqe: Wqe, given: Given<'_>) -> Wqe {
    let sges = |wqe: Wqe, sges: &[Sge]| {
        sges.iter().filter(|sge| sge.length != 0).fold(wqe, |wqe, &sge| wqe.sge(sge))
    };
    wqe = match given {
        Given::Sge(sge) => sges(wqe, &[sge]),
        Given::List(list) => sges(wqe, list),
        Given::Inline([]) => wqe,
        Given::Inline(bytes) => wqe.inline(bytes),
        Given::Pieces(pieces) => match &*pieces.concat() {
            [] => wqe,
            bytes => wqe.inline(bytes),
        },
    };
    wqe
}

macro_rules! connected {
    ($transport:ident, $flags:expr, $ops:expr, |$r:ident| $to:expr, |$w:ident| $segment:expr $(, $read:ident)?) => {
        impl Kind for $transport {
            const OPS: &'static [Op] = &$ops;
            const FLAGS: SendFlags = $flags;

            fn head(op: Op) -> usize {
                let $w = Wqe::control(0, 0, 0, [0; 4]);
                $segment.bytes.len() + if op.is_remote() { 16 } else { 0 }
            }

            fn build(
                batch: &mut Batch<'_, Self>,
                wr_id: u64,
                flags: SendFlags,
                op: Op,
                given: Given<'_>,
            ) {
                let wr = batch.wr(wr_id, flags);
                match op {
                    Op::Send => give!({ let $r = wr.send(); $to }, given),
                    Op::SendImm => give!({ let $r = wr.send_imm(IMM); $to }, given),
                    Op::SendInv => give!({ let $r = wr.send_inv(INVALIDATED); $to }, given),
                    Op::Write => give!({ let $r = wr.rdma_write(REMOTE); $to }, given),
                    Op::WriteImm => give!({ let $r = wr.rdma_write_imm(REMOTE, IMM); $to }, given),
                    $(Op::Read => match given {
                        Given::Sge(sge) => { let $r = wr.$read(REMOTE); $to.sge(sge) }
                        Given::List(sges) => { let $r = wr.$read(REMOTE); $to.sge_list(sges) }
                        _ => panic!("a read has no inline data"),
                    },)?
                    #[allow(unreachable_patterns)]
                    _ => panic!("no such operation on this transport"),
                }
            }

            fn by_hand(index: u16, control: u8, op: Op, given: Given<'_>) -> Wqe {
                let $w = Wqe::control(op.code(), index, control, op.imm());
                let wqe = $segment;
                data(if op.is_remote() { wqe.remote(REMOTE) } else { wqe }, given)
            }
        }
    };
}

connected!(
    Rc,
    CONTROL,
    [Op::Send, Op::SendImm, Op::SendInv, Op::Write, Op::WriteImm, Op::Read],
    |request| request,
    |wqe| wqe,
    rdma_read
);
connected!(
    XrcSend,
    CONTROL,
    [Op::Send, Op::SendImm, Op::SendInv, Op::Write, Op::WriteImm, Op::Read],
    |request| request.xrc_srqn(SRQN),
    |wqe| wqe.srqn(),
    rdma_read
);
connected!(
    Uc,
    SendFlags::SIGNALED.union(SendFlags::SOLICITED),
    [Op::Send, Op::SendImm, Op::SendInv, Op::Write, Op::WriteImm],
    |request| request,
    |wqe| wqe
);

impl Kind for Ud {
    const OPS: &'static [Op] = &[Op::Send, Op::SendImm];
    const FLAGS: SendFlags = SendFlags::SIGNALED.union(SendFlags::SOLICITED);

    fn head(_: Op) -> usize {
        64
    }

    fn build(batch: &mut Batch<'_, Self>, wr_id: u64, flags: SendFlags, op: Op, given: Given<'_>) {
        let wr = batch.wr(wr_id, flags);
        match op {
            Op::Send => give!(wr.send().ud_addr(&ADDRESS, TO_QPN, QKEY), given),
            Op::SendImm => give!(wr.send_imm(IMM).ud_addr(&ADDRESS, TO_QPN, QKEY), given),
            _ => panic!("no such operation on this transport"),
        }
    }

    fn by_hand(index: u16, control: u8, op: Op, given: Given<'_>) -> Wqe {
        data(Wqe::control(op.code(), index, control, op.imm()).address(), given)
    }
}

/// The same request in the list form; `pieces` has room for an inline one.
pub(crate) fn list_form<'a>(
    wr_id: u64,
    flags: SendFlags,
    op: Op,
    given: Given<'a>,
    room: &'a mut ([Sge; 1], [&'a [u8]; 1]),
) -> SendWr<'a> {
    let data = match given {
        Given::Sge(sge) => {
            room.0[0] = sge;
            Data::Sges(&room.0)
        }
        Given::List(sges) => Data::Sges(sges),
        Given::Inline(bytes) => {
            room.1[0] = bytes;
            Data::Inline(&room.1)
        }
        Given::Pieces(pieces) => Data::Inline(pieces),
    };
    let address = Some(UdAddress { vector: &ADDRESS, qp_num: TO_QPN, qkey: QKEY });
    SendWr { wr_id, flags, operation: op.operation(), data, address, xrc_srqn: Some(SRQN) }
}

/// A send of nothing, one block on every transport, in the list form.
pub(crate) fn least<'a>(wr_id: u64, flags: SendFlags) -> SendWr<'a> {
    of_sges(wr_id, flags, &[])
}

/// A send of `sges`, in the list form.
pub(crate) fn of_sges(wr_id: u64, flags: SendFlags, sges: &[Sge]) -> SendWr<'_> {
    let address = Some(UdAddress { vector: &ADDRESS, qp_num: TO_QPN, qkey: QKEY });
    SendWr {
        wr_id,
        flags,
        data: Data::Sges(sges),
        address,
        xrc_srqn: Some(SRQN),
        ..SendWr::default()
    }
}

/// Posts a send of nothing.
pub(crate) fn post_least<T: ListTransport>(
    queue: &mut SendQueue<T>,
    wr_id: u64,
    flags: SendFlags,
) -> Result<(), ListError> {
    queue.post_send(&[least(wr_id, flags)])
}

/// `count` entries of a byte and more, all different.
pub(crate) fn sges(count: usize) -> Vec<Sge> {
    (0..count as u32)
        .map(|i| Sge {
            addr: 0xfedc_ba98_7600_0000 + u64::from(i) * 0x1_0001,
            length: 1 + i * 3,
            lkey: 0x5000_0001 + i * 0x100,
        })
        .collect()
}

/// `count` bytes, none of them zero, that differ between rows at the same place.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i % 251) as u8 + 1).collect()
}
