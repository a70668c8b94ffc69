//! Protection domains, thread domains, parent domains and the memory that they provide.

use crate::bed::*;
use crate::header::*;
use mlx5_verbs::abi::mlx5dv::*;
use mlx5_verbs::abi::*;
use mlx5_verbs::{cq, domain, mr, qp, srq};
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::{Mutex, MutexGuard};

#[test]
fn a_domain_goes_after_all_that_was_made_in_it() {
    let mut bed = Bed::new();
    let pd = made(c!(mlx5_verbs::pd::alloc_pd(bed.context)));
    let mr = made(c!(mr::reg_mr(pd, bed.memory.start.cast(), 64, 0)));
    let cq = bed.cq(4);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(pd, &mut init)));
    assert_eq!(c!(domain::dealloc_pd(pd)), libc::EBUSY);
    ok(c!(mr::dereg_mr(mr)));
    assert_eq!(c!(domain::dealloc_pd(pd)), libc::EBUSY);
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(domain::dealloc_pd(pd)));
    bed.end();
}

fn parent(bed: &Bed, td: *mut ibv_td) -> *mut ibv_pd {
    let mut attr: ibv_parent_domain_init_attr = blank();
    (attr.pd, attr.td) = (bed.pd, td);
    made(alloc_parent_domain(bed.context, &mut attr))
}

#[test]
fn a_thread_domain_goes_after_its_parent_domains_and_those_after_their_queues() {
    let mut bed = Bed::new();
    let mut none: ibv_td_init_attr = blank();
    let td = made(alloc_td(bed.context, &mut none));
    let parents = [parent(&bed, td), parent(&bed, td)];
    let cq = bed.cq(4);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(parents[0], &mut init)));
    assert_eq!(c!(domain::dealloc_pd(parents[0])), libc::EBUSY, "a queue pair has it");
    ok(c!(qp::create::destroy_qp(qp)));
    for parent in parents {
        assert_eq!(dealloc_td(td), libc::EBUSY);
        ok(c!(domain::dealloc_pd(parent)));
    }
    ok(dealloc_td(td));
    bed.end();
}

#[test]
fn invalid_parent_domain_is_refused() {
    let bed = Bed::new();
    let mut attr: ibv_parent_domain_init_attr = blank();
    not_made(alloc_parent_domain(bed.context, &mut attr), libc::EINVAL);
    attr.pd = bed.pd;
    attr.comp_mask = 1 << 7;
    not_made(alloc_parent_domain(bed.context, &mut attr), libc::EINVAL);
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    not_made(alloc_parent_domain(bed.context, &mut attr), libc::EINVAL);
    let parent = parent(&bed, null_mut());
    (attr.comp_mask, attr.pd) = (0, parent);
    not_made(alloc_parent_domain(bed.context, &mut attr), libc::EINVAL);
    let mut unknown = ibv_td_init_attr { comp_mask: 1 };
    not_made(alloc_td(bed.context, &mut unknown), libc::EINVAL);
    ok(c!(domain::dealloc_pd(parent)));
    bed.end();
}

/// A program's record of the memory that it provides.
#[derive(Default)]
struct Provided {
    /// Results of the next calls for the memory of a queue, and the result of later calls.
    answers: Vec<usize>,
    default: usize,
    /// Pieces: their kind, address and length.
    taken: Vec<(u64, usize, usize)>,
    freed: Vec<(u64, usize)>,
    /// Mappings, which the program unmaps itself.
    mapped: Vec<(usize, usize)>,
}

type Program = Mutex<Provided>;

/// Answer: the library is to provide the memory.
const USE_DEFAULT: usize = usize::MAX;
/// Answer: memory that the program maps.
const OWN: usize = 1;
/// No memory.
const NOTHING: usize = 0;

fn of<'a>(own: *mut c_void) -> MutexGuard<'a, Provided> {
    c!((*own.cast::<Program>()).lock().expect("no panic"))
}

fn map(length: usize) -> usize {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let start = c!(libc::mmap(null_mut(), length, rights, flags, -1, 0));
    assert_ne!(start, libc::MAP_FAILED);
    start.expose_provenance()
}

unsafe extern "C" fn take(
    _pd: *mut ibv_pd,
    own: *mut c_void,
    size: usize,
    alignment: usize,
    kind: u64,
) -> *mut c_void {
    let mut of = of(own);
    let answer = if of.answers.is_empty() || kind == MLX5DV_RES_TYPE_DBR {
        of.default
    } else {
        of.answers.remove(0)
    };
    if answer == NOTHING || answer == USE_DEFAULT {
        of.taken.push((kind, answer, size));
        return without_provenance_mut(answer);
    }
    let length = size.next_multiple_of(4096);
    let start = map(length);
    assert_eq!(start % alignment, 0);
    of.taken.push((kind, start, size));
    of.mapped.push((start, length));
    std::ptr::with_exposed_provenance_mut(start)
}

