//! A provider's actions, in the form that both sides report.

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
    /// Refused, from this request of the list on.
    Refused(u32),
}

/// A write to a doorbell register.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rung {
    /// Offset in the BlueFlame register, both halves counted as one.
    pub(crate) offset: usize,
    pub(crate) bytes: Vec<u8>,
}

/// The effects of a post.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Post {
    pub(crate) outcome: Outcome,
    /// Doorbell record.
    pub(crate) record: Vec<u8>,
    pub(crate) rung: Option<Rung>,
    /// The requests that the record announces, each as long as the device reads it.
    pub(crate) wqes: Vec<Vec<u8>>,
}

/// A queue pair that was made: number, blocks, receive requests, bytes of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Made {
    pub(crate) qpn: u32,
    pub(crate) blocks: u32,
    pub(crate) receives: u32,
    pub(crate) stride: u32,
}

/// One thing that happened.
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
    /// A full queue refused a request. Reports whether its ring is unchanged.
    Overfull {
        untouched: bool,
    },
}
