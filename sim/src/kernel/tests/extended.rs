//! XRC domains, and queue pairs that live in them.

use std::fs::File;
use std::os::fd::AsFd;

use mlx5_uapi::Errno;
use mlx5_uapi::cmd::{qp, xrcd};
use mlx5_uapi::mlx5::CreateQp;
use mlx5_uapi::verbs::{QpAttrMask, QpCap, QpCreateFlags, QpState, QpType};
use mlx5_uapi::write_cmd::ModifyQp;
use nix::fcntl::OFlag;

use super::rig::open;
use crate::firmware::Counts;
use crate::{SimConfig, Simulator};

const CREATE: u32 = OFlag::O_CREAT.bits() as u32;
const EXCLUSIVE: u32 = (OFlag::O_CREAT.bits() | OFlag::O_EXCL.bits()) as u32;

#[test]
fn a_domain_is_shared_by_who_can_open_its_file_until_the_last_closes_it() {
    let sim = Simulator::new(SimConfig::new().step(true));
    let (one, other) = (open(&sim, 0).expect("a context"), open(&sim, 0).expect("a context"));
    let path = std::env::current_exe().expect("this program");
    let (first, again) = (File::open(&path).expect("a file"), File::open(&path).expect("a file"));

    assert_eq!(xrcd::open(&*one, Some(first.as_fd()), 0), Err(Errno::EAGAIN), "not created yet");
    let mine = xrcd::open(&*one, Some(first.as_fd()), EXCLUSIVE).expect("a domain");
    let theirs = xrcd::open(&*other, Some(again.as_fd()), 0).expect("the same domain");
    assert_eq!(xrcd::open(&*one, Some(first.as_fd()), EXCLUSIVE), Err(Errno::EINVAL));
    let third = xrcd::open(&*one, Some(first.as_fd()), CREATE).expect("the same domain");
    let private = xrcd::open(&*one, None, 0).expect("a domain");
    assert_eq!(sim.object_counts(0).xrcds, 2);

    xrcd::close(&*one, mine).expect("not the last");
    xrcd::close(&*other, theirs).expect("not the last");
    assert_eq!(sim.object_counts(0).xrcds, 2);
    xrcd::close(&*one, third).expect("the last");
    assert_eq!(sim.object_counts(0).xrcds, 1);
    xrcd::close(&*one, private).expect("its only handle");
    drop((one, other));
    assert_eq!(sim.object_counts(0), Counts::default());
}

#[test]
fn a_target_has_as_many_handles_as_it_was_opened_and_goes_with_the_last() {
    let sim = Simulator::new(SimConfig::new().step(true));
    let (one, other) = (open(&sim, 0).expect("a context"), open(&sim, 0).expect("a context"));
    let file = File::open(std::env::current_exe().expect("this program")).expect("a file");
    let mine = xrcd::open(&*one, Some(file.as_fd()), CREATE).expect("a domain");
    let theirs = xrcd::open(&*other, Some(file.as_fd()), 0).expect("the same domain");
    let private = xrcd::open(&*other, None, 0).expect("another domain");
    let request = qp::CreateQp {
        qp_type: QpType::XrcTgt,
        pd: None,
        xrcd: Some(mine),
        send_cq: None,
        recv_cq: None,
        srq: None,
        user_handle: 1,
        cap: QpCap::default(),
        flags: QpCreateFlags::empty(),
        source_qpn: None,
        async_events: None,
        driver: CreateQp::default(),
    };
    // SAFETY: the request names no memory.
    let made = unsafe { qp::create(&*one, &request) }.expect("a target");
    let number = made.qp_num;

    for (domain, number) in [(theirs, number + 1), (private, number), (99, number)] {
        assert!(qp::open(&*other, domain, number, 2).is_err(), "{number:#x} of {domain}");
    }
    let (opened, same) = qp::open(&*other, theirs, number, 2).expect("its number");
    let (again, _) = qp::open(&*one, mine, number, 3).expect("its number");
    assert_eq!(same, number);
    assert_ne!(again, made.handle);
    assert_eq!(xrcd::close(&*other, theirs), Err(Errno::EBUSY), "a handle is in it");

    // A change through one handle shows in the others.
    let to_init = ModifyQp {
        qp_handle: opened,
        attr_mask: (QpAttrMask::STATE
            | QpAttrMask::PKEY_INDEX
            | QpAttrMask::PORT
            | QpAttrMask::ACCESS_FLAGS)
            .bits(),
        qp_state: QpState::Init.raw(),
        port_num: 1,
        ..ModifyQp::default()
    };
    qp::modify(&*other, &to_init).expect("to INIT");
    let state = |handle| qp::query(&*one, handle, QpAttrMask::all()).expect("a state").qp_state;
    assert_eq!([state(made.handle), state(again)], [QpState::Init.raw(); 2]);
    let second = ModifyQp { qp_handle: made.handle, ..to_init };
    assert_eq!(qp::modify(&*one, &second), Ok(()), "from INIT to INIT");

    qp::destroy(&*one, made.handle).expect("not the last");
    qp::destroy(&*one, again).expect("not the last");
    assert_eq!(sim.object_counts(0).qps, 1);
    // A process that ends gives up its handles.
    drop(other);
    assert_eq!(sim.object_counts(0).qps, 0);
    assert_eq!(qp::open(&*one, mine, number, 4), Err(Errno::EINVAL), "it is gone");
    drop(one);
    assert_eq!(sim.object_counts(0), Counts::default());
}
