use super::*;

fn domain() -> (Simulator, ProtectionDomain) {
    let simulator = Simulator::new(infiniband());
    let pd = open(&simulator).alloc_pd().unwrap();
    (simulator, pd)
}

#[test]
fn owned_memory_is_zeroed_aligned_and_copied_to_and_from() {
    let (_simulator, pd) = domain();
    let region = pd.memory(5000).align(1 << 16).register().unwrap();
    assert_eq!(region.len(), 5000);
    assert_eq!(region.addr() % (1 << 16), 0);
    assert_eq!(region.access(), Access::LOCAL_WRITE);
    let mut bytes = [1; 5000];
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 5000]);
    region.write_at(4097, b"across a page").unwrap();
    let mut back = [0; 13];
    region.read_at(4097, &mut back).unwrap();
    assert_eq!(&back, b"across a page");
}

#[test]
fn copies_stay_inside_the_region() {
    let (_simulator, pd) = domain();
    let region = pd.allocate(100).unwrap();
    assert_eq!(region.write_at(99, &[1]), Ok(()));
    assert_eq!(region.write_at(100, &[]), Ok(()));
    for (offset, len) in [(100, 1), (96, 5), (101, 0), (usize::MAX, 1), (0, 101)] {
        let error = region.write_at(offset, &vec![0; len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{len} at {offset}");
        assert!(region.read_at(offset, &mut vec![0; len]).is_err(), "{len} at {offset}");
    }
}

#[test]
fn parts_are_named_with_address_length_and_key() {
    let (_simulator, pd) = domain();
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let region = pd.memory(100).access(access).register().unwrap();
    let (addr, lkey) = (region.addr(), region.lkey());
    assert_eq!(region.whole(), Ok(Sge { addr, length: 100, lkey }));
    assert_eq!(region.sge(10..30), Ok(Sge { addr: addr + 10, length: 20, lkey }));
    assert_eq!(region.sge(10..=30), Ok(Sge { addr: addr + 10, length: 21, lkey }));
    assert_eq!(region.sge(100..), Ok(Sge { addr: addr + 100, length: 0, lkey }));
    let rkey = region.rkey();
    assert_eq!(region.remote(40..), Ok(RemoteAddress { addr: addr + 40, rkey }));
    assert_eq!(region.remote(100..).map(|at| at.addr), Ok(addr + 100));
    let part = region.remote_slice(40..60).unwrap();
    assert_eq!((part.start().addr, part.len()), (addr + 40, 20));
    for part in [90..101, 101..101, 0..usize::MAX] {
        assert_eq!(region.sge(part.clone()).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(region.remote(part).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(region.sge(0..=usize::MAX).is_err());
}

#[test]
fn error_prints_an_outside_range_in_rust_syntax() {
    let (_simulator, pd) = domain();
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let region = pd.memory(4096).access(access).register().unwrap();
    let text = |result: Result<RemoteAddress, Error>| result.unwrap_err().to_string();
    let sge = region.sge(4096..8192).unwrap_err().to_string();
    assert_eq!(sge, "sge: bytes 4096..8192 are not inside the region of 4096 bytes");
    let remote = text(region.remote(..=4096));
    assert_eq!(remote, "remote address: bytes 0..4097 are not inside the region of 4096 bytes");
    let behind = text(region.remote(5000..));
    assert_eq!(behind, "remote address: bytes 5000.. are not inside the region of 4096 bytes");
    let copy = region.read_at(usize::MAX, &mut [0; 2]).unwrap_err().to_string();
    let far =
        "bytes 18446744073709551615..18446744073709551617 are not inside the region of 4096 bytes";
    assert_eq!(copy, format!("read_at: {far}"));
    let last = region.sge(..=usize::MAX).unwrap_err().to_string();
    assert_eq!(last, "sge: bytes 0..18446744073709551616 are not inside the region of 4096 bytes");
    use std::ops::Bound::{Excluded, Unbounded};
    assert!(region.sge((Excluded(usize::MAX), Unbounded)).is_err());
}

#[test]
fn a_region_that_no_peer_may_reach_has_no_remote_address() {
    let (_simulator, pd) = domain();
    let local = [Access::empty(), Access::LOCAL_WRITE, Access::LOCAL_WRITE | Access::MW_BIND];
    for access in local {
        let region = pd.memory(64).access(access).register().unwrap();
        for refused in [region.remote(..), region.remote(0..0), region.remote(64..)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("REMOTE_READ, REMOTE_WRITE"), "{error}");
        }
        assert!(region.remote_slice(..).is_err());
    }
    let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let atomics = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
    for access in [Access::REMOTE_READ, writes, atomics] {
        let region = pd.memory(64).access(access).register().unwrap();
        assert!(region.remote(..).is_ok() && region.remote_slice(64..).is_ok());
    }
}

#[test]
fn rights_and_length_from_reregistering_decide_on_remote_addresses() {
    let (_simulator, pd) = domain();
    let region = pd.memory(64).register().unwrap();
    let region = region.reregister().access(Access::REMOTE_READ).apply().unwrap();
    assert!(region.remote(0..64).is_ok() && region.remote(0..65).is_err());
    let region = region.reregister().memory(8192).apply().unwrap();
    assert_eq!(region.remote_slice(..).map(|all| all.len()), Ok(8192));
    let region = region.reregister().access(Access::LOCAL_WRITE).apply().unwrap();
    assert!(region.remote(..).is_err());
}

#[test]
fn an_entry_longer_than_the_device_takes_is_refused() {
    let (_simulator, pd) = domain();
    let mut page = vec![0_u8; 4096];
    // SAFETY: the vector outlives the region and is not accessed while it is registered.
    let region = unsafe { pd.reg_mr(page.as_mut_ptr(), 4096, Access::LOCAL_WRITE) }.unwrap();
    assert_eq!(region.sge(..).unwrap().length, 4096);
    region.deregister().unwrap();

    let huge = pd.memory((1 << 31) + 4096).access(Access::empty()).register().unwrap();
    assert!(huge.sge(..(1 << 31) - 1).is_ok());
    let error = huge.sge(..1 << 31).unwrap_err();
    assert!(error.to_string().contains("2147483647"), "{error}");
}

#[test]
fn slice_is_borrowed_only_from_memory_that_the_device_may_not_write() {
    let (_simulator, pd) = domain();
    let mut constant = pd.memory(10).access(Access::REMOTE_READ).register().unwrap();
    constant.write_at(3, b"abc").unwrap();
    assert_eq!(constant.as_slice().unwrap(), b"\0\0\0abc\0\0\0\0");
    for access in [Access::LOCAL_WRITE, Access::LOCAL_WRITE | Access::REMOTE_WRITE] {
        let mut region = pd.memory(10).access(access).register().unwrap();
        assert_eq!(region.as_slice().unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn rights_that_do_not_go_together_are_refused_by_name() {
    let (_simulator, pd) = domain();
    let refused = |access| {
        let error = pd.memory(10).access(access).register().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.to_string()
    };
    assert!(refused(Access::REMOTE_WRITE).contains("LOCAL_WRITE"));
    assert!(refused(Access::REMOTE_ATOMIC | Access::REMOTE_READ).contains("LOCAL_WRITE"));
    assert!(refused(Access::ON_DEMAND).contains("foreign"));
    assert!(refused(Access::ZERO_BASED).contains("reg_mr_iova"));
    let relaxed = Access::LOCAL_WRITE | Access::RELAXED_ORDERING;
    assert!(pd.memory(10).access(relaxed).register().is_ok());
}

#[test]
fn sizes_and_alignments_that_cannot_be_are_refused() {
    let (_simulator, pd) = domain();
    assert_eq!(pd.allocate(0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let odd = pd.memory(10).align(3).register().unwrap_err();
    assert!(odd.to_string().contains("power of two"), "{odd}");
    let mut byte = 0_u8;
    // SAFETY: the call is refused before anything is registered.
    let error = unsafe { pd.reg_mr(&raw mut byte, usize::MAX, Access::empty()) }.unwrap_err();
    assert!(error.to_string().contains("exceed the address space"), "{error}");
}

#[test]
fn foreign_memory_is_its_owners_to_reach() {
    let (_simulator, pd) = domain();
    let mut page = vec![0_u8; 8192];
    let start = page.as_mut_ptr();
    let iova = 0x10_0000 + (start.addr() as u64 & 0xfff);
    // SAFETY: the vector outlives the region and is not accessed while it is registered.
    let mut region = unsafe { pd.reg_mr_iova(start, 8192, iova, Access::empty()) }.unwrap();
    assert_eq!(region.addr(), iova);
    assert_eq!(region.sge(8..16).unwrap().addr, iova + 8);
    assert_eq!(region.as_ptr(), None);
    assert!(region.write_at(0, &[1]).is_err() && region.read_at(0, &mut [0]).is_err());
    assert!(region.as_slice().is_err());
}

#[test]
fn threads_may_copy_at_a_time() {
    let (_simulator, pd) = domain();
    let region = pd.allocate(64).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let region = &region;
            scope.spawn(move || {
                let at = usize::from(thread) * 5;
                for round in 0..100 {
                    region.write_at(at, &[thread * 50 + round % 50; 5]).unwrap();
                    let mut back = [0; 5];
                    region.read_at(at, &mut back).unwrap();
                    assert_eq!(back, [thread * 50 + round % 50; 5]);
                }
            });
        }
    });
}
