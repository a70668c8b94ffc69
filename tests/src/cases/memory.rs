//! Protection domains and memory regions.

use super::altered_kernel::{AlteredKernel, Overrides};
use crate::prelude::*;
use mlx5::{Errno, Error, ErrorKind, HugePages, devices_on};
use mlx5_uapi::ioctl::method;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(crate) const CASES: &[Case] = cases![
    remote_writing_needs_local_writing,
    rights_that_do_not_go_together_are_refused,
    a_region_must_have_bytes_and_a_sound_alignment,
    owned_memory_is_zeroed_aligned_and_as_long_as_asked_for,
    huge_pages_can_be_preferred_anywhere_and_demanded_where_they_are,
    entries_and_remote_addresses_stay_inside_the_region,
    a_region_that_no_peer_may_reach_has_no_remote_address,
    bytes_are_copied_in_and_out_at_any_offset,
    copies_beyond_the_region_are_refused,
    slice_is_borrowed_only_from_memory_that_the_device_may_not_write,
    foreign_memory_is_registered_where_it_lies,
    a_region_can_have_other_addresses_for_the_device_than_for_the_process,
    a_deregistered_key_opens_nothing,
    a_domain_in_use_is_given_back,
    a_region_keeps_its_domain,
    every_region_has_keys_of_its_own,
    error_of_memory_over_the_pin_limit_names_the_limit: SIMULATOR,
    a_region_that_cannot_be_deregistered_comes_back_and_goes_later: SIMULATOR,
    memory_whose_region_cannot_be_deregistered_goes_when_the_context_closes: SIMULATOR,
    a_domain_that_cannot_be_destroyed_comes_back: SIMULATOR,
];

#[track_caller]
fn refused<T>(result: Result<T, Error>, kind: ErrorKind, hint: &str) {
    let error = result.err().expect("refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(hint), "{error}");
}

#[track_caller]
fn invalid<T>(result: Result<T, Error>, hint: &str) {
    refused(result, ErrorKind::InvalidArgument, hint);
}

fn remote_writing_needs_local_writing(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    for right in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        for others in [Access::empty(), Access::REMOTE_READ, Access::MW_BIND] {
            invalid(pd.memory(64).access(right | others).register(), "LOCAL_WRITE");
        }
        pd.memory(64).access(right | Access::LOCAL_WRITE).register()?;
    }
    pd.memory(64).access(Access::REMOTE_READ).register()?;
    pd.memory(64).access(Access::empty()).register()?;
    Ok(())
}

fn rights_that_do_not_go_together_are_refused(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    invalid(pd.memory(64).access(Access::ON_DEMAND).register(), "foreign memory");
    let mut own = vec![0_u8; 64];
    // SAFETY: the rights are refused, so nothing is registered.
    invalid(unsafe { pd.reg_mr(own.as_mut_ptr(), 64, Access::HUGETLB) }, "ON_DEMAND");
    Ok(())
}

fn a_region_must_have_bytes_and_a_sound_alignment(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    invalid(pd.memory(0).register(), "is empty");
    invalid(pd.memory(64).align(0).register(), "power of two");
    invalid(pd.memory(64).align(48).register(), "power of two");
    let start = std::ptr::without_provenance_mut(usize::MAX - 10);
    // SAFETY: the range is refused, so nothing is registered.
    invalid(unsafe { pd.reg_mr(start, 64, Access::default()) }, "exceed the address space");
    Ok(())
}

fn owned_memory_is_zeroed_aligned_and_as_long_as_asked_for(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    for (len, align) in [(1, 1), (4096, 4096), (4097, 8192), (1 << 20, 1 << 21), (100, 1 << 16)] {
        let mr = pd.memory(len).align(align).register()?;
        assert_eq!(mr.len(), len);
        assert!(mr.addr().is_multiple_of(align.max(4096) as u64), "{:#x}", mr.addr());
        assert_eq!(mr.as_ptr().map(|at| at.addr() as u64), Some(mr.addr()));
        untouched(&mr, 0..len);
    }
    Ok(())
}

