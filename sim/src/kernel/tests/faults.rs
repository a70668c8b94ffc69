//! Failing calls.

use mlx5_prm::wqe::Opcode;
use mlx5_uapi::Errno;
use mlx5_uapi::cmd::event::{alloc_async, create_comp_channel};
use mlx5_uapi::cmd::{cq, mr, pd, qp, uar};
use mlx5_uapi::verbs::{AccessFlags, QpType};

use super::rig::{Session, TestCqOptions, init, rtr, rts};
use crate::firmware::Counts;
use crate::{SimConfig, Simulator};

/// A whole session; the first failure ends it.
fn session(sim: &Simulator) -> Result<(), Errno> {
    let session = Session::on(sim, 0)?;
    let file = &*session.file;
    let _events = alloc_async(file)?;
    let _channel = create_comp_channel(file)?;
    let cq = session.try_cq(&TestCqOptions::default())?;
    let mut qp = session.try_qp(QpType::Rc, &cq, None)?;
    let region = session.try_region(4096, AccessFlags::LOCAL_WRITE)?;
    session.modify(&init(&qp))?;
    session.modify(&rtr(&qp, qp.qp.qp_num, mlx5_path(&session)?))?;
    session.modify(&rts(&qp))?;
    let wqe = qp.wqe(Opcode::Nop, &[]);
    session.post(&mut qp, &wqe);
    qp::destroy(file, qp.qp.handle)?;
    cq::destroy(file, cq.cq.handle)?;
    mr::dereg(file, region.mr.handle)?;
    pd::dealloc(file, session.pd.handle)?;
    uar::destroy(file, session.uar.handle)
}

fn mlx5_path(session: &Session) -> Result<mlx5_uapi::verbs::QpDest, Errno> {
    let port = mlx5_uapi::cmd::query::port(&*session.file, 1)?.legacy_resp;
    Ok(mlx5_uapi::verbs::QpDest { dlid: port.lid, port_num: 1, ..Default::default() })
}

#[test]
fn whichever_call_fails_nothing_is_left_on_the_device() {
    let sim = Simulator::new(SimConfig::new().step(true));
    session(&sim).expect("a session without faults");
    let calls = sim.calls();
    assert!(calls > 20, "{calls}");
    for k in 1..=calls {
        let before = sim.calls();
        sim.fail_call(k, Errno::ENOMEM);
        // GET_CONTEXT is tried again in a shorter form, and succeeds.
        let ended = session(&sim);
        let retried = ended.is_ok() && sim.calls() > before + calls;
        assert!(ended == Err(Errno::ENOMEM) || retried, "call {k}: {ended:?}");
        assert_eq!(sim.object_counts(0), Counts::default(), "call {k}");
        // The session that failed frees its memory before it closes the file.
        sim.take_violations();
    }
    session(&sim).expect("a session after the faults");
    assert_eq!(sim.violations(), []);
}

#[test]
fn a_planned_failure_happens_once_and_can_be_taken_back() {
    let session = Session::new();
    session.sim.fail_call(2, Errno::EINTR);
    session.sim.fail_call(3, Errno::EPERM);
    let first = pd::alloc(&*session.file).expect("a PD");
    // The interrupted call is repeated, and the repetition fails.
    assert_eq!(pd::dealloc(&*session.file, first.handle), Err(Errno::EPERM));
    pd::dealloc(&*session.file, first.handle).expect("a PD");
    session.sim.fail_call(1, Errno::EPERM);
    session.sim.fail_no_call();
    pd::alloc(&*session.file).expect("a PD");
}

#[test]
fn a_late_failure_comes_after_the_work() {
    let session = Session::new();
    let file = &*session.file;
    let before = session.sim.object_counts(0).mkeys;
    // The first call gives the memory.
    session.sim.fail_call_late(2, Errno::EFAULT);
    let refused = session.try_region(4096, AccessFlags::LOCAL_WRITE).map(drop);
    assert_eq!(refused, Err(Errno::EFAULT));
    assert_eq!(session.sim.object_counts(0).mkeys, before + 1, "it is there all the same");
    let region = session.try_region(4096, AccessFlags::LOCAL_WRITE).expect("a region");
    session.sim.fail_call_late(1, Errno::EFAULT);
    assert_eq!(mr::dereg(file, region.mr.handle), Err(Errno::EFAULT));
    assert_eq!(mr::dereg(file, region.mr.handle), Err(Errno::ENOENT), "it is gone all the same");
    // The memory of the region that failed was freed first.
    session.sim.take_violations();
}
