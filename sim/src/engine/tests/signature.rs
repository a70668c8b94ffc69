//! Signatures added, checked, copied and stripped, on every kind of transfer.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::signature::{SignatureErrorCqe, bsf_size, byte_mask};
use mlx5_prm::wqe::{Opcode, control_flags};

use super::registration::Umr;
use super::rig::{Wqe, data, pattern};
use super::signed::{Bench, KINDS, Kind, Plan, T10, error, set_psv, values};
use crate::{Fault, Model, SimConfig, Violation};

const BLOCKS: [u32; 5] = [512, 520, 4048, 4096, 4160];

/// Three blocks and some bytes more, which have no signature.
fn some_data(block: u32) -> Vec<u8> {
    pattern(block as usize * 3 + 100)
}

#[test]
fn memory_signatures_are_stripped_on_the_way_out_and_made_on_the_way_in() {
    for kind in KINDS {
        for block in BLOCKS {
            let sent = some_data(block);
            let signed = kind.sign(block as usize, &sent);
            let plan = Plan::new(Some((kind, block)), None);
            let mut bench = Bench::new();
            bench.plan(&plan, signed.len(), 0);
            bench.memory.memory.write(0, &signed);
            bench.does(&bench.write(sent.len()));
            assert_eq!(bench.plain.memory.read(0, sent.len()), sent, "{kind:?} {block}");
            assert_eq!(bench.plain.memory.read(sent.len(), 16), [0; 16]);

            bench.memory.memory.write(0, &vec![0; signed.len()]);
            bench.does(&bench.read(sent.len()));
            assert_eq!(bench.memory.memory.read(0, signed.len()), signed, "{kind:?} {block}");
            bench.p.cq_a.expect_none();
        }
    }
}

#[test]
fn wire_signatures_are_made_on_the_way_out_and_stripped_on_the_way_in() {
    for kind in KINDS {
        for block in BLOCKS {
            let sent = some_data(block);
            let signed = kind.sign(block as usize, &sent);
            let plan = Plan::new(None, Some((kind, block)));
            let mut bench = Bench::new();
            bench.plan(&plan, sent.len(), 0);
            bench.memory.memory.write(0, &sent);
            bench.does(&bench.write(signed.len()));
            assert_eq!(bench.plain.memory.read(0, signed.len()), signed, "{kind:?} {block}");

            bench.memory.memory.write(0, &vec![0; sent.len()]);
            bench.does(&bench.read(signed.len()));
            assert_eq!(bench.memory.memory.read(0, sent.len()), sent, "{kind:?} {block}");
            assert_eq!(bench.memory.memory.read(sent.len(), 16), [0; 16]);
            bench.p.cq_a.expect_none();
        }
    }
}

#[test]
fn a_bad_signature_is_reported_from_memory_with_what_stood_there_and_what_was_due() {
    for kind in KINDS {
        for block in BLOCKS {
            let sent = some_data(block);
            let mut signed = kind.sign(block as usize, &sent);
            // A bit of the second block flips.
            let stride = block as usize + kind.bytes();
            signed[stride + 77] ^= 4;
            let bad = signed[stride..stride + block as usize].to_vec();
            let plan = Plan::new(Some((kind, block)), None);
            let mut bench = Bench::new();
            bench.plan(&plan, signed.len(), 0);
            bench.memory.memory.write(0, &signed);
            bench.p.a.post(&bench.write(sent.len()));
            bench.rig.run();
            let found = error(bench.p.cq_a.poll());
            let good = &sent[block as usize..2 * block as usize];
            assert_eq!(values(&found), (kind.value(1, good), kind.value(1, &bad)), "{kind:?}");
            assert_eq!(found.syndrome.get(), SignatureErrorCqe::GUARD);
            assert_eq!((found.signature_type, found.domain), (0, 1));
            assert_eq!(found.mkey.get(), bench.key);
            assert_eq!(found.offset.get(), stride as u64);
            assert_eq!(found.qpn.get(), bench.p.a.qpn);
            // The transfer continues, and completes after the report.
            assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::Requester);
            assert_eq!(bench.plain.memory.read(block as usize, block as usize), bad);
        }
    }
}

