//! Regions over memory that the caller hands over.

use super::*;
use crate::testing::Altered;
use memmap2::MmapMut;
use mlx5_uapi::ioctl::method;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn domain() -> (Simulator, ProtectionDomain) {
    let simulator = Simulator::new(infiniband());
    let pd = open(&simulator).alloc_pd().unwrap();
    (simulator, pd)
}

#[test]
fn each_kind_of_buffer_comes_back_as_it_was_with_what_was_written() {
    let (_simulator, pd) = domain();
    let mut vec = Vec::with_capacity(100);
    vec.extend_from_slice(&[1_u8; 50]);
    let (start, capacity) = (vec.as_ptr(), vec.capacity());
    let region = pd.register(vec, Access::LOCAL_WRITE).unwrap();
    assert_eq!((region.addr(), region.len()), (start.addr() as u64, 50));
    region.write_at(49, &[9]).unwrap();
    let vec = region.deregister().unwrap();
    assert_eq!((vec.as_ptr(), vec.capacity(), vec.len()), (start, capacity, 50));
    assert_eq!((vec[48], vec[49]), (1, 9));

    let region = pd.register(vec![1_u32; 7].into_boxed_slice(), Access::LOCAL_WRITE).unwrap();
    assert_eq!(region.len(), 28);
    region.write_at(24, &7_u32.to_ne_bytes()).unwrap();
    assert_eq!(*region.deregister().unwrap(), [1, 1, 1, 1, 1, 1, 7]);

    let map = MmapMut::map_anon(5000).unwrap();
    let region = pd.register(map, Access::LOCAL_WRITE).unwrap();
    region.write_at(4999, &[3]).unwrap();
    let map = region.deregister().unwrap();
    assert_eq!((map.len(), map[4999]), (5000, 3));
}

#[test]
fn bytes_of_a_buffer_at_any_address_are_copied_and_nothing_beside_them() {
    let (_simulator, pd) = domain();
    for len in 1..40 {
        let region = pd.register(vec![0xee_u8; len], Access::LOCAL_WRITE).unwrap();
        let data: Vec<u8> = (0..len as u8).collect();
        region.write_at(0, &data).unwrap();
        let mut back = vec![0; len];
        region.read_at(0, &mut back).unwrap();
        assert_eq!(back, data);
        assert!(region.write_at(len, &[1]).is_err());
        assert_eq!(region.deregister().unwrap(), data);
    }
}

#[test]
fn a_buffer_that_cannot_be_registered_comes_back_with_the_reason() {
    let (simulator, pd) = domain();
    let (buffer, error) =
        pd.register(Vec::<u8>::new(), Access::LOCAL_WRITE).unwrap_err().into_parts();
    assert_eq!((buffer, error.kind()), (Some(Vec::new()), ErrorKind::InvalidArgument));
    assert!(error.to_string().contains("at least one byte"), "{error}");

    let (buffer, error) =
        pd.register(vec![7_u8; 9], Access::REMOTE_WRITE).unwrap_err().into_parts();
    assert_eq!(buffer, Some(vec![7; 9]));
    assert!(error.to_string().contains("LOCAL_WRITE"), "{error}");
    assert!(pd.register(vec![7_u8; 9], Access::ON_DEMAND).is_err());

    simulator.fail_call(1, Errno::ENOMEM);
    let (buffer, error) = pd.register(vec![7_u8; 9], Access::LOCAL_WRITE).unwrap_err().into_parts();
    assert_eq!((buffer, error.errno()), (Some(vec![7; 9]), Some(Errno::ENOMEM)));

    simulator.remove_device(0);
    while pd.context().async_events().next().is_ok_and(|event| event.is_some()) {}
    assert!(pd.context().is_gone());
    let (buffer, error) = pd.register(vec![7_u8; 9], Access::LOCAL_WRITE).unwrap_err().into_parts();
    assert_eq!(buffer, Some(vec![7; 9]));
    assert_eq!(error.kind(), ErrorKind::DeviceGone);
}

/// A buffer that counts how many buffers were dropped.
#[derive(Debug)]
struct Counted {
    bytes: Vec<u8>,
    drops: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Relaxed);
    }
}

// SAFETY: the bytes are those of the vector, which the parts keep alive and in place.
unsafe impl Buffer for Counted {
    type Parts = Self;

    fn into_parts(mut self) -> (NonNull<u8>, usize, Self) {
        (NonNull::from(self.bytes.as_mut_slice()).cast(), self.bytes.len(), self)
    }

