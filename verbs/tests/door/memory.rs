//! Memory regions, windows, and memory on the device.

use crate::bed::*;
use crate::header::*;
use mlx5_verbs::abi::*;
use mlx5_verbs::{domain, mr, pd};
use std::ptr::null_mut;

#[test]
fn a_region_says_what_it_is_of() {
    let bed = Bed::new();
    c!({
        let mr = &*bed.mr;
        assert_eq!((mr.addr, mr.length), (bed.memory.start.cast(), LENGTH));
        assert_eq!((mr.pd, mr.context), (bed.pd, bed.context));
        assert_ne!((mr.lkey, mr.rkey), (0, 0));
    });
    bed.end();
}

#[test]
fn a_region_that_the_kernel_refuses_is_not_made() {
    let bed = Bed::new();
    // Remote writes need local ones.
    let access = IBV_ACCESS_REMOTE_WRITE as c_int;
    not_made(c!(mr::reg_mr(bed.pd, bed.memory.start.cast(), 64, access)), libc::EINVAL);
    bed.end();
}

/// Writes 8 bytes to a remote address. Returns the status.
fn write(bed: &mut Bed, rkey: u32, remote_addr: u64) -> c_uint {
    let pair = bed.pair(IBV_QPT_RC);
    let outcome = write_by(bed, pair, rkey, remote_addr);
    pair.destroy();
    outcome
}

fn write_by(bed: &Bed, pair: Pair, rkey: u32, remote_addr: u64) -> c_uint {
    let mut sge = bed.sge(0, 8);
    let mut wr = send_wr(7, IBV_WR_RDMA_WRITE);
    (wr.sg_list, wr.num_sge) = (&mut sge, 1);
    wr.wr.rdma = ibv_send_wr_wr_rdma { remote_addr, rkey };
    ok(post_one(pair.qp, &mut wr));
    bed.run();
    let [(7, outcome)] = outcomes(pair.cq)[..] else { panic!("one completion") };
    outcome
}

#[test]
fn a_region_of_another_address_is_reached_by_that_address() {
    let mut bed = Bed::new();
    bed.memory.write(0, b"by iova.");
    let start = bed.memory.start.wrapping_add(HALF as usize).cast();
    let rights = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) as c_int;
    let far = 0x7000_0000_0000;
    let other = made(c!(mr::reg_mr_iova(bed.pd, start, 4096, far, rights)));
    let newer = made(c!(mr::reg_mr_iova2(bed.pd, start, 4096, far, rights as c_uint)));
    for (mr, at) in [(other, 0), (newer, 512)] {
        let rkey = c!((*mr).rkey);
        assert_eq!(write(&mut bed, rkey, far + at), IBV_WC_SUCCESS);
        assert_eq!(&bed.memory.read::<8>((HALF + at) as usize), b"by iova.");
        let own = bed.memory.address() + HALF;
        assert_eq!(write(&mut bed, rkey, own), IBV_WC_REM_ACCESS_ERR);
        ok(c!(mr::dereg_mr(mr)));
        assert_eq!(write(&mut bed, rkey, far + at), IBV_WC_REM_ACCESS_ERR, "it is gone");
    }
    bed.end();
}

#[test]
fn reregistration_changes_the_flagged_attributes() {
    let mut bed = Bed::new();
    let other = Pages::new(8192);
    let rights = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) as c_int;
    let target = made(c!(mr::reg_mr(bed.pd, other.start.cast(), 4096, rights)));
    bed.memory.write(0, b"newer...");
    assert_eq!(write(&mut bed, c!((*target).rkey), other.address()), IBV_WC_SUCCESS);
    // Other memory.
    let moved = other.start.wrapping_add(4096).cast();
    let change = IBV_REREG_MR_CHANGE_TRANSLATION as c_int;
    ok(c!(mr::rereg_mr(target, change, null_mut(), moved, 4096, 0)));
    c!(assert_eq!(((*target).addr, (*target).length), (moved, 4096)));
    let rkey = c!((*target).rkey);
    assert_eq!(write(&mut bed, rkey, other.address()), IBV_WC_REM_ACCESS_ERR);
    assert_eq!(write(&mut bed, rkey, other.address() + 4096), IBV_WC_SUCCESS);
    assert_eq!(&other.read::<8>(4096), b"newer...");
    // Fewer rights.
    let change = IBV_REREG_MR_CHANGE_ACCESS as c_int;
    let local = IBV_ACCESS_LOCAL_WRITE as c_int;
    ok(c!(mr::rereg_mr(target, change, null_mut(), null_mut(), 0, local)));
    let rkey = c!((*target).rkey);
    assert_eq!(write(&mut bed, rkey, other.address() + 4096), IBV_WC_REM_ACCESS_ERR);
    // Another domain.
    let pd = made(c!(pd::alloc_pd(bed.context)));
    let change = IBV_REREG_MR_CHANGE_PD as c_int;
    ok(c!(mr::rereg_mr(target, change, pd, null_mut(), 0, 0)));
    assert_eq!(c!((*target).pd), pd);
    assert_eq!(c!(domain::dealloc_pd(pd)), libc::EBUSY);
    ok(c!(mr::dereg_mr(target)));
    ok(c!(domain::dealloc_pd(pd)));
    bed.end();
}

