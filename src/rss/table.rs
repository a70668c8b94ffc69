//! Tables of work queues.

use super::work_queue::WqInner;
use super::{WorkQueue, WorkQueueTarget};
use crate::context::{Context, Inner};
use crate::error::{DestroyError, Error, ErrorKind, RAW_PACKETS};
use mlx5_uapi::cmd::wq as command;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A table of work queues (`struct ibv_rwq_ind_table`): the low bits of a packet's hash select an
/// entry.
///
/// A clone is another handle of the same table, which is destroyed with the last handle, after the
/// queue pairs that use it.
#[derive(Clone)]
pub struct IndirectionTable {
    pub(super) inner: Arc<TableInner>,
}

pub(super) struct TableInner {
    pub(super) context: Arc<Inner>,
    handle: Mutex<Option<u32>>,
    number: u32,
    queues: Box<[Arc<WqInner>]>,
}

impl TableInner {
    /// Returns the kernel's handle, for a call.
    pub(super) fn live(&self, verb: &'static str) -> Result<u32, Error> {
        let handle = *self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        handle.ok_or_else(|| Error::invalid(verb, "the table was destroyed".into()))
    }

    fn destroy(&self) -> Result<(), Error> {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = *handle {
            self.context.run_destroy("destroy_rwq_ind_table", |file| {
                command::destroy_ind_table(file, live)
            })?;
            *handle = None;
        }
        Ok(())
    }
}

impl Drop for TableInner {
    fn drop(&mut self) {
        // It has no memory that must be kept; the kernel destroys it when the file is closed.
        let _ = self.destroy();
    }
}

impl Context {
    /// Creates a table of work queues (`ibv_create_rwq_ind_table`). The number of entries must be a
    /// power of two. A queue may occur several times.
    pub fn create_indirection_table<'a>(
        &self,
        queues: impl IntoIterator<Item = &'a WorkQueue>,
    ) -> Result<IndirectionTable, Error> {
        self.create_indirection_table_on(queues.into_iter().map(WorkQueue::target))
    }

    /// Like [`Context::create_indirection_table`], for queues that other threads may post to
    /// meanwhile.
    pub fn create_indirection_table_on(
        &self,
        queues: impl IntoIterator<Item = WorkQueueTarget>,
    ) -> Result<IndirectionTable, Error> {
        const VERB: &str = "create_rwq_ind_table";
        self.inner.check(VERB)?;
        let queues: Box<[Arc<WqInner>]> = queues.into_iter().map(|queue| queue.inner).collect();
        if queues.iter().any(|queue| !Arc::ptr_eq(&queue.context, &self.inner)) {
            let what = "a work queue belongs to a different context";
            return Err(Error::invalid(VERB, what.into()));
        }
        let entries = queues.len();
        if !entries.is_power_of_two() {
            let what = format!("{entries} entries: a table has a power of two of them");
            return Err(Error::invalid(VERB, what));
        }
        let most = self.query_device().ethernet.max_indirection_table_size;
        if entries > most as usize {
            let (kind, what) = match most {
                0 => {
                    let what = format!("{RAW_PACKETS}: the device has no indirection tables");
                    (ErrorKind::NotSupported, what)
                }
                _ => (
                    ErrorKind::InvalidArgument,
                    format!("{entries} entries; the device supports at most {most}"),
                ),
            };
            return Err(Error::new(VERB, kind, what));
        }
        let handles =
            queues.iter().map(|queue| queue.live(VERB)).collect::<Result<Vec<_>, Error>>()?;
        let made = self.inner.run(VERB, |file| command::create_ind_table(file, &handles));
        let made = made.map_err(|error| error.asked_for(RAW_PACKETS))?;
        let inner = TableInner {
            context: Arc::clone(&self.inner),
            handle: Mutex::new(Some(made.handle)),
            number: made.number,
            queues,
        };
        Ok(IndirectionTable { inner: Arc::new(inner) })
    }
}

impl IndirectionTable {
    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.inner.queues.len()
    }

    /// Always false: a table has at least one entry.
    pub fn is_empty(&self) -> bool {
        self.inner.queues.is_empty()
    }

    /// Returns the number of the table in the device.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Returns the kernel's handle, for calls that this crate does not wrap, unless it was
    /// destroyed. See [`crate::Context::device_file`].
    pub fn kernel_handle(&self) -> Option<u32> {
        self.inner.live("query").ok()
    }

    /// Destroys the table (`ibv_destroy_rwq_ind_table`). If the kernel refuses, because a queue
    /// pair uses it, the error returns the table.
    pub fn destroy(self) -> Result<(), DestroyError<Self>> {
        match self.inner.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(DestroyError::new(self, error)),
        }
    }
}

impl fmt::Debug for IndirectionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndirectionTable")
            .field("number", &format_args!("{:#x}", self.inner.number))
            .field("entries", &self.len())
            .finish_non_exhaustive()
    }
}
