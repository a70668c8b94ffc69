//! Memory on the device.

use super::{
    Access, Held, MemoryRegion, ProtectionDomain,
    mr::for_kernel,
    range::{Shown, bounds},
};
use crate::{
    context::{Context, Inner},
    error::{DestroyError, Error},
};
use mlx5_uapi::{
    Access as MapAccess, Errno, Mapping,
    cmd::{dm as command, mr},
    mlx5::MmapCommand,
    page_size,
};
use std::{
    fmt,
    ops::RangeBounds,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

/// Memory on the device (`struct ibv_dm`), which transfers reach without crossing the bus.
///
/// The process reads and writes it over the bus, in words of four bytes. Transfers reach it through
/// a region from [`ProtectionDomain::reg_dm_mr`].
///
/// ```no_run
/// use mlx5::{Access, Context, Error, ProtectionDomain};
///
/// # fn f(context: &Context, pd: &ProtectionDomain) -> Result<(), Error> {
/// let memory = context.alloc_dm(4096, 0)?;
/// memory.write_at(0, &[7; 64])?;
/// let region = pd.reg_dm_mr(&memory, .., Access::LOCAL_WRITE | Access::ZERO_BASED)?;
/// println!("{:#x}", region.lkey());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DeviceMemory {
    inner: Arc<Memory>,
}

struct Memory {
    context: Arc<Inner>,
    handle: u32,
    len: usize,
    /// The pages that hold the memory; `Some` until the value is dropped.
    pages: Option<Mapping>,
    start: NonNull<u8>,
    held: Held,
}

// SAFETY: `start` is an address inside `pages`, whose mapping is Send; it is accessed only by
// relaxed atomics of whole words.
unsafe impl Send for Memory {}
// SAFETY: all accesses through a shared reference are relaxed atomics of whole words. Concurrent
// accesses have no defined order, like those of peers.
unsafe impl Sync for Memory {}

impl Memory {
    fn free(&mut self, explicit: bool) -> Result<(), Error> {
        if self.held.destroys(explicit) {
            let handle = self.handle;
            self.context.run_destroy("free_dm", |file| command::free(file, handle))?;
            self.held = Held::No;
        }
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // On failure the kernel frees the memory when the file is closed.
        let _ = self.free(false);
        // In a child the range is not mapped, or holds another mapping: do not unmap it.
        if let Some(pages) = self.pages.take()
            && self.context.forked()
        {
            pages.leak();
        }
    }
}

/// The unit in which the memory is accessed.
const WORD: usize = size_of::<u32>();

impl Context {
    /// Allocates memory on the device (`ibv_alloc_dm`), aligned to two to the power of `log_align`.
    /// `len` is at least one and at most [`DeviceAttr::max_dm_size`]; the device rounds it up. Zero
    /// is the default alignment, 64 bytes.
    ///
    /// [`DeviceAttr::max_dm_size`]: crate::DeviceAttr::max_dm_size
    pub fn alloc_dm(&self, len: usize, log_align: u32) -> Result<DeviceMemory, Error> {
        const VERB: &str = "alloc_dm";
        let context = &self.inner;
        context.check(VERB)?;
        let max = context.caps.device.max_dm_size;
        if len == 0 || len as u64 > max {
            let what = format!("{len} bytes requested; the device has 1 to {max}");
            return Err(Error::invalid(VERB, what));
        }
        let made = context.run(VERB, |file| command::alloc(file, len as u64, log_align))?;
        DeviceMemory::map(VERB, context, &made, len, Held::Own).inspect_err(|_| {
            // Memory without a mapping is useless. If this fails too, the kernel frees it when the
            // file is closed.
            let _ = context.run_destroy(VERB, |file| command::free(file, made.handle));
        })
    }

    /// Imports device memory of another part of the same context (`ibv_import_dm`), by the kernel's
    /// handle. Dropping it does not free the memory; [`DeviceMemory::free`] does.
    pub fn import_dm(&self, handle: u32) -> Result<DeviceMemory, Error> {
        const VERB: &str = "import_dm";
        let context = &self.inner;
        let (found, len) = context.run(VERB, |file| command::query(file, handle))?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        DeviceMemory::map(VERB, context, &found, len, Held::Imported)
    }
}

impl DeviceMemory {
    fn map(
        verb: &'static str,
        context: &Arc<Inner>,
        made: &command::Dm,
        len: usize,
        held: Held,
    ) -> Result<Self, Error> {
        let page = page_size();
        let offset = MmapCommand::DeviceMem.offset(made.page_index.into(), page);
        let Some(room) = len.checked_next_multiple_of(page) else {
            return Err(context.fail(verb, Errno::EPROTO));
        };
        let pages = context.run(verb, |file| file.map(offset, room, MapAccess::Write))?;
        let first = made.start_offset as usize % page;
        // `DeviceFile` can be implemented in safe code, so its result is checked.
        let fits = first.checked_add(len).is_some_and(|end| end <= pages.len());
        if !fits || !(pages.as_ptr().addr() + first).is_multiple_of(WORD) {
            return Err(context.fail(verb, Errno::EPROTO));
        }
        // SAFETY: the memory is inside the mapping.
        let start = unsafe { pages.as_non_null().byte_add(first) };
        let context = Arc::clone(context);
        let memory = Memory { context, handle: made.handle, len, pages: Some(pages), start, held };
        Ok(Self { inner: Arc::new(memory) })
    }

