//! A careless or hostile program: calls that C does not leave undefined are refused, and never
//! panic. The library ends a process that panics (`panic = "abort"`), so each of these would end
//! it.

use crate::bed::*;
use crate::header::*;
use crate::random::Random;
use mlx5_verbs::abi::*;
use mlx5_verbs::{cq, domain, mr, qp, query, srq};
use std::ptr::{null_mut, without_provenance_mut};

const HUGE: [u32; 4] = [u32::MAX, i32::MAX as u32, 1 << 30, 1 << 24];

#[test]
fn queues_of_impossible_sizes_are_refused() {
    let mut bed = Bed::new();
    let cq = bed.cq(4);
    for size in HUGE {
        let made_of = c!(cq::create_cq(bed.context, size as c_int, null_mut(), null_mut(), 0));
        assert!(made_of.is_null(), "{size}");
        let mut ex: ibv_cq_init_attr_ex = blank();
        ex.cqe = size;
        assert!(create_cq_ex(bed.context, &mut ex).is_null(), "{size}");
        assert_ne!(c!(cq::resize_cq(cq, size as c_int)), 0, "{size}");
        let mut wanted: ibv_srq_init_attr = blank();
        for attr in [
            ibv_srq_attr { max_wr: size, max_sge: 1, srq_limit: 0 },
            ibv_srq_attr { max_wr: 1, max_sge: size, srq_limit: 0 },
        ] {
            wanted.attr = attr;
            assert!(c!(srq::create_srq(bed.pd, &mut wanted)).is_null(), "{size}");
        }
        let spoils: [fn(&mut ibv_qp_cap) -> &mut u32; 5] = [
            |cap| &mut cap.max_send_wr,
            |cap| &mut cap.max_recv_wr,
            |cap| &mut cap.max_send_sge,
            |cap| &mut cap.max_recv_sge,
            |cap| &mut cap.max_inline_data,
        ];
        for spoil in spoils {
            let mut init = bed.qp_init(IBV_QPT_RC, cq);
            *spoil(&mut init.cap) = size;
            assert!(c!(qp::create::create_qp(bed.pd, &mut init)).is_null(), "{size}");
        }
    }
    for vector in [-1, 1 << 20] {
        let refused = c!(cq::create_cq(bed.context, 4, null_mut(), null_mut(), vector));
        assert!(refused.is_null(), "vector {vector}");
    }
    for entries in [0, -1, c_int::MIN] {
        not_made(c!(cq::create_cq(bed.context, entries, null_mut(), null_mut(), 0)), libc::EINVAL);
        assert_eq!(c!(cq::resize_cq(cq, entries)), libc::EINVAL, "{entries}");
    }
    bed.end();
}

#[test]
fn memory_that_is_none_is_not_registered() {
    let bed = Bed::new();
    let own = bed.memory.start;
    let ranges: [(*mut u8, usize); 5] = [
        (without_provenance_mut(usize::MAX), 4096),
        (without_provenance_mut(1 << 63), 1 << 62),
        (own, usize::MAX),
        (own.wrapping_add(1), usize::MAX),
        (null_mut(), 4096),
    ];
    for (start, length) in ranges {
        let region = c!(mr::reg_mr(bed.pd, start.cast(), length, 0));
        assert!(region.is_null(), "{start:?} {length:#x}");
        let region = c!(mr::reg_mr_iova2(bed.pd, start.cast(), length, u64::MAX, 0));
        assert!(region.is_null(), "{start:?} {length:#x}");
    }
    let change = IBV_REREG_MR_CHANGE_TRANSLATION as c_int;
    let nowhere = without_provenance_mut(usize::MAX);
    let answer = c!(mr::rereg_mr(bed.mr, change, null_mut(), nowhere, usize::MAX, 0));
    assert_ne!(answer, 0);
    // After such a failure, C allows to deregister the region.
    bed.end();
}

