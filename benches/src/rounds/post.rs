//! Posts send requests.

/// To a queue pair of one owner.
pub(super) mod single {
    use crate::bed::{Bed, Given, Options};
    use crate::operations::post;
    use crate::round::timed;
    use crate::rounds::subject;
    use std::hint::black_box;

    subject! {
        |machine| { let bed = Bed::new(machine, Options::default()); let given = Given::new(&bed.base); (bed, given) } =>

        "post_inline8", Single, post::inline8 x 64, |bed, given, first| {
            let (qp, bytes) = (&mut bed.qp, given.bytes());
            let time = timed(64, |k| {
                post::inline8(qp, given.remotes[k], bytes, first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "post_array8", Single, post::array8 x 64, |bed, given, first| {
            let (qp, bytes) = (&mut bed.qp, black_box(&[7; 8]));
            let time = timed(64, |k| {
                post::array8(qp, given.remotes[k], bytes, first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "post_sge", Single, post::sge x 64, |bed, given, first| {
            let qp = &mut bed.qp;
            let time = timed(64, |k| {
                post::sge(qp, given.remotes[k], given.sges[k], first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "post_send", Single, post::send x 64, |bed, given, first| {
            let qp = &mut bed.qp;
            let time = timed(64, |k| post::send(qp, given.sges[k], first + k as u64).is_ok());
            bed.complete(64);
            time
        }
        "post_fetch_add", Single, post::fetch_add x 64, |bed, given, first| {
            let (qp, sges) = (&mut bed.qp, given.eights());
            let time = timed(64, |k| {
                let i = first + k as u64;
                post::fetch_add(qp, given.remotes[k], sges[k], i, i).is_ok()
            });
            bed.complete(64);
            time
        }
        "post_cmp_swp", Single, post::compare_swap x 64, |bed, given, first| {
            let (qp, sges) = (&mut bed.qp, given.eights());
            let time = timed(64, |k| {
                let i = first + k as u64;
                post::compare_swap(qp, given.remotes[k], sges[k], [i, i + 1], i).is_ok()
            });
            bed.complete(64);
            time
        }
        "batch16_inline8", Single, post::batch_inline8 x 64, |bed, given, first| {
            let (qp, bytes) = (&mut bed.qp, given.bytes());
            let time = timed(4, |k| {
                post::batch_inline8(qp, given.remotes(k), bytes, first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "batch16_array8", Single, post::batch_array8 x 64, |bed, given, first| {
            let (qp, bytes) = (&mut bed.qp, black_box(&[7; 8]));
            let time = timed(4, |k| {
                post::batch_array8(qp, given.remotes(k), bytes, first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "batch16_sge", Single, post::batch_sge x 64, |bed, given, first| {
            let qp = &mut bed.qp;
            let time = timed(4, |k| {
                post::batch_sge(qp, given.remotes(k), given.sges(k), first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "list16_inline8", Single, post::list x 64, |bed, given, first| {
            let pieces = [given.bytes()];
            let lists: [_; 4] = std::array::from_fn(|k| given.list(k, first, &pieces));
            let (qp, lists) = (&mut bed.qp, black_box(&lists));
            let time = timed(4, |k| post::list(qp, &lists[k]).is_ok());
            bed.complete(64);
            time
        }
        "iter16_inline8", Single, post::iterator x 64, |bed, given, first| {
            let pieces = [given.bytes()];
            let lists: [_; 4] = std::array::from_fn(|k| given.list(k, first, &pieces));
            let (qp, lists) = (&mut bed.qp, black_box(&lists));
            let time = timed(4, |k| post::iterator(qp, &lists[k]).is_ok());
            bed.complete(64);
            time
        }
    }
}

/// To a queue pair whose transport is known only at run time.
pub(super) mod any {
    use crate::bed::{Bed, Given, Options};
    use crate::operations::post;
    use crate::round::timed;
    use crate::rounds::subject;

    subject! {
        |machine| { let bed = Bed::new(machine, Options::default()); let given = Given::new(&bed.base); (bed.into_any(), given) } =>

        "post_inline8_any", Single, post::inline8_any x 64, |bed, given, first| {
            let (qp, bytes) = (&mut bed.qp, given.bytes());
            let time = timed(64, |k| {
                post::inline8_any(qp, given.remotes[k], bytes, first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "post_sge_any", Single, post::sge_any x 64, |bed, given, first| {
            let qp = &mut bed.qp;
            let time = timed(64, |k| {
                post::sge_any(qp, given.remotes[k], given.sges[k], first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "post_send_any", Single, post::send_any x 64, |bed, given, first| {
            let qp = &mut bed.qp;
            let time = timed(64, |k| post::send_any(qp, given.sges[k], first + k as u64).is_ok());
            bed.complete(64);
            time
        }
    }
}

/// To a queue pair that threads can share.
pub(super) mod shared {
    use crate::bed::{Bed, Given, Options};
    use crate::operations::{locked, post};
    use crate::round::timed;
    use crate::rounds::subject;
    use std::hint::black_box;

    subject! {
        |machine| { let bed = Bed::new(machine, Options::default()); let given = Given::new(&bed.base); (bed.into_shared(), given) } =>

        "post_inline8", Shared, post::inline8_shared x 64, |bed, given, first| {
            let (qp, bytes) = (&bed.qp, given.bytes());
            let time = timed(64, |k| {
                post::inline8_shared(qp, given.remotes[k], bytes, first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "post_sge", Shared, post::sge_shared x 64, |bed, given, first| {
            let qp = &bed.qp;
            let time = timed(64, |k| {
                post::sge_shared(qp, given.remotes[k], given.sges[k], first + k as u64).is_ok()
            });
            bed.complete(64);
            time
        }
        "post_send", Shared, post::send_shared x 64, |bed, given, first| {
            let qp = &bed.qp;
            let time = timed(64, |k| post::send_shared(qp, given.sges[k], first + k as u64).is_ok());
            bed.complete(64);
            time
        }
        "batch16_inline8", Shared, locked::batch_inline8 x 64, |bed, given, first| {
            let (qp, bytes) = (&bed.qp, given.bytes());
            let time = timed(4, |k| {
                let wr_id = first + k as u64;
                locked::batch_inline8(qp, given.remotes(k), bytes, wr_id).is_ok()
            });
            bed.complete(64);
            time
        }
        "batch16_sge", Shared, locked::batch_sge x 64, |bed, given, first| {
            let qp = &bed.qp;
            let time = timed(4, |k| {
                let wr_id = first + k as u64;
                locked::batch_sge(qp, given.remotes(k), given.sges(k), wr_id).is_ok()
            });
            bed.complete(64);
            time
        }
        "list16_inline8", Shared, locked::list x 64, |bed, given, first| {
            let pieces = [given.bytes()];
            let lists: [_; 4] = std::array::from_fn(|k| given.list(k, first, &pieces));
            let (qp, lists) = (&bed.qp, black_box(&lists));
            let time = timed(4, |k| locked::list(qp, &lists[k]).is_ok());
            bed.complete(64);
            time
        }
    }
}

/// To a queue pair for datagrams.
pub(super) mod datagrams {
    use crate::bed::{BATCH, Base, DEPTH};
    use crate::machine::Machine;
    use crate::operations::{locked, post};
    use crate::round::timed;
    use crate::rounds::subject;
    use mlx5::transport::Ud;
    use mlx5::{
        AddressHandle, CompletionQueue, ConnectOptions, Psn, QueuePair, ReceiveWr, Sge,
        SharedQueuePair,
    };

    /// A queue pair that sends to itself.
    struct Datagrams<Q = QueuePair<Ud>> {
        base: Base,
        qp: Q,
        cq: CompletionQueue,
        way: AddressHandle,
        qkey: u32,
    }

    /// A queue that accepts receives.
    trait Receives {
        fn post_receives(&mut self, list: &[ReceiveWr<'_>]);
    }

    impl Receives for QueuePair<Ud> {
        fn post_receives(&mut self, list: &[ReceiveWr<'_>]) {
            self.post_recv(list).expect("room");
        }
    }

    impl Receives for SharedQueuePair<Ud> {
        fn post_receives(&mut self, list: &[ReceiveWr<'_>]) {
            self.post_recv(list).expect("room");
        }
    }

    impl Datagrams {
        fn new(machine: &Machine) -> (Self, ()) {
            let base = Base::new(machine);
            let cq = base.cq(1024);
            let qp = base.pd.create_qp::<Ud>(&cq, &cq).max_send_wr(DEPTH).max_recv_wr(DEPTH);
            let mut qp = qp.max_inline_data(28).build().expect("create_qp");
            let (options, psn) = (ConnectOptions::default(), Psn::wrapping(0));
            qp.activate(&base.port, psn, &options).expect("activate");
            let here = qp.endpoint(&base.port, psn, &options);
            let way = base.pd.create_ah_to(&base.port, &here, &options).expect("create_ah");
            let qkey = here.qkey.expect("a datagram queue pair has a key");
            (Self { base, qp, cq, way, qkey }, ())
        }

        fn shared(machine: &Machine) -> (Datagrams<SharedQueuePair<Ud>>, ()) {
            let (Self { base, qp, cq, way, qkey }, ()) = Self::new(machine);
            (Datagrams { base, qp: qp.into_shared(), cq, way, qkey }, ())
        }
    }

    impl<Q: Receives> Datagrams<Q> {
        /// Eight bytes to send. The receiver gets them after a header of 40 bytes.
        fn sge(&self, k: usize) -> Sge {
            Sge { length: 8, ..self.base.sge(k as u64) }
        }

        fn receives(&mut self, count: usize) {
            let sges = [self.base.sge(0)];
            for _ in 0..count / BATCH {
                let list = [ReceiveWr { wr_id: 0, sges: &sges }; BATCH];
                self.qp.post_receives(&list);
            }
        }

        fn complete(&mut self, count: usize) {
            let mut polled = 0;
            while polled < count {
                self.base.machine.settle();
                let poll = self.cq.poll(count, |one| one.status().expect("success"));
                polled += poll.expect("poll");
            }
            assert_eq!(polled, count);
        }
    }

    /// To a queue pair of one owner.
    pub(in crate::rounds) mod single {
        use super::*;

        subject! {
            Datagrams::new =>

            "post_ud", Single, post::datagram x 64, |bed, _given, first| {
                bed.receives(64);
                let sges: [Sge; 64] = std::array::from_fn(|k| bed.sge(k));
                let (to, qp_num, qkey) = (bed.way.vector(), bed.qp.qp_num(), bed.qkey);
                let qp = &mut bed.qp;
                let time = timed(64, |k| {
                    post::datagram(qp, to, qp_num, qkey, sges[k], first + k as u64).is_ok()
                });
                bed.complete(128);
                time
            }
        }
    }

    /// To a queue pair that threads can share.
    pub(in crate::rounds) mod shared {
        use super::*;

        subject! {
            Datagrams::shared =>

            "post_ud", Shared, locked::datagram x 64, |bed, _given, first| {
                bed.receives(64);
                let sges: [Sge; 64] = std::array::from_fn(|k| bed.sge(k));
                let (to, qp_num, qkey) = (bed.way.vector(), bed.qp.qp_num(), bed.qkey);
                let qp = &bed.qp;
                let time = timed(64, |k| {
                    locked::datagram(qp, to, qp_num, qkey, sges[k], first + k as u64).is_ok()
                });
                bed.complete(128);
                time
            }
        }
    }
}
