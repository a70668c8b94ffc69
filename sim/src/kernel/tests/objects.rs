//! Objects: their users, the objects that are left, and memory that is in use.

use mlx5_prm::wqe::Opcode;
use mlx5_uapi::cmd::{cq, dm, mr, mw, pd, qp, srq, uar, xrcd};
use mlx5_uapi::mlx5::{MmapCommand, UarType};
use mlx5_uapi::verbs::{AccessFlags, MwType, QpState, QpType, ReregFlags, SrqAttrMask};
use mlx5_uapi::{Access, Errno, MemoryRequest};
use zerocopy::IntoBytes;

use super::rig::{Session, data, init, open, rtr, rts};
use crate::engine::Holder;
use crate::firmware::Counts;
use crate::{SimConfig, Simulator, Violation};

#[test]
fn an_object_in_use_is_busy_and_stays_as_it_was() {
    let session = Session::new();
    let file = &*session.file;
    let cq = session.cq();
    let region = session.region(4096);
    let (srq, _srq_memory) = session.try_srq(7).expect("an SRQ");
    let qp = session.try_qp(QpType::Rc, &cq, Some(srq.handle)).expect("a QP");

    assert_eq!(pd::dealloc(file, session.pd.handle), Err(Errno::EBUSY));
    assert_eq!(cq::destroy(file, cq.cq.handle).map(drop), Err(Errno::EBUSY));
    assert_eq!(srq::destroy(file, srq.handle), Err(Errno::EBUSY));

    qp::destroy(file, qp.qp.handle).expect("unused");
    cq::destroy(file, cq.cq.handle).expect("unused");
    srq::destroy(file, srq.handle).expect("unused");
    assert_eq!(pd::dealloc(file, session.pd.handle), Err(Errno::EBUSY));
    mr::dereg(file, region.mr.handle).expect("unused");
    pd::dealloc(file, session.pd.handle).expect("unused");
    assert_eq!(pd::dealloc(file, session.pd.handle), Err(Errno::ENOENT));
}

