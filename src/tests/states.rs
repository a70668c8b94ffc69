//! From an error back to work: quiescing, resetting and purging, in unusual orders.

use super::*;
use crate::testing::Altered;
use crate::transport::{RawPacket, Rc, Ud};
use mlx5_prm::cmd::CommandOpcode;
use mlx5_prm::cmd::qp::QueryQpOut;
use mlx5_prm::cqe::{CqeOpcode, MiniFormat, Syndrome};
use mlx5_sim::Fault;
use mlx5_sim::engine::{DrainAt, QpState};
use mlx5_uapi::ioctl::{attr, method};
use mlx5_wqe::{QueueState, ReceiveWr, SendFlags};
use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Time that a test waits for an expected result.
const DEADLINE: Duration = Duration::from_secs(30);

/// Pairs of queue pairs that complete on one queue. The device works by itself.
pub(super) struct Bed {
    pub(super) simulator: Simulator,
    pub(super) context: Context,
    pub(super) pd: ProtectionDomain,
    pub(super) cq: CompletionQueue,
}

pub(super) struct Pair {
    pub(super) near: QueuePair<Rc>,
    pub(super) far: QueuePair<Rc>,
    port: LocalPort,
}

impl Pair {
    pub(super) fn connect(&mut self) {
        let (port, psn, options) = (&self.port, Psn::default(), ConnectOptions::default());
        let here = self.near.endpoint(port, psn, &options);
        let there = self.far.endpoint(port, psn, &options);
        self.near.connect(port, psn, &there, &options).unwrap();
        self.far.connect(port, psn, &here, &options).unwrap();
    }

    pub(super) fn send(&mut self, wr_ids: impl IntoIterator<Item = u64>, flags: SendFlags) {
        let mut batch = self.near.wr_start();
        for wr_id in wr_ids {
            batch.wr(wr_id, flags).send().inline_data(b"");
        }
        batch.complete().unwrap();
    }

    pub(super) fn receive(&mut self, wr_ids: impl IntoIterator<Item = u64>) {
        for wr_id in wr_ids {
            self.far.post_recv(&[ReceiveWr { wr_id, sges: &[] }]).unwrap();
        }
    }
}

impl Bed {
    pub(super) fn new() -> Self {
        Self::on(SimConfig::new())
    }

    /// The device works only when the test runs it.
    pub(super) fn stepped() -> Self {
        Self::on(SimConfig::new().step(true))
    }

    fn on(config: SimConfig) -> Self {
        let simulator = Simulator::new(config);
        let context = open(&simulator);
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(100).build().unwrap();
        Self { simulator, context, pd, cq }
    }

    pub(super) fn pair(&self, srq: Option<&SharedReceiveQueue>) -> Pair {
        self.pair_with(|builder| match srq {
            Some(srq) => builder.srq(srq),
            None => builder.max_recv_wr(16),
        })
    }

    /// A pair that completes on another queue.
    fn pair_on(&self, cq: &CompletionQueue) -> Pair {
        let make = || self.pd.create_qp::<Rc>(cq, cq).max_inline_data(8).build().unwrap();
        let port = self.context.local_port(1, None).unwrap();
        let mut pair = Pair { near: make(), far: make(), port };
        pair.connect();
        pair
    }

    pub(super) fn pair_with<'a>(
        &'a self,
        with: impl Fn(QueuePairBuilder<'a, Rc>) -> QueuePairBuilder<'a, Rc>,
    ) -> Pair {
        let make = || {
            let builder = self.pd.create_qp::<Rc>(&self.cq, &self.cq).max_inline_data(8);
            with(builder).build().unwrap()
        };
        let port = self.context.local_port(1, None).unwrap();
        let mut pair = Pair { near: make(), far: make(), port };
        pair.connect();
        pair
    }

    /// Waits until `count` completions are in the queue, without polling.
    pub(super) fn wait_for(&self, count: usize) {
        let deadline = Instant::now() + DEADLINE;
        while !format!("{:?}", self.cq).contains(&format!("waiting: {count},")) {
            assert!(Instant::now() < deadline, "{count} completions: {:?}", self.cq);
            std::thread::yield_now();
        }
    }

    fn poll(&mut self, count: usize) -> Vec<u64> {
        let mut wr_ids = Vec::new();
        let deadline = Instant::now() + DEADLINE;
        while wr_ids.len() < count {
            assert!(Instant::now() < deadline, "{count} completions: {wr_ids:?}");
            self.cq
                .poll(count - wr_ids.len(), |wc| {
                    assert_eq!(wc.status(), Ok(()));
                    wr_ids.push(wc.wr_id());
                })
                .unwrap();
        }
        wr_ids
    }
}

#[test]
fn quiescing_a_raw_packet_queue_pair_reports_its_receives() {
    let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true));
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).build().unwrap();
    let make = || {
        let builder = pd.create_qp::<RawPacket>(&cq, &cq).max_send_wr(4).max_recv_wr(16);
        let mut qp = builder.build().unwrap();
        qp.activate(1).unwrap();
        for wr_id in 0..3 {
            qp.recv(wr_id, Sge::default()).unwrap();
        }
        qp
    };
    let (mut qp, other) = (make(), make());
    let mut not_done = qp.quiesce(&mut [&mut cq], |_| {}).unwrap();
    not_done.sort_by_key(|request| request.wr_id);
    let reported: Vec<_> = not_done.iter().map(|one| (one.wr_id, one.receive)).collect();
    assert_eq!(reported, [(0, true), (1, true), (2, true)]);
    assert!(not_done.iter().all(|one| matches!(one.why, WhyNotDone::Failed(_))), "{not_done:?}");
    assert_eq!(other.free_receives(), 16 - 3, "another queue pair's are not its");
}

