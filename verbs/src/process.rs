//! Objects that a forked child can use, too.
//!
//! Memory of queues and mapped device pages stay with the process that created them, so a context
//! of the provider does nothing in a child. C lets a child continue with the context, as programs
//! that call `daemon()` do: the child owns what it creates. So a child shares the kernel's context
//! through its own context of the provider, which is created when it is first needed.

use mlx5_uapi::process::Origin;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

/// Makes the value of a child from its parent's.
pub(crate) type Remake<T> = Arc<dyn Fn(&T) -> Option<T> + Send + Sync>;

/// A value of which each process has its own.
pub(crate) struct InProcess<T> {
    origin: Origin,
    value: ManuallyDrop<T>,
    remake: Remake<T>,
    /// The value of a child; none if it cannot have one.
    child: OnceLock<Option<Box<InProcess<T>>>>,
}

impl<T> InProcess<T> {
    pub(crate) fn new(value: T, remake: Remake<T>) -> Self {
        let value = ManuallyDrop::new(value);
        Self { origin: Origin::here(), value, remake, child: OnceLock::new() }
    }

    /// Returns the function that makes the value of a child.
    pub(crate) fn remake(&self) -> &Remake<T> {
        &self.remake
    }

    /// Whether this process is a child of the one that made the value.
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
            // Each call on the parent's value reports that it is in a child.
            None => &self.value,
        }
    }

    /// Ends the value: that of the child, if this is one. A parent's value stays with the parent.
    pub(crate) fn into_inner(self) -> Option<T> {
        if !self.left() {
            return Some(ManuallyDrop::into_inner(self.value));
        }
        self.child.into_inner()??.into_inner()
    }
}

impl<T> InProcess<T> {
    /// Ends the value as [`InProcess::into_inner`] does, unless `end` returns it. Returns whether
    /// the value ended.
    ///
    /// # Safety
    /// Once it has ended, it is not used any more.
    pub(crate) unsafe fn end(&mut self, end: impl FnOnce(T) -> Result<(), T>) -> bool {
        if self.left() {
            return match self.child.get_mut() {
                // SAFETY: the caller promises that the value is not used after it has ended.
                Some(Some(child)) => unsafe { child.end(end) },
                _ => true,
            };
        }
        // SAFETY: the caller promises that the value is not used after it has ended. A value that
        // `end` returns is put back.
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