#[test]
fn a_bad_signature_is_reported_from_the_wire_and_the_data_is_there_all_the_same() {
    for kind in KINDS {
        for block in BLOCKS {
            let sent = some_data(block);
            let mut signed = kind.sign(block as usize, &sent);
            let stride = block as usize + kind.bytes();
            let last = 3 * stride - 1;
            signed[last] ^= 0x80;
            let plan = Plan::new(None, Some((kind, block)));
            let mut bench = Bench::new();
            bench.plan(&plan, sent.len(), 0);
            bench.plain.memory.write(0, &signed);
            bench.p.a.post(&bench.read(signed.len()));
            bench.rig.run();
            let found = error(bench.p.cq_a.poll());
            assert_eq!((found.domain, found.offset.get()), (0, 2 * stride as u64));
            let computed = kind.value(2, &sent[2 * block as usize..3 * block as usize]);
            assert_eq!(values(&found).1, computed, "{kind:?} {block}");
            let expected = match kind {
                Kind::T10 { .. } => SignatureErrorCqe::REFERENCE_TAG,
                _ => SignatureErrorCqe::GUARD,
            };
            assert_eq!(found.syndrome.get(), expected);
            assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::Requester);
            assert_eq!(bench.memory.memory.read(0, sent.len()), sent);
        }
    }
}

#[test]
fn a_remote_key_does_the_same_for_reads_and_writes_of_others() {
    for (kind, remote_block) in [(T10, 512), (Kind::Crc32c, 4096), (Kind::Crc64, 520)] {
        let sent = some_data(remote_block);
        let block = remote_block as usize;
        let signed = kind.sign(block, &sent);
        let mut bench = Bench::new();
        // Memory without signatures, the wire with them: side b writes and reads.
        bench.plan(&Plan::new(None, Some((kind, remote_block))), sent.len(), 0);
        bench.plain.memory.write(0, &signed);
        let (plain, key) = (bench.plain.at(0), bench.plain.key);
        let write = Wqe::new(Opcode::RdmaWrite).remote(0, bench.key);
        bench.p.b.post(&write.clone().data(plain, signed.len() as u32, key));
        bench.rig.run();
        assert_eq!(bench.p.cq_b.expect().opcode, CqeOpcode::Requester);
        assert_eq!(bench.memory.memory.read(0, sent.len()), sent, "{kind:?}");
        bench.plain.memory.write(0, &vec![0; signed.len()]);
        let read = Wqe::new(Opcode::RdmaRead).remote(0, bench.key);
        bench.p.b.post(&read.data(plain, signed.len() as u32, key));
        bench.rig.run();
        assert_eq!(bench.p.cq_b.expect().opcode, CqeOpcode::Requester);
        assert_eq!(bench.plain.memory.read(0, signed.len()), signed, "{kind:?}");

        // A mismatch is reported to the owner of the key, not to the writer.
        bench.plain.memory.write(5, &[!signed[5]]);
        bench.p.b.post(&write.data(plain, signed.len() as u32, key));
        bench.rig.run();
        assert_eq!(bench.p.cq_b.expect().opcode, CqeOpcode::Requester);
        let found = error(bench.p.cq_a.poll());
        assert_eq!((found.offset.get(), found.domain), (0, 0));
        assert_eq!(found.qpn.get(), bench.p.a.qpn);
    }
}

#[test]
fn a_receive_makes_and_checks_signatures_too() {
    let sent = some_data(512);
    let signed = T10.sign(512, &sent);
    for (memory, wire, arrives, stands) in
        [(Some((T10, 512)), None, &sent, &signed), (None, Some((T10, 512)), &signed, &sent)]
    {
        let mut bench = Bench::new();
        bench.plan(&Plan::new(memory, wire), stands.len(), 0);
        bench.plain.memory.write(0, arrives);
        bench.p.a.post_receive(&[data(0, arrives.len() as u32, bench.key)]);
        let (plain, key) = (bench.plain.at(0), bench.plain.key);
        bench.p.b.post(&Wqe::new(Opcode::Send).data(plain, arrives.len() as u32, key));
        bench.rig.run();
        assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::ResponderSend);
        assert_eq!(bench.memory.memory.read(0, stands.len()), *stands);
    }
}

