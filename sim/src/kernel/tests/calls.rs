//! Malformed calls, with the kernel's errors.

use mlx5_uapi::call::Call;
use mlx5_uapi::cmd::{context, cq, pd};
use mlx5_uapi::ioctl::{AttrId, IoctlHeader, Method, attr, method, object};
use mlx5_uapi::verbs::CqFlags;
use mlx5_uapi::write_cmd::{self, WriteCommand};
use mlx5_uapi::{Errno, mlx5, sysfs};

use super::rig::{Session, TestCqOptions, open, request};
use crate::{SimConfig, Simulator};

#[test]
fn the_probe_is_answered_without_a_context() {
    let sim = Simulator::new(SimConfig::new().step(true));
    let kernel = sim.kernel();
    let info = &sysfs::devices(&*kernel).expect("sysfs")[0];
    let file = kernel.open(&info.uverbs, info.dev).expect("a file");
    let (command, none) = (WriteCommand::QUERY_DEVICE, &mut []);
    // SAFETY: the command names no memory.
    let answer = unsafe { write_cmd::invoke_write(&*file, command, &[], none, &[], &mut []) };
    assert_eq!(answer, Err(Errno::ENOSPC));
    assert!(context::probe(&*file).is_ok());
    // Nothing can be made yet.
    assert_eq!(pd::alloc(&*file), Err(Errno::EINVAL));
    assert_eq!(sim.object_counts(0), Default::default());
}

#[test]
fn a_context_is_opened_once_and_says_what_it_has() {
    let sim = Simulator::new(SimConfig::new().step(true));
    let file = open(&sim, 0).expect("a context");
    assert_eq!(context::get_context(&*file, &request(1)).map(drop), Err(Errno::EINVAL));
    drop(file);

    let kernel = sim.kernel();
    let info = &sysfs::devices(&*kernel).expect("sysfs")[0];
    let file = kernel.open(&info.uverbs, info.dev).expect("a file");
    let answer = context::get_context(&*file, &request(1)).expect("a context");
    assert!(answer.devx && answer.lib_caps);
    assert_eq!(answer.driver.tot_bfregs, 0);
    assert_eq!(answer.driver.bf_reg_size, 512);
    assert_eq!((answer.driver.cqe_version, answer.driver.num_ports), (1, 1));
    assert_eq!(answer.driver.max_send_wqebb, 1 << 15);
    assert_eq!((answer.driver.log_uar_size, answer.driver.num_uars_per_page), (12, 1));
}

#[test]
fn without_devx_a_context_is_given_to_those_who_do_not_ask_for_it() {
    let sim = Simulator::new(SimConfig::new().step(true).devx(false));
    let kernel = sim.kernel();
    let info = &sysfs::devices(&*kernel).expect("sysfs")[0];
    let file = kernel.open(&info.uverbs, info.dev).expect("a file");
    let answer = context::get_context(&*file, &request(1)).expect("a context");
    assert!(!answer.devx);
    assert_eq!(sim.object_counts(0).contexts, 0);
}

#[test]
fn a_node_with_other_numbers_is_not_opened() {
    let sim = Simulator::new(SimConfig::new().step(true));
    let kernel = sim.kernel();
    assert_eq!(kernel.open("uverbs0", (1, 3)).map(drop), Err(Errno::ENXIO));
    assert_eq!(kernel.open("uverbs1", (231, 193)).map(drop), Err(Errno::ENOENT));
}

#[test]
fn malformed_calls_are_refused() {
    let session = Session::new();
    let file = &*session.file;
    let run = |call: &mut Call<'_>| {
        // SAFETY: the calls name no memory.
        unsafe { call.run(file) }.map(drop)
    };
    // No such object, no such method.
    let mut call = Call::new(Method { object: 0x77, id: 0 });
    assert_eq!(run(&mut call), Err(Errno::EPROTONOSUPPORT));
    let mut call = Call::new(Method { object: object::PD, id: 7 });
    assert_eq!(run(&mut call), Err(Errno::EPROTONOSUPPORT));
    // An attribute that the method does not know: refused if mandatory, else overlooked.
    let (handle, number) = (attr::destroy_pd::HANDLE, session.pd.handle);
    let mut call = Call::new(method::PD_DESTROY);
    call.handle(handle, number).input_u32(AttrId(99), 0);
    assert_eq!(run(&mut call), Err(Errno::EPROTONOSUPPORT));
    // A missing one, one twice, one of the wrong length, a handle of another kind or of nothing.
    assert_eq!(run(&mut Call::new(method::PD_DESTROY)), Err(Errno::EINVAL));
    let mut call = Call::new(method::PD_DESTROY);
    call.handle(handle, number).handle(handle, number);
    assert_eq!(run(&mut call), Err(Errno::EINVAL));
    let mut call = Call::new(method::PD_DESTROY);
    call.input_u32(handle, number);
    assert_eq!(run(&mut call), Err(Errno::EINVAL));
    let mut call = Call::new(method::PD_DESTROY);
    call.handle(handle, session.uar.handle);
    assert_eq!(run(&mut call), Err(Errno::EINVAL));
    let mut call = Call::new(method::PD_DESTROY);
    call.handle(handle, 1234);
    assert_eq!(run(&mut call), Err(Errno::ENOENT));
    // All of that changed nothing.
    let mut call = Call::new(method::PD_DESTROY);
    call.handle(handle, number).input_u32(AttrId(99), 0).optional();
    assert_eq!(run(&mut call), Ok(()));
}

