//! Memory of rings that earlier rings have used.

use super::states::Bed;
use super::*;
use crate::testing::Altered;
use crate::transport::Rc;
use mlx5_uapi::ioctl::method;
use mlx5_wqe::SendFlags;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The send ring of a queue pair without a receive ring: all of its memory.
fn ring(qp: &QueuePair<Rc>) -> RawRing {
    qp.raw_parts().unwrap().send
}

fn cqes(cq: &mut CompletionQueue) -> RawRing {
    cq.hand_over().unwrap().cqes
}

fn bytes(ring: RawRing) -> Vec<u8> {
    let len = ring.entries as usize * ring.stride as usize;
    // SAFETY: the bytes of a ring, whose queue lives and has nothing to do.
    (0..len).map(|at| unsafe { ring.start.byte_add(at).read_volatile() }).collect()
}

fn fill(ring: RawRing, with: u8) {
    // SAFETY: the bytes of a ring, whose queue lives and is idle.
    unsafe { ring.start.write_bytes(with, ring.entries as usize * ring.stride as usize) };
}

fn send_only(pd: &ProtectionDomain, cq: &CompletionQueue) -> QueuePair<Rc> {
    pd.create_qp::<Rc>(cq, cq).max_send_wr(256).max_recv_wr(0).build().unwrap()
}

#[test]
fn a_ring_has_the_memory_of_one_that_was_destroyed_and_finds_it_zero() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(8).build().unwrap());
    let first = send_only(&pd, &cq);
    let was = ring(&first);
    assert!(bytes(was).iter().all(|byte| *byte == 0));
    let other = send_only(&pd, &cq);
    assert_ne!(ring(&other).start, was.start, "that one is in use");
    fill(was, 0xff);
    first.destroy().unwrap();
    let second = send_only(&pd, &cq);
    assert_eq!(ring(&second), was);
    assert!(bytes(was).iter().all(|byte| *byte == 0));
    drop((second, other, cq, pd, context));
    assert_clean(&simulator);
}

fn cq_of(context: &Context) -> CompletionQueue {
    context.create_cq(100).build().unwrap()
}

#[test]
fn a_completion_of_a_destroyed_queue_is_not_polled_from_the_next_one() {
    let mut bed = Bed::new();
    let mut pair = bed.pair(None);
    pair.receive(0..2);
    pair.send(0..2, SendFlags::SIGNALED);
    bed.wait_for(4);
    let was = cqes(&mut bed.cq);
    assert!(bytes(was).iter().any(|byte| *byte != 0));
    drop(pair);
    let Bed { simulator, context, pd, cq } = bed;
    cq.destroy().unwrap();
    let mut cq = cq_of(&context);
    assert_eq!(cqes(&mut cq), was);
    // The last byte of each CQE shows that the device has not written it.
    let mut left = bytes(was);
    left.iter_mut().skip(63).step_by(64).for_each(|byte| *byte = 0);
    assert!(left.iter().all(|byte| *byte == 0));
    assert_eq!(cq.poll(16, |_| ()), Ok(0));
    drop((cq, pd, context));
    assert_clean(&simulator);
}

#[test]
fn memory_of_a_ring_that_the_kernel_did_not_destroy_is_used_by_no_other() {
    let simulator = Simulator::new(infiniband());
    let refuse = Arc::new(AtomicBool::new(false));
    let refused = Arc::clone(&refuse);
    let kernel = Altered::new(simulator.kernel(), move |call| match call.method {
        method::QP_DESTROY | method::SRQ_DESTROY | method::CQ_DESTROY if refused.load(Relaxed) => {
            Err(Errno::EBUSY)
        }
        _ => call.pass(),
    });
    let context = devices_on(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap()[0].open().unwrap();
    let (pd, base) = (context.alloc_pd().unwrap(), context.create_cq(8).build().unwrap());
    let (qp, mut cq) = (send_only(&pd, &base), cq_of(&context));
    let mut srq = pd.create_srq(100).build().unwrap();
    let held = [ring(&qp).start, cqes(&mut cq).start, srq.raw_parts().unwrap().requests.start];
    refuse.store(true, Relaxed);
    let (qp, _) = qp.destroy().unwrap_err().into_parts();
    assert_eq!(context.leaked(), 0, "it came back, and may be tried again");
    drop((qp, cq, srq));
    assert_eq!(context.leaked(), 3);
    refuse.store(false, Relaxed);
    let qps: Vec<_> = (0..20).map(|_| send_only(&pd, &base)).collect();
    let mut cqs: Vec<_> = (0..20).map(|_| cq_of(&context)).collect();
    let used: BTreeSet<_> = qps.iter().map(ring).chain(cqs.iter_mut().map(cqes)).collect_pages();
    assert!(held.iter().all(|start| !used.contains(&start.addr().get())), "{held:?}");
    drop((qps, cqs, base, pd, context));
    assert_eq!(kernel.allocated(), 0, "closing the file destroys all");
    assert_clean(&simulator);
}

/// Collects the addresses of all pages of rings.
trait CollectPages: Iterator<Item = RawRing> + Sized {
    fn collect_pages(self) -> BTreeSet<usize> {
        let pages = |ring: RawRing| {
            let start = ring.start.addr().get();
            (start..start + ring.entries as usize * ring.stride as usize).step_by(4096)
        };
        self.flat_map(pages).collect()
    }
}

impl<I: Iterator<Item = RawRing>> CollectPages for I {}

#[test]
fn a_ring_that_could_not_be_created_leaves_its_memory_unless_the_device_may_have_it() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(8).build().unwrap());
    let qp = send_only(&pd, &cq);
    let was = ring(&qp).start;
    qp.destroy().unwrap();
    let build = || pd.create_qp::<Rc>(&cq, &cq).max_send_wr(256).max_recv_wr(0).build();
    simulator.fail_call(1, Errno::ENOMEM);
    assert!(!build().unwrap_err().in_doubt());
    let qp = build().unwrap();
    assert_eq!(ring(&qp).start, was);
    qp.destroy().unwrap();
    simulator.fail_call_late(1, Errno::EFAULT);
    assert!(build().unwrap_err().in_doubt());
    assert_eq!(context.leaked(), 1);
    assert_ne!(ring(&build().unwrap()).start, was);
    drop((cq, pd, context));
    assert_clean(&simulator);
}

