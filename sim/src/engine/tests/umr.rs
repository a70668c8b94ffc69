//! Indirect keys: their layouts, and the requests that change them.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::umr::{mkey_mask, umr_flags};
use mlx5_prm::wqe::Opcode;

use super::registration::{Umr, free_config};
use super::rig::{Pair, Rig, Wqe, data, pattern};
use crate::dma::Buffer;
use crate::engine::{Access, MkeyConfig, QpState, Translation, Transport};

const WRITE: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
const ALL: Access = Access::all();

#[track_caller]
fn done(rig: &Rig, p: &mut Pair, wqe: &Wqe) {
    let index = p.a.post(wqe);
    rig.run();
    let completion = p.cq_a.expect();
    assert_eq!((completion.opcode, completion.wqe()), (CqeOpcode::Requester, index));
    assert_eq!(completion.cqe.sop_drop_qpn.get() >> 24, u32::from(wqe.opcode));
}

#[track_caller]
fn refused(rig: &Rig, p: &mut Pair, wqe: &Wqe) -> Syndrome {
    let index = p.a.post(wqe);
    rig.run();
    let (wqe, syndrome) = p.cq_a.expect_error();
    assert_eq!(wqe, index);
    assert_eq!(rig.query(&p.a).state, QpState::Error);
    syndrome
}

#[test]
fn a_list_gathers_and_scatters_its_pieces_in_order() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (one, two) = (rig.region(0, 64), rig.region(0, 64));
    one.memory.write(8, b"hello, ");
    two.memory.write(40, b"world");
    let key = rig.free_key(0, 4);
    let layout = [(one.key, one.at(8), 7), (two.key, two.at(40), 5)];
    done(&rig, &mut p, &Umr::new(key).free(false).range(0, 12).access(ALL).list(&layout).wqe());

    let into = rig.region(0, 64);
    p.b.post_receive(&[data(into.at(0), 64, into.key)]);
    done(&rig, &mut p, &Wqe::new(Opcode::Send).data(1, 10, key));
    assert_eq!(into.memory.read(0, 11), b"ello, worl\0");

    // A receive, an RDMA write and an RDMA read go to the same pieces.
    p.b.post_receive(&[data(0, 12, key)]);
    done(&rig, &mut p, &Wqe::new(Opcode::Send).inline(b"HELLO? THERE"));
    assert_eq!(one.memory.read(8, 8), b"HELLO? \0");
    assert_eq!(two.memory.read(40, 6), b"THERE\0");
    done(&rig, &mut p, &Wqe::new(Opcode::RdmaWrite).remote(6, key).inline(b"-*"));
    assert_eq!((one.memory.read(14, 1), two.memory.read(40, 1)), (b"-".to_vec(), b"*".to_vec()));
    let read = Wqe::new(Opcode::RdmaRead).remote(5, key).data(into.at(32), 7, into.key);
    done(&rig, &mut p, &read);
    assert_eq!(into.memory.read(32, 7), b"?-*HERE");
}

#[test]
fn an_interleaved_layout_strides_through_each_of_its_pieces() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (bodies, tails) = (rig.region(0, 4096), rig.region(0, 64));
    let key = rig.free_key(0, 4);
    let parts = [(516, 512, bodies.key, bodies.at(0)), (8, 8, tails.key, tails.at(0))];
    let umr = Umr::new(key).free(false).range(0, 1040).access(WRITE).interleaved(2, &parts);
    done(&rig, &mut p, &umr.wqe());
    let sent = pattern(1040);
    let from = rig.region(0, 1040);
    from.memory.write(0, &sent);
    // Packets of 256 bytes.
    let write = Wqe::new(Opcode::RdmaWrite).remote(0, key).data(from.at(0), 1040, from.key);
    done(&rig, &mut p, &write);
    assert_eq!(bodies.memory.read(0, 512), sent[..512]);
    assert_eq!(bodies.memory.read(512, 4), [0; 4]);
    assert_eq!(bodies.memory.read(516, 512), sent[520..1032]);
    assert_eq!(tails.memory.read(0, 8), sent[512..520]);
    assert_eq!(tails.memory.read(8, 8), sent[1032..]);
}

