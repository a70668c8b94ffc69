//! A region as atomics, shared with the device, peers and threads.

use super::{
    MemoryBuilder, MemoryRegion,
    range::{Shown, bounds},
};
use crate::error::{DestroyError, Error};
use mlx5_wqe::{RemoteSlice, Sge};
use std::{
    fmt,
    ops::{Deref, RangeBounds},
    ptr::NonNull,
    sync::atomic::{
        AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
    },
};

mod sealed {
    pub trait Sealed {}
}

/// An atomic integer as which memory of a region can be viewed. Every bit pattern is a valid value.
pub trait Atomic: sealed::Sealed + Sync + 'static {}

macro_rules! atomics {
    ($($name:ident)*) => { $(
        impl sealed::Sealed for $name {}
        impl Atomic for $name {}
    )* };
}

atomics! { AtomicU8 AtomicU16 AtomicU32 AtomicU64 AtomicI8 AtomicI16 AtomicI32 AtomicI64 }

impl MemoryRegion {
    /// Returns the owned memory as atomic words. Bytes after the last whole word are left out.
    ///
    /// This is sound although the device may write the words at any time: atomics may change behind
    /// a shared reference, and the process has no other reference to memory that the device may
    /// write. [`MemoryRegion::read_at`] and [`MemoryRegion::write_at`] access the same words
    /// atomically, too. For other sizes see [`MemoryBuilder::register_atomics`].
    ///
    /// # Order of the device's writes
    /// A program sees an aligned word whole if the device writes it whole. Whether it also sees the
    /// words that the device wrote *before* is a matter of order. With `Ordering::Acquire` the
    /// processor performs later loads after this one: on x86-64 as any loads, on aarch64 by `ldar`.
    /// That suffices for memory that device and processors share coherently, but Linux does not
    /// rely on it for devices: its `dma_rmb` is `dmb oshld`.
    /// [`QueuePair::data_in_order`](crate::QueuePair::data_in_order) returns whether the device
    /// itself wrote them in order. [`MessageRing`](super::MessageRing) and
    /// [`MessageSlots`](super::MessageSlots) need no order: each of their messages has a check.
    ///
    /// An atomic request of the device (compare and swap, fetch and add) is atomic to the processor
    /// only if [`DeviceAttr::atomic_cap`](crate::DeviceAttr::atomic_cap) is `Global`; otherwise
    /// only to other requests of the same device.
    ///
    /// ```
    /// # use mlx5_sim::{SimConfig, Simulator};
    /// # let simulator = Simulator::new(SimConfig::new());
    /// # let pd = mlx5::devices_on(simulator.kernel())?[0].open()?.alloc_pd()?;
    /// use mlx5::Access;
    /// use std::sync::atomic::Ordering;
    ///
    /// let rights = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    /// let region = pd.memory(64).access(rights).register()?;
    /// let counters = region.atomics()?;
    /// counters[3].fetch_add(5, Ordering::Relaxed);
    /// let peers_view = region.remote(24..32)?;
    /// # Ok::<(), mlx5::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the region has foreign memory, or memory that does not start at a multiple of 8.
    pub fn atomics(&self) -> Result<&[AtomicU64], Error> {
        const WHAT: &str = "atomics";
        let words = self.own(WHAT, 0, self.len())?.as_words();
        match words {
            Some(words) => Ok(&words[..self.len() / size_of::<AtomicU64>()]),
            None => Err(misaligned(WHAT, align_of::<AtomicU64>())),
        }
    }
}

