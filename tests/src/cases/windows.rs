//! Memory windows: binding, rights, invalidation from either side.

use crate::prelude::*;
use mlx5::window::{TypeOne, TypeTwo};
use mlx5::{BindError, ErrorKind, MemoryWindow};

pub(crate) const CASES: &[Case] = cases![
    a_window_of_type_two_gives_the_rights_it_was_bound_with: SIMULATOR,
    window_is_bound_again_after_it_was_invalidated: SIMULATOR,
    a_bound_window_of_type_two_cannot_be_bound_again: SIMULATOR,
    a_window_is_invalidated_by_a_send_from_the_other_side: SIMULATOR,
    a_window_of_type_one_is_bound_by_a_call_and_again: SIMULATOR,
    an_unbound_window_of_type_one_leads_nowhere: SIMULATOR,
    a_window_whose_addresses_count_from_zero: SIMULATOR,
    a_window_ends_where_it_was_bound_to_end: SIMULATOR,
    impossible_bind_is_refused_with_the_reason,
    a_batch_that_is_aborted_binds_nothing: SIMULATOR,
    windows_come_and_go,
];

const ACCESS: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE).union(Access::MW_BIND);
const SIGNALED: SendFlags = SendFlags::SIGNALED;

fn pair(bed: &Bed) -> Result<Pair<Rc>, Failed> {
    bed.pair(&PairOptions::default().memory(8192).access(ACCESS))
}

/// Binds `window` of `b` to the first 4096 bytes of its memory.
fn bind(
    bed: &Bed,
    b: &mut End<Rc>,
    window: &mut MemoryWindow<TypeTwo>,
    access: Access,
) -> Result<RemoteAddress, Failed> {
    let binding = window.binding(&b.mr, 0..4096, access)?;
    let mut batch = b.qp.wr_start();
    batch.wr(50, SIGNALED).bind_mw(binding);
    batch.complete()?;
    let done = bed.poll_good(&mut b.send_cq, 1)[0];
    assert_eq!(done.as_completion().opcode(), CompletionOpcode::BindWindow);
    let at = if access.contains(Access::ZERO_BASED) { 0 } else { b.mr.addr() };
    Ok(window.remote(at))
}

/// Writes a byte there from `a`, and returns the error, if any.
fn write(bed: &Bed, a: &mut End<Rc>, to: RemoteAddress) -> Result<Option<Syndrome>, Failed> {
    let sge = a.mr.sge(0..1)?;
    let mut batch = a.qp.wr_start();
    batch.wr(60, SIGNALED).rdma_write(to).sge(sge);
    batch.complete()?;
    Ok(syndrome(&bed.poll_one(&mut a.send_cq)))
}

/// Reads a byte from there, and returns the error, if any.
fn read(bed: &Bed, a: &mut End<Rc>, from: RemoteAddress) -> Result<Option<Syndrome>, Failed> {
    let sge = a.mr.sge(4096..4097)?;
    let mut batch = a.qp.wr_start();
    batch.wr(61, SIGNALED).rdma_read(from).sge(sge);
    batch.complete()?;
    Ok(syndrome(&bed.poll_one(&mut a.send_cq)))
}

fn a_window_of_type_two_gives_the_rights_it_was_bound_with(bed: &Bed) -> Outcome {
    for (access, writes, reads) in [
        (Access::REMOTE_READ, Some(Syndrome::RemoteAccess), None),
        (Access::REMOTE_WRITE, None, Some(Syndrome::RemoteAccess)),
        (Access::REMOTE_READ | Access::REMOTE_WRITE, None, None),
    ] {
        let Pair { mut a, mut b } = pair(bed)?;
        let mut window = b.pd.alloc_mw::<TypeTwo>()?;
        let first = window.rkey();
        let remote = bind(bed, &mut b, &mut window, access)?;
        assert_eq!(window.rkey(), first & !0xff | (first + 1) & 0xff);
        // The successful request comes first, because a failure ends the connection.
        let mut order = [writes.is_some(), reads.is_some()];
        order.sort_unstable();
        if writes.is_none() {
            assert_eq!(write(bed, &mut a, remote)?, None);
            assert_eq!(read(bed, &mut a, remote)?, reads);
        } else {
            assert_eq!(read(bed, &mut a, remote)?, reads);
            assert_eq!(write(bed, &mut a, remote)?, writes);
        }
    }
    Ok(())
}

