//! Memory that outlives its object, and when it is freed.

use super::*;
use crate::testing::Altered;
use crate::transport::Rc;
use mlx5_uapi::ioctl::method;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Creates one object of every kind that has memory. Dropping the value drops them all.
fn everything(context: &Context) -> Result<impl Sized + use<>, Error> {
    let pd = context.alloc_pd()?;
    let region = pd.memory(1 << 20).access(Access::LOCAL_WRITE).register()?;
    let mut cq = context.create_cq(64).build()?;
    cq.resize(128)?;
    let srq = pd.create_srq(64).build()?;
    let queues =
        [pd.create_qp::<Rc>(&cq, &cq).build()?, pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?];
    let region = region.reregister().memory(2 << 20).apply()?;
    Ok((queues, srq, cq, region, pd))
}

#[test]
fn a_device_that_is_pulled_out_again_and_again_leaves_no_memory() {
    let simulator = Simulator::new(infiniband().devices(4));
    let kernel = Altered::new(simulator.kernel(), |call| call.pass());
    let devices = devices_on(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap();
    for (number, device) in devices.into_iter().enumerate() {
        let context = device.open().unwrap();
        let held = everything(&context).unwrap();
        let before = kernel.allocated();
        simulator.remove_device(number);
        // The objects have ended with the device: their memory need not wait for the context.
        drop(held);
        assert_eq!(context.leaked(), 0, "round {number}");
        assert!(kernel.allocated() < before - (2 << 20), "round {number}");
        drop(context);
        assert_eq!(kernel.allocated(), 0, "round {number}");
    }
    assert_eq!(simulator.violations(), []);
}

/// Closing the file destroys every object, whatever the kernel answered before; nothing earlier
/// does.
#[test]
fn object_that_the_kernel_would_not_destroy_is_freed_when_the_context_closes() {
    let simulator = Simulator::new(infiniband());
    let refused = [method::MR_DESTROY, method::QP_DESTROY, method::SRQ_DESTROY, method::CQ_DESTROY];
    let kernel = Altered::new(simulator.kernel(), move |call| {
        if refused.contains(&call.method) { Err(Errno::EIO) } else { call.pass() }
    });
    let context = devices_on(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap()[0].open().unwrap();
    let before = kernel.allocated();
    drop(everything(&context).unwrap());
    // The memory of two regions; the rings of two queue pairs, an SRQ and a CQ.
    assert_eq!(context.leaked(), 6);
    assert!(kernel.allocated() >= before + (3 << 20));
    drop(context);
    assert_eq!(kernel.allocated(), 0);
    assert_clean(&simulator);
}

/// Another implementation of [`Kernel`] may keep the file open: then nothing is destroyed.
#[test]
fn memory_of_a_file_that_stays_open_stays_and_is_counted() {
    let simulator = Simulator::new(infiniband());
    let kernel = Altered::new(simulator.kernel(), |call| match call.method {
        method::MR_DESTROY => Err(Errno::EBUSY),
        _ => call.pass(),
    });
    kernel.keep_files(true);
    let context = devices_on(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap()[0].open().unwrap();
    drop(context.alloc_pd().unwrap().allocate(1 << 20).unwrap());
    let before = leaked();
    drop(context);
    assert!(leaked() > before);
    assert!(kernel.allocated() >= 1 << 20);
    assert_eq!(simulator.violations(), []);
}

/// A page of doorbell records stays as long as the ring of a queue that the kernel did not destroy.
#[test]
fn doorbell_records_stay_as_long_as_rings_do() {
    for open in [false, true] {
        let simulator = Simulator::new(infiniband());
        let kernel = Altered::new(simulator.kernel(), |call| match call.method {
            method::SRQ_DESTROY => Err(Errno::EBUSY),
            _ => call.pass(),
        });
        kernel.keep_files(open);
        let context =
            devices_on(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap()[0].open().unwrap();
        let pd = context.alloc_pd().unwrap();
        drop(pd.create_srq(64).build().unwrap());
        assert_eq!(context.leaked(), 1, "the ring; pages of records are not counted");
        let held = kernel.allocated();
        drop((pd, context));
        assert_eq!(kernel.allocated(), if open { held } else { 0 });
        assert_eq!(simulator.violations(), []);
    }
}

/// Pages that are never unmapped, and the number of those not freed.
struct Pages(AtomicUsize);

// SAFETY: every call returns newly allocated bytes, which nothing else uses and which are never
// deallocated.
unsafe impl QueueAllocator for Pages {
    fn allocate(&self, len: usize, align: usize) -> Option<NonNull<u8>> {
        self.0.fetch_add(1, Relaxed);
        let layout = std::alloc::Layout::from_size_align(len, align).ok()?;
        // SAFETY: the layout's size is not zero: a ring has at least one page.
        NonNull::new(unsafe { std::alloc::alloc(layout) })
    }

    unsafe fn free(&self, _: NonNull<u8>, _: usize) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[test]
fn memory_that_an_allocator_would_use_again_is_never_given_back() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pages = Arc::new(Pages(AtomicUsize::new(0)));
    let allocator = Arc::clone(&pages) as Arc<dyn QueueAllocator>;
    let cq = context.create_cq(64).allocator(&allocator).build().unwrap();
    simulator.fail_call(1, Errno::EBUSY);
    let before = leaked();
    drop(cq);
    assert_eq!(context.leaked(), 1);
    drop(context);
    assert_eq!(pages.0.load(Relaxed), 1);
    assert!(leaked() > before);
    assert_clean(&simulator);
}

/// A failed call may have been carried out: the memory that it named is kept and not reused.
#[test]
fn memory_that_a_failed_call_may_have_passed_to_the_device_is_kept() {
    for errno in [Errno::EFAULT, Errno::EIO, Errno::ETIMEDOUT] {
        let simulator = Simulator::new(infiniband());
        let kernel = Altered::new(simulator.kernel(), |call| call.pass());
        let context =
            devices_on(Arc::clone(&kernel) as Arc<dyn Kernel>).unwrap()[0].open().unwrap();
        let pd = context.alloc_pd().unwrap();
        // The first call allocates memory, the second registers it.
        simulator.fail_call_late(2, errno);
        let error = pd.allocate(4096).unwrap_err();
        assert!(error.in_doubt(), "{error}");
        assert_eq!(context.leaked(), 1, "{error}");
        simulator.fail_call(2, Errno::ENOMEM);
        let error = pd.allocate(4096).unwrap_err();
        assert!(!error.in_doubt(), "{error}");
        assert_eq!(context.leaked(), 1, "a refusal leaves nothing");
        drop((pd, context));
        assert_eq!(kernel.allocated(), 0);
        assert_clean(&simulator);
    }
}

/// After a failed resize, the CQ itself shows whether the device moved to the new buffer.
#[test]
fn a_completion_queue_that_was_resized_though_the_call_failed_goes_on_where_the_device_writes() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    for late in [true, false] {
        let mut cq = context.create_cq(15).build().unwrap();
        let before = context.leaked();
        // The memory of the new ring is already allocated: the first call is the resize.
        if late {
            simulator.fail_call_late(1, Errno::EFAULT);
            cq.resize(63).unwrap();
            assert_eq!((cq.capacity(), context.leaked()), (63, before));
        } else {
            simulator.fail_call(1, Errno::EFAULT);
            let error = cq.resize(63).unwrap_err();
            assert!(error.in_doubt(), "{error}");
            assert_eq!((cq.capacity(), context.leaked()), (15, before + 1));
        }
        cq.resize(31).unwrap();
        assert_eq!(cq.capacity(), 31);
        assert_eq!(cq.poll(1, |_| ()), Ok(0));
    }
    drop(context);
    assert_clean(&simulator);
}

/// A context with `pages` pages for BlueFlame, two registers each. The kernel refuses to destroy
/// queue pairs while the flag is set.
fn stubborn(pages: u32) -> (Simulator, Arc<AtomicBool>, Context) {
    let simulator = Simulator::new(infiniband());
    let refuse = Arc::new(AtomicBool::new(false));
    let refuses = Arc::clone(&refuse);
    let kernel = Altered::new(simulator.kernel(), move |call| {
        let refused = call.method == method::QP_DESTROY && refuses.load(Relaxed);
        if refused { Err(Errno::EBUSY) } else { call.pass() }
    });
    let device = devices_on(kernel as Arc<dyn Kernel>).unwrap().remove(0);
    let options = OpenOptions::new().max_blueflame_pages(pages);
    let context = device.open_with(&options).unwrap();
    (simulator, refuse, context)
}

#[test]
fn register_of_a_queue_pair_that_was_not_destroyed_goes_to_no_other() {
    for (domain, destroyed) in [(false, false), (false, true), (true, false), (true, true)] {
        let (_simulator, refuse, context) = stubborn(256);
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(8).build().unwrap());
        let domain = domain.then(|| context.alloc_td().unwrap());
        let mut builder = pd.create_qp::<Rc>(&cq, &cq);
        builder = match &domain {
            Some(domain) => builder.thread_domain(domain),
            None => builder.doorbell(DoorbellChoice::BlueFlame),
        };
        let qp = builder.build().unwrap();
        let register = qp.raw_parts().unwrap().register.start;
        refuse.store(!destroyed, Relaxed);
        drop((qp, domain));
        refuse.store(false, Relaxed);
        let next: Vec<_> = (0..4)
            .map(|_| {
                let builder = pd.create_qp::<Rc>(&cq, &cq).doorbell(DoorbellChoice::BlueFlame);
                builder.build().unwrap()
            })
            .collect();
        let given = next.iter().any(|qp| qp.raw_parts().unwrap().register.start == register);
        assert_eq!(given, destroyed);
    }
}

/// Otherwise a program that connects and disconnects rings plain doorbells after the sixteenth
/// connection.
#[test]
fn queue_pairs_that_are_gone_share_no_register() {
    const MOST: usize = 16;
    let (_simulator, refuse, context) = stubborn(1);
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(8).build().unwrap());
    let make = || pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    let own = make();
    assert_eq!(own.doorbell_mode(), DoorbellMode::BlueFlame);
    for round in 0..3 * MOST {
        assert_eq!(make().doorbell_mode(), DoorbellMode::SharedBlueFlame, "{round}");
    }
    // A queue pair that was not destroyed still shares the register.
    refuse.store(true, Relaxed);
    drop(make());
    refuse.store(false, Relaxed);
    let mut sharers: Vec<_> = (1..MOST).map(|_| make()).collect();
    assert!(sharers.iter().all(|qp| qp.doorbell_mode() == DoorbellMode::SharedBlueFlame));
    assert_eq!(make().doorbell_mode(), DoorbellMode::Doorbell);
    sharers.pop();
    assert_eq!(make().doorbell_mode(), DoorbellMode::SharedBlueFlame);
}
