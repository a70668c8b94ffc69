//! Objects that a forked child has too.
//!
//! Memory of queues and mapped device pages stay with the process that made them, so a provider's
//! context does nothing in a child. C lets a child go on with the context, as `daemon()` makes
//! programs do: what it creates is its own. So a child takes part in the same context of the kernel
//! by a context of the provider of its own, made when it is first needed.

use mlx5_uapi::process::Origin;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Makes the value of a child out of its parent's.
pub(crate) type Remake<T> = Arc<dyn Fn(&T) -> Option<T> + Send + Sync>;

/// A value of each process that has it.
pub(crate) struct InProcess<T> {
    origin: Origin,
    value: ManuallyDrop<T>,
    remake: Remake<T>,
    /// The value of a child, or that it cannot have one.
    child: OnceLock<Option<Box<InProcess<T>>>>,
}

impl<T> InProcess<T> {
    pub(crate) fn new(value: T, remake: Remake<T>) -> Self {
        let value = ManuallyDrop::new(value);
        Self { origin: Origin::here(), value, remake, child: OnceLock::new() }
    }

    /// How a child gets a value of its own.
    pub(crate) fn remake(&self) -> &Remake<T> {
        &self.remake
    }

    /// Whether this process is a child of the one that made it.
    pub(crate) fn left(&self) -> bool {
        self.origin.left()
    }

    #[cold]
    #[inline(never)]
    fn in_child(&self) -> &T {
        let child = self.child.get_or_init(|| {
            let value = (self.remake)(&self.value)?;
            Some(Box::new(Self::new(value, Arc::clone(&self.remake))))
        });
        match child {
            Some(child) => child,
            // Each call of the parent's value says that it is in a child.
            None => &self.value,
        }
    }

    /// Ends the value: that of a child, if this is one. A parent's is left to the parent.
    pub(crate) fn into_inner(self) -> Option<T> {
        if !self.left() {
            return Some(ManuallyDrop::into_inner(self.value));
        }
        self.child.into_inner()??.into_inner()
    }
}

impl<T> InProcess<T> {
    /// Ends the value as [`InProcess::into_inner`] does, unless `end` gives it back. Whether it ended.
    ///
    /// # Safety
    /// Once it ended, it is not used any more.
    pub(crate) unsafe fn end(&mut self, end: impl FnOnce(T) -> Result<(), T>) -> bool {
        if self.left() {
            return match self.child.get_mut() {
                // SAFETY: by the contract.
                Some(Some(child)) => unsafe { child.end(end) },
                _ => true,
            };
        }
        // SAFETY: by the contract. A value that comes back is put where it was.
        match end(unsafe { ManuallyDrop::take(&mut self.value) }) {
            Ok(()) => true,
            Err(value) => {
                self.value = ManuallyDrop::new(value);
                false
            }
        }
    }
}

impl<T> Deref for InProcess<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        if self.left() { self.in_child() } else { &self.value }
    }
}
