//! Faults of the C provider's `mlx5dv_qp_cancel_posted_send_wrs`, one case each: the driver has
//! none of them. `docs/CANCEL.md` has the list.

use super::altered_kernel::{AlteredKernel, Overrides};
use super::cancel::rig::{BEHIND, Rig, ids};
use crate::prelude::*;
use mlx5::Access;
use mlx5::mkey::{BlockSize, Crc, Domain, MkeyAccess, Seed, Signature, SignatureBlock};
use mlx5::window::TypeOne;
use mlx5::{CancelError, CancelMode, MaskedOperands, NotPending, Opcode, devices_on};
use mlx5_uapi::ioctl::method;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

pub(crate) const CASES: &[Case] = cases![
    c_weakness_01_the_walk_goes_on_from_the_last_slot: STEP,
    c_weakness_02_nothing_pending_is_nothing_after_the_ring_wrapped: STEP,
    c_weakness_03_a_reset_leaves_nothing_to_stumble_over: STEP,
    c_weakness_04_an_aborted_batch_leaves_nothing_to_stumble_over: STEP,
    c_weakness_05_cancelling_again_and_after_posting_again: STEP,
    c_weakness_06_an_error_has_no_partial_effect: STEP,
    c_weakness_07_every_operation_can_be_cancelled: STEP,
    c_weakness_08_a_request_of_several_wqes_counts_once: STEP | SIGNATURES,
    c_weakness_09_a_cancelled_configuration_leaves_the_key_as_it_was: STEP | SIGNATURES | UPDATE_TAG,
    c_weakness_09_a_configuration_that_was_executed_stays_whatever_is_cancelled_a_lap_later: STEP,
    c_weakness_09_a_cancelled_binding_leaves_the_window_the_key_it_had: STEP,
    c_weakness_10_the_signature_of_a_nop_is_right: STEP,
    c_weakness_11_only_a_proof_that_holds_lets_cancel: STEP,
    c_weakness_12_posting_goes_on_while_the_firmware_is_asked: SIMULATOR,
    c_weakness_13_one_question_for_any_number_of_requests: STEP,
    c_weakness_14_by_set_predicate_or_handle_and_a_list_comes_back: STEP,
    c_weakness_16_polling_goes_on_while_requests_are_cancelled: STEP,
    c_weakness_17_many_requests_of_all_sizes_lap_after_lap: STEP,
];

fn c_weakness_01_the_walk_goes_on_from_the_last_slot(bed: &Bed) -> Outcome {
    let mut rig = Rig::with(bed, PairOptions::default().send_wr(16))?;
    let blocks = u64::from(rig.pair.a.qp.caps().send_blocks);
    // Fills the ring up to the last slot, and then from there across the end.
    rig.send_all(0..blocks - 1)?;
    assert_eq!(rig.executed().len() as u64, blocks - 1);
    rig.completed();
    rig.drain(0)?;
    rig.send_all(100..104)?;
    let drained = rig.pair.a.qp.drained()?;
    assert_eq!(u64::from(drained.block()) % blocks, blocks - 1);
    assert_eq!(ids(&rig.pair.a.qp.cancel(&drained, 101)?), [101]);
    assert_eq!(ids(&rig.pair.a.qp.cancel(&drained, 100)?), [100]);
    rig.resume()?;
    assert_eq!(rig.executed(), [102, 103]);
    Ok(())
}

fn c_weakness_02_nothing_pending_is_nothing_after_the_ring_wrapped(bed: &Bed) -> Outcome {
    for sizes in [&[1][..], &[2], &[1, 2, 3], &[3, 1]] {
        let mut rig = Rig::with(bed, PairOptions::default().send_wr(16).inline(150))?;
        for turn in 0..60 {
            rig.send(7, SendFlags::SIGNALED, sizes[turn % sizes.len()])?;
            assert_eq!(rig.executed(), [7]);
            rig.completed();
        }
        let drained = rig.drain(0)?;
        let before = rig.pair.a.qp.send_ring();
        assert_eq!(rig.pair.a.qp.cancel(&drained, 7)?.count(), 0);
        assert_eq!(rig.pair.a.qp.cancel(&drained, 8)?.count(), 0);
        assert_eq!(rig.pair.a.qp.cancel_where(&drained, |_| true)?.count(), 0);
        assert!(rig.pair.a.qp.send_ring() == before, "executed requests are as they were");
        rig.resume()?;
    }
    Ok(())
}

