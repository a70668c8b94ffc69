//! The configuration of a memory key that a request is to do, before it is in the batch.

use crate::abi::mlx5dv::mlx5dv_mkey;
use mlx5::mkey::{Interleaved, MkeyAccess, SignatureBlock};
use mlx5::{SendFlags, Sge};

/// A configuration of a key, as far as it was told.
pub(super) struct Configuring {
    /// Its key; NULL if none is configured.
    pub(super) mkey: *mut mlx5dv_mkey,
    pub(super) wr_id: u64,
    pub(super) flags: SendFlags,
    /// Setters that are still to come.
    pub(super) left: u8,
    pub(super) reset: bool,
    pub(super) access: Option<MkeyAccess>,
    pub(super) layout: Layout,
    /// Of a list.
    pub(super) pieces: Vec<Sge>,
    /// Of an interleaved layout.
    pub(super) interleaved: Vec<Interleaved>,
    pub(super) signature: Option<SignatureBlock>,
}

impl Configuring {
    pub(super) fn new() -> Self {
        Self {
            mkey: std::ptr::null_mut(),
            wr_id: 0,
            flags: SendFlags::empty(),
            left: 0,
            reset: false,
            access: None,
            layout: Layout::None,
            pieces: Vec::new(),
            interleaved: Vec::new(),
            signature: None,
        }
    }

    /// A configuration of this key begins, of which nothing is told yet.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        mkey: *mut mlx5dv_mkey,
        wr_id: u64,
        flags: SendFlags,
        setters: u8,
        reset: bool,
    ) {
        self.mkey = mkey;
        self.wr_id = wr_id;
        self.flags = flags;
        self.left = setters;
        self.reset = reset;
        self.access = None;
        self.layout = Layout::None;
        self.signature = None;
    }
}

/// Which layout was told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    None,
    List,
    Interleaved { repeat: u32 },
}