/// The kernel is not notified, and passes the former state to the device, which refuses that.
#[test]
fn a_queue_pair_of_packets_whose_sending_failed_is_quiesced_reset_and_sends_again() {
    let simulator = Simulator::new(SimConfig::new().ports([PortConfig::ROCE]).raw_packets(true));
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).build().unwrap();
    let mut qp = pd.create_qp::<RawPacket>(&cq, &cq).max_inline_data(64).build().unwrap();
    let send = |qp: &mut QueuePair<RawPacket>, cq: &mut CompletionQueue| {
        let mut batch = qp.wr_start();
        batch.wr(5, SendFlags::SIGNALED).send().inline_data(&[0; 60]);
        batch.complete().unwrap();
        let (deadline, mut sent) = (Instant::now() + DEADLINE, None);
        while sent.is_none() {
            assert!(Instant::now() < deadline);
            cq.poll(1, |completion| sent = Some(completion.status().is_ok())).unwrap();
        }
        sent.unwrap()
    };
    for quiesces in [false, true, false, true] {
        qp.activate(1).unwrap();
        qp.recv(7, Sge::default()).unwrap();
        assert!(send(&mut qp, &mut cq));
        let (qpn, syndrome) = (Some(qp.qp_num()), Syndrome::LocalQpOperation);
        simulator.inject(0, Fault::FailRequest { qpn, syndrome, vendor: 0 });
        assert!(!send(&mut qp, &mut cq));
        if quiesces {
            let not_done = qp.quiesce_within(&mut [&mut cq], DEADLINE, |_| {}).unwrap();
            assert_eq!(not_done.iter().map(|one| one.wr_id).collect::<Vec<_>>(), [7]);
        }
        qp.reset().unwrap();
    }
}

#[test]
fn a_purge_removes_the_completions_of_one_queue_pair_and_it_works_again() {
    let mut bed = Bed::new();
    let (mut one, mut other) = (bed.pair(None), bed.pair(None));
    for round in 0..20 {
        one.receive(10..13);
        other.receive(20..22);
        one.send(0..2, SendFlags::SIGNALED);
        bed.wait_for(4);
        other.send(5..7, SendFlags::SIGNALED);
        bed.wait_for(8);
        one.send(2..3, SendFlags::SIGNALED);
        bed.wait_for(10);
        one.near.reset().unwrap();
        one.far.reset().unwrap();
        let busy = one.near.init(&one.port, &ConnectOptions::default()).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy);
        assert_eq!(one.near.purge(&mut bed.cq).unwrap(), 3);
        assert_eq!(one.near.free_send_blocks(), one.near.caps().send_blocks);
        assert_eq!(one.far.purge(&mut bed.cq).unwrap(), 3);
        assert_eq!(one.far.purge(&mut bed.cq).unwrap(), 0);
        let mut polled = bed.poll(4);
        polled.sort_unstable();
        assert_eq!(polled, [5, 6, 20, 21], "round {round}");
        one.connect();
        one.receive([7]);
        one.send([8], SendFlags::SIGNALED);
        let mut polled = bed.poll(2);
        polled.sort_unstable();
        assert_eq!(polled, [7, 8], "round {round}");
    }
    assert_eq!(bed.simulator.violations(), []);
}

#[test]
fn a_purge_returns_the_requests_of_a_shared_receive_queue() {
    let mut bed = Bed::new();
    let mut srq = bed.pd.create_srq(7).build().unwrap();
    let mut pair = bed.pair(Some(&srq));
    for _ in 0..10 {
        let receive = ReceiveWr { wr_id: 1, sges: &[] };
        srq.post_recv(&[receive; 7]).unwrap();
        pair.send(0..7, SendFlags::SIGNALED);
        bed.wait_for(14);
        srq.post_recv(&[receive]).unwrap_err();
        for qp in [&mut pair.near, &mut pair.far] {
            qp.reset().unwrap();
            assert_eq!(qp.purge(&mut bed.cq).unwrap(), 7);
        }
        pair.connect();
    }
}

#[test]
fn only_a_queue_pair_in_reset_is_purged_and_only_from_its_own_queue() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    let refused = pair.near.purge(&mut bed.cq).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert!(refused.to_string().contains("reset it first"), "{refused}");
    pair.near.reset().unwrap();
    let mut elsewhere = bed.context.create_cq(4).build().unwrap();
    let refused = pair.near.purge(&mut elsewhere).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    assert_eq!(pair.near.purge(&mut bed.cq).unwrap(), 0);
}

#[test]
fn a_shared_queue_pair_leaves_reset_once_its_completions_are_gone() {
    let bed = Bed::new();
    let mut pair = bed.pair(None);
    pair.receive(0..2);
    pair.send(0..2, SendFlags::SIGNALED);
    bed.wait_for(4);
    let near = pair.near.into_shared();
    near.reset().unwrap();
    let init = QpAttributes::new()
        .qp_state(QueueState::Init)
        .pkey_index(0)
        .port_num(1)
        .qp_access_flags(Access::empty());
    assert_eq!(near.modify(&init).unwrap_err().kind(), ErrorKind::Busy);
    let cq = bed.cq.into_shared();
    assert_eq!(near.purge(&mut cq.lock()).unwrap(), 2);
    near.modify(&init).unwrap();
    assert_eq!(near.state(), QueueState::Init);
    assert!(format!("{near:?}").contains("sends_in_flight: 0,"), "{near:?}");
    near.to_error().unwrap();
    let not_done = near.quiesce(&mut [&mut cq.lock()], |_| {}).unwrap();
    assert_eq!(not_done, []);
}

#[test]
fn a_shared_queue_pair_goes_back_to_work_while_threads_keep_it() {
    let mut bed = Bed::new();
    let Pair { near, far, port } = bed.pair(None);
    let (near, far) = (near.into_shared(), far.into_shared());
    let options = ConnectOptions::default();
    assert_eq!(near.caps().max_recv_wr, 16);
    for round in 0..3 {
        // Completions and requests of the last connection, waiting, in flight or unknown, do not
        // stay.
        far.recv(1, Sge::default()).unwrap();
        near.post(|batch| batch.wr(2, SendFlags::SIGNALED).send().inline_data(b"")).unwrap();
        bed.wait_for(2);
        far.recv(3, Sge::default()).unwrap();
        for qp in [&near, &far] {
            qp.reset().unwrap();
        }
        let busy = near.init(&port, &options).unwrap_err();
        assert_eq!(busy.kind(), ErrorKind::Busy, "round {round}");
        for qp in [&near, &far] {
            assert_eq!(qp.purge(&mut bed.cq).unwrap(), 1);
        }
        if round == 1 {
            far.init(&port, &options).unwrap();
            assert_eq!(far.state(), QueueState::Init);
        }
        let (here, there) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let peer = scope.spawn(|| far.connect_over(there, &port, &options).unwrap());
            let remote = near.connect_over(here, &port, &options).unwrap();
            assert_eq!(remote.qp_num.get(), far.qp_num());
            assert_eq!(peer.join().unwrap().qp_num.get(), near.qp_num());
        });
        for qp in [&near, &far] {
            assert_eq!(qp.state(), QueueState::ReadyToSend);
        }
        let (psn, remote) = (Psn::default(), far.endpoint(&port, Psn::default(), &options));
        let refused = near.connect(&port, psn, &remote, &options).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "it is connected");
    }
    assert_eq!(bed.simulator.violations(), []);
}

