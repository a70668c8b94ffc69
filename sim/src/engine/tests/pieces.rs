//! Signatures under transfers that are split anywhere.

use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::wqe::Opcode;

use super::rig::{Wqe, pattern};
use super::signed::{Bench, KINDS, Kind, Plan};

/// Pseudorandom numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }

    fn domain(&mut self) -> Option<(Kind, u32)> {
        let block = [512, 520, 4048, 4096, 4160][self.below(5)];
        (self.below(4) > 0).then(|| (KINDS[self.below(KINDS.len())], block))
    }
}

fn signed(domain: Option<(Kind, u32)>, data: &[u8]) -> Vec<u8> {
    domain.map_or_else(|| data.to_vec(), |(kind, block)| kind.sign(block as usize, data))
}

/// Bytes of data at most.
const MOST: usize = 12_000;

#[test]
fn however_a_stream_is_cut_the_same_stands_in_memory_and_on_the_wire() {
    for seed in 0..150 {
        let mut numbers = Numbers(seed);
        let plan = Plan::new(numbers.domain(), numbers.domain());
        let length = 1 + numbers.below(MOST);
        let data = pattern(length);
        let (in_memory, on_wire) = (signed(plan.memory, &data), signed(plan.wire, &data));
        let what = format!("seed {seed}: {length} bytes, {plan:?}");
        let mut bench = Bench::new();
        bench.plan(&plan, in_memory.len(), 0);
        let (plain, key) = (bench.plain.at(0), bench.plain.key);
        let mut request = |bench: &mut Bench, opcode: Opcode| {
            let mut at = 0;
            while at < on_wire.len() {
                let now = (1 + numbers.below(3000)).min(on_wire.len() - at);
                let wqe = Wqe::new(opcode).remote(at as u64, bench.key).data(
                    plain + at as u64,
                    now as u32,
                    key,
                );
                bench.p.b.post(&wqe);
                bench.rig.run();
                assert_eq!(bench.p.cq_b.expect().opcode, CqeOpcode::Requester, "{what}");
                at += now;
            }
            assert!(bench.p.cq_a.poll().is_none(), "{what}: no error");
        };
        bench.plain.memory.write(0, &on_wire);
        request(&mut bench, Opcode::RdmaWrite);
        assert!(bench.memory.memory.read(0, in_memory.len()) == in_memory, "{what}: memory");
        bench.plain.memory.write(0, &vec![0; on_wire.len()]);
        request(&mut bench, Opcode::RdmaRead);
        assert!(bench.plain.memory.read(0, on_wire.len()) == on_wire, "{what}: wire");
    }
}

#[test]
fn a_flipped_bit_is_found_where_it_is_however_the_stream_is_cut() {
    for seed in 0..150 {
        let mut numbers = Numbers(seed);
        let (kind, block) = (KINDS[numbers.below(KINDS.len())], [512, 520, 4048][numbers.below(3)]);
        let blocks = 2 + numbers.below(2);
        let data = pattern(blocks * block as usize);
        let mut on_wire = kind.sign(block as usize, &data);
        let flipped = numbers.below(on_wire.len());
        on_wire[flipped] ^= 1 << numbers.below(8);
        let what = format!("seed {seed}: {kind:?}, {block}, byte {flipped}");
        let mut bench = Bench::new();
        bench.plan(&Plan::new(None, Some((kind, block))), data.len(), 0);
        bench.plain.memory.write(0, &on_wire);
        let mut at = 0;
        let mut errors = Vec::new();
        while at < on_wire.len() {
            let now = (1 + numbers.below(2000)).min(on_wire.len() - at);
            let wqe = Wqe::new(Opcode::RdmaWrite).remote(at as u64, bench.key).data(
                bench.plain.at(at),
                now as u32,
                bench.plain.key,
            );
            bench.p.b.post(&wqe);
            bench.rig.run();
            assert_eq!(bench.p.cq_b.expect().opcode, CqeOpcode::Requester, "{what}");
            errors.extend(bench.p.cq_a.poll().map(|found| super::signed::error(Some(found))));
            at += now;
        }
        let stride = block as usize + kind.bytes();
        let offsets: Vec<u64> = errors.iter().map(|error| error.offset.get()).collect();
        assert_eq!(offsets, [(flipped / stride * stride) as u64], "{what}");
    }
}
