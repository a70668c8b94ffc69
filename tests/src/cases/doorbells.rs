//! Doorbells: every way to ring one, and the state that the device must find then.

use crate::prelude::*;
use mlx5::{ConnectOptions, Data, DoorbellChoice, DoorbellMode, ErrorKind, OpenOptions};

pub(crate) const CASES: &[Case] = cases![
    queue_pair_reports_its_doorbell_and_works_with_each: EVERY_MODEL | BLUEFLAME,
    without_blueflame_plain_doorbells_are_rung: SIMULATOR,
    a_context_may_do_without_blueflame,
    queue_pairs_share_a_register_when_there_are_no_more: BLUEFLAME,
    many_queue_pairs_ring_one_shared_register: BLUEFLAME,
    the_record_covers_what_the_doorbell_announces: STEP,
    a_blueflame_copy_is_what_stands_in_the_ring: STEP,
    a_blueflame_copy_is_whole_where_the_ring_ends_within_it: STEP,
    one_doorbell_announces_a_whole_batch: STEP,
    a_small_blueflame_register_takes_small_requests: STEP,
    queue_buffers_and_memory_may_be_of_huge_pages,
];

const CHOICES: [(DoorbellChoice, DoorbellMode); 3] = [
    (DoorbellChoice::BlueFlame, DoorbellMode::BlueFlame),
    (DoorbellChoice::SharedBlueFlame, DoorbellMode::SharedBlueFlame),
    (DoorbellChoice::Doorbell, DoorbellMode::Doorbell),
];

/// Requests of one to five blocks, alone and in batches, until the ring wraps.
fn carry(bed: &Bed, a: &mut End<Rc>, b: &End<Rc>) -> Outcome {
    let mut seed = 0;
    for count in [1, 1, 2, 3, 1, 5, 1, 1, 4] {
        for length in [1, 28, 29, 92, 93, 156, 157, 220, 221, 284] {
            let bytes: Vec<_> = (0..count).map(|n| pattern(seed + n, length)).collect();
            let pieces: Vec<_> = bytes.iter().map(|bytes| [&bytes[..]]).collect();
            let posts: Vec<_> = (0..count)
                .map(|n| {
                    let data = Data::Inline(&pieces[n as usize]);
                    let remote =
                        RemoteAddress { addr: b.mr.addr() + 512 * n, rkey: b.mr.rkey() };
                    Post::new(Op::Write, seed + n, data).remote(remote)
                })
                .collect();
            a.post_all(Form::ALL[(seed % 2) as usize], &posts)?;
            let done = bed.poll_good(&mut a.send_cq, count as usize);
            assert!(wr_ids(&done).into_iter().eq(seed..seed + count));
            for n in 0..count {
                verify(&b.mr, 512 * n as usize, seed + n, length);
            }
            seed += count;
        }
    }
    Ok(())
}

fn options(choice: DoorbellChoice) -> PairOptions {
    PairOptions::default().doorbell(choice).send_wr(7).inline(284)
}

fn queue_pair_reports_its_doorbell_and_works_with_each(bed: &Bed) -> Outcome {
    for (choice, mode) in CHOICES {
        let Pair { mut a, b } = bed.pair::<Rc>(&options(choice))?;
        assert_eq!(a.qp.doorbell_mode(), mode);
        carry(bed, &mut a, &b)?;
    }
    Ok(())
}

fn without_blueflame_plain_doorbells_are_rung(bed: &Bed) -> Outcome {
    let bed = bed.configured(|config| config.blueflame(false))?;
    let Pair { mut a, b } = bed.pair::<Rc>(&options(DoorbellChoice::Auto))?;
    assert_eq!(a.qp.doorbell_mode(), DoorbellMode::Doorbell);
    carry(&bed, &mut a, &b)?;
    let build = a.pd.create_qp::<Rc>(&a.send_cq, &a.send_cq).doorbell(DoorbellChoice::BlueFlame);
    let Err(refused) = build.build() else { return Err("there is no BlueFlame".into()) };
    assert_eq!(refused.kind(), ErrorKind::ResourceLimit, "{refused}");
    Ok(())
}

