//! Tests of the encoding of each call.

use std::os::fd::AsFd;

use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::{
    ProbeError,
    fake::{Received, Script},
    ioctl::{
        attr::{self, invoke_write, uhw},
        method,
    },
    mlx5, verbs, write_cmd,
};

mod ethernet;

const REQUEST: mlx5::AllocUcontextReqV2 = mlx5::AllocUcontextReqV2 {
    total_num_bfregs: 16,
    num_low_latency_bfregs: 4,
    flags: mlx5::UcontextFlags::DEVX.bits(),
    comp_mask: 0,
    max_cqe_version: 1,
    reserved0: 0,
    reserved1: 0,
    reserved2: 0,
    lib_caps: 3,
};

fn command(call: &Received<'_>) -> u64 {
    assert_eq!(call.method, method::INVOKE_WRITE);
    call.u64(invoke_write::WRITE_CMD)
}

fn core_in<T: FromBytes>(call: &Received<'_>) -> T {
    T::read_from_bytes(&call.input(invoke_write::CORE_IN)).expect("the request's own length")
}

fn ucontext_flags(call: &Received<'_>) -> (usize, u32) {
    let bytes = call.input(uhw::IN);
    (bytes.len(), u32::from_ne_bytes(bytes[8..12].try_into().unwrap()))
}

/// Creates a script that answers the first call of the probe as a kernel with the commands does.
fn with_commands() -> Script {
    Script::new().then(|call| {
        assert_eq!(command(call), 1);
        assert_eq!(call.ids(), [invoke_write::WRITE_CMD.0]);
        Err(Errno::ENOSPC)
    })
}

#[test]
fn a_kernel_with_commands_and_methods_passes_the_probe() {
    let file = with_commands().then(|call| {
        assert_eq!(call.method, method::QUERY_GID_ENTRY);
        assert_eq!(call.ids(), []);
        Err(Errno::EINVAL)
    });
    assert_eq!(context::probe(&file), Ok(()));
    file.done();
}

#[test]
fn a_kernel_without_the_ioctl_or_its_commands_is_too_old() {
    for errno in [Errno::ENOTTY, Errno::EPROTONOSUPPORT] {
        let file = Script::new().then_fail(1, errno);
        assert_eq!(context::probe(&file), Err(ProbeError::TooOld));
    }
}

#[test]
fn a_kernel_without_the_youngest_method_is_too_old() {
    let file = with_commands().then_fail(1, Errno::EPROTONOSUPPORT);
    assert_eq!(context::probe(&file), Err(ProbeError::TooOld));
    file.done();
}

#[test]
fn another_refusal_of_the_probe_is_handed_up() {
    let file = Script::new().then_fail(1, Errno::EIO);
    assert_eq!(context::probe(&file), Err(ProbeError::Kernel(Errno::EIO)));
    let file = with_commands().then_fail(1, Errno::EIO);
    assert_eq!(context::probe(&file), Err(ProbeError::Kernel(Errno::EIO)));
}

#[test]
fn a_context_is_asked_for_with_everything_first() {
    let file = Script::new().then(|call| {
        assert_eq!(call.method, method::GET_CONTEXT);
        assert_eq!(call.input(uhw::IN), REQUEST.as_bytes());
        assert_eq!(call.room(uhw::OUT), 72);
        call.answer(attr::get_context::NUM_COMP_VECTORS, &8_u32.to_ne_bytes());
        call.answer(attr::get_context::CORE_SUPPORT, &1_u64.to_ne_bytes());
        let answer = mlx5::AllocUcontextResp { bf_reg_size: 512, ..Default::default() };
        call.answer(uhw::OUT, &answer.as_bytes()[..48]);
        Ok(())
    });
    let context = context::get_context(&file, &REQUEST).unwrap();
    assert_eq!(context.num_comp_vectors, 8);
    assert_eq!(context.core_support, verbs::CoreSupport::OPTIONAL_MR_ACCESS);
    assert_eq!(context.driver.bf_reg_size, 512);
    assert_eq!(context.driver.dump_fill_mkey, 0);
    assert!(context.devx && context.lib_caps);
}