#[test]
fn destroying_a_queue_pair_reports_requests_that_no_poll_returned() {
    let mut bed = Bed::stepped();
    let mut pair = bed.pair(None);
    pair.receive(10..13);
    pair.send([1], SendFlags::SIGNALED);
    bed.simulator.run_until_idle();
    assert_eq!(bed.cq.poll(2, |_| ()), Ok(2));
    // The completions of 2 and 11 are in the queue; 3 is not executed.
    pair.send([2], SendFlags::SIGNALED);
    bed.simulator.run_until_idle();
    pair.send([3], SendFlags::SIGNALED);
    let reported = |list: Vec<NotDone>| -> Vec<(u64, bool)> {
        assert!(list.iter().all(|one| one.why == WhyNotDone::Unknown), "{list:?}");
        list.iter().map(|one| (one.wr_id, one.receive)).collect()
    };
    assert_eq!(
        reported(AnyQueuePair::from(pair.near).destroy().unwrap()),
        [(2, false), (3, false)]
    );
    assert_eq!(reported(pair.far.destroy().unwrap()), [(11, true), (12, true)]);
    assert_eq!(bed.cq.poll(16, |_| panic!("no poll returns them after")), Ok(0));
}

/// Connections take from a shared receive queue and are not polled to the end.
#[test]
fn buffers_of_a_shared_receive_queue_come_back_whatever_becomes_of_its_queue_pairs() {
    const BUFFERS: u64 = 15;
    let ways: [fn(Bed, Pair) -> Bed; 5] = [
        |mut bed, pair| {
            drop(pair);
            assert_eq!(bed.cq.poll(64, |_| panic!("its queue pair is gone")), Ok(0));
            bed
        },
        |mut bed, pair| {
            assert_eq!(pair.far.destroy().unwrap(), [], "its own queues have none");
            drop(pair.near);
            assert_eq!(bed.cq.poll(64, |_| panic!("its queue pair is gone")), Ok(0));
            bed
        },
        |bed, pair| {
            drop(pair);
            let Bed { context, pd, cq, simulator } = bed;
            drop(cq);
            let cq = context.create_cq(100).build().unwrap();
            Bed { context, pd, cq, simulator }
        },
        |mut bed, mut pair| {
            for qp in [&mut pair.near, &mut pair.far] {
                qp.reset().unwrap();
                qp.purge(&mut bed.cq).unwrap();
            }
            bed
        },
        |mut bed, pair| {
            bed.cq.hand_over().unwrap();
            drop(pair);
            assert_eq!(bed.cq.poll(64, |_| panic!("its queue pair is gone")), Ok(0));
            bed
        },
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let mut bed = Bed::stepped();
        let mut srq = bed.pd.create_srq(BUFFERS as u32).build().unwrap();
        let mut free: Vec<u64> = (0..BUFFERS).collect();
        for round in 0..4 {
            for wr_id in free.drain(..) {
                srq.recv(wr_id, Sge::default()).unwrap();
            }
            let mut pair = bed.pair(Some(&srq));
            // More at a time, and from another index, in each round.
            pair.send(0..3 * round + 2, SendFlags::SIGNALED);
            bed.simulator.run_until_idle();
            bed = way(bed, pair);
            free = srq.take_discarded();
            assert_eq!(free.len() as u64, 3 * round + 2, "way {number}, round {round}");
            assert_eq!(srq.in_flight() as u64, BUFFERS - free.len() as u64, "way {number}");
            assert_eq!(srq.take_discarded(), [], "way {number}");
            free.sort_unstable();
            free.dedup();
            assert_eq!(free.len() as u64, 3 * round + 2, "way {number}: each one once");
        }
        assert_eq!(bed.simulator.violations(), []);
    }
}

/// The pending completions are never polled, so the end of each queue pair returns its receives,
/// once.
#[test]
fn queue_pairs_that_are_destroyed_after_their_completion_queue_was_dropped_return_receives() {
    const BUFFERS: u64 = 15;
    for compressed in [false, true] {
        for before in [false, true] {
            let mut bed = Bed::stepped();
            if compressed {
                bed.cq = bed.context.create_cq(100).compression(MiniFormat::Hash).build().unwrap();
            }
            let mut srq = bed.pd.create_srq(BUFFERS as u32).build().unwrap();
            for wr_id in 0..BUFFERS {
                srq.recv(wr_id, Sge::default()).unwrap();
            }
            let mut pairs = [bed.pair(Some(&srq)), bed.pair(Some(&srq)), bed.pair(Some(&srq))];
            for _ in 0..4 {
                pairs.iter_mut().for_each(|pair| pair.send([1], SendFlags::SIGNALED));
                bed.simulator.run_until_idle();
            }
            // The poll ends in a compressed run, if there is one.
            let mut expected = BTreeSet::new();
            bed.cq
                .poll(3, |wc| {
                    expected.extend((wc.opcode() == CompletionOpcode::Receive).then(|| wc.wr_id()));
                })
                .unwrap();
            let mut returned = expected.clone();
            let mut expect = |srq: &SharedReceiveQueue, pair: u64| {
                expected.extend((0..12).filter(|wr_id| wr_id % 3 == pair));
                for wr_id in srq.take_discarded() {
                    assert!(returned.insert(wr_id), "{wr_id} is returned twice");
                }
                assert_eq!(returned, expected, "{compressed} {before} {pair}");
                assert_eq!(srq.in_flight() as u64, BUFFERS - returned.len() as u64);
            };
            let Bed { cq, simulator, .. } = bed;
            let [first, second, third] = pairs;
            if before {
                drop(first);
                drop(cq);
            } else {
                drop(cq);
                assert_eq!(srq.take_discarded(), []);
                drop(first);
            }
            expect(&srq, 0);
            third.far.destroy().unwrap();
            expect(&srq, 2);
            drop((third.near, second));
            expect(&srq, 1);
            // Requests that are posted in their places stay.
            for wr_id in 0..12 {
                srq.recv(wr_id, Sge::default()).unwrap();
            }
            assert_eq!((srq.in_flight() as u64, srq.take_discarded()), (BUFFERS, vec![]));
            assert_eq!(simulator.violations(), []);
        }
    }
}

