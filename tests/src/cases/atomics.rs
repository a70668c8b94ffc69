//! Atomic operations: their effects, and the reasons for which they fail.

use crate::prelude::*;
use mlx5::{Data, MaskedOperands, Operation, SendOps};

pub(crate) const CASES: &[Case] = cases![
    compare_and_swap_swaps_what_is_equal_and_returns_what_was: EVERY_MODEL,
    fetch_and_add_adds_and_returns_what_was: EVERY_MODEL,
    masked_compare_and_swap_changes_the_masked_bits_alone: SIMULATOR,
    masked_fetch_and_add_keeps_its_fields_apart: SIMULATOR,
    an_atomic_at_an_odd_address_is_an_invalid_request: SIMULATOR,
    an_atomic_without_the_right_is_refused_by_the_other_side,
    an_atomic_with_a_bad_key_is_refused_by_the_other_side,
    an_atomic_with_a_bad_local_key_is_refused_here,
    the_result_of_an_atomic_is_eight_bytes,
    atomics_wait_at_a_fence_like_reads,
];

const ACCESS: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);
const MEMORY: usize = 4096;
/// Offsets of results at the requester, and of words at the responder.
const RESULT: usize = 64;
const WORD: usize = 128;

fn pair(bed: &Bed) -> Result<Pair<Rc>, Failed> {
    bed.pair(&PairOptions::default().memory(MEMORY).access(ACCESS))
}

/// The word at `at`.
fn word(mr: &MemoryRegion, at: usize) -> Result<u64, Failed> {
    let mut bytes = [0; 8];
    mr.read_at(at, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Executes an operation, and returns its result.
fn execute(
    bed: &Bed,
    a: &mut End<Rc>,
    operation: Operation,
    opcode: CompletionOpcode,
) -> Result<u64, Failed> {
    a.mr.write_at(RESULT, &[0xee; 16])?;
    let sge = a.mr.sge(RESULT..RESULT + 8)?;
    let data = Data::Sges(&[sge]);
    let wr = SendWr { wr_id: 7, flags: SendFlags::SIGNALED, operation, data, ..SendWr::default() };
    a.qp.post_send(&[wr])?;
    let done = bed.poll_good(&mut a.send_cq, 1)[0];
    let done = done.as_completion();
    assert_eq!((done.wr_id(), done.opcode(), done.byte_len()), (7, opcode, Some(8)));
    assert_eq!(word(&a.mr, RESULT + 8)?, u64::from_ne_bytes([0xee; 8]), "no more than eight bytes");
    word(&a.mr, RESULT)
}

fn compare_and_swap_swaps_what_is_equal_and_returns_what_was(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = pair(bed)?;
    let remote = b.mr.remote(WORD..)?;
    let opcode = CompletionOpcode::CompareSwap;
    b.mr.write_at(WORD, &5_u64.to_ne_bytes())?;
    let cas = |compare, swap| Operation::CompareSwap { remote, compare, swap };
    assert_eq!(execute(bed, &mut a, cas(5, u64::MAX), opcode)?, 5);
    assert_eq!(word(&b.mr, WORD)?, u64::MAX);
    assert_eq!(execute(bed, &mut a, cas(5, 1), opcode)?, u64::MAX, "not equal");
    assert_eq!(word(&b.mr, WORD)?, u64::MAX);
    // The typed form returns the same.
    let result = a.mr.sge(RESULT..RESULT + 8)?;
    let mut batch = a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).atomic_cmp_swp(remote, u64::MAX, 9).sge(result);
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    assert_eq!((word(&a.mr, RESULT)?, word(&b.mr, WORD)?), (u64::MAX, 9));
    Ok(())
}

fn fetch_and_add_adds_and_returns_what_was(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = pair(bed)?;
    let remote = b.mr.remote(WORD..)?;
    b.mr.write_at(WORD, &u64::MAX.to_ne_bytes())?;
    let add = |add| Operation::FetchAdd { remote, add };
    let opcode = CompletionOpcode::FetchAdd;
    assert_eq!(execute(bed, &mut a, add(3), opcode)?, u64::MAX);
    assert_eq!(execute(bed, &mut a, add(1 << 40), opcode)?, 2, "it wraps");
    assert_eq!(word(&b.mr, WORD)?, 2 + (1 << 40));
    let result = a.mr.sge(RESULT..RESULT + 8)?;
    let mut batch = a.qp.wr_start();
    for i in 0..10 {
        batch.wr(i, SendFlags::SIGNALED).atomic_fetch_add(remote, 10).sge_list(&[result]);
    }
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 10);
    assert_eq!(word(&b.mr, WORD)?, 102 + (1 << 40));
    Ok(())
}

fn masked_compare_and_swap_changes_the_masked_bits_alone(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = pair(bed)?;
    let remote = b.mr.remote(WORD..)?;
    b.mr.write_at(WORD, &0x1111_2222_3333_4444_u64.to_ne_bytes())?;
    let operands = MaskedOperands {
        compare: 0x9999_9999_9999_4444,
        compare_mask: 0xffff,
        swap: 0xaaaa_bbbb_cccc_dddd,
        swap_mask: 0xffff << 48,
    };
    let operation = Operation::MaskedCompareSwap { remote, operands };
    let opcode = CompletionOpcode::CompareSwap;
    let old = execute(bed, &mut a, operation, opcode)?;
    assert_eq!(old, 0x1111_2222_3333_4444);
    assert_eq!(word(&b.mr, WORD)?, 0xaaaa_2222_3333_4444);
    let operands = MaskedOperands { compare_mask: u64::MAX, ..operands };
    let operation = Operation::MaskedCompareSwap { remote, operands };
    execute(bed, &mut a, operation, opcode)?;
    assert_eq!(word(&b.mr, WORD)?, 0xaaaa_2222_3333_4444, "not equal");
    Ok(())
}

