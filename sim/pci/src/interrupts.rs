//! MSI-X vectors, each with the eventfd that the machine assigned to it.

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Vectors that the function has.
pub const VECTORS: u32 = 32;

#[derive(Debug, Default)]
struct Vector {
    signal: Option<File>,
    /// It was raised while it had no eventfd.
    pending: bool,
}

impl Vector {
    fn raise(&mut self) {
        self.pending = match &mut self.signal {
            // An eventfd that cannot be written is full, and wakes its reader as it is.
            Some(signal) => {
                let _ = signal.write(&1u64.to_ne_bytes());
                false
            }
            None => true,
        };
    }
}

/// The interrupt vectors of a function. Clones are handles of the same vectors.
#[derive(Clone, Debug, Default)]
pub struct Interrupts {
    vectors: Arc<Mutex<[Vector; VECTORS as usize]>>,
}

impl Interrupts {
    fn lock(&self) -> MutexGuard<'_, [Vector; VECTORS as usize]> {
        self.vectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives vectors from `first` on these eventfds, in place of those that they had. Vectors that
    /// were raised without one are raised now.
    pub fn attach(&self, first: u32, signals: Vec<File>) {
        let mut vectors = self.lock();
        for (vector, signal) in vectors.iter_mut().skip(first as usize).zip(signals) {
            vector.signal = Some(signal);
            if vector.pending {
                vector.raise();
            }
        }
    }

    /// Removes the eventfds of `count` vectors from `first` on.
    pub fn detach(&self, first: u32, count: u32) {
        for vector in self.lock().iter_mut().skip(first as usize).take(count as usize) {
            vector.signal = None;
        }
    }

    /// Forgets the vectors that were raised without an eventfd.
    pub fn forget(&self) {
        for vector in self.lock().iter_mut() {
            vector.pending = false;
        }
    }

    /// Raises a vector.
    pub fn raise(&self, vector: u32) {
        if let Some(vector) = self.lock().get_mut(vector as usize) {
            vector.raise();
        }
    }
}
