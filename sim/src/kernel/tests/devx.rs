//! Commands from user space.

use mlx5_prm::cmd::alloc::{AllocPdIn, AllocPdOut};
use mlx5_prm::cmd::caps::{CapGroup, CapMode, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::cmd::qp::{Qp2RstIn, Qp2RstOut, QpState as DeviceState, QueryQpIn, QueryQpOut};
use mlx5_prm::cmd::{CommandInput, CommandStatus};
use mlx5_prm::wqe::Opcode;
use mlx5_uapi::Errno;
use mlx5_uapi::cmd::devx::{PageSizes, UmemReg};
use mlx5_uapi::cmd::{devx, qp};
use mlx5_uapi::verbs::{AccessFlags, QpAttrMask, QpState, QpType};

use super::rig::{Session, to};
use crate::SimConfig;
use crate::engine::DrainAt;

#[test]
fn a_drained_queue_pair_tells_where_it_stands_and_goes_on() {
    let session = Session::new();
    let mut cq = session.cq();
    let (mut one, other) = (session.qp(QpType::Rc, &cq), session.qp(QpType::Rc, &cq));
    session.connect(&one, &other);
    session.sim.drain_qp(0, one.qp.qp_num, DrainAt::After(1)).expect("RTS");
    for _ in 0..3 {
        let wqe = one.wqe(Opcode::Nop, &[]);
        session.post(&mut one, &wqe);
    }
    cq.expect();
    assert!(cq.poll().is_none());

    let mut input = QueryQpIn::request();
    input.set_qpn(one.qp.qp_num);
    let mut output = QueryQpOut::default();
    let bytes = output.as_bytes_mut();
    devx::obj_query(&*session.file, one.qp.handle, input.as_bytes(), bytes).expect("a QP");
    assert_eq!(DeviceState(output.qpc().state()), DeviceState::SQD);
    assert_eq!(output.qpc().hw_sq_wqebb_counter(), 1);
    assert_eq!(output.qpc().sw_sq_wqebb_counter(), 3);

    // The kernel did not make this change of state: the request to resume has to name the state.
    let mut resume = to(&one, QpState::Rts);
    resume.attr_mask |= QpAttrMask::CUR_STATE.bits();
    resume.cur_qp_state = QpState::Sqd.raw();
    session.modify(&resume).expect("RTS");
    session.sim.run_until_idle();
    cq.expect();
    cq.expect();
}

#[test]
fn a_query_teaches_the_kernel_the_drained_state() {
    let session = Session::new();
    let cq = session.cq();
    let (one, other) = (session.qp(QpType::Rc, &cq), session.qp(QpType::Rc, &cq));
    session.connect(&one, &other);
    session.sim.drain_qp(0, one.qp.qp_num, DrainAt::Now).expect("RTS");
    // To the kernel this still is RTS to RTS, which the device refuses.
    assert_eq!(session.modify(&to(&one, QpState::Rts)), Err(Errno::EINVAL));
    let answer = qp::query(&*session.file, one.qp.handle, QpAttrMask::STATE).expect("a QP");
    assert_eq!((answer.qp_state, answer.sq_draining), (QpState::Sqd.raw(), 0));
    session.modify(&to(&one, QpState::Rts)).expect("RTS");
}

#[test]
fn a_command_must_name_the_object_of_its_handle() {
    let session = Session::new();
    let cq = session.cq();
    let (one, other) = (session.qp(QpType::Rc, &cq), session.qp(QpType::Rc, &cq));
    let file = &*session.file;
    let mut input = QueryQpIn::request();
    input.set_qpn(other.qp.qp_num);
    let mut output = QueryQpOut::default();
    let mut query = |handle| devx::obj_query(file, handle, input.as_bytes(), output.as_bytes_mut());
    assert_eq!(query(one.qp.handle), Err(Errno::EINVAL));
    assert_eq!(query(cq.cq.handle), Err(Errno::EINVAL));
    assert_eq!(query(4321), Err(Errno::ENOENT));
    assert_eq!(query(other.qp.handle), Ok(()));

    // A change is no query, and a query no change.
    let mut input = Qp2RstIn::request();
    input.set_qpn(one.qp.qp_num);
    let mut output = Qp2RstOut::default();
    let bytes = output.as_bytes_mut();
    let refused = devx::obj_query(file, one.qp.handle, input.as_bytes(), bytes);
    assert_eq!(refused, Err(Errno::EINVAL));
    // SAFETY: nothing is in the queues.
    unsafe { devx::obj_modify(file, one.qp.handle, input.as_bytes(), bytes) }.expect("RESET");
}

#[test]
fn only_general_commands_come_without_an_object() {
    let session = Session::new();
    let file = &*session.file;
    let mut input = QueryHcaCapIn::request();
    input.set_op_mod(CapGroup::GENERAL.op_mod(CapMode::CURRENT));
    let mut output = Box::new(QueryHcaCapOut::default());
    // SAFETY: queries harm nothing.
    unsafe { devx::general_cmd(file, input.as_bytes(), output.as_bytes_mut()) }.expect("caps");
    let caps = output.hca_cap();
    assert_eq!((caps.cqe_version(), caps.log_max_qp_sz(), caps.num_ports()), (1, 15, 1));
    assert!(caps.uar_4k() && caps.bf() && caps.drain_sigerr());

    let mut answer = AllocPdOut::default();
    let input = AllocPdIn::request();
    // SAFETY: the kernel refuses it.
    let refused = unsafe { devx::general_cmd(file, input.as_bytes(), answer.as_bytes_mut()) };
    assert_eq!(refused, Err(Errno::EINVAL));
}

#[test]
fn a_refusal_of_the_firmware_reaches_the_caller_with_its_syndrome() {
    let session = Session::new();
    let mut input = QueryHcaCapIn::request();
    input.set_op_mod(0x7ff << 1);
    let mut output = vec![0; QueryHcaCapOut::BYTES];
    // SAFETY: queries harm nothing.
    let refused = unsafe { devx::general_cmd(&*session.file, input.as_bytes(), &mut output) };
    assert_eq!(refused, Err(Errno::EREMOTEIO));
    assert_eq!(u32::from(output[0]), CommandStatus::BAD_OP_ERR.0);
    assert_ne!(output[4..8], [0; 4]);
}

#[test]
fn objects_made_by_commands_end_with_their_handles() {
    let session = Session::new();
    let file = &*session.file;
    let mut output = AllocPdOut::default();
    let input = AllocPdIn::request();
    // SAFETY: a protection domain harms nothing.
    let make = |out: &mut AllocPdOut| unsafe {
        devx::obj_create(file, input.as_bytes(), out.as_bytes_mut())
    };
    let handle = make(&mut output).expect("a PD");
    assert_ne!(output.pd(), session.pd.pdn);
    assert_eq!(session.sim.object_counts(0).pds, 2);
    devx::obj_destroy(file, handle).expect("a PD");
    assert_eq!(session.sim.object_counts(0).pds, 1);
    make(&mut output).expect("a PD");
    let Session { sim, file, page, .. } = session;
    drop((file, page));
    assert_eq!(sim.object_counts(0), Default::default());
}

#[test]
fn vectors_and_user_memory_have_numbers() {
    let session = Session::new();
    let file = &*session.file;
    let first = devx::query_eqn(file, 0).expect("a vector");
    assert_ne!(devx::query_eqn(file, 1).expect("a vector"), first);
    assert_eq!(devx::query_eqn(file, 8), Err(Errno::EINVAL));
    assert_eq!(devx::query_uar(file, 0), Err(Errno::EINVAL));
    let memory = file.allocate(&mlx5_uapi::MemoryRequest::new(4096)).expect("memory");
    let what = UmemReg {
        addr: memory.as_ptr() as u64,
        len: 4096,
        access: AccessFlags::LOCAL_WRITE,
        page_sizes: PageSizes::Any,
        dmabuf: None,
    };
    // SAFETY: no command gives the device this memory.
    let umem = unsafe { devx::umem_reg(file, &what) };
    let umem = umem.expect("memory");
    assert_eq!(session.sim.object_counts(0).umems, 1);
    devx::umem_dereg(file, umem.handle).expect("memory");
}

#[test]
fn without_devx_there_are_no_commands() {
    let session = Session::with(SimConfig::new().devx(false));
    let input = AllocPdIn::request();
    let mut output = AllocPdOut::default();
    // SAFETY: the kernel refuses it.
    let refused =
        unsafe { devx::obj_create(&*session.file, input.as_bytes(), output.as_bytes_mut()) };
    assert_eq!(refused, Err(Errno::EINVAL));
}