fn c_weakness_03_a_reset_leaves_nothing_to_stumble_over(bed: &Bed) -> Outcome {
    let options = PairOptions::default().send_wr(8).inline(150);
    let mut rig = Rig::with(bed, options)?;
    rig.send_all(0..8)?;
    assert_eq!(rig.executed().len(), 8);
    rig.completed();
    let remote = rig.pair.b.endpoint(&options);
    let own = rig.pair.a.endpoint(&options);
    for end in [&mut rig.pair.a, &mut rig.pair.b] {
        end.qp.modify(&QpAttributes::new().qp_state(QueueState::Reset))?;
    }
    rig.receives = 0;
    Rc::wire(&mut rig.pair.a, &remote, &options)?;
    Rc::wire(&mut rig.pair.b, &own, &options)?;
    rig.refill();
    rig.drain(0)?;
    for wr_id in 10..14 {
        rig.send(wr_id, SendFlags::SIGNALED, 2)?;
    }
    let drained = rig.pair.a.qp.drained()?;
    // An identifier from before the reset, and each one from after it.
    assert_eq!(rig.pair.a.qp.cancel(&drained, 1)?.count(), 0);
    assert_eq!(ids(&rig.pair.a.qp.cancel(&drained, 11)?), [11]);
    rig.resume()?;
    assert_eq!(rig.executed(), [10, 12, 13]);
    Ok(())
}

fn c_weakness_04_an_aborted_batch_leaves_nothing_to_stumble_over(bed: &Bed) -> Outcome {
    let mut rig = Rig::with(bed, PairOptions::default().send_wr(16).inline(150))?;
    rig.drain(0)?;
    rig.send_all([1])?;
    for refuse in [false, true] {
        let mut batch = rig.pair.a.qp.wr_start();
        for wr_id in 50..55 {
            batch.wr(wr_id, SendFlags::SIGNALED).send().inline_data(&[9; 100]);
        }
        if refuse {
            batch.wr(55, SendFlags::SIGNALED).send().inline_data(&[9; 4000]);
            batch.complete().expect_err("too long");
        } else {
            batch.abort();
        }
    }
    rig.send_all(2..6)?;
    let drained = rig.pair.a.qp.drained()?;
    assert_eq!(rig.pending(&drained)?, [1, 2, 3, 4, 5]);
    assert_eq!(rig.pair.a.qp.cancel(&drained, 51)?.count(), 0);
    assert_eq!(ids(&rig.pair.a.qp.cancel(&drained, 3)?), [3]);
    rig.resume()?;
    assert_eq!(rig.executed(), [1, 2, 4, 5]);
    Ok(())
}

fn c_weakness_05_cancelling_again_and_after_posting_again(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..3)?;
    let drained = rig.drain(0)?;
    for _ in 0..5 {
        assert_eq!(ids(&rig.pair.a.qp.cancel(&drained, 1)?), [1]);
        assert_eq!(rig.pair.a.qp.cancel(&drained, 1)?.count(), 0);
        rig.send_all([1])?;
    }
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 2, 1]);
    assert_eq!(rig.completed().iter().filter(|(_, cancelled)| *cancelled).count(), 5);
    Ok(())
}

fn c_weakness_06_an_error_has_no_partial_effect(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..6)?;
    let drained = rig.drain(1)?;
    let before = rig.pair.a.qp.send_ring();
    let refused = rig.pair.a.qp.cancel_set(&drained, &[5, 2, 77], CancelMode::AllOrNothing);
    let Err(CancelError::NotPending(NotPending { wr_ids, .. })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(wr_ids, [77], "it is said which");
    assert!(rig.pair.a.qp.send_ring() == before, "nothing is rewritten");
    assert_eq!(
        ids(&rig.pair.a.qp.cancel_set(&drained, &[5, 2], CancelMode::AllOrNothing)?),
        [2, 5]
    );
    rig.resume()?;
    assert_eq!(rig.executed(), [0, 1, 3, 4]);
    Ok(())
}

