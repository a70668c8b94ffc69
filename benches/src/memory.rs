//! Measures the memory of queues: rings, records, and the driver's other data.

use crate::bed::{Base, DEPTH};
use crate::machine::{Held, Machine, held};
use crate::round::Mode;
use mlx5::transport::Rc;

/// Entries of a completion queue; `ENTRIES` of `peer/peer.h`.
const ENTRIES: u32 = 1024;

/// Queues to create before the measurement: the first ones also create shared objects.
const FIRST: usize = 16;

/// Memory of one kind of queue.
pub(crate) struct Holding {
    pub(crate) case: &'static str,
    pub(crate) who: String,
    pub(crate) mode: Mode,
    pub(crate) each: PerQueue,
}

/// Bytes of one queue, averaged over many.
pub(crate) struct PerQueue {
    pub(crate) heap: f64,
    pub(crate) mapped: f64,
}

/// Creates many queues, which are never destroyed; returns the average memory of one. `None` if it
/// cannot be measured.
pub(crate) fn each<T>(count: usize, mut make: impl FnMut(usize) -> Vec<T>) -> Option<PerQueue> {
    std::mem::forget(make(FIRST));
    let before = held()?;
    let all = make(count);
    let after = held()?;
    // The list of queues belongs to the benchmark.
    let list = (all.capacity() * size_of::<T>()) as i64;
    std::mem::forget(all);
    let per_queue =
        |of: fn(Held) -> i64, less: i64| (of(after) - of(before) - less) as f64 / count as f64;
    // A long list has a mapping of its own.
    let (heap, mapped) = if list < LONG { (list, 0) } else { (0, list) };
    Some(PerQueue {
        heap: per_queue(|held| held.heap, heap),
        mapped: per_queue(|held| held.mapped, mapped),
    })
}

/// Size from which malloc maps memory instead of taking it from the heap (`M_MMAP_THRESHOLD`).
const LONG: i64 = 128 << 10;

/// Memory of one of `count` of our queues, by kind.
pub(crate) fn ours(machine: &Machine, count: usize) -> Vec<Holding> {
    let base = Base::new(machine);
    let cq = base.cq(ENTRIES);
    let qps = each(count, |count| {
        let mut all = Vec::with_capacity(count);
        all.extend((0..count).map(|_| {
            let qp = base.pd.create_qp::<Rc>(&cq, &cq).max_send_wr(DEPTH).max_recv_wr(DEPTH);
            qp.max_inline_data(28).build().expect("create_qp")
        }));
        all
    });
    let cqs = each(count, |count| {
        let mut all = Vec::with_capacity(count);
        all.extend((0..count).map(|_| base.cq(ENTRIES)));
        all
    });
    let holding = |case, each: Option<PerQueue>| {
        Some(Holding { case, who: "mlx5".into(), mode: Mode::Single, each: each? })
    };
    // The leaked queues use them.
    std::mem::forget((base, cq));
    [holding("memory_qp", qps), holding("memory_cq", cqs)].into_iter().flatten().collect()
}
