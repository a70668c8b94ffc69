//! Queues in user memory.

use mlx5_prm::cmd::alloc::AllocUarIn;
use mlx5_prm::cmd::cq::{CreateCqIn, DestroyCqIn, ModifyCqIn, ModifyCqMode, ResizeCqFields};
use mlx5_prm::cmd::eq::CreateEqIn;
use mlx5_prm::cmd::qp::ServiceType;
use mlx5_prm::cmd::srq::{CreateRmpIn, RmpState, WorkQueueType};
use mlx5_prm::cmd::{CommandInput, CommandStatus};

use super::{Rig, refused};
use crate::firmware::{Counts, syndrome};

const OURS: u32 = 3;
const THEIRS: u32 = 4;

/// CREATE_UMEM's input: the user context, the offset in the first page, and the pages.
fn create(uid: u32, offset: u32, pages: &[u64]) -> Vec<u8> {
    let mut input = vec![0; 0x30];
    input[..4].copy_from_slice(&(0x0a08 << 16 | uid).to_be_bytes());
    input[0x24..0x28].copy_from_slice(&offset.to_be_bytes());
    input[0x28..].copy_from_slice(&(pages.len() as u64).to_be_bytes());
    for page in pages {
        input.extend((page | 0b11).to_be_bytes());
    }
    input
}

impl Rig {
    fn umem(&mut self, uid: u32, offset: u32) -> u32 {
        let mut output = [0; 16];
        let page = self.page();
        let answer = self.raw(&create(uid, offset, &[page]), &mut output);
        assert_eq!(answer, (CommandStatus::OK, 0));
        u32::from_be_bytes([0, output[9], output[10], output[11]])
    }

    fn destroy_umem(&mut self, umem: u32) -> CommandStatus {
        let mut input = [0; 16];
        input[..2].copy_from_slice(&0x0a0a_u16.to_be_bytes());
        input[8..12].copy_from_slice(&umem.to_be_bytes());
        self.raw(&input, &mut [0; 16]).0
    }

    /// A completion queue of 16 entries at an offset in user memory; its record lies behind it.
    fn cq_in(&mut self, umem: u32, offset: u64) -> CreateCqIn {
        let eqn = self.run(&CreateEqIn::request()).eq_number();
        let uar = self.run(&AllocUarIn::request()).uar();
        let mut input = CreateCqIn::request();
        input
            .set_uid(OURS)
            .set_cq_umem_valid(true)
            .set_cq_umem_id(umem)
            .set_cq_umem_offset(offset)
            .cqc_mut()
            .set_log_cq_size(4)
            .set_uar_page(uar)
            .set_c_eqn_or_apu_element(eqn)
            .set_dbr_umem_valid(true)
            .set_dbr_umem_id(umem)
            .set_dbr_addr(offset + 1024);
        input
    }
}

#[test]
fn a_queue_lies_where_its_memory_and_its_offset_say() {
    let mut rig = Rig::infiniband();
    let umem = rig.umem(OURS, 0x40);
    let input = rig.cq_in(umem, 0x80);
    let cqn = rig.run(&input).cqn();
    let page = rig.page();
    let engine = rig.fabric.lock();
    let cq = engine.device(0).cq(cqn).expect("a queue");
    assert_eq!(cq.buffer.translate(0).map(|(address, _)| address), Some(page + 0xc0));
    assert_eq!(cq.record, page + 0xc0 + 1024);
}

#[test]
fn a_queue_does_not_reach_past_its_memory() {
    let mut rig = Rig::infiniband();
    let umem = rig.umem(OURS, 0x40);
    let range = (CommandStatus::BAD_PARAM_ERR, syndrome::ADDRESS_RANGE);
    // The room after the offset of the memory itself, for 1,024 bytes of entries or an 8-byte
    // record.
    for (bytes, record) in [(1024, false), (8, true)] {
        let last = 4096 - 0x40 - bytes;
        for (offset, fits) in [(last, true), (last + 8, false), (4096, false), (!7, false)] {
            let mut input = rig.cq_in(umem, 0);
            match record {
                true => input.cqc_mut().set_dbr_addr(offset),
                false => input.set_cq_umem_offset(offset).cqc_mut(),
            };
            match rig.try_run(&input) {
                Ok(_) => assert!(fits, "{offset:#x} of {bytes}"),
                Err(why) => assert_eq!((fits, why), (false, range), "{offset:#x} of {bytes}"),
            }
        }
    }
}

