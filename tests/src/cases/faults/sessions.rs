//! Whole programs from opening the device to the end, one session for each family of objects.

use crate::case::Need;
use crate::prelude::*;
use mlx5::mkey::{
    BlockSize, Domain, Escape, Guard, Seed, Signature, SignatureBlock, T10Dif,
};
use mlx5::transport::XrcSend;
use mlx5::window::{TypeOne, TypeTwo};
use mlx5::{
    BindError, CancelError, ConnectOptions, Device, Gid, LinkLayer, LocalPort, Psn, TagAdd,
    XrcOpen,
};
use std::os::fd::AsFd;
use std::time::Duration;

/// A session: what a program does with a device.
pub(super) type Session = fn(&Device, &Bed) -> Outcome;

/// The sessions, each with the number of failed calls that it must at least report. Some failures
/// go unnoticed: those of a query that has a fallback, and of destructions by drop.
pub(super) const SESSIONS: &[(Session, u64, Need)] = &[
    (queues, 40, Need::empty()),
    (memory, 14, Need::empty()),
    (foreign, 9, Need::empty()),
    (windows, 14, Need::empty()),
    (extended, 24, Need::empty()),
    (keys, 22, Need::SIGNATURES.union(Need::PIPELINING)),
    (tags, 22, Need::TAG_MATCHING),
];

/// Queues of every transport, traffic, events, and the destruction of all of them.
fn queues(device: &Device, bed: &Bed) -> Outcome {
    let context = device.open()?;
    let port = context.local_port(1, None)?;
    context.query_port(1)?;
    context.query_pkey(1, 0)?;
    context.find_gid(1, port.gid, port.gid_type)?;
    let events = context.async_events();
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let mr = pd.memory(8192).access(access).register()?;
    let channel = context.create_comp_channel()?;
    let mut cq = context.create_cq(64).channel(&channel).build()?;
    let mut srq = pd.create_srq(16).limit(1).build()?;
    srq.set_limit(0)?;
    srq.query()?;

    let options = ConnectOptions::default();
    let psn = Psn::default();
    let mut one = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(32).build()?;
    let mut other = pd.create_qp::<Rc>(&cq, &cq).srq(&srq).build()?;
    let mut datagram = pd.create_qp::<Ud>(&cq, &cq).build()?;
    connect(&port, &mut one, &mut other)?;
    datagram.activate(&port, psn, &options)?;
    let mut group = [0; 16];
    (group[0], group[1], group[15]) = (0xff, 0x12, 5);
    let group = Gid::from_bytes(group);
    let lid = if port.link_layer == LinkLayer::InfiniBand { 0xc005 } else { 0 };
    datagram.attach_mcast(group, lid)?;

    srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[mr.sge(0..64)?] }])?;
    cq.arm(false)?;
    let mut batch = one.wr_start();
    batch.wr(2, SendFlags::SIGNALED).send().inline_data(b"a message");
    batch.wr(3, SendFlags::SIGNALED).rdma_write(mr.remote(4096..)?).sge(mr.sge(0..1024)?);
    batch.complete()?;
    bed.poll_good(&mut cq, 3);
    let to = datagram.endpoint(&port, psn, &options);
    let ah = pd.create_ah_to(&port, &to, &options)?;
    datagram.post_recv(&[ReceiveWr { wr_id: 4, sges: &[mr.sge(1024..2048)?] }])?;
    let mut batch = datagram.wr_start();
    let request = batch.wr(5, SendFlags::SIGNALED).send();
    request.ud_addr(ah.vector(), to.qp_num.get(), options.qkey).sge(mr.sge(0..64)?);
    batch.complete()?;
    bed.poll_good(&mut cq, 2);
    if channel.wait(Some(Duration::from_secs(10)))? != Some(cq.id()) {
        return Err("the armed queue announced nothing".into());
    }

    one.query()?;
    match one.drained() {
        Err(CancelError::NotDrained { .. }) => {}
        Err(CancelError::Query(error)) => return Err(error.into()),
        other => return Err(format!("it is not drained, but {other:?}").into()),
    }
    events.next()?;
    one.modify(&QpAttributes::new().qp_state(QueueState::Error))?;
    datagram.detach_mcast(group, lid)?;
    // Destroys half of the objects, and drops the rest.
    ah.destroy()?;
    other.destroy()?;
    srq.destroy()?;
    mr.deregister()?;
    drop(datagram);
    drop(one);
    cq.destroy()?;
    pd.destroy()?;
    Ok(())
}