#[test]
fn an_older_kernel_gets_shorter_requests_then_one_without_devx() {
    let mut file = Script::new();
    for expected in [(32, 1), (24, 1), (16, 1), (32, 0)] {
        file = file.then(move |call| {
            assert_eq!(ucontext_flags(call), expected);
            Err(Errno::EOPNOTSUPP)
        });
    }
    let file = file.then(|call| {
        assert_eq!(ucontext_flags(call), (24, 0));
        Ok(())
    });
    let context = context::get_context(&file, &REQUEST).unwrap();
    assert!(!context.devx && !context.lib_caps);
    file.done();
}

#[test]
fn a_refused_context_fails_with_the_answer_to_the_full_request() {
    let file = Script::new().then_fail(1, Errno::EACCES).then_fail(5, Errno::EINVAL);
    assert_eq!(context::get_context(&file, &REQUEST).unwrap_err(), Errno::EACCES);
    file.done();
    let gone = Script::new().then_fail(1, Errno::EIO);
    assert_eq!(context::get_context(&gone, &REQUEST).unwrap_err(), Errno::EIO);
}

#[test]
fn a_pd_has_a_handle_and_a_number() {
    let file = Script::new()
        .then(|call| {
            assert_eq!(command(call), 3);
            call.answer(invoke_write::CORE_OUT, &2_u32.to_ne_bytes());
            call.answer(uhw::OUT, &77_u32.to_ne_bytes());
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::PD_DESTROY);
            assert_eq!(call.object(attr::destroy_pd::HANDLE), 2);
            Err(Errno::EBUSY)
        });
    assert_eq!(pd::alloc(&file), Ok(pd::Pd { handle: 2, pdn: 77 }));
    assert_eq!(pd::dealloc(&file, 2), Err(Errno::EBUSY));
}

#[test]
fn registration_has_address_and_access() {
    let file = Script::new().then(|call| {
        assert_eq!(command(call), 9);
        let request: write_cmd::RegMr = core_in(call);
        assert_eq!((request.start, request.length, request.hca_va), (0x1000, 0x2000, 0x3000));
        assert_eq!((request.pd_handle, request.access_flags), (4, 1 | 1 << 20));
        let answer = write_cmd::RegMrResp { mr_handle: 1, lkey: 2, rkey: 3 };
        call.answer(invoke_write::CORE_OUT, answer.as_bytes());
        Ok(())
    });
    let what = mr::Registration {
        pd: 4,
        start: 0x1000,
        length: 0x2000,
        hca_va: 0x3000,
        access: verbs::AccessFlags::LOCAL_WRITE | verbs::AccessFlags::RELAXED_ORDERING,
    };
    // SAFETY: the script does not use the memory.
    let mr = unsafe { mr::reg(&file, &what) };
    assert_eq!(mr, Ok(mr::Mr { handle: 1, lkey: 2, rkey: 3 }));
}

#[test]
fn a_dma_buf_goes_as_a_number_not_as_a_descriptor() {
    let file = Script::new().then(|call| {
        use attr::reg_dmabuf_mr as id;
        assert_eq!(call.method, method::REG_DMABUF_MR);
        // The kernel judges any number.
        assert_eq!(call.u32(id::FD), u32::MAX);
        assert_eq!(call.object(id::PD_HANDLE), 4);
        call.made(id::HANDLE, 11);
        call.answer(id::RESP_RKEY, &12_u32.to_ne_bytes());
        Ok(())
    });
    let access = verbs::AccessFlags::empty();
    // SAFETY: no file has this descriptor.
    let mr = unsafe { mr::reg_dmabuf(&file, 4, -1, 0, 4096, 0, access) }.unwrap();
    assert_eq!((mr.handle, mr.rkey), (11, 12));
}

