//! Posts to shallow queues, and to a full one.

use crate::bed::{Bed, Given, Options};
use crate::operations::post;
use crate::round::timed;
use crate::rounds::subject;
use mlx5::{Data, SendWr};

/// Depths of the queues, in the order of the cases. The last one is kept full.
const DEPTHS: [u32; 4] = [1, 2, 4, 64];

/// Posts 64 requests of a batch or list, in groups as large as the queue is deep.
fn shallow(bed: &mut Bed, depth: u64, mut post: impl FnMut(&mut Bed, usize) -> bool) -> u64 {
    let mut time = 0;
    for call in 0..64 / depth {
        let first = (call * depth) as usize;
        time += timed(depth as usize, |k| post(bed, first + k));
        bed.complete(depth);
    }
    time
}

/// Posts 64 requests to a full queue, each after one has completed.
fn full(bed: &mut Bed, mut post: impl FnMut(&mut Bed, usize) -> bool) -> u64 {
    bed.write(0, 64);
    let mut time = 0;
    bed.settle();
    for k in 0..64 {
        bed.complete_one();
        time += timed(1, |_| post(bed, k));
    }
    bed.complete(64);
    time
}

fn typed(bed: &mut Bed, given: &Given, k: usize, first: u64) -> bool {
    post::inline8(&mut bed.qp, given.remotes[k], given.bytes(), first + k as u64).is_ok()
}

fn listed(bed: &mut Bed, given: &Given, k: usize, first: u64) -> bool {
    let pieces = [given.bytes()];
    let [wr, ..] = given.list(k / 16, first, &pieces);
    post::list(&mut bed.qp, &[SendWr { data: Data::Inline(&pieces), ..wr }]).is_ok()
}

subject! {
    |machine| {
        let beds = DEPTHS.map(|depth| Bed::new(machine, Options { depth, ..Options::default() }));
        let given = beds.each_ref().map(|bed| Given::new(&bed.base));
        (beds, given)
    } =>

    "post_depth1", Single, post::inline8 x 64, |beds, given, first| {
        shallow(&mut beds[0], 1, |bed, k| typed(bed, &given[0], k, first))
    }
    "post_depth2", Single, post::inline8 x 64, |beds, given, first| {
        shallow(&mut beds[1], 2, |bed, k| typed(bed, &given[1], k, first))
    }
    "post_depth4", Single, post::inline8 x 64, |beds, given, first| {
        shallow(&mut beds[2], 4, |bed, k| typed(bed, &given[2], k, first))
    }
    "post_full64", Single, post::inline8 x 64, |beds, given, first| {
        full(&mut beds[3], |bed, k| typed(bed, &given[3], k, first))
    }
    "list_depth1", Single, post::list x 64, |beds, given, first| {
        shallow(&mut beds[0], 1, |bed, k| listed(bed, &given[0], k, first))
    }
    "list_depth2", Single, post::list x 64, |beds, given, first| {
        shallow(&mut beds[1], 2, |bed, k| listed(bed, &given[1], k, first))
    }
    "list_depth4", Single, post::list x 64, |beds, given, first| {
        shallow(&mut beds[2], 4, |bed, k| listed(bed, &given[2], k, first))
    }
    "list_full64", Single, post::list x 64, |beds, given, first| {
        full(&mut beds[3], |bed, k| listed(bed, &given[3], k, first))
    }
}
