//! The keys to which signature errors are reported.

use mlx5_prm::signature::SignatureErrorCqe;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The receiver of a key's signature errors.
pub(crate) trait Signed: Send + Sync {
    /// Called when a signature does not match.
    fn signature_error(&self, entry: &SignatureErrorCqe);
}

/// The signed keys of a context, by the device's number.
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

    /// Reports a signature error CQE to the key that it names. If the key no longer exists, the
    /// error is dropped, because no code can query it.
    pub(crate) fn report(&self, entry: &SignatureErrorCqe) {
        let key = self.lock().get(&(entry.mkey.get() >> 8)).cloned();
        if let Some(key) = key {
            key.signature_error(entry);
        }
    }
}