/// The entries of receives that are returned are reused while the queue pair is destroyed.
#[test]
fn receives_posted_while_a_queue_pair_without_a_poller_is_destroyed_stay_with_the_device() {
    let bed = Bed::stepped();
    let srq = Arc::new(Mutex::new(bed.pd.create_srq(3).build().unwrap()));
    let fill = |srq: &Mutex<SharedReceiveQueue>| {
        let mut srq = srq.lock().unwrap();
        while srq.recv(1, Sge::default()).is_ok() {}
        srq.in_flight()
    };
    let mut pair = bed.pair(Some(&srq.lock().unwrap()));
    let room = fill(&srq);
    pair.send(0..u64::from(room), SendFlags::SIGNALED);
    bed.simulator.run_until_idle();
    drop(bed.cq);
    let poster = Arc::clone(&srq);
    crate::testing::with_steps(move || _ = fill(&poster), move || drop(pair));
    let mut srq = srq.lock().unwrap();
    assert_eq!((srq.in_flight(), srq.take_discarded().len()), (room, room as usize));
    assert!(srq.recv(1, Sge::default()).is_err());
}

/// A program that polls a queue itself has received the completions that it passed.
#[test]
fn queue_pair_destroyed_after_its_handed_over_queue_was_dropped_returns_what_was_not_passed() {
    let mut bed = Bed::stepped();
    let mut srq = bed.pd.create_srq(7).build().unwrap();
    for wr_id in 0..4 {
        srq.recv(wr_id, Sge::default()).unwrap();
    }
    let mut pair = bed.pair(Some(&srq));
    for _ in 0..4 {
        pair.send([1], SendFlags::empty());
        bed.simulator.run_until_idle();
    }
    let raw = bed.cq.hand_over().unwrap();
    // SAFETY: the consumer index of the doorbell record, which the queue keeps.
    unsafe { raw.record.cast::<[u8; 4]>().write_volatile(3_u32.to_be_bytes()) };
    drop(bed.cq);
    drop(pair);
    assert_eq!(srq.take_discarded(), [3]);
}

/// For a program that never asks for them, as one in C, the list must not grow.
#[test]
fn discarded_requests_are_kept_as_many_as_the_queue_holds() {
    let mut bed = Bed::stepped();
    let mut srq = bed.pd.create_srq(7).build().unwrap();
    for _ in 0..5 {
        for wr_id in 0..7 {
            srq.recv(wr_id, Sge::default()).unwrap();
        }
        let mut pair = bed.pair(Some(&srq));
        pair.send(0..7, SendFlags::SIGNALED);
        bed.simulator.run_until_idle();
        drop(pair);
        assert_eq!((bed.cq.poll(64, |_| ()), srq.in_flight()), (Ok(0), 0));
    }
    assert!((7..=8).contains(&srq.take_discarded().len()));
}

/// A request that is posted while a queue pair is quiesced would be flushed after the list was
/// made.
#[test]
fn posters_wait_while_a_shared_queue_pair_is_quiesced() {
    let mut bed = Bed::new();
    let Pair { mut near, far: _far, .. } = bed.pair(None);
    near.post(|batch| batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"")).unwrap();
    let near = near.into_shared();
    let mut looked = 0;
    let not_done = near
        .quiesce(&mut [&mut bed.cq], |_| {
            looked += 1;
            assert_eq!(near.is_locked(), [true; 3]);
        })
        .unwrap();
    assert_eq!((looked, not_done.len()), (1, 1));
    assert_eq!(near.is_locked(), [false; 3]);
}

/// A queue pair whose completions the device withholds, on two queues on which others complete:
/// while one is polled, the other one gets a completion.
#[test]
fn quiescing_within_a_time_ends_under_the_traffic_of_others() {
    for limit in [Duration::ZERO, Duration::from_millis(20)] {
        let mut bed = Bed::stepped();
        let mut other = bed.context.create_cq(100).build().unwrap();
        let make = |send: &CompletionQueue, receive: &CompletionQueue| {
            let builder = bed.pd.create_qp::<Rc>(send, receive).max_inline_data(8);
            builder.max_recv_wr(4).build().unwrap()
        };
        let port = bed.context.local_port(1, None).unwrap();
        let mut silent = Pair { near: make(&bed.cq, &other), far: make(&bed.cq, &bed.cq), port };
        silent.connect();
        silent.send([7], SendFlags::SIGNALED);
        let mut busy = [bed.pair(None), bed.pair_on(&other)];
        let cqns = [bed.cq.cqn(), other.cqn()];
        let (simulator, mut posted) = (&bed.simulator, [0; 2]);
        let mut complete = |which: usize| {
            busy[which].send([which as u64], SendFlags::SIGNALED);
            let mut engine = simulator.fabric().lock();
            let device = engine.device_mut(0);
            let number = busy[which].near.qp_num();
            let entry = device.completion(number, CqeOpcode::Requester, 0, posted[which]);
            let entry = entry.as_bytes().try_into().unwrap();
            assert!(device.inject_completion(cqns[which], entry, &[]));
            posted[which] += 1;
        };
        complete(0);
        let (mut seen, start) = (0, Instant::now());
        let cqs = &mut [&mut bed.cq, &mut other];
        let error = silent.near.quiesce_within(cqs, limit, |wc| {
            assert!(start.elapsed() < DEADLINE, "it does not end");
            complete(1 - wc.wr_id() as usize);
            seen += 1;
        });
        let error = error.unwrap_err();
        assert_eq!(error.error, QuiesceFault::TimedOut(limit));
        assert!(error.not_done.iter().map(|one| one.wr_id).eq([7]), "{error:?}");
        assert!(seen > 0);
    }
}

