//! The actions of a provider, in the form in which both sides, rdma-core's and ours, report them.

use std::collections::BTreeMap;

/// A call to the kernel: object, method, and its inputs by attribute.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Call {
    pub(crate) object: u16,
    pub(crate) method: u16,
    pub(crate) inputs: BTreeMap<u16, Vec<u8>>,
}

/// The outcome of posting a list of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Outcome {
    #[default]
    Posted,
    /// The request with this index in the list was refused, with all after it.
    Refused(u32),
}

/// A write to a doorbell register.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rung {
    /// Offset of the write in its half of the BlueFlame register: the two halves count as one.
    pub(crate) offset: usize,
    pub(crate) bytes: Vec<u8>,
}

/// The effects of a post.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Post {
    pub(crate) outcome: Outcome,
    /// Contents of the doorbell record after the post.
    pub(crate) record: Vec<u8>,
    pub(crate) rung: Option<Rung>,
    /// The requests that the post announces in the doorbell record, each with the bytes that the
    /// device reads.
    pub(crate) wqes: Vec<Vec<u8>>,
}

/// A queue pair that was made: its number, the blocks of its send queue, and the requests of its
/// receive queue with the bytes of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Made {
    pub(crate) qpn: u32,
    pub(crate) blocks: u32,
    pub(crate) receives: u32,
    pub(crate) stride: u32,
}

/// An action, or its effects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Queue(String),
    Call(Call),
    Made(Made),
    /// A shared receive queue, with the sizes that the kernel granted.
    Shared {
        requests: u32,
        entries: u32,
    },
    /// A list of send requests.
    Post(String, Post),
    /// A list of receive requests, on a queue pair or a shared receive queue.
    Receive(String, Post),
    /// A full queue refused a request; `untouched` if that left its ring unchanged.
    Overfull {
        untouched: bool,
    },
}
