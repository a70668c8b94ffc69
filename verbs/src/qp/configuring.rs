//! The configuration of a memory key that a request is to do, before it is in the batch.

use crate::abi::mlx5dv::mlx5dv_mkey;
use mlx5::mkey::{Interleaved, MkeyAccess, SignatureBlock};
use mlx5::{SendFlags, Sge};

/// A configuration of a key, as far as it was told.
#[derive(Default)]
pub(super) struct Configuring {
    /// Its key, if there is one.
    pub(super) mkey: Option<*mut mlx5dv_mkey>,
    pub(super) wr_id: u64,
    pub(super) flags: SendFlags,
    /// Setters that are still to come.
    pub(super) left: u8,
    pub(super) reset: bool,
    pub(super) access: Option<MkeyAccess>,
    pub(super) layout: Option<Layout>,
    /// Of a list.
    pub(super) pieces: Vec<Sge>,
    /// Of an interleaved layout.
    pub(super) interleaved: Vec<Interleaved>,
    pub(super) signature: Option<SignatureBlock>,
}

/// Which layout was told.
#[derive(Clone, Copy)]
pub(super) enum Layout {
    List,
    Interleaved { repeat: u32 },
}
