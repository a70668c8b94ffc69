//! Extended connections, and the resources that a queue pair can get: operations, registers,
//! memory.

use crate::prelude::*;
use mlx5::transport::XrcSend;
use mlx5::{
    ConnectOptions, DoorbellMode, ErrorKind, Psn, QpNumber, QueueAllocator, SendOps, XrcDomain,
    XrcOpen, XrcTarget,
};
use std::alloc::{Layout, alloc, dealloc};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

pub(crate) const CASES: &[Case] = cases![
    an_extended_connection_reaches_the_queue_it_names: SIMULATOR,
    an_extended_connection_carries_every_operation: SIMULATOR,
    domain_is_shared_by_every_process_with_the_file_open: SIMULATOR,
    a_target_that_two_have_is_one_queue_pair_until_both_have_destroyed_it: SIMULATOR,
    receives_of_a_queue_that_is_gone_are_passed_over: SIMULATOR,
    a_domain_stays_as_long_as_something_is_in_it: SIMULATOR,
    operations_that_are_asked_for_and_not_there_have_names,
    the_queues_of_a_thread_domain_share_its_register: BLUEFLAME,
    queues_live_in_memory_that_an_allocator_gives: SIMULATOR,
    an_allocator_that_gives_nothing_makes_no_queue,
];

/// A sender, and a target with two shared receive queues.
struct Rig {
    a: End<XrcSend>,
    target: XrcTarget,
    domain: XrcDomain,
    pd: mlx5::ProtectionDomain,
    mr: MemoryRegion,
    queues: Vec<(mlx5::SharedReceiveQueue, CompletionQueue)>,
}

fn rig(bed: &Bed) -> Result<Rig, Failed> {
    let options = PairOptions::default();
    let connect = ConnectOptions::default();
    let context = bed.context();
    let domain = context.open_xrcd()?;
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::REMOTE_READ
        | Access::REMOTE_ATOMIC;
    let mr = pd.memory(8192).access(access).register()?;
    let mut queues = Vec::new();
    for _ in 0..2 {
        let cq = context.create_cq(64).build()?;
        let srq = pd.create_srq(16).xrc(&domain, &cq).build()?;
        queues.push((srq, cq));
    }
    let sender = bed.context();
    let mut a = sending_end(bed, &sender, &options)?;
    let mut target = domain.create_target()?;
    let port = context.local_port(bed.port(), None)?;
    let (at_a, psn) = (a.endpoint(&options), Psn::wrapping(0xff_fff0));
    let at_b = target.endpoint(&port, psn, &connect);
    target.connect(&port, psn, &at_a, &connect)?;
    a.qp.connect(&a.port, a.psn, &at_b, &connect)?;
    Ok(Rig { a, target, domain, pd, mr, queues })
}

/// The sending end of a connection, in RESET.
pub(super) fn sending_end(
    bed: &Bed,
    context: &Context,
    options: &PairOptions,
) -> Result<End<XrcSend>, Failed> {
    let pd = context.alloc_pd()?;
    let mr = pd.allocate(options.memory)?;
    let send_cq = context.create_cq(options.cq_entries).build()?;
    let qp = pd
        .create_qp::<XrcSend>(&send_cq, &send_cq)
        .max_send_wr(options.send_wr)
        .max_send_sge(options.send_sge)
        .max_inline_data(options.inline)
        .build()?;
    assert_eq!(qp.caps().max_recv_wr, 0);
    let port = context.local_port(bed.port(), None)?;
    let (psn, context) = (Psn::wrapping(qp.qp_num()), context.clone());
    Ok(End { qp, send_cq, recv_cq: None, mr, peer: None, port, psn, pd, context })
}

