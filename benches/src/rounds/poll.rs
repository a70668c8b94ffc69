//! Polls completion queues.

/// A completion queue of one owner.
pub(super) mod single {
    use crate::bed::{BATCH, Bed, Options};
    use crate::operations::poll;
    use crate::round::timed;
    use crate::rounds::subject;
    use std::hint::black_box;

    subject! {
        |machine| (Bed::new(machine, Options::default()), ()) =>

        "poll1", Single, poll::one x 64, |bed, _given, first| {
            bed.written(first, 64);
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(64, |_| poll::one(cq, sum) == Some(1))
        }
        "poll16", Single, poll::many x 64, |bed, _given, first| {
            bed.written(first, 64);
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(4, |_| poll::many(cq, black_box(BATCH), sum) == Some(BATCH))
        }
        "empty_poll", Single, poll::empty x 64, |bed, _given, _first| {
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(64, |_| poll::empty(cq, sum) == Some(0))
        }
    }
}

/// Completions of signaled requests that follow unsignaled ones.
pub(super) mod sparse {
    use crate::bed::{BATCH, Bed, Options};
    use crate::operations::poll;
    use crate::round::timed;
    use crate::rounds::subject;
    use std::hint::black_box;

    /// Bursts of 1 to 31 requests of one or two blocks; the last request is signaled.
    fn burst(k: u64) -> (u64, u64) {
        let random = (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (random >> 59, random ^ random >> 31)
    }

    subject! {
        |machine| {
            let options = Options { depth: 4096, lists: true, ..Options::default() };
            (Bed::new(machine, options), ())
        } =>

        "poll_sparse2", Single, poll::one x 64, |bed, _given, first| {
            bed.sparse(first, 64, |_| (1, 0));
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(64, |_| poll::one(cq, sum) == Some(1))
        }
        "poll_sparse16", Single, poll::one x 64, |bed, _given, first| {
            bed.sparse(first, 64, |_| (15, 0));
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(64, |_| poll::one(cq, sum) == Some(1))
        }
        "poll_sparse_mixed", Single, poll::one x 64, |bed, _given, first| {
            bed.sparse(first, 64, burst);
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(64, |_| poll::one(cq, sum) == Some(1))
        }
        "poll16_sparse2", Single, poll::many x 64, |bed, _given, first| {
            bed.sparse(first, 64, |_| (1, 0));
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(4, |_| poll::many(cq, black_box(BATCH), sum) == Some(BATCH))
        }
        "poll16_sparse16", Single, poll::many x 64, |bed, _given, first| {
            bed.sparse(first, 64, |_| (15, 0));
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(4, |_| poll::many(cq, black_box(BATCH), sum) == Some(BATCH))
        }
        "poll16_sparse_mixed", Single, poll::many x 64, |bed, _given, first| {
            bed.sparse(first, 64, burst);
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(4, |_| poll::many(cq, black_box(BATCH), sum) == Some(BATCH))
        }
    }
}

/// A completion queue that threads can share.
pub(super) mod shared {
    use crate::bed::{BATCH, Bed, Options};
    use crate::operations::{locked, poll};
    use crate::round::timed;
    use crate::rounds::subject;
    use std::hint::black_box;

    subject! {
        |machine| (Bed::new(machine, Options::default()).into_shared(), ()) =>

        "poll1", Shared, poll::one_shared x 64, |bed, _given, first| {
            bed.written(first, 64);
            let (cq, sum) = (&bed.cq, &mut bed.sum);
            timed(64, |_| poll::one_shared(cq, sum) == Some(1))
        }
        "poll16", Shared, locked::poll_many x 64, |bed, _given, first| {
            bed.written(first, 64);
            let (cq, sum) = (&bed.cq, &mut bed.sum);
            timed(4, |_| locked::poll_many(cq, black_box(BATCH), sum) == Some(BATCH))
        }
        "empty_poll", Shared, locked::poll_empty x 64, |bed, _given, _first| {
            let (cq, sum) = (&bed.cq, &mut bed.sum);
            timed(64, |_| locked::poll_empty(cq, sum) == Some(0))
        }
    }
}

/// A completion queue with compressed runs.
pub(super) mod compressed {
    use crate::bed::{BATCH, Bed, Options};
    use crate::operations::poll;
    use crate::round::timed;
    use crate::rounds::subject;
    use std::hint::black_box;

    subject! {
        |machine| (Bed::new(machine, Options { compressed: true, ..Options::default() }), ()) =>

        "poll1_compressed", Single, poll::one x 64, |bed, _given, first| {
            bed.written(first, 64);
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(64, |_| poll::one(cq, sum) == Some(1))
        }
        "poll16_compressed", Single, poll::many x 64, |bed, _given, first| {
            bed.written(first, 64);
            let (cq, sum) = (&mut bed.cq, &mut bed.sum);
            timed(4, |_| poll::many(cq, black_box(BATCH), sum) == Some(BATCH))
        }
    }
}