#[test]
fn with_signatures_on_both_sides_one_is_checked_and_the_other_made() {
    let memory = T10;
    let wire = Kind::T10 { ip: true, application: 0x1111, reference: 40, ones: false };
    for (wire, wire_block) in [(wire, 512), (Kind::Crc32c, 512), (Kind::Crc64, 4096), (T10, 520)] {
        let sent = pattern(4096 * 2 + 512);
        let in_memory = memory.sign(512, &sent);
        let on_wire = wire.sign(wire_block as usize, &sent);
        let mut bench = Bench::new();
        let plan = Plan::new(Some((memory, 512)), Some((wire, wire_block)));
        bench.plan(&plan, in_memory.len(), 0);
        bench.memory.memory.write(0, &in_memory);
        bench.does(&bench.write(on_wire.len()));
        assert_eq!(bench.plain.memory.read(0, on_wire.len()), on_wire, "{wire:?}");
        bench.memory.memory.write(0, &vec![0; in_memory.len()]);
        bench.does(&bench.read(on_wire.len()));
        assert_eq!(bench.memory.memory.read(0, in_memory.len()), in_memory, "{wire:?}");
        bench.p.cq_a.expect_none();
    }
}

#[test]
fn the_copy_mask_passes_bytes_of_the_signature_as_they_came() {
    let wire = Kind::T10 { ip: false, application: 0x1111, reference: 1, ones: true };
    let memory = Kind::T10 { ip: false, application: 0x2222, reference: 77, ones: true };
    let sent = pattern(1024);
    let in_memory = memory.sign(512, &sent);
    let plan = Plan {
        copy: Some(byte_mask::GUARD | byte_mask::APPLICATION_TAG),
        ..Plan::new(Some((memory, 512)), Some((wire, 512)))
    };
    // Only the reference tag is the wire's own.
    let mixed = Kind::T10 { ip: false, application: 0x2222, reference: 1, ones: true };
    let mut bench = Bench::new();
    bench.plan(&plan, in_memory.len(), 0);
    bench.memory.memory.write(0, &in_memory);
    bench.does(&bench.write(in_memory.len()));
    assert_eq!(bench.plain.memory.read(0, 1040), mixed.sign(512, &sent));
    bench.p.cq_a.expect_none();

    // The opposite direction: memory gets the signatures of the wire, except the reference tag.
    bench.plain.memory.write(0, &wire.sign(512, &sent));
    bench.does(&bench.read(in_memory.len()));
    let mixed = Kind::T10 { ip: false, application: 0x1111, reference: 77, ones: true };
    assert_eq!(bench.memory.memory.read(0, 1040), mixed.sign(512, &sent));

    // A wrong guard is copied unchanged and reported.
    let mut bad = in_memory.clone();
    bad[512] ^= 1;
    bench.memory.memory.write(0, &bad);
    bench.p.a.post(&bench.write(in_memory.len()));
    bench.rig.run();
    assert_eq!(error(bench.p.cq_a.poll()).syndrome.get(), SignatureErrorCqe::GUARD);
    assert_eq!(bench.plain.memory.read(512, 1), [bad[512]]);
}

#[test]
fn only_bytes_in_the_check_mask_are_checked() {
    let sent = pattern(512);
    let mut signed = T10.sign(512, &sent);
    signed[512..].fill(0xa5);
    for (check, syndrome) in [
        (0xff, Some(SignatureErrorCqe::GUARD)),
        (byte_mask::APPLICATION_TAG, Some(SignatureErrorCqe::APPLICATION_TAG)),
        (byte_mask::REFERENCE_TAG, Some(SignatureErrorCqe::REFERENCE_TAG)),
        (0, None),
    ] {
        let mut bench = Bench::new();
        let plan = Plan { check, ..Plan::new(Some((T10, 512)), None) };
        bench.plan(&plan, signed.len(), 0);
        bench.memory.memory.write(0, &signed);
        bench.p.a.post(&bench.write(512));
        bench.rig.run();
        if let Some(syndrome) = syndrome {
            assert_eq!(error(bench.p.cq_a.poll()).syndrome.get(), syndrome);
        }
        assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::Requester);
        bench.p.cq_a.expect_none();
    }
}

