//! Send WQEs, written by hand.

use mlx5_prm::wqe::{
    AtomicSegment, DataSegment, INLINE, Opcode, RemoteAddressSegment, control_flags,
};
use zerocopy::IntoBytes;

/// A WQE under construction.
#[derive(Clone)]
pub(super) struct Wqe {
    pub(super) opcode: u8,
    pub(super) modifier: u8,
    pub(super) flags: u8,
    pub(super) immediate: u32,
    pub(super) body: Vec<u8>,
}

impl Wqe {
    pub(super) fn new(opcode: Opcode) -> Self {
        Self {
            opcode: opcode as u8,
            modifier: 0,
            flags: control_flags::COMPLETION,
            immediate: 0,
            body: Vec::new(),
        }
    }

    pub(super) fn raw(opcode: u8) -> Self {
        Self { opcode, ..Self::new(Opcode::Nop) }
    }

    pub(super) fn unsignaled(mut self) -> Self {
        self.flags &= !control_flags::COMPLETION;
        self
    }

    pub(super) fn solicited(mut self) -> Self {
        self.flags |= control_flags::SOLICITED;
        self
    }

    pub(super) fn modifier(mut self, modifier: u8) -> Self {
        self.modifier = modifier;
        self
    }

    pub(super) fn immediate(mut self, value: u32) -> Self {
        self.immediate = value;
        self
    }

    pub(super) fn segment(mut self, segment: &(impl IntoBytes + zerocopy::Immutable)) -> Self {
        self.body.extend_from_slice(segment.as_bytes());
        self
    }

    pub(super) fn remote(self, address: u64, rkey: u32) -> Self {
        let segment = RemoteAddressSegment {
            address: address.into(),
            rkey: rkey.into(),
            ..RemoteAddressSegment::default()
        };
        self.segment(&segment)
    }

    pub(super) fn atomic(self, swap_or_add: u64, compare: u64) -> Self {
        self.segment(&AtomicSegment { swap_or_add: swap_or_add.into(), compare: compare.into() })
    }

    pub(super) fn data(self, address: u64, length: u32, lkey: u32) -> Self {
        self.segment(&data(address, length, lkey))
    }

    pub(super) fn inline(mut self, bytes: &[u8]) -> Self {
        self.body.extend_from_slice(&(bytes.len() as u32 | INLINE).to_be_bytes());
        self.body.extend_from_slice(bytes);
        let padded = self.body.len().next_multiple_of(16);
        self.body.resize(padded, 0);
        self
    }

    /// Adds 16-byte units that the device does not read, to make a NOP longer.
    pub(super) fn pad(mut self, units: usize) -> Self {
        self.body.resize(self.body.len() + 16 * units, 0xa5);
        self
    }
}

pub(super) fn data(address: u64, length: u32, lkey: u32) -> DataSegment {
    DataSegment { byte_count: length.into(), lkey: lkey.into(), address: address.into() }
}

/// Bytes that differ from their neighbours.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 256 + 1) as u8).collect()
}