/// Connects two queue pairs of one port.
fn connect(port: &LocalPort, one: &mut QueuePair<Rc>, other: &mut QueuePair<Rc>) -> Outcome {
    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let at = (one.endpoint(port, psn, &options), other.endpoint(port, psn, &options));
    one.connect(port, psn, &at.1, &options)?;
    other.connect(port, psn, &at.0, &options)?;
    Ok(())
}

/// Regions that are registered again, the clock, thread domains, and completion queues that change.
fn memory(device: &Device, _: &Bed) -> Outcome {
    let context = device.open()?;
    let (pd, second) = (context.alloc_pd()?, context.alloc_pd()?);
    let mr = pd.allocate(4096)?;
    let mr = mr.reregister().memory(16 << 10).apply()?;
    let mr = mr.reregister().access(Access::LOCAL_WRITE).apply()?;
    let mr = mr.reregister().pd(&second).apply()?;
    mr.deregister()?;
    let mut cq = context.create_cq(16).build()?;
    cq.moderate(4, 10)?;
    cq.resize(64)?;
    let mine = context.alloc_td()?;
    let qp = pd.create_qp::<Rc>(&cq, &cq).thread_domain(&mine).build()?;
    context.clock()?.now()?;
    qp.destroy()?;
    cq.destroy()?;
    second.destroy()?;
    pd.destroy()?;
    Ok(())
}