fn c_weakness_07_every_operation_can_be_cancelled(bed: &Bed) -> Outcome {
    let options = PairOptions::default()
        .access(crate::pair::ALL_ACCESS | Access::REMOTE_ATOMIC | Access::MW_BIND);
    let mut rig = Rig::with(bed, options)?;
    rig.drain(0)?;
    let key = rig.pair.a.pd.create_mkey(4).build()?;
    let a = &mut rig.pair.a;
    let (remote, local) = (rig.pair.b.mr.remote(BEHIND..)?, a.mr.sge(BEHIND..BEHIND + 8)?);
    let operands = MaskedOperands { compare: 0, swap: 1, compare_mask: 1, swap_mask: 1 };
    let signaled = SendFlags::SIGNALED;
    let mut batch = a.qp.wr_start();
    batch.wr(1, signaled).send().sge(local);
    batch.wr(1, signaled).send_imm([1; 4]).sge(local);
    batch.wr(1, signaled).send_inv(0x1234_5600).sge(local);
    batch.wr(1, signaled).rdma_write(remote).sge(local);
    batch.wr(1, signaled).rdma_write_imm(remote, [2; 4]).sge(local);
    batch.wr(1, signaled).rdma_read(remote).sge(local);
    batch.wr(1, signaled).atomic_cmp_swp(remote, 0, 1).sge(local);
    batch.wr(1, signaled).atomic_fetch_add(remote, 1).sge(local);
    batch.wr(1, signaled).masked_cmp_swp(remote, operands).sge(local);
    batch.wr(1, signaled).masked_fetch_add(remote, 1, 0).sge(local);
    batch.wr(1, signaled).local_inv(0x4321_0000);
    batch.wr(1, signaled).mkey_configure(key.configure().layout_list(&[local]));
    batch.wr(2, signaled).send().inline_data(&2u64.to_ne_bytes());
    batch.complete()?;
    let drained = a.qp.drained()?;
    let cancelled = a.qp.cancel(&drained, 1)?;
    assert_eq!(cancelled.count(), 12);
    let opcodes: Vec<_> = cancelled.requests().iter().filter_map(|r| r.info.opcode()).collect();
    assert_eq!(opcodes[..3], [Opcode::Send, Opcode::SendImm, Opcode::SendInvalidate]);
    rig.resume()?;
    assert_eq!(rig.executed(), [2]);
    let done = bed.poll_good(&mut rig.pair.a.send_cq, 13);
    let marks: Vec<bool> = done.iter().map(|one| one.as_completion().cancelled()).collect();
    assert_eq!(marks, [[true; 12].as_slice(), &[false]].concat());
    Ok(())
}

/// Blocks of 512 bytes with a CRC after each, in memory and on the wire.
fn signed() -> SignatureBlock {
    let crc = |kind| Domain { signature: Signature::Crc(kind), block_size: BlockSize::B512 };
    SignatureBlock::new().memory(crc(Crc::Crc32(Seed::Ones))).wire(crc(Crc::Crc32(Seed::Zeros)))
}

fn c_weakness_08_a_request_of_several_wqes_counts_once(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let key = rig.pair.a.pd.create_mkey(4).block_signature().build()?;
    rig.drain(0)?;
    let pieces = [rig.pair.a.mr.sge(BEHIND..BEHIND + 1032)?];
    let mut batch = rig.pair.a.qp.wr_start();
    for wr_id in [5, 6] {
        let update = key.configure().layout_list(&pieces).signature(&signed());
        batch.wr(wr_id, SendFlags::SIGNALED).mkey_configure(update);
    }
    batch.complete()?;
    let drained = rig.pair.a.qp.drained()?;
    let pending: Vec<_> = rig.pair.a.qp.pending(&drained)?.collect();
    assert_eq!(pending.iter().map(|one| one.wr_id).collect::<Vec<_>>(), [5, 6]);
    // UMR with an entry and a description of the signature, and two variables.
    assert_eq!(pending[0].info.blocks(), 6);
    assert_eq!(ids(&rig.pair.a.qp.cancel(&drained, 6)?), [6]);
    assert_eq!(rig.pending(&drained)?, [5, 6]);
    rig.resume()?;
    let done = bed.poll_good(&mut rig.pair.a.send_cq, 2);
    let reported: Vec<_> = done
        .iter()
        .map(|one| one.as_completion())
        .map(|one| (one.wr_id(), one.cancelled(), one.opcode()))
        .collect();
    let configured = CompletionOpcode::Other(Opcode::Umr);
    assert_eq!(reported, [(5, false, configured), (6, true, configured)]);
    bed.nothing(&mut rig.pair.a.send_cq);
    Ok(())
}

