//! A request, and the things posted with it.

use std::ops::Range;

use mlx5::mkey::{Domain, Interleaved, SignatureBlock, SignatureBytes};
use mlx5::{MaskedOperands, RemoteAddress, Sge};

/// The memory keys: translation entries, and whether their blocks can be signed.
pub(in crate::operations) const KEYS: [(u32, bool); 3] = [(16, false), (16, true), (4, true)];

/// A layout.
#[derive(Clone)]
pub(in crate::operations) enum Layout {
    Keep,
    List(Vec<Sge>),
    Turns(u32, Vec<Interleaved>),
}

/// The signatures of a block, as both interfaces take them.
#[derive(Clone, Copy)]
pub(in crate::operations) struct Block {
    pub(in crate::operations) memory: Option<Domain>,
    pub(in crate::operations) wire: Option<Domain>,
    pub(in crate::operations) check: SignatureBytes,
    pub(in crate::operations) copy: Option<SignatureBytes>,
}

impl Block {
    pub(in crate::operations) fn signature(&self) -> SignatureBlock {
        let mut block = SignatureBlock::new().check(self.check);
        if let Some(domain) = self.memory {
            block = block.memory(domain);
        }
        if let Some(domain) = self.wire {
            block = block.wire(domain);
        }
        match self.copy {
            Some(copy) => block.copy(copy),
            None => block,
        }
    }
}

/// The change of a key's signature.
#[derive(Clone, Copy)]
pub(in crate::operations) enum Signing {
    Keep,
    Reset,
    Set(Block),
}

/// An operation.
pub(in crate::operations) enum Operation {
    Configure {
        key: usize,
        access: Option<u32>,
        layout: Layout,
        signing: Signing,
    },
    Send(Vec<Sge>),
    SendInvalidate(u32, Vec<Sge>),
    CompareSwap {
        remote: RemoteAddress,
        compare: u64,
        swap: u64,
        to: [Sge; 1],
    },
    FetchAdd {
        remote: RemoteAddress,
        add: u64,
        to: [Sge; 1],
    },
    SendImm(u32, Vec<Sge>),
    SendInline(Vec<u8>),
    Write(RemoteAddress, Vec<Sge>),
    WriteImm(RemoteAddress, u32, Vec<Sge>),
    Read(RemoteAddress, Vec<Sge>),
    LocalInvalidate(u32),
    /// Binds a window of type 2 to bytes of the windows' region, with rights.
    Bind(Range<usize>, u32),
    /// Binds a window of type 1 by a call; to nothing, if the range is empty.
    BindCall(Range<usize>, u32),
    /// rdma-core has no such request, so the C side posts one that the caller has put together.
    MaskedCompareSwap {
        remote: RemoteAddress,
        operands: MaskedOperands,
        to: [Sge; 1],
    },
    /// As above, the C side posts a request that the caller has put together.
    MaskedFetchAdd {
        remote: RemoteAddress,
        add: u64,
        boundary: u64,
        to: [Sge; 1],
    },
    Raw(Vec<u8>),
}

impl Operation {
    /// Its data.
    pub(in crate::operations) fn sges(&self) -> &[Sge] {
        match self {
            Self::Send(sges) | Self::SendInvalidate(_, sges) => sges,
            Self::SendImm(_, sges) | Self::Write(_, sges) | Self::Read(_, sges) => sges,
            Self::WriteImm(_, _, sges) => sges,
            Self::CompareSwap { to, .. } | Self::FetchAdd { to, .. } => to,
            Self::MaskedCompareSwap { to, .. } | Self::MaskedFetchAdd { to, .. } => to,
            Self::Configure { .. } | Self::LocalInvalidate(_) | Self::Raw(_) => &[],
            Self::Bind(..) | Self::BindCall(..) | Self::SendInline(_) => &[],
        }
    }

    /// The WQE of a masked atomic operation, word by word as in the PRM: control segment with
    /// opcode modifier 9 (extended, eight bytes), remote address, operands, and the entry for the
    /// old value.
    pub(super) fn masked(&self, flags: &str) -> Option<Vec<u8>> {
        let (opcode, remote, operands, to) = match self {
            Self::MaskedCompareSwap { remote, operands, to } => {
                let MaskedOperands { compare, compare_mask, swap, swap_mask } = *operands;
                (0x14, remote, vec![swap, compare, swap_mask, compare_mask], to[0])
            }
            Self::MaskedFetchAdd { remote, add, boundary, to } => {
                (0x15, remote, vec![*add, *boundary], to[0])
            }
            _ => return None,
        };
        let units = 3 + operands.len() as u8 / 2;
        let bit = |letter, bit| if flags.contains(letter) { bit } else { 0 };
        let mut wqe = vec![9, 0, 0, opcode, 0, 0, 0, units, 0, 0, 0];
        wqe.extend([bit('S', 8) | bit('F', 0x80), 0, 0, 0, 0]);
        wqe.extend(remote.addr.to_be_bytes());
        wqe.extend(remote.rkey.to_be_bytes());
        wqe.extend([0; 4]);
        operands.iter().for_each(|operand| wqe.extend(operand.to_be_bytes()));
        wqe.extend(8_u32.to_be_bytes());
        wqe.extend(to.lkey.to_be_bytes());
        wqe.extend(to.addr.to_be_bytes());
        Some(wqe)
    }
}

/// A request.
pub(in crate::operations) struct Line {
    pub(in crate::operations) wr_id: u64,
    pub(in crate::operations) flags: &'static str,
    /// On an extended connection: the number of its shared receive queue.
    pub(in crate::operations) srqn: Option<u32>,
    pub(in crate::operations) operation: Operation,
}

/// The report of a bad signature in an entry.
pub(in crate::operations) struct BadSignature {
    pub(in crate::operations) key: usize,
    /// 63 bytes; each side fills in its own key.
    pub(in crate::operations) entry: Vec<u8>,
}

/// Requests that are posted together.
pub(in crate::operations) struct Batch {
    pub(in crate::operations) builder: bool,
    /// The bad signature that the device finds before this batch.
    pub(in crate::operations) found: Option<BadSignature>,
    pub(in crate::operations) lines: Vec<Line>,
}

impl Batch {
    /// Whether the last request asks for a completion, so that the batch drains.
    pub(in crate::operations) fn drains(&self) -> bool {
        self.lines.last().is_some_and(|line| line.flags.contains('S'))
    }
}