#[test]
fn requests_without_sense_are_refused_or_fail_as_completions() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let mut wr = send_wr(1, IBV_WR_SEND);
    let mut bad = null_mut();
    // No list.
    assert_eq!(post_send(pair.qp, null_mut(), &mut bad), 0);
    let mut bad_receive = null_mut();
    assert_eq!(post_recv(pair.qp, null_mut(), &mut bad_receive), 0);
    // Negative and impossible counts.
    for count in [-1, c_int::MIN] {
        wr.num_sge = count;
        let answer = post_send(pair.qp, &mut wr, &mut bad);
        assert!([0, libc::EINVAL, libc::ENOMEM].contains(&answer), "{count}: {answer}");
    }
    for opcode in (0..64).chain([c_uint::MAX, c_uint::MAX - 1, 1 << 31]) {
        for flags in [0, c_uint::MAX, !IBV_SEND_INLINE] {
            let mut wr = send_wr(2, opcode);
            wr.send_flags = flags;
            // Windows are pointers: a request to bind one must name one.
            if opcode != IBV_WR_BIND_MW && opcode != IBV_WR_TSO {
                let answer = post_send(pair.qp, &mut wr, &mut bad);
                assert!(answer >= 0, "{opcode}: {answer}");
            }
        }
        bed.run();
        poll(pair.cq);
    }
    while let Some(event) = bed.async_event() {
        acknowledge(event);
    }
    pair.destroy();
    bed.machine.sim.take_violations();
    bed.end();
}

#[test]
fn attributes_of_random_bits_are_refused_or_taken() {
    let mut bed = Bed::new();
    let cq = bed.cq(16);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(bed.pd, &mut init)));
    let mut random = Random::new();
    for _ in 0..2000 {
        let mut attr: ibv_qp_attr = blank();
        let bytes = c!(std::slice::from_raw_parts_mut(
            (&raw mut attr).cast::<u8>(),
            size_of::<ibv_qp_attr>()
        ));
        bytes.fill_with(|| random.below(256) as u8);
        if random.below(2) == 0 {
            attr.qp_state = random.below(8) as c_uint;
        }
        let mask = random.next() as c_int & [-1, 0x3f_ffff, 0x7fff][random.below(3)];
        let answer = c!(qp::modify::modify_qp(qp, &mut attr, mask));
        assert!(answer >= 0);
        assert!(state_of(qp) < IBV_QPS_UNKNOWN);
        let mut init: ibv_qp_init_attr = blank();
        assert!(c!(qp::modify::query_qp(qp, &mut attr, mask, &mut init)) >= 0);
    }
    while let Some(event) = bed.async_event() {
        acknowledge(event);
    }
    ok(c!(qp::create::destroy_qp(qp)));
    bed.end();
}

#[test]
fn queries_beyond_tables_are_refused() {
    let bed = Bed::new();
    let (mut gid, mut pkey): (ibv_gid, Be16) = (blank(), 0);
    for index in [c_int::MAX, -1, c_int::MIN, 1 << 16] {
        assert_eq!(c!(query::query_gid(bed.context, 1, index, &mut gid)), -1, "{index}");
        assert_eq!(c!(query::query_pkey(bed.context, 1, index, &mut pkey)), -1, "{index}");
    }
    let (mut entry, size) = (blank(), size_of::<ibv_gid_entry>());
    for (port, index, flags, size, expected) in [
        (u32::MAX, 0, 0, size, libc::EINVAL),
        (1, 0, 1, size, libc::EOPNOTSUPP),
        (1, 0, 0, size - 1, libc::EINVAL),
    ] {
        let answer = c!(query::query_gid_ex(bed.context, port, index, &mut entry, flags, size));
        assert_eq!(answer, expected, "{port} {index} {flags} {size}");
    }
    bed.end();
}