#[test]
fn a_resized_queue_leaves_its_former_memory_to_the_next() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let mut cq = cq_of(&context);
    let buffer = |cq: &mut CompletionQueue| {
        let start = cqes(cq).start;
        // Takes the queue back.
        assert_eq!(cq.poll(1, |_| ()), Ok(0));
        start
    };
    let was = buffer(&mut cq);
    simulator.fail_call(1, Errno::ENOMEM);
    cq.resize(200).unwrap_err();
    assert_eq!(buffer(&mut cq), was, "nothing has changed");
    let mut other = cq_of(&context);
    assert_ne!(buffer(&mut other), was);
    drop(other);
    cq.resize(200).unwrap();
    assert_ne!(buffer(&mut cq), was);
    let mut next = cq_of(&context);
    assert_eq!(buffer(&mut next), was);
    drop((cq, next, context));
    assert_clean(&simulator);
}

#[test]
fn memory_goes_back_to_the_system_when_queues_go_and_all_of_it_with_the_context() {
    let simulator = Simulator::new(infiniband());
    let kernel = Altered::new(simulator.kernel(), |call| call.pass());
    let context = devices_on(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap()[0].open().unwrap();
    // Two megabytes each.
    let cqs: Vec<_> = (0..20).map(|_| context.create_cq(32_000).build().unwrap()).collect();
    let most = kernel.allocated();
    assert!(most >= 40 << 20);
    drop(cqs);
    assert!(kernel.allocated() < most / 2, "{} of {most}", kernel.allocated());
    drop(context);
    assert_eq!(kernel.allocated(), 0);
    assert_clean(&simulator);
}

#[test]
fn queues_of_one_context_have_no_memory_of_another() {
    let simulator = Simulator::new(infiniband());
    let (one, other) = (open(&simulator), open(&simulator));
    let was = cqes(&mut cq_of(&one)).start;
    assert_ne!(cqes(&mut cq_of(&other)).start, was);
    assert_eq!(cqes(&mut cq_of(&one)).start, was);
}

/// Creates and destroys queues of every kind, some of them twice.
fn session(kernel: &Arc<Altered>) -> Result<(), Error> {
    let context = devices_on(Arc::clone(kernel) as Arc<dyn Kernel>)?.remove(0).open()?;
    let pd = context.alloc_pd()?;
    for _ in 0..2 {
        let mut cq = context.create_cq(100).build()?;
        let srq = pd.create_srq(100).build()?;
        let qp = pd.create_qp::<Rc>(&cq, &cq).build()?;
        drop(pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?);
        cq.resize(1000)?;
        qp.destroy()?;
        srq.destroy()?;
    }
    Ok(())
}

#[test]
fn whichever_call_of_a_session_with_queues_fails_all_memory_is_freed_with_the_context() {
    let machine = || {
        let simulator = Simulator::new(infiniband());
        let kernel = Altered::new(simulator.kernel(), |call| call.pass());
        (simulator, kernel)
    };
    let (simulator, kernel) = machine();
    session(&kernel).unwrap();
    let calls = simulator.calls();
    for k in 1..=calls {
        for late in [false, true] {
            let (simulator, kernel) = machine();
            match late {
                false => simulator.fail_call(k, Errno::ENOMEM),
                true => simulator.fail_call_late(k, Errno::EFAULT),
            }
            let _ = session(&kernel);
            assert_eq!(kernel.allocated(), 0, "call {k}, late: {late}");
            assert_clean(&simulator);
        }
    }
}