fn an_extended_connection_reaches_the_queue_it_names(bed: &Bed) -> Outcome {
    let mut rig = rig(bed)?;
    for (n, (srq, _)) in rig.queues.iter_mut().enumerate() {
        for i in 0..4 {
            let at = n * 1024 + i * 64;
            let sge = rig.mr.sge(at..at + 64)?;
            srq.post_recv(&[ReceiveWr { wr_id: (n * 10 + i) as u64, sges: &[sge] }])?;
        }
    }
    let numbers: Vec<u32> = rig.queues.iter().map(|(srq, _)| srq.srqn()).collect();
    let mut batch = rig.a.qp.wr_start();
    for (i, to) in [0, 1, 1, 0].into_iter().enumerate() {
        let wr = batch.wr(i as u64, SendFlags::SIGNALED);
        wr.send_imm([i as u8; 4]).xrc_srqn(numbers[to]).inline_data(b"by number");
    }
    batch.complete()?;
    bed.poll_good(&mut rig.a.send_cq, 4);
    for (n, expected) in [[0, 3], [1, 2]].into_iter().enumerate() {
        let done = bed.poll_good(&mut rig.queues[n].1, 2);
        for (i, (one, sent)) in done.iter().zip(expected).enumerate() {
            let one = one.as_completion();
            assert_eq!(one.wr_id(), (n * 10 + i) as u64);
            assert_eq!((one.byte_len(), one.imm_data()), (Some(9), Some([sent; 4])));
        }
        bed.nothing_yet(&mut rig.queues[n].1);
    }
    let mut bytes = [0; 9];
    rig.mr.read_at(1024, &mut bytes)?;
    assert_eq!(&bytes, b"by number");
    rig.target.query()?;
    Ok(())
}

fn an_extended_connection_carries_every_operation(bed: &Bed) -> Outcome {
    let mut rig = rig(bed)?;
    let srqn = rig.queues[0].0.srqn();
    let (srq, remote) = (&mut rig.queues[0].0, rig.mr.remote(4096..)?);
    srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[] }])?;
    rig.mr.write_at(4096 + 64, &40_u64.to_ne_bytes())?;
    let word = RemoteAddress { addr: remote.addr + 64, ..remote };
    let (result, there) = (rig.a.mr.sge(0..8)?, rig.a.mr.sge(64..72)?);
    let mut batch = rig.a.qp.wr_start();
    let flags = SendFlags::SIGNALED;
    batch.wr(1, flags).rdma_write(remote).xrc_srqn(srqn).inline_data(b"written");
    batch.wr(2, flags).rdma_write_imm(remote, *b"imm!").xrc_srqn(srqn).inline_data(b"w");
    batch.wr(3, flags).atomic_fetch_add(word, 2).xrc_srqn(srqn).sge(result);
    batch.wr(4, flags).atomic_cmp_swp(word, 42, 7).xrc_srqn(srqn).sge(result);
    let read = batch.wr(5, flags | SendFlags::FENCE).rdma_read(word);
    read.xrc_srqn(srqn).sge_list(&[there]);
    batch.complete()?;
    let done = bed.poll_good(&mut rig.a.send_cq, 5);
    assert_eq!(wr_ids(&done), [1, 2, 3, 4, 5]);
    let mut bytes = [0; 8];
    rig.a.mr.read_at(64, &mut bytes)?;
    assert_eq!(u64::from_ne_bytes(bytes), 7);
    rig.a.mr.read_at(0, &mut bytes)?;
    assert_eq!(u64::from_ne_bytes(bytes), 42);
    let received = bed.poll_good(&mut rig.queues[0].1, 1)[0];
    assert_eq!(received.as_completion().opcode(), CompletionOpcode::ReceiveRdmaWithImm);
    Ok(())
}

fn domain_is_shared_by_every_process_with_the_file_open(bed: &Bed) -> Outcome {
    let (one, other) = (bed.context(), bed.context());
    let file = std::fs::File::open(std::env::current_exe()?)?;
    let missing = one.open_xrcd_shared(file.as_fd(), XrcOpen::Existing);
    assert!(missing.is_err(), "the domain does not exist");
    let mine = one.open_xrcd_shared(file.as_fd(), XrcOpen::CreateNew)?;
    let theirs = other.open_xrcd_shared(file.as_fd(), XrcOpen::Existing)?;
    assert!(other.open_xrcd_shared(file.as_fd(), XrcOpen::CreateNew).is_err(), "it is there");
    mine.close()?;
    theirs.close()?;
    Ok(())
}

