//! Memory windows of both types: bind, rebind, unbind, and invalidation from either side.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::umr::umr_flags;
use mlx5_prm::wqe::Opcode;

use super::registration::{Umr, free_config};
use super::rig::{Pair, Region, Rig, Wqe, data};
use crate::engine::{Access, MkeyConfig, QpState, Transport};

const RIGHTS: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

struct Bench {
    rig: Rig,
    p: Pair,
    region: Region,
    window: u32,
}

impl Bench {
    fn new() -> Self {
        let rig = Rig::one_device();
        let p = rig.pair(Transport::Rc);
        let region = rig.region(0, 4096);
        let window = rig.free_key(0, 4);
        Self { rig, p, region, window }
    }

    fn piece(&self, at: usize, length: u64) -> (u32, u64, u64) {
        (self.region.key, self.region.at(at), length)
    }

    /// The bind of a type 2 window: it must be free, and then belongs to the queue pair.
    fn bind_type_2(&self, tag: u8, at: usize) -> Umr {
        Umr::bind(self.window, tag, self.piece(at, 64), RIGHTS)
            .flags(umr_flags::CHECK_FREE)
            .qpn(self.p.b.qpn)
    }

    fn unbind_type_2(&self, tag: u8) -> Umr {
        Umr::invalidate(self.window | u32::from(tag)).flags(umr_flags::CHECK_QPN).tag(0)
    }

    /// The owner of the window is side b; a writes to it.
    #[track_caller]
    fn owner_does(&mut self, umr: &Umr) {
        self.p.b.post(&umr.wqe());
        self.rig.run();
        assert_eq!(self.p.cq_b.expect().opcode, CqeOpcode::Requester);
    }

    fn write(&self, at: usize, key: u32) -> Wqe {
        Wqe::new(Opcode::RdmaWrite).remote(self.region.at(at), key).inline(b"window")
    }

    #[track_caller]
    fn writes(&mut self, at: usize, key: u32) {
        self.p.a.post(&self.write(at, key));
        self.rig.run();
        assert_eq!(self.p.cq_a.expect().opcode, CqeOpcode::Requester);
        assert_eq!(self.region.memory.read(at, 6), b"window");
    }

    #[track_caller]
    fn may_not_write(&mut self, at: usize, key: u32) {
        let wqe = self.write(at, key);
        self.fails(&wqe, Syndrome::RemoteAccess);
    }

    #[track_caller]
    fn fails(&mut self, wqe: &Wqe, syndrome: Syndrome) {
        self.p.a.post(wqe);
        self.rig.run();
        assert_eq!(self.p.cq_a.expect_error().1, syndrome);
        assert_eq!(self.rig.query(&self.p.b).state, QpState::Error);
    }
}

#[test]
fn a_type_1_window_is_bound_moved_and_unbound_under_new_names() {
    let mut bench = Bench::new();
    let window = bench.window;
    let bind = |bench: &Bench, old: u32, tag: u8, at| {
        Umr::bind(window | old, tag, bench.piece(at, 64), RIGHTS)
    };
    let first = bind(&bench, 0, 1, 0);
    bench.owner_does(&first);
    bench.writes(0, window | 1);
    let second = bind(&bench, 1, 2, 1024);
    bench.owner_does(&second);
    bench.writes(1024, window | 2);
    let unbind = Umr::new(window | 2).flags(umr_flags::TRANSLATION_OFFSET).free(true).tag(3);
    bench.owner_does(&unbind);
    bench.may_not_write(1024, window | 3);
}

#[test]
fn the_old_name_of_a_window_that_moved_is_dead() {
    let mut bench = Bench::new();
    let piece = bench.piece(0, 64);
    bench.owner_does(&Umr::bind(bench.window, 1, piece, RIGHTS));
    bench.owner_does(&Umr::bind(bench.window | 1, 2, piece, RIGHTS));
    bench.may_not_write(0, bench.window | 1);
}

#[test]
fn a_window_gives_no_more_than_its_range_and_rights() {
    for (at, rights) in [(60, RIGHTS), (4000, RIGHTS), (0, Access::REMOTE_READ)] {
        let mut bench = Bench::new();
        let piece = bench.piece(0, 64);
        bench.owner_does(&Umr::bind(bench.window, 1, piece, rights));
        bench.may_not_write(at, bench.window | 1);
    }
}

#[test]
fn a_zero_based_window_counts_from_its_start() {
    let mut bench = Bench::new();
    let piece = bench.piece(100, 64);
    bench.owner_does(&Umr::bind(bench.window, 1, piece, RIGHTS).range(0, 64));
    bench.p.a.post(&Wqe::new(Opcode::RdmaWrite).remote(4, bench.window | 1).inline(b"zero"));
    bench.rig.run();
    assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert_eq!(bench.region.memory.read(104, 4), b"zero");
}

#[test]
fn a_type_2_window_is_bound_only_when_free() {
    let mut bench = Bench::new();
    bench.owner_does(&bench.bind_type_2(1, 0));
    bench.writes(0, bench.window | 1);
    bench.p.b.post(&bench.bind_type_2(2, 1024).wqe());
    bench.rig.run();
    assert_eq!(bench.p.cq_b.expect_error().1, Syndrome::MemoryWindowBind);
}

#[test]
fn a_type_2_window_is_bound_again_after_local_invalidation() {
    let mut bench = Bench::new();
    bench.owner_does(&bench.bind_type_2(1, 0));
    bench.owner_does(&bench.unbind_type_2(1));
    assert!(bench.rig.mkey(0, bench.window).free);
    // The request still has the old key, the last one that the program knew.
    let mut again = bench.bind_type_2(2, 1024).wqe();
    again.immediate = bench.window | 1;
    bench.p.b.post(&again);
    bench.rig.run();
    assert_eq!(bench.p.cq_b.expect().opcode, CqeOpcode::Requester);
    bench.writes(1024, bench.window | 2);
}

