//! Operations on the tag list.

use crate::request::sge::Sge;
use core::fmt;

bitflags::bitflags! {
    /// Flags of an operation (`enum ibv_ops_flags`).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct OpsFlags: u32 {
        /// Report a completion with the operation's `wr_id`.
        const SIGNALED = 1 << 0;
        /// Report to the device how many unexpected messages were handled.
        const TM_SYNC = 1 << 1;
    }
}

/// The name of a tag on the list, set by [`TagList::post`](super::TagList::post). It is stale once
/// a message has matched the tag or the tag was removed: a reused place has a new generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TagHandle {
    pub(crate) list: u64,
    pub(crate) generation: u32,
    pub(crate) place: u16,
}

impl TagHandle {
    /// The place on the list, which is the device's index.
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
    /// Returned with the completion of the message.
    pub recv_wr_id: u64,
    /// The buffer for the message.
    pub sges: &'a [Sge],
    /// A message matches if its tag equals this in the bits of the mask.
    pub tag: u64,
    /// The bits of the tag that are compared.
    pub mask: u64,
}

/// The action of an operation (`enum ibv_ops_wr_opcode`).
#[derive(Clone, Copy, Debug)]
pub enum TagOperation<'a> {
    /// Appends a tag to the list.
    Add(TagAdd<'a>),
    /// Removes a tag.
    Del(TagHandle),
    /// Does only what its flags say.
    Sync,
}

/// An operation on a tag list (`struct ibv_ops_wr`).
#[derive(Clone, Copy, Debug)]
pub struct OpsWr<'a> {
    /// Returned with the operation's own completion.
    pub wr_id: u64,
    /// Flags.
    pub flags: OpsFlags,
    /// The number of handled unexpected messages, for [`OpsFlags::TM_SYNC`]; the device uses 16
    /// bits.
    pub unexpected_cnt: u32,
    /// The operation.
    pub operation: TagOperation<'a>,
    /// The tag that was added. Set when an operation that adds a tag is posted.
    pub handle: Option<TagHandle>,
}

impl<'a> OpsWr<'a> {
    const fn new(wr_id: u64, operation: TagOperation<'a>) -> Self {
        Self { wr_id, flags: OpsFlags::empty(), unexpected_cnt: 0, operation, handle: None }
    }

    /// Creates an operation that adds a tag.
    pub const fn add(wr_id: u64, add: TagAdd<'a>) -> Self {
        Self::new(wr_id, TagOperation::Add(add))
    }

    /// Creates an operation that removes a tag.
    pub const fn del(wr_id: u64, handle: TagHandle) -> Self {
        Self::new(wr_id, TagOperation::Del(handle))
    }

    /// Creates an operation that reports to the device that `unexpected_cnt` unexpected messages
    /// were handled.
    pub const fn sync(wr_id: u64, unexpected_cnt: u32) -> Self {
        Self::new(wr_id, TagOperation::Sync).synchronised(unexpected_cnt)
    }

    /// Requests a completion.
    pub const fn signaled(mut self) -> Self {
        self.flags = self.flags.union(OpsFlags::SIGNALED);
        self
    }

    /// Also reports to the device that `unexpected_cnt` unexpected messages were handled.
    pub const fn synchronised(mut self, unexpected_cnt: u32) -> Self {
        self.flags = self.flags.union(OpsFlags::TM_SYNC);
        self.unexpected_cnt = unexpected_cnt;
        self
    }
}