#[test]
fn a_header_that_contradicts_itself_is_refused() {
    let session = Session::new();
    let good = IoctlHeader {
        length: 24,
        object_id: object::DEVICE,
        method_id: 4,
        driver_id: 1,
        ..IoctlHeader::default()
    };
    let run = |mut header: IoctlHeader| {
        // SAFETY: no attribute follows, and none is counted.
        unsafe { session.file.ioctl(&raw mut header) }
    };
    assert_eq!(run(good), Ok(()));
    assert_eq!(run(IoctlHeader { length: 40, ..good }), Err(Errno::EINVAL));
    assert_eq!(run(IoctlHeader { driver_id: 2, ..good }), Err(Errno::EINVAL));
    assert_eq!(run(IoctlHeader { reserved1: 1, ..good }), Err(Errno::EPROTONOSUPPORT));
}

#[test]
fn a_completion_queue_s_parameters_are_checked() {
    let session = Session::new();
    let refused = session.try_cq(&TestCqOptions { vector: 8, ..Default::default() });
    assert_eq!(refused.map(drop), Err(Errno::EINVAL));
    let memory = session.file.allocate(&mlx5_uapi::MemoryRequest::new(8192)).expect("memory");
    let good = cq::CreateCq {
        cqe: 63,
        user_handle: 0,
        comp_channel: None,
        comp_vector: 0,
        flags: CqFlags::empty(),
        async_events: None,
        driver: mlx5::CreateCq {
            buf_addr: memory.as_ptr() as u64,
            db_addr: memory.as_ptr() as u64 + 4096,
            cqe_size: 64,
            flags: mlx5::CreateCqFlags::UAR_PAGE_INDEX.bits(),
            uar_page_index: session.uar.page_id as u16,
            ..mlx5::CreateCq::default()
        },
        uar_index: None,
    };
    let create = |what: &cq::CreateCq<'_>| {
        // SAFETY: the memory lives longer than the queue.
        unsafe { cq::create(&*session.file, what) }
    };
    let with = |change: fn(&mut cq::CreateCq<'_>)| {
        let mut what = good;
        change(&mut what);
        create(&what).map(|cq| cq.cqe)
    };
    assert_eq!(with(|what| what.cqe = 1 << 22), Err(Errno::EINVAL));
    assert_eq!(with(|what| what.driver.cqe_size = 32), Err(Errno::EINVAL));
    assert_eq!(with(|what| what.driver.reserved0 = 1), Err(Errno::EINVAL));
    assert_eq!(with(|what| what.driver.flags = 1 << 9), Err(Errno::EINVAL));
    assert_eq!(with(|what| what.driver.flags = 0), Err(Errno::EINVAL));
    assert_eq!(with(|what| what.driver.cqe_comp_en = 1), Err(Errno::EINVAL));
    let both = |what: &mut cq::CreateCq<'_>| {
        (what.driver.cqe_comp_en, what.driver.cqe_comp_res_format) = (1, 0b11);
    };
    assert_eq!(with(both), Err(Errno::EINVAL));
    assert_eq!(with(|what| what.driver.buf_addr += 32), Err(Errno::EINVAL));
    assert_eq!(with(|what| what.driver.buf_addr = 0x1000), Err(Errno::EFAULT));
    assert_eq!(with(|what| what.driver.db_addr += 4), Err(Errno::EINVAL));
    assert_eq!(with(|what| what.driver.uar_page_index = 0x3333), Err(Errno::EINVAL));
    assert_eq!(session.sim.object_counts(0).cqs, 0);
    let made = create(&good).expect("a CQ");
    assert_eq!(made.cqe, 63);
    let events = cq::destroy(&*session.file, made.handle).expect("a CQ");
    assert_eq!((events.comp_events_reported, events.async_events_reported), (0, 0));
}

#[test]
fn a_completion_queue_is_resized_and_moderated() {
    let session = Session::new();
    let cq = session.cq();
    let larger = session.file.allocate(&mlx5_uapi::MemoryRequest::new(16384)).expect("memory");
    let driver = mlx5::ResizeCq {
        buf_addr: larger.as_ptr() as u64,
        cqe_size: 64,
        ..mlx5::ResizeCq::default()
    };
    // SAFETY: both rings live longer than the queue.
    let given = unsafe { cq::resize(&*session.file, cq.cq.handle, 100, &driver) };
    assert_eq!(given, Ok(127));
    cq::moderate(&*session.file, cq.cq.handle, 8, 100).expect("moderation");
    cq::destroy(&*session.file, cq.cq.handle).expect("a CQ");
    assert_eq!(session.sim.violations(), []);
}