#[test]
fn a_type_2_window_serves_only_the_queue_pair_that_bound_it() {
    let mut bench = Bench::new();
    bench.owner_does(&bench.bind_type_2(1, 0));
    let mut other = bench.rig.pair(Transport::Rc);
    other.a.post(&bench.write(0, bench.window | 1));
    bench.rig.run();
    assert_eq!(other.cq_a.expect_error().1, Syndrome::RemoteAccess);
    // Another queue pair cannot invalidate it either.
    let mut other = bench.rig.pair(Transport::Rc);
    other.a.post(&bench.unbind_type_2(1).wqe());
    bench.rig.run();
    assert_eq!(other.cq_a.expect_error().1, Syndrome::MemoryWindowBind);
    bench.writes(0, bench.window | 1);
}

#[test]
fn a_send_with_invalidate_frees_the_window_and_names_it_in_the_completion() {
    let mut bench = Bench::new();
    bench.owner_does(&bench.bind_type_2(1, 0));
    let key = bench.window | 1;
    bench.p.b.post_receive(&[data(bench.region.at(2048), 64, bench.region.key)]);
    bench.p.a.post(&Wqe::new(Opcode::SendInvalidate).immediate(key).inline(b"done"));
    bench.rig.run();
    let receive = bench.p.cq_b.expect();
    assert_eq!(receive.opcode, CqeOpcode::ResponderSendInvalidate);
    assert_eq!(receive.cqe.imm_inval_pkey.get(), key);
    assert_eq!(bench.p.cq_a.expect().opcode, CqeOpcode::Requester);
    assert!(bench.rig.mkey(0, key).free);
    bench.may_not_write(0, key);
}

/// Name of an error in a key, and a function that makes such a key.
type Case<'a> = (&'a str, &'a dyn Fn(&mut Bench) -> u32);

#[test]
fn a_send_with_invalidate_is_refused_where_the_key_is_not_the_senders_to_free() {
    let other_name = |bench: &mut Bench| bench.window | 9;
    let free_already = |bench: &mut Bench| {
        bench.owner_does(&bench.unbind_type_2(1));
        bench.window
    };
    let no_such_key = |_: &mut Bench| 0xdead_be00;
    let a_region = |bench: &mut Bench| bench.region.key;
    let another_domain = |bench: &mut Bench| {
        let pd = bench.rig.lock().device_mut(0).alloc_pd().expect("a domain");
        bench.rig.key(0, MkeyConfig { free: false, ..free_config(pd, 4) })
    };
    let another_queue_pairs = |bench: &mut Bench| {
        let key = bench.rig.free_key(0, 4);
        let umr = Umr::bind(key, 0, bench.piece(0, 8), RIGHTS).qpn(bench.p.a.qpn);
        bench.owner_does(&umr);
        key
    };
    let cases: [Case<'_>; 6] = [
        ("tag", &other_name),
        ("free", &free_already),
        ("none", &no_such_key),
        ("region", &a_region),
        ("domain", &another_domain),
        ("queue pair", &another_queue_pairs),
    ];
    for (what, key) in cases {
        let mut bench = Bench::new();
        bench.owner_does(&bench.bind_type_2(1, 0));
        let key = key(&mut bench);
        let before = bench.rig.lock().device(0).mkey(key >> 8).cloned();
        bench.p.b.post_receive(&[data(bench.region.at(2048), 64, bench.region.key)]);
        let send = Wqe::new(Opcode::SendInvalidate).immediate(key).inline(b"done");
        bench.fails(&send, Syndrome::RemoteAccess);
        assert_eq!(bench.rig.lock().device(0).mkey(key >> 8).cloned(), before, "{what}");
    }
}

#[test]
fn a_local_invalidate_request_frees_a_key_by_its_whole_name() {
    let mut bench = Bench::new();
    bench.owner_does(&bench.bind_type_2(1, 0));
    bench.p.b.post(&Wqe::new(Opcode::LocalInvalidate).immediate(bench.window | 1));
    bench.rig.run();
    assert_eq!(bench.p.cq_b.expect().opcode, CqeOpcode::Requester);
    assert!(bench.rig.mkey(0, bench.window).free);
    // The second time the key is free already.
    bench.p.b.post(&Wqe::new(Opcode::LocalInvalidate).immediate(bench.window | 1));
    bench.rig.run();
    assert_eq!(bench.p.cq_b.expect_error().1, Syndrome::MemoryWindowBind);
}

#[test]
fn unreliable_connections_bind_and_invalidate_too() {
    let rig = Rig::one_device();
    let mut p = rig.pair(Transport::Uc);
    let region = rig.region(0, 64);
    let window = rig.free_key(0, 4);
    let piece = (region.key, region.at(0), 64);
    p.b.post(&Umr::bind(window, 1, piece, RIGHTS).wqe());
    rig.run();
    assert_eq!(p.cq_b.expect().opcode, CqeOpcode::Requester);
    p.a.post(&Wqe::new(Opcode::RdmaWrite).remote(region.at(3), window | 1).inline(b"uc"));
    rig.run();
    assert_eq!(region.memory.read(3, 2), b"uc");
    let datagrams = rig.pair(Transport::Ud);
    let mut p = datagrams;
    p.a.post(&Umr::bind(window | 1, 2, piece, RIGHTS).wqe());
    rig.run();
    assert_eq!(p.cq_a.expect_error().1, Syndrome::LocalQpOperation);
}