/// Guards give `&mut`, so safe code can swap the halves of two queue pairs.
#[test]
fn queue_pair_with_a_half_of_another_one_changes_no_state() {
    let mut bed = Bed::stepped();
    let one = bed.pair(None);
    let other = bed.pair(None);
    let (a, b) = (one.near.into_shared(), other.near.into_shared());
    let mut far = one.far;
    for wr_id in 0..4 {
        far.recv(wr_id, Sge::default()).unwrap();
    }
    let send = |wr_id| {
        a.post(|batch| batch.wr(wr_id, SendFlags::SIGNALED).send().inline_data(b"")).unwrap();
    };
    (10..13).for_each(send);
    let port = &one.port;
    let (options, endpoint) =
        (ConnectOptions::default(), far.endpoint(port, Psn::default(), &ConnectOptions::default()));
    // Both queue pairs have the other's control half, or the other's posting half.
    type Swap = fn(&SharedQueuePair<Rc>, &SharedQueuePair<Rc>);
    let swaps: [Swap; 3] = [
        |a, b| std::mem::swap(&mut *a.lock_control(), &mut *b.lock_control()),
        |a, b| std::mem::swap(&mut *a.lock_send(), &mut *b.lock_send()),
        |a, b| std::mem::swap(&mut *a.lock_receive().unwrap(), &mut *b.lock_receive().unwrap()),
    ];
    for (place, swap) in swaps.iter().enumerate() {
        let refused = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{place}: {error}");
            assert!(error.to_string().contains("swap them back"), "{place}: {error}");
        };
        let fault = |error: QuiesceError| match error.error {
            QuiesceFault::Call(error) => refused(error),
            fault => panic!("{place}: {fault}"),
        };
        // B may leave RESET, A is active.
        b.reset().unwrap();
        swap(&a, &b);
        for qp in [&a, &b] {
            fault(qp.quiesce_within(&mut [&mut bed.cq], Duration::ZERO, |_| ()).unwrap_err());
            let init = qp.init(port, &options);
            match place {
                0 => {
                    refused(init.unwrap_err());
                    refused(qp.purge(&mut bed.cq).unwrap_err());
                    refused(qp.to_error().unwrap_err());
                    refused(qp.reset().unwrap_err());
                    refused(qp.query().unwrap_err());
                    refused(qp.connect(port, Psn::default(), &endpoint, &options).unwrap_err());
                }
                // For a live queue pair, the table of transitions refuses before.
                _ => assert_eq!(init.unwrap_err().kind(), ErrorKind::InvalidArgument, "{place}"),
            }
        }
        if place != 0 {
            refused(b.init(port, &options).unwrap_err());
            refused(b.purge(&mut bed.cq).unwrap_err());
        }
        swap(&a, &b);
    }
    send(13);
    bed.simulator.run_until_idle();
    let mut found = bed.poll(8);
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2, 3, 10, 11, 12, 13]);
    b.init(port, &options).unwrap();
    assert_eq!(bed.simulator.violations(), []);
}

#[test]
fn a_shared_datagram_queue_pair_is_activated() {
    let bed = Bed::new();
    let port = bed.context.local_port(1, None).unwrap();
    let (psn, options) = (Psn::default(), ConnectOptions::default());
    let one = bed.pd.create_qp::<Ud>(&bed.cq, &bed.cq).build().unwrap().into_shared();
    one.activate(&port, psn, &options).unwrap();
    assert_eq!(one.state(), QueueState::ReadyToSend);
    one.reset().unwrap();
    one.init(&port, &options).unwrap();
    one.activate(&port, psn, &options).unwrap();
    assert_eq!(one.query().unwrap().qp_state, QueueState::ReadyToSend);
}

#[test]
fn quiescing_reports_unexecuted_requests_and_passes_every_completion_on() {
    let mut bed = Bed::new();
    let (mut pair, mut other) = (bed.pair(None), bed.pair(None));
    pair.receive(100..110);
    other.receive(50..52);
    other.send(60..62, SendFlags::SIGNALED);
    pair.send([1, 2], SendFlags::empty());
    pair.send([3], SendFlags::SIGNALED);
    bed.wait_for(2 + 2 + 3 + 1);
    let mut seen = Vec::new();
    let not_done = pair.far.quiesce(&mut [&mut bed.cq], |wc| seen.push(wc.wr_id())).unwrap();
    seen.sort_unstable();
    assert_eq!(seen, [3, 50, 51, 60, 61, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109]);
    assert!(not_done.iter().map(|one| one.wr_id).eq(103..110), "{not_done:?}");
    for one in &not_done {
        assert!(one.receive && matches!(one.why, WhyNotDone::Failed(error) if error.is_flushed()));
    }
    assert_eq!(pair.far.state(), QueueState::Error);
    assert_eq!(pair.far.quiesce(&mut [&mut bed.cq], |_| panic!("nothing is left")).unwrap(), []);
    // The request that the peer cannot receive fails, and those after it are flushed, signaled or
    // not.
    pair.send([4], SendFlags::SIGNALED);
    pair.send([5, 6], SendFlags::empty());
    let not_done = pair.near.quiesce(&mut [&mut bed.cq], |_| {}).unwrap();
    assert!(not_done.iter().map(|one| one.wr_id).eq(4..7), "{not_done:?}");
    for one in &not_done {
        assert!(!one.receive && matches!(one.why, WhyNotDone::Failed(_)), "{not_done:?}");
    }
}