/// C destroys no object in use. Destroying in the wrong order is refused, and the right order works
/// after that.
#[test]
fn objects_are_destroyed_in_no_wrong_order() {
    let mut bed = Bed::new();
    let pd = made(c!(mlx5_verbs::pd::alloc_pd(bed.context)));
    let channel = made(c!(cq::channel::create_comp_channel(bed.context)));
    let cq = made(c!(cq::create_cq(bed.context, 16, null_mut(), channel, 0)));
    let mut wanted: ibv_srq_init_attr = blank();
    wanted.attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
    let srq = made(c!(srq::create_srq(pd, &mut wanted)));
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    init.srq = srq;
    let qp = made(c!(qp::create::create_qp(pd, &mut init)));
    for _ in 0..2 {
        assert_eq!(c!(domain::dealloc_pd(pd)), libc::EBUSY);
        assert_eq!(c!(cq::channel::destroy_comp_channel(channel)), libc::EBUSY);
        assert_eq!(c!(cq::destroy_cq(cq)), libc::EBUSY);
        assert_eq!(c!(srq::destroy_srq(srq)), libc::EBUSY);
    }
    bed.connect(qp, qp);
    bed.to_rts(qp);
    ok(receive_shared(srq, 1, bed.sge(HALF, 8)));
    // The region belongs to another domain.
    send(qp, 2, bed.sge(0, 8));
    bed.run();
    assert!(poll(cq).iter().any(|wc| wc.wr_id == 2 && wc.status == IBV_WC_LOC_PROT_ERR));
    while let Some(event) = bed.async_event() {
        acknowledge(event);
    }
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(srq::destroy_srq(srq)));
    ok(c!(cq::destroy_cq(cq)));
    ok(c!(cq::channel::destroy_comp_channel(channel)));
    ok(c!(domain::dealloc_pd(pd)));
    bed.destroy_left();
    bed.end();
}

/// Each verb, with the kernel refusing one of its calls after the other, or losing the answer.
#[test]
fn a_kernel_that_fails_any_call_of_a_verb_leaves_errors() {
    let bed = Bed::new();
    let before = bed.machine.sim.calls();
    assert!(all_objects(&bed));
    let calls = bed.machine.sim.calls() - before;
    let counts = || bed.machine.sim.object_counts(0);
    let left = counts();
    let mut failed = 0;
    for at in 1..=calls {
        bed.machine.sim.fail_call(at, mlx5_uapi::Errno::ENOMEM);
        failed += u32::from(!all_objects(&bed));
        bed.machine.sim.fail_no_call();
        assert_eq!(counts(), left, "call {at} of {calls}");
    }
    assert!(failed > 8, "{failed} of {calls} failed calls were reported");
    for at in 1..=calls {
        bed.machine.sim.fail_call_late(at, mlx5_uapi::Errno::ENOMEM);
        all_objects(&bed);
        bed.machine.sim.fail_no_call();
    }
    assert!(all_objects(&bed), "it works after that");
}

/// Makes an object of each kind and destroys it. Returns whether all were made and destroyed at
/// once.
fn all_objects(bed: &Bed) -> bool {
    let mut complete = true;
    // The second try destroys an object that the kernel refused to destroy, unless its answer was
    // lost.
    let mut twice = |destroy: &dyn Fn() -> c_int| {
        if destroy() != 0 {
            complete = false;
            bed.machine.sim.fail_no_call();
            destroy();
        }
    };
    let pd = c!(mlx5_verbs::pd::alloc_pd(bed.context));
    if pd.is_null() {
        return false;
    }
    let cq = c!(cq::create_cq(bed.context, 8, null_mut(), null_mut(), 0));
    let mut wanted: ibv_srq_init_attr = blank();
    wanted.attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
    let srq = c!(srq::create_srq(pd, &mut wanted));
    let mr = c!(mr::reg_mr(pd, bed.memory.start.cast(), 64, 0));
    let mut qp = null_mut();
    if !cq.is_null() && !srq.is_null() {
        let mut init = bed.qp_init(IBV_QPT_RC, cq);
        init.srq = srq;
        qp = c!(qp::create::create_qp(pd, &mut init));
    }
    let all = [cq.is_null(), srq.is_null(), mr.is_null(), qp.is_null()];
    if !qp.is_null() {
        twice(&|| c!(qp::create::destroy_qp(qp)));
    }
    if !mr.is_null() {
        twice(&|| c!(mr::dereg_mr(mr)));
    }
    if !srq.is_null() {
        twice(&|| c!(srq::destroy_srq(srq)));
    }
    if !cq.is_null() {
        twice(&|| c!(cq::destroy_cq(cq)));
    }
    twice(&|| c!(domain::dealloc_pd(pd)));
    complete && !all.contains(&true)
}