#[test]
fn a_transfer_in_parts_and_a_part_of_a_block_behave() {
    let sent = some_data(512);
    let signed = T10.sign(512, &sent);
    let mut bench = Bench::new();
    bench.plan(&Plan::new(Some((T10, 512)), None), signed.len(), 0);
    bench.memory.memory.write(0, &signed);
    // From the middle of one block to the middle of another.
    let write = Wqe::new(Opcode::RdmaWrite).remote(bench.plain.at(0), bench.plain.key);
    bench.does(&write.clone().data(300, 700, bench.key));
    assert_eq!(bench.plain.memory.read(0, 700), sent[300..1000]);
    // A block is not checked unless its end is reached.
    bench.memory.memory.write(0, &[!signed[0]]);
    bench.does(&write.clone().data(0, 511, bench.key));
    bench.p.a.post(&write.data(511, 1, bench.key));
    bench.rig.run();
    assert_eq!(error(bench.p.cq_a.poll()).offset.get(), 0);
}

#[test]
fn the_key_ends_where_its_data_ends_on_the_wire() {
    let mut bench = Bench::new();
    bench.plan(&Plan::new(None, Some((T10, 512))), 1024, 0);
    bench.does(&bench.write(1040));
    bench.p.a.post(&bench.write(1041));
    bench.rig.run();
    assert_eq!(bench.p.cq_a.expect_error().1, Syndrome::LocalProtection);
}

#[test]
fn one_error_is_reported_until_the_psv_is_set_and_the_count_told() {
    let mut bench = Bench::new();
    let plan = Plan::new(Some((Kind::Crc32c, 512)), None);
    bench.plan(&plan, 516 * 2, 0);
    // Memory of zeros has no correct signature anywhere.
    let fails = |bench: &mut Bench, reported: bool| {
        bench.p.a.post(&bench.write(1024));
        bench.rig.run();
        if reported {
            assert_eq!(error(bench.p.cq_a.poll()).offset.get(), 0);
        }
        assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::Requester);
    };
    fails(&mut bench, true);
    fails(&mut bench, false);
    // Setting the PSV alone is not enough, nor is passing the error count alone.
    bench.arm(&plan);
    fails(&mut bench, false);
    let umr = bench.configure(&plan, 516 * 2).errors_seen(1);
    bench.does(&umr.wqe());
    fails(&mut bench, false);
    bench.plan(&plan, 516 * 2, 1);
    fails(&mut bench, true);
    bench.plan(&plan, 516 * 2, 2);
    fails(&mut bench, true);
}

#[test]
fn a_psv_that_was_never_set_or_set_to_something_else_does_not_do() {
    let sent = pattern(512);
    let signed = Kind::Crc32.sign(512, &sent);
    let plan = Plan::new(None, Some((Kind::Crc32, 512)));
    let mut bench = Bench::new();
    let umr = bench.configure(&plan, 512).errors_seen(0);
    bench.does(&umr.wqe());
    bench.memory.memory.write(0, &sent);
    bench.does(&bench.write(516));
    assert_ne!(bench.plain.memory.read(0, 516), signed, "no seed");
    bench.does(&set_psv(bench.psvs[1], 1 << 32));
    bench.does(&bench.write(516));
    assert_ne!(bench.plain.memory.read(0, 516), signed, "another seed");
    bench.arm(&plan);
    bench.does(&bench.write(516));
    assert_eq!(bench.plain.memory.read(0, 516), signed);
}

#[test]
fn signatures_can_be_switched_off_and_on_again() {
    let sent = pattern(512);
    let mut bench = Bench::new();
    let plan = Plan::new(None, Some((T10, 512)));
    bench.plan(&plan, 512, 0);
    bench.memory.memory.write(0, &sent);
    bench.does(&Umr::new(bench.key).signature_switch(false).wqe());
    bench.does(&bench.write(512));
    assert_eq!(bench.plain.memory.read(0, 520), [sent.clone(), vec![0; 8]].concat());
    bench.does(&Umr::new(bench.key).signature_switch(true).wqe());
    bench.does(&bench.write(520));
    assert_eq!(bench.plain.memory.read(0, 520), T10.sign(512, &sent));
}