impl MemoryBuilder<'_> {
    /// Allocates zeroed memory and registers it as atomics of any size. It cannot be copied as
    /// bytes: accesses of different sizes to the same bytes would be data races. The length must be
    /// a whole number of atomics, at least one.
    ///
    /// ```
    /// # use mlx5_sim::{SimConfig, Simulator};
    /// # let simulator = Simulator::new(SimConfig::new());
    /// # let pd = mlx5::devices_on(simulator.kernel())?[0].open()?.alloc_pd()?;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    ///
    /// let flags = pd.memory(64).register_atomics::<AtomicU32>()?;
    /// flags[15].store(7, Ordering::Release);
    /// assert_eq!(flags.sge(15..16)?.length, 4);
    /// # Ok::<(), mlx5::Error>(())
    /// ```
    pub fn register_atomics<A: Atomic>(self) -> Result<AtomicRegion<A>, Error> {
        let region = self.register()?;
        if !region.len().is_multiple_of(size_of::<A>()) {
            let (len, size) = (region.len(), size_of::<A>());
            let what = format!("{len} bytes are not a whole number of atomics of {size} bytes");
            return Err(Error::invalid("reg_mr", what));
        }
        let start = region.as_ptr().and_then(|start| NonNull::new(start.cast()));
        let start = start.filter(|start: &NonNull<A>| start.is_aligned());
        let Some(start) = start else { return Err(misaligned("reg_mr", align_of::<A>())) };
        Ok(AtomicRegion { region, start })
    }
}

fn misaligned(operation: &'static str, align: usize) -> Error {
    Error::invalid(operation, format!("the memory does not start at a multiple of {align} bytes"))
}

/// A region of atomics, to which it dereferences: see [`MemoryBuilder::register_atomics`]. The
/// order of the device's writes is that of [`MemoryRegion::atomics`].
///
/// In a forked child the atomics are zeros. With [huge pages](MemoryBuilder::huge_pages) the child
/// has no such memory: an access ends it by SIGSEGV.
pub struct AtomicRegion<A> {
    region: MemoryRegion,
    start: NonNull<A>,
}

// SAFETY: `MemoryRegion` is Send, and `start` refers only to atomics, which are Sync.
unsafe impl<A: Atomic> Send for AtomicRegion<A> {}
// SAFETY: `MemoryRegion` is Sync, and `start` refers only to atomics, which are Sync.
unsafe impl<A: Atomic> Sync for AtomicRegion<A> {}

impl<A: Atomic> AtomicRegion<A> {
    fn extent(
        &self,
        operation: &'static str,
        range: &impl RangeBounds<usize>,
    ) -> Result<std::ops::Range<usize>, Error> {
        let len = self.region.len() / size_of::<A>();
        match bounds(range, len) {
            Some((start, end)) if start <= end && end <= len => {
                Ok(start * size_of::<A>()..end * size_of::<A>())
            }
            _ => Err(Shown::new(range).outside(operation, "atomics", len)),
        }
    }

    /// Returns the device address of the first atomic.
    pub fn addr(&self) -> u64 {
        self.region.addr()
    }

    /// Returns the key for local requests.
    pub fn lkey(&self) -> u32 {
        self.region.lkey()
    }

    /// Returns the key for peers.
    pub fn rkey(&self) -> u32 {
        self.region.rkey()
    }

    /// Returns a scatter/gather entry for a range of atomics.
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Result<Sge, Error> {
        self.region.sge(self.extent("sge", &range)?)
    }

    /// Returns a range of atomics as memory of a peer, as [`MemoryRegion::remote_slice`].
    pub fn remote_slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteSlice<A>, Error> {
        Ok(self.region.remote_slice(self.extent("remote address", &range)?)?.cast()?)
    }

    /// Deregisters the region and frees its memory, as [`MemoryRegion::deregister`].
    pub fn deregister(self) -> Result<(), DestroyError<Self>> {
        let Self { region, start } = self;
        region.deregister().map_err(|failed| failed.map(|region| Self { region, start }))
    }
}

impl<A: Atomic> Deref for AtomicRegion<A> {
    type Target = [A];

    fn deref(&self) -> &[A] {
        // SAFETY: the region owns the memory, which starts at `start`, is aligned and has this
        // number of atomics, for as long as the region lives. The region is never reregistered,
        // because only `self` has it. All bit patterns are values. The process accesses the memory
        // only through these atomics, so by loads and stores of one size; the device's accesses are
        // like those of another thread.
        unsafe {
            std::slice::from_raw_parts(self.start.as_ptr(), self.region.len() / size_of::<A>())
        }
    }
}

impl<A> fmt::Debug for AtomicRegion<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AtomicRegion").field(&self.region).finish()
    }
}
