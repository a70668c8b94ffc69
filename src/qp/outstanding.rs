//! Requests of a queue pair that a device may still complete, for tests with late completions.

use super::states::NotDone;
use super::{QpInner, QueuePair, QueuePairTransport};
use std::sync::{PoisonError, Weak};

/// Inspects the requests of a queue pair that another part of the test uses.
pub(crate) struct Outstanding(Weak<QpInner>);

impl<T: QueuePairTransport> QueuePair<T> {
    /// Returns a view of its requests.
    pub(crate) fn outstanding(&self) -> Outstanding {
        Outstanding(std::sync::Arc::downgrade(&self.control.inner))
    }
}

impl Outstanding {
    /// The requests without a completion. Empty if the queue pair is gone.
    pub(crate) fn requests(&self) -> Vec<NotDone> {
        let mut requests = Vec::new();
        if let Some(inner) = self.0.upgrade() {
            inner.add_unknown(&mut requests);
        }
        requests
    }

    /// The counters of receives and of blocks of sends that were posted since it left RESET.
    pub(crate) fn posted(&self) -> Option<[u16; 2]> {
        let inner = self.0.upgrade()?;
        let memory = inner.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let record = memory.as_ref()?.1.record();
        Some([0, 4].map(|at| {
            // SAFETY: four bytes of the record, which lives as long as the queue pair, held by
            // `inner`.
            let counter = unsafe { record.byte_add(at).cast::<[u8; 4]>().read_volatile() };
            u32::from_be_bytes(counter) as u16
        }))
    }
}
