//! The operations in rounds of many, on one device with the peer's.

use crate::bed::{Bed, alone};
use crate::beside::{Mode, ROUND, Round};
use crate::machine::Machine;
use crate::operations;
use mlx5::{ReceiveWr, RemoteAddress, SendWr, Sge};
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

/// Requests of a batch or list.
const BATCH: usize = 16;

/// What the operations of a round are given.
struct Given {
    remotes: [RemoteAddress; ROUND as usize],
    sges: [Sge; ROUND as usize],
    bytes: [u8; 8],
}

impl Given {
    fn new(bed: &Bed) -> Self {
        Self {
            remotes: std::array::from_fn(|i| bed.remote(i as u64)),
            sges: std::array::from_fn(|i| bed.sge(i as u64)),
            bytes: [7; 8],
        }
    }

    fn remotes(&self, call: usize) -> &[RemoteAddress; BATCH] {
        &self.remotes.as_chunks().0[call]
    }

    fn sges(&self, call: usize) -> &[Sge; BATCH] {
        &self.sges.as_chunks().0[call]
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..black_box(8)]
    }
}

/// Times calls; what each answers is looked at afterwards.
fn timed(calls: usize, mut call: impl FnMut(usize) -> bool) -> u64 {
    let mut good = true;
    let start = Instant::now();
    for k in 0..calls {
        good &= call(k);
    }
    let nanoseconds = start.elapsed().as_nanos() as u64;
    assert!(good, "room, and something to poll");
    nanoseconds
}

macro_rules! rounds {
    ($($name:literal, $mode:ident, $function:ident: |$bed:ident, $given:ident, $first:ident| $round:block)*) => {
        /// Functions that do the operations.
        pub(crate) const FUNCTIONS: &[&str] =
            &[$(concat!("mlx5_bench::operations::", stringify!($function))),*];

        /// The cases on the device of `machine`.
        pub(crate) fn rounds(machine: &Machine) -> Vec<Round> {
            let bed = Bed::new(machine.clone());
            let given = Rc::new(Given::new(&bed));
            let bed = Rc::new(RefCell::new(bed));
            vec![$({
                let (bed, given) = (Rc::clone(&bed), Rc::clone(&given));
                Round {
                    case: $name.into(),
                    who: "mlx5".into(),
                    mode: Mode::$mode,
                    run: Box::new(move |$first| {
                        let $bed = &mut *bed.borrow_mut();
                        let $given = &*given;
                        $round
                    }),
                }
            }),*]
        }
    };
}

rounds! {
    "post_inline8", Single, post_inline8: |bed, given, first| {
        let (qp, bytes) = (alone(&mut bed.qp), given.bytes());
        let time = timed(64, |k| {
            operations::post_inline8(qp, given.remotes[k], bytes, first + k as u64).is_ok()
        });
        bed.complete(64);
        time
    }
    "post_inline8", Shared, post_inline8_shared: |bed, given, first| {
        let (qp, bytes) = (&bed.qp, given.bytes());
        let time = timed(64, |k| {
            operations::post_inline8_shared(qp, given.remotes[k], bytes, first + k as u64).is_ok()
        });
        bed.complete(64);
        time
    }
    "post_sge", Single, post_sge: |bed, given, first| {
        let qp = alone(&mut bed.qp);
        let time = timed(64, |k| {
            operations::post_sge(qp, given.remotes[k], given.sges[k], first + k as u64).is_ok()
        });
        bed.complete(64);
        time
    }
    "post_sge", Shared, post_sge_shared: |bed, given, first| {
        let qp = &bed.qp;
        let time = timed(64, |k| {
            operations::post_sge_shared(qp, given.remotes[k], given.sges[k], first + k as u64).is_ok()
        });
        bed.complete(64);
        time
    }
    "post_send", Single, post_send_sge: |bed, given, first| {
        let qp = alone(&mut bed.qp);
        let time = timed(64, |k| {
            operations::post_send_sge(qp, given.sges[k], first + k as u64).is_ok()
        });
        bed.complete(64);
        time
    }
    "post_send", Shared, post_send_sge_shared: |bed, given, first| {
        let qp = &bed.qp;
        let time = timed(64, |k| {
            operations::post_send_sge_shared(qp, given.sges[k], first + k as u64).is_ok()
        });
        bed.complete(64);
        time
    }
    "batch16_inline8", Single, batch_inline8: |bed, given, first| {
        let (qp, bytes) = (alone(&mut bed.qp), given.bytes());
        let time = timed(4, |k| {
            operations::batch_inline8(qp, given.remotes(k), bytes, first + k as u64).is_ok()
        });
        bed.complete(64);
        time
    }
    "batch16_sge", Single, batch_sge: |bed, given, first| {
        let qp = alone(&mut bed.qp);
        let time = timed(4, |k| {
            operations::batch_sge(qp, given.remotes(k), given.sges(k), first + k as u64).is_ok()
        });
        bed.complete(64);
        time
    }
    "list16_inline8", Single, list: |bed, given, first| {
        let pieces = [given.bytes()];
        let lists: [[SendWr<'_>; BATCH]; 4] = std::array::from_fn(|k| {
            bed.list(first + (k * BATCH) as u64, given.remotes(k), &pieces)
        });
        let (qp, lists) = (alone(&mut bed.qp), black_box(&lists));
        let time = timed(4, |k| operations::list(qp, &lists[k]).is_ok());
        bed.complete(64);
        time
    }
    "poll1", Single, poll_one: |bed, _given, first| {
        bed.post(first, 64);
        let (cq, sum) = (alone(&mut bed.cq), &mut bed.sum);
        timed(64, |_| operations::poll_one(cq, sum) == Some(1))
    }
    "poll1", Shared, poll_one_shared: |bed, _given, first| {
        bed.post(first, 64);
        let (cq, sum) = (&bed.cq, &mut bed.sum);
        timed(64, |_| operations::poll_one_shared(cq, sum) == Some(1))
    }
    "poll16", Single, poll_many: |bed, _given, first| {
        bed.post(first, 64);
        let (cq, sum) = (alone(&mut bed.cq), &mut bed.sum);
        timed(4, |_| operations::poll_many(cq, black_box(BATCH), sum) == Some(BATCH))
    }
    "empty_poll", Single, poll_empty: |bed, _given, _first| {
        let (cq, sum) = (alone(&mut bed.cq), &mut bed.sum);
        timed(64, |_| operations::poll_empty(cq, sum) == Some(0))
    }
    "post_recv1", Single, post_recv: |bed, given, first| {
        let lists: [_; ROUND as usize] = std::array::from_fn(|k| {
            [ReceiveWr { wr_id: first + k as u64, sges: &given.sges[k..=k] }]
        });
        let lists = black_box(&lists);
        let time = timed(64, |k| operations::post_recv(&mut bed.peer, &lists[k]).is_ok());
        bed.receive(64);
        time
    }
}