fn window_is_bound_again_after_it_was_invalidated(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = pair(bed)?;
    let mut window = b.pd.alloc_mw::<TypeTwo>()?;
    let old = bind(bed, &mut b, &mut window, Access::REMOTE_WRITE)?;
    // In one batch, because the binding waits for the invalidation.
    let mut batch = b.qp.wr_start();
    batch.wr(1, SIGNALED).local_inv(window.rkey());
    batch.wr(2, SIGNALED).bind_mw(window.binding(&b.mr, 0..4096, Access::REMOTE_WRITE)?);
    batch.complete()?;
    let done = bed.poll_good(&mut b.send_cq, 2)[0];
    assert_eq!(done.as_completion().opcode(), CompletionOpcode::LocalInvalidate);
    assert_eq!(write(bed, &mut a, window.remote(b.mr.addr()))?, None);
    assert_eq!(write(bed, &mut a, old)?, Some(Syndrome::RemoteAccess), "the old key is void");
    Ok(())
}

fn a_bound_window_of_type_two_cannot_be_bound_again(bed: &Bed) -> Outcome {
    let Pair { a: _a, mut b } = pair(bed)?;
    let mut window = b.pd.alloc_mw::<TypeTwo>()?;
    bind(bed, &mut b, &mut window, Access::REMOTE_WRITE)?;
    let mut batch = b.qp.wr_start();
    batch.wr(2, SIGNALED).bind_mw(window.binding(&b.mr, 0..64, Access::REMOTE_WRITE)?);
    batch.complete()?;
    let failed = syndrome(&bed.poll_one(&mut b.send_cq));
    assert_eq!(failed, Some(Syndrome::MemoryWindowBind));
    Ok(())
}

fn a_window_is_invalidated_by_a_send_from_the_other_side(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = pair(bed)?;
    let mut window = b.pd.alloc_mw::<TypeTwo>()?;
    let remote = bind(bed, &mut b, &mut window, Access::REMOTE_WRITE)?;
    assert_eq!(write(bed, &mut a, remote)?, None);
    b.recv(5, 4096..5000);
    let mut batch = a.qp.wr_start();
    batch.wr(1, SIGNALED).send_inv(window.rkey()).inline_data(b"done with it");
    batch.complete()?;
    bed.poll_good(&mut a.send_cq, 1);
    let received = bed.poll_good(b.recv_cq(), 1)[0];
    let received = received.as_completion();
    assert_eq!(received.invalidated_rkey(), Some(window.rkey()));
    assert_eq!((received.byte_len(), received.imm_data()), (Some(12), None));
    // The window is free, and can be bound at once.
    bind(bed, &mut b, &mut window, Access::REMOTE_READ)?;
    assert_eq!(write(bed, &mut a, remote)?, Some(Syndrome::RemoteAccess));
    Ok(())
}

/// The reason why binding by a call was refused.
fn refusal(error: BindError) -> Result<mlx5::Error, Failed> {
    match error {
        BindError::Invalid(error) => Ok(error),
        BindError::Post(error) => Err(Failed::new(error.to_string())),
    }
}

fn a_window_of_type_one_is_bound_by_a_call_and_again(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = pair(bed)?;
    let mut window = b.pd.alloc_mw::<TypeOne>()?;
    window.bind(&mut b.qp, 1, SIGNALED, &b.mr, 0..64, Access::REMOTE_WRITE)?;
    bed.poll_good(&mut b.send_cq, 1);
    let first = window.remote(b.mr.addr());
    assert_eq!(write(bed, &mut a, first)?, None);
    // Binds again without an invalidation in between.
    window.bind(&mut b.qp, 2, SIGNALED, &b.mr, 64..128, Access::REMOTE_WRITE)?;
    bed.poll_good(&mut b.send_cq, 1);
    assert_eq!(write(bed, &mut a, window.remote(b.mr.addr() + 64))?, None);
    assert_eq!(write(bed, &mut a, first)?, Some(Syndrome::RemoteAccess));
    Ok(())
}

fn an_unbound_window_of_type_one_leads_nowhere(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = pair(bed)?;
    let mut window = b.pd.alloc_mw::<TypeOne>()?;
    window.bind(&mut b.qp, 1, SIGNALED, &b.mr, 0..64, Access::REMOTE_WRITE)?;
    window.unbind(&mut b.qp, 2, SIGNALED)?;
    bed.poll_good(&mut b.send_cq, 2);
    let remote = window.remote(b.mr.addr());
    assert_eq!(write(bed, &mut a, remote)?, Some(Syndrome::RemoteAccess));
    Ok(())
}

