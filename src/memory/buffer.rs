//! Regions over memory that the caller hands over, and gets back.

use super::{Access, MemoryRegion, ProtectionDomain};
use crate::error::{DestroyError, Error, RegisterError};
use memmap2::MmapMut;
use mlx5_uapi::Mapping;
use std::{
    borrow::Borrow,
    fmt,
    mem::ManuallyDrop,
    ops::Deref,
    ptr::{NonNull, slice_from_raw_parts_mut},
};
use zerocopy::{FromBytes, IntoBytes};

/// Memory that a region can be made of: [`ProtectionDomain::register`] takes it, and deregistration
/// returns it.
///
/// Implemented for vectors and boxed slices of plain types, for [`MmapMut`] and for [`Mapping`].
///
/// # Safety
/// [`Buffer::into_parts`] returns initialized memory that is readable and writable, and whose
/// address does not change. Until it is passed to [`Buffer::from_parts`], nothing else accesses it.
/// If it is never passed there, because the kernel does not deregister the region, it stays
/// allocated forever. Every bit pattern of the memory is valid, since the device may write any.
pub unsafe trait Buffer: Sized + Send + Sync + 'static {
    /// The parts of the buffer besides its memory.
    type Parts: Send + Sync;

    /// Takes the buffer apart: start and length of its memory in bytes, and the rest.
    fn into_parts(self) -> (NonNull<u8>, usize, Self::Parts);

    /// Puts the buffer together again.
    ///
    /// # Safety
    /// The arguments are those that one call of [`Buffer::into_parts`] returned, and are passed
    /// here only once. Nothing accesses the memory any more.
    unsafe fn from_parts(start: NonNull<u8>, len: usize, parts: Self::Parts) -> Self;
}

// SAFETY: the elements of a vector are initialized, on the heap, and owned by the vector alone
// until it is dropped, which `ManuallyDrop` prevents. Without padding all their bytes are
// initialized, and as plain types they have no invalid bit pattern.
unsafe impl<T: FromBytes + IntoBytes + Send + Sync + 'static> Buffer for Vec<T> {
    /// Number of elements, capacity.
    type Parts = (usize, usize);

    fn into_parts(self) -> (NonNull<u8>, usize, (usize, usize)) {
        let mut vec = ManuallyDrop::new(self);
        let (len, capacity) = (vec.len(), vec.capacity());
        // A vector's pointer is never null, so the default is never used.
        let start = NonNull::new(vec.as_mut_ptr()).unwrap_or(NonNull::dangling());
        (start.cast(), len * size_of::<T>(), (len, capacity))
    }

    unsafe fn from_parts(start: NonNull<u8>, _: usize, (len, capacity): (usize, usize)) -> Self {
        // SAFETY: the caller promises that these are the parts of a vector, which was not dropped.
        unsafe { Self::from_raw_parts(start.cast().as_ptr(), len, capacity) }
    }
}

// SAFETY: the elements of a boxed slice are initialized, on the heap, and owned by the box alone;
// as plain types they have no padding and no invalid bit pattern. The box is turned into a pointer:
// moving a box would assert that nothing else refers to its memory.
unsafe impl<T: FromBytes + IntoBytes + Send + Sync + 'static> Buffer for Box<[T]> {
    /// Number of elements.
    type Parts = usize;

    fn into_parts(self) -> (NonNull<u8>, usize, usize) {
        let len = self.len();
        // A box's pointer is never null, so the default is never used.
        let start = NonNull::new(Self::into_raw(self).cast()).unwrap_or(NonNull::dangling());
        (start, len * size_of::<T>(), len)
    }

    unsafe fn from_parts(start: NonNull<u8>, _: usize, len: usize) -> Self {
        // SAFETY: the caller promises that these are the parts of a box, whose memory was not
        // freed.
        unsafe { Self::from_raw(slice_from_raw_parts_mut(start.cast().as_ptr(), len)) }
    }
}

// SAFETY: a mapping keeps its bytes mapped until it is dropped, and the caller of `Mapping::new`
// promised that nothing else uses them. Mapped pages are initialized.
unsafe impl Buffer for Mapping {
    type Parts = Self;

    fn into_parts(self) -> (NonNull<u8>, usize, Self) {
        (self.as_non_null(), self.len(), self)
    }

    unsafe fn from_parts(_: NonNull<u8>, _: usize, parts: Self) -> Self {
        parts
    }
}

// SAFETY: a mapping keeps its bytes mapped until it is dropped. The caller that mapped a file
// promised that nothing else changes it, and the pointer inside does not claim to be the only one.
unsafe impl Buffer for MmapMut {
    type Parts = Self;

    fn into_parts(mut self) -> (NonNull<u8>, usize, Self) {
        let start = NonNull::new(self.as_mut_ptr()).unwrap_or(NonNull::dangling());
        (start, self.len(), self)
    }

    unsafe fn from_parts(_: NonNull<u8>, _: usize, parts: Self) -> Self {
        parts
    }
}