#[test]
fn keys_nest_but_not_without_end() {
    let rig = Rig::one_device();
    let region = rig.region(0, 64);
    let mut below = (region.key, region.at(0));
    for depth in 1..=5 {
        let mut p = rig.pair(Transport::Rc);
        let key = rig.free_key(0, 4);
        let list = [(below.0, below.1 + 1, 16)];
        done(&rig, &mut p, &Umr::new(key).free(false).range(0, 16).access(ALL).list(&list).wqe());
        below = (key, 0);
        let write = Wqe::new(Opcode::RdmaWrite).remote(0, key).inline(&[depth as u8]);
        if depth <= 4 {
            done(&rig, &mut p, &write);
            assert_eq!(region.memory.read(depth, 1), [depth as u8]);
        } else {
            assert_eq!(refused(&rig, &mut p, &write), Syndrome::RemoteAccess);
        }
    }
}

#[test]
fn a_key_of_itself_leads_nowhere() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let key = rig.free_key(0, 4);
    let list = [(key, 0, 16)];
    done(&rig, &mut p, &Umr::new(key).free(false).range(0, 16).access(ALL).list(&list).wqe());
    let write = Wqe::new(Opcode::RdmaWrite).remote(0, key).inline(b"?");
    assert_eq!(refused(&rig, &mut p, &write), Syndrome::RemoteAccess);
}

#[test]
fn the_pieces_are_checked_as_their_own_keys_say() {
    let rig = Rig::one_device();
    let other_pd = rig.lock().device_mut(0).alloc_pd().expect("a domain");
    let good = rig.region(0, 64);
    let foreign = rig.region_with(0, 64, ALL, other_pd);
    let read_only = rig.region_with(0, 64, Access::LOCAL_READ, rig.pds[0]);
    for piece in [
        (good.key, good.at(60), 8),
        (good.key ^ 1, good.at(0), 8),
        (foreign.key, foreign.at(0), 8),
        (read_only.key, read_only.at(0), 8),
        (0, 0, 8),
    ] {
        let mut p = rig.pair(Transport::Rc);
        let key = rig.free_key(0, 4);
        let umr = Umr::new(key).free(false).range(0, 8).access(ALL).list(&[piece]);
        done(&rig, &mut p, &umr.wqe());
        let write = Wqe::new(Opcode::RdmaWrite).remote(0, key).inline(&[1; 8]);
        assert_eq!(refused(&rig, &mut p, &write), Syndrome::RemoteAccess, "{piece:x?}");
    }
}

#[test]
fn the_pieces_need_only_local_rights() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let local = Access::LOCAL_READ | Access::LOCAL_WRITE;
    let region = rig.region_with(0, 64, local, rig.pds[0]);
    let key = rig.free_key(0, 4);
    let list = [(region.key, region.at(0), 8)];
    done(&rig, &mut p, &Umr::new(key).free(false).range(0, 8).access(WRITE).list(&list).wqe());
    done(&rig, &mut p, &Wqe::new(Opcode::RdmaWrite).remote(0, key).inline(b"12345678"));
    // The key allows no more than its own rights.
    let read = Wqe::new(Opcode::RdmaRead).remote(0, key).data(region.at(8), 8, region.key);
    assert_eq!(refused(&rig, &mut p, &read), Syndrome::RemoteAccess);
}

