//! Events that DEVX subscribed to, and answers to queries in the background.

use std::os::fd::AsFd;

use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::cq::{CqStatus, CreateCqIn, CreateCqOut, ModifyCqIn, QueryCqIn, QueryCqOut};
use mlx5_prm::event::{CqErrorSyndrome, Eqe, EventType, PortChange};
use mlx5_uapi::cmd::devx::{self, EventFileFlags, Notice, PageSizes, UmemReg};
use mlx5_uapi::verbs::AccessFlags;
use mlx5_uapi::wait::wait_readable;
use mlx5_uapi::{Errno, EventFile};
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::rig::{Memory, Session};
use crate::{Fault, SimConfig, Simulator};

const HEADER: usize = 8;
const RECORD: usize = HEADER + Eqe::BYTES;
const COMP: u16 = EventType::COMP.0 as u16;
const CQ_ERROR: u16 = EventType::CQ_ERROR.0 as u16;
const PORT_CHANGE: u16 = EventType::PORT_CHANGE.0 as u16;

/// On a machine that offers event files.
fn session() -> Session {
    Session::with(SimConfig::new().devx_events(true))
}

/// A completion queue that a command made.
struct Cq {
    cqn: u32,
    handle: u32,
    _memory: Memory,
}

fn cq(session: &Session) -> Cq {
    let file = &*session.file;
    let memory = Memory::new(file, 8192).expect("memory");
    let what = UmemReg {
        addr: memory.at(0),
        len: 8192,
        access: AccessFlags::LOCAL_WRITE,
        page_sizes: PageSizes::Any,
        dmabuf: None,
    };
    // SAFETY: the test keeps the memory, and nothing completes into it.
    let umem = unsafe { devx::umem_reg(file, &what) }.expect("memory");
    let mut input = CreateCqIn::request();
    input.set_cq_umem_id(umem.id);
    input
        .cqc_mut()
        .set_log_cq_size(2)
        .set_dbr_umem_id(umem.id)
        .set_dbr_addr(4096)
        .set_uar_page(session.uar.page_id)
        .set_c_eqn_or_apu_element(devx::query_eqn(file, 0).expect("a vector"));
    let mut output = CreateCqOut::default();
    // SAFETY: the queue keeps the memory, and nothing completes into it.
    let made = unsafe { devx::obj_create(file, input.as_bytes(), output.as_bytes_mut()) };
    Cq { cqn: output.cqn(), handle: made.expect("a CQ"), _memory: memory }
}

fn overrun(sim: &Simulator, cq: &Cq) {
    sim.inject(0, Fault::OverrunCq(cq.cqn));
}

fn events(session: &Session, flags: EventFileFlags) -> Box<dyn EventFile> {
    devx::alloc_event_file(&*session.file, flags).expect("a file")
}

/// The next record of a file: its cookie, and the event.
fn next(file: &dyn EventFile) -> Result<(u64, Eqe), Errno> {
    let mut record = [0; RECORD];
    assert_eq!(file.read(&mut record)?, RECORD);
    let (cookie, entry) = record.split_at(HEADER);
    let entry = Eqe::from_bytes(entry).expect("an entry");
    Ok((u64::from_ne_bytes(cookie.try_into().expect("eight bytes")), *entry))
}

fn readable(file: &dyn EventFile) -> bool {
    wait_readable(file.as_fd(), Some(std::time::Duration::ZERO)).expect("poll")
}

#[test]
fn events_come_to_each_subscription_with_its_cookie() {
    let session = session();
    let (device, file) = (&*session.file, events(&session, EventFileFlags::empty()));
    let (one, other) = (cq(&session), cq(&session));
    let subscribe = |object, kinds: &[u16], cookie| {
        devx::subscribe(device, file.as_fd(), object, kinds, Notice::Cookie(cookie))
    };
    subscribe(Some(one.handle), &[COMP, CQ_ERROR], 7).expect("a subscription");
    subscribe(Some(one.handle), &[CQ_ERROR], 8).expect("a subscription");
    subscribe(None, &[PORT_CHANGE], u64::MAX).expect("a subscription");
    overrun(&session.sim, &other);
    assert_eq!(next(&*file).err(), Some(Errno::EAGAIN));
    overrun(&session.sim, &one);
    session.sim.set_port_active(0, 1, false);
    assert_eq!(file.read(&mut [0; RECORD - 1]), Err(Errno::EINVAL));
    for cookie in [7, 8] {
        let (found, entry) = next(&*file).expect("an event");
        assert_eq!((found, entry.event_type()), (cookie, CQ_ERROR.into()));
        let error = entry.cq_error();
        assert_eq!((error.cqn(), error.syndrome()), (one.cqn, CqErrorSyndrome::CQ_OVERRUN.0));
    }
    let (cookie, entry) = next(&*file).expect("an event");
    assert_eq!((cookie, entry.event_type()), (u64::MAX, PORT_CHANGE.into()));
    assert_eq!((entry.event_sub_type(), entry.port().port()), (PortChange::DOWN.0, 1));
    assert!(!readable(&*file));
}

