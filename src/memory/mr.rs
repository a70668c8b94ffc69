//! Memory regions.
//!
//! Registering memory is what makes posting safe code. From then on, until deregistration
//! *succeeds*, any queue of the protection domain and any peer that has the rkey may write every
//! registered byte. So a program accesses owned memory by copies, or by shared slices if the device
//! may not write. Owned memory is freed only once the kernel no longer has the region: when it was
//! deregistered, or destroyed because the file was closed.

pub(super) mod copy;
mod rereg;

pub use rereg::Reregistration;

pub use mlx5_uapi::verbs::AccessFlags as Access;

use super::{
    Held, ProtectionDomain,
    range::{Shown, bounds},
};
use crate::{
    context::Inner,
    error::{DestroyError, Error},
    pools::allocate,
};
use mlx5_prm::wqe::MAX_SGE_LENGTH;
use mlx5_uapi::{HugePages, Mapping, MemoryRequest, cmd::mr as command, verbs::CoreSupport};
use mlx5_wqe::{RemoteAddress, RemoteSlice, Sge};
use std::{
    fmt,
    ops::RangeBounds,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    ptr::NonNull,
};

/// Access flags that let the device write.
const WRITES: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);

/// Checks that the flags are valid together and for this kind of memory.
fn check_access(access: Access, owned: bool) -> Result<(), Error> {
    let wrong = |what: &str| Err(Error::invalid(VERB, what.to_owned()));
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        && !access.contains(Access::LOCAL_WRITE)
    {
        return wrong("REMOTE_WRITE and REMOTE_ATOMIC require LOCAL_WRITE");
    }
    if owned && access.intersects(Access::ON_DEMAND | Access::HUGETLB) {
        return wrong("on-demand paging is for foreign memory, see `reg_mr`");
    }
    if access.contains(Access::HUGETLB) && !access.contains(Access::ON_DEMAND) {
        return wrong("HUGETLB requires ON_DEMAND");
    }
    if access.contains(Access::ZERO_BASED) {
        return wrong("for addresses that count from zero use `reg_mr_iova`");
    }
    Ok(())
}

/// Flags that a kernel may ignore (`IB_UVERBS_ACCESS_OPTIONAL_FIRST` to `_LAST`).
const OPTIONAL: Access = Access::from_bits_retain(0x3ff0_0000);

/// Returns the flags for this kernel: a kernel without optional flags would refuse them.
pub(super) fn for_kernel(access: Access, context: &Inner) -> Access {
    if context.caps.core_support.contains(CoreSupport::OPTIONAL_MR_ACCESS) {
        access
    } else {
        access - OPTIONAL
    }
}

const VERB: &str = "reg_mr";
const DEREG: &str = "dereg_mr";
const REMOTE: &str = "remote address";

/// Access flags that let a peer reach the region by its rkey.
const REMOTE_RIGHTS: Access =
    Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

/// Returns one more than the highest end of a range that a peer may access; 0 if it may access
/// none. A single comparison then checks rights and range.
fn remote_limit(access: Access, len: usize) -> usize {
    if access.intersects(REMOTE_RIGHTS) { len.saturating_add(1) } else { 0 }
}

/// Options for a region with memory of its own. See [`ProtectionDomain::memory`].
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing until `register` is called"]
pub struct MemoryBuilder<'a> {
    pd: &'a ProtectionDomain,
    len: usize,
    align: usize,
    huge_pages: HugePages,
    numa_node: Option<u32>,
    access: Access,
}

