//! Memory regions.
//!
//! Registering signs the contract that lets posting be safe code: every registered byte counts as
//! writable, by any queue of the domain and by whoever holds the remote key, until deregistering
//! *succeeds*. So owned memory is reached by copies only, or by shared slices of what the device may
//! not write; and it is freed only once the kernel has taken the region back, by its own account or
//! because the file was closed.

mod copy;
mod rereg;

pub use rereg::Reregistration;

pub use mlx5_uapi::verbs::AccessFlags as Access;

use crate::{buffer::allocate, context::Inner, error::Error, pd::ProtectionDomain};
use mlx5_prm::wqe::MAX_SGE_LENGTH;
use mlx5_uapi::{HugePages, Mapping, MemoryRequest, cmd::mr as command, verbs::CoreSupport};
use mlx5_wqe::{RemoteAddress, Sge};
use std::{
    fmt,
    ops::{Bound, RangeBounds},
    os::fd::BorrowedFd,
};

/// Rights by which the device writes.
const WRITES: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);

/// Refuses rights that do not go together, or not with the memory.
fn check_access(access: Access, owned: bool) -> Result<(), Error> {
    let wrong = |what: &str| Err(Error::invalid(VERB, what.to_owned()));
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        && !access.contains(Access::LOCAL_WRITE)
    {
        return wrong("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE, too");
    }
    if owned && access.intersects(Access::ON_DEMAND | Access::HUGETLB) {
        return wrong("on-demand paging is for foreign memory, see `reg_mr`");
    }
    if access.contains(Access::HUGETLB) && !access.contains(Access::ON_DEMAND) {
        return wrong("HUGETLB goes with ON_DEMAND");
    }
    if access.contains(Access::ZERO_BASED) {
        return wrong("for addresses that count from zero use `reg_mr_iova`");
    }
    Ok(())
}

/// The rights as this kernel is told them: one that does not know optional rights would refuse them.
fn for_kernel(access: Access, context: &Inner) -> Access {
    if context.caps.core_support.contains(CoreSupport::OPTIONAL_MR_ACCESS) {
        access
    } else {
        access - Access::RELAXED_ORDERING
    }
}

const VERB: &str = "reg_mr";
const DEREG: &str = "dereg_mr";

/// How owned memory is to be made. See [`ProtectionDomain::memory`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing until `register` is called"]
pub struct MemoryBuilder<'a> {
    pd: &'a ProtectionDomain,
    len: usize,
    align: usize,
    huge_pages: HugePages,
    access: Access,
}

impl MemoryBuilder<'_> {
    /// Who may do what; [`Access::LOCAL_WRITE`] if not told.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Of which pages; ordinary ones if not told.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// The first byte's alignment, a power of two; a page is given in any case.
    pub fn align(mut self, align: usize) -> Self {
        self.align = align;
        self
    }

    /// Makes the memory, all zeros, and registers it.
    pub fn register(self) -> Result<MemoryRegion, Error> {
        let context = &self.pd.context;
        context.check(VERB)?;
        check_access(self.access, true)?;
        if self.len == 0 {
            return Err(Error::invalid(VERB, "the region has no bytes".into()));
        }
        if !self.align.is_power_of_two() {
            let what = format!("alignment {} is not a power of two", self.align);
            return Err(Error::invalid(VERB, what));
        }
        let request = MemoryRequest::new(self.len).align(self.align).huge(self.huge_pages);
        let mapping = allocate(&*context.file, &request)
            .map_err(|errno| context.fail("allocate memory", errno))?;
        let start = mapping.as_ptr().expose_provenance() as u64;
        let what = Place { start, len: self.len, iova: start };
        // SAFETY: the mapping is kept until the region is deregistered, or for ever; nobody has a
        // reference into it while the device may write.
        match unsafe { MemoryRegion::register(self.pd, what, self.access) } {
            Ok(mut region) => {
                region.memory = Some(mapping);
                Ok(region)
            }
            Err(error) => {
                if error.in_doubt() {
                    context.keep(mapping);
                }
                Err(error)
            }
        }
    }
}