#[test]
fn an_event_without_its_data_waits_once() {
    let session = session();
    let (device, file) = (&*session.file, events(&session, EventFileFlags::OMIT_DATA));
    for cookie in [3, 4] {
        let notice = Notice::Cookie(cookie);
        devx::subscribe(device, file.as_fd(), None, &[PORT_CHANGE], notice)
            .expect("a subscription");
    }
    for active in [false, true, false] {
        session.sim.set_port_active(0, 1, active);
    }
    let mut record = [0; RECORD];
    for cookie in [3, 4] {
        assert_eq!(file.read(&mut record), Ok(HEADER));
        assert_eq!(record[0], cookie);
    }
    assert_eq!(file.read(&mut record), Err(Errno::EAGAIN));
    session.sim.set_port_active(0, 1, true);
    assert_eq!(file.read(&mut record), Ok(HEADER));
}

#[test]
fn an_eventfd_is_signalled_instead_until_the_file_is_closed() {
    let session = session();
    let (device, file) = (&*session.file, events(&session, EventFileFlags::empty()));
    let eventfd = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).expect("an eventfd");
    let notice = Notice::EventFd(eventfd.as_fd());
    devx::subscribe(device, file.as_fd(), None, &[PORT_CHANGE], notice).expect("a subscription");
    session.sim.set_port_active(0, 1, false);
    session.sim.set_port_active(0, 1, true);
    assert_eq!(eventfd.read(), Ok(2));
    assert!(!readable(&*file));
    // A full eventfd does not block the device.
    eventfd.write(u64::MAX - 1).expect("room");
    session.sim.set_port_active(0, 1, false);
    assert_eq!(eventfd.read(), Ok(u64::MAX - 1));
    drop(file);
    session.sim.set_port_active(0, 1, true);
    assert_eq!(eventfd.read(), Err(Errno::EAGAIN));
}

#[test]
fn subscriptions_are_checked_before_any_is_made() {
    let session = session();
    let (device, file) = (&*session.file, events(&session, EventFileFlags::empty()));
    let answers = devx::alloc_command_file(device).expect("a file");
    let (cq, verbs) = (cq(&session), session.cq());
    let try_with =
        |fd, object, kinds: &[u16]| devx::subscribe(device, fd, object, kinds, Notice::Cookie(1));
    let refused = [
        (file.as_fd(), Some(cq.handle), &[PORT_CHANGE][..], Errno::EINVAL),
        (file.as_fd(), None, &[PORT_CHANGE, COMP], Errno::EINVAL),
        (file.as_fd(), None, &[], Errno::EINVAL),
        (file.as_fd(), None, &[PORT_CHANGE; 17], Errno::EINVAL),
        (file.as_fd(), Some(verbs.cq.handle), &[COMP], Errno::EINVAL),
        (file.as_fd(), Some(4321), &[COMP], Errno::ENOENT),
        (answers.as_fd(), None, &[PORT_CHANGE], Errno::EBADF),
    ];
    for (fd, object, kinds, errno) in refused {
        assert_eq!(try_with(fd, object, kinds), Err(errno), "{object:?}, {kinds:?}");
    }
    let not_eventfd = Notice::EventFd(file.as_fd());
    let null = std::fs::File::open("/dev/null").expect("a file");
    let subscribe = |notice| devx::subscribe(device, file.as_fd(), None, &[PORT_CHANGE], notice);
    assert_eq!(subscribe(Notice::EventFd(null.as_fd())), Err(Errno::EINVAL));
    // Nor are the kernel's own descriptors.
    assert_eq!(subscribe(not_eventfd), Err(Errno::EINVAL));
    session.sim.set_port_active(0, 1, false);
    assert_eq!(next(&*file).err(), Some(Errno::EAGAIN));
    let unknown = EventFileFlags::from_bits_retain(2);
    assert_eq!(devx::alloc_event_file(device, unknown).err(), Some(Errno::EINVAL));
}

