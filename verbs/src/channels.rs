//! The completion channels of a device, to close them with it.

use crate::abi::*;
use std::collections::HashMap;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Closes a channel that no queue uses.
///
/// # Safety
/// The channel was not destroyed, and no queue is created meanwhile.
pub(crate) type Detach = unsafe fn(*mut ibv_comp_channel);

/// The channels of a device. A channel that no queue uses does not keep the device open: a thread
/// that waits on it learns from the kernel that the device was closed.
#[derive(Default)]
pub(crate) struct Channels(Mutex<HashMap<usize, Detach>>);

impl Channels {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Detach>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a channel, until it is removed.
    pub(crate) fn add(&self, channel: *mut ibv_comp_channel, detach: Detach) {
        self.lock().insert(channel.expose_provenance(), detach);
    }

    /// Unlists a channel that is being destroyed.
    pub(crate) fn remove(&self, channel: *mut ibv_comp_channel) {
        self.lock().remove(&channel.addr());
    }

    /// Closes all channels that no queue uses.
    ///
    /// # Safety
    /// The device is being closed: no queue is created.
    pub(crate) unsafe fn detach(&self) {
        for (&channel, detach) in self.lock().iter() {
            // SAFETY: a listed channel is not destroyed while the list is locked.
            unsafe { detach(ptr::with_exposed_provenance_mut(channel)) };
        }
    }
}