impl MemoryBuilder<'_> {
    /// Access rights of local and remote requests. Default: [`Access::LOCAL_WRITE`].
    ///
    /// `register` refuses `REMOTE_WRITE` and `REMOTE_ATOMIC` without `LOCAL_WRITE`; `ON_DEMAND` and
    /// `HUGETLB`, which are for foreign memory; and `ZERO_BASED`: see
    /// [`ProtectionDomain::reg_mr_iova`]. On a kernel without optional access flags
    /// `RELAXED_ORDERING` has no effect.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Page size of the memory. Default: [`HugePages::None`], ordinary pages. With
    /// [`HugePages::TwoMiB`] and [`HugePages::OneGiB`] `register` fails if the pool has too few
    /// pages.
    ///
    /// A forked child does not have its parent's huge pages. [`MemoryRegion::read_at`],
    /// [`MemoryRegion::write_at`] and [`MemoryRegion::as_slice`] return
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked) there; an access to
    /// [atomics](crate::AtomicRegion) or through [`MemoryRegion::as_ptr`] ends the child by
    /// SIGSEGV.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// NUMA node of the memory: its pages come from there as long as the node has free memory.
    /// Default: `None`, the process's policy. [`Device::numa_node`](crate::Device::numa_node) is
    /// the node that the device is attached to. [`MemoryBuilder::register`] fails if the node does
    /// not exist, or the kernel has no NUMA support.
    ///
    /// ```no_run
    /// # fn f(device: &mlx5::Device, pd: &mlx5::ProtectionDomain) -> Result<(), mlx5::Error> {
    /// let near = pd.memory(1 << 20).numa_node(device.numa_node()).register()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn numa_node(mut self, node: impl Into<Option<u32>>) -> Self {
        self.numa_node = node.into();
        self
    }

    /// Alignment of the first byte in bytes. Default: 1. `register` refuses anything but a power of
    /// two. The memory is at least page-aligned.
    pub fn align(mut self, align: usize) -> Self {
        self.align = align;
        self
    }

    /// Allocates zeroed memory and registers it. The length must not be zero.
    pub fn register(self) -> Result<MemoryRegion, Error> {
        let context = &self.pd.context;
        context.check(VERB)?;
        check_access(self.access, true)?;
        if self.len == 0 {
            return Err(Error::invalid(VERB, "the region is empty: give at least one byte".into()));
        }
        if !self.align.is_power_of_two() {
            let what = format!("alignment {} is not a power of two", self.align);
            return Err(Error::invalid(VERB, what));
        }
        let request = MemoryRequest::new(self.len).align(self.align);
        let request = request.huge(self.huge_pages).numa_node(self.numa_node);
        let mapping = allocate(VERB, &*context.file, &request)?;
        let start = mapping.as_ptr().expose_provenance() as u64;
        let what = Place { start, len: self.len, iova: start };
        // SAFETY: `region` keeps the mapping until the region is deregistered, and the context
        // keeps it after that until the file is closed, or forever. If registering fails in doubt,
        // the context keeps it, too. No reference into it exists while the device may write.
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
    /// Starts building a region of `len` bytes that it owns. `len` must not be zero.
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
            numa_node: None,
            access: Access::LOCAL_WRITE,
        }
    }

    /// Creates a region of `len` bytes that it owns, for local reads and writes.
    pub fn allocate(&self, len: usize) -> Result<MemoryRegion, Error> {
        self.memory(len).register()
    }

    /// Starts building a region of `count` elements of type `T`, which it owns:
    /// [`MemoryRegion::typed`] then returns them. `count` must not be zero.
    ///
    /// ```no_run
    /// # fn f(pd: &mlx5::ProtectionDomain) -> Result<(), mlx5::Error> {
    /// let counters = pd.memory_of::<u64>(1000).register()?;
    /// counters.typed::<u64>()?.set(999, &7)?;
    /// # Ok(())
    /// # }
    /// ```
    pub const fn memory_of<T>(&self, count: usize) -> MemoryBuilder<'_> {
        const { assert!(size_of::<T>() > 0, "an element needs a size") };
        // `register` refuses more bytes than there are addresses.
        self.memory(count.saturating_mul(size_of::<T>()))
    }

    /// Registers foreign memory (`ibv_reg_mr`).
    ///
    /// `len` must not be zero. In `access`, `REMOTE_WRITE` and `REMOTE_ATOMIC` need `LOCAL_WRITE`,
    /// and `HUGETLB` needs `ON_DEMAND`. `ZERO_BASED` is refused: for addresses that start at zero
    /// use [`ProtectionDomain::reg_mr_iova`]. On a kernel without optional access flags
    /// `RELAXED_ORDERING` has no effect.
    ///
    /// # Safety
    /// The following holds until the region is deregistered *successfully*; forever, if dropping it
    /// fails or if this function fails with [`Error::in_doubt`].
    ///
    /// The `len` bytes at `start` stay mapped, whatever the process does with them. If `access` has
    /// any right to write, no Rust reference to them is used, because they may change at any time.
    /// With [`Access::ON_DEMAND`] all this also holds for memory that is mapped there later.
    pub unsafe fn reg_mr(
        &self,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // SAFETY: the caller promises what `reg_mr` requires of the bytes at `start`.
        unsafe { self.reg_mr_iova(start, len, start.expose_provenance() as u64, access) }
    }

    /// Registers foreign memory at device addresses that start at `iova` (`ibv_reg_mr_iova`).
    /// `start` and `iova` must have the same offset in a page. The limits are those of
    /// [`ProtectionDomain::reg_mr`].
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
        // SAFETY: the caller promises what `reg_mr` requires of the bytes at `start`.
        unsafe { MemoryRegion::register(self, Place { start, len, iova }, access) }
    }

    /// Registers foreign memory, and leaves all checks to the kernel: of a region without bytes, of
    /// the whole address space on demand, of access flags of later kernels. Omits flags that a
    /// kernel may ignore if it does not know them.
    ///
    /// # Safety
    /// As for [`ProtectionDomain::reg_mr`].
    pub unsafe fn reg_mr_raw(
        &self,
        start: *mut u8,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        let start = start.expose_provenance() as u64;
        // SAFETY: the caller promises what `reg_mr` requires of the bytes at `start`.
        unsafe { MemoryRegion::register(self, Place { start, len, iova }, access) }
    }

    /// Imports a memory region of another part of the same context (`ibv_import_mr`), by the
    /// kernel's handle. Its memory is not accessible through it. Dropping it does not deregister
    /// the region; [`MemoryRegion::deregister`] does.
    ///
    /// # Safety
    /// The region is not that of an [`EthernetQueue`](crate::ethernet::EthernetQueue), or of
    /// another object that relies on the exclusive use of its memory. The region is deregistered
    /// only when its owner no longer uses it, because only the owner keeps its memory allocated.
    pub unsafe fn import_mr(&self, handle: u32) -> Result<MemoryRegion, Error> {
        let info = self.context.run("import_mr", |file| command::query(file, handle))?;
        let mr = command::Mr { handle, lkey: info.lkey, rkey: info.rkey };
        let len = usize::try_from(info.length).unwrap_or(usize::MAX);
        // The kernel does not report the rights.
        let mut region = MemoryRegion::new(self, mr, info.iova, len, Access::all());
        region.held = Held::Imported;
        Ok(region)
    }

    /// Registers `len` bytes of a dma-buf, for example device memory, from `offset`
    /// (`ibv_reg_dmabuf_mr`). Their device addresses start at `iova`. Needs Linux 5.12. The limits
    /// of `len` and `access` are those of [`ProtectionDomain::reg_mr`].
    ///
    /// # Safety
    /// The device may read the bytes at any time, and write them if `access` has a right to write,
    /// until the region is deregistered *successfully*; forever, if this function fails with
    /// [`Error::in_doubt`]. Every other user of the bytes must tolerate that.
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
        // SAFETY: the caller promises that every other user of the bytes tolerates the device's
        // accesses.
        unsafe { self.reg_dmabuf_mr_raw(dmabuf.as_raw_fd(), offset, len, iova, access) }
    }

    /// Registers bytes of a dma-buf, and leaves all checks that the kernel can make to it, also of
    /// the descriptor: a kernel without dma-bufs reports that, whatever the descriptor.
    ///
    /// # Safety
    /// As for [`ProtectionDomain::reg_dmabuf_mr`], if the descriptor is that of a dma-buf. If it is
    /// an open file, the caller may use it.
    pub unsafe fn reg_dmabuf_mr_raw(
        &self,
        dmabuf: RawFd,
        offset: u64,
        len: usize,
        iova: u64,
        access: Access,
    ) -> Result<MemoryRegion, Error> {
        // The kernel does not check this: `sge` and `remote` compute with it.
        inside_of_addresses(iova, len)?;
        let flags = for_kernel(access, &self.context);
        // SAFETY: the caller promises that other users of the bytes tolerate the device's accesses,
        // and that it may use the descriptor.
        let mr = self.context.run("reg_dmabuf_mr", |file| unsafe {
            command::reg_dmabuf(file, self.handle(), dmabuf, offset, len as u64, iova, flags)
        })?;
        Ok(MemoryRegion::new(self, mr, iova, len, access))
    }
}