fn a_window_whose_addresses_count_from_zero(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = pair(bed)?;
    let mut window = b.pd.alloc_mw::<TypeTwo>()?;
    let access = Access::REMOTE_WRITE | Access::ZERO_BASED;
    let remote = bind(bed, &mut b, &mut window, access)?;
    a.mr.write_at(0, b"z")?;
    assert_eq!(write(bed, &mut a, RemoteAddress { addr: 5, ..remote })?, None);
    let mut byte = [0];
    b.mr.read_at(5, &mut byte)?;
    assert_eq!(byte, *b"z");
    Ok(())
}

fn a_window_ends_where_it_was_bound_to_end(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = pair(bed)?;
    let mut window = b.pd.alloc_mw::<TypeTwo>()?;
    let remote = bind(bed, &mut b, &mut window, Access::REMOTE_WRITE)?;
    let last = RemoteAddress { addr: remote.addr + 4095, ..remote };
    assert_eq!(write(bed, &mut a, last)?, None);
    let behind = RemoteAddress { addr: remote.addr + 4096, ..remote };
    assert_eq!(write(bed, &mut a, behind)?, Some(Syndrome::RemoteAccess));
    Ok(())
}

fn impossible_bind_is_refused_with_the_reason(bed: &Bed) -> Outcome {
    let context = bed.context();
    let (pd, other) = (context.alloc_pd()?, context.alloc_pd()?);
    let mut window = pd.alloc_mw::<TypeTwo>()?;
    let rkey = window.rkey();
    let memory = |pd: &mlx5::ProtectionDomain, access| pd.memory(4096).access(access).register();
    let read_only = memory(&pd, Access::MW_BIND)?;
    let without = memory(&pd, Access::LOCAL_WRITE)?;
    let elsewhere = memory(&other, Access::MW_BIND)?;
    let good = memory(&pd, ACCESS)?;
    let read = Access::REMOTE_READ;
    for (mr, range, access, cause) in [
        (&without, 0..8, read, "without MW_BIND"),
        (&read_only, 0..8, Access::REMOTE_WRITE, "without LOCAL_WRITE"),
        (&elsewhere, 0..8, read, "different domains"),
        (&good, 0..4097, read, "are not inside the region of 4096 bytes"),
        (&good, 8..8, read, "is empty"),
        (&good, 0..8, Access::ON_DEMAND, "takes only"),
    ] {
        let error = window.binding(mr, range, access).expect_err(cause);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(cause), "{error} should say {cause}");
    }
    assert_eq!(window.rkey(), rkey, "nothing was bound");
    window.binding(&read_only, 0..8, read)?;
    let mut one = pd.alloc_mw::<TypeOne>()?;
    let cq = context.create_cq(8).build()?;
    let mut qp = other.create_qp::<Rc>(&cq, &cq).build()?;
    let refused = one.bind(&mut qp, 1, SIGNALED, &good, 0..8, read).expect_err("elsewhere");
    assert!(refusal(refused)?.to_string().contains("different domains"));
    Ok(())
}

fn a_batch_that_is_aborted_binds_nothing(bed: &Bed) -> Outcome {
    let Pair { mut a, mut b } = pair(bed)?;
    let mut window = b.pd.alloc_mw::<TypeTwo>()?;
    let binding = window.binding(&b.mr, 0..4096, Access::REMOTE_WRITE)?;
    let before = b.qp.send_ring();
    let mut batch = b.qp.wr_start();
    batch.wr(1, SIGNALED).bind_mw(binding);
    batch.abort();
    bed.nothing(&mut b.send_cq);
    drop(before);
    // The window can still be bound later.
    let remote = bind(bed, &mut b, &mut window, Access::REMOTE_WRITE)?;
    assert_eq!(write(bed, &mut a, remote)?, None);
    Ok(())
}

fn windows_come_and_go(bed: &Bed) -> Outcome {
    let context = bed.context();
    let pd = context.alloc_pd()?;
    let (one, two) = (pd.alloc_mw::<TypeOne>()?, pd.alloc_mw::<TypeTwo>()?);
    assert_ne!(one.rkey() >> 8, two.rkey() >> 8);
    // A domain that still has windows is not destroyed.
    let pd = pd.destroy().expect_err("windows belong to it").into_inner();
    one.dealloc()?;
    drop(two);
    pd.destroy()?;
    Ok(())
}