fn huge_pages_can_be_preferred_anywhere_and_demanded_where_they_are(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let mr = pd.memory(100_000).huge_pages(HugePages::Prefer).register()?;
    untouched(&mr, 0..100_000);
    match pd.memory(100_000).huge_pages(HugePages::TwoMiB).register() {
        Ok(mr) => assert!(mr.addr().is_multiple_of(1 << 21)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            assert!(error.to_string().contains("vm.nr_hugepages"), "{error}");
        }
    }
    Ok(())
}

fn entries_and_remote_addresses_stay_inside_the_region(bed: &Bed) -> Outcome {
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let mr = bed.context().alloc_pd()?.memory(100).access(access).register()?;
    let sge = mr.sge(10..30)?;
    assert_eq!((sge.addr, sge.length, sge.lkey), (mr.addr() + 10, 20, mr.lkey()));
    assert_eq!(mr.whole()?.length, 100);
    assert_eq!(mr.sge(100..)?.length, 0);
    assert_eq!(mr.sge(..=99)?.length, 100);
    let remote = mr.remote(64..)?;
    assert_eq!((remote.addr, remote.rkey), (mr.addr() + 64, mr.rkey()));
    for range in [0..101, 101..101, 100..102, usize::MAX - 1..usize::MAX] {
        invalid(mr.sge(range.clone()), "100 bytes");
        invalid(mr.remote(range), "100 bytes");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    {
        invalid(mr.sge(20..10), "100 bytes");
    }
    invalid(mr.sge(..=usize::MAX), "100 bytes");
    Ok(())
}

fn a_region_that_no_peer_may_reach_has_no_remote_address(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    for access in [Access::empty(), Access::LOCAL_WRITE] {
        let mr = pd.memory(64).access(access).register()?;
        invalid(mr.remote(..), "no peer may access the region");
        invalid(mr.remote_slice(..), "no peer may access the region");
    }
    Ok(())
}

fn bytes_are_copied_in_and_out_at_any_offset(bed: &Bed) -> Outcome {
    let mr = bed.context().alloc_pd()?.allocate(256)?;
    for offset in [0, 1, 3, 7, 8, 63] {
        for len in [0, 1, 2, 7, 8, 9, 31, 100] {
            mr.write_at(0, &[0; 256])?;
            fill(&mr, offset, (offset * 1000 + len) as u64, len)?;
            verify(&mr, offset, (offset * 1000 + len) as u64, len);
            untouched(&mr, 0..offset);
            untouched(&mr, offset + len..256);
        }
    }
    Ok(())
}

fn copies_beyond_the_region_are_refused(bed: &Bed) -> Outcome {
    let mr = bed.context().alloc_pd()?.allocate(64)?;
    invalid(mr.write_at(60, &[1; 5]), "64 bytes");
    invalid(mr.write_at(usize::MAX, &[1; 5]), "64 bytes");
    invalid(mr.read_at(1, &mut [0; 64]), "64 bytes");
    untouched(&mr, 0..64);
    mr.write_at(64, &[])?;
    Ok(())
}

fn slice_is_borrowed_only_from_memory_that_the_device_may_not_write(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    for access in [Access::empty(), Access::REMOTE_READ, Access::RELAXED_ORDERING] {
        let mut mr = pd.memory(64).access(access).register()?;
        mr.write_at(3, b"read me")?;
        assert_eq!(&mr.as_slice()?[3..10], b"read me");
    }
    for access in [
        Access::LOCAL_WRITE,
        Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
        Access::MW_BIND,
    ] {
        invalid(pd.memory(64).access(access).register()?.as_slice(), "read_at");
    }
    Ok(())
}

/// Sends the memory of `sge` from `a` to 64 bytes at `to` in the region of `b`.
fn send(bed: &Bed, pair: &mut Pair<Rc>, sge: Sge, to: usize) -> Outcome {
    pair.b.recv(1, to..to + 64);
    let mut batch = pair.a.qp.wr_start();
    batch.wr(2, SendFlags::SIGNALED).send().sge(sge);
    batch.complete()?;
    bed.poll_good(&mut pair.a.send_cq, 1);
    bed.poll_good(pair.b.recv_cq(), 1);
    Ok(())
}

fn foreign_memory_is_registered_where_it_lies(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let mut own = pattern(3, 200);
    // SAFETY: the vector lives longer than the region, and is only read.
    let mut mr = unsafe { pair.a.pd.reg_mr(own.as_mut_ptr().add(50), 100, Access::empty()) }?;
    assert_eq!(mr.addr(), own.as_ptr() as u64 + 50);
    assert_eq!(mr.as_ptr(), None);
    invalid(mr.read_at(0, &mut [0; 8]), "does not own its memory");
    invalid(mr.as_slice(), "does not own its memory");
    send(bed, &mut pair, mr.sge(0..64)?, 0)?;
    let mut arrived = [0; 64];
    pair.b.mr.read_at(0, &mut arrived)?;
    assert_eq!(arrived, own[50..114]);
    mr.deregister()?;
    Ok(())
}

fn a_region_can_have_other_addresses_for_the_device_than_for_the_process(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let own = pair.a.pd.allocate(8192)?;
    fill(&own, 0, 9, 8192)?;
    let start = own.as_ptr().ok_or("owned")?;
    // SAFETY: the other region owns the memory and lives longer, and no reference to it is made.
    let mr = unsafe { pair.a.pd.reg_mr_iova(start, 8192, 0x10_0000, Access::empty()) }?;
    assert_eq!(mr.addr(), 0x10_0000);
    send(bed, &mut pair, mr.sge(4096..4160)?, 64)?;
    let mut expected = [0; 64];
    own.read_at(4096, &mut expected)?;
    crate::pattern::expect_bytes(&pair.b.mr, 64, &expected);
    mr.deregister()?;
    Ok(())
}

fn a_deregistered_key_opens_nothing(bed: &Bed) -> Outcome {
    let mut pair = bed.pair::<Rc>(&PairOptions::default())?;
    let mr = pair.a.pd.allocate(64)?;
    let sge = mr.sge(..)?;
    mr.deregister()?;
    let mut batch = pair.a.qp.wr_start();
    batch.wr(7, SendFlags::SIGNALED).send().sge(sge);
    batch.complete()?;
    let failed = bed.poll_one(&mut pair.a.send_cq);
    let error = failed.as_completion().status().expect_err("the key is gone");
    assert_eq!(error.kind, CompletionErrorKind::Known(Syndrome::LocalProtection));
    Ok(())
}

fn a_domain_in_use_is_given_back(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let mr = pd.allocate(64)?;
    let (pd, error) = pd.destroy().expect_err("it has a region").into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(pd, *mr.pd());
    mr.deregister()?;
    let clone = pd.clone();
    let (pd, error) = pd.destroy().expect_err("there is a clone").into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    drop(clone);
    pd.destroy()?;
    Ok(())
}

fn a_region_keeps_its_domain(bed: &Bed) -> Outcome {
    let context = bed.context();
    let mr = {
        let pd = context.alloc_pd()?;
        pd.allocate(64)?
    };
    drop(context);
    fill(&mr, 0, 1, 64)?;
    verify(&mr, 0, 1, 64);
    let pdn = mr.pd().pdn();
    assert_ne!(mr.pd().context().alloc_pd()?.pdn(), pdn);
    Ok(())
}

fn every_region_has_keys_of_its_own(bed: &Bed) -> Outcome {
    let pd = bed.context().alloc_pd()?;
    let regions = (0..100).map(|_| pd.allocate(64)).collect::<Result<Vec<_>, _>>()?;
    let mut keys: Vec<u32> = regions.iter().map(MemoryRegion::lkey).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 100);
    Ok(())
}

