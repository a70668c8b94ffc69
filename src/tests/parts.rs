//! Device memory, and joining contexts and objects that already exist.

use super::*;
use crate::transport::Rc;
use mlx5_wqe::SendFlags;
use std::time::{Duration, Instant};

/// Time that a test waits for an expected result.
const DEADLINE: Duration = Duration::from_secs(60);

fn domain() -> (Simulator, Context, ProtectionDomain) {
    let simulator = Simulator::new(SimConfig::new());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    (simulator, context, pd)
}

/// Another part of the same context.
fn part_of(simulator: &Simulator, context: &Context) -> Context {
    // SAFETY: the other part destroys no object of this one.
    let file = std::sync::Arc::clone(unsafe { context.device_file() });
    device(simulator).import(file, &OpenOptions::new()).unwrap()
}

/// A connected pair of queue pairs, and their completion queue.
fn connected(
    context: &Context,
    pd: &ProtectionDomain,
) -> (CompletionQueue, QueuePair<Rc>, QueuePair<Rc>) {
    let cq = context.create_cq(16).build().unwrap();
    let mut near = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    let mut far = pd.create_qp::<Rc>(&cq, &cq).build().unwrap();
    let (port, psn, options) =
        (context.local_port(1, None).unwrap(), Psn::default(), ConnectOptions::default());
    let (here, there) = (near.endpoint(&port, psn, &options), far.endpoint(&port, psn, &options));
    near.connect(&port, psn, &there, &options).unwrap();
    far.connect(&port, psn, &here, &options).unwrap();
    (cq, near, far)
}

fn completed(cq: &mut CompletionQueue) -> Result<(), CompletionError> {
    let begun = Instant::now();
    let mut status = None;
    while cq.poll(1, |completion| status = Some(completion.status())).unwrap() == 0 {
        assert!(begun.elapsed() < DEADLINE, "no completion");
    }
    status.unwrap()
}

#[test]
fn a_transfer_writes_to_device_memory_what_the_process_reads_there() {
    let (simulator, context, pd) = domain();
    let memory = context.alloc_dm(4096, 0).unwrap();
    memory.write_at(0, &[9; 64]).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::ZERO_BASED;
    let there = pd.reg_dm_mr(&memory, 16..80, access).unwrap();
    assert_eq!((there.addr(), there.len()), (0, 64));
    let here = pd.allocate(16).unwrap();
    here.write_at(0, b"sixteen of bytes").unwrap();

    let (mut cq, mut near, _far) = connected(&context, &pd);
    let to = there.remote(8..).unwrap();
    near.post(|batch| {
        batch.wr(1, SendFlags::SIGNALED).rdma_write(to).sge(here.whole().unwrap());
    })
    .unwrap();
    completed(&mut cq).unwrap();
    let mut bytes = [0; 24];
    memory.read_at(20, &mut bytes).unwrap();
    assert_eq!(&bytes[..4], &[9; 4], "in front of the transfer");
    assert_eq!(&bytes[4..20], b"sixteen of bytes");
    assert_eq!(&bytes[20..], &[9; 4], "behind the transfer");
    assert_eq!(simulator.violations(), []);
}