fn a_context_may_do_without_blueflame(bed: &Bed) -> Outcome {
    let context = bed.device().open_with(&OpenOptions::new().blueflame(false))?;
    let end = bed.end_in::<Rc>(&context, &PairOptions::default())?;
    assert_eq!(end.qp.doorbell_mode(), DoorbellMode::Doorbell);
    Ok(())
}

fn queue_pairs_share_a_register_when_there_are_no_more(bed: &Bed) -> Outcome {
    let context = bed.device().open_with(&OpenOptions::new().max_blueflame_pages(1))?;
    let pair_options = options(DoorbellChoice::Auto);
    let mut ends = Vec::new();
    for _ in 0..6 {
        let mut a = bed.end_in::<Rc>(&context, &pair_options)?;
        let mut b = bed.end::<Rc>(&pair_options)?;
        crate::pair::connect_ends(&mut a, &mut b, &pair_options)?;
        ends.push((a, b));
    }
    let modes: Vec<_> = ends.iter().map(|(a, _)| a.qp.doorbell_mode()).collect();
    assert_eq!(modes[0], DoorbellMode::BlueFlame);
    assert!(modes[1..].iter().all(|mode| *mode == DoorbellMode::SharedBlueFlame));
    for (a, b) in &mut ends {
        carry(bed, a, b)?;
    }
    // A register that was freed can be allocated again.
    ends.remove(0);
    let end = bed.end_in::<Rc>(&context, &pair_options)?;
    assert_eq!(end.qp.doorbell_mode(), DoorbellMode::BlueFlame);
    Ok(())
}

fn many_queue_pairs_ring_one_shared_register(bed: &Bed) -> Outcome {
    const REQUESTS: u64 = 200;
    let context = bed.context();
    let pair_options =
        PairOptions::default().doorbell(DoorbellChoice::SharedBlueFlame).send_wr(256);
    let mut pairs = Vec::new();
    for _ in 0..3 {
        let mut a = bed.end_in::<Rc>(&context, &pair_options)?;
        let mut b = bed.end::<Rc>(&pair_options)?;
        crate::pair::connect_ends(&mut a, &mut b, &pair_options)?;
        pairs.push(Pair { a, b });
    }
    std::thread::scope(|scope| {
        for pair in &mut pairs {
            scope.spawn(|| {
                for n in 0..REQUESTS {
                    let bytes = n.to_le_bytes();
                    let pieces = [&bytes[..]];
                    let to = RemoteAddress {
                        addr: pair.b.mr.addr() + 8 * n,
                        rkey: pair.b.mr.rkey(),
                    };
                    let write = Post::new(Op::Write, n, Data::Inline(&pieces)).remote(to);
                    pair.a.post(Form::Typed, write).expect("room for all");
                }
            });
        }
    });
    for Pair { a, b } in &mut pairs {
        let done = bed.poll_good(&mut a.send_cq, REQUESTS as usize);
        assert!(wr_ids(&done).into_iter().eq(0..REQUESTS));
        let expected: Vec<u8> = (0..REQUESTS).flat_map(u64::to_le_bytes).collect();
        crate::pattern::expect_bytes(&b.mr, 0, &expected);
    }
    Ok(())
}

/// A stepped device that compares each doorbell with record and ring.
fn strict(bed: &Bed) -> Result<Bed, Failed> {
    bed.configured(|config| config.exact_doorbells(true))
}

fn the_record_covers_what_the_doorbell_announces(bed: &Bed) -> Outcome {
    let bed = strict(bed)?;
    let Pair { mut a, b } = bed.pair::<Rc>(&options(DoorbellChoice::Doorbell))?;
    carry(&bed, &mut a, &b)
}