fn c_weakness_09_a_cancelled_configuration_leaves_the_key_as_it_was(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let key = rig.pair.a.pd.create_mkey(4).block_signature().update_tag().build()?;
    let pieces = [rig.pair.a.mr.sge(BEHIND..BEHIND + 2064)?];
    let mut batch = rig.pair.a.qp.wr_start();
    let access = MkeyAccess::REMOTE_READ;
    let first = key.configure().access(access).layout_list(&pieces).tag(1).signature(&signed());
    batch.wr(1, SendFlags::SIGNALED).mkey_configure(first);
    batch.complete()?;
    bed.poll_good(&mut rig.pair.a.send_cq, 1);
    let before = (key.lkey(), key.length(), key.signature());
    rig.drain(0)?;
    let other = [pieces[0]; 2];
    let mut batch = rig.pair.a.qp.wr_start();
    batch.wr(2, SendFlags::SIGNALED).mkey_configure(key.configure().tag(2).reset_signature());
    batch.wr(3, SendFlags::SIGNALED).mkey_configure(key.configure().tag(3).layout_list(&other));
    batch.complete()?;
    assert_eq!((key.lkey() & 0xff, key.length(), key.signature()), (3, Some(4128), None));
    let drained = rig.pair.a.qp.drained()?;
    // The later request is cancelled, the earlier one stays.
    assert_eq!(rig.pair.a.qp.cancel(&drained, 3)?.count(), 1);
    assert_eq!((key.lkey() & 0xff, key.length(), key.signature()), (2, Some(2064), None));
    assert_eq!(rig.pair.a.qp.cancel(&drained, 2)?.count(), 1);
    assert_eq!((key.lkey(), key.length(), key.signature()), before);
    // The device has the same state: the next request works with it.
    rig.resume()?;
    bed.poll_good(&mut rig.pair.a.send_cq, 2);
    let Pair { a, b } = &mut rig.pair;
    let mut batch = a.qp.wr_start();
    batch.wr(4, SendFlags::SIGNALED).rdma_write(b.mr.remote(BEHIND..)?).sge(key.sge(0, 2064));
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    Ok(())
}

fn c_weakness_09_a_configuration_that_was_executed_stays_whatever_is_cancelled_a_lap_later(
    bed: &Bed,
) -> Outcome {
    let mut rig = Rig::with(bed, PairOptions::default().send_wr(16))?;
    let blocks = u64::from(rig.pair.a.qp.caps().send_blocks);
    let key = rig.pair.a.pd.create_mkey(4).build()?;
    let pieces = [rig.pair.a.mr.sge(BEHIND..BEHIND + 64)?];
    let mut batch = rig.pair.a.qp.wr_start();
    batch.wr(1, SendFlags::SIGNALED).mkey_configure(key.configure().layout_list(&pieces));
    batch.complete()?;
    bed.poll_good(&mut rig.pair.a.send_cq, 1);
    // As many requests as there are records, so that the last one, which is cancelled, takes the
    // record of the configuration.
    for wr_id in 1..blocks {
        rig.send_all([wr_id])?;
        assert_eq!(rig.executed(), [wr_id]);
        rig.completed();
    }
    rig.drain(0)?;
    rig.send_all([77])?;
    let drained = rig.pair.a.qp.drained()?;
    assert_eq!(rig.pair.a.qp.cancel(&drained, 77)?.count(), 1);
    assert_eq!(key.length(), Some(64));
    rig.resume()
}