#[test]
fn a_length_bounds_the_key_whatever_its_list_holds() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let region = rig.region(0, 64);
    let key = rig.free_key(0, 4);
    let list = [(region.key, region.at(0), 64)];
    done(&rig, &mut p, &Umr::new(key).free(false).range(0x100, 8).access(ALL).list(&list).wqe());
    done(&rig, &mut p, &Wqe::new(Opcode::RdmaWrite).remote(0x107, key).inline(b"x"));
    assert_eq!(region.memory.read(7, 1), b"x");
    let write = Wqe::new(Opcode::RdmaWrite).remote(0x107, key).inline(b"xy");
    assert_eq!(refused(&rig, &mut p, &write), Syndrome::RemoteAccess);
}

#[test]
fn only_what_the_mask_names_changes() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let region = rig.region(0, 64);
    let key = rig.free_key(0, 4);
    let list = [(region.key, region.at(0), 64)];
    done(&rig, &mut p, &Umr::new(key).free(false).range(0, 64).access(WRITE).list(&list).wqe());
    let mut bare = Umr::new(key).tag(0x42);
    bare.context.free = 0xff;
    bare.context.access_flags = 0xff;
    bare.context.length = 1.into();
    done(&rig, &mut p, &bare.wqe());
    let now = rig.mkey(0, key);
    assert_eq!((now.tag, now.free, now.length), (0x42, false, 64));
    assert_eq!(now.access, WRITE | Access::LOCAL_READ);
    done(&rig, &mut p, &Wqe::new(Opcode::RdmaWrite).remote(0, key | 0x42).inline(b"x"));
    let old_name = Wqe::new(Opcode::RdmaWrite).remote(0, key).inline(b"x");
    assert_eq!(refused(&rig, &mut p, &old_name), Syndrome::RemoteAccess);
}

#[test]
fn entries_are_replaced_from_the_translation_offset_on() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let region = rig.region(0, 64);
    let key = rig.free_key(0, 8);
    let piece = |at: usize| (region.key, region.at(at), 1);
    let all: Vec<_> = (0..8).map(piece).collect();
    done(&rig, &mut p, &Umr::new(key).free(false).range(0, 8).access(ALL).list(&all).wqe());
    let swapped: Vec<_> = (0..4).map(|n| piece(40 + n)).collect();
    let mut umr = Umr::new(key).flags(umr_flags::TRANSLATION_OFFSET).list(&swapped);
    umr.control.offset_or_bsf_octowords = 4.into();
    done(&rig, &mut p, &umr.wqe());
    done(&rig, &mut p, &Wqe::new(Opcode::RdmaWrite).remote(0, key).inline(b"abcdefgh"));
    assert_eq!(region.memory.read(0, 5), b"abcd\0");
    assert_eq!(region.memory.read(40, 4), b"efgh");
}

#[test]
fn entries_can_come_from_memory() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let (region, list) = (rig.region(0, 64), rig.region(0, 64));
    let pieces = [(region.key, region.at(32), 8)];
    let inline = Umr::new(0).list(&pieces).wqe();
    list.memory.write(0, &inline.body[112..176]);
    let key = rig.free_key(0, 4);
    let mut umr = Umr::new(key).free(false).range(0, 8).access(ALL);
    umr.control.flags = 0;
    umr.control.klm_octowords = 4.into();
    done(&rig, &mut p, &umr.wqe().segment(&data(list.at(0), 64, list.key)));
    done(&rig, &mut p, &Wqe::new(Opcode::RdmaWrite).remote(0, key).inline(b"12345678"));
    assert_eq!(region.memory.read(32, 8), b"12345678");
}

