//! Polls completion queues.

use mlx5::{CompletionOpcode, CompletionQueue, SharedCompletionQueue, WorkCompletion};

/// Reads the fields of a completion that most users read: status, identifier, operation, length.
#[inline(always)]
pub(super) fn read(completion: WorkCompletion<'_>, sum: &mut u64) {
    if completion.status().is_ok() {
        let sent = completion.opcode() == CompletionOpcode::RdmaWrite;
        let length = completion.byte_len().unwrap_or(0);
        *sum += completion.wr_id() + u64::from(length) + u64::from(sent);
    }
}

#[inline(never)]
pub fn one(cq: &mut CompletionQueue, sum: &mut u64) -> Option<usize> {
    cq.poll(1, |completion| read(completion, sum)).ok()
}

#[inline(never)]
pub fn many(cq: &mut CompletionQueue, max: usize, sum: &mut u64) -> Option<usize> {
    cq.poll(max, |completion| read(completion, sum)).ok()
}

#[inline(never)]
pub fn empty(cq: &mut CompletionQueue, sum: &mut u64) -> Option<usize> {
    // Differs from `one`, since the compiler would merge two equal functions.
    cq.poll(1, |completion| *sum += completion.wr_id()).ok()
}

#[inline(never)]
pub fn one_shared(cq: &SharedCompletionQueue, sum: &mut u64) -> Option<usize> {
    cq.poll(1, |completion| read(completion, sum)).ok()
}
