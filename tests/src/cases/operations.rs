//! Every operation of every transport, in both forms, carries messages of every size.

use crate::prelude::*;
use mlx5::{Data, mtu_bytes};

pub(crate) const CASES: &[Case] = cases![
    rc_carries_every_operation_at_every_size: EVERY_MODEL,
    uc_carries_every_operation_at_every_size: EVERY_MODEL,
    ud_carries_every_operation_at_every_size: EVERY_MODEL,
    rc_carries_inline_data_up_to_the_limit: EVERY_MODEL,
    uc_carries_inline_data_up_to_the_limit,
    ud_carries_inline_data_up_to_the_limit,
    rc_gathers_and_scatters_lists: EVERY_MODEL,
    uc_gathers_and_scatters_lists,
    ud_gathers_and_scatters_lists,
    a_read_scatters_over_several_entries,
    inline_data_may_come_in_pieces,
    inline_data_is_taken_when_posted_and_memory_when_executed: STEP,
];

/// Offsets from which messages are sent, and to which they go.
const SOURCE: usize = 0;

/// Options for messages of up to `longest` bytes.
fn options(longest: usize) -> PairOptions {
    PairOptions::default().memory(2 * (longest + 64))
}

/// Sends `length` bytes from `a` to `b`, or makes `a` read them from `b`, and checks both sides.
fn carry<T: Traffic>(
    bed: &Bed,
    Pair { a, b }: &mut Pair<T>,
    form: Form,
    op: Op,
    length: usize,
    inline: bool,
) -> Outcome {
    let seed = (length as u64) << 8 | (op as u64) << 1 | (form == Form::List) as u64;
    let half = a.mr.len() / 2;
    let immediate = (seed as u32 ^ 0x1234_5678).to_be_bytes();
    for end in [&*a, &*b] {
        end.mr.write_at(half, &vec![0; half])?;
    }
    let from = if op == Op::Read { &b.mr } else { &a.mr };
    fill(from, SOURCE, seed, length)?;
    if op.is_received() {
        let at = if op == Op::WriteImm { 0..0 } else { half..half + T::GRH + length };
        b.recv(seed + 1, at);
    }
    let bytes = pattern(seed, length);
    let local = match op {
        Op::Read => a.mr.sge(half..half + length)?,
        _ => a.mr.sge(SOURCE..SOURCE + length)?,
    };
    let remote = match op {
        Op::Read => b.mr.remote(SOURCE..)?,
        _ => b.mr.remote(half..)?,
    };
    let (sges, pieces) = ([local], [&bytes[..]]);
    let data = if inline { Data::Inline(&pieces) } else { Data::Sges(&sges) };
    a.post(form, Post::new(op, seed, data).remote(remote).immediate(immediate))?;

    let sent = bed.poll_one(&mut a.send_cq);
    let sent = sent.as_completion();
    sent.status()?;
    assert_eq!(sent.wr_id(), seed);
    assert_eq!(sent.opcode(), op.completion());
    assert_eq!(sent.qp_num(), a.qp.qp_num());
    assert_eq!(sent.byte_len(), (op == Op::Read).then_some(length as u32));
    assert_eq!(sent.imm_data(), None);
    if op.is_received() {
        let received = bed.poll_one(b.recv_cq());
        let received = received.as_completion();
        received.status()?;
        assert_eq!(received.wr_id(), seed + 1);
        assert_eq!(received.opcode(), op.received());
        assert_eq!(received.qp_num(), b.qp.qp_num());
        assert_eq!(received.byte_len(), Some((T::GRH + length) as u32));
        assert_eq!(received.imm_data(), op.has_immediate().then_some(immediate));
        if T::GRH != 0 {
            assert_eq!(received.src_qp(), Some(a.qp.qp_num()));
        }
    } else {
        // The receiver has no completion for an unreliable write.
        bed.settle();
    }
    let (to, at) = match op {
        Op::Read => (&a.mr, half),
        Op::Write | Op::WriteImm => (&b.mr, half),
        Op::Send | Op::SendImm => (&b.mr, half + T::GRH),
    };
    if op.is_received() || op == Op::Read || bed.is_simulated() {
        verify(to, at, seed, length);
        untouched(to, at + length..at + length + 8);
    }
    Ok(())
}

