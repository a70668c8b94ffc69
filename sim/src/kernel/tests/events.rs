//! Event files.

use std::os::fd::AsFd;

use mlx5_prm::wqe::Opcode;
use mlx5_uapi::Errno;
use mlx5_uapi::cmd::event::{alloc_async, create_comp_channel, next_async, next_completion};
use mlx5_uapi::cmd::{self, cq, qp, srq};
use mlx5_uapi::mlx5::UarType;
use mlx5_uapi::verbs::{EventType, QpState, QpType, SrqAttrMask};
use mlx5_uapi::wait::wait_readable;

use super::rig::{Session, TestCqOptions, init, rtr, rts};
use crate::engine::DrainAt;
use crate::{Fault, SimConfig, Simulator};

#[test]
fn an_armed_queue_reports_to_its_channel_and_destruction_counts() {
    let session = Session::new();
    let channel = create_comp_channel(&*session.file).expect("a channel");
    let options =
        TestCqOptions { user_handle: 0xc0, channel: Some(channel.as_fd()), ..Default::default() };
    let mut cq = session.try_cq(&options).expect("a CQ");
    let mut qp = session.qp(QpType::Rc, &cq);
    session.modify(&init(&qp)).expect("INIT");
    session.modify(&rtr(&qp, qp.qp.qp_num, session.path())).expect("RTR");
    session.modify(&rts(&qp)).expect("RTS");

    let nop = |qp: &mut super::rig::TestQp| {
        let wqe = qp.wqe(Opcode::Nop, &[]);
        session.post(qp, &wqe);
    };
    nop(&mut qp);
    assert!(next_completion(&*channel).expect("open").is_none());
    cq.expect();
    session.arm(&cq, 0);
    session.sim.run_until_idle();
    assert!(next_completion(&*channel).expect("open").is_none());
    nop(&mut qp);
    assert!(wait_readable(channel.as_fd(), Some(std::time::Duration::ZERO)).expect("poll"));
    let event = next_completion(&*channel).expect("open").expect("an event");
    assert_eq!(event.cq_handle, 0xc0);
    assert!(next_completion(&*channel).expect("open").is_none());

    // One more event, never read: it is not counted, and goes with the queue.
    session.arm(&cq, 1);
    session.sim.run_until_idle();
    assert_eq!(qp::destroy(&*session.file, qp.qp.handle), Ok(0));
    let counts = cq::destroy(&*session.file, cq.cq.handle).expect("a CQ");
    assert_eq!(counts.comp_events_reported, 1);
    assert!(next_completion(&*channel).expect("open").is_none());
}

#[test]
fn asynchronous_events_name_the_object_and_the_port() {
    let session = Session::new();
    let events = alloc_async(&*session.file).expect("a file");
    let cq = session.cq();
    let (one, other) = (session.qp(QpType::Rc, &cq), session.qp(QpType::Rc, &cq));
    session.connect(&one, &other);
    let (srq, _memory) = session.try_srq(7).expect("an SRQ");
    let next = || {
        let event = next_async(&*events).expect("open")?;
        Some((EventType::from_raw(event.event_type).expect("known"), event.element))
    };
    assert_eq!(next(), None);
    session.sim.drain_qp(0, one.qp.qp_num, DrainAt::Now).expect("RTS");
    assert_eq!(next(), Some((EventType::SqDrained, 0x9d)));
    srq::modify(&*session.file, srq.handle, SrqAttrMask::LIMIT, 0, 2).expect("a limit");
    assert_eq!(next(), Some((EventType::SrqLimitReached, 0x5e)));
    session.sim.set_port_active(0, 1, false);
    session.sim.set_port_active(0, 1, true);
    assert_eq!(next(), Some((EventType::PortError, 1)));
    assert_eq!(next(), Some((EventType::PortActive, 1)));
    session.sim.inject(0, Fault::OverrunCq(cq.cq.cqn));
    assert_eq!(next(), Some((EventType::CqError, 0)));
    assert_eq!(qp::destroy(&*session.file, one.qp.handle), Ok(1));
    assert_eq!(srq::destroy(&*session.file, srq.handle), Ok(1));
}