#[test]
fn device_memory_is_copied_in_words_inside_of_it() {
    let (_simulator, context, _pd) = domain();
    let memory = context.alloc_dm(64, 0).unwrap();
    assert_eq!(memory.len(), 64);
    memory.write_at(60, &[1; 4]).unwrap();
    memory.write_at(64, &[]).unwrap();
    for (offset, len) in [(61, 4), (60, 8), (0, 3), (2, 4), (usize::MAX - 3, 4), (68, 0)] {
        let error = memory.write_at(offset, &[0; 8][..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "write {offset} {len}");
        let error = memory.read_at(offset, &mut [0; 8][..len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "read {offset} {len}");
    }
}

#[test]
fn pieces_of_device_memory_that_share_a_page_are_apart() {
    let (_simulator, context, _pd) = domain();
    let pieces: Vec<_> = (0..4).map(|_| context.alloc_dm(64, 0).unwrap()).collect();
    for (number, piece) in (1_u8..).zip(&pieces) {
        piece.write_at(0, &[number; 64]).unwrap();
    }
    for (number, piece) in (1_u8..).zip(&pieces) {
        let mut bytes = [0; 64];
        piece.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes, [number; 64]);
    }
}

#[test]
fn an_imported_domain_that_goes_leaves_the_domain() {
    let (simulator, context, pd) = domain();
    let memory = context.alloc_dm(64, 0).unwrap();
    let part = part_of(&simulator, &context);
    // SAFETY: the domain belongs to no queue of packets.
    drop(unsafe { part.import_pd(pd.kernel_handle()) }.unwrap());
    drop(part.import_dm(memory.kernel_handle()).unwrap());
    drop(part);
    pd.allocate(8).unwrap();
    let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
    pd.reg_dm_mr(&memory, .., access).unwrap();
}

#[test]
fn device_memory_that_cannot_be_had_is_refused() {
    let (_simulator, context, pd) = domain();
    let max = context.query_device().max_dm_size as usize;
    for len in [0, max + 1] {
        assert_eq!(context.alloc_dm(len, 0).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let memory = context.alloc_dm(64, 0).unwrap();
    let access = Access::LOCAL_WRITE | Access::ZERO_BASED;
    assert!(pd.reg_dm_mr(&memory, 0..65, access).is_err(), "longer than the memory");
    let (start, end) = (8, 4);
    assert!(pd.reg_dm_mr(&memory, start..end, access).is_err(), "ends before it starts");
    let (_other, other, _) = domain();
    let foreign = other.alloc_dm(64, 0).unwrap();
    let refused = pd.reg_dm_mr(&foreign, .., access).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "another device's, by the same number");
}

#[test]
fn device_memory_goes_when_its_last_region_has_gone() {
    let (simulator, context, pd) = domain();
    let memory = context.alloc_dm(64, 0).unwrap();
    let region = pd.reg_dm_mr(&memory, .., Access::LOCAL_WRITE | Access::ZERO_BASED).unwrap();
    let busy = memory.free().unwrap_err();
    assert_eq!(busy.error().kind(), ErrorKind::Busy);
    let memory = busy.into_inner();
    region.deregister().unwrap();
    memory.free().unwrap();
    drop((context, pd));
    assert_clean(&simulator);
}

#[test]
fn another_part_of_a_context_reaches_its_objects_and_does_not_end_them() {
    let (simulator, context, pd) = domain();
    let memory = context.alloc_dm(64, 0).unwrap();
    let region = pd.memory(64).access(Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let region = region.register().unwrap();
    let part = part_of(&simulator, &context);
    assert_eq!(part.num_ports(), context.num_ports());
    assert!(part.has_devx());

    // SAFETY: the domain belongs to no queue of packets.
    let their_pd = unsafe { part.import_pd(pd.kernel_handle()) }.unwrap();
    assert_eq!(their_pd.pdn(), pd.pdn());
    // SAFETY: the region belongs to no queue of packets, and exists until its owner drops it.
    let their_region = unsafe { their_pd.import_mr(region.kernel_handle()) }.unwrap();
    assert_eq!((their_region.lkey(), their_region.rkey()), (region.lkey(), region.rkey()));
    assert_eq!((their_region.addr(), their_region.len()), (region.addr(), region.len()));
    let their_memory = part.import_dm(memory.kernel_handle()).unwrap();
    their_memory.write_at(0, &[5; 8]).unwrap();
    let mut bytes = [0; 8];
    memory.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [5; 8]);

    // A queue of the other part uses the region with the same key.
    let (mut cq, mut near, far) = connected(&part, &their_pd);
    let from = their_pd.allocate(8).unwrap();
    from.write_at(0, b"of peers").unwrap();
    let to = their_region.remote(..).unwrap();
    near.post(|batch| {
        batch.wr(1, SendFlags::SIGNALED).rdma_write(to).sge(from.whole().unwrap());
    })
    .unwrap();
    completed(&mut cq).unwrap();
    region.read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"of peers");

    drop((near, far, cq, from, their_region, their_memory, their_pd, part));
    // Each still exists: the kernel destroys it once.
    memory.free().unwrap();
    region.deregister().unwrap();
    pd.destroy().unwrap();
    drop(context);
    assert_clean(&simulator);
}

#[test]
fn import_of_a_missing_object_is_refused() {
    let (simulator, context, pd) = domain();
    let part = part_of(&simulator, &context);
    // SAFETY: no domain has this handle.
    assert!(unsafe { part.import_pd(99) }.is_err());
    assert!(part.import_dm(99).is_err());
    // SAFETY: no region has this handle.
    assert!(unsafe { pd.import_mr(99) }.is_err());
    let file = open_file_without_context(&simulator);
    assert!(device(&simulator).import(file, &OpenOptions::new()).is_err(), "no context is open");
}

fn open_file_without_context(simulator: &Simulator) -> std::sync::Arc<dyn mlx5_uapi::DeviceFile> {
    let device = device(simulator);
    simulator.kernel().open(device.uverbs(), device.dev()).unwrap()
}

#[test]
fn a_raw_registration_is_checked_by_the_kernel_alone() {
    let (_simulator, _context, pd) = domain();
    let mut bytes = [0_u8; 8];
    let start = bytes.as_mut_ptr();
    // `reg_mr` refuses it itself, and names the rule; the kernel returns an errno.
    let access = Access::REMOTE_WRITE;
    // SAFETY: the call is refused, so no device writes the bytes.
    let own = unsafe { pd.reg_mr(start, 8, access) }.unwrap_err();
    // SAFETY: the call is refused, so no device writes the bytes.
    let raw = unsafe { pd.reg_mr_raw(start, 8, start as u64, access) }.unwrap_err();
    assert_eq!((own.errno(), raw.errno()), (None, Some(Errno::EINVAL)));
}

#[test]
fn a_raw_address_is_checked_by_the_kernel_alone() {
    let simulator = Simulator::new(infiniband());
    let pd = open(&simulator).alloc_pd().unwrap();
    let nowhere = AhAttr::infiniband(1, 0);
    assert!(pd.create_ah(&nowhere).is_err());
    assert_eq!(pd.create_ah_raw(&nowhere).unwrap().vector().rlid.get(), 0);
    let simulator = Simulator::new(roce());
    let pd = open(&simulator).alloc_pd().unwrap();
    assert!(pd.create_ah_raw(&AhAttr::infiniband(1, 3)).is_err(), "Ethernet needs a GID");
}