    unsafe fn from_parts(_: NonNull<u8>, _: usize, parts: Self) -> Self {
        parts
    }
}

fn counted() -> (Counted, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    (Counted { bytes: vec![0; 64], drops: Arc::clone(&drops) }, drops)
}

/// A machine whose kernel refuses to deregister regions while the counter says so.
#[allow(deprecated, reason = "the new name, `try_update`, is younger than the oldest compiler")]
fn stubborn() -> (Arc<AtomicUsize>, Context, Simulator) {
    let refuse = Arc::new(AtomicUsize::new(0));
    let simulator = Simulator::new(infiniband());
    let left = Arc::clone(&refuse);
    let kernel = Altered::new(simulator.kernel(), move |call| {
        if call.method == method::MR_DESTROY
            && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
        {
            return Err(Errno::EBUSY);
        }
        call.pass()
    });
    let context = devices_on(kernel).unwrap()[0].open().unwrap();
    (refuse, context, simulator)
}

#[test]
fn a_buffer_is_dropped_once_with_its_region() {
    let (_simulator, pd) = domain();
    let (buffer, drops) = counted();
    drop(pd.register(buffer, Access::LOCAL_WRITE).unwrap());
    assert_eq!(drops.load(Relaxed), 1);
    let (buffer, drops) = counted();
    let buffer = pd.register(buffer, Access::LOCAL_WRITE).unwrap().deregister().unwrap();
    assert_eq!(drops.load(Relaxed), 0);
    drop(buffer);
    assert_eq!(drops.load(Relaxed), 1);
}

#[test]
fn a_region_that_the_kernel_keeps_comes_back_and_its_buffer_later() {
    let (refuse, context, _simulator) = stubborn();
    let pd = context.alloc_pd().unwrap();
    let (buffer, drops) = counted();
    let region = pd.register(buffer, Access::LOCAL_WRITE).unwrap();
    refuse.store(1, Relaxed);
    let (region, error) = region.deregister().unwrap_err().into_parts();
    assert_eq!((error.kind(), drops.load(Relaxed)), (ErrorKind::Busy, 0));
    region.write_at(0, &[5]).unwrap();
    assert_eq!(region.deregister().unwrap().bytes[0], 5);
    assert_eq!(drops.load(Relaxed), 1);
    assert_eq!(context.leaked(), 0);
}

#[test]
fn a_buffer_whose_region_the_kernel_keeps_is_never_dropped_and_counted() {
    let (refuse, context, simulator) = stubborn();
    let pd = context.alloc_pd().unwrap();
    let (buffer, drops) = counted();
    let region = pd.register(buffer, Access::LOCAL_WRITE).unwrap();
    refuse.store(usize::MAX, Relaxed);
    let before = leaked();
    drop(region);
    assert_eq!((drops.load(Relaxed), context.leaked()), (0, 1));
    drop((pd, context));
    // The file is closed, and the memory's allocator still must not reuse it.
    assert_eq!(drops.load(Relaxed), 0);
    assert!(leaked() > before);
    assert_eq!(simulator.violations(), []);
}

#[test]
fn a_buffer_that_a_failed_call_may_have_registered_is_kept() {
    let (simulator, pd) = domain();
    let (buffer, drops) = counted();
    simulator.fail_call_late(1, Errno::EFAULT);
    let (buffer, error) = pd.register(buffer, Access::LOCAL_WRITE).unwrap_err().into_parts();
    assert!(error.in_doubt() && buffer.is_none());
    assert_eq!(drops.load(Relaxed), 0);
    assert_eq!(pd.context().leaked(), 1);
}

#[test]
fn a_buffer_comes_back_from_a_device_that_is_gone() {
    let (simulator, pd) = domain();
    let region = pd.register(vec![3_u8; 64], Access::LOCAL_WRITE).unwrap();
    simulator.remove_device(0);
    assert_eq!(region.deregister().unwrap(), [3; 64]);
}

#[test]
fn buffer_is_borrowed_as_a_slice_where_the_device_may_not_write() {
    let (_simulator, pd) = domain();
    let mut region = pd.register(vec![1_u8; 10], Access::REMOTE_READ).unwrap();
    region.write_at(3, &[9]).unwrap();
    assert_eq!(region.as_slice().unwrap(), [1, 1, 1, 9, 1, 1, 1, 1, 1, 1]);
    let mut region = pd.register(vec![1_u8; 10], Access::LOCAL_WRITE).unwrap();
    assert!(region.as_slice().is_err());
}