/// The sizes below `longest` around which the requests or packets change.
fn sizes(mtu: usize, longest: usize) -> Vec<usize> {
    let all = [0, 1, 63, 64, 65, mtu - 1, mtu, mtu + 1, 3 * mtu + 7, 1 << 20];
    all.into_iter().filter(|size| *size <= longest).collect()
}

fn every_size<T: Traffic>(bed: &Bed) -> Outcome {
    let context = bed.context();
    let mtu = context.query_port(bed.port())?.active_mtu.map_or(1024, mtu_bytes) as usize;
    drop(context);
    let longest = if T::GRH == 0 { 1 << 20 } else { mtu };
    let mut pair = bed.pair::<T>(&options(longest))?;
    for &op in T::OPS {
        for form in Form::ALL {
            for length in sizes(mtu, longest) {
                carry(bed, &mut pair, form, op, length, false)?;
            }
        }
    }
    Ok(())
}

fn rc_carries_every_operation_at_every_size(bed: &Bed) -> Outcome {
    every_size::<Rc>(bed)
}

fn uc_carries_every_operation_at_every_size(bed: &Bed) -> Outcome {
    every_size::<Uc>(bed)
}

fn ud_carries_every_operation_at_every_size(bed: &Bed) -> Outcome {
    every_size::<Ud>(bed)
}

/// Inline data around the boundaries of blocks and up to the limit, and refused beyond it.
fn inline<T: Traffic>(bed: &Bed) -> Outcome {
    for asked in [1, 28, 64, 500] {
        let mut pair = bed.pair::<T>(&options(4096).inline(asked))?;
        let limit = pair.a.qp.caps().max_inline_data as usize;
        assert!(limit >= asked as usize, "asked for {asked}, granted {limit}");
        for &op in T::OPS.iter().filter(|op| **op != Op::Read) {
            for form in Form::ALL {
                for length in [0, 1, 3, 4, 7, 8, 9, limit - 1, limit] {
                    carry(bed, &mut pair, form, op, length, true)?;
                }
                let long = pattern(1, limit + 1);
                let free = pair.a.qp.free_send_blocks();
                let refused = pair.a.post(form, Post::new(op, 1, Data::Inline(&[&long])));
                let max = limit as u32;
                let error = PostError::InlineTooLong { length: max + 1, max };
                assert_eq!(refused, Err(error));
                assert_eq!(pair.a.qp.free_send_blocks(), free, "nothing was posted");
            }
        }
        bed.nothing(&mut pair.a.send_cq);
    }
    Ok(())
}

fn rc_carries_inline_data_up_to_the_limit(bed: &Bed) -> Outcome {
    inline::<Rc>(bed)
}

fn uc_carries_inline_data_up_to_the_limit(bed: &Bed) -> Outcome {
    inline::<Uc>(bed)
}

fn ud_carries_inline_data_up_to_the_limit(bed: &Bed) -> Outcome {
    inline::<Ud>(bed)
}

/// Messages in several pieces, some of them empty, go out as one and arrive in other pieces.
fn lists<T: Traffic>(bed: &Bed) -> Outcome {
    let options = PairOptions::default().send_sge(6).recv_sge(5);
    let Pair { mut a, mut b } = bed.pair::<T>(&options)?;
    let ops = T::OPS.iter().copied().filter(|op| matches!(op, Op::Send | Op::SendImm | Op::Write));
    for (op, form) in ops.flat_map(|op| Form::ALL.map(|form| (op, form))) {
        // Pieces of 10, 0, 1, 300, 0 and 200 bytes, the first two of them swapped in memory.
        let seed = 7 + op as u64;
        fill(&a.mr, 0, seed, 511)?;
        let message = pattern(seed, 511);
        let sges = [
            a.mr.sge(100..110)?,
            a.mr.sge(50..50)?,
            a.mr.sge(0..1)?,
            a.mr.sge(110..410)?,
            Sge::default(),
            a.mr.sge(300..500)?,
        ];
        let expected =
            [&message[100..110], &message[0..1], &message[110..410], &message[300..500]].concat();
        let base = 8192;
        let remote = b.mr.remote(base + 4096..)?;
        b.mr.write_at(base, &[0; 8192])?;
        if op.is_received() {
            let scatter = [
                b.mr.sge(base..base + T::GRH)?,
                b.mr.sge(base + 100..base + 100 + 7)?,
                b.mr.sge(base + 200..base + 200)?,
                b.mr.sge(base + 300..base + 304)?,
                b.mr.sge(base + 1000..base + 2000)?,
            ];
            b.qp.post_recv(&[ReceiveWr { wr_id: 3, sges: &scatter }])?;
        }
        a.post(form, Post::new(op, 4, Data::Sges(&sges)).remote(remote))?;
        bed.poll_good(&mut a.send_cq, 1);
        if op.is_received() {
            let received = bed.poll_good(b.recv_cq(), 1)[0];
            let received = received.as_completion();
            assert_eq!(received.byte_len(), Some((expected.len() + T::GRH) as u32));
            let mut found = vec![0; expected.len()];
            b.mr.read_at(base + 100, &mut found[..7])?;
            b.mr.read_at(base + 300, &mut found[7..11])?;
            b.mr.read_at(base + 1000, &mut found[11..])?;
            assert_eq!(found, expected);
            untouched(&b.mr, base + 107..base + 300);
            untouched(&b.mr, base + 304..base + 1000);
        } else {
            bed.settle();
            let mut found = vec![0; expected.len()];
            b.mr.read_at(base + 4096, &mut found)?;
            assert!(found == expected || !bed.is_simulated());
        }
    }
    Ok(())
}