#[test]
fn signatures_in_force_that_nobody_described_let_nothing_through() {
    let mut bench = Bench::new();
    let umr = Umr::new(bench.key)
        .free(false)
        .range(0, 512)
        .list(&[(bench.memory.key, bench.memory.at(0), 512)])
        .signature_switch(true);
    bench.does(&umr.wqe());
    bench.p.a.post(&bench.write(512));
    bench.rig.run();
    assert_eq!(bench.p.cq_a.expect_error().1, Syndrome::LocalProtection);
}

/// Name of an error in a request, and a function that makes such a request.
type Case = (&'static str, fn(&Bench, &Plan) -> Umr);

#[test]
fn formats_and_psvs_that_do_not_fit_are_bind_errors() {
    let plan = Plan::new(Some((T10, 512)), None);
    let bad: [Case; 5] = [
        ("no such PSV", |bench, plan| {
            bench.configure(plan, 512).signatures(&plan.bsf([0xdead, 0]))
        }),
        ("another domain's PSV", |bench, plan| {
            let mut engine = bench.rig.lock();
            let pd = engine.device_mut(0).alloc_pd().expect("a domain");
            let psv = engine.device_mut(0).create_psv(pd).expect("a PSV");
            drop(engine);
            bench.configure(plan, 512).signatures(&plan.bsf([psv, 0]))
        }),
        ("crypto", |bench, plan| {
            let mut bsf = plan.bsf(bench.psvs);
            bsf.bsf_size_sbs = bsf_size::SIGNATURE_AND_CRYPTO << 6;
            bench.configure(plan, 512).signatures(&bsf)
        }),
        ("no block size", |bench, plan| {
            let mut bsf = plan.bsf(bench.psvs);
            bsf.memory_block_selector = 0;
            bench.configure(plan, 512).signatures(&bsf)
        }),
        ("no room", |bench, plan| {
            let key = bench.rig.free_key(0, 4);
            Umr::new(key).free(false).signatures(&plan.bsf(bench.psvs))
        }),
    ];
    for (what, umr) in bad {
        let mut bench = Bench::new();
        let umr = umr(&bench, &plan);
        bench.p.a.post(&umr.wqe());
        bench.rig.run();
        assert_eq!(bench.p.cq_a.expect_error().1, Syndrome::MemoryWindowBind, "{what}");
    }
    let mut bench = Bench::new();
    bench.p.a.post(&set_psv(0xdead, 0));
    bench.rig.run();
    assert_eq!(bench.p.cq_a.expect_error().1, Syndrome::MemoryWindowBind);
}

#[test]
fn a_signature_that_the_model_lacks_is_refused() {
    for model in Model::ALL {
        let has = model.capabilities();
        for (kind, block, known) in [
            (T10, 512, true),
            (Kind::Crc32, 512, true),
            (Kind::Crc32c, 512, has.crc32c),
            (Kind::Crc64, 512, has.crc64_xp10),
            (T10, 4048, has.block_4048),
        ] {
            let mut bench = Bench::with(SimConfig::new().model(model));
            let plan = Plan::new(None, Some((kind, block)));
            bench.p.a.post(&bench.configure(&plan, block as usize).wqe());
            bench.rig.run();
            let done = bench.p.cq_a.poll().expect("a completion");
            assert_eq!(done.opcode == CqeOpcode::Requester, known, "{model:?} {kind:?} {block}");
        }
    }
}

#[test]
fn atomics_do_not_go_through_signatures() {
    let mut bench = Bench::new();
    bench.plan(&Plan::new(Some((T10, 512)), None), 520, 0);
    let (plain, key) = (bench.plain.at(0), bench.plain.key);
    bench
        .p
        .b
        .post(&Wqe::new(Opcode::AtomicFa).remote(0, bench.key).atomic(1, 0).data(plain, 8, key));
    bench.rig.run();
    assert_eq!(bench.p.cq_b.expect_error().1, Syndrome::RemoteAccess);
}

#[test]
fn a_corrupted_packet_is_found_by_a_wire_signature_and_by_nothing_else() {
    let sent = pattern(512);
    let signed = T10.sign(512, &sent);
    let mut bench = Bench::new();
    bench.plan(&Plan::new(None, Some((T10, 512))), 512, 0);
    bench.plain.memory.write(0, &signed);
    bench.rig.lock().device_mut(0).inject(Fault::CorruptPackets(1));
    bench.p.a.post(&bench.read(520));
    bench.rig.run();
    let found = error(bench.p.cq_a.poll());
    assert_eq!((found.syndrome.get(), found.domain), (SignatureErrorCqe::GUARD, 0));
    assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_ne!(bench.memory.memory.read(0, 512), sent);
}

#[test]
fn a_signature_can_be_made_to_fail_though_it_is_good() {
    let sent = pattern(512);
    let mut bench = Bench::new();
    bench.plan(&Plan::new(Some((Kind::Crc64, 512)), None), 520, 0);
    bench.memory.memory.write(0, &Kind::Crc64.sign(512, &sent));
    let (key, other) = (bench.key, bench.plain.key);
    for mkey in [Some(other), Some(key)] {
        bench.rig.lock().device_mut(0).inject(Fault::FailSignature { mkey });
    }
    bench.p.a.post(&bench.write(512));
    bench.rig.run();
    let (found, computed) = values(&error(bench.p.cq_a.poll()));
    assert_eq!((computed, found ^ computed), (Kind::Crc64.value(0, &sent), 1 << 63));
    assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::Requester);
    bench.p.cq_a.expect_none();
}

