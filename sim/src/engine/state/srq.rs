//! Shared receive queues: a linked list of WQEs in a ring's memory.

use mlx5_prm::wqe::SrqNextSegment;

use crate::dma::{Buffer, Dma, DmaFault};
use crate::engine::state::tags::{TagList, TagMatchingConfig};

/// Settings of a shared receive queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SrqConfig {
    /// The protection domain of its scatter entries.
    pub pd: u32,
    /// Its WQEs.
    pub buffer: Buffer,
    /// Base-two logarithm of its WQEs.
    pub log_size: u8,
    /// Base-two logarithm of the bytes of a WQE, from 5.
    pub log_stride: u8,
    /// Bus address of its doorbell record: the count of WQEs posted.
    pub record: u64,
    /// Its user index.
    pub user_index: u32,
    /// Its tag list, if it has one.
    pub tag_matching: Option<TagMatchingConfig>,
    /// Set if it is a queue for extended reliable connections.
    pub xrc: Option<XrcConfig>,
}

/// The XRC part of a shared receive queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XrcConfig {
    /// Its XRC domain.
    pub xrcd: u32,
    /// The completion queue of its receives.
    pub cqn: u32,
}

#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) config: SrqConfig,
    /// Index of the first WQE that waits.
    pub(crate) head: u16,
    /// The WQE before it, if it was skipped; it is taken next.
    pub(crate) passed: Option<u16>,
    /// WQEs consumed since creation.
    pub(crate) consumed: u16,
    /// The limit event comes when fewer WQEs than this wait; zero is not armed.
    pub(crate) limit: u16,
    pub(crate) failed: bool,
    /// Queue pairs attached.
    pub(crate) users: u32,
    pub(crate) tags: Option<TagList>,
}

/// State of the head of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Head {
    Empty,
    Wqe {
        index: u16,
        next: u16,
    },
    /// The list points outside the buffer.
    Astray(u16),
}

impl Srq {
    pub(crate) fn new(config: SrqConfig) -> Self {
        let tags = config.tag_matching.map(TagList::new);
        Self { config, head: 0, passed: None, consumed: 0, limit: 0, failed: false, users: 0, tags }
    }

    pub(crate) fn bytes(&self) -> u64 {
        1 << (self.config.log_size + self.config.log_stride)
    }

    /// Number of WQEs that wait.
    pub(crate) fn waiting(&self, dma: &dyn Dma) -> Result<u16, DmaFault> {
        let posted = dma.load_u32(self.config.record)? as u16;
        Ok(posted.wrapping_sub(self.consumed))
    }

    pub(crate) fn head(&self, dma: &dyn Dma) -> Result<Head, DmaFault> {
        if self.waiting(dma)? == 0 {
            return Ok(Head::Empty);
        }
        if let Some(index) = self.passed {
            return Ok(Head::Wqe { index, next: self.head });
        }
        if u32::from(self.head) >= 1 << self.config.log_size {
            return Ok(Head::Astray(self.head));
        }
        let mut bytes = [0; size_of::<SrqNextSegment>()];
        self.config.buffer.read(dma, self.offset(self.head), &mut bytes)?;
        let segment: SrqNextSegment = zerocopy::transmute!(bytes);
        Ok(Head::Wqe { index: self.head, next: segment.next_wqe_index.get() })
    }

    /// Offset of a WQE in the buffer.
    pub(crate) fn offset(&self, index: u16) -> u64 {
        u64::from(index) << self.config.log_stride
    }
}
