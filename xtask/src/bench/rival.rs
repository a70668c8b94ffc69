//! The references that our counts are compared with.

/// The reference for one of our counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rival {
    /// The better of C's ways: for instructions in its default mode, for nanoseconds in its
    /// single-threaded mode.
    C,
    /// The bare stores and loads. The lock of a shared queue may take `besides` sixteenths of an
    /// instruction more: sixteen requests share one lock.
    Floor { besides: u32 },
    /// The same program over C's library, in the same way. Both take their default locks.
    SameProgram,
    /// Another case of ours.
    Case(&'static str),
    /// A fixed number of instructions, because no C library has the operation.
    Nobody,
    /// A number of cache lines that the operation uses on a queue that is in no cache.
    Lines,
}
