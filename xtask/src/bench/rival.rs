//! What our counts are compared with.

/// What a count of ours is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rival {
    /// The better of C's ways: instructions, of its default mode; nanoseconds, of its single-threaded
    /// mode.
    C,
    /// The bare stores and loads. The lock of a shared queue may take some instructions besides: so many
    /// sixteenths, because sixteen requests share one.
    Floor { besides: u32 },
    /// The same program over C's library, in the same way. Both take the locks that they take by
    /// default.
    SameProgram,
    /// Another case of ours.
    Case(&'static str),
    /// A number of instructions, which nobody else takes: no C library has the operation.
    Nobody,
    /// A number of cache lines: what an operation uses of a queue that is in no cache.
    Lines,
}
