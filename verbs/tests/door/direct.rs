//! libmlx5: parts of objects in memory, cancelled requests, keys, the program's own commands.

use crate::bed::*;
use crate::header::*;
use mlx5_prm::cmd::CommandInput;
use mlx5_prm::cmd::alloc::{AllocPdIn, AllocPdOut, DeallocPdIn};
use mlx5_prm::cmd::qp::{QueryQpIn, QueryQpOut};
use mlx5_sim::engine::DrainAt;
use mlx5_verbs::abi::mlx5dv::*;
use mlx5_verbs::abi::*;
use mlx5_verbs::dv::{devx, init, queue, uar, umem};
use mlx5_verbs::{ah, mkey, qp};
use std::ptr::null_mut;

/// `MLX5DV_UAR_ALLOC_TYPE_BF`, a macro of the header.
const BLUEFLAME: u32 = 0;

#[test]
fn the_parts_of_objects_are_those_that_the_device_uses() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_UD);
    let mut path = bed.path();
    let handle = made(c!(ah::create_ah(bed.pd, &mut path)));
    let (mut qp_parts, mut pd_parts, mut ah_parts): (mlx5dv_qp, mlx5dv_pd, mlx5dv_ah) =
        (blank(), blank(), blank());
    let mut obj: mlx5dv_obj = blank();
    obj.qp = mlx5dv_obj_qp { r#in: pair.qp, out: &mut qp_parts };
    obj.pd = mlx5dv_obj_pd { r#in: bed.pd, out: &mut pd_parts };
    obj.ah = mlx5dv_obj_ah { r#in: handle, out: &mut ah_parts };
    let kinds = MLX5DV_OBJ_QP | MLX5DV_OBJ_PD | MLX5DV_OBJ_AH;
    ok(c!(init::init_obj(&mut obj, kinds.into())));
    assert!(!qp_parts.dbrec.is_null() && !qp_parts.bf.reg.is_null());
    assert!(qp_parts.sq.wqe_cnt.is_power_of_two() && qp_parts.sq.stride == 64);
    assert!(qp_parts.rq.wqe_cnt >= 16 && qp_parts.rq.stride >= 32);
    assert!(pd_parts.pdn != 0 && !ah_parts.av.is_null());
    assert_eq!(c!(init::init_obj(&mut obj, 0)), libc::EINVAL);
    assert_eq!(c!(init::init_obj(&mut obj, 1 << 40)), libc::EINVAL);
    ok(c!(ah::destroy_ah(handle)));
    pair.destroy();
    bed.end();
}

#[test]
fn a_command_of_a_program_asks_the_firmware_about_its_queue_pair() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let mut request = QueryQpIn::request();
    request.set_qpn(c!((*pair.qp).qp_num));
    let mut answer = QueryQpOut::default();
    let (asked, room) = (request.as_bytes(), answer.as_bytes_mut());
    ok(c!(devx::qp_query(
        pair.qp,
        asked.as_ptr().cast(),
        asked.len(),
        room.as_mut_ptr().cast(),
        room.len(),
    )));
    assert_ne!(answer.qpc().cqn_snd(), 0);
    // Another object's number is refused, and so is an empty command.
    request.set_qpn(c!((*pair.peer).qp_num));
    let (asked, room) = (request.as_bytes(), answer.as_bytes_mut());
    let refused = c!(devx::qp_query(
        pair.qp,
        asked.as_ptr().cast(),
        asked.len(),
        room.as_mut_ptr().cast(),
        room.len(),
    ));
    assert_ne!(refused, 0);
    assert_ne!(c!(devx::general_cmd(bed.context, std::ptr::null(), 16, null_mut(), 16)), 0);
    pair.destroy();
    bed.end();
}

#[test]
fn an_object_of_a_command_is_there_until_it_is_destroyed() {
    let bed = Bed::new();
    let before = bed.machine.sim.object_counts(0).pds;
    let request = AllocPdIn::request();
    let mut answer = AllocPdOut::default();
    let (asked, room) = (request.as_bytes(), answer.as_bytes_mut());
    let object = made(c!(devx::obj_create(
        bed.context,
        asked.as_ptr().cast(),
        asked.len(),
        room.as_mut_ptr().cast(),
        room.len(),
    )));
    assert_ne!(answer.pd(), 0);
    assert_eq!(bed.machine.sim.object_counts(0).pds, before + 1);
    ok(c!(devx::obj_destroy(object)));
    assert_eq!(bed.machine.sim.object_counts(0).pds, before);
    // Commands that create no object.
    let wrong = DeallocPdIn::request();
    let (asked, room) = (wrong.as_bytes(), answer.as_bytes_mut());
    let none = c!(devx::obj_create(
        bed.context,
        asked.as_ptr().cast(),
        asked.len(),
        room.as_mut_ptr().cast(),
        room.len(),
    ));
    assert!(none.is_null());
    bed.end();
}

#[test]
fn memory_and_pages_of_a_program_are_registered_and_given_back() {
    let bed = Bed::new();
    let before = bed.machine.sim.object_counts(0);
    let memory = Pages::new(8192);
    let registered =
        made(c!(umem::umem_reg(bed.context, memory.start.cast(), 8192, IBV_ACCESS_LOCAL_WRITE)));
    assert_ne!(c!((*registered).umem_id), 0);
    assert_eq!(bed.machine.sim.object_counts(0).umems, before.umems + 1);
    ok(c!(umem::umem_dereg(registered)));
    let page = made(c!(uar::alloc_uar(bed.context, BLUEFLAME)));
    c!(assert!(!(*page).reg_addr.is_null() && !(*page).base_addr.is_null()));
    c!(uar::free_uar(page));
    not_made(c!(uar::alloc_uar(bed.context, 1 << 20)), libc::EOPNOTSUPP);
    assert_eq!(bed.machine.sim.object_counts(0).umems, before.umems);
    bed.end();
}

#[test]
fn a_key_that_requests_configure_is_made_and_destroyed() {
    let bed = Bed::new();
    let before = bed.machine.sim.object_counts(0).mkeys;
    let mut wanted: mlx5dv_mkey_init_attr = blank();
    (wanted.pd, wanted.max_entries) = (bed.pd, 4);
    wanted.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
    let key = made(c!(mkey::create_mkey(&mut wanted)));
    assert_ne!(c!((*key).lkey), 0);
    assert!(wanted.max_entries >= 4);
    ok(c!(mkey::destroy_mkey(key)));
    assert_eq!(bed.machine.sim.object_counts(0).mkeys, before);
    wanted.create_flags = 0;
    not_made(c!(mkey::create_mkey(&mut wanted)), libc::EOPNOTSUPP);
    bed.end();
}

#[test]
fn requests_of_a_drained_queue_are_cancelled_by_their_identifier() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let cq = bed.cq(32);
    let mut wanted: ibv_qp_init_attr_ex = blank();
    (wanted.send_cq, wanted.recv_cq, wanted.pd) = (cq, cq, bed.pd);
    (wanted.cap, wanted.qp_type) = (bed.qp_init(IBV_QPT_RC, cq).cap, IBV_QPT_RC);
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    wanted.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE as u64;
    let mut driver: mlx5dv_qp_init_attr = blank();
    driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS.into();
    driver.send_ops_flags = MLX5DV_QP_EX_WITH_RAW_WQE.into();
    let qp = made(c!(queue::create_qp(bed.context, &mut wanted, &mut driver)));
    bed.connect(qp, qp);
    bed.to_rts(qp);
    let dv = c!(mlx5_verbs::qp::driver::from_ibv_qp_ex(qp.cast()));
    let write = |wr_id| {
        let mut sge = bed.sge(0, 8);
        let mut wr = send_wr(wr_id, IBV_WR_RDMA_WRITE);
        (wr.sg_list, wr.num_sge) = (&mut sge, 1);
        let (remote_addr, rkey) = (bed.memory.address() + HALF, c!((*bed.mr).rkey));
        wr.wr.rdma = ibv_send_wr_wr_rdma { remote_addr, rkey };
        ok(post_one(qp, &mut wr));
    };
    assert!(c!(qp::driver::cancel_posted_send_wrs(dv, 7)) < 0, "it is not drained");
    bed.machine.sim.drain_qp(0, c!((*qp).qp_num), DrainAt::Now).expect("it is in RTS");
    bed.run();
    assert_eq!(state_of(qp), IBV_QPS_SQD);
    [1, 7, 2, 7].into_iter().for_each(write);
    assert_eq!(c!(qp::driver::cancel_posted_send_wrs(dv, 9)), 0);
    assert_eq!(c!(qp::driver::cancel_posted_send_wrs(dv, 7)), 2);
    to_state(qp, IBV_QPS_RTS);
    bed.run();
    let done: Vec<_> = outcomes(cq).into_iter().filter(|(wr_id, _)| *wr_id != 7).collect();
    assert_eq!(done, [(1, IBV_WC_SUCCESS), (2, IBV_WC_SUCCESS)]);
    while let Some(event) = bed.async_event() {
        acknowledge(event);
    }
    ok(c!(qp::create::destroy_qp(qp)));
    pair.destroy();
    bed.end();
}