fn a_target_that_two_have_is_one_queue_pair_until_both_have_destroyed_it(bed: &Bed) -> Outcome {
    let (one, other) = (bed.context(), bed.context());
    let file = std::fs::File::open(std::env::current_exe()?)?;
    let mine = one.open_xrcd_shared(file.as_fd(), XrcOpen::Create)?;
    let theirs = other.open_xrcd_shared(file.as_fd(), XrcOpen::Existing)?;
    let mut created = mine.create_target()?;
    let number = QpNumber::new(created.qp_num())?;
    let elsewhere = other.open_xrcd()?;
    assert!(elsewhere.open_target(number).is_err(), "it is of another domain");
    let mut opened = theirs.open_target(number)?;
    assert_eq!((opened.qp_num(), opened.state()), (created.qp_num(), QueueState::Reset));
    assert_ne!(opened.id(), created.id());

    // The process that opened the target connects it; the one that created it continues from there.
    let (options, connect) = (PairOptions::default(), ConnectOptions::default());
    let sender = bed.context();
    let mut a = sending_end(bed, &sender, &options)?;
    let port = other.local_port(bed.port(), None)?;
    let (at_a, psn) = (a.endpoint(&options), Psn::wrapping(1));
    let at_b = opened.endpoint(&port, psn, &connect);
    opened.connect(&port, psn, &at_a, &connect)?;
    let ready = QueueState::ReadyToSend;
    assert_eq!((created.state(), created.query()?.qp_state), (QueueState::Reset, ready));
    let mut again = QpAttributes::new();
    again.qp_state = Some(ready);
    created.modify(&again)?;
    assert_eq!(created.state(), ready);
    a.qp.connect(&a.port, a.psn, &at_b, &connect)?;

    // The target receives until the last handle is gone.
    created.destroy()?;
    mine.close()?;
    let pd = other.alloc_pd()?;
    let mr = pd.allocate(64)?;
    let mut cq = other.create_cq(8).build()?;
    let mut srq = pd.create_srq(4).xrc(&theirs, &cq).build()?;
    srq.post_recv(&[ReceiveWr { wr_id: 5, sges: &[mr.sge(..)?] }])?;
    let mut batch = a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().xrc_srqn(srq.srqn()).inline_data(b"still here");
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    assert_eq!(bed.poll_good(&mut cq, 1)[0].as_completion().byte_len(), Some(10));

    opened.destroy()?;
    assert!(theirs.open_target(number).is_err(), "the last one destroyed it");
    Ok(())
}

fn receives_of_a_queue_that_is_gone_are_passed_over(bed: &Bed) -> Outcome {
    let mut rig = rig(bed)?;
    let (mut srq, mut cq) = rig.queues.remove(0);
    let srqn = srq.srqn();
    srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[rig.mr.sge(0..64)?] }])?;
    let mut batch = rig.a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().xrc_srqn(srqn).inline_data(b"late");
    batch.complete()?;
    bed.poll_good(&mut rig.a.send_cq, 1);
    srq.destroy()?;
    bed.nothing(&mut cq);
    // A new queue may get its user index; the old completion is not taken for one of the new queue.
    let mut next = rig.pd.create_srq(16).xrc(&rig.domain, &cq).build()?;
    next.post_recv(&[ReceiveWr { wr_id: 2, sges: &[rig.mr.sge(0..64)?] }])?;
    let mut batch = rig.a.qp.wr_start();
    batch.wr(2, SendFlags::SIGNALED).send().xrc_srqn(next.srqn()).inline_data(b"next");
    batch.complete()?;
    bed.poll_good(&mut rig.a.send_cq, 1);
    assert_eq!(wr_ids(&bed.poll_good(&mut cq, 1)), [2]);
    Ok(())
}

fn a_domain_stays_as_long_as_something_is_in_it(bed: &Bed) -> Outcome {
    let rig = rig(bed)?;
    let Rig { domain, target, queues, pd, .. } = rig;
    let (domain, error) = domain.close().expect_err("a target and two queues are in it").into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    target.destroy()?;
    drop(queues);
    domain.close()?;
    drop(pd);
    Ok(())
}