#[test]
fn what_a_request_changed_is_used_behind_a_fence_or_its_completion() {
    let plan = Plan::new(None, Some((T10, 512)));
    let psv = |bench: &Bench| bench.psvs[1];
    let set = |bench: &Bench| set_psv(psv(bench), 0).unsignaled();
    let fenced = |mut wqe: Wqe, fence: u8| {
        wqe.flags |= fence;
        wqe
    };
    for fence in [0, control_flags::SMALL_FENCE, control_flags::FENCE] {
        let mut bench = Bench::new();
        // Each of these is signaled, and the next is posted after its completion.
        bench.plan(&plan, 512, 0);
        bench.does(&bench.write(520));
        assert_eq!(bench.rig.lock().device(0).violations(), []);
        // These are unsignaled.
        let umr = bench.configure(&plan, 512).errors_seen(0).wqe().unsignaled();
        bench.p.a.post(&umr);
        bench.p.a.post(&fenced(bench.write(520), fence));
        let used = bench.p.a.post(&set(&bench));
        bench.p.a.post(&fenced(bench.write(520), fence));
        bench.rig.run();
        let violations = bench.rig.lock().device_mut(0).take_violations();
        let (qpn, mkey) = (bench.p.a.qpn, bench.key >> 8);
        let expected = match fence {
            0 => vec![
                Violation::MkeyWithoutFence { qpn, index: used - 1, mkey },
                Violation::PsvWithoutFence { qpn, index: used + 1, psv: psv(&bench) },
            ],
            _ => vec![],
        };
        assert_eq!(violations, expected);
    }
}

#[test]
fn a_completion_that_the_driver_had_not_seen_is_no_fence() {
    let mut bench = Bench::new();
    let plan = Plan::new(None, None);
    bench.does(&bench.configure(&plan, 512).wqe());
    let first = bench.p.a.write(&Umr::new(bench.key).range(0, 256).wqe());
    bench.p.a.write(&bench.write(256));
    bench.p.a.write_record(bench.p.a.posted);
    bench.p.a.ring(first);
    bench.rig.run();
    let violations = bench.rig.lock().device_mut(0).take_violations();
    assert!(
        matches!(violations[..], [Violation::MkeyWithoutFence { .. }]),
        "posted together: {violations:?}"
    );
}