fn c_weakness_09_a_cancelled_binding_leaves_the_window_the_key_it_had(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    let End { pd, qp, send_cq, .. } = &mut rig.pair.a;
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::MW_BIND;
    let mr = pd.memory(4096).access(access).register()?;
    let mut window = pd.alloc_mw::<TypeOne>()?;
    let fresh = window.rkey();
    let (signaled, access) = (SendFlags::SIGNALED, Access::REMOTE_READ);
    window.bind(qp, 1, signaled, &mr, 0..64, access)?;
    bed.poll_good(send_cq, 1);
    let bound = window.rkey();
    assert_ne!(bound, fresh);
    rig.drain(0)?;
    for wr_id in 2..5 {
        let range = 0..8 * wr_id as usize;
        window.bind(&mut rig.pair.a.qp, wr_id, signaled, &mr, range, access)?;
    }
    let [second, fourth] = [1, 3].map(|more| bound & !0xff | bound.wrapping_add(more) & 0xff);
    assert_eq!(window.rkey(), fourth);
    let drained = rig.pair.a.qp.drained()?;
    assert_eq!(rig.pair.a.qp.cancel(&drained, 3)?.count(), 1);
    assert_eq!(window.rkey(), fourth, "the one in the middle never was the last");
    assert_eq!(rig.pair.a.qp.cancel(&drained, 4)?.count(), 1);
    assert_eq!(window.rkey(), second);
    // The device has the same state.
    rig.resume()?;
    bed.poll_good(&mut rig.pair.a.send_cq, 3);
    let b = &mut rig.pair.b;
    let mut batch = b.qp.wr_start();
    batch.wr(5, SendFlags::SIGNALED).rdma_read(window.remote(mr.addr())).sge(b.mr.sge(0..16)?);
    batch.complete()?;
    bed.poll_good(&mut b.send_cq, 1);
    Ok(())
}

fn c_weakness_10_the_signature_of_a_nop_is_right(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(64).build()?;
    let mut qp = pd
        .create_qp::<Rc>(&cq, &cq)
        .max_send_wr(16)
        .max_recv_wr(0)
        .max_inline_data(150)
        .wqe_signature(true)
        .build()?;
    let (port, psn) = (context.local_port(bed.port(), None)?, mlx5::Psn::wrapping(7));
    let connect = mlx5::ConnectOptions::default();
    let own = qp.endpoint(&port, psn, &connect);
    qp.connect(&port, psn, &own, &connect)?;
    let mr = pd.memory(4096).access(crate::pair::ALL_ACCESS).register()?;
    for lap in 0..20 {
        let drain = bed.simulator().drain_qp(0, qp.qp_num(), mlx5_sim::engine::DrainAt::After(0));
        drain.map_err(|error| format!("{error:?}"))?;
        bed.settle();
        assert!(context.async_events().next()?.is_some());
        let mut batch = qp.wr_start();
        for wr_id in 0..4 {
            // Requests of one block and of three, across the end of the ring.
            let bytes = [wr_id as u8; 140];
            let length = if wr_id % 2 == 0 { 8 } else { 140 };
            let to = mr.remote(wr_id as usize * 256..)?;
            batch.wr(wr_id, SendFlags::SIGNALED).rdma_write(to).inline_data(&bytes[..length]);
        }
        batch.complete()?;
        let drained = qp.drained()?;
        assert_eq!(qp.cancel_set(&drained, &[1, 2], CancelMode::AllOrNothing)?.count(), 2);
        qp.resume()?;
        // With a wrong signature, the device would refuse the request.
        let done = bed.poll_good(&mut cq, 4);
        let marks: Vec<bool> = done.iter().map(|one| one.as_completion().cancelled()).collect();
        assert_eq!(marks, [false, true, true, false], "lap {lap}");
    }
    let mut found = [9; 1];
    mr.read_at(256, &mut found)?;
    assert_eq!(found, [0], "what was cancelled never came");
    Ok(())
}

