//! Posts receive requests.

/// To a queue pair's own queue.
pub(super) mod own {
    use crate::bed::{BATCH, Bed, Given, Options};
    use crate::operations::receive;
    use crate::round::{ROUND, timed};
    use crate::rounds::subject;
    use mlx5::ReceiveWr;
    use std::hint::black_box;

    subject! {
        |machine| { let bed = Bed::new(machine, Options::default()); let given = Given::new(&bed.base); (bed, given) } =>

        "post_recv1", Single, receive::post_recv x 64, |bed, given, first| {
            let lists: [_; ROUND as usize] = std::array::from_fn(|k| {
                [ReceiveWr { wr_id: first + k as u64, sges: &given.sges[k..=k] }]
            });
            let lists = black_box(&lists);
            let time = timed(64, |k| receive::post_recv(&mut bed.peer, &lists[k]).is_ok());
            bed.receive(64);
            time
        }
        "recv_one", Single, receive::recv x 64, |bed, given, first| {
            let time = timed(64, |k| {
                receive::recv(&mut bed.peer, given.sges[k], first + k as u64).is_ok()
            });
            bed.receive(64);
            time
        }
        "post_recv16", Single, receive::post_recv x 64, |bed, given, first| {
            let list: [_; ROUND as usize] = std::array::from_fn(|k| {
                ReceiveWr { wr_id: first + k as u64, sges: &given.sges[k..=k] }
            });
            let lists = black_box(&list).as_chunks::<BATCH>().0;
            let time = timed(4, |k| receive::post_recv(&mut bed.peer, &lists[k]).is_ok());
            bed.receive(64);
            time
        }
    }
}

/// To a shared receive queue.
pub(super) mod shared {
    use crate::bed::{Bed, Given, Options};
    use crate::operations::receive;
    use crate::round::{ROUND, timed};
    use crate::rounds::subject;
    use mlx5::ReceiveWr;
    use std::hint::black_box;

    subject! {
        |machine| {
            let bed = Bed::new(machine, Options { shared_receive: true, ..Options::default() });
            let given = Given::new(&bed.base);
            (bed, given)
        } =>

        "post_srq_recv1", Single, receive::post_srq_recv x 64, |bed, given, first| {
            let lists: [_; ROUND as usize] = std::array::from_fn(|k| {
                [ReceiveWr { wr_id: first + k as u64, sges: &given.sges[k..=k] }]
            });
            let (lists, srq) = (black_box(&lists), bed.srq.as_mut().expect("there is one"));
            let time = timed(64, |k| receive::post_srq_recv(srq, &lists[k]).is_ok());
            bed.receive(64);
            time
        }
    }
}

/// To the receive queue of a queue pair that threads can share.
pub(super) mod locked {
    use crate::bed::{BATCH, Base, DEPTH, Given, Poller, Poster};
    use crate::machine::Machine;
    use crate::operations::locked;
    use crate::round::{ROUND, timed};
    use crate::rounds::subject;
    use mlx5::transport::Rc;
    use mlx5::{CompletionQueue, ReceiveWr, SharedQueuePair};
    use std::hint::black_box;

    /// A queue pair that is connected to itself.
    struct Loop {
        base: Base,
        qp: SharedQueuePair<Rc>,
        cq: CompletionQueue,
    }

    impl Loop {
        fn new(machine: &Machine) -> (Self, Given) {
            let base = Base::new(machine);
            let cq = base.cq(1024);
            let qp = base.looped(&cq, DEPTH, DEPTH).into_shared();
            let given = Given::new(&base);
            (Self { base, qp, cq }, given)
        }

        /// Consumes receives that were just posted.
        fn receive(&mut self) {
            for k in 0..ROUND {
                self.qp.request(0, None, self.base.sge(k));
            }
            self.base.machine.settle();
            assert_eq!(self.cq.drain() as u64, 2 * ROUND);
        }
    }

    subject! {
        Loop::new =>

        "post_recv1", Shared, locked::post_recv x 64, |bed, given, first| {
            let lists: [_; ROUND as usize] = std::array::from_fn(|k| {
                [ReceiveWr { wr_id: first + k as u64, sges: &given.sges[k..=k] }]
            });
            let lists = black_box(&lists);
            let time = timed(64, |k| locked::post_recv(&bed.qp, &lists[k]).is_ok());
            bed.receive();
            time
        }
        "post_recv16", Shared, locked::post_recv x 64, |bed, given, first| {
            let list: [_; ROUND as usize] = std::array::from_fn(|k| {
                ReceiveWr { wr_id: first + k as u64, sges: &given.sges[k..=k] }
            });
            let lists = black_box(&list).as_chunks::<BATCH>().0;
            let time = timed(4, |k| locked::post_recv(&bed.qp, &lists[k]).is_ok());
            bed.receive();
            time
        }
    }
}