#[test]
fn a_removed_device_says_so_and_answers_nothing_more() {
    let sim = Simulator::new(SimConfig::new().devices(2).step(true));
    let session = Session::on(&sim, 0).expect("a session");
    let bystander = Session::on(&sim, 1).expect("a session");
    let events = alloc_async(&*session.file).expect("a file");
    let quiet = alloc_async(&*bystander.file).expect("a file");
    let channel = create_comp_channel(&*session.file).expect("a channel");
    let options = TestCqOptions { channel: Some(channel.as_fd()), ..Default::default() };
    let mut cq = session.try_cq(&options).expect("a CQ");
    let mut qp = session.qp(QpType::Rc, &cq);
    session.connect(&qp, &qp);
    // One event that is read, and one that goes with the queue.
    for sequence in 0..2 {
        session.arm(&cq, sequence);
        let wqe = qp.wqe(Opcode::Nop, &[]);
        session.post(&mut qp, &wqe);
        cq.expect();
        if sequence == 0 {
            next_completion(&*channel).expect("open").expect("an event");
        }
    }
    let uar = cmd::uar::alloc(&*session.file, UarType::NonCached).expect("a UAR");
    sim.remove_device(0);

    let event = next_async(&*events).expect("an event first").expect("an event first");
    assert_eq!(event.event_type, EventType::DeviceFatal.raw());
    assert_eq!(next_async(&*events).map(drop), Err(Errno::EIO));
    assert_eq!(next_completion(&*channel).map(drop), Err(Errno::EIO));
    assert!(wait_readable(channel.as_fd(), Some(std::time::Duration::ZERO)).expect("poll"));
    assert_eq!(session.modify(&init(&qp)), Err(Errno::EIO));
    // The core's objects have ended: their handles can be closed in any order, and once.
    assert_eq!(cq::destroy(&*session.file, qp.qp.handle).map(drop), Err(Errno::EINVAL));
    let counts = cq::destroy(&*session.file, cq.cq.handle).expect("a CQ");
    assert_eq!((counts.comp_events_reported, counts.async_events_reported), (1, 0));
    assert_eq!(cmd::pd::dealloc(&*session.file, session.pd.handle), Ok(()));
    assert_eq!(qp::destroy(&*session.file, qp.qp.handle), Ok(0));
    assert_eq!(qp::destroy(&*session.file, qp.qp.handle), Err(Errno::ENOENT));
    // The driver's methods are gone with it.
    assert_eq!(cmd::uar::destroy(&*session.file, uar.handle), Err(Errno::EIO));
    assert_eq!(sim.object_counts(0).qps, 0);
    // A doorbell on the dead page does no harm, and the other device goes on.
    session.ring(0x800, [0xff; 8]);
    sim.run_until_idle();
    assert!(next_async(&*quiet).expect("open").is_none());
    let _held = bystander.cq();
    let left = mlx5_uapi::sysfs::devices(&*sim.kernel()).expect("sysfs");
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].name, "mlx5_1");
    assert_eq!(sim.violations(), []);
}

#[test]
fn an_unknown_descriptor_is_no_channel() {
    let session = Session::new();
    let events = alloc_async(&*session.file).expect("a file");
    let options = TestCqOptions { channel: Some(events.as_fd()), ..Default::default() };
    assert_eq!(session.try_cq(&options).map(drop), Err(Errno::EBADF));
    // SAFETY: the simulated kernel looks the number up.
    assert_eq!(unsafe { session.file.event_file(9999) }.map(drop), Err(Errno::EBADF));
}

#[test]
fn a_fatal_device_is_still_torn_down() {
    let session = Session::new();
    let cq = session.cq();
    let qp = session.qp(QpType::Rc, &cq);
    session.modify(&init(&qp)).expect("INIT");
    session.sim.inject(0, Fault::Fatal);
    assert_eq!(session.try_cq(&TestCqOptions::default()).map(drop), Err(Errno::EIO));
    assert_eq!(session.modify(&super::rig::to(&qp, QpState::Err)), Ok(()));
    qp::destroy(&*session.file, qp.qp.handle).expect("a QP");
    cq::destroy(&*session.file, cq.cq.handle).expect("a CQ");
}