fn c_weakness_11_only_a_proof_that_holds_lets_cancel(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.send_all(0..2)?;
    assert!(matches!(rig.pair.a.qp.drained(), Err(CancelError::NotDrained { .. })));
    rig.completed();
    rig.executed();
    rig.drain(0)?;
    rig.send_all(0..4)?;
    let drained = rig.pair.a.qp.drained()?;
    let mut other = Rig::new(bed)?;
    let refused = other.pair.a.qp.cancel(&drained, 1);
    assert!(matches!(refused, Err(CancelError::Outdated)), "of another queue pair");
    rig.resume()?;
    let refused = rig.pair.a.qp.cancel(&drained, 1);
    assert!(matches!(refused, Err(CancelError::Outdated)), "it went on");
    assert_eq!(rig.executed(), [0, 1, 2, 3]);
    Ok(())
}

/// A bed whose kernel counts the queries of a queue pair, and runs a function before each.
fn asked(
    bed: &Bed,
    meanwhile: impl Fn() + Send + Sync + 'static,
) -> Result<(Context, Arc<AtomicUsize>), Failed> {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let overrides = Overrides {
        calls: Some(Box::new(move |called| {
            if called == method::DEVX_OBJ_QUERY {
                count.fetch_add(1, SeqCst);
                meanwhile();
            }
            None
        })),
        ..Overrides::default()
    };
    let (kernel, _) = AlteredKernel::before(bed.simulator().kernel(), overrides);
    Ok((devices_on(kernel)?[0].open()?, asked))
}

fn c_weakness_12_posting_goes_on_while_the_firmware_is_asked(bed: &Bed) -> Outcome {
    let (begun, posted) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    let gates = Arc::new((begun, posted));
    let inside = Arc::clone(&gates);
    // The query gets its answer only after a request was posted meanwhile.
    let (context, _) = asked(bed, move || {
        inside.0.wait();
        inside.1.wait();
    })?;
    let options = PairOptions::default();
    let mut a = bed.end_in::<Rc>(&context, &options)?;
    let mut b = bed.end::<Rc>(&options)?;
    crate::pair::connect_ends(&mut a, &mut b, &options)?;
    b.recv(1, 0..64);
    let End { qp, mut send_cq, recv_cq, mr, pd, .. } = a;
    let (mut send, receive, control) = qp.split();
    std::thread::scope(|scope| {
        let asker = scope.spawn(|| control.drained());
        gates.0.wait();
        let mut batch = send.wr_start();
        batch.wr(5, SendFlags::SIGNALED).send().inline_data(b"meanwhile");
        let posted = batch.complete();
        gates.1.wait();
        assert_eq!(posted, Ok(()));
        let answer = asker.join().expect("no panic");
        assert!(matches!(answer, Err(CancelError::NotDrained { .. })), "{answer:?}");
    });
    assert_eq!(wr_ids(&bed.poll_good(&mut send_cq, 1)), [5]);
    drop((QueuePair::join(send, receive, control), send_cq, recv_cq, mr, pd));
    Ok(())
}

fn c_weakness_13_one_question_for_any_number_of_requests(bed: &Bed) -> Outcome {
    let (context, asked) = asked(bed, || {})?;
    let options = PairOptions::default().memory(BEHIND);
    let mut a = bed.end_in::<Rc>(&context, &options)?;
    let mut b = bed.end::<Rc>(&options)?;
    crate::pair::connect_ends(&mut a, &mut b, &options)?;
    let mut rig = Rig { bed, pair: Pair { a, b }, receives: 0 };
    rig.refill();
    rig.drain(0)?;
    rig.send_all(0..40)?;
    asked.store(0, SeqCst);
    let drained = rig.pair.a.qp.drained()?;
    let wanted: Vec<u64> = (0..40).filter(|wr_id| wr_id % 3 != 0).collect();
    let cancelled = rig.pair.a.qp.cancel_set(&drained, &wanted, CancelMode::AllOrNothing)?;
    assert_eq!(ids(&cancelled), wanted);
    assert_eq!(rig.pair.a.qp.cancel(&drained, 0)?.count(), 1);
    assert_eq!(asked.load(SeqCst), 1);
    rig.resume()?;
    assert_eq!(rig.executed().len(), 13);
    Ok(())
}