#[test]
fn a_cq_leaves_out_what_it_does_not_have() {
    use attr::create_cq as id;
    let file = Script::new()
        .then(|call| {
            assert_eq!(call.method, method::CQ_CREATE);
            let core = [id::HANDLE, id::CQE, id::USER_HANDLE, id::COMP_VECTOR, id::RESP_CQE];
            let mut expected: Vec<u16> = core.iter().map(|id| id.0).collect();
            expected.extend([uhw::IN.0, uhw::OUT.0]);
            assert_eq!(call.ids(), expected);
            assert_eq!(call.u32(id::CQE), 255);
            assert_eq!(call.input(uhw::IN).len(), 32);
            call.made(id::HANDLE, 9);
            call.answer(id::RESP_CQE, &255_u32.to_ne_bytes());
            call.answer(uhw::OUT, &0x40_u64.to_ne_bytes());
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::CQ_DESTROY);
            assert_eq!(call.object(attr::destroy_cq::HANDLE), 9);
            let events = [5_u32, 1];
            call.answer(attr::destroy_cq::RESP, events.as_bytes());
            Ok(())
        });
    let what = cq::CreateCq {
        cqe: 255,
        user_handle: 1,
        comp_channel: None,
        comp_vector: 0,
        flags: verbs::CqFlags::empty(),
        async_events: None,
        driver: mlx5::CreateCq::default(),
        uar_index: None,
    };
    // SAFETY: the script does not use the memory.
    let made = unsafe { cq::create(&file, &what) };
    assert_eq!(made, Ok(cq::Cq { handle: 9, cqe: 255, cqn: 0x40 }));
    let events = cq::destroy(&file, 9).unwrap();
    assert_eq!((events.comp_events_reported, events.async_events_reported), (5, 1));
}

#[test]
fn cq_command_has_channel_events_and_uar() {
    use attr::create_cq as id;
    use std::os::fd::AsRawFd;
    let (channel, events) = std::io::pipe().unwrap();
    let numbers = (i64::from(channel.as_raw_fd()), i64::from(events.as_raw_fd()));
    let file = Script::new().then(move |call| {
        assert_eq!((call.object(id::COMP_CHANNEL), call.object(id::EVENT_FD)), numbers);
        assert_eq!(call.u32(id::FLAGS), 1);
        assert_eq!(call.u32(attr::mlx5_create_cq::UAR_INDEX), 0x1_0000);
        Err(Errno::ENOMEM)
    });
    let what = cq::CreateCq {
        cqe: 1,
        user_handle: 1,
        comp_channel: Some(channel.as_fd()),
        comp_vector: 3,
        flags: verbs::CqFlags::TIMESTAMP_COMPLETION,
        async_events: Some(events.as_fd()),
        driver: mlx5::CreateCq::default(),
        uar_index: Some(0x1_0000),
    };
    // SAFETY: the script does not use the memory.
    assert_eq!(unsafe { cq::create(&file, &what) }, Err(Errno::ENOMEM));
}

fn create_qp(qp_type: verbs::QpType) -> qp::CreateQp<'static> {
    qp::CreateQp {
        qp_type,
        pd: Some(1),
        xrcd: None,
        send_cq: Some(2),
        recv_cq: Some(3),
        srq: Some(4),
        user_handle: 0xabc,
        cap: verbs::QpCap { max_send_wr: 10, ..Default::default() },
        flags: verbs::QpCreateFlags::SQ_SIG_ALL,
        source_qpn: None,
        async_events: None,
        driver: mlx5::CreateQp { sq_wqe_count: 64, ..Default::default() },
    }
}