/// A context on a kernel that answers `method` with `errno` while the switch is on.
fn refusing(
    bed: &Bed,
    method: mlx5_uapi::ioctl::Method,
    errno: Errno,
) -> Result<(Context, Arc<AtomicBool>, Arc<Overrides>), Failed> {
    let on = Arc::new(AtomicBool::new(false));
    let switch = Arc::clone(&on);
    let overrides = Overrides {
        calls: Some(Box::new(move |called| {
            (called == method && switch.load(Ordering::SeqCst)).then_some(errno)
        })),
        ..Overrides::default()
    };
    let (kernel, overrides) = AlteredKernel::before(bed.simulator().kernel(), overrides);
    Ok((devices_on(kernel)?[0].open()?, on, overrides))
}

fn error_of_memory_over_the_pin_limit_names_the_limit(bed: &Bed) -> Outcome {
    // Many methods use INVOKE_WRITE, not only registration, so the refusals start after the context
    // and the domain are open.
    let calls = Arc::new(AtomicU32::new(u32::MAX));
    let left = Arc::clone(&calls);
    let overrides = Overrides {
        calls: Some(Box::new(move |_| (left.load(Ordering::SeqCst) == 0).then_some(Errno::ENOMEM))),
        ..Overrides::default()
    };
    let (kernel, _) = AlteredKernel::before(bed.simulator().kernel(), overrides);
    let pd = devices_on(kernel)?[0].open()?.alloc_pd()?;
    calls.store(0, Ordering::SeqCst);
    let refusal = pd.allocate(1 << 20);
    calls.store(1, Ordering::SeqCst);
    refused(refusal, ErrorKind::OutOfMemory, "RLIMIT_MEMLOCK");
    assert_eq!(pd.context().leaked(), 0, "a failed registration leaves nothing");
    pd.allocate(1 << 20)?;
    Ok(())
}