#[test]
fn what_a_key_does_not_allow_is_a_bind_error_and_changes_nothing() {
    let rig = Rig::one_device();
    let region = rig.region(0, 64);
    let other_pd = rig.lock().device_mut(0).alloc_pd().expect("a domain");
    let piece = (region.key, region.at(0), 8);
    let fixed = MkeyConfig { umr: false, ..free_config(rig.pds[0], 4) };
    let used = rig.free_key(0, 4);
    let mut first = rig.pair(Transport::Rc);
    let give = Umr::new(used).free(false).range(0, 8).access(ALL).list(&[piece]);
    done(&rig, &mut first, &give.wqe());

    let good = |key| Umr::new(key).free(false).range(0, 8).access(ALL).list(&[piece]);
    let free = || rig.free_key(0, 4);
    let mut cut = good(free()).wqe();
    cut.body.truncate(16 * 8);
    let mut wqes = vec![
        ("no such key", good(0xdead_be00).wqe()),
        ("not for UMR", good(rig.key(0, fixed)).wqe()),
        ("another domain", good(rig.key(0, free_config(other_pd, 4))).wqe()),
        ("more entries than room", good(free()).list(&[piece; 5]).wqe()),
        ("entries missing", cut),
        ("another tag of a key in use", Umr::new(used ^ 1).tag(2).wqe()),
        ("must be free", good(used).flags(umr_flags::CHECK_FREE).wqe()),
        ("must not be free", good(free()).flags(umr_flags::CHECK_NOT_FREE).wqe()),
        ("a user's change of domain", good(free()).pd(1).wqe()),
    ];
    let bound = free();
    let elsewhere = rig.pair(Transport::Rc).b.qpn;
    done(&rig, &mut first, &good(bound).qpn(elsewhere).wqe());
    wqes.push(("another's window", Umr::invalidate(bound).flags(umr_flags::CHECK_QPN).wqe()));
    for (what, wqe) in wqes {
        let mut p = rig.pair(Transport::Rc);
        let key = wqe.immediate >> 8;
        let before = rig.lock().device(0).mkey(key).cloned();
        assert_eq!(refused(&rig, &mut p, &wqe), Syndrome::MemoryWindowBind, "{what}");
        assert_eq!(rig.lock().device(0).mkey(key).cloned(), before, "{what}");
    }
}

#[test]
fn an_atomic_needs_its_word_in_one_piece() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Rc);
    let region = rig.region(0, 64);
    let key = rig.free_key(0, 4);
    let list = [
        (region.key, region.at(16), 8),
        (region.key, region.at(32), 4),
        (region.key, region.at(36), 4),
    ];
    done(&rig, &mut p, &Umr::new(key).free(false).range(0, 16).access(ALL).list(&list).wqe());
    let add = |at| {
        Wqe::new(Opcode::AtomicFa).remote(at, key).atomic(5, 0).data(region.at(0), 8, region.key)
    };
    done(&rig, &mut p, &add(0));
    assert_eq!(region.memory.read(16, 8), 5u64.to_ne_bytes());
    assert_eq!(refused(&rig, &mut p, &add(8)), Syndrome::RemoteAccess);
}

#[test]
fn the_kernels_own_queue_pair_sets_pages_and_domains_and_nobody_elses_does() {
    let rig = Rig::one_device();
    let cq = rig.cq(0, 5, 64);
    let mut umr_qp = rig.qp(0, Transport::Umr, &cq, None, 4);
    rig.activate(&umr_qp);
    let mut p = rig.pair(Transport::Rc);
    let memory = rig.region(0, 3 * 4096);
    let config = MkeyConfig {
        translation: Translation::Buffer(Buffer::paged(vec![0; 8], 12, 0)),
        translation_octwords: 4,
        ..free_config(0, 4)
    };
    let key = rig.key(0, config);
    let pages: Vec<u8> = [memory.at(8192) | 3, memory.at(0) | 3, 0, 0, 0, 0, 0, 0]
        .iter()
        .flat_map(|page| page.to_be_bytes())
        .collect();
    let mut umr = Umr::new(key).free(false).range(0x7f0, 0x1810).access(ALL).pd(rig.pds[0]);
    umr = umr.entries(pages);
    umr.control.klm_octowords = 4.into();
    assert_eq!(refused(&rig, &mut rig.pair(Transport::Rc), &umr.wqe()), Syndrome::MemoryWindowBind);
    umr_qp.post(&umr.wqe());
    rig.run();
    let mut cq = cq;
    assert_eq!(cq.expect().opcode, CqeOpcode::Requester);
    done(&rig, &mut p, &Wqe::new(Opcode::RdmaWrite).remote(0xffe, key).inline(b"wxyz"));
    assert_eq!(memory.memory.read(8192 + 0xffe, 2), b"wx");
    assert_eq!(memory.memory.read(0, 2), b"yz");
    // The page that was never set is not mapped.
    let beyond = Wqe::new(Opcode::RdmaWrite).remote(0x1fff, key).inline(b"??");
    assert_eq!(refused(&rig, &mut p, &beyond), Syndrome::RemoteAccess);
}

