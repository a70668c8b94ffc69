//! The keys that signature errors are reported to.

use mlx5_prm::signature::SignatureErrorCqe;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The receiver of a key's signature errors.
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

    /// Reports a signature error CQE to the key that it names. If the key no longer exists, nothing
    /// can query the error, and it is dropped.
    pub(crate) fn tell(&self, entry: &SignatureErrorCqe) {
        let key = self.lock().get(&(entry.mkey.get() >> 8)).cloned();
        if let Some(key) = key {
            key.signature_error(entry);
        }
    }
}
