//! Imports of almost every case.

pub(crate) use crate::bed::{Bed, flushed, syndrome, wr_ids};
pub(crate) use crate::case::{Case, cases};
pub(crate) use crate::failed::{Failed, Outcome};
pub(crate) use crate::pair::{End, Pair, PairOptions, Wired};
pub(crate) use crate::pattern::{fill, pattern, untouched, verify};
pub(crate) use crate::station::{SLOT, Station, Stations, to_group};
pub(crate) use crate::traffic::{Form, Op, Post, Traffic};
pub(crate) use mlx5::transport::{Rc, Uc, Ud};
pub(crate) use mlx5::{
    Access, CompletionErrorKind, CompletionOpcode, CompletionQueue, Context, MemoryRegion,
    OwnedCompletion, PostError, QpAttributes, QueuePair, QueueState, ReceiveWr, RemoteAddress,
    SendFlags, SendWr, Sge, Syndrome,
};
pub(crate) use mlx5_sim::{Fault, Model, PortConfig, SimConfig, Simulator};