fn rc_gathers_and_scatters_lists(bed: &Bed) -> Outcome {
    lists::<Rc>(bed)
}

fn uc_gathers_and_scatters_lists(bed: &Bed) -> Outcome {
    lists::<Uc>(bed)
}

fn ud_gathers_and_scatters_lists(bed: &Bed) -> Outcome {
    lists::<Ud>(bed)
}

fn a_read_scatters_over_several_entries(bed: &Bed) -> Outcome {
    let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default())?;
    fill(&b.mr, 512, 9, 300)?;
    let sges = [a.mr.sge(0..100)?, a.mr.sge(4000..4000)?, a.mr.sge(1000..1200)?];
    for form in Form::ALL {
        a.mr.write_at(0, &[0; 4096])?;
        let read = Post::new(Op::Read, 1, Data::Sges(&sges)).remote(b.mr.remote(512..)?);
        a.post(form, read)?;
        let done = bed.poll_good(&mut a.send_cq, 1)[0];
        assert_eq!(done.as_completion().byte_len(), Some(300));
        let mut found = vec![0; 300];
        a.mr.read_at(0, &mut found[..100])?;
        a.mr.read_at(1000, &mut found[100..])?;
        assert_eq!(found, pattern(9, 300));
        untouched(&a.mr, 100..1000);
    }
    Ok(())
}

fn inline_data_may_come_in_pieces(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default().inline(200))?;
    for form in Form::ALL {
        b.recv(1, 0..200);
        let pieces: [&[u8]; 4] = [b"one, ", b"", b"two and ", &[b'3'; 70]];
        a.post(form, Post::new(Op::Send, 2, Data::Inline(&pieces)))?;
        bed.poll_good(&mut a.send_cq, 1);
        let received = bed.poll_good(b.recv_cq(), 1)[0];
        assert_eq!(received.as_completion().byte_len(), Some(83));
        crate::pattern::expect_bytes(&b.mr, 0, &pieces.concat());
    }
    Ok(())
}

fn inline_data_is_taken_when_posted_and_memory_when_executed(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = bed.pair::<Rc>(&PairOptions::default().inline(64))?;
    for form in Form::ALL {
        b.recv(1, 0..8);
        b.recv(2, 64..72);
        a.mr.write_at(0, b"before..")?;
        let mut bytes = *b"inline..";
        a.post(form, Post::new(Op::Send, 3, Data::Inline(&[&bytes])))?;
        let sges = [a.mr.sge(0..8)?];
        a.post(form, Post::new(Op::Send, 4, Data::Sges(&sges)))?;
        // The device has read neither of them yet.
        std::hint::black_box(&mut bytes).copy_from_slice(b"changed.");
        a.mr.write_at(0, b"after...")?;
        bed.poll_good(&mut a.send_cq, 2);
        bed.poll_good(b.recv_cq(), 2);
        crate::pattern::expect_bytes(&b.mr, 0, b"inline..");
        crate::pattern::expect_bytes(&b.mr, 64, b"after...");
    }
    Ok(())
}
