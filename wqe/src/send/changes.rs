//! Changes of memory keys by requests of a send queue: noted, settled and undone.

use crate::send::journal::Change;
use crate::send::queue::SendQueue;

impl<T> SendQueue<T> {
    /// Adds the change of request `sequence`, the latest one, to the journal, unless the request
    /// was refused.
    pub(crate) fn note_change(&mut self, sequence: u32, change: Change) {
        if self.batch.error.is_none() {
            self.settle_key_changes();
            self.journal.push(sequence, change);
        }
    }

    /// Settles the changes of retired requests.
    pub(crate) fn settle_key_changes(&mut self) {
        let sequence = self.posted.sequence;
        let outstanding = self.records().outstanding_before(sequence as u16);
        let retired = sequence.wrapping_sub(outstanding.into());
        if self.journal.starts_before(retired) {
            let failed = self.records().failed();
            self.journal.settle(retired, failed);
        }
    }

    /// Undoes the changes of keys by requests that are not posted.
    #[cold]
    #[inline(never)]
    pub(crate) fn undo_changes(&mut self) {
        // In a forked child a key may be locked for ever, by a thread that only the parent has.
        if self.gate.is_forked() {
            return self.journal.forget();
        }
        self.journal.undo_from(self.posted.sequence);
    }

    /// Ends all changes, because the queue starts over or is dropped: those of requests that were
    /// not posted are undone, those of executed ones final, and of the others it will never be
    /// known. The records still show which requests were retired.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_changes(&mut self) {
        self.undo_changes();
        self.settle_key_changes();
        self.journal.mark_unknown();
    }
}
