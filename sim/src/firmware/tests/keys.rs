//! Memory keys, signature variables, and their effects on queue pairs.

use mlx5_prm::cmd::alloc::{AllocXrcdIn, DeallocPdIn, DeallocXrcdIn};
use mlx5_prm::cmd::mkey::{
    CreateMkeyIn, CreatePsvIn, DestroyMkeyIn, DestroyPsvIn, MkeyAccessMode, QueryMkeyIn,
};
use mlx5_prm::cmd::qp::{
    CreateQpIn, DestroyQpIn, Init2InitQpIn, OptParamMask, QueryQpIn, RqType, Rst2InitQpIn,
    ServiceType,
};
use mlx5_prm::cmd::{CommandInput, CommandStatus};

use super::{Rig, refused};
use crate::firmware::{Counts, syndrome};

#[test]
fn keys_answer_with_their_context() {
    let mut rig = Rig::infiniband();
    let pd = rig.pd();
    let page = rig.page();
    let mut input = CreateMkeyIn::request();
    input.set_translations_octword_actual_size(1);
    input
        .mkc_mut()
        .set_access_mode(MkeyAccessMode::MTT)
        .set_lr(true)
        .set_pd(pd)
        .set_mkey_7_0(0x5a)
        .set_start_addr(page)
        .set_len(4096)
        .set_log_page_size(12);
    let index = rig.run(&input).mkey_index();
    let mut query = QueryMkeyIn::request();
    query.set_mkey_index(index);
    assert_eq!(rig.run(&query).mkc(), input.mkc());

    input.mkc_mut().set_pd(0x333);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_RES_ERR, syndrome::NO_SUCH_OBJECT));
    input.mkc_mut().set_pd(pd).set_len(2 << 12);
    input.set_translations_octword_actual_size(0);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_INP_LEN_ERR, syndrome::TOO_FEW_PAGES));
    input.mkc_mut().set_access_mode(MkeyAccessMode::SW_ICM);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_PARAM_ERR, syndrome::ACCESS_MODE));
    let mut destroy = DestroyMkeyIn::request();
    destroy.set_mkey_index(index);
    rig.run(&destroy);
    assert_eq!(refused(rig.try_run(&query)).0, CommandStatus::BAD_RES_ERR);
}

#[test]
fn signature_variables_come_in_fours_at_most_and_hold_their_domain() {
    let mut rig = Rig::infiniband();
    let pd = rig.pd();
    let mut input = CreatePsvIn::request();
    input.set_pd(pd).set_num_psv(5);
    assert_eq!(refused(rig.try_run(&input)).0, CommandStatus::BAD_PARAM_ERR);
    input.set_num_psv(2);
    let out = rig.run(&input);
    assert_eq!((out.psv0_index(), out.psv1_index(), out.psv2_index()), (1, 2, 0));
    let mut dealloc = DeallocPdIn::request();
    dealloc.set_pd(pd);
    assert_eq!(refused(rig.try_run(&dealloc)).0, CommandStatus::RES_BUSY);
    for psvn in [1, 2] {
        let mut destroy = DestroyPsvIn::request();
        destroy.set_psvn(psvn);
        rig.run(&destroy);
    }
    rig.run(&dealloc);
    assert_eq!(rig.counts(), Counts::default());
}

#[test]
fn an_indirect_key_is_created_free_with_room_for_what_requests_give_it() {
    let mut rig = Rig::infiniband();
    let pd = rig.pd();
    let mut input = CreateMkeyIn::request();
    input
        .mkc_mut()
        .set_access_mode(MkeyAccessMode::KLMS)
        .set_free(true)
        .set_umr_en(true)
        .set_lr(true)
        .set_pd(pd)
        .set_qpn(0xff_ffff)
        .set_bsf_en(true)
        .set_bsf_octword_size(4)
        .set_en_rinval(true)
        .set_translations_octword_size(4);
    let index = rig.run(&input).mkey_index();
    let mut query = QueryMkeyIn::request();
    query.set_mkey_index(index);
    assert_eq!(rig.run(&query).mkc(), input.mkc());
    {
        let engine = rig.fabric.lock();
        let key = engine.device(0).mkey(index).expect("a key");
        assert!(key.free && key.umr && key.remote_invalidate && key.qpn.is_none());
        assert_eq!((key.translation_octwords, key.signatures.octwords), (4, 4));
        assert!(key.signatures.enabled && key.signatures.format.is_none());
    }
    // No key can have more entries than a device could hold.
    input.mkc_mut().set_translations_octword_size(u32::MAX);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_PARAM_ERR, syndrome::INVALID_VALUE));
    let mut destroy = DestroyMkeyIn::request();
    destroy.set_mkey_index(index);
    rig.run(&destroy);
}

#[test]
fn draining_behind_signature_errors_is_switched_on_from_init_to_init() {
    let mut rig = Rig::infiniband();
    let qpn = rig.qp(ServiceType::RC);
    let mut init = Rst2InitQpIn::request();
    init.set_qpn(qpn);
    init.qpc_mut().primary_address_path_mut().set_vhca_port_num(1);
    rig.run(&init);
    let drains = |rig: &mut Rig| {
        let mut query = QueryQpIn::request();
        query.set_qpn(qpn);
        let told = rig.run(&query).qpc().drain_sigerr();
        let engine = rig.fabric.lock();
        let does = engine.device(0).qp_attributes(qpn).expect("a QP").drain_sigerr;
        assert_eq!(told, does);
        does
    };
    assert!(!drains(&mut rig));
    let mut again = Init2InitQpIn::request();
    again.set_qpn(qpn);
    again.qpc_mut().set_drain_sigerr(true);
    rig.run(&again);
    assert!(!drains(&mut rig), "not in the mask");
    again.set_opt_param_mask(OptParamMask::DRAIN_SIGERR.bits());
    rig.run(&again);
    assert!(drains(&mut rig));
}

#[test]
fn the_receiver_of_an_extended_connection_needs_a_domain_and_holds_it() {
    let mut rig = Rig::infiniband();
    let xrcd = rig.run(&AllocXrcdIn::request()).xrcd();
    let mut input = CreateQpIn::request();
    input
        .qpc_mut()
        .set_st(ServiceType::XRC.0)
        .set_no_sq(true)
        .set_rq_type(RqType::ZERO_LENGTH_RQ.0)
        .set_user_index(0xff_ffff)
        .set_xrcd(xrcd + 1);
    let answer = refused(rig.try_run(&input));
    assert_eq!(answer, (CommandStatus::BAD_RES_ERR, syndrome::NO_SUCH_OBJECT));
    input.qpc_mut().set_xrcd(xrcd);
    let qpn = rig.run(&input).qpn();
    let mut dealloc = DeallocXrcdIn::request();
    dealloc.set_xrcd(xrcd);
    assert_eq!(refused(rig.try_run(&dealloc)).0, CommandStatus::RES_BUSY);
    let mut destroy = DestroyQpIn::request();
    destroy.set_qpn(qpn);
    rig.run(&destroy);
    rig.run(&dealloc);
    assert_eq!(rig.counts(), Counts::default());
}
