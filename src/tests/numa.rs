//! NUMA nodes of regions and queues.

use super::*;
use crate::transport::Rc;

/// A node that no machine has.
const NOWHERE: u32 = 1000;

/// Returns the kernel's policy of the mapping at an address, or `None` if it has no NUMA support.
fn policy(addr: u64) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/numa_maps").ok()?;
    let starts = maps.lines().filter_map(|line| {
        let (start, rest) = line.split_once(' ')?;
        Some((u64::from_str_radix(start, 16).ok()?, rest.split(' ').next()?.to_owned()))
    });
    // Adjacent mappings with the same policy are listed as one.
    starts.take_while(|(start, _)| *start <= addr).last().map(|(_, policy)| policy)
}

/// Returns a node of this machine.
fn node() -> Option<u32> {
    let nodes = std::fs::read_to_string("/sys/devices/system/node/has_memory").ok()?;
    nodes.trim().split(['-', ',']).next()?.parse().ok()
}

#[test]
fn memory_comes_from_the_node_asked_for_or_the_refusal_says_why() {
    let simulator = Simulator::new(infiniband());
    let pd = open(&simulator).alloc_pd().unwrap();
    let Some(node) = node() else {
        let error = pd.memory(4096).numa_node(0).register().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotSupported);
        assert!(error.to_string().contains("no NUMA support"), "{error}");
        return;
    };
    let region = pd.memory(100_000).numa_node(node).register().unwrap();
    assert_eq!(policy(region.addr()), Some(format!("prefer:{node}")));
    let mut bytes = [1; 8];
    region.read_at(99_992, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 8]);
    for none in [None, devices_on(simulator.kernel()).unwrap()[0].numa_node()] {
        let region = pd.memory(100_000).numa_node(none).register().unwrap();
        assert_eq!(policy(region.addr()), Some("default".into()));
    }
    for nowhere in [NOWHERE, u32::MAX] {
        let error = pd.memory(4096).numa_node(nowhere).register().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains(&format!("NUMA node {nowhere}")), "{error}");
    }
}

#[test]
fn memory_of_queues_comes_from_the_node_asked_for() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(8).build().unwrap();
    if let Some(node) = node() {
        let mut near = context.create_cq(8).numa_node(node).build().unwrap();
        near.resize(1000).unwrap();
        pd.create_qp::<Rc>(&near, &near).numa_node(node).build().unwrap();
        pd.create_srq(8).numa_node(node).build().unwrap();
        pd.create_tm_srq(&near, 8).numa_node(node).build().unwrap();
    }
    let nowhere = |error: Option<Error>| {
        let error = error.expect("there is no such node");
        assert!(error.to_string().contains("mbind to NUMA node 1000 failed"), "{error}");
    };
    nowhere(context.create_cq(8).numa_node(NOWHERE).build().err());
    nowhere(pd.create_qp::<Rc>(&cq, &cq).numa_node(NOWHERE).build().err());
    nowhere(pd.create_srq(8).numa_node(NOWHERE).build().err());
    nowhere(pd.create_tm_srq(&cq, 8).numa_node(NOWHERE).build().err());
}

struct Nothing;

// SAFETY: it returns no memory.
unsafe impl QueueAllocator for Nothing {
    fn allocate(&self, _: usize, _: usize) -> Option<std::ptr::NonNull<u8>> {
        None
    }

    unsafe fn free(&self, _: std::ptr::NonNull<u8>, _: usize) {}
}

#[test]
fn an_allocator_chooses_the_node_itself_and_is_blamed_for_what_it_lacks() {
    let simulator = Simulator::new(infiniband());
    let context = open(&simulator);
    let allocator: std::sync::Arc<dyn QueueAllocator> = std::sync::Arc::new(Nothing);
    let error = context.create_cq(8).allocator(&allocator).numa_node(0).build().unwrap_err();
    assert!(error.to_string().contains("allocator chooses NUMA node and page size"), "{error}");
    let huge = context.create_cq(8).allocator(&allocator).huge_pages(HugePages::Prefer);
    let error = huge.build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("allocator chooses NUMA node and page size"), "{error}");
    let error = context.create_cq(8).allocator(&allocator).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("the queue allocator has no memory"), "{error}");
}

#[test]
fn a_failed_allocation_names_the_step_that_failed() {
    let simulator = Simulator::new(infiniband());
    let pd = open(&simulator).alloc_pd().unwrap();
    // More than a process can address.
    let error = pd.memory(1 << 50).register().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("mmap of 1125899906842624 bytes failed"), "{error}");
    let error = pd.memory(usize::MAX).register().unwrap_err();
    assert!(error.to_string().contains("mmap of 18446744073709551615 bytes failed"), "{error}");
    let giant = pd.memory(1 << 40).huge_pages(HugePages::OneGiB).register().unwrap_err();
    assert!(giant.to_string().contains("pages of 1 GiB failed"), "{giant}");
}