fn operations_that_are_asked_for_and_not_there_have_names(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(8).build()?;
    fn refused<T: mlx5::QueuePairTransport>(
        pd: &mlx5::ProtectionDomain,
        cq: &CompletionQueue,
        ops: SendOps,
        text: &str,
    ) {
        let error = pd.create_qp::<T>(cq, cq).send_ops(ops).build().expect_err(text);
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert!(error.to_string().contains(text), "{error} should say {text}");
    }
    let ops = SendOps::SEND | SendOps::RDMA_READ | SendOps::FETCH_ADD;
    refused::<Uc>(&pd, &cq, ops, "Uc does not have RDMA_READ, FETCH_ADD");
    refused::<Ud>(&pd, &cq, SendOps::TSO, "Ud does not have TSO");
    refused::<Rc>(&pd, &cq, SendOps::FLUSH | SendOps::ATOMIC_WRITE, "FLUSH, ATOMIC_WRITE");
    refused::<XrcSend>(&pd, &cq, SendOps::NOP, "XrcSend does not have NOP");
    // A request for all operations gets those that the transport has, and as many of the largest as
    // asked for.
    let ops = SendOps::of::<Rc>();
    let qp = pd.create_qp::<Rc>(&cq, &cq).send_ops(ops).max_send_wr(8).build()?;
    assert!(qp.caps().max_send_wr >= 8 && qp.caps().max_wr_blocks >= 3, "{:?}", qp.caps());
    Ok(())
}

fn the_queues_of_a_thread_domain_share_its_register(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    let domain = a.context.alloc_td()?;
    let remote = b.mr.remote(0..)?;
    let connect = ConnectOptions::default();
    let mut ends = Vec::new();
    for _ in 0..3 {
        let mut peer = bed.end::<Rc>(&PairOptions::default())?;
        let qp = a.pd.create_qp::<Rc>(&a.send_cq, &a.send_cq).max_inline_data(64);
        let mut qp = qp.thread_domain(&domain).build()?;
        assert_eq!(qp.doorbell_mode(), DoorbellMode::SharedBlueFlame);
        let psn = Psn::default();
        let (here, there) =
            (qp.endpoint(&a.port, psn, &connect), peer.endpoint(&PairOptions::default()));
        qp.connect(&a.port, psn, &there, &connect)?;
        Rc::wire(&mut peer, &here, &PairOptions::default())?;
        ends.push((qp, peer));
    }
    for round in 0..10 {
        for (n, (qp, peer)) in ends.iter_mut().enumerate() {
            let mut batch = qp.wr_start();
            let to = peer.mr.remote(round * 8..)?;
            batch.wr(n as u64, SendFlags::SIGNALED).rdma_write(to).inline_data(&[n as u8 + 1; 8]);
            batch.complete()?;
        }
    }
    bed.poll_good(&mut a.send_cq, 30);
    for (n, (_, peer)) in ends.iter().enumerate() {
        let mut bytes = [0; 80];
        peer.mr.read_at(0, &mut bytes)?;
        assert_eq!(bytes, [n as u8 + 1; 80]);
    }
    drop((ends, domain, remote));
    // The register is free again.
    a.context.alloc_td()?;
    let elsewhere = bed.context().alloc_td()?;
    let refused = a.pd.create_qp::<Rc>(&a.send_cq, &a.send_cq).thread_domain(&elsewhere).build();
    assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::InvalidArgument));
    Ok(())
}

/// Allocates memory of the process, and counts it.
#[derive(Default)]
struct Counting {
    live: AtomicUsize,
    given: AtomicUsize,
}

const PAGE: usize = 4096;

// SAFETY: `alloc` returns memory with the layout asked for, which nothing else uses until `free`.
// If `free` is never called, the memory stays allocated.
unsafe impl QueueAllocator for Counting {
    fn allocate(&self, len: usize, align: usize) -> Option<NonNull<u8>> {
        assert_eq!(align, PAGE);
        let layout = Layout::from_size_align(len, align).ok()?;
        // SAFETY: the length is not zero.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        self.live.fetch_add(1, Relaxed);
        self.given.fetch_add(1, Relaxed);
        // SAFETY: `alloc` returned `len` bytes at `start`.
        unsafe { start.write_bytes(0xaa, len) };
        Some(start)
    }

