//! The destruction of objects: in every order, with work outstanding, and when the kernel refuses.

use crate::pair::connect_ends;
use crate::prelude::*;
use mlx5::{ConnectOptions, Data, Errno, ErrorKind};
use mlx5_sim::Simulator;
use std::any::Any;

pub(crate) const CASES: &[Case] = cases![
    objects_go_in_whatever_order_they_are_dropped: SIMULATOR,
    objects_with_work_under_way_go_in_whatever_order_they_are_dropped: SIMULATOR,
    every_object_can_be_the_first_or_the_last_to_go: SIMULATOR,
    a_queue_pair_goes_in_the_middle_of_its_work: SIMULATOR,
    memory_goes_in_the_middle_of_its_use: SIMULATOR,
    a_queue_pair_that_cannot_be_destroyed_comes_back_as_it_was: SIMULATOR,
    a_completion_queue_that_cannot_be_destroyed_comes_back_as_it_was: SIMULATOR,
    a_shared_queue_that_cannot_be_destroyed_comes_back_as_it_was: SIMULATOR,
    object_that_cannot_be_destroyed_keeps_its_memory_and_is_counted: SIMULATOR,
    a_failed_creation_leaves_nothing: SIMULATOR,
    a_thousand_queue_pairs_come_and_go,
];

/// One object of each kind, each in a box of its own.
fn one_of_everything(bed: &Bed, busy: bool) -> Result<Vec<Box<dyn Any>>, Failed> {
    let options = PairOptions::default().memory(4096);
    let context = bed.context();
    let mut datagram = bed.end_in::<Ud>(&context, &options)?;
    let own = datagram.endpoint(&options);
    Ud::wire(&mut datagram, &own, &options)?;
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let send_cq = context.create_cq(64).channel(&channel).build()?;
    let recv_cq = context.create_cq(64).comp_vector(1).build()?;
    let mut srq = pd.create_srq(16).build()?;
    let mr = pd.memory(4096).access(options.access).register()?;
    let mut one = pd.create_qp::<Rc>(&send_cq, &recv_cq).srq(&srq).max_inline_data(64).build()?;
    let mut other = pd.create_qp::<Rc>(&send_cq, &send_cq).max_inline_data(64).build()?;
    let (port, psn, connect) = (datagram.port, datagram.psn, ConnectOptions::default());
    let at = (one.endpoint(&port, psn, &connect), other.endpoint(&port, psn, &connect));
    one.connect(&port, psn, &at.1, &connect)?;
    other.connect(&port, psn, &at.0, &connect)?;
    let events = context.async_events();
    if busy {
        // Posted receives, an armed queue, outstanding writes whose completions are never polled,
        // and a message without a receive.
        srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[mr.sge(0..64)?] }])?;
        send_cq.arm(false)?;
        let to = mr.remote(1024..)?;
        let mut batch = one.wr_start();
        for wr_id in 0..8 {
            batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(to).sge(mr.sge(0..512)?);
        }
        batch.wr(8, SendFlags::SIGNALED).send().inline_data(b"no receiver now");
        batch.complete()?;
        let mut batch = other.wr_start();
        batch.wr(9, SendFlags::SIGNALED).send().inline_data(b"receiver is");
        batch.complete()?;
    }
    let End {
        qp, send_cq: cq, recv_cq: more, mr: memory, peer, pd: domain, context: again, ..
    } = datagram;
    Ok(vec![
        Box::new(qp),
        Box::new(cq),
        Box::new(more),
        Box::new(memory),
        Box::new(peer.map(|peer| peer.ah)),
        Box::new(domain),
        Box::new(again),
        Box::new(context),
        Box::new(pd),
        Box::new(channel),
        Box::new(send_cq),
        Box::new(recv_cq),
        Box::new(srq),
        Box::new(mr),
        Box::new(one),
        Box::new(other),
        Box::new(events),
    ])
}

/// Checks that the device has no objects left, and saw no violation.
#[track_caller]
fn all_gone(simulator: &Simulator, after: &dyn std::fmt::Debug) {
    assert_eq!(simulator.object_counts(0), Default::default(), "after {after:?}");
    assert_eq!(simulator.violations(), [], "after {after:?}");
}

/// The numbers below `count`, shuffled by `seed`.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let choices = pattern(seed, count * 8);
    for (at, choice) in choices.as_chunks::<8>().0.iter().enumerate() {
        order.swap(at, at + (u64::from_ne_bytes(*choice) % (count - at) as u64) as usize);
    }
    order
}

fn drop_in(order: &[usize], objects: Vec<Box<dyn Any>>) {
    let mut objects: Vec<_> = objects.into_iter().map(Some).collect();
    for &at in order {
        drop(objects[at].take());
    }
}