#[test]
fn what_came_of_an_object_is_read_after_its_end() {
    let session = session();
    let (device, file) = (&*session.file, events(&session, EventFileFlags::empty()));
    let subscribe = |cq: &Cq, cookie| {
        let notice = Notice::Cookie(cookie);
        devx::subscribe(device, file.as_fd(), Some(cq.handle), &[CQ_ERROR], notice)
    };
    let one = cq(&session);
    subscribe(&one, 1).expect("a subscription");
    overrun(&session.sim, &one);
    devx::obj_destroy(device, one.handle).expect("a CQ");
    assert_eq!(next(&*file).map(|(cookie, _)| cookie), Ok(1));
    assert_eq!(next(&*file).err(), Some(Errno::EAGAIN));
}

#[test]
fn a_lost_device_takes_what_waits_along() {
    let session = session();
    let device = &*session.file;
    let (file, answers) = (
        events(&session, EventFileFlags::empty()),
        devx::alloc_command_file(device).expect("a file"),
    );
    let notice = Notice::Cookie(1);
    devx::subscribe(device, file.as_fd(), None, &[PORT_CHANGE], notice).expect("a subscription");
    session.sim.set_port_active(0, 1, false);
    session.sim.inject(0, Fault::Remove);
    assert!(readable(&*file) && readable(&*answers));
    assert_eq!(next(&*file).err(), Some(Errno::EIO));
    assert_eq!(answers.read(&mut [0; 64]), Err(Errno::EIO));
}

#[test]
fn answers_come_with_the_numbers_of_their_queries() {
    let session = session();
    let device = &*session.file;
    let answers = devx::alloc_command_file(device).expect("a file");
    let (one, other) = (cq(&session), cq(&session));
    let mut input = QueryCqIn::request();
    let mut ask = |of: &Cq, handle, length, number| {
        input.set_cqn(of.cqn);
        let fd = answers.as_fd();
        devx::obj_query_async(device, handle, input.as_bytes(), length, number, fd)
    };
    overrun(&session.sim, &one);
    let whole = QueryCqOut::BYTES as u64;
    ask(&one, one.handle, whole, 5).expect("a query");
    ask(&other, other.handle, whole, u64::MAX).expect("a query");
    assert_eq!(ask(&one, other.handle, whole, 6), Err(Errno::EINVAL));
    assert_eq!(ask(&one, one.handle, 1 << 16, 6), Err(Errno::EINVAL));
    let mut record = vec![0; HEADER + QueryCqOut::BYTES];
    let short = HEADER + QueryCqOut::BYTES - 1;
    assert_eq!(answers.read(&mut record[..short]), Err(Errno::ENOSPC));
    for (number, status) in [(5, CqStatus::OVERFLOW), (u64::MAX, CqStatus::OK)] {
        assert_eq!(answers.read(&mut record), Ok(record.len()));
        let (head, output) = record.split_at(HEADER);
        assert_eq!(head, number.to_ne_bytes());
        let output = QueryCqOut::from_bytes(output).expect("an answer");
        assert_eq!((output.status(), output.cqc().status()), (0, status.0));
    }
    assert!(!readable(&*answers));

    // The waiting answers are bounded.
    for number in 0..16 {
        ask(&one, one.handle, u16::MAX.into(), number).expect("a query");
    }
    assert_eq!(ask(&one, one.handle, u16::MAX.into(), 16), Err(Errno::EAGAIN));
    ask(&one, one.handle, 16, 17).expect("a query");
}

#[test]
fn an_answer_has_the_length_that_was_asked_for_and_a_change_is_no_query() {
    let session = session();
    let device = &*session.file;
    let answers = devx::alloc_command_file(device).expect("a file");
    let one = cq(&session);
    let mut input = QueryCqIn::request();
    input.set_cqn(one.cqn);
    let ask =
        |input: &[u8]| devx::obj_query_async(device, one.handle, input, 16, 9, answers.as_fd());
    assert_eq!(ask(input.as_bytes()), Ok(()));
    assert_eq!(answers.read(&mut [0; 64]), Ok(HEADER + 16));
    let mut input = ModifyCqIn::request();
    input.set_cqn(one.cqn);
    assert_eq!(ask(input.as_bytes()), Err(Errno::EINVAL));
    assert!(!readable(&*answers));
}

#[test]
fn a_machine_without_event_files_does_not_know_the_method() {
    let events = devx::alloc_event_file(&*Session::new().file, EventFileFlags::OMIT_DATA);
    assert_eq!(events.err(), Some(Errno::EPROTONOSUPPORT));
}