#[test]
fn the_kernels_own_queue_pair_gives_a_key_in_use_other_rights_and_another_domain() {
    let rig = Rig::one_device();
    let cq = rig.cq(0, 5, 64);
    let mut umr_qp = rig.qp(0, Transport::Umr, &cq, None, 4);
    rig.activate(&umr_qp);
    let mut p = rig.pair(Transport::Rc);
    let region = rig.region(0, 64);
    let key = rig.free_key(0, 4);
    let list = [(region.key, region.at(0), 64)];
    let whole = Umr::new(key).free(false).range(0, 64).access(ALL).list(&list);
    done(&rig, &mut p, &whole.wqe());
    // As mlx5_ib does for ibv_rereg_mr: not if the key is free, and all rights at once.
    let mut change =
        Umr::new(key).flags(umr_flags::CHECK_NOT_FREE).access(ALL - Access::REMOTE_ATOMIC);
    let relaxed = mkey_mask::RELAXED_ORDERING_WRITE | mkey_mask::RELAXED_ORDERING_READ;
    change.control.mkey_mask = (change.control.mkey_mask.get() | relaxed).into();
    let mut cq = cq;
    umr_qp.post(&change.wqe());
    rig.run();
    assert_eq!(cq.expect().opcode, CqeOpcode::Requester);
    let now = rig.mkey(0, key);
    assert_eq!((now.access, now.length, now.free), (ALL - Access::REMOTE_ATOMIC, 64, false));
    done(&rig, &mut p, &Wqe::new(Opcode::RdmaWrite).remote(0, key).inline(b"x"));

    umr_qp.post(&Umr::new(key).flags(umr_flags::CHECK_NOT_FREE).pd(rig.pds[0] + 7).wqe());
    rig.run();
    assert_eq!(cq.expect().opcode, CqeOpcode::Requester);
    let write = Wqe::new(Opcode::RdmaWrite).remote(0, key).inline(b"y");
    assert_eq!(refused(&rig, &mut p, &write), Syndrome::RemoteAccess);
    assert_eq!(region.memory.read(0, 1), b"x");
}

#[test]
fn a_refused_umr_says_the_codes_that_devices_do() {
    let rig = Rig::one_device();
    let region = rig.region(0, 64);
    let piece = (region.key, region.at(0), 8);
    let list = |key| Umr::new(key).free(false).range(0, 8).access(ALL).list(&[piece]);
    let mut unaligned = list(rig.free_key(0, 4));
    unaligned.control.klm_octowords = 2.into();
    let revoked = rig.free_key(0, 4);
    rig.lock().device_mut(0).destroy_mkey(revoked >> 8).expect("a key");
    let bind = Syndrome::MemoryWindowBind;
    for (umr, syndrome, vendor, hardware) in [
        (unaligned, Syndrome::LocalQpOperation, 0x68, 0x86),
        (list(revoked), bind, 0x78, 0x08),
        (list(rig.free_key(0, 0)), bind, 0x78, 0x0f),
    ] {
        let mut p = rig.pair(Transport::Rc);
        p.a.post(&umr.wqe());
        rig.run();
        let error = p.cq_a.expect().error;
        let codes = (error.syndrome, error.vendor_err_synd, error.hw_err_synd);
        assert_eq!(codes, (syndrome as u8, vendor, hardware));
    }
}
