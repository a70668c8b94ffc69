//! BlueFlame registers on a bus on which every write arrives alone.

use mlx5_prm::wqe::{Opcode, control_flags};

use super::rig::{Pair, Qp, Rig, Wqe};
use crate::config::SimConfig;
use crate::engine::Transport;
use crate::engine::fault::Violation;

const REGISTER: usize = 0x800;
const FLAGS: usize = 11;

fn exact() -> (Rig, Pair) {
    let rig = Rig::new(SimConfig::new().exact_doorbells(true));
    let pair = rig.pair(Transport::Rc);
    (rig, pair)
}

/// Writes 8-byte pieces of a block to the register, `count` of them.
fn copy(rig: &Rig, qp: &Qp, block: &[u8; 64], count: usize) {
    for (piece, offset) in block.as_chunks::<8>().0.iter().zip((REGISTER..).step_by(8)).take(count)
    {
        let uar = rig.lock().device(0).qp(qp.qpn).expect("a queue pair").uar;
        rig.lock().device_mut(0).doorbell_write(uar, offset, u64::from_be_bytes(*piece));
    }
}

/// Writes a NOP into the ring and returns its block.
fn nop(qp: &mut Qp, signaled: bool) -> [u8; 64] {
    let mut block = [0; 64];
    let at = usize::from(qp.posted) * 4;
    let wqe = Wqe::new(Opcode::Nop);
    let doorbell = qp.write(&if signaled { wqe } else { wqe.unsignaled() });
    qp.write_record(qp.posted);
    for (unit, bytes) in block.chunks_exact_mut(16).enumerate() {
        bytes.copy_from_slice(&qp.read_unit(at + unit));
    }
    assert_eq!(block[..8], doorbell.to_be_bytes());
    block
}

#[test]
fn a_copy_rings_with_its_first_piece() {
    let (rig, mut p) = exact();
    let block = nop(&mut p.a, true);
    copy(&rig, &p.a, &block, 8);
    rig.run();
    p.cq_a.expect();
    assert_eq!(rig.lock().device(0).violations(), []);
}

#[test]
fn a_copy_that_differs_from_the_ring_shows_where() {
    let (rig, mut p) = exact();
    let mut block = nop(&mut p.a, true);
    block[13] ^= 1;
    copy(&rig, &p.a, &block, 8);
    let expected = Violation::BlueFlame { qpn: p.a.qpn, index: 0, byte: 13 };
    assert_eq!(rig.lock().device(0).violations(), [expected]);
}

#[test]
fn a_whole_copy_is_executed_in_place_of_a_silent_nop_in_the_ring() {
    let (rig, mut p) = exact();
    let mut block = nop(&mut p.a, false);
    block[FLAGS] |= control_flags::COMPLETION;
    copy(&rig, &p.a, &block, 8);
    rig.run();
    p.cq_a.expect();
}

#[test]
fn a_silent_nop_whose_copy_breaks_off_is_executed_from_the_ring() {
    let (rig, mut p) = exact();
    let mut block = nop(&mut p.a, false);
    block[FLAGS] |= control_flags::COMPLETION;
    copy(&rig, &p.a, &block, 7);
    rig.run();
    p.cq_a.expect_none();
    assert_eq!(rig.query(&p.a).hw_sq_wqebb_counter, 1);
}