fn a_blueflame_copy_is_what_stands_in_the_ring(bed: &Bed) -> Outcome {
    let bed = strict(bed)?;
    for choice in [DoorbellChoice::BlueFlame, DoorbellChoice::SharedBlueFlame] {
        let Pair { mut a, b } = bed.pair::<Rc>(&options(choice))?;
        carry(&bed, &mut a, &b)?;
        assert_eq!(bed.simulator().violations(), []);
    }
    Ok(())
}

fn a_blueflame_copy_is_whole_where_the_ring_ends_within_it(bed: &Bed) -> Outcome {
    let bed = strict(bed)?;
    for choice in [DoorbellChoice::BlueFlame, DoorbellChoice::SharedBlueFlame] {
        // Bytes of inline data that make a write of two, three and four blocks.
        for (blocks, length) in [(2, 92), (3, 156), (4, 220)] {
            for shift in 0..blocks {
                let Pair { mut a, b } = bed.pair::<Rc>(&options(choice))?;
                let ring = a.qp.caps().send_blocks;
                let remote = b.mr.remote(0..)?;
                for n in 0..u64::from(shift + 2 * ring / blocks) {
                    let length = if n < u64::from(shift) { 8 } else { length };
                    let bytes = pattern(n, length);
                    let pieces = [&bytes[..]];
                    a.post(Form::Typed, Post::new(Op::Write, n, Data::Inline(&pieces)).remote(remote))?;
                    bed.poll_good(&mut a.send_cq, 1);
                    verify(&b.mr, 0, n, length);
                }
            }
        }
        assert_eq!(bed.simulator().violations(), []);
    }
    Ok(())
}

fn one_doorbell_announces_a_whole_batch(bed: &Bed) -> Outcome {
    let bed = strict(bed)?;
    for (choice, _) in CHOICES {
        let Pair { mut a, b } = bed.pair::<Rc>(&PairOptions::default().doorbell(choice))?;
        let remote = b.mr.remote(0..)?;
        for round in 0..30 {
            let count = 1 + round % 16;
            let mut batch = a.qp.wr_start();
            for n in 0..count {
                batch.wr(n, SendFlags::SIGNALED).rdma_write(remote).inline_data(&[n as u8; 8]);
            }
            // The device sees nothing while the batch is built.
            bed.settle();
            batch.complete()?;
            let done = bed.poll_good(&mut a.send_cq, count as usize);
            assert!(wr_ids(&done).into_iter().eq(0..count));
        }
    }
    Ok(())
}

fn a_small_blueflame_register_takes_small_requests(bed: &Bed) -> Outcome {
    for log in [7, 8, 9] {
        let config = |config: SimConfig| config.exact_doorbells(true).log_bf_reg_size(log);
        let bed = bed.configured(config)?;
        let Pair { mut a, b } = bed.pair::<Rc>(&options(DoorbellChoice::Auto))?;
        carry(&bed, &mut a, &b)?;
    }
    Ok(())
}

fn queue_buffers_and_memory_may_be_of_huge_pages(bed: &Bed) -> Outcome {
    use mlx5::HugePages;
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let huge = HugePages::Prefer;
    let mr = pd.memory(4 << 20).huge_pages(huge).access(crate::pair::ALL_ACCESS).register()?;
    let mut cq = context.create_cq(4096).huge_pages(huge).build()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).max_send_wr(4096).huge_pages(huge);
    let mut qp = qp.max_inline_data(64).build()?;
    let port = context.local_port(bed.port(), None)?;
    let (psn, connect) = (mlx5::Psn::wrapping(1), ConnectOptions::default());
    let here = qp.endpoint(&port, psn, &connect);
    qp.connect(&port, psn, &here, &connect)?;
    fill(&mr, 0, 4, 1 << 20)?;
    let mut batch = qp.wr_start();
    let (from, to) = (mr.sge(0..1 << 20)?, mr.remote(2 << 20..)?);
    batch.wr(1, SendFlags::SIGNALED).rdma_write(to).sge(from);
    batch.complete()?;
    bed.poll_good(&mut cq, 1);
    verify(&mr, 2 << 20, 4, 1 << 20);
    Ok(())
}