#[test]
fn memory_that_a_queue_lies_in_stays() {
    let mut rig = Rig::infiniband();
    let (umem, other) = (rig.umem(OURS, 0), rig.umem(OURS, 0));
    let mut input = rig.cq_in(umem, 0);
    input.cqc_mut().set_dbr_umem_id(other);
    let cqn = rig.run(&input).cqn();
    let pd = rig.pd();
    let mut qp = rig.qp_input(ServiceType::RC, pd, cqn);
    qp.set_uid(OURS).set_wq_umem_valid(true).set_wq_umem_id(umem).set_wq_umem_offset(1024);
    let qpn = rig.run(&qp).qpn();
    assert_eq!(rig.counts().umems, 2);
    assert_eq!(rig.destroy_umem(umem), CommandStatus::RES_BUSY);
    assert_eq!(rig.destroy_umem(other), CommandStatus::RES_BUSY);
    let mut destroy = mlx5_prm::cmd::qp::DestroyQpIn::request();
    destroy.set_qpn(qpn);
    rig.run(&destroy);
    assert_eq!(rig.destroy_umem(umem), CommandStatus::RES_BUSY);
    let mut destroy = DestroyCqIn::request();
    destroy.set_cqn(cqn);
    rig.run(&destroy);
    assert_eq!(rig.destroy_umem(umem), CommandStatus::OK);
    assert_eq!(rig.destroy_umem(other), CommandStatus::OK);
    assert_eq!(rig.destroy_umem(other), CommandStatus::BAD_RES_ERR);
    assert_eq!(rig.counts().umems, 0);
}

#[test]
fn another_context_s_memory_is_none() {
    let mut rig = Rig::infiniband();
    let umem = rig.umem(THEIRS, 0);
    let input = rig.cq_in(umem, 0);
    assert_eq!(refused(rig.try_run(&input)).1, syndrome::NO_SUCH_OBJECT);
}

#[test]
fn a_shared_queue_lies_in_user_memory_too() {
    let mut rig = Rig::infiniband();
    let (pd, umem) = (rig.pd(), rig.umem(OURS, 0));
    let mut input = CreateRmpIn::request();
    input.set_uid(OURS);
    input.rmpc_mut().set_state(RmpState::RDY.0);
    input
        .rmpc_mut()
        .wq_mut()
        .set_wq_type(WorkQueueType::LINKED_LIST.0)
        .set_pd(pd)
        .set_log_wq_sz(4)
        .set_log_wq_stride(5)
        .set_wq_umem_valid(true)
        .set_wq_umem_id(umem)
        .set_wq_umem_offset(512)
        .set_dbr_umem_valid(true)
        .set_dbr_umem_id(umem)
        .set_dbr_addr(2048);
    rig.run(&input);
    assert_eq!(rig.destroy_umem(umem), CommandStatus::RES_BUSY);
}

/// A resize is not modelled, and must be refused: the device must not read from somewhere else.
#[test]
fn a_queue_in_user_memory_is_not_resized() {
    let mut rig = Rig::infiniband();
    let umem = rig.umem(OURS, 0);
    let input = rig.cq_in(umem, 0);
    let cqn = rig.run(&input).cqn();
    let mut resize = ModifyCqIn::request();
    resize
        .set_cqn(cqn)
        .set_op_mod(ModifyCqMode::RESIZE.0)
        .set_resize_field_select(ResizeCqFields::LOG_CQ_SIZE.bits())
        .set_cq_umem_valid(true);
    resize.cqc_mut().set_log_cq_size(5);
    assert_eq!(refused(rig.try_run(&resize)).1, syndrome::INVALID_VALUE);
    assert_ne!(rig.counts(), Counts::default());
}