fn a_region_that_cannot_be_deregistered_comes_back_and_goes_later(bed: &Bed) -> Outcome {
    let (context, on, _) = refusing(bed, method::MR_DESTROY, Errno::EBUSY)?;
    let mr = context.alloc_pd()?.allocate(64)?;
    on.store(true, Ordering::SeqCst);
    let (mr, error) = mr.deregister().expect_err("the kernel refuses").into_parts();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Busy, Some(Errno::EBUSY)));
    fill(&mr, 0, 4, 64)?;
    verify(&mr, 0, 4, 64);
    on.store(false, Ordering::SeqCst);
    mr.deregister()?;
    assert_eq!(context.leaked(), 0);
    Ok(())
}

/// Whatever the kernel answered, the device may use the memory until closing the file ends the
/// region.
fn memory_whose_region_cannot_be_deregistered_goes_when_the_context_closes(bed: &Bed) -> Outcome {
    let (context, on, overrides) = refusing(bed, method::MR_DESTROY, Errno::EBUSY)?;
    let allocated = || overrides.allocated.load(Ordering::SeqCst);
    let before = allocated();
    let mr = context.alloc_pd()?.allocate(64)?;
    fill(&mr, 0, 6, 64)?;
    let start = mr.as_ptr().ok_or("owned")?;
    let with_region = allocated();
    assert!(with_region > before);
    on.store(true, Ordering::SeqCst);
    drop(mr);
    assert_eq!((context.leaked(), allocated()), (1, with_region));
    // SAFETY: the context owns the memory of the region that leaked, 64 bytes and more, while it is
    // open, and nothing writes it any more.
    let kept = unsafe { std::slice::from_raw_parts(start, 64) };
    assert_eq!(kept, pattern(6, 64));
    drop(context);
    assert_eq!(allocated(), 0);
    Ok(())
}

fn a_domain_that_cannot_be_destroyed_comes_back(bed: &Bed) -> Outcome {
    let (context, on, _) = refusing(bed, method::PD_DESTROY, Errno::EBUSY)?;
    let pd = context.alloc_pd()?;
    on.store(true, Ordering::SeqCst);
    let (pd, error) = pd.destroy().expect_err("the kernel refuses").into_parts();
    assert_eq!(error.kind(), ErrorKind::Busy);
    on.store(false, Ordering::SeqCst);
    pd.allocate(64)?;
    pd.destroy()?;
    Ok(())
}