#[test]
fn a_qp_names_its_parents_and_learns_its_sizes() {
    use attr::create_qp as id;
    let file = Script::new().then(|call| {
        assert_eq!(call.method, method::QP_CREATE);
        assert_eq!(call.object(id::PD_HANDLE), 1);
        assert_eq!(call.object(id::SEND_CQ_HANDLE), 2);
        assert_eq!(call.object(id::RECV_CQ_HANDLE), 3);
        assert_eq!(call.object(id::SRQ_HANDLE), 4);
        assert_eq!(call.u64(id::TYPE), 2);
        assert_eq!(call.u64(id::USER_HANDLE), 0xabc);
        assert_eq!(call.u32(id::FLAGS), 1 << 12);
        let cap = verbs::QpCap::read_from_bytes(&call.input(id::CAP)).unwrap();
        assert_eq!(cap.max_send_wr, 10);
        let driver = mlx5::CreateQp::read_from_bytes(&call.input(uhw::IN)).unwrap();
        assert_eq!(driver.sq_wqe_count, 64);
        call.made(id::HANDLE, 5);
        call.answer(id::RESP_QP_NUM, &0x123_u32.to_ne_bytes());
        call.answer(id::RESP_CAP, verbs::QpCap { max_send_wr: 16, ..cap }.as_bytes());
        // An answer of a kernel without `tirn` and the fields after it.
        call.answer(uhw::OUT, &[7, 0, 0, 0, 0, 0, 0, 0]);
        Ok(())
    });
    // SAFETY: the script does not use the memory.
    let qp = unsafe { qp::create(&file, &create_qp(verbs::QpType::Rc)) }.unwrap();
    assert_eq!((qp.handle, qp.qp_num, qp.cap.max_send_wr), (5, 0x123, 16));
    assert_eq!((qp.driver.bfreg_index, qp.driver.tirn), (7, 0));
}

#[test]
fn an_xrc_target_names_its_domain_alone() {
    use attr::create_qp as id;
    let file = Script::new().then(|call| {
        assert_eq!(call.object(id::XRCD_HANDLE), 8);
        let ids = call.ids();
        for absent in [id::PD_HANDLE, id::SEND_CQ_HANDLE, id::RECV_CQ_HANDLE, id::SRQ_HANDLE] {
            assert!(!ids.contains(&absent.0));
        }
        Ok(())
    });
    let what = qp::CreateQp {
        pd: None,
        xrcd: Some(8),
        send_cq: None,
        recv_cq: None,
        srq: None,
        ..create_qp(verbs::QpType::XrcTgt)
    };
    // SAFETY: the script does not use the memory.
    unsafe { qp::create(&file, &what) }.unwrap();
    file.done();
}

#[test]
fn destroyed_qp_returns_its_event_count() {
    let file = Script::new()
        .then(|call| {
            assert_eq!(call.method, method::QP_DESTROY);
            assert_eq!(call.object(attr::destroy_qp::HANDLE), 5);
            call.answer(attr::destroy_qp::RESP, &3_u32.to_ne_bytes());
            Ok(())
        })
        .then_fail(1, Errno::EIO);
    assert_eq!(qp::destroy(&file, 5), Ok(3));
    assert_eq!(qp::destroy(&file, 5), Err(Errno::EIO));
}

#[test]
fn a_dct_learns_its_number_from_the_extended_modify() {
    let file = Script::new().then(|call| {
        assert_eq!(command(call), 0x8000_001a);
        let request: write_cmd::ExModifyQp = core_in(call);
        assert_eq!((request.base.qp_handle, request.base.qp_state), (5, 2));
        assert_eq!(call.room(invoke_write::CORE_OUT), 8);
        let answer = mlx5::ModifyQpResp { dctn: 0x55, ..Default::default() };
        call.answer(uhw::OUT, answer.as_bytes());
        Ok(())
    });
    let request = write_cmd::ExModifyQp {
        base: write_cmd::ModifyQp {
            qp_handle: 5,
            attr_mask: verbs::QpAttrMask::STATE.bits(),
            qp_state: verbs::QpState::Rtr.raw(),
            ..Default::default()
        },
        ..Default::default()
    };
    assert_eq!(qp::modify_ex(&file, &request, &mlx5::ModifyQp::default()).unwrap().dctn, 0x55);
}

