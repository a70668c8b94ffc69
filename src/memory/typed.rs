//! A region as elements of a plain type.

use super::{
    MemoryRegion,
    range::{Shown, bounds},
};
use crate::error::Error;
use mlx5_wqe::{RemoteSlice, Sge};
use std::{
    borrow::{Borrow, BorrowMut},
    fmt,
    marker::PhantomData,
    ops::RangeBounds,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A plain type: every bit pattern is a value, there is no padding, and no interior mutability.
/// Numbers and arrays of them are plain; a struct derives [`FromBytes`], [`IntoBytes`] and
/// [`Immutable`] of `zerocopy`, which is reexported as [`mlx5::zerocopy`](crate::zerocopy). A
/// program that does not depend on `zerocopy` itself names the reexport, as here.
///
/// ```
/// use mlx5::{Plain, zerocopy::{FromBytes, Immutable, IntoBytes}};
///
/// #[derive(FromBytes, IntoBytes, Immutable)]
/// #[zerocopy(crate = "mlx5::zerocopy")]
/// #[repr(C)]
/// struct Entry {
///     key: u64,
///     value: [u8; 24],
/// }
///
/// fn is_plain<T: Plain>() {}
/// is_plain::<Entry>();
/// ```
pub trait Plain: FromBytes + IntoBytes + Immutable {}

impl<T: FromBytes + IntoBytes + Immutable> Plain for T {}

/// A region as elements of type `T`: see [`MemoryRegion::typed`].
///
/// Elements are copied. A copy is not atomic: if the device or another thread writes an element
/// meanwhile, some of its bytes may be from before the write and some from after it. For elements
/// that a peer writes, [`MessageRing`](super::MessageRing) and
/// [`MessageSlots`](super::MessageSlots) detect when they are complete.
///
/// `R` holds the region: a reference, the region itself, an `Arc` of it, or a
/// [`BufferRegion`](super::BufferRegion).
pub struct Typed<T, R = MemoryRegion> {
    region: R,
    element: PhantomData<fn() -> T>,
}

impl MemoryRegion {
    /// Returns the region as elements of type `T`. Bytes after the last whole element are left out.
    /// [`Typed::new`] returns a value that owns the region.
    ///
    /// ```
    /// # use mlx5_sim::{SimConfig, Simulator};
    /// # let simulator = Simulator::new(SimConfig::new());
    /// # let pd = mlx5::devices_on(simulator.kernel())?[0].open()?.alloc_pd()?;
    /// use mlx5::zerocopy::{FromBytes, Immutable, IntoBytes};
    ///
    /// #[derive(FromBytes, IntoBytes, Immutable, PartialEq, Debug)]
    /// #[zerocopy(crate = "mlx5::zerocopy")]
    /// #[repr(C)]
    /// struct Entry {
    ///     key: u64,
    ///     value: [u8; 24],
    /// }
    ///
    /// let region = pd.memory(4096).register()?;
    /// let entries = region.typed::<Entry>()?;
    /// assert_eq!(entries.len(), 4096 / 32);
    /// entries.set(3, &Entry { key: 7, value: [1; 24] })?;
    /// assert_eq!(entries.get(3)?.key, 7);
    /// assert_eq!(entries.sge(3..4)?.length, 32);
    /// # Ok::<(), mlx5::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the region has foreign memory, or no room for an element.
    pub fn typed<T: Plain>(&self) -> Result<Typed<T, &Self>, Error> {
        Typed::new(self)
    }
}

impl<T: Plain, R: Borrow<MemoryRegion>> Typed<T, R> {
    const SIZE: usize = {
        assert!(size_of::<T>() > 0, "an element needs a size");
        size_of::<T>()
    };

    /// Makes elements of type `T` of a region. See [`MemoryRegion::typed`].
    pub fn new(region: R) -> Result<Self, Error> {
        const WHAT: &str = "typed";
        let memory = region.borrow();
        memory.own(WHAT, 0, 0)?;
        if memory.len() < Self::SIZE {
            let what = format!(
                "a region of {} bytes has no room for an element of {} bytes",
                memory.len(),
                Self::SIZE
            );
            return Err(Error::invalid(WHAT, what));
        }
        Ok(Self { region, element: PhantomData })
    }

    /// Returns the region.
    pub fn region(&self) -> &MemoryRegion {
        self.region.borrow()
    }

    /// Returns the value that it was made from.
    pub fn into_inner(self) -> R {
        self.region
    }

    /// Returns the number of elements.
    #[expect(clippy::len_without_is_empty, reason = "there is at least one element")]
    pub fn len(&self) -> usize {
        self.region().len() / Self::SIZE
    }

    /// Returns offset and length in bytes of a range of elements.
    #[inline]
    fn extent(
        &self,
        operation: &'static str,
        range: &impl RangeBounds<usize>,
    ) -> Result<(usize, usize), Error> {
        let len = self.len();
        match bounds(range, len) {
            Some((start, end)) if start <= end && end <= len => {
                Ok((start * Self::SIZE, (end - start) * Self::SIZE))
            }
            _ => Err(Shown::new(range).outside(operation, "elements", len)),
        }
    }

    /// Copies an element out.
    pub fn get(&self, index: usize) -> Result<T, Error> {
        const WHAT: &str = "get";
        let (start, _) = self.extent(WHAT, &(index..=index))?;
        let mut value = T::new_zeroed();
        self.region().own(WHAT, start, Self::SIZE)?.read(start, value.as_mut_bytes());
        Ok(value)
    }

    /// Copies an element in.
    pub fn set(&self, index: usize, value: &T) -> Result<(), Error> {
        const WHAT: &str = "set";
        let (start, _) = self.extent(WHAT, &(index..=index))?;
        self.region().own(WHAT, start, Self::SIZE)?.write(start, value.as_bytes());
        Ok(())
    }

    /// Copies elements out, from index `first` on.
    pub fn read(&self, first: usize, to: &mut [T]) -> Result<(), Error> {
        const WHAT: &str = "read";
        let (start, len) = self.extent(WHAT, &Range::at(first, to.len()))?;
        self.region().own(WHAT, start, len)?.read(start, to.as_mut_bytes());
        Ok(())
    }

    /// Copies elements in, from index `first` on.
    pub fn write(&self, first: usize, from: &[T]) -> Result<(), Error> {
        const WHAT: &str = "write";
        let (start, len) = self.extent(WHAT, &Range::at(first, from.len()))?;
        self.region().own(WHAT, start, len)?.write(start, from.as_bytes());
        Ok(())
    }

    /// Returns a scatter/gather entry for a range of elements. See [`MemoryRegion::sge`].
    #[inline]
    pub fn sge(&self, range: impl RangeBounds<usize>) -> Result<Sge, Error> {
        let (start, len) = self.extent("sge", &range)?;
        self.region().sge(start..start + len)
    }

    /// Returns a range of elements as memory of a peer. See [`MemoryRegion::remote_slice`].
    pub fn remote_slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteSlice<T>, Error> {
        let (start, len) = self.extent("remote address", &range)?;
        Ok(self.region().remote_slice(start..start + len)?.cast()?)
    }
}

impl<T: Plain, R: BorrowMut<MemoryRegion>> Typed<T, R> {
    /// Returns the elements as a slice, if the device may not write them. See
    /// [`MemoryRegion::as_slice`].
    ///
    /// ```
    /// # use mlx5_sim::{SimConfig, Simulator};
    /// # let simulator = Simulator::new(SimConfig::new());
    /// # let pd = mlx5::devices_on(simulator.kernel())?[0].open()?.alloc_pd()?;
    /// use mlx5::{Access, Typed};
    ///
    /// let table = pd.memory(4096).access(Access::REMOTE_READ).register()?;
    /// let mut table = Typed::<u64, _>::new(table)?;
    /// table.set(3, &7)?;
    /// assert_eq!(table.as_slice()?[3], 7);
    /// # Ok::<(), mlx5::Error>(())
    /// ```
    pub fn as_slice(&mut self) -> Result<&[T], Error> {
        let len = self.len() * Self::SIZE;
        let bytes = &self.region.borrow_mut().as_slice()?[..len];
        <[T]>::ref_from_bytes(bytes).map_err(|_| unaligned::<T>())
    }
}

fn unaligned<T>() -> Error {
    let what =
        format!("the memory is not aligned to {} bytes, as its elements need", align_of::<T>());
    Error::invalid("as_slice", what)
}

/// The range of `len` elements from `first` on, even past the last possible index.
struct Range {
    first: usize,
    end: Option<usize>,
}

impl Range {
    fn at(first: usize, len: usize) -> Self {
        Self { first, end: first.checked_add(len) }
    }
}

impl RangeBounds<usize> for Range {
    fn start_bound(&self) -> std::ops::Bound<&usize> {
        std::ops::Bound::Included(&self.first)
    }

    fn end_bound(&self) -> std::ops::Bound<&usize> {
        match &self.end {
            Some(end) => std::ops::Bound::Excluded(end),
            // No memory is that long.
            None => std::ops::Bound::Included(&usize::MAX),
        }
    }
}

impl<T, R: Borrow<MemoryRegion>> fmt::Debug for Typed<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Typed")
            .field("element", &std::any::type_name::<T>())
            .field("region", self.region.borrow())
            .finish()
    }
}