#[test]
fn a_cancelled_request_was_cancelled_also_where_it_is_flushed() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    let number = pair.near.qp_num();
    bed.simulator.drain_qp(0, number, DrainAt::After(0)).unwrap();
    pair.send(1..4, SendFlags::SIGNALED);
    let deadline = Instant::now() + DEADLINE;
    let drained = loop {
        match pair.near.drained() {
            Ok(drained) => break drained,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::yield_now();
    };
    assert_eq!(pair.near.cancel(&drained, 2).unwrap().count(), 1);
    let not_done = pair.near.quiesce(&mut [&mut bed.cq], |_| {}).unwrap();
    let whys: Vec<_> = not_done.iter().map(|one| (one.wr_id, one.why)).collect();
    let is_flushed =
        |why| matches!(why, WhyNotDone::Failed(error) if CompletionError::is_flushed(error));
    let [(1, first), (2, WhyNotDone::Cancelled), (3, last)] = whys[..] else {
        panic!("{not_done:?}");
    };
    assert!(is_flushed(first) && is_flushed(last), "{not_done:?}");
}

#[test]
fn queue_pairs_of_any_transport_and_shared_ones_are_quiesced_and_purged_alike() {
    let mut bed = Bed::new();
    let flushed = |not_done: &[NotDone]| not_done.iter().map(|one| one.wr_id).collect::<Vec<_>>();
    let mut pair = bed.pair(None);
    pair.receive(1..4);
    pair.send([9], SendFlags::SIGNALED);
    bed.wait_for(2);
    let (mut any, near) = (AnyQueuePair::from(pair.far), pair.near.into_shared());
    let not_done = any.quiesce(&mut [&mut bed.cq], |_| {}).unwrap();
    assert_eq!(flushed(&not_done), [2, 3]);
    near.post_recv(&[ReceiveWr { wr_id: 5, sges: &[] }]).unwrap();
    assert_eq!(flushed(&near.quiesce(&mut [&mut bed.cq], |_| {}).unwrap()), [5]);

    let mut pair = bed.pair(None);
    pair.receive(1..4);
    pair.send([7, 8, 9], SendFlags::SIGNALED);
    bed.wait_for(6);
    pair.near.post_recv(&[ReceiveWr { wr_id: 4, sges: &[] }]).unwrap();
    let (mut any, near) = (AnyQueuePair::from(pair.far), pair.near.into_shared());
    near.to_error().unwrap();
    assert_eq!(near.state(), QueueState::Error);
    bed.wait_for(7);
    any.to_error().unwrap();
    assert_eq!(any.state(), QueueState::Error);
    any.reset().unwrap();
    near.reset().unwrap();
    assert_eq!(any.purge(&mut bed.cq).unwrap(), 3);
    assert_eq!(near.purge(&mut bed.cq).unwrap(), 4);
    // The requests are forgotten, as with an owned queue pair.
    assert_eq!(near.quiesce(&mut [&mut bed.cq], |_| {}).unwrap(), []);
}

/// Runs `work`, which must end.
fn ends(work: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let worker = thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    assert_ne!(is_done.recv_timeout(DEADLINE), Err(RecvTimeoutError::Timeout), "it does not end");
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Fails unless quiescing has ended because the device withholds the completions of receives.
#[track_caller]
fn assert_withheld(quiesced: Result<Vec<NotDone>, QuiesceError>, wr_ids: &[u64]) {
    let failed = quiesced.unwrap_err();
    assert_eq!(failed.error, QuiesceFault::TimedOut(Duration::ZERO));
    let unknown = |wr_id: &u64| NotDone { wr_id: *wr_id, receive: true, why: WhyNotDone::Unknown };
    assert!(failed.not_done.iter().copied().eq(wr_ids.iter().map(unknown)), "{failed:?}");
    let text = failed.to_string();
    assert!(text.contains("within 0ns: quiesce again to wait longer, or reset"), "{text}");
}

#[test]
fn a_device_that_withholds_completions_is_waited_for_no_longer_than_the_limit() {
    ends(|| {
        let mut bed = Bed::new();
        let mut pair = bed.pair(None);
        pair.receive(1..4);
        pair.near.post_recv(&[ReceiveWr { wr_id: 9, sges: &[] }]).unwrap();
        bed.simulator.inject(0, Fault::Stall);
        let limit = Duration::ZERO;
        for _ in 0..2 {
            let quiesced = pair.far.quiesce_within(&mut [&mut bed.cq], limit, |_| {});
            assert_withheld(quiesced, &[1, 2, 3]);
            assert_eq!(pair.far.state(), QueueState::Error);
        }
        let (mut any, near) = (AnyQueuePair::from(pair.far), pair.near.into_shared());
        let cqs = &mut [&mut bed.cq];
        assert_withheld(any.quiesce_within(cqs, limit, |_| {}), &[1, 2, 3]);
        assert_withheld(near.quiesce_within(cqs, limit, |_| {}), &[9]);
        // A device that is reset no longer owes them.
        near.reset().unwrap();
        let forgotten = near.quiesce_within(cqs, limit, |_| {}).unwrap();
        assert_eq!(forgotten, [NotDone { wr_id: 9, receive: true, why: WhyNotDone::Unknown }]);

        // The next call waits for the completions that it owes.
        bed.simulator.inject(0, Fault::Resume);
        let not_done = any.quiesce_within(cqs, DEADLINE, |_| {}).unwrap();
        assert!(not_done.iter().map(|one| one.wr_id).eq(1..4), "{not_done:?}");
        for one in not_done {
            assert!(matches!(one.why, WhyNotDone::Failed(error) if error.is_flushed()));
        }
    });
}

#[test]
fn the_limit_holds_while_completions_of_others_never_end() {
    ends(|| {
        let simulator = Simulator::new(SimConfig::new().step(true).exact_doorbells(true));
        let context = open(&simulator);
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(100).build().unwrap());
        let mut bed = Bed { simulator, context, pd, cq };
        let (mut pair, mut other) = (bed.pair(None), bed.pair(None));
        // It waits for a receive of the peer when the device forgets it.
        pair.send([1], SendFlags::SIGNALED);
        bed.simulator.run_until_idle();
        let forget =
            |qpn| bed.simulator.fabric().lock().device_mut(0).set_qp_state(qpn, QpState::Reset);
        forget(pair.near.qp_num()).unwrap();
        // Each completion causes another, so polling always finds one.
        let mut go_on = || {
            other.near.post(|batch| batch.wr(2, SendFlags::SIGNALED).nop()).unwrap();
            bed.simulator.run_until_idle();
        };
        go_on();
        let limit = Duration::from_millis(1);
        let failed = pair.near.quiesce_within(&mut [&mut bed.cq], limit, |_| go_on()).unwrap_err();
        assert_eq!(failed.error, QuiesceFault::TimedOut(limit));
        let unknown = NotDone { wr_id: 1, receive: false, why: WhyNotDone::Unknown };
        assert_eq!(failed.not_done, [unknown]);
    });
}