#[test]
fn an_xrc_srq_is_numbered_by_the_core_and_a_basic_one_by_the_driver() {
    use attr::create_srq as id;
    let what = srq::CreateSrq {
        srq_type: verbs::SrqType::Basic,
        pd: 1,
        xrcd: None,
        cq: None,
        user_handle: 0,
        max_wr: 100,
        max_sge: 2,
        limit: 0,
        max_num_tags: 0,
        async_events: None,
        driver: mlx5::CreateSrq::default(),
    };
    let basic = Script::new().then(|call| {
        assert_eq!(call.method, method::SRQ_CREATE);
        assert!(!call.ids().contains(&id::RESP_SRQ_NUM.0));
        assert!(!call.ids().contains(&id::MAX_NUM_TAGS.0));
        assert_eq!((call.u32(id::MAX_WR), call.u64(id::TYPE)), (100, 0));
        call.made(id::HANDLE, 6);
        call.answer(id::RESP_MAX_WR, &127_u32.to_ne_bytes());
        call.answer(id::RESP_MAX_SGE, &3_u32.to_ne_bytes());
        call.answer(uhw::OUT, &0x31_u64.to_ne_bytes());
        Ok(())
    });
    // SAFETY: the script does not use the memory.
    let made = unsafe { srq::create(&basic, &what) };
    assert_eq!(made, Ok(srq::Srq { handle: 6, srqn: 0x31, max_wr: 127, max_sge: 3 }));

    let xrc = Script::new().then(|call| {
        assert_eq!((call.object(id::XRCD_HANDLE), call.object(id::CQ_HANDLE)), (2, 3));
        call.answer(id::RESP_SRQ_NUM, &0x32_u32.to_ne_bytes());
        Ok(())
    });
    let what = srq::CreateSrq { srq_type: verbs::SrqType::Xrc, xrcd: Some(2), cq: Some(3), ..what };
    // SAFETY: the script does not use the memory.
    assert_eq!(unsafe { srq::create(&xrc, &what) }.unwrap().srqn, 0x32);
}

#[test]
fn an_address_handle_comes_with_the_mac() {
    let file = Script::new().then(|call| {
        assert_eq!(command(call), 5);
        let request: write_cmd::CreateAh = core_in(call);
        assert_eq!((request.pd_handle, request.attr.port_num), (1, 2));
        call.answer(invoke_write::CORE_OUT, &9_u32.to_ne_bytes());
        let answer = mlx5::CreateAhResp { dmac: [1, 2, 3, 4, 5, 6], ..Default::default() };
        call.answer(uhw::OUT, answer.as_bytes());
        Ok(())
    });
    let path = verbs::AhAttr { port_num: 2, ..Default::default() };
    assert_eq!(ah::create(&file, 1, &path), Ok((9, [1, 2, 3, 4, 5, 6])));
}

#[test]
fn uar_returns_its_mapping_offset() {
    use attr::uar_alloc as id;
    let file = Script::new().then(|call| {
        assert_eq!(call.method, method::UAR_ALLOC);
        assert_eq!(call.u64(id::TYPE), 1);
        call.made(id::HANDLE, 3);
        call.answer(id::MMAP_OFFSET, &0x1000_u64.to_ne_bytes());
        call.answer(id::MMAP_LENGTH, &4096_u32.to_ne_bytes());
        call.answer(id::PAGE_ID, &21_u32.to_ne_bytes());
        Ok(())
    });
    let expected = uar::Uar { handle: 3, mmap_offset: 0x1000, mmap_len: 4096, page_id: 21 };
    assert_eq!(uar::alloc(&file, mlx5::UarType::NonCached), Ok(expected));
}

#[test]
fn event_files_are_made_of_the_descriptors_that_calls_return() {
    let file = Script::new()
        .then(|call| {
            assert_eq!(call.method, method::ASYNC_EVENT_ALLOC);
            call.made(attr::async_event_alloc::FD_HANDLE, 40);
            Ok(())
        })
        .then(|call| {
            assert_eq!(command(call), 17);
            call.answer(invoke_write::CORE_OUT, &41_u32.to_ne_bytes());
            Ok(())
        });
    // The script's event file returns its own number as the event.
    let events = event::alloc_async(&file).unwrap();
    assert_eq!(event::next_async(&*events).unwrap().unwrap().element, 40);
    let channel = event::create_comp_channel(&file).unwrap();
    assert_eq!(event::next_completion(&*channel).unwrap().unwrap().cq_handle, 41);
}

