//! The cases of the connection manager, as they run with the library preloaded.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::time::Duration;

use mlx5_uapi::rdma_cm::{
    self, CreateId, EventType, GetEvent, Header, MigrateId, PortSpace, Query, ResolveIp,
};
use mlx5_uapi::wait::wait_readable;
use mlx5_uapi::{CmFile, Errno, Kernel, LinuxKernel};
use zerocopy::IntoBytes;

use crate::inside::Outcome;

/// An identifier on a channel, whose address is being resolved.
fn resolving(channel: &dyn CmFile) -> Result<u32, Errno> {
    let create = CreateId { uid: 7, ps: PortSpace::Tcp.raw(), ..Default::default() };
    let id = rdma_cm::call(channel, create)?.id;
    let mut dst_addr = [0; 28];
    dst_addr[..8].copy_from_slice(&[2, 0, 0x1d, 0x2f, 10, 0, 0, 1]);
    let resolve = ResolveIp { id, dst_addr, timeout_ms: 1000, ..Default::default() };
    rdma_cm::call(channel, resolve)?;
    Ok(id)
}

fn event(channel: &dyn CmFile) -> Result<EventType, Errno> {
    let event = rdma_cm::call(channel, GetEvent::default())?;
    EventType::from_raw(event.event).ok_or(Errno::EPROTO)
}

/// A channel is a character device, and can be waited for like any descriptor.
pub(crate) fn a_channel_takes_calls_and_brings_events() -> Outcome {
    assert_eq!(fs::read_to_string("/sys/class/misc/rdma_cm/abi_version")?, "4\n");
    let metadata = fs::metadata("/dev/infiniband/rdma_cm")?;
    assert!(metadata.file_type().is_char_device());
    let file = File::options().read(true).write(true).open("/dev/infiniband/rdma_cm")?;
    assert_eq!(file.metadata()?.rdev(), metadata.rdev());
    let channel = LinuxKernel::new().rdma_cm()?;
    let readable = || wait_readable(channel.as_fd(), Some(Duration::ZERO));
    assert!(!readable()?);
    assert_eq!(event(&*channel), Err(Errno::EAGAIN));
    let id = resolving(&*channel)?;
    assert!(readable()?);
    assert_eq!(event(&*channel), Ok(EventType::AddrResolved));
    assert!(!readable()?);
    let route = rdma_cm::query_route(&*channel, id)?;
    assert_eq!((route.port_num, &route.dst_addr[4..8]), (1, &[10, 0, 0, 1][..]));
    // A response address without memory.
    let query = Header { cmd: 5, in_len: 16, out_len: 208 };
    let nowhere = Query { response: 8, id, ..Default::default() };
    let call = [query.as_bytes(), nowhere.as_bytes()].concat();
    let is_shared = std::env::var("MLX5_SIM").is_ok_and(|list| list.contains("wire"));
    if is_shared {
        // SAFETY: the address is checked if another process has the machine.
        assert_eq!(unsafe { channel.write(&call) }, Err(Errno::EFAULT));
    }
    Ok(())
}

pub(crate) fn an_identifier_leaves_one_channel_for_another() -> Outcome {
    let kernel = LinuxKernel::new();
    let (one, other) = (kernel.rdma_cm()?, kernel.rdma_cm()?);
    let id = resolving(&*one)?;
    let migrate = |fd: &dyn CmFile| MigrateId {
        id,
        fd: fd.as_fd().as_raw_fd().cast_unsigned(),
        ..Default::default()
    };
    assert_eq!(rdma_cm::call(&*one, migrate(&*other)).map(drop), Err(Errno::EINVAL));
    rdma_cm::call(&*other, migrate(&*one))?;
    assert_eq!(event(&*one), Err(Errno::EAGAIN));
    assert_eq!(event(&*other), Ok(EventType::AddrResolved));
    Ok(())
}

/// A channel that blocks, as C's library opens it.
pub(crate) fn a_call_that_waits_for_an_event_waits() -> Outcome {
    let file = File::options().read(true).write(true).open("/dev/infiniband/rdma_cm")?;
    let blocking = Blocking(file);
    let waiter = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| event(&blocking));
        resolving(&blocking)?;
        Ok::<_, Errno>(waiter.join())
    })?;
    assert_eq!(waiter.map_err(|_| "it panicked")?, Ok(EventType::AddrResolved));
    Ok(())
}

struct Blocking(File);

impl AsFd for Blocking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl CmFile for Blocking {
    unsafe fn write(&self, call: &[u8]) -> Result<(), Errno> {
        let error = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
        (&self.0).write_all(call).map_err(error)
    }
}