#[test]
fn quiescing_after_a_reset_reports_the_discarded_requests() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    pair.receive([1]);
    pair.send([1], SendFlags::SIGNALED);
    bed.wait_for(2);
    pair.receive(2..5);
    pair.far.reset().unwrap();
    let mut seen = Vec::new();
    let not_done = pair.far.quiesce(&mut [&mut bed.cq], |wc| seen.push(wc.wr_id())).unwrap();
    assert_eq!(seen, [1, 1]);
    let unknown = |wr_id| NotDone { wr_id, receive: true, why: WhyNotDone::Unknown };
    assert_eq!(not_done, [2, 3, 4].map(unknown));
}

/// Resets by a call that is carried out and then fails.
fn reset_late(bed: &Bed, reset: impl FnOnce() -> Result<(), Error>) {
    bed.simulator.fail_call_late(1, Errno::EFAULT);
    reset().unwrap_err();
}

#[test]
fn a_reset_that_was_done_and_failed_afterwards_is_found_by_quiescing() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    pair.receive(10..12);
    reset_late(&bed, || pair.far.reset());
    assert_eq!(pair.far.state(), QueueState::ReadyToSend);
    let not_done = pair.far.quiesce(&mut [&mut bed.cq], |_| {}).unwrap();
    let reported: Vec<_> = not_done.iter().map(|one| (one.wr_id, one.why)).collect();
    assert_eq!(reported, [(10, WhyNotDone::Unknown), (11, WhyNotDone::Unknown)]);
    assert_eq!(pair.far.state(), QueueState::Reset);
    // It works again, with all of its room.
    pair.near.reset().unwrap();
    pair.connect();
    pair.receive(20..36);
    pair.send(0..1, SendFlags::SIGNALED);
    assert_eq!(bed.poll(2).len(), 2);

    // So does a shared one.
    let far = bed.pair(None).far.into_shared();
    reset_late(&bed, || far.reset());
    assert_eq!(far.quiesce(&mut [&mut bed.cq], |_| {}).unwrap(), []);
    assert_eq!(far.state(), QueueState::Reset);

    // A queue pair in use that cannot be moved to the error state is not taken for reset.
    let mut near = bed.pair(None).near;
    bed.simulator.fail_call(1, Errno::ENOMEM);
    near.quiesce(&mut [&mut bed.cq], |_| {}).unwrap_err();
    assert_eq!(near.state(), QueueState::ReadyToSend);
}

/// Requests are forgotten only in RESET, and only when their completions are gone.
#[test]
fn requests_before_a_reset_are_forgotten_once_no_completion_is_left() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    pair.receive([1]);
    pair.send([1], SendFlags::SIGNALED);
    bed.wait_for(2);
    pair.receive(2..5);
    let free = pair.far.free_receives();
    pair.far.forget().unwrap();
    assert_eq!(pair.far.free_receives(), free, "they are posted");
    pair.far.reset().unwrap();
    assert_eq!(pair.far.forget().unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(pair.far.free_receives(), free);
    assert_eq!(bed.poll(2), [1, 1]);
    pair.far.forget().unwrap();
    assert_eq!(pair.far.free_receives(), pair.far.caps().max_recv_wr);
    assert_eq!(pair.far.quiesce(&mut [&mut bed.cq], |_| panic!("none is left")).unwrap(), []);
    pair.near.reset().unwrap();
    pair.near.forget().unwrap();
    pair.connect();
    pair.receive([6]);
    pair.send([7], SendFlags::SIGNALED);
    bed.wait_for(2);
    pair.far.forget().unwrap();
    pair.near.forget().unwrap();
    let mut polled = bed.poll(2);
    polled.sort_unstable();
    assert_eq!(polled, [6, 7]);
}

#[test]
fn a_queue_pair_in_reset_may_be_reset_again_while_its_completions_wait() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    pair.receive([1]);
    pair.send([1], SendFlags::SIGNALED);
    bed.wait_for(2);
    let free = pair.near.free_send_blocks();
    for _ in 0..2 {
        pair.near.reset().unwrap();
        assert_eq!(pair.near.free_send_blocks(), free, "its request is not forgotten yet");
    }
    assert_eq!(bed.poll(2), [1, 1]);
    pair.near.forget().unwrap();
    assert_eq!(pair.near.state(), QueueState::Reset);
}

#[test]
fn purging_one_of_two_queues_leaves_the_other_unchanged() {
    let mut bed = Bed::new();
    let mut receives = bed.context.create_cq(16).build().unwrap();
    let mut pair = bed.pair(None);
    pair.far = bed.pd.create_qp::<Rc>(&bed.cq, &receives).max_inline_data(8).build().unwrap();
    pair.near.reset().unwrap();
    pair.connect();
    for one in [&mut receives, &mut bed.cq] {
        let refused = pair.far.quiesce(&mut [one], |_| {}).unwrap_err();
        assert!(matches!(refused.error, QuiesceFault::Call(_)), "one of two is missing: {refused}");
        assert_eq!(pair.far.state(), QueueState::ReadyToSend);
    }
    pair.receive([1]);
    pair.send([2], SendFlags::SIGNALED);
    bed.wait_for(1);
    let batch = |batch: &mut Batch<'_, Rc>| {
        batch.wr(3, SendFlags::SIGNALED).rdma_write(RemoteAddress::default()).inline_data(b"");
    };
    pair.far.post(batch).unwrap();
    bed.wait_for(2);
    pair.far.reset().unwrap();
    // The receive in the other queue stays known until that one is purged, too.
    assert_eq!(pair.far.purge(&mut bed.cq).unwrap(), 1);
    assert_eq!(pair.far.free_receives(), pair.far.caps().max_recv_wr - 1);
    assert_eq!(pair.far.purge(&mut receives).unwrap(), 1);
    assert_eq!(pair.far.free_receives(), pair.far.caps().max_recv_wr);
}