#[test]
fn attributes_of_mlx5_that_no_queue_has_are_refused() {
    let mut bed = Bed::new();
    let mut wanted: ibv_cq_init_attr_ex = blank();
    wanted.cqe = 4;
    let refused = |dv: mlx5dv_cq_init_attr| {
        let mut dv = dv;
        not_made(c!(queue::create_cq(bed.context, &mut wanted.clone(), &mut dv)), libc::EINVAL);
    };
    let mut dv: mlx5dv_cq_init_attr = blank();
    (dv.comp_mask, dv.cqe_size) = (MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE.into(), 96);
    refused(dv);
    dv.comp_mask = 1 << 30;
    refused(dv);
    (dv.comp_mask, dv.cqe_comp_res_format) = (MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE.into(), 9);
    refused(dv);
    (dv.comp_mask, dv.cqe_size) = (MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE.into(), 128);
    let cq = made(c!(queue::create_cq(bed.context, &mut wanted, &mut dv)));
    ok(c!(mlx5_verbs::cq::destroy_cq(cq.cast())));
    let cq = bed.cq(4);
    let mut wanted: ibv_qp_init_attr_ex = blank();
    (wanted.send_cq, wanted.recv_cq, wanted.pd) = (cq, cq, bed.pd);
    (wanted.qp_type, wanted.comp_mask) = (IBV_QPT_UD, IBV_QP_INIT_ATTR_PD);
    let mut dv: mlx5dv_qp_init_attr = blank();
    dv.comp_mask = 1 << 50;
    not_made(c!(queue::create_qp(bed.context, &mut wanted, &mut dv)), libc::EINVAL);
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS.into();
    dv.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE.into();
    not_made(c!(queue::create_qp(bed.context, &mut wanted, &mut dv)), libc::EOPNOTSUPP);
    bed.end();
}