    /// Returns the number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Returns the first byte, in a mapping of the device's page. The memory must be accessed in
    /// aligned words of four bytes.
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.start.as_ptr()
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap. See
    /// [`Context::device_file`].
    pub fn kernel_handle(&self) -> u32 {
        self.inner.handle
    }

    /// Returns the words of a copy: the address of the first one, and their number.
    fn words(
        &self,
        verb: &'static str,
        offset: usize,
        len: usize,
    ) -> Result<(NonNull<AtomicU32>, usize), Error> {
        let memory = &*self.inner;
        memory.context.check(verb)?;
        if offset.checked_add(len).is_none_or(|end| end > memory.len) {
            let what = format!("{len} bytes at {offset} of memory of {} bytes", memory.len);
            return Err(Error::invalid(verb, what));
        }
        if !offset.is_multiple_of(WORD) || !len.is_multiple_of(WORD) {
            let what = format!("{len} bytes at {offset} are not whole words of {WORD} bytes");
            return Err(Error::invalid(verb, what));
        }
        // SAFETY: the offset was checked to be inside the memory.
        Ok((unsafe { memory.start.byte_add(offset) }.cast(), len / WORD))
    }

    /// Copies `from` to the memory (`ibv_memcpy_to_dm`). Offset and length are multiples of four.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        let (start, count) = self.words("memcpy_to_dm", offset, from.len())?;
        for (index, bytes) in from.chunks_exact(WORD).enumerate().take(count) {
            let mut word = [0; WORD];
            word.copy_from_slice(bytes);
            // SAFETY: one of `count` words in the mapping. A relaxed store is a single store of the
            // word, which the device's memory requires.
            unsafe { start.add(index).as_ref() }.store(u32::from_ne_bytes(word), Relaxed);
        }
        Ok(())
    }

    /// Copies from the memory (`ibv_memcpy_from_dm`). Offset and length are multiples of four.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        let (start, count) = self.words("memcpy_from_dm", offset, to.len())?;
        for (index, bytes) in to.chunks_exact_mut(WORD).enumerate().take(count) {
            // SAFETY: one of `count` words in the mapping, which lives as long as `self`.
            let word = unsafe { start.add(index).as_ref() }.load(Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(())
    }

    /// Frees the memory (`ibv_free_dm`). If a region or another handle of it exists, or if the
    /// kernel refuses, the error returns it.
    pub fn free(self) -> Result<(), DestroyError<Self>> {
        match Arc::try_unwrap(self.inner) {
            Ok(mut alone) => alone
                .free(true)
                .map_err(|error| DestroyError::new(Self { inner: Arc::new(alone) }, error)),
            Err(inner) => {
                let error = Error::busy("free_dm", "a region of the memory, or a handle, exists");
                Err(DestroyError::new(Self { inner }, error))
            }
        }
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceMemory").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl ProtectionDomain {
    /// Registers memory on the device (`ibv_reg_dm_mr`). The kernel accepts only regions whose
    /// addresses count from zero: `access` must have [`Access::ZERO_BASED`]. The region keeps the
    /// memory allocated.
    pub fn reg_dm_mr(
        &self,
        memory: &DeviceMemory,
        range: impl RangeBounds<usize>,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        const VERB: &str = "reg_dm_mr";
        if !Arc::ptr_eq(&memory.inner.context, &self.context) {
            let what = "the device memory and the protection domain belong to different contexts";
            return Err(Error::invalid(VERB, what.into()));
        }
        let inside = bounds(&range, memory.len());
        let Some((start, end)) = inside.filter(|(start, end)| start <= end && *end <= memory.len())
        else {
            return Err(Shown::new(&range).outside(VERB, "bytes", memory.len()));
        };
        let flags = for_kernel(access, &self.context);
        let (offset, len) = (start as u64, (end - start) as u64);
        let handle = memory.inner.handle;
        let made = self
            .context
            .run(VERB, |file| mr::reg_dm(file, self.handle(), handle, offset, len, flags))?;
        // SAFETY: the owner, a clone of `memory`, keeps the memory mapped.
        let mapping =
            unsafe { Mapping::new(memory.inner.start, memory.len(), Box::new(memory.clone())) };
        Ok(MemoryRegion::of_device(self, made, end - start, access, mapping))
    }
}
