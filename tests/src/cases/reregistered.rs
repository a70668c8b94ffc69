//! Memory regions that are registered again.

use crate::prelude::*;
use mlx5::ErrorKind;

pub(crate) const CASES: &[Case] = cases![
    a_region_gets_other_memory: SIMULATOR,
    a_region_gets_other_rights: SIMULATOR,
    a_region_moves_to_another_domain: SIMULATOR,
    memory_that_a_region_had_stays_until_it_is_deregistered: SIMULATOR,
    senseless_reregistration_is_refused_and_the_region_stays: SIMULATOR,
    a_region_that_the_kernel_refuses_comes_back: SIMULATOR,
];

fn a_region_gets_other_memory(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().memory(4096))?;
    let End { mr, .. } = b;
    mr.write_at(0, b"before")?;
    let mr = mr.reregister().memory(64 << 10).apply()?;
    assert_eq!(mr.len(), 64 << 10);
    let mut bytes = [1; 6];
    mr.read_at(0, &mut bytes)?;
    assert_eq!(bytes, [0; 6], "it is new");
    let to = mr.remote(60 << 10..)?;
    let mut batch = a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).rdma_write(to).inline_data(b"behind");
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    mr.read_at(60 << 10, &mut bytes)?;
    assert_eq!(&bytes, b"behind");
    mr.deregister()?;
    Ok(())
}

fn a_region_gets_other_rights(bed: &Bed) -> Outcome {
    let options = PairOptions::default().memory(4096).access(Access::LOCAL_WRITE);
    let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
    let End { mr, qp: _qp, .. } = b;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = mr.reregister().access(access).apply()?;
    assert_eq!(mr.access(), access);
    let write = |a: &mut End<Rc>, to| -> Result<_, Failed> {
        let mut batch = a.qp.wr_start();
        batch.wr(1, SendFlags::SIGNALED).rdma_write(to).inline_data(b"x");
        batch.complete()?;
        Ok(syndrome(&bed.poll_one(&mut a.send_cq)))
    };
    assert_eq!(write(&mut a, mr.remote(..)?)?, None);
    let mut mr = mr.reregister().access(Access::empty()).apply()?;
    assert!(mr.remote(..).is_err());
    let former = RemoteAddress { addr: mr.addr(), rkey: mr.rkey() };
    assert_eq!(write(&mut a, former)?, Some(Syndrome::RemoteAccess));
    // A peer that had the right may still be writing.
    let refused = mr.as_slice().expect_err("it could be written");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    Ok(())
}

fn a_region_moves_to_another_domain(bed: &Bed) -> Outcome {
    let Pair { mut a, b: _b } = bed.pair::<Rc>(&PairOptions::default())?;
    let other = a.context.alloc_pd()?;
    let mr = other.allocate(4096)?;
    let mr = mr.reregister().pd(&a.pd).apply()?;
    assert_eq!(*mr.pd(), a.pd);
    other.destroy()?;
    // A queue pair of the new domain may use the region.
    let read = _b.mr.remote(..)?;
    let sge = mr.sge(0..8)?;
    let mut batch = a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).rdma_read(read).sge(sge);
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    Ok(())
}

fn memory_that_a_region_had_stays_until_it_is_deregistered(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mr = pd.allocate(4096)?;
    let first = mr.as_ptr().ok_or("memory of its own")?;
    let mr = mr.reregister().memory(8192).apply()?;
    let second = mr.as_ptr().ok_or("memory of its own")?;
    let mr = mr.reregister().memory(4096).apply()?;
    let third = mr.as_ptr().ok_or("memory of its own")?;
    assert!(first != second && second != third && first != third, "nothing was freed between");
    // SAFETY: the region keeps its former memory until it is deregistered, and the device now uses
    // other memory.
    unsafe { first.write_volatile(7) };
    mr.deregister()?;
    assert_eq!(context.leaked(), 0);
    Ok(())
}

fn senseless_reregistration_is_refused_and_the_region_stays(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let elsewhere = bed.context().alloc_pd()?;
    let mr = pd.allocate(4096)?;
    let refused = mr.reregister().apply().expect_err("nothing is to change");
    assert_eq!(refused.error().kind(), ErrorKind::InvalidArgument);
    let refused = refused.into_inner().reregister().memory(0).apply().expect_err("no bytes");
    let refused =
        refused.into_inner().reregister().access(Access::REMOTE_WRITE).apply().expect_err("no LOCAL_WRITE");
    let refused = refused.into_inner().reregister().pd(&elsewhere).apply().expect_err("another context");
    assert!(refused.to_string().contains("different contexts"));
    let mr = refused.into_inner();
    mr.write_at(0, b"still here")?;
    mr.deregister()?;
    Ok(())
}

fn a_region_that_the_kernel_refuses_comes_back(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mr = pd.allocate(4096)?;
    let addr = mr.addr();
    // The first call allocates the new memory, so this fails the second.
    bed.simulator().fail_call(2, mlx5::Errno::EIO);
    let (mr, error) = mr.reregister().memory(8192).apply().expect_err("the kernel refuses").into_parts();
    assert_ne!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!((mr.addr(), mr.len()), (addr, 4096));
    mr.deregister()?;
    assert_eq!(context.leaked(), 0);
    Ok(())
}
