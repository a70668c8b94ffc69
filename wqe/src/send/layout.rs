//! Sizes of a send queue.

use crate::request::data::INLINE_HEADER;
use crate::request::operation::{SendOps, head_units, least_units};
use crate::request::transport::Transport;
use mlx5_prm::ethernet::segment_units;
use mlx5_prm::wqe::{BLOCK, MAX_RING_BLOCKS, MAX_UNITS, UNIT};

/// The sizes of a send queue, computed from what it must hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendLayout {
    /// Blocks in the ring, a power of two.
    pub blocks: u32,
    /// Blocks of the largest request.
    pub max_request_blocks: u32,
    /// Number of requests of the largest size that fit.
    pub max_size_requests: u32,
    /// Maximum number of SGEs in a request.
    pub max_sge: u32,
    /// Maximum number of bytes of inline data in a request.
    pub max_inline: u32,
    /// Maximum length of the headers of a packet that the device cuts into segments.
    pub max_tso_header: u32,
}

impl SendLayout {
    /// Sizes a queue for `requests` requests of any operation of transport `T`, each with `sges`
    /// SGEs or `inline` bytes. Everything is rounded up to what the ring has room for. `None` if
    /// such a request exceeds the largest WQE, or the ring exceeds its maximum size.
    pub fn new<T: Transport>(requests: u32, sges: u32, inline: u32) -> Option<Self> {
        Self::with_ops::<T>(requests, sges, inline, SendOps::empty())
    }

    /// As [`SendLayout::new`], with room for `requests` requests of each of `ops`, including
    /// operations whose size does not depend on data.
    pub fn with_ops<T: Transport>(
        requests: u32,
        sges: u32,
        inline: u32,
        ops: SendOps,
    ) -> Option<Self> {
        Self::with_tso::<T>(requests, sges, inline, ops, 0)
    }

    /// As [`SendLayout::with_ops`], with room for packets that the device cuts into segments, with
    /// headers of up to `header` bytes and `sges` SGEs.
    pub fn with_tso<T: Transport>(
        requests: u32,
        sges: u32,
        inline: u32,
        ops: SendOps,
        header: u32,
    ) -> Option<Self> {
        let head = head_units::<T>();
        let inline_units = match inline {
            0 => 0,
            bytes => (bytes as usize).checked_add(INLINE_HEADER)?.div_ceil(UNIT),
        };
        let units = head.checked_add((sges as usize).max(inline_units))?;
        let segmented = match header {
            0 => 0,
            bytes => (1 + segment_units(bytes as usize)).checked_add(sges as usize)?,
        };
        let units = units.max(segmented).max(least_units::<T>()).max(ops.fixed_units::<T>());
        if units > MAX_UNITS {
            return None;
        }
        let max_request_blocks = units.div_ceil(BLOCK / UNIT);
        let blocks =
            (requests.max(1) as usize).checked_mul(max_request_blocks)?.next_power_of_two();
        if blocks > MAX_RING_BLOCKS {
            return None;
        }
        let spare = units_of(max_request_blocks) - head;
        Some(Self {
            blocks: blocks as u32,
            max_request_blocks: max_request_blocks as u32,
            max_size_requests: (blocks / max_request_blocks) as u32,
            max_sge: spare as u32,
            max_inline: (spare * UNIT).saturating_sub(INLINE_HEADER) as u32,
            max_tso_header: header,
        })
    }

    /// Enlarges the ring, if needed, to hold `requests` requests of `blocks` blocks each. `None` if
    /// the ring would exceed its maximum size.
    pub fn holding(self, requests: u32, blocks: u32) -> Option<Self> {
        let wanted = (requests.max(1) as usize).checked_mul(blocks as usize)?;
        let blocks = wanted.checked_next_power_of_two()?.max(self.blocks as usize);
        if blocks > MAX_RING_BLOCKS {
            return None;
        }
        let blocks = blocks as u32;
        Some(Self { blocks, max_size_requests: blocks / self.max_request_blocks, ..self })
    }

    /// The size of the largest request in bytes.
    pub const fn max_request_bytes(&self) -> usize {
        units_of(self.max_request_blocks as usize) * UNIT
    }

    /// The size of the ring in bytes.
    pub const fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK
    }
}

/// The most units of a request of `blocks` blocks: the last block of the longest WQE is not whole.
pub(crate) const fn units_of(blocks: usize) -> usize {
    let units = blocks * (BLOCK / UNIT);
    if units < MAX_UNITS { units } else { MAX_UNITS }
}