#[test]
fn the_gid_table_has_as_many_entries_as_the_kernel_says() {
    use attr::query_gid_table as id;
    let file = Script::new().then(|call| {
        assert_eq!(call.u64(id::ENTRY_SIZE), 32);
        assert_eq!(call.room(id::RESP_ENTRIES), 4 * 32);
        let entry = verbs::GidEntry { gid: [8; 16], port_num: 1, ..Default::default() };
        call.answer(id::RESP_ENTRIES, entry.as_bytes());
        call.answer(id::RESP_NUM_ENTRIES, &1_u64.to_ne_bytes());
        Ok(())
    });
    let gids = query::gid_table(&file, 4).unwrap();
    assert_eq!(gids.len(), 1);
    assert_eq!((gids[0].gid, gids[0].port_num), ([8; 16], 1));
}

#[test]
fn the_device_is_asked_for_the_extended_answer() {
    let file = Script::new().then(|call| {
        assert_eq!(command(call), 0x8000_0001);
        assert_eq!(call.input(invoke_write::CORE_IN), [0; 8]);
        assert_eq!((call.room(invoke_write::CORE_OUT), call.room(uhw::OUT)), (304, 104));
        Ok(())
    });
    let (core, driver) = query::device(&file).unwrap();
    assert_eq!((core.response_length, driver.response_length), (0, 0));
}

#[test]
fn a_firmware_command_has_its_output_even_when_it_fails() {
    use attr::devx_other as id;
    let file = Script::new().then(|call| {
        assert_eq!(call.method, method::DEVX_OTHER);
        assert_eq!(call.input(id::CMD_IN), [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        call.answer(id::CMD_OUT, &[3, 0, 0, 0, 0, 0x12, 0x34, 0x56]);
        Err(Errno::EREMOTEIO)
    });
    let input = [1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut output = [0_u8; 16];
    // SAFETY: the script does not execute the command.
    let answer = unsafe { devx::general_cmd(&file, &input, &mut output) };
    assert_eq!(answer, Err(Errno::EREMOTEIO));
    assert_eq!(output[..8], [3, 0, 0, 0, 0, 0x12, 0x34, 0x56]);
}

#[test]
fn a_firmware_object_is_made_changed_and_unmade_by_its_handle() {
    let file = Script::new()
        .then(|call| {
            assert_eq!(call.method, method::DEVX_OBJ_CREATE);
            call.made(attr::devx_obj_create::HANDLE, 30);
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::DEVX_OBJ_MODIFY);
            assert_eq!(call.object(attr::devx_obj_modify::HANDLE), 30);
            Ok(())
        })
        .then(|call| {
            assert_eq!(call.method, method::DEVX_OBJ_DESTROY);
            assert_eq!(call.object(attr::devx_obj_destroy::HANDLE), 30);
            Ok(())
        });
    // SAFETY: the script does not execute the commands.
    unsafe {
        assert_eq!(devx::obj_create(&file, &[0; 16], &mut [0; 16]), Ok(30));
        assert_eq!(devx::obj_modify(&file, 30, &[0; 16], &mut [0; 16]), Ok(()));
    }
    assert_eq!(devx::obj_destroy(&file, 30), Ok(()));
    file.done();
}

#[test]
fn the_drivers_answer_for_a_port_is_written_as_far_as_it_goes() {
    use attr::mlx5_query_port as id;
    let file = Script::new().then(|call| {
        assert_eq!(call.method, method::MLX5_QUERY_PORT);
        assert_eq!((call.u32(id::QUERY_PORT_PORT_NUM), call.room(id::QUERY_PORT)), (2, 40));
        call.answer(id::QUERY_PORT, &[7; 8]);
        Ok(())
    });
    let mut answer = [0xee; 40];
    assert_eq!(query::mlx5_port(&file, 2, &mut answer), Ok(()));
    assert_eq!((&answer[..8], &answer[8..]), (&[7; 8][..], &[0xee; 32][..]));
    file.done();
}