#[test]
fn reregistration_refuses_contradictory_arguments() {
    let bed = Bed::new();
    let start = bed.memory.start.cast();
    let (translation, access, domain) = (
        IBV_REREG_MR_CHANGE_TRANSLATION as c_int,
        IBV_REREG_MR_CHANGE_ACCESS as c_int,
        IBV_REREG_MR_CHANGE_PD as c_int,
    );
    for (flags, pd, addr, length, rights) in [
        (1 << 5, null_mut(), null_mut(), 0, 0),
        (translation, null_mut(), null_mut(), 64, 0),
        (translation, null_mut(), start, 0, 0),
        (domain, null_mut(), null_mut(), 0, 0),
        (translation, null_mut(), start, 64, ALL_ACCESS),
    ] {
        let answer = c!(mr::rereg_mr(bed.mr, flags, pd, addr, length, rights));
        assert_eq!((answer, errno()), (IBV_REREG_MR_ERR_INPUT, libc::EINVAL), "flags {flags}");
    }
    // The kernel refuses with another error.
    let remote = IBV_ACCESS_REMOTE_WRITE as c_int;
    let answer = c!(mr::rereg_mr(bed.mr, access, null_mut(), null_mut(), 0, remote));
    assert_eq!(answer, IBV_REREG_MR_ERR_CMD);
    bed.end();
}

#[test]
fn a_device_without_a_null_region_says_so() {
    let bed = Bed::new();
    not_made(alloc_null_mr(bed.pd), libc::EOPNOTSUPP);
    bed.end();
}

#[test]
fn a_window_of_type_1_is_bound_by_a_call_and_has_a_new_key_each_time() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    // The other side of the connection has the window.
    let mw = made(alloc_mw(bed.pd, IBV_MW_TYPE_1));
    let mut bind: ibv_mw_bind = blank();
    (bind.wr_id, bind.send_flags) = (5, IBV_SEND_SIGNALED);
    bind.bind_info = ibv_mw_bind_info {
        mr: bed.mr,
        addr: bed.memory.address() + HALF,
        length: 64,
        mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
    };
    let mut keys = vec![c!((*mw).rkey)];
    for _ in 0..2 {
        ok(bind_mw(pair.peer, mw, &mut bind));
        bed.run();
        let completions = poll(pair.peer_cq);
        assert_eq!(completions.len(), 1);
        assert_eq!((completions[0].wr_id, completions[0].status), (5, IBV_WC_SUCCESS));
        assert_eq!(completions[0].opcode, IBV_WC_BIND_MW);
        keys.push(c!((*mw).rkey));
        let place = bed.memory.address() + HALF;
        assert_eq!(write_by(&bed, pair, c!((*mw).rkey), place + 56), IBV_WC_SUCCESS);
    }
    keys.dedup();
    assert_eq!(keys.len(), 3, "each bind has its key");
    let place = bed.memory.address() + HALF;
    assert_eq!(write_by(&bed, pair, keys[1], place), IBV_WC_REM_ACCESS_ERR, "the former key");
    pair.destroy();
    ok(dealloc_mw(mw));
    bed.end();
}

#[test]
fn a_window_is_not_bound_where_the_library_says_so_at_once() {
    let mut bed = Bed::new();
    let pair = bed.pair(IBV_QPT_RC);
    let mw = made(alloc_mw(bed.pd, IBV_MW_TYPE_1));
    not_made(alloc_mw(bed.pd, 9), libc::EINVAL);
    let mut bind: ibv_mw_bind = blank();
    // A length without a region.
    bind.bind_info.length = 8;
    assert_eq!(bind_mw(pair.peer, mw, &mut bind), libc::EINVAL);
    bind.bind_info = blank();
    bind.bind_info.mw_access_flags = IBV_ACCESS_ZERO_BASED;
    assert_eq!(bind_mw(pair.peer, mw, &mut bind), libc::EINVAL);
    // A region whose addresses count from zero.
    let from_zero = (IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE) as c_int;
    bind.bind_info = blank();
    bind.bind_info.mr = made(c!(mr::reg_mr(bed.pd, bed.memory.start.cast(), 64, from_zero)));
    assert_eq!(bind_mw(pair.peer, mw, &mut bind), libc::EINVAL);
    ok(c!(mr::dereg_mr(bind.bind_info.mr)));
    bed.run();
    assert_eq!(poll(pair.peer_cq).len(), 0);
    pair.destroy();
    ok(dealloc_mw(mw));
    bed.end();
}

#[test]
fn memory_of_the_device_holds_what_is_copied_and_is_reached_by_a_region() {
    let mut bed = Bed::new();
    let mut attr = ibv_alloc_dm_attr { length: 4096, log_align_req: 0, comp_mask: 0 };
    let dm = made(alloc_dm(bed.context, &mut attr));
    let to = c!((*dm).memcpy_to_dm.unwrap());
    let from = c!((*dm).memcpy_from_dm.unwrap());
    ok(c!(to(dm, 64, b"on chip.".as_ptr().cast(), 8)));
    let mut back = [0_u8; 8];
    ok(c!(from(back.as_mut_ptr().cast(), dm, 64, 8)));
    assert_eq!(&back, b"on chip.");
    for (offset, length) in [(4096, 8), (4092, 8), (u64::MAX, 8), (0, 5000)] {
        let answer = c!(to(dm, offset, back.as_ptr().cast(), length));
        assert_eq!(answer, libc::EFAULT, "{offset} {length}");
    }
    let rights = IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    let mr = made(reg_dm_mr(bed.pd, dm, 0, 4096, rights));
    assert_eq!(c!(mlx5_verbs::dm::free_dm(dm)), libc::EBUSY);
    bed.memory.write(0, b"by wire.");
    assert_eq!(write(&mut bed, c!((*mr).rkey), 128), IBV_WC_SUCCESS);
    ok(c!(from(back.as_mut_ptr().cast(), dm, 128, 8)));
    assert_eq!(&back, b"by wire.");
    ok(c!(mr::dereg_mr(mr)));
    ok(free_dm(dm));
    attr.comp_mask = 1;
    not_made(alloc_dm(bed.context, &mut attr), libc::EOPNOTSUPP);
    bed.end();
}