    unsafe fn free(&self, start: NonNull<u8>, len: usize) {
        self.live.fetch_sub(1, Relaxed);
        let layout = Layout::from_size_align(len, PAGE).expect("as it was given");
        // SAFETY: `allocate` returned `start` for the same layout, and the caller promises to free
        // it once.
        unsafe { dealloc(start.as_ptr(), layout) };
    }
}

fn queues_live_in_memory_that_an_allocator_gives(bed: &Bed) -> Outcome {
    let counting = Arc::new(Counting::default());
    let allocator: Arc<dyn QueueAllocator> = Arc::clone(&counting) as _;
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default())?;
    let connect = ConnectOptions::default();
    let mut srq = b.pd.create_srq(16).allocator(&allocator).build()?;
    let one = a.pd.create_qp::<Rc>(&a.send_cq, &a.send_cq).max_inline_data(64);
    let mut one = one.allocator(&allocator).build()?;
    let other = b.pd.create_qp::<Rc>(&b.send_cq, &b.send_cq).srq(&srq);
    let mut other = other.allocator(&allocator).build()?;
    assert_eq!(counting.live.load(Relaxed), 3);
    let psn = Psn::default();
    let at = (one.endpoint(&a.port, psn, &connect), other.endpoint(&b.port, psn, &connect));
    one.connect(&a.port, psn, &at.1, &connect)?;
    other.connect(&b.port, psn, &at.0, &connect)?;
    srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[b.mr.sge(0..64)?] }])?;
    let mut batch = one.wr_start();
    batch.wr(1, SendFlags::SIGNALED).send().inline_data(b"through it");
    batch.complete()?;
    let of_allocator = || (counting.live.load(Relaxed), counting.given.load(Relaxed));
    bed.poll_good(&mut a.send_cq, 1);
    bed.poll_good(&mut b.send_cq, 1);
    drop((one, other, srq));
    assert_eq!(of_allocator(), (0, 3));
    // A completion queue, whose memory is replaced when it is resized.
    let mut cq = a.context.create_cq(7).allocator(&allocator).build()?;
    let mut qp = a.pd.create_qp::<Rc>(&cq, &cq).build()?;
    let itself = qp.endpoint(&a.port, psn, &connect);
    qp.connect(&a.port, psn, &itself, &connect)?;
    let mut write = |cq: &mut CompletionQueue, wr_id| -> Outcome {
        let mut batch = qp.wr_start();
        let wr = batch.wr(wr_id, SendFlags::SIGNALED);
        wr.rdma_write(a.mr.remote(..)?).sge(a.mr.sge(0..8)?);
        batch.complete()?;
        bed.settle();
        cq.resize(if cq.capacity() == 7 { 255 } else { 7 })?;
        assert_eq!(wr_ids(&bed.poll_good(cq, 1)), [wr_id]);
        Ok(())
    };
    for wr_id in 0..4 {
        write(&mut cq, wr_id)?;
        assert_eq!(of_allocator(), (1, 5 + wr_id as usize));
    }
    drop((qp, cq));
    assert_eq!(of_allocator(), (0, 8));
    Ok(())
}

/// An allocator without memory.
struct Nothing;

// SAFETY: `allocate` never returns memory.
unsafe impl QueueAllocator for Nothing {
    fn allocate(&self, _: usize, _: usize) -> Option<NonNull<u8>> {
        None
    }

    unsafe fn free(&self, _: NonNull<u8>, _: usize) {}
}

fn an_allocator_that_gives_nothing_makes_no_queue(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(8).build()?;
    let allocator: Arc<dyn QueueAllocator> = Arc::new(Nothing);
    let error = pd.create_qp::<Rc>(&cq, &cq).allocator(&allocator).build().err();
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::OutOfMemory));
    let error = context.create_cq(8).allocator(&allocator).build().err();
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::OutOfMemory));
    Ok(())
}
