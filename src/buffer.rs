//! Memory of queues.

use crate::{context::Inner, error::Error};
use mlx5_uapi::{HugePages, Mapping, MemoryRequest, page_size};
use std::{ptr::NonNull, sync::Arc};

/// Page-aligned, zeroed memory for rings. It is unmapped when dropped: whoever told the device of
/// it either made the device forget it, or leaks it.
pub(crate) struct QueueBuffer {
    context: Arc<Inner>,
    /// There until the value is dropped.
    mapping: Option<Mapping>,
    start: NonNull<u8>,
}

// SAFETY: `start` is an address in `mapping`, which is Send; whoever uses it answers for it.
unsafe impl Send for QueueBuffer {}
// SAFETY: as above.
unsafe impl Sync for QueueBuffer {}

impl QueueBuffer {
    /// `len` bytes; none becomes one page, so that there is always an address.
    pub(crate) fn new(
        context: &Arc<Inner>,
        len: usize,
        huge_pages: HugePages,
    ) -> Result<Self, Error> {
        let request = MemoryRequest::new(len.max(1)).align(page_size()).huge(huge_pages);
        let mapping = context
            .file
            .allocate(&request)
            .map_err(|errno| context.fail("allocate queue memory", errno))?;
        let start = mapping.as_non_null();
        Ok(Self { context: Arc::clone(context), mapping: Some(mapping), start })
    }

    /// The first byte.
    pub(crate) fn as_non_null(&self) -> NonNull<u8> {
        self.start
    }

    /// The first byte's address, as the kernel is told.
    pub(crate) fn addr(&self) -> u64 {
        self.start.expose_provenance().get() as u64
    }

    /// Keeps the memory until the process ends, for the device may still use it, and counts it.
    pub(crate) fn leak(mut self) {
        if let Some(mapping) = self.mapping.take() {
            mapping.leak();
            if !self.context.forked() {
                self.context.count_leak();
            }
        }
    }
}

impl Drop for QueueBuffer {
    fn drop(&mut self) {
        // In a child the range may not be mapped, or by now be someone else's.
        if let Some(mapping) = self.mapping.take()
            && self.context.forked()
        {
            mapping.leak();
        }
    }
}