/// A memory region over a [`Buffer`] of the caller: see [`ProtectionDomain::register`].
///
/// It is used as the [`MemoryRegion`] to which it dereferences. Dropping it deregisters the region
/// and drops the buffer. If the kernel does not deregister the region, the buffer is never dropped,
/// because its allocator would reuse the memory; [`leaked`](crate::leaked) counts it.
pub struct BufferRegion<B: Buffer> {
    region: MemoryRegion,
    start: NonNull<u8>,
    /// `Some` until the buffer is returned, or kept until the process ends.
    parts: Option<B::Parts>,
}

// SAFETY: `start` is only passed back to the buffer, which is Send, as are the other fields.
unsafe impl<B: Buffer> Send for BufferRegion<B> {}
// SAFETY: a shared reference gives access only to the region, which is Sync.
unsafe impl<B: Buffer> Sync for BufferRegion<B> {}

impl ProtectionDomain {
    /// Registers memory of the caller: a `Vec`, a `Box<[T]>`, or a mapping.
    /// [`BufferRegion::deregister`] returns it. Until then it is accessed through the region.
    ///
    /// The memory must not be empty. The limits of `access` are those of
    /// [`MemoryBuilder::access`](super::MemoryBuilder::access). After a fork, the child has its own
    /// copy of the memory, and the device continues to use the parent's pages (Linux 5.9).
    ///
    /// ```
    /// # use mlx5_sim::{SimConfig, Simulator};
    /// # let simulator = Simulator::new(SimConfig::new());
    /// # let pd = mlx5::devices_on(simulator.kernel())?[0].open()?.alloc_pd()?;
    /// use mlx5::Access;
    ///
    /// let region = pd.register(vec![7_u8; 4096], Access::LOCAL_WRITE)?;
    /// region.write_at(1, b"the device may write here, too")?;
    /// let bytes: Vec<u8> = region.deregister()?;
    /// assert_eq!(&bytes[..4], b"\x07the");
    /// # Ok::<(), mlx5::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error returns the buffer, except after a failure [in doubt](Error::in_doubt): then the
    /// device may use the memory, and the buffer is never dropped, as if it were registered.
    pub fn register<B: Buffer>(
        &self,
        buffer: B,
        access: Access,
    ) -> Result<BufferRegion<B>, RegisterError<Option<B>>> {
        let (start, len, parts) = buffer.into_parts();
        // SAFETY: an implementation of `Buffer` promises initialized memory that stays in place and
        // that nothing else accesses until the buffer is put together again: below if nothing was
        // registered, or by the region once it is deregistered. Otherwise `parts` is forgotten.
        match unsafe { MemoryRegion::over(self, start, len, access) } {
            Ok(region) => Ok(BufferRegion { region, start, parts: Some(parts) }),
            Err(error) if error.in_doubt() => {
                std::mem::forget(parts);
                Err(RegisterError::new(None, error))
            }
            Err(error) => {
                // SAFETY: the parts are those from above, and nothing was registered.
                let buffer = unsafe { B::from_parts(start, len, parts) };
                Err(RegisterError::new(Some(buffer), error))
            }
        }
    }
}

impl<B: Buffer> BufferRegion<B> {
    /// Deregisters the region and returns the buffer (`ibv_dereg_mr`). If the kernel refuses, for
    /// example while memory windows are bound to it, the error returns the region.
    pub fn deregister(mut self) -> Result<B, DestroyError<Self>> {
        if let Err(error) = self.region.destroy() {
            return Err(DestroyError::new(self, error));
        }
        let Some(parts) = self.parts.take() else {
            unreachable!("taking the parts ends the region")
        };
        // SAFETY: the parts are those of the buffer, and were not used before. The device no longer
        // has the region, and only `self`, which ends here, accesses its memory.
        Ok(unsafe { B::from_parts(self.start, self.region.len(), parts) })
    }

    /// Returns the memory as a slice, as [`MemoryRegion::as_slice`].
    pub fn as_slice(&mut self) -> Result<&[u8], Error> {
        self.region.as_slice()
    }
}

impl<B: Buffer> Drop for BufferRegion<B> {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        if self.region.destroy().is_ok() {
            // SAFETY: the parts are those of the buffer, and were not used before. The region is
            // deregistered, and only `self`, which is being dropped, accesses its memory.
            drop(unsafe { B::from_parts(self.start, self.region.len(), parts) });
        } else {
            self.region.keep_until_exit();
            std::mem::forget(parts);
        }
    }
}

impl<B: Buffer> Deref for BufferRegion<B> {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        &self.region
    }
}

impl<B: Buffer> Borrow<MemoryRegion> for BufferRegion<B> {
    fn borrow(&self) -> &MemoryRegion {
        &self.region
    }
}

impl<B: Buffer> fmt::Debug for BufferRegion<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferRegion").field(&self.region).finish()
    }
}