unsafe extern "C" fn give_back(_pd: *mut ibv_pd, own: *mut c_void, memory: *mut c_void, kind: u64) {
    of(own).freed.push((kind, memory.addr()));
}

/// A parent domain whose memory a program provides.
fn providing(bed: &Bed, program: &Program) -> *mut ibv_pd {
    let mut attr: ibv_parent_domain_init_attr = blank();
    attr.pd = bed.pd;
    attr.comp_mask =
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = Some(take);
    attr.r#free = Some(give_back);
    attr.pd_context = std::ptr::from_ref(program).cast_mut().cast();
    made(alloc_parent_domain(bed.context, &mut attr))
}

fn unmap(program: &Program) {
    for (start, length) in program.lock().expect("no panic").mapped.drain(..) {
        ok(c!(libc::munmap(std::ptr::with_exposed_provenance_mut(start), length)));
    }
}

fn cq_of(bed: &Bed, parent: *mut ibv_pd, entries: u32) -> *mut ibv_cq {
    let mut wanted: ibv_cq_init_attr_ex = blank();
    (wanted.cqe, wanted.parent_domain) = (entries, parent);
    wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    create_cq_ex(bed.context, &mut wanted).cast()
}

#[test]
fn all_memory_that_a_program_provides_comes_back_to_it_once_with_its_purpose() {
    let bed = Bed::new();
    let program = Program::default();
    program.lock().expect("no panic").default = OWN;
    let parent = providing(&bed, &program);
    let cq = made(cq_of(&bed, parent, 8));
    let mut wanted: ibv_srq_init_attr = blank();
    wanted.attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
    let srq = made(c!(srq::create_srq(parent, &mut wanted)));
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    let qp = made(c!(qp::create::create_qp(parent, &mut init)));
    // It works with that memory.
    bed.connect(qp, qp);
    bed.to_rts(qp);
    ok(receive(qp, 1, bed.sge(HALF, 8)));
    send(qp, 2, bed.sge(0, 8));
    bed.run();
    assert_eq!(poll(cq).len(), 2);
    assert_eq!(c!(domain::dealloc_pd(parent)), libc::EBUSY);
    ok(c!(qp::create::destroy_qp(qp)));
    ok(c!(srq::destroy_srq(srq)));
    assert_eq!(c!(domain::dealloc_pd(parent)), libc::EBUSY);
    ok(c!(cq::destroy_cq(cq)));
    {
        let mut of = program.lock().expect("no panic");
        let mut taken: Vec<_> = of.taken.iter().map(|(kind, start, _)| (*kind, *start)).collect();
        let mut kinds: Vec<_> = taken.iter().map(|(kind, _)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let expected =
            [MLX5DV_RES_TYPE_QP, MLX5DV_RES_TYPE_DBR, MLX5DV_RES_TYPE_SRQ, MLX5DV_RES_TYPE_CQ];
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(kinds, expected);
        taken.sort_unstable();
        of.freed.sort_unstable();
        assert_eq!(of.freed, taken);
    }
    ok(c!(domain::dealloc_pd(parent)));
    unmap(&program);
    bed.end();
}

#[test]
fn a_program_that_has_no_memory_gets_no_queue_and_keeps_what_it_gave() {
    let mut bed = Bed::new();
    let program = Program::default();
    let parent = providing(&bed, &program);
    not_made(cq_of(&bed, parent, 8), libc::ENOMEM);
    let cq = bed.cq(8);
    let mut init = bed.qp_init(IBV_QPT_RC, cq);
    // There is memory for the ring, but not for the doorbell record.
    program.lock().expect("no panic").answers = vec![OWN];
    not_made(c!(qp::create::create_qp(parent, &mut init)), libc::ENOMEM);
    {
        let of = program.lock().expect("no panic");
        let given: Vec<_> = of.taken.iter().filter(|(_, start, _)| *start != NOTHING).collect();
        let freed: Vec<_> = of.freed.iter().map(|(_, start)| *start).collect();
        assert_eq!(freed, given.iter().map(|(_, start, _)| *start).collect::<Vec<_>>());
    }
    ok(c!(domain::dealloc_pd(parent)));
    unmap(&program);
    bed.end();
}