/// Foreign memory. It is leaked, because after a failed call the device may still use it.
fn foreign(device: &Device, _: &Bed) -> Outcome {
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let gid = context.query_gid(1, 0)?;
    context.find_gid(1, gid.gid, gid.gid_type)?;
    let page: &'static mut Page = Box::leak(Box::new(Page([0; 4096])));
    let start: *mut u8 = page.0.as_mut_ptr();
    // SAFETY: the page is leaked, so it stays valid, and no reference to it is used after this.
    let mr = unsafe { pd.reg_mr(start, 4096, Access::LOCAL_WRITE) }?;
    let iova = 0x10_0000;
    // SAFETY: the page is leaked, so it stays valid, and no reference to it is used after this.
    let other = unsafe { pd.reg_mr_iova(start, 4096, iova, Access::LOCAL_WRITE) }?;
    // SAFETY: the page is leaked, so it stays valid, and no reference to it is used after this.
    let mr = unsafe { mr.reregister().foreign(start, 2048) }.apply()?;
    // A file that is no dma-buf is refused, or the device cannot register dma-bufs at all.
    let file = std::fs::File::open(std::env::current_exe()?)?;
    // SAFETY: the file is no dma-buf, so the kernel registers nothing.
    let none = unsafe {
        pd.reg_dmabuf_mr(file.as_fd(), 0, 4096, iova, Access::LOCAL_WRITE).map(drop)
    };
    match none {
        Err(error) if error.errno() == Some(mlx5::Errno::EOPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
        Ok(()) => return Err("a program was registered as a dma-buf".into()),
    }
    other.deregister()?;
    mr.deregister()?;
    pd.destroy()?;
    Ok(())
}

/// A page of memory.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Windows of both types, bound, used, invalidated.
fn windows(device: &Device, bed: &Bed) -> Outcome {
    const SIGNALED: SendFlags = SendFlags::SIGNALED;
    let context = device.open()?;
    let port = context.local_port(1, None)?;
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::MW_BIND;
    let mr = pd.memory(8192).access(access).register()?;
    let mut cq = context.create_cq(64).build()?;
    let mut one = pd.create_qp::<Rc>(&cq, &cq).build()?;
    let mut other = pd.create_qp::<Rc>(&cq, &cq).build()?;
    connect(&port, &mut one, &mut other)?;
    let (mut by_call, mut by_request) = (pd.alloc_mw::<TypeOne>()?, pd.alloc_mw::<TypeTwo>()?);
    match by_call.bind(&mut other, 1, SIGNALED, &mr, 0..4096, Access::REMOTE_WRITE) {
        Err(BindError::Invalid(error)) => return Err(error.into()),
        bound => bound?,
    }
    let binding = by_request.binding(&mr, 4096..8192, Access::REMOTE_WRITE)?;
    let mut batch = other.wr_start();
    batch.wr(2, SIGNALED).bind_mw(binding);
    batch.complete()?;
    bed.poll_good(&mut cq, 2);
    let mut batch = one.wr_start();
    batch.wr(3, SIGNALED).rdma_write(by_call.remote(mr.addr())).sge(mr.sge(64..72)?);
    let to = by_request.remote(mr.addr() + 4096);
    batch.wr(4, SIGNALED).rdma_write(to).sge(mr.sge(64..72)?);
    batch.complete()?;
    bed.poll_good(&mut cq, 2);
    let mut batch = other.wr_start();
    batch.wr(5, SIGNALED).local_inv(by_request.rkey());
    batch.complete()?;
    bed.poll_good(&mut cq, 1);
    by_request.dealloc()?;
    // The other window ends with its domain.
    drop(by_call);
    one.destroy()?;
    other.destroy()?;
    mr.deregister()?;
    pd.destroy()?;
    Ok(())
}

/// Extended connections: domains, shared receive queues, targets.
fn extended(device: &Device, bed: &Bed) -> Outcome {
    let context = device.open()?;
    let port = context.local_port(1, None)?;
    let (options, psn) = (ConnectOptions::default(), Psn::default());
    let file = std::fs::File::open(std::env::current_exe()?)?;
    let shared = context.open_xrcd_shared(file.as_fd(), XrcOpen::Create)?;
    let domain = context.open_xrcd()?;
    let pd = context.alloc_pd()?;
    let mr = pd.allocate(4096)?;
    let mut cq = context.create_cq(64).build()?;
    let mut srq = pd.create_srq(16).xrc(&domain, &cq).build()?;
    srq.set_limit(1)?;
    srq.query()?;
    let mut sender = pd.create_qp::<XrcSend>(&cq, &cq).max_inline_data(32).build()?;
    let mut target = domain.create_target()?;
    let at = target.endpoint(&port, psn, &options);
    target.connect(&port, psn, &sender.endpoint(&port, psn, &options), &options)?;
    sender.connect(&port, psn, &at, &options)?;
    target.query()?;
    srq.post_recv(&[ReceiveWr { wr_id: 1, sges: &[mr.sge(0..64)?] }])?;
    let mut batch = sender.wr_start();
    batch.wr(2, SendFlags::SIGNALED).send().xrc_srqn(srq.srqn()).inline_data(b"by number");
    batch.complete()?;
    bed.poll_good(&mut cq, 2);
    sender.destroy()?;
    target.destroy()?;
    srq.destroy()?;
    shared.close()?;
    // Dropping ends the domain.
    drop(domain);
    mr.deregister()?;
    cq.destroy()?;
    pd.destroy()?;
    Ok(())
}

/// Keys that requests configure, with and without signatures, and a queue that drains for them.
fn keys(device: &Device, bed: &Bed) -> Outcome {
    const BLOCK: usize = 512;
    let context = device.open()?;
    let port = context.local_port(1, None)?;
    let pd = context.alloc_pd()?;
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = pd.memory(8192).access(access).register()?;
    let mut cq = context.create_cq(64).build()?;
    let builder = pd.create_qp::<Rc>(&cq, &cq).mkey_configure(4, true).signature_pipelining();
    let mut one = builder.build()?;
    let mut other = pd.create_qp::<Rc>(&cq, &cq).build()?;
    connect(&port, &mut one, &mut other)?;
    let plain = pd.create_mkey(4).remote_invalidate().build()?;
    let signed = pd.create_mkey(4).block_signature().build()?;
    let dif = Signature::T10Dif(T10Dif {
        guard: Guard::Crc,
        seed: Seed::Zeros,
        application_tag: 1,
        reference_tag: 2,
        increment_reference_tag: true,
        escape: Escape::None,
    });
    let wire = Domain { signature: dif, block_size: BlockSize::B512 };
    let block = SignatureBlock::new().wire(wire);
    let mut batch = one.wr_start();
    let pieces = [mr.sge(0..8)?, mr.sge(64..72)?];
    batch.wr(1, SendFlags::empty()).mkey_configure(plain.configure().layout_list(&pieces));
    let pieces = [mr.sge(0..BLOCK)?];
    let configure = signed.configure().layout_list(&pieces).signature(&block);
    batch.wr(2, SendFlags::empty()).mkey_configure(configure);
    let to = mr.remote(4096..)?;
    batch.wr(3, SendFlags::SIGNALED).rdma_write(to).sge(plain.sge(0, 16));
    batch.wr(4, SendFlags::SIGNALED).rdma_write(to).sge(signed.sge(0, BLOCK as u32 + 8));
    batch.complete()?;
    bed.poll_good(&mut cq, 2);
    if let Some(error) = signed.check()? {
        return Err(format!("the signature was made by the device: {error}").into());
    }
    one.query()?;
    // Destroys one key, and drops the other.
    plain.destroy()?;
    drop(signed);
    one.destroy()?;
    other.destroy()?;
    mr.deregister()?;
    pd.destroy()?;
    Ok(())
}

/// A list of tags, and a message that matches one.
fn tags(device: &Device, bed: &Bed) -> Outcome {
    let context = device.open()?;
    let port = context.local_port(1, None)?;
    let pd = context.alloc_pd()?;
    let mr = pd.allocate(4096)?;
    let mut cq = context.create_cq(128).cqe_size(bed.cqe_size()).build()?;
    let mut queue = pd.create_tm_srq(&cq, 16).max_num_tags(4).max_ops(8).build()?;
    queue.set_limit(1)?;
    queue.query()?;
    let mut receiver = pd.create_qp::<Rc>(&cq, &cq).tm_srq(&queue).build()?;
    let mut sender = pd.create_qp::<Rc>(&cq, &cq).max_inline_data(64).build()?;
    connect(&port, &mut receiver, &mut sender)?;
    let sges = [mr.sge(0..64)?];
    queue.post_recv(&[ReceiveWr { wr_id: 1, sges: &[mr.sge(1024..2048)?] }])?;
    let add = |tag| TagAdd { recv_wr_id: 10 + tag, sges: &sges, tag, mask: u64::MAX };
    queue.post_srq_ops(&mut [mlx5::OpsWr::add(2, add(1)).signaled()])?;
    let other = queue.add(add(2), None)?;
    queue.del(3, other, None)?;
    bed.poll_good(&mut cq, 2);
    let message = crate::cases::tag_rig::eager(1, 0, b"matches");
    let mut batch = sender.wr_start();
    batch.wr(4, SendFlags::SIGNALED).send().inline_data(&message);
    batch.complete()?;
    bed.poll_good(&mut cq, 2);
    receiver.destroy()?;
    queue.destroy()?;
    sender.destroy()?;
    mr.deregister()?;
    cq.destroy()?;
    pd.destroy()?;
    Ok(())
}
