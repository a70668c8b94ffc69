//! Atomics with masks, and four-byte operands.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::wqe::{MASKED_ATOMIC_8, MaskedAtomicSegment, Opcode};

use super::rig::{Pair, Region, Rig, Wqe};
use crate::engine::Transport;

/// The opcode modifier of four-byte operands.
const MASKED_ATOMIC_4: u8 = 1 << 3;

struct Bench {
    rig: Rig,
    p: Pair,
    here: Region,
    there: Region,
}

impl Bench {
    fn new(held: u64) -> Self {
        let rig = Rig::one_device();
        let p = rig.pair(Transport::Rc);
        let (here, there) = (rig.region(0, 64), rig.region(0, 64));
        there.memory.write(8, &held.to_ne_bytes());
        Self { rig, p, here, there }
    }

    fn request(&self, opcode: Opcode, modifier: u8, at: usize) -> Wqe {
        Wqe::new(opcode).modifier(modifier).remote(self.there.at(at), self.there.key)
    }

    fn answered(&self, wqe: Wqe, bytes: u32) -> Wqe {
        wqe.data(self.here.at(0), bytes, self.here.key)
    }

    /// Executes a request and returns the bytes that it fetched.
    #[track_caller]
    fn run(&mut self, wqe: &Wqe, bytes: usize) -> Vec<u8> {
        self.p.a.post(wqe);
        self.rig.run();
        let done = self.p.cq_a.expect();
        assert_eq!((done.opcode, done.bytes()), (CqeOpcode::Requester, bytes as u32));
        assert_eq!(done.cqe.sop_drop_qpn.get() >> 24, u32::from(wqe.opcode));
        self.here.memory.read(0, bytes)
    }
}

#[test]
fn a_masked_swap_changes_its_bits_if_the_compared_ones_are_equal() {
    let mut bench = Bench::new(0x1234_5678_9abc_def0);
    let segment = MaskedAtomicSegment {
        swap: 0xffff.into(),
        compare: 0x1200_0000_0000_0000.into(),
        swap_mask: 0x0ff0.into(),
        compare_mask: (0xff << 56).into(),
    };
    let wqe = bench.request(Opcode::AtomicMaskedCs, MASKED_ATOMIC_8, 8).segment(&segment);
    let wqe = bench.answered(wqe, 8);
    assert_eq!(bench.run(&wqe, 8), 0x1234_5678_9abc_def0u64.to_ne_bytes());
    assert_eq!(bench.there.memory.read(8, 8), 0x1234_5678_9abc_dff0u64.to_ne_bytes());
}

#[test]
fn a_masked_addition_stops_carries_at_its_boundaries() {
    let mut bench = Bench::new(0x0000_00ff_0000_00ff);
    let wqe = bench.request(Opcode::AtomicMaskedFa, MASKED_ATOMIC_8, 8);
    let wqe = bench.answered(wqe.atomic(0x0101, 0x8080_8080_8080_8080), 8);
    bench.run(&wqe, 8);
    assert_eq!(bench.there.memory.read(8, 8), 0x0000_00ff_0000_0100u64.to_ne_bytes());
}

#[test]
fn an_operand_of_four_bytes_leaves_its_neighbour_alone() {
    for at in [8, 12] {
        let mut bench = Bench::new(0);
        bench.there.memory.write(8, &[0xff; 8]);
        let wqe = bench.request(Opcode::AtomicMaskedFa, MASKED_ATOMIC_4, at);
        // The number to add; there is no boundary.
        let wqe = bench.answered(wqe.atomic(6 << 32, 0), 4);
        assert_eq!(bench.run(&wqe, 4), [0xff; 4]);
        assert_eq!(bench.there.memory.read(at, 4), 5u32.to_ne_bytes());
        assert_eq!(bench.there.memory.read(20 - at, 4), [0xff; 4]);
    }
}

#[test]
fn operands_are_aligned_to_their_size_and_answers_are_as_long() {
    let mut bench = Bench::new(0);
    let wqe = bench.request(Opcode::AtomicMaskedFa, MASKED_ATOMIC_4, 10).atomic(0, 0);
    let wqe = bench.answered(wqe, 4);
    bench.p.a.post(&wqe);
    bench.rig.run();
    assert_eq!(bench.p.cq_a.expect_error().1, Syndrome::RemoteInvalidRequest);

    let mut bench = Bench::new(0);
    let wqe = bench.request(Opcode::AtomicMaskedFa, MASKED_ATOMIC_4, 8).atomic(0, 0);
    let wqe = bench.answered(wqe, 8);
    bench.p.a.post(&wqe);
    bench.rig.run();
    assert_eq!(bench.p.cq_a.expect_error().1, Syndrome::LocalQpOperation);
}