fn c_weakness_14_by_set_predicate_or_handle_and_a_list_comes_back(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    rig.drain(0)?;
    let mut handles = Vec::new();
    for wr_id in [1, 1, 2, 3, 4, 1] {
        let mut batch = rig.pair.a.qp.wr_start();
        handles.push(batch.handle());
        let message = (wr_id + 10 * handles.len() as u64).to_ne_bytes();
        batch.wr(wr_id, SendFlags::SIGNALED).send().inline_data(&message);
        batch.complete()?;
    }
    let qp = &mut rig.pair.a.qp;
    let drained = qp.drained()?;
    // Of three requests with one identifier, cancels the second alone.
    let cancelled = qp.cancel_request(&drained, handles[1])?;
    assert_eq!(cancelled.requests()[0].info.first(), 1);
    assert_eq!(ids(&cancelled), [1]);
    assert_eq!(qp.cancel_request(&drained, handles[1])?.count(), 0);
    assert_eq!(ids(&qp.cancel_set(&drained, &[3, 9], CancelMode::BestEffort)?), [3]);
    assert_eq!(ids(&qp.cancel_where(&drained, |one| one.info.first() == 4)?), [4]);
    let stale = handles[0];
    rig.resume()?;
    assert_eq!(rig.executed(), [11, 32, 61]);
    let drained = rig.drain(0)?;
    rig.send_all([1])?;
    assert_eq!(rig.pair.a.qp.cancel_request(&drained, stale)?.count(), 0, "it was executed");
    rig.resume()?;
    assert_eq!(rig.executed(), [1]);
    Ok(())
}

fn c_weakness_16_polling_goes_on_while_requests_are_cancelled(bed: &Bed) -> Outcome {
    let mut rig = Rig::new(bed)?;
    for lap in 0..50 {
        // These requests are executed and not yet polled: the poller reads records while the cancel
        // marks others.
        rig.send_all(0..8)?;
        let drained = rig.drain(4)?;
        let End { qp, send_cq, .. } = &mut rig.pair.a;
        let polled = std::thread::scope(|scope| {
            let poller = scope.spawn(|| {
                let mut found = Vec::new();
                while found.len() < 4 {
                    send_cq
                        .poll(1, |one| found.push((one.wr_id(), one.cancelled())))
                        .expect("a queue that can be polled");
                }
                found
            });
            for wr_id in [5, 7] {
                assert_eq!(qp.cancel(&drained, wr_id).expect("drained").count(), 1);
            }
            poller.join().expect("no panic")
        });
        assert_eq!(polled, [(0, false), (1, false), (2, false), (3, false)], "lap {lap}");
        rig.resume()?;
        assert_eq!(rig.executed(), [0, 1, 2, 3, 4, 6]);
        assert_eq!(rig.completed(), [(4, false), (5, true), (6, false), (7, true)]);
    }
    Ok(())
}

fn c_weakness_17_many_requests_of_all_sizes_lap_after_lap(bed: &Bed) -> Outcome {
    let mut rig = Rig::with(bed, PairOptions::default().send_wr(16).inline(300))?;
    let mut next = 0;
    for lap in 0..150_u64 {
        rig.drain(0)?;
        let first = next;
        // Fills the queue with requests of one to five blocks.
        while rig.send(next, SendFlags::SIGNALED, (next % 5 + 1) as usize).is_ok() {
            next += 1;
        }
        let wanted: Vec<u64> = (first..next).filter(|wr_id| wr_id % (lap % 4 + 2) == 0).collect();
        let drained = rig.pair.a.qp.drained()?;
        let cancelled = rig.pair.a.qp.cancel_set(&drained, &wanted, CancelMode::AllOrNothing)?;
        assert_eq!(ids(&cancelled), wanted, "lap {lap}");
        rig.resume()?;
        let rest: Vec<u64> = (first..next).filter(|wr_id| !wanted.contains(wr_id)).collect();
        assert_eq!(rig.executed(), rest, "lap {lap}");
        let marks: Vec<(u64, bool)> =
            (first..next).map(|wr_id| (wr_id, wanted.contains(&wr_id))).collect();
        assert_eq!(rig.completed(), marks, "lap {lap}");
    }
    Ok(())
}
