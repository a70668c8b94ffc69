//! Operations on the list of tags.

use crate::request::sge::Sge;
use core::fmt;
use mlx5_prm::wqe::TagMatchingSegment;

bitflags::bitflags! {
    /// Flags of an operation (`enum ibv_ops_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct OpsFlags: u32 {
        /// Completes, with the operation's `wr_id`.
        const SIGNALED = 1 << 0;
        /// Tells the device how many unexpected messages were handled.
        const TM_SYNC = 1 << 1;
    }
}

/// A tag on the list, as [`TagList::post`] names it. It means nothing any more once a message
/// matched it, or it was removed: a place that is used again has another name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TagHandle {
    pub(crate) list: u64,
    pub(crate) generation: u32,
    pub(crate) place: u16,
}

impl TagHandle {
    /// The place on the list, as the device numbers it.
    pub const fn place(self) -> u16 {
        self.place
    }
}

impl fmt::Debug for TagHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, generation, place } = self;
        write!(f, "TagHandle({place} of list {list}, generation {generation})")
    }
}

/// A tag to add (`struct ibv_ops_wr`, member `tm.add`).
#[derive(Clone, Copy, Debug)]
pub struct TagAdd<'a> {
    /// Comes back with the completion of the message.
    pub recv_wr_id: u64,
    /// Where the message goes.
    pub sges: &'a [Sge],
    /// A message matches if its tag, as far as the mask goes, is this.
    pub tag: u64,
    /// The bits of the message's tag that are compared.
    pub mask: u64,
}

/// What an operation does (`enum ibv_ops_wr_opcode`).
#[derive(Clone, Copy, Debug)]
pub enum TagOperation<'a> {
    /// Adds a tag behind those on the list.
    Add(TagAdd<'a>),
    /// Removes a tag.
    Del(TagHandle),
    /// Does nothing but what its flags say.
    Sync,
}

/// An operation on a list of tags (`struct ibv_ops_wr`).
#[derive(Clone, Copy, Debug)]
pub struct OpsWr<'a> {
    /// Comes back with the operation's own completion.
    pub wr_id: u64,
    /// Flags.
    pub flags: OpsFlags,
    /// How many unexpected messages were handled, with [`OpsFlags::TM_SYNC`]; the device counts 16
    /// bits.
    pub unexpected_cnt: u32,
    /// What it does.
    pub operation: TagOperation<'a>,
    /// The tag that was added: set when an operation that adds one is posted.
    pub handle: Option<TagHandle>,
}

impl<'a> OpsWr<'a> {
    const fn new(wr_id: u64, operation: TagOperation<'a>) -> Self {
        Self { wr_id, flags: OpsFlags::empty(), unexpected_cnt: 0, operation, handle: None }
    }

    /// Adds a tag.
    pub const fn add(wr_id: u64, add: TagAdd<'a>) -> Self {
        Self::new(wr_id, TagOperation::Add(add))
    }

    /// Removes a tag.
    pub const fn del(wr_id: u64, handle: TagHandle) -> Self {
        Self::new(wr_id, TagOperation::Del(handle))
    }

    /// Tells the device that `unexpected_cnt` unexpected messages were handled.
    pub const fn sync(wr_id: u64, unexpected_cnt: u32) -> Self {
        Self::new(wr_id, TagOperation::Sync).synchronised(unexpected_cnt)
    }

    /// The same, to complete.
    pub const fn signaled(mut self) -> Self {
        self.flags = self.flags.union(OpsFlags::SIGNALED);
        self
    }

    /// The same, and tells the device that `unexpected_cnt` unexpected messages were handled.
    pub const fn synchronised(mut self, unexpected_cnt: u32) -> Self {
        self.flags = self.flags.union(OpsFlags::TM_SYNC);
        self.unexpected_cnt = unexpected_cnt;
        self
    }

    /// The flags byte of its segment, which asks for a completion if `completes`.
    pub(crate) fn segment_flags(&self, completes: bool) -> u8 {
        let mut flags = 0;
        if completes {
            flags |= TagMatchingSegment::COMPLETION;
        }
        if self.flags.contains(OpsFlags::TM_SYNC) {
            flags |= TagMatchingSegment::SOFTWARE_COUNT;
        }
        flags
    }
}