impl ProtectionDomain {
    /// Starts to make a region of `len` bytes of its own memory.
    ///
    /// ```no_run
    /// # fn f(pd: &mlx5::ProtectionDomain) -> Result<(), mlx5::Error> {
    /// use mlx5::Access;
    /// let inbox = pd.memory(1 << 20).access(Access::LOCAL_WRITE | Access::REMOTE_WRITE).register()?;
    /// # Ok(())
    /// # }
    /// ```
    pub const fn memory(&self, len: usize) -> MemoryBuilder<'_> {
        MemoryBuilder {
            pd: self,
            len,
            align: 1,
            huge_pages: HugePages::None,
            access: Access::LOCAL_WRITE,
        }
    }

    /// Makes a region of `len` bytes of its own memory, for local reading and writing.
    pub fn allocate(&self, len: usize) -> Result<MemoryRegion, Error> {
        self.memory(len).register()
    }

    /// Registers foreign memory (`ibv_reg_mr`).
    ///
    /// # Safety
    /// Until the region is deregistered *with success* (if dropping it fails, for ever) the `len`
    /// bytes at `start` stay mapped, whatever the process does with them; and if `access` has any
    /// right to write, no Rust reference to them is used, for they may change at any time. With
    /// [`Access::ON_DEMAND`] all that holds of whatever is mapped there later, too. It holds for ever if
    /// registering fails and leaves open whether it was done ([`Error::in_doubt`]).
    pub unsafe fn reg_mr(
        &self,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: handed down.
        unsafe { self.reg_mr_iova(start, len, start.expose_provenance() as u64, access) }
    }

    /// Registers foreign memory which the device calls by other addresses, from `iova` on
    /// (`ibv_reg_mr_iova`). Both first addresses have the same offset in a page.
    ///
    /// # Safety
    /// As for [`ProtectionDomain::reg_mr`].
    pub unsafe fn reg_mr_iova(
        &self,
        start: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        self.context.check(VERB)?;
        check_access(access, false)?;
        let start = start.expose_provenance() as u64;
        check_extent(start, len)?;
        check_extent(iova, len)?;
        // SAFETY: handed down.
        unsafe { MemoryRegion::register(self, Place { start, len, iova }, access) }
    }

    /// Registers `len` bytes of a dma-buf, a device's memory say, from `offset` on
    /// (`ibv_reg_dmabuf_mr`). The device calls them by addresses from `iova` on. Linux 5.12.
    ///
    /// # Safety
    /// Until the region is deregistered *with success* the bytes may be read, and if `access` has a
    /// right to write be written, at any time: whoever else uses them is prepared for it. That holds for
    /// ever if registering fails and leaves open whether it was done ([`Error::in_doubt`]).
    pub unsafe fn reg_dmabuf_mr(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        const VERB: &str = "reg_dmabuf_mr";
        self.context.check(VERB)?;
        check_access(access, false)?;
        check_extent(iova, len)?;
        let flags = for_kernel(access, &self.context);
        let mr = self.context.run(VERB, |file| {
            command::reg_dmabuf(file, self.handle(), dmabuf, offset, len as u64, iova, flags)
        })?;
        Ok(MemoryRegion::new(self, mr, iova, len, access))
    }
}

fn check_extent(start: u64, len: usize) -> Result<(), Error> {
    if len == 0 {
        return Err(Error::invalid(VERB, "the region has no bytes".into()));
    }
    match start.checked_add(len as u64) {
        Some(_) => Ok(()),
        None => {
            let what = format!("{len} bytes from {start:#x} on go past the end of all addresses");
            Err(Error::invalid(VERB, what))
        }
    }
}

/// What to register.
struct Place {
    start: u64,
    len: usize,
    iova: u64,
}

/// A memory region (`struct ibv_mr`), and the memory if it is the region's own.
///
/// Dropping it deregisters it. Should that fail, owned memory is kept until the context closes, which
/// [`crate::Context::leaked`] counts.
pub struct MemoryRegion {
    pd: ProtectionDomain,
    mr: command::Mr,
    /// Whether the kernel has it.
    live: bool,
    addr: u64,
    len: usize,
    access: Access,
    /// All rights that it ever had.
    rights: Access,
    memory: Option<Mapping>,
    /// Memory that it had before it was registered anew.
    former: Vec<Mapping>,
}

impl MemoryRegion {
    /// # Safety
    /// As for [`ProtectionDomain::reg_mr`].
    unsafe fn register(
        pd: &ProtectionDomain,
        Place { start, len, iova }: Place,
        access: Access,
    ) -> Result<Self, Error> {
        let what = command::Registration {
            pd: pd.handle(),
            start,
            length: len as u64,
            hca_va: iova,
            access: for_kernel(access, &pd.context),
        };
        // SAFETY: handed down.
        let mr = pd.context.run(VERB, |file| unsafe { command::reg(file, &what) })?;
        Ok(Self::new(pd, mr, iova, len, access))
    }

    fn new(pd: &ProtectionDomain, mr: command::Mr, addr: u64, len: usize, access: Access) -> Self {
        Self {
            pd: pd.clone(),
            mr,
            live: true,
            addr,
            len,
            access,
            rights: access,
            memory: None,
            former: Vec::new(),
        }
    }

    /// The first byte's address, as the device calls it.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The key for requests of this process.
    pub fn lkey(&self) -> u32 {
        self.mr.lkey
    }

    /// The key for peers.
    pub fn rkey(&self) -> u32 {
        self.mr.rkey
    }

    /// Who may do what.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The domain that it belongs to.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The first byte and the length of a range of the region.
    pub(crate) fn extent(
        &self,
        operation: &'static str,
        range: &impl RangeBounds<usize>,
    ) -> Result<(usize, usize), Error> {
        let start = match range.start_bound() {
            Bound::Included(start) => Some(*start),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.checked_add(1),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(self.len),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= self.len => Ok((start, end - start)),
            _ => Err(self.outside(operation, range)),
        }
    }