fn masked_fetch_and_add_keeps_its_fields_apart(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = pair(bed)?;
    let remote = b.mr.remote(WORD..)?;
    b.mr.write_at(WORD, &0x0000_0001_ffff_ffff_u64.to_ne_bytes())?;
    // Two fields of 32 bits.
    let operation = Operation::MaskedFetchAdd { remote, add: 1 << 32 | 1, boundary: 1 << 31 };
    let opcode = CompletionOpcode::FetchAdd;
    let old = execute(bed, &mut a, operation, opcode)?;
    assert_eq!(old, 0x0000_0001_ffff_ffff);
    assert_eq!(word(&b.mr, WORD)?, 0x0000_0002_0000_0000, "no carry from the lower to the upper");
    Ok(())
}

/// Posts a fetch and add that fails, and returns the error.
fn failure(
    bed: &Bed,
    a: &mut End<Rc>,
    remote: RemoteAddress,
    sge: Sge,
) -> Result<Option<Syndrome>, Failed> {
    let mut batch = a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).atomic_fetch_add(remote, 1).sge(sge);
    batch.complete()?;
    Ok(syndrome(&bed.poll_one(&mut a.send_cq)))
}

fn an_atomic_at_an_odd_address_is_an_invalid_request(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = pair(bed)?;
    let (remote, sge) = (b.mr.remote(WORD + 4..)?, a.mr.sge(RESULT..RESULT + 8)?);
    let failed = failure(bed, &mut a, remote, sge)?;
    assert_eq!(failed, Some(Syndrome::RemoteInvalidRequest));
    assert_eq!(word(&b.mr, WORD)?, 0);
    Ok(())
}

fn an_atomic_without_the_right_is_refused_by_the_other_side(bed: &Bed) -> Outcome {
    let options = PairOptions::default().memory(MEMORY);
    let Pair { mut a, b } = bed.pair::<Rc>(&options)?;
    let (remote, sge) = (b.mr.remote(WORD..)?, a.mr.sge(RESULT..RESULT + 8)?);
    let failed = failure(bed, &mut a, remote, sge)?;
    assert_eq!(failed, Some(Syndrome::RemoteAccess));
    assert_eq!(word(&b.mr, WORD)?, 0);
    Ok(())
}

fn an_atomic_with_a_bad_key_is_refused_by_the_other_side(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = pair(bed)?;
    let remote = RemoteAddress { rkey: b.mr.rkey() ^ 1, ..b.mr.remote(WORD..)? };
    let sge = a.mr.sge(RESULT..RESULT + 8)?;
    let failed = failure(bed, &mut a, remote, sge)?;
    assert_eq!(failed, Some(Syndrome::RemoteAccess));
    Ok(())
}

fn an_atomic_with_a_bad_local_key_is_refused_here(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = pair(bed)?;
    let sge = Sge { lkey: a.mr.lkey() ^ 1, ..a.mr.sge(RESULT..RESULT + 8)? };
    let remote = b.mr.remote(WORD..)?;
    let failed = failure(bed, &mut a, remote, sge)?;
    assert_eq!(failed, Some(Syndrome::LocalProtection));
    Ok(())
}

fn the_result_of_an_atomic_is_eight_bytes(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = pair(bed)?;
    let remote = b.mr.remote(WORD..)?;
    for length in [0, 4, 16] {
        let sge = a.mr.sge(RESULT..RESULT + length)?;
        let mut batch = a.qp.wr_start();
        batch.wr(1, SendFlags::SIGNALED).atomic_fetch_add(remote, 1).sge(sge);
        let refused = batch.complete().expect_err("not eight bytes").error();
        assert_eq!(refused, PostError::AtomicResult { entries: 1, length: length as u32 });
    }
    bed.nothing(&mut a.send_cq);
    assert_eq!(word(&b.mr, WORD)?, 0);
    Ok(())
}

fn atomics_wait_at_a_fence_like_reads(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = pair(bed)?;
    assert!(SendOps::of::<Rc>().contains(SendOps::ATOMICS));
    let (remote, there) = (b.mr.remote(WORD..)?, b.mr.remote(WORD + 64..)?);
    let result = a.mr.sge(RESULT..RESULT + 8)?;
    b.mr.write_at(WORD, &77_u64.to_ne_bytes())?;
    let mut batch = a.qp.wr_start();
    batch.wr(1, SendFlags::empty()).atomic_fetch_add(remote, 1).sge(result);
    // Sends the atomic's result on.
    let flags = SendFlags::SIGNALED | SendFlags::FENCE;
    batch.wr(2, flags).rdma_write(there).sge(result);
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    assert_eq!(word(&b.mr, WORD + 64)?, 77);
    Ok(())
}
