//! The configuration of a memory key that a request is to do, before it is in the batch.

use crate::abi::mlx5dv::mlx5dv_mkey;
use mlx5::mkey::{Interleaved, MkeyAccess, SignatureBlock};
use mlx5::{SendFlags, Sge};

/// The configuration of a key so far.
// The fields that every configuration sets first are adjacent.
#[repr(C)]
pub(super) struct Configuring {
    /// Its key; NULL if none is configured.
    pub(super) mkey: *mut mlx5dv_mkey,
    pub(super) wr_id: u64,
    pub(super) flags: SendFlags,
    /// Number of setters that are still to follow.
    pub(super) left: u8,
    /// `more` belongs to this configuration; otherwise it is left from an earlier one.
    has_more: bool,
    pub(super) access: Option<MkeyAccess>,
    more: More,
    /// Of a list.
    pub(super) pieces: Vec<Sge>,
    /// Of an interleaved layout.
    pub(super) interleaved: Vec<Interleaved>,
}

/// The parts that most configurations do not set, or set last.
pub(super) struct More {
    pub(super) reset: bool,
    pub(super) layout: Layout,
    pub(super) signature: Option<SignatureBlock>,
}

impl More {
    const NOTHING: Self = Self { reset: false, layout: Layout::None, signature: None };
}

impl Configuring {
    pub(super) fn new() -> Self {
        Self {
            mkey: std::ptr::null_mut(),
            wr_id: 0,
            flags: SendFlags::empty(),
            left: 0,
            has_more: false,
            access: None,
            more: More::NOTHING,
            pieces: Vec::new(),
            interleaved: Vec::new(),
        }
    }

    /// Begins a configuration of this key, with nothing set yet.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        mkey: *mut mlx5dv_mkey,
        wr_id: u64,
        flags: SendFlags,
        setters: u8,
    ) {
        self.mkey = mkey;
        self.wr_id = wr_id;
        self.flags = flags;
        self.left = setters;
        self.has_more = false;
        self.access = None;
    }

    /// The parts besides the access rights, if any is set.
    #[inline(always)]
    pub(super) fn more(&self) -> Option<&More> {
        self.has_more.then_some(&self.more)
    }

    /// [`Configuring::more`], to set a part.
    pub(super) fn more_mut(&mut self) -> &mut More {
        if !self.has_more {
            (self.has_more, self.more) = (true, More::NOTHING);
        }
        &mut self.more
    }
}

/// The kind of layout.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    None,
    List,
    Interleaved { repeat: u32 },
}