#[test]
fn counts_follow_the_objects_and_nothing_is_left_of_a_closed_file() {
    let sim = Simulator::new(SimConfig::new().step(true));
    assert_eq!(sim.object_counts(0), Counts::default());
    let session = Session::on(&sim, 0).expect("a session");
    let other = open(&sim, 0).expect("another context");
    let cq = session.cq();
    let ud = session.qp(QpType::Ud, &cq);
    let region = session.region(4096);
    let window = mw::alloc(&*session.file, session.pd.handle, MwType::Type2).expect("a window");
    let _domain = xrcd::open(&*session.file, None, 0).expect("a domain");
    let (_srq, srq_memory) = session.try_srq(7).expect("an SRQ");
    let group = [0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    session.modify(&init(&ud)).expect("INIT");
    qp::attach_mcast(&*session.file, ud.qp.handle, group, 0xc001).expect("a group");
    assert_eq!(qp::destroy(&*session.file, ud.qp.handle), Err(Errno::EBUSY));
    assert_ne!(window.rkey, region.mr.rkey);
    assert_eq!(
        sim.object_counts(0),
        Counts {
            pds: 1,
            mkeys: 2,
            cqs: 1,
            qps: 1,
            srqs: 1,
            uars: 1,
            multicast_attachments: 1,
            xrcds: 1,
            transport_domains: 2,
            contexts: 2,
            ..Counts::default()
        }
    );
    // Device pages that are mapped keep the file open, as they do in the kernel.
    let Session { file, page, .. } = session;
    drop(file);
    assert_eq!(sim.object_counts(0).qps, 1);
    drop(page);
    drop(other);
    assert_eq!(sim.object_counts(0), Counts::default());
    drop((cq, ud, region, srq_memory));
    assert_eq!(sim.violations(), []);
}

#[test]
fn memory_freed_while_the_device_holds_it_is_reported_and_kept() {
    let session = Session::new();
    let region = session.region(4096);
    let (key, address) = (region.mr.lkey, region.memory.at(0));
    drop(region.memory);
    let found = session.sim.take_violations();
    let holder = Holder::Mkey(key);
    assert_eq!(found, [Violation::FreedWhileHeld { address, length: 4096, holder }]);
    mr::dereg(&*session.file, region.mr.handle).expect("a region");
    assert_eq!(session.sim.violations(), []);
}

#[test]
fn registration_checks_rights_range_and_memory() {
    let session = Session::new();
    let memory = session.file.allocate(&MemoryRequest::new(8192)).expect("memory");
    let start = memory.as_ptr() as u64;
    let good = mr::Registration {
        pd: session.pd.handle,
        start,
        length: 8192,
        hca_va: start,
        access: AccessFlags::LOCAL_WRITE,
    };
    let reg = |what: &mr::Registration| {
        // SAFETY: the memory outlives the session's regions.
        unsafe { mr::reg(&*session.file, what) }
    };
    let remote_only = mr::Registration { access: AccessFlags::REMOTE_WRITE, ..good };
    assert_eq!(reg(&remote_only), Err(Errno::EINVAL));
    assert_eq!(reg(&mr::Registration { hca_va: start + 1, ..good }), Err(Errno::EINVAL));
    assert_eq!(reg(&mr::Registration { length: 0, ..good }), Err(Errno::EINVAL));
    let hole = mr::Registration { start: 0x1000, hca_va: 0x1000, ..good };
    assert_eq!(reg(&hole), Err(Errno::EFAULT));
    let mr = reg(&good).expect("a region");
    let info = mr::query(&*session.file, mr.handle).expect("a region");
    assert_eq!((info.lkey, info.rkey, info.length, info.iova), (mr.lkey, mr.rkey, 8192, start));

    // Other rights, under the same key.
    let read_only = mr::Registration { access: AccessFlags::empty(), ..good };
    // SAFETY: the memory outlives the session's regions.
    let keys = unsafe { mr::rereg(&*session.file, mr.handle, ReregFlags::ACCESS, &read_only) };
    assert_eq!(keys, Ok((mr.lkey, mr.rkey)));

    // A new address space, in another domain.
    let other = pd::alloc(&*session.file).expect("a PD");
    let flags = ReregFlags::TRANSLATION | ReregFlags::PD;
    let moved = mr::Registration { pd: other.handle, length: 4096, hca_va: 0x7000_0000, ..good };
    // SAFETY: the memory outlives the session's regions.
    let keys = unsafe { mr::rereg(&*session.file, mr.handle, flags, &moved) }.expect("a region");
    let info = mr::query(&*session.file, mr.handle).expect("a region");
    assert_eq!((info.lkey, info.rkey), keys);
    assert_eq!((info.length, info.iova), (4096, 0x7000_0000));
    assert_eq!(pd::dealloc(&*session.file, other.handle), Err(Errno::EBUSY));
    assert_eq!(session.sim.object_counts(0).mkeys, 1);
    mr::dereg(&*session.file, mr.handle).expect("a region");
}

#[test]
fn a_region_with_its_own_address_space_is_reached_by_it() {
    let session = Session::new();
    let mut cq = session.cq();
    let mut qp = session.qp(QpType::Rc, &cq);
    session.modify(&init(&qp)).expect("INIT");
    session.modify(&rtr(&qp, qp.qp.qp_num, session.path())).expect("RTR");
    session.modify(&rts(&qp)).expect("RTS");
    let local = session.region(4096);
    let target = session.region(4096);
    local.memory.write(0, b"here");
    let what = mr::Registration {
        pd: session.pd.handle,
        start: target.memory.at(0),
        length: 4096,
        hca_va: 0,
        access: AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE,
    };
    // SAFETY: the memory outlives the session.
    let mr = unsafe { mr::reg(&*session.file, &what) }.expect("a region");
    let remote = mlx5_prm::wqe::RemoteAddressSegment {
        address: 100.into(),
        rkey: mr.rkey.into(),
        ..Default::default()
    };
    let wqe = qp.wqe(Opcode::RdmaWrite, &[remote.as_bytes(), data(&local, 0, 4).as_bytes()]);
    session.post(&mut qp, &wqe);
    cq.expect();
    assert_eq!(target.memory.read(100, 4), b"here");
    assert_eq!(session.sim.violations(), []);
    mr::dereg(&*session.file, mr.handle).expect("a region");
}

#[test]
fn device_memory_is_mapped_registered_and_given_back() {
    let session = Session::new();
    let file = &*session.file;
    let mut cq = session.cq();
    let mut qp = session.qp(QpType::Rc, &cq);
    session.connect(&qp, &qp);
    assert_eq!(dm::alloc(file, 1 << 20, 0).map(drop), Err(Errno::ENOMEM));
    let first = dm::alloc(file, 5000, 6).expect("device memory");
    let second = dm::alloc(file, 100, 0).expect("device memory");
    assert_ne!(first.page_index, second.page_index);
    let offset = MmapCommand::DeviceMem.offset(first.page_index.into(), 4096);
    let page = file.map(offset, 8192, Access::Write).expect("device memory");
    // SAFETY: the offset is inside the mapping, and no other code accesses the page yet.
    unsafe { page.as_ptr().add(4500).write_volatile(0x6d) };

    let rights = AccessFlags::LOCAL_WRITE | AccessFlags::ZERO_BASED;
    let reg =
        |length, access| mr::reg_dm(file, session.pd.handle, first.handle, 4000, length, access);
    assert_eq!(reg(1001, rights), Err(Errno::EINVAL));
    assert_eq!(reg(1000, AccessFlags::LOCAL_WRITE), Err(Errno::EINVAL));
    let mr = reg(1000, rights).expect("a region");
    assert_eq!(dm::free(file, first.handle), Err(Errno::EBUSY));
    let target = session.region(4096);
    let from = mlx5_prm::wqe::DataSegment {
        byte_count: 1.into(),
        lkey: mr.lkey.into(),
        address: 500.into(),
    };
    let wqe = qp.wqe(Opcode::RdmaWrite, &[super::rig::remote(&target).as_bytes(), from.as_bytes()]);
    session.post(&mut qp, &wqe);
    cq.expect();
    assert_eq!(target.memory.read(0, 1), [0x6d]);

    mr::dereg(file, mr.handle).expect("a region");
    dm::free(file, first.handle).expect("unused");
    assert_eq!(session.sim.object_counts(0).device_memories, 2);
    drop(page);
    assert_eq!(session.sim.object_counts(0).device_memories, 1);
    dm::free(file, second.handle).expect("unused");
    assert_eq!(session.sim.object_counts(0).device_memories, 0);
}

#[test]
fn uar_pages_have_offsets_of_their_own_and_go_when_nobody_maps_them() {
    let session = Session::new();
    let file = &*session.file;
    let other = uar::alloc(file, UarType::NonCached).expect("a UAR");
    assert_ne!(other.mmap_offset, session.uar.mmap_offset);
    assert_ne!(other.page_id, session.uar.page_id);
    assert_eq!(file.map(0, 4096, Access::Write).map(drop), Err(Errno::EINVAL));
    assert_eq!(file.map(other.mmap_offset, 8192, Access::Write).map(drop), Err(Errno::EINVAL));
    let page = file.map(other.mmap_offset, 4096, Access::Write).expect("a page");
    uar::destroy(file, other.handle).expect("a UAR");
    assert_eq!(file.map(other.mmap_offset, 4096, Access::Write).map(drop), Err(Errno::EINVAL));
    assert_eq!(session.sim.object_counts(0).uars, 2);
    drop(page);
    assert_eq!(session.sim.object_counts(0).uars, 1);
}

#[test]
fn a_device_without_blueflame_has_no_pages_for_it() {
    let sim = Simulator::new(SimConfig::new().step(true).blueflame(false));
    let file = open(&sim, 0).expect("a context");
    assert_eq!(uar::alloc(&*file, UarType::BlueFlame), Err(Errno::EOPNOTSUPP));
    uar::alloc(&*file, UarType::NonCached).expect("a UAR");
}

#[test]
fn a_shared_receive_queue_keeps_its_size_and_tells_its_limit() {
    let session = Session::new();
    let file = &*session.file;
    let (srq, _memory) = session.try_srq(7).expect("an SRQ");
    assert_eq!((srq.max_wr, srq.max_sge), (7, 1));
    assert_eq!(srq::modify(file, srq.handle, SrqAttrMask::MAX_WR, 15, 0), Err(Errno::EINVAL));
    assert_eq!(srq::modify(file, srq.handle, SrqAttrMask::LIMIT, 0, 8), Err(Errno::EINVAL));
    let answer = srq::query(file, srq.handle).expect("an SRQ");
    assert_eq!((answer.max_wr, answer.max_sge, answer.srq_limit), (7, 1, 0));
}

#[test]
fn a_failed_queue_pair_can_be_reset_and_used_again() {
    let session = Session::new();
    let mut cq = session.cq();
    let mut qp = session.qp(QpType::Rc, &cq);
    let region = session.region(4096);
    let up = || {
        session.modify(&init(&qp)).expect("INIT");
        session.modify(&rtr(&qp, qp.qp.qp_num, session.path())).expect("RTR");
        session.modify(&rts(&qp)).expect("RTS");
    };
    up();
    let wrong = mlx5_prm::wqe::RemoteAddressSegment::default();
    let wqe = qp.wqe(Opcode::RdmaWrite, &[wrong.as_bytes(), data(&region, 0, 4).as_bytes()]);
    session.post(&mut qp, &wqe);
    assert_eq!(cq.expect().0, mlx5_prm::cqe::CqeOpcode::RequesterError);
    let answer = qp::query(&*session.file, qp.qp.handle, Default::default()).expect("a QP");
    assert_eq!(answer.qp_state, QpState::Err.raw());
    session.modify(&super::rig::to(&qp, QpState::Reset)).expect("RESET");
}