#[test]
fn quiescing_ends_where_the_completion_queue_fails() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    let patch = vec![(63, 7 << 4)];
    bed.simulator.inject(0, Fault::CorruptCqe { cqn: Some(bed.cq.cqn()), patch });
    pair.receive([1, 2]);
    let failed = pair.far.quiesce(&mut [&mut bed.cq], |_| {}).unwrap_err();
    assert!(matches!(failed.error, QuiesceFault::Poll(PollError::Corrupt(_))), "{failed}");
    let unknown = |wr_id| NotDone { wr_id, receive: true, why: WhyNotDone::Unknown };
    assert_eq!(failed.not_done, [1, 2].map(unknown));
    assert_eq!(pair.far.state(), QueueState::Error);
}

#[test]
fn queue_pair_set_to_error_flushes_posted_requests() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    pair.receive([1]);
    pair.far.to_error().unwrap();
    assert_eq!(pair.far.state(), QueueState::Error);
    bed.wait_for(1);
    bed.cq.poll(1, |wc| assert!(wc.status().unwrap_err().is_flushed())).unwrap();
    let fresh = bed.pd.create_qp::<Rc>(&bed.cq, &bed.cq).build();
    let refused = fresh.unwrap().to_error().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "nothing is posted in RESET");
}

#[test]
fn a_shared_queue_pair_posts_lists_as_an_owned_one() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    pair.receive([1]);
    let near = pair.near.into_shared();
    near.post_send(&[SendWr { wr_id: 2, operation: Operation::Send, ..SendWr::default() }])
        .unwrap();
    bed.wait_for(1);
    assert_eq!(bed.poll(1), [1]);
    let sender = bed.pd.create_qp::<Rc>(&bed.cq, &bed.cq).max_recv_wr(0).build().unwrap();
    let sender = sender.into_shared();
    sender.post_recv(&[]).unwrap();
    let refused = sender.post_recv(&[ReceiveWr { wr_id: 3, sges: &[] }]);
    assert_eq!(refused, Err(ListError::new(0, PostError::Unsupported)));
    assert_eq!(sender.recv(3, Sge::default()), Err(PostError::Unsupported));
}

#[test]
fn a_queue_is_missing_or_the_device_is_gone() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    pair.receive([1, 2]);
    let refused = pair.far.quiesce(&mut [], |_| {}).unwrap_err();
    assert!(matches!(refused.error, QuiesceFault::Call(_)), "{refused}");
    assert_eq!(pair.far.state(), QueueState::ReadyToSend, "nothing was done");
    bed.simulator.remove_device(0);
    let failed = pair.far.quiesce(&mut [&mut bed.cq], |_| {}).unwrap_err();
    let unknown = |wr_id| NotDone { wr_id, receive: true, why: WhyNotDone::Unknown };
    assert_eq!(failed.not_done, [1, 2].map(unknown));
    assert!(std::error::Error::source(&failed).is_some());
    assert!(failed.to_string().ends_with("; 2 requests are not done or unknown"), "{failed}");
}

#[test]
fn data_is_promised_in_order_only_in_rts_by_a_device_that_says_so_to_an_x86() {
    let x86 = cfg!(any(target_arch = "x86", target_arch = "x86_64"));
    for (config, says_so) in [
        (SimConfig::new(), true),
        (SimConfig::new().devx(false), false),
        (SimConfig::new().model(mlx5_sim::Model::ConnectX6), false),
    ] {
        let simulator = Simulator::new(config);
        let context = open(&simulator);
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(16).build().unwrap();
        let (port, options) = (context.local_port(1, None).unwrap(), ConnectOptions::default());
        let mut qp = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
        assert_eq!(qp.data_in_order(), Ok(false), "in RESET");
        qp.init(&port, &options).unwrap();
        assert_eq!(qp.data_in_order(), Ok(false), "in INIT");
        let own = qp.endpoint(&port, Psn::default(), &options);
        qp.connect(&port, Psn::default(), &own, &options).unwrap();
        let (_, _, mut control) = qp.split();
        assert_eq!(control.data_in_order(), Ok(x86 && says_so));
        assert_eq!(control.device_data_in_order(), Ok(says_so));
        control.modify(&QpAttributes::new().qp_state(QueueState::Error)).unwrap();
        assert_eq!(control.device_data_in_order(), Ok(false), "in ERR");
        simulator.remove_device(0);
        let gone = control.device_data_in_order().map_err(|error| error.kind());
        assert!(matches!(gone, Ok(false) | Err(ErrorKind::DeviceGone)), "{gone:?}");
    }
}

/// The answer counts only on a device that has the capability, and is then that of the queue pair.
#[test]
fn data_order_is_what_the_queue_pair_says_on_a_device_with_the_capability() {
    for model in [mlx5_sim::Model::ConnectX6, mlx5_sim::Model::ConnectX7] {
        for says in [false, true] {
            let simulator = Simulator::new(SimConfig::new().model(model));
            let kernel = Altered::new(simulator.kernel(), move |call| {
                call.pass()?;
                let query = (CommandOpcode::QUERY_QP.0 as u16).to_be_bytes();
                if call.method == method::DEVX_OBJ_QUERY
                    && call.input(attr::devx_obj_query::CMD_IN)[..2] == query
                {
                    let answer = call.output(attr::devx_obj_query::CMD_OUT);
                    let answer = QueryQpOut::mut_from_bytes(answer).expect("an answer");
                    answer.qpc_mut().set_data_in_order(says);
                }
                Ok(())
            });
            let context = devices_on(kernel as Arc<dyn Kernel>).unwrap().remove(0).open().unwrap();
            let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16).build().unwrap());
            let make = || pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
            let port = context.local_port(1, None).unwrap();
            let mut pair = Pair { near: make(), far: make(), port };
            pair.connect();
            let (_, _, control) = pair.near.split();
            let expected = says && model == mlx5_sim::Model::ConnectX7;
            assert_eq!(control.device_data_in_order(), Ok(expected), "{model:?} {says}");
        }
    }
}