fn in_many_orders(bed: &Bed, busy: bool, seeds: std::ops::Range<u64>) -> Outcome {
    for seed in seeds {
        let objects = one_of_everything(bed, busy)?;
        let order = shuffled(objects.len(), seed);
        drop_in(&order, objects);
        all_gone(bed.simulator(), &(seed, order));
    }
    Ok(())
}

fn objects_go_in_whatever_order_they_are_dropped(bed: &Bed) -> Outcome {
    in_many_orders(bed, false, 0..200)
}

fn objects_with_work_under_way_go_in_whatever_order_they_are_dropped(bed: &Bed) -> Outcome {
    in_many_orders(bed, true, 1000..1200)
}

fn every_object_can_be_the_first_or_the_last_to_go(bed: &Bed) -> Outcome {
    let count = one_of_everything(bed, false)?.len();
    for odd in 0..count {
        for first in [true, false] {
            let mut order: Vec<usize> = (0..count).filter(|at| *at != odd).collect();
            order.insert(if first { 0 } else { count - 1 }, odd);
            drop_in(&order, one_of_everything(bed, true)?);
            all_gone(bed.simulator(), &order);
        }
    }
    Ok(())
}

fn a_queue_pair_goes_in_the_middle_of_its_work(bed: &Bed) -> Outcome {
    for round in 0..30 {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        let (from, to) = (pair.a.mr.sge(0..32_768)?, pair.b.mr.remote(32_768..)?);
        for wr_id in 0..16 {
            let post = Post::new(Op::Write, wr_id, Data::Sges(std::slice::from_ref(&from)));
            pair.a.post(Form::Typed, post.remote(to))?;
        }
        let Pair { a, b } = pair;
        if round % 2 == 0 {
            a.qp.destroy()?;
        } else {
            b.qp.destroy()?;
        }
    }
    all_gone(bed.simulator(), &"thirty rounds");
    Ok(())
}

fn memory_goes_in_the_middle_of_its_use(bed: &Bed) -> Outcome {
    for _ in 0..10 {
        let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
        let mr = pair.a.pd.allocate(65_536)?;
        let (from, to) = (mr.sge(0..32_768)?, pair.b.mr.remote(32_768..)?);
        for wr_id in 0..16 {
            let post = Post::new(Op::Write, wr_id, Data::Sges(std::slice::from_ref(&from)));
            pair.a.post(Form::Typed, post.remote(to))?;
        }
        // The remaining writes fail, and the device reads nothing of the freed memory.
        mr.deregister()?;
        let found = bed.poll(&mut pair.a.send_cq, 16);
        let good = found.iter().take_while(|one| one.as_completion().is_success()).count();
        if let Some(first) = found.get(good) {
            let error = first.as_completion().status().expect_err("the first bad one");
            assert_eq!(error.kind, CompletionErrorKind::Known(Syndrome::LocalProtection));
        }
        for one in found.iter().skip(good + 1) {
            assert!(one.as_completion().status().expect_err("after it").is_flushed());
        }
    }
    Ok(())
}

/// Makes the next call to the kernel fail as if something used the object.
fn refuse_next(bed: &Bed) {
    bed.simulator().fail_call(1, Errno::EBUSY);
}

fn a_queue_pair_that_cannot_be_destroyed_comes_back_as_it_was(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    refuse_next(bed);
    let (qp, error) = pair.a.qp.destroy().err().ok_or("the kernel refuses")?.into_parts();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Busy, Some(Errno::EBUSY)));
    assert_eq!((qp.state(), qp.query()?.qp_state), (QueueState::ReadyToSend, qp.state()));
    pair.a.qp = qp;
    let to = pair.b.mr.remote(..)?;
    pair.a.post(Form::Typed, Post::new(Op::Write, 1, Data::Inline(&[b"alive"])).remote(to))?;
    bed.poll_good(&mut pair.a.send_cq, 1);
    crate::pattern::expect_bytes(&pair.b.mr, 0, b"alive");
    pair.a.qp.destroy()?;
    assert_eq!(pair.a.context.leaked(), 0);
    Ok(())
}

fn a_completion_queue_that_cannot_be_destroyed_comes_back_as_it_was(bed: &Bed) -> Outcome {
    let options = PairOptions::default();
    let (mut a, mut b) = (bed.end::<Rc>(&options)?, bed.end::<Rc>(&options)?);
    let spare = a.context.create_cq(16).build()?;
    refuse_next(bed);
    let (spare, error) = spare.destroy().err().ok_or("the kernel refuses")?.into_parts();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Busy, Some(Errno::EBUSY)));
    a.qp = a.pd.create_qp::<Rc>(&spare, &spare).max_inline_data(8).build()?;
    a.send_cq = spare;
    connect_ends(&mut a, &mut b, &options)?;
    let to = b.mr.remote(..)?;
    a.post(Form::Typed, Post::new(Op::Write, 1, Data::Inline(&[b"alive"])).remote(to))?;
    bed.poll_good(&mut a.send_cq, 1);
    a.qp.destroy()?;
    a.send_cq.destroy()?;
    assert_eq!(a.context.leaked(), 0);
    Ok(())
}