    #[cold]
    fn outside(&self, operation: &'static str, range: &impl RangeBounds<usize>) -> Error {
        let bounds = (range.start_bound(), range.end_bound());
        let what = format!("{bounds:?} is not inside the region's {} bytes", self.len);
        Error::invalid(operation, what)
    }

    /// Part of the region, to send from or to receive into: `region.sge(0..64)`.
    #[inline]
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Result<Sge, Error> {
        const WHAT: &str = "sge";
        let (start, len) = self.extent(WHAT, &range)?;
        if len > MAX_SGE_LENGTH as usize {
            let what = format!("{len} bytes are more than an entry can have, {MAX_SGE_LENGTH}");
            return Err(Error::invalid(WHAT, what));
        }
        Ok(Sge { addr: self.addr + start as u64, length: len as u32, lkey: self.mr.lkey })
    }

    /// All of the region, as [`MemoryRegion::sge`].
    #[inline]
    pub fn whole(&self) -> Result<Sge, Error> {
        self.sge(..)
    }

    /// Where a part of the region begins, as a peer names it.
    #[inline]
    pub fn remote(&self, range: impl RangeBounds<usize>) -> Result<RemoteAddress, Error> {
        let (start, _) = self.extent("remote address", &range)?;
        Ok(RemoteAddress { addr: self.addr + start as u64, rkey: self.mr.rkey })
    }

    /// The region's own memory, and the part of it that is meant.
    fn own(
        &self,
        operation: &'static str,
        offset: usize,
        len: usize,
    ) -> Result<copy::Words<'_>, Error> {
        let Some(mapping) = &self.memory else {
            let what = "the memory is not the region's own: reach it as you registered it";
            return Err(Error::invalid(operation, what.into()));
        };
        if self.pd.context.records.wiped() {
            return Err(Error::forked(operation));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(self.outside(operation, &(offset..offset.saturating_add(len))));
        }
        // SAFETY: the mapping is page aligned and in whole pages, lives as long as `self`, and is
        // touched by others only through the same type, or by the device.
        Ok(unsafe { copy::Words::new(mapping.as_non_null(), mapping.len()) })
    }

    /// Copies bytes out of the region's own memory. The device may write meanwhile: then some are
    /// from before and some from after.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        self.own("read_at", offset, to.len())?.read(offset, to);
        Ok(())
    }

    /// Copies bytes into the region's own memory.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.own("write_at", offset, from.len())?.write(offset, from);
        Ok(())
    }

    /// The region's own memory, if the device may not write it: there is no right to write, local
    /// or remote, nor to bind windows. It is borrowed for long enough that
    /// [`MemoryRegion::write_at`] cannot change it. A [key](crate::mkey::Mkey) laid over the region may
    /// have more rights: that the device still looks at the region's is not shown on silicon yet.
    pub fn as_slice(&mut self) -> Result<&[u8], Error> {
        const WHAT: &str = "as_slice";
        if self.rights.intersects(WRITES) {
            let what = "the device may write the region: use read_at";
            return Err(Error::invalid(WHAT, what.into()));
        }
        self.own(WHAT, 0, self.len)?;
        let start = self.memory.as_ref().map_or(std::ptr::dangling(), |memory| memory.as_ptr());
        // SAFETY: `own` found that there are so many bytes, in this process; the device may only
        // read them, and the process writes them through `self` alone, which is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(start, self.len) })
    }

    /// The first byte of the region's own memory. What is done with it is the caller's to answer
    /// for: the device reads and writes as the rights say.
    pub fn as_ptr(&self) -> Option<*mut u8> {
        self.memory.as_ref().map(Mapping::as_ptr)
    }

    fn destroy(&mut self) -> Result<(), Error> {
        if self.live {
            let handle = self.mr.handle;
            self.pd.context.run_destroy(DEREG, |file| command::dereg(file, handle))?;
            self.live = false;
        }
        Ok(())
    }

    /// Deregisters the region and frees its own memory (`ibv_dereg_mr`). Gives it back when the
    /// kernel refuses, as it does while memory windows are bound.
    #[expect(clippy::result_large_err, reason = "the region comes back")]
    pub fn deregister(mut self) -> Result<(), (Self, Error)> {
        self.destroy().map_err(|error| (self, error))
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if self.destroy().is_err() {
            for memory in self.memory.take().into_iter().chain(self.former.drain(..)) {
                // The device may still use it.
                self.pd.context.keep(memory);
            }
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("addr", &format_args!("{:#x}", self.addr))
            .field("len", &self.len)
            .field("lkey", &format_args!("{:#x}", self.mr.lkey))
            .field("rkey", &format_args!("{:#x}", self.mr.rkey))
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
