//! Memory that the simulated kernel maps.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use mlx5_uapi::numa::prefer_node;
use mlx5_uapi::{AllocateError, AllocateStep, Errno, HugePages, Mapping, MemoryRequest, page_size};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::engine::fault::Violation;
use crate::fabric::Fabric;
use crate::kernel::current;

/// Anonymous memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Anonymous {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: the address range belongs to this value alone.
unsafe impl Send for Anonymous {}
// SAFETY: sharing it gives out the address only.
unsafe impl Sync for Anonymous {}

impl Anonymous {
    /// Zeroed memory of whole pages of `1 << log_page` bytes.
    pub(crate) fn map(length: usize, log_page: u32, huge: bool) -> Result<Self, AllocateError> {
        let step = match huge {
            true => AllocateStep::MapHuge { page_bits: log_page },
            false => AllocateStep::Map,
        };
        let failed = |errno| step.failed(errno);
        let length = length.checked_next_multiple_of(1 << log_page).ok_or(failed(Errno::ENOMEM))?;
        let size = NonZeroUsize::new(length).ok_or(failed(Errno::EINVAL))?;
        let flags = match (huge, log_page) {
            (false, _) => MapFlags::MAP_PRIVATE,
            (true, 30) => MapFlags::MAP_PRIVATE | MapFlags::MAP_HUGETLB | MapFlags::MAP_HUGE_1GB,
            (true, _) => MapFlags::MAP_PRIVATE | MapFlags::MAP_HUGETLB | MapFlags::MAP_HUGE_2MB,
        };
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice, touches no memory in use.
        let start = unsafe { mmap_anonymous(None, size, rights, flags) }.map_err(failed)?;
        let memory = Self { start, length };
        let advice = match huge {
            // The kernel does not wipe huge pages.
            true => MmapAdvise::MADV_DONTFORK,
            false => MmapAdvise::MADV_WIPEONFORK,
        };
        // SAFETY: the range is the new mapping; the advice changes nothing in this process.
        unsafe { madvise(start, length, advice) }
            .map_err(|errno| AllocateStep::Advise.failed(errno))?;
        Ok(memory)
    }

    /// Makes the kernel prefer pages of a NUMA node.
    fn prefer_node(&self, node: u32) -> Result<(), AllocateError> {
        // SAFETY: the range is this mapping.
        unsafe { prefer_node(self.start.cast(), self.length, node) }
            .map_err(|errno| AllocateStep::Bind { node }.failed(errno))
    }

    /// Its first address.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Its first byte.
    pub(crate) fn as_non_null(&self) -> NonNull<u8> {
        self.start.cast()
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and its users have ended: memory of a driver that a
        // device still reaches is leaked instead.
        let _ = unsafe { munmap(self.start, self.length) };
    }
}

/// Memory for a driver's queues and buffers. If it is freed while a device can still reach it, the
/// device reports a violation and the memory stays.
struct Lent {
    memory: Option<Anonymous>,
    fabric: Fabric,
    pid: u32,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // In a forked child the fabric's lock may stay held forever, and this memory is not the
        // device's.
        if self.pid != std::process::id() {
            return;
        }
        let Some(memory) = &self.memory else { return };
        let (address, length) = (memory.address(), memory.length as u64);
        let mut engine = self.fabric.lock();
        for id in 0..engine.devices().len() {
            if let Some(holder) = engine.device(id).holder(address, length) {
                engine.device_mut(id).violation(Violation::FreedWhileHeld {
                    address,
                    length,
                    holder,
                });
                std::mem::forget(self.memory.take());
                return;
            }
        }
    }
}

/// Implements [`DeviceFile::allocate`](mlx5_uapi::DeviceFile::allocate).
pub(crate) fn allocate(fabric: &Fabric, request: &MemoryRequest) -> Result<Mapping, AllocateError> {
    if request.len == 0 || !request.align.is_power_of_two() {
        return Err(Errno::EINVAL.into());
    }
    let ordinary = page_size().trailing_zeros();
    match request.huge {
        HugePages::None => lend(fabric, request, ordinary, false),
        HugePages::TwoMiB => lend(fabric, request, 21, true),
        HugePages::OneGiB => lend(fabric, request, 30, true),
        HugePages::Prefer => {
            lend(fabric, request, 21, true).or_else(|_| lend(fabric, request, ordinary, false))
        }
    }
}

fn lend(
    fabric: &Fabric,
    request: &MemoryRequest,
    log_page: u32,
    huge: bool,
) -> Result<Mapping, AllocateError> {
    let page = 1_usize << log_page;
    let length = request.len.checked_next_multiple_of(page).ok_or(Errno::ENOMEM)?;
    // mmap aligns to a page; for a larger alignment, map more and skip the start.
    let spare = request.align.saturating_sub(page);
    let total = length.checked_add(spare).ok_or(Errno::ENOMEM)?;
    let memory = Anonymous::map(total, log_page, huge)?;
    if let Some(node) = request.numa_node {
        memory.prefer_node(node)?;
    }
    if request.transparent_huge && !huge {
        // SAFETY: the range is the new mapping; the advice changes no content.
        let _ = unsafe { madvise(memory.start, memory.length, MmapAdvise::MADV_HUGEPAGE) };
    }
    let start = memory.as_non_null();
    let skip = start.as_ptr().align_offset(request.align);
    // SAFETY: the mapping starts on a page, so that at most `spare` bytes are skipped, and `spare`
    // more than `length` bytes are mapped.
    let start = unsafe { start.add(skip) };
    let owner = Lent { memory: Some(memory), fabric: fabric.clone(), pid: std::process::id() };
    // SAFETY: `owner` keeps `length` bytes from `start` on mapped, and no other code uses them.
    Ok(unsafe { Mapping::new(start, length, Box::new(owner)) })
}

/// Bus addresses of the pages that a range of the caller's memory touches, and its offset in the
/// first one.
pub(crate) fn pages(start: u64, length: u64, log_page: u32) -> (Vec<u64>, u64) {
    let page = 1 << log_page;
    let start = current::bus(start);
    let offset = start & (page - 1);
    let count = (offset + length).div_ceil(page);
    ((0..count).map(|index| (start - offset) + index * page).collect(), offset)
}