fn a_shared_queue_that_cannot_be_destroyed_comes_back_as_it_was(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let srq = pd.create_srq(16).build()?;
    refuse_next(bed);
    let (mut srq, error) = srq.destroy().err().ok_or("the kernel refuses")?.into_parts();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Busy, Some(Errno::EBUSY)));
    srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[] }])?;
    assert_eq!(srq.query()?.max_wr, srq.capacity());
    srq.destroy()?;
    assert_eq!(pd.context().leaked(), 0);
    Ok(())
}

fn object_that_cannot_be_destroyed_keeps_its_memory_and_is_counted(bed: &Bed) -> Outcome {
    // A refusal also keeps the objects that the refused one uses, because the kernel would not
    // destroy these either.
    let context = bed.context();
    let mut end = bed.end_in::<Rc>(&context, &PairOptions::default())?;
    end.qp.init(&end.port, &ConnectOptions::default())?;
    end.recv(1, 0..64);
    refuse_next(bed);
    drop(end.qp);
    assert_eq!(context.leaked(), 1, "the rings of the queue pair");
    drop(end.send_cq);
    drop(end.recv_cq);
    assert_eq!(context.leaked(), 3, "and both completion queues, which it uses");
    let srq = end.pd.create_srq(4).build()?;
    refuse_next(bed);
    drop(srq);
    assert_eq!(context.leaked(), 4);
    refuse_next(bed);
    drop(end.mr);
    assert_eq!(context.leaked(), 5);
    let counts = bed.simulator().object_counts(0);
    assert_eq!((counts.qps, counts.cqs, counts.srqs, counts.mkeys), (1, 2, 1, 1));
    // Other objects are unaffected.
    drop(bed.pair::<Rc>(&PairOptions::default().one_context(true))?);
    drop((end.pd, end.context, context));
    all_gone(bed.simulator(), &"the context closed");
    Ok(())
}

fn a_failed_creation_leaves_nothing(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(16).build()?;
    let before = bed.simulator().object_counts(0);
    type Made = Result<Box<dyn Any>, mlx5::Error>;
    type Make = fn(&Context, &mlx5::ProtectionDomain, &CompletionQueue) -> Made;
    let makers: [Make; 5] = [
        |context, _, _| Ok(Box::new(context.alloc_pd()?)),
        |context, _, _| Ok(Box::new(context.create_cq(16).build()?)),
        |_, pd, _| Ok(Box::new(pd.allocate(4096)?)),
        |_, pd, _| Ok(Box::new(pd.create_srq(16).build()?)),
        |_, pd, cq| Ok(Box::new(pd.create_qp::<Rc>(cq, cq).build()?)),
    ];
    for make in makers {
        let mut failed = 0;
        // Fails the first call twice: if it asks for a doorbell page and gets none, the next
        // creation does not ask.
        for call in std::iter::once(1).chain(1..) {
            let calls = bed.simulator().calls();
            bed.simulator().fail_call(call, Errno::ENOMEM);
            let made = make(&context, &pd, &cq);
            let reached = bed.simulator().calls() - calls >= call;
            bed.simulator().fail_no_call();
            match made {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                    failed += 1;
                }
                // The creation succeeds without a doorbell page of its own.
                Ok(object) => drop(object),
            }
            let counts = bed.simulator().object_counts(0);
            // Doorbell pages stay for the next queue.
            let expected = mlx5_sim::firmware::Counts { uars: counts.uars, ..before };
            assert_eq!(counts, expected, "call {call}");
            if !reached {
                break;
            }
        }
        assert!(failed > 0);
    }
    assert_eq!(context.leaked(), 0);
    Ok(())
}

fn a_thousand_queue_pairs_come_and_go(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(4096).build()?;
    let mut queues = Vec::new();
    for _ in 0..1000 {
        queues.push(pd.create_qp::<Rc>(&cq, &cq).max_send_wr(4).max_recv_wr(4).build()?);
    }
    let mut numbers: Vec<u32> = queues.iter().map(QueuePair::qp_num).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 1000);
    for at in shuffled(1000, 5).into_iter().take(500) {
        let last = queues.len() - 1;
        queues.swap_remove(at.min(last)).destroy()?;
    }
    for _ in 0..500 {
        queues.push(pd.create_qp::<Rc>(&cq, &cq).max_send_wr(4).max_recv_wr(4).build()?);
    }
    Ok(())
}