fn check_extent(start: u64, len: usize) -> Result<(), Error> {
    if len == 0 {
        return Err(Error::invalid(VERB, "the region is empty: give at least one byte".into()));
    }
    inside_of_addresses(start, len)
}

fn inside_of_addresses(start: u64, len: usize) -> Result<(), Error> {
    match start.checked_add(len as u64) {
        Some(_) => Ok(()),
        None => {
            let what = format!("{len} bytes at {start:#x} exceed the address space");
            Err(Error::invalid(VERB, what))
        }
    }
}

/// The memory to register.
struct Place {
    start: u64,
    len: usize,
    iova: u64,
}

/// A memory region (`struct ibv_mr`), with the memory if the region owns it.
///
/// From registration until deregistration *succeeds*, every queue of the protection domain and
/// every peer with the rkey may access all its bytes, within the access flags. Posting needs no
/// further permission. So a program accesses owned memory by copies, or by a slice if the device
/// may not write.
///
/// Dropping it deregisters it. If that fails, owned memory is kept until the context closes, and
/// [`crate::Context::leaked`] counts it.
pub struct MemoryRegion {
    pd: ProtectionDomain,
    mr: command::Mr,
    held: Held,
    addr: u64,
    len: usize,
    access: Access,
    /// One more than the highest end of a range that a peer may access; 0 without remote rights.
    remote_limit: usize,
    /// All access flags that the region ever had.
    rights: Access,
    memory: Option<Mapping>,
    /// Memory from before reregistrations.
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
        // SAFETY: the caller promises what `reg_mr` requires of the bytes at `start`.
        let mr = pd.context.run(VERB, |file| unsafe { command::reg(file, &what) })?;
        Ok(Self::new(pd, mr, iova, len, access))
    }

    /// Registers memory of a buffer, as owned memory.
    ///
    /// # Safety
    /// The `len` bytes at `start` are initialized, and stay mapped until the region is deregistered
    /// successfully; forever, if that fails or if this function fails with [`Error::in_doubt`].
    /// Nothing else accesses them meanwhile.
    pub(super) unsafe fn over(
        pd: &ProtectionDomain,
        start: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Result<Self, Error> {
        let context = &pd.context;
        context.check(VERB)?;
        check_access(access, true)?;
        let place = start.as_ptr().expose_provenance() as u64;
        check_extent(place, len)?;
        // SAFETY: the caller promises that the bytes stay mapped and that nothing else accesses
        // them until the mapping is dropped, which does not change them.
        let mapping = unsafe { Mapping::new(start, len, Box::new(())) };
        // SAFETY: the caller promises that the bytes stay mapped and that nothing else accesses
        // them, so no reference to them exists.
        match unsafe { Self::register(pd, Place { start: place, len, iova: place }, access) } {
            Ok(mut region) => {
                region.memory = Some(mapping);
                Ok(region)
            }
            Err(error) => {
                if error.in_doubt() {
                    context.keep_until_exit(mapping);
                }
                Err(error)
            }
        }
    }

    /// Makes a region of memory on the device, whose addresses count from zero. The region keeps
    /// `memory` mapped.
    pub(super) fn of_device(
        pd: &ProtectionDomain,
        mr: command::Mr,
        len: usize,
        access: Access,
        memory: Mapping,
    ) -> Self {
        let mut region = Self::new(pd, mr, 0, len, access);
        // Not `memory`: ordinary loads and stores do not reach it.
        region.former.push(memory);
        region
    }

    /// Gives up deregistering, and keeps the memory of a buffer until the process ends.
    pub(super) fn keep_until_exit(&mut self) {
        self.held = Held::No;
        for memory in self.memory.take().into_iter().chain(self.former.drain(..)) {
            self.pd.context.keep_until_exit(memory);
        }
    }

    fn new(pd: &ProtectionDomain, mr: command::Mr, addr: u64, len: usize, access: Access) -> Self {
        Self {
            pd: pd.clone(),
            mr,
            held: Held::Own,
            addr,
            len,
            access,
            remote_limit: remote_limit(access, len),
            rights: access,
            memory: None,
            former: Vec::new(),
        }
    }

    /// Returns the device address of the first byte.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "no region is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap. See
    /// [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> u32 {
        self.mr.handle
    }

    /// Returns the key for local requests.
    pub fn lkey(&self) -> u32 {
        self.mr.lkey
    }

    /// Returns the key for peers.
    pub fn rkey(&self) -> u32 {
        self.mr.rkey
    }

    /// Returns the access flags.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Returns the offset and the length of a range, if it lies inside the region.
    #[inline]
    pub(crate) fn extent(
        &self,
        operation: &'static str,
        range: &impl RangeBounds<usize>,
    ) -> Result<(usize, usize), Error> {
        match bounds(range, self.len) {
            Some((start, end)) if start <= end && end <= self.len => Ok((start, end - start)),
            _ => Err(Shown::new(range).outside(operation, "bytes", self.len)),
        }
    }

    /// Returns a scatter/gather entry for a range of the region: `region.sge(0..64)`. At most
    /// 2^31 - 1 bytes.
    #[inline]
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Result<Sge, Error> {
        const WHAT: &str = "sge";
        let (start, len) = self.extent(WHAT, &range)?;
        if len > MAX_SGE_LENGTH as usize {
            let what = format!("{len} bytes exceed the maximum of an SGE, {MAX_SGE_LENGTH}");
            return Err(Error::invalid(WHAT, what));
        }
        Ok(Sge { addr: self.addr + start as u64, length: len as u32, lkey: self.mr.lkey })
    }

    /// Returns a scatter/gather entry for the whole region. See [`MemoryRegion::sge`].
    #[inline]
    pub fn whole(&self) -> Result<Sge, Error> {
        self.sge(..)
    }

    /// Returns the address of the start of a range, for a peer. [`MemoryRegion::remote_slice`] also
    /// gives the length.
    ///
    /// # Errors
    /// If the range is not inside the region, or no peer may access the region: its access flags
    /// have neither `REMOTE_READ` nor `REMOTE_WRITE` nor `REMOTE_ATOMIC`.
    #[inline]
    pub fn remote(&self, range: impl RangeBounds<usize>) -> Result<RemoteAddress, Error> {
        match bounds(&range, self.len) {
            // With a limit of zero this never holds.
            Some((start, end)) if start <= end && end < self.remote_limit => {
                Ok(RemoteAddress { addr: self.addr + start as u64, rkey: self.mr.rkey })
            }
            _ => Err(self.not_remote(&range)),
        }
    }

    /// Returns a range as memory of a peer. The peer gets the [`RemoteSlice`] as text or bytes, and
    /// checks its accesses against it.
    ///
    /// ```no_run
    /// # fn f(pd: &mlx5::ProtectionDomain, mut to_peer: impl std::io::Write)
    /// #     -> Result<(), Box<dyn std::error::Error>> {
    /// use mlx5::Access;
    /// let inbox = pd.memory(4096).access(Access::LOCAL_WRITE | Access::REMOTE_WRITE).register()?;
    /// writeln!(to_peer, "{}", inbox.remote_slice(1024..)?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails like [`MemoryRegion::remote`].
    pub fn remote_slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteSlice, Error> {
        let start = self.remote((range.start_bound().cloned(), range.end_bound().cloned()))?;
        let (_, len) = self.extent(REMOTE, &range)?;
        Ok(RemoteSlice::new(start, len)?)
    }

    #[cold]
    fn not_remote(&self, range: &impl RangeBounds<usize>) -> Error {
        if self.remote_limit == 0 {
            let what = "no peer may access the region: register it with REMOTE_READ, REMOTE_WRITE \
                        or REMOTE_ATOMIC";
            return Error::invalid(REMOTE, what.into());
        }
        Shown::new(range).outside(REMOTE, "bytes", self.len)
    }

    /// Returns the owned memory, after checking the range.
    pub(super) fn own(
        &self,
        operation: &'static str,
        offset: usize,
        len: usize,
    ) -> Result<copy::Words<'_>, Error> {
        let Some(mapping) = &self.memory else {
            let what = "the region does not own its memory: access it through your own pointer";
            return Err(Error::invalid(operation, what.into()));
        };
        if self.pd.context.records.wiped() {
            return Err(Error::forked(operation));
        }
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Shown::at(offset, len).outside(operation, "bytes", self.len));
        }
        // SAFETY: the mapping lives as long as `self`. Meanwhile this process accesses it only
        // through `Words`, and through the aligned words that `atomics` returns: `as_slice` borrows
        // `self` exclusively, an `AtomicRegion` does not hand its region out, a `Buffer` promises
        // that nothing else uses its memory, and the caller is responsible for accesses through
        // `as_ptr`. All other accesses are the device's.
        Ok(unsafe { copy::Words::new(mapping.as_non_null(), mapping.len()) })
    }

    /// Copies bytes from the owned memory. If the device writes meanwhile, some bytes may be from
    /// before the write and some from after it.
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        self.own("read_at", offset, to.len())?.read(offset, to);
        Ok(())
    }

    /// Copies bytes into the owned memory.
    pub fn write_at(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        self.own("write_at", offset, from.len())?.write(offset, from);
        Ok(())
    }

    /// Returns the owned memory as a slice. Refused if the region has, or ever had, a right to
    /// write, local or remote, or to bind windows. The borrow excludes [`MemoryRegion::write_at`].
    ///
    /// A [key](crate::mkey::Mkey) over the region may have more rights. It is not proven on silicon
    /// yet that the device still applies the region's rights then.
    pub fn as_slice(&mut self) -> Result<&[u8], Error> {
        const WHAT: &str = "as_slice";
        if self.rights.intersects(WRITES) {
            let what = "the device may write the region: use read_at";
            return Err(Error::invalid(WHAT, what.into()));
        }
        self.own(WHAT, 0, self.len)?;
        let start = self.memory.as_ref().map_or(std::ptr::dangling(), |memory| memory.as_ptr());
        // SAFETY: `own` checked that the memory has `len` bytes and that this process owns it. The
        // device may only read them. The process writes them only through `self`, which is
        // borrowed.
        Ok(unsafe { std::slice::from_raw_parts(start, self.len) })
    }

    /// Returns the first byte of the owned memory. The caller is responsible for dereferencing it:
    /// the device reads and writes the memory within the access flags.
    pub fn as_ptr(&self) -> Option<*mut u8> {
        self.memory.as_ref().map(Mapping::as_ptr)
    }

    pub(super) fn destroy(&mut self) -> Result<(), Error> {
        self.destroy_if(false)
    }

    fn destroy_if(&mut self, explicit: bool) -> Result<(), Error> {
        if self.held.destroys(explicit) {
            let handle = self.mr.handle;
            self.pd.context.run_destroy(DEREG, |file| command::dereg(file, handle))?;
            self.held = Held::No;
        }
        Ok(())
    }

    /// Deregisters the region and frees its memory (`ibv_dereg_mr`). If the kernel refuses, for
    /// example while memory windows are bound to it, the error returns the region.
    pub fn deregister(mut self) -> Result<(), DestroyError<Self>> {
        self.destroy_if(true).map_err(|error| DestroyError::new(self, error))
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
