//! The keys that are told of signature errors.

use mlx5_prm::signature::SignatureErrorCqe;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Whoever is told of a key's errors.
pub(crate) trait Signed: Send + Sync {
    /// A signature did not match.
    fn signature_error(&self, entry: &SignatureErrorCqe);
}

/// The signed keys of a context, by the number that the device calls them by.
#[derive(Default)]
pub(crate) struct SignedKeys(Mutex<HashMap<u32, Arc<dyn Signed>>>);

impl SignedKeys {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<dyn Signed>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, index: u32, key: Arc<dyn Signed>) {
        self.lock().insert(index, key);
    }

    pub(crate) fn remove(&self, index: u32) {
        self.lock().remove(&index);
    }

    /// Tells the key that an entry names. One that is gone has nobody left who would ask.
    pub(crate) fn tell(&self, entry: &SignatureErrorCqe) {
        let key = self.lock().get(&(entry.mkey.get() >> 8)).cloned();
        if let Some(key) = key {
            key.signature_error(entry);
        }
    }
}
