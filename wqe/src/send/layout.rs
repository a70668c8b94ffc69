//! Sizes of a send queue.

use crate::request::data::INLINE_HEADER;
use crate::request::operation::{SendOps, head_units, least_units};
use crate::request::transport::Transport;
use mlx5_prm::wqe::{BLOCK, MAX_RING_BLOCKS, MAX_UNITS, UNIT};

/// What a send queue is asked to hold, and what comes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendLayout {
    /// Blocks in the ring, a power of two.
    pub blocks: u32,
    /// Blocks that the largest request takes.
    pub worst_blocks: u32,
    /// Requests of the largest size that fit.
    pub worst_requests: u32,
    /// Scatter/gather entries in a request.
    pub max_sge: u32,
    /// Bytes of inline data in a request.
    pub max_inline: u32,
}

impl SendLayout {
    /// Sizes a queue for `requests` requests, each of any operation of transport `T`, with `sges`
    /// entries or `inline` bytes; everything is rounded up to what the ring then has room for.
    /// `None` if such a request is larger than a WQE can be, or the ring than a ring can be.
    pub fn new<T: Transport>(requests: u32, sges: u32, inline: u32) -> Option<Self> {
        Self::with_ops::<T>(requests, sges, inline, SendOps::empty())
    }

    /// [`SendLayout::new`] for a queue that has room for `requests` requests of each of `ops`, too,
    /// those whose size does not depend on data included.
    pub fn with_ops<T: Transport>(
        requests: u32,
        sges: u32,
        inline: u32,
        ops: SendOps,
    ) -> Option<Self> {
        let head = head_units::<T>();
        let inline_units = match inline {
            0 => 0,
            bytes => (bytes as usize).checked_add(INLINE_HEADER)?.div_ceil(UNIT),
        };
        let units = head.checked_add((sges as usize).max(inline_units))?;
        let units = units.max(least_units::<T>()).max(ops.fixed_units::<T>());
        if units > MAX_UNITS {
            return None;
        }
        let worst_blocks = units.div_ceil(BLOCK / UNIT);
        let blocks = (requests.max(1) as usize).checked_mul(worst_blocks)?.next_power_of_two();
        if blocks > MAX_RING_BLOCKS {
            return None;
        }
        let spare = (worst_blocks * (BLOCK / UNIT)).min(MAX_UNITS) - head;
        Some(Self {
            blocks: blocks as u32,
            worst_blocks: worst_blocks as u32,
            worst_requests: (blocks / worst_blocks) as u32,
            max_sge: spare as u32,
            max_inline: (spare * UNIT).saturating_sub(INLINE_HEADER) as u32,
        })
    }

    /// The same, but with room for `requests` requests of `blocks` blocks each, at least. `None` if
    /// the ring cannot be so large.
    pub fn holding(self, requests: u32, blocks: u32) -> Option<Self> {
        let wanted = (requests.max(1) as usize).checked_mul(blocks as usize)?;
        let blocks = wanted.checked_next_power_of_two()?.max(self.blocks as usize);
        if blocks > MAX_RING_BLOCKS {
            return None;
        }
        let blocks = blocks as u32;
        Some(Self { blocks, worst_requests: blocks / self.worst_blocks, ..self })
    }

    /// Bytes of the ring.
    pub const fn bytes(&self) -> usize {
        self.blocks as usize * BLOCK
    }
}
